"""The mover: the one engine that carries words out of a tile's memory.

It serves its own stream and the MOVEs that other tiles request (pulls), in turn. A MOVE of the own stream whose source
is another tile is forwarded there; so is a FETCH.

Two halves work side by side, so that the next MOVE reads while the one before is still being sent:

    own stream --+--> source generator --> memory / DRAM --> words --+
    requests   --+                                                   +--> packetiser --> data plane
                 +--> descriptors ------------------------------------+

Throughput: `words + packets + 1` cycles per MOVE when the network takes a flit every cycle (one head flit per packet,
one cycle to take the next descriptor). A packet holds at most 64 words and ends where the destination run ends or the
destination address reaches a multiple of 64.
Latency: a MOVE taken in cycle t shows its head flit in cycle t + 3 from a local memory. A head is shown only when the
first word is there, so a packet never holds a path open while DRAM is thinking.

A local memory is read from t + 1 on, one word a cycle, in order; a word that is read in cycle r can be sent from r + 2
on. `LOCAL_FIFO` words at most have been read and not been sent. A memory may refuse (ACC, while the drain path reads
addends): the word is asked for again in every cycle. The packetiser waits as soon as it has sent what was read: of n
refused cycles in a row it loses n less the words beyond two that had been read and not been sent. These are two while
a word goes every cycle, and up to four behind a head or while the network stands still.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..config import PACKET_WORDS, ChipConfig, TileKind
from ..contracts import DRAM_DESCRIPTORS, LOCAL_DESCRIPTORS, LOCAL_FIFO
from ..isa import ARRIVAL, DATA_HEAD, FETCH_TAG, INSTRUCTIONS, WAY, Cause, Opcode, Region, Unit, Waits, data_flit_bits
from ..noc.link import Link
from ..routes import TURN_BITS
from ..signatures import (
    WAITED_BITS,
    FaultSignature,
    Issue,
    MoveLayout,
    Request,
    SemPost,
    Standing,
    TraceRecord,
    Way,
    requested_move,
    steered,
    word_read,
)


def _descriptor(config: ChipConfig) -> data.StructLayout:
    """What the packetiser has to know of a MOVE; `turns`: a source route as heads hold it."""
    return data.StructLayout(
        {
            "dst_tile": 8,
            "dst": 28,
            "dst_run": 16,
            "dst_stride": 20,
            "words": 16,
            "notify_tile": 8,
            "notify_sem": 6,
            "notify": 1,
            "tag": 16,
            "post_sem": 6,
            "post_n": 4,
            "start": 32,
            "waited": WAITED_BITS,
            "from_dram": 1,
            "vc": ceil_log2(config.noc.data_vcs),
            "routed": 1 if config.noc.route_hops else 0,
            "turns": _turn_bits(config),
        }
    )


def _turn_bits(config: ChipConfig) -> int:
    return TURN_BITS * (config.noc.route_hops + 1) if config.noc.route_hops else 0


class Mover(wiring.Component):
    """Mover of one tile of kind `kind`; `depths` are the words of each region it can read.

    `standing`: what the MOVE that is being sent waits for, for the host when it asks.
    """

    tile: Signal
    now: Signal
    own: stream.Interface
    remote: stream.Interface
    forward: stream.Interface
    read: stream.Interface
    read_data: Signal
    data: Any  # Link
    post: stream.Interface
    record: stream.Interface
    fault: Any  # FaultSignature
    ended: Signal
    busy: Signal
    net_stall: Signal
    mem_stall: Signal
    standing: Any  # Standing
    active: Signal
    run: stream.Interface  # of DRAM tiles only, like `run_data`
    run_data: stream.Interface

    def __init__(self, config: ChipConfig, kind: TileKind, depths: dict[Region, int]) -> None:
        self.config, self.kind, self.depths = config, kind, depths
        self.has_dram = kind is TileKind.DRAM
        word = config.word_bits
        members = {
            "tile": In(8),
            "now": In(32),
            "own": In(stream.Signature(Issue)),
            "remote": In(stream.Signature(requested_move(config))),
            "forward": Out(stream.Signature(Request)),
            "read": Out(word_read()),
            "read_data": In(word),
            "data": Out(Link(data_flit_bits(config), config.noc.data_vcs)),
            "post": Out(stream.Signature(SemPost)),
            "record": Out(stream.Signature(TraceRecord)),
            "fault": Out(FaultSignature()),
            "ended": Out(1),
            "active": Out(1),
            "busy": Out(1),
            "net_stall": Out(1),
            "mem_stall": Out(1),
            "standing": Out(Standing),
        }
        if self.has_dram:
            members["run"] = Out(stream.Signature(data.StructLayout({"offset": 24, "words": 7})))
            members["run_data"] = In(stream.Signature(word))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word = self.config.word_bits
        m.submodules.descriptors = descriptors = fifo.SyncFIFO(
            width=_descriptor(self.config).size, depth=DRAM_DESCRIPTORS if self.has_dram else LOCAL_DESCRIPTORS
        )
        m.submodules.words = words = fifo.SyncFIFO(width=word, depth=LOCAL_FIFO)
        dispatch_record, engine_record = Signal(TraceRecord), Signal(TraceRecord)
        dispatch_traced, engine_traced = Signal(), Signal()  # strobes: the record has been taken

        engine_move, engine_waited = Signal(MoveLayout), Signal(WAITED_BITS)
        engine_way = Signal(Way)
        engine_valid, engine_ready = Signal(), Signal()
        self._dispatch(
            m, engine_move, engine_way, engine_waited, engine_valid, engine_ready, dispatch_record, dispatch_traced
        )
        self._source(m, engine_move, engine_way, engine_waited, engine_valid, engine_ready, descriptors, words)
        self._packetise(m, descriptors, words, engine_record, engine_traced)

        m.d.comb += self.active.eq(
            self.own.valid | self.remote.valid | self._reading | words.r_rdy | descriptors.r_rdy | self._sending
        )
        # Records: the engine's first, both are rare.
        engine_pending, dispatch_pending = self._engine_pending, self._dispatch_pending
        m.d.comb += [
            self.record.valid.eq(engine_pending | dispatch_pending),
            self.record.payload.eq(Mux(engine_pending, engine_record, dispatch_record)),
            engine_traced.eq(engine_pending & self.record.ready),
            dispatch_traced.eq(dispatch_pending & ~engine_pending & self.record.ready),
        ]
        with m.If(self.record.valid | self.post.valid):
            m.d.comb += self.active.eq(1)
        return m

    def _dispatch(
        self, m: Module, move: Any, way: Any, waited: Signal, valid: Signal, ready: Signal, record: Any, traced: Signal
    ) -> None:
        """Own instructions to the engine, the network or the end; requests to the engine; fair between the two."""
        code = self.own.payload.code
        own = data.View(MoveLayout, code)
        fetch = data.View(INSTRUCTIONS[Opcode.FETCH].layout(), code)
        self._dispatch_pending = pending = Signal()
        started = Signal()
        begun, start = Signal(32), Signal(32)
        is_move, to_engine, to_net = Signal(), Signal(), Signal()
        with m.If(traced):
            m.d.sync += pending.eq(0)
        m.d.comb += [
            is_move.eq(own.opcode == Opcode.MOVE),
            to_engine.eq(self.own.valid & is_move & (own.src_tile == self.tile)),
            to_net.eq(self.own.valid & ((is_move & (own.src_tile != self.tile)) | (own.opcode == Opcode.FETCH))),
            start.eq(Mux(started, begun, self.now)),
        ]
        own_way = self._own_way(m, is_move, record, start)
        # a request carries no wait and no fire time: both have been honoured here
        forwarded = Signal(MoveLayout)
        m.d.comb += [forwarded.eq(code), forwarded.wait_n.eq(0), forwarded.fire_at.eq(0)]
        request = self.forward.payload
        target = Signal(8)
        m.d.comb += [
            target.eq(Mux(is_move, own.src_tile, fetch.tile)),
            request.dst_tile.eq(target),
            request.unit.eq(fetch.unit),
            request.fetch.eq(~is_move),
            request.way.eq(Mux(is_move, own_way, 0)),
            request.code.eq(Mux(is_move, forwarded, code)),
        ]
        bad = Signal()
        m.d.comb += bad.eq(to_net & ~self._exists(target))
        m.d.comb += self.forward.valid.eq(to_net & ~pending & ~bad)
        with m.If(self.own.valid & ~started):
            m.d.sync += [begun.eq(self.now), started.eq(1)]
        with m.If(self.own.valid & self.own.ready):
            m.d.sync += started.eq(0)
        with m.If(self.forward.valid & self.forward.ready):
            m.d.comb += self.own.ready.eq(1)
            self._keep(m, record, own, start)
        with m.If(bad):
            m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.DESTINATION)]
            m.d.comb += [self.fault.tag.eq(own.tag), self.fault.value.eq(target)]
        with m.If(self.own.valid & (own.opcode == Opcode.END)):
            m.d.comb += [self.own.ready.eq(1), self.ended.eq(1)]

        last_own = Signal()
        pick_own = Signal()
        m.d.comb += [
            pick_own.eq(to_engine & (~self.remote.valid | ~last_own)),
            valid.eq(to_engine | self.remote.valid),
            move.eq(Mux(pick_own, code, self.remote.payload.code)),
            way.eq(Mux(pick_own, own_way, self.remote.payload.way if steered(self.config) else 0)),
            waited.eq(Mux(pick_own, self.own.payload.waited, 0)),
        ]
        with m.If(valid & ready):
            m.d.sync += last_own.eq(pick_own)
            with m.If(pick_own):
                m.d.comb += self.own.ready.eq(1)
            with m.Else():
                m.d.comb += self.remote.ready.eq(1)

    def _own_way(self, m: Module, is_move: Signal, record: Any, start: Signal) -> Any:
        """Takes ROUTEs; returns the way of the own stream's next MOVE."""
        way = Signal(Way, name="own_way")
        if not steered(self.config):
            return way
        code, pending = self.own.payload.code, self._dispatch_pending
        named = data.View(INSTRUCTIONS[Opcode.ROUTE].layout(), code)
        is_route, bad = Signal(), Signal(name="bad_route")
        m.d.comb += [
            is_route.eq(self.own.valid & (named.opcode == Opcode.ROUTE)),
            bad.eq((named.channel > self.config.noc.data_vcs) | (named.routed & (not self.config.noc.route_hops))),
        ]
        with m.If(self.own.valid & self.own.ready & is_move):
            m.d.sync += way.eq(0)
        with m.If(is_route & bad):
            m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.ROUTE)]
            m.d.comb += [self.fault.tag.eq(named.tag), self.fault.value.eq(named.channel)]
        with m.Elif(is_route & ~pending):
            m.d.comb += self.own.ready.eq(1)
            m.d.sync += [way[name].eq(named[name]) for name in WAY.offsets]
            self._keep(m, record, named, start)
        return way

    def _keep(self, m: Module, record: Any, instruction: Any, start: Value) -> None:
        """The record of an own instruction that is done in this cycle."""
        m.d.sync += [
            self._dispatch_pending.eq(1),
            record.tag.eq(instruction.tag),
            record.unit.eq(int(Unit.MOVER)),
            record.opcode.eq(instruction.opcode),
            record.wait.eq(self.own.payload.waited),
            record.start.eq(start),
            record.end.eq(self.now + 1),
        ]

    def _exists(self, tile: Value) -> Value:
        """Whether a tile address lies on the floorplan."""
        inside = (tile[:4] < self.config.width) & (tile[4:8] < self.config.height)
        for gap in self.config.gaps:
            inside &= tile != gap
        return inside

    def _source(
        self,
        m: Module,
        move: Any,
        way: Any,
        waited: Signal,
        valid: Signal,
        ready: Signal,
        descriptors: fifo.SyncFIFO,
        words: fifo.SyncFIFO,
    ) -> None:
        """Walks the source runs: one local word, or one DRAM burst, a cycle."""
        active = Signal()
        region, offset, base = Signal(4), Signal(24), Signal(24)
        run_left, run, left, stride, tag = Signal(16), Signal(16), Signal(16), Signal(20), Signal(16)
        load, bad_tile, bad_shape = Signal(), Signal(), Signal()
        m.d.comb += [
            bad_tile.eq(~self._exists(move.dst_tile) | (move.notify & ~self._exists(move.notify_tile))),
            bad_shape.eq((move.words == 0) | (move.src_run == 0) | (move.dst_run == 0)),
            ready.eq(~active & descriptors.w_rdy),
            load.eq(valid & ready),
        ]
        description = Signal(_descriptor(self.config))
        shared = [name for name in description.shape().members if name in MoveLayout.members]
        m.d.comb += [description[name].eq(move[name]) for name in shared]
        if self.config.noc.route_hops:
            m.d.comb += [description.routed.eq(way.routed), description.turns.eq(way.turns)]
        if self.config.noc.data_vcs > 1:
            with m.If(way.channel != 0):
                m.d.comb += description.vc.eq(way.channel - 1)
            with m.Else(), m.Switch(move.dst_tile):
                for tile in self.config.tiles:
                    with m.Case(tile):
                        m.d.comb += description.vc.eq(self.config.channel_of(tile))
        is_dram = (move.src[24:28] == Region.MAIN) if self.has_dram else 0
        m.d.comb += [
            description.start.eq(self.now),
            description.waited.eq(waited),
            description.from_dram.eq(is_dram),
            descriptors.w_data.eq(description),
        ]
        with m.If(load):
            with m.If(bad_tile | bad_shape):
                m.d.comb += [self.fault.valid.eq(1), self.fault.tag.eq(move.tag)]
                m.d.comb += self.fault.cause.eq(Mux(bad_tile, Cause.DESTINATION, Cause.SHAPE))
                stray = Mux(self._exists(move.dst_tile), move.notify_tile, move.dst_tile)
                m.d.comb += self.fault.value.eq(Mux(bad_tile, stray, move.words))
            with m.Else():
                m.d.comb += descriptors.w_en.eq(1)
                m.d.sync += [
                    active.eq(1),
                    region.eq(move.src[24:28]),
                    offset.eq(move.src[:24]),
                    base.eq(move.src[:24]),
                    run_left.eq(move.src_run),
                    run.eq(move.src_run),
                    left.eq(move.words),
                    stride.eq(move.src_stride),
                    tag.eq(move.tag),
                ]
        # how many words go at once, and whether they may
        count, step = Signal(16), Signal()
        limit = Signal(24)
        with m.Switch(region):
            for number, depth in self.depths.items():
                with m.Case(int(number)):
                    m.d.comb += limit.eq(depth - 1)
            with m.Default():
                m.d.comb += limit.eq(0)
        known = Signal()
        m.d.comb += known.eq(sum((region == int(number) for number in self.depths), start=0) != 0)
        past = Signal()
        m.d.comb += past.eq(~known | (offset + count > limit + 1))
        m.d.comb += [self.read.payload.region.eq(region), self.read.payload.offset.eq(offset)]
        arriving = Signal()
        self._reading = Signal()
        m.d.comb += self._reading.eq(active | arriving)
        local_go = Signal()
        m.d.comb += local_go.eq(active & ~past & (words.w_level + arriving < LOCAL_FIFO))
        m.d.sync += arriving.eq(0)
        if self.has_dram:
            burst = Signal(7)
            shorter = Signal(16)
            dram_active = Signal()
            m.d.comb += [
                dram_active.eq(region == Region.MAIN),
                shorter.eq(Mux(run_left < left, run_left, left)),
                burst.eq(PACKET_WORDS - offset[:6]),
                count.eq(Mux(~dram_active, 1, Mux(shorter < burst, shorter, burst))),
                self.run.payload.offset.eq(offset),
                self.run.payload.words.eq(count),
                self.run.valid.eq(active & dram_active & ~past),
                self.read.valid.eq(local_go & ~dram_active),
                step.eq((self.run.valid & self.run.ready) | (self.read.valid & self.read.ready)),
            ]
        else:
            m.d.comb += [
                count.eq(1),
                self.read.valid.eq(local_go),
                step.eq(self.read.valid & self.read.ready),
            ]
        m.d.comb += [words.w_en.eq(arriving), words.w_data.eq(self.read_data)]
        with m.If(self.read.valid & self.read.ready):
            m.d.sync += arriving.eq(1)
        with m.If(step):
            m.d.sync += [offset.eq(offset + count), run_left.eq(run_left - count), left.eq(left - count)]
            with m.If(run_left == count):
                m.d.sync += [offset.eq(base + stride), base.eq(base + stride), run_left.eq(run)]
            with m.If(left == count):
                m.d.sync += active.eq(0)
        with m.If(active & past):
            m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.ADDRESS), self.fault.tag.eq(tag)]
            m.d.comb += self.fault.value.eq((region << 24) | offset)

    def _packetise(
        self, m: Module, descriptors: fifo.SyncFIFO, words: fifo.SyncFIFO, record: Any, traced: Signal
    ) -> None:
        """Cuts the words into packets; posts and records when a MOVE's last word has been handed over."""
        current = Signal(_descriptor(self.config))
        incoming = data.View(_descriptor(self.config), descriptors.r_data)
        address, base = Signal(28), Signal(28)
        run_left, left = Signal(16), Signal(16)
        stall = Signal(21)
        packet, counter = Signal(7), Signal(7)
        have, word = Signal(), Signal(self.config.word_bits)
        take = Signal()
        m.d.comb += [have.eq(words.r_rdy), word.eq(words.r_data), words.r_en.eq(take)]
        if self.has_dram:
            with m.If(current.from_dram):
                m.d.comb += [have.eq(self.run_data.valid), word.eq(self.run_data.payload)]
                m.d.comb += [words.r_en.eq(0), self.run_data.ready.eq(take)]

        head = Signal(DATA_HEAD.layout())
        shorter, to_boundary = Signal(16), Signal(7)
        m.d.comb += [
            shorter.eq(Mux(run_left < left, run_left, left)),
            to_boundary.eq(PACKET_WORDS - address[:6]),
            packet.eq(Mux(shorter < to_boundary, shorter, to_boundary)),
            head.dst_tile.eq(current.dst_tile),
            head.addr.eq(address),
            head.words.eq(packet),
            head.notify_tile.eq(current.notify_tile),
            head.notify_sem.eq(current.notify_sem),
            head.notify.eq(current.notify & (left == packet)),
            head.parity.eq(Cat(head[name] for name in DATA_HEAD.offsets if name != "parity").xor()),
        ]
        # the retire slot: what a finished MOVE still owes
        post_owed = Signal()
        self._engine_pending = record_owed = Signal()
        m.d.comb += self.post.valid.eq(post_owed)
        with m.If(self.post.ready):
            m.d.sync += post_owed.eq(0)
        with m.If(traced):
            m.d.sync += record_owed.eq(0)
        free = Signal()
        m.d.comb += free.eq(~post_owed & ~record_owed)

        waits = Signal(6)
        m.d.comb += [
            waits.eq(Mux(have, Waits.DATA_PLANE, Mux(current.from_dram, Waits.DRAM, Waits.MEMORY))),
            self.standing.tag.eq(current.tag),
            self.standing.peer.eq(current.dst_tile),
        ]
        flit = self.data.payload
        ready = Signal(name="data_ready")  # the network takes a flit of this packet
        m.d.comb += ready.eq(self.data.ready.bit_select(current.vc, 1) if len(current.vc) else self.data.ready)
        m.d.comb += flit.vc.eq(current.vc)
        self._sending = sending = Signal(init=1)  # in every state but IDLE
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += sending.eq(0)
                with m.If(descriptors.r_rdy):
                    m.d.comb += descriptors.r_en.eq(1)
                    m.d.sync += [
                        current.eq(incoming),
                        address.eq(incoming.dst),
                        base.eq(incoming.dst),
                        run_left.eq(incoming.dst_run),
                        left.eq(incoming.words),
                        stall.eq(0),
                    ]
                    m.next = "HEAD"
            with m.State("HEAD"):
                m.d.comb += [
                    self.busy.eq(1),
                    self.standing.waits.eq(Mux(free, waits, Waits.POSTS)),
                    flit.data.eq(self._head(m, current, head)),
                    self.data.valid.eq(have & free),
                    self.net_stall.eq(have & ~ready),
                    self.mem_stall.eq(~have),
                ]
                with m.If(self.data.valid & ready):
                    m.d.sync += [
                        counter.eq(packet),
                        address.eq(address + packet),
                        run_left.eq(run_left - packet),
                        left.eq(left - packet),
                    ]
                    with m.If(run_left == packet):
                        m.d.sync += [address.eq(base + current.dst_stride), base.eq(base + current.dst_stride)]
                        m.d.sync += run_left.eq(current.dst_run)
                    m.next = "BODY"
            with m.State("BODY"):
                m.d.comb += [
                    self.busy.eq(1),
                    self.standing.waits.eq(waits),
                    flit.data.eq(word),
                    flit.last.eq(counter == 1),
                    self.data.valid.eq(have),
                    take.eq(have & ready),
                    self.net_stall.eq(have & ~ready),
                    self.mem_stall.eq(~have),
                ]
                with m.If(take):
                    m.d.sync += counter.eq(counter - 1)
                    with m.If(counter == 1):
                        with m.If(left == 0):
                            m.d.sync += [
                                post_owed.eq(current.post_n != 0),
                                self.post.payload.sem.eq(current.post_sem),
                                self.post.payload.n.eq(current.post_n),
                                record_owed.eq(current.tag != FETCH_TAG),
                                record.tag.eq(current.tag),
                                record.unit.eq(int(Unit.MOVER)),
                                record.opcode.eq(int(Opcode.MOVE)),
                                record.wait.eq(current.waited),
                                record.stall.eq(stall),
                                record.start.eq(current.start),
                                record.end.eq(self.now + 1),
                            ]
                            m.next = "IDLE"
                        with m.Else():
                            m.next = "HEAD"
        with m.If((self.net_stall | self.mem_stall) & ~stall.all()):
            m.d.sync += stall.eq(stall + 1)

    def _head(self, m: Module, current: Any, head: Any) -> Value:
        """A head flit: what every chip's says, when it was born, and its route."""
        parts: list[Value] = [head.as_value()[: DATA_HEAD.used]]
        if self.config.noc.arrivals:
            arrival = Signal(ARRIVAL.layout())
            offered, born = Signal(), Signal.like(arrival.born)  # it has been offered before, since then
            m.d.comb += [
                arrival.tag.eq(current.tag),
                arrival.born.eq(Mux(offered, born, self.now)),
                arrival.parity.eq(Cat(arrival.tag, arrival.born).xor()),
            ]
            m.d.sync += [offered.eq(self.data.valid & self.net_stall), born.eq(arrival.born)]
            parts.append(arrival.as_value())
        return Cat(*parts, current.routed, current.turns)
