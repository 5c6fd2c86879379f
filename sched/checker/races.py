"""Data races and reads of unwritten words, from the clocks of `order`.

Memories are cut wherever an access begins or ends; each segment stores its last writer and the readers since then. Two
accesses of which one writes must be ordered; a read must find a writer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from meshloom.hw.spec.isa import Opcode, Region

from ..program.names import Names
from .accesses import Strided, Windowed
from .order import Clock, Kind, Order, TimedAccess
from .problems import Problems
from .results import result_name
from .static import DecodedInstruction

#: (tile, word offset in region MAIN, words).
Extent = tuple[int, int, int]
#: Writers before the first access.
NOBODY, HOST = 0, 1
#: Words, segments and numbers of events fit into 32 bits.
Places = npt.NDArray[np.int32]
#: Segments of walks that are kept for each memory.
_CACHE_SEGMENTS = 1 << 20
_UNTIL = {
    Kind.FRONT: "for the stream's end",
    Kind.UNIT: "until it is complete",
    Kind.PULL: "until it has been executed",
    Kind.DELIVERED: "until its words have been delivered",
}


@dataclass
class _Memory:
    """Shadow of one region of one tile: segment i holds the words [cuts[i], cuts[i+1])."""

    cuts: Places
    writer: Places  # NOBODY, HOST, or HOST + 1 + number of the event
    readers: Places  # number of a set of readers
    _places: dict[Strided | Windowed, Places] = field(default_factory=dict["Strided | Windowed", "Places"])
    _size: int = 0

    def __post_init__(self) -> None:
        self._each: memoryview[int] = self.cuts.data

    def at(self, walk: Strided | Windowed) -> slice | Places:
        """Segments of a walk (whose intervals end at cuts)."""
        if (places := self._places.get(walk)) is not None:
            return places
        if isinstance(walk, Strided) and walk.intervals == 1:
            return slice(bisect_left(self._each, walk.start), bisect_left(self._each, walk.end))
        # numbers of another type would have NumPy convert all cuts first
        low, high = (self.cuts.searchsorted(edges.astype(np.int32)) for edges in walk.listed())
        if len(low) == 1:
            return slice(int(low[0]), int(high[0]))
        sizes = high - low
        segments = np.repeat((low + sizes - np.cumsum(sizes)).astype(np.int32), sizes)
        segments += np.arange(len(segments), dtype=np.int32)
        if self._size + len(segments) <= _CACHE_SEGMENTS:
            self._places[walk] = segments
            self._size += len(segments)
        return segments


class RaceCheck:
    """Replays all accesses of `order`. `initial`: DRAM words that the host loads (None: all of them); `outputs`: DRAM
    words that the program must have written by its end."""

    def __init__(
        self,
        steps: Sequence[Sequence[DecodedInstruction]],
        order: Order,
        names: Names,
        problems: Problems,
        initial: Iterable[Extent] | None,
        outputs: Iterable[Extent],
    ) -> None:
        self.steps, self.order, self.names, self.problems = steps, order, names, problems
        self.outputs = list(outputs)
        self.events = list(order.events())
        self._memories = self._build(None if initial is None else list(initial))
        # Sets of readers: tuples of event numbers; 0 is the empty set.
        self._sets: list[tuple[int, ...]] = [()]
        self._set_number: dict[tuple[int, ...], int] = {(): 0}
        self._reported: set[tuple[object, ...]] = set()

    def _build(self, initial: list[Extent] | None) -> dict[tuple[int, int], _Memory]:
        walks: dict[tuple[int, int], dict[Strided | Windowed, None]] = {}
        for event in self.events:
            access = event.access
            walks.setdefault((access.tile, int(access.region)), {})[access.walk] = None
        for tile, begin, words in (initial or []) + self.outputs:
            walks.setdefault((tile, int(Region.MAIN)), {})[Strided(begin, words, 0, words)] = None
        memories: dict[tuple[int, int], _Memory] = {}
        drams = self.names.chip.channels
        for (tile, region), touched in walks.items():
            cuts = _cuts(touched)
            loaded = region in (Region.TRACE, Region.STATS) or (tile in drams and initial is None)
            count = len(cuts)
            fill = HOST if loaded else NOBODY
            memories[tile, region] = _Memory(cuts, np.full(count, fill, np.int32), np.zeros(count, np.int32))
        for tile, begin, words in initial or []:
            memory = memories[tile, int(Region.MAIN)]
            memory.writer[memory.at(Strided(begin, words, 0, words))] = HOST
        return memories

    def run(self) -> None:
        """Replays; adds a problem for each pair of racing instructions and each first read of unwritten words."""
        for number, event in enumerate(self.events):
            if self.problems.full:
                return
            access = event.access
            memory = self._memories[access.tile, int(access.region)]
            where = memory.at(access.walk)
            for writer in _distinct(memory.writer[where]):
                if writer == NOBODY and not access.write:
                    self._unwritten(event, memory, where)
                elif writer > HOST and not self._ordered(writer - HOST - 1, event):
                    self._race(writer - HOST - 1, event, memory, where, memory.writer, (writer,))
            sets = memory.readers[where]
            distinct = _distinct(sets)
            if access.write:
                for readers in distinct:
                    for reader in self._sets[readers]:
                        if not self._ordered(reader, event):
                            every = tuple(i for i in distinct if reader in self._sets[i])
                            self._race(reader, event, memory, where, memory.readers, every)
                memory.writer[where] = HOST + 1 + number
                memory.readers[where] = 0
            elif len(distinct) == 1:
                memory.readers[where] = self._with(distinct[0], number)
            else:
                fresh = np.zeros(max(distinct) + 1, np.int32)
                for readers in distinct:
                    fresh[readers] = self._with(readers, number)
                memory.readers[where] = fresh[sets]
        self._check_outputs()

    def _ordered(self, earlier: int, event: TimedAccess) -> bool:
        """Whether event number `earlier` has ended, in every timing, when `event` begins."""
        first = self.events[earlier]
        if first.stream == event.stream and first.position == event.position:
            # A GEMM reads each addend before it overwrites it, and a VEC never writes where it reads; a MOVE may write
            # before it has read everything.
            return self.steps[event.stream][event.position].opcode is not Opcode.MOVE
        return int(event.begin[first.chain]) >= first.tick

    def _with(self, readers: int, number: int) -> int:
        """The set of readers plus one; readers ordered before it are dropped as redundant."""
        begin, events = self.events[number].begin, self.events
        concurrent = tuple(i for i in self._sets[readers] if begin[events[i].chain] < events[i].tick)
        key = (*concurrent, number)
        set_number = self._set_number.get(key)
        if set_number is None:
            set_number = self._set_number[key] = len(self._sets)
            self._sets.append(key)
        return set_number

    # -- problems ---------------------------------------------------------------------------------------------

    def _words(self, event: TimedAccess, memory: _Memory, where: slice | Places, chosen: npt.NDArray[np.bool_]) -> str:
        """Names the first stretch of chosen segments."""
        segments = np.arange(len(memory.cuts))[where][chosen]
        first = int(segments[0])
        last = first
        while last + 1 in segments[:1000]:
            last += 1
        access = event.access
        return self.names.words(access.tile, access.region, int(memory.cuts[first]), int(memory.cuts[last + 1]))

    def _unwritten(self, event: TimedAccess, memory: _Memory, where: slice | Places) -> None:
        if self._seen("unwritten", event.stream, event.position):
            return
        words = self._words(event, memory, where, memory.writer[where] == NOBODY)
        instruction = self.names.instruction(event.stream, event.position)
        self.problems.add(instruction, f"reads {words}, which nothing has written", "write them first")

    def _race(
        self,
        earlier: int,
        event: TimedAccess,
        memory: _Memory,
        where: slice | Places,
        marks: Places,
        values: tuple[int, ...],
    ) -> None:
        first = self.events[earlier]
        if self._seen(first.stream, first.position, event.stream, event.position):
            return
        words = self._words(event, memory, where, np.isin(marks[where], values))
        verbs = ["writes" if access.write else "reads" for access in (event.access, first.access)]
        one = self.names.instruction(event.stream, event.position)
        if (first.stream, first.position) == (event.stream, event.position):
            self.problems.add(one, f"reads and overwrites {words}", "a MOVE's source and destination must not overlap")
            return
        other = self.names.instruction(first.stream, first.position)
        what = f"races: {verbs[0]} {words}, which {other} {verbs[1]}, and no semaphore orders the two"
        self.problems.add(one, what, "one must wait until the other is done")

    def _seen(self, *key: object) -> bool:
        if key in self._reported:
            return True
        self._reported.add(key)
        return False

    def _check_outputs(self) -> None:
        for tile, begin, words in self.outputs:
            memory = self._memories[tile, int(Region.MAIN)]
            where = memory.at(Strided(begin, words, 0, words))
            missing = memory.writer[where] <= HOST
            if missing.any():
                first = int(memory.cuts[where][np.argmax(missing)])
                many = int(np.diff(memory.cuts, append=memory.cuts[-1:])[where][missing].sum())
                rest = f", nor {'is another word' if many == 2 else f'are {many - 1} others'} there" if many > 1 else ""
                what = f"{result_name(self.names, tile, first)} is never written{rest}"
                self.problems.add("program", what, "the schedule leaves a hole in the result; store that part of it")


def _cuts(walks: Iterable[Strided | Windowed]) -> Places:
    """Where some interval of these walks begins or ends, ascending."""
    walks = list(walks)
    end = max(walk.end for walk in walks)
    if sum(walk.intervals for walk in walks) < end // 64:
        edges = [edge for walk in walks for edge in walk.listed()]
        return np.unique(np.concatenate(edges)).astype(np.int32)
    marks = np.zeros(end + 1, np.bool_)  # many: these need less room
    for walk in walks:
        for edge in walk.listed():
            marks[edge] = True
    return np.flatnonzero(marks).astype(np.int32)


def _distinct(values: Places) -> list[int]:
    """Distinct values; most accesses have one."""
    first = values[0]
    if len(values) == 1 or (values == first).all():
        return [int(first)]
    return np.unique(values).tolist()


def not_awaited(order: Order, names: Names, problems: Problems) -> None:
    """END must be ordered after everything: the end of every stream, every computation, every delivery."""
    clock: Clock = order.end
    for (kind, *_), chain in order.chains.items():
        tick, stream, position = order.last[chain]
        if (kind, stream) == (Kind.FRONT, 0) or clock[chain] >= tick:
            continue
        what = f"END does not wait {_UNTIL[Kind(kind)]}"
        fix = "the boot stream must wait for a post that follows it (to a semaphore of the host, one from every stream)"
        problems.add(names.instruction(stream, position), what, fix)
