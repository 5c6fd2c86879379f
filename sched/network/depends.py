"""What each operation of a list depends on, whole: unlike in `program.hazards`, nothing is left out that the order of
the list implies, so that the list may be reordered."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from meshloom.hw.config import ChipConfig
from meshloom.sched.schedule import Operation, reads, writes

_PAGE = 1024


class _Page:
    """Words from starts[i] up to starts[i + 1]: the operation that wrote them last (-1: none), who has read since."""

    __slots__ = ("readers", "starts", "writers")

    def __init__(self) -> None:
        self.starts = [0]
        self.writers = [-1]
        self.readers: list[list[int]] = [[]]

    def border(self, at: int) -> int:
        """Makes `at` a border between intervals; the index of the interval that begins there."""
        index = bisect_right(self.starts, at) - 1
        if self.starts[index] == at:
            return index
        if at < _PAGE:
            self.starts.insert(index + 1, at)
            self.writers.insert(index + 1, self.writers[index])
            self.readers.insert(index + 1, list(self.readers[index]))
        return index + 1


class _Memory:
    def __init__(self) -> None:
        self._pages: dict[int, _Page] = {}

    def cut(self, intervals: Iterable[tuple[int, int]]) -> Iterator[tuple[_Page, int, int, int]]:
        for start, stop in intervals:
            while start < stop:
                number, low = divmod(start, _PAGE)
                high = min(low + stop - start, _PAGE)
                page = self._pages.get(number)
                if page is None:
                    page = self._pages[number] = _Page()
                first = page.border(low)
                yield page, first, page.border(high), low
                start += high - low


class Depends:
    """For each operation: `data`, those whose words it reads; `room`, those that must have read or written before it
    overwrites. Both are sets of indices of earlier operations."""

    def __init__(self, operations: Sequence[Operation], chip: ChipConfig) -> None:
        memories: dict[tuple[int, int], _Memory] = {}
        self.data: list[set[int]] = []
        self.room: list[set[int]] = []
        for index, op in enumerate(operations):
            data: set[int] = set()
            room: set[int] = set()
            for access in reads(op, chip):
                memory = memories.setdefault((access.tile, access.region), _Memory())
                for page, first, last, _ in memory.cut(access.intervals):
                    data.update(page.writers[first:last])
                    for readers in page.readers[first:last]:
                        readers.append(index)
            for access in writes(op, chip):
                memory = memories.setdefault((access.tile, access.region), _Memory())
                for page, first, last, low in memory.cut(access.intervals):
                    for writer, readers in zip(page.writers[first:last], page.readers[first:last], strict=True):
                        room.update(readers) if readers else room.add(writer)
                    page.starts[first:last] = [low]
                    page.writers[first:last] = [index]
                    page.readers[first:last] = [[]]
            for some in (data, room):
                some.discard(-1)
                some.discard(index)
            self.data.append(data)
            self.room.append(room - data)
