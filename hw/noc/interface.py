"""The network interface: what turns flits into deeds, and deeds into flits.

`Delivery`       data plane in:     packets -> checked word writes, and the notify when the tail has landed
`RequestSender`  request plane out: requests -> 5-flit packets
`RequestTaker`   request plane in:  packets -> MOVEs for the mover, FETCHes for a stream
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import ChipConfig
from ..control.signatures import (
    FaultSignature,
    FetchLayout,
    MoveLayout,
    Request,
    Standing,
    detail,
    notify_layout,
    word_write,
)
from ..isa import DATA_HEAD, INSTRUCTION_BITS, REQUEST_FLIT_BITS, REQUEST_FLITS, REQUEST_HEAD, Cause, Region, Waits
from .router import Flit


class Delivery(wiring.Component):
    """Writes arriving packets into the memories of the tile.

    Every head is checked for its parity and against `depths` (words of each writable region) before the first word is
    written, and the tail against the length in the head; a packet that fails is a fault and sinks.
    Throughput: one flit a cycle. Latency: a payload flit taken in cycle t is written at the end of t; `landed` is valid
    from t + 1 on. For DRAM packets (`dram=True`, region MAIN) `landed` comes from the DRAM port instead, when the write
    has been answered. `standing`: what the packet under way waits for, for the host when it asks.
    """

    flit: stream.Interface
    write: stream.Interface
    landed: stream.Interface
    fault: Any  # FaultSignature
    standing: Any  # Standing
    active: Signal
    burst: stream.Interface  # of DRAM tiles only, like `burst_data`
    burst_data: stream.Interface

    def __init__(self, config: ChipConfig, depths: dict[Region, int], dram: bool = False) -> None:
        self.config, self.depths, self.dram = config, depths, dram
        members = {
            "flit": In(stream.Signature(Flit(config.data_flit_bits))),
            "write": Out(word_write(config.lanes)),
            "landed": Out(stream.Signature(notify_layout())),
            "fault": Out(FaultSignature()),
            "standing": Out(Standing),
            "active": Out(1),
        }
        if dram:
            members["burst"] = Out(
                stream.Signature(
                    data.StructLayout({"offset": 24, "words": 7, "notify_tile": 8, "notify_sem": 6, "notify": 1})
                )
            )
            members["burst_data"] = Out(stream.Signature(config.word_bits))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        flit = self.flit.payload
        head = data.View(DATA_HEAD.layout(), flit.data[:64])
        packet = Signal(DATA_HEAD.layout())
        region, offset, left = Signal(4), Signal(24), Signal(7)
        owed = Signal()

        limit, known = Signal(25), Signal()
        with m.Switch(head.addr[24:28]):
            for number, depth in self.depths.items():
                with m.Case(int(number)):
                    m.d.comb += [limit.eq(depth), known.eq(1)]
        good, flipped = Signal(), Signal()
        m.d.comb += flipped.eq(flit.data[: DATA_HEAD.used].xor())
        m.d.comb += good.eq(~flipped & known & (head.words != 0) & (head.addr[:24] + head.words <= limit) & ~flit.last)

        word = self.write.payload
        m.d.comb += [word.region.eq(region), word.offset.eq(offset), word.data.eq(flit.data)]
        m.d.comb += [
            self.landed.valid.eq(owed),
            self.landed.payload.notify_tile.eq(packet.notify_tile),
            self.landed.payload.notify_sem.eq(packet.notify_sem),
            self.landed.payload.notify.eq(1),
        ]
        m.d.comb += self.active.eq(self.flit.valid | owed)
        with m.If(self.landed.ready):
            m.d.sync += owed.eq(0)

        to_dram = Signal()
        sink_ready = Signal()
        m.d.comb += sink_ready.eq(self.write.ready)
        if self.dram:
            m.d.comb += to_dram.eq(region == Region.MAIN)
            m.d.comb += self.burst_data.payload.eq(flit.data)
            with m.If(to_dram):
                m.d.comb += sink_ready.eq(self.burst_data.ready)

        standing = self.standing
        blocked = Mux(to_dram, Waits.DRAM, Waits.MEMORY)
        with m.FSM():
            with m.State("HEAD"):
                with m.If(self.flit.valid & ~self.flit.ready):
                    m.d.comb += standing.waits.eq(Mux(owed, Waits.POSTS, Waits.DRAM))
                    m.d.comb += [standing.tag.eq(head.words), detail(standing).eq(head.addr)]
                is_dram = (head.addr[24:28] == Region.MAIN) if self.dram else 0
                accept = Signal()
                m.d.comb += accept.eq(self.flit.valid & (~owed | self.landed.ready))
                if self.dram:
                    m.d.comb += [
                        self.burst.valid.eq(accept & good & is_dram),
                        self.burst.payload.offset.eq(head.addr[:24]),
                        self.burst.payload.words.eq(head.words),
                        self.burst.payload.notify_tile.eq(head.notify_tile),
                        self.burst.payload.notify_sem.eq(head.notify_sem),
                        self.burst.payload.notify.eq(head.notify),
                    ]
                    m.d.comb += self.flit.ready.eq(accept & (~self.burst.valid | self.burst.ready))
                else:
                    m.d.comb += self.flit.ready.eq(accept)
                with m.If(self.flit.ready):
                    m.d.sync += [packet.eq(head), region.eq(head.addr[24:28]), offset.eq(head.addr[:24])]
                    m.d.sync += left.eq(head.words)
                    with m.If(good):
                        m.next = "BODY"
                    with m.Else():
                        m.d.comb += [self.fault.valid.eq(1), self.fault.value.eq(head.addr)]
                        wrong = Mux(flit.last | (head.words == 0), Cause.LENGTH, Cause.ADDRESS)
                        m.d.comb += self.fault.cause.eq(Mux(flipped, Cause.PARITY, wrong))
                        with m.If(~flit.last):
                            m.next = "SINK"
            with m.State("BODY"):
                with m.If(~(self.flit.valid & sink_ready)):
                    m.d.comb += standing.waits.eq(Mux(self.flit.valid, blocked, Waits.FLITS))
                    m.d.comb += [standing.tag.eq(left), detail(standing).eq(Cat(offset, region))]
                if self.dram:
                    m.d.comb += self.burst_data.valid.eq(self.flit.valid & to_dram)
                m.d.comb += [self.write.valid.eq(self.flit.valid & ~to_dram), self.flit.ready.eq(sink_ready)]
                with m.If(self.flit.valid & sink_ready):
                    m.d.sync += [offset.eq(offset + 1), left.eq(left - 1)]
                    with m.If(flit.last != (left == 1)):
                        m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.LENGTH)]
                        m.d.comb += self.fault.value.eq(packet.addr)
                    with m.If(flit.last):
                        m.d.sync += owed.eq(packet.notify & ~to_dram)
                        m.next = "HEAD"
                    with m.Elif(left == 1):
                        m.next = "SINK"
            with m.State("SINK"):
                m.d.comb += self.flit.ready.eq(1)
                with m.If(~self.flit.valid):
                    m.d.comb += [standing.waits.eq(Waits.FLITS), detail(standing).eq(Cat(offset, region))]
                with m.If(self.flit.valid & flit.last):
                    m.next = "HEAD"
        return m


class RequestSender(wiring.Component):
    """Sends the requests of `ports` sources (`request_0`...), lower-numbered first.

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

    def request(self, port: int) -> Any:
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
        with m.If(left == REQUEST_FLITS):  # the whole request still stands there
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
                    ]
                    m.d.sync += [shift.eq(Cat(head, port.payload.code)), left.eq(REQUEST_FLITS)]
                chosen = chosen | port.valid
        with m.Elif(self.flit.ready):
            m.d.sync += [shift.eq(shift >> REQUEST_FLIT_BITS), left.eq(left - 1)]
        return m


class RequestTaker(wiring.Component):
    """Takes requests apart; MOVEs wait in a queue of `mover_queue`, FETCHes are handed over at once.

    A MOVE whose last flit is taken in cycle t is offered to the mover in cycle t + 2. A request of the wrong length or
    parity is a fault and goes no further. `standing`: about the queue, for the host when it asks.
    """

    flit: stream.Interface
    move: stream.Interface
    fault: Any  # FaultSignature
    standing: Any  # Standing
    active: Signal

    def __init__(self, config: ChipConfig, units: int) -> None:
        self.config, self.units = config, units
        start = data.StructLayout({"valid": 1, "fetch": FetchLayout})
        super().__init__(
            {
                "flit": In(stream.Signature(Flit(REQUEST_FLIT_BITS))),
                "move": Out(stream.Signature(INSTRUCTION_BITS)),
                "fault": Out(FaultSignature()),
                "standing": Out(Standing),
                "active": Out(1),
            }
            | {f"start_{i}": Out(start) for i in range(units)}
        )

    def start(self, unit: int) -> Any:
        """The FETCH for unit `unit`: `start_<unit>`."""
        return getattr(self, f"start_{unit}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = fifo.SyncFIFO(width=INSTRUCTION_BITS, depth=self.config.mover_queue)
        code = Signal(INSTRUCTION_BITS)
        head = Signal(REQUEST_HEAD.layout())
        seen = Signal(range(REQUEST_FLITS))
        full = Signal()  # a whole request stands in `code`
        odd, flipped = Signal(), Signal()  # the ones in it so far, and with this flit
        m.d.comb += flipped.eq((odd & (seen != 0)) ^ self.flit.payload.data.xor())
        m.d.comb += [
            self.active.eq(self.flit.valid | full | queue.r_rdy),
            self.move.valid.eq(queue.r_rdy),
            self.move.payload.eq(queue.r_data),
            queue.r_en.eq(self.move.ready),
            queue.w_data.eq(code),
            queue.w_en.eq(full & ~head.fetch),
            self.flit.ready.eq(~full | head.fetch | queue.w_rdy),
        ]
        with m.If(full & (head.fetch | queue.w_rdy)):
            m.d.sync += full.eq(0)
        with m.If(self.flit.valid & self.flit.ready):
            with m.If(seen == 0):
                m.d.sync += head.eq(self.flit.payload.data)
            with m.Else():
                m.d.sync += code.eq(Cat(code[REQUEST_FLIT_BITS:], self.flit.payload.data))
            m.d.sync += [seen.eq(seen + 1), odd.eq(flipped)]
            with m.If(self.flit.payload.last):
                m.d.sync += [seen.eq(0), full.eq((seen == REQUEST_FLITS - 1) & ~flipped)]
                with m.If(seen != REQUEST_FLITS - 1):
                    m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.LENGTH), self.fault.value.eq(seen)]
                with m.Elif(flipped):
                    m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.PARITY)]
                    m.d.comb += self.fault.value.eq(head.dst_tile)
        first = data.View(MoveLayout, queue.r_data)
        with m.If(queue.r_rdy):
            m.d.comb += [
                self.standing.waits.eq(Waits.UNIT),
                self.standing.tag.eq(first.tag),
                self.standing.need.eq(full),
                self.standing.has.eq(queue.r_level),
                self.standing.peer.eq(first.dst_tile),
            ]
        with m.Elif(seen != 0):
            m.d.comb += self.standing.waits.eq(Waits.FLITS)
        started = data.View(FetchLayout, code)
        for i in range(self.units):
            port = self.start(i)
            m.d.comb += [port.valid.eq(full & head.fetch & (head.unit == i)), port.fetch.eq(started)]
        with m.If(full & head.fetch & (head.unit >= self.units)):
            m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.DESTINATION)]
            m.d.comb += [self.fault.tag.eq(started.tag), self.fault.value.eq(head.unit)]
        return m
