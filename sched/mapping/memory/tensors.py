"""The four tensors of a layer in the DRAM tiles, and the chunks in which their tiles travel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Piece, Tensor
from ...workload.layers import ConvShape
from ...workload.layout import ActivationLayout, BiasLayout, PackedWindow, WeightLayout
from ..tiling.plan import AKey, KernelPiece, box, windows
from ..tiling.problem import Problem
from ..tiling.tiles import Candidate, MTile, Part, Range, even, k_tiles, m_tiles
from .placement import Allocator, Dram, Stored, Transfer

#: What identifies the contents of a chunk: tensor, planes, rows (first, end, step) and columns.
Box = tuple[str, Range, tuple[int, int, int], Range]


@dataclass(frozen=True)
class Chunk:
    """Part of a tile that arrives by itself: a box of planes x rows (first, end, step) x columns of a stored tensor.

    `offset`, `plane`: where it lies in the tile's slot, and words from one of its planes there to the next; `bounds`:
    what it covers, in the terms in which steps ask for it; `late`: steps after the tile's first use that need it.
    """

    tensor: str
    planes: Range
    rows: tuple[int, int, int]
    columns: Range
    offset: int
    plane: int
    bounds: tuple[Range, ...]
    late: int
    label: str

    @property
    def box(self) -> Box:
        """What identifies its contents."""
        return self.tensor, self.planes, self.rows, self.columns

    @property
    def plane_words(self) -> int:
        """Words of each of its planes."""
        first, end, step = self.rows
        return -(-(end - first) // step) * (self.columns[1] - self.columns[0])

    @property
    def words(self) -> int:
        return (self.planes[1] - self.planes[0]) * self.plane_words

    def split(self, count: int) -> list[Chunk]:
        """About equal parts, `count` at most: by planes if they are enough and follow each other, otherwise by rows."""
        if self.planes[1] - self.planes[0] >= count and self.plane == self.plane_words:
            return [
                replace(self, planes=some, offset=self.offset + (some[0] - self.planes[0]) * self.plane)
                for some in even(*self.planes, count)
            ]
        first, end, step = self.rows
        rows = -(-(end - first) // step)
        wide = self.columns[1] - self.columns[0]
        return [
            replace(
                self,
                rows=(first + low * step, first + (high - 1) * step + 1, step),
                offset=self.offset + low * wide,
            )
            for low, high in even(0, rows, min(count, rows))
        ]


class Tensors:
    """x, w, bias and y in the DRAM tiles, spread so that the parts load all channels alike.

    `work`: all parts; `ramp`: windows at which pieces of a first weight tile begin and end. Raises DoesNotFit when a
    DRAM tile is too small.
    """

    #: Name of the result in the boxes of a network's operations.
    result = ""
    #: Words of ACC for each block of output channels: biases and, by channel, multipliers.
    bias_rows = 1

    def __init__(
        self, problem: Problem, chip: ChipConfig, candidate: Candidate, work: list[Part], ramp: list[int]
    ) -> None:
        dram = Dram(chip)
        self._share(problem, chip, candidate, work)
        self.y = self._place_y(dram, candidate.parts_n)
        self._stored: dict[str, Stored] = {"x": self._place_x(dram, candidate, work)}
        self._place_constants(dram, candidate, work, ramp)

    def _share(self, problem: Problem, chip: ChipConfig, candidate: Candidate, work: list[Part]) -> None:
        self.problem = problem
        self._homes = chip.drams
        n_parts = candidate.parts_n
        # Rows and output blocks where parts begin, and whose they are.
        self._row_cuts = sorted({row for part in work for _, r0, r1 in part.segments for row in (r0, r1)})
        self._owner_m = {
            (image, row): part.index // n_parts
            for part in work
            for image, r0, r1 in part.segments
            for row in self._row_cuts
            if r0 <= row < r1
        }
        self._owner_n = {n: part.index % n_parts for part in work[:n_parts] for n in range(part.n0, part.n1)}

    def _place_constants(self, dram: Allocator, candidate: Candidate, work: list[Part], ramp: list[int]) -> None:
        self._stored["w"] = self._place_w(dram, candidate, ramp)
        self._stored["bias"] = self._place_bias(dram, candidate, work)

    def _place_bias(self, dram: Allocator, candidate: Candidate, work: list[Part]) -> Stored:
        """By the output blocks of the parts."""
        cuts = [part.n0 for part in work[: candidate.parts_n]]
        return Stored(
            dram, 1, self.problem.n_blocks, 4 * self.bias_rows, cuts, lambda _, cut: self._home(cut)
        )  # fmt: skip

    def _home(self, index: int) -> int:
        return self._homes[index % len(self._homes)]

    def _place_y(self, dram: Dram, n_parts: int) -> Stored:
        """Each part's share in a channel of its own, as far as there are enough."""

        def home(plane: int, cut: int) -> int:
            image, n = divmod(plane, self.problem.n_blocks)
            return self._home(self._owner_m[image, self._row_cuts[cut]] * n_parts + self._owner_n[n])

        p = self.problem
        return Stored(dram, p.images * p.n_blocks, p.out_rows, p.out_w, self._row_cuts, home)

    def _place_x(self, dram: Dram, candidate: Candidate, work: list[Part]) -> Stored:
        """By the rows of the parts, or block by block, or (one block) each tile cut among the channels."""
        p, count = self.problem, len(self._homes)
        if candidate.parts_m % count == 0:
            begins: dict[int, int] = {}  # first input row -> last output row cut that begins there
            for row in self._row_cuts[:-1]:
                begins[p.input_rows(row, row + 1)[0] * p.row_step if row else 0] = row
            cuts = sorted(begins)

            def home(plane: int, cut: int) -> int:
                return self._home(self._owner_m[plane // (p.k_blocks * p.depth), begins[cuts[cut]]])
        elif p.k_blocks * p.depth > 1 or count == 1:
            cuts = [0]

            def home(plane: int, cut: int) -> int:
                return self._home(plane)
        else:
            rows = {box(p, m)[0] for part in work for m in m_tiles(p, part, candidate)}
            cuts = sorted({low * p.row_step for r in rows for low, _ in even(*r, count)})

            def home(plane: int, cut: int) -> int:
                return self._home(cut)

        return Stored(dram, p.images * p.k_blocks * p.depth, p.stored_rows, p.in_w, cuts, home)

    def _place_w(self, dram: Allocator, candidate: Candidate, ramp: list[int]) -> Stored:
        """By the output blocks of the parts, or each tile (and each piece of the first) cut among the channels."""
        p, count = self.problem, len(self._homes)
        all_windows = p.k_blocks * p.taps
        cuts = [0]
        if candidate.parts_n % count:
            edges = sorted({0, all_windows, *ramp, *(k0 * p.taps for k0, _ in k_tiles(p, candidate))})
            cuts = sorted({cut for low, high in pairwise(edges) for cut, _ in even(low, high, count)})

        def home(plane: int, cut: int) -> int:
            return self._home(cut if candidate.parts_n % count else self._owner_n[plane])

        return Stored(dram, p.n_blocks, all_windows, p.tap_words, cuts, home)

    def tensors(self, shape: ConvShape, chip: ChipConfig) -> tuple[Tensor, ...]:
        """The schedule's tensors."""
        pieces = {name: self._stored[name].pieces() for name in ("x", "w", "bias")}
        return tensors_of(shape, chip, self.problem.packed, pieces | {"y": self.y.pieces()})

    def transfers(self, chunk: Chunk, tile: int, at: int, plane: int = 0) -> list[Transfer]:
        """A chunk to `at` of a tile, `plane` words from plane to plane there (0: side by side)."""
        return list(self._stored[chunk.tensor].transfers(chunk.planes, chunk.rows, chunk.columns, tile, at, plane))

    def input_chunk(self, key: AKey, blocks: Range, rows: Range, late: int) -> Chunk:
        """Channel blocks and rows of an input tile."""
        ((i0, i1), columns), image, k = key
        p, wide = self.problem, columns[1] - columns[0]
        plane, first = (i1 - i0) * wide, image * p.k_blocks * p.depth
        return Chunk(
            tensor="x",
            planes=(first + blocks[0] * p.depth, first + blocks[1] * p.depth),
            rows=(rows[0] * p.row_step, (rows[1] - 1) * p.row_step + 1, p.row_step),
            columns=columns,
            offset=(blocks[0] - k[0]) * p.depth * plane + (rows[0] - i0) * wide,
            plane=plane,
            bounds=(blocks, rows),
            late=late,
            label=f"x i{image} y{rows[0]} x{columns[0]} k{blocks[0]}",
        )

    def result_chunk(self, m: MTile, n: Range) -> Chunk:
        """Output tile of the other operand of an addition, which has the result's shape."""
        first = m.image * self.problem.n_blocks
        return Chunk(
            tensor="r",
            planes=(first + n[0], first + n[1]),
            rows=(m.r0, m.r1, 1),
            columns=(m.c0, m.c1),
            offset=0,
            plane=m.pixels,
            bounds=(),
            late=0,
            label=f"r i{m.image} y{m.r0} x{m.c0} n{n[0]}",
        )

    def weight_chunk(self, key: tuple[Range, Range], n: Range, some: Range, late: int) -> Chunk:
        """Windows `some` of output blocks `n` of a weight tile, key = (n range, k range)."""
        tile_n, k = key
        taps, wide = self.problem.taps, self.problem.tap_words
        plane = (k[1] - k[0]) * taps * wide
        return Chunk(
            tensor="w",
            planes=n,
            rows=(*some, 1),
            columns=(0, wide),
            offset=(n[0] - tile_n[0]) * plane + (some[0] - k[0] * taps) * wide,
            plane=plane,
            bounds=(n, some),
            late=late,
            label=f"w n{n[0]} k{some[0] // taps}",
        )

    def bias_chunk(self, n: Range) -> Chunk:
        """Bias words of output blocks `n`."""
        wide = 4 * self.bias_rows
        return Chunk("bias", (0, 1), (*n, 1), (0, wide), 0, wide * (n[1] - n[0]), (), 0, f"bias n{n[0]}")


def ramp_edges(problem: Problem, pieces: Iterable[KernelPiece]) -> list[int]:
    """Windows at which the pieces of a first weight tile begin and end."""
    return [edge for piece in pieces for edge in windows(problem, piece)]


def tensors_of(
    shape: ConvShape, chip: ChipConfig, packed: bool, pieces: Mapping[str, tuple[Piece, ...]]
) -> tuple[Tensor, ...]:
    """The tensors x, w, bias and y of a layer's schedule. `packed`: the host packs windows of x; `pieces`: where each
    of them lies, by name."""
    window = PackedWindow(shape.kernel_w, shape.stride_w, shape.pad_left, shape.pad_right) if packed else None
    x = ActivationLayout(
        batch=shape.batch, channels=shape.in_channels, height=shape.in_h, width=shape.in_w, block=chip.lanes,
        packed_kw=window,
    )  # fmt: skip
    y = ActivationLayout(
        batch=shape.batch, channels=shape.out_channels, height=shape.out_h, width=shape.out_w, block=chip.cols
    )
    w = WeightLayout(
        out_channels=shape.out_channels, in_channels=shape.in_channels, kernel_h=shape.kernel_h,
        kernel_w=shape.kernel_w, cols=chip.cols, block=chip.lanes, packed_kw=packed,
    )  # fmt: skip
    return (
        Tensor(name="x", role="input", layout=x, pieces=pieces["x"]),
        Tensor(name="w", role="constant", layout=w, pieces=pieces["w"]),
        Tensor(
            name="bias",
            role="constant",
            layout=BiasLayout(out_channels=shape.out_channels, cols=chip.cols),
            pieces=pieces["bias"],
        ),
        Tensor(name="y", role="output", layout=y, pieces=pieces["y"]),
    )
