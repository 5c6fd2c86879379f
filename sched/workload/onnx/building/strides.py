"""Steps that no instruction holds, as products of steps that one does."""

from __future__ import annotations

from dataclasses import replace

from meshloom.hw.spec.isa import Opcode

from ...graph import Window
from ..windows import limit

#: The largest step between rows or columns: the same for both units.
MOST_STRIDE = min(limit("stride_h", Opcode.VEC), limit("stride_h", Opcode.GEMM))


def factors(stride: int) -> list[int] | None:
    """Steps that instructions hold and whose product is the stride, as few as can be, the largest first; None if a
    prime factor is larger than any."""
    steps: list[int] = []
    rest = stride
    while rest > 1:
        best = next((step for step in range(MOST_STRIDE, 1, -1) if rest % step == 0), None)
        if best is None:
            return None
        steps.append(best)
        rest //= best
    return steps


def next_product(least: int) -> int:
    """The least number that is a product of steps, and not below `least`."""
    while factors(least) is None:
        least += 1
    return least


def without_needless_steps(window: Window, height: int, width: int) -> Window:
    """A window with smaller strides, where it has one place alone in rows or columns."""
    strides: list[int] = []
    for stride, extent, kernel, pads in (
        (window.stride_h, height, window.kernel_h, window.pad_top + window.pad_bottom),
        (window.stride_w, width, window.kernel_w, window.pad_left + window.pad_right),
    ):
        places = extent + pads - (kernel - 1) * window.dilation  # with a stride of 1
        strides.append(min(stride, next_product(places)) if places <= stride else stride)
    return replace(window, stride_h=strides[0], stride_w=strides[1])


def first_step(stride: int) -> tuple[int, int]:
    """A step that an instruction holds, and what is left of the stride for a slice behind it."""
    if stride <= MOST_STRIDE:
        return stride, 1
    step = max(step for step in range(1, MOST_STRIDE + 1) if stride % step == 0)
    return step, stride // step
