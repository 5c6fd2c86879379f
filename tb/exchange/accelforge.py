"""AccelForge (Andrulis, Gilbert et al., 2025): a layer's workload and its mapping, a LoopTree in YAML.

Nodes go from DRAM inwards: `Storage` is a memory in which tensors have tiles from there on, `Temporal` and `Spatial`
cut a variable of the einsum into tiles of `tile_shape`. The einsum says what the variables are. What the mapper says
stands beside `NAME.yaml` in `NAME.totals.json`, as `scripts/accelforge_mappings.py` leaves it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from meshloom.hw.spec.exact import Exact
from meshloom.sched.ir.schedule import ToolClaim
from meshloom.sched.schedulers.nest.mapping import (
    Dimension,
    Factor,
    LayerMapping,
    Level,
    MappingError,
    MemoryPlace,
    Operand,
)
from meshloom.sched.support.reading import parse_json
from meshloom.sched.workload import shapes
from meshloom.sched.workload.layers import ConvShape, WorkloadError

from .interface import Importer, ImportFileError, ToolLayer, check_layer, text_of, validated
from .plain_yaml import read_yaml

TOOL = "accelforge"
_WHAT = "a workload of one einsum and its mapping, as AccelForge reads them"
_EINSUM = re.compile(r"\s*(\w+)\s*\[([^\]]*)\]\s*=\s*(\w+)\s*\[([^\]]*)\]\s*\*\s*(\w+)\s*\[([^\]]*)\]\s*")
#: An index of a tensor: a variable, or `H: 2 * p + r`.
_TERM = r"(?:(\d+)\s*\*\s*)?([a-z]\w*)(?:\s*\*\s*(\d+))?"
_INDEX = re.compile(rf"(?:\w+\s*:\s*)?{_TERM}(?:\s*\+\s*{_TERM})?")
_BOUND = re.compile(r"\s*0\s*<=\s*(\w+)\s*<\s*(\d{1,9})\s*")


class _Einsum(Exact):
    einsum: str
    iteration_space_shape: list[str]


class _Workload(Exact):
    einsums: list[_Einsum]


#: Nodes of one layer; those of several layers have others.
Kind = Literal["Storage", "Temporal", "Spatial", "Compute", "Reservation"]


class _Node(Exact):
    """A node; `kind` is its tag."""

    kind: Kind
    tensors: list[str] = []
    component: str = ""
    rank_variable: str = ""
    tile_shape: int = Field(1, gt=0)


class _Mapping(Exact):
    nodes: list[_Node]


class _File(Exact):
    workload: _Workload
    mapping: _Mapping


class _Totals(Exact):
    latency: float = Field(alias="Total<SEP>latency")


@dataclass(frozen=True)
class _Layer:
    """What an einsum computes: which operand a tensor is, which dimension a variable is; strides, dilation by axis."""

    operands: Mapping[str, Operand]
    dimensions: Mapping[str, Dimension]
    strides: Mapping[Dimension, int]
    dilations: Mapping[Dimension, int]


def read(path: Path, shape: ConvShape | None) -> ToolLayer:
    """The layer of a file; without `shape` its input is as large as its windows reach, without padding. Raises
    ImportFileError, MappingError, OSError."""
    file = validated(_File, read_yaml(path, _WHAT), path, _WHAT)
    if len(file.workload.einsums) != 1:
        raise ImportFileError(
            f"{path}: workload.einsums: {len(file.workload.einsums)} einsums; a layer runs here by itself: map one"
        )
    (einsum,) = file.workload.einsums
    try:
        layer = _layer(einsum.einsum)
        sizes = _sizes(einsum, layer)
        mapping = _mapping(file.mapping.nodes, layer, sizes)
    except MappingError as error:
        raise MappingError(f"{path}: {error}") from None
    own = shape or _shape(path, layer, sizes)
    check_layer(path, own, sizes)
    return ToolLayer(own, mapping, _claim(path))


ACCELFORGE = Importer("accelforge", "a layer's workload and mapping by AccelForge (LoopTree YAML)", read)


def _indices(text: str) -> list[tuple[int, str, int, str]]:
    """Of each index of a tensor: factor and variable, and those of a second one. Raises MappingError."""
    indices: list[tuple[int, str, int, str]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _INDEX.fullmatch(part)
        if match is None:
            raise MappingError(f"workload: index {part!r} is neither a variable nor like H: 2 * p + r")
        indices.append((int(match[1] or match[3] or 1), match[2], int(match[4] or match[6] or 1), match[5] or ""))
    return indices


def _layer(text: str) -> _Layer:
    """What an einsum computes. Raises MappingError."""
    match = _EINSUM.fullmatch(text)
    if match is None:
        raise MappingError(f"workload: einsum {text!r} is no product like O[m, n] = A[m, k] * B[k, n]")
    output, *inputs = [(match[number], _indices(match[number + 1])) for number in (1, 3, 5)]
    windows = [any(second for *_, second in indices) for _, indices in inputs]
    if windows == [False, True]:
        inputs.reverse()
    results, read, weights = (
        {variable for _, first, _, second in indices for variable in (first, second) if variable}
        for _, indices in (output, *inputs)
    )
    dimensions: dict[str, Dimension] = {}
    strides: dict[Dimension, int] = {}
    dilations: dict[Dimension, int] = {}
    axes = [(Dimension.OX, Dimension.FX), (Dimension.OY, Dimension.FY)]
    for step, pixel, tap, kernel in reversed([index for index in inputs[0][1] if index[3]]):
        if not axes or pixel not in results or kernel not in weights:
            raise MappingError(f"workload: {pixel} + {kernel} is no window of a convolution")
        along, across = axes.pop(0)
        dimensions |= {pixel: along, kernel: across}
        strides[along], dilations[along] = step, tap
    others = {
        (True, True, False): Dimension.B if strides else Dimension.OX,
        (True, False, True): Dimension.K,
        (False, True, True): Dimension.C,
    }
    for variable in sorted({*results, *read, *weights} - dimensions.keys()):
        dimension = others.pop((variable in results, variable in read, variable in weights), None)
        if dimension is None:
            raise MappingError(f"workload: variable {variable} of {text!r} is none of a layer's dimensions")
        dimensions[variable] = dimension
    tensors = (output[0], Operand.OUTPUT), (inputs[0][0], Operand.INPUT), (inputs[1][0], Operand.WEIGHT)
    return _Layer(dict(tensors), dimensions, strides, dilations)


def _sizes(einsum: _Einsum, layer: _Layer) -> dict[Dimension, int]:
    """Raises MappingError."""
    sizes: dict[Dimension, int] = {}
    for bound in einsum.iteration_space_shape:
        match = _BOUND.fullmatch(bound)
        if match is None or match[1] not in layer.dimensions or not int(match[2]):
            raise MappingError(f"workload: bound {bound!r} is not like 0 <= m < 64, of a variable of the einsum")
        sizes[layer.dimensions[match[1]]] = int(match[2])
    if left := [name for name, dimension in layer.dimensions.items() if dimension not in sizes]:
        raise MappingError(f"workload: variable {left[0]} has no bound in iteration_space_shape")
    return sizes


def _shape(path: Path, layer: _Layer, sizes: Mapping[Dimension, int]) -> ConvShape:
    """The layer itself, without padding. Raises ImportFileError."""
    size = {dimension: sizes.get(dimension, 1) for dimension in Dimension}
    if not layer.strides:
        return shapes.parse(f"gemm:{size[Dimension.OX]}x{size[Dimension.K]}x{size[Dimension.C]}")
    tap = {layer.dilations[d] for d, k in ((Dimension.OX, Dimension.FX), (Dimension.OY, Dimension.FY)) if size[k] > 1}
    dilation = max(tap, default=1)
    high, wide = (
        (size[out] - 1) * layer.strides.get(out, 1) + (size[kernel] - 1) * dilation + 1
        for out, kernel in ((Dimension.OY, Dimension.FY), (Dimension.OX, Dimension.FX))
    )
    text = (
        f"conv:{high}x{wide}x{size[Dimension.C]}-{size[Dimension.K]},k{size[Dimension.FY]}x{size[Dimension.FX]},"
        f"s{layer.strides.get(Dimension.OY, 1)}x{layer.strides.get(Dimension.OX, 1)},d{dilation},b{size[Dimension.B]}"
    )
    try:
        return shapes.parse(text)
    except WorkloadError as error:
        raise ImportFileError(f"{path}: {error}") from error


def _mapping(nodes: Sequence[_Node], layer: _Layer, sizes: Mapping[Dimension, int]) -> LayerMapping:
    """Raises MappingError."""
    units = list(dict.fromkeys(node.component for node in nodes if node.kind == "Spatial"))
    if len(units) > 2:
        raise MappingError(f"{', '.join(units)} unroll: the chips have an array, and cores; unroll over two")
    array = units[-1] if units else ""
    left = dict(sizes)
    unrolled: dict[str, list[Factor]] = {unit: [] for unit in units}
    loops: dict[Operand, list[list[Factor]]] = {operand: [] for operand in Operand}
    memories: dict[Operand, list[tuple[str, bool]]] = {operand: [] for operand in Operand}
    inside = not units
    for node in nodes:
        if node.kind == "Storage":
            for tensor in node.tensors:
                if tensor not in layer.operands:
                    raise MappingError(f"mapping: tensor {tensor} in {node.component} is none of the einsum's")
                memories[layer.operands[tensor]].append((node.component, inside and bool(units)))
                loops[layer.operands[tensor]].append([])
        elif node.kind in ("Temporal", "Spatial"):
            factor = _factor(node, layer, left)
            if node.kind == "Spatial":
                inside = inside or node.component == array
                unrolled[node.component].append(factor)
                continue
            for operand in Operand:
                if not loops[operand]:
                    raise MappingError(
                        f"mapping: {node.rank_variable} is cut before {operand} has a memory; DRAM first"
                    )
                loops[operand][-1].insert(0, factor)
    levels = {operand: _levels(operand, memories[operand], loops[operand]) for operand in Operand}
    return LayerMapping(sizes, levels, unrolled.get(array, []), unrolled[units[0]] if len(units) == 2 else [])


def _factor(node: _Node, layer: _Layer, left: dict[Dimension, int]) -> Factor:
    """How many tiles a node makes of what is left of its variable. Raises MappingError."""
    dimension = layer.dimensions.get(node.rank_variable)
    if dimension is None:
        raise MappingError(f"mapping: {node.rank_variable!r} is no variable of the einsum")
    whole, rest = divmod(left[dimension], node.tile_shape)
    if rest or not whole:
        raise MappingError(
            f"mapping: tiles of {node.tile_shape} do not divide {left[dimension]} of {node.rank_variable}; factors "
            "must multiply up to the layer"
        )
    left[dimension] = node.tile_shape
    return Factor(dimension, whole)


def _levels(operand: Operand, memories: Sequence[tuple[str, bool]], loops: Sequence[list[Factor]]) -> list[Level]:
    """The levels of an operand, innermost first: the outermost memory is DRAM, the next one the core's. Raises
    MappingError."""
    if len(memories) < 2:
        raise MappingError(f"mapping: {operand} has no memory but DRAM; keep a tile of it in the core")
    outside = [index for index, (_, in_array) in enumerate(memories) if not in_array]
    levels: list[Level] = []
    for index, ((name, in_array), own) in enumerate(zip(memories, loops, strict=True)):
        place = (
            MemoryPlace.DRAM
            if index == 0
            else MemoryPlace.PE
            if in_array
            else MemoryPlace.CORE
            if index == outside[-1]
            else MemoryPlace.SHARED
        )
        levels.insert(0, Level(name, place, tuple(own)))
    return levels


def _claim(path: Path) -> ToolClaim:
    """What the mapper said; nothing without its file. Raises ImportFileError, OSError."""
    totals = path.with_suffix(".totals.json")
    if not totals.is_file():
        return ToolClaim(tool=TOOL)
    what = "the totals of AccelForge's mapper; without the file nothing is claimed"
    try:
        values = parse_json(text_of(totals))
    except ValueError as error:
        raise ImportFileError(f"{totals}: {error}; it must be {what}: was it cut?") from error
    return ToolClaim(tool=TOOL, cycles=round(validated(_Totals, values, totals, what).latency))
