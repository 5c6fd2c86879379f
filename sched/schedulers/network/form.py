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
    """A digest of inputs, layers with all of their fields, and outputs; of weights and the like the type and shape, and
    how they are cut if they lie where another network has them."""
    layers = [{field.name: _shaped(getattr(layer, field.name)) for field in fields(layer)} for layer in graph.layers]
    cuts = {
        name: [(place.tile, place.first, place.words) for place in places] for name, places in graph.constants.items()
    }
    decisive = graph.inputs, layers, graph.outputs, *([cuts] if cuts else [])
    return sha256(described(decisive).encode()).hexdigest()


def _shaped(value: object) -> object:
    if not isinstance(value, np.ndarray):
        return value
    array = cast("NDArray[Any]", value)
    return array.dtype.str, array.shape
