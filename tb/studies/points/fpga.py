"""Chips on an FPGA: synthesised and timed without placing, and placed and routed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig

from ...build.fpga.bitstream import BitstreamRequest, bitstream
from ...build.fpga.estimate import FpgaEstimate, estimate
from ...build.fpga.layout import FpgaLayout
from ...build.synthesis import tools
from ..engine.point import Inputs, Point, Report
from .runs import Changes, chip_of, gateware

#: The chip of examples/boards/fpga4.toml, as `tiny` with other fields.
FPGA4: Changes = (
    ("floorplan", ("dram core host",)),
    ("trace_records", 256),
    ("core.a_words", 512),
    ("core.b_words", 512),
    ("core.acc_words", 128),
    ("core.out_words", 256),
    ("core.vec_words", 256),
    ("core.vec_table", False),
    ("core.vec_whole", False),
    ("core.channel_scales", False),
    ("dram.words", 16384),
    ("dram.latency", 4),
)
CALLED = "fpga4"
#: What examples/boards/fpga4_small.toml leaves out, in this order.
STEPS: tuple[Changes, ...] = (
    (("trace_records", 0),),
    (("ring_instructions", 16), ("semaphores", 16)),
    (("core.vec_ops", ()),),
    (("reports", False),),
    (("boot_host", True),),
    (("memory_streams", False),),
    (("fire_times", False),),
)
LEFT_OUT: Changes = tuple(change for step in STEPS for change in step)
#: What that file has otherwise: with products in registers, which makes paths short.
SMALL4: Changes = (*LEFT_OUT, ("product_register", True))
#: The chip without all that may be left out, but with its vector unit.
SMALL_VECTOR: Changes = tuple(change for change in LEFT_OUT if change[0] != "core.vec_ops")
#: The same with a smaller array.
SMALL2: Changes = (*SMALL4, ("rows", 2), ("cols", 2))
#: What examples/boards/fpga8_quad.toml has otherwise: four 8x8 cores of the same kind.
QUAD8: Changes = (
    *SMALL4,
    *((name, 8) for name in ("lanes", "rows", "cols", "dram.bytes_per_cycle")),
    ("floorplan", ("core core dram host core core",)),
)
#: What chips with some changes are called.
_NAMES: Mapping[Changes, str] = {
    SMALL4: "fpga4_small",
    SMALL2: "fpga4_small with a 2x2 array",
    SMALL_VECTOR: "fpga4_small with a vector unit",
    QUAD8: "fpga8_quad",
}


class _FpgaPoint(Point):
    """`changes`: of the chip."""

    changes: Changes

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        return chip_of("tiny", (*FPGA4, *self.changes), _NAMES.get(self.changes, CALLED).replace(" ", "_"))

    def inputs(self) -> Inputs:
        more = (("gateware", gateware()), ("tools", tools()), ("chip", self.config.digest))
        return Inputs(("tb.build.fpga.bitstream", "tb.build.fpga.estimate"), more)

    @property
    def words(self) -> str:
        """The chip, in words."""
        return _NAMES.get(self.changes) or ", ".join((CALLED, *(f"{field} = {value}" for field, value in self.changes)))


@dataclass(frozen=True)
class EstimatePoint(_FpgaPoint):
    """Cells by part, and the longest paths by typical delays. Results are cached by content, too."""

    changes: Changes = ()
    row: ClassVar[Any] = FpgaEstimate

    @property
    def name(self) -> str:
        return f"{self.words}, estimated"

    @property
    def work(self) -> float:
        return 140.0

    def measure(self, report: Report) -> FpgaEstimate:
        """Raises BuildError."""
        return estimate(self.config, report)


@dataclass(frozen=True)
class PlacedPoint(_FpgaPoint):
    """A bitstream, with the board's link and DRAM: how it lies on the FPGA. `clock` in MHz is asked for."""

    changes: Changes = ()
    board: str = "ulx3s"
    clock: float = 15.0
    baud: int = 1_000_000
    row: ClassVar[Any] = FpgaLayout

    @property
    def name(self) -> str:
        return f"{self.words}, placed on {self.board}"

    @property
    def work(self) -> float:
        return 1200.0

    def measure(self, report: Report) -> FpgaLayout:
        """Raises BuildError, BoardError."""
        return bitstream(BitstreamRequest(self.config, self.board, self.clock, self.baud), report).layout
