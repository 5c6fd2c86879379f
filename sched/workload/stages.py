"""A graph as the chip sees it: stages that compute, and how channels lie in words.

* An addition behind a convolution is *fused*: results are added to the other operand before they leave the core. So is
  a max pool, if rows enough for two tiles fit OUT: what it drops need not be kept anywhere.
* A concatenation computes nothing: its operands are made in place, as planes of one tensor (its *root*). What
  cannot be made there (an input or output of the network, part of two concatenations) is copied by the vector unit.
* A paste computes nothing either: the vector unit copies each operand to its rows and columns of one tensor.
* Channels lie in blocks of one word. A result of the matrix unit has `cols` channels in a block, a concatenation the
  blocks of its operands one after the other: so blocks may have lanes without a channel, which are zero (or what a
  table makes of it, see `unclean`). The channel of each lane is a tensor's `lanes`, and weights get zeros where a lane
  has none.
* Groups of channels that a product or a transpose takes apart (heads of an attention) begin with a word of their own:
  the convolutions that make them leave lanes free between (`_grouped`), as filters of zeros; so does an input.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from .fusion import fuse
from .graph import PLACED, TABLE_SIZE, Graph, Layer, PastePlace, Value, Window
from .layers import WorkloadError

#: Kinds whose results have zeros in lanes without a channel, whatever their operands have there.
_CLEANING = ("conv", "depthwise", "product", "transpose")
#: Kinds whose results have their operands' channels in the same lanes.
_ALIKE = ("add", "average_pool", "depthwise", "max_pool", "mul", "normalise", "paste", "slice", "table", "upsample")
#: Channel of each lane of a tensor's words, -1 for none; int [planes * P].
Lanes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Stage:
    """One layer that computes, with the addition or max pool that is fused behind it, the depthwise convolution
    `before` it, and the convolution `expand` before that. `x`: the tensor that is read; `y`: the tensor that leaves."""

    layer: Layer
    epilogue: Layer | None = None
    r: str = ""
    before: Layer | None = None
    expand: Layer | None = None

    @property
    def first(self) -> Layer:
        """The first of its layers."""
        return self.expand or self.before or self.layer

    @property
    def x(self) -> str:
        return self.first.inputs[0]

    @property
    def y(self) -> str:
        return (self.epilogue or self.layer).output

    @property
    def reads(self) -> tuple[str, ...]:
        """Tensors that it reads."""
        inputs = self.first.inputs
        return (*inputs, self.r) if self.r else inputs


@dataclass(frozen=True, eq=False)
class Stages:
    """A network in stages. `roots`: for each tensor the one whose memory it is part of, and its first plane there."""

    graph: Graph
    stages: tuple[Stage, ...]
    values: dict[str, Value]
    lanes: dict[str, Lanes]
    roots: dict[str, tuple[str, int]]
    #: Planes of the tensors that a root consists of, in order.
    members: dict[str, list[int]]
    #: The rows and columns of the root where copies of a paste's operands lie; all other tensors have all of them.
    places: dict[str, PastePlace]


def blocks_of(channels: int, block: int, lanes: int) -> Lanes:
    """Lanes of a tensor of `channels` channels, `block` of them in each word."""
    count = -(-channels // block)
    found = np.full((count, lanes), -1, np.int64)
    index = np.arange(count * block).reshape(count, block)
    found[:, :block] = np.where(index < channels, index, -1)
    return found.reshape(-1)


def cut(  # what the caller can do decides what it is given
    graph: Graph,
    chip: ChipConfig,
    apart: Collection[str] = (),
    tight: bool = False,
    whole_inputs: Collection[str] = (),
    pastes: bool = False,
    expanded: Collection[str] = (),
    by_channel: bool = False,
) -> Stages:
    """The stages of a network on a chip, in the order of its layers; nothing is fused with the convolutions `apart`,
    nothing before those with `whole_inputs`. Of those `expanded` that a depthwise convolution goes with, the one before
    that goes with them, too (alone: not with one before it).

    `tight`: max pools are fused even if a tile then makes one row of them only, so that most rows are computed twice.
    `pastes`: whether the caller uses `Stages.places`; `by_channel`: whether it uses `Layer.scales`.

    Raises WorkloadError for what cannot be.
    """
    _check_layers(graph, chip, pastes, by_channel)
    lanes = all_lanes(graph, chip)
    fusion = fuse(graph, chip, apart, tight, whole_inputs, expanded)
    placing = _Placing(graph, chip, lanes)
    stages: list[Stage] = []
    for layer in graph.layers:
        name = layer.output
        if layer.kind in PLACED:
            stages += placing.copies.get(name, [])
        elif name in fusion.behind or name not in fusion.gone:
            epilogue, r = fusion.behind.get(name, (None, ""))
            stages.append(Stage(layer, epilogue, r, fusion.before.get(name), fusion.expand.get(name)))
    for name in placing.values:
        placing.members.setdefault(name, [len(lanes[name]) // chip.lanes])
    roots = {name: placing.root(name) for name in placing.values}
    return Stages(graph, tuple(stages), placing.values, lanes, roots, placing.members, placing.places)


def _check_layers(graph: Graph, chip: ChipConfig, pastes: bool, by_channel: bool) -> None:
    """Raises WorkloadError for a layer that the caller or the chip cannot do, and for an output that is an input."""
    for layer in graph.layers:
        if layer.scales is not None and not (by_channel and chip.core.channel_scales):
            who, mend = "this scheduler knows", "take loop_order"
            if by_channel:
                who, mend = f"cores of {chip.name} have", "take another chip, or set core.channel_scales in its file"
            raise WorkloadError(
                f"network {graph.name}: layer {layer.output} has a multiplier for each channel, and {who} one for all; "
                f"{mend}"
            )
        if layer.kind == "paste" and not pastes:
            raise WorkloadError(
                f"network {graph.name}: layer {layer.output} (paste): this scheduler places whole maps only; take "
                "loop_order"
            )
    computed = {layer.output for layer in graph.layers}
    for name in graph.outputs:
        if name not in computed:
            raise WorkloadError(f"network {graph.name}: output {name} is an input of it; leave it out")


class _Placing:
    """What is made in its place: operands of concatenations, as planes of their result, and copies of what cannot be.

    `values` and `lanes` grow by the copies; `copies`: stages that make them, by the layer that needs them.
    """

    def __init__(self, graph: Graph, chip: ChipConfig, lanes: dict[str, Lanes]) -> None:
        self.values, self.lanes, self._outputs = dict(graph.values), lanes, graph.outputs
        self.members: dict[str, list[int]] = {}
        self.copies: dict[str, list[Stage]] = {}
        self.places: dict[str, PastePlace] = {}
        self._direct: dict[str, tuple[str, int]] = {}
        self._computed = {layer.output for layer in graph.layers}
        in_place = {cache.rows for cache in graph.caches}  # what runs append to is no copy
        for layer in graph.layers:
            if layer.output in in_place:
                continue
            if layer.kind == "paste":
                self._paste(layer)
            elif layer.kind == "concat":
                self._concatenate(layer, chip.lanes)

    def root(self, name: str) -> tuple[str, int]:
        """The tensor whose memory a tensor is part of, and its first plane there."""
        root, first = name, 0
        while root in self._direct:
            root, more = self._direct[root]
            first += more
        return root, first

    def _copy(self, layer: Layer, index: int, name: str) -> str:
        copy = f"{layer.output}/copy{index}"
        self.values[copy], self.lanes[copy] = replace(self.values[name], name=copy), self.lanes[name]
        self.copies.setdefault(layer.output, []).append(Stage(Layer("max_pool", copy, (name,), Window())))
        return copy

    def _paste(self, layer: Layer) -> None:
        for index, (name, place) in enumerate(zip(layer.inputs, layer.places, strict=True)):
            copy = self._copy(layer, index, name)
            self._direct[copy], self.places[copy] = (layer.output, 0), place

    def _concatenate(self, layer: Layer, lanes: int) -> None:
        first, members = 0, self.members.setdefault(layer.output, [])
        for index, name in enumerate(layer.inputs):
            planes = len(self.lanes[name]) // lanes
            if name in self._direct or name not in self._computed or name in self._outputs:
                name = self._copy(layer, index, name)
            self._direct[name] = layer.output, first
            members.append(planes)
            first += planes


class LanesError(WorkloadError):
    """Channels of `names`, which `layer` reads, lie in other words of the chip than they have to."""

    def __init__(self, message: str, layer: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.layer, self.names = layer, tuple(names)

    def __reduce__(self) -> tuple[type[LanesError], tuple[str, str, tuple[str, ...]]]:
        return LanesError, (str(self), self.layer, self.names)


def all_lanes(graph: Graph, chip: ChipConfig) -> dict[str, Lanes]:
    """Lanes of all tensors. Raises LanesError."""
    groups = _grouped(graph, chip)
    # what a run appends to lies where convolutions put what is new, and what meets that does, too
    block = chip.cols if graph.caches else chip.lanes
    lanes: dict[str, Lanes] = {
        v.name: _group_lanes(v.channels, groups.get(v.name, 1), block, chip.lanes) for v in graph.inputs
    }
    for layer in graph.layers:
        lanes[layer.output] = _lanes(layer, graph, chip, lanes, groups.get(layer.output, 1))
    _check_products(graph, lanes)
    return lanes


def _grouped(graph: Graph, chip: ChipConfig) -> dict[str, int]:
    """The inputs, and the results of convolutions, whose groups of channels have to begin with a word of their own, and
    how many: those that products and transposes take apart, or what these are made of, unless groups fill words
    anyhow."""
    wanted: dict[str, int] = {}
    for layer in graph.layers:
        if layer.kind in ("product", "transpose"):
            for name in layer.inputs:
                if graph.value(name).channels // layer.groups % chip.cols:
                    wanted[name] = max(wanted.get(name, 1), layer.groups)
    if max(wanted.values(), default=1) == 1:
        return {}
    alike = {name: {name} for name in graph.values}  # tensors that have the same lanes
    for layer in graph.layers:
        if layer.kind in _ALIKE:
            together = set[str]().union(*(alike[name] for name in (layer.output, *layer.inputs)))
            alike |= dict.fromkeys(together, together)
    found: dict[str, int] = {}
    for name in (*(v.name for v in graph.inputs), *(layer.output for layer in graph.layers if layer.kind == "conv")):
        groups = max(wanted.get(each, 1) for each in alike[name])
        if graph.value(name).channels % groups == 0:
            found[name] = groups
    return found


def _lanes(layer: Layer, graph: Graph, chip: ChipConfig, lanes: dict[str, Lanes], groups: int) -> Lanes:
    """`groups`: of a convolution."""
    if layer.kind in ("product", "transpose"):
        return _grouped_lanes(layer, graph, chip, lanes)
    if layer.kind == "conv":
        return _group_lanes(graph.value(layer.output).channels, groups, chip.cols, chip.lanes)
    if layer.kind == "concat":
        found: list[Lanes] = []
        first = 0
        for name in layer.inputs:
            found.append(np.where(lanes[name] >= 0, lanes[name] + first, -1))
            first += graph.value(name).channels
        return np.concatenate(found)
    if layer.kind in ("add", "mul", "paste") and any(
        not np.array_equal(lanes[layer.inputs[0]], lanes[name]) for name in layer.inputs
    ):
        raise LanesError(
            f"network {graph.name}: layer {layer.output}: its operands lie in different channel blocks "
            f"(one is a concatenation of pieces that are not multiples of {chip.cols} channels)",
            layer.output,
            _not_as_of_a_conv(layer, graph, chip, lanes),
        )
    return lanes[layer.inputs[0]]


def _grouped_lanes(layer: Layer, graph: Graph, chip: ChipConfig, lanes: dict[str, Lanes]) -> Lanes:
    """Each group of the result begins with a word of its own; those of the operands must, too."""
    names = dict.fromkeys(layer.inputs)
    for name in names:
        depth, found = graph.value(name).channels // layer.groups, lanes[name]
        words = found.reshape(layer.groups, -1) if len(found) % (layer.groups * chip.lanes) == 0 else None
        if words is None or any(set(mine) - {-1} != set(_group(g, depth)) for g, mine in enumerate(words.tolist())):
            raise LanesError(
                f"network {graph.name}: layer {layer.output} ({layer.kind}): {layer.groups} groups of {depth} channels "
                f"of {name} do not lie in words of their own; on {chip.name} a word has {chip.lanes} channels and a "
                f"convolution makes {chip.cols} of them: take groups of a multiple of that",
                layer.output,
                [name],
            )
    if any(not np.array_equal(lanes[name], lanes[layer.inputs[0]]) for name in names):
        raise LanesError(
            f"network {graph.name}: layer {layer.output}: its operands lie in different channel blocks (one is "
            f"put together from pieces, or convolutions make {chip.cols} channels of a word's {chip.lanes})",
            layer.output,
            _not_as_of_a_conv(layer, graph, chip, lanes),
        )
    block = chip.cols if layer.kind == "product" else chip.lanes
    return _group_lanes(graph.value(layer.output).channels, layer.groups, block, chip.lanes)


def _not_as_of_a_conv(layer: Layer, graph: Graph, chip: ChipConfig, lanes: dict[str, Lanes]) -> list[str]:
    """The operands whose channels lie otherwise than a convolution, with as many groups as the layer, would make them;
    all, if that is none of them."""
    usual = {
        name: _group_lanes(graph.value(name).channels, layer.groups, chip.cols, chip.lanes) for name in layer.inputs
    }
    return [name for name in usual if not np.array_equal(lanes[name], usual[name])] or list(usual)


def _group_lanes(channels: int, groups: int, block: int, lanes: int) -> Lanes:
    """As `blocks_of`, each group beginning with a word."""
    one = blocks_of(channels // groups, block, lanes)
    return np.concatenate([np.where(one >= 0, one + index * (channels // groups), -1) for index in range(groups)])


def _check_products(graph: Graph, lanes: dict[str, Lanes]) -> None:
    """Lanes without a channel must not count in a product: one of both operands has zeros there."""
    dirty = unclean(graph)
    for layer in graph.layers:
        if layer.kind == "product" and dirty.issuperset(layer.inputs) and np.any(lanes[layer.inputs[0]] < 0):
            raise LanesError(
                f"network {graph.name}: layer {layer.output} (product): both operands are tables that make other "
                "than 0 of 0, and their channels do not fill whole words",
                layer.output,
                layer.inputs[:1],
            )


def _group(index: int, size: int) -> range:
    return range(index * size, (index + 1) * size)


def unclean(graph: Graph) -> frozenset[str]:
    """Tensors whose lanes without a channel need not be zero: what a table makes of 0, until weights drop it."""
    found: set[str] = set()
    for layer in graph.layers:
        made = layer.table is not None and layer.table[TABLE_SIZE // 2] != 0
        if layer.kind not in _CLEANING and (made or found.intersection(layer.inputs)):
            found.add(layer.output)
    return frozenset(found)


def spread(array: NDArray[np.int8], lanes: Lanes) -> NDArray[np.int8]:
    """An array [..., channels, rows, columns] with a zero channel for each lane that has none: itself if all have."""
    if _all_used(array.shape[-3], lanes):
        return array
    found = np.zeros((*array.shape[:-3], len(lanes), *array.shape[-2:]), np.int8)
    used = lanes >= 0
    found[..., used, :, :] = array[..., lanes[used], :, :]
    return found


def _all_used(channels: int, lanes: Lanes) -> bool:
    """Whether there is a lane for each channel, in their order, and no other."""
    return len(lanes) == channels and bool((lanes == np.arange(channels)).all())


def filters(lanes: Lanes, chip: ChipConfig) -> Lanes:
    """The channel of each of the filters that a convolution has whose result has these lanes, -1 for one of zeros."""
    columns = lanes.reshape(-1, chip.lanes)[:, : chip.cols].ravel()
    return columns[: int(np.flatnonzero(columns >= 0)[-1]) + 1]


def constant(
    layer: Layer, kind: str, lanes: Lanes, packed: bool = False, filter_lanes: Lanes | None = None
) -> NDArray[Any]:
    """The weights (`kind` "w") or biases ("bias") of a layer as a schedule's tensor has them; by channel, the biases
    [channels] are [2, channels], with the multipliers.

    `lanes`: of the layer's input; where a lane has no channel there is a zero. `packed`: kernel columns are packed.
    `filter_lanes`: a convolution's `filters` (None: those that it has).
    """
    assert layer.w is not None
    assert layer.bias is not None
    if kind == "bias":
        numbers = layer.bias if layer.scales is None else np.stack([layer.bias, layer.scales])
        return _on_lanes(numbers, lanes if layer.kind == "depthwise" else filter_lanes)
    if layer.kind == "depthwise":
        return spread(layer.w.transpose(1, 0, 2, 3), lanes)[0]
    weights = layer.w if packed else spread(layer.w, lanes)
    return _on_lanes(weights.T, filter_lanes).T


def _on_lanes(array: NDArray[Any], lanes: Lanes | None) -> NDArray[Any]:
    """An array [..., channels] with a number for each lane, 0 where there is no channel (None: the channels): itself if
    there are no others."""
    if lanes is None or _all_used(array.shape[-1], lanes):
        return array
    found = np.zeros((*array.shape[:-1], len(lanes)), array.dtype)
    found[..., lanes >= 0] = array[..., lanes[lanes >= 0]]
    return found


def words(array: NDArray[np.int8], lanes: Lanes, per_word: int) -> NDArray[np.uint8]:
    """An array int8 [channels, rows, columns] as the words that the chip keeps: uint8 [planes, rows, columns, P]."""
    full = spread(array, lanes)
    full = full.reshape(-1, per_word, *full.shape[1:])
    return np.ascontiguousarray(full.transpose(0, 2, 3, 1)).view(np.uint8)


def table_array(table: NDArray[np.int8], per_word: int) -> NDArray[np.int8]:
    """A table, int8 [256], as a schedule's tensor has it: int8 [1, P, 1, 256 / P]."""
    return table.reshape(1, 1, -1, per_word).transpose(0, 3, 1, 2)
