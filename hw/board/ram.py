"""DRAM of block RAM behind an AXI4 port, with a second way in for the host link."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..spec.contracts import RESPONSE_CYCLES
from ..wiring.axi import AXI4, AXI4Port, Response
from .link import MemoryBus, MemoryPort

#: Bursts of each direction that are queued.
_QUEUE = 16
_TIME = 32


def check(config: ChipConfig) -> None:
    """Raises ValueError for a chip whose DRAM answers sooner than block RAM can, or has banks."""
    if config.dram.banks is not None:
        raise ValueError("dram.banks: block RAM has no rows to open; leave them out for a board whose DRAM it is")
    if config.dram.latency < 2:
        raise ValueError(f"dram.latency = {config.dram.latency}: block RAM needs at least 2 cycles")


class BlockRam(wiring.Component):
    """A DRAM channel of a chip, as the simulators' has it (tb/build/verilog/dram_model.v): the same cycles for the same
    bursts, with `dram.latency` (2 or more), `dram.bytes_per_cycle` and `contracts.RESPONSE_CYCLES`, as long as `link`
    asks for nothing. One word a cycle in either direction; reads and writes take turns. `reset` is that of the chip:
    bursts on their way are dropped, what is stored stays.

    `link` (`MemoryBus` without `channel`) goes first: a beat of the chip that would go in the same cycle waits. Only
    INCR bursts of whole words are understood; `check` says whether a chip can have one.
    """

    axi: AXI4Port
    link: MemoryPort
    reset: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        bus = AXI4(address_bits=32, data_bits=config.word_bits)
        super().__init__({"axi": In(bus), "link": In(MemoryBus(config.lanes)), "reset": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, axi, link = self.config, self.axi, self.link
        shift = (config.lanes - 1).bit_length()
        m.submodules.words = words = memory.Memory(shape=config.word_bits, depth=config.dram.words, init=[])
        port = words.write_port(granularity=8)
        read = words.read_port(transparent_for=[port])
        full = 2 * config.lanes
        now, bucket, prefer_write = Signal(_TIME), Signal(range(4 * config.lanes + 1), init=full), Signal()
        token = Signal()
        m.d.comb += token.eq((bucket >= config.lanes) & ~link.read & ~link.write)
        m.d.sync += now.eq(now + 1)

        reads, writes = _Queue(shift, config), _Queue(shift, config)
        m.submodules.reads, m.submodules.writes = reads, writes
        held, kept, fresh = Signal(), Signal(config.word_bits), Signal()
        due, new, last = Signal(), Signal(), Signal()
        m.d.comb += [
            reads.push.eq(axi.arvalid & axi.arready),
            reads.address.eq(axi.araddr),
            reads.length.eq(axi.arlen),
            reads.ident.eq(axi.arid),
            reads.time.eq(now + config.dram.latency),
            axi.arready.eq(reads.count != _QUEUE),
            reads.now.eq(now),
            due.eq(reads.ripe & ~held & token & fresh),
            last.eq(reads.beat == reads.first_length),
            axi.rvalid.eq(held | new),
            axi.rlast.eq(last),
            axi.rid.eq(reads.first_ident),
            axi.rresp.eq(Mux(reads.first_bad, Response.SLVERR, Response.OKAY)),
            axi.rdata.eq(Mux(held, kept, Mux(new & ~reads.first_bad, read.data, 0))),
            reads.step.eq(axi.rvalid & axi.rready),
            reads.pop.eq(reads.step & last),
        ]
        m.d.sync += held.eq(axi.rvalid & ~axi.rready)
        with m.If(new & ~axi.rready):
            m.d.sync += kept.eq(axi.rdata)
        # the word of the next cycle's beat, unless the link reads
        m.d.comb += [read.addr.eq(Mux(link.read, link.address, reads.next_word)), link.answer.eq(read.data)]
        m.d.sync += fresh.eq(~link.read)

        write_due, go, end = Signal(), Signal(), Signal()
        m.d.comb += [
            writes.push.eq(axi.awvalid & axi.awready),
            writes.address.eq(axi.awaddr),
            writes.length.eq(axi.awlen),
            writes.ident.eq(axi.awid),
            write_due.eq((writes.count != 0) & token),
            new.eq(due & ~(write_due & axi.wvalid & prefer_write)),
            axi.wready.eq(write_due & ~(due & ~prefer_write)),
            go.eq(axi.wvalid & axi.wready),
            end.eq(go & (writes.beat == writes.first_length)),
            writes.step.eq(go),
            writes.pop.eq(end),
            port.addr.eq(Mux(link.write, link.address, writes.word)),
            port.data.eq(Mux(link.write, link.data, axi.wdata)),
            port.en.eq(Mux(link.write, -1, Mux(go & ~writes.first_bad, axi.wstrb, 0))),
        ]
        with m.If(new):
            m.d.sync += prefer_write.eq(1)
        with m.Elif(go):
            m.d.sync += prefer_write.eq(0)
        filled = bucket + config.dram.bytes_per_cycle - Mux(new | go, config.lanes, 0)
        m.d.sync += bucket.eq(Mux(filled > full, full, filled))
        self._responses(m, now, writes, end)
        with m.If(self.reset):
            m.d.sync += [held.eq(0), bucket.eq(full), prefer_write.eq(0)]
        m.d.comb += [reads.reset.eq(self.reset), writes.reset.eq(self.reset)]
        return m

    def _responses(self, m: Module, now: Signal, writes: _Queue, end: Signal) -> None:
        """The channel B: an answer `RESPONSE_CYCLES` after the last beat of its burst, in their order."""
        axi = self.axi
        shape = _TIME + 2
        m.submodules.ended = ended = memory.Memory(shape=shape, depth=_QUEUE, init=[])
        put, get = ended.write_port(), ended.read_port(domain="comb")
        into, out, waiting, whole = Signal(4), Signal(4), Signal(5), Signal(5)
        time, bad, ident = get.data[:_TIME], get.data[_TIME], get.data[_TIME + 1]
        gone = Signal()
        entry = Signal(shape)
        m.d.comb += [
            entry[:_TIME].eq(now + RESPONSE_CYCLES),
            entry[_TIME].eq(writes.first_bad),
            entry[_TIME + 1].eq(writes.first_ident),
            put.addr.eq(into),
            put.data.eq(entry),
            put.en.eq(end),
            get.addr.eq(out),
            axi.bvalid.eq((waiting != 0) & ~(now - time)[-1]),
            axi.bresp.eq(Mux(bad, Response.SLVERR, Response.OKAY)),
            axi.bid.eq(ident),
            gone.eq(axi.bvalid & axi.bready),
            axi.awready.eq(whole != _QUEUE),
        ]
        m.d.sync += [
            into.eq(into + end),
            out.eq(out + gone),
            waiting.eq(waiting + end - gone),
            whole.eq(whole + writes.push - gone),
        ]
        with m.If(self.reset):
            m.d.sync += [into.eq(0), out.eq(0), waiting.eq(0), whole.eq(0)]


class _Queue(wiring.Component):
    """Bursts of one direction, the oldest first. `step`: a beat of the oldest goes; `pop`: it was its last one. `word`:
    that of its beat; `next_word`: that of the beat of the next cycle. `ripe`: there is one, and its `time` has come, as
    a register: no burst's is before the second cycle after its `push`."""

    reset: Signal
    push: Signal
    address: Signal
    length: Signal
    ident: Signal
    time: Signal
    step: Signal
    pop: Signal
    count: Signal
    beat: Signal
    word: Signal
    next_word: Signal
    first_length: Signal
    first_ident: Signal
    first_bad: Signal
    now: Signal
    ripe: Signal

    def __init__(self, shift: int, config: ChipConfig) -> None:
        self._shift, self._words = shift, config.dram.words
        super().__init__(
            {
                "reset": In(1),
                "push": In(1),
                "address": In(32),
                "length": In(8),
                "ident": In(1),
                "time": In(_TIME),
                "step": In(1),
                "pop": In(1),
                "count": Out(5),
                "beat": Out(8),
                "word": Out(32),
                "next_word": Out(32),
                "first_length": Out(8),
                "first_ident": Out(1),
                "first_bad": Out(1),
                "now": In(_TIME),
                "ripe": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = 32 + 8 + 1 + 1 + _TIME
        m.submodules.bursts = bursts = memory.Memory(shape=shape, depth=_QUEUE, init=[])
        put, first, second = bursts.write_port(), bursts.read_port(domain="comb"), bursts.read_port(domain="comb")
        into, out, following, word, entry = Signal(4), Signal(4), Signal(4), Signal(32), Signal(shape)
        m.d.comb += [
            word.eq(self.address >> self._shift),
            entry[:32].eq(word),
            entry[32:40].eq(self.length),
            entry[40].eq(self.ident),
            entry[41].eq((word >= self._words) | (self._words - word <= self.length)),
            entry[42:].eq(self.time),
            put.addr.eq(into),
            put.data.eq(entry),
            put.en.eq(self.push),
            following.eq(out + 1),
            first.addr.eq(out),
            second.addr.eq(following),
            self.word.eq(first.data[:32] + self.beat),
            self.next_word.eq(
                Mux(self.pop, second.data[:32], Mux(self.step, first.data[:32] + self.beat + 1, self.word))
            ),
            self.first_length.eq(first.data[32:40]),
            self.first_ident.eq(first.data[40]),
            self.first_bad.eq(first.data[41]),
        ]
        # Both that may be the oldest in the next cycle are looked at, before it is clear which it is.
        come = [~(self.now + 1 - burst.data[42:])[_TIME - 1] for burst in (first, second)]
        m.d.sync += self.ripe.eq(Mux(self.pop, (self.count > 1) & come[1], (self.count != 0) & come[0]))
        m.d.sync += [
            into.eq(into + self.push),
            out.eq(out + self.pop),
            self.count.eq(self.count + self.push - self.pop),
        ]
        with m.If(self.step):
            m.d.sync += self.beat.eq(Mux(self.pop, 0, self.beat + 1))
        with m.If(self.reset):
            m.d.sync += [into.eq(0), out.eq(0), self.count.eq(0), self.beat.eq(0), self.ripe.eq(0)]
        return m
