"""Functions of one tensor."""

from __future__ import annotations

from math import inf

import numpy as np

from ..building.context import FloatContext, Operator
from ..building.layers import clip_at, numbers_by_channel
from ..building.maps import emit_constant
from ..building.pictures import settle
from ..building.tables import apply_function, emit_table, find_function, note_truth, or_table
from ..errors import Refused, operator_name
from ..floats import FloatLayer
from ..nodes import Attributes, Node
from ..pointwise import JUMPS, SEVERAL, TRUTHS, UNARY, function


def table(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """An operator that is always a table."""
    for name in node.input:
        if name in context.views:
            settle(context, name)
    composed = find_function(context, node)
    if composed is None and node.op_type == "Mod" and not np.all(context.constants.get(node.input[-1], 1)):
        raise Refused("nothing has a remainder by 0; let it divide by another number")
    if composed is None:
        raise Refused("of several tensors, or with constants that differ from channel to channel")
    emit_table(context, node, *composed)


def jump(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """A table, where the host cannot do it."""
    context.only_if_generous(
        "it jumps: where 8 bits move what it reads past a jump, the result is off by a whole number; let it be the "
        "last, which the host does"
    )
    table(context, node, attributes)


def compare(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """A truth for each number: no layer, but a part of what chooses by it."""
    if not _only_chooses(context, node.output[0]):
        raise Refused("no layer does that; only a Where may choose by it, or a Cast make numbers of it")
    for name in node.input:
        if name in context.views and context.views[name].value not in context.truths:
            settle(context, name)
    composed = find_function(context, node)
    if composed is None:
        raise Refused("compares several tensors, or with constants that differ from channel to channel")
    note_truth(context, node, *composed)


def _only_chooses(context: FloatContext, name: str) -> bool:
    """Whether nothing but choices (Where) and truths that only they read follows from a truth; or numbers (0, 1), which
    jump, where the host cannot make them."""
    readers = context.model.readers.get(name, ())
    if name in context.model.outputs or not readers:
        return False
    return all(_chooses(context, reader, name) for reader in readers)


def _chooses(context: FloatContext, reader: Node, name: str) -> bool:
    if reader.op_type == "Where":
        return list(reader.input).index(name) == 0
    if reader.op_type == "Cast":
        return context.generous
    return operator_name(reader) in TRUTHS and _only_chooses(context, reader.output[0])


def prelu(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """With one slope a table; otherwise x + (slope - 1) * min(x, 0), with a slope for each channel."""
    view = settle(context, node.input[0])
    slope = context.constant(node, 1, "slope")
    if (composed := find_function(context, node)) is not None:
        emit_table(context, node, *composed)
        return
    below = apply_function(context, view, f"{node.output[0]}/below", function("Min", 0.0))
    try:
        gain = numbers_by_channel(context, slope, view) - 1
    except Refused:
        factor = emit_constant(context, slope.astype(np.float64) - 1, view, node.output[0])
        name = context.fresh(f"{node.output[0]}/slope")
        context.emit(FloatLayer("mul", name, (below.value, factor.value)), view.size)
        context.emit_like(FloatLayer("add", node.output[0], (view.value, name)), view)
        return
    zeros, weights = np.zeros(view.channels), gain[:, None, None, None]
    scaled = FloatLayer("depthwise", context.fresh(f"{node.output[0]}/slope"), (below.value,), w=weights, bias=zeros)
    context.emit(scaled, view.size)
    context.emit_like(FloatLayer("add", node.output[0], (view.value, scaled.output)), view)


def relu(context: FloatContext, node: Node, attributes: Attributes) -> None:
    clip_at(context, node, True, inf)


def clip(context: FloatContext, node: Node, attributes: Attributes) -> None:
    if context.model.opset < 11:
        low, high = attributes.get("min", -inf), attributes.get("max", inf)
    else:
        bounds = (context.optional(node, index, what) for index, what in ((1, "minimum"), (2, "maximum")))
        low, high = (
            default if bound is None else float(bound.flat[0])
            for bound, default in zip(bounds, (-inf, inf), strict=True)
        )
    low, high = (-inf if low < -3e38 else low), (inf if high > 3e38 else high)  # the largest float means none
    if low not in (0.0, -inf) or not high >= 0:
        raise Refused(f"clips at {low:g} and {high:g}; the lower bound must be 0 or absent, the upper 0 or more")
    if low == -inf and high == inf:
        context.pass_on(node)
    else:
        clip_at(context, node, low == 0, high)


OPERATORS: dict[str, Operator] = {
    **dict.fromkeys(sorted(UNARY | SEVERAL - {"Max", "Min", "PRelu"}), table),
    **dict.fromkeys(sorted(JUMPS), jump),
    **dict.fromkeys(sorted(TRUTHS), compare),
    "Clip": or_table(clip),
    "PRelu": prelu,
    "Relu": or_table(relu),
}
