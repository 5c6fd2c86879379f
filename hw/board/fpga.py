"""The top of an FPGA: its oscillator behind a PLL, a reset, and the board (`top`) at the pins of its UART, a light and,
if its DRAM is that, SDRAM.

What a platform of Amaranth has (`amaranth.build`) is requested by name, so that any board with a definition there will
do. The PLL is an instance of the module `pll`, the chip one of `chip`, the gate of its clock one of `clock_gate`: all
come as Verilog.
"""

from __future__ import annotations

from typing import Any

from amaranth.build import ResourceError  # pyright: ignore[reportAttributeAccessIssue]  (missing in the stubs)
from amaranth.hdl import ClockDomain, ClockSignal, Elaboratable, Instance, Module, ResetSignal, Signal
from amaranth.lib import io

from ..spec.config import ChipConfig
from .top import Board

#: Cycles for which everything is reset once the PLL is locked.
RESET_CYCLES = 255


#: What platforms name the pins of SDRAM.
SDRAM_PINS = ("clk", "clk_en", "cs", "we", "ras", "cas", "ba", "a", "dq", "dqm")


class Fpga(Elaboratable):
    """Contract: `sync` is the PLL's clock and is reset for `RESET_CYCLES` after power-up, and again whenever the PLL
    loses its lock. The UART's bit takes `divisor` cycles. `sdram`: DRAM is SDRAM, and the clock is so many MHz. Raises
    what `Board` raises."""

    def __init__(self, config: ChipConfig, divisor: int, sdram: float | None = None) -> None:
        self._board, self._sdram = Board(config, divisor, sdram), sdram is not None

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.domains.sync = ClockDomain("sync")
        m.domains.start = ClockDomain("start", reset_less=True)
        m.submodules.oscillator = oscillator = io.Buffer(
            io.Direction.Input, platform.request(platform.default_clk, dir="-")
        )
        locked = Signal()
        ports = {"i_clkin": oscillator.i, "o_clkout0": ClockSignal("start"), "o_locked": locked}
        m.submodules.pll = Instance("pll", **ports)
        left = Signal(range(RESET_CYCLES + 1), init=RESET_CYCLES)
        with m.If(~locked):
            m.d.start += left.eq(RESET_CYCLES)
        with m.Elif(left != 0):
            m.d.start += left.eq(left - 1)
        resets = Signal(init=1)
        m.d.start += resets.eq(left != 0)
        m.d.comb += [ClockSignal().eq(ClockSignal("start")), ResetSignal().eq(resets)]
        m.submodules.board = board = self._board
        uart = platform.request("uart", 0, dir="-")
        m.submodules.rx, m.submodules.tx = rx, tx = (
            io.Buffer(io.Direction.Input, uart.rx),
            io.Buffer(io.Direction.Output, uart.tx),
        )
        m.submodules.light = light = io.Buffer(io.Direction.Output, _light(platform))
        m.d.comb += [board.rx.eq(rx.i), tx.o.eq(board.tx), light.o.eq(board.busy)]
        if self._sdram:
            _sdram(m, platform.request("sdram", 0, dir=dict.fromkeys(SDRAM_PINS, "-")), board)
        return m


def _sdram(m: Module, port: Any, board: Board) -> None:
    """The pins of SDRAM, each behind a register of its own in the pin. Its clock is the inverse of ours."""
    pins = board.pins
    clock: Any = io.DDRBuffer(io.Direction.Output, port.clk)
    m.submodules.sdram_clock = clock
    m.d.comb += [clock.o[0].eq(0), clock.o[1].eq(1)]
    outputs = {
        "clk_en": pins.cke, "cs": pins.cs, "ras": pins.ras, "cas": pins.cas, "we": pins.we, "ba": pins.ba, "a": pins.a,
        "dqm": pins.dqm,
    }  # fmt: skip
    for name, value in outputs.items():
        m.submodules[f"sdram_{name}"] = buffer = io.FFBuffer(io.Direction.Output, getattr(port, name))
        m.d.comb += buffer.o.eq(value)
    m.submodules.sdram_dq = bus = io.FFBuffer(io.Direction.Bidir, port.dq)
    m.d.comb += [bus.o.eq(pins.dq_out), bus.oe.eq(pins.drive), pins.dq_in.eq(bus.i)]


def _light(platform: Any) -> Any:
    """The port of a light; of one of three colours the green one's."""
    try:
        return platform.request("led", 0, dir="-")
    except ResourceError:
        return platform.request("rgb_led", 0, dir="-").g
