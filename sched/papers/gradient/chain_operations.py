"""The operations of a chain of layers in training, one by one: what an instruction takes, on which core."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshloom.hw.spec.isa import Pair, Region, VectorOp, address

from ...ir import bodies
from ...ir.bodies import GemmFields, VecFields
from ...ir.schedule import Gemm, Move, Operation, Span, Vec
from ...mapping.memory.placement import Stored
from ...mapping.tiling.problem import MAX_IN_WIDTH, DoesNotFit
from ...mapping.tiling.tiles import Range
from ...schedulers.training.core import Room


@dataclass
class ChainCore:
    """The memories of a core. Where things lie: `dy` of each layer; pieces of it with pixels as lanes, `dyt`; Wᵀ, `wt`;
    tiles of `w` that an update will need, of `kept` words in all; X of what is masked, `signs`; sums of pieces of dW
    that are not complete. `zeros`: whether the first words of VEC are; `load`: how much it has to do."""

    tile: int
    a: Room
    b: Room
    acc: Room
    out: Room
    vec: Room
    dy: dict[int, int] = field(default_factory=dict[int, int])
    dyt: dict[tuple[int, Range], int] = field(default_factory=dict[tuple[int, Range], int])
    wt: dict[tuple[int, Range], int] = field(default_factory=dict[tuple[int, Range], int])
    sums: dict[tuple[int, Range, Range], int] = field(default_factory=dict[tuple[int, Range, Range], int])
    w: dict[tuple[int, Range, Range], int] = field(default_factory=dict[tuple[int, Range, Range], int])
    resident: int = 0
    signs: dict[tuple[int, Range], int] = field(default_factory=dict[tuple[int, Range], int])
    zeros: bool = False
    load: int = 0


class ChainOperations:
    """A list of `operations` that grows, of a chain by its `name`. Words to and from DRAM: `dram_words`. Raises
    DoesNotFit where an instruction cannot hold a number."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operations = list[Operation]()
        self.dram_words = 0

    def _check(self, what: str, value: int, most: int) -> None:
        if value > most:
            raise DoesNotFit(f"{self.name}: {value} {what}, an instruction holds at most {most}")

    def _gemm(self, core: ChainCore, label: str, fields: GemmFields) -> None:
        self.operations.append(Gemm(core=core.tile, fields=bodies.gemm(**fields), label=label))

    def _vector(self, core: ChainCore, label: str, op: VectorOp, fields: VecFields) -> None:
        self.operations.append(Vec(core=core.tile, fields=bodies.vec(**fields | {"op": op}), label=label))

    def _pair(self, core: ChainCore, label: str, what: Pair, x: int, y: int, dest: int, words: int) -> None:
        """A PAIR of x in A and y in OUT to VEC."""
        width = next(width for width in range(min(words, MAX_IN_WIDTH), 0, -1) if words % width == 0)
        self._vector(core, label, VectorOp.PAIR, {
            "x_base": x, "y_base": y, "dest_base": dest, "pair": what, "x_plane": words, "in_w": width, "out_w": width,
            "pixels": words,
        })  # fmt: skip

    def _load(self, label: str, core: ChainCore, stored: Stored, planes: Range, pixels: Range, place: int) -> None:
        for t in stored.transfers(planes, (*pixels, 1), (0, 1), core.tile, place):
            self.dram_words += t.words
            # issued by the DRAM tile, whose stream waits for nothing but room
            self.operations.append(t.load(t.dram.tile, label).operation())

    def _store(self, label: str, core: ChainCore, stored: Stored, planes: Range, pixels: Range, place: int) -> None:
        for t in stored.transfers(planes, (*pixels, 1), (0, 1), core.tile, place):
            self.dram_words += t.words
            self.operations.append(t.store(core.tile, label).operation())

    def _span(self, label: str, issuer: int, source: tuple[int, int], target: tuple[int, int], words: int) -> None:
        src = Span(tile=source[0], address=source[1], run=words, stride=words)
        dst = Span(tile=target[0], address=target[1], run=words, stride=words)
        self.operations.append(Move(issuer=issuer, src=src, dst=dst, words=words, label=label))

    def _move(  # from where, to where
        self,
        label: str,
        tile: int,
        region: Region,
        at: int,
        other: int,
        target: Region,
        to: int,
        words: int,
        runs: tuple[int, int] | None = None,
        into: tuple[int, int] | None = None,
    ) -> None:
        """A MOVE from a memory of a core. Runs: words of one, and from the start of one to that of the next."""

        def span(tile: int, place: int, runs: tuple[int, int] | None) -> Span:
            run, stride = runs or (words, words)
            return Span(tile=tile, address=place, run=min(run, words), stride=stride)

        src, dst = span(tile, address(region, at), runs), span(other, address(target, to), into)
        self.operations.append(Move(issuer=tile, src=src, dst=dst, words=words, label=label))
