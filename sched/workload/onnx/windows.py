"""Sliding windows of ONNX nodes, and which windows the instructions can express."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode

from ..graph import Window
from .errors import Refused


def sliding_window(
    attributes: dict[str, Any], kernel: tuple[int, int], size: tuple[int, int] | None, pad: tuple[int, int, int, int]
) -> Window:
    """The window of a Conv or a pool whose input has `size` rows and columns (None: not known).

    `pad`: top, left, bottom, right of a Pad node before it, which is added. Raises Refused.
    """
    strides = tuple(attributes.get("strides", (1, 1)))
    dilations = tuple(attributes.get("dilations", (1, 1)))
    if len(kernel) != 2 or len(strides) != 2 or len(dilations) != 2:
        raise Refused("only windows of rows and columns are supported")
    if tuple(attributes.get("kernel_shape", kernel)) != kernel or min(*kernel, *strides, *dilations) < 1:
        raise Refused("its kernel_shape, strides or dilations contradict its weights or are less than 1")
    distances = {distance for distance, taps in zip(dilations, kernel, strict=True) if taps > 1} or {1}
    if len(distances) > 1:
        raise Refused(f"dilations {list(dilations)} must be equal")
    dilation = distances.pop()
    pads = tuple(attributes.get("pads", (0, 0, 0, 0)))
    if len(pads) != 4:
        raise Refused(f"pads {list(pads)} must be top, left, bottom and right")
    mode = attributes.get("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        if size is None:
            raise Refused(f"auto_pad = {mode} on an input of unknown size; write pads out")
        ends: list[tuple[int, int]] = []
        for extent, k, stride in zip(
            (size[0] + pad[0] + pad[2], size[1] + pad[1] + pad[3]), kernel, strides, strict=True
        ):
            whole = max((-(-extent // stride) - 1) * stride + (k - 1) * dilation + 1 - extent, 0)
            ends.append((whole // 2, whole - whole // 2) if mode == "SAME_UPPER" else (whole - whole // 2, whole // 2))
        pads = (ends[0][0], ends[1][0], ends[0][1], ends[1][1])
    elif mode not in ("NOTSET", "VALID"):
        raise Refused(f"auto_pad = {mode} is unknown")
    elif mode == "VALID":
        pads = (0, 0, 0, 0)
    top, left, bottom, right = (a + b for a, b in zip(pads, pad, strict=True))
    if min(top, left, bottom, right) < 0:
        raise Refused(f"pads {[top, left, bottom, right]} must not be negative")
    return Window(*kernel, *strides, top, left, bottom, right, dilation)


def slice_window(
    size: tuple[int, ...],
    starts: NDArray[Any],
    ends: NDArray[Any],
    axes: NDArray[Any] | None,
    steps: NDArray[Any] | None,
) -> Window:
    """The window of a `slice` layer. Raises Refused when it is none."""
    pads, stride = [0, 0, 0, 0], [1, 1]
    for axis, each in enumerate(slices(size, starts, ends, axes, steps)):
        start, end, step = each.indices(size[axis])
        if axis in (0, 1):
            if start or end < size[axis] or step != 1:
                raise Refused("only rows and columns can be sliced")
            continue
        if step < 1 or end <= start:
            raise Refused("a slice must have positive steps and at least one row and column")
        pads[axis - 2], pads[axis], stride[axis - 2] = start, size[axis] - end, step
    return Window(1, 1, *stride, *pads)


def slices(
    size: tuple[int, ...],
    starts: NDArray[Any],
    ends: NDArray[Any],
    axes: NDArray[Any] | None,
    steps: NDArray[Any] | None,
) -> tuple[slice, ...]:
    """The operands of a Slice of a tensor of `size`, one slice for each of its axes. Raises Refused."""
    count, rank = len(starts), len(size)
    axes = np.arange(count) if axes is None else axes % rank
    steps = np.ones(count, np.int64) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise Refused("its starts, ends, axes and steps differ in number")
    result = [slice(None)] * rank
    for axis, start, end, step in zip(*(array.tolist() for array in (axes, starts, ends, steps)), strict=True):
        if not step:
            raise Refused("a step of 0")
        # backwards, an end before the first element is none
        result[axis] = slice(start, None if step < 0 and end < -size[axis] else end, step)
    return tuple(result)


def limit(name: str, opcode: Opcode = Opcode.GEMM) -> int:
    """The largest number that a field of an instruction holds."""
    return INSTRUCTIONS[opcode].most(name)


def check_window(kind: str, window: Window) -> None:
    """Refused when no instruction of the unit that runs layers of this kind can hold the window."""
    opcode = Opcode.GEMM if kind == "conv" else Opcode.VEC
    names = ("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "pad_top", "pad_left")
    if kind == "slice":  # where it begins is addressing alone
        names = ("stride_h", "stride_w")
    for name in names:
        if getattr(window, name) > limit(name, opcode):
            raise Refused(
                f"{name} = {getattr(window, name)}, a {opcode.name} instruction holds at most {limit(name, opcode)}"
            )


def two_axes(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a window over columns alone as those of one over rows and columns."""
    result = dict(attributes)
    for name, neutral in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("output_padding", 0)):
        if name in result and len(result[name]) == 1:
            result[name] = [neutral, *result[name]]
    if len(result.get("pads", ())) == 2:
        result["pads"] = [0, result["pads"][0], 0, result["pads"][1]]
    return result
