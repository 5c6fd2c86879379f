"""ZigZag (Mei et al., IEEE Transactions on Computers, 2021): the `LAYER_complete.json` of a layer, as zigzag-dse 3.9
writes it.

For each operand and memory level it has the temporal loops, and for each operand and level of the architecture, of
which the array is the lowest, what is unrolled there; both innermost first. Its latency is in cycles; energies are in
the unit of the hardware file's costs, picojoules in those of ZigZag.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path

from meshloom.hw.spec.exact import Exact
from meshloom.sched.ir.schedule import ClaimPhase, ToolClaim
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

TOOL = "zigzag-dse"
_WHAT = "LAYER_complete.json of zigzag-dse 3.9"
#: Of the array's dimensions: the first two are a core's, the others go over cores.
_ARRAY_DIMENSIONS = 2

#: A loop as the file has it: `(OX, 16)`.
_LOOP = re.compile(r"\(\s*(\w+)\s*,\s*([0-9]+(?:\.[0-9]*)?)\s*\)")
_RELATION = re.compile(r"I([XY]) = (\d+)\*O\1 \+ (\d+)\*F\1")


class _Latency(Exact):
    data_onloading: float
    computation: float
    data_offloading: float


class _Energy(Exact):
    energy_total: float


class _Outputs(Exact):
    latency: _Latency
    energy: _Energy


class _Array(Exact):
    dimensions: dict[str, int]


class _Accelerator(Exact):
    operational_array: _Array
    mem_hierarchy_dict: dict[str, list[str]]


class _Layer(Exact):
    name: str
    equation: str
    equation_relations: list[str]
    loop_dimensions: dict[str, int]
    user_spatial_mapping: dict[str, dict[str, float]] | None = None
    memory_operand_links: dict[str, str]


class _Inputs(Exact):
    accelerator: _Accelerator
    layer: _Layer
    spatial_mapping: dict[str, list[list[str]]]
    temporal_mapping: dict[str, list[list[str]]]


class _File(Exact):
    outputs: _Outputs
    inputs: _Inputs


def read(path: Path, shape: ConvShape | None) -> ToolLayer:
    """The layer of a file; without `shape` its input is as large as its windows reach, without padding. Raises
    ImportFileError, MappingError, OSError."""
    try:
        values = parse_json(text_of(path))
    except ValueError as error:
        raise ImportFileError(f"{path}: {error}; it must be {_WHAT}: was it cut?") from error
    inputs = validated(_File, values, path, _WHAT)
    names = _names(path, inputs.inputs.layer)
    sizes = _sizes(path, inputs.inputs.layer, names)
    own = shape or _shape(path, inputs.inputs.layer, sizes)
    check_layer(path, own, sizes)
    try:
        mapping = _mapping(inputs.inputs, names, sizes)
    except MappingError as error:
        raise MappingError(f"{path}: {error}") from None
    latency = inputs.outputs.latency
    claim = ToolClaim(
        tool=TOOL,
        cycles=round(latency.data_onloading + latency.computation + latency.data_offloading),
        phases=(
            ClaimPhase(name="onload", cycles=round(latency.data_onloading)),
            ClaimPhase(name="compute", cycles=round(latency.computation)),
            ClaimPhase(name="offload", cycles=round(latency.data_offloading)),
        ),
        picojoules=inputs.outputs.energy.energy_total,
        array=tuple(inputs.inputs.accelerator.operational_array.dimensions.values()),
    )
    return ToolLayer(own, mapping, claim)


ZIGZAG = Importer("zigzag", "the best mapping of a layer by ZigZag (LAYER_complete.json)", read)


def _names(path: Path, layer: _Layer) -> dict[str, Dimension]:
    """What the dimensions of a layer's equation are: those of a convolution by their names; others are a product of
    matrices, by the operands that have them."""
    own = set(layer.loop_dimensions)
    if own <= {*Dimension, "G"}:
        return {name: Dimension(name) for name in own - {"G"}}
    sides = {
        side[0]: {name.upper() for name in re.findall(r"\[(\w+)\]", side)}
        for side in re.split(r"[=*] ?", layer.equation)
        if side
    }
    if not {"O", "W", "I"} <= sides.keys():
        raise ImportFileError(
            f"{path}: inputs.layer.equation: {layer.equation!r} is no product of W and I; give a Conv or Gemm"
        )
    pixels = sorted((sides["O"] & sides["I"]) - sides["W"], key=lambda name: layer.loop_dimensions.get(name, 1))
    names: dict[str, Dimension] = dict(zip(reversed(pixels), (Dimension.OX, Dimension.OY, Dimension.B), strict=False))
    names |= dict.fromkeys((sides["O"] & sides["W"]) - sides["I"], Dimension.K)
    names |= dict.fromkeys((sides["I"] & sides["W"]) - sides["O"], Dimension.C)
    return names


def _sizes(path: Path, layer: _Layer, names: dict[str, Dimension]) -> dict[Dimension, int]:
    for name, size in layer.loop_dimensions.items():
        if name not in names and size > 1:
            raise ImportFileError(
                f"{path}: inputs.layer.loop_dimensions: {name} = {size}: a layer in groups has no single loop nest "
                "here; give each group as a layer"
            )
    return {names[name]: size for name, size in layer.loop_dimensions.items() if name in names}


def _shape(path: Path, layer: _Layer, sizes: dict[Dimension, int]) -> ConvShape:
    """The layer itself. A product of matrices, or a map of one row, is a `gemm:`."""
    steps = {"X": (1, 1), "Y": (1, 1)}
    for relation in layer.equation_relations:
        if match := _RELATION.fullmatch(relation):
            steps[match[1]] = int(match[2]), int(match[3])
    size = {dimension: sizes.get(dimension, 1) for dimension in Dimension}
    kernel = size[Dimension.FY], size[Dimension.FX]
    if steps["X"][1] != steps["Y"][1] and min(kernel) > 1:
        raise ImportFileError(
            f"{path}: inputs.layer.equation_relations: dilations differ; name the layer with --workload"
        )
    if kernel == (1, 1) and size[Dimension.OY] == size[Dimension.B] == 1 and steps["X"][0] == 1:
        return shapes.parse(f"gemm:{size[Dimension.OX]}x{size[Dimension.K]}x{size[Dimension.C]}")
    dilation = steps["Y"][1] if kernel[0] > 1 else steps["X"][1] if kernel[1] > 1 else 1
    rows, columns = (
        (size[out] - 1) * steps[axis][0] + (size[tap] - 1) * dilation + 1
        for axis, out, tap in (("Y", Dimension.OY, Dimension.FY), ("X", Dimension.OX, Dimension.FX))
    )
    text = (
        f"conv:{rows}x{columns}x{size[Dimension.C]}-{size[Dimension.K]},k{kernel[0]}x{kernel[1]},"
        f"s{steps['Y'][0]}x{steps['X'][0]},d{dilation},b{size[Dimension.B]}"
    )
    try:
        return shapes.parse(text)
    except WorkloadError as error:
        raise ImportFileError(f"{path}: {error}") from error


def _factors(loops: Iterable[str], names: dict[str, Dimension]) -> tuple[Factor, ...]:
    """Loops as the file has them. Raises MappingError."""
    factors: list[Factor] = []
    for text in loops:
        match = _LOOP.fullmatch(text.strip())
        if match is None or not float(match[2]).is_integer() or float(match[2]) < 1:
            raise MappingError(f"loop {text!r} is not (DIMENSION, whole number); let unrollings divide the layer")
        if match[1] in names:
            factors.append(Factor(names[match[1]], int(float(match[2]))))
    return tuple(factors)


def _mapping(inputs: _Inputs, names: dict[str, Dimension], sizes: dict[Dimension, int]) -> LayerMapping:
    unrolled_by = inputs.layer.user_spatial_mapping or {}
    cores = [
        Factor(names[name], int(size))
        for axis in list(inputs.accelerator.operational_array.dimensions)[_ARRAY_DIMENSIONS:]
        for name, size in unrolled_by.get(axis, {}).items()
        if size > 1 and name in names
    ]
    levels: dict[Operand, Sequence[Level]] = {}
    array: tuple[Factor, ...] = ()
    for operand in Operand:
        unrolled = [list(_factors(level, names)) for level in inputs.spatial_mapping.get(operand, [])]
        for factor in cores:  # they are unrolled above what is unrolled over the array
            level = next((level for level in reversed(unrolled) if factor in level), None)
            if level is not None:
                level.remove(factor)
        array = tuple(factor for level in unrolled for factor in level)
        inner = max((index for index, level in enumerate(unrolled) if prod(f.size for f in level) > 1), default=0)
        memories = inputs.accelerator.mem_hierarchy_dict.get(inputs.layer.memory_operand_links.get(operand, ""), [])
        loops = inputs.temporal_mapping.get(operand, [])
        if not loops or len(loops) != len(memories):
            raise MappingError(
                f"inputs.temporal_mapping.{operand} has {len(loops)} levels for {len(memories)} memories"
            )
        levels[operand] = [
            Level(_memory(memories[index]), _place(index, inner, len(loops)), _factors(level, names))
            for index, level in enumerate(loops)
        ]
    turns = [*(factor for level in levels[Operand.OUTPUT] for factor in level.loops), *cores]
    own_axes = list(inputs.accelerator.operational_array.dimensions)[:_ARRAY_DIMENSIONS]
    wide = {names[name]: size for axis in own_axes for name, size in unrolled_by.get(axis, {}).items() if name in names}
    return LayerMapping(sizes, levels, _whole(array, turns, sizes, wide), cores)


def _whole(
    array: Sequence[Factor], others: Sequence[Factor], sizes: Mapping[Dimension, int], wide: Mapping[Dimension, float]
) -> tuple[Factor, ...]:
    """What is unrolled over the array, as whole numbers: ZigZag unrolls 1000 channels over 16 columns in 63 turns of
    15.87 on average, and writes 15. `wide`: how much may be unrolled of a dimension."""

    def whole(factor: Factor) -> Factor:
        dimension = factor.dimension
        turns = prod(f.size for f in others if f.dimension is dimension)
        more = factor.size + 1
        short = factor.size * turns < sizes.get(dimension, 1) <= more * turns and more <= wide.get(dimension, 1)
        alone = sum(f.dimension is dimension for f in array) == 1
        return Factor(dimension, more) if short and alone else factor

    return tuple(whole(factor) for factor in array)


def _memory(text: str) -> str:
    """The name in `MemoryLevel(instance=a,operands=[I1], ...)`."""
    match = re.search(r"instance=(\w+)", text)
    return match[1] if match else text


def _place(index: int, inner: int, count: int) -> MemoryPlace:
    """Where a level is: those below the array's unrolling are in its processing elements."""
    if index == count - 1:
        return MemoryPlace.DRAM
    return MemoryPlace.PE if index < inner else MemoryPlace.CORE if index == inner else MemoryPlace.SHARED
