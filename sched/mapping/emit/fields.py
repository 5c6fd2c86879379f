"""Fields of a GEMM or VEC that reads whole tiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import SCALED_BIAS_WORDS, Pair, VectorOp, vector_ops

from ...ir.bodies import GemmWindow, VecWindow
from ...workload.graph import Layer, Window
from ..tiling.plan import box
from ..tiling.problem import FLAT_WIDTH, MAX_IN_WIDTH, DoesNotFit, Problem
from ..tiling.tiles import MTile, Range

#: What the vector unit does for each kind of layer.
VECTOR_OPS = {
    "depthwise": VectorOp.MAC,
    "average_pool": VectorOp.SUM,
    "max_pool": VectorOp.MAX,
    "slice": VectorOp.MAX,
    "add": VectorOp.ADD,
}

#: The same of functions and repetitions.
FUNCTION_OPS = {"table": VectorOp.TABLE, "mul": VectorOp.PAIR, "upsample": VectorOp.MAX}

#: The field that lists operations, and what its text loses on a command line.
_OPS = "core.vec_ops"
_BARE = str.maketrans("", "", " '")

#: What a `normalise` layer does with whole blocks.
WHOLE_OPS = {
    "max": (VectorOp.MAX, Pair.SUBTRACT),
    "mean": (VectorOp.SUM, Pair.SUBTRACT),
    "sum": (VectorOp.SUM, Pair.MUL),
    "root": (VectorOp.MAC, Pair.MUL),
}


class UnitUser(Protocol):
    """A layer, of integers or of real numbers, as far as it says which units it needs."""

    @property
    def kind(self) -> str: ...

    @property
    def output(self) -> str: ...

    @property
    def by(self) -> str | None: ...


def operation_of(layer: Layer, chip: ChipConfig) -> VectorOp:
    """What the vector unit does for a layer. Raises DoesNotFit if cores of the chip cannot."""
    check_units((layer,), chip)
    return WHOLE_OPS[layer.by][0] if layer.by is not None else (VECTOR_OPS | FUNCTION_OPS)[layer.kind]


def units_lacking(chip: ChipConfig) -> tuple[str, ...]:
    """Fields of units that cores of a chip lack and some layers need (`onnx.floats.unit_of`)."""
    core = chip.core
    return tuple(f"core.{name}" for name in ("vec_table", "vec_whole") if not getattr(core, name))


def check_units(layers: Iterable[UnitUser], chip: ChipConfig) -> None:
    """Raises DoesNotFit if cores of the chip lack units that layers need: all of them, each with its first layer."""
    lacking: dict[str, str] = {}
    present = vector_ops(chip.core)
    needed: set[VectorOp] = set()
    for layer in layers:
        if (op := (VECTOR_OPS | FUNCTION_OPS).get(layer.kind)) not in (None, VectorOp.TABLE, *present):
            needed.add(op)
            what = f"layer {layer.output} needs {op.name}, and cores of {chip.name} have none"
            lacking.setdefault(_OPS, what)
        if layer.by is not None and not chip.core.vec_whole:
            what = f"layer {layer.output} normalises maps, and cores of {chip.name} cannot"
            lacking.setdefault("core.vec_whole", what)
        if layer.kind == "table" and not chip.core.vec_table:
            what = f"layer {layer.output} needs a table, and cores of {chip.name} have none"
            lacking.setdefault("core.vec_table", what)
    if lacking:
        ops = [op.name.lower() for op in VectorOp if op in needed or (op in present and op is not VectorOp.TABLE)]
        values = {field: str(ops) if field == _OPS else "true" for field in lacking}
        fields = " and ".join(f"{field} = {value}" for field, value in values.items())
        options = " ".join(f"--set {field}={value.translate(_BARE)}" for field, value in values.items())
        raise DoesNotFit(
            f"{'; '.join(lacking.values())}; take another chip, or set {fields} in its file (or with {options})"
        )


def check_map(output: str, rows: int, width: int, chip: ChipConfig, slots: int = 1) -> int:
    """Words of a core for each of `slots` maps of a layer that normalises such ones. Raises DoesNotFit if one has no
    room."""
    core = chip.core
    room = min(core.a_words, core.vec_words, core.out_words) // slots
    if rows * width > room or width > MAX_IN_WIDTH:
        what = f"layer {output} normalises maps of {rows}x{width} pixels"
        if rows * width <= room:
            raise DoesNotFit(
                f"{what}; no chip takes rows of more than {MAX_IN_WIDTH}, and no divisor makes shorter ones: take a "
                "size that has one"
            )
        raise DoesNotFit(f"{what}; a core of {chip.name} has room for {room} words; give it larger A, OUT and VEC")
    return room


def bias_rows(fixed: Mapping[str, int]) -> int:
    """Words of ACC for each block of channels of a layer whose results become bytes as `fixed` says (`Layer.fixed`):
    biases and, `by_channel`, multipliers."""
    return SCALED_BIAS_WORDS if fixed.get("by_channel") else 1


def bias_fields(fixed: Mapping[str, int], at: int) -> dict[str, int]:
    """Where an instruction has its biases from, ACC word `at` on, and with them, `by_channel`, its multipliers."""
    return {"addend_base": at} | ({"scale": at + 1} if fixed.get("by_channel") else {})


def window_fields(problem: Problem, tile: MTile, a: int, b: int, n_blocks: int, k_blocks: int) -> GemmWindow:
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


def vector_window(layer: Layer) -> Window:
    """The window of a layer of the vector unit; a slice, which begins inside of the map, has negative padding."""
    w = layer.window
    if layer.kind == "slice":
        return Window(1, 1, w.stride_h, w.stride_w, -w.pad_top, -w.pad_left)
    return Window() if layer.kind in ("add", "normalise", *FUNCTION_OPS) else w


def vector_fields(window: Window, result: tuple[Range, Range], x: tuple[Range, Range], blocks: int) -> VecWindow:
    """Body fields of a VEC that say which words are read for which: `blocks` blocks of rows and columns `result` from
    the rows and columns `x`."""
    (rows, columns), (in_rows, in_columns) = result, x
    in_w, out_w = in_columns[1] - in_columns[0], columns[1] - columns[0]
    return {
        "x_plane": (in_rows[1] - in_rows[0]) * in_w, "in_w": in_w, "blocks": blocks, "kernel_h": window.kernel_h,
        "kernel_w": window.kernel_w, "stride_h": window.stride_h, "stride_w": window.stride_w,
        "dilation": window.dilation, "pad_top": max(0, window.pad_top - rows[0] * window.stride_h),
        "pad_left": max(0, window.pad_left - columns[0] * window.stride_w), "out_w": out_w,
        "pixels": (rows[1] - rows[0]) * out_w,
    }  # fmt: skip
