"""Counters that the host reads while the chip runs (`ChipConfig.counters`): a link in each tile, a reader in the host.

A snapshot is of one counter (`registers.Counted`) in all tiles, in one cycle. The links of all tiles then hand their
counts on, one after another as a shift register of `COUNT_WIRES` bits a cycle, towards the host, which keeps them until
they are read. Nothing else in the chip takes notice of it, so whatever runs there runs as if nobody read.

The links cost one register and the choice of a counter in each tile, and `COUNT_WIRES` wires between neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..spec.contracts import COUNT_BITS, COUNT_WIRES
from ..spec.registers import COUNT, Counted

#: What the reader tells all links: take the counter `which` (`sample`), or hand on `COUNT_WIRES` bits (`shift`).
Ask = data.StructLayout({"sample": 1, "shift": 1, "which": COUNT.bits("which")})
#: Cycles in which a count is handed on.
_STEPS = COUNT_BITS // COUNT_WIRES


class CounterLink(wiring.Component):
    """A tile's link, with the counters `count_<name>` that its kind has; the others are 0.

    With `ask.sample` in cycle t it takes what the counter shows in cycle t; its lowest bits are on `out` from t + 1.
    With `ask.shift` the next bits are there a cycle later, and behind its own those that come `into` it from the tile
    behind. In cycles without `active` no register changes.
    """

    ask: data.View  # Ask
    into: Signal
    out: Signal
    active: Signal

    def __init__(self, counted: Sequence[Counted]) -> None:
        self.counted = tuple(counted)
        super().__init__(
            {f"count_{one.name.lower()}": In(COUNT_BITS) for one in self.counted}
            | {"ask": In(Ask), "into": In(COUNT_WIRES), "out": Out(COUNT_WIRES), "active": Out(1)}
        )

    def count(self, one: Counted) -> Signal:
        """Port `count_<name>`."""
        return getattr(self, f"count_{one.name.lower()}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal(COUNT_BITS)
        m.d.comb += [self.out.eq(held[:COUNT_WIRES]), self.active.eq(self.ask.sample | self.ask.shift)]
        with m.If(self.ask.sample):
            with m.Switch(self.ask.which):
                for one in self.counted:
                    with m.Case(int(one)):
                        m.d.sync += held.eq(self.count(one))
                with m.Default():
                    m.d.sync += held.eq(0)
        with m.Elif(self.ask.shift):
            m.d.sync += held.eq(Cat(held[COUNT_WIRES:], self.into))
        return m


class CounterReader(wiring.Component):
    """The host's end: takes snapshots and keeps the last of them.

    `take` in cycle t, if it is `ready`: the links take the counter `which` in cycle t + 1, the number (`now`) of which
    is `cycle` from the next on; it is `ready` again in cycle t + `contracts.count_cycles`. Otherwise `take` does
    nothing. `arriving`: `out` of the first link of the chain. `value` is the first of `left` counts that have not been
    read, 0 if there is none, from the cycle after that in which it is `ready`; `next_one` goes on to the next, whose
    `value` is there two cycles later.
    """

    now: Signal
    take: Signal
    which: Signal
    arriving: Signal
    next_one: Signal
    ask: data.View  # Ask
    ready: Signal
    cycle: Signal
    value: Signal
    left: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.tiles = len(config.tiles)
        which = COUNT.bits("which")
        super().__init__(
            {"now": In(32), "take": In(1), "which": In(which), "arriving": In(COUNT_WIRES), "next_one": In(1)}
            | {"ask": Out(Ask), "ready": Out(1), "cycle": Out(32), "value": Out(COUNT_BITS)}
            | {"left": Out(COUNT.bits("left"))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.counts = counts = memory.Memory(shape=COUNT_BITS, depth=self.tiles, init=[])
        write, read = counts.write_port(), counts.read_port()
        to_come = Signal(range(_STEPS * self.tiles + 1))  # cycles in which bits arrive
        step = Signal(range(_STEPS))
        got = Signal(range(self.tiles + 1))
        done = Signal(range(self.tiles + 1))
        bits = Signal(COUNT_BITS - COUNT_WIRES)
        m.d.comb += [
            self.ready.eq(~self.ask.sample & (to_come == 0)),
            self.ask.shift.eq(to_come != 0),
            self.left.eq(got - done),
            write.en.eq(self.ask.shift & (step == _STEPS - 1)),
            write.addr.eq(got),
            write.data.eq(Cat(bits, self.arriving)),
            read.addr.eq(done),
        ]
        with m.If(self.left != 0):
            m.d.comb += self.value.eq(read.data)
        m.d.sync += self.ask.sample.eq(self.take & self.ready)
        with m.If(self.take & self.ready):
            m.d.sync += [self.ask.which.eq(self.which), got.eq(0), done.eq(0)]
        with m.Elif(self.next_one & (self.left != 0)):
            m.d.sync += done.eq(done + 1)
        with m.If(self.ask.sample):
            m.d.sync += [self.cycle.eq(self.now), to_come.eq(_STEPS * self.tiles), step.eq(0)]
        with m.If(self.ask.shift):
            m.d.sync += [to_come.eq(to_come - 1), step.eq(step + 1), bits.eq(Cat(bits[COUNT_WIRES:], self.arriving))]
            with m.If(write.en):
                m.d.sync += got.eq(got + 1)
        return m
