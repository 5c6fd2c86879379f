"""Transposes P x P bytes, one word in and one word out per cycle, group after group."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Transposer(wiring.Component):
    """A square of P x P byte registers that is filled alternately from below and from the right.

    In cycles with `step` it takes a word from `word` and releases the one on `result`; `turn` marks the last word of a
    group of P. Byte p of the k-th result of a group is byte k of the p-th word of the previous group. So latency is P
    steps and throughput one word a cycle. The initial contents are meaningless.

    One square of P^2 bytes that shifts in two directions takes half the registers of double buffering.
    """

    step: Signal
    turn: Signal
    word: Signal
    result: Signal

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        super().__init__({"step": In(1), "turn": In(1), "word": In(8 * lanes), "result": Out(8 * lanes)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self._lanes
        sideways = Signal()
        rows = [Signal(8 * lanes, name=f"row_{row}") for row in range(lanes)]
        m.d.comb += self.result.eq(Mux(sideways, Cat(row[:8] for row in rows), rows[0]))
        with m.If(self.step):
            m.d.sync += sideways.eq(sideways ^ self.turn)
            with m.If(sideways):  # results leave on the left, byte p of each from row p
                for index, row in enumerate(rows):
                    m.d.sync += row.eq(Cat(row[8:], self.word.word_select(index, 8)))
            with m.Else():  # results leave on top
                for row, below in zip(rows, [*rows[1:], self.word], strict=True):
                    m.d.sync += row.eq(below)
        return m
