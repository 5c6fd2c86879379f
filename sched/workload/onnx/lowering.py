"""From ONNX nodes to layers, node by node; what cannot be is collected and reported at once.

Used for integer models (`reader`) and for float ones (`float_reader`), each with a context of its own and a table of
operators. An operator's function looks at a node whose operands are known and adds layers to the context. A node that
is refused does not end the work: its result is taken as it is known from shape inference, so that the nodes after it
are checked too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..layers import WorkloadError
from .errors import NodeRefusal, Refused, UnsupportedError, node_name, operator_name
from .load import CheckedModel
from .nodes import Attributes, Node, attributes
from .passes.definitions import why_undefined
from .pointwise import PROCESSOR
from .reader_context import SOFTMAX, ReaderContext
from .tabular import DOMAIN

C = TypeVar("C", bound=ReaderContext[Any])
_MALFORMED = (IndexError, KeyError, TypeError, ValueError, ArithmeticError)


def lower_nodes(context: C, table: Mapping[str, Callable[[C, Node, Attributes], None]]) -> None:
    """Lowers all nodes. `table`: operator (with its domain unless standard) to its function, which takes the context,
    the node and its attributes, and raises Refused. Raises UnsupportedError that lists every node that was refused."""
    for node in context.model.nodes:
        try:
            if context.fold(node):
                continue
        except Refused as refusal:  # a constant that cannot be: nothing behind it is known
            context.problems.append(NodeRefusal(node_name(node), operator_name(node), str(refusal), tuple(node.output)))
            break
        if any(name and name not in context.views and name not in context.constants for name in node.input):
            readable = operator_name(node) in table or context.at_end(node)  # its operand's maker has been refused
            context.refuse(node, None if readable else _no_layer(context.model, node))
            continue
        try:
            _lower(context, node, table.get(operator_name(node)))
        except Refused as refusal:
            context.refuse(node, str(refusal))
        except WorkloadError:
            raise
        except MemoryError as error:
            context.refuse(node, f"takes more memory than there is ({error})")
        except _MALFORMED as error:  # what checker and functions do not look for: empty constants, absurd sizes
            context.refuse(node, f"its operands or attributes are invalid ({error})")
    if context.problems:
        raise UnsupportedError(context.model.name, context.problems)


def _lower(context: C, node: Node, function: Callable[[C, Node, Attributes], None] | None) -> None:
    if node.op_type in SOFTMAX and node.domain in ("", "ai.onnx"):
        if function is not None and (context.is_empty() or not context.at_end(node)):
            function(context, node, attributes(node))
            return
        _check_end(context, node)
    elif not node.input or node.input[0] not in context.before:
        try:
            if function is None:
                raise Refused(_no_layer(context.model, node))
            function(context, node, attributes(node))
            return
        except Refused:
            if not (node.input and context.at_end(node) and context.is_result(context.view(node.input[0]))):
                raise
    source = node.input[0]
    context.view(source)
    context.left.append(node)
    for name in node.output:
        context.views[name], context.before[name] = context.views[source], context.before.get(source, source)


def _check_end(context: ReaderContext[Any], node: Node) -> None:
    """Refuses a softmax that is not at the end, or that would change the order of the classes, axis 1."""
    if not context.at_end(node):
        raise Refused("inside the network; only one at its end can be left out")
    shape, old = context.model.shapes.get(node.input[0]), context.model.opset < 13
    if not shape:
        return
    axis = attributes(node).get("axis", 1 if old else -1) % len(shape)
    together = set(range(axis, len(shape))) if old else {axis}  # before opset 13: all axes from there on
    apart = [size for index, size in enumerate(shape) if index not in together]
    if 1 not in together and any(size > 1 for size in apart):
        raise Refused(f"along axis {axis} of {list(shape)}; it can be left out only along the classes, axis 1")


def _no_layer(model: CheckedModel, node: Node) -> str:
    """Why a node is refused whose operator is in no table."""
    if node.op_type == "If" and node.domain in ("", "ai.onnx") and node.input:
        return (
            f"its condition ({node.input[0]!r}) depends on the input's values; the chip takes no branches: export the "
            "model with the branch that is meant"
        )
    if node.op_type in ("GRU", "LSTM", "RNN") and node.domain in ("", "ai.onnx"):
        return (
            "its steps are not written down: 512 at most, as many as the input's shape says, with constant weights and "
            "without peepholes, clipping and a layout of its own; export it so"
        )
    if node.domain == PROCESSOR:
        return (
            "ONNX Runtime has laid it out for one processor; keep what the exporter wrote, or have ONNX Runtime "
            "optimise it less (ORT_ENABLE_EXTENDED)"
        )
    if node.domain == DOMAIN:
        return (
            "it is no network of layers: a chip computes products, pools and functions of numbers; take a model of "
            "such (a linear one, a perceptron)"
        )
    return why_undefined(model, node) or "no layer does that"
