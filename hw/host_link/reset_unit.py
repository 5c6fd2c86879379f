"""The chip's reset: that of its pin, or one that the host has asked for, once DRAM and the host's bus are at rest.

A reset in the middle of an AXI transaction leaves the other side with half of it: the next run gets its words. So the
host's CONTROL.reset first has all DRAM ports finish their bursts (`memory.dram_port`), then the host finish what is
open on its own bus, and only then resets everything.
"""

from __future__ import annotations

from amaranth.hdl import Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..wiring.clocking import gated_domain


class ResetUnit(wiring.Component):
    """`reset` goes to all tiles and meshes: while the pin is, and for one cycle after `released`.

    `wanted`, from the host, is set until the reset comes. `quiesce` follows it a cycle later and goes to the ports of
    DRAM; each answers with a bit of `quiesced`. `settled` says a cycle later that all have, upon which the host
    finishes what is open on its bus, takes nothing more, and sets `released`. `reset` comes a cycle after that. A
    memory that never answers keeps it waiting for ever.

    `gated`: its clock is stopped while nothing changes (`wiring.clocking`).
    """

    wanted: Signal
    quiesce: Signal
    quiesced: Signal
    settled: Signal
    released: Signal
    reset: Signal

    def __init__(self, channels: int, gated: bool = False) -> None:
        self._gated = gated
        super().__init__(
            {
                "wanted": In(1),
                "quiesce": Out(1),
                "quiesced": In(channels),
                "settled": Out(1),
                "released": In(1),
                "reset": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ending = Signal()
        domain = gated_domain(m, "unit", self.wanted | ending, self._gated)
        m.d.comb += self.reset.eq(ending | ResetSignal())
        with m.If(ending):
            m.d[domain] += [ending.eq(0), self.quiesce.eq(0), self.settled.eq(0)]
        with m.Elif(self.wanted):
            m.d[domain] += [
                self.quiesce.eq(1),
                self.settled.eq(self.quiesced.all()),
                ending.eq(self.settled & self.released),
            ]
        return m
