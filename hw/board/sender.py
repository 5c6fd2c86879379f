"""Answers to a line: a header and a memory's bytes in, a frame out."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .crc import crc_in
from .frames import CRC_BYTES, ESCAPE, FLAG, FLIP

#: `frames.HEADER`.
Header = data.StructLayout({"version": 8, "kind": 8, "session": 16, "number": 8, "outcome": 8, "length": 16})
HEADER_BYTES = 8


class FrameSender(wiring.Component):
    """Sends `header` and `length` bytes of data as a frame, from the cycle after `start` on; `busy` until its last flag
    is taken. Byte `address` of the data stands at `data` a cycle after `address`. A byte goes out at most every third
    cycle, so a frame of n bytes takes 3 n + 14 cycles or so on a line that takes them, and another for each byte that
    is escaped.
    """

    output: stream.Interface
    start: Signal
    busy: Signal
    header: data.View
    address: Signal
    data: Signal

    def __init__(self, data_bytes: int) -> None:
        super().__init__(
            {
                "output": Out(stream.Signature(8)),
                "start": In(1),
                "busy": Out(1),
                "header": In(Header),
                "address": Out(range(data_bytes)),
                "data": In(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        crc = crc_in(m)
        shift = Signal(8 * HEADER_BYTES)  # the header, then the CRC
        left = Signal(16)
        escaped = Signal()  # the next byte is the second of an escaped one
        byte, special, sent = Signal(8), Signal(), Signal()
        answered = Signal(8)  # what the memory said: that is late in a cycle
        header = Signal(8 * HEADER_BYTES)
        m.d.comb += [
            header.eq(self.header),
            special.eq((byte == FLAG) | (byte == ESCAPE)),
            sent.eq(self.output.valid & self.output.ready & (~special | escaped)),
            crc.data.eq(byte),
        ]

        def send(value: Value) -> None:
            """Offers a byte of the content; `sent` once it has gone, escape and all."""
            m.d.comb += [
                byte.eq(value),
                self.output.valid.eq(1),
                self.output.payload.eq(Mux(special, Mux(escaped, byte ^ FLIP, ESCAPE), byte)),
            ]
            with m.If(self.output.ready):
                m.d.sync += escaped.eq(special & ~escaped)

        with m.FSM() as machine:
            with m.State("idle"):
                m.d.comb += crc.start.eq(1)
                m.d.sync += shift.eq(header)
                with m.If(self.start):
                    m.next = "begin"
            with m.State("begin"):
                m.d.comb += [self.output.valid.eq(1), self.output.payload.eq(FLAG)]
                m.d.sync += [left.eq(HEADER_BYTES - 1), self.address.eq(0)]
                with m.If(self.output.ready):
                    m.next = "header"
            with m.State("header"):
                send(shift[:8])
                m.d.comb += crc.valid.eq(sent)
                with m.If(sent):
                    m.d.sync += [shift.eq(Cat(shift[8:], shift[:8])), left.eq(left - 1)]
                    with m.If(left == 0):
                        m.d.sync += left.eq(self.header.length)
                        m.next = "fetch"
            with m.State("fetch"):  # the memory answers a cycle later
                with m.If(left == 0):
                    m.next = "sum"
                with m.Else():
                    m.next = "load"
            with m.State("load"):
                m.d.sync += answered.eq(self.data)
                m.next = "data"
            with m.State("data"):
                send(answered)
                m.d.comb += crc.valid.eq(sent)
                with m.If(sent):
                    m.d.sync += [left.eq(left - 1), self.address.eq(self.address + 1)]
                    m.next = "fetch"
            with m.State("sum"):
                m.d.sync += [shift.eq(crc.crc), left.eq(CRC_BYTES - 1)]
                m.next = "crc"
            with m.State("crc"):
                send(shift[:8])
                with m.If(sent):
                    m.d.sync += [shift.eq(shift[8:]), left.eq(left - 1)]
                    with m.If(left == 0):
                        m.next = "end"
            with m.State("end"):
                m.d.comb += [self.output.valid.eq(1), self.output.payload.eq(FLAG)]
                with m.If(self.output.ready):
                    m.next = "idle"
        m.d.comb += self.busy.eq(~machine.ongoing("idle"))
        return m
