"""`meshloom run`: runs workloads on the RTL and compares the results."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..results.exits import Exit, verdict
from .completion import complete_chips, complete_workloads
from .errors import say_error
from .options import (
    Area,
    Bind,
    Budget,
    Device,
    Energy,
    MemoryLimit,
    Reports,
    Scheduler,
    Seed,
    TimeLimit,
    bindings,
    examples,
)
from .outputs import STDOUT, check_places, put

if TYPE_CHECKING:
    from rich.console import Console

    from ..report.registry import Report
    from ..results.recorder import Recorder

app = typer.Typer()


@app.command(  # each parameter is a command-line option
    epilog=examples(
        "meshloom run squeezenet --layers",
        "meshloom run my_model.onnx --input cat.png --chip quad32",
        "meshloom run resnet8/conv1 'resnet8/*' --chip quad8 --jobs 2",
        "meshloom run vgg16/conv4_2 gemm:64x64x64 --chip my_chip.toml --json out.json",
        "meshloom run resnet8 --chip nine8 --links",
        "meshloom run conv1.json",
        "meshloom run conv:14x14x33-33,k3,p1,relu --chip tiny --device icarus --waves",
    )
)
def run(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD",
            autocompletion=complete_workloads,
            help="Networks, ONNX files, layers or shapes (see `meshloom workloads`); topologies of SCALE-Sim (.csv); "
            "saved schedules (.json) and program images (.bin).",
        ),
    ] = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Picture, .npy or .npz file (an array for each input) to run on, one run each; default: a stored one.",
        ),
    ] = None,
    calibrate: Annotated[
        list[Path] | None,
        typer.Option(
            "--calibrate", metavar="FILE", help="Pictures to quantise a float model with; default: those of --input."
        ),
    ] = None,
    calibration: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="A float model's ranges: of all values (max), of P percent (percentile:P), of least error (mse), or "
            "the better of max and mse.",
        ),
    ] = "best",
    mean: Annotated[
        str, typer.Option(metavar="N[,N,N]", help="A float model takes pictures as (byte - mean) / std.")
    ] = "0",
    std: Annotated[str, typer.Option(metavar="N[,N,N]", help="See --mean; the defaults give 0..1.")] = "255",
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the names of a network's classes, one per line.")
    ] = None,
    min_score: Annotated[
        float, typer.Option(min=0, max=1, metavar="N", help="A detector's boxes have scores of at least this.")
    ] = 0.25,
    max_iou: Annotated[
        float,
        typer.Option(
            "--max-iou",
            min=0,
            max=1,
            metavar="N",
            help="Of a detector's boxes of one class that overlap by more (intersection over union), the better stays.",
        ),
    ] = 0.45,
    bind: Bind = None,
    seed: Seed = 0,
    per_layer: Annotated[
        bool, typer.Option("--layers", help="Show each layer of a network: its cycles, and where the time went.")
    ] = False,
    links: Annotated[
        bool,
        typer.Option(
            "--links", help="Show the load and blocked cycles of each link of the data plane, and the congestion level."
        ),
    ] = False,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help='Workload of a saved schedule or program that does not name one; "" runs it unchecked.'
        ),
    ] = None,
    chip: Annotated[
        str | None,
        typer.Option(
            "--chip",
            metavar="NAME|TOML",
            autocompletion=complete_chips,
            help="A built-in chip (see `meshloom chips`) or a TOML file; a saved file runs on its own chip by default.",
            show_default="quad16",
        ),
    ] = None,
    scheduler: Scheduler = "loop_order",
    budget: Budget = None,
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    json: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="PATH", help="Also write the results here; - is stdout, and all else then goes to stderr."
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="PATH", help="Write the rows as one table: CSV, or Parquet for a .parquet; - is stdout."
        ),
    ] = None,
    report: Reports = None,
    device: Device = "verilator",
    waves: Annotated[bool, typer.Option("--waves", help="Write FST waveforms below sim_build/ (slower).")] = False,
    artefacts: Annotated[
        bool | None,
        typer.Option(
            "--artefacts/--no-artefacts",
            help="Keep schedule, program and every instruction's cycles (Parquet) next to the results, or not at all.",
            show_default="in the cache, as long as there is room",
        ),
    ] = None,
    energy: Energy = None,
    area: Area = False,
    regression: Annotated[bool, typer.Option("--regression", help="Run the layers of `make sim`.")] = False,
    jobs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Devices that run at the same time; default: one per CPU.")
    ] = len(os.sched_getaffinity(0)),
) -> None:
    """Co-simulate workloads on the RTL and print the comparison.

    A network runs from picture to label, and every tensor is compared; `NETWORK/LAYER` and `NETWORK/*` run layers by
    themselves. Each workload is scheduled, lowered to a program, run on the chip's RTL, and compared byte by byte with
    ONNX Runtime and cycle by cycle with the model. If one cannot be run, its row reports an error and the others run.
    Results go to sim_build/results/ as JSON (latest.json is the newest) and JUnit XML; `meshloom explain`, `compare`
    and `report` take that file. The exit status is 1 on any mismatch, fault, incomplete comparison or model error past
    its bound; `meshloom --help` lists the others.
    """
    if regression == bool(workloads):
        raise typer.BadParameter("give workloads or --regression", param_hint="WORKLOAD")
    from meshloom.hw.spec.config import load
    from meshloom.sched.support.limits import guard_of, guarded

    from ..devices.registry import find as find_device
    from ..report import registry as reports
    from ..report.console import Reporter, console
    from ..results.energy import load as load_energy
    from ..results.events import Unwritten
    from ..results.recorder import Recorder
    from ..results.schema import Row
    from ..results.shelf import Shelf, cached
    from ..runs.kinds.table import is_file, is_network

    saved = [Path(each) for each in workloads or () if is_file(each)]
    chip = chip or (_chip_of(saved) if saved else "quad16")
    if workload is not None and len(saved) != 1:
        raise typer.BadParameter(f"is for one saved file; given are {len(saved)}", param_hint="--workload")
    copies = [reports.asked(each) for each in report or ()]
    copies += [(reports.JSON, json)] if json else []
    copies += [(reports.PARQUET if csv.suffix == ".parquet" else reports.CSV, csv)] if csv else []
    if [place for _, place in copies].count(STDOUT) > 1:
        raise typer.BadParameter("only one of --json, --csv and --report can go to stdout", param_hint="--report")
    if len({place.resolve() for _, place in copies}) < len(copies):
        raise typer.BadParameter("two of --json, --csv and --report name the same file", param_hint="--report")
    table = None if energy is None else load_energy(energy)
    name = load(chip).name  # before the engine is imported: a wrong name is reported at once
    from ..inputs.sources import NetworkSource
    from ..runs.options import RunOptions
    from ..runs.runner import run as run_workloads
    from ..runs.searching import with_budget

    scheduler = with_budget(scheduler, budget)
    made_by = "saved" if saved and len(saved) == len(workloads or ()) else scheduler
    parts = (re.sub(r"\W+", "_", part, flags=re.ASCII) for part in (name, made_by, device))
    recorder = Recorder("-".join(parts), find_device(device).tools())
    check_places(recorder.path, *(place for _, place in copies))
    names: list[Any] = ["regression"] if regression else list(workloads or [])
    networks = [name for name in names if is_network(name)]
    count = len(networks) + len(saved)
    if (inputs or calibrate) and count != 1:
        raise typer.BadParameter(f"is for one network; given are {count}", param_hint="--input")
    for option, given in (("--labels", labels), ("--bind", bind)):
        if given and count != 1:
            raise typer.BadParameter(f"is for one network; given are {count}", param_hint=option)
    if count:
        from ..runs.saved import SavedSource

        files = tuple(inputs or ()), tuple(calibrate or ())
        numbers = _numbers(mean, "--mean"), _numbers(std, "--std")
        sizes = tuple(bindings(bind).items())
        how = recorder.path.with_suffix(""), _ranges(calibration), min_score, max_iou
        fed = NetworkSource("", *files, *numbers, labels, sizes, *how, seed=seed)
        names = [
            replace(fed, name=name)
            if name in networks
            else SavedSource(Path(name), workload, fed)
            if is_file(name)
            else name
            for name in names
        ]
    screen = console(stderr=any(place == STDOUT for _, place in copies))
    try:
        with Reporter(screen) as reporter:

            def on_event(event: Any) -> None:
                if isinstance(event, Row):
                    recorder.add(event)
                if isinstance(event, Unwritten) and event.asked:
                    recorder.missing.append(event.why)
                reporter(event)

            traces = recorder.path.with_suffix("")
            shelf = Shelf(traces) if artefacts else cached(recorder.run, on_event) if artefacts is None else None
            options = RunOptions(device, jobs, waves, links, traces, shelf, energy=table, area=area)
            with guarded(guard_of(time_limit, memory_limit)):
                found = run_workloads(names, chip, scheduler, on_event, options)
        # rows arrive as they finish; the table lists them in the order requested
        recorder.rows.sort(key=lambda row: found.index(row) if row in found else len(found))
    except BaseException:
        # Whatever stopped the run, finished rows are kept and shown; without any, nothing is written.
        if recorder.rows:
            _publish(recorder, False, copies, per_layer, screen)
        raise
    if status := _publish(recorder, True, copies, per_layer, screen):
        raise typer.Exit(status)


def _chip_of(paths: list[Path]) -> str:
    """The built-in chip that saved files were made for. Raises BadParameter if they were made for several."""
    from ..results.saved import chip_of

    found = {chip_of(path).name: path for path in paths}
    if len(found) > 1:
        those = ", ".join(f"{path} for {name}" for name, path in found.items())
        raise typer.BadParameter(f"a run is on one chip: {those}; run them one by one", param_hint="WORKLOAD")
    return next(iter(found))


def _numbers(text: str, option: str) -> tuple[float, ...]:
    try:
        found = tuple(float(number) for number in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} must be numbers separated by commas", param_hint=option) from None
    if not all(map(isfinite, found)) or (option == "--std" and 0 in found):
        raise typer.BadParameter(f"{text!r}: every value must be finite, and those of --std not 0", param_hint=option)
    return found


def _ranges(text: str) -> str:
    from meshloom.sched.workload.onnx.calibrate import ranges
    from meshloom.sched.workload.onnx.errors import OnnxError

    try:
        ranges(text)
    except OnnxError as error:
        raise typer.BadParameter(str(error), param_hint="--calibration") from None
    return text


def _publish(
    recorder: Recorder, complete: bool, copies: Sequence[tuple[Report, Path]], per_layer: bool, screen: Console
) -> Exit:
    """Writes and prints the results of a run, printing them even if they cannot be written; returns the exit status."""
    from ..report.console import print_results
    from ..report.registry import JUNIT

    results = recorder.finish(complete)
    for form, place in [(JUNIT, recorder.path.with_suffix(".xml")), *copies]:
        if place == STDOUT:
            recorder.write(lambda path, form=form: put(path, form.make(results)), place)
        else:
            recorder.write(lambda path, form=form: form.save(results, path), place)
    print_results(results, screen, per_layer)
    status = verdict(results)
    if recorder.trouble is None:
        screen.print(f"results: {recorder.path}", markup=False, soft_wrap=True)
        return status
    say_error(recorder.trouble)
    return status or Exit.NOT_WRITTEN
