"""`python -m meshloom.tb.verify.graphs`, which `make graphs` runs: random ONNX models against ONNX Runtime. Goes on
where it was interrupted; what is wrong is written as a file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import typer

from meshloom.sched.support.files import WriteError, write_atomically

from ...build.builder import OUTPUT
from .campaign import GraphFinding, GraphResult, GraphVerdict, batches_of, judge, model_of, record_of, run_all

#: Of the campaign of a night; the seed is one that shows new models when it is changed.
MODELS, SEED = 5_000, 1
#: Where models that are wrong are written, in the cache.
FOLDER = "graphs"


def summary(results: Iterable[GraphResult]) -> str:
    """What became of all models, in words."""
    verdicts, refusals = Counter[str](), Counter[str]()
    for result in results:
        verdicts.update(result.verdicts)
        refusals.update(result.refusals)
    why = ", ".join(f"{number:,} {operator}" for operator, number in refusals.most_common(8))
    count = {verdict: verdicts[verdict] for verdict in GraphVerdict}
    return (
        f"graphs: {verdicts.total():,} models: {count[GraphVerdict.RIGHT]:,} read and scheduled, every byte right; "
        f"{count[GraphVerdict.READ]:,} read, that the chip drawn for them does not hold; "
        f"{count[GraphVerdict.REFUSED]:,} refused ({why or 'none'}); "
        f"{count[GraphVerdict.INVALID]:,} that ONNX Runtime refuses or that have no finite results"
    )


def main(
    models: Annotated[int, typer.Option(min=1, help="Random models.")] = MODELS,
    seed: Annotated[int, typer.Option(min=1, help="A different seed gives other models.")] = SEED,
    jobs: Annotated[int, typer.Option(min=1, help="Models to try at a time.")] = len(os.sched_getaffinity(0)),
    replay: Annotated[
        str | None, typer.Option(metavar="SEED:NODES", help="Try the model of a finding once more, and nothing else.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard what an earlier campaign has done.")] = False,
) -> None:
    """Random ONNX models: what is read and scheduled against ONNX Runtime."""
    from ...report.console import console

    screen = console()

    def on_progress(words: str) -> None:
        screen.print(words, markup=False, soft_wrap=True)

    def fail(words: str) -> typer.Exit:
        screen.print(words, style="red", markup=False, soft_wrap=True)
        return typer.Exit(1)

    if replay is not None:
        first, _, nodes = replay.partition(":")
        if not (first.isdigit() and nodes.isdigit()):
            raise fail(f"error: --replay {replay}: give it as SEED:NODES, as a finding says it")
        verdict, words = judge(int(first), int(nodes))
        if verdict is GraphVerdict.WRONG:
            raise fail(f"{replay}: {words}")
        on_progress(f"{replay}: {verdict}{f' ({words})' if words else ''}")
        return
    batches = batches_of(models, seed)
    record = record_of(batches)
    if fresh:
        record.forget()
    try:
        findings = run_all(batches, record, jobs, on_progress)
        on_progress(summary(record.done.values()))
        if findings:
            raise fail("\n".join(_reported(finding) for finding in findings))
    except KeyboardInterrupt:
        on_progress(f"interrupted with {len(record.done)} of {len(batches)} batches done; the same command goes on")
        raise typer.Exit(130) from None
    except WriteError as error:
        raise fail(f"error: {error}") from error


def _reported(finding: GraphFinding) -> str:
    """Writes the model of a finding; what a reader does with it, in words."""
    model, _ = model_of(finding.seed, finding.size)
    file = OUTPUT / FOLDER / f"{finding.seed}-{finding.size}.onnx"
    write_atomically(file, model.SerializeToString())
    return f"{finding.words}\n  {file}\n  see it again with --replay {finding.seed}:{finding.size}"


if __name__ == "__main__":
    typer.run(main)
