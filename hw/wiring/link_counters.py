"""What the outputs of a router have done: cycles in which a flit left, and in which one wanted to and none did."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..spec.routes import LOCAL, NEIGHBOURS

#: Outputs in the order in which they are counted.
OUTPUTS = (*NEIGHBOURS, LOCAL)


def link_counts() -> data.StructLayout:
    """`busy` and `blocked`: cycles, one number for each of `OUTPUTS`; 0 for those that a router does not have."""
    return data.StructLayout(
        {"busy": data.ArrayLayout(32, len(OUTPUTS)), "blocked": data.ArrayLayout(32, len(OUTPUTS))}
    )


class LinkCounters(wiring.Component):
    """Counts the strobes `busy_<port>` and `blocked_<port>` of a router with these `ports` while `count` is set.

    A cycle is in `counts` from the next one on. In cycles without a strobe no register changes.
    """

    count: Signal
    counts: data.View

    def __init__(self, ports: Sequence[str]) -> None:
        self.ports = tuple(ports)
        members = {f"{what}_{port}": In(1) for port in ports for what in ("busy", "blocked")}
        super().__init__({**members, "count": In(1), "counts": Out(link_counts())})

    def strobes(self, port: str) -> tuple[Signal, Signal]:
        """(busy, blocked) of the output `port`."""
        return getattr(self, f"busy_{port}"), getattr(self, f"blocked_{port}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for port in self.ports:
            for counted, strobe in zip((self.counts.busy, self.counts.blocked), self.strobes(port), strict=True):
                number = Signal(32, name=f"{strobe.name}_cycles")
                m.d.comb += counted[OUTPUTS.index(port)].eq(number)
                with m.If(strobe & self.count):
                    m.d.sync += number.eq(number + 1)
        return m
