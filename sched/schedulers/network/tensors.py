"""The arrays of a network that the host writes and reads: inputs, constants and outputs of its schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Piece, Tensor
from ...mapping.memory.placement import Allocator, Stored
from ...mapping.tiling.problem import pose, whole_windows
from ...workload.graph import Layer, Value, Window
from ...workload.layers import ConvShape
from ...workload.layout import ActivationLayout, BiasLayout, DepthwiseLayout, Layout, PackedWindow, WeightLayout
from ...workload.regions import Cache, View
from ...workload.stages import Stages, constant, filters, table_array
from .storage import homes


class NetworkTensors:
    """Collects the tensors of a schedule, the arrays of its constants, and the copies of network inputs (see
    `NetworkSchedule`). What it places itself it places in `dram`: inputs as `lie` says where planes and segments of so
    many rows lie (`storage.homes`, `storage.banded`). `whole`: inputs of few channels may be packed by whole windows,
    where that is better than by kernel columns."""

    def __init__(
        self, cut: Stages, chip: ChipConfig, dram: Allocator,
        lie: Callable[[Sequence[int], int, Sequence[int]], tuple[list[int], Callable[[int, int], int]]] = homes,
        whole: bool = False,
    ) -> None:  # fmt: skip
        self.cut, self.chip, self.dram, self._lie, self._whole = cut, chip, dram, lie, whole
        self.tensors: list[Tensor] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.copies: dict[str, tuple[str, bool]] = {}
        self._inputs: dict[str, Stored] = {}
        self._arrays: dict[tuple[str, str], NDArray[Any]] = {}  # of a layer's constants, which all copies share

    def activation(self, value: Value) -> ActivationLayout:
        """Layout of a tensor that has a channel for each lane."""
        lanes = self.chip.lanes
        channels = len(self.cut.lanes[value.name])
        return ActivationLayout(batch=1, channels=channels, height=value.height, width=value.width, block=lanes)

    def plain_input(self, value: Value) -> Stored:
        """A network input as it is."""
        if value.name not in self._inputs:
            planes = len(self.cut.lanes[value.name]) // self.chip.lanes
            cuts, home = self._lie([planes], value.height, self.chip.drams)
            stored = self._inputs[value.name] = Stored(self.dram, planes, value.height, value.width, cuts, home)
            layout = self.activation(value)
            self.tensors.append(Tensor(name=value.name, role="input", layout=layout, pieces=stored.pieces()))
            self.copies[value.name] = value.name, False
        return self._inputs[value.name]

    def placed(self) -> dict[str, Stored]:
        """What has its place before all else, by name: caches, and what lies in room that the network has in common
        with others. Raises DoesNotFit if the DRAM is too small."""
        graph, chip = self.cut.graph, self.chip
        regions = {
            region.name: self._region(region.planes(chip.lanes, chip.cols), region.positions)
            for region in graph.regions
        }
        stored: dict[str, Stored] = {}
        for cache in graph.caches:
            stored |= self._resident(cache, regions.get(cache.region))
        return stored | {view.value: self._view(view, regions[view.region]) for view in graph.views}

    def begin(self) -> None:
        """A word in each DRAM tile where the network's own begins: its code lies behind all its tensors."""
        drams, lanes = self.chip.drams, self.chip.lanes
        words = Stored(self.dram, len(drams), 1, 1, [0], lambda plane, _: drams[plane])
        layout = ActivationLayout(batch=1, channels=len(drams) * lanes, height=1, width=1, block=lanes)
        self._constant("begin", layout, words.pieces(), np.zeros(layout.shape, np.int8))

    def _region(self, planes: int, positions: int) -> Stored:
        cuts, home = homes([planes], 1, self.chip.drams)
        return Stored(self.dram, planes, 1, positions, cuts, home)

    def _resident(self, cache: Cache, region: Stored | None) -> dict[str, Stored]:
        """Where the parts of a cache lie, by name: views of its region in DRAM, which begins with the view. `region`:
        None for one of its own."""
        planes = len(self.cut.lanes[cache.rows]) // self.chip.lanes
        region = region.part(0, planes) if region else self._region(planes, cache.positions)
        past, rows = self.cut.values[cache.past], self.cut.values[cache.rows]
        self._lying(past, region.columns(0, past.width))
        new = region.columns(past.width, rows.width - past.width)
        return {cache.new: new, cache.rows: region.columns(0, rows.width)}

    def _view(self, view: View, region: Stored) -> Stored:
        """Where an input or an output lies that has its place in a region."""
        value = self.cut.values[view.value]
        planes = len(self.cut.lanes[value.name]) // self.chip.lanes
        stored = region.part(0, planes).columns(view.first, value.width)
        if value in self.cut.graph.inputs:
            self._lying(value, stored)
        return stored

    def _lying(self, value: Value, stored: Stored) -> None:
        """An input that has its place."""
        self._inputs[value.name] = stored
        layout = self.activation(value)
        self.tensors.append(Tensor(name=value.name, role="input", layout=layout, pieces=stored.pieces()))
        self.copies[value.name] = value.name, False

    def conv_shape(self, layer: Layer) -> tuple[ConvShape, bool]:
        """A convolution with the channels that lie in words, and whether the host packs its input."""
        shape = self.cut.graph.conv_shape(layer)
        packed = layer.inputs[0] in {v.name for v in self.cut.graph.inputs} and pose(shape, self.chip).packed
        shape = replace(shape, out_channels=len(filters(self.cut.lanes[layer.output], self.chip)))
        return (shape if packed else replace(shape, in_channels=len(self.cut.lanes[layer.inputs[0]]))), packed

    def whole(self, layer: Layer) -> bool:
        """Whether a convolution whose input the host packs gets whole windows."""
        return self._whole and whole_windows(self.cut.graph.conv_shape(layer), self.chip)

    def int4(self, layer: Layer) -> bool:
        """Whether a convolution has weights of four bits on this chip: in pairs of words of channels, each word with
        channels of one group."""
        words = self.cut.lanes[layer.inputs[0]].reshape(-1, self.chip.lanes)
        if not self.chip.core.int4 or not layer.group or layer.window != Window() or len(words) % 2:
            return False
        groups = np.where(words < 0, -1, words // layer.group)
        first = groups.max(axis=1, keepdims=True)
        return bool(((groups < 0) | (groups == first)).all())

    def packed_input(self, layer: Layer) -> Stored:
        """A network input with the windows of a layer of few channels side by side."""
        value, window = self.cut.values[layer.inputs[0]], layer.window
        packed = PackedWindow(window.kernel_w, window.stride_w, window.pad_left, window.pad_right)
        if self.whole(layer):
            packed = packed._replace(
                kernel_h=window.kernel_h, stride_h=window.stride_h, pad_top=window.pad_top, pad_bottom=window.pad_bottom
            )
        layout = ActivationLayout(
            batch=1, channels=value.channels, height=value.height, width=value.width, block=self.chip.lanes,
            packed_kw=packed,
        )  # fmt: skip
        cuts, home = self._lie([layout.blocks], layout.rows, self.chip.drams)
        stored = Stored(self.dram, layout.blocks, layout.rows, layout.columns, cuts, home)
        name = f"{value.name}@{layer.output}"
        self.tensors.append(Tensor(name=name, role="input", layout=layout, pieces=stored.pieces()))
        self.copies[name] = value.name, True
        return stored

    def conv_constants(
        self, layer: Layer, pieces: dict[str, tuple[Piece, ...]], copy: str = "", int4: bool = False
    ) -> None:
        """Weights ("w") and biases ("bias") of a convolution, which lie in these pieces. `copy`: behind their names;
        `int4`: the weights have four bits."""
        chip, lanes = self.chip, self.cut.lanes[layer.inputs[0]]
        filter_lanes = filters(self.cut.lanes[layer.output], chip)
        shape, packed = self.conv_shape(layer)
        layout = WeightLayout(
            out_channels=shape.out_channels, in_channels=shape.in_channels, kernel_h=shape.kernel_h,
            kernel_w=shape.kernel_w, cols=chip.cols, block=chip.lanes, packed_kw=packed,
            packed_kh=packed and self.whole(layer), int4=int4,
        )  # fmt: skip
        self._of_layer(layer, "w", copy, layout, pieces, lambda: constant(layer, "w", lanes, packed, filter_lanes))
        bias = BiasLayout(out_channels=shape.out_channels, cols=chip.cols, scaled=layer.scales is not None)
        self._of_layer(
            layer, "bias", copy, bias, pieces, lambda: constant(layer, "bias", lanes, filter_lanes=filter_lanes)
        )

    def depthwise_constants(self, layer: Layer, pieces: dict[str, tuple[Piece, ...]], copy: str = "") -> None:
        """The same of a depthwise convolution."""
        lanes, window = self.cut.lanes[layer.inputs[0]], layer.window
        layout = DepthwiseLayout(
            channels=len(lanes), kernel_h=window.kernel_h, kernel_w=window.kernel_w, block=self.chip.lanes
        )
        self._of_layer(layer, "w", copy, layout, pieces, lambda: constant(layer, "w", lanes))
        bias = BiasLayout(out_channels=len(lanes), cols=self.chip.lanes, scaled=layer.scales is not None)
        self._of_layer(layer, "bias", copy, bias, pieces, lambda: constant(layer, "bias", lanes))

    def _of_layer(
        self, layer: Layer, kind: str, copy: str, layout: Layout, pieces: dict[str, tuple[Piece, ...]],
        make: Callable[[], NDArray[Any]],
    ) -> None:  # fmt: skip
        key = layer.output, kind
        if key not in self._arrays:
            self._arrays[key] = make()
        self._constant(f"{layer.output}/{kind}{copy}", layout, pieces[kind], self._arrays[key])

    def table(self, name: str, table: NDArray[np.int8], pieces: tuple[Piece, ...]) -> None:
        """The table of layer `name`, int8 [256], as a row of words of P entries each."""
        lanes = self.chip.lanes
        layout = ActivationLayout(batch=1, channels=lanes, height=1, width=len(table) // lanes, block=lanes)
        self._constant(f"{name}/table", layout, pieces, table_array(table, lanes))

    def zeros(self, name: str, stored: Stored) -> None:
        """The words of zeros that the product `name` reads."""
        lanes, words = self.chip.lanes, stored.width
        layout = ActivationLayout(batch=1, channels=lanes, height=1, width=words, block=lanes)
        self._constant(f"{name}/zeros", layout, stored.pieces(), np.zeros((1, lanes, 1, words), np.int8))

    def _constant(self, name: str, layout: Layout, pieces: tuple[Piece, ...], array: NDArray[Any]) -> None:
        self.tensors.append(Tensor(name=name, role="constant", layout=layout, pieces=pieces))
        self.constants[name] = array

    def output(self, name: str, stored: Stored) -> None:
        """A tensor that the host reads."""
        layout = self.activation(self.cut.values[name])
        self.tensors.append(Tensor(name=name, role="output", layout=layout, pieces=stored.pieces()))
