"""The receiving side of the network interface: checks packets of the data plane, writes their words, sends notifies.

data plane --> (ejection_buffer of each virtual channel) --> turn --> head: check, remember
                                                            body: write ----> memory, rings, DRAM port
                                                            tail: `delivered` -> semaphores, post plane
                                                                  `record` -> trace
"""

from __future__ import annotations

from enum import IntEnum

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..spec.contracts import ARRIVAL_RECORDS, EJECTION_FLITS
from ..spec.isa import (
    ADDRESS,
    ARRIVAL,
    COPIES,
    DATA_HEAD,
    FETCH_TAG,
    BlockedOn,
    Cause,
    Opcode,
    Region,
    Unit,
    copies_at,
    data_flit_bits,
    plain_flit_bits,
)
from ..wiring.ecc import Code, error_ports
from ..wiring.signatures import (
    BlockedStatus,
    FaultPort,
    FaultSignature,
    Notice,
    TraceRecord,
    WriteHead,
    detail,
    split_address,
    word_write,
)
from .link import Flit, Link, LinkPort
from .output_unit import round_robin_grant


class _State(IntEnum):
    """What the next flit of a virtual channel is."""

    HEAD = 0
    BODY = 1


def _context() -> data.StructLayout:
    """The state kept for the packet in flight on a virtual channel. `refused`: what is left of it is drained."""
    return data.StructLayout(
        {
            "state": 1,
            "refused": 1,
            **DATA_HEAD.members("addr", "notify_tile", "notify_sem", "notify"),
            **ADDRESS.members("region", "offset"),
            "left": DATA_HEAD.bits("words"),
            "tag": ARRIVAL.bits("tag"),
            "words": DATA_HEAD.bits("words"),
            "start": 32,
        }
    )


class _Turn:
    """The virtual channel that has its turn: its flit (`valid`), whether one would be taken in this cycle (`open`) and
    is (`take`), the state of its packet (`packet`), and the state from the next cycle on if the flit is taken
    (`following`)."""

    def __init__(self, bits: int) -> None:
        # `valid` gets no name: with one channel it is `flit.valid`, which must keep its name in netlists.
        self.valid, self.open, self.take = Signal(), Signal(name="open"), Signal(name="take")
        self.flit: data.View = Signal(Flit(bits))
        self.packet: data.View = Signal(_context())
        self.following: data.View = Signal(_context())


class DataReceiver(wiring.Component):
    """Writes arriving packets into the memories of the tile.

    Every head is checked for parity and against `depths` (words of each writable region) before the first word is
    written, and the tail against the length in the head; a packet that fails is a fault, in the cycle after, and is
    drained unwritten.
    Throughput: one flit a cycle. Latency: a payload flit taken in cycle t is written at the end of t; `delivered` is
    valid from t + 1 on. For DRAM packets (`dram=True`, region MAIN) the DRAM port notifies instead, when the write has
    been answered. Packets that are taken on their way to another tile (`noc.multicast`) notify nobody here.
    `blocked_status`: what the packet in flight waits for, for the host when it asks.

    With several virtual channels each has an ejection buffer (a flit accepted in cycle t can be taken from t + 1 on),
    and packets on different channels are written interleaved: in each cycle one channel that has a flit gets the turn,
    in round robin. If its flit cannot be taken in this cycle, the turn still passes on. DRAM takes one packet at a
    time: until its tail has been taken, heads of other packets for DRAM get no turn.

    If the chip's heads carry their injection time (`isa.ARRIVAL`), every packet except instruction fetches leaves a
    `record`: unit NONE, opcode MOVE, the tag of its MOVE, start = the cycle from which its head was offered to the
    NoC, end = the cycle after its tail was taken here, wait = its words. (A packet in flight for 2**16 cycles or more
    looks younger than it is.)
    """

    flit: LinkPort
    now: Signal
    write: stream.Interface
    delivered: stream.Interface
    record: stream.Interface  # with arrivals only
    fault: FaultPort
    blocked_status: data.View  # BlockedStatus
    active: Signal
    burst: stream.Interface  # DRAM tiles only, like `burst_data`
    burst_data: stream.Interface
    corrected: Signal  # with `ecc` only, like the next two
    lost: Signal
    packet_address: Signal  # of the packet that has its turn
    tile: Signal  # the address of this one; with `noc.multicast` only

    def __init__(self, config: ChipConfig, depths: dict[Region, int], dram: bool = False) -> None:
        self.config, self.depths, self.dram = config, depths, dram
        self.vcs, self.bits = config.noc.data_vcs, data_flit_bits(config)
        members = {
            "flit": In(Link(self.bits, self.vcs)),
            "now": In(32),
            "write": Out(word_write(config)),
            "delivered": Out(stream.Signature(Notice)),
            "fault": Out(FaultSignature()),
            "blocked_status": Out(BlockedStatus),
            "active": Out(1),
        }
        if config.noc.arrivals:
            members["record"] = Out(stream.Signature(TraceRecord))
        if config.noc.multicast:
            members["tile"] = In(8)
        if dram:
            members["burst"] = Out(stream.Signature(WriteHead))
            members["burst_data"] = Out(stream.Signature(config.coded_bits))
        if config.ecc:
            members |= {**error_ports(config), "packet_address": Out(ADDRESS.width)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        turn = _Turn(self.bits)
        valid, take, flit, packet, following = turn.valid, turn.take, turn.flit, turn.packet, turn.following
        m.d.comb += [following.eq(packet), take.eq(valid & turn.open)]
        if self.vcs == 1:
            self._only(m, turn)
        else:
            self._in_turn(m, turn)
        head = data.View(DATA_HEAD.layout(), flit.data[: DATA_HEAD.width])
        to_dram = Signal()
        if self.dram:
            m.d.comb += to_dram.eq(packet.region == Region.MAIN)

        # one pending notify
        owed = Signal()
        note = Signal(Notice)
        told = Signal()
        m.d.comb += [
            self.delivered.valid.eq(owed),
            self.delivered.payload.eq(note),
            self.active.eq(self.flit.valid | valid | owed | self.fault.valid),
            told.eq(~owed | self.delivered.ready),
        ]
        with m.If(self.delivered.ready):
            m.d.sync += owed.eq(0)
        notifies = Signal()
        done = Signal()
        m.d.comb += [notifies.eq(packet.notify & ~to_dram), done.eq(take & flit.last)]

        good, flipped = self._check(m, flit, head)
        coded = self._decode(m, turn, to_dram)
        word = self.write.payload
        m.d.comb += [word.region.eq(packet.region), word.offset.eq(packet.offset)]
        # the head may have been taken before a packet on another channel filled the slot
        free = self._record(m, packet, following, flit, done)
        if self.vcs > 1:
            free = free & (told | ~(flit.last & notifies))
        sink_ready = Signal()
        m.d.comb += sink_ready.eq(self.write.ready)
        if self.dram:
            m.d.comb += self.burst_data.payload.eq(coded)
            with m.If(to_dram):
                m.d.comb += sink_ready.eq(self.burst_data.ready)

        blocked_status = self.blocked_status
        m.d.sync += self.fault.valid.eq(0)
        with m.Switch(packet.state):
            with m.Case(_State.HEAD):
                self._on_head(m, turn, head, good, flipped, owed, told)
            with m.Case(_State.BODY):
                with m.If(flit.last):
                    m.d.comb += following.state.eq(_State.HEAD)
                with m.If(packet.refused):
                    m.d.comb += turn.open.eq(1)
                    with m.If(~valid):
                        m.d.comb += blocked_status.waits.eq(BlockedOn.FLITS)
                        m.d.comb += detail(blocked_status).eq(Cat(packet.offset, packet.region))
                with m.Else():
                    self._on_word(m, turn, to_dram, sink_ready, free)
                    with m.If(done & notifies):  # tails without a notify may be taken while the slot is full
                        m.d.sync += [note.notify_tile.eq(packet.notify_tile), note.notify_sem.eq(packet.notify_sem)]
                        m.d.sync += [note.notify.eq(1), owed.eq(1)]
                    with m.If(~take):
                        blocked = Mux(to_dram, BlockedOn.DRAM, BlockedOn.MEMORY)
                        m.d.comb += blocked_status.waits.eq(
                            Mux(valid, Mux(free, blocked, BlockedOn.POSTS), BlockedOn.FLITS)
                        )
                        m.d.comb += [
                            blocked_status.tag.eq(packet.left),
                            detail(blocked_status).eq(Cat(packet.offset, packet.region)),
                        ]
        return m

    def _on_head(
        self, m: Module, turn: _Turn, head: data.View, good: Signal, flipped: Signal, owed: Signal, told: Signal
    ) -> None:
        """A head: stores the packet's state, and begins the burst if it goes to DRAM. A head that is not `good` is a
        fault. A head is taken only when a notify that is still `owed` has been `told`."""
        take, flit, following, blocked_status = turn.take, turn.flit, turn.following, self.blocked_status
        address = split_address(head.addr)
        is_dram: Value | int = (address.region == Region.MAIN) if self.dram else 0
        m.d.comb += turn.open.eq(told)
        if self.dram:
            burst = Signal()
            m.d.comb += [
                burst.eq(good & is_dram),
                turn.open.eq(told & (~is_dram | self.burst.ready)),  # a bad one waits, too: that it is is seen late
                self.burst.valid.eq(turn.valid & told & burst),
                self.burst.payload.offset.eq(address.offset),
                self.burst.payload.words.eq(head.words),
                self.burst.payload.notify_tile.eq(head.notify_tile),
                self.burst.payload.notify_sem.eq(head.notify_sem),
                self.burst.payload.notify.eq(self._notifies(head)),
            ]
        m.d.comb += [
            *(following[name].eq(head[name]) for name in ("addr", "notify_tile", "notify_sem")),
            following.notify.eq(self._notifies(head)),
            following.region.eq(address.region),
            following.offset.eq(address.offset),
            following.left.eq(head.words),
            following.state.eq(Mux(flit.last, _State.HEAD, _State.BODY)),
            following.refused.eq(~good),  # which is late in a cycle, and looked at in the next
        ]
        with m.If(turn.valid & ~take):
            m.d.comb += blocked_status.waits.eq(Mux(owed, BlockedOn.POSTS, BlockedOn.DRAM))
            m.d.comb += [blocked_status.tag.eq(head.words), detail(blocked_status).eq(head.addr)]
        with m.If(take):
            wrong = Mux(flit.last | (head.words == 0), Cause.LENGTH, Cause.ADDRESS)
            m.d.sync += self.fault.cause.eq(Mux(flipped, Cause.PARITY, wrong))
            m.d.sync += [self.fault.valid.eq(~good), self.fault.value.eq(head.addr)]

    def _notifies(self, head: data.View) -> Value:
        """Whether a post is owed for the packet of a head. Tiles that take it on its way have it before its destination
        has, which posts for all."""
        return head.notify & (head.dst_tile == self.tile) if self.config.noc.multicast else head.notify

    def _copies(self, flit: data.View) -> data.View:
        """What a head says about the tiles that take its packet."""
        return data.View(COPIES.layout(), flit.data[copies_at(self.config) :][: COPIES.used])

    def _on_word(self, m: Module, turn: _Turn, to_dram: Signal, sink_ready: Signal, free: Value) -> None:
        """A payload word: written at the end of this cycle if its memory is ready (`sink_ready`) and there is room for
        the notify and the record of its packet (`free`)."""
        take, flit, packet, following = turn.take, turn.flit, turn.packet, turn.following
        offered = Signal()
        m.d.comb += [
            offered.eq(turn.valid & free),
            self.write.valid.eq(offered & ~to_dram),
            turn.open.eq(free & sink_ready),
            following.offset.eq(packet.offset + 1),
            following.left.eq(packet.left - 1),
        ]
        if self.dram:
            m.d.comb += self.burst_data.valid.eq(offered & to_dram)
        with m.If(packet.left == 1):
            m.d.comb += following.refused.eq(1)
        with m.If(take & (flit.last != (packet.left == 1))):
            m.d.sync += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.LENGTH)]
            m.d.sync += self.fault.value.eq(packet.addr)

    def _only(self, m: Module, turn: _Turn) -> None:
        """One virtual channel: flits are taken directly from the NoC."""
        m.d.comb += [
            turn.valid.eq(self.flit.valid),
            turn.flit.eq(self.flit.payload),
            self.flit.ready.eq(turn.open),
        ]
        kept = Signal(_context(), name="kept")
        m.d.comb += turn.packet.eq(kept)
        with m.If(turn.take):
            m.d.sync += kept.eq(turn.following)

    def _in_turn(self, m: Module, turn: _Turn) -> None:
        """Several channels: each has an ejection buffer and packet state; an arbiter gives the turn. Latency: one cycle
        in the ejection buffer."""
        valid, take, flit, packet, following = turn.valid, turn.take, turn.flit, turn.packet, turn.following
        ejection_buffers = [fifo.SyncFIFO(width=flit.shape().size, depth=EJECTION_FLITS) for _ in range(self.vcs)]
        kept = [Signal(_context(), name=f"kept_{vc}") for vc in range(self.vcs)]
        candidates, chosen, before = (Signal(self.vcs, name=name) for name in ("candidates", "chosen", "before"))
        locked = Signal(self.vcs)  # the channel whose packet is being written to DRAM
        arriving = self.flit.payload
        for vc, ejection_buffer in enumerate(ejection_buffers):
            m.submodules[f"ejection_{vc}"] = ejection_buffer
            front = data.View(DATA_HEAD.layout(), ejection_buffer.r_data[: DATA_HEAD.width])
            m.d.comb += [
                ejection_buffer.w_data.eq(Cat(arriving.data, arriving.last)),
                ejection_buffer.w_en.eq(self.flit.valid & (arriving.vc == vc)),
                self.flit.ready[vc].eq(ejection_buffer.w_rdy),
                ejection_buffer.r_en.eq(take & chosen[vc]),
                candidates[vc].eq(ejection_buffer.r_rdy),
            ]
            if self.dram:
                to_dram = (kept[vc].state == _State.HEAD) & (split_address(front.addr).region == Region.MAIN)
                m.d.comb += candidates[vc].eq(ejection_buffer.r_rdy & ~(locked.any() & ~locked[vc] & to_dram))
            with m.If(chosen[vc]):
                m.d.comb += [flit.eq(ejection_buffer.r_data), packet.eq(kept[vc])]
            with m.Elif(~valid & (kept[vc].state != _State.HEAD)):  # so that `blocked_status` can report it
                m.d.comb += packet.eq(kept[vc])
            with m.If(take & chosen[vc]):
                m.d.sync += kept[vc].eq(following)
        m.d.comb += [chosen.eq(round_robin_grant(m, "ejection_turn", candidates, before)), valid.eq(chosen.any())]
        with m.If(valid):
            m.d.sync += before.eq(chosen)
        if self.dram:
            drained = (packet.state == _State.BODY) & packet.refused  # none of its words goes to DRAM
            goes_on = (following.state == _State.BODY) & ~following.refused
            with m.If(take & (following.region == Region.MAIN) & ~drained):
                m.d.sync += locked.eq(Mux(goes_on, chosen, 0))

    def _decode(self, m: Module, turn: _Turn, to_dram: Signal) -> Value:
        """Drives the word to be written, which is corrected in chips with `ecc` and keeps its check bits. Returns it as
        it came: of what goes to DRAM (`to_dram`) the port there takes care."""
        code, flit, packet = Code(self.config.word_bits, self.config.ecc), turn.flit, turn.packet
        coded = Cat(flit.data[: code.bits], flit.data[plain_flit_bits(self.config) :])
        decoded = code.decode(m, coded, "arriving")
        m.d.comb += self.write.payload.data.eq(decoded.coded)
        if code.used:
            looks = turn.valid & (packet.state == _State.BODY) & ~packet.refused & ~to_dram
            m.d.comb += self.packet_address.eq(packet.addr)
            m.d.comb += [self.corrected.eq(looks & decoded.corrected), self.lost.eq(looks & decoded.lost)]
        return coded

    def _check(self, m: Module, flit: data.View, head: data.View) -> tuple[Signal, Signal]:
        """(the head is valid and its packet may be written, its parity is wrong)."""
        address = split_address(head.addr)
        inside = max(self.depths.values()).bit_length()  # bits of an offset in the largest region: few to add up
        near, far = address.offset[:inside], address.offset[inside:]
        end = Signal(max(inside, len(head.words)) + 1)
        fits = [(address.region == int(number)) & (end <= depth) for number, depth in self.depths.items()]
        good = Signal()
        flipped = Signal()
        odd = flit.data[: DATA_HEAD.used].xor()
        if self.config.noc.arrivals:
            odd |= flit.data[DATA_HEAD.used :][: ARRIVAL.used].xor()
        if self.config.noc.multicast:
            odd |= self._copies(flit).as_value().xor()
        m.d.comb += [
            flipped.eq(odd),
            end.eq(near + head.words),
            good.eq(~flipped & ~far.any() & Cat(*fits).any() & (head.words != 0) & ~flit.last),
        ]
        return good, flipped

    def _record(self, m: Module, packet: data.View, following: data.View, flit: data.View, done: Signal) -> Value:
        """Records arrivals; returns whether the record queue lets the flit through."""
        free = Signal()
        m.d.comb += free.eq(1)
        if not self.config.noc.arrivals:
            return free
        arrival = data.View(ARRIVAL.layout(), flit.data[DATA_HEAD.used :][: ARRIVAL.used])
        head = data.View(DATA_HEAD.layout(), flit.data[: DATA_HEAD.width])
        age = Signal(len(arrival.injected_at))
        m.d.comb += age.eq(self.now - arrival.injected_at)
        with m.If(packet.state == _State.HEAD):
            m.d.comb += [following.tag.eq(arrival.tag), following.words.eq(head.words)]
            m.d.comb += following.start.eq(self.now - age)
        m.submodules.records = records = fifo.SyncFIFO(width=TraceRecord.size, depth=ARRIVAL_RECORDS)
        made = Signal(TraceRecord)
        m.d.comb += [
            made.tag.eq(packet.tag),
            made.unit.eq(int(Unit.NONE)),
            made.opcode.eq(int(Opcode.MOVE)),
            made.wait.eq(packet.words),
            made.start.eq(packet.start),
            made.end.eq(self.now + 1),
            records.w_data.eq(made),
            records.w_en.eq(done & (packet.state == _State.BODY) & ~packet.refused & (packet.tag != FETCH_TAG)),
            self.record.valid.eq(records.r_rdy),
            self.record.payload.eq(records.r_data),
            records.r_en.eq(self.record.ready),
            free.eq(records.w_rdy | ~flit.last),
        ]
        with m.If(records.r_rdy):
            m.d.comb += self.active.eq(1)
        return free
