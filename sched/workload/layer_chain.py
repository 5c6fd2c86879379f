"""Layers written one behind the other, `LAYER+LAYER`, as a network: each reads what the one before it has made."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .catalog import Workload, find
from .graph import Graph, Layer, Value, Window
from .layers import ConvShape, WorkloadError

#: Joins the names of layers.
JOIN = "+"
INPUT = "input"
SYNTAX = "LAYER+LAYER: layers or shapes that follow each other, as one network"


def is_chain(name: str) -> bool:
    """Whether a name is of several layers in a row; names of files are not."""
    parts = name.split(JOIN)
    layers = (part.startswith(("conv:", "gemm:")) or "/" in part.strip("/").partition(":")[0] for part in parts)
    return len(parts) > 1 and not Path(name).suffix and all(layers)


@lru_cache(maxsize=4)
def chain(name: str) -> tuple[Graph, NDArray[np.int8]]:
    """The network, with the data of its layers, and its input, int8 [1, C, H, W], which is that of the first.

    Raises WorkloadError if a name means no single layer, or a layer cannot read what the one before it makes.
    """
    workloads: list[Workload] = []
    for part in name.split(JOIN):
        layers = find(part)
        if len(layers) != 1:
            raise WorkloadError(f"workload {part} is {len(layers)} layers; name one of them")
        workloads.append(layers[0])
    for layer, reader in pairwise(workloads):
        _check(layer.shape, reader.shape)
    first = workloads[0].data()
    _, channels, height, width = first.x.shape
    results: list[Layer] = []
    for output, workload in zip(_names(workloads), workloads, strict=True):
        shape, data = workload.shape, workload.data()
        window = Window(
            shape.kernel_h, shape.kernel_w, shape.stride_h, shape.stride_w, shape.pad_top, shape.pad_left,
            shape.pad_bottom, shape.pad_right, shape.dilation,
        )  # fmt: skip
        source = results[-1].output if results else INPUT
        results.append(Layer("conv", output, (source,), window, shape.relu, shape.clamp, data.scale, data.w, data.bias))
    real = all(workload.real for workload in workloads)
    graph = Graph(name, (Value(INPUT, channels, height, width),), tuple(results), (results[-1].output,), real=real)
    return graph, first.x


def _names(workloads: list[Workload]) -> list[str]:
    """Names of results: those of layers of a network, or numbers."""
    short = [workload.name.partition("/")[2] for workload in workloads]
    if all(short) and max(Counter(short).values()) == 1 and INPUT not in short:
        return short
    return [f"layer{number}" for number in range(len(workloads))]


def _check(layer: ConvShape, reader: ConvShape) -> None:
    result, operand = layer.y_shape, reader.x_shape
    if result != operand or result[0] != 1:
        sizes = ["x".join(map(str, size)) for size in (result, operand)]
        raise WorkloadError(
            f"layer {reader.name} reads {sizes[1]} (images, channels, rows, columns), {layer.name} before it makes "
            f"{sizes[0]}; join layers that follow each other, of one image"
        )
