"""Bodies of GEMM and VEC instructions by name, each field with its type; what is left out is as usual.

Usual is 1 for counts and strides, no clamp, and 0 for everything else. Every body has those counts, its addresses and
its operation; other fields that are 0 are left out of it.
"""

from __future__ import annotations

from typing import TypedDict, Unpack, cast

from meshloom.hw.spec.isa import Addend, Pair, VectorOp, YWalk


class WindowShape(TypedDict, total=False):
    """What both instructions have of the words that they read, and of the pixels that they make."""

    in_w: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    dilation: int
    pad_top: int
    pad_left: int
    out_w: int
    pixels: int


class GemmWindow(WindowShape, total=False):
    """What a GEMM reads, and how much it makes of it."""

    a_base: int
    a_plane: int
    k_blocks: int
    b_base: int
    n_blocks: int
    int4: int


class VecWindow(WindowShape, total=False):
    """What a VEC reads of x, and how much it makes of it."""

    x_plane: int
    blocks: int


class _Result(TypedDict, total=False):
    addend_base: int
    dest_base: int
    scale: int
    relu: int
    clamp: int
    by_channel: int


class GemmFields(GemmWindow, _Result, total=False):
    """Body fields of a GEMM, as `hw.spec.isa` has them."""

    addend: Addend
    to_acc: int


class VecFields(VecWindow, _Result, total=False):
    """Body fields of a VEC, as `hw.spec.isa` has them."""

    op: VectorOp
    x_out: int
    x_base: int
    y_base: int
    addend: int
    pair: Pair
    y_walk: YWalk
    repeat: int
    times16: int


_ONES = dict.fromkeys(("in_w", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "out_w", "pixels"), 1)
_GEMM = (
    _ONES
    | {"a_plane": 1, "k_blocks": 1, "n_blocks": 1, "clamp": 127}
    | dict.fromkeys(("a_base", "b_base", "addend_base", "to_acc", "dest_base"), 0)
)
_VEC = (
    _ONES
    | {"x_plane": 1, "blocks": 1, "clamp": 127}
    | dict.fromkeys(("op", "x_base", "y_base", "addend_base", "dest_base"), 0)
)


def gemm(**fields: Unpack[GemmFields]) -> dict[str, int]:
    """The body of a GEMM."""
    body = _GEMM | cast("dict[str, int]", fields)
    body["addend"] = int(body.get("addend", Addend.NONE))
    return body


def vec(**fields: Unpack[VecFields]) -> dict[str, int]:
    """The body of a VEC."""
    body = _VEC | cast("dict[str, int]", fields)
    for name in ("op", "pair", "y_walk"):
        if name in body:
            body[name] = int(body[name])
    return body
