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

from .interface import Importer, ImportFileError, M, ToolLayer, text_of, validated

TOOL = "stream-dse"
#: Where Stream leaves its cycles, beside a mapping.
REPORT = Path("allocation", "reports", "slot_latency_breakdown.yaml")
_WHAT = "a mapping.yaml of stream-dse 2.1, of one layer"
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


class _Split(Exact):
    dim: str
    split: int = Field(gt=0)


class _Tile(Exact):
    dim: str
    tile: int = Field(gt=0)


class _Layer(Exact):
    name: str
    core_allocation: list[list[int]]
    inter_core_tiling: list[list[_Split]] = []


class _Group(Exact):
    layers: list[str]
    intra_core_tiling: list[_Tile] = []


class _File(Exact):
    layers: list[_Layer]
    fused_groups: list[_Group] = []


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
    file = _yaml(path, _File, _WHAT)
    if len(file.layers) != 1 or len(file.fused_groups) > 1:
        names = ", ".join(layer.name for layer in file.layers) or "none"
        raise ImportFileError(
            f"{path}: layers {names} are mapped together; a layer runs here by itself: cut the group at every layer"
        )
    if shape is None:
        raise ImportFileError(f"{path}: a mapping of Stream has no sizes: name its layer with --workload")
    tiles = [tile for group in file.fused_groups for tile in group.intra_core_tiling]
    try:
        mapping = _mapping(file.layers[0], tiles, sizes_of(shape))
    except MappingError as error:
        raise MappingError(f"{path}: {error}") from None
    report = path.parent / REPORT
    what = "a report of stream-dse 2.1; without the file nothing is claimed"
    return ToolLayer(shape, mapping, _claim(_yaml(report, _Report, what) if report.is_file() else None))


def _claim(report: _Report | None) -> ToolClaim:
    """What a report says: all cycles, and of each tensor its transfer in the first iteration, whose slots follow each
    other. Stream calls the tensors of a layer x, w and y, those that it passes on x_1, y_1."""
    if report is None:
        return ToolClaim(tool=TOOL)
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


STREAM = Importer("stream", "a layer's mapping by Stream (mapping.yaml)", read)


def _yaml(path: Path, model: type[M], what: str) -> M:
    """A YAML file as a model has it. Raises ImportFileError, OSError."""
    import yaml

    try:
        values = yaml.safe_load(text_of(path))
    except (yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ImportFileError(f"{path}: is not YAML: {reason}; it must be {what}: was it cut?") from error
    return validated(model, values, path, what)


def _dimension(text: str) -> Dimension:
    """`D6` or `conv.D6`. Raises MappingError."""
    match = re.fullmatch(r"(?:.*\.)?D(\d{1,3})", text)
    if match is None or int(match[1]) >= len(_DIMENSIONS):
        raise MappingError(f"dimension {text!r} is none of a Conv's, D0 to D{len(_DIMENSIONS) - 1}")
    return _DIMENSIONS[int(match[1])]


def _mapping(layer: _Layer, tiles: Sequence[_Tile], sizes: Mapping[Dimension, int]) -> LayerMapping:
    if len(layer.core_allocation) != 1 or len(layer.inter_core_tiling) > 1:
        raise MappingError(f"layer {layer.name} has several core lists; give one, with its inter_core_tiling")
    cores = [Factor(_dimension(each.dim), each.split) for splits in layer.inter_core_tiling for each in splits]
    numbers = layer.core_allocation[0]
    if len(numbers) != prod(factor.size for factor in cores):
        raise MappingError(
            f"layer {layer.name} is divided into {prod(factor.size for factor in cores)} parts for "
            f"{len(numbers)} cores; each core needs one"
        )
    each_core = {d: -(-size // prod(f.size for f in cores if f.dimension is d)) for d, size in sizes.items()}
    inside = dict(each_core)
    outside: list[Factor] = []
    for tile in tiles:
        dimension = _dimension(tile.dim)
        if inside[dimension] % tile.tile:
            raise MappingError(f"tiles of {tile.tile} of {tile.dim} do not divide the {inside[dimension]} of a core")
        outside.append(Factor(dimension, inside[dimension] // tile.tile))
        inside[dimension] = tile.tile
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
    return LayerMapping(sizes, levels, cores=cores, core_list=tuple(numbers))
