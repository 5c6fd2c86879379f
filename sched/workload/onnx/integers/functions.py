"""Functions of domain meshloom, which `writer` writes."""

from __future__ import annotations

from meshloom.hw.spec.isa import SCALE_SHIFT

from ...graph import Layer
from ...layers import SCALE_LIMIT
from .. import grouped, multiplying, normalising
from ..errors import Refused
from ..nodes import Attributes, Node
from .context import IntegerContext, IntegerOperator


def normalise(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    view = context.tensor(node.input[0])
    if view.zero != 128:
        raise Refused("an int8 tensor; functions of domain meshloom take uint8 with zero point 128")
    by, (_, names) = next(entry for entry in normalising.FUNCTIONS.items() if entry[1][0] == node.op_type)
    numbers = {name: float(context.number(node, 1 + index, name)) for index, name in enumerate(names)}
    context.emit(normalising.layer_of(by, node.output[0], view.value or "", numbers), 128, view.step)


def read_grouped(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    kind: grouped.GroupedKind = "product" if node.op_type == grouped.FUNCTIONS["product"][0] else "transpose"
    _, tensors, names = grouped.FUNCTIONS[kind]
    views = [context.tensor(name) for name in node.input[: len(tensors)]]
    if any(view.zero != 128 for view in views):
        raise Refused("an int8 tensor; functions of domain meshloom take uint8 with zero point 128")
    numbers = {name: context.constant(node, len(tensors) + index, name) for index, name in enumerate(names)}
    layer = grouped.layer_of(kind, node.output[0], tuple(view.value or "" for view in views), numbers)
    context.emit(layer, 128, views[0].step)


def multiply(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    views = [context.tensor(name) for name in node.input[:2]]
    if any(view.zero != 128 for view in views):
        raise Refused("an int8 tensor; functions of domain meshloom take uint8 with zero point 128")
    m = float(context.number(node, 2, "scale")) * 2**SCALE_SHIFT
    if not m.is_integer() or not 1 <= m <= SCALE_LIMIT:
        raise Refused(
            f"scale {m:g} / 2^{SCALE_SHIFT} must be m / 2^{SCALE_SHIFT}, m a whole number of 1..{SCALE_LIMIT}"
        )
    a, b = (view.value or "" for view in views)
    context.emit(Layer("mul", node.output[0], (a, b), scale=int(m)), 128, views[0].step)


OPERATORS: dict[str, IntegerOperator] = {
    **{f"{normalising.DOMAIN}.{name}": normalise for name, _ in normalising.FUNCTIONS.values()},
    f"{normalising.DOMAIN}.{multiplying.NAME}": multiply,
    **{f"{normalising.DOMAIN}.{name}": read_grouped for name, _, _ in grouped.FUNCTIONS.values()},
}
