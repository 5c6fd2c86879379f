"""Windows, places and sizes along rows (`axis` 0) or columns (`axis` 1)."""

from __future__ import annotations

from dataclasses import replace

from ...graph import PastePlace, Window
from .views import Size


def side_of(axis: int) -> str:
    """How messages call them."""
    return "columns" if axis else "rows"


def extents_along(window: Window, axis: int) -> tuple[int, int, int]:
    """Kernel, stride and padding before of a window."""
    if axis:
        return window.kernel_w, window.stride_w, window.pad_left
    return window.kernel_h, window.stride_h, window.pad_top


def window_along(axis: int, kernel: int = 1, stride: int = 1, before: int = 0, behind: int = 0) -> Window:
    """A window of one axis."""
    if axis:
        return Window(1, kernel, 1, stride, 0, before, 0, behind)
    return Window(kernel, 1, stride, 1, before, 0, behind, 0)


def stride_along(window: Window, axis: int, stride: int) -> Window:
    """A window with another stride, and without padding, along an axis."""
    if axis:
        return replace(window, stride_w=stride, pad_left=0, pad_right=0)
    return replace(window, stride_h=stride, pad_top=0, pad_bottom=0)


def place_along(axis: int, first: int, step: int, size: Size) -> PastePlace:
    """Where a part of `size` goes: to every `step`-th row or column from `first` on."""
    return PastePlace(0, first, 1, step, *size[1:]) if axis else PastePlace(first, 0, step, 1, *size[1:])


def size_along(axis: int, size: Size, count: int) -> Size:
    """A size with so many rows or columns."""
    return (size[0], size[1], count) if axis else (size[0], count, size[2])
