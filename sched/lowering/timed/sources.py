"""From where each MOVE takes its words, when others than its schedule's source hold them too: the paper's routing step,
which looks for a datum in all locations of its history (Algorithm 2), and so forwards from core to core (Figure 8).

The operations are planned as `timetable` plans them, in their order, and each MOVE into a core by every source that has
its words: that of the schedule, a scratchpad, a core that has read them. It takes the one from which they arrive
earliest, a hop counting as much as `hop_weight` cycles. What results is another schedule with the same list of
operations, except that MOVEs into scratchpads from which nobody reads any more are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshloom.hw.config import ChipConfig, TileKind

from ...ir.dependences import Depends
from ...ir.holders import Holders
from ...ir.schedule import Gemm, Move, Operation, Schedule, Vec
from .boot import boot_of
from .compile import code_count, code_place
from .timetable import CodeTimes, Timed, Timetabler


@dataclass(frozen=True)
class Chosen:
    """A schedule with its sources; `cycles` and `flit_hops` as planned, without what the controller's code takes."""

    schedule: Schedule
    cycles: int
    flit_hops: int


class _Chooser(Timetabler):
    """A timetable whose MOVEs choose their sources."""

    def __init__(self, schedule: Schedule, chip: ChipConfig, code: CodeTimes, hop_weight: int) -> None:
        super().__init__(schedule, chip, code)
        self.depends = Depends((), chip)
        self._holders = Holders(schedule.operations, chip)
        self._hop_weight = hop_weight

    def _move(self, index: int, op: Move) -> Timed:
        # the first of equal ones: the schedule's own source
        timed = min((self._tried(index, one) for one in self._options(op)), key=self._cost)
        self._take(timed.op)
        self._keep(timed)
        return timed

    def _compute(self, index: int, op: Gemm | Vec) -> Timed:
        self._take(op)
        return super()._compute(index, op)

    def _options(self, op: Move) -> Iterator[Move]:
        yield op
        if self.chip.tiles[op.dst.tile] is TileKind.CORE:
            for source in self._holders.others(op):
                # where it is run without a controller, who needs the words asks for them
                yield op.model_copy(update={"issuer": op.dst.tile, "src": source, "route": None, "channel": None})

    def _tried(self, index: int, op: Move) -> Timed:
        data, room = self.depends.of(op)
        after = [self._after_data(op, self.timed[other]) for other in data]
        after += [self._after_room(op, self.timed[other]) for other in room]
        found = self.find(index, op, max(after, default=0))
        assert found is not None
        return found

    def _cost(self, timed: Timed) -> int:
        return timed.arrival + self._hop_weight * timed.hops

    def _take(self, op: Operation) -> None:
        self.depends.append(op)
        self._holders.done(op)


def choose(schedule: Schedule, chip: ChipConfig, hop_weight: int | None) -> Chosen:
    """The schedule with each MOVE into a core from the best of all memories that hold its words then.

    `hop_weight`: cycles that a MOVE may arrive later to save a hop; None: all sources stay. Raises as `compile_ahead`.
    """
    tile, address = code_place(schedule, chip)
    boot = boot_of(chip, tile, address, code_count(schedule))
    code = CodeTimes(boot.begins, boot.until, tile)
    if hop_weight is None:
        table = Timetabler(schedule, chip, code).plan()
        return Chosen(schedule, table.cycles, table.flit_hops)
    chooser = _Chooser(schedule, chip, code, hop_weight)
    table = chooser.plan()
    operations = _needed([timed.op for timed in chooser.timed], chip)
    made = schedule.model_copy(update={"operations": tuple(operations), "predicted": None})
    return Chosen(made, table.cycles, table.flit_hops)


def _needed(operations: Sequence[Operation], chip: ChipConfig) -> list[Operation]:
    """The operations without MOVEs into scratchpads that nothing depends on."""
    depends = Depends(operations, chip)
    read = {other for data in depends.data for other in data}
    return [
        op
        for index, op in enumerate(operations)
        if not isinstance(op, Move) or chip.tiles[op.dst.tile] is not TileKind.SPM or index in read
    ]
