"""Quotients of one number and the sum of each lane, or the root of the sum: a bit a cycle, all lanes at once."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..spec.contracts import QUOTIENT_STEPS, ROOT_STEPS
from ..spec.isa import MOST_QUOTIENT, ROOT_SHIFT

#: Steps of a root that find bits of the sum; the others find zeros.
_PAIRS = ROOT_STEPS - ROOT_SHIFT // 2


class Divider(wiring.Component):
    """`min(MOST_QUOTIENT, floor(scale * 2**DIVIDEND_SHIFT / d))` for each lane, where d is the lane's sum or, with
    `root`, `floor(sqrt(sum * 2**ROOT_SHIFT))`. MOST_QUOTIENT for sums that are not above 0.

    Digit by digit, restoring; root and quotient share the remainder and its subtraction.

    - `start`: strobe. `sums` (int32) hold still from this cycle on until the quotients are there, `scale` and `root`
      are taken in it.
    - `quotients`: valid `QUOTIENT_STEPS` + 1 cycles later, with a root `ROOT_STEPS` more, until the next `start`.
    - `busy`: it divides. In cycles without `busy` and `start` no register changes.
    """

    start: Signal
    root: Signal
    scale: Signal
    sums: Signal
    quotients: Signal
    busy: Signal

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        super().__init__(
            {
                "start": In(1),
                "root": In(1),
                "scale": In(16),
                "sums": In(32 * lanes),
                "quotients": Out(16 * lanes),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        draws = Signal()  # a step of the root, otherwise of the quotient
        rooted = Signal()
        left = Signal(range(max(ROOT_STEPS, QUOTIENT_STEPS)))  # steps of this part after this one
        dividend = Signal(16)
        drawn = Signal()  # this is the last step of the root
        place = Signal(range(_PAIRS))
        m.d.comb += [drawn.eq(draws & (left == 0)), place.eq(left - ROOT_SHIFT // 2)]
        with m.If(self.busy):
            m.d.sync += left.eq(left - 1)
            with m.If(drawn):
                m.d.sync += [draws.eq(0), left.eq(QUOTIENT_STEPS - 1)]
            with m.Elif(~draws):
                m.d.sync += dividend.eq(dividend << 1)
                with m.If(left == 0):
                    m.d.sync += self.busy.eq(0)
        with m.If(self.start):
            m.d.sync += [
                self.busy.eq(1),
                draws.eq(self.root),
                rooted.eq(self.root),
                left.eq(Mux(self.root, ROOT_STEPS, QUOTIENT_STEPS) - 1),
                dividend.eq(self.scale),
            ]
        for lane in range(self._lanes):
            total = Signal(32, name=f"total_{lane}")
            m.d.comb += total.eq(Mux(self.sums.word_select(lane, 32)[31], 0, self.sums.word_select(lane, 32)))
            rest = Signal(32, name=f"rest_{lane}", reset_less=True)
            root = Signal(ROOT_STEPS, name=f"root_{lane}", reset_less=True)
            digits = Signal(16, name=f"digits_{lane}", reset_less=True)
            past = Signal(name=f"past_{lane}", reset_less=True)  # the quotient has more than 16 bits
            more = Signal(34, name=f"more_{lane}")
            less = Signal(32, name=f"less_{lane}")
            fits = Signal(name=f"fits_{lane}")
            bits = Mux(left >= ROOT_SHIFT // 2, total.word_select(place, 2), 0)
            m.d.comb += [
                more.eq(Mux(draws, Cat(bits, rest), Cat(dividend[15], rest))),
                less.eq(Mux(draws, Cat(1, 0, root), Mux(rooted, root, total))),
                fits.eq(more >= less),
                self.quotients.word_select(lane, 16).eq(Mux(past, MOST_QUOTIENT, digits)),
            ]
            with m.If(self.busy):
                m.d.sync += rest.eq(Mux(drawn, 0, Mux(fits, more - less, more)))
                with m.If(draws):
                    m.d.sync += root.eq(Cat(fits, root))
                with m.Else():
                    m.d.sync += [digits.eq(Cat(fits, digits)), past.eq(past | digits[15])]
            with m.If(self.start):
                m.d.sync += [rest.eq(0), root.eq(0), digits.eq(0), past.eq(0)]
        return m
