"""Bodies of the instructions of a core's steps: the GEMM, and the addition or the pool behind it."""

from __future__ import annotations

from meshloom.hw.spec.isa import Addend, VectorOp

from ...ir import bodies
from ..tiling.plan import CorePlan, GemmStep, box
from ..tiling.problem import FLAT_WIDTH, MAX_IN_WIDTH, Problem
from ..tiling.tiles import Pooling


def addition(problem: Problem, plan: CorePlan, step: GemmStep, r_at: int) -> dict[str, int]:
    """The body, without `relu` and `clamp`, of the VEC that adds a step's result to the tile at word `r_at` of A."""
    item, piece = step.item, step.piece
    pixels, out_w = item.m.pixels, item.m.c1 - item.m.c0
    if problem.flat:
        out_w = pixels if pixels <= MAX_IN_WIDTH else FLAT_WIDTH
    block = piece.n[0] - item.n[0]
    return bodies.vec(
        op=VectorOp.ADD,
        x_base=r_at + block * pixels,
        x_plane=pixels,
        in_w=out_w,
        blocks=piece.n[1] - piece.n[0],
        out_w=out_w,
        pixels=pixels,
        y_base=(step.result % plan.out_slots) * plan.out_slot + block * pixels,
        dest_base=(step.result % plan.vec_slots) * plan.vec_slot + block * pixels,
    )


def pool(plan: CorePlan, step: GemmStep, pooling: Pooling) -> dict[str, int]:
    """The body, without `relu` and `clamp`, of the VEC that pools a step's result."""
    item, piece = step.item, step.piece
    low, high = plan.pooled[item.m]
    block = piece.n[0] - item.n[0]
    return bodies.vec(
        op=VectorOp.MAX,
        x_out=1,
        x_base=(step.result % plan.out_slots) * plan.out_slot + block * item.m.pixels,
        x_plane=item.m.pixels,
        in_w=item.m.c1 - item.m.c0,
        blocks=piece.n[1] - piece.n[0],
        kernel_h=pooling.kernel[0],
        kernel_w=pooling.kernel[1],
        stride_h=pooling.stride[0],
        stride_w=pooling.stride[1],
        pad_top=item.m.r0 - (low * pooling.stride[0] - pooling.pad[0]),
        pad_left=pooling.pad[1],
        out_w=pooling.width,
        pixels=(high - low) * pooling.width,
        dest_base=(step.result % plan.vec_slots) * plan.vec_slot + block * (high - low) * pooling.width,
    )


def product(problem: Problem, plan: CorePlan, step: GemmStep, a_at: int, b_at: int, bias_at: int) -> dict[str, int]:
    """The body of a step's GEMM, without `scale`, `relu` and `clamp`.

    `a_at`, `b_at`: words where its input tile and weight tile lie; `bias_at`: ACC word of the bias of its first block.
    """
    item, piece = step.item, step.piece
    (i0, i1), (j0, j1), top, left = box(problem, item.m)
    in_w, out_w, pixels = j1 - j0, item.m.c1 - item.m.c0, item.m.pixels
    plane = (i1 - i0) * in_w
    if problem.flat:
        in_w = out_w = pixels if pixels <= MAX_IN_WIDTH else FLAT_WIDTH
    a_base = a_at + (piece.k[0] - item.k[0]) * problem.depth * plane + (i0 - plan.held[item.m][0]) * (j1 - j0)
    shift = max(0, piece.ky[0] * problem.dilation - top)
    a_base += shift * in_w
    pad_top = max(0, top - piece.ky[0] * problem.dilation)
    taps = problem.taps
    row = (piece.k[0] - item.k[0]) * taps + piece.ky[0] * problem.kernel_w
    b_base = b_at + ((piece.n[0] - item.n[0]) * (item.k[1] - item.k[0]) * taps + row) * problem.tap_words
    block = piece.n[0] - item.n[0]
    partial = plan.sums_base + step.sums * plan.sums_slot + block * pixels
    result = (step.result % plan.out_slots) * plan.out_slot + block * pixels
    return bodies.gemm(
        a_base=a_base,
        a_plane=plane - shift * in_w,
        in_w=in_w,
        k_blocks=(piece.k[1] - piece.k[0]) * problem.depth,
        kernel_h=piece.ky[1] - piece.ky[0],
        kernel_w=problem.kernel_w,
        stride_h=problem.stride_h,
        stride_w=problem.stride_w,
        dilation=problem.dilation,
        pad_top=pad_top,
        pad_left=left,
        out_w=out_w,
        pixels=pixels,
        b_base=b_base,
        n_blocks=piece.n[1] - piece.n[0],
        addend=Addend.BIAS if step.first else Addend.PARTIAL,
        addend_base=bias_at if step.first else partial,
        to_acc=int(not step.last),
        dest_base=partial if not step.last else result,
        **({"int4": 1} if problem.int4 else {}),
    )
