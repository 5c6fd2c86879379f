"""The meshes, at the level of packets, with the routers' own arbitration.

A packet's head is followed from router to router; where its flits are is inferred from where heads are. With buffers of
D flits, flit k cannot leave router i before flit k - D has left router i + 1, so the tail of a packet of L flits leaves
router i no earlier than `head(j) + L - 1 - (j - i) * (D - 1)` for every router j at most (L - 1) / D further on. A port
that a packet holds is free when every head that can hold it up has gone. Heads that ask for the same port take turns as
the round-robin arbiters of `hw/noc/router.py` give it to them.

Left out: the few flits of the packet before that may still fill a buffer which a head enters; they cost at most D
cycles, and only where that packet was blocked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from meshloom.hw.config import tile_position

#: Directions in the order in which the routers' arbiters look at their inputs.
_NORTH, _EAST, _SOUTH, _WEST, _LOCAL = range(5)
_STEP = {_NORTH: -16, _EAST: 1, _SOUTH: 16, _WEST: -1}
_OPPOSITE = {_NORTH: _SOUTH, _EAST: _WEST, _SOUTH: _NORTH, _WEST: _EAST}


class Clock(Protocol):
    """Where events are put. `late` events of a cycle come after all others of it."""

    def at(self, cycle: int, event: Callable[[int], None], late: bool = False) -> None: ...


#: A receiver's say: called with the cycle and what to call when it can take another packet.
Gate = Callable[[int, Callable[[int], None]], None]


class Packet:
    """A packet on its way. `flits` counts the head; `last`: cycle in which the source can offer the last flit.

    Called in their cycles: `injected` when the last flit enters the network, `landed` when the receiver takes it.
    `delivered` is called when the receiver takes the head, and answers with the cycle in which it can take the last
    flit. `last` and `tail` may grow while the packet is under way (`delay`): whoever was told is told when it is true.
    """

    __slots__ = (
        "buffers", "delivered", "flits", "gate", "heads", "injected",
        "inputs", "landed", "last", "ports", "settled", "tail",
    )  # fmt: skip

    def __init__(
        self,
        flits: int,
        last: int,
        delivered: Callable[[int], int],
        injected: Callable[[int], None] | None = None,
        landed: Callable[[int], None] | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.flits, self.last = flits, last
        self.delivered, self.injected, self.landed, self.gate = delivered, injected, landed, gate
        self.ports: list[_Port] = []
        self.inputs: list[int] = []  # number of the input through which it comes to each router
        self.buffers: list[_Input] = []
        self.heads: list[int] = []  # cycle in which the head has left each router
        self.tail: int | None = None  # cycle in which the receiver takes the last flit
        self.settled = -1  # the first place (-1: the source) of which it is open when the tail leaves it

    def delay(self, cycles: int) -> None:
        """The source, or the receiver if it has the head, is slower by this much than it was thought to be."""
        self.last += cycles
        if self.tail is not None:
            self.tail += cycles


class _Port:
    """An output of a router, and its arbiter."""

    __slots__ = ("asking", "free", "owner", "pending")

    def __init__(self) -> None:
        self.owner = -1  # input that had it last
        self.free = 0  # first cycle in which another head may go; -1 while a packet holds it
        self.asking: dict[int, Packet] = {}  # input -> packet whose head stands at its front
        self.pending = False  # an arbitration event is on its way


class _Input:
    """An input buffer: packets in the order in which they came; only the first may ask for a port."""

    __slots__ = ("free", "queue")

    def __init__(self) -> None:
        self.queue: deque[tuple[Packet, int, int]] = deque()  # packet, hop, arrival of its head
        self.free = 0  # first cycle in which the next packet stands at the front


class Plane:
    """One mesh with buffers of `depth` flits."""

    def __init__(self, clock: Clock, depth: int) -> None:
        self.clock, self.depth = clock, depth
        self._ports: dict[int, _Port] = {}
        self._inputs: dict[int, _Input] = {}
        self._paths: dict[tuple[int, int], tuple[list[_Port], list[int], list[_Input]]] = {}

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
            inputs.append(self._inputs.setdefault(here * 8 + came, _Input()))
            if direction == _LOCAL:
                break
            here += _STEP[direction]
            came = _OPPOSITE[direction]
        self._paths[key] = found = ports, numbers, inputs
        return found

    def _port(self, router: int, direction: int) -> _Port:
        key = router * 8 + direction
        if key not in self._ports:
            self._ports[key] = _Port()
        return self._ports[key]

    def send(self, source: int, target: int, head: int, packet: Packet) -> None:
        """Offers the head of a packet in cycle `head` (now or later)."""
        packet.ports, packet.inputs, packet.buffers = self._path(source, target)
        self._enter(packet, 0, head)
        self._settle(packet)  # a short packet fits the first buffer, wherever its head goes from there

    def _enter(self, packet: Packet, hop: int, cycle: int) -> None:
        """The head is taken into the buffer of router `hop` in `cycle`; it may leave from the next cycle on."""
        buffer = packet.buffers[hop]
        buffer.queue.append((packet, hop, cycle + 1))
        if len(buffer.queue) == 1 and buffer.free >= 0:
            self._front(buffer)

    def _front(self, buffer: _Input) -> None:
        """The next packet of a buffer asks for its port."""
        packet, hop, arrival = buffer.queue[0]
        port, number = packet.ports[hop], packet.inputs[hop]
        when = max(arrival, buffer.free)
        buffer.free = -1  # until its tail has left

        def ask(now: int) -> None:
            port.asking[number] = packet
            self._arbitrate(port, now)

        self.clock.at(when, ask)

    def _arbitrate(self, port: _Port, now: int) -> None:
        """Lets the arbiter decide at the end of this cycle, when all heads that come in it are there."""
        if port.free >= 0 and not port.pending:
            port.pending = True
            self.clock.at(max(now, port.free), lambda cycle: self._grant(port, cycle), late=True)

    def _grant(self, port: _Port, cycle: int) -> None:
        port.pending = False
        if port.free < 0 or not port.asking:
            return
        owner = min(port.asking, key=lambda number: (number - port.owner - 1) % 5)
        packet = port.asking.pop(owner)
        port.owner, port.free = owner, -1
        if packet.gate is not None and len(packet.heads) == len(packet.ports) - 1:
            packet.gate(cycle, lambda now: self._moved(packet, now))  # it holds the port until the receiver takes it
        else:
            self._moved(packet, cycle)

    def _moved(self, packet: Packet, cycle: int) -> None:
        """The head leaves a router in `cycle`."""
        packet.heads.append(cycle)
        hop = len(packet.heads)
        if hop == len(packet.ports):
            packet.tail = max(packet.delivered(cycle), packet.last + hop)
            if packet.landed is not None:
                self._when(packet, None, packet.landed)
        else:
            self._enter(packet, hop, cycle)
        self._settle(packet)

    def _settle(self, packet: Packet) -> None:
        """Frees what the tail is now known to leave."""
        reached = len(packet.heads)  # the next router whose head is still to come
        while packet.settled < reached:
            place = packet.settled
            if packet.tail is None and (reached - place) * self.depth <= packet.flits - 1:
                return  # that head could still hold the tail up
            packet.settled += 1
            if place >= 0:
                self._when(packet, place, lambda now, place=place: self._release(packet, place, now))
            elif packet.injected is not None:
                self._when(packet, place, packet.injected)

    def _leave(self, packet: Packet, place: int | None) -> int:
        """Cycle in which the tail leaves a place (None: is taken by the receiver), as far as is known now."""
        if place is None:
            assert packet.tail is not None
            return packet.tail
        depth, heads, beyond = self.depth, packet.heads, packet.flits - 1
        reached = len(heads)
        leave = packet.last + place + 1
        for further in range(max(place, 0), min(reached, place + beyond // depth + 1)):
            leave = max(leave, heads[further] + beyond - (further - place) * (depth - 1))
        if packet.tail is not None and (between := len(packet.ports) - 1 - place) * depth <= beyond:
            pace = (packet.tail - heads[-1]) / max(1, beyond)
            leave = max(leave, packet.tail - int(between * (depth * pace - 1)))
        return leave

    def _when(self, packet: Packet, place: int | None, event: Callable[[int], None]) -> None:
        """Calls `event` in the cycle in which the tail leaves a place, however late that turns out to be."""

        def check(now: int) -> None:
            true = self._leave(packet, place)
            if true > now:
                self.clock.at(true, check)
            else:
                event(now)

        self.clock.at(self._leave(packet, place), check)

    def _release(self, packet: Packet, hop: int, leave: int) -> None:
        """The tail leaves router `hop` in cycle `leave`."""
        port, buffer = packet.ports[hop], packet.buffers[hop]

        def free(now: int) -> None:
            port.free = buffer.free = now
            buffer.queue.popleft()
            if buffer.queue:
                self._front(buffer)
            if port.asking:
                self._arbitrate(port, now)

        self.clock.at(leave + 1, free)
