"""The top of an FPGA: its oscillator behind a PLL, a reset, and the board (`top`) at the pins of its UART and a light.

What a platform of Amaranth has (`amaranth.build`) is requested by name, so that any board with a definition there will
do. The PLL is an instance of the module `pll`, and the chip one of `chip`: both come as Verilog.
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


class Fpga(Elaboratable):
    """Contract: `sync` is the PLL's clock and is reset for `RESET_CYCLES` after power-up, and again whenever the PLL
    loses its lock. The UART's bit takes `divisor` cycles. Raises what `Board` raises."""

    def __init__(self, config: ChipConfig, divisor: int) -> None:
        self._board = Board(config, divisor)

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
        m.d.comb += [ClockSignal().eq(ClockSignal("start")), ResetSignal().eq(left != 0)]
        m.submodules.board = board = self._board
        uart = platform.request("uart", 0, dir="-")
        m.submodules.rx, m.submodules.tx = rx, tx = (
            io.Buffer(io.Direction.Input, uart.rx),
            io.Buffer(io.Direction.Output, uart.tx),
        )
        m.submodules.light = light = io.Buffer(io.Direction.Output, _light(platform))
        m.d.comb += [board.rx.eq(rx.i), tx.o.eq(board.tx), light.o.eq(board.busy)]
        return m


def _light(platform: Any) -> Any:
    """The port of a light; of one of three colours the green one's."""
    try:
        return platform.request("led", 0, dir="-")
    except ResourceError:
        return platform.request("rgb_led", 0, dir="-").g
