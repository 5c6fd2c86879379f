"""The board's end of the host link: requests become accesses to the host's registers and to DRAM."""

from __future__ import annotations

from typing import Protocol

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..wiring.axi import AXI4Lite, AXI4LitePort
from ..wiring.signatures import PortObject
from .frames import ANSWER, OFFSET_BITS, VERSION, Kind, Outcome
from .receiver import FrameReceiver
from .sender import FrameSender

#: Cycles that RESET lasts.
RESET_CYCLES = 16
#: What must be equal for a request to be the last one once more.
_Last = data.StructLayout({"session": 16, "number": 8, "kind": 8})


class MemoryBus(wiring.Signature):
    """Words of the board's DRAM channels: `write` and `read` stay until the cycle in which `ready` is set; a word that
    is read is in `answer` a cycle later."""

    def __init__(self, lanes: int) -> None:
        super().__init__(
            {
                "channel": Out(8),
                "address": Out(OFFSET_BITS),
                "write": Out(1),
                "data": Out(8 * lanes),
                "read": Out(1),
                "ready": In(1),
                "answer": In(8 * lanes),
            }
        )


class MemoryPort(PortObject, Protocol):
    """A port with `MemoryBus`."""

    channel: Signal
    address: Signal
    write: Signal
    data: Signal
    read: Signal
    ready: Signal
    answer: Signal


class HostLink(wiring.Component):
    """Carries out the requests of a line (`frames`): bytes in, bytes out.

    `registers`: manager of the host's AXI4-Lite port. `memory`: of `channels` channels with `words` words of `lanes`
    bytes. `chip_reset`: RESET is being carried out, for `RESET_CYCLES` cycles. `data_bytes`: what a frame may carry, a
    multiple of `lanes`. A request is carried out when its frame has come whole: a register in as many cycles as its
    port takes and 3 more, a word of DRAM in `lanes` + 3 cycles and those in which it is not `ready`. Then its answer is
    sent (`FrameSender`). Raises ValueError.
    """

    input: stream.Interface
    output: stream.Interface
    registers: AXI4LitePort
    memory: MemoryPort
    chip_reset: Signal

    def __init__(self, *, lanes: int, channels: int, words: int, data_bytes: int = 512) -> None:
        if data_bytes % lanes or not 16 <= data_bytes <= 1 << 14:
            raise ValueError(f"data_bytes = {data_bytes} must be whole words of {lanes} bytes, 16 to {1 << 14}")
        self._lanes, self._channels, self._words, self._bytes = lanes, channels, words, data_bytes
        super().__init__(
            {
                "input": In(stream.Signature(8, always_ready=True)),
                "output": Out(stream.Signature(8)),
                "registers": Out(AXI4Lite(address_bits=8)),
                "memory": Out(MemoryBus(lanes)),
                "chip_reset": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.receiver = receiver = FrameReceiver(self._bytes)
        m.submodules.sender = sender = FrameSender(self._bytes)
        m.submodules.answer = answer = memory.Memory(shape=8, depth=self._bytes, init=[])
        self._write, read = answer.write_port(), answer.read_port()
        wiring.connect(m, wiring.flipped(self.input), receiver.input)
        wiring.connect(m, sender.output, wiring.flipped(self.output))
        self._head, self._size = receiver.head, receiver.size
        head, session, opened = self._head, Signal(16), Signal()
        last, known, kept = Signal(_Last), Signal(), Signal(16)  # the last request, and the length of its answer
        outcome, kept_outcome, length = Signal(8), Signal(8), Signal(16)
        current = Signal(_Last)
        m.d.comb += [
            current.session.eq(head.session),
            current.number.eq(head.number),
            current.kind.eq(head.kind),
            read.addr.eq(sender.address),
            sender.data.eq(read.data),
            sender.header.version.eq(VERSION),
            sender.header.kind.eq(head.kind | ANSWER),
            sender.header.session.eq(head.session),
            sender.header.number.eq(head.number),
            sender.header.outcome.eq(outcome),
            sender.header.length.eq(length),
        ]
        place = data.View(data.StructLayout({"address": OFFSET_BITS, "channel": 8}), head.place)
        self._word, self._lane, self._left = Signal(8 * self._lanes), Signal(range(self._lanes)), Signal(32)
        at = Signal(range(self._bytes))
        m.d.comb += [
            self.memory.channel.eq(place.channel),
            self.memory.data.eq(self._word),
            self.registers.awaddr.eq(head.place),
            self.registers.araddr.eq(head.place),
            self.registers.wdata.eq(head.value),
            self.registers.wstrb.eq(0xF),
            receiver.address.eq(at),
            self._write.addr.eq(at),
        ]
        m.d.sync += self.chip_reset.eq(0)
        with m.FSM():
            with m.State("idle"):
                m.d.sync += [at.eq(0), self._lane.eq(0), self._left.eq(head.value), length.eq(0)]
                m.d.sync += self.memory.address.eq(place.address)
                with m.If(receiver.valid):
                    m.d.sync += outcome.eq(self._judge(place))
                    m.next = "judged"
            with m.State("judged"):
                m.next = "send"
                with m.If(head.version != VERSION):
                    m.d.sync += outcome.eq(Outcome.VERSION)
                with m.Elif((head.kind != Kind.HELLO) & (~opened | (head.session != session))):
                    m.d.sync += outcome.eq(Outcome.SESSION)
                with m.Elif(known & (last == current) & (head.kind != Kind.HELLO)):
                    m.d.sync += [outcome.eq(kept_outcome), length.eq(kept)]
                with m.Elif(outcome != Outcome.OK):
                    m.next = "keep"
                with m.Else():
                    with m.Switch(head.kind):
                        with m.Case(Kind.HELLO):
                            m.d.sync += [opened.eq(1), session.eq(head.session)]
                            m.next = "greet"
                        with m.Case(Kind.READ):
                            m.next = "read"
                        with m.Case(Kind.WRITE):
                            m.next = "write"
                        with m.Case(Kind.PEEK):
                            m.next = "peek"
                        with m.Case(Kind.POKE):
                            m.next = "poke"
                        with m.Case(Kind.RESET):
                            m.d.sync += self._left.eq(RESET_CYCLES)
                            m.next = "reset"
            self._accesses(m, at, length, outcome)
            with m.State("reset"):
                m.d.sync += [self.chip_reset.eq(1), self._left.eq(self._left - 1)]
                with m.If(self._left == 0):
                    m.d.sync += self.chip_reset.eq(0)
                    m.next = "keep"
            self._words_out(m, at, length)
            self._words_in(m, at, receiver)
            with m.State("keep"):
                m.d.sync += [last.eq(current), known.eq(1), kept.eq(length), kept_outcome.eq(outcome)]
                m.next = "send"
            with m.State("send"):
                with m.If(~sender.busy):
                    m.d.comb += sender.start.eq(1)
                    m.next = "sending"
            with m.State("sending"):
                with m.If(~sender.busy):
                    m.d.comb += receiver.done.eq(1)
                    m.next = "idle"
        return m

    def _judge(self, place: data.View) -> Value:
        """What is wrong with a request by itself."""
        head = self._head
        words = Mux(head.value > self._bytes // self._lanes, self._bytes // self._lanes + 1, head.value[:16])
        moves = (head.kind == Kind.PEEK) | (head.kind == Kind.POKE)
        whole = Mux(head.kind == Kind.POKE, words * self._lanes, 0) == self._size
        outside = (place.channel >= self._channels) | (place.address + words > self._words)
        return Mux(
            head.kind > max(Kind),
            Outcome.KIND,
            Mux(
                ~whole | (moves & ((head.value == 0) | (words * self._lanes > self._bytes))),
                Outcome.LENGTH,
                Mux(moves & outside, Outcome.RANGE, Outcome.OK),
            ),
        )

    def _accesses(self, m: Module, at: Signal, length: Signal, outcome: Signal) -> None:
        """States that read and write a register, and the greeting. Bytes of the answer go out of `self._word`."""
        bus, value = self.registers, Signal(64)
        with m.State("greet"):
            fields = ((self._bytes, 16), (self._lanes, 8), (self._channels, 8), (self._words, 32))
            m.d.sync += [value.eq(Cat(*(Const(number, width) for number, width in fields))), length.eq(8)]
            m.next = "value"
        with m.State("read"):
            m.d.comb += bus.arvalid.eq(1)
            with m.If(bus.arready):
                m.next = "reading"
        with m.State("reading"):
            m.d.comb += bus.rready.eq(1)
            with m.If(bus.rvalid):
                m.d.sync += [value.eq(bus.rdata), length.eq(4)]
                m.next = "value"
                with m.If(bus.rresp[1]):
                    m.d.sync += [outcome.eq(Outcome.BUS), length.eq(0)]
                    m.next = "keep"
        with m.State("write"):  # the port takes both together
            m.d.comb += [bus.awvalid.eq(1), bus.wvalid.eq(1)]
            with m.If(bus.awready & bus.wready):
                m.next = "writing"
        with m.State("writing"):
            m.d.comb += bus.bready.eq(1)
            with m.If(bus.bvalid):
                m.next = "keep"
                with m.If(bus.bresp[1]):
                    m.d.sync += outcome.eq(Outcome.BUS)
        with m.State("value"):
            m.d.comb += [self._write.en.eq(1), self._write.data.eq(value[:8])]
            m.d.sync += [value.eq(value[8:]), at.eq(at + 1)]
            with m.If(at == length - 1):
                m.next = "keep"

    def _words_out(self, m: Module, at: Signal, length: Signal) -> None:
        """States that read words of DRAM into the answer."""
        with m.State("peek"):
            m.d.comb += self.memory.read.eq(1)
            with m.If(self.memory.ready):
                m.next = "peeked"
        with m.State("peeked"):
            m.d.sync += [self._word.eq(self.memory.answer), self._left.eq(self._left - 1)]
            m.d.sync += self.memory.address.eq(self.memory.address + 1)
            m.next = "unpack"
        with m.State("unpack"):
            m.d.comb += [self._write.en.eq(1), self._write.data.eq(self._word[:8])]
            m.d.sync += [self._word.eq(self._word >> 8), at.eq(at + 1), length.eq(length + 1)]
            m.d.sync += self._lane.eq(self._lane + 1)
            with m.If(self._lane == self._lanes - 1):
                m.d.sync += self._lane.eq(0)
                m.next = "peek"
                with m.If(self._left == 0):
                    m.next = "keep"

    def _words_in(self, m: Module, at: Signal, receiver: FrameReceiver) -> None:
        """States that write words of the request to DRAM."""
        with m.State("poke"):  # byte `at` is there in the next cycle
            m.d.sync += at.eq(at + 1)
            m.next = "pack"
        with m.State("pack"):
            m.d.sync += [self._word.eq(Cat(self._word[8:], receiver.data)), at.eq(at + 1)]
            m.d.sync += self._lane.eq(self._lane + 1)
            with m.If(self._lane == self._lanes - 1):
                m.d.sync += [self._lane.eq(0), at.eq(at), self._left.eq(self._left - 1)]
                m.next = "store"
        with m.State("store"):
            m.d.comb += self.memory.write.eq(1)
            with m.If(self.memory.ready):
                m.d.sync += [self.memory.address.eq(self.memory.address + 1), at.eq(at + 1)]
                m.next = "pack"
                with m.If(self._left == 0):
                    m.next = "keep"
