"""How a candidate cuts a layer: parts for the cores, tiles of a part, and the order in which a core visits them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple, TypeVar

from meshloom.hw.spec.config import ChipConfig

from .problem import Problem

T = TypeVar("T")

#: What stays put in the inner loops, by loop nest (outermost first; M, N are groups of tiles whose sums fit ACC):
#: input: N m k n; weight: M n k m; output: m n k; output_n: n m k.
Order = Literal["input", "weight", "output", "output_n"]
ORDERS: tuple[Order, ...] = ("input", "weight", "output", "output_n")
#: A first or last tile need not be cut finer than this many cycles of work.
SMALL_CYCLES = 96


@dataclass(frozen=True)
class Candidate:
    """One static schedule of the space.

    `parts_m` x `parts_n` cores share the output rows (of all images) and output blocks; `snap`: rows are shared out in
    units that fill the array. Tiles are `tile_rows` x `tile_columns` pixels, `tile_n` output and `tile_k` input blocks.
    `x_spm`, `w_spm`: the operand is staged in SPM once and pulled from there. `ramp_rows`, `ramp_k`: the first tiles
    are small (fewer rows; fewer channels and kernel rows), so that the array starts early; `tail_rows`: so are the
    last, so that the last store is short. `strip`: a core's input rows lie in A side by side, so that no tile fetches
    its halo again. `late`: tiles are asked for just in time, not early; `tight`: input tiles wait for the last but one
    to be used up, so that no core asks for much while others have nothing yet. `edges`: a core's last tile is computed
    right after its first, so that the rows that its neighbours need are there early. `fair`: memories that send to all
    cores serve them in turn, a tile each, not one core after the other.
    """

    parts_m: int
    parts_n: int
    snap: bool
    tile_rows: int
    tile_columns: int
    tile_n: int
    tile_k: int
    order: Order
    x_spm: bool = False
    w_spm: bool = False
    ramp_rows: bool = False
    ramp_k: bool = False
    tail_rows: bool = False
    strip: bool = False
    late: bool = False
    tight: bool = False
    edges: bool = False
    fair: bool = False


class MTile(NamedTuple):
    """Output rows [r0, r1) x columns [c0, c1) of one image."""

    image: int
    r0: int
    r1: int
    c0: int
    c1: int

    @property
    def pixels(self) -> int:
        return (self.r1 - self.r0) * (self.c1 - self.c0)


@dataclass(frozen=True)
class Pooling:
    """A max pool behind the layer: kernel, stride and padding of (rows, columns).

    Tiles are then cut in rows of the pool's result (`rows` x `width`), and neighbouring tiles of the layer overlap by
    the rows that both windows need. Tiles are as wide as the map.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    rows: int
    width: int

    def reach(self, first: int, end: int, size: int) -> tuple[int, int]:
        """Rows of the layer, of `size`, that rows [first, end) of the pool read."""
        low = first * self.stride[0] - self.pad[0]
        return max(low, 0), min((end - 1) * self.stride[0] - self.pad[0] + self.kernel[0], size)

    def height(self, rows: int) -> int:
        """Rows of the pool that `rows` rows of the layer make; at least 1."""
        return max(1, (rows - self.kernel[0]) // self.stride[0] + 1)


@dataclass(frozen=True)
class Part:
    """What one core computes: row segments (image, r0, r1) x output blocks [n0, n1)."""

    index: int
    core: int
    segments: tuple[tuple[int, int, int], ...]
    n0: int
    n1: int


Range = tuple[int, int]


def even(first: int, end: int, parts: int) -> list[Range]:
    """[first, end) in `parts` ranges whose sizes differ by one at most; the smaller ones first."""
    size = end - first
    cuts = [first + size * index // parts for index in range(parts + 1)]
    return list(zip(cuts[:-1], cuts[1:], strict=True))


def row_shares(problem: Problem, parts_m: int, snap: bool) -> list[tuple[tuple[int, int, int], ...]]:
    """Row segments of each share. Rows of all images are one sequence; `snap`: cut at multiples of the quantum."""
    rows = problem.out_rows
    total = problem.images * rows
    unit = problem.quantum if snap and parts_m * problem.quantum <= total else 1
    shares: list[tuple[tuple[int, int, int], ...]] = []
    for low, high in even(0, ceil(total / unit), parts_m):
        first, end = low * unit, min(high * unit, total)
        segments: list[tuple[int, int, int]] = []
        while first < end:
            image = first // rows
            stop = min(end, (image + 1) * rows)
            segments.append((image, first - image * rows, stop - image * rows))
            first = stop
        shares.append(tuple(segments))
    return shares


def parts(problem: Problem, chip: ChipConfig, candidate: Candidate, pooling: Pooling | None = None) -> list[Part]:
    """The parts, one for each core that has work. With `pooling` (of one image) their rows are those of the pool."""
    result: list[Part] = []
    shares = row_shares(problem, candidate.parts_m, candidate.snap)
    if pooling:
        shares = [((0, *rows),) for rows in even(0, pooling.rows, min(candidate.parts_m, pooling.rows))]
    for segments in shares:
        for n0, n1 in even(0, problem.n_blocks, candidate.parts_n):
            result.append(Part(len(result), chip.cores[len(result)], segments, n0, n1))
    return result


def _heights(problem: Problem, rows: int, candidate: Candidate, head: bool, tail: bool) -> list[int]:
    """Heights of the row tiles of one segment; what does not divide comes last, or first if the first tiles shall be
    small."""
    full = candidate.tile_rows
    per_row = candidate.tile_columns / problem.rows * problem.taps * problem.k_blocks * problem.depth * problem.lanes
    small = problem.quantum
    small *= max(1, ceil(SMALL_CYCLES / (per_row * small * min(candidate.tile_n, problem.n_blocks))))
    first: list[int] = []
    last: list[int] = []
    left = rows
    if head:
        height = small
        while height < full and left >= height + full:
            first.append(height)
            left -= height
            height *= 2
    if tail:
        height = small
        while height < full and left >= height + full:
            last.append(height)
            left -= height
            height *= 2
    middle = [full] * (left // full)
    if left % full:
        middle.insert(0 if candidate.ramp_rows else len(middle), left % full)
    return first + middle + last[::-1]


def m_tiles(problem: Problem, part: Part, candidate: Candidate) -> list[MTile]:
    """The output tiles of a part, in order."""
    tiles: list[MTile] = []
    columns = even(0, problem.out_w, ceil(problem.out_w / candidate.tile_columns))
    for index, (image, r0, r1) in enumerate(part.segments):
        head, tail = candidate.ramp_rows and not index, candidate.tail_rows and index == len(part.segments) - 1
        for height in _heights(problem, r1 - r0, candidate, head, tail):
            tiles += [MTile(image, r0, r0 + height, c0, c1) for c0, c1 in columns]
            r0 += height
    return tiles


def pooled_tiles(problem: Problem, part: Part, candidate: Candidate, pooling: Pooling) -> dict[MTile, Range]:
    """The output tiles of a part whose rows are those of a pool, and the rows of the pool that each makes."""
    rows_of: dict[MTile, Range] = {}
    for image, q0, q1 in part.segments:
        for low, high in even(q0, q1, ceil((q1 - q0) / pooling.height(candidate.tile_rows))):
            rows_of[MTile(image, *pooling.reach(low, high, problem.out_rows), 0, problem.out_w)] = low, high
    return rows_of


def n_tiles(part: Part, candidate: Candidate) -> list[Range]:
    """Ranges of output blocks of a part, as even as can be."""
    return even(part.n0, part.n1, ceil((part.n1 - part.n0) / candidate.tile_n))


def k_tiles(problem: Problem, candidate: Candidate) -> list[Range]:
    """Ranges of input blocks, as even as can be."""
    return even(0, problem.k_blocks, ceil(problem.k_blocks / candidate.tile_k))


class Item(NamedTuple):
    """One visit: output tile x output blocks x input blocks, and whether it begins or completes its sums."""

    m: MTile
    n: Range
    k: Range
    first: bool
    last: bool


def visits(ms: Sequence[MTile], ns: Sequence[Range], ks: Sequence[Range], order: Order, sums: int) -> Iterator[Item]:
    """The loop nest, back and forth in its inner loops (so that a turn reuses the tile it ends on).

    `sums`: output tiles whose partial sums fit ACC at once; it bounds the groups of the input and weight orders when
    there are several input tiles.
    """
    group = max(len(ms), len(ns)) if len(ks) == 1 else sums
    nest: list[tuple[MTile, Range, Range]] = []
    turn_k = turn = False

    def flip(values: Sequence[T], turned: bool) -> Sequence[T]:
        return values[::-1] if turned else values

    if order in ("output", "output_n"):
        by_m = order == "output"  # the outer loop goes over output tiles
        for i in range(len(ms) if by_m else len(ns)):
            for j in flip(range(len(ns) if by_m else len(ms)), turn):
                m, n = (ms[i], ns[j]) if by_m else (ms[j], ns[i])
                nest += [(m, n, k) for k in flip(ks, turn_k)]
                turn_k = not turn_k
            turn = not turn
    else:
        by_m = order == "input"
        count = len(ns) if by_m else len(ms)
        for start in range(0, count, group):
            some = range(start, min(start + group, count))
            for i in range(len(ms) if by_m else len(ns)):
                for k in flip(ks, turn_k):
                    nest += [(ms[i], ns[j], k) if by_m else (ms[j], ns[i], k) for j in flip(some, turn)]
                    turn = not turn
                turn_k = not turn_k
    passes: dict[tuple[MTile, Range], int] = {}
    for m, n, k in nest:
        done = passes.get((m, n), 0)
        passes[m, n] = done + 1
        yield Item(m, n, k, done == 0, done == len(ks) - 1)
