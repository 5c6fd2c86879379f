"""The edges of the array: they turn words from memory into one skewed operand a cycle for each row or column."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

#: Registers of a lane of an edge for `int4` weights, and their bits.
_WEIGHT_STATE = (("int4", 1), ("high", 1), ("scales", 8))


class Skew(wiring.Component):
    """The control of both edges, which travels from lane to lane as the operands do.

    `window` marks the cycle after the first operand address of a window, `phase` is the index of that cycle within the
    window, and `active` is set if the cycle belongs to a window. `load[i]` follows `window` by i cycles: lane i loads
    its word. `index` holds for each lane the byte that it plays; `playing` is set while any lane plays.
    """

    active: Signal
    window: Signal
    phase: Signal
    load: Signal
    index: Signal
    playing: Signal

    def __init__(self, lanes: int, count: int) -> None:
        self._lanes, self._count = lanes, count
        super().__init__(
            {
                "active": In(1),
                "window": In(1),
                "phase": In((lanes - 1).bit_length()),
                "load": Out(count),
                "index": Out(index_bits(lanes) * count),
                "playing": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        load_later = Signal(self._count)
        valid = Signal(self._count)
        m.d.comb += self.load.eq(Cat(self.window, load_later))
        m.d.sync += [load_later.eq(Cat(self.window, load_later)), valid.eq(Cat(self.active, valid))]
        m.d.comb += self.playing.eq(valid.any())
        phase = Signal(index_bits(self._lanes))
        m.d.comb += phase.eq(self.phase)
        with m.If(self.active | self.playing):
            m.d.sync += self.index.eq(Cat(phase, self.index))
        return m


class OperandEdge(wiring.Component):
    """`count` lanes, each with the word that it plays. Contract: a lane's word is on `word` in the cycle of its `load`;
    byte l of that word (the l-th lowest) is on `operand` two cycles later plus l. `zero` replaces the word by zeros.
    `ahead`: operands are there a cycle earlier, before the register that they otherwise come from.

    An edge for `int4` weights has three more inputs, read with each `load`: with `int4` a lane plays four bits of each
    byte, times the same four bits of its byte of `scales` (`hw.spec.isa.INT4_SCALES`): the low ones or, with `high`,
    the high ones of the word that it holds already.
    """

    word: Signal
    zero: Signal
    load: Signal
    index: Signal
    playing: Signal
    operand: list[Signal]
    int4: Signal
    high: Signal
    scales: Signal

    def __init__(self, lanes: int, count: int, ahead: bool, int4: bool = False) -> None:
        self._lanes, self._count, self._ahead, self._int4 = lanes, count, ahead, int4
        super().__init__(
            {
                "word": In(8 * lanes),
                "zero": In(1),
                "load": In(count),
                "index": In(index_bits(lanes) * count),
                "playing": In(1),
                "operand": Out(signed(8)).array(count),
            }
            | ({"int4": In(1), "high": In(1), "scales": In(8 * count)} if int4 else {})
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        taken = Signal(8 * self._lanes)
        with m.If(~self.zero):
            m.d.comb += taken.eq(self.word)
        # A word is held in parts of at most eight bytes: first a part is selected, then a byte of it.
        width = min(8 * self._lanes, 64)
        parts = 8 * self._lanes // width
        low = (width // 8).bit_length() - 1
        for lane in range(self._count):
            held = [Signal(width, name=f"held_{lane:02}_{part}", reset_less=True) for part in range(parts)]
            with m.If(self.load[lane] & ~self.high if self._int4 else self.load[lane]):
                m.d.sync += [part.eq(taken.word_select(at, width)) for at, part in enumerate(held)]
            index = self.index.word_select(lane, index_bits(self._lanes))
            part = choose(index[low : (self._lanes - 1).bit_length()], held)
            played = part.word_select(index[:low], 8)
            if self._int4:
                played = self._weight(m, lane, played)
            if self._ahead:
                m.d.comb += self.operand[lane].eq(played)
                continue
            with m.If(self.playing):
                m.d.sync += self.operand[lane].eq(played)
        return m

    def _weight(self, m: Module, lane: int, byte: Value) -> Value:
        """What a lane plays of a byte of its word."""
        int4, high, scales = (Signal(width, name=f"{name}_{lane:02}", reset_less=True) for name, width in _WEIGHT_STATE)
        with m.If(self.load[lane]):
            m.d.sync += [int4.eq(self.int4), high.eq(self.high), scales.eq(self.scales.word_select(lane, 8))]
        weight, scale = (Mux(high, both[4:], both[:4]) for both in (byte, scales))
        return Mux(int4, weight.as_signed() * scale, byte.as_signed())


def index_bits(lanes: int) -> int:
    """Bits of one lane's index in `Skew.index`. No more than it needs: Yosys takes a constant bit out of a shift
    register one stage a round, and with 128 stages that is most of the time it needs for a core."""
    return (lanes - 1).bit_length()


def choose(index: Value, values: Sequence[Value]) -> Value:
    """values[index] as a balanced tree of multiplexers; an index past the end selects an arbitrary value."""
    level = list(values)
    for bit in index:
        pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
        level = [Mux(bit, pair[1], pair[0]) if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0]
