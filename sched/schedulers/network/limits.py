"""What bounds each layer of a schedule: what one would buy more of, by buying it (`mapping.play.what_if`); and the
cycles for which operations keep the busiest resource of each kind, which no order of them can beat.

Resources are what one would buy more of. A DRAM tile's port carries the words of its channel and a head for each
packet, and another tile brings both, so the port counts as `dram`, and so does a link with the words of one such tile.
`noc` are the ports of cores and scratchpads, and links on which words of several tiles meet. The busiest resource is
not always the one to buy: where queues fill up, a layer can take twice as long as any resource is busy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.routes import dimension_ordered
from meshloom.hw.spec.timing import GemmShape, VecShape, gemm_occupancy, vec_occupancy

from ...ir.schedule import Gemm, Move, Operation, Schedule, Vec
from ...mapping.play.what_if import Resource, WhatIf
from ...model.traffic import dram_word_cycles
from ...support.garbage import uncollected
from .scheduler import NetworkSchedule, layer_of

#: The kinds of resource.
RESOURCES = tuple(Resource)
#: Those of a whole network, where ports are told apart: into cores, out of cores, and of scratchpads (both ways).
TOTALS = ("compute", "vector", "receiving", "sending", "dram", "memories")
#: Shares of the cycles that differ by so much are as good as equal. (Heads of packets are 1/64 of the flits, of 128
#: bytes 1/32.)
NEAR = 0.05
#: What is gained is known to about such a share of it (`bench limits`).
CLOSE = 0.2


class ResourceUse(NamedTuple):
    """`cycles` for which the operation numbered `operation` keeps a resource busy: `what` of a tile, of a `kind`."""

    operation: int
    kind: str
    tile: int
    what: str
    cycles: float


#: One resource of a kind: a tile and what of it.
_Place = tuple[int, str]
#: Cycles by place.
_Loads = defaultdict[_Place, float]


def _flits(op: Move, chip: ChipConfig) -> float:
    """Words and heads of a MOVE."""
    return op.words * (1 + 1 / chip.packet_words)


def _uses(schedule: Schedule, chip: ChipConfig) -> Iterator[ResourceUse]:
    """What operations keep busy, with the kinds of `RESOURCES`."""
    rate, drams = dram_word_cycles(chip), set(chip.drams)
    for number, op in enumerate(schedule.operations):
        match op:
            case Gemm():
                shape = GemmShape(op["pixels"], op["n_blocks"], op["k_blocks"], op["kernel_h"], op["kernel_w"])
                yield ResourceUse(number, "compute", op.core, "array", gemm_occupancy(chip, shape))
            case Vec():
                yield ResourceUse(number, "vector", op.core, "vector", vec_occupancy(chip, VecShape.of(op.body)))
            case Move():
                flits = _flits(op, chip)
                for tile, way in ((op.src.tile, "out"), *((tile, "in") for tile in op.receivers(chip))):
                    yield ResourceUse(number, "dram" if tile in drams else "noc", tile, way, flits)
                for tile in {op.src.tile, op.dst.tile} & drams:
                    yield ResourceUse(number, "dram", tile, "channel", op.words * rate)


def _shared_links(schedule: Schedule, chip: ChipConfig, layer: Callable[[Operation], str]) -> dict[str, float]:
    """Of each layer the cycles of its busiest link, of those with words from or for more than one DRAM tile."""
    drams = set(chip.drams)
    ways: defaultdict[tuple[str, int, int, tuple[int, ...] | None], float] = defaultdict(float)
    for op in schedule.operations:
        if isinstance(op, Move):
            ways[layer(op), op.src.tile, op.dst.tile, op.route] += _flits(op, chip)
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


def busiest(schedule: Schedule, chip: ChipConfig, layer: Callable[[Operation], str]) -> dict[str, dict[str, float]]:
    """For each layer, the cycles for which its operations keep the busiest of each kind of resource. `layer`: that of
    an operation."""
    loads: defaultdict[tuple[str, str], _Loads] = defaultdict(lambda: defaultdict(float))
    for use in _uses(schedule, chip):
        loads[layer(schedule.operations[use.operation]), use.kind][use.tile, use.what] += use.cycles
    cycles_of: dict[str, dict[str, float]] = {}
    for (name, resource), places in loads.items():
        cycles_of.setdefault(name, dict.fromkeys(RESOURCES, 0.0))[resource] = max(places.values())
    for name, cycles in _shared_links(schedule, chip, layer).items():
        cycles_of[name]["noc"] = max(cycles_of[name]["noc"], cycles)
    return cycles_of


def busy(result: NetworkSchedule, chip: ChipConfig) -> dict[str, dict[str, float]]:
    """For each layer, the cycles for which its operations keep the busiest of each kind of resource."""
    return busiest(result.schedule, chip, lambda op: layer_of(op.label))


def uses(schedule: Schedule, chip: ChipConfig) -> Iterator[ResourceUse]:
    """What operations keep busy, with the kinds of `TOTALS`.

    Programs, which are fetched by the same ports, are left out, and so are links.
    """
    cores = set(chip.cores)
    for use in _uses(schedule, chip):
        if use.kind != "noc":
            yield use
        elif use.tile in cores:
            yield use._replace(kind={"in": "receiving", "out": "sending"}[use.what])
        else:
            yield use._replace(kind="memories")


def totals(schedule: Schedule, chip: ChipConfig) -> dict[str, float]:
    """The cycles for which all operations together keep the busiest resource of each kind in `TOTALS`.

    The schedule takes no less than any of them, in whatever order its operations run: a resource serves one at a time.
    """
    loads: defaultdict[str, _Loads] = defaultdict(lambda: defaultdict(float))
    for use in uses(schedule, chip):
        loads[use.kind][use.tile, use.what] += use.cycles
    return {resource: max(loads[resource].values(), default=0.0) for resource in TOTALS}


def bounding(gains: Mapping[Resource, float], costs: Callable[[], Mapping[Resource, float]], cycles: float) -> str:
    """The kinds of resource of which one would buy more, with a `+` between them: `dram+noc`.

    `gains`: what a schedule of so many `cycles` takes less with twice as much of a kind alone; `costs`: what it takes
    longer with twice as much of all others than with twice as much of all, which is looked at only if need be. Named
    is the kind that gains most. Where none gains more than `NEAR` of the cycles, more of one alone leaves others in the
    way: named is then the kind that costs most. Those that gain as much but for `CLOSE` of it, or cost as much but for
    `NEAR` of the cycles, are named behind it.
    """
    if (most := max(gains.values())) > NEAR * cycles:
        names = [kind for kind, saving in gains.items() if saving >= (1 - CLOSE) * most]
        names.sort(key=gains.__getitem__, reverse=True)
        return "+".join(names)
    more = costs()
    least = max(more.values()) - NEAR * cycles
    names = [kind for kind, cost in more.items() if cost >= least]
    names.sort(key=more.__getitem__, reverse=True)
    return "+".join(names)


def _kinds(operations: Sequence[Operation], chip: ChipConfig) -> list[Resource]:
    """The kinds of resource that operations use: nobody buys more of others."""
    drams = set(chip.drams)
    used: set[Resource] = set()
    for op in operations:
        if isinstance(op, Move):
            used.add(Resource.NOC)
            if {op.src.tile, op.dst.tile} & drams:
                used.add(Resource.DRAM)
        else:
            used.add(Resource.VECTOR if isinstance(op, Vec) else Resource.COMPUTE)
    return [kind for kind in Resource if kind in used]


def _bought(operations: Sequence[Operation], chip: ChipConfig) -> str:
    """What bounds operations, as `bounding` names it, by playing them with twice as much of each kind of resource."""
    what_if = WhatIf(operations, chip)
    kinds = _kinds(operations, chip)

    def costs() -> dict[Resource, float]:
        best = what_if.cycles(kinds)
        return {kind: what_if.cycles([other for other in kinds if other is not kind]) - best for kind in kinds}

    before = what_if.cycles()
    return bounding({kind: before - what_if.cycles([kind]) for kind in kinds}, costs, before)


def limits(result: NetworkSchedule, chip: ChipConfig) -> dict[str, str]:
    """What bounds each layer, as `bounding` names it: each by itself, with what other layers compute at hand."""
    layers: defaultdict[str, list[Operation]] = defaultdict(list)
    for op in result.schedule.operations:
        layers[layer_of(op.label)].append(op)
    with uncollected():
        return {layer: _bought(operations, chip) for layer, operations in layers.items()}


def limit(schedule: Schedule, chip: ChipConfig) -> str:
    """What bounds the schedule of a single layer, as `bounding` names it; empty without operations."""
    with uncollected():
        return _bought(schedule.operations, chip) if schedule.operations else ""
