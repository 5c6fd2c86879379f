"""Sizes of gateware: generic cells after synthesis by Yosys. As a benchmark: what serving many networks adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshloom.hw.spec.config import ChipConfig, TileKind, load
from meshloom.hw.spec.isa import Unit
from meshloom.hw.spec.routes import RouteField

from ..build.synthesis import LOGIC, WHOLE, Area, area
from ..report.console import percent
from ..results.events import OnEvent, RowCount, Stage
from .results import Result, Sheet

#: A data flit of a chip with 16 lanes.
BITS, DEPTH = 128, 4
#: Room for the diameter of a 6 x 6 mesh and detours.
ROUTES = RouteField(flag_bit=64, first_bit=65, turns=13)
#: The chip whose tiles are measured, with and without what serving takes: small cores are quickly synthesised.
CHIP = "nine8"
#: What a row of the table adds to the chip.
VARIANTS: dict[str, dict[str, Any]] = {
    "": {},
    "programs": {"programs": 9},
    "counters": {"counters": True},
    "programs, counters": {"programs": 9, "counters": True},
}
KINDS = (TileKind.HOST, TileKind.DRAM, TileKind.SPM, TileKind.CORE)


def router_area(vcs: int, allocate: str = "same", bits: int = BITS, depth: int = DEPTH) -> Area:
    """A router with all five ports and source routes, its buffers as flip-flops. Takes a minute of CPU time, so results
    are cached by content.

    Raises BuildError.
    """

    from meshloom.hw.noc.link import Plane
    from meshloom.hw.noc.router import Router

    router = Router(1, 1, Plane(3, 3, bits, depth, vcs, allocate=allocate, routes=ROUTES))
    return component_area(f"router-{vcs}vc-{allocate}", router, WHOLE)


def unit_area(config: ChipConfig, unit: Unit) -> Area:
    """The matrix or vector unit of a core without its memories; cached as `router_area`. Raises BuildError."""

    from meshloom.hw.core.matrix import MatrixUnit
    from meshloom.hw.core.vector import VectorUnit

    design = {Unit.MATRIX: MatrixUnit, Unit.VECTOR: VectorUnit}[unit](config)
    return component_area(f"{unit.name.lower()}-{config.lanes}-{config.core.vec_windows}", design)


def tile_area(config: ChipConfig, kind: TileKind) -> Area:
    """A tile without its routers and memories; cached as `router_area`. Raises BuildError."""

    from meshloom.hw.assembly.tile import Tile
    from meshloom.hw.core.array import blocks

    others = blocks(config) if kind is TileKind.CORE else {}
    return component_area(f"tile-{kind.value}-{config.programs}-{config.counters}", Tile(config, kind), others=others)


def mover_area(config: ChipConfig, kind: TileKind) -> Area:
    """The mover of a tile without its queues' memories; cached as `router_area`. Raises BuildError."""

    from meshloom.hw.assembly.regions import readable_regions
    from meshloom.hw.memory.mover import Mover

    mover = Mover(config, kind, readable_regions(config, kind))
    return component_area(f"mover-{kind.value}-{config.programs}-{config.counters}", mover)


def component_area(name: str, component: Any, script: str = LOGIC, others: Mapping[str, Any] | None = None) -> Area:
    """The area of a design. `others`: modules that it instantiates, by name. Raises BuildError."""
    from meshloom.hw.assembly.verilog import merge, to_rtlil

    text = to_rtlil(component, "design")
    if others:
        text = merge("\n".join([text, *(to_rtlil(part, module) for module, part in others.items())]))
    return area(name, text, script)


def _sheet(on_progress: OnEvent) -> Sheet:
    """The tiles of each variant of the chip, and all of them together."""
    plain = load(CHIP)
    chips = {name: ChipConfig.model_validate(plain.model_dump() | changes) for name, changes in VARIANTS.items()}
    rows: list[tuple[str, ...]] = []
    whole = dict.fromkeys(chips, Area(0, 0))

    def add(part: str, found: Mapping[str, Area]) -> None:
        first = found[""]
        for name, one in found.items():
            more = percent(100 * (one.cells - first.cells) / first.cells, sign="+", digits=1) if name else ""
            rows.append((part, name, f"{one.cells:,}", f"{one.flip_flops:,}", more))

    on_progress(RowCount(rows=len(KINDS) + 1))
    on_progress(Stage(workload="mover", what="synthesising"))
    add("mover of a core", {name: mover_area(chip, TileKind.CORE) for name, chip in chips.items()})
    for kind in KINDS:
        on_progress(Stage(workload=f"{kind.value} tile", what="synthesising"))
        found = {name: tile_area(chip, kind) for name, chip in chips.items()}
        add(f"{kind.value} tile", found)
        count = sum(each is kind for each in plain.tiles.values())
        for name, one in found.items():
            before = whole[name]
            whole[name] = Area(before.cells + count * one.cells, before.flip_flops + count * one.flip_flops)
    add("all tiles", whole)
    columns = ("part", "with", "cells>", "of them flip-flops>", "more>")
    title = f"Tiles of {CHIP} without routers and memories (Yosys `synth`, generic cells)"
    return Sheet(title, columns, rows)


def run(on_progress: OnEvent) -> Result:
    """Synthesises the tiles. Raises BuildError."""
    sheet = _sheet(on_progress)
    return Result(
        "area",
        "Area of serving",
        "What a chip pays to run several programs at once (`programs`: queues of launches and completions, rights, "
        "ends of streams) and to have its busy cycles read meanwhile (`counters`). Cores have 8x8 arrays here: in "
        "larger ones both weigh less, for neither is in the array.",
        (sheet,),
    )
