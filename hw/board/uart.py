"""A UART: 8 data bits, no parity, one stop bit, lowest bit first. PyPI has no `amaranth-stdio`."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

#: Cycles of a bit at least: a receiver needs a middle to sample at.
LEAST_DIVISOR = 4


class Receiver(wiring.Component):
    """Bytes from `pin`, `divisor` cycles for each bit. A byte is offered in one cycle, about half a bit after its stop
    bit began, and gone if it is not taken; one whose stop bit is 0 is dropped. Raises ValueError."""

    pin: Signal
    output: stream.Interface

    def __init__(self, divisor: int) -> None:
        if divisor < LEAST_DIVISOR:
            raise ValueError(f"divisor = {divisor}: a UART needs at least {LEAST_DIVISOR} cycles for a bit")
        self._divisor = divisor
        super().__init__({"pin": In(1), "output": Out(stream.Signature(8, always_ready=True))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pin = Signal(init=1)
        m.submodules.pin = FFSynchronizer(self.pin, pin, init=1)
        left, bits, shift = Signal(range(2 * self._divisor)), Signal(range(11)), Signal(9)
        m.d.sync += self.output.valid.eq(0)
        m.d.comb += self.output.payload.eq(shift[:8])
        with m.If(bits == 0):
            with m.If(~pin):  # the start bit; the middle of the first data bit is one and a half bits away
                m.d.sync += [bits.eq(9), left.eq(self._divisor + self._divisor // 2 - 1)]
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.Else():
            m.d.sync += [shift.eq(Cat(shift[1:], pin)), bits.eq(bits - 1), left.eq(self._divisor - 1)]
            with m.If(bits == 1):  # the stop bit: the data bits have moved to the end
                m.d.sync += [self.output.valid.eq(pin), shift.eq(shift[1:])]
        return m


class Transmitter(wiring.Component):
    """Bytes to `pin`; takes one every 10 bits. Raises ValueError."""

    pin: Signal
    input: stream.Interface

    def __init__(self, divisor: int) -> None:
        if divisor < LEAST_DIVISOR:
            raise ValueError(f"divisor = {divisor}: a UART needs at least {LEAST_DIVISOR} cycles for a bit")
        self._divisor = divisor
        super().__init__({"pin": Out(1), "input": In(stream.Signature(8))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left, bits, shift = Signal(range(self._divisor)), Signal(range(11)), Signal(9, init=0x1FF)
        pin = Signal(init=1)
        m.d.comb += [self.input.ready.eq(bits == 0), self.pin.eq(pin)]
        with m.If(bits == 0):
            m.d.sync += pin.eq(1)
            with m.If(self.input.valid):
                m.d.sync += [pin.eq(0), shift.eq(Cat(self.input.payload, 1))]
                m.d.sync += [bits.eq(10), left.eq(self._divisor - 1)]
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.Else():
            m.d.sync += [pin.eq(shift[0]), shift.eq(Cat(shift[1:], 1))]
            m.d.sync += [bits.eq(bits - 1), left.eq(self._divisor - 1)]
        return m
