"""All dependences of each operation in a list.

Unlike `hazards.dependences`, this includes those that the list order implies, because the list may be reordered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshloom.hw.spec.config import ChipConfig

from .hazards import WordMap
from .schedule import Access, Operation, reads, writes

#: What an operation reads, and what it writes.
Words = tuple[Sequence[Access], Sequence[Access]]


def words_of(op: Operation, chip: ChipConfig) -> Words:
    """What an operation reads and writes."""
    return reads(op, chip), writes(op, chip)


class Depends:
    """For each operation: `data`, the operations whose words it reads; `room`, those that must have read or written
    before it overwrites. Both are sets of indices of earlier operations, and they are disjoint. `writers` and
    `readers`: those of the words that it overwrites, be they in `data` or not."""

    def __init__(self, operations: Sequence[Operation], chip: ChipConfig, words: Iterable[Words] | None = None) -> None:
        """`words`: what each operation reads and writes, if that is known."""
        self._chip = chip
        self._memories: dict[tuple[int, int], WordMap] = {}
        self.data: list[set[int]] = []
        self.room: list[set[int]] = []
        self.writers: list[set[int]] = []
        self.readers: list[set[int]] = []
        for read, written in words if words is not None else (words_of(op, chip) for op in operations):
            self._append(read, written)

    def of(self, op: Operation) -> tuple[set[int], set[int]]:
        """`data` and `room` of an operation that would be the next one."""
        data: set[int] = set()
        room: set[int] = set()
        for access in reads(op, self._chip):
            self._memory(access).uses(access.intervals, data, set())
        for access in writes(op, self._chip):
            self._memory(access).uses(access.intervals, room, room)
        return data - {-1}, room - data - {-1}

    def append(self, op: Operation) -> None:
        """The next operation of the list."""
        self._append(*words_of(op, self._chip))

    def _append(self, read: Sequence[Access], written: Sequence[Access]) -> None:
        index = len(self.data)
        data: set[int] = set()
        writers: set[int] = set()
        readers: dict[int, int] = {}
        for access in read:
            # each operation is a separate class of readers, so that none hides another
            self._memory(access).read(access.intervals, index, index, data)
        for access in written:
            self._memory(access).write(access.intervals, index, writers, readers)
        writers.discard(-1)
        data.discard(-1)
        readers.pop(index, None)
        room = {*writers, *readers}
        self.data.append(data)
        self.room.append(room - data)
        self.writers.append(writers)
        self.readers.append(set(readers))

    def _memory(self, access: Access) -> WordMap:
        key = access.tile, access.region
        memory = self._memories.get(key)
        if memory is None:
            memory = self._memories[key] = WordMap()
        return memory
