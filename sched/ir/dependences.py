"""All dependences of each operation in a list.

Unlike `hazards.dependences`, this includes those that the list order implies, because the list may be reordered."""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.hw.config import ChipConfig

from .hazards import WordMap
from .schedule import Operation, reads, writes


class Depends:
    """For each operation: `data`, the operations whose words it reads; `room`, those that must have read or written
    before it overwrites. Both are sets of indices of earlier operations, and they are disjoint."""

    def __init__(self, operations: Sequence[Operation], chip: ChipConfig) -> None:
        memories: dict[tuple[int, int], WordMap] = {}
        self.data: list[set[int]] = []
        self.room: list[set[int]] = []
        for index, op in enumerate(operations):
            data: set[int] = set()
            writers: set[int] = set()
            readers: dict[int, int] = {}
            for access in reads(op, chip):
                # each operation is a separate class of readers, so that none hides another
                memories.setdefault((access.tile, access.region), WordMap()).read(access.intervals, index, index, data)
            for access in writes(op, chip):
                memories.setdefault((access.tile, access.region), WordMap()).write(
                    access.intervals, index, writers, readers
                )
            nobody = {-1, index}
            self.data.append(data - nobody)
            self.room.append((writers | set(readers)) - data - nobody)
