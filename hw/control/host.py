"""The host's window on the chip: control and status registers behind AXI4-Lite.

A run: write PROGRAM_TILE, PROGRAM_ADDR, PROGRAM_COUNT and WATCHDOG, then CONTROL.start. The host tile's mover stream
executes the boot program from there; its END, a fault, or the watchdog ends the run and raises `irq`. `now`, the clock
that every unit stamps its trace with, is 0 in the first cycle of a run.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import ChipConfig
from ..isa import Cause, Opcode
from ..memory.axi import AXI4Lite
from .signatures import FetchLayout, PostFlit


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


ID_VALUE = 0x4D534C01


class HostPort(wiring.Component):
    """AXI4-Lite slave. `start` starts the boot stream; `fault` takes reports from the post plane."""

    bus: Any  # AXI4Lite
    tile: Signal
    ready: Signal
    ended: Signal
    fault: stream.Interface
    start: data.View
    now: Signal
    go: Signal
    trace: Signal
    irq: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        super().__init__(
            {
                "bus": In(AXI4Lite(address_bits=8)),
                "tile": In(8),
                "ready": In(1),
                "ended": In(1),
                "fault": In(stream.Signature(PostFlit)),
                "start": Out(data.StructLayout({"valid": 1, "fetch": FetchLayout})),
                "now": Out(32),
                "go": Out(1),
                "trace": Out(1),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus
        running, done, faulted, trace = Signal(), Signal(), Signal(), Signal()
        program = {
            name: Signal(32, name=name.name.lower())
            for name in (Register.PROGRAM_TILE, Register.PROGRAM_ADDR, Register.PROGRAM_COUNT, Register.WATCHDOG)
        }
        cycles, who, value = Signal(32), Signal(32), Signal(32)
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
                } | program
                for register, source in readable.items():
                    with m.Case(int(register)):
                        m.d.sync += bus.rdata.eq(source)
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
            m.d.sync += [running.eq(1), done.eq(0), cycles.eq(0), who.eq(0), value.eq(0)]
        with m.Elif(running):
            m.d.sync += cycles.eq(cycles + 1)
            with m.If(self.fault.valid & report.fault):
                m.d.sync += [running.eq(0), faulted.eq(1)]
                m.d.sync += [who.eq(Cat(report.cause, report.unit, Signal(2), report.tile, report.tag))]
                m.d.sync += value.eq(report.value)
            with m.Elif(self.ended):
                m.d.sync += [running.eq(0), done.eq(1)]
            with m.Elif((program[Register.WATCHDOG] != 0) & (cycles == program[Register.WATCHDOG])):
                m.d.sync += [running.eq(0), faulted.eq(1), value.eq(cycles)]
                m.d.sync += who.eq(Cat(Signal(4, init=int(Cause.WATCHDOG)), Signal(2, init=3), Signal(2), self.tile))
        return m
