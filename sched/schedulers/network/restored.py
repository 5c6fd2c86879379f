"""A saved schedule of a network together with the network again: which array is which tensor's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Schedule, ScheduleError, Tensor
from ...workload.graph import Graph, Layer
from ...workload.layout import ActivationLayout, WeightLayout
from ...workload.stages import constant, cut, filters, table_array
from ...workload.words import in_words
from .scheduler import NetworkSchedule


def restored(graph: Graph, schedule: Schedule, chip: ChipConfig) -> NetworkSchedule:
    """The network's schedule with its arrays. Tensors are known by name, as `scheduler` names them: `LAYER/w`,
    `LAYER/bias`, `LAYER/table`, `LAYER/zeros`, `INPUT` or `INPUT@LAYER`, and outputs.

    Raises ScheduleError for a tensor that the network does not have, or has in another shape, and a missing output.
    """
    graph = in_words(graph, chip)
    lanes = cut(graph, chip, pastes=True, by_channel=True).lanes
    layers = {layer.output: layer for layer in graph.layers}
    constants: dict[str, NDArray[Any]] = {}
    copies: dict[str, tuple[str, bool]] = {}
    inputs = {value.name: value for value in graph.inputs}
    for tensor in schedule.tensors:
        if tensor.role == "constant":
            layer, _, kind = tensor.name.rpartition("/")
            if layer in layers and (words := words_of(layers[layer], kind, tensor, chip.lanes)) is not None:
                _fits(tensor, words.shape)
                constants[tensor.name] = words
                continue
            if layer not in layers or kind not in ("w", "bias") or layers[layer].w is None:
                raise _unknown(tensor, graph, "LAYER/w or LAYER/bias, /table or /zeros, of a layer that has them")
            packed = isinstance(tensor.layout, WeightLayout) and tensor.layout.packed_kw
            filter_lanes = filters(lanes[layer], chip) if layers[layer].kind == "conv" else None
            array = constant(layers[layer], kind, lanes[layers[layer].inputs[0]], packed, filter_lanes)
            _fits(tensor, array.shape)
            constants[tensor.name] = array
        elif tensor.role == "input":
            source = tensor.name.partition("@")[0] if tensor.name not in inputs else tensor.name
            if source not in inputs or not isinstance(tensor.layout, ActivationLayout):
                raise _unknown(tensor, graph, f"an input: {', '.join(inputs)}")
            packed = tensor.layout.packed_kw is not None
            value = inputs[source]
            _fits(tensor, (1, value.channels if packed else len(lanes[source]), value.height, value.width))
            copies[tensor.name] = source, packed
        else:
            if tensor.name not in graph.outputs:
                raise _unknown(tensor, graph, f"an output: {', '.join(graph.outputs)}")
            value = graph.value(tensor.name)
            _fits(tensor, (1, len(lanes[tensor.name]), value.height, value.width))
    there = {tensor.name for tensor in schedule.tensors if tensor.role == "output"}
    if missing := [name for name in graph.outputs if name not in there]:
        raise ScheduleError(f"schedule of {schedule.workload} has no output tensor {missing[0]!r}; add it")
    return NetworkSchedule(graph, schedule, constants, lanes, copies, ())


def words_of(layer: Layer, kind: str, tensor: Tensor, lanes: int) -> NDArray[Any] | None:
    """The table of a layer, or the zeros that a product reads; None if it has none."""
    if kind == "table" and layer.table is not None:
        return table_array(layer.table, lanes)
    if kind != "zeros" or layer.kind != "product":
        return None
    words = tensor.layout.shape[-1]  # as many as the schedule reads
    return np.zeros((1, lanes, 1, words), np.int8)


def _unknown(tensor: Tensor, graph: Graph, names: str) -> ScheduleError:
    return ScheduleError(f"network {graph.name} has no {tensor.role} {tensor.name!r}; name it as {names}")


def _fits(tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.layout.shape != shape:
        raise ScheduleError(
            f"tensor {tensor.name!r} is {list(tensor.layout.shape)} in the schedule, and {list(shape)} in the network "
            "on this chip; make both the same"
        )
