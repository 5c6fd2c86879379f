"""Parts of tensors in the memories of cores, and the MOVEs that carry what two of them have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ...mapping.memory.placement import MAX_STRIDE, MAX_WORDS
from ...mapping.nodes import Run
from .muops import Range, Region


@dataclass(frozen=True)
class View:
    """Part of a tensor as `[plane][row][column]` words of `tile`, from `address` on (its region included). `step`: only
    every so many rows are there; `unit`: words of P bytes of each (4 of partial sums)."""

    tile: int
    address: int
    part: Region
    step: int = 1
    unit: int = 1

    @cached_property
    def row(self) -> int:
        """Words of a row."""
        return self.unit * (self.part.columns[1] - self.part.columns[0])

    @cached_property
    def plane(self) -> int:
        """Words of a plane."""
        return self.row * -(-(self.part.rows[1] - self.part.rows[0]) // self.step)

    @property
    def words(self) -> int:
        """Words of all of it."""
        return self.plane * (self.part.planes[1] - self.part.planes[0])

    def at(self, plane: int, row: int, column: int) -> int:
        """Address of a place in the tensor."""
        part = self.part
        rows = (row - part.rows[0]) // self.step
        return self.address + (plane - part.planes[0]) * self.plane + rows * self.row + self.unit * (
            column - part.columns[0]
        )  # fmt: skip


def copies(source: View, target: View, part: Region) -> Iterator[tuple[Run, Run, int]]:
    """Source, target and words of the MOVEs that carry `part`, which lies in both, as far as `target` has its rows.

    Rows may be left out in the target only.
    """
    first = part.rows[0] + (target.part.rows[0] - part.rows[0]) % target.step
    rows = len(range(first, part.rows[1], target.step))
    if not rows:
        return
    wide = source.unit * (part.columns[1] - part.columns[0])
    pace = source.row * target.step
    planes = part.planes

    def move(low: Range, high: int) -> Iterator[tuple[Run, Run, int]]:
        """Planes `low` of `high` rows from the first on, if two loops on both sides can say it."""
        count, words = low[1] - low[0], (low[1] - low[0]) * high * wide
        ends: list[Run] = []
        for view, step in ((source, pace), (target, target.row)):
            run = _run(count, high, wide, view.plane, step)
            if run is None or words > MAX_WORDS:
                return
            ends.append(Run(view.tile, view.at(low[0], first, part.columns[0]), *run))
        yield ends[0], ends[1], words

    together = list(move(planes, rows))
    if together:
        yield from together
        return
    for plane in range(*planes):
        alone = list(move((plane, plane + 1), rows))
        if alone:
            yield from alone
            continue
        for row in range(first, part.rows[1], target.step):
            here, there = source.at(plane, row, part.columns[0]), target.at(plane, row, part.columns[0])
            yield Run(source.tile, here, wide, wide), Run(target.tile, there, wide, wide), wide


def _run(planes: int, rows: int, wide: int, plane: int, row: int) -> tuple[int, int] | None:
    """Run and stride of `planes` x `rows` runs of `wide` words, `plane` and `row` words apart; None if it takes three
    loops, or a longer stride than there is."""
    size = rows * wide
    if planes == 1:
        run = (size, size) if row == wide or rows == 1 else (wide, row)
    elif row == wide or rows == 1:
        run = (planes * size, planes * size) if plane == size else (size, plane)
    elif plane == rows * row:
        run = (wide, row)
    else:
        return None
    return run if run[1] <= MAX_STRIDE else None
