"""Single nodes of random models, with all their attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from random import Random
from typing import Any

import numpy as np

from .partial_model import Drawing, UnfitError

_UNARY = (
    "Relu", "Sigmoid", "Tanh", "Elu", "Selu", "LeakyRelu", "HardSigmoid", "Softplus", "Softsign", "Abs", "Neg", "Exp",
    "Sqrt", "Log", "Erf", "Reciprocal", "Sin", "Cos", "Identity", "Dropout", "ThresholdedRelu", "Celu", "HardSwish",
    "Mish", "Gelu", "Floor", "Ceil", "Round", "Sign", "Atan",
)  # fmt: skip
_REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare")


def window(drawing: Drawing, sides: Sequence[int], padded: bool = True) -> dict[str, Any]:
    """Kernel, strides and padding of a window over these sides."""
    random = drawing.random
    kernel = [random.randint(1, max(1, min(4, side))) for side in sides]
    values: dict[str, Any] = {"kernel_shape": kernel}
    if random.random() < 0.5:
        values["strides"] = [random.randint(1, 3) for _ in sides]
    if padded:
        auto = random.choice(("", "", "", "", "SAME_UPPER", "SAME_LOWER", "VALID"))
        if auto.startswith("SAME"):  # with longer strides ONNX Runtime begins within the operand
            values["strides"] = [
                min(step, size) for step, size in zip(values.get("strides", kernel), kernel, strict=True)
            ]
        if auto:
            values["auto_pad"] = auto
        elif random.random() < 0.6:
            values["pads"] = [random.randint(0, size - 1) for size in kernel * 2]
    return values


def _convolution(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor((3, 4))
    channels, *sides = drawing.shapes[x][1:]
    values = window(drawing, sides)
    group = random.choice([1, 1, channels, *[n for n in range(1, channels + 1) if channels % n == 0]])
    filters = group * random.randint(1, max(1, 12 // group))
    if "auto_pad" not in values and random.random() < 0.2:
        values["dilations"] = [2] * len(sides)
    kernel = values["kernel_shape"]
    if random.random() < 0.2:
        del values["kernel_shape"]
    fan = channels // group * prod(kernel)
    operands = [x, drawing.normal(filters, channels // group, *kernel, scale=fan**-0.5)]
    if random.random() < 0.6:
        operands.append(drawing.normal(filters, scale=0.3))
    drawing.node("Conv", operands, group=group, **values)


def _transposed_convolution(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor((3, 4))
    channels, *sides = drawing.shapes[x][1:]
    values = window(drawing, [4] * len(sides), padded=False)
    if random.random() < 0.4:
        values["pads"] = [random.randint(0, size - 1) for size in values["kernel_shape"] * 2]
    if random.random() < 0.3 and "strides" in values:
        values["output_padding"] = [random.randrange(step) for step in values["strides"]]
    group = random.choice([1, 1, 1, channels])
    filters = random.randint(1, 6) if group == 1 else 1
    fan = channels // group * prod(values["kernel_shape"])
    operands = [x, drawing.normal(channels, filters, *values["kernel_shape"], scale=fan**-0.5)]
    drawing.node("ConvTranspose", operands, group=group, **values)


def _pool(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor((3, 4))
    operator = random.choice(("MaxPool", "AveragePool"))
    values = window(drawing, drawing.shapes[x][2:])
    if random.random() < 0.25 and drawing.opset >= 10 and values.get("auto_pad", "") in ("", "VALID"):
        values["ceil_mode"] = 1
    if operator == "AveragePool" and random.random() < 0.4:
        values["count_include_pad"] = 1
    drawing.node(operator, [x], **values)


def _global_pool(drawing: Drawing) -> None:
    drawing.node(drawing.random.choice(("GlobalAveragePool", "GlobalMaxPool")), [drawing.tensor((3, 4))])


def _batch_normalisation(drawing: Drawing) -> None:
    x = drawing.tensor((2, 3, 4))
    channels = drawing.shapes[x][1]
    operands = [drawing.positive(channels), drawing.normal(channels), drawing.normal(channels, scale=0.3)]
    drawing.node("BatchNormalization", [x, *operands, drawing.positive(channels)], epsilon=1e-3)


def _instance_normalisation(drawing: Drawing) -> None:
    x = drawing.tensor((3, 4))
    channels = drawing.shapes[x][1]
    if prod(drawing.shapes[x][2:]) == 1:  # which ONNX Runtime computes with few digits
        raise UnfitError
    drawing.node("InstanceNormalization", [x, drawing.positive(channels), drawing.normal(channels)])


def _layer_normalisation(drawing: Drawing) -> None:
    x = drawing.tensor()
    axis = drawing.random.choice((-1, -1, 1))
    sizes = drawing.shapes[x][axis:]
    drawing.node("LayerNormalization", [x, drawing.positive(*sizes), drawing.normal(*sizes)], axis=axis)


def _unary(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor()
    operator, values = random.choice(_UNARY), dict[str, Any]()
    if operator in ("LeakyRelu", "Elu", "HardSigmoid", "ThresholdedRelu", "Celu") and random.random() < 0.6:
        values["alpha"] = random.choice((0.01, 0.1, 0.25, 0.5, 1.0, 1.5))
    if operator == "HardSigmoid" and random.random() < 0.5:
        values["beta"] = random.choice((0.0, 0.5, 0.6))
    if operator == "Gelu" and random.random() < 0.5:
        values["approximate"] = "tanh"
    drawing.node(operator, [x], **values)


def _clip(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor()
    low, high = random.choice((None, 0.0, -1.0, 0.5)), random.choice((None, 6.0, 1.0, 0.75))
    if drawing.opset < 11:
        bounds: dict[str, Any] = {name: value for name, value in (("min", low), ("max", high)) if value is not None}
        drawing.node("Clip", [x], **bounds)
        return
    operands = ["" if value is None else drawing.constant(value) for value in (low, high)]
    drawing.node("Clip", [x, *operands])


def _slopes(drawing: Drawing) -> None:
    x = drawing.tensor()
    shape = drawing.shapes[x]
    size = drawing.random.choice([(1,), (shape[1], *[1] * (len(shape) - 2)), shape[1:]])
    drawing.node("PRelu", [x, drawing.positive(*size)])


def _with_constant(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor()
    shape = drawing.shapes[x]
    along = [size if random.random() < 0.5 else 1 for size in shape]
    size = random.choice([(), (1,), (1, shape[1], *[1] * (len(shape) - 2)), shape[-1:], along, shape])
    operator = random.choice(("Add", "Sub", "Mul", "Div", "Add", "Mul", "Max", "Min", "Pow"))
    if operator == "Pow":
        drawing.node("Pow", [x, drawing.constant(random.choice((2.0, 3.0, 0.5, 1.0)))])
        return
    operands = [x, drawing.positive(*size) if operator == "Div" else drawing.normal(*size)]
    if random.random() < 0.3:
        operands.reverse()
    drawing.node(operator, operands)


def _of_two(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor()
    shape = drawing.shapes[x]
    mates = [
        name for name, other in drawing.shapes.items() if other == shape or (len(other) == 4 and _gate(other, shape))
    ]
    operator = random.choice(("Add", "Mul", "Sub", "Div", "Max", "Min", "Add", "Mul", "Sum"))
    drawing.node(operator, random.sample([x, random.choice(mates)], 2))


def _gate(other: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return other[:2] == shape[:2] and set(other[2:]) == {1}


def _concatenation(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor()
    shape = drawing.shapes[x]
    axis = random.randrange(1, len(shape))
    rest = [size for at, size in enumerate(shape) if at != axis]
    mates = [
        name
        for name, other in drawing.shapes.items()
        if len(other) == len(shape) and [size for at, size in enumerate(other) if at != axis] == rest
    ]
    parts = [x, *(random.choice(mates) for _ in range(random.randint(1, 2)))]
    drawing.node("Concat", parts, axis=random.choice((axis, axis - len(shape))))


def _padding(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor((3, 4))
    shape = drawing.shapes[x]
    mode = random.choice(("constant", "constant", "edge", "reflect"))
    pads = [0, 0] + [random.randint(0, min(2, side - 1)) for side in shape[2:]]
    pads += [0, random.choice((0, 0, 0, 1 if mode == "constant" else 0))]
    pads += [random.randint(0, min(2, side - 1)) for side in shape[2:]]
    if drawing.opset < 11:
        drawing.node("Pad", [x], mode=mode, pads=pads)
        return
    operands = [x, drawing.constant(pads, np.int64)]
    if mode == "constant" and random.random() < 0.4:
        operands.append(drawing.constant(random.choice((0.0, 0.0, 1.0))))
    drawing.node("Pad", operands, mode=mode)


def _resize(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor((4,))
    shape, mode = drawing.shapes[x], random.choice(("nearest", "linear", "nearest", "cubic"))
    scales = drawing.constant([1, 1, *(random.choice((1, 2, 3, 1.5, 0.5)) for _ in range(2))])
    if drawing.opset < 10:
        drawing.node("Upsample", [x, drawing.constant([1, 1, 2, random.randint(1, 3)])], mode="nearest")
        return
    if drawing.opset < 11:
        drawing.node("Resize", [x, scales], mode="nearest" if mode == "cubic" else mode)
        return
    modes = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    values: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": random.choice(modes)}
    if mode == "nearest":
        values["nearest_mode"] = random.choice(("floor", "round_prefer_floor", "ceil", "round_prefer_ceil"))
    if random.random() < 0.5:
        drawing.node("Resize", [x, "" if drawing.opset >= 13 else drawing.constant([]), scales], **values)
        return
    sizes = [*shape[:2], *(max(1, side * random.randint(1, 3) // random.randint(1, 2)) for side in shape[2:])]
    empty = ["", ""] if drawing.opset >= 13 else [drawing.constant([]), drawing.constant([])]
    drawing.node("Resize", [x, *empty, drawing.constant(sizes, np.int64)], **values)


def _blocks(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor((4,))
    operator = random.choice(("DepthToSpace", "SpaceToDepth"))
    values: dict[str, Any] = {}
    if operator == "DepthToSpace" and drawing.opset >= 11:
        values["mode"] = random.choice(("DCR", "CRD"))
    drawing.node(operator, [x], blocksize=2, **values)


def _slice(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor()
    shape = drawing.shapes[x]
    axes = sorted(random.sample(range(1, len(shape)), random.randint(1, len(shape) - 1)))
    starts = [random.randrange(shape[axis]) for axis in axes]
    ends = [
        random.choice((1 << 31, random.randint(start + 1, shape[axis])))
        for start, axis in zip(starts, axes, strict=True)
    ]
    starts = [start - shape[axis] if random.random() < 0.3 else start for start, axis in zip(starts, axes, strict=True)]
    if drawing.opset < 10:
        drawing.node("Slice", [x], starts=starts, ends=ends, axes=axes)
        return
    operands = [x, *(drawing.constant(some, np.int64) for some in (starts, ends, axes))]
    if random.random() < 0.4:
        operands.append(drawing.constant([random.choice((1, 1, 2, 3)) for _ in axes], np.int64))
    drawing.node("Slice", operands)


def _split(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor()
    shape = drawing.shapes[x]
    axis = random.randrange(1, len(shape))
    first = random.randint(1, max(1, shape[axis] - 1))
    sizes = [first, shape[axis] - first]
    if drawing.opset < 13:
        drawing.node("Split", [x], 2, axis=axis, split=sizes)
    else:
        drawing.node("Split", [x, drawing.constant(sizes, np.int64)], 2, axis=axis)


def _shape_alone(drawing: Drawing) -> None:
    """Flatten, Reshape, Squeeze, Unsqueeze, Transpose."""
    random, x = drawing.random, drawing.tensor()
    shape = drawing.shapes[x]
    match random.choice(("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Reshape", "Transpose")):
        case "Flatten":
            drawing.node("Flatten", [x], axis=random.choice((1, 1, -1)))
        case "Transpose":
            rest = list(range(1, len(shape)))
            random.shuffle(rest)
            drawing.node("Transpose", [x], perm=[0, *rest])
        case "Reshape":
            drawing.node("Reshape", [x, drawing.constant(_reshaped(random, shape), np.int64)])
        case operator:
            ones = [axis for axis, size in enumerate(shape) if size == 1 and axis]
            axes = random.sample(ones, 1) if operator == "Squeeze" and ones else [random.randint(1, len(shape) - 1)]
            if drawing.opset < 13:
                drawing.node(operator, [x], axes=axes)
            else:
                drawing.node(operator, [x, drawing.constant(axes, np.int64)])


def _reshaped(random: Random, shape: tuple[int, ...]) -> list[int]:
    """Another shape of as many values."""
    count, sizes = prod(shape), [1]
    if random.random() < 0.3 and len(shape) > 2:
        return [0, shape[1], -1] if random.random() < 0.5 else [1, -1, shape[-1]]
    for _ in range(random.randint(0, 2)):
        left = count // prod(sizes)
        sizes.append(random.choice([n for n in range(1, left + 1) if left % n == 0]))
    return [*sizes, random.choice((-1, count // prod(sizes)))]


def _reduction(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor()
    shape, operator = drawing.shapes[x], random.choice(_REDUCTIONS)
    axes = random.sample(range(1, len(shape)), random.randint(1, len(shape) - 1))
    keep = random.randint(0, 1)
    if len(shape) - len(axes) < 2 and not keep:
        raise UnfitError
    if random.random() < 0.4:
        axes = [axis - len(shape) for axis in axes]
    if drawing.opset >= (13 if operator == "ReduceSum" else 18):
        drawing.node(operator, [x, drawing.constant(axes, np.int64)], keepdims=keep)
    else:
        drawing.node(operator, [x], axes=axes, keepdims=keep)


def _softmax(drawing: Drawing) -> None:
    x = drawing.tensor()
    drawing.node("Softmax", [x], axis=drawing.random.choice((-1, -1, 1)))


def _product(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor((2, 3, 4))
    shape = drawing.shapes[x]
    width, wider = shape[-1], random.randint(1, 16)
    if len(shape) == 2 and random.random() < 0.6:
        turned = random.randint(0, 1)
        weights = drawing.normal(*((wider, width) if turned else (width, wider)), scale=width**-0.5)
        operands = [x, weights]
        if random.random() < 0.7:
            operands.append(drawing.normal(*random.choice(((wider,), (1, wider), (1,), (1, 1)))))
        values: dict[str, Any] = {"alpha": 0.5, "beta": 2.0} if random.random() < 0.2 else {}
        drawing.node("Gemm", operands, transB=turned, **values)
        return
    mates = [name for name, other in drawing.shapes.items() if len(other) == len(shape) > 2 and other[-2] == width]
    if mates and random.random() < 0.4:
        drawing.node("MatMul", [x, random.choice(mates)])
        return
    if random.random() < 0.15 and len(shape) > 2:
        drawing.node("MatMul", [drawing.normal(random.randint(1, 8), shape[-2], scale=shape[-2] ** -0.5), x])
        return
    drawing.node("MatMul", [x, drawing.normal(width, wider, scale=width**-0.5)])


def _gather(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor()
    shape = drawing.shapes[x]
    axis = random.randrange(1, len(shape))
    indices = [random.randrange(shape[axis]) for _ in range(random.randint(1, 4))]
    drawing.node("Gather", [x, drawing.constant(indices, np.int64)], axis=axis)


def _defined(drawing: Drawing) -> None:
    """Operators that others define."""
    random = drawing.random
    match random.choice(("LRN", "LpPool", "GlobalLpPool", "ReduceProd", "CumSum", "LogSoftmax", "ReduceLogSumExp")):
        case "LRN":
            drawing.node("LRN", [drawing.tensor((3, 4))], size=random.randint(1, 5), alpha=random.choice((1e-4, 0.5)))
        case "LpPool":
            x = drawing.tensor((3, 4))
            drawing.node("LpPool", [x], p=random.randint(1, 2), **window(drawing, drawing.shapes[x][2:]))
        case "GlobalLpPool":
            drawing.node("GlobalLpPool", [drawing.tensor((3, 4))], p=random.randint(1, 2))
        case "CumSum":
            x = drawing.tensor()
            axis = drawing.constant(random.randrange(1, len(drawing.shapes[x])), np.int64)
            drawing.node("CumSum", [x, axis], exclusive=random.randint(0, 1), reverse=random.randint(0, 1))
        case "LogSoftmax":
            drawing.node("LogSoftmax", [drawing.tensor()], axis=random.choice((-1, -1, 1)))
        case operator:
            x = drawing.tensor()
            axis = random.randrange(1, len(drawing.shapes[x]))
            if drawing.opset < 18:
                drawing.node(operator, [x], axes=[axis])
            else:
                drawing.node(operator, [x, drawing.constant([axis], np.int64)])


def _moved(drawing: Drawing) -> None:
    """Tile, Expand, CenterCropPad, GatherElements, ReverseSequence and Trilu, by constants."""
    random, x = drawing.random, drawing.tensor()
    shape = drawing.shapes[x]
    axis = random.randrange(1, len(shape))
    sizes = [1] * len(shape)
    match random.choice(("Tile", "Expand", "CenterCropPad", "GatherElements", "ReverseSequence", "Trilu")):
        case "Tile":
            sizes[axis] = random.randint(1, 3)
            drawing.node("Tile", [x, drawing.constant(sizes, np.int64)])
        case "Expand":
            sizes[axis] = random.randint(1, 6)
            drawing.node("Expand", [x, drawing.constant(sizes if shape[axis] == 1 else shape, np.int64)])
        case "CenterCropPad":
            drawing.node("CenterCropPad", [x, drawing.constant([random.randint(1, 10)], np.int64)], axes=[axis])
        case "GatherElements":
            places = [random.randrange(shape[axis]) for _ in range(prod(shape))]
            drawing.node("GatherElements", [x, drawing.constant(np.reshape(places, shape), np.int64)], axis=axis)
        case "ReverseSequence":
            lengths = drawing.constant([random.randint(1, shape[1])], np.int64)
            drawing.node("ReverseSequence", [x, lengths], batch_axis=0, time_axis=1)
        case operator:
            shift = drawing.constant(random.randint(-1, 2), np.int64)
            drawing.node(operator, [x, shift], upper=random.randint(0, 1))


#: How often each is drawn, relative to the others.
NODES: dict[Callable[[Drawing], None], float] = {
    _convolution: 6,
    _transposed_convolution: 1,
    _pool: 3,
    _global_pool: 0.7,
    _batch_normalisation: 1.5,
    _instance_normalisation: 0.4,
    _layer_normalisation: 0.8,
    _unary: 6,
    _clip: 1,
    _slopes: 0.5,
    _with_constant: 3,
    _of_two: 3,
    _concatenation: 2,
    _padding: 1,
    _resize: 1,
    _blocks: 0.7,
    _slice: 1,
    _split: 0.7,
    _shape_alone: 3,
    _reduction: 1.5,
    _softmax: 0.7,
    _product: 2.5,
    _gather: 0.6,
    _defined: 1.5,
    _moved: 1,
}
