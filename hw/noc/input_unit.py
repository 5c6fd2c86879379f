"""The input side of a router: a buffer per virtual channel, and the route computation for the flit at its front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import memory

from ..spec.config import tile_address
from ..spec.routes import DESTINATION_BITS, DIRECTIONS, LOCAL, OPPOSITE, ROUTINGS, TURN_BITS, Turn, heading_after
from ..wiring.signatures import coordinates
from .link import LinkPort, Position


class Inputs:
    """The buffers of all virtual channels of all inputs, and the control of the flits at their fronts.

    `links`: input port to the link that enters there. State is kept in vectors with one bit per buffer, which a
    simulator evaluates all at once.
    """

    def __init__(self, m: Module, router: Position, links: Mapping[str, LinkPort]) -> None:
        count = len(links) * router.plane.vcs
        self.m = m
        self.valid = Signal(count, name="valid")
        self.last = Signal(count, name="last")
        self.pop = Signal(count, name="pop")
        inside = Signal(count, name="inside")  # the front belongs to a packet whose head has left the buffer
        head = Signal(count, name="head")
        m.d.comb += head.eq(self.valid & ~inside)
        m.d.sync += inside.eq((inside & ~self.pop) | (self.pop & ~self.last))
        self.queues: list[Queue] = []
        for port, link in links.items():
            for vc in range(router.plane.vcs):
                number = len(self.queues)
                queue = Queue(router, port, vc, self.valid[number], self.last[number])
                queue.connect(m, link, self.pop[number], head[number])
                self.queues.append(queue)
        #: Heads of packets that cannot be routed.
        self.bad = Signal(count, name="bad")
        self.dropping = Signal(count, name="dropping")
        self.drop = Signal(count, name="drop")
        route_request = [Cat(*queue.route_request.values()).any() for queue in self.queues]
        m.d.comb += [self.bad.eq(head & ~Cat(*route_request)), self.drop.eq(self.bad | (self.dropping & self.valid))]
        m.d.sync += self.dropping.eq((self.dropping & ~self.drop) | (self.drop & ~self.last))

    def finish(self) -> None:
        """To be called when all outputs have registered the flits that they take."""
        taken = [Cat(*queue.taken).any() for queue in self.queues]
        self.m.d.comb += self.pop.eq(Cat(*taken) | self.drop)


class Queue:
    """The buffer of one virtual channel of one input, with the route computation for the flit at its front."""

    def __init__(self, router: Position, port: str, vc: int, valid: Value, last: Value) -> None:
        self.router, self.port, self.vc, self.valid, self.last = router, port, vc, valid, last
        self.name = f"{port}_{vc}"
        self.destination = Signal(DESTINATION_BITS, name=f"{self.name}_destination")
        self.front: Value
        #: The front is a head with a source route, which loses an entry on the way out.
        self.routed = Signal(name=f"{self.name}_routed")
        #: Output port to "the head at the front requests it"; at most one is set.
        self.route_request: dict[str, Value] = {}
        #: Reasons for the front flit to leave through an output, one bit each.
        self.taken: list[Value] = []

    def connect(self, m: Module, link: LinkPort, pop: Value, head: Value) -> None:
        """Fills the buffer from a link. `pop`: the front leaves; `head`: the front is the first flit of a packet."""
        plane, name = self.router.plane, self.name
        mine = link.valid if plane.vcs == 1 else link.valid & (link.payload.vc == self.vc)
        flit = Cat(link.payload.data, link.payload.last)
        incoming = _Incoming(flit, mine, link.ready[self.vc])
        self.front = _buffer(m, name, plane.depth, incoming, self.valid, pop)
        m.d.comb += [self.last.eq(self.front[plane.bits]), self.destination.eq(self.front[:DESTINATION_BITS])]
        if plane.routes is not None:
            m.d.comb += self.routed.eq(head & self.front[plane.routes.flag_bit])
        for target, wish in self._directions(m, head).items():
            self.route_request[target] = want = Signal(name=f"{name}_to_{target}")
            m.d.comb += want.eq(wish)

    def _directions(self, m: Module, head: Value) -> dict[str, Value]:
        """Output port to the request for it, in the order in which dimension-ordered routing checks them."""
        router, plane, name = self.router, self.router.plane, self.name
        legal = head
        if self.port == LOCAL:
            inside_mesh = Signal(name=f"{name}_legal")
            to_x, to_y = coordinates(self.destination)
            inside = (to_x < plane.width) & (to_y < plane.height)
            for gap in plane.gaps:
                inside &= self.destination != gap
            m.d.comb += inside_mesh.eq(inside)
            legal = head & inside_mesh
        here = Signal(name=f"{name}_here")
        m.d.comb += here.eq(self.destination == tile_address(router.x, router.y))
        unrouted = legal & ~self.routed
        ordered = self._ordered(unrouted)
        ordered[LOCAL] = unrouted & here
        if plane.routes is None:
            return ordered
        wishes: dict[str, Value] = {}
        first = plane.routes.first_bit
        turn = self.front[first : first + TURN_BITS]
        routed = legal & self.routed
        for target in (*(port for port in router.ports if port not in (LOCAL, self.port)), LOCAL):
            wishes[target] = ordered.get(target, Const(0))
            if target == LOCAL and self.port != LOCAL:
                wishes[target] |= routed & (turn == Turn.EJECT) & here
            elif target != LOCAL:
                wishes[target] |= routed & (turn == self._entry(target))
        return wishes

    def _entry(self, target: str) -> int:
        """The entry of a route that leads from this input to `target`."""
        if self.port == LOCAL:
            return DIRECTIONS.index(target)
        heading = OPPOSITE[self.port]
        return next(turn for turn in Turn if turn is not Turn.EJECT and heading_after(heading, turn) == target)

    def _ordered(self, head: Value) -> dict[str, Value]:
        """Output port (without LOCAL) to the request of a head without a source route, by dimension order."""
        router = self.router
        to_x, to_y = coordinates(self.destination)
        beyond: dict[str, Value] = {
            "east": to_x > router.x,
            "west": to_x < router.x,
            "north": to_y < router.y,
            "south": to_y > router.y,
        }
        first = router.plane.routing[0]
        aligned = {"x": to_x == router.x, "y": to_y == router.y}[first]
        along = {"x": ("east", "west"), "y": ("north", "south")}[first]
        targets = [port for port in ROUTINGS[router.plane.routing][self.port] if port in router.ports and port != LOCAL]
        return {port: head & beyond[port] & (1 if port in along else aligned) for port in targets}


class _Incoming(NamedTuple):
    """A flit offered to a buffer: written when it `arrives` and the buffer is `ready` (driven by the buffer)."""

    flit: Value
    arrives: Value
    ready: Value


def _buffer(m: Module, name: str, depth: int, incoming: _Incoming, valid: Value, pop: Value) -> Value:
    """A queue of `depth` flits; returns its front, which is present when `valid` (driven here) is set.

    A flit written in cycle t is at the front from cycle t + 1 at the earliest. `pop` must imply `valid`.
    """
    storage = memory.Memory(shape=len(incoming.flit), depth=depth, init=[])
    m.submodules[f"{name}_buffer"] = storage
    write, read = storage.write_port(), storage.read_port(domain="comb")
    slots = len(write.addr)
    # One bit more than the address, the lap, which distinguishes full from empty.
    pushed = Signal(slots + 1, name=f"{name}_pushed")
    popped = Signal(slots + 1, name=f"{name}_popped")
    m.d.comb += [
        valid.eq(pushed != popped),
        incoming.ready.eq((pushed ^ popped) != 1 << slots),
        write.en.eq(incoming.arrives & incoming.ready),
        write.addr.eq(pushed[:slots]),
        write.data.eq(incoming.flit),
        read.addr.eq(popped[:slots]),
    ]
    with m.If(write.en):
        m.d.sync += pushed.eq(_next_slot(pushed, depth))
    with m.If(pop):
        m.d.sync += popped.eq(_next_slot(popped, depth))
    return read.data


def _next_slot(counter: Signal, depth: int) -> Value:
    """The slot after `counter` (its top bit is the lap), for a buffer of `depth` slots."""
    slots = len(counter) - 1
    if depth == 1 << slots:
        return counter + 1
    return Mux(counter[:slots] == depth - 1, Cat(Const(0, slots), ~counter[slots]), counter + 1)
