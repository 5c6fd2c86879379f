"""What a tile says of itself and of what it has received: posts, faults, and what its parts wait for."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream

from ..control.error_watch import ErrorWatch
from ..host_link.reporter import Reporter, parts_of
from ..spec.config import ChipConfig
from ..spec.isa import POST, BlockedOn, Cause, Part, Unit, post_format, units_of
from ..wiring.signatures import FaultPort, FaultReport, PostFlit
from .tile_parts import PostChecks, TileParts, TilePorts

#: The planes of the NoC.
PLANES = ("data", "request", "post")


def add_reporter(
    m: Module, tile: TilePorts, parts: TileParts, refused: data.View, watch: ErrorWatch | None
) -> Reporter:
    """Reports faults and blocked states of all parts to the host tile."""
    mover, delivery, taker, fronts = parts.mover, parts.delivery, parts.taker, parts.fronts
    semaphores, core, controller = parts.semaphores, parts.core, parts.controller
    blocking = parts_of(tile.config, tile.kind)
    sources: list[tuple[Unit, FaultPort | data.View]] = [
        (Unit.MOVER, mover.fault),
        (Unit.NONE, delivery.fault),
        (Unit.NONE, taker.fault),
    ]
    if watch is not None:  # before all that a wrong word may cause; `Reporter.offender` is of the first
        sources.insert(1, (Unit.NONE, watch.fault))
    sources += [(unit, front.fault) for unit, front in zip(units_of(tile.config, tile.kind), fronts, strict=True)]
    sources += [(Unit.NONE, semaphores.fault)]
    if core is not None:
        sources += [(unit, block.fault) for unit, block in core.units.items()]
    if controller is not None:
        sources += [(Unit.MOVER, controller.fault)]
    blocked_status = [
        *(front.blocked_status for front in fronts),
        mover.blocked_status,
        taker.blocked_status,
        delivery.blocked_status,
    ]
    if parts.dram is not None:
        port, bus_fault = parts.dram.port, Signal(FaultReport, name="bus_fault")
        m.d.comb += [
            bus_fault.valid.eq(port.fault),
            bus_fault.cause.eq(Cause.BUS),
            bus_fault.value.eq(Cat(port.fault_offset, port.fault_write)),
        ]
        sources.append((Unit.MOVER, bus_fault))
        blocked_status.append(port.blocked_status)
    undeliverable = Signal(FaultReport)
    m.d.comb += undeliverable.cause.eq(Cause.DESTINATION)
    for plane in PLANES:
        with m.If(getattr(tile, f"{plane}_dropped")):
            m.d.comb += undeliverable.valid.eq(1)
            m.d.comb += undeliverable.value.eq(getattr(tile, f"{plane}_dropped_tile"))
    sources += [(Unit.NONE, refused), (Unit.NONE, undeliverable)]
    reporter = parts.sleepers.add("reporter", Reporter([unit for unit, _ in sources], blocking, tile.config.reports))
    m.d.comb += [reporter.tile.eq(tile.tile), reporter.host.eq(tile.host)]
    m.d.comb += [reporter.go.eq(tile.go), reporter.ask.eq(tile.ask)]
    for i, (_, fault) in enumerate(sources):
        m.d.comb += [reporter.fault(i)[name].eq(getattr(fault, name)) for name in FaultReport.members]
    for i, state in enumerate(blocked_status):
        m.d.comb += reporter.blocked_status(i).eq(state)
    # a stream does not know what its unit waits for: here the mover (for the request plane) or the controller does
    if controller is not None:
        with m.If(fronts[0].blocked_status.waits == BlockedOn.UNIT):
            m.d.comb += reporter.blocked_status(blocking.index((Part.STREAM, Unit.MOVER))).eq(controller.blocked_status)
    if not fronts:
        return reporter
    with m.If(mover.forward.valid & (fronts[0].blocked_status.waits == BlockedOn.UNIT)):
        state = reporter.blocked_status(blocking.index((Part.STREAM, Unit.MOVER)))
        m.d.comb += [state.waits.eq(BlockedOn.REQUEST_PLANE), state.peer.eq(mover.forward.payload.dst_tile)]
    return reporter


def as_post(config: ChipConfig, flit: Value) -> Value:
    """A post from its flit, in chips without `reports` with what goes without saying."""
    layout = post_format(config)
    sent = data.View(layout.layout(), flit)
    implied = {"cause": Mux(sent.fault, Cause.UNREPORTED, Cause.NONE), "unit": Mux(sent.fault, Unit.NONE, Unit.MOVER)}
    return Cat(
        sent[name] if name in layout.offsets else Cat(implied.get(name, 0), Const(0, width))[:width]
        for name, (_, width) in POST.offsets.items()
    )


def connect_posts(
    m: Module, tile: TilePorts, parts: TileParts, reporter: Reporter, delivered: stream.Interface, checks: PostChecks
) -> None:
    """Outgoing posts (faults and states, notifies for other tiles, SYNCs) and incoming ones, which it checks."""
    fronts, semaphores, refused = parts.fronts, parts.semaphores, checks.refused
    first_free = 1 + len(fronts)
    local, plane = semaphores.post(first_free), semaphores.post(first_free + 1)
    here = Signal()
    note = delivered.payload
    reporting = reporter.send.valid
    m.d.comb += [
        here.eq(note.notify_tile == tile.tile),
        local.valid.eq(delivered.valid & note.notify & here),
        local.payload.sem.eq(note.notify_sem),
        local.payload.n.eq(1),
    ]
    away = Signal()
    m.d.comb += away.eq(delivered.valid & note.notify & ~here)
    layout = post_format(tile.config)
    flit = Signal(layout.layout())
    parity = Signal(name="post_parity")
    note_flit = Signal(PostFlit)
    m.d.comb += [note_flit.dst_tile.eq(note.notify_tile), note_flit.sem.eq(note.notify_sem), note_flit.n.eq(1)]
    wrong = Signal()
    m.d.comb += [
        tile.post_out.payload.data.eq(flit),
        tile.post_out.payload.data[layout.offsets["parity"][0]].eq(parity),
        tile.post_out.payload.last.eq(1),
        reporter.send.ready.eq(tile.post_out.ready),
    ]

    def offer(post: data.View) -> None:  # its parity does not wait for which of them it is
        sent = Cat(post[name] for name in layout.offsets)
        m.d.comb += [flit.eq(sent), parity.eq(sent.xor()), tile.post_out.valid.eq(1)]

    with m.If(reporting):
        offer(reporter.send.payload)
    with m.Elif(away):
        offer(note_flit)
    busy = reporting | away
    for front in fronts:
        with m.If(~busy & front.send.valid):
            offer(front.send.payload)
        m.d.comb += front.send.ready.eq(~busy & tile.post_out.ready)
        busy = busy | front.send.valid
    m.d.comb += delivered.ready.eq(Mux(~note.notify, 1, Mux(here, local.ready, tile.post_out.ready & ~reporting)))
    arrived = data.View(layout.layout(), tile.post_in.payload.data)
    # only a broken NoC corrupts a post: such a flit must neither count nor vanish without a report
    flipped = Signal()
    cut = Signal()
    m.d.comb += [
        flipped.eq(tile.post_in.payload.data.xor()),
        cut.eq(~tile.post_in.payload.last),
        wrong.eq(flipped | cut | (arrived.dst_tile != tile.tile)),
        plane.valid.eq(tile.post_in.valid & ~checks.serving),
        semaphores.void.eq(arrived.fault | wrong),
        plane.payload.sem.eq(arrived.sem),
        plane.payload.n.eq(arrived.n),
        # faults, too, wait for their turn at the semaphores: `ready` is then a function of registers
        tile.post_in.ready.eq(plane.ready),
        refused.valid.eq(tile.post_in.valid & plane.ready & wrong),
        refused.cause.eq(Mux(flipped, Cause.PARITY, Mux(cut, Cause.LENGTH, Cause.DESTINATION))),
        refused.value.eq(Mux(flipped | cut, arrived.sem, arrived.dst_tile)),
    ]
