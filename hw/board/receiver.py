"""Requests from a line: bytes in, whole frames out."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .crc import crc_in
from .frames import CRC_BYTES, ESCAPE, FLAG, FLIP, HEAD_BYTES

#: Header and arguments of a request, lowest byte first (`frames.HEADER`, `frames.ARGUMENTS`).
Head = data.StructLayout(
    {"version": 8, "kind": 8, "session": 16, "number": 8, "outcome": 8, "length": 16, "place": 32, "value": 32}
)
HEADER_BYTES = 8


class FrameReceiver(wiring.Component):
    """Bytes of a line (`frames`) become requests of up to `data_bytes` bytes of data.

    A frame is there (`valid`) from the second cycle after its last flag until `done`; its CRC and its length are right.
    `data` is byte `address` of its data, a cycle after `address`. Bytes that come meanwhile are dropped up to a flag:
    the host does not send any before it has an answer, unless it asks again. A byte is taken in every cycle.
    """

    input: stream.Interface
    valid: Signal
    done: Signal
    head: data.View
    size: Signal  #: bytes of data
    address: Signal
    data: Signal

    def __init__(self, data_bytes: int) -> None:
        self._bytes = data_bytes
        super().__init__(
            {
                "input": In(stream.Signature(8, always_ready=True)),
                "valid": Out(1),
                "done": In(1),
                "head": Out(Head),
                "size": Out(range(data_bytes + 1)),
                "address": In(range(data_bytes)),
                "data": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        crc = crc_in(m)
        m.submodules.bytes = words = memory.Memory(shape=8, depth=self._bytes + CRC_BYTES, init=[])
        write, read = words.write_port(), words.read_port()
        most = HEAD_BYTES + self._bytes + CRC_BYTES
        count = Signal(range(most + 2))  # one more: too long
        escaped, skipping, ended = Signal(), Signal(init=1), Signal()
        byte, taken = Signal(8), Signal()
        head = Signal(8 * HEAD_BYTES)
        m.d.comb += [
            byte.eq(self.input.payload ^ (escaped << (FLIP.bit_length() - 1))),
            taken.eq(self.input.valid & (self.input.payload != FLAG) & (self.input.payload != ESCAPE) & ~skipping),
            crc.data.eq(byte),
            crc.valid.eq(taken),
            write.addr.eq(count - HEAD_BYTES),
            write.data.eq(byte),
            write.en.eq(taken & (count >= HEAD_BYTES) & (count < most)),
            read.addr.eq(self.address),
            self.data.eq(read.data),
            self.head.eq(head),
        ]
        body = HEADER_BYTES + CRC_BYTES
        with m.If(taken):
            m.d.sync += escaped.eq(0)
            with m.If(count < HEAD_BYTES):
                m.d.sync += head.eq(Cat(head[8:], byte))
            with m.If(count <= most):
                m.d.sync += count.eq(count + 1)
        with m.If(self.input.valid & (self.input.payload == ESCAPE)):
            m.d.sync += escaped.eq(1)
        with m.If(self.input.valid & (self.input.payload == FLAG)):
            m.d.sync += [escaped.eq(0), skipping.eq(self.valid | ended)]
            with m.If(~skipping & (count >= HEAD_BYTES + CRC_BYTES) & (count <= most) & ~escaped):
                m.d.sync += [ended.eq(1), skipping.eq(1)]
            with m.Elif(~(self.valid | ended)):
                m.d.sync += count.eq(0)
                m.d.comb += crc.start.eq(1)
        with m.If(ended):  # the CRC of the last byte is there now
            m.d.sync += ended.eq(0)
            with m.If(crc.match_detected & (self.head.length + body == count)):
                m.d.sync += [self.valid.eq(1), self.size.eq(count - HEAD_BYTES - CRC_BYTES)]
            with m.Else():
                m.d.sync += [count.eq(0), skipping.eq(0)]
                m.d.comb += crc.start.eq(1)
        with m.If(self.valid & self.done):
            # what came meanwhile is dropped up to the next flag, of which there may have been half a frame since
            m.d.sync += [self.valid.eq(0), count.eq(0), skipping.eq(1)]
            m.d.comb += crc.start.eq(1)
        return m
