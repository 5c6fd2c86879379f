"""The second half of the mover: words become packets of the data plane."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from ..spec.config import ChipConfig
from ..spec.isa import (
    ADDRESS,
    ARRIVAL,
    DATA_HEAD,
    FETCH_TAG,
    TRACE,
    BlockedOn,
    Cause,
    Opcode,
    Unit,
    plain_flit_bits,
)
from ..wiring.rights import first_word, outside
from ..wiring.signatures import MOVE, WORDS_BITS, split_address
from .mover_ports import MoverPorts, PendingRecord, Queues, descriptor


class _Sent:
    """Registers of the MOVE being sent, like those of `_SourceRun` for its source, and its next head."""

    def __init__(self, config: ChipConfig) -> None:
        self.current: data.View = Signal(descriptor(config))
        self.address = Signal(ADDRESS.width)
        self.place = split_address(self.address)
        self.target = Signal(ADDRESS.width)  # where the next packet goes: `address`, unless that is not the program's
        self.base = Signal(ADDRESS.width)
        self.run_left = Signal(MOVE.bits("dst_run"))
        self.left = Signal(MOVE.bits("words"))
        self.stall = Signal(TRACE.bits("stall"))  # cycles
        # Registers, since much follows from them: words of the packet that begins at `address`; the run ends with it;
        # the MOVE does.
        self.packet = Signal(WORDS_BITS)
        self.ends_run = Signal()
        self.ends = Signal()
        self.counter = Signal(WORDS_BITS)  # words of the current packet that remain to be sent
        self.head: data.View = Signal(DATA_HEAD.layout())
        self.heading = Signal()  # `address` is that of a packet: after the last one there is none
        #: `now` as a register, right in every cycle that follows an active one, as those are in which a head is first
        #: offered: so what is put out does not follow an input in the same cycle.
        self.clock = Signal(32)


class Packetiser(MoverPorts):
    """The part of `mover.Mover` that sends: it cuts what has been read into packets, and ends each MOVE with its post
    and its record."""

    def _packetise(self, m: Module, queues: Queues, done: PendingRecord) -> Signal:
        """Cuts the words into packets; posts and records a MOVE when its last word has been handed over. Returns
        whether a MOVE is being sent.

        A head is offered only once the first word is available (from DRAM in chips with `dram.whole_packets`: all words
        of the packet) and the previous MOVE's post and record have been taken.
        """
        sent, descriptors, words = _Sent(self.config), queues.descriptors, queues.words
        current = sent.current
        incoming = data.View(descriptor(self.config), descriptors.r_data)
        bits = self.config.word_bits
        have = Signal()  # a word can be sent; in HEAD: the packet can begin
        word = Signal(self.config.coded_bits)
        take = Signal()
        m.d.comb += [have.eq(words.r_rdy), word.eq(words.r_data), words.r_en.eq(take)]
        if self.has_dram:
            with m.If(current.from_dram):
                m.d.comb += [have.eq(self.run_data.valid), word.eq(self.run_data.payload)]
                m.d.comb += [words.r_en.eq(0), self.run_data.ready.eq(take)]

        sending = Signal(init=1)  # in every state except IDLE
        measured = self._measure(m, sent, incoming, sending)
        self._next_head(m, sent)
        post_owed = Signal()
        free = self._retire_slot(m, post_owed, done)

        waits = Signal(6)
        m.d.comb += [
            waits.eq(Mux(have, BlockedOn.DATA_PLANE, Mux(current.from_dram, BlockedOn.DRAM, BlockedOn.MEMORY))),
            self.blocked_status.tag.eq(current.tag),
            self.blocked_status.peer.eq(current.dst_tile),
        ]
        flit = self.data.payload
        ready = Signal(name="data_ready")  # the NoC takes a flit of this packet
        m.d.comb += ready.eq(self.data.ready.bit_select(current.vc, 1) if len(current.vc) else self.data.ready)
        m.d.comb += flit.vc.eq(current.vc)
        m.d.sync += sent.clock.eq(self.now + 1)
        if self.has_dram and self.config.dram.whole_packets:
            with m.If(sent.heading & current.from_dram):
                m.d.comb += have.eq(self.run_level >= sent.packet)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += sending.eq(0)
                with m.If(descriptors.r_rdy):
                    m.d.comb += descriptors.r_en.eq(1)
                    m.d.sync += [
                        current.eq(incoming),
                        sent.address.eq(incoming.dst),
                        sent.base.eq(incoming.dst),
                        sent.run_left.eq(incoming.dst_run),
                        sent.left.eq(incoming.words),
                        sent.stall.eq(0),
                    ]
                    self._keep_packet(m, sent, measured)
                    m.next = "HEAD"
            with m.State("HEAD"):
                m.d.comb += [
                    sent.heading.eq(1),
                    self.busy.eq(1),
                    self.blocked_status.waits.eq(Mux(free, waits, BlockedOn.POSTS)),
                    flit.data.eq(self._head(m, sent)),
                    self.data.valid.eq(have & free),
                    self.net_stall.eq(have & ~ready),
                    self.mem_stall.eq(~have),
                ]
                with m.If(self.data.valid & ready):
                    self._begin_packet(m, sent)
                    m.next = "BODY"
            with m.State("BODY"):
                self._keep_packet(m, sent, measured)
                m.d.comb += [
                    self.busy.eq(1),
                    self.blocked_status.waits.eq(waits),
                    Cat(flit.data[:bits], flit.data[plain_flit_bits(self.config) :]).eq(word),
                    flit.last.eq(sent.counter == 1),
                    self.data.valid.eq(have),
                    take.eq(have & ready),
                    self.net_stall.eq(have & ~ready),
                    self.mem_stall.eq(~have),
                ]
                with m.If(take):
                    m.d.sync += sent.counter.eq(sent.counter - 1)
                    with m.If(sent.counter == 1):
                        with m.If(sent.left == 0):
                            self._retire(m, sent, post_owed, done)
                            m.next = "IDLE"
                        with m.Else():
                            m.next = "HEAD"
        with m.If((self.net_stall | self.mem_stall) & ~sent.stall.all()):
            m.d.sync += sent.stall.eq(sent.stall + 1)
        return sending

    def _measure(self, m: Module, sent: _Sent, incoming: data.View, sending: Signal) -> tuple[Value, ...]:
        """How long the next packet is: to the end of the run, of the MOVE, or the next multiple of `packet_words`.
        Returns `packet`, `ends_run` and `ends` for the state that follows: in IDLE those of the MOVE that comes in, in
        BODY those of what is left. All numbers are compared at once."""
        longest = self.config.packet_words
        inside = longest.bit_length() - 1
        run_left, left = Signal.like(sent.run_left), Signal.like(sent.left)
        offset, to_boundary = Signal(inside), Signal(7)
        run_longer, move_longer, run_beyond, move_beyond = (
            Signal(name=name) for name in ("run_longer", "move_longer", "run_beyond", "move_beyond")
        )
        m.d.comb += [
            run_left.eq(Mux(sending, sent.run_left, incoming.dst_run)),
            left.eq(Mux(sending, sent.left, incoming.words)),
            offset.eq(Mux(sending, sent.address[:inside], incoming.dst[:inside])),
            to_boundary.eq(longest - offset),
            run_longer.eq(run_left > left),
            move_longer.eq(left > run_left),
            run_beyond.eq(run_left > to_boundary),
            move_beyond.eq(left > to_boundary),
        ]
        packet = Mux(run_beyond & move_beyond, to_boundary, Mux(run_longer, left, run_left))
        return packet, ~run_longer & ~run_beyond, ~move_longer & ~move_beyond

    @staticmethod
    def _keep_packet(m: Module, sent: _Sent, measured: tuple[Value, ...]) -> None:
        m.d.sync += [of.eq(value) for of, value in zip((sent.packet, sent.ends_run, sent.ends), measured, strict=True)]

    def _next_head(self, m: Module, sent: _Sent) -> None:
        """The head of the packet at `address`."""
        current, head = sent.current, sent.head
        inside = self.config.packet_words.bit_length() - 1  # bits of an address between two multiples
        m.d.comb += sent.target.eq(sent.address)
        if self.config.programs:  # a packet does not cross a multiple of `packet_words`, and so no page
            abroad = current.to_dram & outside(current.pages, sent.place.region, sent.place.offset)
            with m.If(abroad):
                m.d.comb += sent.target.eq(Cat(sent.address[:inside], first_word(current.pages)[inside:]))
            with m.If(sent.heading & self.data.valid & abroad):
                m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.RIGHTS)]
                m.d.comb += [self.fault.tag.eq(current.tag), self.fault.value.eq(sent.address)]
        m.d.comb += [
            head.dst_tile.eq(current.dst_tile),
            head.addr.eq(sent.target),
            head.words.eq(sent.packet),
            head.notify_tile.eq(current.notify_tile),
            head.notify_sem.eq(current.notify_sem),
            head.notify.eq(current.notify & sent.ends),
            head.parity.eq(Cat(head[name] for name in DATA_HEAD.offsets if name != "parity").xor()),
        ]

    @staticmethod
    def _begin_packet(m: Module, sent: _Sent) -> None:
        """The head has been taken: advances to the next packet's address."""
        packet = sent.packet
        m.d.sync += [
            sent.counter.eq(packet),
            sent.address.eq(sent.address + packet),
            sent.run_left.eq(sent.run_left - packet),
            sent.left.eq(sent.left - packet),
        ]
        with m.If(sent.ends_run):
            stride = sent.current.dst_stride
            m.d.sync += [sent.address.eq(sent.base + stride), sent.base.eq(sent.base + stride)]
            m.d.sync += sent.run_left.eq(sent.current.dst_run)

    def _retire_slot(self, m: Module, post_owed: Signal, done: PendingRecord) -> Signal:
        """Drives the pending post of a finished MOVE; returns whether no post or record is pending."""
        m.d.comb += self.post.valid.eq(post_owed)
        with m.If(self.post.ready):
            m.d.sync += post_owed.eq(0)
        with m.If(done.traced):
            m.d.sync += done.pending.eq(0)
        free = Signal()
        m.d.comb += free.eq(~post_owed & ~done.pending)
        return free

    def _retire(self, m: Module, sent: _Sent, post_owed: Signal, done: PendingRecord) -> None:
        """Fills the retire slot with the post and the record of the MOVE that completes in this cycle."""
        current, record = sent.current, done.record
        m.d.sync += [
            post_owed.eq(current.post_n != 0),
            self.post.payload.sem.eq(current.post_sem),
            self.post.payload.n.eq(current.post_n),
            done.pending.eq(current.tag != FETCH_TAG),
            record.tag.eq(current.tag),
            record.unit.eq(int(Unit.MOVER)),
            record.opcode.eq(int(Opcode.MOVE)),
            record.wait.eq(current.waited),
            record.stall.eq(sent.stall),
            record.start.eq(current.start),
            record.end.eq(self.now + 1),
        ]

    def _head(self, m: Module, sent: _Sent) -> Value:
        """A head flit: the fields that every chip has, its injection time, and its route."""
        current = sent.current
        parts: list[Value] = [sent.head.as_value()[: DATA_HEAD.used]]
        if self.config.noc.arrivals:
            arrival = Signal(ARRIVAL.layout())
            offered = Signal()
            injected_at = Signal.like(arrival.injected_at)  # the cycle since which the head has been offered
            m.d.comb += [
                arrival.tag.eq(current.tag),
                arrival.injected_at.eq(Mux(offered, injected_at, sent.clock)),
                arrival.parity.eq(Cat(arrival.tag, arrival.injected_at).xor()),
            ]
            m.d.sync += [offered.eq(self.data.valid & self.net_stall), injected_at.eq(arrival.injected_at)]
            parts.append(arrival.as_value())
        if self.config.noc.multicast:
            parts += [current.copies, current.copies.xor()]  # `isa.COPIES`
        return Cat(*parts, current.routed, current.turns)
