"""A wormhole router with virtual channels: input buffered, dimension ordered or source routed, one cycle per hop.

    link in --> RouteSelect --> FlitBuffer --> Output --> link out
                                    ^-- InputControl <-----+

A route for each input: what a flit requests that arrives, which its buffer notes; a buffer for each virtual channel of
each input, one control for all of them, an output for each port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..spec.routes import DESTINATION_BITS, LOCAL
from .input_unit import FlitBuffer, InputControl, RouteSelect
from .link import Link, LinkPort, Plane, Position
from .output_unit import Output


@dataclass(frozen=True)
class _Copies:
    """Packets that the tile here takes on their way, in vectors with a bit for each buffer. `marked`: the front would
    be one of them, if it is a head; `copying`: it belongs to one; `landing`: that has the channel to the tile.
    """

    marked: Signal
    copying: Signal
    landing: Signal

    @classmethod
    def of(cls, count: int) -> _Copies:
        """With new signals."""
        return cls(*(Signal(count, name=name) for name in ("marked", "copying", "landing")))

    def requests(self, m: Module, number: int, to: Value, marked: Value) -> Value:
        """The outputs that a head in buffer `number` requests (`LOCAL` is the last): the tile, then `to` as well."""
        m.d.comb += self.marked[number].eq(marked)
        return Cat(to[:-1] & (~marked | self.landing[number]).replicate(len(to) - 1), to[-1] | marked)

    def connect(self, m: Module, head: Signal, outputs: Mapping[str, tuple[Output, Sequence[int]]]) -> None:
        """Each flit leaves by both outputs at once."""
        bodies = Signal(len(head), name="bodies")  # of packets whose heads have left
        m.d.comb += self.copying.eq((head & self.marked) | (~head & bodies))
        m.d.sync += bodies.eq(self.copying)
        tile, numbers = outputs[LOCAL]
        lands = Signal(len(head), name="lands")  # the tile would take the flit
        goes = Signal(len(head), name="goes")  # the next router would
        m.d.comb += [self.landing[number].eq(tile.owned[at]) for at, number in enumerate(numbers)]
        m.d.comb += [lands[number].eq(tile.open[at]) for at, number in enumerate(numbers)]
        m.d.comb += [tile.waits[at].eq(self.copying[number] & ~goes[number]) for at, number in enumerate(numbers)]
        onward: list[list[Value]] = [[] for _ in head]
        for port, (output, sources) in outputs.items():
            if port != LOCAL:
                for at, number in enumerate(sources):
                    onward[number].append(output.open[at])
                    m.d.comb += output.waits[at].eq(self.copying[number] & ~lands[number])
        m.d.comb += goes.eq(Cat(*(Cat(*bits).any() for bits in onward)))


class Router(wiring.Component):
    """The router of tile (x, y) of the mesh that `plane` describes.

    Ports: for `local` and for each direction with a neighbour, `<port>_in` and `<port>_out` (`Link`), and the strobes
    `busy_<port>` (a flit leaves by this output) and `blocked_<port>` (a flit requests it, but none leaves); `fault` (1
    bit) and `fault_tile` (8 bits); `active`.

    Contract: a packet owns a virtual channel of an output from the cycle in which its head reaches the front of an
    input buffer until its last flit has left. Inputs that request the same channel of an output share it in round robin
    by packet. Channels that have both a flit and room for it share the link in round robin by flit: such a flit waits
    for at most `vcs` - 1 others. A channel without room is never granted and blocks no other. With `allocate` "same",
    packets between the same two tiles on the same channel (and route) arrive in order. A tile may send to itself.

    With `allocate` "free" a head takes a free channel that has room; channels and waiting heads are each served in
    round robin.

    Latency: a flit accepted in cycle t is offered at the output in cycle t + 1. Throughput: one flit per cycle and
    port, with no bubble between packets, at every `depth` >= 2. Each channel of each input has its own path to the
    outputs, so inputs are never the bottleneck.

    With `vcs` > 1, `<port>_out.valid` implies that the flit moves. With one channel it does not depend on `ready`, and
    an offered flit stays until it is taken; a flit of a packet that the tile takes on its way is offered to each of the
    two while the other one is ready, or would be if it had it.

    A packet that cannot be routed is dropped whole by the router that detects it: `fault` is 1 for the one cycle in
    which its head leaves the buffer (the cycle after its acceptance if the buffer was empty), and `fault_tile` is the
    destination in that head. Reasons: a destination outside the mesh, checked at injection; a hop out of the mesh; a
    turn against the dimension order; a source route that ends anywhere but at the destination. If several packets are
    dropped in one cycle, `fault_tile` is that of the first: the tile's own, then its neighbours'. So no head blocks an
    input for ever, and every packet ejected at `local_out` is for this tile, or taken by it on its way.

    In planes with `copies` the tile here takes a packet that says so, on its way. Its head first gets the channel to
    the tile, in the next cycle or later the one to the next router; then each flit leaves by both at once. So it is one
    cycle later for each tile that takes it, and what a tile ejects waits for a link, never the other way round. Each
    tile has a flit before the next one has.

    `active`: this router holds a flit or is offered one; in other cycles none of its registers changes.

    Raises ValueError for a position outside the mesh.
    """

    fault: Signal
    fault_tile: Signal
    active: Signal

    def __init__(self, x: int, y: int, plane: Plane) -> None:
        self.position = Position(x, y, plane)
        self.x, self.y, self.plane, self.ports = x, y, plane, self.position.ports
        link = Link(plane.bits, plane.vcs)
        members: dict[str, wiring.Member] = {}
        for port in self.ports:
            members[f"{port}_in"] = In(link)
            members[f"{port}_out"] = Out(link)
            members[f"busy_{port}"] = Out(1)
            members[f"blocked_{port}"] = Out(1)
        super().__init__({**members, "fault": Out(1), "fault_tile": Out(DESTINATION_BITS), "active": Out(1)})

    def input(self, port: str) -> LinkPort:
        """The link that enters through `port`."""
        return getattr(self, f"{port}_in")

    def output(self, port: str) -> LinkPort:
        """The link that leaves through `port`."""
        return getattr(self, f"{port}_out")

    def counters(self, port: str) -> tuple[Signal, Signal]:
        """(busy, blocked) of the output `port`."""
        return getattr(self, f"busy_{port}"), getattr(self, f"blocked_{port}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        plane = self.plane
        keys = [(port, vc) for port in self.ports for vc in range(plane.vcs)]
        m.submodules.control = control = InputControl(len(keys))
        routes = {port: RouteSelect(self.position, port) for port in self.ports}
        for port, route in routes.items():
            m.submodules[f"{port}_route"] = route
            m.d.comb += route.flit.eq(self.input(port).payload.data)
        copies = _Copies.of(len(keys)) if plane.copies is not None else None
        fronts: list[Signal] = []
        requests: list[Signal] = []  # of each buffer: which of its route's targets the head at the front wants
        shifted: list[Value] = []  # of each buffer: the front is a head with a source route
        for number, (port, vc) in enumerate(keys):
            link, route = self.input(port), routes[port]
            targets = len(route.targets)
            copied = [route.copied] if copies is not None else []
            buffer = FlitBuffer(plane.bits + 1, plane.depth, notes=targets + 2 + len(copied))
            m.submodules[f"{port}_{vc}_buffer"] = buffer
            wants = Signal(targets, name=f"{port}_{vc}_wants")
            to, routed, last = buffer.noted[:targets], buffer.noted[targets], buffer.noted[targets + 1]
            if copies is not None:
                to = copies.requests(m, number, to, buffer.noted[-1])
            m.d.comb += [
                buffer.flit.eq(Cat(link.payload.data, link.payload.last)),
                buffer.note.eq(
                    Cat(*(route.to(target) for target in route.targets), route.routed, link.payload.last, *copied)
                ),
                buffer.arrives.eq(link.valid if plane.vcs == 1 else link.valid & (link.payload.vc == vc)),
                link.ready[vc].eq(buffer.ready),
                buffer.pop.eq(control.pop[number]),
                control.valid[number].eq(buffer.valid),
                control.last[number].eq(last),
                control.requested[number].eq(to.any()),
                wants.eq(Mux(control.head[number], to, 0)),
            ]
            fronts.append(buffer.front)
            requests.append(wants)
            shifted.append(control.head[number] & routed)
        outputs: dict[str, tuple[Output, list[int]]] = {}  # with the buffers that are its sources
        taken: list[list[Value]] = [[] for _ in keys]
        for port in self.ports:
            sources = [number for number, (of, _) in enumerate(keys) if port in routes[of].targets]
            m.submodules[f"{port}_output"] = output = Output(plane, port, [keys[number][1] for number in sources])
            outputs[port] = output, sources
            wiring.connect(m, output.link, wiring.flipped(self.output(port)))
            busy, blocked = self.counters(port)
            m.d.comb += [busy.eq(output.busy), blocked.eq(output.blocked)]
            for at, number in enumerate(sources):
                m.d.comb += [
                    output.front[at].eq(fronts[number]),
                    output.valid[at].eq(control.valid[number]),
                    output.last[at].eq(control.last[number]),
                    output.request[at].eq(requests[number][routes[keys[number][0]].targets.index(port)]),
                    output.routed[at].eq(shifted[number]),
                ]
                taken[number].append(output.taken[at])
        if copies is not None:
            copies.connect(m, control.head, outputs)
        m.d.comb += control.taken.eq(Cat(*(Cat(*bits).any() for bits in taken)))
        arriving = [self.input(port).valid for port in self.ports]
        m.d.comb += [self.active.eq(Cat(arriving, control.valid).any()), self.fault.eq(control.bad.any())]
        value: Value = fronts[0][:DESTINATION_BITS]
        for number, front in enumerate(fronts[1:], 1):  # the tile's own are last, so they take precedence
            value = Mux(control.bad[number], front[:DESTINATION_BITS], value)
        m.d.comb += self.fault_tile.eq(value)
        return m
