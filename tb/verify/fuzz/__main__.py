"""`python -m meshloom.tb.verify.fuzz`, which `make fuzz` runs: random programs on random chips, RTL against model,
executor and checker. Goes on where it was interrupted."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from meshloom.sched.support.files import WriteError

from ...build.builder import OUTPUT, BuildError
from ...devices.interface import DeviceError
from .campaign import BATCH, BatchResult, FuzzFinding, SampleBatch, device, load, minimal, record_of, run, save
from .chips import pairs_of, random_chips, variants
from .samples import Disagreement, OmittedError, difference, draw

#: Of the campaign of a night; the seed is one that shows new samples when it is changed.
CHIPS, PROGRAMS, ICARUS, SEED = 20, 100_000, 2_000, 1
#: Where findings are written, in the cache.
FOLDER = "fuzz"


def batches_of(chips: int, programs: int, icarus: int, seed: int) -> list[SampleBatch]:
    """The batches of a campaign: `programs` samples in Verilator and `icarus` in Icarus, spread over all chips and
    their variants."""
    configs = [variant for chip in random_chips(seed, chips) for variant in variants(chip)]
    batches: list[SampleBatch] = []
    for simulator, total in (("verilator", programs), ("icarus", icarus)):
        each = -(-total // len(configs))
        for chip in configs:
            batches += [
                SampleBatch(chip, simulator, seed, number, min(BATCH, each - number * BATCH))
                for number in range(-(-each // BATCH))
            ]
    return batches


def summary(results: list[BatchResult]) -> str:
    """All that the campaign has compared, in words."""
    samples, omitted = Counter[str](), Counter[str]()
    for result in results:
        samples.update(result.samples)
        omitted.update(result.omitted)
    numbers = [sum(getattr(result, name) for result in results) for name in ("cycles", "records", "bytes")]
    ran = ", ".join(f"{number:,} {kind}" for kind, number in samples.items())
    left = ", ".join(f"{number:,} {why}" for why, number in omitted.most_common())
    return (
        f"fuzz: {sum(samples.values()):,} samples ran ({ran}), {numbers[0]:,} cycles, {numbers[1]:,} records and "
        f"{numbers[2]:,} bytes compared; not run: {left or 'none'}"
    )


def again(file: Path) -> str:
    """Runs the sample of a finding once more; what disagrees, or an empty text. Raises ValueError, BuildError,
    DeviceError."""
    finding = load(file)
    try:
        sample = draw(finding.origin, finding.chip)
    except Disagreement as error:
        return str(error)
    except OmittedError:
        return ""
    (one,) = device(finding.chip, finding.simulator).run([sample.job])
    return difference(sample, one, finding.chip)


def main(
    chips: Annotated[int, typer.Option(min=1, help="Random chips.")] = CHIPS,
    programs: Annotated[int, typer.Option(min=1, help="Samples in Verilator, on all chips together.")] = PROGRAMS,
    icarus: Annotated[int, typer.Option(min=0, help="Of these, how many in Icarus, too.")] = ICARUS,
    seed: Annotated[int, typer.Option(min=1, help="A different seed gives other chips and programs.")] = SEED,
    jobs: Annotated[int, typer.Option(min=1, help="Simulations to run at a time.")] = len(os.sched_getaffinity(0)),
    replay: Annotated[
        Path | None, typer.Option(help="Run the sample of this finding once more, and nothing else.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard what an earlier campaign has done.")] = False,
) -> None:
    """Random programs on random chips: the RTL against the timeline model, the executor and the checker."""
    from ...report.console import console

    screen = console()

    def on_progress(words: str) -> None:
        screen.print(words, markup=False, soft_wrap=True)

    def fail(words: str) -> typer.Exit:
        screen.print(words, style="red", markup=False, soft_wrap=True)
        return typer.Exit(1)

    try:
        if replay is not None:
            if words := again(replay):
                raise fail(f"{replay}: {words}")
            on_progress(f"{replay}: all say the same")
            return
        batches = batches_of(chips, programs, icarus, seed)
        crossed = {pair for batch in batches for pair in pairs_of(batch.chip)}
        on_progress(f"{chips} chips cross {len(crossed):,} pairs of choices")
        record = record_of(batches)
        if fresh:
            record.forget()
        try:
            findings = run(batches, record, jobs, on_progress)
        except KeyboardInterrupt:
            on_progress(f"interrupted with {len(record.done)} of {len(batches)} batches done; the same command goes on")
            raise typer.Exit(130) from None
        on_progress(summary(list(record.done.values())))
        if findings:
            raise fail("\n".join(_reported(finding) for finding in findings))
    except (BuildError, DeviceError, WriteError, ValueError) as error:
        raise fail(f"error: {error}") from error


def _reported(finding: FuzzFinding) -> str:
    """Makes a finding smaller and saves it; what a reader does with it, in words."""
    least = minimal(finding)
    file = save(least, OUTPUT / FOLDER)
    return (
        f"{least.words}\n  {least.origin.kind} of {least.origin.size} operations on {least.chip.name}: {file}\n"
        f"  see it again with --replay, and keep it as a test in tests/tb/fuzz_corpus"
    )


if __name__ == "__main__":
    typer.run(main)
