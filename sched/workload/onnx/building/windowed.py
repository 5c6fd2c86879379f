"""Maxima and averages in windows of any size."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from meshloom.hw.spec.isa import Opcode

from ...graph import PastePlace, Window
from ..bounds import MOST_ELEMENTS, check_size
from ..errors import Refused
from ..floats import FloatLayer
from ..windows import limit
from .axes import extents_along, place_along, size_along, window_along
from .context import FloatContext
from .kernels import emit_conv, emit_with_stride, rename_value
from .pictures import emit_paste, emit_slice
from .views import Size, View


def emit_maxima(context: FloatContext, output: str, name: str, size: Size, window: Window) -> str:
    """Maxima in windows of any size: windows of windows, and, where their taps are too far apart, over the rows and
    columns of one remainder each."""
    if min(window.output(*size[1:])) < 1:
        raise Refused("its window does not fit the input")
    check_size((size[0], *window.output(*size[1:])))
    if max(window.kernel_h, window.kernel_w) > MOST_ELEMENTS:
        raise Refused(f"a window of {window.kernel_h:,}x{window.kernel_w:,}")
    pads = window.pad_top, window.pad_left, window.pad_bottom, window.pad_right
    kernel = window.kernel_h, window.kernel_w
    beyond = any(pad >= taps for pad, taps in zip(pads, kernel * 2, strict=True))  # of taps that are next to others
    if window.dilation > limit("dilation", Opcode.VEC) or (window.dilation > 1 and beyond):
        axes = [axis for axis in (0, 1) if _one_axis(window, axis) != Window(dilation=window.dilation)]
        for axis in axes:
            part, one = output if axis == axes[-1] else context.fresh(f"{output}/rows"), _one_axis(window, axis)
            name, size = _emit_remainders(context, part, name, size, one, axis), (size[0], *one.output(*size[1:]))
        return name
    steps = _compose(window)
    for index, step in enumerate(steps):
        part = output if index == len(steps) - 1 else context.fresh(f"{output}/part{index}")
        name = emit_with_stride(context, FloatLayer("max_pool", part, (name,), step), name, size)
        size = size[0], *step.output(*size[1:])
    return name


def _emit_remainders(context: FloatContext, output: str, name: str, size: Size, window: Window, axis: int) -> str:
    """Maxima along rows (`axis` 0) or columns, of taps far apart: rows of the result that leave one remainder are
    made of rows that leave one."""
    apart, extent = window.dilation, size[axis + 1]
    kernel, stride, pad = extents_along(window, axis)
    count = window.output(*size[1:])[axis] * stride - stride + 1  # without the stride
    names: list[str] = []
    places: list[PastePlace] = []
    for remainder in range(min(apart, count)):
        first = (remainder - pad) % apart
        before, rows = (first - remainder + pad) // apart, -(-(count - remainder) // apart)
        there = max(0, -(-(extent - first) // apart))
        behind = rows - 1 + kernel - before - there
        if before >= kernel or not there:
            raise Refused(f"windows of {kernel} taps {apart} apart lie in the padding alone")
        cut = window_along(axis, stride=apart, before=first)
        part = emit_slice(context, name, f"{output}/remainder{remainder}", size, cut)
        some = size_along(axis, size, there)
        if behind < 0:
            part = emit_slice(context, part, f"{output}/cut{remainder}", some, window_along(axis, behind=-behind))
            some, behind = size_along(axis, size, there + behind), 0
        inner = window_along(axis, kernel, 1, before, behind)
        names.append(emit_maxima(context, context.fresh(f"{output}/{remainder}"), part, some, inner))
        places.append(place_along(axis, remainder, apart, size_along(axis, size, rows)))
    whole, whole_size = context.fresh(f"{output}/all") if stride > 1 else output, size_along(axis, size, count)
    emit_paste(context, whole, names, places, whole_size)
    if stride == 1:
        return output
    sliced = emit_slice(context, whole, f"{output}/every", whole_size, window_along(axis, stride=stride))
    return rename_value(context, sliced, output, (size[0], *window.output(*size[1:])))


def emit_averages(context: FloatContext, output: str, view: View, window: Window) -> str:
    """Averages in windows of any size, whose padding counts as zeros: where no instruction adds so many, those of a
    convolution."""
    padded, fits = max(window.pad_top, window.pad_left), max(window.kernel_h, window.kernel_w)
    if window.dilation == 1 and padded <= limit("pad_top", Opcode.VEC) and fits <= limit("kernel_h", Opcode.VEC):
        return emit_with_stride(
            context, FloatLayer("average_pool", output, (view.value,), window), view.value, view.size
        )
    taps = (window.kernel_h, window.kernel_w)
    check_size((view.channels, 1, *taps), "what stands for its weights")
    w = np.full((view.channels, 1, *taps), 1 / prod(taps))
    emit_conv(context, FloatLayer("depthwise", output, (view.value,), window, w=w, bias=np.zeros(view.channels)), view)
    return output


def emit_inner_averages(context: FloatContext, output: str, view: View, window: Window, size: Size) -> None:
    """Averages of the pixels that there are: windows that have as many of them together."""
    down = _regions(size[1], view.size[1], window.kernel_h, window.stride_h, window.pad_top)
    right = _regions(size[2], view.size[2], window.kernel_w, window.stride_w, window.pad_left)
    places: list[PastePlace] = []
    names: list[str] = []
    for y, rows, top, high, kernel_h in down:
        for x, columns, left, wide, kernel_w in right:
            part = context.fresh(f"{output}/{len(names)}")
            cut = Window(1, 1, 1, 1, top, left, view.size[1] - top - high, view.size[2] - left - wide)
            source = emit_slice(context, view.value, f"{part}/pixels", view.size, cut)
            inner = Window(kernel_h, kernel_w, window.stride_h, window.stride_w)
            pixels = View(source, (size[0], high, wide), (1, size[0], high, wide))
            names.append(emit_averages(context, part, pixels, inner))
            places.append(PastePlace(y, x, 1, 1, rows, columns))
    emit_paste(context, output, names, places, size)


def has_pixels(window: Window) -> bool:
    """Whether no window lies in the padding alone."""
    rows, columns = max(window.pad_top, window.pad_bottom), max(window.pad_left, window.pad_right)
    return rows < window.kernel_h and columns < window.kernel_w


def _compose(window: Window) -> list[Window]:
    """A window of maxima as windows of windows that a VEC holds: k and j taps reach as far as k + j - 1."""
    most, most_pad = limit("kernel_h", Opcode.VEC), limit("pad_top", Opcode.VEC)
    pad = [window.pad_top, window.pad_left, window.pad_bottom, window.pad_right]
    if max(pad) > most_pad:
        most = most_pad + 1  # so that each takes less padding than it has taps, as ONNX wants
    if max(window.kernel_h, window.kernel_w) <= most:
        return [window]
    windows: list[Window] = []
    high, wide = window.kernel_h, window.kernel_w
    while max(high, wide) > most:
        k, j = min(high, most) if high > most else 1, min(wide, most) if wide > most else 1
        own = [min(side, size - 1) for side, size in zip(pad, (k, j, k, j), strict=True)]
        pad = [side - part for side, part in zip(pad, own, strict=True)]
        windows.append(Window(k, j, 1, 1, *own, dilation=window.dilation))
        high, wide = high - k + 1, wide - j + 1
    return [*windows, Window(high, wide, window.stride_h, window.stride_w, *pad, dilation=window.dilation)]


def _one_axis(window: Window, axis: int) -> Window:
    """The rows (`axis` 0) or the columns of a window of maxima."""
    if axis:
        return replace(window, kernel_h=1, stride_h=1, pad_top=0, pad_bottom=0)
    return replace(window, kernel_w=1, stride_w=1, pad_left=0, pad_right=0)


def _regions(count: int, size: int, kernel: int, stride: int, pad: int) -> list[tuple[int, int, int, int, int]]:
    """Runs of windows that have as many pixels: first window, how many, first pixel, how many, pixels of each."""
    regions: list[tuple[int, int, int, int, int]] = []
    for index in range(count):
        low, high = max(0, index * stride - pad), min(size, index * stride - pad + kernel)
        last = regions[-1] if regions else None
        if last and last[4] == high - low == kernel:
            regions[-1] = last[0], last[1] + 1, last[2], high - last[2], kernel
        else:
            regions.append((index, 1, low, high - low, high - low))
    return regions
