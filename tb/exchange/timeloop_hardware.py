"""A chip from an architecture file of Timeloop: `nodes` of version 0.4, or `subtree` and `local` of 0.3.

The last container with a fanout of more than one (its meshX are columns, its meshY rows; each may have a container of
its own), or the processing elements that are instances of a component, are a core's array; the ones before go over
cores. Of each operand a core has the largest memory outside of the array.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, model_validator

from meshloom.hw.spec.exact import Exact

from .accelforge_hardware import number_of
from .hardware import ChipImporter, ToolHardware
from .interface import ImportFileError, validated
from .plain_yaml import read_yaml

_WHAT = "an architecture of Timeloop: architecture with nodes (version 0.4) or a subtree (0.3)"
_BYTE = 8
_OPERANDS = ("Inputs", "Weights", "Outputs")
_COMPUTE = re.compile(r"mac|compute", re.IGNORECASE)
#: Kinds of version 0.4 that only say how the nodes in them lie; `!Nothing` is a way past what is beside it.
_BRANCHES = ("Parallel", "Hierarchical", "Pipelined")
_NAMELESS = (*_BRANCHES, "Nothing")
#: A name of version 0.3: `PE[0..255]`; of what timeloopfe writes: `PE[1..256]`.
_RANGE = re.compile(r"(.+)\[(\d+)\.\.(\d+)\]")


class _Table(Exact):
    """Energies, areas and the like are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class _Constraints(_Table):
    """Of a memory: which operands it keeps, and which pass it by. Others of Timeloop's are left alone."""

    dataspace: dict[str, list[str]] = {}


_NO_CONSTRAINTS = _Constraints()


class _Node(_Table):
    """A container or a component; of version 0.3 with what lies in it. Of version 0.4 also a branch with its nodes."""

    kind: str = ""
    name: str = ""
    attributes: dict[str, Any] = {}
    spatial: dict[str, Any] = {}
    constraints: _Constraints = _NO_CONSTRAINTS
    local: list[_Node] = []
    subtree: list[_Node] = []
    nodes: list[_Node] = []

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.name and self.kind not in _NAMELESS:
            raise ValueError("name is missing")
        return self


class _Architecture(_Table):
    nodes: list[_Node] = []
    subtree: list[_Node] = []


class _File(_Table):
    architecture: _Architecture


@dataclass
class _Place:
    """A part from DRAM inwards. `fanout`: columns and rows side by side; `component`: it is no container."""

    name: str
    component: bool
    fanout: tuple[int, int]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    keeps: tuple[str, ...] = _OPERANDS


def read(path: Path) -> ToolHardware:
    """The hardware of a file. Raises ImportFileError, OSError."""
    file = validated(_File, read_yaml(path, _WHAT), path, _WHAT).architecture
    places = _joined([_place(node) for node in _leaves(file.nodes)]) if file.nodes else list(_walk(file.subtree))
    components = [place for place in places if place.component]
    memories = [place for place in components if not _COMPUTE.search(place.name)]
    fanouts = [at for at, place in enumerate(places) if place.fanout != (1, 1)]
    if not memories or not fanouts:
        raise ImportFileError(
            f"{path}: architecture: {len(memories)} memories and {len(fanouts)} fanouts; it needs DRAM, and one over "
            "processing elements (meshX, meshY)"
        )
    cols, rows = places[fanouts[-1]].fanout
    cores = 1
    for at in fanouts[:-1]:
        cores *= places[at].fanout[0] * places[at].fanout[1]
    name = path.name.removesuffix(".yaml").removesuffix(".arch")
    hardware = ToolHardware(name, rows, cols, cores)
    if cores > 1:
        hardware.left.append(f"fanout {', '.join(places[at].name for at in fanouts[:-1])} is {cores} cores")
    array = places[fanouts[-1] :]
    outside = [place for place in memories[1:] if place not in array]
    sizes = [_size_of(operand, outside, hardware.left) for operand in _OPERANDS]
    hardware.inputs, hardware.weights, hardware.sums = sizes
    hardware.left += [f"{each.name}: in the array there are sums alone" for each in memories[1:] if each in array]
    hardware.bandwidth = _bandwidth(memories[0], hardware.left)
    hardware.dram = _bytes(memories[0])
    return hardware


def _leaves(nodes: Sequence[_Node]) -> Iterator[_Node]:
    """The containers and components of version 0.4 in their order, those of branches in the branch's place."""
    for node in nodes:
        if node.kind in _BRANCHES:
            yield from _leaves(node.nodes)
        elif node.kind != "Nothing":
            yield node


def _joined(places: Sequence[_Place]) -> list[_Place]:
    """The same places; a container of columns and one of rows, with nothing between them, are one array."""
    joined: list[_Place] = []
    for place in places:
        outer = joined[-1] if joined else place
        cols, rows = outer.fanout[0] * place.fanout[0], outer.fanout[1] * place.fanout[1]
        lone = [axes for axes in (outer.fanout, place.fanout) if min(axes) == 1 < max(axes)]
        if not outer.component and not place.component and len(lone) == 2 and 1 not in (cols, rows):
            joined[-1] = replace(place, fanout=(cols, rows))
        else:
            joined.append(place)
    return joined


def _place(node: _Node) -> _Place:
    fanout = tuple(int(number_of(node.spatial.get(axis, 1)) or 1) for axis in ("meshX", "meshY"))
    return _Place(node.name, node.kind == "Component", (fanout[0], fanout[1]), node.attributes, _keeps(node))


def _walk(nodes: Sequence[_Node], inner: tuple[int, int] = (1, 1)) -> Iterator[_Place]:
    """The parts of version 0.3, in which a name or `meshX` says how many there are."""
    for node in nodes:
        total, columns = _instances(node)
        mesh = (columns, max(1, total // columns))
        yield _Place(node.name, False, mesh)
        for each in node.local:
            own, across = _instances(each)
            compute = _COMPUTE.search(each.name) and own > 1
            fanout = (across, max(1, own // across)) if compute and mesh == (1, 1) else (1, 1)
            yield _Place(each.name, True, fanout, each.attributes, _keeps(each))
        yield from _walk(node.subtree)


def _instances(node: _Node) -> tuple[int, int]:
    """How many there are, and of these how many in a row."""
    match = _RANGE.fullmatch(node.name)
    named = int(match[3]) - int(match[2]) + 1 if match else 1
    total = int(number_of(node.attributes.get("instances", named)) or named)
    columns = int(number_of(node.attributes.get("meshX", 0)) or 0)
    if not columns:
        columns = next(size for size in range(isqrt(total) or 1, 0, -1) if total % size == 0)
        columns = total // columns
    return total, columns


def _keeps(node: _Node) -> tuple[str, ...]:
    """The operands that a memory holds; without a constraint all."""
    listed = node.constraints.dataspace
    bypass = listed.get("bypass", [])
    keep = listed.get("keep", listed.get("keep_only", [*_OPERANDS]))
    return tuple(each for each in _OPERANDS if each in keep and each not in bypass) or _OPERANDS


def _bytes(place: _Place) -> int | None:
    """Bytes of a memory: of entries of words, or of rows of a width; None if the file does not say."""
    values = {key.replace("_", "-"): number_of(value) for key, value in place.attributes.items()}
    bits = values.get("datawidth") or values.get("word-bits") or float(_BYTE)
    if entries := values.get("entries"):
        return int(entries * bits) // _BYTE
    if kilobytes := values.get("sizeKB"):
        return int(kilobytes * 1024)
    depth = values.get("depth") or values.get("memory-depth")
    width = values.get("width") or values.get("memory-width") or bits * (values.get("block-size") or 1)
    return int(depth * width) // _BYTE if depth else None


def _bandwidth(dram: _Place, left: list[str]) -> int | None:
    """Bytes of DRAM a cycle, by words a cycle."""
    values = {key: number_of(value) for key, value in dram.attributes.items()}
    bits = values.get("datawidth") or values.get("word-bits") or float(_BYTE)
    if shared := values.get("shared_bandwidth"):
        return max(1, round(shared * bits / _BYTE))
    each = [rate for key in ("read_bandwidth", "write_bandwidth") if (rate := values.get(key))]
    if not each:
        return None
    if len(each) > 1:
        left.append(f"{dram.name}: reads and writes share the channels, which have the bandwidth of the faster ones")
    return max(1, round(max(each) * bits / _BYTE))


def _size_of(operand: str, memories: Sequence[_Place], left: list[str]) -> int | None:
    """Bytes that a core has of an operand; None: no memory of a written size holds it."""
    own = [(size, each) for each in memories if operand in each.keeps and (size := _bytes(each))]
    if not own:
        return None
    size, memory = max(own, key=lambda each: each[0])
    left += [
        f"{each.name}: a core has one memory of {operand.lower()}, which is {memory.name}"
        for _, each in own
        if each is not memory
    ]
    if len(memory.keeps) > 1:
        left.append(f"{memory.name} is shared by {len(memory.keeps)} operands: {operand.lower()} have an equal part")
    return size // len(memory.keeps)


TIMELOOP_HARDWARE = ChipImporter("timeloop", "architecture of Timeloop (YAML, versions 0.3 and 0.4)", read)
