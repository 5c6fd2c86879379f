"""Micro-ops: a network cut into tiles that each run on one core, as soon as their operands are there (Klotski,
Definition 1), what they hand to each other, and where and when they run.

Tensors are those of a network in stages (`workload.stages`): planes of words with one channel in each lane, rows and
columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from meshloom.hw.spec.isa import Unit

from ...workload.stages import Stages

#: First and end of a range.
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Region:
    """Part of a tensor: planes, rows and columns, each from the first to the one behind the last."""

    planes: Range
    rows: Range
    columns: Range

    @property
    def words(self) -> int:
        """Words of int8."""
        return (self.planes[1] - self.planes[0]) * (self.rows[1] - self.rows[0]) * (self.columns[1] - self.columns[0])

    def meet(self, other: Region) -> Region | None:
        """What both have in common; None if there is nothing."""
        planes, rows, columns = (
            (max(one[0], two[0]), min(one[1], two[1]))
            for one, two in ((self.planes, other.planes), (self.rows, other.rows), (self.columns, other.columns))
        )
        if planes[0] >= planes[1] or rows[0] >= rows[1] or columns[0] >= columns[1]:
            return None
        return Region(planes, rows, columns)


@dataclass(frozen=True, slots=True)
class MuOp:
    """One micro-op.

    `number`: its place in `MuGraph.ops`; producers come before consumers. `stage`: index of its stage. `kind`: which of
    the shapes of its stage (0..15). `result`: part of the tensor that the stage makes. `reads`: for each operand the
    tensor and the part of it that is read, with halo, without padding. `channels`: planes of the first operand that it
    multiplies, of a convolution that is split in input channels; all of them otherwise. `sums`: the micro-op whose
    partial sums it goes on with. `last`: it makes the result, not partial sums. `cycles`: of its unit, when operands
    are there. `constants`: words of weights and biases that it needs.
    """

    number: int
    stage: int
    kind: int
    unit: Unit
    result: Region
    reads: tuple[tuple[str, Region], ...]
    channels: Range
    sums: int | None
    last: bool
    cycles: int
    constants: int


@dataclass(frozen=True, slots=True)
class Edge:
    """What one micro-op hands to another: a part of a tensor (int8 words), or (`sums`) partial sums (words of int32,
    four of int8 each)."""

    producer: int
    consumer: int
    tensor: str
    region: Region
    sums: bool = False

    @property
    def words(self) -> int:
        """Words of P bytes."""
        return self.region.words * (4 if self.sums else 1)


@dataclass(frozen=True, eq=False)
class MuGraph:
    """A network in micro-ops. `edges`: in order of their consumers."""

    stages: Stages
    ops: tuple[MuOp, ...]
    edges: tuple[Edge, ...]

    @cached_property
    def before(self) -> tuple[tuple[Edge, ...], ...]:
        """For each micro-op, what it gets from others."""
        edges: list[list[Edge]] = [[] for _ in self.ops]
        for edge in self.edges:
            edges[edge.consumer].append(edge)
        return tuple(tuple(each) for each in edges)

    @cached_property
    def after(self) -> tuple[tuple[Edge, ...], ...]:
        """For each micro-op, what others get from it."""
        edges: list[list[Edge]] = [[] for _ in self.ops]
        for edge in self.edges:
            edges[edge.producer].append(edge)
        return tuple(tuple(each) for each in edges)


@dataclass(frozen=True)
class Orchestration:
    """Where and when micro-ops run. `cores`: of each, an index 0.. of a core; `starts`: its predicted first cycle;
    micro-ops of one core run in order of their starts. `makespan`: predicted cycles; `bound`: cycles below which no
    schedule of these micro-ops on so many cores can be, by proof. Raises ValueError if one contradicts the other."""

    cores: tuple[int, ...]
    starts: tuple[int, ...]
    makespan: int
    bound: int

    def __post_init__(self) -> None:
        if self.bound > self.makespan:
            raise ValueError(f"a plan takes {self.makespan:,} cycles, which a proof says to be {self.bound:,} at least")

    @property
    def gap(self) -> float:
        """How far the makespan can be above the best, as a share of the bound."""
        return self.makespan / self.bound - 1 if self.bound else 0.0
