"""A single layer as a network of one convolution, for schedulers of micro-ops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Schedule
from ...mapping.memory.tensors import tensors_of
from ...mapping.tiling.problem import DoesNotFit
from ...schedulers.network.scheduler import NetworkSchedule
from ...workload.graph import Graph, Layer, Value, Window
from ...workload.layers import ConvShape

#: Tensors of the network, as schedules of layers name them.
_NAMES = {"x": "x", "x@y": "x", "y/w": "w", "y/bias": "bias", "y": "y"}


def schedule_layer(
    shape: ConvShape, chip: ChipConfig, scale: int, make: Callable[[Graph, ChipConfig], NetworkSchedule]
) -> Schedule:
    """The schedule of a layer. `make`: of networks. Raises DoesNotFit for more than one image, and what `make` does."""
    if shape.batch != 1:
        raise DoesNotFit(
            f"layer {shape.name}: micro-ops are those of one image, not of {shape.batch}; give it batch 1, or take "
            "scheduler loop_order"
        )
    window = Window(
        shape.kernel_h, shape.kernel_w, shape.stride_h, shape.stride_w, shape.pad_top, shape.pad_left,
        shape.pad_bottom, shape.pad_right, shape.dilation,
    )  # fmt: skip
    w, bias = np.zeros(shape.w_shape, np.int8), np.zeros(shape.out_channels, np.int32)
    layer = Layer("conv", "y", ("x",), window, shape.relu, shape.clamp, scale, w, bias)
    graph = Graph(shape.name, (Value("x", shape.in_channels, shape.in_h, shape.in_w),), (layer,), ("y",))
    try:
        result = make(graph, chip)
    except DoesNotFit as error:
        raise DoesNotFit(str(error).replace("layer y: ", f"layer {shape.name}: ", 1)) from error
    pieces = {_NAMES[tensor.name]: tensor.pieces for tensor in result.schedule.tensors}
    packed = any(packed for _, packed in result.copies.values())
    return result.schedule.model_copy(update={"tensors": tensors_of(shape, chip, packed, pieces)})
