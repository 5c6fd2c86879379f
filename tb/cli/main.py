"""The `meshloom` command line. Every make target is one of these commands.

Nothing heavy is imported before a command runs, so that `--help` answers at once. `exits.Exit` has the exit statuses.
"""

from __future__ import annotations

import os
import re
import warnings
from enum import StrEnum
from math import isfinite
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from ..results.exits import Exit, expected, help_text, verdict
from . import cache as cache_command
from .shared import STDOUT
from .shared import examples as _examples
from .shared import say_error as _say_error

if TYPE_CHECKING:
    from rich.console import Console

    from meshloom.sched.lowering.programs import Planned
    from meshloom.sched.workload.catalog import Workload

    from ..results.schema import Recorder


class Simulator(StrEnum):
    """Simulators that a run can use."""

    VERILATOR = "verilator"
    ICARUS = "icarus"


class _Group(TyperGroup):
    """Turns errors of any command into a message and an exit status; only a bug keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # gateware that was being made when the interrupt came is, rightly, never used
            warnings.filterwarnings("ignore", message=".* created but never used")
            _say_error("interrupted")
            raise typer.Exit(Exit.INTERRUPTED) from None
        except (typer.Exit, typer.Abort, TyperException):
            raise
        except Exception as error:
            if (found := expected(error)) is None:
                _say_error(f"this is a bug of Meshloom:\n{''.join(format_exception(error))}".rstrip())
                raise typer.Exit(Exit.TOOL) from error
            _say_error(found[0])
            raise typer.Exit(found[1]) from error


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Runs neural-network schedules on a simulated multi-NPU chip, checks every byte, and compares the cycles of "
    "RTL and model.",
    epilog="Start with `meshloom run resnet8/conv1`; `meshloom workloads` and `meshloom chips` say what else there is."
    f"\n\n{help_text()}",
)

Chip = Annotated[
    str, typer.Option("--chip", metavar="NAME|TOML", help="A built-in chip (see `meshloom chips`) or a TOML file.")
]
Scheduler = Annotated[
    str,
    typer.Option(
        "--scheduler",
        metavar="NAME[:OPTION=VALUE,...]",
        help="Who makes the schedule: loop_order, flexer, paper_static, hybrid, or dtt on chips with a controller.",
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="STEPS|SECONDS",
        help="For each search of a scheduler that otherwise looks at everything: steps of work, as in 100M (the same "
        "result on every machine), or 5s.",
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"meshloom {version('meshloom')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(
    epilog=_examples(
        "meshloom run squeezenet --layers",
        "meshloom run my_model.onnx --input cat.png --chip quad32",
        "meshloom run resnet8/conv1 'resnet8/*' --chip quad8 --jobs 2",
        "meshloom run vgg16/conv4_2 gemm:64x64x64 --chip my_chip.toml --json out.json",
        "meshloom run resnet8 --chip nine8 --links",
        "meshloom run conv:14x14x33-33,k3,p1,relu --chip tiny --simulator icarus --waves",
    )
)
def run(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORKLOAD", help="Networks, ONNX files, layers or shapes (see `meshloom workloads`)."),
    ] = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Picture or .npy file to run a network on, once for each; default: a stored one.",
        ),
    ] = None,
    calibrate: Annotated[
        list[Path] | None,
        typer.Option(
            "--calibrate", metavar="FILE", help="Pictures that a float model is quantised with; default: --input."
        ),
    ] = None,
    mean: Annotated[
        str, typer.Option(metavar="N[,N,N]", help="Of a float model's pictures: it takes (byte - mean) / std.")
    ] = "0",
    std: Annotated[str, typer.Option(metavar="N[,N,N]", help="See --mean; 0..1 by default.")] = "255",
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Names of a network's classes, one on each line.")
    ] = None,
    per_layer: Annotated[
        bool, typer.Option("--layers", help="Show each layer of a network: cycles, and where the time went.")
    ] = False,
    links: Annotated[
        bool,
        typer.Option(
            "--links", help="Show each link of the data plane: load, blocked cycles; and the congestion level."
        ),
    ] = False,
    chip: Chip = "quad16",
    scheduler: Scheduler = "loop_order",
    budget: Budget = None,
    json: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="PATH", help="Write the results here as well; - is stdout, all else then goes to stderr."
        ),
    ] = None,
    simulator: Annotated[Simulator, typer.Option(help="icarus is a slow second opinion.")] = Simulator.VERILATOR,
    waves: Annotated[bool, typer.Option("--waves", help="Write FST waveforms below sim_build/ (slower).")] = False,
    regression: Annotated[bool, typer.Option("--regression", help="Run the layers of `make sim`.")] = False,
    jobs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Simulators that run at the same time; default: one for each CPU.")
    ] = len(os.sched_getaffinity(0)),
) -> None:
    """Co-simulate workloads on the RTL and print the comparison.

    A network runs from picture to label, every tensor of it compared; `NETWORK/LAYER` and `NETWORK/*` run layers by
    themselves. Each workload is scheduled, lowered to a program, run on the chip's RTL, compared byte by byte with ONNX
    Runtime and cycle by cycle with the model. One that cannot be run is a row with an error, and the others run.
    Results land in sim_build/results/ as JSON (latest.json is the newest) and JUnit XML. The exit status is 1 on any
    mismatch, fault, incomplete comparison or model error past its bound; `meshloom --help` lists the others.
    """
    if regression == bool(workloads):
        raise typer.BadParameter("give workloads or --regression", param_hint="WORKLOAD")
    from meshloom.hw.config import load

    from ..report.console import Reporter, console
    from ..results.schema import Recorder, Row, unwritable

    name = load(chip).name  # before the engine is imported: a wrong name is told at once
    from ..inputs.sources import NetworkSource, is_network
    from ..runs.runner import run as run_workloads
    from ..runs.searching import with_budget

    scheduler = with_budget(scheduler, budget)
    parts = (re.sub(r"\W+", "_", part, flags=re.ASCII) for part in (name, scheduler, simulator.value))
    recorder = Recorder("-".join(parts), simulator)
    for place in (recorder.path, *([json] if json not in (None, STDOUT) else [])):  # before the long run, not after it
        if problem := unwritable(place):
            _say_error(f"results could not be written: {problem}")
            raise typer.Exit(Exit.NOT_WRITTEN)
    names: list[Any] = ["regression"] if regression else list(workloads or [])
    networks = [name for name in names if is_network(name)]
    if (inputs or calibrate) and len(networks) != 1:
        raise typer.BadParameter(f"is for one network; given are {len(networks)}", param_hint="--input")
    if labels and len(networks) != 1:
        raise typer.BadParameter(f"is for one network; given are {len(networks)}", param_hint="--labels")
    if networks:
        files = tuple(inputs or ()), tuple(calibrate or ())
        numbers = _numbers(mean, "--mean"), _numbers(std, "--std")
        rest = labels, recorder.path.with_suffix("")
        names = [NetworkSource(name, *files, *numbers, *rest) if name in networks else name for name in names]
    screen = console(stderr=json == STDOUT)
    try:
        with Reporter(screen) as reporter:

            def on_event(event: Any) -> None:
                if isinstance(event, Row):
                    recorder.add(event)
                reporter(event)

            traces = recorder.path.with_suffix("")
            found = run_workloads(names, chip, scheduler, simulator.value, waves, jobs, on_event, links, traces)
        # rows come as they finish; the table has them in the order asked for
        recorder.rows.sort(key=lambda row: found.index(row) if row in found else len(found))
    except BaseException:
        # Whatever stopped the run, what was finished is kept and shown; if nothing was, nothing is written.
        if recorder.rows:
            _publish(recorder, False, json, per_layer, screen)
        raise
    if status := _publish(recorder, True, json, per_layer, screen):
        raise typer.Exit(status)


def _numbers(text: str, option: str) -> tuple[float, ...]:
    try:
        found = tuple(float(number) for number in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not one number, or numbers with commas", param_hint=option) from None
    if not all(map(isfinite, found)) or (option == "--std" and 0 in found):
        raise typer.BadParameter(f"{text!r}: nothing can be normalised with that", param_hint=option)
    return found


def _publish(recorder: Recorder, complete: bool, json: Path | None, per_layer: bool, screen: Console) -> Exit:
    """Writes and prints what came of a run; the exit status. What cannot be written is printed all the same."""
    from ..report.console import print_results, save_junit

    results = recorder.finish(complete)
    recorder.write(lambda path: save_junit(results, path), recorder.path.with_suffix(".xml"))
    if json == STDOUT:
        typer.echo(results.text, nl=False)
    elif json is not None:
        recorder.write(results.save, json)
    print_results(results, screen, per_layer)
    status = verdict(results)
    if recorder.trouble is None:
        screen.print(f"results: {recorder.path}", markup=False, soft_wrap=True)
        return status
    _say_error(f"results could not be written: {recorder.trouble}")
    return status or Exit.NOT_WRITTEN


@app.command(
    epilog=_examples(
        "meshloom schedule resnet50/conv4_2_2 --chip quad16",
        "meshloom schedule gemm:256x256x256 --show | less",
        "meshloom schedule resnet8/conv1 --out conv1.json --program conv1.bin",
    )
)
def schedule(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="A layer, a shape, or a network: each of its layers.")
    ],
    chip: Chip = "quad16",
    scheduler: Scheduler = "loop_order",
    budget: Budget = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="Save the schedule as JSON; of several layers: a folder of them."),
    ] = None,
    program: Annotated[
        Path | None, typer.Option("--program", metavar="PATH", help="Save the lowered program image; likewise.")
    ] = None,
    operations: Annotated[
        bool, typer.Option("--show", help="List the operations with their predicted cycles.")
    ] = False,
) -> None:
    """Make schedules, check them and predict their cycles, without a simulator.

    They take the road that `meshloom run` takes: what is predicted and saved here is what runs there.
    """
    from meshloom.hw.config import load
    from meshloom.sched.workload.catalog import find

    config = load(chip)
    layers = find(workload)
    from meshloom.sched.lowering.programs import planned
    from meshloom.sched.mapping.room import check_room
    from meshloom.sched.program import image
    from meshloom.sched.schedulers.registry import find as find_scheduler
    from meshloom.sched.store.kinds import SCHEDULES

    from ..report.console import console
    from ..report.narrow import show
    from ..report.tables import prediction_table, print_operations
    from ..runs.searching import searching, with_budget

    screen = console()
    made: list[tuple[Workload, Planned]] = []
    with searching(screen) as tell:
        make = find_scheduler(with_budget(scheduler, budget), SCHEDULES.folder(), tell=tell)
        for layer in layers:
            check_room(layer.shape, config)
        for layer in layers:
            made.append((layer, planned(make(layer.shape, config, layer.scale), config)))
    show(prediction_table([(layer.shape, one.schedule) for layer, one in made], config), screen)
    for layer, one in made:
        if operations:
            print_operations(one.schedule, screen)
        if out is not None:
            place = _place(out, layer.name, ".json", len(made))
            one.schedule.save(place)
            screen.print(f"schedule: {place}", markup=False, soft_wrap=True)
        if program is not None:
            place = _place(program, layer.name, ".bin", len(made))
            image.save(one.program, place)
            screen.print(f"program: {place}", markup=False, soft_wrap=True)


def _place(path: Path, name: str, suffix: str, count: int) -> Path:
    """`path` itself for a single layer, otherwise a file named after the layer in the folder `path`."""
    target = path if count == 1 else path / (re.sub(r"[^\w.-]+", "_", name) + suffix)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


@app.command(epilog=_examples("meshloom verilog --chip quad16 --out build/quad16", "meshloom verilog --chip my.toml"))
def verilog(
    chip: Chip = "quad16",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder to write to.", show_default="sim_build/verilog/<chip>"),
    ] = None,
) -> None:
    """Write the chip as synthesisable Verilog, with a manifest of its ports and parameters."""
    from meshloom.hw.config import load

    from ..build.builder import emit_verilog
    from ..report.console import console

    config = load(chip)
    folder = out or Path("sim_build") / "verilog" / config.name
    for path in emit_verilog(config, folder):
        console().print(str(path), markup=False, soft_wrap=True)


@app.command(epilog=_examples("meshloom chips", "meshloom chips my_chip.toml"))
def chips(
    chip: Annotated[
        list[str] | None, typer.Argument(metavar="NAME|TOML", help="Chips to show; default: all built-in ones.")
    ] = None,
) -> None:
    """List the built-in chips, or check and show a chip of your own."""
    from meshloom.hw.config import built_in_chips, load

    from ..report.console import console
    from ..report.narrow import show
    from ..report.tables import chip_table

    show(chip_table([load(name) for name in chip or built_in_chips()]), console())


@app.command(epilog=_examples("meshloom workloads", "meshloom workloads vgg16", "meshloom workloads regression"))
def workloads(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show the layers that this name means.")] = None,
) -> None:
    """List the built-in networks, the layers that a name means, and the syntax of shapes."""
    from meshloom.sched.workload import zoo
    from meshloom.sched.workload.catalog import find
    from meshloom.sched.workload.shapes import SYNTAX

    from ..report.console import console
    from ..report.narrow import show
    from ..report.tables import workload_table

    if name is not None:
        show(workload_table(find(name)), console())
        return
    console().print(
        f"networks: {', '.join(zoo.names())}, an .onnx file, regression (what `make sim` runs)",
        markup=False,
        soft_wrap=True,
    )
    console().print(
        "layers:   NETWORK/LAYER, or 'NETWORK/*' for each by itself; `meshloom workloads NETWORK` lists them",
        markup=False,
        soft_wrap=True,
    )
    console().print(f"shapes:\n{SYNTAX}", markup=False, soft_wrap=True)


SavedChip = Annotated[
    str | None,
    typer.Option("--chip", metavar="NAME|TOML", help="Its chip; needed if that is not a built-in one."),
]


@app.command(epilog=_examples("meshloom check conv1.json", "meshloom check conv1.bin --chip my_chip.toml"))
def check(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A saved schedule (.json) or a program image.")],
    chip: SavedChip = None,
) -> None:
    """Prove that a schedule or a program can run on its chip: capacity, defined bytes, no deadlock, no race; of what is
    timed ahead, that all of it is in time."""
    from ..results.saved import read

    config, program, saved = read(path, chip)
    from meshloom.sched.lowering.programs import check_program

    from ..report.console import console

    report = check_program(program, config, saved)
    if report.timed:
        what = f"{report.timed} of them timed ahead, all in time, {report.accesses} accesses"
    else:
        what = f"{report.semaphores} semaphores (at most {report.peak} pending), {report.accesses} accesses"
    console().print(
        f"{path}: good on {config.name}: {report.instructions} instructions in {report.streams} streams, {what}",
        markup=False,
        soft_wrap=True,
    )
    for warning in report.warnings:
        console().print(f"note: {warning}", style="yellow", markup=False, soft_wrap=True)


@app.command(epilog=_examples("meshloom disasm conv1.bin | less", "meshloom disasm conv1.json"))
def disasm(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A program image, or a schedule (.json) to lower.")],
    chip: SavedChip = None,
) -> None:
    """Print a program's instructions, stream by stream, with the schedule's labels if there are any.

    A schedule's program is listed even if `meshloom check` refuses it; stderr then says why.
    """
    from ..results.saved import read

    config, program, saved = read(path, chip)
    from meshloom.sched.program.disasm import listing

    for line in listing(program, config, [op.label for op in saved.operations] if saved else ()):
        typer.echo(line)
    if saved is None:
        return
    from meshloom.sched.lowering.programs import check_program

    try:
        check_program(program, config, saved)
    except ValueError as error:
        if (found := expected(error)) is None:
            raise
        from ..report.console import console

        console(stderr=True).print(f"note: must not run: {found[0]}", style="yellow", markup=False, soft_wrap=True)


@app.command(epilog=_examples("meshloom bench", "meshloom bench gemm speed"))
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Benchmarks to run; default: all.", show_default="all")
    ] = None,
) -> None:
    """Measure speed and exactness, side by side with other simulators where they can be installed."""
    from ..benchmarks import main

    if not main(names or []):
        raise typer.Exit(Exit.WRONG)


app.add_typer(cache_command.app, name="cache")


if __name__ == "__main__":
    app()
