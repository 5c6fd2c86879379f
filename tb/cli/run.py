"""`meshloom run`: runs workloads on the RTL and compares the results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..api.options import bindings, examples
from ..api.request import RunRequest, refuse_other_kind
from ..results.exits import Exit, verdict
from .errors import resumable, say_error
from .fields import with_fields
from .outputs import STDOUT, check_places, check_table, put
from .quantising import numbers, ranges_of
from .requests import filled, once

if TYPE_CHECKING:
    from rich.console import Console

    from meshloom.hw.spec.config import ChipConfig

    from ..report.registry import Report
    from ..results.events import Event
    from ..results.recorder import Recorder
    from ..results.schema import Results
    from ..runs.several import Source
    from ..runs.targets import Target

app = typer.Typer()
#: Characters of a chip's, scheduler's or device's part of a run's name.
_LONGEST = 60


@app.command(
    epilog=examples(
        "meshloom run squeezenet --layers",
        "meshloom run my_model.onnx --input cat.png --chip quad32",
        "meshloom run resnet8/conv1 'resnet8/*' --chip quad8 --jobs 2",
        "meshloom run vgg16/conv4_2 gemm:64x64x64 --chip my_chip.toml --json out.json",
        "meshloom run resnet8 --chip nine8 --links",
        "meshloom run resnet8/conv1 --chip quad8 --scheduler loop_order --scheduler zigzag",
        "meshloom run conv1.json",
        "meshloom run zigzag:conv2_complete.json --chip mono16",
        "meshloom run conv:14x14x33-33,k3,p1,relu --chip tiny --device icarus --waves",
    )
)
@filled(RunRequest)
def run(request: RunRequest) -> None:
    """Co-simulate workloads on the RTL and print the comparison.

    A network runs from picture to label, and every tensor is compared; `NETWORK/LAYER` and `NETWORK/*` run layers by
    themselves. Each workload is scheduled, lowered to a program, run on the chip's RTL, and compared byte by byte with
    ONNX Runtime and cycle by cycle with the model. If one cannot be run, its row reports an error and the others run.
    Results go to sim_build/results/ as JSON (latest.json is the newest) and JUnit XML; `meshloom explain`, `compare`
    and `report` take that file. Several chips or schedulers: a row for each, compared at the end, cause by cause, with
    the first. The exit status is 1 on any mismatch, fault, incomplete comparison or model error past its bound;
    `meshloom --help` lists the others.
    """
    names = list(request.workloads or ())
    if request.regression == bool(names):
        raise typer.BadParameter("give workloads or --regression", param_hint="WORKLOAD")
    from meshloom.hw.spec.config import load

    from ..devices.registry import find as find_device
    from ..report.console import console
    from ..results.recorder import Recorder
    from ..runs.kinds.table import is_file, is_mapping

    saved = [Path(each) for each in names if is_file(each)]
    mappings = [each for each in names if is_mapping(each)]
    if request.workload is not None and len(saved) + len(mappings) != 1:
        why = f"is for one saved file or mapping; given are {len(saved) + len(mappings)}"
        raise typer.BadParameter(why, param_hint="--workload")
    if request.nearest and not mappings:
        raise typer.BadParameter("is for mappings of other tools; none is given", param_hint="--nearest")
    copies = _copies(request)
    chips = once(request.chip or [_chip_of(saved) if saved else "quad16"], "--chip")
    # before the engine is imported: a wrong name is reported at once
    configs = [with_fields(load(each), request.set) for each in chips]
    schedulers = _schedulers(request, saved)
    if mappings and len(schedulers) > 1:
        why = f"{mappings[0]} has been mapped already; run it by itself, and `meshloom compare` the runs"
        raise typer.BadParameter(why, param_hint="--scheduler")
    only_saved = bool(names) and len(saved) + len(mappings) == len(names)
    recorder = Recorder(
        _title([each.name for each in configs], ["saved"] if only_saved else schedulers, request.device),
        find_device(request.device).tools(),
    )
    check_places(recorder.path, *(place for _, place in copies))
    workloads = ["regression"] if request.regression else _sources(request, names, recorder.path.with_suffix(""))
    screen = console(stderr=any(place == STDOUT for _, place in copies))
    try:
        with resumable(lambda: _kept(recorder)):
            _carry_out(request, workloads, _targets(request, chips, schedulers), recorder, screen)
    except BaseException:
        # Whatever stopped the run, finished rows are kept and shown; without any, nothing is written.
        if recorder.rows:
            _publish(recorder, False, copies, request.per_layer, screen)
        raise
    if status := _publish(recorder, True, copies, request.per_layer, screen):
        raise typer.Exit(status)


def _kept(recorder: Recorder) -> str:
    """What an interrupted run leaves behind: a workload is not gone on with half way, but made with what is there."""
    rows = len(recorder.rows)
    there = "no row" if not rows else f"{rows} row{'s' if rows > 1 else ''}, kept in {recorder.path}"
    return f"after {there}; simulators, compiled networks and searches that have ended are kept"


def _schedulers(request: RunRequest, saved: Sequence[Path]) -> list[str]:
    """The schedulers of a request, with its budget. Raises BadParameter, SchedulerError."""
    from ..runs.searching import with_budget, with_effort

    names = once(request.scheduler or ["loop_order"], "--scheduler")
    if saved and len(names) > 1:
        why = f"{saved[0]} is a schedule or a program already; run it by itself, and `meshloom compare` the runs"
        raise typer.BadParameter(why, param_hint="--scheduler")
    for each in names:
        refuse_other_kind(each)
    return [with_effort(with_budget(each, request.budget), request.effort) for each in names]


def _targets(request: RunRequest, chips: Sequence[str], schedulers: Sequence[str]) -> list[Target]:
    """Each chip, with the fields and at the clock that are asked for, by each scheduler. Raises ConfigError."""
    from meshloom.hw.spec.config import load

    from ..inputs.chips import at_clock
    from ..runs.targets import Target

    configs: Sequence[str | ChipConfig] = chips
    if request.clock is not None or request.set:
        configs = [at_clock(with_fields(load(each), request.set), request.clock) for each in chips]
    return [Target(*pair) for pair in product(configs, schedulers)]


def _title(chips: Sequence[str], schedulers: Sequence[str], device: str) -> str:
    """The end of a run's name."""
    parts = ("+".join(chips), "+".join(schedulers), device)
    return "-".join(re.sub(r"[^\w+]+", "_", part, flags=re.ASCII)[:_LONGEST] for part in parts)


def _copies(request: RunRequest) -> list[tuple[Report, Path]]:
    """Where the results go besides their own file, and in which form. Raises BadParameter."""
    from ..report import registry as reports

    json, csv = request.json, request.csv
    check_table(csv, "--csv")
    copies = [reports.form_and_place(each) for each in request.report or ()]
    copies += [(reports.JSON, json)] if json else []
    copies += [(reports.PARQUET if csv.suffix.lower() == ".parquet" else reports.CSV, csv)] if csv else []
    if [place for _, place in copies].count(STDOUT) > 1:
        raise typer.BadParameter("only one of --json, --csv and --report can go to stdout", param_hint="--report")
    if len({place.resolve() for _, place in copies}) < len(copies):
        raise typer.BadParameter("two of --json, --csv and --report name the same file", param_hint="--report")
    return copies


def _sources(request: RunRequest, names: Sequence[str], tensors: Path) -> list[Source]:
    """The workloads of a request, with what the network among them is fed. `tensors`: folder for its outputs. Raises
    BadParameter."""
    from meshloom.sched.workload.catalog import check_whole

    from ..inputs.arrays import files_of
    from ..inputs.sources import NetworkSource
    from ..runs.kinds.mappings import source_of
    from ..runs.kinds.table import is_file, is_mapping, is_network
    from ..runs.saved import SavedSource

    for name in names:
        check_whole(name)
    count = sum(is_network(name) or is_file(name) for name in names)
    inputs, calibrate, labels, bind = request.inputs, request.calibrate, request.labels, request.bind
    fed = (("--input", inputs), ("--calibrate", calibrate), ("--labels", labels), ("--bind", bind))
    for option, value in fed:
        if value and count != 1:
            raise typer.BadParameter(f"is for one network; given are {count}", param_hint=option)
    mapped = {
        name: replace(source_of(name), workload=request.workload, nearest=request.nearest)
        for name in names
        if is_mapping(name)
    }
    if not count:
        return [mapped.get(name, name) for name in names]
    source = NetworkSource(
        "",
        inputs=files_of(inputs or ()),
        calibration=files_of(calibrate or ()),
        mean=numbers(request.mean, "--mean"),
        std=numbers(request.std, "--std"),
        labels=labels,
        bind=tuple(bindings(bind).items()),
        tensors=tensors,
        ranges=ranges_of(request.calibration),
        min_score=request.min_score,
        max_iou=request.max_iou,
        seed=request.seed,
    )
    return [
        replace(source, name=name)
        if is_network(name)
        else SavedSource(Path(name), request.workload, source)
        if is_file(name)
        else mapped.get(name, name)
        for name in names
    ]


def _carry_out(
    request: RunRequest,
    workloads: Sequence[Source],
    targets: Sequence[Target],
    recorder: Recorder,
    screen: Console,
) -> None:
    """Runs workloads on each chip by each scheduler, showing and recording each row as soon as it is there."""
    from ..report.reporter import Reporter
    from ..results.events import Unwritten
    from ..results.schema import Row
    from ..runs.several import run as run_workloads

    with Reporter(screen, several=len(targets) > 1) as reporter, request.guarded():

        def on_event(event: Event) -> None:
            if isinstance(event, Row):
                recorder.add(event)
            if isinstance(event, Unwritten) and event.required:
                recorder.missing.append(event.why)
            reporter(event)

        options = request.options(recorder, recorder.path.with_suffix(""), on_event)
        rows = run_workloads(workloads, targets, on_event, options)
    # rows arrive as they finish; the table lists them in the order requested
    recorder.rows.sort(key=lambda row: rows.index(row) if row in rows else len(rows))


def _chip_of(paths: list[Path]) -> str:
    """The built-in chip that saved files were made for. Raises BadParameter if they were made for several."""
    from ..results.saved import chip_of

    result = {chip_of(path).name: path for path in paths}
    if len(result) > 1:
        those = ", ".join(f"{path} for {name}" for name, path in result.items())
        raise typer.BadParameter(f"a run is on one chip: {those}; run them one by one", param_hint="WORKLOAD")
    return next(iter(result))


def _publish(
    recorder: Recorder, complete: bool, copies: Sequence[tuple[Report, Path]], per_layer: bool, screen: Console
) -> Exit:
    """Writes and prints the results of a run, printing them even if they cannot be written; returns the exit status."""
    from ..report.registry import JUNIT, ReportError
    from ..report.row_tables import print_results

    results = recorder.finish(complete)
    for form, place in [(JUNIT, recorder.path.with_suffix(".xml")), *copies]:
        try:
            if place == STDOUT:
                recorder.write(lambda path, form=form: put(path, form.make(results)), place)
            else:
                recorder.write(lambda path, form=form: form.save(results, path), place)
        except ReportError as error:  # the others are written, and the rows printed
            recorder.trouble = recorder.trouble or str(error)
    print_results(results, screen, per_layer)
    if complete:
        _print_ranking(results, screen)
    status = verdict(results)
    if recorder.trouble is None:
        screen.print(f"results: {recorder.path}", markup=False, soft_wrap=True)
        return status
    say_error(recorder.trouble)
    return status or Exit.NOT_WRITTEN


def _print_ranking(results: Results, screen: Console) -> None:
    """Compares what ran on several chips or by several schedulers."""
    from ..compare.ranked import ranked, targets
    from ..report.ranked import print_rankings
    from ..results.named import of_results
    from ..results.record import ResultsError

    runs = targets(of_results(results))
    if len(runs) < 2:
        return
    try:
        print_rankings(ranked(runs), screen)
    except ResultsError as error:  # the rows matter more
        screen.print(f"note: not compared: {error}", style="yellow", soft_wrap=True)
