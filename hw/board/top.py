"""A board: a chip, its DRAM of block RAM, and the host link on a UART."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import ClockSignal, Const, Instance, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..assembly.tile import dram_bus
from ..assembly.verilog import optimised, to_rtlil, verilog
from ..spec.config import ChipConfig
from ..spec.registers import CONTROL, Register
from ..wiring.axi import AXI4Lite
from .link import HostLink
from .ram import BlockRam, check
from .uart import Receiver, Transmitter


class Board(wiring.Component):
    """`rx`, `tx`: the UART, `divisor` cycles for a bit. `busy`: a run goes on (a light). The chip is an instance of the
    module `chip` (`hw.assembly.verilog`). Its reset is the board's, or RESET of the link. Raises ValueError for a chip
    whose DRAM no block RAM can be, and for a divisor that is too small.
    """

    rx: Signal
    tx: Signal
    busy: Signal

    def __init__(self, config: ChipConfig, divisor: int) -> None:
        self.config = config
        self._uart = Receiver(divisor), Transmitter(divisor)
        self._rams = [BlockRam(config) for _ in config.channels]
        self._link = HostLink(lanes=config.lanes, channels=len(config.channels), words=config.dram.words)
        super().__init__({"rx": In(1), "tx": Out(1), "busy": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        (receiver, transmitter), link = self._uart, self._link
        m.submodules.receiver, m.submodules.transmitter, m.submodules.link = receiver, transmitter, link
        m.d.comb += [receiver.pin.eq(self.rx), self.tx.eq(transmitter.pin)]
        wiring.connect(m, receiver.output, link.input)
        wiring.connect(m, link.output, transmitter.input)
        ports: dict[str, Any] = {"i_clk": ClockSignal(), "i_rst": ResetSignal() | link.chip_reset}
        irq = Signal()
        ports["o_irq"] = irq
        self._memories(m, ports)
        members: Any = AXI4Lite(address_bits=8).flatten(link.registers)
        for path, member, value in members:  # as the manager sees it, which is the link
            ports[f"{'i' if member.flow is Out else 'o'}_bus__{path[0]}"] = value
        m.submodules.chip = Instance("chip", **ports)
        started = Signal()
        write = link.registers.awvalid & link.registers.awready
        with m.If(write & (link.registers.awaddr == int(Register.CONTROL)) & link.registers.wdata[_START]):
            m.d.sync += started.eq(1)
        with m.Elif(irq | link.chip_reset):
            m.d.sync += started.eq(0)
        m.d.comb += self.busy.eq(started)
        return m

    def _memories(self, m: Module, ports: dict[str, Any]) -> None:
        """A channel behind each DRAM port of the chip, which the link reaches, too."""
        link = self._link.memory
        chosen = Signal(8)  # the channel that answers the link in this cycle
        m.d.sync += chosen.eq(link.channel)
        answer: Value = Const(0, self.config.word_bits)
        for index, ram in enumerate(self._rams):
            m.submodules[f"dram_{index}"] = ram
            here = link.channel == index
            m.d.comb += [
                ram.reset.eq(self._link.chip_reset),
                ram.link.address.eq(link.address),
                ram.link.data.eq(link.data),
                ram.link.read.eq(link.read & here),
                ram.link.write.eq(link.write & here),
            ]
            answer = Mux(chosen == index, ram.link.answer, answer)
            members: Any = dram_bus(self.config).flatten(ram.axi)
            for path, member, value in members:  # as the manager sees it, which is the chip
                ports[f"{'o' if member.flow is Out else 'i'}_axi_{index}__{path[0]}"] = value
        m.d.comb += link.answer.eq(answer)


#: The bit of CONTROL that starts a run.
_START = CONTROL.offsets["start"][0]


def board_verilog(config: ChipConfig, divisor: int) -> str:
    """Synthesisable Verilog of a board. Top module: `board`, with `clk`, `rst`, `rx`, `tx`, `busy`. Raises EmitError,
    ValueError."""
    check(config)  # before any gateware is made, which would be left unused
    top = optimised(to_rtlil(Board(config, divisor), "board", contents=False), "board")
    return top + verilog(config)
