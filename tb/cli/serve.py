"""`meshloom serve`: many networks at once, scheduled while the chip runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..api.options import Chip, Clock, MemoryLimit, Network, OnlineScheduler, Set, TimeLimit, examples
from ..api.request import limited, refuse_other_kind
from .conclude import conclude
from .fields import with_fields
from .outputs import STDOUT, check_places
from .requests import filled

if TYPE_CHECKING:
    from rich.progress import TaskID

    from meshloom.sched.schedulers.online.interface import Instance

app = typer.Typer()


@dataclass(frozen=True)
class ServeRequest:
    """A scenario to be served: the fields are the options of the command."""

    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO.toml", help="Networks, batches, arrivals and deadlines.")
    ]
    chip: Chip = "lp9"
    set: Set = None
    clock: Clock = None
    scheduler: OnlineScheduler = "lookahead"
    time_limit: TimeLimit = None
    memory_limit: MemoryLimit = None
    network: Network = False
    model: Annotated[bool, typer.Option("--model", help="Serve it in the timeline model alone.")] = False
    decision_cycles: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Cycles that a decision takes, besides reading and writing registers."),
    ] = 0
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="PATH", help="Also write the results here; - is stdout."),
    ] = None
    gantt: Annotated[
        Path | None,
        typer.Option(
            "--gantt",
            metavar="PATH",
            help="The picture of cores over time (.svg, .png, .pdf); default: beside the JSON.",
        ),
    ] = None
    device: Annotated[
        str, typer.Option("--device", metavar="NAME", help="Simulator of the RTL: verilator or icarus.")
    ] = "verilator"


@app.command(
    epilog=examples(
        "meshloom serve examples/scenarios/mixed.toml",
        "meshloom serve examples/scenarios/mixed.toml --scheduler lookahead:deadlines=no --model",
        "meshloom serve examples/scenarios/mixed.toml --set dram.arbitration=round_robin --model",
        "meshloom serve my_scenario.toml --chip lp25 --scheduler my_scheduler.py:decide --json out.json",
    )
)
@filled(ServeRequest)
def serve(request: ServeRequest) -> None:
    """Serve a scenario of several networks: an online scheduler places layers on free cores while the chip runs.

    It runs in the timeline model and on the RTL, by the same scheduler, which an interrupt wakes whenever a layer has
    ended; the chip stands still only for what `--decision-cycles` does not count. Every tensor of every network is
    compared with ONNX Runtime, and each layer's end with the model. Results go to sim_build/results/ as JSON and as a
    picture. The exit status is 1 if a byte differs, a network is lost, or the model is off.

    Compiled networks, the model's part and the simulator are kept, also when you interrupt (Ctrl-C): the same command
    goes on with the part that it was in. A simulation cannot be kept half way, so the RTL's part begins anew. Results
    are written when everything has ended.
    """
    from datetime import datetime

    from meshloom.hw.spec.config import load as load_chip
    from meshloom.sched.workload import zoo
    from meshloom.sched.workload.scenario import load

    from ..build.builder import SIMULATORS
    from ..inputs.chips import at_clock
    from ..report.console import console
    from ..report.gantt import SUFFIXES
    from ..results.scenario import results_path

    config = at_clock(with_fields(load_chip(request.chip), request.set), request.clock)
    scenario = load(request.scenario, zoo.names())
    device, gantt = None if request.model else request.device, request.gantt
    if device is not None and device not in SIMULATORS:
        raise typer.BadParameter(f"{device!r} is none of {', '.join(SIMULATORS)}", param_hint="--device")
    if gantt is not None and gantt.suffix not in SUFFIXES:
        raise typer.BadParameter(f"{gantt} ends with none of {', '.join(SUFFIXES)}", param_hint="--gantt")
    path = results_path(datetime.now().astimezone(), f"{config.name}-{scenario.name}-serve")
    check_places(path, request.json, gantt)
    from meshloom.sched.schedulers.online.registry import chosen

    from ..report.gantt import gantt as draw
    from ..report.scenario import print_scenario
    from ..runs.online import serve as runtime

    refuse_other_kind(request.scheduler, online=True)
    chosen(request.scheduler)  # a wrong name or option is reported at once
    quiet = request.json == STDOUT
    screen = console(stderr=quiet)
    with limited(request.time_limit, request.memory_limit, request.network), _Progress(quiet) as progress:
        results = runtime.serve(
            scenario,
            config,
            request.scheduler,
            device=device,
            decision_cycles=request.decision_cycles,
            on_progress=progress.stage,
            on_event=progress.event,
        ).results
    print_scenario(results, screen)
    picture = gantt or path.with_suffix(".svg")
    conclude(results, path, request.json, screen, picture, lambda: draw(results, picture))


class _Progress:
    """A bar for each network while it is served, and a line for what is being done; where nobody watches, a line for
    each stage."""

    def __init__(self, stderr: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        from ..report.console import console

        self._screen = console(stderr=stderr)
        self._live = self._screen.is_terminal
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[what]}", markup=False),
            console=self._screen,
            transient=True,
            disable=not self._live,
        )
        self._tasks: dict[tuple[str, int], TaskID] = {}
        self._ended: dict[str, int] = {}
        self._what: TaskID | None = None
        self._stage = ""

    def __enter__(self) -> _Progress:
        self._bars.start()
        self._what = self._bars.add_task("", total=None, what="")
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def stage(self, what: str) -> None:
        """What is being done. `what`: of a stage with steps its name, a colon and the step."""
        if self._what is not None:
            self._bars.update(self._what, description=what)
        stage = what.partition(": ")[0]
        if not self._live and stage != self._stage:
            self._screen.print(stage, markup=False, soft_wrap=True)
        self._stage = stage

    def event(self, where: str, cycle: int, instance: Instance, what: str) -> None:
        """A launch or an end. Those that have ended are only counted: there may be many."""
        key = where, instance.number
        layers = len(instance.network.layers)
        if key not in self._tasks:
            self._tasks[key] = self._bars.add_task(f"{where} {instance.label}", total=layers, what="")
        over = not instance.running and (instance.next == layers or what.startswith("lost"))
        self._bars.update(self._tasks[key], completed=instance.next, what=f"cycle {cycle:,}: {what}", visible=not over)
        if over:
            self._ended[where] = self._ended.get(where, 0) + 1
            if self._what is not None:
                self._bars.update(self._what, what=f"{self._ended[where]} ended in the {where}, cycle {cycle:,}")
