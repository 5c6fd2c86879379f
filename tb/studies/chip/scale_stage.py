"""The last stage of a drain or vector unit by itself: one multiplier for all lanes, or scales by lane."""

from __future__ import annotations

from typing import Literal

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring  # pyright: ignore[reportMissingTypeStubs]  (the stubs leave it out)
from amaranth.lib.wiring import In, Out

from meshloom.hw.core.requantiser import PRODUCT_BITS, requantise

#: What lanes have: the instruction's multiplier, with a power of two of their own, or a multiplier of their own.
By = Literal["instruction", "shift", "lane"]
#: Bits of a lane's power of two, which is the highest bits of its bias.
SHIFT_BITS = 2
_SCALE_BITS = 16


class ScaleStage(wiring.Component):  # pyright: ignore[reportMissingTypeArgument]  (there is none at run time)
    """Scales and rounds a word of sums each cycle: multiplied a cycle after they come, rounded one later.

    `constants`: a word of ACC for a block of channels, taken with `load` for the block that `swap` begins: biases with
    shifts in their highest bits, or multipliers. `scale`: the instruction's.
    """

    sums: Signal
    scale: Signal
    constants: Signal
    load: Signal
    swap: Signal
    relu: Signal
    clamp: Signal
    result: Signal

    def __init__(self, lanes: int, by: By) -> None:
        self._lanes, self._by = lanes, by
        super().__init__(  # pyright: ignore[reportUnknownMemberType]  (as the library has it)
            {
                "sums": In(32 * lanes), "scale": In(_SCALE_BITS), "constants": In(32 * lanes), "load": In(1),
                "swap": In(1), "relu": In(1), "clamp": In(7), "result": Out(8 * lanes),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        results: list[Signal] = []
        for lane in range(self._lanes):
            total, constant = self.sums.word_select(lane, 32).as_signed(), self.constants.word_select(lane, 32)
            bits = SHIFT_BITS if self._by == "shift" else _SCALE_BITS
            chosen = constant[32 - bits :] if self._by == "shift" else constant[:bits]
            following, own = Signal(bits, name=f"following_{lane}"), Signal(bits, name=f"own_{lane}")
            factor, product = Signal(signed(32), name=f"factor_{lane}"), Signal(signed(PRODUCT_BITS), name=f"p_{lane}")
            if self._by != "instruction":
                with m.If(self.load):
                    m.d.sync += following.eq(chosen)
                with m.If(self.swap):
                    m.d.sync += own.eq(Mux(self.load, chosen, following))
            m.d.comb += factor.eq(total << own if self._by == "shift" else total)
            m.d.sync += product.eq(factor * (own if self._by == "lane" else self.scale))
            results.append(requantise(m, Signal(init=1), product, self.relu, self.clamp))
        m.d.sync += self.result.eq(Cat(results))
        return m
