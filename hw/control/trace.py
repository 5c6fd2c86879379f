"""Trace memory and cycle counters of a tile, both read by MOVEs.

A record a cycle is taken, lower-numbered ports first, until the memory is full; what comes later is counted and
dropped. Records lie oldest first from word 0 of region TRACE. Region STATS holds `Counter`s of 32 bits, packed
little-endian into words (several to a word, or one over several words when P < 4... never: P >= 4).
"""

from __future__ import annotations

from enum import IntEnum

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import TRACE_BYTES, ChipConfig
from ..isa import Region
from .signatures import TraceRecord


class Counter(IntEnum):
    """The counters of region STATS, in cycles unless said otherwise."""

    RECORDS = 0  #: trace records offered (also those dropped)
    MOVER_WAIT = 1  #: mover's stream waits for a semaphore or a fire time
    MOVER_BLOCKED = 2  #: mover's stream has an instruction ready, the unit is not
    MOVER_BUSY = 3  #: mover sends a MOVE (stalls included)
    NET_STALL = 4  #: ... and the network does not take the flit
    MEM_STALL = 5  #: ... and the memory has no word yet
    MATRIX_WAIT = 6
    MATRIX_BLOCKED = 7
    MATRIX_READING = 8  #: the array is fed


class Trace(wiring.Component):
    """Records come in over `record_0`...; `count` strobes add to the counters; `read` answers one cycle later."""

    def __init__(self, config: ChipConfig, ports: int) -> None:
        self.config, self.ports = config, ports
        super().__init__(
            {f"record_{i}": In(stream.Signature(TraceRecord)) for i in range(ports)}
            | {
                "enable": In(1),
                "count": In(len(Counter)),
                "read": In(data.StructLayout({"valid": 1, "region": 4, "offset": 24})),
                "read_data": Out(config.word_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        words, depth = config.trace_words, config.trace_records
        slot = max(8 * TRACE_BYTES, config.word_bits)
        m.submodules.records = records = memory.Memory(shape=slot, depth=depth, init=[])
        write, read = records.write_port(), records.read_port()
        full = Signal(range(depth + 1))

        counters = Array(Signal(32, name=f"counter_{counter.name.lower()}") for counter in Counter)
        for i in range(1, len(Counter)):
            with m.If(self.enable & self.count[i]):
                m.d.sync += counters[i].eq(counters[i] + 1)

        chosen = 0
        for i in range(self.ports):
            port = getattr(self, f"record_{i}")
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
        is_stat, lane = Signal(), Signal(range(max(2, words)))
        shift = words.bit_length() - 1
        m.d.comb += [read.addr.eq(self.read.offset >> shift), read.en.eq(self.read.valid)]
        with m.If(self.read.valid):
            m.d.sync += [is_stat.eq(self.read.region == Region.STATS), lane.eq(self.read.offset[:shift] if shift else 0)]
            m.d.sync += stat_index.eq(self.read.offset)
        rows = -(-len(Counter) // per_word)
        with m.Switch(stat_index):
            for row in range(rows):
                with m.Case(row):
                    m.d.comb += stat.eq(Cat(counters[i] for i in range(row * per_word, min((row + 1) * per_word, len(Counter)))))
        with m.If(is_stat):
            m.d.comb += self.read_data.eq(stat)
        with m.Else():
            m.d.comb += self.read_data.eq(read.data.word_select(lane, config.word_bits) if words > 1 else read.data)
        return m


def stats_words(config: ChipConfig) -> int:
    """Words of region STATS."""
    return -(-len(Counter) * 4 // config.lanes)
