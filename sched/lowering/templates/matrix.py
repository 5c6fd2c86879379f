"""A layer of the matrix unit on a group of cores: tiles, the order of visits, partial sums that go from core to core.

Sums that several cores share (the scheme cuts input channels) go round a ring: their output tiles are dealt out into as
many shares as the ring has cores, and in round s core i adds its own products to the sums of share i - s, which its
neighbour has sent to its ACC. So all cores compute in all rounds, addition costs nothing (it is the GEMM's addend), and
the last core of each share's way round requantises it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import cast

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Addend, Region, VectorOp, address

from ...ir import bodies
from ...ir.schedule import Gemm, Move, Operation, Vec
from ...mapping.memory.placement import MAX_WORDS, Transfer
from ...mapping.nodes import Run
from ...mapping.tiling.problem import FLAT_WIDTH, MAX_IN_WIDTH, DoesNotFit
from ...mapping.tiling.tiles import Range, even
from .memory import Striped, turned
from .plans import Sizes, TemplateTiling, Tile, row_tiles, rows_read, sizes_of
from .schemes import LayerShape, Scheme, SubTile, split
from .steps import CoreVisit, Listing, OperationsAt, Ring, lay_out, push, window_of


@dataclass(frozen=True)
class MatrixTask:
    """A layer with the places of its tensors. `r`: the other operand of an addition behind it; `behind`: `relu` and
    `clamp` of that; `fixed`: `scale`, `relu` and `clamp` of the layer itself."""

    shape: LayerShape
    x: Striped
    w: Striped
    bias: Striped
    y: Striped
    r: Striped | None
    fixed: dict[str, int]
    epilogue: dict[str, int]


@dataclass(frozen=True)
class Visit:
    """One output tile of a core: (image, rows) x blocks. `position`: among all visits of the ring; `first`, `last`: of
    the sums' way from core to core."""

    position: int
    tile: Tile
    n: Range
    first: bool
    last: bool


def visits_of(tiles: Sequence[tuple[Tile, Range]], link: int, links: int, slots: int) -> Iterator[Visit]:
    """The visits of a core; `slots`: output tiles whose sums it has room for."""
    if links == 1:
        for position, (tile, n) in enumerate(tiles):
            yield Visit(position, tile, n, True, True)
        return
    each = max(1, min(ceil(len(tiles) / links), slots - 2))
    for phase, start in enumerate(range(0, len(tiles), each * links)):
        shares = [tiles[start : start + each * links][share::links] for share in range(links)]
        for turn in range(links):
            for index, (tile, n) in enumerate(shares[(link - turn) % links]):
                yield Visit((phase * links + turn) * each + index, tile, n, turn == 0, turn == links - 1)


def emit(
    task: MatrixTask, chip: ChipConfig, scheme: Scheme, plan: TemplateTiling, cores: Sequence[int]
) -> list[Operation]:
    """All operations of a layer on these cores, in order. Raises DoesNotFit when the plan does not fit."""
    parts = split(task.shape, scheme)
    sizes = sizes_of(task.shape, chip, parts, plan, scheme.input)
    if sizes is None:
        raise DoesNotFit(f"scheme {scheme}: a tile of {plan} does not fit the memories of a {chip.name} core")
    listing = Listing()
    for index, part in enumerate(parts):
        ring = index - part.link
        following = cores[ring + (part.link + 1) % scheme.input]
        core = _Core(task, chip, plan, sizes, part, scheme.input, (cores[index], following), index)
        lay_out(cores[index], core.steps(), core.rings(), listing, chip.drams, index)
    return listing.operations()


class _Core:
    """One core of a group. `tiles`: it and the one that it sends partial sums to."""

    def __init__(
        self, task: MatrixTask, chip: ChipConfig, plan: TemplateTiling, sizes: Sizes, part: SubTile, links: int,
        tiles: tuple[int, int], index: int,
    ) -> None:  # fmt: skip
        self.task, self.chip, self.plan, self.sizes, self.part = task, chip, plan, sizes, part
        self.links, self.index = links, index
        self.core, self.following = tiles
        self.problem = task.shape.problem
        self.ks = turned(even(*part.k, plan.pieces), index * max(1, plan.pieces // len(chip.drams)))
        self.results = 0

    def rings(self) -> dict[str, Ring]:
        """The operands of the GEMMs, and of the addition behind them."""
        sizes, core = self.sizes, self.chip.core
        rings = {
            "bias": Ring(Region.ACC, 0, 4 * sizes.bias, 1, self._bias),
            "w": Ring(Region.B, 0, sizes.b, sizes.b_slots, self._weights),
            "x": Ring(Region.MAIN, 0, sizes.a, sizes.a_slots, self._inputs),
        }
        if self.task.r is not None:
            base = core.a_words - sizes.r_slots * sizes.out
            rings["r"] = Ring(Region.MAIN, base, sizes.out, sizes.r_slots, self._residual)
        return rings

    # -- tiles that come ------------------------------------------------------------------------------------------

    def _bias(self, _: Hashable, at: int) -> list[Transfer]:
        return list(self.task.bias.transfers((0, 1), (*self.part.n, 1), self.core, at))

    def _weights(self, key: Hashable, at: int) -> list[Transfer]:
        n, k = cast("tuple[Range, Range]", key)
        taps = self.problem.taps
        transfers = self.task.w.transfers(n, (k[0] * taps, k[1] * taps, 1), self.core, at)
        return list(transfers)

    def _stacked(self, tile: Tile, rows: Range, per_image: int) -> Range:
        """Rows of one image as rows of the stacked map."""
        return (rows[0] + tile[0] * per_image, rows[1] + tile[0] * per_image)

    def _inputs(self, key: Hashable, at: int) -> list[Transfer]:
        tile, k = cast("tuple[Tile, Range]", key)
        problem, (rows, _) = self.problem, rows_read(self.task.shape, tile)
        step = problem.row_step
        stored = (rows[0] * step, (rows[1] - 1) * step + 1) if not problem.flat else rows
        first, end = self._stacked(tile, stored, problem.stored_rows)
        return list(self.task.x.transfers(k, (first, end, step), self.core, at))

    def _residual(self, key: Hashable, at: int) -> list[Transfer]:
        tile, n = cast("tuple[Tile, Range]", key)
        assert self.task.r is not None
        rows = self._stacked(tile, (tile[1], tile[2]), self.problem.out_rows)
        return list(self.task.r.transfers(n, (*rows, 1), self.core, at))

    # -- steps ----------------------------------------------------------------------------------------------------

    def steps(self) -> list[CoreVisit]:
        """Its GEMMs: for each visit one for each piece of K."""
        tiles = row_tiles(self.task.shape, self.part, self.plan.rows)
        count = ceil((self.part.n[1] - self.part.n[0]) / self.plan.blocks)
        ns = turned(even(*self.part.n, count), 0 if self.links > 1 else self.index // len(self.ks))
        nest = [(m, n) for m in tiles for n in ns] if self.plan.rows_outer else [(m, n) for n in ns for m in tiles]
        steps: list[CoreVisit] = []
        for visit in visits_of(nest, self.part.link, self.links, self.sizes.sum_slots):
            result = -1
            if visit.last:
                result, self.results = self.results, self.results + 1
            for piece, k in enumerate(self.ks):
                uses: dict[str, Hashable] = {"w": (visit.n, k), "x": (visit.tile, k)}
                if visit.first and not piece:
                    uses["bias"] = self.part.n
                if visit.last and piece == len(self.ks) - 1 and self.task.r is not None:
                    uses["r"] = (visit.tile, visit.n)
                pixels = (visit.tile[2] - visit.tile[1]) * self.problem.out_w
                folds = (visit.n[1] - visit.n[0]) * ceil(pixels / self.problem.rows)
                cycles = folds * (k[1] - k[0]) * self.problem.taps * self.problem.lanes
                position = visit.position * len(self.ks) + piece
                steps.append(CoreVisit(position, uses, cycles, self._make(visit, piece, k, result)))
        return steps

    def _make(self, visit: Visit, piece: int, k: Range, result: int) -> OperationsAt:
        sizes, problem = self.sizes, self.problem
        pixels = (visit.tile[2] - visit.tile[1]) * problem.out_w
        sums = sizes.bias + visit.position % sizes.sum_slots * sizes.sums
        begins, ends = visit.first and not piece, piece == len(self.ks) - 1
        label = f"i{visit.tile[0]} y{visit.tile[1]} n{visit.n[0]} k{k[0]}"

        def make(at: dict[str, int]) -> tuple[list[Operation], list[Operation]]:
            plane, extent = window_of(self.task.shape, visit.tile)
            final = visit.last and ends
            base = result % sizes.out_slots * sizes.out
            body = bodies.gemm(
                **extent,
                a_base=at["x"],
                a_plane=plane,
                k_blocks=k[1] - k[0],
                b_base=at["w"],
                n_blocks=visit.n[1] - visit.n[0],
                addend=Addend.BIAS if begins else Addend.PARTIAL,
                addend_base=visit.n[0] - self.part.n[0] if begins else sums,
                to_acc=int(not final),
                dest_base=base if final else sums,
            )
            work: list[Operation] = [Gemm(core=self.core, fields=body | self.task.fixed, label=label)]
            if not final:
                return work, list(self._send(visit, sums, pixels, label)) if ends else []
            region = Region.OUT
            if self.task.r is not None:
                body = self._addition(visit, at["r"], base, pixels)
                work.append(Vec(core=self.core, fields=body, label=f"add {label}"))
                region = Region.VEC
            rows = self._stacked(visit.tile, (visit.tile[1], visit.tile[2]), problem.out_rows)
            stores = self.task.y.transfers(visit.n, (*rows, 1), self.core, address(region, base))
            return work, [push(self.core, t, f"y {label}") for t in turned(list(stores), self.index)]

        return make

    def _addition(self, visit: Visit, r_at: int, base: int, pixels: int) -> dict[str, int]:
        """The body of the VEC that adds the other operand."""
        width = pixels if pixels <= MAX_IN_WIDTH else FLAT_WIDTH
        body = bodies.vec(
            op=VectorOp.ADD, x_base=r_at, x_plane=pixels, in_w=width, blocks=visit.n[1] - visit.n[0], out_w=width,
            pixels=pixels, y_base=base, dest_base=base,
        )  # fmt: skip
        return body | self.task.epilogue

    def _send(self, visit: Visit, sums: int, pixels: int, label: str) -> Iterator[Move]:
        """Partial sums on their way to the next core, which visits the tile one round later."""
        if visit.last:
            return
        each = self._each()
        there = self.sizes.bias + (visit.position + each) % self.sizes.sum_slots * self.sizes.sums
        words = 4 * pixels * (visit.n[1] - visit.n[0])
        for first in range(0, words, MAX_WORDS & ~3):
            size = min(MAX_WORDS & ~3, words - first)
            here = Run(self.core, address(Region.ACC, 4 * sums + first), size, size)
            next_to = Run(self.following, address(Region.ACC, 4 * there + first), size, size)
            yield Move(issuer=self.core, src=here.span(), dst=next_to.span(), words=size, label=f"sums {label}")

    def _each(self) -> int:
        """Visits of one round."""
        tiles = len(row_tiles(self.task.shape, self.part, self.plan.rows))
        tiles *= ceil((self.part.n[1] - self.part.n[0]) / self.plan.blocks)
        return max(1, min(ceil(tiles / self.links), self.sizes.sum_slots - 2))
