"""Rows, columns and channels of values, taken out and joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...graph import Place, Window, slice_size
from ..errors import Refused
from ..floats import FloatLayer
from .context import FloatContext
from .strides import MOST_STRIDE, factors
from .views import MOST_PIECES, Size


def emit_slice(context: FloatContext, name: str, output: str, size: Size, window: Window) -> str:
    """Rows and columns of a value; itself if these are all. Steps that no instruction holds are taken one after the
    other, or, where they have no small factors, row by row."""
    window = _without_steps(window, size)
    if window == Window():
        return name
    steps = [factors(stride) for stride in (window.stride_h, window.stride_w)]
    for axis, known in enumerate(steps):
        if known is None:
            return _slice_one_by_one(context, name, output, size, window, axis)
    down, right = (each or [1] for each in steps)
    first = replace(window, stride_h=down[0], stride_w=right[0])
    made = size[0], *slice_size(first, *size[1:])
    name = context.emit(FloatLayer("slice", context.fresh(output), (name,), first), made)
    rest = Window(1, 1, window.stride_h // down[0], window.stride_w // right[0])
    return emit_slice(context, name, output, made, rest)


def _slice_one_by_one(context: FloatContext, name: str, output: str, size: Size, window: Window, axis: int) -> str:
    """As `slice_of`: rows (`axis` 0) or columns one by one, then what is left to do."""
    rows, columns = slice_size(window, *size[1:])
    count = columns if axis else rows
    if count > MOST_PIECES:
        raise Refused(
            f"a step of {window.stride_w if axis else window.stride_h} through {size[axis + 1]} "
            f"{'columns' if axis else 'rows'} takes {count} copies; {MOST_PIECES} at most, or a step of factors up "
            f"to {MOST_STRIDE}"
        )
    parts: list[str] = []
    places: list[Place] = []
    for index in range(count):
        if axis:
            at = window.pad_left + index * window.stride_w
            one, place = Window(1, 1, 1, 1, 0, at, 0, size[2] - at - 1), Place(0, index, 1, 1, size[1], 1)
        else:
            at = window.pad_top + index * window.stride_h
            one, place = Window(1, 1, 1, 1, at, 0, size[1] - at - 1), Place(index, 0, 1, 1, 1, size[2])
        parts.append(emit_slice(context, name, f"{output}/{index}", size, one))
        places.append(place)
    made = (size[0], size[1], count) if axis else (size[0], count, size[2])
    name = context.emit(FloatLayer("paste", context.fresh(output), tuple(parts), places=tuple(places)), made)
    rest = (
        replace(window, stride_w=1, pad_left=0, pad_right=0) if axis
        else replace(window, stride_h=1, pad_top=0, pad_bottom=0)
    )  # fmt: skip
    return emit_slice(context, name, output, made, rest)


def emit_concat(context: FloatContext, names: Sequence[str], output: str, size: Size) -> str:
    """Channels of values of `size` one after the other."""
    return context.emit(FloatLayer("concat", output, tuple(names)), (size[0] * len(names), *size[1:]))


def _without_steps(window: Window, size: Size) -> Window:
    """The window of a slice, without a step where one row or one column is all that it takes."""
    rows, columns = slice_size(window, *size[1:])
    if rows == 1 and window.stride_h > 1:
        window = replace(window, stride_h=1, pad_bottom=size[1] - window.pad_top - 1)
    if columns == 1 and window.stride_w > 1:
        window = replace(window, stride_w=1, pad_right=size[2] - window.pad_left - 1)
    return window
