"""What holds up the program of a network: the same one in the model, with less to carry or less to wait for.

MOVEs of some kind carry a word each instead of all of theirs; who waits for whom stays as it is. What the program then
takes less is what these words cost, on links, in ports and at channels. (Such a program computes nothing of use.) And
the same operations on a chip whose front ends have more code at hand, so that they seldom wait for a channel that is
busy with weights, or whose movers take more requests, so that nobody stands before a channel's mover with a request,
and with all that it would do next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.ir.schedule import Move, Schedule, Span
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.model.timeline import play
from meshloom.sched.schedulers.registry import find_network
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload import zoo

from ...inputs.chips import changed
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.tables import DASH, Table
from ..points.runs import chip_of

#: Network, chips, and how it is scheduled.
NETWORK, CHIPS, SCHEDULER = "resnet50", ("klotski9", "klotski25"), "klotski:fallback=none"
#: What carries a word each, by its name.
KINDS: dict[str, Callable[[Move, ChipConfig], bool]] = {
    "nothing": lambda move, chip: False,
    "what comes from DRAM": lambda move, chip: move.src.tile in chip.drams,
    "pushes from core to core": lambda move, chip: move.src.tile in chip.cores and move.src.tile != move.dst.tile,
    "all": lambda move, chip: True,
}
#: The same program on another chip: what is otherwise there.
ROOM: dict[str, dict[str, int]] = {
    "rings of 256 instructions": {"ring_instructions": 256},
    "queues of 64 requests": {"mover_queue": 64},
    "both": {"ring_instructions": 256, "mover_queue": 64},
}


@dataclass(frozen=True)
class Waits:
    """Cycles of a program by what carries a word each, and by what the chip has more room for."""

    cycles: dict[str, int]


@dataclass(frozen=True)
class WaitPoint(Point):
    """The network on a chip."""

    chip: str
    row: ClassVar[Any] = Waits

    @property
    def name(self) -> str:
        return f"what holds up {NETWORK} on {self.chip}"

    @property
    def work(self) -> float:
        return 120.0

    def inputs(self) -> Inputs:
        decide = "sched.papers.klotski.entry", "sched.lowering.programs", "sched.model.timeline", "sched.workload.zoo"
        more = (("chip", chip_of(self.chip).digest), ("what", f"{NETWORK}, {SCHEDULER}, {[*KINDS]}, {ROOM}"))
        return Inputs(decide, more)

    def measure(self, report: Report) -> Waits:
        chip = chip_of(self.chip)
        schedule = find_network(SCHEDULER, SCHEDULES.folder())(zoo.load(NETWORK), chip, None).schedule
        cycles = {kind: _cycles(lightened(schedule, chip, some), chip) for kind, some in KINDS.items()}
        for what, changes in ROOM.items():
            roomy = changed(chip, changes)
            cycles[what] = _cycles(schedule.model_copy(update={"chip_digest": roomy.digest}), roomy)
        return Waits(cycles)


def _cycles(schedule: Schedule, chip: ChipConfig) -> int:
    return play(lower(schedule, chip), chip).cycles


def lightened(schedule: Schedule, chip: ChipConfig, some: Callable[[Move, ChipConfig], bool]) -> Schedule:
    """A schedule in which some MOVEs carry a word each."""

    def first(span: Span) -> Span:
        return span.model_copy(update={"run": 1, "stride": 0})

    changed_operations = (
        op.model_copy(update={"words": 1, "src": first(op.src), "dst": first(op.dst)})
        if isinstance(op, Move) and some(op, chip)
        else op
        for op in schedule.operations
    )
    return schedule.model_copy(update={"operations": tuple(changed_operations)})


def waits(rows: Rows) -> Table:
    """Cycles of all variants, by chip."""
    cycles = {point.chip: row.cycles for point, row in rows.items() if isinstance(point, WaitPoint)}

    def cell(some: dict[str, int], what: str) -> str:
        return f"{some[what]:,} ({some[what] / some['nothing']:.3f})" if what in some else DASH  # older code

    lines = [(what, *(cell(some, what) for some in cycles.values())) for what in (*KINDS, *ROOM) if cycles]
    title = f"What holds up {NETWORK}: cycles in the model if MOVEs carry a word each, or with room for code, requests"
    return Table(title, ("a word each, or room", *(f"{chip}>" for chip in cycles)), lines)
