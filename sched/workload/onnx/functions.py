"""Functions that a model defines itself: their nodes take the place of their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import OnnxError
from .normalising import DOMAIN
from .subgraphs import nodes_within
from .validity import one_line

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

#: Nodes that calls may become: functions that call functions grow beyond any file.
MOST_NODES = 100_000
_Id = tuple[str, str]


def without_calls(model: ModelProto, name: str) -> ModelProto:
    """The model with the nodes of its own functions in place of their calls, but for those of Meshloom's own domain,
    which are layers (`writer`); the model itself if it calls none.

    `name` is for messages. Raises OnnxError for functions that call themselves, that become more than `MOST_NODES`
    nodes, or that ONNX cannot put in place.
    """
    import onnx
    from onnx import inliner

    own = {(item.domain, item.name): list(item.node) for item in model.functions if item.domain != DOMAIN}
    if not any((node.domain, node.op_type) in own for outer in model.graph.node for node in nodes_within(outer)):
        return model
    _check_size(list(model.graph.node), own, name)
    light = onnx.ModelProto()
    light.ir_version, light.graph.name = model.ir_version, model.graph.name
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    for field in ("input", "output", "node", "sparse_initializer"):
        getattr(light.graph, field).extend(getattr(model.graph, field))
    try:
        inlined = inliner.inline_selected_functions(light, list(own))
    except (RuntimeError, ValueError, TypeError, onnx.checker.ValidationError) as error:
        raise OnnxError(
            f"{name}: a function of its own cannot be put in place of its calls ({one_line(error)}); export it without "
            "functions"
        ) from error
    flat = onnx.ModelProto()
    flat.CopyFrom(model)
    del flat.graph.node[:], flat.graph.value_info[:], flat.functions[:], flat.opset_import[:]
    flat.graph.node.extend(inlined.graph.node)
    flat.functions.extend(inlined.functions)
    flat.opset_import.extend(inlined.opset_import)
    return flat


def _check_size(nodes: list[NodeProto], own: dict[_Id, list[NodeProto]], name: str) -> None:
    """Raises OnnxError where calls become too many nodes, or never end."""
    sizes: dict[_Id, int] = {}
    open_: set[_Id] = set()

    def count(some: list[NodeProto]) -> int:
        return sum(one((node.domain, node.op_type)) for outer in some for node in nodes_within(outer))

    def one(key: _Id) -> int:
        if key not in own:
            return 1
        if key in open_:
            raise OnnxError(f"{name}: its function {key[1]!r} calls itself; export it without functions")
        if key not in sizes:
            if len(open_) > _DEEPEST:
                raise OnnxError(f"{name}: its functions call each other more than {_DEEPEST} deep; export it without")
            open_.add(key)
            sizes[key] = count(own[key])
            open_.remove(key)
        return sizes[key]

    if (whole := count(nodes)) > MOST_NODES:
        raise OnnxError(
            f"{name}: its own functions become {whole:,} nodes; {MOST_NODES:,} at most: export it without functions"
        )


#: How deep functions may call each other.
_DEEPEST = 100
