"""Fields of a GEMM that reads whole tiles."""

from __future__ import annotations

from .plan import box
from .problem import FLAT_WIDTH, MAX_IN_WIDTH, Problem
from .tiling import MTile


def window_fields(problem: Problem, tile: MTile, a: int, b: int, n_blocks: int, k_blocks: int) -> dict[str, int]:
    """Body fields of a GEMM with its inputs at word `a` of A and its weights at word `b` of B: all but its addend, its
    destination, `scale`, `relu` and `clamp`."""
    (i0, i1), (j0, j1), top, left = box(problem, tile)
    in_w, out_w, pixels = j1 - j0, tile.c1 - tile.c0, tile.pixels
    plane = (i1 - i0) * in_w
    if problem.flat:
        in_w = out_w = pixels if pixels <= MAX_IN_WIDTH else FLAT_WIDTH
    return {
        "a_base": a, "a_plane": plane, "in_w": in_w, "k_blocks": k_blocks, "kernel_h": problem.kernel_h,
        "kernel_w": problem.kernel_w, "stride_h": problem.stride_h, "stride_w": problem.stride_w,
        "dilation": problem.dilation, "pad_top": top, "pad_left": left, "out_w": out_w, "pixels": pixels, "b_base": b,
        "n_blocks": n_blocks,
    }  # fmt: skip
