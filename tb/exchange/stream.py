"""Stream (Symons et al., IEEE Transactions on Computers, 2025): the `mapping.yaml` of a layer, as stream-dse 2.1 writes
it.

It says which cores have a layer, over what they divide it (`inter_core_tiling`), and the tiles that each core has at
once (`intra_core_tiling`, the first one changes most often); all else lies in the core. Dimensions have numbers, those
of an ONNX Conv. Beside it Stream leaves `allocation/reports/slot_latency_breakdown.yaml`, with its cycles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Literal

from pydantic import Field

from meshloom.hw.spec.exact import Exact
from meshloom.sched.ir.schedule import ClaimTransfer, ToolClaim
from meshloom.sched.schedulers.nest.mapping import (
    REDUCTIONS,
    Dimension,
    Factor,
    LayerMapping,
    Level,
    MappingError,
    MemoryPlace,
    Operand,
)
from meshloom.sched.schedulers.nest.schedule import sizes_of
from meshloom.sched.workload.layers import ConvShape

from .interface import Importer, ImportFileError, M, ToolLayer, validated
from .plain_yaml import read_yaml

TOOL = "stream-dse"
#: Where Stream leaves its cycles, beside a mapping.
REPORT = Path("allocation", "reports", "slot_latency_breakdown.yaml")
WHAT = "a mapping.yaml of stream-dse 2.1"
_BYTE = 8
#: A transfer of a tensor of the layer, by its name in the report.
_TRANSFER = re.compile(r"Transfer\(([xwy])(?:_\d+)?\)")
_TENSORS: Mapping[str, Literal["x", "w", "y"]] = {"x": "x", "w": "w", "y": "y"}
#: The dimensions of a Conv by their numbers.
_DIMENSIONS = (
    Dimension.B,
    Dimension.OX,
    Dimension.OY,
    Dimension.FX,
    Dimension.FY,
    Dimension.C,
    Dimension.K,
)
#: The order of loops in the core: what is summed, pixels, channels.
_INSIDE = (
    Dimension.C,
    Dimension.FX,
    Dimension.FY,
    Dimension.OX,
    Dimension.OY,
    Dimension.B,
    Dimension.K,
)


class StreamSplit(Exact):
    dim: str
    split: int = Field(gt=0)


class StreamTile(Exact):
    dim: str
    tile: int = Field(gt=0)


class StreamLayer(Exact):
    name: str
    core_allocation: list[list[int]]
    inter_core_tiling: list[list[StreamSplit]] = []


class StreamGroup(Exact):
    layers: list[str]
    intra_core_tiling: list[StreamTile] = []


class StreamFile(Exact):
    layers: list[StreamLayer]
    fused_groups: list[StreamGroup] = []


class _Totals(Exact):
    total_latency_cycles: float


class _Contributor(Exact):
    """A transfer in a slot: bits of the tensor, and cycles over its links."""

    transfer: str
    tensor_bits: float = Field(ge=0)
    path_cycles: float = Field(ge=0)


class _Slot(Exact):
    slot_latency_cycles: float
    transfer_contributors: list[_Contributor] = []


class _Report(Exact):
    totals: _Totals
    slots: list[_Slot] = []


def read(path: Path, shape: ConvShape | None) -> ToolLayer:
    """The layer of a file, which does not have its sizes: `shape` does. Raises ImportFileError, MappingError,
    OSError."""
    file = yaml_of(path, StreamFile, WHAT)
    if len(file.layers) != 1 or len(file.fused_groups) > 1:
        names = ", ".join(layer.name for layer in file.layers) or "none"
        raise ImportFileError(
            f"{path}: layers {names} are mapped together; name all of them with --workload: NETWORK.onnx, or "
            "LAYER+LAYER"
        )
    if shape is None:
        raise ImportFileError(f"{path}: a mapping of Stream has no sizes: name its layer with --workload")
    tiles = [tile for group in file.fused_groups for tile in group.intra_core_tiling]
    try:
        mapping = _mapping(file.layers[0], tiles, sizes_of(shape))
    except MappingError as error:
        raise MappingError(f"{path}: {error}") from None
    return ToolLayer(shape, mapping, claim_beside(path))


def claim_beside(path: Path) -> ToolClaim:
    """What the report beside a mapping says: all cycles, and of each tensor its transfer in the first iteration, whose
    slots follow each other. Stream calls the tensors of a layer x, w and y, those that it passes on x_1, y_1. Without
    a report nothing is claimed. Raises ImportFileError, OSError."""
    place = path.parent / REPORT
    if not place.is_file():
        return ToolClaim(tool=TOOL)
    report = yaml_of(place, _Report, "a report of stream-dse 2.1; without the file nothing is claimed")
    transfers: list[ClaimTransfer] = []
    begin = 0.0
    for slot in report.slots:
        for each in slot.transfer_contributors:
            match = _TRANSFER.fullmatch(each.transfer)
            if match is not None:
                size = round(each.tensor_bits / _BYTE)
                tensor = _TENSORS[match[1]]
                transfers.append(
                    ClaimTransfer(tensor=tensor, begin=round(begin), cycles=round(each.path_cycles), bytes=size)
                )
        begin += max(0.0, slot.slot_latency_cycles)
    cycles = round(report.totals.total_latency_cycles)
    return ToolClaim(tool=TOOL, cycles=cycles, transfers=tuple(transfers))


STREAM = Importer(
    "stream",
    "a mapping by Stream (mapping.yaml), of a layer or of a fused group",
    read,
    "meshloom.tb.exchange.stream_groups:read",
)


def yaml_of(path: Path, model: type[M], what: str) -> M:
    """A YAML file as a model has it. Raises ImportFileError, OSError."""
    return validated(model, read_yaml(path, what), path, what)


def dimension_of(text: str) -> Dimension:
    """`D6` or `conv.D6`. Raises MappingError."""
    match = re.fullmatch(r"(?:.*\.)?D(\d{1,3})", text)
    if match is None or int(match[1]) >= len(_DIMENSIONS):
        raise MappingError(f"dimension {text!r} is none of a Conv's, D0 to D{len(_DIMENSIONS) - 1}")
    return _DIMENSIONS[int(match[1])]


def _mapping(layer: StreamLayer, tiles: Sequence[StreamTile], sizes: Mapping[Dimension, int]) -> LayerMapping:
    outside: list[Factor] = []
    inside = core_sizes(layer, sizes)
    for tile in tiles:
        if (tool := tile.dim.rpartition(".")[0]) not in ("", layer.name):
            raise MappingError(f"tiles of {tile.dim}: {tool} is no layer of the file, which maps {layer.name}")
        dimension = dimension_of(tile.dim)
        if inside[dimension] % tile.tile:
            raise MappingError(f"tiles of {tile.tile} of {tile.dim} do not divide the {inside[dimension]} of a core")
        outside.append(Factor(dimension, inside[dimension] // tile.tile))
        inside[dimension] = tile.tile
    return layer_mapping(layer, outside, sizes)


def core_sizes(layer: StreamLayer, sizes: Mapping[Dimension, int]) -> dict[Dimension, int]:
    """How much of each dimension a core of a layer has. Raises MappingError."""
    if len(layer.core_allocation) != 1 or len(layer.inter_core_tiling) > 1:
        raise MappingError(f"layer {layer.name} has several core lists; give one, with its inter_core_tiling")
    cores = _splits(layer)
    numbers, parts = layer.core_allocation[0], prod(factor.size for factor in cores)
    if len(numbers) != parts:
        raise MappingError(
            f"layer {layer.name} is divided into {parts} parts for {len(numbers)} cores; each core needs one"
        )
    return {d: -(-size // prod(f.size for f in cores if f.dimension is d)) for d, size in sizes.items()}


def _splits(layer: StreamLayer) -> list[Factor]:
    return [Factor(dimension_of(each.dim), each.split) for splits in layer.inter_core_tiling for each in splits]


def layer_mapping(layer: StreamLayer, outside: Sequence[Factor], sizes: Mapping[Dimension, int]) -> LayerMapping:
    """The mapping of a layer with these loops outside the core, innermost first, and all else in it. Raises
    MappingError."""
    inside = core_sizes(layer, sizes)
    for factor in outside:
        inside[factor.dimension] //= factor.size
    outside = [factor for factor in outside if factor.size > 1]
    within = [Factor(dimension, inside[dimension]) for dimension in _INSIDE]
    summed = max((number + 1 for number, f in enumerate(outside) if f.dimension in REDUCTIONS), default=0)
    levels = {
        operand: [
            Level("core", MemoryPlace.CORE, (*within, *outside[:stays])),
            Level("DRAM", MemoryPlace.DRAM, tuple(outside[stays:])),
        ]
        for operand, stays in ((Operand.INPUT, 0), (Operand.WEIGHT, 0), (Operand.OUTPUT, summed))
    }
    cores = tuple(layer.core_allocation[0])
    return LayerMapping(sizes, levels, cores=_splits(layer), core_list=cores, tells_array=False)
