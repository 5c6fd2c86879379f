"""What a list of operations would take on a chip with twice as much of something: buying, in a play of a millisecond.

Streams keep their order and each resource serves operations in the order in which they reach it, as in `replay`. Here a
mover also has a queue of so many requests as the chip gives it, holds the issuer up when that is full, and is held up
itself by every link of a MOVE's route. That is where the queues come from that make a chip slower than its busiest
resource. Left out are the programs, which DRAM sends, too. Operations are those of a schedule that exists: a chip that
has twice as much might get a better one.

Twice as much of the arrays or vector units: they are twice as fast. Of DRAM: another tile beside each, and operations
take whichever is free; it has a mover and a port, and links that lead to it. Of the NoC: all other links and ports are
twice as wide.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from enum import StrEnum
from itertools import pairwise

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import REQUEST_FLITS, Unit
from meshloom.hw.spec.routes import dimension_ordered

from ...ir.schedule import Move, Operation
from ...model.traffic import FLIGHT_CYCLES, REQUEST_CYCLES, WRITE_CYCLES, dram_word_cycles
from ..nodes import Node
from .estimate import VECTOR_CYCLES
from .player import Player, Waits
from .ranked import nodes_of_operations

#: A link between neighbours, or a tile's port out of it or into it.
Link = tuple[int | str, int]


class Resource(StrEnum):
    """A kind of resource that one can buy: arrays, vector units, DRAM tiles with their ports, the rest of the mesh."""

    COMPUTE = "compute"
    VECTOR = "vector"
    DRAM = "dram"
    NOC = "noc"


class WhatIf:
    """Operations of a schedule on a chip. `links`: of each, those that a MOVE takes, with the ports of its source and
    of all tiles that take it."""

    def __init__(self, operations: Sequence[Operation], chip: ChipConfig) -> None:
        """`operations`: in the order of their schedule; what an operation reads and none of them writes is there."""
        self.chip = chip
        self.waits = Waits(nodes_of_operations(operations, chip), chip, operations)
        self.links = [_links(op, chip) if isinstance(op, Move) else () for op in operations]

    def cycles(self, twice: Collection[Resource] = ()) -> float:
        """Cycles with twice as much of some kinds of resource."""
        play = _Play(self, twice)
        play.play()
        return play.end


def _links(move: Move, chip: ChipConfig) -> tuple[Link, ...]:
    source, target = move.src.tile, move.dst.tile
    way = move.route or dimension_ordered(source, target, chip.noc.data_routing)
    return ("out", source), *pairwise(way), *(("in", tile) for tile in move.receivers(chip))


_COMPUTED, _ISSUED, _ASKED, _SENT, _LANDED = range(5)


class _Play(Player):
    """Plays the operations once."""

    def __init__(self, work: WhatIf, twice: Collection[Resource]) -> None:
        super().__init__(work.waits)
        chip = self.chip
        self.work = work
        self.vector_speed, self.array_speed = 1.0 + (Resource.VECTOR in twice), 1.0 + (Resource.COMPUTE in twice)
        self.rate, self.drams = dram_word_cycles(chip), set(chip.drams)
        self.flits = (1 + 1 / chip.packet_words) / (1.0 + (Resource.NOC in twice))
        self.port_flits = 1 + 1 / chip.packet_words  # a DRAM tile's
        #: Where there is another DRAM tile for each, words have the choice of two, each with its own way.
        self.tiles_of_dram = range(1 + (Resource.DRAM in twice))
        self.streams: dict[tuple[int, Unit], deque[int]] = {}  # what each has not issued
        for index, node in enumerate(self.nodes):
            self.streams.setdefault(node.stream, deque()).append(index)
        self.free = dict.fromkeys(self.streams, self.now)
        self.link: dict[tuple[int, Link], float] = {}  # the cycle from which it is free
        self.channel = {(which, tile): 0.0 for which in self.tiles_of_dram for tile in self.drams}
        self.queues: dict[int, deque[int]] = {tile: deque() for tile in chip.tiles}  # MOVEs that a mover knows
        self.turned_away: dict[int, deque[int]] = {tile: deque() for tile in chip.tiles}  # requests without room
        self.idle = {tile: list(self.tiles_of_dram) if tile in self.drams else [0] for tile in chip.tiles}  # movers
        self.movers: dict[int, tuple[int, ...]] = {}  # those that send a MOVE
        self.room = {tile: chip.mover_queue * len(idle) for tile, idle in self.idle.items()}
        self.offers: deque[tuple[int, Unit]] = deque()  # streams whose head may be ready
        self.waiting: set[tuple[int, Unit]] = set()  # streams whose head has been issued and holds them

    def ready(self, index: int) -> None:
        self.offers.append(self.nodes[index].stream)

    def settle(self) -> None:
        """Heads of streams that wait for nothing are issued."""
        while self.offers:
            stream = self.offers.popleft()
            left = self.streams[stream]
            if left and stream not in self.waiting and not self.missing[left[0]]:
                self.waiting.add(stream)
                self.at(max(self.now, self.free[stream]), _ISSUED, left[0])

    def _go_on(self, index: int, time: float) -> None:
        """The stream of an operation issues its next one from a cycle on."""
        stream = self.nodes[index].stream
        self.order.append(self.streams[stream].popleft())
        self.free[stream] = time
        self.waiting.discard(stream)
        self.offers.append(stream)

    def event(self, kind: int, index: int) -> None:
        node = self.nodes[index]
        if kind == _ISSUED:
            self._issue(index, node)
        elif kind == _ASKED:
            self.queues[node.source.tile].append(index)
            self._serve(node.source.tile)
        elif kind == _SENT:
            tile = node.source.tile
            self.idle[tile] += self.movers[index]
            if node.issuer == tile:
                self._go_on(index, self.now)
            self.has_read(index)
            self._serve(tile)
        else:
            self.has_ended(index)

    def _issue(self, index: int, node: Node) -> None:
        tile = node.source.tile
        if node.fields is not None:
            end = self.now + node.cycles / (self.vector_speed if node.vec else self.array_speed)
            self._go_on(index, end)
            self.at(end + (VECTOR_CYCLES if node.vec else self.drain), _COMPUTED, index)
        elif node.issuer == tile:
            self.at(self.now, _ASKED, index)
        elif self.room[tile]:
            self.room[tile] -= 1
            self._ask(index)
        else:
            self.turned_away[tile].append(index)

    def _ask(self, index: int) -> None:
        self._go_on(index, self.now + REQUEST_FLITS + 1)
        self.at(self.now + REQUEST_CYCLES, _ASKED, index)

    def _serve(self, tile: int) -> None:
        """Movers of a tile that are free take up the next MOVEs that they know; two share the last one."""
        idle = self.idle[tile]
        while idle and self.queues[tile]:
            index = self.queues[tile].popleft()
            sharing = len(idle) if not self.queues[tile] else 1
            self.movers[index] = tuple(idle.pop(0) for _ in range(sharing))
            if self.nodes[index].issuer != tile:
                if self.turned_away[tile]:
                    self._ask(self.turned_away[tile].popleft())
                else:
                    self.room[tile] += 1
            self._send(index, self.nodes[index])

    def _send(self, index: int, node: Node) -> None:
        """A mover sends, and is busy until channel and links have taken all that they were sent so far."""
        source, target = node.source.tile, node.target.tile
        begin, flight = self.now, float(FLIGHT_CYCLES)
        ways = self.movers[index] if source in self.drams or target not in self.drams else self.tiles_of_dram
        words = node.words / len(ways)
        end = begin
        if source in self.drams:
            begin = max(begin, *(self.channel[way, source] for way in ways))
            end, flight = begin + words * self.rate, flight + self.chip.dram.latency
            self.channel.update({(way, source): end for way in ways})
        for link in self.work.links[index]:
            port = link[1] if isinstance(link[0], str) else None
            shared = port is not None and port not in self.drams  # by all ways
            for way in (0,) if shared else ways:
                flits = (node.words if shared else words) * (self.port_flits if port in self.drams else self.flits)
                self.link[way, link] = max(self.link.get((way, link), 0.0), begin) + flits
                end = max(end, self.link[way, link])
        self.at(end, _SENT, index)
        end += flight
        if target in self.drams:
            for way in ways:
                self.channel[way, target] = max(self.channel[way, target], begin + flight) + words * self.rate
                end = max(end, self.channel[way, target] + WRITE_CYCLES)
        self.at(end, _LANDED, index)
