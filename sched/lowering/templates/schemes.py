"""How a layer is shared out over cores: by images, rows of the feature map, output and input channels.

These are the schemes of intra-layer parallelism that "Layer-Puzzle" (C. Gao et al., DATE 2023, section II-A) takes from
Tangram: feature map, output channel, input channel (partial sums are reduced across cores), batch, and hybrids, which
are products of these. A hybrid cuts each dimension into its factor of parts; the factors multiply to the cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from ...mapping.tiling.problem import DoesNotFit, Problem
from ...mapping.tiling.tiles import Range, even

#: Letters of the dimensions in a scheme's name.
_LETTERS = {"batch": "b", "feature": "f", "output": "o", "input": "i"}


@dataclass(frozen=True, order=True)
class Scheme:
    """In how many parts images, rows of the feature map, output blocks and input blocks are cut, each at least 1."""

    batch: int = 1
    feature: int = 1
    output: int = 1
    input: int = 1

    @property
    def cores(self) -> int:
        """Cores that it shares a layer out to."""
        return self.batch * self.feature * self.output * self.input

    def __str__(self) -> str:
        """Such as "f3o3"; "single" for one core."""
        return "".join(f"{_LETTERS[name]}{parts}" for name, parts in vars(self).items() if parts > 1) or "single"

    @classmethod
    def parse(cls, text: str) -> Scheme:
        """The scheme of that name. Raises ValueError."""
        if text == "single":
            return cls()
        factors: dict[str, int] = {}
        rest = text
        for name, letter in _LETTERS.items():
            if rest.startswith(letter):
                digits = rest[1 : 1 + next((i for i, c in enumerate(rest[1:]) if not c.isdigit()), len(rest) - 1)]
                if digits:
                    factors[name] = int(digits)
                    rest = rest[1 + len(digits) :]
        if rest or min(factors.values(), default=0) < 2:
            raise ValueError(f"scheme {text!r}: give factors above 1 in the order b, f, o, i, such as f3o3, or single")
        return cls(**factors)


@dataclass(frozen=True)
class LayerShape:
    """What decides how a layer can be cut: its blocks and windows, and whether the array computes it (`matrix`).

    `channels`: (input, output) channels that carry numbers; lanes without a channel don't count. `residual`: another
    tensor is added to the result before it leaves the core. `whole`: each result takes all rows of its image;
    `joined`: sums are not shared out; `repeat`: rows, and columns, of the result for each of the problem.
    """

    problem: Problem
    matrix: bool
    channels: tuple[int, int]
    residual: bool = False
    whole: bool = False
    joined: bool = False
    repeat: int = 1

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates of all images; of a layer of the vector unit, words of windows times lanes."""
        problem = self.problem
        pixels = problem.images * problem.out_rows * problem.out_w
        depth = self.channels[0] if self.matrix else 1
        return pixels * self.channels[1] * depth * problem.taps


@dataclass(frozen=True)
class SubTile:
    """What one core of a group computes: row segments (image, first, end) x output blocks x input blocks.

    `link`: its place among the cores that add up the same sums. The segments of a flat problem are one run of pixels
    over all images.
    """

    segments: tuple[tuple[int, int, int], ...]
    n: Range
    k: Range
    link: int

    def pixels(self, problem: Problem) -> int:
        """Output pixels of one block."""
        return sum(r1 - r0 for _, r0, r1 in self.segments) * problem.out_w


def groups_of(blocks: Range, size: int) -> list[tuple[int, Range]]:
    """The groups of `size` blocks that some blocks belong to, and which of a group's own they are."""
    return [
        (group, (max(blocks[0] - group * size, 0), min(blocks[1] - group * size, size)))
        for group in range(blocks[0] // size, ceil(blocks[1] / size))
    ]


def limits(shape: LayerShape) -> tuple[int, int, int, int]:
    """The most parts of each dimension, in the order of `Scheme`'s fields; finer cuts leave arrays without a row."""
    problem = shape.problem
    rows = problem.images * problem.out_rows
    if shape.whole:
        rows = problem.images
    elif problem.flat and shape.matrix:
        rows = ceil(rows / problem.rows)
    return problem.images, rows, problem.n_blocks, problem.k_blocks if shape.matrix and not shape.joined else 1


def schemes(shape: LayerShape, cores: int) -> tuple[Scheme, ...]:
    """All schemes for so many cores, plain ones and hybrids, in a fixed order; () if none gives work to all of them."""
    most = limits(shape)

    def factors(left: int, index: int) -> Iterator[tuple[int, ...]]:
        if index == len(most) - 1:
            if left <= most[index]:
                yield (left,)
            return
        for factor in range(1, min(left, most[index]) + 1):
            if left % factor == 0:
                yield from ((factor, *rest) for rest in factors(left // factor, index + 1))

    choices = (Scheme(*each) for each in factors(cores, 0))
    return tuple(scheme for scheme in choices if scheme.batch * scheme.feature <= most[1])


def split(shape: LayerShape, scheme: Scheme) -> tuple[SubTile, ...]:
    """What each core computes; cores that add up the same sums come one after the other.

    Raises DoesNotFit when the layer has too few images, rows or blocks for the scheme.
    """
    problem = shape.problem
    for name, factor, most in zip(_LETTERS, vars(scheme).values(), limits(shape), strict=True):
        if factor > most:
            raise DoesNotFit(f"scheme {scheme}: {name} has {most} parts at most, not {factor}; choose a smaller factor")
    sub_tiles: list[SubTile] = []
    for first, end in even(0, problem.images, scheme.batch):
        for segments in _shares(problem, first, end, scheme.feature, _unit(shape, end - first, scheme.feature)):
            for n in even(0, problem.n_blocks, scheme.output):
                if shape.matrix:
                    ks = even(0, problem.k_blocks, scheme.input)
                    sub_tiles += [SubTile(segments, n, k, link) for link, k in enumerate(ks)]
                else:
                    sub_tiles.append(SubTile(segments, n, n, 0))
    if any(not part.segments for part in sub_tiles):
        raise DoesNotFit(f"scheme {scheme}: some core would get no rows; choose a smaller factor")
    return tuple(sub_tiles)


def _unit(shape: LayerShape, images: int, parts: int) -> int:
    """Rows that are not cut apart when so many images are shared out: cuts are where the array's rows are full, if
    possible."""
    problem = shape.problem
    if shape.whole:
        return problem.out_rows
    return problem.quantum if shape.matrix and parts * problem.quantum <= images * problem.out_rows else 1


def _shares(
    problem: Problem, first: int, end: int, parts: int, unit: int
) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Row segments of each share of images [first, end), cut at multiples of `unit` rows."""
    rows = problem.out_rows
    begin, total = first * rows, (end - first) * rows
    for low, high in even(0, ceil(total / unit), parts):
        at, stop = begin + low * unit, begin + min(high * unit, total)
        if problem.flat:
            yield ((0, at, stop),) if at < stop else ()
            continue
        segments: list[tuple[int, int, int]] = []
        while at < stop:
            image = at // rows
            last = min(stop, (image + 1) * rows)
            segments.append((image, at - image * rows, last - image * rows))
            at = last
        yield tuple(segments)
