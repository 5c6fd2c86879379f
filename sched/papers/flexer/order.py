"""The order in which each unit issues its operations, found by playing them on the chip's streams and movers.

In the log nothing overlaps. Here the operations run as the hardware would run them: a stream issues one after the
other and waits for nothing but what an operation depends on (the words that it touches, `ir.dependences`); a mover
serves requests as they arrive and has room for a few; the link into a tile takes one word a cycle, and packets of
several movers in turns, so that none of these is free before its share has gone through. Whenever a stream is free it
takes, of all its operations whose words are ready, the first in the log, but none that is for a set too far ahead of
the oldest that it still has to do: what is asked for early stands in the way of what is needed early. The order in
which that happens is the schedule's: it means the same, because it is a topological order of the same dependences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import REQUEST_FLITS, Unit

from ...mapping.nodes import Node
from ...mapping.play.estimate import END_CYCLES
from ...mapping.play.player import Player, Waits
from ...model.traffic import FLIGHT_CYCLES, REQUEST_CYCLES, WRITE_CYCLES, dram_word_cycles

#: Cycles from an event to the issue of what has waited for it: post, semaphore, front end.
_WAKE = 8
#: Sets that the stream of a core and that of a bank may be ahead of themselves: the best of these is taken.
AHEAD = ((1, 4), (2, 4), (2, 16), (4, 16), (2, 64))
#: Requests on their way to a mover, besides those that it has room for.
_UNDER_WAY = 2
_ISSUE, _ARRIVE, _PACKET, _SENT, _READ, _END = range(6)


@dataclass(frozen=True)
class Ordered:
    """Operations in their order (indices of the log's order), the cycles that it takes by this estimate, and how far
    ahead streams were (see `AHEAD`)."""

    order: list[int]
    cycles: int
    ahead: tuple[int, int]


class Orderer:
    """Finds out once what depends on what; `run` then plays it."""

    def __init__(self, nodes: Sequence[Node], steps: Sequence[int], chip: ChipConfig) -> None:
        self.waits, self.steps = Waits(nodes, chip), steps

    def run(self, ahead: tuple[int, int], fixed: bool = True) -> Ordered:
        """Plays the operations. `ahead`: see `AHEAD`; `fixed`: the arrays keep the order of the log."""
        played = _Play(self, ahead, fixed)
        played.play()
        return Ordered(played.order, int(played.end) + END_CYCLES, ahead)


class _Play(Player):
    def __init__(self, work: Orderer, ahead: tuple[int, int], fixed: bool) -> None:
        super().__init__(work.waits)
        self.steps, self.ahead, self.fixed = work.steps, ahead, fixed
        chip = self.chip
        self.rate, self.drams, self.longest = dram_word_cycles(chip), set(chip.drams), chip.packet_words
        self.channel = dict.fromkeys(chip.drams, 0.0)  # cycle until which it is busy
        self.offered: dict[tuple[int, Unit], list[int]] = {}
        self.busy: dict[tuple[int, Unit], bool] = {}
        self.turns: dict[tuple[int, Unit], deque[int]] = {}  # what each stream has still to do, in the log's order
        self.banks = set(chip.spms)
        self.done = [False] * len(self.nodes)
        for index, node in enumerate(self.nodes):
            self.offered.setdefault(node.stream, [])
            self.turns.setdefault(node.stream, deque()).append(index)
        self.room = dict.fromkeys(chip.tiles, chip.mover_queue + _UNDER_WAY)
        self.blocked: dict[int, deque[int]] = {tile: deque() for tile in chip.tiles}
        self.queue: dict[int, deque[int]] = {tile: deque() for tile in chip.tiles}
        self.sending = dict.fromkeys(chip.tiles, False)
        self.turns_of: dict[int, deque[int]] = {tile: deque() for tile in chip.tiles}  # who sends to a tile, in turns
        self.packets: dict[int, tuple[int, float]] = {}  # that are not through, and the cycles of one
        self.floor = [0.0] * len(self.nodes)  # cycle until which its DRAM channel is busy with an operation
        self.array = dict.fromkeys(chip.tiles, 0.0)
        self.begun = False

    def settle(self) -> None:
        """Streams issue as soon as something is ready for them; at the beginning, when all that is has been said."""
        if not self.begun:
            self.begun = True
            for stream in self.offered:
                self._issue(stream)

    def ready(self, index: int) -> None:
        stream = self.nodes[index].stream
        heappush(self.offered[stream], index)
        if self.begun:
            self._issue(stream)

    def _issue(self, stream: tuple[int, Unit]) -> None:
        """A stream that is free takes the first operation that is ready."""
        ready = self.offered[stream]
        if not ready or self.busy.get(stream):
            return
        turns, index = self.turns[stream], ready[0]
        while turns and self.done[turns[0]]:
            turns.popleft()
        node = self.nodes[index]
        if node.fields is not None:
            if self.fixed and index != turns[0]:
                return
        elif self.steps[index] > self.steps[turns[0]] + self.ahead[node.issuer in self.banks]:
            return
        heappop(ready)
        self.done[index] = True
        self.busy[stream] = True
        self.order.append(index)
        if node.fields is not None:
            begin = max(self.now, self.array[node.issuer])
            self.array[node.issuer] = begin + node.cycles
            self.at(max(self.now + 3, begin), _ISSUE, index)  # handed over to the unit, which runs it next
            self.at(begin + node.cycles + self.drain, _END, index)
        elif node.issuer == node.source.tile:
            self.at(self.now + 3, _ISSUE, index)
            self.at(self.now + 3, _ARRIVE, index)
        elif self.room[node.source.tile]:
            self._request(index, node)
        else:
            self.blocked[node.source.tile].append(index)

    def _request(self, index: int, node: Node) -> None:
        """A request goes to the mover of another tile."""
        self.room[node.source.tile] -= 1
        self.at(self.now + REQUEST_FLITS + 2, _ISSUE, index)
        self.at(self.now + REQUEST_CYCLES, _ARRIVE, index)

    def event(self, kind: int, index: int) -> None:
        node = self.nodes[index]
        if kind == _ISSUE:
            self.busy[node.stream] = False
            self._issue(node.stream)
        elif kind == _ARRIVE:
            self.queue[node.source.tile].append(index)
            self._send(node.source.tile)
        elif kind == _PACKET:
            self._packet(index, node)
        elif kind == _SENT:
            self.sending[node.source.tile] = False
            self._send(node.source.tile)
        elif kind == _READ:
            self.has_read(index)
        else:
            self.has_ended(index)

    def _send(self, tile: int) -> None:
        """The mover of a tile takes up the next request, if it is free."""
        if self.sending[tile] or not self.queue[tile]:
            return
        index = self.queue[tile].popleft()
        node = self.nodes[index]
        if node.issuer != tile:
            self.room[tile] += 1
            if self.blocked[tile]:
                other = self.blocked[tile].popleft()
                self._request(other, self.nodes[other])
        target, flits = node.target.tile, node.words * (1 + 1 / self.longest) + 2
        dram, floor = node.words * self.rate, 0.0
        if tile in self.drams:
            flits = max(flits, dram)  # DRAM makes gaps, which hold up what shares the link
            self.channel[tile] = floor = max(self.now, self.channel[tile]) + dram
        if target in self.drams:
            self.channel[target] = floor = max(self.now, self.channel[target], floor) + dram
        self.sending[tile], self.floor[index] = True, floor
        packets = -(-node.words // self.longest)
        self.packets[index] = packets, flits / packets
        self.turns_of[target].append(index)
        if len(self.turns_of[target]) == 1:
            self.at(self.now + flits / packets, _PACKET, index)

    def _packet(self, index: int, node: Node) -> None:
        """A packet is through; the next transfer to that tile has its turn."""
        target = node.target.tile
        waiting = self.turns_of[target]
        waiting.popleft()
        left, cycles = self.packets[index]
        if left > 1:
            self.packets[index] = left - 1, cycles
            waiting.append(index)
        if waiting:
            self.at(self.now + self.packets[waiting[0]][1], _PACKET, waiting[0])
        if left > 1:
            return
        sent = max(self.now, self.floor[index])
        delivered = sent + FLIGHT_CYCLES
        if node.source.tile in self.drams:
            delivered += self.chip.dram.latency
        if target in self.drams:
            delivered = max(delivered, self.floor[index] + WRITE_CYCLES)
        self.at(sent, _SENT, index)
        self.at(sent + _WAKE, _READ, index)
        self.at(delivered + _WAKE, _END, index)
