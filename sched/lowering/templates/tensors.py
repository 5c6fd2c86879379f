"""Where the tensors of a served network lie: activations of a batch, stacked, and the constants of its layers."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Tensor
from ...mapping.tiling.problem import pose
from ...workload.graph import Graph, Layer, Value
from ...workload.layout import ActivationLayout, BiasLayout, DepthwiseLayout, Layout, PackedWindow, WeightLayout
from ...workload.stages import Lanes, Stages, constant, filters, table_array
from .memory import PlacedPart, Striped, Window

Role = Literal["input", "constant", "output"]
#: What a layer may have of constants; each is a tensor `LAYER/kind`.
CONSTANTS = ("w", "bias", "table", "zeros")


class ServedTensors:
    """The tensors of a network on a chip, placed when somebody asks for them.

    `tensors`: what the host writes or reads; `constants`: the arrays of those that are no activations; `copies`: for
    each of the others that it writes the network's input that it holds, and whether its windows lie side by side.
    """

    def __init__(self, graph: Graph, chip: ChipConfig, batch: int, cut: Stages) -> None:
        self.graph, self.chip, self.batch, self.cut = graph, chip, batch, cut
        self.window = Window(chip)
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, NDArray[Any]] = {}
        self.copies: dict[str, tuple[str, bool]] = {}
        self._stored: dict[str, Striped] = {}
        self._inputs = {value.name for value in graph.inputs}

    def place(self, name: str, role: Role, layout: Layout, stored: Striped) -> Striped:
        """Has the host write or read a tensor; returns where it lies."""
        self.tensors[name] = Tensor(name=name, role=role, layout=layout, pieces=stored.pieces())
        return stored

    def layout(self, name: str) -> ActivationLayout:
        """The layout of an activation: rows of all images."""
        value, lanes = self.cut.values[name], self.chip.lanes
        channels = len(self.cut.lanes[name])
        return ActivationLayout(
            batch=1, channels=channels, height=self.batch * value.height, width=value.width, block=lanes
        )

    def activation(self, name: str) -> Striped:
        """Where an activation lies, be it part of another."""
        root, first = self.cut.roots[name]
        value = self.cut.values[root]
        if root not in self._stored:
            planes = sum(self.cut.members[root])
            self._stored[root] = Striped(self.window, planes, self.batch * value.height, value.width)
            if root in self._inputs:
                self.place(root, "input", self.layout(root), self._stored[root])
                self.copies[root] = root, False
        stored = self._stored[root]
        planes = sum(self.cut.members[name])
        part = stored if planes == stored.planes else stored.part(first, planes)
        place = self.cut.places.get(name)
        return part if place is None else PlacedPart(part, place, value.height)

    def tensor(self, name: str, role: Role) -> Tensor:
        """An activation as a stage reads or writes it."""
        return Tensor(name=name, role=role, layout=self.layout(name), pieces=self.activation(name).pieces())

    def is_packed(self, layer: Layer) -> bool:
        """Whether the host packs the input of a convolution."""
        return layer.inputs[0] in self._inputs and pose(self.graph.conv_shape(layer), self.chip).packed

    def packed(self, layer: Layer, value: Value) -> Striped:
        """The input of a layer of few channels, its windows side by side."""
        name, window = f"{value.name}@{layer.output}", layer.window
        layout = ActivationLayout(
            batch=1, channels=value.channels, height=self.batch * value.height, width=value.width,
            block=self.chip.lanes,
            packed_kw=PackedWindow(window.kernel_w, window.stride_w, window.pad_left, window.pad_right),
        )  # fmt: skip
        self.copies[name] = value.name, True
        stored = Striped(self.window, layout.blocks, self.batch * value.height, layout.columns)
        return self.place(name, "input", layout, stored)

    def filters(self, layer: Layer) -> Lanes:
        """The channels of a convolution's filters, as its result has them in its words."""
        return filters(self.cut.lanes[layer.output], self.chip)

    def weights(self, layer: Layer) -> tuple[Striped, Striped]:
        """Weights and biases of a convolution."""
        lanes = self.cut.lanes[layer.inputs[0]]
        assert layer.w is not None
        kernel_h, kernel_w = layer.w.shape[2:]
        packed, filter_lanes = False, None
        layout: Layout
        if layer.kind == "depthwise":
            layout = DepthwiseLayout(channels=len(lanes), kernel_h=kernel_h, kernel_w=kernel_w, block=self.chip.lanes)
            bias = BiasLayout(out_channels=len(lanes), cols=self.chip.lanes)
            stored = Striped(self.window, 1, layout.blocks, kernel_h * kernel_w)
        else:
            packed = self.is_packed(layer)
            filter_lanes = self.filters(layer)
            inputs, outputs = layer.w.shape[1] if packed else len(lanes), len(filter_lanes)
            layout = WeightLayout(
                out_channels=outputs, in_channels=inputs, kernel_h=kernel_h, kernel_w=kernel_w,
                cols=self.chip.cols, block=self.chip.lanes, packed_kw=packed,
            )  # fmt: skip
            bias = BiasLayout(out_channels=outputs, cols=self.chip.cols)
            windows = layout.words(self.chip.lanes) // (layout.n_blocks * self.chip.cols)
            stored = Striped(self.window, layout.n_blocks, windows, self.chip.cols, across=True)
        biases = Striped(self.window, 1, bias.n_blocks, 4)
        for kind, how, where in (("w", layout, stored), ("bias", bias, biases)):
            array = constant(layer, kind, lanes, packed, filter_lanes)
            self._constant(f"{layer.output}/{kind}", how, where, array)
        return stored, biases

    def table(self, layer: Layer) -> Striped:
        """The table of a layer, a row of words."""
        assert layer.table is not None
        array = table_array(layer.table, self.chip.lanes)
        return self._row(f"{layer.output}/table", array)

    def zeros(self, layer: Layer, words: int) -> Striped:
        """So many words of zeros."""
        return self._row(f"{layer.output}/zeros", np.zeros((1, self.chip.lanes, 1, words), np.int8))

    def _row(self, name: str, array: NDArray[np.int8]) -> Striped:
        """A constant that is one row of words, int8 [1, P, 1, words]."""
        lanes, words = array.shape[1], array.shape[3]
        layout = ActivationLayout(batch=1, channels=lanes, height=1, width=words, block=lanes)
        return self._constant(name, layout, Striped(self.window, 1, 1, words), array)

    def _constant(self, name: str, layout: Layout, stored: Striped, array: NDArray[Any]) -> Striped:
        self.constants[name] = array
        return self.place(name, "constant", layout, stored)
