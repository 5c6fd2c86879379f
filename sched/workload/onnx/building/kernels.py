"""Convolutions whose windows no instruction holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import Opcode

from ...graph import Window
from ..bounds import check_size
from ..errors import Refused
from ..floats import FloatLayer
from ..windows import limit
from .axes import extents_along, place_along, side_of, size_along, stride_along, window_along
from .context import FloatContext
from .pictures import emit_concat, emit_paste, emit_slice, pad_picture
from .strides import MOST_STRIDE, factors, first_step, next_product, without_needless_steps
from .views import MOST_PIECES, NO_PAD, Size, View


def emit_conv(context: FloatContext, layer: FloatLayer, view: View) -> None:
    """A convolution over a value, put into a form that instructions can hold.

    A stride beyond what a GEMM holds becomes a smaller one over phases of the map, one behind the other in the
    channels; so do the parts of a kernel that is too large: the sums are the same, and rounded once. A depthwise
    one has results between those that are wanted, or, where its kernel is too large, zeros between its channels.
    """
    assert layer.w is not None
    outputs = (len(layer.w), *layer.window.output(*view.size[1:]))
    if min(outputs) < 1:
        raise Refused("its window does not fit the input")
    check_size(outputs)
    layer.window = without_needless_steps(layer.window, *view.size[1:])
    products = layer.density * layer.w.size
    widen(layer)
    layer.density = products / layer.w.size
    name, size = _apply_large_pads(context, layer, view.value, view.size)
    if layer.kind == "depthwise":
        w = layer.window
        if max(w.kernel_h, w.kernel_w) <= limit("kernel_h", Opcode.VEC) and w.dilation <= limit("dilation"):
            emit_with_stride(context, layer, name, size)
            return
        _make_dense(context, layer)
    name, size = _reduce_strides(context, layer, name, size, outputs[1:])
    w, most = layer.window, limit("kernel_h")
    if w.dilation > limit("dilation"):
        most = 1  # each tap is a part
    if max(w.kernel_h, w.kernel_w) > most:
        name, size = _shift_parts(context, layer, name, size, most, outputs[1:])
    layer.inputs = (name,)
    layer.density = products / layer.w.size
    context.emit(layer, outputs)


def emit_with_stride(context: FloatContext, layer: FloatLayer, name: str, size: Size) -> str:
    """A layer that slides over a value, with a stride that an instruction holds; what is too much is sliced out."""
    w, output = without_needless_steps(layer.window, *size[1:]), layer.output
    (down, more_down), (right, more_right) = first_step(w.stride_h), first_step(w.stride_w)
    layer.window, layer.inputs = replace(w, stride_h=down, stride_w=right), (name,)
    full_size = size[0], *layer.window.output(*size[1:])
    every = Window(1, 1, more_down, more_right)
    if every == Window():
        return context.emit(layer, full_size)
    layer.output = context.fresh(f"{output}/all")
    context.emit(layer, full_size)
    rows, columns = w.output(*size[1:])
    part = emit_slice(context, layer.output, f"{output}/every", full_size, every)
    return rename_value(context, part, output, (size[0], rows, columns))


def rename_value(context: FloatContext, name: str, output: str, size: Size) -> str:
    """A value that was just made becomes the result `output`."""
    layer = context.layers.pop(name)
    del context.views[name], context.sizes[name]
    layer.output = output
    return context.emit(layer, size)


def _apply_large_pads(context: FloatContext, layer: FloatLayer, name: str, size: Size) -> tuple[str, Size]:
    """The map with its zeros around it, where these are more than an instruction holds."""
    w, most = layer.window, limit("pad_top")
    if max(w.pad_top, w.pad_left) <= most:
        return name, size
    name, size = _fit(context, name, size, (w.pad_top, w.pad_left, w.pad_bottom, w.pad_right))
    layer.window = replace(w, pad_top=0, pad_left=0, pad_bottom=0, pad_right=0)
    return name, size


def _make_dense(context: FloatContext, layer: FloatLayer) -> None:
    """A depthwise convolution as one with zeros between its channels."""
    assert layer.w is not None
    channels = len(layer.w)
    check_size((channels, *layer.w.shape), "what stands for its weights")
    w = np.zeros((channels, channels, *layer.w.shape[2:]))
    w[np.arange(channels), np.arange(channels)] = layer.w[:, 0]
    layer.kind, layer.w = "conv", w
    context.notes.append(
        f"The depthwise {layer.output} runs as a convolution with zeros between its {channels} channels, since no "
        "instruction of the vector unit holds its window."
    )


def _reduce_strides(
    context: FloatContext, layer: FloatLayer, name: str, size: Size, result: tuple[int, int]
) -> tuple[str, Size]:
    """A convolution whose stride a GEMM holds, or whose kernel with it: over phases of the map."""
    assert layer.w is not None
    w, most = layer.window, limit("kernel_h")
    if w.dilation > 1 and max(w.stride_h, w.stride_w) > MOST_STRIDE:
        layer.w = inflate(layer.w, w.dilation, w.dilation)
        layer.window = w = replace(w, kernel_h=layer.w.shape[2], kernel_w=layer.w.shape[3], dilation=1)
    for axis, stride in enumerate((w.stride_h, w.stride_w)):
        if factors(stride) is None:
            name, size = _spread_windows(context, layer, name, size, axis, result[axis])
    w = layer.window
    rows = _stride_factor(w.kernel_h, w.stride_h, w.dilation, most)
    columns = _stride_factor(w.kernel_w, w.stride_w, w.dilation, most)
    return _fold_phases(context, layer, name, size, (rows, columns)) if rows > 1 or columns > 1 else (name, size)


def _spread_windows(
    context: FloatContext, layer: FloatLayer, name: str, size: Size, axis: int, count: int
) -> tuple[str, Size]:
    """The map with its rows (`axis` 0) or columns taken apart, for `count` windows whose stride has large prime
    factors: what each window reads, further from the next one's, so that the distance is a product of steps."""
    w = layer.window
    kernel, stride, before = extents_along(w, axis)
    wide = next_product(max(kernel, stride))
    if count > MOST_PIECES:
        raise Refused(
            f"a stride of {stride} with {count} windows along {side_of(axis)}; {MOST_PIECES} at most, or a stride of "
            f"factors up to {MOST_STRIDE}"
        )
    reach = (count - 1) * stride + wide
    pads = window_along(axis, before=before, behind=reach - size[axis + 1] - before)
    name, size = _fit(context, name, size, (pads.pad_top, pads.pad_left, pads.pad_bottom, pads.pad_right))
    parts: list[str] = []
    for index in range(count):
        first = index * stride
        window = window_along(axis, before=first, behind=size[axis + 1] - first - wide)
        parts.append(emit_slice(context, name, f"{layer.output}/window{index}", size, window))
    places = [place_along(axis, index * wide, 1, size_along(axis, size, wide)) for index in range(count)]
    layer.window = stride_along(w, axis, wide)
    size = size_along(axis, size, count * wide)
    return emit_paste(context, context.fresh(f"{layer.output}/apart"), parts, places, size), size


def _fold_phases(
    context: FloatContext, layer: FloatLayer, name: str, size: Size, factor: tuple[int, int]
) -> tuple[str, Size]:
    """Rows and columns of equal remainders, all behind each other in the channels; the layer's kernel likewise."""
    assert layer.w is not None
    w, (down, right) = layer.window, factor
    kernel = -(-w.kernel_h // down), -(-w.kernel_w // right)
    out_h, out_w = w.output(*size[1:])
    step_h, step_w = w.stride_h // down, w.stride_w // right
    high, wide = (out_h - 1) * step_h + kernel[0], (out_w - 1) * step_w + kernel[1]
    pad = (w.pad_top, w.pad_left, high * down - size[1] - w.pad_top, wide * right - size[2] - w.pad_left)
    name, size = _fit(context, name, size, pad)
    weights = np.zeros((*layer.w.shape[:2], kernel[0] * down, kernel[1] * right))
    weights[:, :, : w.kernel_h, : w.kernel_w] = layer.w
    folded = weights.reshape(*layer.w.shape[:2], kernel[0], down, kernel[1], right).transpose(0, 5, 3, 1, 2, 4)
    layer.w = folded.reshape(len(layer.w), -1, *kernel)
    layer.window = Window(*kernel, step_h, step_w)
    for axis, count in enumerate((down, right)):  # one step after the other: few slices, each once
        for step in factors(count) or ():
            name, size = _gather_remainders(context, f"{layer.output}/{side_of(axis)}{step}", name, size, step, axis)
    return name, size


def _gather_remainders(
    context: FloatContext, output: str, name: str, size: Size, step: int, axis: int
) -> tuple[str, Size]:
    """Rows, or columns, of one remainder after the other, behind each other in the channels."""
    windows = [window_along(axis, stride=step, before=at) for at in range(step)]
    parts = [emit_slice(context, name, f"{output}/{at}", size, window) for at, window in enumerate(windows)]
    one = size_along(axis, size, size[axis + 1] // step)
    return emit_concat(context, parts, context.fresh(output), one), (one[0] * step, one[1], one[2])


def _shift_parts(
    context: FloatContext, layer: FloatLayer, name: str, size: Size, most: int, result: tuple[int, int]
) -> tuple[str, Size]:
    """The map once for each part of the kernel, moved by the taps before it, behind each other in the channels."""
    assert layer.w is not None
    w, counts = layer.window, [-(-kernel // most) for kernel in (layer.window.kernel_h, layer.window.kernel_w)]
    kernel = -(-w.kernel_h // counts[0]), -(-w.kernel_w // counts[1])
    high = (result[0] - 1) * w.stride_h + (kernel[0] - 1) * w.dilation + 1
    wide = (result[1] - 1) * w.stride_w + (kernel[1] - 1) * w.dilation + 1
    apart = kernel[0] * w.dilation, kernel[1] * w.dilation
    full = high + (counts[0] - 1) * apart[0], wide + (counts[1] - 1) * apart[1]
    pad = (w.pad_top, w.pad_left, full[0] - size[1] - w.pad_top, full[1] - size[2] - w.pad_left)
    name, size = _fit(context, name, size, pad)
    weights = np.zeros((*layer.w.shape[:2], kernel[0] * counts[0], kernel[1] * counts[1]))
    weights[:, :, : w.kernel_h, : w.kernel_w] = layer.w
    parts: list[str] = []
    pieces: list[NDArray[np.float64]] = []
    for y in range(counts[0]):
        for x in range(counts[1]):
            top, left = y * apart[0], x * apart[1]
            window = Window(1, 1, 1, 1, top, left, full[0] - top - high, full[1] - left - wide)
            parts.append(emit_slice(context, name, f"{layer.output}/part{y}_{x}", size, window))
            across = slice(x * kernel[1], (x + 1) * kernel[1])
            pieces.append(weights[:, :, y * kernel[0] : (y + 1) * kernel[0], across])
    layer.w = np.concatenate(pieces, axis=1)
    dilation = w.dilation if max(kernel) > 1 else 1
    layer.window = replace(Window(*kernel, w.stride_h, w.stride_w), dilation=dilation)
    one = size[0], high, wide
    return emit_concat(context, parts, context.fresh(f"{layer.output}/parts"), one), (one[0] * len(parts), high, wide)


def _fit(context: FloatContext, name: str, size: Size, pad: tuple[int, int, int, int]) -> tuple[str, Size]:
    """A value with zeros around it, or (negative) without its last rows and columns."""
    cut = Window(pad_bottom=max(0, -pad[2]), pad_right=max(0, -pad[3]))
    name = emit_slice(context, name, f"{name}/cut", size, cut)
    size = size[0], size[1] - cut.pad_bottom, size[2] - cut.pad_right
    zeros = pad[0], pad[1], max(0, pad[2]), max(0, pad[3])
    if zeros != NO_PAD:
        keep = context.views.get(name)
        padded = pad_picture(context, name, View(name, size, (1, *size), pad=zeros))
        if keep is not None:
            context.views[name] = keep
        return padded.value, padded.size
    return name, size


def widen(layer: FloatLayer) -> None:
    """Adds taps of 0 where windows would lie in the padding alone, which no instruction takes: on the other side, so
    that each window has a pixel."""
    assert layer.w is not None
    w = layer.window
    taps: list[tuple[int, int]] = []
    for kernel, before, behind in ((w.kernel_h, w.pad_top, w.pad_bottom), (w.kernel_w, w.pad_left, w.pad_right)):
        reach = (kernel - 1) * w.dilation
        taps.append((max(0, -(-(behind - reach) // w.dilation)), max(0, -(-(before - reach) // w.dilation))))
    (top, bottom), (left, right) = taps
    layer.w = np.pad(layer.w, ((0, 0), (0, 0), (top, bottom), (left, right)))
    layer.window = replace(
        w, kernel_h=w.kernel_h + top + bottom, kernel_w=w.kernel_w + left + right,
        pad_top=w.pad_top + top * w.dilation, pad_left=w.pad_left + left * w.dilation,
        pad_bottom=w.pad_bottom + bottom * w.dilation, pad_right=w.pad_right + right * w.dilation,
    )  # fmt: skip


def _stride_factor(kernel: int, stride: int, dilation: int, most: int) -> int:
    """By what a stride that no GEMM holds, or not with its kernel, is divided; 1 if it need not be."""
    if stride <= MOST_STRIDE and (kernel <= most or stride == 1 or dilation > 1):
        return 1
    return next(
        factor
        for factor in range(2, stride + 1)
        if stride % factor == 0
        and stride // factor <= MOST_STRIDE
        and (-(-kernel // factor) <= most or factor == stride)
    )


def inflate(w: NDArray[Any], rows: int, columns: int) -> NDArray[Any]:
    """Weights [..., KH, KW] with zeros between their taps, which then are `rows` and `columns` apart."""
    high, wide = ((size - 1) * apart + 1 for size, apart in zip(w.shape[2:], (rows, columns), strict=True))
    check_size((*w.shape[:2], high, wide), "what stands for its weights")
    weights = np.zeros((*w.shape[:2], high, wide), w.dtype)
    weights[:, :, ::rows, ::columns] = w
    return weights
