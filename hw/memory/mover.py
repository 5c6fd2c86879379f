"""The mover: the one engine that reads words from a tile's memory and sends them.

It serves its tile's stream and the MOVEs that other tiles request (pulls), alternately. A MOVE of its own stream whose
source is another tile is forwarded to that tile; so is a FETCH.

Two halves work concurrently, so that the next MOVE is read while the previous one is still being sent:

    own stream --+--> source generator --> memory / DRAM --> words --+
    requests   --+                                                   +--> packetiser --> data plane
                 +--> descriptors ------------------------------------+

Throughput: `words + packets + 1` cycles per MOVE if the NoC takes a flit every cycle (one head flit per packet, one
cycle to take the next descriptor). A packet holds at most `ChipConfig.packet_words` (64, or 32 of 128 bytes) and ends
where the destination run ends or the destination address reaches a multiple of as many.
Latency: the head flit of a MOVE taken in cycle t is offered in cycle t + 3 from a local memory. A head is offered only
once the first word is available, so a packet never holds a path open during a DRAM access. A channel with less than a
word a cycle holds it open between words, unless `dram.whole_packets`: then a head waits for all words of its packet,
which leave in successive cycles, and packets of several slow channels to one tile take turns instead of wasting its
link.

A local memory is read from t + 1 on, one word a cycle, in order; a word read in cycle r can be sent from r + 2 on. At
most `LOCAL_FIFO` words have been read but not sent. A memory may refuse a read (ACC, while the drain path reads
addends), which is then repeated in every cycle. The packetiser stalls as soon as it has sent everything that was read:
of n refused cycles in a row it loses n less the words beyond two that had been read but not sent. These are two while
a word is sent every cycle, and up to four after a head or while the NoC stalls the packetiser.

In chips with `boot_host` the host's mover has neither half: a MOVE of words of its tile is an ADDRESS fault.

In chips with `programs` no fault holds the mover up, and MOVEs stay inside the rights of their stream
(`hw.wiring.rights`). A MOVE of the stream to or from another tile is dropped, and so is an instruction with any other
fault; a pull without any words is one here, because the tile that it is for could not say whose it was. What would be
read or written outside of the program's pages, or past a memory, is read or written at their beginning instead: the
MOVE completes, its program does harm to none but itself, and the fault says that it cannot be relied on.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux
from amaranth.lib import fifo

from ..spec.contracts import DRAM_DESCRIPTORS, LOCAL_DESCRIPTORS, LOCAL_FIFO
from .dispatch import Dispatch
from .mover_ports import Engine, PendingRecord, Queues, descriptor
from .packetiser import Packetiser
from .source import SourceGenerator


class Mover(Dispatch, SourceGenerator, Packetiser):
    """The mover of a tile. Its parts are one module, since each raises faults in the cycle in which it sees them."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.boots:
            return self._booting(m)
        m.submodules.descriptors = descriptors = fifo.SyncFIFO(
            width=descriptor(self.config).size, depth=DRAM_DESCRIPTORS if self.has_dram else LOCAL_DESCRIPTORS
        )
        m.submodules.words = words = fifo.SyncFIFO(width=self.config.coded_bits, depth=LOCAL_FIFO)
        queues = Queues(descriptors, words)
        dispatched, sent = PendingRecord("dispatch"), PendingRecord("engine")
        engine = Engine()
        self._dispatch(m, engine, dispatched)
        reading = self._source(m, engine, queues)
        sending = self._packetise(m, queues, sent)

        m.d.comb += self.active.eq(
            self.own.valid | self.remote.valid | reading | words.r_rdy | descriptors.r_rdy | sending
        )
        # Records: the packetiser's take precedence; both are rare.
        m.d.comb += [
            self.record.valid.eq(sent.pending | dispatched.pending),
            self.record.payload.eq(Mux(sent.pending, sent.record, dispatched.record)),
            sent.traced.eq(sent.pending & self.record.ready),
            dispatched.traced.eq(dispatched.pending & ~sent.pending & self.record.ready),
        ]
        with m.If(self.record.valid | self.post.valid):
            m.d.comb += self.active.eq(1)
        if self.config.programs:
            with m.If(self.clear):
                m.d.comb += self.active.eq(1)
        return m

    def _booting(self, m: Module) -> Module:
        """What is left of the mover of a host tile that only boots."""
        done = PendingRecord("dispatch")
        self._dispatch(m, Engine(), done)
        m.d.comb += [
            self.active.eq(self.own.valid | self.record.valid),
            self.record.valid.eq(done.pending),
            self.record.payload.eq(done.record),
            done.traced.eq(done.pending & self.record.ready),
        ]
        return m
