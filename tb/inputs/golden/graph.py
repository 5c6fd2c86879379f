"""Every tensor of a network, computed by ONNX Runtime from the integer ONNX model of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.sched.workload.onnx.writer import flip, to_onnx, unflip

from .layer import GoldenError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

#: Weights of a network from which on it is no small one.
_SMALL = 1 << 20


def golden_values(graph: Graph, inputs: Mapping[str, NDArray[np.int8]]) -> dict[str, NDArray[np.int8]]:
    """All tensors of one run by name, inputs included, int8 [1, channels, rows, columns].

    `inputs`: one array for each input of the network, of its shape. Raises GoldenError when one is missing, left over
    or of another shape or type, and when the sums of a layer might leave int32, where ONNX Runtime promises nothing.
    """
    _check_inputs(graph, inputs)
    feeds = {value.name: flip(inputs[value.name]) for value in graph.inputs}
    arrays = {name: unflip(array) for name, array in run(_session(graph), feeds).items()}
    for value in graph.values.values():
        if value.name in arrays and arrays[value.name].shape != value.shape:  # two definitions of the size must agree
            shape = arrays[value.name].shape
            raise AssertionError(f"tensor {value.name}: ONNX Runtime gives {shape}, the network says {value.shape}")
    return {value.name: inputs[value.name] for value in graph.inputs} | arrays


def check_sums(graph: Graph) -> None:
    """Raises GoldenError, naming the layer, when a sum of products and bias might leave int32 for some input."""
    for layer in graph.layers:
        if layer.kind not in ("conv", "depthwise") or layer.w is None or layer.bias is None:
            continue  # the sums of an average pool have at most 2**10 terms
        # channel by channel: a fully connected layer in int64 would be the most memory of a run
        products = np.array([128 * int(np.abs(each.astype(np.int16)).sum(dtype=np.int64)) for each in layer.w])
        largest = int((products + np.abs(layer.bias.astype(np.int64))).max())
        if largest >= 1 << 31:
            raise GoldenError(
                f"network {graph.name}: layer {layer.output}: sums may reach {largest}, past int32; quantise it with "
                "smaller biases or fewer products"
            )


def _check_inputs(graph: Graph, inputs: Mapping[str, NDArray[np.int8]]) -> None:
    names = [value.name for value in graph.inputs]
    if sorted(names) != sorted(inputs):
        text = ", ".join(inputs) or "none"
        raise GoldenError(f"network {graph.name}: inputs are {', '.join(names)}; given are {text}")
    for value in graph.inputs:
        array = inputs[value.name]
        if array.dtype != np.int8 or array.shape != value.shape:
            raise GoldenError(
                f"network {graph.name}: input {value.name} is {array.dtype}{list(array.shape)}, must be "
                f"int8{list(value.shape)}"
            )


def _session(graph: Graph) -> InferenceSession:
    """The session of a network, kept for the next run: more of small ones, since a step of a language model may take
    several in turn. Those of large networks hold hundreds of megabytes."""
    weights = sum(layer.w.size for layer in graph.layers if layer.w is not None)
    return _small(graph) if weights < _SMALL else _large(graph)


@lru_cache(maxsize=16)
def _small(graph: Graph) -> InferenceSession:
    return _begun(graph)


@lru_cache(maxsize=2)
def _large(graph: Graph) -> InferenceSession:
    return _begun(graph)


def _begun(graph: Graph) -> InferenceSession:
    check_sums(graph)
    return session(to_onnx(graph, all_outputs=True), f"network {graph.name}")
