"""What of a network decides its schedule, and so how long it takes: all but the numbers that its arrays hold."""

from __future__ import annotations

from dataclasses import fields
from hashlib import sha256
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...store.described import described
from ...workload.graph import Graph


def form(graph: Graph) -> str:
    """A digest of inputs, layers with all of their fields, and outputs; of weights and the like the type and shape."""
    layers: list[dict[str, object]] = []
    for layer in graph.layers:
        values: dict[str, object] = {field.name: getattr(layer, field.name) for field in fields(layer)}
        arrays: dict[str, object] = {}
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                array = cast("NDArray[Any]", value)
                arrays[name] = array.dtype.str, array.shape
        layers.append(values | arrays)
    return sha256(described((graph.inputs, layers, graph.outputs)).encode()).hexdigest()
