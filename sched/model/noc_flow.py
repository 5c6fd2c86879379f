"""The meshes with one virtual channel: packets through routers, their buffers and arbiters, to the cycle.

Mirrors `hw/noc/router.py` with one virtual channel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from meshloom.hw.spec.routes import DIRECTIONS, LOCAL, NEIGHBOURS, OPPOSITE, dimension_ordered

from .clock import Clock, Event
from .flow import OPEN, Buffer, Link, Place, nothing

#: Ports of a router, in the order in which its arbiters serve the inputs.
PORTS = (*DIRECTIONS, LOCAL)
#: The tile's own port; for each other port, the address difference to the neighbour there, and the neighbour's port
#: that leads back.
TILE = PORTS.index(LOCAL)
STEP = [16 * dy + dx for dx, dy in NEIGHBOURS.values()]
BACK = [PORTS.index(OPPOSITE[name]) for name in DIRECTIONS]

#: A stage of delivery: number of flits, their destination, and a callback in the cycle after the last.
Leg = tuple[int, Place, Callable[[int], None] | None]
#: Admits a packet to a receiver: called with the cycle, and with what to call in the cycle in which it takes the head.
Gate = Callable[[int, Callable[[int], None]], None]


class Packet:
    """A packet in flight; its flits are the sum of its `legs`.

    `tiles`: those that it visits, from source to destination; None: dimension order. `channel`: its virtual channel.
    `exclusive`: while the tile takes it, it takes no other such packet. `injected_at`: cycle from which its head was
    offered."""

    __slots__ = ("buffers", "channel", "exclusive", "flits", "gate", "injected_at", "legs", "numbers", "ports", "tiles")

    def __init__(self, legs: list[Leg], gate: Gate | None = None, tiles: tuple[int, ...] | None = None) -> None:
        self.gate, self.tiles = gate, tiles
        self.channel, self.exclusive, self.injected_at = 0, False, -1
        self.carry(legs)
        self.ports: list[_Port] = []
        self.numbers: list[int] = []  # of the input through which it enters each router
        self.buffers: list[_Input] = []

    def carry(self, legs: list[Leg]) -> None:
        """Sets its legs."""
        self.legs, self.flits = legs, sum(leg[0] for leg in legs)


class _Input(Buffer):
    """The buffer of a router's input; the packet at its front requests its port."""

    __slots__ = ("queue", "requested")

    def __init__(self, clock: Clock, depth: int) -> None:
        super().__init__(clock, depth)
        self.queue: deque[tuple[Packet, int]] = deque()  # packets with flits here or still to come, and their hop
        self.requested = False  # the packet at the front has requested its port

    def arrive(self, now: int) -> None:
        if self.requested:
            if self.drainer is not None:
                self.drainer.evaluate(now)
        elif self.queue and self.level(now) > 0:
            self.requested = True
            packet, hop = self.queue[0]
            packet.ports[hop].ask(now, packet.numbers[hop], self)


class _Port(Link):
    """An output of a router, and its arbiter."""

    __slots__ = ("_choice", "asking", "leg", "owner", "pending", "source", "to")

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.to: _Input | None = None  # the next router's buffer; None: the tile
        self.owner = -1  # input that owned it last
        self.source: _Input | None = None  # None: free
        self.asking: dict[int, _Input] = {}  # by number of the input
        self.pending = False
        self.leg = 0
        self._choice = _Choice(self)

    def ask(self, now: int, number: int, buffer: _Input) -> None:
        self.asking[number] = buffer
        self._decide(now)

    def _decide(self, now: int) -> None:
        """Makes the arbiter decide once all heads of this cycle have arrived."""
        if self.source is None and not self.pending:
            self.pending = True
            self.clock.put(now, self._choice, 1)

    def arbitrate(self, now: int) -> None:
        self.pending = False
        asking = self.asking
        self.owner = following(asking, self.owner)
        self.source = buffer = asking.pop(self.owner)
        buffer.drainer = self
        packet, hop = buffer.queue[0]
        if self.to is not None:
            self.to.queue.append((packet, hop + 1))
            self.start(now, buffer, self.to, packet.flits, self._passed)
            return
        self.leg = 0
        if packet.gate is not None:
            packet.gate(now, self._carry)
        else:
            self._carry(now)

    def _carry(self, now: int) -> None:
        """The tile takes the next flits of the packet."""
        buffer = self.source
        assert buffer is not None
        flits, place, _ = buffer.queue[0][0].legs[self.leg]
        if place is not OPEN:  # all runs share `OPEN`, and its state never changes
            place.feeder = self
        self.start(now, buffer, place, flits, self._carried)

    def _carried(self, now: int) -> None:
        buffer = self.source
        assert buffer is not None
        legs = buffer.queue[0][0].legs
        done = legs[self.leg][2]
        self.leg += 1
        if self.leg < len(legs):
            self._carry(now)
        else:
            self._passed(now)
        if done is not None:
            done(now)

    def _passed(self, now: int) -> None:
        """The tail left in the previous cycle."""
        buffer = self.source
        assert buffer is not None
        self.source = buffer.drainer = None
        buffer.queue.popleft()
        buffer.requested = False
        buffer.arrive(now)
        if self.asking:
            self._decide(now)


class _Choice(Event):
    """The arbiter of a port decides."""

    __slots__ = ("_port",)

    def __init__(self, port: _Port) -> None:
        self._port = port

    def happen(self, now: int) -> None:
        self._port.arbitrate(now)


class Plane:
    """One mesh with buffers of `depth` flits; packets take dimension order `routing` (`ROUTINGS`)."""

    def __init__(self, clock: Clock, depth: int, routing: str = "xy") -> None:
        self.clock, self.depth, self.routing = clock, depth, routing
        self._ports: dict[int, _Port] = {}
        self._inputs: dict[int, _Input] = {}
        self._paths: dict[tuple[int, ...], tuple[list[_Port], list[int], list[_Input]]] = {}
        self._sources: dict[int, Link] = {}

    def source(self, tile: int) -> Link:
        """The link from a tile to its router."""
        if tile not in self._sources:
            link = self._sources[tile] = Link(self.clock)
            self._input(tile, TILE).feeder = link
        return self._sources[tile]

    def room(self, tile: int, now: int) -> bool:
        """Whether the router takes a flit of its tile in cycle `now`."""
        return self._input(tile, TILE).room(now)

    def enter(self, source: int, target: int, packet: Packet) -> Place:
        """`source` sends this packet next; returns the place to which its flits go, over `source()`."""
        packet.ports, packet.numbers, packet.buffers = self._path(source, target, packet.tiles)
        first = packet.buffers[0]
        first.queue.append((packet, 0))
        return first

    def send(
        self, now: int, source: int, target: int, packet: Packet, injected: Callable[[int], None] | None = None
    ) -> None:
        """Sends a packet whose flits are available from cycle `now` on; `injected` is called after its last."""
        place = self.enter(source, target, packet)
        self.source(source).start(now, OPEN, place, packet.flits, injected or nothing)

    def _path(
        self, source: int, target: int, tiles: tuple[int, ...] | None
    ) -> tuple[list[_Port], list[int], list[_Input]]:
        """Ports, input numbers and input buffers of the route between two tiles."""
        key = tiles or (source, target, -1)  # no route visits tile -1
        if (stored := self._paths.get(key)) is not None:
            return stored
        came = TILE
        ports: list[_Port] = []
        numbers: list[int] = []
        inputs: list[_Input] = []
        for here, direction in legs_of(tiles or dimension_ordered(source, target, self.routing)):
            ports.append(self._port(here, direction))
            numbers.append(came)
            inputs.append(self._input(here, came))
            if direction != TILE:
                came = BACK[direction]
        self._paths[key] = path = ports, numbers, inputs
        return path

    def busy(self, cycle: int) -> dict[tuple[int, int], int]:
        """By tile and port (number in `PORTS`), the cycles before `cycle` in which a flit left the router there; no
        entry if none ever did."""
        return {(key // 8, key % 8): port.busy(cycle) for key, port in self._ports.items()}

    def _input(self, router: int, direction: int) -> _Input:
        key = router * 8 + direction
        if key not in self._inputs:
            self._inputs[key] = _Input(self.clock, self.depth)
        return self._inputs[key]

    def _port(self, router: int, direction: int) -> _Port:
        key = router * 8 + direction
        if key not in self._ports:
            port = self._ports[key] = _Port(self.clock)
            if direction != TILE:
                port.to = self._input(router + STEP[direction], BACK[direction])
                port.to.feeder = port
        return self._ports[key]


def following(asking: Iterable[int], owner: int) -> int:
    """The input that a round-robin arbiter grants: the next after the previous owner."""
    best, distance = -1, len(PORTS)
    for number in asking:
        away = (number - owner - 1) % len(PORTS)
        if away < distance:
            best, distance = number, away
    return best


def legs_of(tiles: Sequence[int]) -> list[tuple[int, int]]:
    """(tile, number of the output port) of each router on a route."""
    steps = [(here, STEP.index(after - here)) for here, after in pairwise(tiles)]
    return [*steps, (tiles[-1], TILE)]
