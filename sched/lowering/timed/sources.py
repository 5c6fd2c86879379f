"""From where each MOVE takes its words, when others than its schedule's source hold them too: the paper's routing step,
which looks for a datum in all locations of its history (Algorithm 2), and so forwards from core to core (Figure 8).

The operations are planned as `timetable` plans them, in their order, and each MOVE into a core by every source that has
its words: that of the schedule, a scratchpad, a core that has read them. It takes the one from which they arrive
earliest, a hop counting as much as `hop_weight` cycles. What results is another schedule with the same list of
operations, except that MOVEs into scratchpads from which nobody reads any more are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshloom.hw.spec.config import ChipConfig, TileKind

from ...ir.dependences import Depends
from ...ir.holders import Holders
from ...ir.schedule import Gemm, Move, Operation, Schedule, Vec
from .compile import code_begins, code_count, code_place
from .timetable import CodeTimes, Timed, Timetabler


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
        place = self.find(index, op, max(after, default=0))
        assert place is not None
        return place

    def _cost(self, timed: Timed) -> int:
        return timed.arrival + self._hop_weight * timed.hops

    def _take(self, op: Operation) -> None:
        self.depends.append(op)
        self._holders.done(op)


def nearest(schedule: Schedule, chip: ChipConfig, hop_weight: int) -> Schedule:
    """The schedule with each MOVE into a core from the best of all memories that hold its words then.

    `hop_weight`: cycles that a MOVE may arrive later to save a hop. Raises as `compile_ahead`.
    """
    code = code_begins(chip, *code_place(schedule, chip), code_count(schedule))
    chooser = _Chooser(schedule, chip, code, hop_weight)
    chooser.plan()
    operations = _needed([timed.op for timed in chooser.timed], chip)
    return schedule.model_copy(update={"operations": tuple(operations), "predicted": None})


def _needed(operations: Sequence[Operation], chip: ChipConfig) -> list[Operation]:
    """The operations without MOVEs into scratchpads that nothing depends on."""
    depends = Depends(operations, chip)
    read = {other for data in depends.data for other in data}
    return [
        op
        for index, op in enumerate(operations)
        if not isinstance(op, Move) or chip.tiles[op.dst.tile] is not TileKind.SPM or index in read
    ]
