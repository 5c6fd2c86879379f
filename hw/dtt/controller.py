"""The ahead-of-time controller: turns its program into control packets, and sends each before it is due.

    front end --> ORDER: where to --+
                  MOVE, GEMM, VEC --+--> route from waypoints  --> pace --> request plane
                                                                   (fire times of the last ones to each unit)

A control packet is a request that carries a whole instruction with its fire time: a MOVE for the mover of its source
tile, a GEMM or VEC for a core's stream of that unit. The unit holds it until it fires (`noc.interface`,
`control.frontend`).
(Tableau Roche and Murugappa Velayuthan: Dijkstra-Through-Time, section IV-B.)
"""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..spec.isa import INSTRUCTIONS, ROUTE_BODY, BlockedOn, Cause, Opcode, Unit
from ..wiring.signatures import BlockedStatus, FaultPort, FaultSignature, Issue, MoveLayout, Request, TraceRecord
from .route_builder import RouteBuilder

OrderLayout = INSTRUCTIONS[Opcode.ORDER].layout()
_UNITS = (Unit.MOVER, Unit.MATRIX, Unit.VECTOR)


class Controller(wiring.Component):
    """Takes the instructions of its tile's stream over `own`, sends control packets over `forward`.

    An ORDER names the core and the route of the next instruction. Without one, a MOVE goes to the mover of its source
    tile, and its data take dimension order on the channel of its destination.

    Pacing: the controller sends a unit at most `mover_queue` packets that have not fired yet. The next packet, and all
    packets after it, wait here until the fire time of the oldest of them is past. A packet without a fire time counts
    as one that fires when it is sent.

    Throughput: one control packet every 6 cycles (the limit of the request plane); an ORDER before it costs a cycle,
    and waypoints as many more as `RouteBuilder` takes.
    Latency: an instruction offered in cycle t is offered to the request plane in cycle t + 1.

    `blocked_status`: what the stream waits for, where only the controller knows.
    """

    now: Signal
    own: stream.Interface
    forward: stream.Interface
    record: stream.Interface
    fault: FaultPort
    blocked_status: data.View  # BlockedStatus
    active: Signal
    pacing: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        super().__init__(
            {
                "now": In(32),
                "own": In(stream.Signature(Issue)),
                "forward": Out(stream.Signature(Request)),
                "record": Out(stream.Signature(TraceRecord)),
                "fault": Out(FaultSignature()),
                "blocked_status": Out(BlockedStatus),
                "active": Out(1),
                "pacing": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        code = self.own.payload.code
        move, given = data.View(MoveLayout, code), data.View(OrderLayout, code)
        order = Signal(OrderLayout)
        opcode = move.opcode
        to_core = Signal()
        is_order = Signal()
        tile = Signal(8)
        unit = Signal(2)
        m.d.comb += [
            is_order.eq(opcode == Opcode.ORDER),
            to_core.eq((opcode == Opcode.GEMM) | (opcode == Opcode.VEC)),
            tile.eq(Mux(to_core, order.tile, move.src_tile)),
            unit.eq(Mux(to_core, Mux(opcode == Opcode.GEMM, Unit.MATRIX, Unit.VECTOR), Unit.MOVER)),
        ]
        owed = Signal()
        begun = Signal(32)
        record = self.record.payload
        m.d.comb += [self.record.valid.eq(owed), self.active.eq(self.own.valid | owed)]
        with m.If(self.record.ready):
            m.d.sync += owed.eq(0)

        full, fire, sent = self._slots(m, tile, unit, move.fire_at)
        route, built, start = self._route(m, order, move, to_core)
        request = self.forward.payload
        m.d.comb += [
            request.dst_tile.eq(tile),
            request.unit.eq(unit),
            request.fetch.eq(0),
            request.route.eq(route),
            request.code.eq(code),
        ]
        exists = (tile[:4] < self.config.width) & (tile[4:] < self.config.height)
        blocked_status = self.blocked_status
        with m.FSM():
            with m.State("TAKE"):
                with m.If(self.own.valid & ~owed):
                    m.d.sync += begun.eq(self.now)
                    with m.If(is_order):
                        m.d.comb += self.own.ready.eq(1)
                        m.d.sync += order.eq(given)
                        self._keep(m, record, self.now)
                        m.d.sync += owed.eq(1)
                    with m.Elif(exists):
                        m.d.comb += start.eq(1)
                        m.next = "SEND"
                    with m.Else():
                        self._refuse(m, Cause.DESTINATION, tile)
            with m.State("SEND"):
                waits = Signal()
                m.d.comb += [waits.eq(full & (self.now <= fire)), self.pacing.eq(waits)]
                m.d.comb += blocked_status.waits.eq(Mux(waits, BlockedOn.UNIT, BlockedOn.REQUEST_PLANE))
                m.d.comb += [blocked_status.tag.eq(move.tag), blocked_status.peer.eq(tile)]
                with m.If(self._wrong):
                    self._refuse(m, Cause.ROUTE, self._place)
                with m.Else():
                    m.d.comb += self.forward.valid.eq(built & ~waits)
                with m.If(self.forward.valid & self.forward.ready):
                    m.d.comb += [self.own.ready.eq(1), sent.eq(1)]
                    m.d.sync += [order.eq(0), owed.eq(1)]
                    self._keep(m, record, begun)
                    m.next = "TAKE"
        return m

    def _keep(self, m: Module, record: data.View, begun: Value) -> None:
        own = data.View(MoveLayout, self.own.payload.code)
        m.d.sync += [
            record.tag.eq(own.tag),
            record.unit.eq(int(Unit.MOVER)),
            record.opcode.eq(own.opcode),
            record.wait.eq(self.own.payload.waited),
            record.start.eq(begun),
            record.end.eq(self.now + 1),
        ]

    def _refuse(self, m: Module, cause: Cause, value: Value) -> None:
        own = data.View(MoveLayout, self.own.payload.code)
        m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(cause), self.fault.tag.eq(own.tag)]
        m.d.comb += self.fault.value.eq(value)

    def _slots(self, m: Module, tile: Value, unit: Value, fire_at: Value) -> tuple[Signal, Value, Signal]:
        """The fire times of the last packets to each unit: (the unit has as many as it takes, fire time of the oldest
        of them; request both a cycle earlier), and a strobe that the current packet has been sent."""
        config, room = self.config, self.config.mover_queue
        places = list(config.tiles)
        number = Signal(range(len(places) * len(_UNITS)))
        with m.Switch(tile):
            for at, place in enumerate(places):
                with m.Case(place):
                    m.d.comb += number.eq(at * len(_UNITS) + unit)
        used = Array(Signal(range(room + 1), name=f"used_{i}") for i in range(len(places) * len(_UNITS)))
        oldest = Array(Signal(range(room), name=f"oldest_{i}") for i in range(len(places) * len(_UNITS)))
        m.submodules.fire_times = times = memory.Memory(shape=32, depth=len(used) * room, init=[])
        write, read = times.write_port(), times.read_port()
        full = Signal()
        sent = Signal()
        at = Signal(range(len(used) * room))
        m.d.comb += [
            at.eq(number * room + oldest[number]),
            full.eq(used[number] == room),
            read.addr.eq(at),
            write.addr.eq(at),
            write.data.eq(fire_at),
            write.en.eq(sent),
        ]
        with m.If(sent):
            m.d.sync += oldest[number].eq(Mux(oldest[number] == room - 1, 0, oldest[number] + 1))
            with m.If(~full):
                m.d.sync += used[number].eq(used[number] + 1)
        return full, read.data, sent

    def _route(self, m: Module, order: data.View, move: data.View, to_core: Signal) -> tuple[data.View, Signal, Signal]:
        """(route of the data, whether it is ready, a strobe that starts the route builder)."""
        route = Signal(ROUTE_BODY.layout())
        ready = Signal()
        start = Signal()
        self._wrong, self._place = wrong, place = Signal(name="wrong"), Signal(8, name="place")
        routed = ~to_core & (order.count != 0)
        bad_channel = ~to_core & (order.channel > self.config.noc.data_vcs)
        m.d.comb += [route.channel.eq(Mux(to_core, 0, order.channel)), ready.eq(1), place.eq(move.src_tile)]
        if not self.config.noc.route_hops:
            m.d.comb += wrong.eq(routed | bad_channel)
            return route, ready, start
        m.submodules.builder = builder = RouteBuilder(self.config)
        m.d.comb += [
            builder.start.eq(start),
            builder.source.eq(move.src_tile),
            builder.target.eq(move.dst_tile),
            builder.count.eq(order.count),
            builder.points.eq(order.points),
            wrong.eq((routed & builder.wrong) | bad_channel),
            place.eq(builder.place),
        ]
        with m.If(routed):
            # entries beyond those in the chip's heads are EJECT; there are none if heads hold the longest route
            beyond = len(route.turns) - len(builder.turns)
            m.d.comb += [ready.eq(builder.done), route.routed.eq(1)]
            m.d.comb += route.turns.eq(Cat(builder.turns, Const((1 << beyond) - 1, beyond)))
        return route, ready, start
