"""Parts of chips after synthesis by Yosys: generic cells."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.routes import RouteField

from ...build.synthesis import LOGIC, WHOLE, Area, area, tools
from ..engine.point import Inputs, Point, Report
from .runs import Changes, chip_of, gateware

#: A data flit of a chip with 16 lanes, and the flits that a router has room for by port and channel.
BITS, DEPTH = 128, 4
#: Room for the diameter of a 6 x 6 mesh and detours.
ROUTES = RouteField(flag_bit=64, first_bit=65, turns=13)


@dataclass(frozen=True)
class Design:
    """What is synthesised. `others`: modules that it instantiates, by name; `script`: of Yosys."""

    component: Any
    others: Mapping[str, Any] = field(default_factory=dict[str, Any])
    script: str = LOGIC


class AreaPoint(Point):
    """The cells of a design. Takes up to minutes, so results are cached by content, too."""

    row: ClassVar[Any] = Area

    @abstractmethod
    def design(self) -> Design:
        """What is synthesised."""

    @property
    def work(self) -> float:
        return 30.0

    def inputs(self) -> Inputs:
        return Inputs((), (("gateware", gateware()), ("tools", tools())))

    def measure(self, report: Report) -> Area:
        """Raises BuildError."""
        from meshloom.hw.assembly.verilog import merge, to_rtlil

        report("synthesising")
        design = self.design()
        text = to_rtlil(design.component, "design")
        if design.others:
            text = merge("\n".join([text, *(to_rtlil(part, module) for module, part in design.others.items())]))
        return area("-".join(self.name.replace(",", "").split()), text, design.script)


@dataclass(frozen=True)
class RouterArea(AreaPoint):
    """A router with all five ports and source routes, its buffers as flip-flops."""

    vcs: int
    allocate: str = "same"
    bits: int = BITS
    depth: int = DEPTH

    @property
    def name(self) -> str:
        return f"router of {self.vcs} VCs x {self.depth} flits of {self.bits} bits, {self.allocate}"

    def design(self) -> Design:
        from meshloom.hw.noc.link import Plane
        from meshloom.hw.noc.router import Router

        plane = Plane(3, 3, self.bits, self.depth, self.vcs, allocate=self.allocate, routes=ROUTES)
        return Design(Router(1, 1, plane), script=WHOLE)


class ChipArea(AreaPoint):
    """The cells of a part of a chip, some of whose fields are changed."""

    chip: str
    changes: Changes

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        return chip_of(self.chip, self.changes)

    def inputs(self) -> Inputs:
        base = super().inputs()
        return Inputs(base.modules, (*base.more, ("chip", self.config.digest)))

    def words(self, part: str) -> str:
        """The name of a part."""
        return ", ".join((f"{part} of {self.chip}", *(f"{field} {value}" for field, value in self.changes)))


@dataclass(frozen=True)
class UnitArea(ChipArea):
    """A unit of a core without its memories: `matrix`, `vector`, `drain`; the `mover` of a core without those of its
    queues."""

    unit: str
    chip: str
    changes: Changes = ()

    @property
    def name(self) -> str:
        return self.words(f"{self.unit} unit")

    def design(self) -> Design:
        return Design(unit_of(self.config, self.unit))


def unit_of(chip: ChipConfig, unit: str) -> Any:
    """A unit by name."""
    from meshloom.hw.assembly.regions import readable_regions
    from meshloom.hw.core.drain import Drain
    from meshloom.hw.core.matrix import MatrixUnit
    from meshloom.hw.core.vector import VectorUnit
    from meshloom.hw.memory.mover import Mover

    if unit == "mover":
        return Mover(chip, TileKind.CORE, readable_regions(chip, TileKind.CORE))
    return {"matrix": MatrixUnit, "vector": VectorUnit, "drain": Drain}[unit](chip)


@dataclass(frozen=True)
class TileArea(ChipArea):
    """A tile without its routers and memories."""

    kind: TileKind
    chip: str
    changes: Changes = ()

    @property
    def name(self) -> str:
        return self.words(f"{self.kind.value} tile")

    def design(self) -> Design:
        from meshloom.hw.assembly.tile import Tile
        from meshloom.hw.core.array import blocks

        chip = self.config
        return Design(Tile(chip, self.kind), blocks(chip) if self.kind is TileKind.CORE else {})
