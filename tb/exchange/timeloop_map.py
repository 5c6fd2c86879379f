"""A schedule of ours as a map of Timeloop: the loops of its cores, where they are a plain nest.

The map has the form that Timeloop reads: loops over tiles and over cores at DRAM, a GEMM's own and the array at Core. A
GEMM that is cut more finely at the edges of the nest counts as a whole one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.workload.layers import ConvShape

from ..results.nests import LayerTiles, Nest


class MapError(ValueError):
    """A schedule that is no plain nest; the message says why."""


@dataclass(frozen=True)
class _Letters:
    """The letters of Timeloop for pixels (columns, rows), output channels and sums (channels, kernel columns, rows)."""

    columns: str
    rows: str
    outputs: str
    channels: str
    kernel: tuple[str, str]


_PRODUCT = _Letters("M", "", "N", "K", ("", ""))
_CONVOLUTION = _Letters("P", "Q", "K", "C", ("R", "S"))


def timeloop_map(shape: ConvShape, tiles: LayerTiles, chip: ChipConfig, scheduler: str) -> str:
    """The map of a layer's schedule, in YAML. Raises MapError."""
    nest = tiles.nest
    if nest is None or tiles.vectors:
        raise MapError(f"{shape.name}: has no GEMMs alone, so there is no nest")
    if staged := [f"{source} to {target}" for source, target in tiles.flows if "SPM" in (source, target)]:
        raise MapError(f"{shape.name}: words go from {staged[0]}, a memory that is not part of a core's nest")
    _check(shape, nest)
    is_product = shape.out_h == 1 and shape.kernel_h == shape.kernel_w == 1 and shape.batch == 1
    letters = _PRODUCT if is_product else _CONVOLUTION
    core = _core_factors(shape, nest, chip, letters)
    names = {"p": letters.rows or letters.columns, "n": letters.outputs, "k": letters.channels}
    outer = [(names[loop.dimensions[0]], loop.count) for loop in reversed(nest.loops)]
    spread = [(names[name], count) for name, count in nest.parts.items() if count > 1]
    array = [(letters.columns, chip.rows), (letters.outputs, chip.cols)]
    _check_sizes(shape, letters, [*outer, *spread, *core, *array])
    every = letters.columns, letters.rows, letters.outputs, letters.channels, *letters.kernel
    lines = [f"# {shape.name} on {chip.name} by {scheduler}", "mapping:"]
    entries = [("DRAM", "temporal", outer), ("DRAM", "spatial", spread), ("Core", "temporal", core)]
    for target, kind, factors in [*entries, ("Core", "spatial", array)]:
        lines += _entry(target, kind, factors, [letter for letter in every if letter])
    return "\n".join(lines) + "\n"


def _check(shape: ConvShape, nest: Nest) -> None:
    """Raises MapError for a nest that Timeloop has no words for."""
    for loop in nest.loops:
        if len(loop.dimensions) != 1:
            what = "over several dimensions at once" if loop.dimensions else "in no order"
            raise MapError(f"{shape.name}: tiles go {what}, so it is no plain nest")
        if any(load.once for load in loop.loads):
            raise MapError(f"{shape.name}: tiles stay for an outer loop as well, so it is no plain nest")


def _core_factors(shape: ConvShape, nest: Nest, chip: ChipConfig, letters: _Letters) -> list[tuple[str, int]]:
    """The loops of one GEMM, innermost first: sums, then pixels, then channels. Raises MapError."""
    one, taps = nest.gemm, shape.kernel_h * shape.kernel_w
    columns = shape.out_w if letters.rows else one.pixels
    if one.depth % taps:
        raise MapError(f"{shape.name}: a GEMM sums over a part of the kernel alone, so it is no plain nest")
    if one.pixels % columns or columns % chip.rows or one.channels % chip.cols:
        raise MapError(
            f"{shape.name}: a GEMM of {one.pixels} pixels by {one.channels} channels does not fill {chip.rows}x"
            f"{chip.cols} PEs row by row, and Timeloop's factors have no remainder here"
        )
    factors = [(letters.channels, one.depth // taps), (letters.kernel[0], shape.kernel_w)]
    factors += [(letters.kernel[1], shape.kernel_h), (letters.columns, columns // chip.rows)]
    factors += [(letters.rows, one.pixels // columns), (letters.outputs, one.channels // chip.cols)]
    return [(letter, size) for letter, size in factors if letter]


def _check_sizes(shape: ConvShape, letters: _Letters, factors: Sequence[tuple[str, int]]) -> None:
    """Raises MapError if the factors do not multiply up to the layer: other GEMMs follow other loops."""
    sizes: Mapping[str, int] = {
        letters.columns: shape.out_w,
        letters.outputs: shape.out_channels,
        letters.channels: shape.in_channels,
    }
    sizes = {**sizes, letters.rows: shape.out_h, letters.kernel[0]: shape.kernel_w, letters.kernel[1]: shape.kernel_h}
    for letter, size in sizes.items():
        own = prod(count for name, count in factors if name == letter)
        if letter and own != size:
            raise MapError(
                f"{shape.name}: the loops of its cores make {letter} = {own}, the layer has {size}, so not all of it "
                "follows one plain nest"
            )
    if shape.batch != 1:
        raise MapError(f"{shape.name}: has a batch of {shape.batch}, whose images are mixed in its tiles")


def _entry(target: str, kind: str, factors: Sequence[tuple[str, int]], every: Sequence[str]) -> list[str]:
    """An entry with a factor for each letter, and the order of those that loop first."""
    sizes: dict[str, int] = {}
    for letter, count in factors:
        if letter in sizes and sizes[letter] > 1 and count > 1:
            raise MapError(f"{target}: two loops go over {letter}, so it is no plain nest")
        sizes[letter] = max(count, sizes.get(letter, 1))
    order = [*sizes, *(letter for letter in every if letter not in sizes)]
    return [
        f"- target: {target}",
        f"  type: {kind}",
        f"  factors: {' '.join(f'{letter}{sizes.get(letter, 1)}' for letter in order)}",
        f"  permutation: {''.join(order)}",
    ]
