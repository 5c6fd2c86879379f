"""A chip from AccelForge's architecture file (1.0): nodes from DRAM inwards.

The last two fanouts before the compute node are the rows and columns of a core, the ones before go over cores. Of each
operand a core has the largest memory of a written size that lies outside of the array.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from meshloom.hw.spec.exact import Exact

from .hardware import ChipImporter, ToolHardware
from .interface import ImportFileError, validated
from .plain_yaml import read_yaml

_WHAT = "an architecture file of AccelForge 1.0: arch with nodes !Memory, !Container and !Compute"
_BYTE = 8
_AXES = 2
#: Operands by the names that AccelForge's own examples give them; a tensor of another name may be any.
_OPERANDS = ("input", "weight", "output")
#: A number, or a product or quotient of some: `8 * 38.4e9`.
_NUMBER = r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_PRODUCT = re.compile(rf"\s*({_NUMBER})((?:\s*[*/]\s*{_NUMBER})*)\s*")


class _Table(Exact):
    """Energies, areas and the like are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Action(_Table):
    name: str
    throughput: float | int | str = "inf"


class _Fanout(_Table):
    name: str
    fanout: Annotated[int, Field(gt=0)]


class _Node(_Table):
    kind: str
    name: str
    size: float | int | str = "inf"
    tensors: dict[str, Any] = {}
    spatial: list[_Fanout] = []
    actions: list[_Action] = []

    @property
    def throughput(self) -> float | None:
        """Of its fastest action; None: it is written as no number."""
        return max((rate for action in self.actions if (rate := number_of(action.throughput))), default=None)


class _Architecture(_Table):
    nodes: list[_Node]


class _File(_Table):
    arch: _Architecture


def number_of(text: float | int | str) -> float | None:
    """The number that a file has, or a product of some; None for any other expression, and for `inf`."""
    match = _PRODUCT.fullmatch(str(text))
    if match is None:
        return None
    value = float(match[1])
    for sign, factor in re.findall(rf"([*/])\s*({_NUMBER})", match[2]):
        if sign == "/" and not float(factor):
            return None
        value = value * float(factor) if sign == "*" else value / float(factor)
    return value


def read(path: Path) -> ToolHardware:
    """The hardware of a file. Raises ImportFileError, OSError."""
    nodes = validated(_File, read_yaml(path, _WHAT), path, _WHAT).arch.nodes
    places = [at for at, node in enumerate(nodes) for _ in node.spatial]
    fanouts = [fanout for node in nodes for fanout in node.spatial]
    memories = [node for node in nodes if node.kind == "Memory"]
    if len(fanouts) < _AXES or not memories:
        raise ImportFileError(
            f"{path}: arch: {len(fanouts)} fanouts and {len(memories)} memories; give DRAM, and a !Container with two "
            "fanouts, rows and columns"
        )
    rows, cols = fanouts[-_AXES:]
    name = path.name.removesuffix(".yaml").removesuffix(".accelforge")
    hardware = ToolHardware(name, rows.fanout, cols.fanout, prod(each.fanout for each in fanouts[:-_AXES]))
    if len(fanouts) > _AXES:
        names = ", ".join(f"{each.name} {each.fanout}" for each in fanouts[:-_AXES])
        hardware.left.append(f"fanout {names} is {hardware.cores} cores")
    outside = [node for node in nodes[: places[-_AXES]] if node.kind == "Memory" and node is not memories[0]]
    sizes = {operand: _size_of(operand, outside, hardware.left) for operand in _OPERANDS}
    hardware.inputs, hardware.weights = sizes["input"], sizes["weight"]
    hardware.sums = None if sizes["output"] is None else 4 * sizes["output"]
    hardware.left += [
        f"{node.name}: in the array there are sums alone" for node in nodes[places[-1] :] if node.kind == "Memory"
    ]
    hardware.left.append("sums take 32 bits here: ACC holds as many as the file has results of 8 bits")
    _set_dram(hardware, memories[0], nodes)
    return hardware


def _set_dram(hardware: ToolHardware, dram: _Node, nodes: Sequence[_Node]) -> None:
    """Bandwidth and size of DRAM. A cycle is what the compute node takes for a product."""
    rate = next((node.throughput for node in nodes if node.kind == "Compute" and node.throughput), 1.0)
    if dram.throughput is not None:
        hardware.bandwidth = max(1, round(dram.throughput / rate / _BYTE))
    size = number_of(dram.size)
    hardware.dram = None if size is None else int(size) // _BYTE


def _size_of(operand: str, memories: Sequence[_Node], left: list[str]) -> int | None:
    """Bytes that a core has of an operand; None: no memory of a written size holds it."""
    own = [(size, node) for node in memories if _holds(node, operand) and (size := number_of(node.size))]
    if not own:
        return None
    size, memory = max(own, key=lambda each: each[0])
    left += [
        f"{node.name}: a core has one memory of {operand}s, which is {memory.name}"
        for _, node in own
        if node is not memory
    ]
    users = [each for each in _OPERANDS if _holds(memory, each)]
    if len(users) > 1:
        left.append(f"{memory.name} is shared by {len(users)} operands: {operand}s have an equal part")
    return int(size) // (_BYTE * len(users))


def _holds(memory: _Node, operand: str) -> bool:
    """Whether a memory may hold an operand: its expression names it, or none by its name."""
    text = " ".join(str(value) for key, value in memory.tensors.items() if "keep" in key)
    named = [each for each in _OPERANDS if re.search(rf"\b{each}s?\b", text)]
    return operand in named or not named


ACCELFORGE_HARDWARE = ChipImporter("accelforge", "architecture file of AccelForge (YAML)", read)
