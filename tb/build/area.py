"""What a chip takes: the cells of its tiles and of the routers between them, and the bits of its memories.

Every module that the chip is made of is synthesised once and counted as often as it is there: a kind of tile without
the blocks of its array, such a block, a router of each plane. Routers of a plane with the same ports differ in nothing
but their coordinates, so one stands for all. Nothing is placed: neither wires nor macros have an area here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.store.kinds import SYNTHESIS
from meshloom.sched.store.store import key

from .builder import OUTPUT, ROOT, BuildError
from .synthesis import LOGIC, Area, area, tools

#: How the numbers come about, for people.
FLOW = "Yosys synth -flatten, abc; generic two-input gates and flip-flops; memories not mapped"
_TOP = "chip"
_CELL = re.compile(r"^  cell \\(\S+) ", re.MULTILINE)
_PORT = re.compile(r"^  wire (?:width \d+ )?(?:input|output) \d+ +(?:signed +)?\\\S+$", re.MULTILINE)
_MEMORY = re.compile(r"^  memory width (\d+) size (\d+)", re.MULTILINE)
_ARRAY, _TILE = re.compile(r"array_(\d+x\d+)"), re.compile(r"tile_([a-z]+)")
#: The cell of a design that stands for a module which is synthesised by itself is a black box.
_BLACK_BOX = "attribute \\blackbox 1\n"


@dataclass(frozen=True)
class PartArea:
    """A part of a chip: how often it is there, and for each of them generic cells, the flip-flops among these, and the
    bits of its memories."""

    name: str
    count: int
    cells: int
    flip_flops: int
    memory_bits: int


@dataclass(frozen=True)
class ChipArea:
    """`parts` of a chip; `tools`: versions of what measured them."""

    tools: str
    parts: tuple[PartArea, ...]


def chip_area(config: ChipConfig, on_progress: Callable[[str], None] = lambda what: None) -> ChipArea:
    """The area of a chip, from the cache if it is there; otherwise in minutes of CPU time, on all CPUs. Raises
    BuildError."""

    def measure() -> bytes:
        on_progress("synthesising the chip: minutes, once")
        return json.dumps(asdict(_measured(config, on_progress))).encode()

    return _read(SYNTHESIS.store(OUTPUT).obtain(_key(config), measure))


def kept_area(config: ChipConfig) -> ChipArea | None:
    """The area of a chip if it was measured before, with this gateware and these tools."""
    found = SYNTHESIS.store(OUTPUT).get(_key(config))
    return None if found is None else _read(found)


def _read(text: bytes) -> ChipArea:
    found = json.loads(text)
    return ChipArea(found["tools"], tuple(PartArea(**part) for part in found["parts"]))


def _key(config: ChipConfig) -> str:
    return key(f"chip-{config.name}", chip=config.digest, sources=_sources(), script=LOGIC, tools=tools())


@cache
def _sources() -> str:
    """Of the gateware, and of what counts it."""
    found = hashlib.sha256()
    for path in (*sorted((ROOT / "hw").rglob("*.py")), ROOT / "tb" / "build" / "area.py"):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _measured(config: ChipConfig, on_progress: Callable[[str], None]) -> ChipArea:
    from meshloom.hw.assembly.verilog import MODULE, EmitError, rtlil

    try:
        modules = {match[1]: match[0] + "\n" for match in MODULE.finditer(rtlil(config))}
    except EmitError as error:
        raise BuildError(f"the gateware of {config.name} could not be elaborated: {error}") from error
    inside = {name: Counter(_CELL.findall(text)) for name, text in modules.items()}
    top = inside[_TOP]
    meshes = [name for name in top if not _TILE.fullmatch(name)]
    stands = {(mesh, name): _representative(name, inside[mesh], modules) for mesh in meshes for name in inside[mesh]}
    whole = [name for name in modules if name in top or _ARRAY.fullmatch(name)]
    alone = {*whole, *(name for mesh in meshes for name in inside[mesh])}
    needed = [*whole, *dict.fromkeys(stands.values())]

    def measure(name: str) -> Area:
        found = area(f"{config.name}-{name}", _design(name, modules, inside, alone))
        on_progress(f"synthesised {name}: {found.cells:,} cells")
        return found

    needed.sort(key=lambda name: -len(modules[name]))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        areas = dict(zip(needed, pool.map(measure, needed), strict=True))

    def bits(name: str) -> int:
        """Of the memories in a module and in those inside it that are not synthesised by themselves."""
        own = sum(int(width) * int(size) for width, size in _MEMORY.findall(modules[name]))
        return own + sum(count * bits(each) for each, count in inside[name].items() if each not in alone)

    parts: list[PartArea] = []
    arrays = Counter[str]()
    for name, count in top.items():
        found, memory = areas[name], bits(name)
        cells, flip_flops = found.cells, found.flip_flops
        for each, times in found.instances.items():
            if _ARRAY.fullmatch(each):
                arrays[each] += times * count
            else:
                other = areas[stands[name, each]]
                cells, flip_flops = cells + times * other.cells, flip_flops + times * other.flip_flops
                memory += times * bits(each)
        parts.append(PartArea(_called(name), count, cells, flip_flops, memory))
    for name, count in arrays.items():
        parts.append(PartArea(_called(name), count, areas[name].cells, areas[name].flip_flops, bits(name)))
    parts.sort(key=lambda part: -part.count * part.cells)
    return ChipArea(tools(), tuple(parts))


def _called(module: str) -> str:
    """A module, for people."""
    if found := _ARRAY.fullmatch(module):
        return f"array block {found[1]}"
    if found := _TILE.fullmatch(module):
        return f"{found[1]} tile"
    return module.removeprefix(f"{_TOP}__").replace("_", " ")


def _representative(name: str, siblings: Iterable[str], modules: Mapping[str, str]) -> str:
    """The first of those modules of a mesh that have the same ports."""
    ports = _ports(modules[name])
    return next(each for each in siblings if _ports(modules[each]) == ports)


def _ports(text: str) -> list[str]:
    return _PORT.findall(text)


def _design(
    name: str, modules: Mapping[str, str], inside: Mapping[str, Iterable[str]], alone: Collection[str]
) -> str:  # fmt: skip
    """A module, called `design`, with all that it needs; those that are synthesised by themselves without contents."""
    texts = [modules[name].replace(f"module \\{name}\n", "module \\design\n", 1)]
    known, waiting = {name}, list(inside[name])
    while waiting:
        if (one := waiting.pop()) in known or one not in modules:
            continue
        known.add(one)
        if one in alone:
            ports = "\n".join(_ports(modules[one]))
            texts.append(f"{_BLACK_BOX}module \\{one}\n{ports}\nend\n")
        else:
            texts.append(modules[one])
            waiting += inside[one]
    return "".join(texts)
