"""The mapping of a layer: which loops run while a tile of an operand stays where, and what is unrolled over what.

It is what ZigZag, Timeloop and their like search for. Every memory level of an operand has temporal loops: while these
run, its tile stays in that memory. The loops of all levels, from the innermost to DRAM's, are the same in the same
order for every operand; only where a level ends differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, prod


class MappingError(ValueError):
    """A mapping that contradicts itself, or that a chip cannot run; the message says what would do."""


class Dimension(StrEnum):
    """A dimension of a layer. A matrix product of M x K by K x N has M as OX, N as K and K as C."""

    B = "B"  #: images
    K = "K"  #: output channels
    C = "C"  #: input channels
    OY = "OY"  #: rows of output
    OX = "OX"  #: columns of output
    FY = "FY"  #: rows of the kernel
    FX = "FX"  #: columns of the kernel


class Operand(StrEnum):
    """What a layer reads and writes."""

    INPUT = "I"
    WEIGHT = "W"
    OUTPUT = "O"


#: The dimensions over which products are summed, and those of which an operand has another tile in each iteration.
REDUCTIONS = frozenset({Dimension.C, Dimension.FY, Dimension.FX})
PIXELS = frozenset({Dimension.B, Dimension.OY, Dimension.OX})
RELEVANT = {
    Operand.INPUT: PIXELS | REDUCTIONS,
    Operand.WEIGHT: REDUCTIONS | {Dimension.K},
    Operand.OUTPUT: PIXELS | {Dimension.K},
}


#: What tools that have other letters call a dimension.
_MEANINGS = {
    Dimension.K: "output channels; N of a product MxNxK",
    Dimension.C: "input channels; K of a product MxNxK",
    Dimension.OX: "columns; M of a product MxNxK",
}


class MemoryPlace(StrEnum):
    """Where a level of a tool's memory hierarchy is on a chip of ours."""

    PE = "PE"  #: registers of the processing elements
    CORE = "core"  #: A, B, or ACC and OUT
    SHARED = "shared"  #: a memory between cores and DRAM
    DRAM = "DRAM"


@dataclass(frozen=True)
class Factor:
    """A part of a dimension: a loop of `size` iterations, or as many units side by side."""

    dimension: Dimension
    size: int

    def __str__(self) -> str:
        return f"{self.dimension} {self.size}"


@dataclass(frozen=True)
class Level:
    """A memory, by the name that the tool has for it, and the loops that run while a tile stays in it, innermost
    first."""

    memory: str
    place: MemoryPlace
    loops: tuple[Factor, ...]


@dataclass(frozen=True)
class LayerMapping:
    """The mapping of one layer of `sizes` (a dimension that is not in it is 1).

    `levels`: of each operand, innermost first, the last one in DRAM. `array`: unrolled over processing elements;
    `cores`: over cores; `core_list`: their numbers (empty: the first ones); `tells_array`: whether `array` is all that
    the tool unrolls. Raises MappingError if the operands' loops differ, or do not multiply up to the layer.
    """

    sizes: Mapping[Dimension, int]
    levels: Mapping[Operand, Sequence[Level]]
    array: Sequence[Factor] = ()
    cores: Sequence[Factor] = ()
    core_list: Sequence[int] = ()
    tells_array: bool = True
    loops: tuple[Factor, ...] = field(init=False)

    def __post_init__(self) -> None:
        orders = {operand: _all_loops(self.levels[operand]) for operand in Operand}
        first, *others = orders.items()
        for operand, loops in others:
            if loops != first[1]:
                raise MappingError(
                    f"the loops of {operand} are {listing(loops)}, those of {first[0]} {listing(first[1])}: all "
                    "operands must have the same loops in the same order, cut into levels as each likes"
                )
        object.__setattr__(self, "loops", first[1])
        for dimension in Dimension:
            size, unrolled = self.sizes.get(dimension, 1), self._unrolled(dimension)
            need, have = ceil(size / unrolled), _product(first[1], dimension)
            if have != need:
                times = f" ({unrolled} at a time)" * (unrolled > 1)
                meaning = f" ({_MEANINGS[dimension]})" if dimension in _MEANINGS else ""
                raise MappingError(
                    f"the loops over {dimension}{meaning} make {have} iterations{times}, but {dimension} = {size} "
                    f"needs {need}: factors must multiply up to the layer"
                )

    def _unrolled(self, dimension: Dimension) -> int:
        return _product((*self.array, *self.cores), dimension)

    def inside(self, operand: Operand, *places: MemoryPlace) -> int:
        """How many of the innermost loops run while a tile of an operand stays in one of these places."""
        return len(_all_loops(level for level in self.levels[operand] if level.place in places))


def _all_loops(levels: Iterable[Level]) -> tuple[Factor, ...]:
    return tuple(factor for level in levels for factor in level.loops if factor.size > 1)


def _product(factors: Iterable[Factor], dimension: Dimension) -> int:
    return prod(factor.size for factor in factors if factor.dimension is dimension)


def listing(factors: Iterable[Factor]) -> str:
    """Factors in a text."""
    return ", ".join(map(str, factors)) or "none"
