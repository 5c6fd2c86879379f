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

    `tiles`: those that it visits, from source to destination; None: dimension order. `copies`: by its hop, the legs of
    a tile that takes it, too, on its way; none in a `FlitPlane`. `channel`: its virtual channel.
    `exclusive`: while the tile takes it, it takes no other such packet. `injected_at`: cycle from which its head was
    offered."""

    __slots__ = (
        "channel", "copies", "exclusive", "flits", "gate", "injected_at", "legs", "numbers", "ports", "tiles",
    )  # fmt: skip

    def __init__(self, legs: list[Leg], gate: Gate | None = None, tiles: tuple[int, ...] | None = None) -> None:
        self.gate, self.tiles = gate, tiles
        self.channel, self.exclusive, self.injected_at = 0, False, -1
        self.carry(legs)
        self.copies: dict[int, list[Leg]] = {}
        self.ports: list[_Port] = []
        self.numbers: list[int] = []  # of the input through which it enters each router

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
            port = packet.ports[hop]
            if hop in packet.copies:
                assert port.tile is not None
                port = port.tile  # first that, then the one that leads on
            port.ask(now, packet.numbers[hop], self)


class _Tee(Place):
    """Two places that take each flit at once: the next router's buffer, and a tile on the way."""

    __slots__ = ("onward", "tile")

    def __init__(self, onward: Place, tile: Place) -> None:
        super().__init__()
        self.onward, self.tile = onward, tile

    def room(self, now: int) -> bool:
        return self.onward.room(now) and self.tile.room(now)

    def fills(self, now: int) -> int:
        return min(self.onward.fills(now), self.tile.fills(now))

    def opens(self, now: int) -> int:
        if self.onward.room(now):
            return self.tile.opens(now)
        return self.onward.opens(now) if self.tile.room(now) else max(self.onward.opens(now), self.tile.opens(now))

    def set_in(self, now: int, rate: int) -> None:
        self.onward.set_in(now, rate)
        self.tile.set_in(now, rate)


class _Port(Link):
    """An output of a router, and its arbiter."""

    __slots__ = ("_choice", "asking", "copied", "leg", "owner", "pending", "source", "tile", "to")

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.to: _Input | None = None  # the next router's buffer; None: the tile
        self.tile: _Port | None = None  # of a port that leads on: that of its router's tile
        self.owner = -1  # input that owned it last
        self.source: _Input | None = None  # None: free
        self.asking: dict[int, _Input] = {}  # by number of the input
        self.pending = False
        self.leg = 0
        self.copied = 0  # flits of packets that the tile takes on their way
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
        packet, hop = buffer.queue[0]
        onward = packet.ports[hop]
        if onward is not self:  # the tile takes a packet on its way
            self.clock.put(now + 1, _Onward(onward, packet.numbers[hop], buffer))
            return
        buffer.drainer = self
        self.leg = 0
        if self.to is not None:
            self.to.queue.append((packet, hop + 1))
            if hop in packet.copies:
                self._copy(now)
            else:
                self.start(now, buffer, self.to, packet.flits, self._passed)
        elif packet.gate is not None:
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

    def _copy(self, now: int) -> None:
        """The tile and the next router take the next flits of the packet."""
        buffer, to = self.source, self.to
        assert buffer is not None
        assert to is not None
        packet, hop = buffer.queue[0]
        flits, place, _ = packet.copies[hop][self.leg]
        if place is not OPEN:
            place.feeder = self
        self.start(now, buffer, _Tee(to, place), flits, self._has_copied)

    def _has_copied(self, now: int) -> None:
        """Both have taken them."""
        buffer, tile = self.source, self.tile
        assert buffer is not None
        assert tile is not None
        packet, hop = buffer.queue[0]
        legs = packet.copies[hop]
        flits, _, done = legs[self.leg]
        tile.copied += flits
        self.leg += 1
        if self.leg < len(legs):
            self._copy(now)
        else:
            tile.source = None
            self._passed(now)
            if tile.asking:
                tile._decide(now)
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

    def busy(self, cycle: int) -> int:
        return self.copied + super().busy(cycle)


class _Onward(Event):
    """Requests the port to the next router for a packet that has that to the tile."""

    __slots__ = ("_buffer", "_number", "_port")

    def __init__(self, port: _Port, number: int, buffer: _Input) -> None:
        self._port, self._number, self._buffer = port, number, buffer

    def happen(self, now: int) -> None:
        self._port.ask(now, self._number, self._buffer)


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
        self._entries: dict[int, _Input] = {}  # by tile, the buffer of its router's input from there
        self._paths: dict[tuple[int, ...], tuple[list[_Port], list[int]]] = {}
        self._sources: dict[int, Link] = {}

    def source(self, tile: int) -> Link:
        """The link from a tile to its router."""
        if tile not in self._sources:
            link = self._sources[tile] = Link(self.clock)
            self._entry(tile).feeder = link
        return self._sources[tile]

    def room(self, tile: int, now: int) -> bool:
        """Whether the router takes a flit of its tile in cycle `now`."""
        return self._entry(tile).room(now)

    def enter(self, source: int, target: int, packet: Packet) -> Place:
        """`source` sends this packet next; returns the place to which its flits go, over `source()`."""
        packet.ports, packet.numbers = self._path(source, target, packet.tiles)
        first = self._entry(source)
        first.queue.append((packet, 0))
        return first

    def send(
        self, now: int, source: int, target: int, packet: Packet, injected: Callable[[int], None] | None = None
    ) -> None:
        """Sends a packet whose flits are available from cycle `now` on; `injected` is called after its last."""
        place = self.enter(source, target, packet)
        self.source(source).start(now, OPEN, place, packet.flits, injected or nothing)

    def _path(self, source: int, target: int, tiles: tuple[int, ...] | None) -> tuple[list[_Port], list[int]]:
        """Ports and input numbers of the route between two tiles."""
        key = tiles or (source, target, -1)  # no route visits tile -1
        if (stored := self._paths.get(key)) is not None:
            return stored
        came = TILE
        ports: list[_Port] = []
        numbers: list[int] = []
        for here, direction in legs_of(tiles or dimension_ordered(source, target, self.routing)):
            ports.append(self._port(here, direction))
            numbers.append(came)
            if direction != TILE:
                came = BACK[direction]
        self._paths[key] = path = ports, numbers
        return path

    def busy(self, cycle: int) -> dict[tuple[int, int], int]:
        """By tile and port (number in `PORTS`), the cycles before `cycle` in which a flit left the router there; no
        entry if none ever did."""
        return {(key // 8, key % 8): port.busy(cycle) for key, port in self._ports.items()}

    def _entry(self, tile: int) -> _Input:
        if tile not in self._entries:
            self._entries[tile] = _Input(self.clock, self.depth)
        return self._entries[tile]

    def _port(self, router: int, direction: int) -> _Port:
        key = router * 8 + direction
        if key not in self._ports:
            port = self._ports[key] = _Port(self.clock)
            if direction != TILE:
                port.to = _Input(self.clock, self.depth)
                port.to.feeder = port
                port.tile = self._port(router, TILE)
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
