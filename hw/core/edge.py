"""The edges of the array: words from memory become one operand a cycle for each row or column, skewed."""

from __future__ import annotations

from amaranth.hdl import Cat, Elaboratable, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Skew(wiring.Component):
    """The control of both edges, which travels from lane to lane as the operands do.

    `window` marks the cycle after the first operand address of a window, `phase` is that cycle's number in the window,
    `active` says that the cycle belongs to a window. `load[i]` follows `window` by i cycles: lane i takes its word.
    `index` holds for each lane the byte it plays, `playing` is high while any lane plays.
    """

    active: Signal
    window: Signal
    phase: Signal
    load: Signal
    index: Signal
    playing: Signal

    def __init__(self, lanes: int, count: int) -> None:
        self._bits, self._count = (lanes - 1).bit_length(), count
        super().__init__(
            {
                "active": In(1),
                "window": In(1),
                "phase": In(self._bits),
                "load": Out(count),
                "index": Out(self._bits * count),
                "playing": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        load_later = Signal(self._count)
        valid = Signal(self._count)
        m.d.comb += self.load.eq(Cat(self.window, load_later))
        m.d.sync += [load_later.eq(Cat(self.window, load_later)), valid.eq(Cat(self.active, valid))]
        m.d.comb += self.playing.eq(valid.any())
        with m.If(self.active | self.playing):
            m.d.sync += self.index.eq(Cat(self.phase, self.index))
        return m


class OperandEdge(wiring.Component):
    """`count` lanes, each with the word it plays. Contract: a lane's word is on `word` with its `load`; its byte l
    (the l-th lowest) is on `operand` two cycles later plus l. `zero` replaces the word by zeros.
    """

    word: Signal
    zero: Signal
    load: Signal
    index: Signal
    playing: Signal
    operand: list[Signal]

    def __init__(self, lanes: int, count: int) -> None:
        self._lanes, self._count = lanes, count
        self._bits = (lanes - 1).bit_length()
        super().__init__(
            {
                "word": In(8 * lanes),
                "zero": In(1),
                "load": In(count),
                "index": In(self._bits * count),
                "playing": In(1),
                "operand": Out(signed(8)).array(count),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        taken = Signal(8 * self._lanes)
        with m.If(~self.zero):
            m.d.comb += taken.eq(self.word)
        held = [Signal(8 * self._lanes, name=f"held_{lane}", reset_less=True) for lane in range(self._count)]
        with m.If(self.playing):
            for lane in range(self._count):
                index = self.index.word_select(lane, self._bits)
                m.d.sync += self.operand[lane].eq(held[lane].word_select(index, 8))
        for lane in range(self._count):
            with m.If(self.load[lane]):
                m.d.sync += held[lane].eq(taken)
        return m
