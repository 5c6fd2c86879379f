"""What `meshloom run` and `meshloom.run` are asked for: each option once, with its type, its default and its help."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshloom.sched.support.limits import Guard, guard_of, guarded

from .completion import complete_chips, complete_workloads
from .options import (
    Area,
    Bind,
    Budget,
    Calibrate,
    Calibration,
    Clock,
    Device,
    Effort,
    Energy,
    Mean,
    MemoryLimit,
    Nearest,
    Network,
    Reports,
    Schedulers,
    Seed,
    Set,
    Std,
    TimeLimit,
)

if TYPE_CHECKING:
    from ..results.events import Event
    from ..results.recorder import Recorder
    from ..runs.options import RunOptions


@dataclass(frozen=True)
class RunRequest:
    """A run: the fields are the options of the command line, in the order of its help.

    Python fills in all but workloads, chip and scheduler, which may be objects there.
    """

    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD",
            autocompletion=complete_workloads,
            help="Networks, ONNX files, layers or shapes (see `meshloom workloads`); topologies of SCALE-Sim (.csv); "
            "saved schedules (.json), program images (.bin); TOOL:FILE, a layer as another tool maps it.",
        ),
    ] = None
    inputs: Annotated[
        list[Path] | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Picture, .npy or .npz file (an array for each input) to run on, or a folder of such, one run each; "
            "default: a stored one, for an ONNX file one that is drawn.",
        ),
    ] = None
    calibrate: Calibrate = None
    calibration: Calibration = "best"
    mean: Mean = "0"
    std: Std = "255"
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the names of a network's classes, one per line.")
    ] = None
    min_score: Annotated[
        float, typer.Option(min=0, max=1, metavar="N", help="A detector's boxes have scores of at least this.")
    ] = 0.25
    max_iou: Annotated[
        float,
        typer.Option(
            "--max-iou",
            min=0,
            max=1,
            metavar="N",
            help="Of a detector's boxes of one class that overlap by more (intersection over union), the better stays.",
        ),
    ] = 0.45
    bind: Bind = None
    seed: Seed = 0
    per_layer: Annotated[
        bool, typer.Option("--layers", help="Show each layer of a network: its cycles, and where the time went.")
    ] = False
    links: Annotated[
        bool,
        typer.Option(
            "--links", help="Show the load and blocked cycles of each link of the data plane, and the congestion level."
        ),
    ] = False
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help='Workload of a saved schedule, a program or another tool\'s mapping that does not name one; "" runs a '
            "file unchecked.",
        ),
    ] = None
    nearest: Nearest = False
    chip: Annotated[
        list[str] | None,
        typer.Option(
            "--chip",
            metavar="NAME|TOML",
            autocompletion=complete_chips,
            help="A built-in chip (see `meshloom chips`) or a TOML file; a saved file runs on its own chip by default. "
            "Given several times: a row for each, and a comparison.",
            show_default="quad16",
        ),
    ] = None
    set: Set = None
    clock: Clock = None
    scheduler: Schedulers = None
    budget: Budget = None
    effort: Effort = None
    time_limit: TimeLimit = None
    memory_limit: MemoryLimit = None
    network: Network = False
    json: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="PATH", help="Also write the results here; - is stdout, and all else then goes to stderr."
        ),
    ] = None
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="PATH", help="Write the rows as one table: CSV, or Parquet for a .parquet; - is stdout."
        ),
    ] = None
    report: Reports = None
    device: Device = "verilator"
    waves: Annotated[bool, typer.Option("--waves", help="Write FST waveforms below sim_build/ (slower).")] = False
    artefacts: Annotated[
        bool | None,
        typer.Option(
            "--artefacts/--no-artefacts",
            help="Keep schedule, program and every instruction's cycles (Parquet) next to the results, or not at all.",
            show_default="in the cache, as long as there is room",
        ),
    ] = None
    energy: Energy = None
    area: Area = False
    regression: Annotated[bool, typer.Option("--regression", help="Run the layers of `make sim`.")] = False
    jobs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Devices that run at the same time; default: one per CPU.")
    ] = len(os.sched_getaffinity(0))
    apart: bool = True  # no option: only in Python a scheduler can be in the caller's process

    def options(self, recorder: Recorder, folder: Path | None, on_event: Callable[[Event], None]) -> RunOptions:
        """How workloads are run. `folder`: of tracebacks, and of artefacts if they are wanted for good. Raises
        SettingError, and EnergyError for a table of energies that is wrong."""
        from meshloom.sched.store import cache

        from ..results.energy import load
        from ..results.shelf import Shelf, cached
        from ..runs.options import RunOptions

        cache.setting(*cache.MEGABYTES)  # a wrong one is told before anything runs
        if self.artefacts is None:
            shelf = cached(recorder.run, on_event)
        else:
            shelf = Shelf(folder) if self.artefacts and folder else None
        energy = None if self.energy is None else load(self.energy)
        return RunOptions(self.device, self.jobs, self.waves, self.links, folder, shelf, energy=energy, area=self.area)

    def guarded(self) -> AbstractContextManager[None]:
        """See `limited`."""
        return limited(self.time_limit, self.memory_limit, self.network, self.apart)


def jobs_of(jobs: int | None) -> int:
    """How many run at the same time; None: one for each CPU. Raises ValueError."""
    value: object = jobs
    if jobs is None:
        return RunRequest.jobs
    if not isinstance(value, int) or jobs < 1:
        raise ValueError(f"jobs = {jobs!r} must be a whole number, 1 or more; None is one for each CPU")
    return jobs


def refuse_other_kind(name: str, *, online: bool = False) -> None:
    """Raises SchedulerError for the name of a scheduler of the other kind: one that serves scenarios where layers and
    networks are scheduled, or the reverse for `online`. What is unknown to both is told elsewhere."""
    from meshloom.sched.schedulers.failures import SchedulerError
    from meshloom.sched.schedulers.online.registry import ONLINE
    from meshloom.sched.schedulers.registry import REGISTRY

    base = name.partition(":")[0]
    ours, others = (ONLINE, REGISTRY) if online else (REGISTRY, ONLINE)
    if base in ours.names() or base not in others.names():
        return
    if online:
        what = f"schedules layers and networks ahead: `meshloom run WORKLOAD --scheduler {name}`"
    else:
        what = f"is an online scheduler, which serves scenarios: `meshloom serve SCENARIO.toml --scheduler {name}`"
    raise SchedulerError(f"scheduler {base} {what}; here there are {', '.join(ours.names())}")


def limited(
    seconds: float | None, megabytes: int | None, network: bool = False, apart: bool = True
) -> AbstractContextManager[None]:
    """Within it, schedulers are held to these limits; unless they run `apart`, to none."""
    return guarded(guard_of(seconds, megabytes, network) if apart else Guard(None, None))
