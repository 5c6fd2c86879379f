"""Trace memory and cycle counters of a tile; MOVEs read both.

One record per cycle is taken, lower-numbered ports first, until the memory is full; later ones are counted and
dropped. Records are stored oldest first from word 0 of region TRACE. Region STATS holds the `Counter`s as little-endian
32-bit numbers, P / 4 to a word (P is at least 4), the first one lowest; the rest of the last word is 0.

With `trace_records` = 0 there is no region TRACE, all of STATS is 0, and records are taken and dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import TRACE_BYTES, ChipConfig
from ..spec.isa import ADDRESS, Region
from ..wiring.link_counters import OUTPUTS
from ..wiring.signatures import TraceRecord


class Counter(IntEnum):
    """The counters of region STATS, in cycles unless stated otherwise."""

    RECORDS = 0  #: trace records offered (including dropped ones)
    MOVER_WAIT = 1  #: the mover's stream waits for a semaphore or a fire time
    MOVER_BLOCKED = 2  #: the mover's stream has an instruction ready, the mover is not
    MOVER_BUSY = 3  #: the mover sends a MOVE (stalls included)
    NET_STALL = 4  #: ... and the NoC does not take the flit
    MEM_STALL = 5  #: ... and the memory has no word yet
    MATRIX_WAIT = 6
    MATRIX_BLOCKED = 7
    MATRIX_READING = 8  #: operands are fed to the array
    VECTOR_WAIT = 9
    VECTOR_BLOCKED = 10
    VECTOR_READING = 11  #: the vector unit walks over its operands
    BUSY_NORTH = 12  #: a flit of the data plane leaves the tile's router northwards
    BUSY_EAST = 13
    BUSY_SOUTH = 14
    BUSY_WEST = 15
    BUSY_LOCAL = 16  #: ... into the tile
    BLOCKED_NORTH = 17  #: a flit of the data plane is waiting to leave northwards, and none does
    BLOCKED_EAST = 18
    BLOCKED_SOUTH = 19
    BLOCKED_WEST = 20
    BLOCKED_LOCAL = 21
    CORRECTED = 22  #: words whose wrong bit the code has corrected (`control.error_watch`); chips with `ecc` only


#: Counters that the mover drives by strobes; the others are totals kept by the units that count them.
STROBED = (Counter.MOVER_BUSY, Counter.NET_STALL, Counter.MEM_STALL)
TOTALS = tuple(counter for counter in Counter if counter is not Counter.RECORDS and counter not in STROBED)


def counters_of(config: ChipConfig) -> tuple[Counter, ...]:
    """The counters that the tiles of a chip have."""
    return tuple(counter for counter in Counter if config.ecc or counter is not Counter.CORRECTED)


#: Counters of links, in the order of `link_counters.OUTPUTS`.
LINK_BUSY = tuple(Counter[f"BUSY_{port.upper()}"] for port in OUTPUTS)
LINK_BLOCKED = tuple(Counter[f"BLOCKED_{port.upper()}"] for port in OUTPUTS)


class Trace(wiring.Component):
    """Records enter through `record_0`..., while `enable` is set; `read` answers one cycle later.

    `count` has a strobe for each of `STROBED`, whose numbers are `counts`; `total_<name>` takes the value of each of
    `TOTALS`. In cycles without `active` no register changes.
    """

    enable: Signal
    count: Signal
    active: Signal
    counts: data.View
    read: data.View
    read_data: Signal

    def __init__(self, config: ChipConfig, ports: int) -> None:
        self.config, self.ports = config, ports
        super().__init__(
            {f"record_{i}": In(stream.Signature(TraceRecord)) for i in range(ports)}
            | {
                "enable": In(1),
                "count": In(len(STROBED)),
                "active": Out(1),
                "counts": Out(data.ArrayLayout(32, len(STROBED))),
                "read": In(data.StructLayout({"valid": 1, **ADDRESS.members("region", "offset")})),
                "read_data": Out(config.word_bits),
            }
            | {f"total_{counter.name.lower()}": In(32) for counter in counters_of(config) if counter in TOTALS}
        )

    def total(self, counter: Counter) -> Signal:
        """Port `total_<name>` of one of `TOTALS`."""
        return getattr(self, f"total_{counter.name.lower()}")

    def record(self, port: int) -> stream.Interface:
        """Stream `record_<port>`."""
        return getattr(self, f"record_{port}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        if not config.trace_records:
            return self._counts_only(m)
        words, depth = config.trace_words, config.trace_records
        slot = max(8 * TRACE_BYTES, config.word_bits)
        m.submodules.records = records = memory.Memory(shape=slot, depth=depth, init=[])
        write, read = records.write_port(), records.read_port()
        full = Signal(range(depth + 1))

        counters = [
            self.total(counter) if counter in TOTALS else Signal(32, name=f"counter_{counter.name.lower()}")
            for counter in counters_of(config)
        ]
        self._count(m, [counters[counter] for counter in STROBED])
        offered = [self.record(i).valid for i in range(self.ports)]
        m.d.comb += self.active.eq(Cat(offered, self.count, self.read.valid).any())

        chosen = 0
        for i in range(self.ports):
            port = self.record(i)
            m.d.comb += port.ready.eq(~chosen if i else 1)
            with m.If(port.valid & port.ready & self.enable):
                m.d.comb += [write.data.eq(port.payload), write.addr.eq(full), write.en.eq(full != depth)]
                m.d.sync += counters[Counter.RECORDS].eq(counters[Counter.RECORDS] + 1)
                with m.If(full != depth):
                    m.d.sync += full.eq(full + 1)
            chosen = chosen | port.valid

        per_word = config.lanes // 4
        stat = Signal(config.word_bits)
        stat_index = Signal(5)
        is_stat = Signal()
        lane = Signal(range(max(2, words)))
        shift = words.bit_length() - 1
        m.d.comb += [read.addr.eq(self.read.offset >> shift), read.en.eq(self.read.valid)]
        with m.If(self.read.valid):
            m.d.sync += [
                is_stat.eq(self.read.region == Region.STATS),
                lane.eq(self.read.offset[:shift] if shift else 0),
                stat_index.eq(self.read.offset),
            ]
        rows = -(-len(counters) // per_word)
        with m.Switch(stat_index):
            for row in range(rows):
                first, after = row * per_word, min((row + 1) * per_word, len(counters))
                with m.Case(row):
                    m.d.comb += stat.eq(Cat(counters[i] for i in range(first, after)))
        with m.If(is_stat):
            m.d.comb += self.read_data.eq(stat)
        with m.Else():
            m.d.comb += self.read_data.eq(read.data.word_select(lane, config.word_bits) if words > 1 else read.data)
        return m

    def _count(self, m: Module, counters: Sequence[Signal]) -> None:
        """Counts strobes."""
        for i, counter in enumerate(counters):
            m.d.comb += self.counts[i].eq(counter)
            with m.If(self.count[i]):
                m.d.sync += counter.eq(counter + 1)

    def _counts_only(self, m: Module) -> Module:
        """What is left without records: `counts`, which the host may read (`ChipConfig.counters`)."""
        self._count(m, [Signal(32, name=f"counter_{counter.name.lower()}") for counter in STROBED])
        m.d.comb += [self.record(i).ready.eq(1) for i in range(self.ports)]
        m.d.comb += self.active.eq(self.count.any())
        return m
