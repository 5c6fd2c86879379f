"""The first half of the mover: the words of a MOVE's source, in order, from the tile's memory or from DRAM."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from ..spec.config import OFFSET_BITS
from ..spec.contracts import LOCAL_FIFO, read_ahead
from ..spec.isa import ADDRESS, Cause, Region
from ..wiring.rights import Pages, first_word, is_dram, outside
from ..wiring.signatures import MOVE, MoveLayout, split_address
from .mover_ports import Engine, MoverPorts, Queues, descriptor


class _SourceRun:
    """Registers of the MOVE whose source is being read: the next word is at `offset`, `left` words remain to be read,
    `run_left` of them in the run that began at `base`."""

    def __init__(self) -> None:
        self.active = Signal()
        self.region = Signal(ADDRESS.bits("region"))
        self.offset = Signal(OFFSET_BITS)
        self.base = Signal(OFFSET_BITS)
        self.run_left = Signal(MOVE.bits("src_run"))
        self.run = Signal(MOVE.bits("src_run"))
        self.left = Signal(MOVE.bits("words"))
        self.stride = Signal(MOVE.bits("src_stride"))
        self.tag = Signal(MOVE.bits("tag"))
        self.pages: data.View = Signal(Pages)
        self.requester = Signal(8)
        self.told = Signal()  # its fault has been raised


class SourceGenerator(MoverPorts):
    """The part of `mover.Mover` that reads: it walks the runs of a MOVE's source, and describes the MOVE to the
    packetiser."""

    def _source(self, m: Module, engine: Engine, queues: Queues) -> Signal:
        """Walks the source runs: one local word, or one DRAM burst, per cycle. Returns whether a word is being read.

        Latency: a MOVE taken in cycle t requests its first word, or burst, in t + 1.
        """
        run = _SourceRun()
        self._load(m, engine, run, queues)
        # how many words are requested at once, and whether they are taken
        count = Signal(16)
        step = Signal()
        burst = Signal(7)
        run_ends, move_ends = Signal(), Signal()  # with these words
        past = self._past(m, run, count, burst)
        m.d.comb += [self.read.payload.region.eq(run.region), self.read.payload.offset.eq(run.offset)]
        arriving = Signal()
        reading = Signal()
        m.d.comb += reading.eq(run.active | arriving)
        local_go = Signal()
        m.d.comb += local_go.eq(run.active & ~past & (queues.words.w_level + arriving < LOCAL_FIFO))
        m.d.sync += arriving.eq(0)
        if self.has_dram:
            longest = self.config.packet_words
            dram_active = Signal()
            run_longer, move_longer, run_beyond, move_beyond = (
                Signal(name=f"source_{name}") for name in ("run_longer", "move_longer", "run_beyond", "move_beyond")
            )
            shorter = Mux(run_longer, run.left, run.run_left)
            m.d.comb += [
                dram_active.eq(run.region == Region.MAIN),
                burst.eq(longest - run.offset[: longest.bit_length() - 1]),
                # compared all at once, not one after the other
                run_longer.eq(run.run_left > run.left),
                move_longer.eq(run.left > run.run_left),
                run_beyond.eq(run.run_left > burst),
                move_beyond.eq(run.left > burst),
                count.eq(Mux(~dram_active, 1, Mux(run_beyond & move_beyond, burst, shorter))),
                run_ends.eq(Mux(dram_active, ~run_longer & ~run_beyond, run.run_left == 1)),
                move_ends.eq(Mux(dram_active, ~move_longer & ~move_beyond, run.left == 1)),
                self.run.payload.offset.eq(run.offset),
                self.run.payload.words.eq(count),
                self.run.valid.eq(run.active & dram_active & ~past),
                self.read.valid.eq(local_go & ~dram_active),
                step.eq((self.run.valid & self.run.ready) | (self.read.valid & self.read.ready)),
            ]
        else:
            m.d.comb += [
                count.eq(1),
                run_ends.eq(run.run_left == 1),
                move_ends.eq(run.left == 1),
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
            with m.If(run_ends):
                m.d.sync += [
                    run.offset.eq(run.base + run.stride),
                    run.base.eq(run.base + run.stride),
                    run.run_left.eq(run.run),
                ]
            with m.If(move_ends):
                m.d.sync += run.active.eq(0)
        with m.If(run.active & past & ~run.told):
            m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.ADDRESS), self.fault.tag.eq(run.tag)]
            m.d.comb += self.fault.value.eq((run.region << OFFSET_BITS) | run.offset)
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

    def _load(self, m: Module, engine: Engine, run: _SourceRun, queues: Queues) -> None:
        """Takes a MOVE once the previous one has been read: reports a fault, or queues its descriptor and starts it."""
        move, descriptors = engine.move, queues.descriptors
        load = Signal()
        refused = Signal(name="load_refused")
        m.d.comb += [
            refused.eq(engine.foreign | engine.stray | engine.shapeless),
            engine.ready.eq(~run.active & descriptors.w_rdy),
            load.eq(engine.valid & engine.ready),
        ]
        if self.shared:  # what has been taken cannot be overtaken
            with m.If(self.run_ahead > read_ahead(self.config)):
                m.d.comb += engine.ready.eq(0)
        m.d.comb += descriptors.w_data.eq(self._describe(m, engine))
        with m.If(load):
            m.d.comb += descriptors.w_en.eq(~refused)
            m.d.sync += [
                run.active.eq(~refused),
                run.region.eq(split_address(move.src).region),
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
            with m.If(engine.foreign):
                m.d.comb += [self.fault.valid.eq(1), self.fault.tag.eq(move.tag), self.fault.cause.eq(Cause.RIGHTS)]
                m.d.comb += self.fault.value.eq(move.dst_tile)
            with m.Elif(refused):
                m.d.comb += [self.fault.valid.eq(1), self.fault.tag.eq(move.tag)]
                m.d.comb += self.fault.cause.eq(Mux(engine.stray, Cause.DESTINATION, Cause.SHAPE))
                stray = Mux(self._exists(move.dst_tile), move.notify_tile, move.dst_tile)
                m.d.comb += self.fault.value.eq(Mux(engine.stray, stray, move.words))

    def _describe(self, m: Module, engine: Engine) -> data.View:
        """The descriptor of a MOVE, with the virtual channel chosen by its route or else by its destination."""
        move, route = engine.move, engine.route
        description = Signal(descriptor(self.config))
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
        from_dram = (split_address(move.src).region == Region.MAIN) if self.has_dram else 0
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

    def _past(self, m: Module, run: _SourceRun, count: Signal, burst: Signal) -> Signal:
        """Whether any of the next `count` words is outside a readable region. Of DRAM they are the fewest of three
        numbers (of the run, of the MOVE, of the `burst`), each of which is compared: so it is not waited for which."""
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
        m.d.comb += past.eq(~known | (run.offset + 1 > limit + 1))
        if self.has_dram:
            with m.If(run.region == Region.MAIN):
                numbers = (run.run_left, run.left, burst)
                m.d.comb += past.eq(Cat(run.offset + number > self.depths[Region.MAIN] for number in numbers).all())
        if self.config.programs:
            with m.If(self._abroad(run, count)):
                m.d.comb += past.eq(1)
        return past
