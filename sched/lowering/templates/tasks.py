"""What each stage of a served network computes, and where its tensors lie."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from meshloom.hw.spec.isa import Pair, YWalk

from ...mapping.emit.fields import WHOLE_OPS, operation_of, vector_window
from ...mapping.tiling.problem import Problem, pose
from ...mapping.tiling.windows import check_window
from ...workload.graph import SCALED, Layer
from ...workload.stages import Stage
from ...workload.words import channel_runs
from .matrix import MatrixTask
from .memory import Striped
from .product import ServedProduct
from .schemes import LayerShape
from .tensors import ServedTensors
from .transpose import ServedTranspose
from .vector import VectorTask

StageTask = MatrixTask | VectorTask | ServedProduct | ServedTranspose


def task_of(stage: Stage, tensors: ServedTensors, weights: tuple[Striped, Striped] | None) -> StageTask:
    """The task of a stage. `weights`: weights and biases, if its layer has some. Raises DoesNotFit for what cores of
    the chip cannot do."""
    match stage.layer.kind:
        case "conv":
            assert weights is not None
            return _matrix(stage, tensors, weights)
        case "product":
            return _product(stage.layer, tensors)
        case "transpose":
            return _transpose(stage.layer, tensors)
        case _:
            return _vector(stage, tensors, weights)


def _matrix(stage: Stage, tensors: ServedTensors, weights: tuple[Striped, Striped]) -> MatrixTask:
    layer, epilogue = stage.layer, stage.epilogue
    lanes = tensors.cut.lanes[layer.inputs[0]]
    packed = tensors.is_packed(layer)
    shape = replace(tensors.graph.conv_shape(layer), batch=tensors.batch)
    # the host puts the columns of a window side by side, as channels
    channels = shape.in_channels * (shape.kernel_w if packed else 1), shape.out_channels
    shape = replace(shape, out_channels=len(tensors.filters(layer)))
    if not packed:
        shape = replace(shape, in_channels=len(lanes))
    problem = pose(shape, tensors.chip, packed=packed)
    x = tensors.packed(layer, tensors.cut.values[stage.x]) if packed else tensors.activation(stage.x)
    return MatrixTask(
        shape=LayerShape(problem, True, channels, bool(stage.r)),
        x=_seen(x, problem),
        w=weights[0],
        bias=weights[1],
        y=_seen(tensors.activation(stage.y), problem),
        r=_seen(tensors.activation(stage.r), problem) if stage.r else None,
        fixed=_fixed(layer) | {"scale": layer.scale},
        epilogue={"relu": int(epilogue.relu), "clamp": epilogue.clamp} if epilogue else {},
    )


def _fixed(layer: Layer) -> dict[str, int]:
    return {"relu": int(layer.relu), "clamp": layer.clamp}


def _seen(stored: Striped, problem: Problem) -> Striped:
    """A tensor as the problem sees it."""
    return stored.flattened() if problem.flat else stored


def _vector(stage: Stage, tensors: ServedTensors, weights: tuple[Striped, Striped] | None) -> VectorTask:
    layer, chip = stage.layer, tensors.chip
    x, y = tensors.cut.values[stage.x], tensors.cut.values[stage.y]
    check_window(layer)
    w, op, whole = vector_window(layer), operation_of(layer, chip), layer.by is not None
    operand = tensors.cut.values[layer.inputs[1]] if layer.kind in ("add", "mul") else None
    broadcast = operand is not None and operand.shape[2:] != y.shape[2:]
    single = (w.kernel_h, w.kernel_w, w.stride_h, w.stride_w) == (1, 1, 1, 1) and x.shape[2:] == y.shape[2:]
    shaped = layer.kind == "slice" or stage.y in tensors.cut.places or (broadcast and tensors.batch > 1)
    flat = single and not whole and not shaped
    planes, height, width = len(tensors.cut.lanes[stage.x]) // chip.lanes, x.height, x.width
    rows, out_w = y.height // layer.repeat, y.width // layer.repeat
    if flat or whole:
        height, width, rows, out_w = height * width, 1, rows * out_w, 1
    problem = Problem(
        images=tensors.batch, k_blocks=planes, n_blocks=planes, in_rows=height, in_w=width, out_rows=rows, out_w=out_w,
        kernel_h=w.kernel_h, kernel_w=w.kernel_w, stride_h=w.stride_h, stride_w=w.stride_w, dilation=w.dilation,
        pad_top=w.pad_top, pad_left=w.pad_left, row_step=1, stored_rows=height, packed=False, flat=flat,
        lanes=chip.lanes, rows=chip.rows, cols=chip.cols,
    )  # fmt: skip

    def seen(name: str) -> Striped:
        stored = tensors.activation(name)
        return stored.flattened() if flat or whole else stored

    return VectorTask(
        shape=LayerShape(problem, False, (x.channels, y.channels), whole=whole, repeat=layer.repeat),
        op=op,
        x=seen(stage.x),
        y=seen(stage.y),
        r=seen(layer.inputs[1]) if operand is not None else None,
        w=weights[0] if weights else None,
        bias=weights[1] if weights else None,
        fixed=_fixed(layer) | ({"scale": layer.scale} if layer.kind in (*SCALED, "normalise") else {}),
        table=tensors.table(layer) if layer.table is not None else None,
        broadcast=broadcast,
        extra=_extra(layer, broadcast),
    )


def _extra(layer: Layer, broadcast: bool) -> dict[str, int]:
    """Fields of its instructions that are the same for all tiles, beside window and what makes bytes of results."""
    extra: dict[str, int] = {}
    if broadcast:
        extra["y_walk"] = YWalk.BLOCK
    if layer.repeat > 1:
        extra["repeat"] = layer.repeat - 1
    if layer.by is not None:
        extra |= {"pair": WHOLE_OPS[layer.by][1], "y_walk": YWalk.WHOLE, "times16": int(layer.times16)}
    elif layer.kind == "mul":
        extra |= {"pair": Pair.MUL, "times16": int(layer.times16)}
    return extra


def _product(layer: Layer, tensors: ServedTensors) -> ServedProduct:
    chip = tensors.chip
    a, b, y = (tensors.cut.values[name] for name in (*layer.inputs, layer.output))
    filters, pixels = b.height * b.width, a.height * a.width
    depth = len(tensors.cut.lanes[layer.inputs[0]]) // chip.lanes // layer.groups
    blocks = ceil(filters / chip.cols)
    missing = blocks * chip.cols - filters
    problem = _moved(tensors, blocks=blocks * layer.groups, depth=depth, rows=pixels)
    return ServedProduct(
        shape=LayerShape(problem, True, (a.channels // layer.groups, y.channels), joined=True),
        a=tensors.activation(layer.inputs[0]).flattened(),
        b=tensors.activation(layer.inputs[1]).flattened(),
        y=tensors.activation(layer.output).flattened(),
        zeros=tensors.zeros(layer, depth * missing) if missing else None,
        groups=layer.groups,
        filters=filters,
        fixed=_fixed(layer) | {"scale": layer.scale},
    )


def _transpose(layer: Layer, tensors: ServedTensors) -> ServedTranspose:
    chip, lanes = tensors.chip, tensors.cut.lanes[layer.inputs[0]]
    x, y = tensors.cut.values[layer.inputs[0]], tensors.cut.values[layer.output]
    pixels, words = x.height * x.width, len(lanes) // chip.lanes // layer.groups
    problem = _moved(tensors, blocks=ceil(pixels / chip.lanes) * layer.groups, depth=1, rows=words, width=chip.lanes)
    return ServedTranspose(
        shape=LayerShape(problem, False, (x.channels, y.channels), whole=True),
        x=tensors.activation(layer.inputs[0]).flattened(),
        y=tensors.activation(layer.output).flattened(),
        groups=layer.groups,
        pixels=pixels,
        runs=channel_runs(lanes[: words * chip.lanes], chip.lanes),
    )


def _moved(tensors: ServedTensors, blocks: int, depth: int, rows: int, width: int = 1) -> Problem:
    """The problem of a layer whose results lie elsewhere than their operands: windows of one pixel."""
    chip = tensors.chip
    return Problem(
        images=tensors.batch, k_blocks=depth, n_blocks=blocks, in_rows=rows, in_w=width, out_rows=rows, out_w=width,
        kernel_h=1, kernel_w=1, stride_h=1, stride_w=1, dilation=1, pad_top=0, pad_left=0, row_step=1,
        stored_rows=rows, packed=False, flat=False, lanes=chip.lanes, rows=chip.rows, cols=chip.cols,
    )  # fmt: skip
