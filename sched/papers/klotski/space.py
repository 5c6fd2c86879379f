"""Where searches look for partitions: points of a unit cube, and the sizes that they stand for.

Numbers are on logarithmic scales, as twice as large is one step wherever it begins. Points lie on a grid, so that
searches, whose sums may differ in the last digit from machine to machine, mostly find the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .work import Extent, StageWork

#: Steps of a cube's side.
GRID = 128
#: Into how many parts `PARTS` and `LAYERS` cut a dimension at most.
MOST_PARTS = 32
#: Micro-ops of a network that searches consider at most.
MOST_OPS = 6000

Point = NDArray[np.float64]


class Form(StrEnum):
    """What the numbers of a point are. SIZES: one s(h, w, ic, oc) for the whole network. PARTS: into how many parts the
    dimensions of each stage are cut, four numbers for the whole network. LAYERS: the same for each kind of stage."""

    SIZES = "sizes"
    PARTS = "parts"
    LAYERS = "layers"


@dataclass(frozen=True, eq=False)
class PartitionSpace:
    """Partitions of a network. `works`: its stages."""

    works: Sequence[StageWork]
    form: Form
    most: int = MOST_OPS

    @cached_property
    def classes(self) -> list[int]:
        """For each stage the number of its kind: those of one kind have the same shape and windows."""
        numbers: dict[object, int] = {}
        return [numbers.setdefault((work.op, work.problem, work.whole), len(numbers)) for work in self.works]

    @property
    def size(self) -> int:
        """Numbers of a point."""
        return 4 * (max(self.classes) + 1) if self.form is Form.LAYERS else 4

    @cached_property
    def _wholes(self) -> NDArray[np.int64]:
        return np.array([tuple(vars(work.whole).values()) for work in self.works], np.int64)

    def _sizes(self, points: Point) -> NDArray[np.int64]:
        """Rows, columns, planes, depth of each stage, for each of some points: int [points, stages, 4]."""
        wholes = self._wholes
        if self.form is Form.SIZES:
            sizes = np.rint(wholes.max(axis=0) ** points).astype(np.int64)
            return np.minimum(sizes[:, None], wholes)
        numbers = points.reshape(len(points), -1, 4)
        numbers = numbers[:, self.classes] if self.form is Form.LAYERS else numbers
        parts = np.rint(np.minimum(wholes, MOST_PARTS) ** numbers).astype(np.int64)
        return -(-wholes // parts)

    def extents(self, point: Point) -> list[Extent]:
        """The sizes of the micro-ops of each stage. `point`: float [size], each 0..1."""
        return [Extent(*row) for row in self._sizes(point[None])[0].tolist()]

    def parts(self, work: StageWork, numbers: Point) -> list[int]:
        """Into how many parts four numbers of form PARTS or LAYERS cut the dimensions of a stage."""
        sizes = np.minimum(tuple(vars(work.whole).values()), MOST_PARTS)
        return np.rint(sizes**numbers).astype(np.int64).tolist()

    def numbers_of(self, work: StageWork, parts: Sequence[int]) -> Point:
        """The numbers of such a cut, or of the nearest that there is."""
        sizes = np.minimum(tuple(vars(work.whole).values()), MOST_PARTS)
        ends = np.maximum(np.log(sizes), 1e-9)
        return np.clip(np.log(np.clip(parts, 1, sizes)) / ends, 0, 1)

    def numbers(self, work: StageWork, extent: Extent) -> Point:
        """Those of the cut with parts of that size."""
        pairs = zip(vars(work.whole).values(), vars(extent).values(), strict=True)
        return self.numbers_of(work, [-(-whole // part) for whole, part in pairs])

    def counts(self, points: Point) -> NDArray[np.int64]:
        """Micro-ops of each of some points, float [points, size], if all sizes fit cores."""
        return (-(-self._wholes // self._sizes(points))).prod(axis=2).sum(axis=1)

    def draw(self, random: np.random.Generator, number: int = 1) -> Point:
        """Points at random, float [number, size], none of them with too many micro-ops."""
        return self.mended(random.random((number, self.size)))

    def mended(self, points: Point) -> Point:
        """The nearest points of the grid, or of those with too many micro-ops, one on the way to the coarsest."""
        rounded = np.rint(np.clip(points, 0, 1) * GRID) / GRID
        coarsest = 1.0 if self.form is Form.SIZES else 0.0
        far = np.arange(len(rounded))
        while len(far := far[(self.counts(rounded[far]) > self.most) & (rounded[far] != coarsest).any(axis=1)]):
            left = coarsest - rounded[far]
            step = np.minimum(np.abs(left), np.maximum(np.abs(left) / 8, 1 / GRID))
            rounded[far] = np.rint((rounded[far] + np.sign(left) * step) * GRID) / GRID
        return rounded
