"""A kind of workload: how its names are read, and what is scheduled, run and judged for each.

A `WorkloadKind` reads a name and returns `WorkloadRequest`s. A request is scheduled into a `PlannedWorkload`, or
prepared into a `PreparedRun` for each of its runs. Everything that takes workloads (command line, Python, sweeps, saved
files) works with these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.model.timeline import Timeline
from meshloom.sched.program.program import Program

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig
    from meshloom.sched.lowering.programs import Planned
    from meshloom.sched.schedulers.registry import Chosen
    from meshloom.sched.workload.layout import ActivationLayout, BiasLayout, WeightLayout

    from ...devices.interface import Job, Run
    from ...inputs.sources import NetworkSource
    from ...results.schema import Row
    from ..outputs import OutputWords

AnyRun = TypeVar("AnyRun", bound="PreparedRun")
#: A run counts as hung if it takes so many times the predicted cycles, and so many more.
PATIENCE, MARGIN = 4, 20_000


def _ignore(what: Any) -> None:
    """Ignores a report."""


@dataclass(frozen=True)
class Listener:
    """Who is told how far the preparation of a workload is.

    `step`: called with the next step, whose first word is the stage (scheduling, lowering, ...). `search`: called with
    the progress of a search (`runs.searching.SearchState`).
    """

    step: Callable[[str], None] = _ignore
    search: Callable[[Any], None] = _ignore


class PlannedWorkload(Protocol):
    """A workload that is scheduled, checked and predicted, without its data."""

    @property
    def name(self) -> str:
        """Its name in tables; `table.find` reads it, unless it is a file's title."""
        ...

    @property
    def macs(self) -> int | None:
        """Multiply-accumulates; None if nobody knows what the program computes."""
        ...

    @property
    def schedule(self) -> Schedule:
        """The schedule from which the program was made."""
        ...

    @property
    def program(self) -> Program:
        """The checked program."""
        ...

    @property
    def timeline(self) -> Timeline:
        """The model's prediction."""
        ...


class PreparedRun(PlannedWorkload, Protocol):
    """A workload ready to run once, with its data."""

    @property
    def origin(self) -> Mapping[str, Any]:
        """Fields of `Settings` that say where its schedule is from, if not from the run's scheduler."""
        ...

    def job(self, chip: ChipConfig) -> Job:
        """The job for the device."""
        ...

    def row(self, run: Run, chip: ChipConfig, detailed: bool = True) -> Row:
        """The outcome, compared with golden model and timeline. `detailed`: with what explains the cycles of a layer,
        which takes longer than to judge a small one."""
        ...

    def outputs(self, chip: ChipConfig) -> Sequence[OutputWords]:
        """What must stand in DRAM after it. Raises WorkloadError if nobody knows."""
        ...

    def settings(self) -> dict[str, Any]:
        """Its origin and its inputs: fields of `Settings`."""
        ...


def with_origin(item: AnyRun, **fields: Any) -> AnyRun:
    """The item with further fields of `Settings`. All items are dataclasses."""
    one: Any = item  # a Protocol cannot say "dataclass"
    return replace(one, origin={**item.origin, **fields})


#: Tensors by name: role, kind of layout, shape.
Tensors = Mapping[str, tuple[str, "type[ActivationLayout] | type[WeightLayout] | type[BiasLayout]", tuple[int, ...]]]


@dataclass(frozen=True)
class Expected:
    """The tensors that a schedule of a workload may have, and the names of those that it must have. `what`: the
    workload, for messages."""

    what: str
    tensors: Tensors
    needed: Sequence[str]


class WorkloadRequest(Protocol):
    """One workload, read from its name, on a chip. Requests are sent to worker processes."""

    @property
    def scheduled_as(self) -> str | None:
        """What schedules it: the maker of a `Scheduler` ("layers", "networks", ...); None: it has its schedule."""
        ...

    @property
    def first_stage(self) -> str:
        """The stage in which its preparation begins."""
        ...

    @property
    def activity(self) -> str:
        """What is said while it is prepared."""
        ...

    @property
    def name(self) -> str:
        """Its name in tables."""
        ...

    @property
    def reference(self) -> str:
        """The name under which `table.find` returns just this one, on every chip."""
        ...

    @property
    def macs(self) -> int | None:
        """Multiply-accumulates; None where only reading a file tells."""
        ...

    @property
    def runs(self) -> int:
        """How many runs it becomes: for a network, one for each input."""
        ...

    def check(self, chip: ChipConfig) -> None:
        """Looks at its files before anything runs. Raises the errors of bad input."""
        ...

    def feed_with(self, source: NetworkSource) -> WorkloadRequest:
        """It, with what a network is fed (`source`, but for its name). Raises WorkloadError if it takes no inputs."""
        ...

    def expected(self) -> Expected | None:
        """The tensors of its schedules; None if only its schedule tells, or its file."""
        ...

    def plan(self, chip: ChipConfig, scheduler: str | Chosen, progress: Listener) -> PlannedWorkload:
        """Schedules, lowers, checks and predicts. Raises the errors of these steps."""
        ...

    def prepare(self, chip: ChipConfig, scheduler: str | Chosen, progress: Listener) -> Sequence[PreparedRun]:
        """The same, with the data of each run."""
        ...

    def restored(
        self, planned: Planned, chip: ChipConfig, title: str, origin: Mapping[str, Any]
    ) -> Sequence[PreparedRun]:
        """It, ready to run as a file called `title` says. `origin`: see `PreparedRun`."""
        ...


class PlanHolder:
    """Something that has been planned. `notes`: what is to be said of it."""

    planned: Planned
    notes: Sequence[str] = ()

    @property
    def schedule(self) -> Schedule:
        return self.planned.schedule

    @property
    def program(self) -> Program:
        return self.planned.program

    @property
    def timeline(self) -> Timeline:
        return self.planned.timeline


@dataclass(frozen=True)
class WorkloadKind:
    """A kind of workload.

    `find(name, chip)`: the requests that a name means on a chip (None: on any, to see whether it means something);
    raises WorkloadError. `syntax`: the lines of `meshloom workloads`, without those of names that are listed anyway.
    """

    find: Callable[[str, ChipConfig | None], Sequence[WorkloadRequest]]
    syntax: Callable[[], str]
