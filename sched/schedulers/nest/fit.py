"""What a chip makes of a mapping: the loops that its cores walk, and the tiles that stay in them.

An array of ours keeps sums in its processing elements: its rows are pixels, its columns output channels, and one GEMM
sums all that lies in the core. What a mapping wants beyond that is refused with what would do, or (`nearest`) changed
and said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, prod

from meshloom.hw.spec.config import ChipConfig

from .mapping import PIXELS, REDUCTIONS, Dimension, Factor, LayerMapping, MappingError, MemoryPlace, Operand, listing


@dataclass
class Leeway:
    """Whether a mapping may be changed where the chip cannot do what it says, and the changes so far."""

    nearest: bool = False
    changes: list[str] = field(default_factory=list[str])

    def change(self, problem: str, mend: str, instead: str) -> None:
        """Notes that `instead` is done. Raises MappingError with what would do, if nothing may be changed."""
        if not self.nearest:
            raise MappingError(f"{problem}; {mend}, or run the nearest mapping (--nearest): {instead}")
        if instead not in self.changes:
            self.changes.append(instead)


@dataclass(frozen=True)
class CoreNest:
    """The loops of a core, innermost first: `inner` of them lie in each of its GEMMs. `at_once`: how much of each
    dimension a GEMM computes; `inside`: how many loops run while a tile of an operand stays in the core; `cores`: parts
    of dimensions that cores divide among themselves."""

    loops: tuple[Factor, ...]
    inner: int
    at_once: dict[Dimension, int]
    inside: dict[Operand, int]
    cores: tuple[Factor, ...]

    def reach(self, dimension: Dimension, loops: int | None = None) -> int:
        """How much of a dimension the innermost `loops` loops (None: all) cover."""
        inside = self.loops[self.inner : loops]
        return self.at_once[dimension] * prod(f.size for f in inside if f.dimension is dimension)


def core_nest(mapping: LayerMapping, chip: ChipConfig, leeway: Leeway) -> CoreNest:
    """What the cores of a chip do. Raises MappingError, in one line that says what would do."""
    _check_array(mapping, chip, leeway)
    cores, turned = _cores(mapping, chip, leeway)
    _check_levels(mapping, leeway)
    inside = {operand: mapping.inside(operand, MemoryPlace.PE, MemoryPlace.CORE) for operand in Operand}
    loops = mapping.loops
    _check_kernel(loops, inside, leeway)
    _check_sums(loops, inside, leeway)
    inner = min(inside[Operand.INPUT], inside[Operand.WEIGHT])
    together = (*mapping.array, *turned, *loops[:inner])
    at_once = {dimension: prod(f.size for f in together if f.dimension is dimension) for dimension in Dimension}
    shared = {each.dimension for each in cores}  # a core's part begins with a whole tile
    for dimension, grain, what in (
        (Dimension.K, chip.cols, f"an output channel for each of the {chip.cols} columns of the array"),
        (Dimension.C, chip.lanes, f"a word has {chip.lanes} input channels"),
    ):
        cut = dimension in shared or at_once[dimension] < mapping.sizes.get(dimension, 1)
        if at_once[dimension] % grain and cut:
            rounded = ceil(at_once[dimension] / grain) * grain
            leeway.change(
                f"a core's tile has {at_once[dimension]} of {dimension}: {what}",
                f"let {rounded} of {dimension} lie in the core",
                f"tiles of {rounded} of {dimension}",
            )
            at_once[dimension] = rounded
    return CoreNest(loops, inner, at_once, inside, cores)


def _check_array(mapping: LayerMapping, chip: ChipConfig, leeway: Leeway) -> None:
    """Whether the array can unroll what the mapping unrolls. In the nearest mapping it computes the same tile in
    turns."""
    rows, columns = (
        prod(f.size for f in mapping.array if f.dimension in group) for group in (PIXELS, frozenset({Dimension.K}))
    )
    summed = [f for f in mapping.array if f.dimension in REDUCTIONS and f.size > 1]
    if summed:
        leeway.change(
            f"{listing(summed)} is unrolled over the array, whose processing elements sum by themselves",
            "unroll pixels (OX, OY, B) over its rows and K over its columns",
            f"{listing(summed)} summed in turn",
        )
    for what, unrolled, have in (("pixels", rows, chip.rows), ("output channels", columns, chip.cols)):
        if unrolled > have:
            leeway.change(
                f"{unrolled} {what} are unrolled over the array of {chip.name}, which has {chip.rows} rows (pixels) "
                f"and {chip.cols} columns (output channels)",
                f"unroll at most {have}",
                f"{unrolled} {what} in {ceil(unrolled / have)} turns",
            )


def _cores(mapping: LayerMapping, chip: ChipConfig, leeway: Leeway) -> tuple[tuple[Factor, ...], tuple[Factor, ...]]:
    """What cores divide among themselves, a factor for each dimension; and what is unrolled over cores in the mapping,
    but computed in turn by each."""
    sizes = {d: prod(f.size for f in mapping.cores if f.dimension is d) for d in Dimension}
    cores = tuple(Factor(dimension, size) for dimension, size in sizes.items() if size > 1)
    turned = tuple(f for f in cores if f.dimension in REDUCTIONS)
    if turned:
        leeway.change(
            f"{listing(turned)} is unrolled over cores, which cannot add each other's sums",
            "unroll pixels or K over cores",
            f"{listing(turned)} summed in turn",
        )
    parts = tuple(f for f in cores if f not in turned)
    if (count := prod(f.size for f in parts)) > len(chip.cores):
        leeway.change(
            f"{count} cores are used ({listing(parts)}), {chip.name} has {len(chip.cores)}",
            "unroll less over cores, or take a chip with more (`meshloom chips`)",
            f"{listing(parts)} in turn on one core",
        )
        return (), cores
    return parts, turned


def _check_levels(mapping: LayerMapping, leeway: Leeway) -> None:
    """Whether there is a place on the chip for every level that holds tiles."""
    for operand in Operand:
        for level in mapping.levels[operand]:
            if level.place is MemoryPlace.SHARED and any(f.size > 1 for f in level.loops):
                leeway.change(
                    f"{level.memory} holds tiles of {operand} between cores and DRAM, where the lowering has nothing",
                    "take a hierarchy of PEs, core and DRAM",
                    f"tiles of {operand} come from DRAM, not from {level.memory}",
                )


def _check_kernel(loops: Sequence[Factor], inside: dict[Operand, int], leeway: Leeway) -> None:
    """Whether inputs come as often as the mapping says: a GEMM finds those of its own part of the kernel in A."""
    between = loops[inside[Operand.WEIGHT] : inside[Operand.INPUT]]
    if kernel := [f for f in between if f.dimension in (Dimension.FX, Dimension.FY)]:
        leeway.change(
            f"inputs stay in the core for {listing(kernel)}, weights do not: A has those of one part of the kernel",
            "keep FX and FY in the core for both, or for neither",
            f"inputs are loaded for each of {listing(kernel)}",
        )


def _check_sums(loops: Sequence[Factor], inside: dict[Operand, int], leeway: Leeway) -> None:
    """Whether partial sums stay in the core until they are complete. Complete results may leave it at any time."""
    others = False
    for loop in loops[inside[Operand.OUTPUT] :]:
        if loop.dimension not in REDUCTIONS:
            others = True
        elif others:
            leeway.change(
                f"partial sums go to DRAM and come back: the loop {loop} lies outside other loops of O that do",
                "keep the sums of a tile in the core until they are complete (C inside, or K and pixels outside)",
                "sums stay in ACC",
            )
