"""Timeloop (Parashar et al., ISPASS 2019): the map of a layer in YAML, as `timeloop-mapper` and CoSA write it.

A list, for each memory level with what `type` says: `temporal` and `spatial` loops (`factors`, and `permutation` from
the innermost on), and `bypass` (or `datatype`), what it keeps and what passes it by. Loops of a level go over the tiles
of the next inner one, so they run while the level's own tile stays. Beside `NAME.map.yaml` a `NAME.stats.txt` says
cycles and energy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import BeforeValidator

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
from meshloom.sched.schedulers.nest.schedule import sizes_of
from meshloom.sched.workload.layers import ConvShape

from .interface import Importer, ImportFileError, ToolLayer, text_of, validated
from .plain_yaml import read_yaml

TOOL = "timeloop"
_WHAT = "a map of Timeloop: mapping, a list of target, type, factors, permutation"

#: The dimensions of Timeloop's layers, and of its products of matrices.
_CONVOLUTION = {
    "N": Dimension.B, "K": Dimension.K, "M": Dimension.K, "C": Dimension.C, "P": Dimension.OX, "Q": Dimension.OY,
    "R": Dimension.FX, "S": Dimension.FY,
}  # fmt: skip
_PRODUCT = {"M": Dimension.OX, "N": Dimension.K, "K": Dimension.C}
_OPERANDS = {"Inputs": Operand.INPUT, "Weights": Operand.WEIGHT, "Outputs": Operand.OUTPUT}
_MAIN_MEMORY = re.compile(r"dram|main|backing|off.?chip|hbm|ddr", re.IGNORECASE)
_FACTOR = re.compile(r"([A-Z])\s*=?\s*(\d+)(,\d+)?")


def _words(value: object) -> object:
    """Of a text, of nothing (a level without loops) or of a table the list that others write."""
    if isinstance(value, dict):
        return [f"{key}={number}" for key, number in cast("dict[object, object]", value).items()]
    return value.split() if isinstance(value, str) else [] if value is None else value


_Words = Annotated[list[str], BeforeValidator(_words)]


class _Entry(Exact):
    target: str
    type: Literal["temporal", "spatial", "bypass", "datatype"]
    factors: _Words = []
    permutation: _Words = []
    keep: list[str] = []
    bypass: list[str] = []


class _File(Exact):
    mapping: list[_Entry]


@dataclass
class _Target:
    """A memory level. Loops innermost first; `keeps`: the operands that have tiles in it."""

    name: str
    temporal: list[Factor] = field(default_factory=list[Factor])
    spatial: list[Factor] = field(default_factory=list[Factor])
    keeps: set[Operand] = field(default_factory=lambda: set(Operand))


def read(path: Path, shape: ConvShape | None) -> ToolLayer:
    """The layer of a file, which does not say its strides: `shape` does. Raises ImportFileError, MappingError,
    OSError."""
    entries = validated(_File, read_yaml(path, _WHAT), path, _WHAT).mapping
    if shape is None:
        raise ImportFileError(f"{path}: a map of Timeloop has no strides: name its layer with --workload")
    try:
        mapping = _mapping(entries, sizes_of(shape))
    except MappingError as error:
        raise MappingError(f"{path}: {error}") from None
    return ToolLayer(shape, mapping, _claim(path))


TIMELOOP = Importer("timeloop", "a layer's map by Timeloop (.map.yaml), or by CoSA", read)


def _names(entries: Sequence[_Entry]) -> Mapping[str, Dimension]:
    """What the letters mean: without any of a kernel's or a map's, they are those of a product of matrices."""
    letters = {letter for entry in entries for letter, _ in _pairs(entry.factors)}
    return _CONVOLUTION if letters & set("CPQRS") else _PRODUCT


def _pairs(factors: Sequence[str]) -> Iterator[tuple[str, int]]:
    """`C3 M1 R3` or `C=3 M=1` as letters and sizes. Raises MappingError."""
    text = " ".join(factors)
    left = re.sub(r"[\s,;]+", "", _FACTOR.sub("", text))
    if left:
        raise MappingError(f"factors {text!r} are not like C3 M1 R3")
    for match in _FACTOR.finditer(text):
        if match[3]:
            raise MappingError(f"factor {match[0]!r} has a remainder; map the layer with factors that divide it")
        if int(match[2]) < 1:
            raise MappingError(f"factor {match[0]!r} leaves open what it is; give the map that the mapper wrote")
        yield match[1], int(match[2])


def _loops(entry: _Entry, names: Mapping[str, Dimension]) -> list[Factor]:
    """The loops of an entry, innermost first. Raises MappingError."""
    sizes: dict[str, int] = {}
    for letter, size in _pairs(entry.factors):
        if letter not in names and size == 1:  # version 4 has a G for groups
            continue
        if letter not in names:
            raise MappingError(f"target {entry.target}: dimension {letter} is none of {', '.join(names)}")
        if letter in sizes:
            raise MappingError(f"target {entry.target}: {letter} stands twice in factors {' '.join(entry.factors)!r}")
        sizes[letter] = size
    order = [letter for letter in "".join(entry.permutation) if letter.isalpha()]
    if twice := [letter for letter in sizes if order.count(letter) > 1]:
        raise MappingError(
            f"target {entry.target}: {twice[0]} stands twice in permutation {''.join(order)}; give each once"
        )
    if left := [letter for letter, size in sizes.items() if size > 1 and order and letter not in order]:
        raise MappingError(f"target {entry.target}: permutation {''.join(order)} lacks {left[0]}, which has a factor")
    return [Factor(names[letter], sizes[letter]) for letter in order or sizes if sizes.get(letter, 1) > 1]


def _targets(entries: Sequence[_Entry]) -> list[_Target]:
    """The levels, innermost first. Raises MappingError."""
    names, targets = _names(entries), dict[str, _Target]()
    for entry in entries:
        target = targets.setdefault(entry.target, _Target(entry.target))
        if entry.type in ("bypass", "datatype"):
            for name in (*entry.keep, *entry.bypass):
                if name not in _OPERANDS:
                    raise MappingError(f"target {entry.target}: {name!r} is none of {', '.join(_OPERANDS)}")
            target.keeps -= {_OPERANDS[name] for name in entry.bypass}
            continue
        loops = target.temporal if entry.type == "temporal" else target.spatial
        if loops:
            raise MappingError(f"target {entry.target} has two entries of type {entry.type}; give one")
        loops += _loops(entry, names)
    order = list(targets.values())
    if order and _MAIN_MEMORY.search(order[0].name):
        order.reverse()
    if len(order) < 2 or not _MAIN_MEMORY.search(order[-1].name):
        raise MappingError(
            f"targets {', '.join(targets)}: neither the first nor the last one is main memory; name it DRAM, so "
            "that it is clear which end is which"
        )
    return order


def _mapping(entries: Sequence[_Entry], sizes: Mapping[Dimension, int]) -> LayerMapping:
    targets = _targets(entries)
    wide = [index for index, target in enumerate(targets) if prod(f.size for f in target.spatial) > 1]
    if len(wide) > 2:
        raise MappingError(
            f"{', '.join(targets[index].name for index in wide)} unroll: the chips have an array, and cores; unroll at "
            "two targets"
        )
    inner = wide[0] if wide else 0
    levels: dict[Operand, list[Level]] = {}
    for operand in Operand:
        own: list[Level] = []
        passed: list[Factor] = []  # loops of a level that this operand passes by run while the next outer one has it
        core = False
        for index, target in enumerate(targets):
            last = index == len(targets) - 1
            passed += target.temporal
            if operand not in target.keeps and not last:
                continue
            place = (
                MemoryPlace.DRAM
                if last
                else MemoryPlace.PE
                if index < inner
                else MemoryPlace.SHARED
                if core
                else MemoryPlace.CORE
            )
            core = core or place is MemoryPlace.CORE
            own.append(Level(target.name, place, tuple(passed)))
            passed = []
        levels[operand] = own
    cores = targets[wide[1]].spatial if len(wide) > 1 else []
    return LayerMapping(sizes, levels, targets[inner].spatial, cores)


def _claim(path: Path) -> ToolClaim:
    """What the statistics beside a map say; nothing if there are none. Raises ImportFileError, OSError."""
    stats = path.with_name(path.name.removesuffix(path.suffix).removesuffix(".map") + ".stats.txt")
    if not stats.is_file():
        return ToolClaim(tool=TOOL)
    text = text_of(stats)
    cycles = re.findall(r"^Cycles: (\d+)$", text, re.MULTILINE)
    energy = re.findall(r"^Energy: ([0-9.]+) uJ$", text, re.MULTILINE)
    if not cycles:
        raise ImportFileError(f"{stats}: has no line 'Cycles: N'; was it cut? Without the file nothing is claimed")
    return ToolClaim(tool=TOOL, cycles=int(cycles[-1]), picojoules=float(energy[-1]) * 1e6 if energy else None)
