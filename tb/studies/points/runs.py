"""A workload on the RTL of a chip, every byte compared; and the same in the timeline model alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.schedulers.registry import scheduler_of

from ...build.builder import ingredients
from ...devices.registry import find as find_device
from ...inputs.chips import changed
from ...results.events import Event, Stage
from ...results.schema import Row
from ...runs import runner
from ...runs.options import RunOptions
from ...runs.sweeps.evaluate import modules_of, outside
from ..engine.point import Inputs, Point, Report
from ..engine.rows import StudyError

#: The device of points that name no other.
DEVICE = "verilator"
#: A value of a chip's field.
Value = bool | int | str | tuple[str, ...]
#: Fields of a chip that differ, by name: `(("dram.bytes_per_cycle", 4),)`.
Changes = tuple[tuple[str, Value], ...]
#: What turns a program into cycles, whoever scheduled it.
_PLAYED_BY = ("sched.lowering.programs", "sched.model.timeline")
#: What a row has that decides nothing and that no view needs: who made it stands in its line.
_LEFT_OUT: Any = {"settings", "artefacts", "waves", "area", *Row.model_computed_fields}


@cache
def chip_of(name: str, changes: Changes = (), called: str = "") -> ChipConfig:
    """A built-in chip, or one with other values in some fields. Raises ConfigError."""
    base = load(name)
    return changed(base, dict(changes) | ({"name": called} if called else {})) if changes else base


@cache
def gateware(device: str = DEVICE) -> str:
    """Digest of the sources of simulators, and the version of the device; who compiled them changes no result."""
    return f"{ingredients(load('tiny'), device, False)['sources']} {find_device(device).version()}"


def scheduled_by(scheduler: str) -> Inputs:
    """The code that makes the schedules; of one outside of Meshloom its file, with what that imports of its own."""
    modules: list[str] = [*_PLAYED_BY]
    files: list[tuple[str, str]] = []
    for module, path in modules_of(scheduler_of(scheduler)):
        if module.startswith("meshloom."):
            modules.append(module.removeprefix("meshloom."))
        elif path is not None:
            files.append((f"file of {scheduler}", outside(module, path)))
    return Inputs(tuple(dict.fromkeys(modules)), tuple(files))


@dataclass(frozen=True)
class RunPoint(Point):
    """A workload by a scheduler on the RTL of a chip. `changes`: of the chip; `links`: rows have the NoC's links.

    Rows are those of `meshloom run`, without what says who made them.
    """

    chip: str
    workload: str
    scheduler: str = "loop_order"
    changes: Changes = ()
    links: bool = False
    device: str = DEVICE
    row: ClassVar[Any] = Row

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        return chip_of(self.chip, self.changes)

    @property
    def name(self) -> str:
        """The point in words."""
        changes = "".join(f", {field} = {value}" for field, value in self.changes)
        return f"{self.workload} on {self.chip}{changes} by {self.scheduler}"

    @property
    def work(self) -> float:
        """CPU-seconds, roughly: whole networks take longer."""
        return 3.0 if any(sign in self.workload for sign in ":/") else 60.0

    def inputs(self) -> Inputs:
        """Chip, gateware, simulator, scheduler and bench."""
        scheduled = scheduled_by(self.scheduler)
        more = (*scheduled.more, ("chip", self.config.digest), ("gateware", gateware(self.device)))
        return Inputs((*scheduled.modules, "tb.runs.kinds.table"), more)

    def measure(self, report: Report) -> Row:
        """Runs it. Raises StudyError if it has no cycles; what it came to otherwise is in the row."""

        def on_event(event: Event) -> None:
            if isinstance(event, Stage):
                report(event.what)

        options = RunOptions(device=self.device, links=self.links, here=True)
        rows = runner.run([self.workload], self.config, self.scheduler, on_event, options)
        if len(rows) != 1:
            raise StudyError(f"{self.workload} is {len(rows)} runs; name one of them")
        if rows[0].error is not None:
            raise StudyError(rows[0].error.words)
        return rows[0]

    @classmethod
    def dump(cls, row: Row) -> Any:
        """What differs from a row of zeros."""
        return row.model_dump(mode="json", exclude=_LEFT_OUT, exclude_defaults=True)


def wrong_with(point: RunPoint, row: Row, exact: bool = False) -> list[str]:
    """What is wrong with a run, in words. `exact`: the model has to be right to the cycle."""
    if row.reason:
        return [f"{point.name}: {row.reason}"]
    if exact and row.rtl_cycles != row.model_cycles:
        return [f"{point.name}: {row.rtl_cycles:,} cycles, the model says {row.model_cycles:,}"]
    return []
