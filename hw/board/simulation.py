"""What stands for a board's parts in a simulation."""

from __future__ import annotations

from amaranth.hdl import ClockSignal, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from .sdram import SdramPins, SdramPinsPort


class SimulatedSdram(wiring.Component):
    """The part behind a controller's pins, with the registers between them: `tb/devices/board/sdram_model.v`. `clock`:
    ours, in MHz."""

    pins: SdramPinsPort

    def __init__(self, clock: float) -> None:
        self._clock = clock
        super().__init__({"pins": In(SdramPins())})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pins, ports = self.pins, {}
        outputs = [pins.cke, pins.cs, pins.ras, pins.cas, pins.we, pins.ba, pins.a, pins.dqm, pins.dq_out, pins.drive]
        names = ["cke", "cs_n", "ras_n", "cas_n", "we_n", "ba", "a", "dqm", "d", "drives"]
        for name, value in zip(names, outputs, strict=True):
            held = Signal(len(value), name=name)
            m.d.sync += held.eq(~value if name.endswith("_n") else value)
            ports[f"i_{name}"] = held
        q, driving = Signal(len(pins.dq_in)), Signal()
        m.d.sync += pins.dq_in.eq(q)
        m.submodules.part = Instance(
            "sdram_model",
            p_PERIOD=round(1e6 / self._clock),
            i_clk=~ClockSignal(),
            o_q=q,
            o_driving=driving,
            **ports,
        )
        return m
