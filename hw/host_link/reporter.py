"""A tile's reports to the host: its first fault and, when the host asks why there is no progress, its blocked parts.

After a watchdog the host raises `ask`. Every tile then sends a `STATE` for each of its parts that waits for something,
over the post plane, which always drains. So the host learns what each part waits for even when nothing else moves.

In chips without `reports` a tile says of its first fault that there is one (`Cause.UNREPORTED`), of its parts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig, TileKind
from ..spec.isa import Cause, Part, Unit, units_of
from ..wiring.signatures import BlockedStatus, FaultReport, PostFlit, StateFlit


def parts_of(config: ChipConfig, kind: TileKind) -> tuple[tuple[Part, Unit], ...]:
    """The parts of a tile kind that can block, in the order in which they report (a fault is reported separately)."""
    parts = [(Part.STREAM, unit) for unit in units_of(config, kind)]
    parts += [(Part.MOVER, Unit.NONE), (Part.QUEUE, Unit.NONE), (Part.DELIVERY, Unit.NONE)]
    return (*parts, (Part.DRAM, Unit.NONE)) if kind is TileKind.DRAM else tuple(parts)


def most_reports(config: ChipConfig) -> int:
    """The greatest number of `STATE`s that a chip can send."""
    if not config.reports:
        return 0
    return sum(1 + len(parts_of(config, kind)) for kind in config.tiles.values())


def report_cycles(config: ChipConfig) -> int:
    """Cycles after a watchdog within which all `STATE`s have arrived: they are taken one a cycle."""
    return 4 * most_reports(config) + 4 * (config.width + config.height) + 32


class Reporter(wiring.Component):
    """Sends the first of the faults `fault_0`...; on `ask` sends the states of `parts` (`blocked_status_0`...).

    A fault raised in cycle t is offered in t + 2 (what raises faults is late in a cycle: it ends at a register of each
    port); of several in one cycle the lowest-numbered is sent. Faults are accepted while `go` is set, and one until
    reset. `ask` stays set once raised: the first state is offered 1 cycle later, then one every two cycles; a part that
    waits for nothing takes one cycle. A latched fault is sent first, once more, because its report may have been lost.
    After `clear` another fault is accepted. `free`: one raised now is reported. `owes`: a fault has been accepted whose
    report has not left, or a state is being sent. `offender`: the tile for which `fault_0` was raised, if it is not
    this one. In cycles without `active` no register changes.

    `reports`: as of the chip. Without them a fault is sent in the same cycle without its cause, unit, tag and value,
    and `ask` does nothing.
    """

    tile: Signal
    host: Signal
    go: Signal
    ask: Signal
    clear: Signal
    offender: data.View
    free: Signal
    owes: Signal
    send: stream.Interface
    active: Signal

    def __init__(self, faults: Sequence[Unit], parts: Sequence[tuple[Part, Unit]], reports: bool = True) -> None:
        self.faults, self.parts, self.reports = tuple(faults), tuple(parts), reports
        super().__init__(
            {"tile": In(8), "host": In(8), "go": In(1), "ask": In(1), "clear": In(1)}
            | {f"fault_{i}": In(FaultReport) for i in range(len(self.faults))}
            | {f"blocked_status_{i}": In(BlockedStatus) for i in range(len(self.parts))}
            | {"offender": In(data.StructLayout({"valid": 1, "tile": 8}))}
            | {"free": Out(1), "owes": Out(1)}
            | {"send": Out(stream.Signature(PostFlit)), "active": Out(1)}
        )

    def fault(self, port: int) -> data.View:
        """Port `fault_<port>`."""
        return getattr(self, f"fault_{port}")

    def blocked_status(self, port: int) -> data.View:
        """Port `blocked_status_<port>`."""
        return getattr(self, f"blocked_status_{port}")

    def elaborate(self, platform: object) -> Module:
        return self._full() if self.reports else self._nameless()

    def _nameless(self) -> Module:
        """What is left without `reports`."""
        m = Module()
        report = self.send.payload
        seen, noted, raised = Signal(), Signal(), Signal()
        m.d.comb += [
            raised.eq(Cat(self.fault(i).valid for i in range(len(self.faults))).any()),
            self.owes.eq(noted | self.send.valid),
            self.active.eq(raised | self.owes | self.clear),
            self.free.eq(~seen & ~noted & self.go),
            report.dst_tile.eq(self.host),
            report.fault.eq(1),
            report.cause.eq(Cause.UNREPORTED),
            report.tile.eq(self.tile),
            report.unit.eq(int(Unit.NONE)),
        ]
        m.d.sync += noted.eq(raised & self.free)
        with m.If(self.clear):
            m.d.sync += seen.eq(0)
        with m.Elif(noted):
            m.d.sync += seen.eq(1)
        with m.If(noted):
            m.d.sync += self.send.valid.eq(1)
        with m.Elif(self.send.ready):
            m.d.sync += self.send.valid.eq(0)
        return m

    def _full(self) -> Module:
        m = Module()
        report = Signal(PostFlit)
        state = data.View(StateFlit, report)
        reporting = Signal()
        seen = Signal()
        turn = Signal(range(len(self.parts) + 2))
        asked = Signal()
        raised = Signal()
        noted = Signal(len(self.faults))  # the accepted faults of the cycle before; what they say is in `faults`
        faults = [Signal(FaultReport, name=f"noted_{i}") for i in range(len(self.faults))]
        whose = Signal(8)
        m.d.comb += [
            self.send.valid.eq(reporting),
            self.send.payload.eq(report),
            asked.eq(self.ask & (turn != len(self.parts) + 1)),
            raised.eq(Cat(self.fault(i).valid for i in range(len(faults))).any()),
            self.owes.eq(noted.any() | reporting),
            self.active.eq(raised | self.owes | asked | self.clear),
            self.free.eq(~seen & ~noted.any() & self.go),
        ]
        for i, fault in enumerate(faults):
            arriving = self.fault(i)
            m.d.sync += noted[i].eq(arriving.valid & self.free)
            with m.If(arriving.valid):
                m.d.sync += [fault[name].eq(arriving[name]) for name in FaultReport.members if name != "valid"]
        with m.If(self.fault(0).valid):
            m.d.sync += whose.eq(Mux(self.offender.valid, self.offender.tile, self.tile))
        with m.If(self.clear):
            m.d.sync += seen.eq(0)
        with m.Elif(noted.any()):
            m.d.sync += seen.eq(1)
        with m.If(self.send.ready):
            m.d.sync += reporting.eq(0)
        with m.If(noted.any()):
            m.d.sync += reporting.eq(1)
            m.d.sync += [report.dst_tile.eq(self.host), report.fault.eq(1), report.tile.eq(self.tile)]
            for i, (unit, fault) in reversed(list(enumerate(zip(self.faults, faults, strict=True)))):
                with m.If(noted[i]):
                    m.d.sync += [
                        report.cause.eq(fault.cause),
                        report.unit.eq(int(unit)),
                        report.tag.eq(fault.tag),
                        report.value.eq(fault.value),
                    ]
            with m.If(noted[0]):
                m.d.sync += report.tile.eq(whose)
        with m.Elif(asked & ~reporting):
            m.d.sync += [turn.eq(turn + 1), report.dst_tile.eq(self.host), report.fault.eq(1)]
            m.d.sync += report.tile.eq(self.tile)
            with m.Switch(turn):
                with m.Case(0):
                    m.d.sync += [state.part.eq(int(Part.FAULT)), state.waits.eq(report.cause), report.cause.eq(0)]
                    m.d.sync += reporting.eq(seen)
                for i, (part, unit) in enumerate(self.parts):
                    with m.Case(1 + i):
                        blocked_status = self.blocked_status(i)
                        m.d.sync += [reporting.eq(blocked_status.waits != 0), state.part.eq(int(part))]
                        m.d.sync += state.unit.eq(int(unit))
                        m.d.sync += [state[name].eq(blocked_status[name]) for name in BlockedStatus.members]
        return m
