"""Operators that have no layers of their own, as the operators that they are defined by.

ONNX defines many of its operators by others, in a function body that belongs to the opset (CenterCropPad, CastLike,
SwiGLU). Such bodies are put in place of what no operator's function here reads. `DEFINITIONS` are of operators that
ONNX defines in words alone, or by numbers that 8 bits do not hold (the sum of exponentials without their maximum).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..constant_nodes import computable
from ..errors import Refused, operator_name
from ..instead import Instead
from ..load import CheckedModel
from ..nodes import Node, attributes
from ..reader_context import ENDS, last_tensors

if TYPE_CHECKING:
    from onnx import FunctionProto

#: From these opsets on the axes of a sum, and of a maximum or a mean, are an operand; a LogSoftmax is over one axis.
_SUM_AXES, _AXES, _ONE_AXIS = 13, 18, 13
#: What MeanVarianceNormalization adds to a deviation, as it is added to a variance.
_EPSILON = 1e-9**2
#: Powers from which 8 bits still hold the root.
_HIGHEST_POWER = 2
#: Factors along an axis that are written down.
_MOST_FACTORS = 64
#: Numbers along an axis that are added up one after the other.
_LONGEST_SUM = 4096
#: ... and in one window: more taps of a channel by itself take products with the others, too.
_LONGEST_WINDOW = 31
#: How deep bodies may lie in each other.
_DEEPEST = 4
_NO_SHAPE = "the shape of its operand is not known; export it with shapes"


@dataclass
class _Definition(Instead):
    """The nodes that take the place of one."""

    model: CheckedModel

    def new(self, kind: str) -> str:
        """A name that nodes of another definition in the model do not have."""
        name = super().new(kind)
        while name in self.model.readers:
            name += "_"
        return name

    @property
    def options(self) -> dict[str, Any]:
        return attributes(self.node)

    @property
    def x(self) -> str:
        return self.node.input[0]

    @property
    def y(self) -> str:
        return self.node.output[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the operand; empty where it is not known before the model is read."""
        return self.model.shapes.get(self.x, ())

    @property
    def axes(self) -> list[int]:
        """What a reduction goes over: of an attribute or of a constant operand; all axes if it says none. Empty where
        that is not known, or nothing is reduced."""
        some, rank = self.options.get("axes", []), len(self.shape)
        if len(self.node.input) > 1 and self.node.input[1]:
            known = self.model.constants.get(self.node.input[1])
            if known is None:
                return []
            some = known.tolist()
        if not some and self.options.get("noop_with_empty_axes"):
            return []
        return sorted({axis % rank for axis in some} if rank else some) or list(range(rank))

    def check_axes(self) -> None:
        """Raises Refused where a reduction goes over no known axis."""
        if not self.axes:
            raise Refused("its axes are computed or none; they must be constants")

    def power(self) -> int:
        """Which powers are added up. Raises Refused for those whose sums 8 bits do not hold."""
        if (p := int(self.options.get("p", 2))) > _HIGHEST_POWER:
            raise Refused(f"sums of powers of {p} are beyond 8 bits; export it with p = 2 or 1")
        return p

    def without_pixels(self) -> str:
        """Why an operator over pixels has none."""
        return f"its operand has shape {list(self.shape)}, must have pixels" if self.shape else _NO_SHAPE

    def kept(self, x: str) -> None:
        """The result of a reduction, whose axes are still there in `x`."""
        if self.options.get("keepdims", 1):
            self.op("Identity", x, to=self.y)
        elif self.model.opset < _SUM_AXES:
            self.op("Squeeze", x, to=self.y, axes=self.axes)
        else:
            self.op("Squeeze", x, self.integers(*self.axes), to=self.y)

    def reduced(self, operator: str, x: str, axes: Sequence[int], to: str = "", **options: Any) -> str:
        """A reduction in the form that the model's opset has."""
        since = _SUM_AXES if operator == "ReduceSum" else _AXES
        if self.model.opset < since:
            return self.op(operator, x, to=to, axes=list(axes), **options)
        return self.op(operator, x, self.integers(*axes), to=to, **options)

    def real(self, number: float) -> str:
        return self.array(number, np.float32)


def _mean(d: _Definition) -> None:
    whole = d.op("Sum", *d.node.input)
    d.op("Mul", whole, d.real(1 / len(d.node.input)), to=d.y)


def _less_maximum(d: _Definition, axes: Sequence[int]) -> tuple[str, str, str]:
    """The maximum over axes, the operand less that, and the logarithm of the sum of its exponentials."""
    most = d.reduced("ReduceMax", d.x, axes)
    less = d.op("Sub", d.x, most)
    total = d.reduced("ReduceSum", d.op("Exp", less), axes)
    return most, less, d.op("Log", total)


def _log_softmax(d: _Definition) -> None:
    if d.y in last_tensors(d.model, d.model.constants):
        raise Refused("it is left out at the end, or the host's")
    old, rank = d.model.opset < _ONE_AXIS, len(d.shape)
    axis = d.options.get("axis", 1 if old else -1)
    if old and not rank:
        raise Refused(_NO_SHAPE)
    _, less, total = _less_maximum(d, range(axis % rank, rank) if old else [axis])
    d.op("Sub", less, total, to=d.y)


def _log_sum_of_exponentials(d: _Definition) -> None:
    d.check_axes()
    most, _, total = _less_maximum(d, d.axes)
    d.kept(d.op("Add", most, total))


def _product(d: _Definition) -> None:
    """Of the parts along each axis, one by one."""
    d.check_axes()
    if not d.shape:
        raise Refused(_NO_SHAPE)
    if (longest := max(d.shape[axis] for axis in d.axes)) > _MOST_FACTORS:
        raise Refused(f"multiplies {longest} numbers along an axis, may multiply {_MOST_FACTORS}; take fewer at a time")
    whole = d.x
    for axis in d.axes:
        parts = [d.op("Gather", whole, d.integers(at), axis=axis) for at in range(d.shape[axis])]
        whole = reduce(lambda before, part: d.op("Mul", before, part), parts)
    d.kept(whole)


def _standardised(d: _Definition) -> None:
    """MeanVarianceNormalization; a first axis of 1 is no part of what is normalised."""
    rank = len(d.shape)
    axes = [axis for axis in d.options.get("axes", [0, 2, 3]) if axis]
    if rank:
        axes = [axis for axis in (each % rank - rank for each in axes) if d.shape[axis] > 1]
    if not axes:
        raise Refused("no axis but the first has several numbers; leave it out")
    less = d.op("Sub", d.x, d.reduced("ReduceMean", d.x, axes))
    variance = d.reduced("ReduceMean", d.op("Mul", less, less), axes)
    d.op("Div", less, d.op("Sqrt", d.op("Add", variance, d.real(_EPSILON))), to=d.y)


def _power(d: _Definition, p: int) -> str:
    """Each number's absolute value to the power of `p`."""
    return d.op("Abs", d.x) if p == 1 else d.op("Mul", d.x, d.x)


def _root(d: _Definition, x: str, p: int) -> None:
    d.op("Identity" if p == 1 else "Sqrt", x, to=d.y)


def _lp_pool(d: _Definition) -> None:
    """What average pools compute, as many times as a window has pixels."""
    options = dict(d.options)
    p = d.power()
    options.pop("p", None)
    if options.pop("ceil_mode", 0) or max(options.pop("dilations", [1])) > 1:
        raise Refused("with ceil_mode or dilations; export it with pads instead, and without dilations")
    means = d.op("AveragePool", _power(d, p), count_include_pad=1, **options)
    _root(d, d.op("Mul", means, d.real(prod(options["kernel_shape"]))), p)


def _global_lp_pool(d: _Definition) -> None:
    p, rank = d.power(), len(d.shape)
    if rank < 3:
        raise Refused(d.without_pixels())
    _root(d, d.reduced("ReduceSum", _power(d, p), range(2, rank)), p)


def _local_response_normalisation(d: _Definition) -> None:
    """Sums of neighbouring channels are a convolution of one pixel."""
    options = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0} | d.options
    size, rank = int(options["size"]), len(d.shape)
    if rank < 3:
        raise Refused(d.without_pixels())
    before = np.subtract.outer(np.arange(d.shape[1]), np.arange(d.shape[1]))
    near = (before <= (size - 1) // 2) & (-before <= size // 2)
    w = (near * (options["alpha"] / size)).reshape(*near.shape, *[1] * (rank - 2))
    biases = np.full(len(near), options["bias"])
    divisors = d.op("Conv", d.op("Mul", d.x, d.x), d.array(w, np.float32), d.array(biases, np.float32))
    d.op("Mul", d.x, d.op("Pow", divisors, d.real(-options["beta"])), to=d.y)


def _compress(d: _Definition) -> None:
    """With a constant condition."""
    if (chosen := d.model.constants.get(d.node.input[1])) is None:
        raise Refused(f"its condition ({d.node.input[1]!r}) is computed, must be a constant; slice or gather instead")
    places, axis = np.flatnonzero(chosen).tolist(), d.options.get("axis")
    if axis is None:
        d.op("Gather", d.reshape(d.x, -1), d.integers(*places), to=d.y, axis=0)
    else:
        d.op("Gather", d.x, d.integers(*places), to=d.y, axis=axis)


def _reverse_sequence(d: _Definition) -> None:
    """Of constant lengths, all equal."""
    lengths, time = d.model.constants.get(d.node.input[1]), int(d.options.get("time_axis", 0))
    if lengths is None or np.unique(lengths).size != 1:
        raise Refused(f"its lengths ({d.node.input[1]!r}) are computed or differ; they must be one constant")
    if not d.shape:
        raise Refused(_NO_SHAPE)
    places, length = list(range(d.shape[time])), int(lengths[0])
    places[:length] = places[:length][::-1]
    d.op("Gather", d.x, d.integers(*places), to=d.y, axis=time)


def _sums_so_far(d: _Definition) -> None:
    """CumSum: a product with a triangle of ones, which of channels is a convolution of one pixel; of a few rows or
    columns windows over each and all before it."""
    number, rank = d.model.constants.get(d.node.input[1]), len(d.shape)
    if number is None:
        raise Refused(f"its axis ({d.node.input[1]!r}) is computed, must be a constant")
    if not rank:
        raise Refused(_NO_SHAPE)
    axis = int(number.ravel()[0]) % rank
    if (length := d.shape[axis]) > _LONGEST_SUM:
        raise Refused(f"adds up {length} numbers along an axis, may add {_LONGEST_SUM}; take fewer at a time")
    exclusive, reverse = (bool(d.options.get(name, 0)) for name in ("exclusive", "reverse"))
    if rank > 3 and axis > 1 and length <= _LONGEST_WINDOW:
        taps = np.ones(length)
        taps[-1] -= exclusive
        sizes = [length if each == axis else 1 for each in range(2, rank)]
        w = np.broadcast_to((taps[::-1] if reverse else taps).reshape(sizes), (d.shape[1], 1, *sizes))
        pads = [0] * (2 * (rank - 2))
        pads[axis - 2 + (rank - 2) * reverse] = length - 1
        d.op("Conv", d.x, d.array(w, np.float32), to=d.y, group=d.shape[1], pads=pads)
        return
    ones = np.triu(np.ones((length, length), np.float32), int(exclusive))  # [from, to]
    ones = ones.T if reverse else ones
    if axis == 1 and rank > 2:
        d.op("Conv", d.x, d.array(ones.T.reshape(length, length, *[1] * (rank - 2))), to=d.y)
        return
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    last = d.op("Transpose", d.x, perm=order)
    d.op("Transpose", d.op("MatMul", last, d.array(ones)), to=d.y, perm=order)


def _columns_to_image(d: _Definition) -> None:
    """Col2Im: a transposed convolution, each of whose filters has a one where its channel's numbers are added."""
    image, block = (d.model.constants.get(name) for name in d.node.input[1:3])
    if image is None or block is None:
        raise Refused("the sizes of its image and its block are computed, must be constants")
    if len(d.shape) != 3:
        raise Refused(_NO_SHAPE)
    axes, taps = len(block), int(block.prod())
    options: dict[str, Any] = {"strides": [1] * axes, "dilations": [1] * axes, "pads": [0] * (2 * axes)} | d.options
    pads, strides = np.reshape(options["pads"], (2, axes)), np.array(options["strides"])
    rest = image + pads.sum(axis=0) - np.array(options["dilations"]) * (block - 1) - 1
    channels = d.shape[1] // taps
    w = np.tile(np.eye(taps, dtype=np.float32).reshape(taps, 1, *block), (channels, *[1] * (axes + 1)))
    x = d.reshape(d.x, d.shape[0], d.shape[1], *(rest // strides + 1).tolist())
    options["output_padding"] = (rest % strides).tolist()
    d.op("ConvTranspose", x, d.array(w), to=d.y, group=channels, **options)


#: Writes the nodes. Raises Refused where it cannot: then the node stays as it is, and is refused.
DEFINITIONS: Mapping[str, Callable[[_Definition], None]] = {
    "Col2Im": _columns_to_image,
    "Compress": _compress,
    "CumSum": _sums_so_far,
    "GlobalLpPool": _global_lp_pool,
    "LRN": _local_response_normalisation,
    "LogSoftmax": _log_softmax,
    "LpPool": _lp_pool,
    "Mean": _mean,
    "MeanVarianceNormalization": _standardised,
    "ReduceProd": _product,
    "ReduceLogSumExp": _log_sum_of_exponentials,
    "ReverseSequence": _reverse_sequence,
}
#: What operators decide by, where the chip cannot go on with that.
DECISIONS: Mapping[str, str] = {
    "ArgMax": "which number is the largest",
    "ArgMin": "which number is the least",
    "Hardmax": "which number is the largest",
    "TopK": "which numbers are the largest",
}


def put_definitions_in_place(model: CheckedModel, readable: Container[str]) -> CheckedModel:
    """The model with the nodes that define them in place of operators that are not `readable`."""
    for _ in range(_DEEPEST):
        before = model
        model = before.with_nodes([other for node in before.nodes for other in _defined(before, node, readable)])
        if model is before:
            break
    return model


def why_undefined(model: CheckedModel, node: Node) -> str:
    """Why an operator that others define here is not written down so, or one that decides is none; empty of another."""
    if node.domain not in ("", "ai.onnx"):
        return ""
    if node.op_type in DECISIONS:
        return (
            f"{DECISIONS[node.op_type]} is for the host to say, at the end of a model: 8 bits do not tell numbers "
            "apart that are close; export what stands before and behind it as two models"
        )
    if node.op_type in DEFINITIONS:
        try:
            DEFINITIONS[node.op_type](_Definition(node, model))
        except Refused as refusal:
            return str(refusal)
    return ""


def _defined(model: CheckedModel, node: Node, readable: Container[str]) -> list[Node]:
    """The nodes that take the place of a node."""
    from onnx import defs

    if node.domain not in ("", "ai.onnx") or operator_name(node) in readable or node.op_type == "Constant":
        return [node]
    if node.op_type in DEFINITIONS:
        definition = _Definition(node, model)
        try:
            DEFINITIONS[node.op_type](definition)
        except Refused:
            return [node]
        return definition.nodes
    if node.op_type in ENDS or not computable(node):
        return [node]
    try:
        schema: Any = defs.get_schema(node.op_type, model.opset)  # onnx declares no functions of it
    except defs.SchemaError:  # it is no operator of this opset
        return [node]
    body = _body(model, node, schema)
    return [node] if body is None else _called(_Definition(node, model), schema, body)


def _body(model: CheckedModel, node: Node, schema: Any) -> FunctionProto | None:
    """The function body that ONNX has for an operator in the model's opset, if its nodes have none of their own."""
    from onnx import FunctionProto

    text = b""
    if versions := [each for each in schema.context_dependent_function_opset_versions if each <= model.opset]:
        text = schema.get_context_dependent_function_with_opset_version(
            max(versions), node.SerializeToString(), [_type(model, name) for name in node.input]
        )
    elif versions := [each for each in schema.function_opset_versions if each <= model.opset]:
        text = schema.get_function_with_opset_version(max(versions))
    body = FunctionProto.FromString(text)
    plain = body.node and all(computable(inner) for inner in body.node)
    return body if plain else None


def _type(model: CheckedModel, name: str) -> bytes:
    """A tensor's type as ONNX's functions ask for it."""
    from onnx import TypeProto, helper

    if name not in model.types:
        return TypeProto().SerializeToString()
    return helper.make_tensor_type_proto(model.types[name], model.shapes.get(name)).SerializeToString()


def _called(instead: _Definition, schema: Any, body: FunctionProto) -> list[Node]:
    """The nodes of a body for what one node gives it."""
    from onnx import NodeProto

    node = instead.node
    operands = [*node.input, *[""] * len(body.input)]
    names = {
        "": "",
        **dict(zip(body.input, operands, strict=False)),
        **dict(zip(body.output, node.output, strict=False)),
    }
    defaults = {name: each.default_value for name, each in schema.attributes.items() if each.default_value.name}
    options = defaults | {item.name: item for item in node.attribute}
    for inner in body.node:
        copy = NodeProto()
        copy.CopyFrom(inner)
        del copy.input[:], copy.output[:], copy.attribute[:]
        copy.input.extend(names[name] for name in inner.input)
        for at, name in enumerate(inner.output):
            copy.output.append(names.setdefault(name, f"{instead.new(name)}_{at}" if at else instead.new(name)))
        for item in inner.attribute:
            if not item.ref_attr_name:
                copy.attribute.append(item)
            elif item.ref_attr_name in options:
                own = copy.attribute.add()
                own.CopyFrom(options[item.ref_attr_name])
                own.name = item.name
        copy.name = next(filter(None, copy.output))
        instead.nodes.append(copy)
    return instead.nodes
