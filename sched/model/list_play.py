"""List scheduling on estimated times: streams, movers, DRAM channels and links take operations as they find work.

Whenever a unit or a mover is free it takes, of all operations whose inputs are there, the first in the list. This is
what `mapping.play.interleave` asks for each horizon of each list, some hundred times for one network, so it works on
numbers and is compiled with the rest of this folder. Events of one cycle happen in the order in which they are put.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.isa import REQUEST_FLITS

from .traffic import REQUEST_CYCLES, START_CYCLES, Traffic

#: A stream: its tile, and its unit as a number.
Stream = tuple[int, int]

#: Requests that a mover may have before it at a time: one that it serves, one on its way.
UNDER_WAY: Final = 2
#: Of `ListedOperations.use`: that nothing holds a MOVE back.
NEVER_HELD: Final = -1

_FREE: Final = 0
_READ: Final = 1
_END: Final = 2
_ARRIVE: Final = 3
_LAND: Final = 4


class ListedOperations:
    """Operations of a list as numbers, lists of one length, and what waits for each of them.

    `stream`: the number of what computes it in `streams`, -1 for a MOVE; `cycles`: for which that is busy; `result`:
    until what it writes is there; `before`: cycles of computing before it in its stream. Of a MOVE `issuer`, `source`,
    `target` (tiles) and `words`; `use`: the stream that uses first what it brings (`NEVER_HELD`: it is never held
    back), and `at`, how many cycles of computing have to come before in that stream. `missing`: for how many others
    each waits; `on_read`, `on_end`: those that wait until it has read, or written, its words. `turns`: the operations
    of each stream, in the order of the list.
    """

    def __init__(self, streams: list[Stream], missing: list[int], on_read: list[list[int]], on_end: list[list[int]],
                 turns: list[list[int]]) -> None:  # fmt: skip
        self.streams: list[Stream] = streams
        self.missing: list[int] = missing
        self.on_read: list[list[int]] = on_read
        self.on_end: list[list[int]] = on_end
        self.turns: list[list[int]] = turns
        self.stream: list[int] = []
        self.cycles: list[int] = []
        self.result: list[int] = []
        self.before: list[int] = []
        self.issuer: list[int] = []
        self.source: list[int] = []
        self.target: list[int] = []
        self.words: list[int] = []
        self.use: list[int] = []
        self.at: list[int] = []

    def add_compute(self, stream: int, cycles: int, result: int, before: int) -> None:
        """The next operation of the list, of a unit that computes."""
        self._add(stream, cycles, result, before, 0, 0, 0, 0, NEVER_HELD, 0)

    def add_move(self, issuer: int, source: int, target: int, words: int, use: int, at: int) -> None:
        """The next operation of the list, a MOVE."""
        self._add(-1, 0, 0, 0, issuer, source, target, words, use, at)

    def _add(
        self, stream: int, cycles: int, result: int, before: int, issuer: int, source: int, target: int, words: int,
        use: int, at: int,
    ) -> None:  # fmt: skip
        self.stream.append(stream)
        self.cycles.append(cycles)
        self.result.append(result)
        self.before.append(before)
        self.issuer.append(issuer)
        self.source.append(source)
        self.target.append(target)
        self.words.append(words)
        self.use.append(use)
        self.at.append(at)


class ListPlay:
    """Plays a list once. `horizon`: a MOVE is held back while more cycles of computing lie before its first use;
    `at_once`: but never what a core sends; `in_order`: units keep the order of the list. `order`: the operations as
    they were issued; `end`: the cycle in which the last one has ended."""

    def __init__(self, listed: ListedOperations, chip: ChipConfig, horizon: int, at_once: bool, in_order: bool) -> None:
        self._listed: ListedOperations = listed
        self._horizon: int = horizon
        self._at_once: bool = at_once
        self._in_order: bool = in_order
        self.order: list[int] = []
        self.end: float = 0.0
        self._now: float = float(START_CYCLES)
        self._events: list[tuple[float, int, int, int]] = []
        self._number: int = 0
        self._missing: list[int] = listed.missing.copy()
        self._traffic: Traffic = Traffic(chip)
        tiles, streams = max(chip.tiles) + 1, len(listed.streams)
        self._is_core: list[bool] = [chip.tiles.get(tile) is TileKind.CORE for tile in range(tiles)]
        self._asking: list[list[int]] = [[] for _ in range(tiles)]  # moves, by source
        self._in_flight: list[int] = [0] * tiles
        self._own: list[int] = [0] * tiles
        self._mover_free: list[float] = [0.0] * tiles
        self._issuer_free: list[float] = [float(START_CYCLES)] * tiles
        self._numbers: dict[Stream, int] = {key: number for number, key in enumerate(listed.streams)}
        self._offered: list[list[int]] = [[] for _ in range(streams)]  # operations that a unit may begin
        self._held: list[list[tuple[int, int]]] = [[] for _ in range(streams)]  # moves, by the stream that uses them
        self._busy: list[bool] = [False] * streams
        self._progress: list[int] = [0] * streams
        self._done: list[int] = [0] * streams  # operations issued
        self._touched: set[Stream] = set()
        self._sources: set[int] = set()

    def play(self) -> None:
        """Plays all operations."""
        for index, missing in enumerate(self._missing):
            if not missing:
                self._ready(index)
        self._settle()
        while self._events or self._release_held():
            self._now = self._events[0][0]
            while self._events and self._events[0][0] == self._now:
                event = heappop(self._events)
                self._happen(event[2], event[3])
            self._settle()
        assert len(self.order) == len(self._missing), "a dependence that points forward"

    def _put(self, time: float, kind: int, index: int) -> None:
        self._number += 1
        heappush(self._events, (time, self._number, kind, index))

    def _happen(self, kind: int, index: int) -> None:
        listed = self._listed
        if kind == _FREE:
            stream = listed.stream[index]
            self._busy[stream] = False
            self._touched.add(listed.streams[stream])
        elif kind == _READ:
            source = listed.source[index]
            self._in_flight[source] -= 1
            if listed.issuer[index] == source:
                self._own[source] -= 1
            self._sources.add(source)
            self._release(listed.on_read[index])
        elif kind == _END:
            self.end = max(self.end, self._now)
            if listed.stream[index] >= 0:
                self._release(listed.on_read[index])
            self._release(listed.on_end[index])
        elif kind == _ARRIVE:
            self._serve(index)
        else:
            end = self._traffic.land(listed.source[index], listed.target[index], listed.words[index], self._now)
            self._put(end, _END, index)

    def _release(self, waiting: list[int]) -> None:
        missing = self._missing
        for index in waiting:
            missing[index] -= 1
            if not missing[index]:
                self._ready(index)

    def _ready(self, index: int) -> None:
        """An operation waits for nothing any more."""
        listed = self._listed
        stream = listed.stream[index]
        if stream >= 0:
            heappush(self._offered[stream], index)
            self._touched.add(listed.streams[stream])
            return
        use = listed.use[index]
        if use >= 0 and not (self._at_once and self._is_core[listed.source[index]]):
            at = listed.at[index]
            if at > self._progress[use] + self._horizon:
                heappush(self._held[use], (at, index))
                return
        self._may_ask(index)

    def _may_ask(self, index: int) -> None:
        """A MOVE that its source may be asked for."""
        source = self._listed.source[index]
        heappush(self._asking[source], index)
        self._sources.add(source)

    def _release_held(self) -> bool:
        """Lets the first MOVE go that is held back, when everything stands still; False if none is held.

        Streams that share what it brings can be so far apart that the one by which it is held waits for the other."""
        first, stream = -1, -1
        for use, held in enumerate(self._held):
            for _, index in held:
                if first < 0 or index < first:
                    first, stream = index, use
        if first < 0:
            return False
        self._held[stream] = sorted([entry for entry in self._held[stream] if entry[1] != first])
        self._may_ask(first)
        self._settle()
        return True

    def _settle(self) -> None:
        """All events of a cycle have happened."""
        while self._touched or self._sources:
            while self._touched:
                self._compute(self._numbers[self._touched.pop()])
            while self._sources:
                self._ask(self._sources.pop())

    def _compute(self, stream: int) -> None:
        listed, offered = self._listed, self._offered[stream]
        if not offered or self._busy[stream]:
            return
        if self._in_order and offered[0] != listed.turns[stream][self._done[stream]]:
            return
        index = heappop(offered)
        self._done[stream] += 1
        self.order.append(index)
        self._busy[stream] = True
        cycles = listed.cycles[index]
        self._put(self._now + cycles, _FREE, index)
        self._put(self._now + listed.result[index], _END, index)
        progress = max(self._progress[stream], listed.before[index] + cycles)
        self._progress[stream] = progress
        held = self._held[stream]
        while held and held[0][0] <= progress + self._horizon:
            self._may_ask(heappop(held)[1])

    def _ask(self, source: int) -> None:
        listed, asking = self._listed, self._asking[source]
        while asking and self._in_flight[source] < UNDER_WAY:
            issuer = listed.issuer[asking[0]]
            own = issuer == source
            if own and self._own[source]:
                return
            index = heappop(asking)
            self.order.append(index)
            self._in_flight[source] += 1
            begin = max(self._now, self._issuer_free[issuer])
            if own:
                self._own[source] += 1
                self._issuer_free[issuer] = begin + 2
                self._put(begin + 2, _ARRIVE, index)
            else:
                self._issuer_free[issuer] = begin + REQUEST_FLITS + 1
                self._put(begin + REQUEST_CYCLES, _ARRIVE, index)

    def _serve(self, index: int) -> None:
        source, words = self._listed.source[index], self._listed.words[index]
        begin, busy, flight = self._traffic.send(source, words, max(self._now, self._mover_free[source]), 1)
        self._mover_free[source] = begin + busy
        self._put(begin + busy, _READ, index)
        self._put(begin + flight, _LAND, index)
