"""Sums of 32 bits: additions of tensors, and what they are clipped at."""

from __future__ import annotations

from dataclasses import replace

from ...graph import MOVED, Layer
from ...layers import NO_CLAMP
from ..errors import Refused
from ..nodes import Attributes, Node
from .context import ZEROS, IntegerContext, IntegerOperator, Tensor

#: Bounds of a sum that has not been clipped.
WIDE = (-(1 << 31), (1 << 31) - 1)


def clip(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    view = context.view(node.input[0])
    low, high = (context.optional(node, index, what) for index, what in ((1, "minimum"), (2, "maximum")))
    if view.value is None:
        low = view.low if low is None else max(int(low.flat[0]) - view.zero, view.low)
        high = view.high if high is None else min(int(high.flat[0]) - view.zero, view.high)
        context.views[node.output[0]] = replace(view, low=low, high=high)
        return
    bounds = (
        -128 if low is None else max(int(low.flat[0]) - view.zero, -128),
        NO_CLAMP if high is None else min(int(high.flat[0]) - view.zero, NO_CLAMP),
    )
    relu, clamp = _bounds(*bounds)
    maker = context.layers.get(view.value)
    if maker and context.used_once(node.input[0]) and maker.output == node.input[0] and _clampable(maker):
        del context.layers[maker.output]
        layer = replace(maker, output=node.output[0], relu=relu, clamp=clamp)
    else:
        layer = Layer("max_pool", node.output[0], (view.value,), relu=relu, clamp=clamp)
    context.emit(layer, view.zero, view.step)


def cast(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    from onnx import TensorProto

    view, to = context.view(node.input[0]), attributes["to"]
    if view.value is not None:
        if to != TensorProto.INT32:
            raise Refused("tensors can be cast only to int32, for additions")
        context.views[node.output[0]] = Tensor(None, view.zero, view.step, (view.value,))
        return
    zero = ZEROS.get(to)
    if zero is None or zero != view.zero:
        raise Refused(f"a sum with zero point {view.zero}; it must be cast to uint8 at 128 or to int8 at 0")
    if view.low < -128 or view.high > 127:
        raise Refused("a sum must be clipped to the 8-bit range before it is cast; this one would wrap")
    relu, clamp = _bounds(view.low, view.high)
    if len(view.addends) == 2:
        layer = Layer("add", node.output[0], view.addends, relu=relu, clamp=clamp)
    elif len(view.addends) == 1:
        layer = Layer("max_pool", node.output[0], view.addends, relu=relu, clamp=clamp)
    else:
        raise Refused(f"adds {len(view.addends)} tensors; an addition has two")
    context.emit(layer, zero, view.step)


def add(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    _shift(context, node, 1)


def subtract(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    _shift(context, node, -1)


def _shift(context: IntegerContext, node: Node, sign: int) -> None:
    """Add of two sums, or Add and Sub of a constant (the zero point)."""
    names = list(node.input)
    if sign > 0 and names[0] in context.constants:
        names.reverse()
    first = context.view(names[0])
    if first.value is not None:
        raise Refused("8-bit tensors are added by QLinearAdd, or after a Cast to int32")
    if first.low > -(1 << 31) or first.high < (1 << 31) - 1:
        raise Refused("a sum is clipped once, before it is cast back")
    if names[1] in context.constants:
        number = int(context.number(node, list(node.input).index(names[1]), "addend"))
        context.views[node.output[0]] = replace(first, zero=first.zero + sign * number)
        return
    second = context.view(names[1])
    if second.value is not None or sign < 0 or second.low > -(1 << 31) or second.high < (1 << 31) - 1:
        raise Refused("only sums of two int32 tensors are supported")
    both = first.addends + second.addends
    context.views[node.output[0]] = replace(first, zero=first.zero + second.zero, addends=both)


def _bounds(low: int, high: int) -> tuple[bool, int]:
    """relu and clamp. Raises Refused."""
    if low not in (-128, 0) or not 0 <= high <= NO_CLAMP:
        raise Refused(f"clips at {low} and {high}; the lower bound must be 0 or absent, the upper 0..{NO_CLAMP}")
    return low == 0, high


def _clampable(layer: Layer) -> bool:
    return layer.kind not in ("normalise", *MOVED) and not layer.relu and layer.clamp == NO_CLAMP


OPERATORS: dict[str, IntegerOperator] = {"Add": add, "Cast": cast, "Clip": clip, "Sub": subtract}
