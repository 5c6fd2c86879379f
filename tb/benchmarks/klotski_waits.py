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

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.ir.schedule import Move, Schedule, Span
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.model.timeline import play
from meshloom.sched.schedulers.registry import find_network
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload import zoo

from ..results.events import OnEvent, Stage
from .kept import Decided, Kept, Record
from .network_runs import config
from .results import FOLDER, Sheet

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
_MADE_BY = ("sched.papers.klotski.entry", "sched.lowering.programs", "sched.model.timeline", "sched.workload.zoo")


@dataclass(frozen=True)
class Waits:
    """Cycles of a program by what carries a word each, and by what the chip has more room for."""

    cycles: dict[str, int]


def _decided(chip: str) -> Decided:
    return Decided(config(chip), _MADE_BY, f"{NETWORK}, {SCHEDULER}, {[*KINDS]}, {ROOM}")


#: By chip.
KEPT = Kept(FOLDER / "klotski_waits.jsonl", "waits", TypeAdapter(Record[str, Waits]), TypeAdapter(Waits), _decided)


def measure(on_progress: OnEvent) -> None:
    """Measures what is not kept."""
    for name in KEPT.missing(CHIPS):
        chip = config(name)
        on_progress(Stage(workload=NETWORK, what=f"{name}: what holds it up"))
        made = find_network(SCHEDULER, SCHEDULES.folder())(zoo.load(NETWORK), chip, None).schedule
        found = {kind: _cycles(lightened(made, chip, some), chip) for kind, some in KINDS.items()}
        for what, changes in ROOM.items():
            roomy = ChipConfig.model_validate(chip.model_dump() | changes)
            found[what] = _cycles(made.model_copy(update={"chip_digest": roomy.digest}), roomy)
        KEPT.put(name, Waits(found))


def _cycles(schedule: Schedule, chip: ChipConfig) -> int:
    return play(lower(schedule, chip), chip).cycles


def lightened(schedule: Schedule, chip: ChipConfig, some: Callable[[Move, ChipConfig], bool]) -> Schedule:
    """A schedule in which some MOVEs carry a word each."""

    def first(span: Span) -> Span:
        return span.model_copy(update={"run": 1, "stride": 0})

    changed = (
        op.model_copy(update={"words": 1, "src": first(op.src), "dst": first(op.dst)})
        if isinstance(op, Move) and some(op, chip)
        else op
        for op in schedule.operations
    )
    return schedule.model_copy(update={"operations": tuple(changed)})


def sheet() -> tuple[Sheet, set[str]]:
    """All that there is, and chips of which older code has found it."""
    kept, older = KEPT.collected(CHIPS)
    found = {chip: one.cycles for chip, one in kept.items()}

    def cell(cycles: dict[str, int], what: str) -> str:
        return f"{cycles[what]:,} ({cycles[what] / cycles['nothing']:.3f})" if what in cycles else "-"  # older code

    rows = [(what, *(cell(cycles, what) for cycles in found.values())) for what in (*KINDS, *ROOM) if found]
    title = f"What holds up {NETWORK}: cycles in the model if MOVEs carry a word each, or with room for code, requests"
    return Sheet(title, ("a word each, or room", *(f"{chip}>" for chip in found)), rows), older
