"""A DRAM channel as the chip sees it, without its words: when which beat goes, and what is answered."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..spec.contracts import RESPONSE_CYCLES
from ..wiring.axi import AXI4, AXI4Port, Response

#: Bursts of each direction that are queued.
QUEUE = 16
_TIME = 32


def check(config: ChipConfig) -> None:
    """Raises ValueError for a chip whose DRAM answers sooner than a board's can, or has banks."""
    if config.dram.banks is not None:
        raise ValueError("dram.banks: a board's DRAM opens no rows in the chip's time; leave them out for a board")
    if config.dram.latency < 2:
        raise ValueError(f"dram.latency = {config.dram.latency}: a board's DRAM needs at least 2 cycles")


class DramChannel(wiring.Component):
    """The AXI4 port of a DRAM channel, as the simulators' has it (tb/build/verilog/dram_model.v): the same cycles for
    the same bursts, with `dram.latency` (2 or more), `dram.bytes_per_cycle` and `contracts.RESPONSE_CYCLES`. One word a
    cycle in either direction; reads and writes take turns. `reset` is that of the chip: bursts on their way are
    dropped. Only INCR bursts of whole words are understood; `check` says whether a chip can have one.

    What keeps the words has them in time. `begins`: a read comes, of `length` + 1 words from `word` on; each of them is
    `read` in one cycle, in their order, and must be `fetched` then. `due`: one may be read in this cycle, as far as is
    clear early; `coming`: in the next one; `next_word`: that one. `store`: the bytes of the word `stored` that are
    `data` from the next cycle on. Bursts past the end of the channel are answered here, and do none of that.
    No new beat goes while `pause`, none of a read unless `fresh`.
    """

    axi: AXI4Port
    reset: Signal
    pause: Signal
    fresh: Signal
    begins: Signal
    word: Signal
    length: Signal
    due: Signal
    coming: Signal
    next_word: Signal
    read: Signal
    fetched: Signal
    store: Signal
    stored: Signal
    data: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        bus = AXI4(address_bits=32, data_bits=config.word_bits)
        super().__init__(
            {
                "axi": In(bus),
                "reset": In(1),
                "pause": In(1),
                "fresh": In(1),
                "begins": Out(1),
                "word": Out(32),
                "length": Out(8),
                "due": Out(1),
                "coming": Out(1),
                "next_word": Out(32),
                "read": Out(1),
                "fetched": In(config.word_bits),
                "store": Out(config.lanes),
                "stored": Out(32),
                "data": Out(config.word_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, axi = self.config, self.axi
        shift = (config.lanes - 1).bit_length()
        full = 2 * config.lanes
        now, bucket, prefer_write = Signal(_TIME), Signal(range(full + 1), init=full), Signal()
        token = Signal()
        m.d.comb += token.eq((bucket >= config.lanes) & ~self.pause)
        m.d.sync += now.eq(now + 1)

        reads, writes = _Queue(shift, config), _Queue(shift, config)
        m.submodules.reads, m.submodules.writes = reads, writes
        held, kept = Signal(), Signal(config.word_bits)
        due, new, last = Signal(), Signal(), Signal()
        m.d.comb += [
            reads.push.eq(axi.arvalid & axi.arready),
            reads.address.eq(axi.araddr),
            reads.length.eq(axi.arlen),
            reads.ident.eq(axi.arid),
            reads.time.eq(now + config.dram.latency),
            axi.arready.eq(reads.count != QUEUE),
            reads.now.eq(now),
            due.eq(reads.ripe & ~held & token & self.fresh),
            last.eq(reads.beat == reads.first_length),
            axi.rvalid.eq(held | new),
            axi.rlast.eq(last),
            axi.rid.eq(reads.first_ident),
            axi.rresp.eq(Mux(reads.first_bad, Response.SLVERR, Response.OKAY)),
            axi.rdata.eq(Mux(held, kept, Mux(self.read, self.fetched, 0))),
            reads.step.eq(axi.rvalid & axi.rready),
            reads.pop.eq(reads.step & last),
            self.begins.eq(reads.push & ~reads.bad),
            self.word.eq(reads.pushed),
            self.length.eq(axi.arlen),
            self.read.eq(new & ~reads.first_bad),
            self.next_word.eq(reads.next_word),
            self.due.eq(reads.ripe & ~reads.first_bad & ~held),
            self.coming.eq(reads.coming & ~(axi.rvalid & ~axi.rready)),
        ]
        m.d.sync += held.eq(axi.rvalid & ~axi.rready)
        with m.If(new & ~axi.rready):
            m.d.sync += kept.eq(axi.rdata)

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
            self.stored.eq(writes.word),
            self.data.eq(axi.wdata),
            self.store.eq(Mux(go & ~writes.first_bad, axi.wstrb, 0)),
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
        m.submodules.ended = ended = memory.Memory(shape=shape, depth=QUEUE, init=[])
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
            axi.bvalid.eq((waiting != 0) & ~(now - time)[_TIME - 1]),
            axi.bresp.eq(Mux(bad, Response.SLVERR, Response.OKAY)),
            axi.bid.eq(ident),
            gone.eq(axi.bvalid & axi.bready),
            axi.awready.eq(whole != QUEUE),
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
    that of its beat; `next_word`: that of the beat of the next cycle, where beats go only if `ripe`. `ripe`: there is
    one, and its `time` has come, as a register: no burst's is before the second cycle after its `push`. `coming`: it
    will be in the next cycle, and lies in the channel. `pushed`, `bad`: the first word of what is pushed, and that it
    does not."""

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
    coming: Signal
    pushed: Signal
    bad: Signal

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
                "coming": Out(1),
                "pushed": Out(32),
                "bad": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = max(1, (self._words - 1).bit_length())  # of a word in the channel; no other is ever looked at
        shape = bits + 8 + 1 + 1 + _TIME
        m.submodules.bursts = bursts = memory.Memory(shape=shape, depth=QUEUE, init=[])
        put, first, second = bursts.write_port(), bursts.read_port(domain="comb"), bursts.read_port(domain="comb")
        into, out, following, entry = Signal(4), Signal(4), Signal(4), Signal(shape)
        begun = Signal()  # a beat of the oldest has gone
        kept = Signal(bits)  # the word of its beat, if so
        behind = Signal(bits)  # the one behind that, from the second cycle on in which it is the oldest
        word = self.pushed
        m.d.comb += [
            word.eq(self.address >> self._shift),
            self.bad.eq((word >= self._words) | (self._words - word <= self.length)),
            entry.eq(Cat(word[:bits], self.length, self.ident, self.bad, self.time)),
            put.addr.eq(into),
            put.data.eq(entry),
            put.en.eq(self.push),
            following.eq(out + 1),
            first.addr.eq(out),
            second.addr.eq(following),
            self.word.eq(Mux(begun, kept, first.data[:bits])),
            self.next_word.eq(Mux(self.pop, second.data[:bits], Mux(self.step, behind, self.word))),
            Cat(self.first_length, self.first_ident, self.first_bad).eq(first.data[bits:]),
        ]
        m.d.sync += [kept.eq(self.word + self.step), behind.eq(self.next_word + 1)]
        # Both that may be the oldest in the next cycle are looked at, before it is clear which it is.
        come = [~(self.now + 1 - burst.data[-_TIME:])[_TIME - 1] for burst in (first, second)]
        ripe = Mux(self.pop, (self.count > 1) & come[1], (self.count != 0) & come[0])
        m.d.sync += self.ripe.eq(ripe)
        m.d.comb += self.coming.eq(ripe & ~Mux(self.pop, second.data[bits + 9], first.data[bits + 9]))
        m.d.sync += [
            into.eq(into + self.push),
            out.eq(out + self.pop),
            self.count.eq(self.count + self.push - self.pop),
        ]
        with m.If(self.step):
            m.d.sync += [self.beat.eq(Mux(self.pop, 0, self.beat + 1)), begun.eq(~self.pop)]
        with m.If(self.reset):
            m.d.sync += [into.eq(0), out.eq(0), self.count.eq(0), self.beat.eq(0), self.ripe.eq(0), begun.eq(0)]
        return m
