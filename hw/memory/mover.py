"""The mover: the one engine that reads words from a tile's memory and sends them.

It serves its tile's stream and the MOVEs that other tiles request (pulls), alternately. A MOVE of its own stream whose
source is another tile is forwarded to that tile; so is a FETCH.

Two halves work concurrently, so that the next MOVE is read while the previous one is still being sent:

    own stream --+--> source generator --> memory / DRAM --> words --+
    requests   --+                                                   +--> packetiser --> data plane
                 +--> descriptors ------------------------------------+

Throughput: `words + packets + 1` cycles per MOVE if the NoC takes a flit every cycle (one head flit per packet, one
cycle to take the next descriptor). A packet holds at most 64 words and ends where the destination run ends or the
destination address reaches a multiple of 64.
Latency: the head flit of a MOVE taken in cycle t is offered in cycle t + 3 from a local memory. A head is offered only
once the first word is available, so a packet never holds a path open during a DRAM access.

A local memory is read from t + 1 on, one word a cycle, in order; a word read in cycle r can be sent from r + 2 on. At
most `LOCAL_FIFO` words have been read but not sent. A memory may refuse a read (ACC, while the drain path reads
addends), which is then repeated in every cycle. The packetiser stalls as soon as it has sent everything that was read:
of n refused cycles in a row it loses n less the words beyond two that had been read but not sent. These are two while
a word is sent every cycle, and up to four after a head or while the NoC stalls the packetiser.

In chips with `programs` no fault holds the mover up, and MOVEs stay inside the rights of their stream (`hw.rights`). A
MOVE of the stream to or from another tile is dropped, and so is an instruction with any other fault; a pull without any
words is one here, because the tile that it is for could not say whose it was. What would be read
or written outside of the program's pages, or past a memory, is read or written at their beginning instead: the MOVE
completes, its program does harm to none but itself, and the fault says that it cannot be relied on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..config import PACKET_WORDS, ChipConfig, TileKind
from ..contracts import DRAM_DESCRIPTORS, LOCAL_DESCRIPTORS, LOCAL_FIFO
from ..isa import (
    ARRIVAL,
    DATA_HEAD,
    FETCH_TAG,
    INSTRUCTIONS,
    ROUTE_BODY,
    BlockedOn,
    Cause,
    Opcode,
    Region,
    Unit,
    data_flit_bits,
)
from ..noc.link import Link
from ..rights import Pages, Rights, first_word, is_dram, limited, may_send_to, outside, pages_of
from ..routes import TURN_BITS
from ..signatures import (
    WAITED_BITS,
    BlockedStatus,
    FaultSignature,
    Issue,
    MoveLayout,
    Request,
    Route,
    SemPost,
    TraceRecord,
    requested_move,
    steered,
    word_read,
)

#: First bit of `fire_at` in an instruction, and the one after those that hold a request's pages (`hw.rights`).
_FIRE_AT = (at := INSTRUCTIONS[Opcode.MOVE].offsets["fire_at"][0], at + Pages.size)


def _descriptor(config: ChipConfig) -> data.StructLayout:
    """What the packetiser must know about a MOVE; `turns`: a source route as stored in heads."""
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
            "to_dram": int(config.programs > 0),
            "pages": Pages if config.programs else 0,
        }
    )


def _turn_bits(config: ChipConfig) -> int:
    return TURN_BITS * (config.noc.route_hops + 1) if config.noc.route_hops else 0


class _Engine:
    """A MOVE handed from `_dispatch` to `_source`, which takes it when `valid` and `ready`."""

    def __init__(self) -> None:
        self.move: Any = Signal(MoveLayout, name="engine_move")
        self.route: Any = Signal(Route, name="engine_route")
        self.waited = Signal(WAITED_BITS, name="engine_waited")
        self.pages: Any = Signal(Pages, name="engine_pages")
        self.foreign = Signal(name="engine_foreign")  # its tiles are not the program's
        self.requester = Signal(8, name="engine_requester")  # the tile whose program it is, in chips with `programs`
        self.valid = Signal(name="engine_valid")
        self.ready = Signal(name="engine_ready")


class _Record:
    """A trace record of half `name`, `pending` until the strobe `traced` signals that it has been taken."""

    def __init__(self, name: str) -> None:
        self.record: Any = Signal(TraceRecord, name=f"{name}_record")
        self.pending = Signal(name=f"{name}_pending")
        self.traced = Signal(name=f"{name}_traced")


class _Queues(NamedTuple):
    """Between the two halves: MOVEs, and words of local memory."""

    descriptors: fifo.SyncFIFO
    words: fifo.SyncFIFO


class _SourceRun:
    """Registers of the MOVE whose source is being read: the next word is at `offset`, `left` words remain to be read,
    `run_left` of them in the run that began at `base`."""

    def __init__(self) -> None:
        self.active = Signal()
        self.region = Signal(4)
        self.offset = Signal(24)
        self.base = Signal(24)
        self.run_left = Signal(16)
        self.run = Signal(16)
        self.left = Signal(16)
        self.stride = Signal(20)
        self.tag = Signal(16)
        self.pages: Any = Signal(Pages)
        self.requester = Signal(8)
        self.told = Signal()  # its fault has been raised


class _Sent:
    """Registers of the MOVE being sent, like those of `_SourceRun` for its source, and its next head."""

    def __init__(self, config: ChipConfig) -> None:
        self.current: Any = Signal(_descriptor(config))
        self.address = Signal(28)
        self.target = Signal(28)  # where the next packet goes: `address`, unless that is not the program's
        self.base = Signal(28)
        self.run_left = Signal(16)
        self.left = Signal(16)
        self.stall = Signal(21)  # cycles
        self.packet = Signal(7)  # words of the packet that begins at `address`
        self.counter = Signal(7)  # words of the current packet that remain to be sent
        self.head: Any = Signal(DATA_HEAD.layout())
        self.heading = Signal()  # `address` is that of a packet: after the last one there is none
        #: `now` as a register, right in every cycle that follows an active one, as those are in which a head is first
        #: offered: so what is put out does not follow an input in the same cycle.
        self.clock = Signal(32)


class Mover(wiring.Component):
    """Mover of one tile of kind `kind`; `depths` are the words of each region it can read.

    `blocked_status`: what the MOVE being sent waits for, for the host when it asks. `rights`: of the tile's stream,
    which `clear` ends. `heard`: a fault that is raised now is reported; `offender`: for whom it is, if a request caused
    it.
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
    blocked_status: Any  # Standing
    active: Signal
    clear: Signal  # this and the next three: chips with `programs` only
    rights: Any  # Rights
    heard: Signal
    offender: Any
    run: stream.Interface  # DRAM tiles only, like `run_data`
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
            "blocked_status": Out(BlockedStatus),
        }
        if self.has_dram:
            members["run"] = Out(stream.Signature(data.StructLayout({"offset": 24, "words": 7})))
            members["run_data"] = In(stream.Signature(word))
        if config.programs:
            members |= {"clear": In(1), "rights": In(Rights), "heard": In(1)}
            members["offender"] = Out(data.StructLayout({"valid": 1, "tile": 8}))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word = self.config.word_bits
        m.submodules.descriptors = descriptors = fifo.SyncFIFO(
            width=_descriptor(self.config).size, depth=DRAM_DESCRIPTORS if self.has_dram else LOCAL_DESCRIPTORS
        )
        m.submodules.words = words = fifo.SyncFIFO(width=word, depth=LOCAL_FIFO)
        queues = _Queues(descriptors, words)
        dispatched, sent = _Record("dispatch"), _Record("engine")
        engine = _Engine()
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

    def _dispatch(self, m: Module, engine: _Engine, done: _Record) -> None:
        """Dispatches own instructions to the engine, the NoC or the end, requests to the engine; fair between both."""
        code = self.own.payload.code
        own = data.View(MoveLayout, code)
        fetch = data.View(INSTRUCTIONS[Opcode.FETCH].layout(), code)
        started = Signal()
        begun = Signal(32)
        start = Signal(32)
        is_move = Signal()
        to_engine = Signal()
        to_net = Signal()
        with m.If(done.traced):
            m.d.sync += done.pending.eq(0)
        m.d.comb += [
            is_move.eq(own.opcode == Opcode.MOVE),
            to_engine.eq(self.own.valid & is_move & (own.src_tile == self.tile)),
            to_net.eq(self.own.valid & ((is_move & (own.src_tile != self.tile)) | (own.opcode == Opcode.FETCH))),
            start.eq(Mux(started, begun, self.now)),
        ]
        own_route = self._own_route(m, is_move, done, start)
        # a request carries no wait and no fire time: both have been satisfied here
        forwarded = Signal(MoveLayout)
        m.d.comb += [forwarded.eq(code), forwarded.wait_n.eq(0), forwarded.fire_at.eq(0)]
        request = self.forward.payload
        target = Signal(8)
        m.d.comb += [
            target.eq(Mux(is_move, own.src_tile, fetch.tile)),
            request.dst_tile.eq(target),
            request.unit.eq(fetch.unit),
            request.fetch.eq(~is_move),
            request.route.eq(Mux(is_move, own_route, 0)),
            request.code.eq(Mux(is_move, forwarded, code)),
        ]
        bad = Signal()
        foreign = Signal()
        shapeless = Signal()  # a pull of nothing: nobody would learn from the other tile whose it was
        m.d.comb += bad.eq(to_net & (~self._exists(target) | foreign | shapeless))
        m.d.comb += self.forward.valid.eq(to_net & ~done.pending & ~bad)
        mine: Any = Signal(Pages)
        asked: Any = Signal(Pages)
        if self.config.programs:
            m.d.comb += [
                mine.eq(pages_of(self.rights)),
                asked.eq(self.remote.payload.code[slice(*_FIRE_AT)]),
                forwarded.fire_at.eq(mine),
                foreign.eq(self._foreign(own) & is_move),
                shapeless.eq(is_move & self._shapeless(own)),
            ]
        with m.If(self.own.valid & ~started):
            m.d.sync += [begun.eq(self.now), started.eq(1)]
        with m.If(self.own.valid & self.own.ready):
            m.d.sync += started.eq(0)
        with m.If(self.forward.valid & self.forward.ready):
            m.d.comb += self.own.ready.eq(1)
            self._keep(m, done, own, start)
        with m.If(bad):
            m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Mux(foreign, Cause.RIGHTS, Cause.DESTINATION))]
            m.d.comb += [self.fault.tag.eq(own.tag), self.fault.value.eq(target)]
            if self.config.programs:
                m.d.comb += self.own.ready.eq(1)
                with m.If(~foreign & self._exists(target)):
                    m.d.comb += [self.fault.cause.eq(Cause.SHAPE), self.fault.value.eq(own.words)]
        with m.If(self.own.valid & (own.opcode == Opcode.END)):
            m.d.comb += [self.own.ready.eq(1), self.ended.eq(1)]

        last_own = Signal()
        pick_own = Signal()
        m.d.comb += [
            pick_own.eq(to_engine & (~self.remote.valid | ~last_own)),
            engine.valid.eq(to_engine | self.remote.valid),
            engine.move.eq(Mux(pick_own, code, self.remote.payload.code)),
            engine.route.eq(Mux(pick_own, own_route, self.remote.payload.route if steered(self.config) else 0)),
            engine.waited.eq(Mux(pick_own, self.own.payload.waited, 0)),
            engine.pages.eq(Mux(pick_own, mine, asked)),
            engine.foreign.eq(pick_own & foreign),
            engine.requester.eq(Mux(pick_own, self.tile, engine.move.dst_tile)),
        ]
        with m.If(engine.valid & engine.ready):
            m.d.sync += last_own.eq(pick_own)
            with m.If(pick_own):
                m.d.comb += self.own.ready.eq(1)
            with m.Else():
                m.d.comb += self.remote.ready.eq(1)
        if self.config.programs:
            with m.If(self.clear):
                m.d.sync += started.eq(0)

    def _foreign(self, move: Any) -> Value:
        """Whether a MOVE of the own stream reaches tiles that are not its program's. A pull comes here and nowhere
        else; data may go to the program's cores and to dram tiles; only its cores are notified and posted to."""
        config, rights = self.config, self.rights
        here = move.src_tile == self.tile
        other = Mux(here, move.dst_tile, move.src_tile)
        reaches = is_dram(config, other) | may_send_to(config, rights, other)
        strange = ~reaches | (~here & ((move.dst_tile != self.tile) | (is_dram(config, other) & (move.post_n != 0))))
        return limited(rights) & (strange | (move.notify & ~may_send_to(config, rights, move.notify_tile)))

    def _own_route(self, m: Module, is_move: Signal, done: _Record, start: Signal) -> Any:
        """Executes ROUTEs; returns the route of the own stream's next MOVE."""
        route = Signal(Route, name="own_route")
        if not steered(self.config):
            return route
        code = self.own.payload.code
        named = data.View(INSTRUCTIONS[Opcode.ROUTE].layout(), code)
        is_route = Signal()
        bad = Signal(name="bad_route")
        m.d.comb += [
            is_route.eq(self.own.valid & (named.opcode == Opcode.ROUTE)),
            bad.eq((named.channel > self.config.noc.data_vcs) | (named.routed & (not self.config.noc.route_hops))),
        ]
        with m.If(self.own.valid & self.own.ready & is_move):
            m.d.sync += route.eq(0)
        with m.If(is_route & bad):
            m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.ROUTE)]
            m.d.comb += [self.fault.tag.eq(named.tag), self.fault.value.eq(named.channel)]
            if self.config.programs:
                m.d.comb += self.own.ready.eq(1)
        with m.Elif(is_route & ~done.pending):
            m.d.comb += self.own.ready.eq(1)
            m.d.sync += [route[name].eq(named[name]) for name in ROUTE_BODY.offsets]
            self._keep(m, done, named, start)
        if self.config.programs:
            with m.If(self.clear):
                m.d.sync += route.eq(0)
        return route

    def _keep(self, m: Module, done: _Record, instruction: Any, start: Value) -> None:
        """Records an instruction of the tile's stream that completes in this cycle."""
        record = done.record
        m.d.sync += [
            done.pending.eq(1),
            record.tag.eq(instruction.tag),
            record.unit.eq(int(Unit.MOVER)),
            record.opcode.eq(instruction.opcode),
            record.wait.eq(self.own.payload.waited),
            record.start.eq(start),
            record.end.eq(self.now + 1),
        ]

    @staticmethod
    def _shapeless(move: Any) -> Value:
        """Whether a MOVE has no words, or runs without any."""
        return (move.words == 0) | (move.src_run == 0) | (move.dst_run == 0)

    def _exists(self, tile: Value) -> Value:
        """Whether a tile address is on the floorplan."""
        inside = (tile[:4] < self.config.width) & (tile[4:8] < self.config.height)
        for gap in self.config.gaps:
            inside &= tile != gap
        return inside

    def _source(self, m: Module, engine: _Engine, queues: _Queues) -> Signal:
        """Walks the source runs: one local word, or one DRAM burst, per cycle. Returns whether a word is being read.

        Latency: a MOVE taken in cycle t requests its first word, or burst, in t + 1.
        """
        run = _SourceRun()
        self._load(m, engine, run, queues)
        # how many words are requested at once, and whether they are taken
        count = Signal(16)
        step = Signal()
        past = self._past(m, run, count)
        m.d.comb += [self.read.payload.region.eq(run.region), self.read.payload.offset.eq(run.offset)]
        arriving = Signal()
        reading = Signal()
        m.d.comb += reading.eq(run.active | arriving)
        local_go = Signal()
        m.d.comb += local_go.eq(run.active & ~past & (queues.words.w_level + arriving < LOCAL_FIFO))
        m.d.sync += arriving.eq(0)
        if self.has_dram:
            burst = Signal(7)
            shorter = Signal(16)
            dram_active = Signal()
            m.d.comb += [
                dram_active.eq(run.region == Region.MAIN),
                shorter.eq(Mux(run.run_left < run.left, run.run_left, run.left)),
                burst.eq(PACKET_WORDS - run.offset[:6]),
                count.eq(Mux(~dram_active, 1, Mux(shorter < burst, shorter, burst))),
                self.run.payload.offset.eq(run.offset),
                self.run.payload.words.eq(count),
                self.run.valid.eq(run.active & dram_active & ~past),
                self.read.valid.eq(local_go & ~dram_active),
                step.eq((self.run.valid & self.run.ready) | (self.read.valid & self.read.ready)),
            ]
        else:
            m.d.comb += [
                count.eq(1),
                self.read.valid.eq(local_go),
                step.eq(self.read.valid & self.read.ready),
            ]
        m.d.comb += [queues.words.w_en.eq(arriving), queues.words.w_data.eq(self.read_data)]
        with m.If(self.read.valid & self.read.ready):
            m.d.sync += arriving.eq(1)
        with m.If(step):
            m.d.sync += [
                run.offset.eq(run.offset + count),
                run.run_left.eq(run.run_left - count),
                run.left.eq(run.left - count),
            ]
            with m.If(run.run_left == count):
                m.d.sync += [
                    run.offset.eq(run.base + run.stride),
                    run.base.eq(run.base + run.stride),
                    run.run_left.eq(run.run),
                ]
            with m.If(run.left == count):
                m.d.sync += run.active.eq(0)
        with m.If(run.active & past & ~run.told):
            m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.ADDRESS), self.fault.tag.eq(run.tag)]
            m.d.comb += self.fault.value.eq((run.region << 24) | run.offset)
            if self.config.programs:
                with m.If(self._abroad(run, count)):
                    m.d.comb += self.fault.cause.eq(Cause.RIGHTS)
                m.d.comb += [self.offender.valid.eq(run.pages.end_page != 0), self.offender.tile.eq(run.requester)]
        if self.config.programs:
            with m.If(run.active & past & (run.told | self.heard)):  # on at the beginning, of what may be read
                inside = (run.region == Region.MAIN) if self.has_dram else Const(0)
                begin = Mux(inside, first_word(run.pages), 0)
                m.d.sync += [run.told.eq(1), run.offset.eq(begin), run.base.eq(begin), run.stride.eq(0)]
                m.d.sync += [run.run_left.eq(run.left), run.region.eq(Mux(inside, Region.MAIN, Region.STATS))]
        return reading

    def _abroad(self, run: _SourceRun, count: Value) -> Value:
        """Whether what is to be read is DRAM (or another memory of a dram tile) outside of the program's pages."""
        if not self.has_dram:
            return Const(0)
        # what is read instead of another memory than DRAM is another memory, too
        return outside(run.pages, run.region, run.offset, count) & ((run.region == Region.MAIN) | ~run.told)

    def _load(self, m: Module, engine: _Engine, run: _SourceRun, queues: _Queues) -> None:
        """Takes a MOVE once the previous one has been read: reports a fault, or queues its descriptor and starts it."""
        move, descriptors = engine.move, queues.descriptors
        load = Signal()
        bad_tile = Signal()
        bad_shape = Signal()
        m.d.comb += [
            bad_tile.eq(~self._exists(move.dst_tile) | (move.notify & ~self._exists(move.notify_tile))),
            bad_shape.eq(self._shapeless(move)),
            engine.ready.eq(~run.active & descriptors.w_rdy),
            load.eq(engine.valid & engine.ready),
        ]
        m.d.comb += descriptors.w_data.eq(self._describe(m, engine))
        with m.If(load):
            with m.If(engine.foreign):
                m.d.comb += [self.fault.valid.eq(1), self.fault.tag.eq(move.tag), self.fault.cause.eq(Cause.RIGHTS)]
                m.d.comb += self.fault.value.eq(move.dst_tile)
            with m.Elif(bad_tile | bad_shape):
                m.d.comb += [self.fault.valid.eq(1), self.fault.tag.eq(move.tag)]
                m.d.comb += self.fault.cause.eq(Mux(bad_tile, Cause.DESTINATION, Cause.SHAPE))
                stray = Mux(self._exists(move.dst_tile), move.notify_tile, move.dst_tile)
                m.d.comb += self.fault.value.eq(Mux(bad_tile, stray, move.words))
            with m.Else():
                m.d.comb += descriptors.w_en.eq(1)
                m.d.sync += [
                    run.active.eq(1),
                    run.region.eq(move.src[24:28]),
                    run.offset.eq(move.src[:24]),
                    run.base.eq(move.src[:24]),
                    run.run_left.eq(move.src_run),
                    run.run.eq(move.src_run),
                    run.left.eq(move.words),
                    run.stride.eq(move.src_stride),
                    run.tag.eq(move.tag),
                    run.pages.eq(engine.pages),
                    run.requester.eq(engine.requester),
                    run.told.eq(0),
                ]

    def _describe(self, m: Module, engine: _Engine) -> Any:
        """The descriptor of a MOVE, with the virtual channel chosen by its route or else by its destination."""
        move, route = engine.move, engine.route
        description = Signal(_descriptor(self.config))
        shared = [name for name in description.shape().members if name in MoveLayout.members]
        m.d.comb += [description[name].eq(move[name]) for name in shared]
        if self.config.noc.route_hops:
            m.d.comb += [description.routed.eq(route.routed), description.turns.eq(route.turns)]
        if self.config.noc.data_vcs > 1:
            with m.If(route.channel != 0):
                m.d.comb += description.vc.eq(route.channel - 1)
            with m.Else(), m.Switch(move.dst_tile):
                for tile in self.config.tiles:
                    with m.Case(tile):
                        m.d.comb += description.vc.eq(self.config.channel_of(tile))
        from_dram = (move.src[24:28] == Region.MAIN) if self.has_dram else 0
        m.d.comb += [
            description.start.eq(self.now),
            description.waited.eq(engine.waited),
            description.from_dram.eq(from_dram),
        ]
        if self.config.programs:
            m.d.comb += [
                description.pages.eq(engine.pages),
                description.to_dram.eq(is_dram(self.config, move.dst_tile)),
            ]
        return description

    def _past(self, m: Module, run: _SourceRun, count: Signal) -> Signal:
        """Whether any of the next `count` words is outside a readable region."""
        limit = Signal(24)
        with m.Switch(run.region):
            for number, depth in self.depths.items():
                with m.Case(int(number)):
                    m.d.comb += limit.eq(depth - 1)
            with m.Default():
                m.d.comb += limit.eq(0)
        known = Signal()
        m.d.comb += known.eq(sum((run.region == int(number) for number in self.depths), start=0) != 0)
        past = Signal()
        m.d.comb += past.eq(~known | (run.offset + count > limit + 1))
        if self.config.programs:
            with m.If(self._abroad(run, count)):
                m.d.comb += past.eq(1)
        return past

    def _packetise(self, m: Module, queues: _Queues, done: _Record) -> Signal:
        """Cuts the words into packets; posts and records a MOVE when its last word has been handed over. Returns
        whether a MOVE is being sent.

        A head is offered only once the first word is available and the previous MOVE's post and record have been taken.
        """
        sent, descriptors, words = _Sent(self.config), queues.descriptors, queues.words
        current = sent.current
        incoming = data.View(_descriptor(self.config), descriptors.r_data)
        have = Signal()
        word = Signal(self.config.word_bits)
        take = Signal()
        m.d.comb += [have.eq(words.r_rdy), word.eq(words.r_data), words.r_en.eq(take)]
        if self.has_dram:
            with m.If(current.from_dram):
                m.d.comb += [have.eq(self.run_data.valid), word.eq(self.run_data.payload)]
                m.d.comb += [words.r_en.eq(0), self.run_data.ready.eq(take)]

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
        sending = Signal(init=1)  # in every state except IDLE
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
                m.d.comb += [
                    self.busy.eq(1),
                    self.blocked_status.waits.eq(waits),
                    flit.data.eq(word),
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

    def _next_head(self, m: Module, sent: _Sent) -> None:
        """The packet at `address`: to the end of the run, of the MOVE, or the next multiple of `PACKET_WORDS`."""
        current, head = sent.current, sent.head
        m.d.comb += sent.target.eq(sent.address)
        if self.config.programs:  # a packet does not cross a multiple of PACKET_WORDS, and so no page
            abroad = current.to_dram & outside(current.pages, sent.address[24:28], sent.address[:24])
            with m.If(abroad):
                m.d.comb += sent.target.eq(Cat(sent.address[:6], first_word(current.pages)[6:]))
            with m.If(sent.heading & self.data.valid & abroad):
                m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.RIGHTS)]
                m.d.comb += [self.fault.tag.eq(current.tag), self.fault.value.eq(sent.address)]
        shorter = Signal(16)
        to_boundary = Signal(7)
        m.d.comb += [
            shorter.eq(Mux(sent.run_left < sent.left, sent.run_left, sent.left)),
            to_boundary.eq(PACKET_WORDS - sent.address[:6]),
            sent.packet.eq(Mux(shorter < to_boundary, shorter, to_boundary)),
            head.dst_tile.eq(current.dst_tile),
            head.addr.eq(sent.target),
            head.words.eq(sent.packet),
            head.notify_tile.eq(current.notify_tile),
            head.notify_sem.eq(current.notify_sem),
            head.notify.eq(current.notify & (sent.left == sent.packet)),
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
        with m.If(sent.run_left == packet):
            stride = sent.current.dst_stride
            m.d.sync += [sent.address.eq(sent.base + stride), sent.base.eq(sent.base + stride)]
            m.d.sync += sent.run_left.eq(sent.current.dst_run)

    def _retire_slot(self, m: Module, post_owed: Signal, done: _Record) -> Signal:
        """Drives the pending post of a finished MOVE; returns whether no post or record is pending."""
        m.d.comb += self.post.valid.eq(post_owed)
        with m.If(self.post.ready):
            m.d.sync += post_owed.eq(0)
        with m.If(done.traced):
            m.d.sync += done.pending.eq(0)
        free = Signal()
        m.d.comb += free.eq(~post_owed & ~done.pending)
        return free

    def _retire(self, m: Module, sent: _Sent, post_owed: Signal, done: _Record) -> None:
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
        return Cat(*parts, current.routed, current.turns)
