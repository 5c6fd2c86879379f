"""What becomes of wrong bits that the code of words has seen (`hw.wiring.ecc`), in a tile of a chip with `ecc`."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..spec.isa import ADDRESS, Cause
from ..wiring.signatures import FaultPort, FaultSignature


class ErrorWatch(wiring.Component):
    """Raises a fault when a word is `lost`, and counts words that were `corrected`, of `sources` memories and links.

    Both are levels, and count when they begin: words that are wrong in the same memory without a right one between them
    are one. `address_<i>`: the fault's value. Of several sources in one cycle the first raises its fault. In cycles
    without `active` no register changes.
    """

    corrected: Signal
    lost: Signal
    fault: FaultPort
    total: Signal
    active: Signal

    def __init__(self, sources: int) -> None:
        self.sources = sources
        super().__init__(
            {"corrected": In(sources), "lost": In(sources)}
            | {f"address_{i}": In(ADDRESS.width) for i in range(sources)}
            | {"fault": Out(FaultSignature()), "total": Out(32), "active": Out(1)}
        )

    def address(self, source: int) -> Signal:
        """Port `address_<source>`."""
        return getattr(self, f"address_{source}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        corrected, lost = Signal(self.sources, name="was_corrected"), Signal(self.sources, name="was_lost")
        m.d.sync += [corrected.eq(self.corrected), lost.eq(self.lost)]
        begins, counted = Signal(self.sources), Signal(self.sources)
        m.d.comb += [begins.eq(self.lost & ~lost), counted.eq(self.corrected & ~corrected)]
        m.d.sync += self.total.eq(self.total + sum(counted, start=Value.cast(0)))
        value: Value | int = 0
        for source in reversed(range(self.sources)):
            value = Mux(begins[source], self.address(source), value)
        m.d.comb += [
            self.fault.valid.eq(begins.any()),
            self.fault.cause.eq(Cause.ECC),
            self.fault.value.eq(value),
            self.active.eq(Cat(self.corrected ^ corrected, self.lost ^ lost).any()),
        ]
        return m
