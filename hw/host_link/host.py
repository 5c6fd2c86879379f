"""The host's window on the chip: control and status registers behind AXI4-Lite.

A run: write PROGRAM_TILE, PROGRAM_ADDR, PROGRAM_COUNT, WATCHDOG and STALL_LIMIT, then CONTROL.start. The host tile's
mover stream executes the boot program from there; its END, a fault, or a watchdog ends the run and raises `irq`. `now`,
the clock that every unit stamps its trace with, is 0 in the first cycle of a run.

There are two watchdogs: WATCHDOG bounds the cycles of a run, STALL_LIMIT those in which nothing goes on in any tile.
After either, every tile reports what its parts wait for (`isa.STATE`). The reports are there `reporter.report_cycles`
after the irq; REPORTS says how many are unread, REPORT_LOW and REPORT_HIGH show the first of them, and reading
REPORT_HIGH goes on to the next.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..axi import AXI4Lite
from ..config import ChipConfig
from ..isa import Cause, Opcode, Unit
from ..signatures import FetchLayout, PostFlit, StateFlit, detail
from .reporter import most_reports


class Register(IntEnum):
    """Byte addresses of the registers."""

    ID = 0x00  #: read: 0x4D534C01
    CONFIG = 0x04  #: read: low 32 bits of the chip's digest
    CONTROL = 0x08  #: write: bit 0 starts, bit 1 (with bit 0) records traces
    STATUS = 0x0C  #: read: bit 0 running, bit 1 done, bit 2 fault, bit 3 ready to start
    PROGRAM_TILE = 0x10
    PROGRAM_ADDR = 0x14
    PROGRAM_COUNT = 0x18
    WATCHDOG = 0x1C  #: cycles after which a run is a fault; 0 = never
    CYCLES = 0x20  #: read: cycles of the run, frozen at its end
    FAULT_WHO = 0x24  #: read: cause [3:0], unit [5:4], tile [15:8], tag [31:16]
    FAULT_VALUE = 0x28
    STALL_LIMIT = 0x2C  #: cycles without progress after which a run is a fault; 0 = never; above any DRAM latency
    QUIET = 0x30  #: read: cycles of the run since anything went on, frozen at its end
    REPORTS = 0x34  #: read: states of tiles that have not been read yet
    REPORT_LOW = 0x38  #: read: sem [5:0], need [11:6], has [19:12], peer [27:20], part [31:28]
    REPORT_HIGH = 0x3C  #: read: waits [5:0], unit [7:6], tile [15:8], tag [31:16]; then the next one


ID_VALUE = 0x4D534C01


class HostPort(wiring.Component):
    """AXI4-Lite slave. `start` starts the boot stream; `fault` takes reports from the post plane, one a cycle.

    `moved`: some tile has shown progress; STALL_LIMIT counts cycles of a run without it. `ask`: a watchdog has stopped
    the run, and tiles are to report; up until reset.
    """

    bus: Any  # AXI4Lite
    tile: Signal
    ready: Signal
    ended: Signal
    moved: Signal
    fault: stream.Interface
    start: data.View
    now: Signal
    go: Signal
    trace: Signal
    ask: Signal
    irq: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        super().__init__(
            {
                "bus": In(AXI4Lite(address_bits=8)),
                "tile": In(8),
                "ready": In(1),
                "ended": In(1),
                "moved": In(1),
                "fault": In(stream.Signature(PostFlit)),
                "start": Out(data.StructLayout({"valid": 1, "fetch": FetchLayout})),
                "now": Out(32),
                "go": Out(1),
                "trace": Out(1),
                "ask": Out(1),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus
        running, done, faulted, trace = Signal(), Signal(), Signal(), Signal()
        program = {
            name: Signal(32, name=name.name.lower())
            for name in (
                Register.PROGRAM_TILE,
                Register.PROGRAM_ADDR,
                Register.PROGRAM_COUNT,
                Register.WATCHDOG,
                Register.STALL_LIMIT,
            )
        }
        cycles, quiet, who, value = Signal(32), Signal(32), Signal(32), Signal(32)
        m.d.comb += [self.now.eq(cycles), self.go.eq(running), self.trace.eq(trace), self.irq.eq(done | faulted)]

        # one write at a time: address and data together
        write = Signal()
        m.d.comb += [
            write.eq(bus.awvalid & bus.wvalid & ~bus.bvalid),
            bus.awready.eq(write),
            bus.wready.eq(write),
        ]
        start = Signal()
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(write):
            m.d.sync += bus.bvalid.eq(1)
            with m.Switch(bus.awaddr):
                for register, signal in program.items():
                    with m.Case(int(register)):
                        m.d.sync += signal.eq(bus.wdata)
                with m.Case(int(Register.CONTROL)):
                    m.d.comb += start.eq(bus.wdata[0] & ~running & ~faulted & self.ready)
                    with m.If(start):
                        m.d.sync += trace.eq(bus.wdata[1])
        waiting, oldest, next_one = self._reports(m)
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        m.d.comb += bus.arready.eq(~bus.rvalid)
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += bus.rvalid.eq(1)
            with m.Switch(bus.araddr):
                readable = {
                    Register.ID: ID_VALUE,
                    Register.CONFIG: int(self.config.digest[-8:], 16),
                    Register.STATUS: Cat(running, done, faulted, self.ready & ~running & ~faulted),
                    Register.CYCLES: cycles,
                    Register.FAULT_WHO: who,
                    Register.FAULT_VALUE: value,
                    Register.QUIET: quiet,
                    Register.REPORTS: waiting,
                    Register.REPORT_LOW: oldest[:32],
                    Register.REPORT_HIGH: oldest[32:],
                } | program
                for register, source in readable.items():
                    with m.Case(int(register)):
                        m.d.sync += bus.rdata.eq(source)
                        if register is Register.REPORT_HIGH:
                            m.d.comb += next_one.eq(1)
                with m.Default():
                    m.d.sync += bus.rdata.eq(0)

        fetch = self.start.fetch
        m.d.comb += [
            self.start.valid.eq(start),
            fetch.opcode.eq(Opcode.FETCH),
            fetch.dram.eq(program[Register.PROGRAM_TILE]),
            fetch.addr.eq(program[Register.PROGRAM_ADDR]),
            fetch.count.eq(program[Register.PROGRAM_COUNT]),
        ]
        report = self.fault.payload
        m.d.comb += self.fault.ready.eq(1)
        with m.If(start):
            m.d.sync += [running.eq(1), done.eq(0), cycles.eq(0), who.eq(0), value.eq(0), quiet.eq(0)]
        with m.Elif(running):
            m.d.sync += cycles.eq(cycles + 1)
            limit = program[Register.STALL_LIMIT]
            overdue, stalled = Signal(), Signal()
            m.d.comb += [
                overdue.eq((program[Register.WATCHDOG] != 0) & (cycles == program[Register.WATCHDOG])),
                stalled.eq((limit != 0) & (quiet == limit)),
            ]
            with m.If(self.moved):
                m.d.sync += quiet.eq(0)
            with m.Elif(~stalled):
                m.d.sync += quiet.eq(quiet + 1)
            with m.If(self.fault.valid & report.fault & (report.cause != Cause.NONE)):
                m.d.sync += [running.eq(0), faulted.eq(1)]
                m.d.sync += [who.eq(Cat(report.cause, report.unit, Signal(2), report.tile, report.tag))]
                m.d.sync += value.eq(report.value)
            with m.Elif(self.ended):
                m.d.sync += [running.eq(0), done.eq(1)]
            with m.Elif(overdue | stalled):
                m.d.sync += [running.eq(0), faulted.eq(1), self.ask.eq(1)]
                m.d.sync += value.eq(Mux(overdue, cycles, quiet))
                cause = Mux(overdue, Cause.WATCHDOG, Cause.STALLED)
                m.d.sync += who.eq(Cat(cause, Const(int(Unit.NONE), 4), self.tile))
        return m

    def _reports(self, m: Module) -> tuple[Signal, Value, Signal]:
        """Keeps the states that arrive: how many are unread, the first of them, and a strobe for the next one."""
        depth = 1 << (most_reports(self.config) - 1).bit_length()
        m.submodules.reports = reports = memory.Memory(shape=64, depth=depth, init=[])
        write, read = reports.write_port(), reports.read_port()
        got, left, done = Signal(range(depth + 1)), Signal(range(depth + 1)), Signal(range(depth + 1))
        next_one = Signal()
        state = data.View(StateFlit, self.fault.payload.as_value())
        arriving = Signal()
        m.d.comb += [
            arriving.eq(self.ask & self.fault.valid & state.fault & (state.cause == Cause.NONE) & (got != depth)),
            write.en.eq(arriving),
            write.addr.eq(got),
            write.data.eq(Cat(detail(state), state.part, state.waits, state.unit, state.tile, state.tag)),
            read.addr.eq(done),
            left.eq(got - done),
        ]
        with m.If(arriving):
            m.d.sync += got.eq(got + 1)
        with m.If(next_one & (left != 0)):
            m.d.sync += done.eq(done + 1)
        return left, read.data, next_one
