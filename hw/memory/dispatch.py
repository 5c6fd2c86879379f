"""Where a mover's MOVEs come from: its tile's stream and the requests of other tiles, in turn."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data

from ..spec.config import Arbitration
from ..spec.isa import INSTRUCTIONS, ROUTE_BODY, Cause, Opcode, Unit
from ..wiring.rights import Pages, is_dram, limited, may_send_to, pages_of
from ..wiring.signatures import MOVE, FetchLayout, MoveLayout, Route, requester, steered
from .mover_ports import Engine, MoverPorts, PendingRecord

#: First bit of `fire_at` in an instruction, and the one after those that hold a request's pages (`hw.wiring.rights`).
_FIRE_AT = (at := MOVE.offsets["fire_at"][0], at + Pages.size)


class Dispatch(MoverPorts):
    """The part of `mover.Mover` that takes instructions: what its tile reads goes on to the source
    generator, the rest to other tiles or nowhere."""

    def _dispatch(self, m: Module, engine: Engine, done: PendingRecord) -> None:
        """Dispatches own instructions to the engine, the NoC or the end, requests to the engine; fair between both."""
        code = self.own.payload.code
        own = data.View(MoveLayout, code)
        fetch = data.View(FetchLayout, code)
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
        if self.config.dram.arbitration is not Arbitration.FIFO:
            m.d.comb += requester(forwarded.as_value()).eq(self.tile)
        request = self.forward.payload
        target = Signal(8)
        m.d.comb += [
            target.eq(Mux(is_move, own.src_tile, fetch.tile)),
            request.dst_tile.eq(target),
            # streams of other units take instructions from the controller: a MOVE is for the mover
            request.unit.eq(Mux(is_move, int(Unit.MOVER), fetch.unit)),
            request.fetch.eq(~is_move),
            request.route.eq(Mux(is_move, own_route, 0)),
            request.code.eq(Mux(is_move, forwarded, code)),
        ]
        bad = Signal()
        foreign = Signal()
        shapeless = Signal()  # a pull of nothing: nobody would learn from the other tile whose it was
        m.d.comb += bad.eq(to_net & (~self._exists(target) | foreign | shapeless))
        m.d.comb += self.forward.valid.eq(to_net & ~done.pending & ~bad)
        mine: data.View = Signal(Pages)
        asked: data.View = Signal(Pages)
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
        with m.If(to_engine & self.boots):
            m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.ADDRESS)]
            m.d.comb += [self.fault.tag.eq(own.tag), self.fault.value.eq(own.src)]
        with m.If(self.own.valid & (own.opcode == Opcode.END)):
            m.d.comb += [self.own.ready.eq(1), self.ended.eq(1)]

        last_own = Signal()
        pick_own = Signal()
        # what is wrong with either is seen before it is clear which of them is next
        requested = data.View(MoveLayout, self.remote.payload.code)
        m.d.comb += [
            pick_own.eq(to_engine & (~self.remote.valid | ~last_own)),
            engine.valid.eq(to_engine | self.remote.valid),
            engine.move.eq(Mux(pick_own, code, self.remote.payload.code)),
            engine.route.eq(Mux(pick_own, own_route, self.remote.payload.route if steered(self.config) else 0)),
            engine.waited.eq(Mux(pick_own, self.own.payload.waited, 0)),
            engine.pages.eq(Mux(pick_own, mine, asked)),
            engine.stray.eq(Mux(pick_own, self._stray(own), self._stray(requested))),
            engine.shapeless.eq(Mux(pick_own, self._shapeless(own), self._shapeless(requested))),
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

    def _foreign(self, move: data.View) -> Value:
        """Whether a MOVE of the own stream reaches tiles that are not its program's. A pull comes here and nowhere
        else; data may go to the program's cores and to dram tiles; only its cores are notified and posted to."""
        config, rights = self.config, self.rights
        here = move.src_tile == self.tile
        other = Mux(here, move.dst_tile, move.src_tile)
        reaches = is_dram(config, other) | may_send_to(config, rights, other)
        strange = ~reaches | (~here & ((move.dst_tile != self.tile) | (is_dram(config, other) & (move.post_n != 0))))
        return limited(rights) & (strange | (move.notify & ~may_send_to(config, rights, move.notify_tile)))

    def _own_route(self, m: Module, is_move: Signal, done: PendingRecord, start: Signal) -> data.View:
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

    def _keep(self, m: Module, done: PendingRecord, instruction: data.View, start: Value) -> None:
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
