"""A chip from ZigZag's hardware file (zigzag-dse 3.9): its array, the memories of a core, and DRAM.

Its first two axes are the rows and columns of a core, others go over cores. Of each operand a core has one memory here:
the largest one that serves the whole array, or else the registers of all processing elements together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from meshloom.hw.spec.exact import Exact

from .hardware import ChipImporter, ToolHardware
from .interface import ImportFileError, validated
from .plain_yaml import read_yaml

_WHAT = "a hardware file of zigzag-dse 3.9: memories and operational_array"
#: ZigZag's names of inputs, weights and outputs.
_OPERANDS = {"I1": "inputs", "I2": "weights", "O": "outputs"}
_BYTE = 8
_AXES = 2


class _Table(Exact):
    """Costs, areas and the like are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Port(_Table):
    bandwidth_max: Annotated[int, Field(gt=0)]


class ToolMemory(_Table):
    """A memory: bits, the operands that it holds, its ports, the axes of the array over which there is one."""

    size: Annotated[int, Field(gt=0)]
    operands: list[str]
    ports: list[_Port]
    served_dimensions: list[str]

    @property
    def bandwidth(self) -> int:
        """Bits a cycle of its widest port."""
        return max((port.bandwidth_max for port in self.ports), default=_BYTE)


class ToolArray(_Table):
    """The array: its axes and their sizes."""

    dimensions: list[str]
    sizes: list[Annotated[int, Field(ge=0)]]


class ToolAccelerator(_Table):
    """An accelerator, or a core of one."""

    name: str = "chip"
    type: str = ""
    memories: dict[str, ToolMemory]
    operational_array: ToolArray


def read(path: Path) -> ToolHardware:
    """The hardware of a file. Raises ImportFileError, OSError."""
    accelerator = validated(ToolAccelerator, read_yaml(path, _WHAT), path, _WHAT)
    hardware = core_of(accelerator, path)
    shared = [name for name, memory in accelerator.memories.items() if set(_OPERANDS) <= set(memory.operands)]
    if not shared:
        raise ImportFileError(f"{path}: memories: none holds I1, I2 and O; the outermost one must, as DRAM")
    dram = accelerator.memories[shared[-1]]
    hardware.dram, hardware.bandwidth = dram.size // _BYTE, max(1, dram.bandwidth // _BYTE)
    return hardware


def core_of(core: ToolAccelerator, path: Path, dram: bool = True) -> ToolHardware:
    """The array and the memories of a core. `dram`: its last memory is that. Raises ImportFileError."""
    array = core.operational_array
    if len(array.dimensions) != len(array.sizes) or len(array.sizes) < _AXES or 0 in array.sizes:
        raise ImportFileError(
            f"{path}: operational_array: {len(array.dimensions)} dimensions of sizes {array.sizes}; give at least two "
            "axes, rows and columns, each with a size"
        )
    cores = prod(array.sizes[_AXES:])
    hardware = ToolHardware(core.name, array.sizes[0], array.sizes[1], cores)
    if len(array.sizes) > _AXES:
        axes = ", ".join(
            f"{name} {size}" for name, size in list(zip(array.dimensions, array.sizes, strict=True))[_AXES:]
        )
        hardware.left.append(f"axes {axes} of the array are {cores} cores")
    memories = dict(list(core.memories.items())[: -1 if dram else None])
    sizes = {operand: _memory_of(operand, memories, array, hardware.left) for operand in _OPERANDS}
    hardware.inputs, hardware.weights, hardware.sums = (sizes[operand] for operand in _OPERANDS)
    return hardware


def _memory_of(operand: str, memories: Mapping[str, ToolMemory], array: ToolArray, left: list[str]) -> int | None:
    """Bytes that a core has of an operand; None if the file has no memory of it."""
    own = {name: memory for name, memory in memories.items() if operand in memory.operands}
    plane = set(array.dimensions[:_AXES])
    whole = {name: memory for name, memory in own.items() if plane <= set(memory.served_dimensions)}
    if not own:
        return None
    if not whole:
        name, memory = max(own.items(), key=lambda each: each[1].size)
        served = dict(zip(array.dimensions, array.sizes, strict=True))
        copies = prod(served[axis] for axis in array.dimensions[:_AXES] if axis not in memory.served_dimensions)
        left.append(f"{name}, {copies} registers of {_OPERANDS[operand]} in the array, are one memory of the core")
        return copies * memory.size // _BYTE
    name, memory = max(whole.items(), key=lambda each: each[1].size)
    _list_others(operand, name, own, whole, left)
    users, cores = len(memory.operands), 1
    for axis, size in list(zip(array.dimensions, array.sizes, strict=True))[_AXES:]:
        cores *= size if axis in memory.served_dimensions else 1
    if users > 1 or cores > 1:
        parts = [*([f"{users} operands"] if users > 1 else []), *([f"{cores} cores"] if cores > 1 else [])]
        left.append(f"{name} is shared by {' and '.join(parts)}: {_OPERANDS[operand]} of a core have an equal part")
    return memory.size // (users * cores * _BYTE)


def _list_others(
    operand: str, name: str, own: Mapping[str, ToolMemory], whole: Mapping[str, ToolMemory], left: list[str]
) -> None:
    """Lists the memories of an operand that a core has not: sums lie in the array anyway."""
    others: Sequence[str] = [other for other in own if other != name and (other in whole or operand != "O")]
    for other in others:
        left.append(f"{other}: a core has one memory of {_OPERANDS[operand]}, which is {name}")


ZIGZAG_HARDWARE = ChipImporter("zigzag", "hardware file of ZigZag (YAML)", read)
