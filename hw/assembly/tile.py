"""A tile: network interface, mover, semaphores and trace, around the memory or units that make its kind.

    data plane --> DataReceiver --+--> memory of the tile (core, bank, DRAM port)
                                  +--> instruction rings
    request plane > RequestTaker --> MOVEs to the mover, FETCHes to the front ends
    post plane ---> semaphores (in the host tile also: fault reports)

    front end (mover) ---> mover --+--> data plane
    front ends of a core: see   +--> request plane (RequestSender)
    `hw.assembly.core_tile`
    SYNC, notify, faults, states ------> post plane

The tile's address is the input `tile`, so that all tiles of one kind are one module.
"""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..control.frontend import FrontEnd
from ..control.semaphores import Semaphores
from ..control.trace import LINK_BLOCKED, LINK_BUSY, STROBED, Counter, Trace
from ..dtt.controller import Controller
from ..host_link.counters import Ask, CounterLink
from ..host_link.host import HostPort
from ..host_link.reporter import Reporter
from ..memory.dram_port import ADDRESS_BITS, DramPort
from ..memory.mover import Mover
from ..noc.data_receiver import DataReceiver
from ..noc.interface import RequestSender, RequestTaker
from ..noc.link import Flit, Link, LinkPort
from ..spec.config import Arbitration, ChipConfig, TileKind
from ..spec.contracts import COUNT_BITS, COUNT_WIRES
from ..spec.isa import (
    REQUEST_FLIT_BITS,
    data_flit_bits,
    post_format,
    units_of,
)
from ..spec.registers import Counted
from ..wiring.axi import AXI4, AXI4Lite, AXI4LitePort, AXI4Port
from ..wiring.clocking import gated_domain, in_domain
from ..wiring.link_counters import OUTPUTS, link_counts
from ..wiring.rights import Rights
from ..wiring.signatures import FaultReport, FetchLayout, PortObject
from .core_tile import CoreUnits, ProbePort
from .regions import readable_regions, writable_regions
from .tile_errors import watch_errors
from .tile_memory import connect_memories
from .tile_parts import DramPart, PostChecks, Sleepers, TileParts
from .tile_reports import PLANES, add_reporter, as_post, connect_posts


def dram_bus(config: ChipConfig) -> AXI4:
    """The DRAM bus of a dram tile."""
    return AXI4(address_bits=ADDRESS_BITS, data_bits=config.word_bits)


class Tile(wiring.Component):
    """One tile of kind `kind`. Planes: `<plane>_in` (from the mesh) and `<plane>_out` (to the mesh).

    `<plane>_dropped`: the plane's router here has dropped a packet for `<plane>_dropped_tile`.

    `moved`: there was progress in the previous cycle: a flit or DRAM beat moved, an instruction was taken, an array
    worked, or a stream waited for its fire time.
    dram: `axi` (AXI4 master). host: `bus` (AXI4-Lite slave), `irq`, `any_moved` (`moved` of all tiles), `count`
    (routers count), and `now_out`, `go_out`, `trace_out`, `ask_out`, which all tiles (including this one) receive as
    `now`, `go`, `trace`, `ask`. core, if `observed`: `seen` (`ProbePort`). In chips with `counters`: `counting` (it is
    `count` of the host), and the tile's link to the host's reader (`host_link.counters`), whose `counter_ask_out` is
    `counter_ask` of all tiles; `counter_in` is `counter_out` of the tile behind, that of the first `counter_data`.

    Outputs are functions of registers, with few exceptions, so that tiles and meshes can be timed, and simulated, apart
    from each other. With one channel `data_in.ready` follows `post_out.ready` (a notify has to leave first), and the
    arriving flit in dram tiles (a burst needs a place at the port) and where arrivals are recorded (a tail needs one in
    the queue). In chips with an ahead-of-time controller `request_in.ready` follows what arrives as data.
    `bus.awready` and `bus.wready` answer a write when both of its parts are there. `quiesce` and `quiesced` of a dram
    tile, `reset_wanted`, `settled` and `released` of the host tile: to and from the chip's `ResetUnit`.
    """

    tile: Signal
    host: Signal
    now: Signal
    go: Signal
    trace: Signal
    ask: Signal
    moved: Signal
    links: data.View  # link_counts()
    data_in: LinkPort
    data_out: LinkPort
    request_in: stream.Interface
    request_out: stream.Interface
    post_in: stream.Interface
    post_out: stream.Interface
    axi: AXI4Port  # this and the next two: dram tiles only
    quiesce: Signal
    quiesced: Signal
    seen: PortObject  # observed core tiles only
    bus: AXI4LitePort  # this and the following: host tiles only
    irq: Signal
    any_moved: Signal
    count: Signal
    now_out: Signal
    go_out: Signal
    trace_out: Signal
    ask_out: Signal
    reset_wanted: Signal
    settled: Signal
    released: Signal
    counting: Signal  # this and the following: chips with `counters` only
    counter_ask: data.View  # Ask
    counter_in: Signal
    counter_out: Signal
    counter_ask_out: data.View  # Ask; this and the next: host tiles only
    counter_data: Signal

    def __init__(
        self,
        config: ChipConfig,
        kind: TileKind,
        gated: bool = False,
        observed: bool = False,
        loops: bool = False,
    ) -> None:
        self.config, self.kind, self.gated, self.loops = config, kind, gated, loops
        self.observed = observed and kind is TileKind.CORE
        members = {"tile": In(8), "host": In(8), "now": In(32), "go": In(1), "trace": In(1)}
        members |= {"ask": In(1), "moved": Out(1)}
        for plane in PLANES:  # the router here has dropped a packet
            members |= {f"{plane}_dropped": In(1), f"{plane}_dropped_tile": In(8)}
        members["links"] = In(link_counts())  # of the data plane's router here
        flits = {
            "data": Link(data_flit_bits(config), config.noc.data_vcs),
            "request": stream.Signature(Flit(REQUEST_FLIT_BITS)),
            "post": stream.Signature(Flit(post_format(config).width)),
        }
        for plane, flit in flits.items():
            members[f"{plane}_in"] = In(flit)
            members[f"{plane}_out"] = Out(flit)
        if kind is TileKind.DRAM:
            members |= {"axi": Out(dram_bus(config)), "quiesce": In(1), "quiesced": Out(1)}
        if self.observed:
            members["seen"] = Out(ProbePort(config))
        if kind is TileKind.HOST:
            members |= {"bus": In(AXI4Lite(address_bits=8)), "irq": Out(1), "any_moved": In(len(config.tiles))}
            members |= {"count": Out(1), "now_out": Out(32), "go_out": Out(1), "trace_out": Out(1), "ask_out": Out(1)}
            members |= {"reset_wanted": Out(1), "settled": In(1), "released": Out(1)}
        if config.counters:
            members |= {"counting": In(1), "counter_ask": In(Ask)}
            members |= {"counter_in": In(COUNT_WIRES), "counter_out": Out(COUNT_WIRES)}
            if kind is TileKind.HOST:
                members |= {"counter_ask_out": Out(Ask), "counter_data": In(COUNT_WIRES)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, kind = self.config, self.kind
        units = units_of(config, kind)
        dropped = [getattr(self, f"{plane}_dropped") for plane in PLANES]
        sleepers = Sleepers(m, self.gated, [self.request_in.valid, self.post_in.valid, *dropped])
        mover, moving = sleepers.add_own("mover", Mover(config, kind, readable_regions(config, kind)))
        delivery, _ = sleepers.add_own(
            "delivery", DataReceiver(config, writable_regions(config, kind), dram=kind is TileKind.DRAM)
        )
        shared = kind is TileKind.DRAM and config.dram.arbitration is not Arbitration.FIFO
        taker = sleepers.add("taker", RequestTaker(config, len(units), shared, not mover.boots))
        sender = sleepers.add("sender", RequestSender(1 + len(units))) if units else None
        ahead = kind is TileKind.DTT
        fronts = [sleepers.add_own(f"front_{unit.name.lower()}", FrontEnd(config, unit, ahead))[0] for unit in units]
        controller = sleepers.add("controller", Controller(config)) if ahead else None

        core = None
        if kind is TileKind.CORE:
            core = CoreUnits(m, config, sleepers.control, self.gated, self.loops, self.now)
            if self.observed:
                core.observe(m, self.seen)
        # posts: mover, SYNCs, delivered, post plane (, matrix, vector); records: mover, SYNCs (, matrix, vector)
        computing = units[1:]
        semaphores = sleepers.add(
            "semaphores",
            Semaphores(
                config.semaphores,
                posts=3 + len(units) + len(computing),
                takers=len(units),
                checked=2 + len(units),
            ),
        )
        arrivals = int(config.noc.arrivals)
        records = 1 + len(units) + len(computing)
        tracer = sleepers.add("tracer", Trace(config, ports=records + arrivals + ahead))

        dram = DramPart(*sleepers.add_own("port", DramPort(config))) if kind is TileKind.DRAM else None
        parts = TileParts(
            sleepers, mover, moving, delivery, taker, sender, fronts, semaphores, tracer, core, controller, dram
        )

        self._planes(m, parts)
        self._streams(m, parts, records)

        delivered = delivery.delivered
        if dram is not None:
            delivered = self._dram(m, dram.port, mover, delivery)
        checks = PostChecks(Signal(FaultReport, name="refused"), Signal(name="serving"))
        memory = connect_memories(m, self, parts)
        watch = watch_errors(m, self, parts, memory) if config.ecc else None
        reporter = add_reporter(m, self, parts, checks.refused, watch)
        if watch is not None:
            m.d.comb += tracer.total(Counter.CORRECTED).eq(watch.total)
        if config.programs:
            self._programs(m, parts, reporter)
        connect_posts(m, self, parts, reporter, delivered, checks)
        self._progress(m, parts)
        self._count(m, parts)
        if kind is TileKind.HOST:
            self._host(m, parts, checks, reporter)
        sleepers.finish()
        return m

    def _planes(self, m: Module, parts: TileParts) -> None:
        """Connects the planes of the NoC."""
        delivery, taker = parts.delivery, parts.taker
        m.d.comb += [delivery.now.eq(self.now), taker.now.eq(self.now)]
        if self.config.noc.multicast:
            m.d.comb += delivery.tile.eq(self.tile)
        connect(m, flipped(self.data_in), delivery.flit)
        connect(m, parts.mover.data, flipped(self.data_out))
        connect(m, flipped(self.request_in), taker.flit)
        if parts.sender is not None:
            connect(m, parts.sender.flit, flipped(self.request_out))
        connect(m, taker.move, parts.mover.remote)

    def _streams(self, m: Module, parts: TileParts, records: int) -> None:
        """Connects the front ends to the mover or controller, and the requests, takes, posts and records of all of
        these. `records`: the first trace port after those of the units and their streams."""
        mover, taker, sender, fronts = parts.mover, parts.taker, parts.sender, parts.fronts
        semaphores, tracer, controller = parts.semaphores, parts.tracer, parts.controller
        m.d.comb += [mover.tile.eq(self.tile), mover.now.eq(self.now)]
        fetches = int(controller is None)  # before control packets, which could keep them waiting for ever
        for i, front in enumerate(fronts):
            m.d.comb += [front.tile.eq(self.tile), front.now.eq(self.now), front.go.eq(self.go)]
            m.d.comb += [front.start.eq(taker.start(i)), front.counting.eq(self.trace)]
            if sender is not None:
                connect(m, front.fetch, sender.request(fetches + i))
            connect(m, front.take, semaphores.take(i))
            connect(m, front.post, semaphores.post(1 + i))
            connect(m, front.record, tracer.record(1 + i))
        if controller is None and sender is not None:
            connect(m, mover.forward, sender.request(0))
            connect(m, fronts[0].issue, mover.own)
        elif controller is not None and sender is not None:
            m.d.comb += controller.now.eq(self.now)
            connect(m, fronts[0].issue, controller.own)
            connect(m, controller.forward, sender.request(1))
            connect(m, controller.record, tracer.record(records))
        for i in taker.pushed:
            connect(m, taker.push(i), fronts[i].push)
        connect(m, mover.post, semaphores.post(0))
        connect(m, mover.record, tracer.record(0))
        if self.config.noc.arrivals:  # the last port: these records have a queue
            connect(m, parts.delivery.record, tracer.record(records + int(controller is not None)))

    def _programs(self, m: Module, parts: TileParts, reporter: Reporter) -> None:
        """In chips on which several programs run at the same time: the rights of the tile's streams, and their end.
        Both come with a FETCH, never in the host tile, whose stream has all rights. A tile that runs no program reports
        every fault."""
        given = parts.taker.given
        rights: data.View = Signal(Rights)
        clear = Signal()
        m.d.comb += clear.eq(given.valid & given.fetch.clear)
        with m.If(given.valid):
            m.d[parts.sleepers.control] += [
                rights.cores.eq(given.fetch.cores),
                rights.slot.eq(given.fetch.slot),
                rights.pages.first_page.eq(given.fetch.first_page),
                rights.pages.end_page.eq(given.fetch.end_page),
            ]
        for block in (*parts.fronts, parts.mover):
            m.d.comb += [block.rights.eq(rights), block.clear.eq(clear)]
        for front in parts.fronts:
            m.d.comb += front.host.eq(self.host)
        core = self.kind is TileKind.CORE
        m.d.comb += [
            parts.semaphores.clear.eq(clear),
            parts.mover.heard.eq(1 if core else reporter.free),
            reporter.offender.eq(parts.mover.offender),
            reporter.clear.eq(clear if core else reporter.send.valid & reporter.send.ready),
        ]

    def _count(self, m: Module, parts: TileParts) -> None:
        """Connects the cycle counters to the trace, and the compute units of a core, which some counters observe."""
        mover, fronts, semaphores, tracer, core = parts.mover, parts.fronts, parts.semaphores, parts.tracer, parts.core
        units = units_of(self.config, self.kind)
        counting = Signal(name="counts")
        m.d.comb += [tracer.enable.eq(self.trace), counting.eq(self._counting)]
        strobes = {
            Counter.MOVER_BUSY: mover.busy,
            Counter.NET_STALL: mover.net_stall,
            Counter.MEM_STALL: mover.mem_stall,
        }
        m.d.comb += [tracer.count[i].eq(strobes[counter] & counting) for i, counter in enumerate(STROBED)]
        totals: dict[Counter, Value] = {}
        if fronts:
            totals[Counter.MOVER_WAIT] = fronts[0].waited_total
            totals[Counter.MOVER_BLOCKED] = fronts[0].blocked_total
        totals |= dict(zip(LINK_BUSY, self.links.busy, strict=True))
        totals |= dict(zip(LINK_BLOCKED, self.links.blocked, strict=True))
        if core is not None:
            for i, unit in enumerate(units[1:]):
                post, record = semaphores.post(3 + len(units) + i), tracer.record(1 + len(units) + i)
                core.connect(m, unit, fronts[1 + i], post, record)
                totals |= {
                    Counter[f"{unit.name}_WAIT"]: fronts[1 + i].waited_total,
                    Counter[f"{unit.name}_BLOCKED"]: fronts[1 + i].blocked_total,
                    Counter[f"{unit.name}_READING"]: core.reading(m, unit, counting),
                }
            parts.sleepers.wake += core.wake
        m.d.comb += [tracer.total(counter).eq(total) for counter, total in totals.items()]
        if self.config.counters:
            self._link_counters(
                m, parts.dram, totals | {Counter.MOVER_BUSY: tracer.counts[STROBED.index(Counter.MOVER_BUSY)]}
            )

    @property
    def _counting(self) -> Value:
        """Whether busy cycles are counted: in a run that records traces, or as the host says."""
        return self.counting if self.config.counters else self.trace & self.go

    def _link_counters(self, m: Module, dram: DramPart | None, totals: Mapping[Counter, Value]) -> None:
        """The tile's link to the host's reader of counters."""
        counts = {Counted.MOVER: totals[Counter.MOVER_BUSY]}
        counts |= {Counted[port.upper()]: totals[busy] for port, busy in zip(OUTPUTS, LINK_BUSY, strict=True)}
        if self.kind is TileKind.CORE:
            counts[Counted.MATRIX] = totals[Counter.MATRIX_READING]
            if Counter.VECTOR_READING in totals:
                counts[Counted.VECTOR] = totals[Counter.VECTOR_READING]
        if dram is not None:
            beats = {Counted.DRAM_READ: (self.axi.rvalid, self.axi.rready)}
            beats[Counted.DRAM_WRITE] = (self.axi.wvalid, self.axi.wready)
            for counted, (valid, ready) in beats.items():
                counts[counted] = number = Signal(COUNT_BITS, name=f"{counted.name.lower()}_cycles")
                with m.If(valid & ready & self._counting):
                    m.d[dram.domain] += number.eq(number + 1)  # the port is awake for its beats
        link = CounterLink(tuple(counts))
        domain = gated_domain(m, "counter", link.active, self.gated)
        m.submodules.counter_link = in_domain(link, domain)
        m.d.comb += [link.count(counted).eq(count) for counted, count in counts.items()]
        m.d.comb += [link.ask.eq(self.counter_ask), link.into.eq(self.counter_in), self.counter_out.eq(link.out)]

    def _dram(self, m: Module, port: DramPort, mover: Mover, delivery: DataReceiver) -> stream.Interface:
        """Connects the DRAM port to the mover and the delivered packets; returns its stream of write notices."""
        connect(m, port.axi, flipped(self.axi))
        m.d.comb += [port.quiesce.eq(self.quiesce), self.quiesced.eq(port.quiesced)]
        connect(m, mover.run, port.read_run)
        connect(m, port.read_data, mover.run_data)
        m.d.comb += mover.run_level.eq(port.read_level)
        if mover.shared:
            m.d.comb += mover.run_ahead.eq(port.read_ahead)
        connect(m, delivery.burst, port.write_head)
        connect(m, delivery.burst_data, port.write_data)
        # Only DRAM and instruction rings can be written here, and rings never notify.
        m.d.comb += delivery.delivered.ready.eq(1)
        return port.written

    def _progress(self, m: Module, parts: TileParts) -> None:
        """Drives `moved`."""
        fronts, taker, core, controller = parts.fronts, parts.taker, parts.core, parts.controller
        planes = [self.request_in, self.request_out, self.post_in, self.post_out]
        steps = [link.valid & link.ready for link in planes] + [front.progress for front in fronts]
        for link in (self.data_in, self.data_out):
            vc = link.payload.vc
            steps.append(link.valid & (link.ready.bit_select(vc, 1) if len(vc) else link.ready))
        steps.append(taker.timed)
        if controller is not None:
            steps.append(controller.pacing)  # waits for another unit's fire time
        if core is not None:
            steps += [unit.busy for unit in core.units.values()]
        if self.kind is TileKind.DRAM:
            names = ("ar", "r", "aw", "w", "b")
            steps += [getattr(self.axi, f"{name}valid") & getattr(self.axi, f"{name}ready") for name in names]
        moving = Signal()
        m.d.comb += moving.eq(Cat(steps).any())
        domain = gated_domain(m, "moved", moving | self.moved, self.gated)
        m.d[domain] += self.moved.eq(moving)

    def _host(self, m: Module, parts: TileParts, checks: PostChecks, reporter: Reporter) -> None:
        """Connects the host's registers, which can start the mover's stream as a FETCH does. The stream's END does not
        end a run of which a fault of this tile is still to be reported."""
        front, mover, semaphores = parts.fronts[0], parts.mover, parts.semaphores
        commanding = Signal()
        command = gated_domain(m, "command", commanding, self.gated)
        # the rest counts in every cycle of a run, behind a gate that never closes: so all clocks of a tile are alike
        clock = gated_domain(m, "host", Const(1), self.gated)
        m.submodules.host_port = host = in_domain(HostPort(self.config, command), clock)
        m.d.comb += commanding.eq(host.commanding)
        connect(m, flipped(self.bus), host.bus)
        m.d.comb += [
            host.tile.eq(self.tile),
            host.ready.eq(semaphores.ready),
            host.ended.eq(mover.ended & (checks.serving | ~(reporter.owes | parts.delivery.fault.valid))),
            host.moved.eq(self.any_moved.any()),
            host.fault.valid.eq(self.post_in.valid & self.post_in.ready & ~checks.refused.valid),
            host.fault.payload.eq(as_post(self.config, self.post_in.payload.data)),
            self.irq.eq(host.irq),
            self.count.eq(host.counting),
            self.now_out.eq(host.now),
            self.go_out.eq(host.go),
            self.trace_out.eq(host.trace),
            self.ask_out.eq(host.ask),
            self.reset_wanted.eq(host.reset_wanted),
            self.released.eq(host.released),
            host.settled.eq(self.settled),
        ]
        if self.config.programs:
            fetch = data.View(FetchLayout, mover.forward.payload.code)
            m.d.comb += [
                host.post.valid.eq(host.fault.valid),
                host.post.payload.eq(host.fault.payload),
                host.idle.eq(front.idle),
                checks.serving.eq(host.serving),
                host.cleared.valid.eq(
                    mover.forward.valid & mover.forward.ready & mover.forward.payload.fetch & fetch.clear
                ),
                host.cleared.tile.eq(mover.forward.payload.dst_tile),
            ]
        if self.config.counters:
            m.d.comb += [self.counter_ask_out.eq(host.counter_ask), host.counter_data.eq(self.counter_data)]
        with m.If(host.start.valid):
            m.d.comb += front.start.eq(host.start)
