"""The meshes: packets through the routers of `hw/noc/router.py`, their buffers and arbiters, to the cycle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from meshloom.hw.config import tile_position

from .flow import OPEN, Buffer, Clock, Link, Place

#: Directions in the order in which the routers' arbiters look at their inputs.
_NORTH, _EAST, _SOUTH, _WEST, _LOCAL = range(5)
_STEP = {_NORTH: -16, _EAST: 1, _SOUTH: 16, _WEST: -1}
_OPPOSITE = {_NORTH: _SOUTH, _EAST: _WEST, _SOUTH: _NORTH, _WEST: _EAST}

#: What happens to flits at the receiver: how many, where they go, and what is called in the cycle after the last.
Leg = tuple[int, Place, Callable[[int], None] | None]
#: A receiver's say before a packet: called with the cycle, and with what to call in the one in which it takes the head.
Gate = Callable[[int, Callable[[int], None]], None]


class Packet:
    """A packet on its way; its flits are those of `legs` together."""

    __slots__ = ("buffers", "flits", "gate", "legs", "numbers", "ports")

    def __init__(self, legs: list[Leg], gate: Gate | None = None) -> None:
        self.legs, self.gate = legs, gate
        self.flits = sum(leg[0] for leg in legs)
        self.ports: list[_Port] = []
        self.numbers: list[int] = []  # of the input through which it comes to each router
        self.buffers: list[_Input] = []


class _Input(Buffer):
    """The buffer of a router's input; the packet at its front asks for its port."""

    __slots__ = ("asked", "queue")

    def __init__(self, clock: Clock, depth: int) -> None:
        super().__init__(clock, depth)
        self.queue: deque[tuple[Packet, int]] = deque()  # packets of which flits are here or to come, and their hop
        self.asked = False  # the packet at the front has asked for its port

    def arrive(self, now: int) -> None:
        if self.asked:
            if self.drainer is not None:
                self.drainer.evaluate(now)
        elif self.queue and self.level(now) > 0:
            self.asked = True
            packet, hop = self.queue[0]
            packet.ports[hop].ask(now, packet.numbers[hop], self)


class _Port(Link):
    """An output of a router, and its arbiter."""

    __slots__ = ("asking", "leg", "owner", "pending", "source", "to")

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.to: _Input | None = None  # the next router's buffer; None: the tile
        self.owner = -1  # input that had it last
        self.source: _Input | None = None  # None: free
        self.asking: dict[int, _Input] = {}  # by number of the input
        self.pending = False
        self.leg = 0

    def ask(self, now: int, number: int, buffer: _Input) -> None:
        self.asking[number] = buffer
        self._decide(now)

    def _decide(self, now: int) -> None:
        """Lets the arbiter decide when all heads that come in this cycle are there."""
        if self.source is None and not self.pending:
            self.pending = True
            self.clock.at(now, self._arbitrate, 1)

    def _arbitrate(self, now: int) -> None:
        self.pending = False
        asking = self.asking
        self.owner = min(asking, key=lambda number: (number - self.owner - 1) % 5)
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
        """The tail went in the cycle before."""
        buffer = self.source
        assert buffer is not None
        self.source = buffer.drainer = None
        buffer.queue.popleft()
        buffer.asked = False
        buffer.arrive(now)
        if self.asking:
            self._decide(now)


class Plane:
    """One mesh with buffers of `depth` flits."""

    def __init__(self, clock: Clock, depth: int) -> None:
        self.clock, self.depth = clock, depth
        self._ports: dict[int, _Port] = {}
        self._inputs: dict[int, _Input] = {}
        self._paths: dict[tuple[int, int], tuple[list[_Port], list[int], list[_Input]]] = {}
        self._sources: dict[int, Link] = {}

    def source(self, tile: int) -> Link:
        """The link from a tile to its router."""
        if tile not in self._sources:
            link = self._sources[tile] = Link(self.clock)
            self._input(tile, _LOCAL).feeder = link
        return self._sources[tile]

    def room(self, tile: int, now: int) -> bool:
        """Whether the router takes a flit of its tile in cycle `now`."""
        return self._input(tile, _LOCAL).room(now)

    def enter(self, source: int, target: int, packet: Packet) -> Place:
        """The packet is the next that `source` sends; returns the place to which its flits go, over `source()`."""
        packet.ports, packet.numbers, packet.buffers = self._path(source, target)
        first = packet.buffers[0]
        first.queue.append((packet, 0))
        return first

    def send(
        self, now: int, source: int, target: int, packet: Packet, injected: Callable[[int], None] | None = None
    ) -> None:
        """A packet whose flits are there from cycle `now` on; `injected` is called in the cycle after its last."""
        place = self.enter(source, target, packet)
        self.source(source).start(now, OPEN, place, packet.flits, injected or _nothing)

    def _path(self, source: int, target: int) -> tuple[list[_Port], list[int], list[_Input]]:
        """Ports, input numbers and input buffers of the XY way between two tiles."""
        key = source, target
        if (known := self._paths.get(key)) is not None:
            return known
        (x, y), (to_x, to_y) = tile_position(source), tile_position(target)
        here, came = source, _LOCAL
        ports, numbers, inputs = [], [], []
        while True:
            if x != to_x:
                direction = _EAST if to_x > x else _WEST
                x += 1 if to_x > x else -1
            elif y != to_y:
                direction = _SOUTH if to_y > y else _NORTH
                y += 1 if to_y > y else -1
            else:
                direction = _LOCAL
            ports.append(self._port(here, direction))
            numbers.append(came)
            inputs.append(self._input(here, came))
            if direction == _LOCAL:
                break
            here += _STEP[direction]
            came = _OPPOSITE[direction]
        self._paths[key] = found = ports, numbers, inputs
        return found

    def _input(self, router: int, direction: int) -> _Input:
        key = router * 8 + direction
        if key not in self._inputs:
            self._inputs[key] = _Input(self.clock, self.depth)
        return self._inputs[key]

    def _port(self, router: int, direction: int) -> _Port:
        key = router * 8 + direction
        if key not in self._ports:
            port = self._ports[key] = _Port(self.clock)
            if direction != _LOCAL:
                port.to = self._input(router + _STEP[direction], _OPPOSITE[direction])
                port.to.feeder = port
        return self._ports[key]


def _nothing(now: int) -> None:
    pass
