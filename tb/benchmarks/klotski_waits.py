"""What holds up the program of a network: the same one in the model, with less to carry.

MOVEs of some kind carry a word each instead of all of theirs; who waits for whom stays as it is. What the program then
takes less is what these words cost, on links, in ports and at channels. (Such a program computes nothing of use.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import TypeAdapter

from meshloom.hw.config import ChipConfig
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
_MADE_BY = ("sched.schedulers.klotski.entry", "sched.lowering.programs", "sched.model.timeline", "sched.workload.zoo")


@dataclass(frozen=True)
class Waits:
    """Cycles of a program by what carries a word each."""

    cycles: dict[str, int]


def _decided(chip: str) -> Decided:
    return Decided(config(chip), _MADE_BY, f"{NETWORK}, {SCHEDULER}")


#: By chip.
KEPT = Kept(FOLDER / "klotski_waits.jsonl", "waits", TypeAdapter(Record[str, Waits]), TypeAdapter(Waits), _decided)


def measure(on_progress: OnEvent) -> None:
    """Measures what is not kept."""
    for name in KEPT.missing(CHIPS):
        chip = config(name)
        on_progress(Stage(workload=NETWORK, what=f"{name}: what holds it up"))
        made = find_network(SCHEDULER, SCHEDULES.folder())(zoo.load(NETWORK), chip, None).schedule
        found = {kind: play(lower(lightened(made, chip, some), chip), chip).cycles for kind, some in KINDS.items()}
        KEPT.put(name, Waits(found))


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
    rows = [
        (kind, *(f"{cycles[kind]:,} ({cycles[kind] / cycles['nothing']:.3f})" for cycles in found.values()))
        for kind in KINDS
        if found
    ]
    title = f"What holds up {NETWORK}: cycles in the model if some MOVEs carry a word each"
    return Sheet(title, ("a word each", *(f"{chip}>" for chip in found)), rows), older
