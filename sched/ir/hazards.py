"""The events that each operation must wait for, derived from the words that operations read and write.

Operations cause events: a GEMM or VEC *completes*; a MOVE has *read* its last word (its source may be overwritten) and
has been *delivered* (its destination may be read). Events of one `EventClass` occur in list order on the hardware, so
of several dependences on one class only the latest is kept."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from enum import IntEnum
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Unit

from .schedule import Gemm, Move, Operation, reads, writes

#: Interval maps are cut into pages of this many words, so that no list grows long.
_PAGE = 4096


class Event(IntEnum):
    """An event that an operation causes."""

    COMPLETE = 0  #: a GEMM or VEC has written its last row
    READ = 1  #: a MOVE has read and sent its last word
    DELIVERED = 2  #: the last word of a MOVE has been written


class EventClass(NamedTuple):
    """Events that occur in list order: completion of the GEMMs of one core, or of its VECs (issuer = executor =
    target); reads of the moves that one tile issues and one tile executes (target -1); delivery of those moves to one
    target tile by the same route, and to the same tiles before it (`channel`, `route` and `copies` of `Move`): when the
    target has the words, all of them do. `unit` issues them."""

    event: Event
    unit: Unit
    issuer: int
    executor: int
    target: int
    channel: int | None = None
    route: tuple[int, ...] | None = None
    copies: int = 0


class Dependence(NamedTuple):
    """An operation must not start before `event` of operation `on`.

    `overwrite`: the only reason is that both write the same words, so data that arrives in order needs no wait.
    """

    on: int
    event: Event
    overwrite: bool


def unit_of(op: Operation) -> Unit:
    """The unit whose stream an operation belongs to."""
    return Unit.MOVER if isinstance(op, Move) else Unit.MATRIX if isinstance(op, Gemm) else Unit.VECTOR


def event_class(op: Operation, event: Event) -> EventClass:
    """The class of one of an operation's events."""
    if not isinstance(op, Move):
        return EventClass(Event.COMPLETE, unit_of(op), op.core, op.core, op.core)
    if event is Event.READ:
        return EventClass(event, Unit.MOVER, op.issuer, op.src.tile, -1)
    return EventClass(event, Unit.MOVER, op.issuer, op.src.tile, op.dst.tile, op.channel, op.route, op.copies)


class ClassNumbers:
    """Event classes by number, in the order in which operations first cause them."""

    def __init__(self) -> None:
        self.events: list[Event] = []  # of each class
        self._numbers: dict[EventClass, int] = {}
        self._pairs: dict[tuple[object, ...], tuple[int, int]] = {}  # by what decides an operation's classes

    def of(self, op: Operation) -> tuple[int, int]:
        """The classes of the ends of an operation's reads and writes."""
        if isinstance(op, Move):
            key = op.issuer, op.src.tile, op.dst.tile, op.channel, op.route, op.copies
        else:
            key = op.kind, op.core
        pair = self._pairs.get(key)
        if pair is None:
            events = (Event.READ, Event.DELIVERED) if isinstance(op, Move) else (Event.COMPLETE,)
            numbers = [self._number(event_class(op, event)) for event in events]
            pair = self._pairs[key] = numbers[0], numbers[-1]
        return pair

    def _number(self, one: EventClass) -> int:
        number = self._numbers.get(one)
        if number is None:
            number = self._numbers[one] = len(self._numbers)
            self.events.append(one.event)
        return number


class _Words:
    """State of a run of words: the last writer (-1: the host), and the readers since then, by class number. It is never
    changed, since runs that were one share it."""

    __slots__ = ("readers", "writer")

    def __init__(self, writer: int, readers: dict[int, int]) -> None:
        self.writer = writer
        self.readers = readers


_FRESH = _Words(-1, {})


class _Page:
    """Interval map of one page: words from starts[i] up to starts[i + 1] share values[i]."""

    __slots__ = ("starts", "values")

    def __init__(self) -> None:
        self.starts: list[int] = [0]
        self.values: list[_Words] = [_FRESH]

    def border(self, at: int) -> int:
        """Makes a word the first one of an interval; returns the index of that."""
        index = bisect_right(self.starts, at) - 1
        if self.starts[index] == at:
            return index
        if at < _PAGE:
            self.starts.insert(index + 1, at)
            self.values.insert(index + 1, self.values[index])
        return index + 1


class WordMap:
    """Who wrote and read the words of one memory, as an interval map."""

    def __init__(self) -> None:
        self._pages: dict[int, _Page] = {}

    def _page(self, number: int) -> _Page:
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = _Page()
        return page

    def _runs(self, intervals: Sequence[tuple[int, int]]) -> Iterator[tuple[_Page, int, int, int]]:
        """Pages that words lie in, with the offset of the first word there, and the range of the page's intervals that
        are just these words. The page may be changed in that range before the next is asked for."""
        for start, stop in intervals:
            while start < stop:
                number, low = divmod(start, _PAGE)
                page = self._pages.get(number)
                if page is None:
                    page = self._pages[number] = _Page()
                high = min(low + stop - start, _PAGE)
                first = page.border(low)
                yield page, low, first, page.border(high)
                start += high - low

    def uses(self, intervals: Sequence[tuple[int, int]], writers: set[int], readers: set[int]) -> None:
        """Adds the last writers of words to `writers`, and who has read them since then to `readers`."""
        for page, _, first, last in self._runs(intervals):
            for old in page.values[first:last]:
                writers.add(old.writer)
                readers.update(old.readers.values())

    def read(self, intervals: Sequence[tuple[int, int]], reader: int, number: int, writers: set[int]) -> None:
        """Adds the last writers of the words to `writers` and records a reader of class `number`."""
        for page, _, first, last in self._runs(intervals):
            values = page.values
            for i in range(first, last):
                old = values[i]
                writers.add(old.writer)
                readers = old.readers.copy()
                readers[number] = reader
                values[i] = _Words(old.writer, readers)

    def write(
        self, intervals: Sequence[tuple[int, int]], writer: int, writers: set[int], readers: dict[int, int]
    ) -> None:
        """Adds last writers and readers (the latest of each class) of the words, and records a writer."""
        fresh = _Words(writer, {})
        for page, low, first, last in self._runs(intervals):
            for old in page.values[first:last]:
                writers.add(old.writer)
                for number, reader in old.readers.items():
                    if reader > readers.get(number, -1):
                        readers[number] = reader
            page.values[first:last] = [fresh]
            page.starts[first:last] = [low]


class _Fences:
    """What operations wait for because of fences (`Schedule.fences`)."""

    def __init__(self, fences: Sequence[int]) -> None:
        self.fences = set(fences)
        self.ended: dict[int, int] = {}  # the last end of each class before the latest fence
        self.present: dict[int, int] = {}  # and since then
        self.waited: set[tuple[int, Unit]] = set()  # streams that have waited at the latest fence

    def before(self, index: int, op: Operation) -> dict[int, int]:
        """By class, the ends that an operation must wait for: those of everything before the fence, if it is the first
        behind it in its stream."""
        if index in self.fences:
            self.ended, self.present = self.present, {}
            self.waited.clear()
        stream = (op.issuer if isinstance(op, Move) else op.core), unit_of(op)
        if not self.ended or stream in self.waited:
            return {}
        self.waited.add(stream)
        return self.ended

    def note(self, index: int, end: int) -> None:
        """An operation's end, by class."""
        self.present[end] = index


def dependences(
    operations: Sequence[Operation], chip: ChipConfig, fences: Sequence[int] = ()
) -> list[tuple[Dependence, ...]]:
    """The dependences of each operation of a validated schedule, latest first.

    Omits those among one core's GEMMs and among its VECs (they are hazard-free in order), and all but the latest of
    each class.
    """
    memories: dict[tuple[int, int], WordMap] = {}
    classes = _Classes(fences)
    for index, op in enumerate(operations):
        early, _ = classes.add(op)
        raw: set[int] = set()
        waw: set[int] = set()
        war: dict[int, int] = {}
        for access in reads(op, chip):
            memory = memories.setdefault((access.tile, access.region), WordMap())
            memory.read(access.intervals, index, early, raw)
        for access in writes(op, chip):
            memory = memories.setdefault((access.tile, access.region), WordMap())
            memory.write(access.intervals, index, waw, war)
        classes.wait(index, op, raw, waw, war.values())
    return classes.result


def reordered(
    operations: Sequence[Operation], data: Sequence[Collection[int]], writers: Sequence[Collection[int]],
    readers: Sequence[Collection[int]], order: Sequence[int],
) -> list[tuple[Dependence, ...]]:  # fmt: skip
    """The same as `dependences`, of a list in an order that keeps what each operation waits for. `operations`: in that
    order, which has their numbers in the list before; there `data`, `writers` and `readers` say for each whose words it
    reads, and who has written and read those that it overwrites (`ir.dependences.Depends`)."""
    classes = ClassNumbers()
    pairs = np.array([classes.of(op) for op in operations], np.int64).reshape(-1, 2)
    read_by, ended_by = pairs[:, 0], pairs[:, 1]
    moved = np.array([isinstance(op, Move) for op in operations], bool)
    places, numbers = np.empty(len(order), np.int64), np.arange(len(order))
    places[np.array(order, np.int64)] = numbers
    waiting: list[NDArray[np.int64]] = []  # who waits, twice the class and whether only both write, for whom, why
    for why, (some, number, both) in enumerate(((data, ended_by, 0), (writers, ended_by, 1), (readers, read_by, 0))):
        lists = [some[old] for old in order]
        owners = np.repeat(numbers, [len(one) for one in lists])
        sources = places[np.fromiter(chain.from_iterable(lists), np.int64, len(owners))]
        needed = moved[owners] | (ended_by[sources] != ended_by[owners])
        owners, sources = owners[needed], sources[needed]
        waiting.append(np.stack([owners, 2 * number[sources] + both, sources, np.full_like(owners, why)]))
    return _latest(np.concatenate(waiting, axis=1), classes.events, len(operations))


def _latest(waiting: NDArray[np.int64], events: Sequence[Event], count: int) -> list[tuple[Dependence, ...]]:
    """The dependences of `count` operations: the latest of each class, the latest first. `waiting`: see `reordered`."""
    result: list[tuple[Dependence, ...]] = [()] * count
    if not waiting.shape[1]:
        return result
    owners, keys, sources, why = waiting[:, np.lexsort(waiting[2::-1])]
    first = np.flatnonzero(np.diff(owners, prepend=-1) | np.diff(keys, prepend=-1))
    last = np.append(first[1:], len(owners)) - 1
    why = np.minimum.reduceat(why, first)
    owners, keys, sources = owners[last], keys[last], sources[last]
    turns = np.lexsort((why, -sources, owners))
    owners, keys, sources = owners[turns], keys[turns], sources[turns]
    all_of = [
        Dependence(on, events[key // 2], key % 2 == 1) for on, key in zip(sources.tolist(), keys.tolist(), strict=True)
    ]
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    stops = np.append(starts[1:], len(owners))
    for owner, start, stop in zip(owners[starts].tolist(), starts.tolist(), stops.tolist(), strict=True):
        result[owner] = tuple(all_of[start:stop])
    return result


class _Classes:
    """The classes of operations' events, and of what each waits for the latest in each class."""

    def __init__(self, fences: Sequence[int]) -> None:
        self.result: list[tuple[Dependence, ...]] = []
        self._numbers = ClassNumbers()
        self._read_by: list[int] = []  # of each operation, the class of the end of its reads
        self._ended_by: list[int] = []  # and of its writes
        self._fenced = _Fences(fences)

    def add(self, op: Operation) -> tuple[int, int]:
        """The classes of the ends of the next operation's reads and writes."""
        early, late = self._numbers.of(op)
        self._read_by.append(early)
        self._ended_by.append(late)
        return early, late

    def wait(self, index: int, op: Operation, raw: Collection[int], waw: Collection[int], war: Collection[int]) -> None:
        """The operation reads what `raw` wrote, and overwrites what `waw` wrote and `war` read (-1: the host)."""
        moved, ended_by, events = isinstance(op, Move), self._ended_by, self._numbers.events
        late = ended_by[index]
        latest: dict[int, int] = {}  # by twice the class, and 1 more if the only reason is that both write
        for sources, classes, only_both_write in ((raw, ended_by, 0), (waw, ended_by, 1), (war, self._read_by, 0)):
            for source in sources:
                if source >= 0 and source != index and (moved or ended_by[source] != late):
                    key = 2 * classes[source] + only_both_write
                    if source > latest.get(key, -1):
                        latest[key] = source
        for end, source in self._fenced.before(index, op).items():
            latest[2 * end] = max(source, latest.get(2 * end, -1))
        self._fenced.note(index, late)
        last = sorted(latest.items(), key=_source, reverse=True)
        self.result.append(tuple([Dependence(on, events[key // 2], key % 2 == 1) for key, on in last]))


def _source(item: tuple[int, int]) -> int:
    return item[1]
