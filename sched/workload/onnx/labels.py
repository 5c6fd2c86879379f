"""Names of classes that a model brings in its metadata, or as texts of which it chooses one."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from onnx import ModelProto

#: Keys under which exporting programs put them.
KEYS = ("labels", "names", "classes", "class_names")
#: Operators that take some of a list, by their numbers.
_CHOICES = ("ArrayFeatureExtractor", "Gather")


def labels_in(model: ModelProto) -> tuple[str, ...]:
    """The names in the order of the classes; none if there are none that can be read.

    Known forms in the metadata: a list or a mapping from numbers to names (JSON, or as Python prints it), lines, a line
    with commas. Without these, the one list of texts from which a node takes some by their numbers.
    """
    texts = {item.key.lower(): item.value for item in model.metadata_props}
    for key in KEYS:
        if labels := _parse(texts.get(key, "")):
            return labels
    lists = _texts(model)
    chosen = {node.input[0] for node in model.graph.node if node.op_type in _CHOICES and node.input[0] in lists}
    return _names(lists[chosen.pop()]) if len(chosen) == 1 else ()


def _texts(model: ModelProto) -> dict[str, list[str]]:
    """Constant lists of texts, by name."""
    from onnx import TensorProto

    tensors = {item.name: item for item in model.graph.initializer}
    tensors |= {
        node.output[0]: item.t for node in model.graph.node if node.op_type == "Constant" for item in node.attribute
    }
    return {
        name: [text.decode(errors="replace") for text in tensor.string_data]
        for name, tensor in tensors.items()
        if tensor.data_type == TensorProto.STRING and len(tensor.dims) == 1
    }


def _parse(text: str) -> tuple[str, ...]:
    value: Any = None
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text.strip())
            break
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    if isinstance(value, dict):
        named = cast(dict[Any, Any], value)
        try:
            numbered = {int(index): name for index, name in named.items()}
        except (ValueError, TypeError):
            return ()
        if sorted(numbered) != list(range(len(numbered))):
            return ()
        return _names(numbered[index] for index in range(len(numbered)))
    if isinstance(value, list | tuple):
        return _names(cast(Iterable[Any], value))
    if value is not None or text.strip()[:1] in ("[", "{", "("):
        return ()
    return _names(text.strip().splitlines() if "\n" in text.strip() else text.split(","))


def _names(items: Iterable[Any]) -> tuple[str, ...]:
    names = tuple(item.strip() if isinstance(item, str) else "" for item in items)
    return names if len(names) > 1 and all(names) else ()
