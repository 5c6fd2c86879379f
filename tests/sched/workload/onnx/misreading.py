"""Readers that take an attribute or an operand for another, and what is to be said of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.onnx import known_tensors, lowering
from meshloom.sched.workload.onnx.building import context, inputs
from meshloom.sched.workload.onnx.errors import node_name
from meshloom.sched.workload.onnx.nodes import attributes
from meshloom.sched.workload.onnx.reader_context import ReaderContext

Read = set[tuple[str, str]]


class Spy(dict[str, Any]):
    """Attributes of a node that note which of them are looked at."""

    def __init__(self, operator: str, values: dict[str, Any], read: Read) -> None:
        super().__init__(values)
        self.operator, self.read = operator, read

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add((self.operator, key))
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.read.add((self.operator, key))
        return super().__getitem__(key)


def misread(monkeypatch: pytest.MonkeyPatch, operator: str, name: str, wrong: Any) -> Read:
    """Readers see `wrong` for an attribute (None: as if it were not there); what they look at is noted."""
    read: Read = set()

    def seen(node: onnx.NodeProto) -> dict[str, Any]:
        values = Spy(node.op_type, attributes(node), read)
        if node.op_type == operator:
            if wrong is None:
                values.pop(name, None)
            else:
                values[name] = wrong
        return values

    for module in (lowering, context, inputs, known_tensors):
        monkeypatch.setattr(module, "attributes", seen)
    return read


def misread_operand(
    monkeypatch: pytest.MonkeyPatch, operator: str, index: int, wrong: Callable[[NDArray], Any]
) -> None:
    """Readers see `wrong(array)` for a constant operand."""
    right = ReaderContext.constant

    def seen(self: Any, node: onnx.NodeProto, at: int, what: str) -> NDArray[Any]:
        array = right(self, node, at, what)
        return np.asarray(wrong(array)).astype(array.dtype) if (node.op_type, at) == (operator, index) else array

    monkeypatch.setattr(ReaderContext, "constant", seen)


def says(error: WorkloadError, operator: str, model: onnx.ModelProto) -> None:
    """The message names the misread node, tensor and both values or shapes; a node that is refused for it is named."""
    text = str(error)
    if "misread" not in text:
        assert any(node_name(node) in text or f"layer {node.output[0]} " in text for node in model.graph.node), text
        return
    assert any(node_name(node) in text for node in model.graph.node if node.op_type == operator), text
    values = r"at \[[\d, ]+\] is \S+ when ONNX Runtime runs the file, \S+ in the network"
    shapes = r"has the shape \[[\d, ]+\] when ONNX Runtime runs the file, \[[\d, ]+\] in the network"
    assert re.search(rf"tensor '\w+' ({values}|{shapes}) that was read from it", text), text


def ids(cases: list[Any]) -> list[str]:
    return [f"{operator}-{what}-{index}" for index, (operator, what, *_) in enumerate(cases)]


def looked_at(module: Any) -> set[str]:
    """Attributes that the source of a module asks for."""
    text = Path(module.__file__).read_text(encoding="utf-8")
    return set(re.findall(r'attributes(?:\(node\))?(?:\.get\(|\[)"(\w+)"', text))
