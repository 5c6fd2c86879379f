"""The array with its edges: words from memory in, rows of finished sums out."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, ClockSignal, Instance, Module, ResetSignal, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from . import array_loops
from .array import ArrayForm, SystolicArray
from .edge import OperandEdge, Skew


class FedArray(wiring.Component):
    """`Skew`, an `OperandEdge` for the rows (operand a) and one for the columns (b), and the `SystolicArray`.

    - `window`, `phase`, `active`: see `Skew`. Lane i takes the words that are on `a_word` and `b_word` i cycles after
      `window`; `a_zero` replaces a's by zeros.
    - `int4`, `high`, in chips with `core.int4`: see `OperandEdge`, of the window that `window` began. `scales`: what is
      on `b_word` are the scales of the windows that begin in the next cycles.
    - `valid`, `first`, `done`, `row`, `result`: see `SystolicArray`, whose corner has its first operand two cycles
      after `window`, and its first product at the accumulator then, too. With `product_register` the operand is there
      a cycle earlier, and the product is not.

    Latency and throughput are those of its parts.
    """

    a_word: Signal
    b_word: Signal
    a_zero: Signal
    window: Signal
    phase: Signal
    active: Signal
    valid: Signal
    first: Signal
    done: Signal
    row: Signal
    int4: Signal
    high: Signal
    scales: Signal
    result: list[Signal]

    def __init__(self, config: ChipConfig, form: ArrayForm = ArrayForm.SUBMODULES) -> None:
        self._config, self._form = config, form
        super().__init__(
            {
                "a_word": In(config.word_bits),
                "b_word": In(config.word_bits),
                "a_zero": In(1),
                "window": In(1),
                "phase": In((config.lanes - 1).bit_length()),
                "active": In(1),
                "valid": In(1),
                "first": In(1),
                "done": In(1),
                "row": In(range(config.rows)),
                "result": Out(signed(32)).array(config.cols),
            }
            | ({"int4": In(1), "high": In(1), "scales": In(1)} if config.core.int4 else {})
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self._form is ArrayForm.LOOPS:
            m.submodules.loops = self._loops()
            return m
        config = self._config
        m.submodules.skew = skew = Skew(config.lanes, max(config.rows, config.cols))
        ahead = config.product_register
        m.submodules.a_edge = a_edge = OperandEdge(config.lanes, config.rows, ahead)
        m.submodules.b_edge = b_edge = OperandEdge(config.lanes, config.cols, ahead, config.core.int4)
        m.submodules.array = array = SystolicArray(config, self._form)
        m.d.comb += [
            skew.window.eq(self.window),
            skew.phase.eq(self.phase),
            skew.active.eq(self.active),
            a_edge.zero.eq(self.a_zero),
        ]
        if config.core.int4:
            scales = Signal(8 * config.cols, reset_less=True)
            with m.If(self.scales):
                m.d.sync += scales.eq(self.b_word)
            m.d.comb += [b_edge.int4.eq(self.int4), b_edge.high.eq(self.high), b_edge.scales.eq(scales)]
        for edge, word, into in ((a_edge, self.a_word, array.a), (b_edge, self.b_word, array.b)):
            m.d.comb += [
                edge.word.eq(word),
                edge.load.eq(skew.load),
                edge.index.eq(skew.index),
                edge.playing.eq(skew.playing),
                *(operand.eq(played) for operand, played in zip(into, edge.operand, strict=True)),
            ]
        m.d.comb += [
            array.valid.eq(self.valid),
            array.first.eq(self.first),
            array.done.eq(self.done),
            array.row.eq(self.row),
            *(out.eq(found) for out, found in zip(self.result, array.result, strict=True)),
        ]
        return m

    def _loops(self) -> Instance:
        """An instance of the module that `array_loops` writes."""
        pins: dict[str, Any] = {f"i_{name}": getattr(self, name) for name in array_loops.inputs(self._config)}
        return Instance(
            array_loops.module_name(self._config),
            i_clk=ClockSignal(),
            i_rst=ResetSignal(),
            **pins,
            o_result=Cat(*self.result),
        )
