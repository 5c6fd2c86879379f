"""The network interface of the request plane (for the data plane see `data_receiver`).

`RequestSender`  out: requests -> 5-flit packets
`RequestTaker`   in:  packets -> MOVEs for the mover, FETCHes for a stream
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..spec.isa import (
    INSTRUCTION_BITS,
    REQUEST_FLIT_BITS,
    REQUEST_FLITS,
    REQUEST_HEAD,
    ROUTE_BODY,
    BlockedOn,
    Cause,
    Unit,
)
from ..wiring.signatures import (
    BlockedStatus,
    FaultPort,
    FaultSignature,
    FetchLayout,
    MoveLayout,
    Request,
    requested_move,
)
from .arbitration import RequestQueues
from .link import Flit


class RequestSender(wiring.Component):
    """Sends the requests of `ports` sources (`request_0`...); lower-numbered sources take precedence.

    Throughput: one request every 6 cycles. Latency: the head flit is offered in the cycle after acceptance.
    """

    flit: stream.Interface
    active: Signal

    def __init__(self, ports: int) -> None:
        self.ports = ports
        super().__init__(
            {f"request_{i}": In(stream.Signature(Request)) for i in range(ports)}
            | {"flit": Out(stream.Signature(Flit(REQUEST_FLIT_BITS))), "active": Out(1)}
        )

    def request(self, port: int) -> stream.Interface:
        """Stream `request_<port>`."""
        return getattr(self, f"request_{port}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(range(REQUEST_FLITS + 1))
        shift = Signal(INSTRUCTION_BITS + REQUEST_FLIT_BITS)
        asking = [getattr(self, f"request_{i}").valid for i in range(self.ports)]
        m.d.comb += [
            self.active.eq(self.flit.valid | Cat(asking).any()),
            self.flit.valid.eq(left != 0),
            self.flit.payload.data.eq(shift[:REQUEST_FLIT_BITS]),
            self.flit.payload.last.eq(left == 1),
        ]
        with m.If(left == REQUEST_FLITS):  # `shift` still holds the whole request
            m.d.comb += self.flit.payload.data[REQUEST_HEAD.offsets["parity"][0]].eq(shift.xor())
        with m.If(left == 0):
            chosen = 0
            for i in range(self.ports):
                port = self.request(i)
                m.d.comb += port.ready.eq(~chosen if i else 1)
                with m.If(port.valid & port.ready):
                    head = Signal(REQUEST_HEAD.layout(), name=f"head_{i}")
                    m.d.comb += [
                        head.dst_tile.eq(port.payload.dst_tile),
                        head.unit.eq(port.payload.unit),
                        head.fetch.eq(port.payload.fetch),
                        *(head[name].eq(port.payload.route[name]) for name in ROUTE_BODY.offsets),
                    ]
                    m.d.sync += [shift.eq(Cat(head, port.payload.code)), left.eq(REQUEST_FLITS)]
                chosen = chosen | port.valid
        with m.Elif(self.flit.ready):
            m.d.sync += [shift.eq(shift >> REQUEST_FLIT_BITS), left.eq(left - 1)]
        return m


class RequestTaker(wiring.Component):
    """Reassembles requests. MOVEs wait in a queue of `mover_queue` entries, or if `shared` in one for each tile that
    requests (`noc.arbitration`); FETCHes are handed over at once, and so are instructions for the streams of other
    units (`push_<unit>`, in chips with an ahead-of-time controller).

    A MOVE whose last flit is taken in cycle t is offered to the mover in cycle t + 2; one with a `fire_at` of f, in
    cycle f + 1. If f is past when the MOVE reaches the front of the queue, that is a LATE fault. A request of the wrong
    length is a fault with its last flit, one of the wrong parity in the cycle after; both are dropped.
    `blocked_status`: why the queue is blocked, for the host when it asks. `timed`: the first MOVE in the queue waits
    for its fire time.

    Without `moves` (`ChipConfig.boot_host`) there is no queue: a MOVE is a fault, for its tile has no memory.

    In chips with `programs`, `given` offers every FETCH, also one for no unit, which is to end the tile's streams
    (`isa.FETCH`); MOVEs have no fire times there (`hw.wiring.rights`)."""

    flit: stream.Interface
    now: Signal
    move: stream.Interface
    fault: FaultPort
    blocked_status: data.View  # BlockedStatus
    timed: Signal
    active: Signal
    given: data.View  # as `start`; chips with `programs` only

    def __init__(self, config: ChipConfig, units: int, shared: bool = False, moves: bool = True) -> None:
        self.config, self.units, self.shared, self.moves = config, units, shared, moves
        #: No MOVE waits for its fire time here.
        self.always_due = bool(config.programs) or shared or not config.fire_times
        #: Units whose streams take instructions from the controller.
        self.pushed = range(1, units if config.dtt is not None else 1)
        start = data.StructLayout({"valid": 1, "fetch": FetchLayout})
        super().__init__(
            {
                "flit": In(stream.Signature(Flit(REQUEST_FLIT_BITS))),
                "now": In(32),
                "move": Out(stream.Signature(requested_move(config))),
                "fault": Out(FaultSignature()),
                "blocked_status": Out(BlockedStatus),
                "timed": Out(1),
                "active": Out(1),
            }
            | ({"given": Out(start)} if config.programs else {})
            | {f"start_{i}": Out(start) for i in range(units)}
            | {f"push_{i}": Out(stream.Signature(INSTRUCTION_BITS)) for i in self.pushed}
        )

    def start(self, unit: int) -> data.View:
        """The FETCH for unit `unit`: `start_<unit>`."""
        return getattr(self, f"start_{unit}")

    def push(self, unit: int) -> stream.Interface:
        """Instructions for the stream of unit `unit`: `push_<unit>`."""
        return getattr(self, f"push_{unit}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = requested_move(self.config)
        queue = (  # with the MOVE, that it has no fire time
            RequestQueues(self.config)
            if self.shared
            else fifo.SyncFIFO(width=layout.size + 1, depth=self.config.mover_queue * self.moves)
        )
        m.submodules.queue = queue
        code = Signal(INSTRUCTION_BITS)
        head = Signal(REQUEST_HEAD.layout())
        waiting = data.View(layout, queue.r_data[: layout.size])
        entry = Cat(code, *(head[name] for name in ROUTE_BODY.offsets if layout["route"].width))
        first = data.View(MoveLayout, waiting.code)
        elsewhere = Signal()
        pushed = Signal()
        passed = Signal()  # `elsewhere`: for another unit; `pushed`: that unit takes it; `passed`: the request leaves
        fired = Signal()
        due = Signal()  # the fire time has come (`fired`), or there is none
        seen = Signal(range(REQUEST_FLITS))
        whole = Signal()  # `code` holds a request
        odd = Signal()  # parity so far
        full = Signal()  # `code` holds a request as it was sent
        m.d.comb += full.eq(whole & ~odd)
        m.d.comb += [
            self.active.eq(
                self.flit.valid | whole | (queue.active if isinstance(queue, RequestQueues) else queue.r_rdy)
            ),
            due.eq(1 if self.always_due else fired | queue.r_data[-1]),
            self.move.valid.eq(queue.r_rdy & due),
            self.move.payload.eq(waiting),
            queue.r_en.eq(self.move.ready & due),
            queue.w_data.eq(entry if self.shared else Cat(entry, data.View(MoveLayout, code).fire_at == 0)),
            queue.w_en.eq(full & ~head.fetch & ~elsewhere),
            passed.eq(head.fetch | Mux(elsewhere, pushed, queue.w_rdy | (not self.moves))),
            self.flit.ready.eq(~whole | odd | passed),
        ]
        for i in self.pushed:
            port, mine = self.push(i), Signal(name=f"for_{i}")
            m.d.comb += [mine.eq(full & ~head.fetch & (head.unit == i)), port.valid.eq(mine), port.payload.eq(code)]
            with m.If(mine):
                m.d.comb += [elsewhere.eq(1), pushed.eq(port.ready)]
        with m.If(odd | passed):
            m.d.sync += whole.eq(0)
        with m.If(self.flit.valid & self.flit.ready):
            with m.If(seen == 0):
                m.d.sync += head.eq(self.flit.payload.data)
            with m.Else():
                m.d.sync += code.eq(Cat(code[REQUEST_FLIT_BITS:], self.flit.payload.data))
            m.d.sync += [seen.eq(seen + 1), odd.eq((odd & (seen != 0)) ^ self.flit.payload.data.xor())]
            with m.If(self.flit.payload.last):
                m.d.sync += [seen.eq(0), whole.eq(seen == REQUEST_FLITS - 1)]
                with m.If(seen != REQUEST_FLITS - 1):
                    m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.LENGTH), self.fault.value.eq(seen)]
        with m.If(whole & odd):
            m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.PARITY)]
            m.d.comb += self.fault.value.eq(head.dst_tile)
        with m.If(self.move.ready):
            m.d.sync += fired.eq(0)
        with m.If(queue.r_rdy & ~due):
            m.d.comb += self.timed.eq(self.now <= first.fire_at)
            m.d.sync += fired.eq(self.now == first.fire_at)
            with m.If(~self.timed):
                m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.LATE), self.fault.tag.eq(first.tag)]
                m.d.comb += self.fault.value.eq(self.now - first.fire_at)
        with m.If(queue.r_rdy):
            m.d.comb += [
                self.blocked_status.waits.eq(Mux(due, BlockedOn.UNIT, BlockedOn.TIME)),
                self.blocked_status.tag.eq(first.tag),
                self.blocked_status.need.eq(full),
                self.blocked_status.has.eq(queue.r_level),
                self.blocked_status.peer.eq(first.dst_tile),
            ]
        with m.Elif(seen != 0):
            m.d.comb += self.blocked_status.waits.eq(BlockedOn.FLITS)
        if not self.moves:
            lost = data.View(MoveLayout, code)
            with m.If(full & ~head.fetch & ~elsewhere):
                m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.ADDRESS)]
                m.d.comb += [self.fault.tag.eq(lost.tag), self.fault.value.eq(lost.src)]
        started = data.View(FetchLayout, code)
        for i in range(self.units):
            port = self.start(i)
            m.d.comb += [port.valid.eq(full & head.fetch & (head.unit == i)), port.fetch.eq(started)]
        ends = Const(0)
        if self.config.programs:
            m.d.comb += [self.given.valid.eq(full & head.fetch), self.given.fetch.eq(started)]
            ends = started.clear & (head.unit == int(Unit.NONE))
        strange = head.unit >= self.units if self.units else Const(1)
        with m.If(full & head.fetch & strange & ~ends):
            m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.DESTINATION)]
            m.d.comb += [self.fault.tag.eq(started.tag), self.fault.value.eq(head.unit)]
        return m
