"""The input side of a router: the route of a flit that arrives, a buffer per virtual channel, and their control.

link --> RouteSelect --note--> FlitBuffer --noted, front--> outputs
                                   ^-- pop -- InputControl <-- taken -- outputs
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import tile_address
from ..spec.routes import (
    DESTINATION_BITS,
    DIRECTIONS,
    LOCAL,
    OPPOSITE,
    ROUTINGS,
    TURN_BITS,
    CopyField,
    Turn,
    heading_after,
)
from ..wiring.signatures import coordinates
from .link import Position


class FlitBuffer(wiring.Component):
    """A queue of `depth` flits of `bits` bits: `front` is its oldest flit, present when `valid` is set.

    A flit is written when it `arrives` and the buffer is `ready`; the front leaves with `pop`, which must imply
    `valid`. `note`: `notes` bits that are said of a flit as it arrives; `noted`: those of the front. `ready` is a
    function of registers; `valid` and `noted` are registers, so that what is decided by them is early in a cycle.
    Latency: a flit written in cycle t is at the front from cycle t + 1 at the earliest. Throughput: one flit a cycle,
    for every `depth` of 2 or more.
    """

    flit: Signal
    note: Signal
    arrives: Signal
    ready: Signal
    front: Signal
    noted: Signal
    valid: Signal
    pop: Signal

    def __init__(self, bits: int, depth: int, notes: int = 0) -> None:
        self.depth = depth
        #: The flits; those that are there lie from slot `popped` to before slot `pushed`.
        self.storage = memory.Memory(shape=bits, depth=depth, init=[])
        if notes:
            #: What is noted of each of them.
            self.notes = memory.Memory(shape=notes, depth=depth, init=[])
        super().__init__(
            {"flit": In(bits), "note": In(notes), "arrives": In(1), "ready": Out(1)}
            | {"front": Out(bits), "noted": Out(notes), "valid": Out(1), "pop": In(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.storage = self.storage
        write, read = self.storage.write_port(), self.storage.read_port(domain="comb")
        slots = len(write.addr)
        # One bit more than the address, the lap, which distinguishes full from empty.
        pushed = Signal(slots + 1)
        popped = Signal(slots + 1)
        following = Signal(slots + 1)  # the slot after the front
        single = Signal()  # nothing is there but the front
        m.d.comb += [
            following.eq(_next_slot(popped, self.depth)),
            single.eq(pushed == following),
            self.ready.eq((pushed ^ popped) != 1 << slots),
            write.en.eq(self.arrives & self.ready),
            write.addr.eq(pushed[:slots]),
            write.data.eq(self.flit),
            read.addr.eq(popped[:slots]),
            self.front.eq(read.data),
        ]
        with m.If(write.en):
            m.d.sync += [pushed.eq(_next_slot(pushed, self.depth)), self.valid.eq(1)]
        with m.Elif(self.pop & single):
            m.d.sync += self.valid.eq(0)
        with m.If(self.pop):
            m.d.sync += popped.eq(following)
        if len(self.note):
            self._note(m, write, following[:slots], single)
        return m

    def _note(self, m: Module, write: memory.WritePort, following: Value, single: Signal) -> None:
        """Keeps what is noted of each flit, and of the one that is next at the front in a register."""
        m.submodules.notes = self.notes
        keep, read = self.notes.write_port(), self.notes.read_port(domain="comb")
        m.d.comb += [
            keep.en.eq(write.en),
            keep.addr.eq(write.addr),
            keep.data.eq(self.note),
            read.addr.eq(following),
        ]
        with m.If(write.en & (~self.valid | (self.pop & single))):
            m.d.sync += self.noted.eq(self.note)
        with m.Elif(self.pop):
            m.d.sync += self.noted.eq(read.data)


def _next_slot(counter: Signal, depth: int) -> Value:
    """The slot after `counter` (its top bit is the lap), for a buffer of `depth` slots."""
    slots = len(counter) - 1
    if depth == 1 << slots:
        return counter + 1
    return Mux(counter[:slots] == depth - 1, Cat(Const(0, slots), ~counter[slots]), counter + 1)


class RouteSelect(wiring.Component):
    """The output that a packet requests whose head arrives at input `port`: one of `targets`, `to_<target>`.

    `flit`: its data, of which the outputs say something only if it is a head. At most one output is requested; none,
    if the packet cannot be routed. `routed`: the head has a source route, which loses an entry on the way out.
    `copied`, in planes with `copies`: the tile here takes the packet, too, on its way to the output that is requested.
    Combinational.
    """

    flit: Signal
    routed: Signal
    copied: Signal

    def __init__(self, router: Position, port: str) -> None:
        self.router, self.port = router, port
        #: Outputs that a packet from this input may request, in the order in which they are checked.
        self.targets = (*self._ordered_targets(), LOCAL)
        if router.plane.routes is not None:
            self.targets = (*(target for target in router.ports if target not in (LOCAL, port)), LOCAL)
        members = {"flit": In(router.plane.bits), "routed": Out(1)}
        if router.plane.copies is not None:
            members["copied"] = Out(1)
        super().__init__(members | {f"to_{target}": Out(1) for target in self.targets})

    def to(self, target: str) -> Signal:
        """The request for the output `target`."""
        return getattr(self, f"to_{target}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        plane = self.router.plane
        if plane.routes is not None:
            m.d.comb += self.routed.eq(self.flit[plane.routes.flag_bit])
        m.d.comb += [self.to(target).eq(request) for target, request in self._requests(m).items()]
        if plane.copies is not None:
            m.d.comb += self.copied.eq(self._copied(plane.copies))
        return m

    def _copied(self, field: CopyField) -> Value:
        """Whether the tile here is one of the last before the destination of a head, as many as that says."""
        router = self.router
        if self.port == LOCAL or tile_address(router.x, router.y) in router.plane.gaps:
            return Const(0)
        copies = self.flit[field.first_bit : field.end]
        to_x, to_y = coordinates(self.flit[:DESTINATION_BITS])
        hops = {"east": to_x - router.x, "west": router.x - to_x, "south": to_y - router.y, "north": router.y - to_y}
        aligned = {"x": to_y == router.y, "y": to_x == router.x}
        return Cat(
            self.to(way) & aligned["x" if way in ("east", "west") else "y"] & (copies >= hops[way])
            for way in field.directions
            if way in self.targets
        ).any()

    def _requests(self, m: Module) -> dict[str, Value]:
        """Output port to the request for it."""
        router, plane = self.router, self.router.plane
        destination = self.flit[:DESTINATION_BITS]
        legal: Value = Const(1)
        if self.port == LOCAL:
            inside_mesh = Signal()
            to_x, to_y = coordinates(destination)
            inside = (to_x < plane.width) & (to_y < plane.height)
            for gap in plane.gaps:
                inside &= destination != gap
            m.d.comb += inside_mesh.eq(inside)
            legal = inside_mesh
        here = Signal()
        m.d.comb += here.eq(destination == tile_address(router.x, router.y))
        unrouted = legal & ~self.routed
        ordered = self._ordered(unrouted)
        ordered[LOCAL] = unrouted & here
        if plane.routes is None:
            return ordered
        requests: dict[str, Value] = {}
        first = plane.routes.first_bit
        turn = self.flit[first : first + TURN_BITS]
        routed = legal & self.routed
        for target in self.targets:
            requests[target] = ordered.get(target, Const(0))
            if target == LOCAL and self.port != LOCAL:
                requests[target] |= routed & (turn == Turn.EJECT) & here
            elif target != LOCAL:
                requests[target] |= routed & (turn == self._entry(target))
        return requests

    def _entry(self, target: str) -> int:
        """The entry of a route that leads from this input to `target`."""
        if self.port == LOCAL:
            return DIRECTIONS.index(target)
        heading = OPPOSITE[self.port]
        return next(turn for turn in Turn if turn is not Turn.EJECT and heading_after(heading, turn) == target)

    def _ordered_targets(self) -> list[str]:
        """Where dimension order may lead from this input, besides to the tile."""
        router = self.router
        return [port for port in ROUTINGS[router.plane.routing][self.port] if port in router.ports and port != LOCAL]

    def _ordered(self, head: Value) -> dict[str, Value]:
        """Output port (without LOCAL) to the request of a head without a source route, by dimension order."""
        router = self.router
        to_x, to_y = coordinates(self.flit[:DESTINATION_BITS])
        beyond: dict[str, Value] = {
            "east": to_x > router.x,
            "west": to_x < router.x,
            "north": to_y < router.y,
            "south": to_y > router.y,
        }
        first = router.plane.routing[0]
        aligned = {"x": to_x == router.x, "y": to_y == router.y}[first]
        along = {"x": ("east", "west"), "y": ("north", "south")}[first]
        return {port: head & beyond[port] & (1 if port in along else aligned) for port in self._ordered_targets()}


class InputControl(wiring.Component):
    """Follows the packets of `count` buffers and drops those that cannot be routed. One bit for each buffer, so that a
    simulator evaluates all at once.

    In: `valid`, `last`: of the flit at the front; `requested`: some output is requested for it; `taken`: an output
    takes it. Out: `head`: it is the first of its packet; `bad`: it is a head without a request, in the one cycle in
    which it leaves; `pop`: it leaves, taken or, as all flits of a packet with a bad head, dropped.
    """

    valid: Signal
    last: Signal
    requested: Signal
    taken: Signal
    head: Signal
    bad: Signal
    pop: Signal

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(
            {name: In(count) for name in ("valid", "last", "requested", "taken")}
            | {name: Out(count) for name in ("head", "bad", "pop")}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inside = Signal(self.count)  # the front belongs to a packet whose head has left the buffer
        dropping = Signal(self.count)
        drop = Signal(self.count)
        m.d.comb += [
            self.head.eq(self.valid & ~inside),
            self.bad.eq(self.head & ~self.requested),
            drop.eq(self.bad | (dropping & self.valid)),
            self.pop.eq(self.taken | drop),
        ]
        m.d.sync += [
            inside.eq((inside & ~self.pop) | (self.pop & ~self.last)),
            dropping.eq((dropping & ~drop) | (drop & ~self.last)),
        ]
        return m
