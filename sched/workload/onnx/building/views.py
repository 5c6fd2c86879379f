"""ONNX tensors as rearrangements of a value: reshapes, transposes, slices and the like are index arithmetic.

What moves values and computes nothing (Reshape, Transpose, Split, Slice, DepthToSpace, channel shuffle, Pad by copies,
Resize by copies) only changes which element of a value each element of a tensor is. `split_into_pieces` then says how
the chip makes a picture of that: channels selected, rows and columns sliced out, put beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from ...graph import PastePlace, Window
from ..errors import Refused

Size = tuple[int, int, int]
NO_PAD = (0, 0, 0, 0)
#: Copies of parts of a map that one tensor may be put together from.
MOST_PIECES = 256


@dataclass(frozen=True, eq=False)
class View:
    """An ONNX tensor of shape `shape` whose elements are those of value `value`, of `size` channels, rows, columns.

    `index`: for each element its number in the value, in that order; None: the value's own order. `pad`: zeros around
    a picture (top, left, bottom, right) that the next window will take in. `single`: nothing else reads the value
    through another tensor.
    """

    value: str
    size: Size
    shape: tuple[int, ...]
    index: NDArray[np.int64] | None = None
    pad: tuple[int, int, int, int] = NO_PAD
    single: bool = True

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """`index`, also where it is None."""
        return np.arange(prod(self.size)).reshape(self.shape) if self.index is None else self.index

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """`shape` with the zeros of `pad`: of rows and columns, or, of three axes, of columns alone."""
        if self.pad == NO_PAD:
            return self.shape
        top, left, bottom, right = self.pad
        *others, columns = self.shape
        if len(self.shape) > 3:
            others[-1] += top + bottom
        return (*others, columns + left + right)

    @property
    def channels(self) -> int:
        return self.size[0]

    @property
    def is_picture(self) -> bool:
        """Whether it is the value itself, [1, channels, rows, columns]."""
        return self.index is None and self.shape == (1, *self.size)

    def moved(self, index: NDArray[np.int64]) -> View:
        """Other elements of the same value, or the same in another order or shape."""
        same = index.size == prod(self.size) and np.array_equal(index.ravel(), np.arange(index.size))
        return replace(self, shape=index.shape, index=None if same else index)

    @cached_property
    def channel_of(self) -> NDArray[np.int64]:
        """The channel of each element."""
        return self.order // (self.size[1] * self.size[2])


def natural(view: View) -> tuple[int, ...] | None:
    """The axes of a view that are those of its value: batch, channels, rows, columns (or without some of these at the
    end, where they are 1; of three axes the last is columns). None if it is the value in no order of axes."""
    if view.pad != NO_PAD or view.shape[:1] != (1,):
        return None
    rank = len(view.shape)
    orders = {tuple(range(rank)), (0, rank - 1, *range(1, rank - 1))}
    size = (1, view.size[0], view.size[2]) if rank == 3 else (1, *view.size)[:rank]
    for order in sorted(orders):
        moved = view.moved(view.order.transpose(order))
        if moved.index is None and moved.shape == size and prod(size) == prod(view.size):
            return order
    return None


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in a value: which of its axes the channels are, and which the pixels, outermost first; axes of
    size 1 are left out."""

    channels: tuple[int, ...]
    pixels: tuple[int, ...]

    def index(self, shape: Sequence[int]) -> NDArray[np.int64]:
        """For each element of a tensor of `shape` its number in such a value."""
        order = (*self.channels, *self.pixels)
        rest = [axis for axis in range(len(shape)) if axis not in order]
        places = np.arange(prod(shape)).reshape([shape[axis] for axis in (*order, *rest)])
        return np.ascontiguousarray(places.transpose(np.argsort((*order, *rest))))

    def of(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """The elements of a tensor (`order`) as [channels, pixels]."""
        axes = (*self.channels, *self.pixels)
        rest = [axis for axis in range(order.ndim) if axis not in axes]
        channels = prod(order.shape[axis] for axis in self.channels)
        return np.ascontiguousarray(order.transpose([*axes, *rest]).reshape(channels, -1))


def layout_of(view: View) -> Layout | None:
    """The layout of a view that shows all pixels of some channels of a value, or of one channel several times; None if
    it is these in no order of axes."""
    if view.pad != NO_PAD or view.order.size == 0:
        return None
    zero = (0,) * len(view.shape)
    plane = view.size[1] * view.size[2]
    wide = [axis for axis, size in enumerate(view.shape) if size > 1]
    steps = {axis: int(view.order[(*zero[:axis], 1, *zero[axis + 1 :])] - view.order[zero]) for axis in wide}
    inner = sorted((axis for axis in wide if 0 < steps[axis] < plane), key=lambda axis: -steps[axis])
    outer = sorted((axis for axis in wide if axis not in inner), key=lambda axis: -abs(steps[axis]))
    layout = Layout(tuple(outer), tuple(inner))
    channel, pixel = np.divmod(layout.of(view.order), plane)
    whole = pixel.shape[1] == plane and np.all(pixel == np.arange(plane)) and np.all(channel == channel[:, :1])
    return layout if whole else None


def rough_layout(view: View) -> Layout | None:
    """The layout of a view of some pixels of some channels; None if it is these in no order of axes."""
    if view.pad != NO_PAD or view.order.size == 0:
        return None
    plane = view.size[1] * view.size[2]
    channels: list[int] = []
    pixels: list[int] = []
    places = np.full((1,) * len(view.shape), view.order.flat[0])
    for axis, size in enumerate(view.shape):
        if size == 1:
            continue
        step = int(np.take(view.order, 1, axis).flat[0] - view.order.flat[0])
        (pixels if 0 < step < plane else channels).append(axis)
        along = np.arange(size) * step
        places = places + along.reshape([-1 if axis == at else 1 for at in range(len(view.shape))])
    return Layout(tuple(channels), tuple(pixels)) if np.array_equal(places, view.order) else None


def turn_index(index: NDArray[np.int64], size: Size, groups: int) -> NDArray[np.int64]:
    """Elements of a value of `size` as those of its transpose in `groups` groups of channels (`workload.graph.Layer`),
    which has `turned_size`."""
    depth, plane = size[0] // groups, size[1] * size[2]
    channel, pixel = np.divmod(index, plane)
    group, within = np.divmod(channel, depth)
    return (group * plane + pixel) * depth + within


def turn_size(size: Size, groups: int) -> Size:
    """Channels, rows and columns of a transpose."""
    return groups * size[1] * size[2], 1, size[0] // groups


@dataclass(frozen=True, eq=False)
class Piece:
    """Part of a picture: rows and columns of the source (`window` of a slice) at a place of the result. `channels`: of
    the source, one for each of the result."""

    channels: NDArray[np.int64]
    window: Window
    place: PastePlace


def find_channels(view: View) -> NDArray[np.int64] | None:
    """The value's channels that a view [1, channels, rows, columns] shows, if it changes nothing else."""
    count, plane = view.shape[1], view.size[1] * view.size[2]
    if view.shape[2:] != view.size[1:]:
        return None
    order = view.order.reshape(count, plane)
    channels = order[:, 0] // plane
    return channels if np.array_equal(order, channels[:, None] * plane + np.arange(plane)) else None


def split_into_pieces(index: NDArray[np.int64], size: Size, by_rows: bool = False) -> list[list[Piece]]:
    """How a picture [channels, rows, columns] is made of the elements `index` of a value: runs of channels, each made
    of pieces; `by_rows`: of parts of one row each. Raises Refused where whole channels do not move alike, where rows
    and columns do not unless `by_rows`, or it takes more than `MOST_PIECES`."""
    plane = size[1] * size[2]
    channel, pixel = np.divmod(index, plane)
    flat = pixel.reshape(len(index), -1)
    starts = [0, *(np.flatnonzero(np.any(flat[1:] != flat[:-1], axis=1)) + 1).tolist(), len(index)]
    runs: list[list[Piece]] = []
    for first, end in zip(starts, starts[1:], strict=False):
        runs.append(_pieces(channel[first:end], *np.divmod(pixel[first], size[2]), size, by_rows))
        if sum(map(len, runs)) > MOST_PIECES:
            raise _too_many(size, index.shape, "channels", len(starts) - 1)
    return runs


def _too_many(size: Size, result: Sequence[int], axis: str, parts: int) -> Refused:
    """Why a rearrangement is refused: `axis` of its result is cut into so many parts."""
    return Refused(
        f"from {list(size)} to {list(result)} channels, rows and columns it takes more than {MOST_PIECES} copies of "
        f"parts of a map, since its {axis} are of {parts} parts that do not move together; fewer {axis} or a simpler "
        "order of them would do"
    )


def _pieces(
    channel: NDArray[np.int64], row: NDArray[np.int64], column: NDArray[np.int64], size: Size, by_rows: bool
) -> list[Piece]:
    """The pieces of one run: pixels whose channels are the same ones move together."""
    kinds, which = np.unique(channel.reshape(len(channel), -1), axis=1, return_inverse=True)
    which = which.reshape(row.shape)
    pieces: list[Piece] = []
    if kinds.shape[1] > MOST_PIECES:
        raise _too_many(size, channel.shape, "pixels", kinds.shape[1])
    for kind in range(kinds.shape[1]):
        here = which == kind
        if by_rows:
            pieces += _pieces_of_rows(kinds[:, kind], here, row, column, size)
            if len(pieces) > MOST_PIECES:
                raise _too_many(size, channel.shape, "rows", len(pieces))
            continue
        rows, columns = np.flatnonzero(here.any(axis=1)), np.flatnonzero(here.any(axis=0))
        grid = np.ix_(rows, columns)
        ys, xs = row[grid], column[grid]
        if not here[grid].all() or np.any(ys != ys[:, :1]) or np.any(xs != xs[:1]):
            raise Refused("rows and columns do not move as wholes; the chip moves words of channels")
        down, right = _progressions(rows, ys[:, 0]), _progressions(columns, xs[0])
        if len(pieces) + len(down) * len(right) > MOST_PIECES:
            axis, parts = ("rows", len(down)) if len(down) >= len(right) else ("columns", len(right))
            more = ("pixels", kinds.shape[1]) if kinds.shape[1] > parts else (axis, parts)
            raise _too_many(size, channel.shape, *more)
        pieces += [Piece(kinds[:, kind], *_piece(a, b, size)) for a in down for b in right]
    return pieces


def _pieces_of_rows(
    channels: NDArray[np.int64],
    here: NDArray[np.bool_],
    row: NDArray[np.int64],
    column: NDArray[np.int64],
    size: Size,
) -> list[Piece]:
    """The pixels `here` of a result, each piece of one row of the source and one of the result."""
    pieces: list[Piece] = []
    for y in np.flatnonzero(here.any(axis=1)).tolist():
        for source in np.unique(row[y][here[y]]).tolist():
            columns = np.flatnonzero(here[y] & (row[y] == source))
            for run in _progressions(columns, column[y][columns]):
                pieces.append(Piece(channels, *_piece((y, 1, source, 1, 1), run, size)))
    return pieces


#: A run of rows or columns: first and step in the result, first and step in the source, how many.
_Progression = tuple[int, int, int, int, int]


def _piece(down: _Progression, right: _Progression, size: Size) -> tuple[Window, PastePlace]:
    (to_y, to_h, y, step_h, rows), (to_x, to_w, x, step_w, columns) = down, right
    end_y, end_x = y + (rows - 1) * step_h + 1, x + (columns - 1) * step_w + 1
    window = Window(1, 1, step_h, step_w, y, x, size[1] - end_y, size[2] - end_x)
    return window, PastePlace(to_y, to_x, to_h, to_w, rows, columns)


def _progressions(result: NDArray[np.int64], source: NDArray[np.int64]) -> list[_Progression]:
    """Rows (or columns) of the result and the source's rows that they are, in as few even steps as one distance between
    them allows."""
    best: list[_Progression] = []
    for apart in range(1, min(16, len(result)) + 1):
        runs: list[_Progression] = []
        for first in range(apart):
            runs += _even(result[first::apart].tolist(), source[first::apart].tolist())
        if not best or len(runs) < len(best):
            best = runs
    return best


def _even(result: Sequence[int], source: Sequence[int]) -> list[_Progression]:
    runs: list[_Progression] = []
    at = 0
    while at < len(result):
        end, to_step, step = at + 1, 1, 1
        if end < len(result) and source[end] > source[at]:
            to_step, step = result[end] - result[at], source[end] - source[at]
            while (
                end < len(result) and result[end] - result[end - 1] == to_step and source[end] - source[end - 1] == step
            ):
                end += 1
        runs.append((result[at], to_step, source[at], step, end - at))
        at = end
    return runs
