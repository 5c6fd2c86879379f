"""Registers behind AXI4-Lite: how one is written and read.

One access of each kind at a time, answered in the next cycle. A write takes address and data together and has an effect
on the bytes that WSTRB names alone. What cannot be done is answered with SLVERR and changes nothing: an address where
no register is, or that is no multiple of 4, a register that is not written or not read, a value that does not
fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from ..spec.registers import Register
from ..wiring.axi import AXI4LitePort, Response

_BYTE = 8


@dataclass(frozen=True)
class WriteAccess:
    """A write, in the cycle in which it is `taken`. `value`: its bytes, 0 where it has none; `whole`: it has all of
    them. Who takes it sets `good` in that cycle."""

    taken: Signal
    value: Signal
    whole: Value
    good: Signal
    mask: Value

    def over(self, old: Signal) -> Value:
        """What a register that holds `old` would hold, as wide as the bus: bits past `old` are to be 0."""
        return (old & ~self.mask) | self.value


def serve_writes(m: Module, bus: AXI4LitePort, closed: Value) -> WriteAccess:
    """The write channels; responses come from `good`. While the bus is `closed` nothing is taken."""
    taken, good, value = Signal(), Signal(), Signal(len(bus.wdata))
    mask = Cat(*(strobe.replicate(_BYTE) for strobe in bus.wstrb))
    m.d.comb += [
        taken.eq(bus.awvalid & bus.wvalid & ~bus.bvalid & ~closed),
        bus.awready.eq(taken),
        bus.wready.eq(taken),
        value.eq(bus.wdata & mask),
    ]
    with m.If(bus.bvalid & bus.bready):
        m.d.sync += bus.bvalid.eq(0)
    with m.If(taken):
        m.d.sync += [bus.bvalid.eq(1), bus.bresp.eq(Mux(good, Response.OKAY, Response.SLVERR))]
    return WriteAccess(taken, value, bus.wstrb.all(), good, mask)


def serve_reads(
    m: Module, bus: AXI4LitePort, readable: Mapping[Register, Value | int], closed: Value
) -> dict[Register, Signal]:
    """The read channels. Returns for each register a strobe, set in the cycle in which it is read. While the bus is
    `closed` nothing is taken."""
    with m.If(bus.rvalid & bus.rready):
        m.d.sync += bus.rvalid.eq(0)
    m.d.comb += bus.arready.eq(~bus.rvalid & ~closed)
    strobes = {register: Signal(name=f"read_{register.name.lower()}") for register in readable}
    with m.If(bus.arvalid & bus.arready):
        m.d.sync += [bus.rvalid.eq(1), bus.rresp.eq(Response.OKAY)]
        with m.Switch(bus.araddr):
            for register, source in readable.items():
                with m.Case(int(register)):
                    m.d.sync += bus.rdata.eq(source)
                    m.d.comb += strobes[register].eq(1)
            with m.Default():
                m.d.sync += [bus.rdata.eq(0), bus.rresp.eq(Response.SLVERR)]
    return strobes
