"""Cycles that no schedule can undercut, whoever makes it: a proven bound beside what schedules take.

Two things take their time whatever the order. Every product needs a processing element for a cycle; those with padding
are left out, since a schedule may skip them. Every byte of weights, every byte of the input that some product needs and
every byte of the result passes a DRAM channel once, because tensors live there. The larger of the two is the floor.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.workload import catalog, layer_chain, zoo
from meshloom.sched.workload.graph import Graph, Layer
from meshloom.sched.workload.layers import ConvShape


def layer_floor(shape: ConvShape, chip: ChipConfig) -> int:
    """Of a single layer, in cycles."""
    used = shape.batch * shape.in_channels * len(_rows(shape)) * len(_columns(shape))
    carried = used + int(np.prod(shape.w_shape)) + int(np.prod(shape.y_shape))
    return _floor(_products(shape), carried, chip, vectors=shape.in_channels == 1)


def network_floor(graph: Graph, chip: ChipConfig) -> int:
    """Of a whole network, in cycles. What lies between its layers may stay on the chip, so it counts for nothing."""
    products = sum(_products_of(graph, layer) for layer in graph.layers)
    weights = {id(layer.w): layer.w.nbytes for layer in graph.layers if layer.w is not None}
    ends = sum(_needed(graph, value.name) for value in graph.inputs)
    ends += sum(int(np.prod(graph.value(name).shape)) for name in graph.outputs)
    return _floor(products, sum(weights.values()) + ends, chip)


def floor_of(workload: str, chip: ChipConfig) -> int | None:
    """Of a workload by its name, in cycles; None if it is no built-in network, layer or layers in a row."""
    if workload in zoo.names():
        return network_floor(zoo.load(workload), chip)
    try:
        if layer_chain.is_chain(workload):
            return network_floor(layer_chain.chain(workload)[0], chip)
        layers = catalog.find(workload)
    except ValueError:
        return None
    return layer_floor(layers[0].shape, chip) if len(layers) == 1 else None


def _floor(products: int, carried: int, chip: ChipConfig, vectors: bool = False) -> int:
    """`carried`: bytes from and to DRAM; `vectors`: the vector units could do the products, too."""
    each = chip.rows * chip.cols + (chip.lanes if vectors else 0)
    return ceil(max(products / (each * len(chip.cores)), carried / (len(chip.drams) * chip.dram.bytes_per_cycle)))


def _inside(outputs: int, taps: int, stride: int, before: int, distance: int, size: int) -> list[int]:
    """Along one axis the position in the input that each pair of an output and a tap reads, without padding."""
    reads = np.add.outer(np.arange(outputs) * stride, np.arange(taps) * distance).ravel() - before
    return reads[(reads >= 0) & (reads < size)].tolist()


def _row_reads(shape: ConvShape) -> list[int]:
    return _inside(shape.out_h, shape.kernel_h, shape.stride_h, shape.pad_top, shape.dilation, shape.in_h)


def _column_reads(shape: ConvShape) -> list[int]:
    return _inside(shape.out_w, shape.kernel_w, shape.stride_w, shape.pad_left, shape.dilation, shape.in_w)


def _rows(shape: ConvShape) -> set[int]:
    """The rows of the input that some product needs."""
    return set(_row_reads(shape))


def _columns(shape: ConvShape) -> set[int]:
    """The columns of the input that some product needs."""
    return set(_column_reads(shape))


def _products(shape: ConvShape) -> int:
    """Products of a layer, without those with padding."""
    pixels = len(_row_reads(shape)) * len(_column_reads(shape))
    return shape.batch * shape.out_channels * shape.in_channels * pixels


def _products_of(graph: Graph, layer: Layer) -> int:
    """Products that only an array can do: a vector unit rounds after each channel, so it cannot sum over them."""
    if layer.kind == "product":
        return graph.macs(layer)
    if layer.kind != "conv" or graph.value(layer.inputs[0]).channels == 1:
        return 0
    return _products(graph.conv_shape(layer))


def _needed(graph: Graph, name: str) -> int:
    """Bytes of an input that its convolutions need; 0 if it has none."""
    shapes = [graph.conv_shape(layer) for layer in graph.users(name) if layer.kind == "conv"]
    channels = graph.value(name).channels
    return max((channels * len(_rows(shape)) * len(_columns(shape)) for shape in shapes), default=0)
