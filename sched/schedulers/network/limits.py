"""What bounds each layer of a schedule at best, whatever the order of its operations: its busiest resource.

Resources are what one would buy more of. A DRAM tile's port carries the words of its channel and a head for each
packet, and another tile brings both, so the port counts as `dram`, and so does a link with the words of one such tile.
`noc` are the ports of cores and scratchpads, and links on which words of several tiles meet. Where several kinds are
within `NEAR` of the busiest, more of one alone would leave the others in the way, and all of them are named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.routes import dimension_ordered
from meshloom.hw.spec.timing import GemmShape, VecShape, gemm_occupancy, vec_occupancy

from ...ir.schedule import Gemm, Move, Schedule, Vec
from ...mapping.play.traffic import dram_word_cycles
from .scheduler import NetworkSchedule, layer_of

#: Resources, the first of equals counts: arrays, vector units, DRAM tiles, the mesh without their ports.
RESOURCES = ("compute", "vector", "dram", "noc")
#: Those of a whole network, where ports are told apart: into cores, out of cores, and of scratchpads (both ways).
TOTALS = ("compute", "vector", "receiving", "sending", "dram", "memories")
#: Loads that differ by so much are as good as equal. (Heads of packets are 1/64 of the flits, of 128 bytes 1/32.)
NEAR = 0.05

#: One resource of a kind: a tile and what of it.
_Place = tuple[int, str]
#: Cycles by place.
_Loads = defaultdict[_Place, float]


def _flits(op: Move, chip: ChipConfig) -> float:
    """Words and heads of a MOVE."""
    return op.words * (1 + 1 / chip.packet_words)


def _uses(schedule: Schedule, chip: ChipConfig) -> Iterator[tuple[str, str, _Place, float]]:
    """What operations keep busy: the operation's label, the resource, which of its kind, and the cycles."""
    rate, drams = dram_word_cycles(chip), set(chip.drams)
    for op in schedule.operations:
        match op:
            case Gemm():
                shape = GemmShape(op["pixels"], op["n_blocks"], op["k_blocks"], op["kernel_h"], op["kernel_w"])
                yield op.label, "compute", (op.core, "array"), gemm_occupancy(chip, shape)
            case Vec():
                yield op.label, "vector", (op.core, "vector"), vec_occupancy(chip, VecShape.of(op.body))
            case Move():
                flits = _flits(op, chip)
                for tile, way in ((op.src.tile, "out"), (op.dst.tile, "in")):
                    yield op.label, "dram" if tile in drams else "noc", (tile, way), flits
                for tile in {op.src.tile, op.dst.tile} & drams:
                    yield op.label, "dram", (tile, "channel"), op.words * rate


def _shared_links(schedule: Schedule, chip: ChipConfig, layer: Callable[[str], str]) -> dict[str, float]:
    """Of each layer the cycles of its busiest link, of those with words from or for more than one DRAM tile."""
    drams = set(chip.drams)
    ways: defaultdict[tuple[str, int, int, tuple[int, ...] | None], float] = defaultdict(float)
    for op in schedule.operations:
        if isinstance(op, Move):
            ways[layer(op.label), op.src.tile, op.dst.tile, op.route] += _flits(op, chip)
    loads: defaultdict[tuple[str, int, int], defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for (name, source, target, route), flits in ways.items():
        owner = source if source in drams else target if target in drams else -1
        for link in pairwise(route or dimension_ordered(source, target, chip.noc.data_routing)):
            loads[name, *link][owner] += flits
    cycles: dict[str, float] = {}
    for (name, *_), owners in loads.items():
        load = sum(owners.values())
        if all(owner < 0 or flits * (1 + NEAR) < load for owner, flits in owners.items()):
            cycles[name] = max(cycles.get(name, 0.0), load)
    return cycles


def _busiest(schedule: Schedule, chip: ChipConfig, layer: Callable[[str], str]) -> dict[str, dict[str, float]]:
    """For each layer, the cycles for which its operations keep the busiest of each kind of resource. `layer`: of an
    operation with that label."""
    loads: defaultdict[tuple[str, str], _Loads] = defaultdict(lambda: defaultdict(float))
    for label, resource, place, cycles in _uses(schedule, chip):
        loads[layer(label), resource][place] += cycles
    cycles_of: dict[str, dict[str, float]] = {}
    for (name, resource), places in loads.items():
        cycles_of.setdefault(name, dict.fromkeys(RESOURCES, 0.0))[resource] = max(places.values())
    for name, cycles in _shared_links(schedule, chip, layer).items():
        cycles_of[name]["noc"] = max(cycles_of[name]["noc"], cycles)
    return cycles_of


def busy(result: NetworkSchedule, chip: ChipConfig) -> dict[str, dict[str, float]]:
    """For each layer, the cycles for which its operations keep the busiest of each kind of resource."""
    return _busiest(result.schedule, chip, layer_of)


def totals(schedule: Schedule, chip: ChipConfig) -> dict[str, float]:
    """The cycles for which all operations together keep the busiest resource of each kind in `TOTALS`.

    The schedule takes no less than any of them, in whatever order its operations run: a resource serves one at a time.
    Programs, which are fetched by the same ports, are left out, and so are links.
    """
    cores = set(chip.cores)
    loads: defaultdict[str, _Loads] = defaultdict(lambda: defaultdict(float))
    for _, resource, (tile, what), cycles in _uses(schedule, chip):
        if resource == "noc":
            resource = {"in": "receiving", "out": "sending"}[what] if tile in cores else "memories"
        loads[resource][tile, what] += cycles
    return {resource: max(loads[resource].values(), default=0.0) for resource in TOTALS}


def bounding(loads: Mapping[str, float]) -> str:
    """The kinds of resource, by their cycles, of which one would buy more: the busiest, and after a `+` each that is
    within `NEAR` of it, the busier first; `dram+noc`."""
    most = max(loads.values())
    names = sorted((name for name in loads if loads[name] * (1 + NEAR) >= most), key=lambda name: -loads[name])
    return "+".join(names)


def limits(result: NetworkSchedule, chip: ChipConfig) -> dict[str, str]:
    """What bounds each layer, as `bounding` names it."""
    return {layer: bounding(cycles) for layer, cycles in busy(result, chip).items()}


def limit(schedule: Schedule, chip: ChipConfig) -> str:
    """What bounds the schedule of a single layer, as `bounding` names it; empty without operations."""
    cycles = _busiest(schedule, chip, lambda _: "")
    return bounding(cycles[""]) if cycles else ""
