"""The longest paths of a netlist of ECP5 cells, estimated without placing: typical delays of cells, the same for every
net. It says which registers a path joins; how long it is on an FPGA, nextpnr alone can say."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeGuard

from pydantic import ConfigDict

from meshloom.hw.spec.exact import Exact

#: What a net between two cells takes, in ns. Placed, they take from .3 to several.
NET = 1.0
#: From clock to output, in ns, at speed grade 6: flip-flops, block RAM without its output register.
_CLOCKED = {"TRELLIS_FF": 0.52, "DP16KD": 5.6}
_MULTIPLY = 3.9
_LUT, _MUX, _MEMORY = 0.24, 0.2, 0.24
#: Of a pair of LUTs with carry: from an input to a sum, from an input and from the carry to the carry, to a sum.
_SUM, _INTO_CARRY, _CARRY, _OUT_OF_CARRY = 0.45, 0.45, 0.07, 0.44
#: Inputs that wires inside a slice reach: of multiplexers of LUTs, of carries.
_INSIDE = {"PFUMX": ("ALUT", "BLUT"), "L6MUX21": ("D0", "D1"), "CCU2C": ("CIN",)}
#: Ports that no path ends at.
_CLOCKS = ("CLK", "WCK", "CLKA", "CLKB", "CLK0", "CLK1", "CLK2", "CLK3", "ECLKI")
_NUMBER = re.compile(r"(\[[\d:]+\]|\$\d+)$")
#: Names that tools have given.
_HIDDEN = re.compile(r"(^|\.)(\$|_\d+_)|_(LUT4|PFUMX|L6MUX21|CCU2C|TRELLIS_FF|TRELLIS_DPR16X4|MULT18X18D)(_|$)")


class TimedPath(Exact):
    """From one register to another: `delay` in ns, `cells` on the way, and the parts of the design `through` which it
    goes (the two registers' included)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    delay: float
    cells: int
    start: str
    end: str
    through: tuple[str, ...]


@dataclass
class _Graph:
    """Of cells: `arcs` into a net from others (bit, delay), with the cell that it leaves; `begins`: bits that a clock
    sets (delay, name); `ends`: (bit, delay, name)."""

    arcs: dict[int, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    driver: dict[int, str] = field(default_factory=dict[int, str])
    begins: dict[int, tuple[float, str]] = field(default_factory=dict[int, tuple[float, str]])
    ends: list[tuple[int, float, str]] = field(default_factory=list[tuple[int, float, str]])


def longest_paths(netlist: Mapping[str, Any], top: str, most: int = 12, depth: int = 2) -> tuple[TimedPath, ...]:
    """Of the paths between registers, the longest for each pair of parts of the design that a path begins and ends in,
    longest first, `most` of them. A part is a name of `depth` levels below the top. Raises ValueError for a loop
    without a register."""
    module = netlist["modules"][top]
    names = _names(module["netnames"])
    graph = _graph(module["cells"], names)
    sources = dict.fromkeys(graph.begins, ()) | {bit: [each for each, _ in some] for bit, some in graph.arcs.items()}
    try:
        order = list(TopologicalSorter(sources).static_order())
    except CycleError as error:
        raise ValueError(f"a loop without a register: {[names.get(bit, bit) for bit in error.args[1]]}") from error
    arrival: dict[int, float] = {bit: delay for bit, (delay, _) in graph.begins.items()}
    before: dict[int, int] = {}
    for bit in order:
        for source, delay in graph.arcs.get(bit, ()):
            if source in arrival and arrival[source] + delay > arrival.get(bit, -1.0):
                arrival[bit], before[bit] = arrival[source] + delay, source
    origin: dict[int, int] = {}
    for bit in order:
        origin[bit] = origin[before[bit]] if bit in before else bit
    worst: dict[tuple[str, str], tuple[float, int, str]] = {}
    for bit, delay, end in graph.ends:
        if bit in arrival:
            start = graph.begins[origin[bit]][1]
            pair = part(start, depth), part(end, depth)
            total = arrival[bit] + delay
            if total > worst.get(pair, (0.0,))[0]:
                worst[pair] = total, bit, end
    longest = sorted(worst.values(), key=lambda each: (-each[0], each[2]))[:most]
    return tuple(_path(graph, before, each, depth) for each in longest)


def _path(graph: _Graph, before: Mapping[int, int], worst: tuple[float, int, str], depth: int) -> TimedPath:
    delay, bit, end = worst
    cells: list[str] = []
    while bit in before:
        cells.append(graph.driver[bit])
        bit = before[bit]
    start = graph.begins[bit][1]
    through = [part(name, depth) for name in (start, *reversed(cells), end)]
    places = [place for at, place in enumerate(through) if place and (not at or through[at - 1] != place)]
    return TimedPath(delay=round(delay, 2), cells=len(cells), start=start, end=end, through=tuple(places))


def part(name: str, depth: int) -> str:
    """The part of the design that a signal or cell belongs to."""
    return ".".join(name.split(".")[:-1][:depth])


def _names(netnames: Mapping[str, Any]) -> dict[int, str]:
    """Of each bit the name that says most: of those that people gave the deepest."""
    names: dict[int, tuple[tuple[bool, int, int], str]] = {}
    for name, net in netnames.items():
        rank = (not _HIDDEN.search(name), name.count("."), -len(name))
        for bit in net["bits"]:
            if isinstance(bit, int) and (bit not in names or rank > names[bit][0]):
                names[bit] = rank, name
    return {bit: _NUMBER.sub("", name) for bit, (_, name) in names.items()}


def _graph(cells: Mapping[str, Any], names: Mapping[int, str]) -> _Graph:
    graph = _Graph()
    for name, cell in cells.items():
        kind, pins = cell["type"], cell["connections"]
        outputs = {
            port: pins[port] for port, way in cell["port_directions"].items() if way == "output" and port in pins
        }
        inputs = [port for port, way in cell["port_directions"].items() if way == "input" and port in pins]
        clocked = kind in _CLOCKED or (
            kind == "MULT18X18D" and "CLK" in str(cell["parameters"].get("REG_OUTPUT_CLK", ""))
        )
        for port, bits in outputs.items():
            nets: list[int] = [bit for bit in bits if _is_net(bit)]
            for bit in nets:
                graph.driver[bit] = name
                if clocked:
                    graph.begins[bit] = _CLOCKED.get(kind, 0.5), names.get(bit, name)
                else:
                    graph.arcs[bit] += _arcs(kind, port, inputs, pins)
        if clocked or kind == "TRELLIS_DPR16X4":
            first = next((bit for bits in outputs.values() for bit in bits if _is_net(bit)), None)
            end = names.get(first, name) if first is not None else name
            for port in inputs:
                if port not in _CLOCKS and not (kind == "TRELLIS_DPR16X4" and port == "RAD"):
                    graph.ends += [(bit, NET, end) for bit in pins[port] if _is_net(bit)]
    return graph


def _is_net(bit: int | str) -> TypeGuard[int]:
    return isinstance(bit, int)


def _arcs(
    kind: str, output: str, inputs: Sequence[str], pins: Mapping[str, Sequence[int | str]]
) -> Iterator[tuple[int, float]]:
    """Into an output of a cell without a clock, with the net before it."""
    for port in inputs:
        delay = _delay(kind, port, output)
        if delay is not None:
            net = 0.0 if port in _INSIDE.get(kind, ()) else NET
            yield from ((bit, net + delay) for bit in pins[port] if isinstance(bit, int))


def _delay(kind: str, port: str, output: str) -> float | None:
    """Of a cell from an input to an output; none if they do not depend on each other."""
    if port in _CLOCKS:
        return None
    if kind == "LUT4":
        return _LUT
    if kind in ("PFUMX", "L6MUX21"):
        return _MUX
    if kind == "CCU2C":
        if output in ("S0", "COUT", "S1") and port == "CIN":
            return _CARRY if output == "COUT" else _OUT_OF_CARRY
        if output == "S0":
            return _SUM if port.endswith("0") else None
        if output == "S1":
            return _SUM if port.endswith("1") else _INTO_CARRY + _OUT_OF_CARRY
        return _INTO_CARRY
    if kind == "TRELLIS_DPR16X4":
        return _MEMORY if port == "RAD" else None
    return _MULTIPLY if kind == "MULT18X18D" else None
