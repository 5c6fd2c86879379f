"""A board: a chip, its DRAM, and the host link on a UART."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import ClockSignal, Const, Instance, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..assembly.tile import dram_bus
from ..assembly.verilog import optimised, to_rtlil, verilog
from ..spec.config import ChipConfig
from ..spec.registers import CONTROL, Register
from ..wiring.axi import AXI4Lite, AXI4Port
from .channel import check
from .link import HostLink
from .memory import BoardMemory
from .ram import BlockRam
from .sdram import SdramPins, SdramPinsPort
from .simulation import SimulatedSdram
from .store import PacedMemory
from .uart import Receiver, Transmitter

#: The clock of a board that is simulated with SDRAM, in MHz.
SIMULATED_CLOCK = 30.0


class Board(wiring.Component):
    """`rx`, `tx`: the UART, `divisor` cycles for a bit. `busy`: a run goes on (a light). The chip is an instance of the
    module `chip` (`hw.assembly.verilog`). Its reset is the board's, or RESET of the link, a cycle later: a register's
    own, since it goes to everything.

    DRAM is block RAM. With `sdram`, which is the clock in MHz, it is SDRAM at `pins`, and the chip's clock comes out of
    an instance of `clock_gate`: it stops while SDRAM has not kept up, so that the chip's cycles are the same. Registers
    are read and written in cycles in which it ticks. Raises ValueError for a clock or
    divisor that cannot be; `channel.check` and `store.check_size` say whether a chip can have one.
    """

    rx: Signal
    tx: Signal
    busy: Signal
    pins: SdramPinsPort  # with `sdram` only

    def __init__(self, config: ChipConfig, divisor: int, sdram: float | None = None) -> None:
        self.config = config
        self._sdram = None if sdram is None else PacedMemory(config, sdram)
        self._rams = [] if sdram else [BlockRam(config) for _ in config.channels]
        self._uart = Receiver(divisor), Transmitter(divisor)
        self._link = HostLink(lanes=config.lanes, channels=len(config.channels), words=config.dram.words)
        pins = {} if sdram is None else {"pins": Out(SdramPins())}
        super().__init__({"rx": In(1), "tx": Out(1), "busy": Out(1)} | pins)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        (receiver, transmitter), link = self._uart, self._link
        m.submodules.receiver, m.submodules.transmitter, m.submodules.link = receiver, transmitter, link
        m.d.comb += [receiver.pin.eq(self.rx), self.tx.eq(transmitter.pin)]
        wiring.connect(m, receiver.output, link.input)
        wiring.connect(m, link.output, transmitter.input)
        irq, run, clock = Signal(), Signal(), Signal()
        reset = Signal(init=1)  # as long as the board is reset, too
        m.d.sync += reset.eq(link.chip_reset)
        ports: dict[str, Any] = {"i_rst": reset, "o_irq": irq}
        if self._sdram is None:
            ports["i_clk"] = ClockSignal()
            m.d.comb += run.eq(1)
            self._block_rams(m, ports)
        else:
            m.submodules.gate = Instance("clock_gate", i_clk=ClockSignal(), i_enable=run, o_gated=clock)
            ports["i_clk"] = clock
            m.d.comb += run.eq(self._sdram.run)
            self._paced(m, ports, self._sdram)
        self._registers(m, ports, run)
        m.submodules.chip = Instance("chip", **ports)
        started = Signal()
        write = link.registers.awvalid & link.registers.awready
        with m.If(write & (link.registers.awaddr == int(Register.CONTROL)) & link.registers.wdata[_START]):
            m.d.sync += started.eq(1)
        with m.Elif(irq | link.chip_reset):
            m.d.sync += started.eq(0)
        m.d.comb += self.busy.eq(started)
        return m

    def _registers(self, m: Module, ports: dict[str, Any], run: Signal) -> None:
        """The chip's registers, at the link: nothing is handed over in a cycle in which the chip stands."""
        members: Any = AXI4Lite(address_bits=8).flatten(self._link.registers)
        for path, member, value in members:  # as the manager sees it, which is the link
            name = path[0]
            if member.flow is Out:
                ports[f"i_bus__{name}"] = value
            elif name.endswith(("valid", "ready")):
                ports[f"o_bus__{name}"] = says = Signal(name=f"chip_{name}")
                m.d.comb += value.eq(says & run)
            else:
                ports[f"o_bus__{name}"] = value

    def _dram_port(self, ports: dict[str, Any], index: int, axi: AXI4Port) -> None:
        """A DRAM port of the chip, which `axi` answers."""
        members: Any = dram_bus(self.config).flatten(axi)
        for path, member, value in members:  # as the manager sees it, which is the chip
            ports[f"{'o' if member.flow is Out else 'i'}_axi_{index}__{path[0]}"] = value

    def _paced(self, m: Module, ports: dict[str, Any], sdram: PacedMemory) -> None:
        """All channels in the SDRAM, which the link reaches, too."""
        m.submodules.dram = sdram
        wiring.connect(m, self._link.memory, sdram.link)
        wiring.connect(m, sdram.pins, wiring.flipped(self.pins))
        m.d.comb += sdram.reset.eq(self._link.chip_reset)
        for index in range(len(self.config.channels)):
            self._dram_port(ports, index, sdram.axi(index))

    def _block_rams(self, m: Module, ports: dict[str, Any]) -> None:
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
            self._dram_port(ports, index, ram.axi)
        m.d.comb += [link.answer.eq(answer), link.ready.eq(1)]


class SimulatedBoard(wiring.Component):
    """A board whose SDRAM is simulated, too."""

    rx: Signal
    tx: Signal
    busy: Signal

    def __init__(self, config: ChipConfig, divisor: int) -> None:
        self._board, self._part = Board(config, divisor, SIMULATED_CLOCK), SimulatedSdram(SIMULATED_CLOCK)
        super().__init__({"rx": In(1), "tx": Out(1), "busy": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.board = board = self._board
        m.submodules.part = self._part
        wiring.connect(m, board.pins, self._part.pins)
        m.d.comb += [board.rx.eq(self.rx), self.tx.eq(board.tx), self.busy.eq(board.busy)]
        return m


#: The bit of CONTROL that starts a run.
_START = CONTROL.offsets["start"][0]


def board_verilog(config: ChipConfig, divisor: int, memory: BoardMemory = BoardMemory.BLOCK) -> str:
    """Verilog of a board to simulate. Top module: `board`, with `clk`, `rst`, `rx`, `tx`, `busy`. With SDRAM it has
    instances of `sdram_model` and `clock_gate`. Raises EmitError, ValueError."""
    check(config)  # before any gateware is made, which would be left unused
    top = SimulatedBoard(config, divisor) if memory is BoardMemory.SDRAM else Board(config, divisor)
    return optimised(to_rtlil(top, "board", contents=False), "board") + verilog(config)
