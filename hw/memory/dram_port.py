"""The AXI4 manager of a DRAM tile: turns runs of words into bursts."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import OFFSET_BITS, Arbitration, ChipConfig
from ..spec.contracts import DRAM_BURSTS, PORT_WORDS, read_words
from ..spec.isa import BlockedOn
from ..wiring.axi import AXI4, AXI4Port, Burst
from ..wiring.ecc import Code, error_ports
from ..wiring.signatures import WORDS_BITS, BlockedStatus, Notice, Run, WriteHead, detail

#: Bits of an AXI byte address.
ADDRESS_BITS = 32


class DramPort(wiring.Component):
    """Reads and writes runs of words over AXI4 (`axi`: 32-bit byte addresses, data 8 * lanes bits, ID 0, INCR).

    A run is one burst: 1..`packet_words` words that do not cross a multiple of as many, so that no burst crosses 4 KiB
    (the user guarantees it). Reads and writes proceed independently and concurrently; there is no order between them.

    - `read_run` (stream of Run) requests words, `read_data` (stream of words) returns them, in order.
      Up to `DRAM_BURSTS` can be in flight. A run accepted in cycle t is on AR from t + 1; a beat accepted from R in
      cycle t is offered on `read_data` from t + 1. One run and one word per cycle. `read_level`: words that it can
      still offer without another beat, of at most `read_words`. `read_ahead` (not with `dram.arbitration` "fifo"):
      words of the bursts in flight, each until its last beat has been accepted.
    - `write_head` (stream of WriteHead), then exactly its `words` words on `write_data`; the next head is accepted
      one cycle after the last word at the earliest, so a packet of a head and N words takes N + 1 cycles. Up to
      `DRAM_BURSTS` can be in flight. A head accepted in cycle t is on AW from t + 1, and `write_data` is accepted from
      t + 1; a word accepted in cycle t is on W from t + 1, never before its address.
    - `written` (stream of Notice) announces the response to each burst, in order: B accepted in cycle t is offered
      from t + 1. One burst every two cycles.
    - `fault`: 1 for one cycle for each burst that the memory refused (SLVERR or DECERR), with `fault_offset`, the
      first word of that burst, and `fault_write`, 1 for a write: two cycles after the first bad R beat or the B was
      accepted. The burst otherwise completes like a good one, so that nothing hangs. When a read and a write fail in
      the same cycle, the write is reported after the read; a write that fails while another write is still waiting
      to be reported is not reported.

    - `blocked_status`: whether bursts wait for their response, for the host when it asks.
    - From the cycle after `quiesce` is set, no run and no head is accepted. Bursts that have been accepted are finished
      as AXI wants it: words that arrive are dropped, words that are still missing go out with a WSTRB of 0, nobody is
      notified. `quiesced` is set once nothing is on its way, a cycle later. Both last until the port is reset.

    All AXI outputs are functions of registers. In cycles without `active` no register changes.
    """

    read_run: stream.Interface
    read_data: stream.Interface
    read_level: Signal
    write_head: stream.Interface
    write_data: stream.Interface
    written: stream.Interface
    fault: Signal
    fault_offset: Signal
    fault_write: Signal
    blocked_status: data.View  # BlockedStatus
    quiesce: Signal
    quiesced: Signal
    active: Signal
    axi: AXI4Port
    corrected: Signal  # with `ecc` only, like `lost`
    lost: Signal
    read_ahead: Signal  # if DRAM is shared by tile only

    def __init__(self, config: ChipConfig) -> None:
        self.lanes, self.read_words = config.lanes, read_words(config)
        self.shared = config.dram.arbitration is not Arbitration.FIFO
        self.code = Code(config.word_bits, config.ecc)
        ahead = {"read_ahead": Out(range(DRAM_BURSTS * config.packet_words + 1))} if self.shared else {}
        super().__init__(
            ahead
            | {
                "read_run": In(stream.Signature(Run)),
                "read_data": Out(stream.Signature(config.coded_bits)),
                "read_level": Out(range(read_words(config) + 1)),
                "write_head": In(stream.Signature(WriteHead)),
                "write_data": In(stream.Signature(config.coded_bits)),
                "written": Out(stream.Signature(Notice)),
                "fault": Out(1),
                "fault_offset": Out(OFFSET_BITS),
                "fault_write": Out(1),
                "blocked_status": Out(BlockedStatus),
                "quiesce": In(1),
                "quiesced": Out(1),
                "active": Out(1),
                "axi": Out(AXI4(address_bits=ADDRESS_BITS, data_bits=config.word_bits)),
            }
            | error_ports(config)
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._open: list[Value] = []  # what is on its way
        self._rest = Signal(name="rest")  # what is offered follows no input
        m.d.sync += self._rest.eq(self.quiesce)
        reads = self._read(m)
        writes = self._write(m)
        self._report(m, reads, writes)
        m.d.sync += self.quiesced.eq(self._rest & ~Cat(self._open).any())
        streams = [self.read_run, self.read_data, self.write_head, self.write_data, self.written]
        channels = [getattr(self.axi, f"{channel}valid") for channel in ("ar", "r", "aw", "w", "b")]
        valid = [port.valid for port in streams]
        # a fault that has not been raised yet coincides with a word on `read_data`, or with `written`
        m.d.comb += self.active.eq(Cat(valid, channels, self._late, self.quiesce).any())
        return m

    def _read(self, m: Module) -> tuple[Signal, Signal]:
        """The read path. Returns (strobe, offset): the first bad beat of a burst has arrived."""
        axi = self.axi
        queued = OFFSET_BITS + WORDS_BITS * self.shared
        m.submodules.reads = reads = fifo.SyncFIFO(width=queued, depth=DRAM_BURSTS)
        m.submodules.beats = beats = fifo.SyncFIFO(width=self.code.width, depth=self.read_words)
        self._address(m, "ar", self.read_run, reads.w_rdy)
        m.d.comb += [
            reads.w_en.eq(self.read_run.valid & self.read_run.ready),
            reads.w_data.eq(self.read_run.payload.as_value()[:queued]),
            beats.w_data.eq(self.code.encode(axi.rdata)),
            beats.w_en.eq(axi.rvalid),
            axi.rready.eq(beats.w_rdy),
            self.read_data.payload.eq(beats.r_data),
            self.read_data.valid.eq(beats.r_rdy),
            self.read_level.eq(beats.r_level),
            beats.r_en.eq(self.read_data.ready | self._rest),
        ]
        self._open += [axi.arvalid, reads.r_rdy]

        bad = Signal()
        offset = Signal(OFFSET_BITS)
        reported = Signal()  # a fault of this burst has been reported
        beat = Signal()
        m.d.comb += [beat.eq(axi.rvalid & axi.rready), reads.r_en.eq(beat & axi.rlast)]
        m.d.sync += bad.eq(beat & axi.rresp[1] & ~reported)
        if self.shared:
            begins = Mux(reads.w_en, self.read_run.payload.words, 0)
            m.d.sync += self.read_ahead.eq(self.read_ahead + begins - Mux(reads.r_en, reads.r_data[OFFSET_BITS:], 0))
        with m.If(beat):
            m.d.sync += [offset.eq(reads.r_data), reported.eq(~axi.rlast & (reported | axi.rresp[1]))]
        return bad, offset

    def _write(self, m: Module) -> tuple[Signal, Signal]:
        """The write path. Returns (strobe, offset): a burst was refused."""
        axi, head = self.axi, self.write_head.payload
        queued = data.StructLayout({"offset": OFFSET_BITS, "notice": Notice})
        m.submodules.writes = writes = fifo.SyncFIFO(width=queued.size, depth=DRAM_BURSTS)
        m.submodules.words = words = fifo.SyncFIFO(width=self.code.width + 2, depth=PORT_WORDS)
        decoded = self.code.decode(m, words.r_data[: self.code.width], "written")
        left = Signal(WORDS_BITS)  # words of the burst that have not arrived yet
        oldest = data.View(queued, writes.r_data)
        self._address(m, "aw", self.write_head, writes.w_rdy & (left == 0))
        m.d.comb += [
            writes.w_en.eq(self.write_head.valid & self.write_head.ready),
            writes.w_data.eq(Cat(head.offset, head.notify_tile, head.notify_sem, head.notify)),
            self.write_data.ready.eq((left != 0) & words.w_rdy),
            words.w_en.eq((self.write_data.valid | self._rest) & (left != 0)),
            words.w_data.eq(Cat(self.write_data.payload, left == 1, ~self._rest)),
            axi.wdata.eq(decoded.word),
            axi.wlast.eq(words.r_data[-2]),
            axi.wstrb.eq(words.r_data[-1].replicate(self.lanes)),
            axi.wvalid.eq(words.r_rdy),
            words.r_en.eq(axi.wready),
        ]
        if self.code.used:
            m.d.comb += [self.corrected.eq(words.r_rdy & decoded.corrected), self.lost.eq(words.r_rdy & decoded.lost)]
        with m.If(writes.w_en):
            m.d.sync += left.eq(head.words)
        with m.Elif(words.w_en & words.w_rdy):
            m.d.sync += left.eq(left - 1)
        self._open += [axi.awvalid, writes.r_rdy, left != 0]  # a response is there after all words

        bad = Signal()
        offset = Signal(OFFSET_BITS)
        answered = Signal()  # the oldest burst has its response
        notice: data.View = Signal(Notice)  # it has its notice in a register, then
        with m.If(writes.r_rdy):
            m.d.comb += [
                self.blocked_status.waits.eq(Mux(answered, BlockedOn.POSTS, BlockedOn.DRAM)),
                self.blocked_status.tag.eq(writes.r_level),
                detail(self.blocked_status).eq(oldest.offset),
            ]
        m.d.comb += [
            axi.bready.eq(~answered),
            self.written.valid.eq(answered),
            self.written.payload.eq(notice),
            writes.r_en.eq(answered & (self.written.ready | self._rest)),
        ]
        m.d.sync += [
            answered.eq(Mux(answered, ~(self.written.ready | self._rest), axi.bvalid)),
            bad.eq(axi.bvalid & axi.bready & axi.bresp[1]),
        ]
        with m.If(axi.bvalid & axi.bready):
            m.d.sync += [offset.eq(oldest.offset), notice.eq(oldest.notice)]
        return bad, offset

    def _address(self, m: Module, channel: str, runs: stream.Interface, may: Value) -> None:
        """Registers the address channel `channel` (`ar` or `aw`); accepts from `runs` while `may`."""
        shift = self.lanes.bit_length() - 1
        valid: Signal = getattr(self.axi, f"{channel}valid")
        offset = Signal(OFFSET_BITS, name=f"{channel}_offset")
        length = Signal(WORDS_BITS - 1, name=f"{channel}_length")
        m.d.comb += [
            runs.ready.eq(may & ~self._rest & (~valid | getattr(self.axi, f"{channel}ready"))),
            getattr(self.axi, f"{channel}addr").eq(Cat(Const(0, shift), offset)),
            getattr(self.axi, f"{channel}len").eq(length),
            getattr(self.axi, f"{channel}size").eq(shift),
            getattr(self.axi, f"{channel}burst").eq(Burst.INCR),
        ]
        with m.If(runs.ready):
            m.d.sync += valid.eq(runs.valid)
        with m.Elif(getattr(self.axi, f"{channel}ready")):
            m.d.sync += valid.eq(0)
        with m.If(runs.valid & runs.ready):
            m.d.sync += [offset.eq(runs.payload.offset), length.eq(runs.payload.words - 1)]

    def _report(self, m: Module, reads: tuple[Signal, Signal], writes: tuple[Signal, Signal]) -> None:
        """Merges the faults of both paths onto one port, a write's after a read's."""
        waiting = Signal()
        self._late = Signal()  # a fault is on its way out
        m.d.comb += self._late.eq(waiting | self.fault)
        waiting_offset = Signal(OFFSET_BITS)
        m.d.sync += [
            self.fault.eq(reads[0] | writes[0] | waiting),
            self.fault_write.eq(~reads[0]),
            self.fault_offset.eq(Mux(reads[0], reads[1], Mux(waiting, waiting_offset, writes[1]))),
            waiting.eq(Mux(reads[0], waiting | writes[0], waiting & writes[0])),
        ]
        with m.If(~(reads[0] & waiting)):  # otherwise the waiting fault keeps waiting
            m.d.sync += waiting_offset.eq(writes[1])
