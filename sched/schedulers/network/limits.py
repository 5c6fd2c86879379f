"""What bounds each layer of a schedule at best, whatever the order of its operations: its busiest resource."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from meshloom.hw.config import ChipConfig
from meshloom.hw.timing import GemmShape, VecShape, gemm_occupancy, vec_occupancy

from ...ir.schedule import Gemm, Move, Schedule, Vec
from ...mapping.traffic import dram_word_cycles
from .scheduler import NetworkSchedule, layer_of

#: Resources, the first of equals counts: arrays, vector units, DRAM channels, ports of tiles into and out of the mesh.
RESOURCES = ("compute", "vector", "dram", "network")
#: Those of a whole network, where ports are told apart: into cores, out of cores, and of memories (both ways).
TOTALS = ("compute", "vector", "receiving", "sending", "dram", "memories")


def _uses(schedule: Schedule, chip: ChipConfig) -> Iterator[tuple[str, str, int, bool, float]]:
    """What operations keep busy: the layer, the resource, its tile, whether it is a port into that, and the cycles."""
    rate, drams = dram_word_cycles(chip), set(chip.drams)
    for op in schedule.operations:
        layer = layer_of(op.label)
        match op:
            case Gemm():
                shape = GemmShape(op["pixels"], op["n_blocks"], op["k_blocks"], op["kernel_h"], op["kernel_w"])
                yield layer, "compute", op.core, False, gemm_occupancy(chip, shape)
            case Vec():
                yield layer, "vector", op.core, False, vec_occupancy(chip, VecShape.of(op.body))
            case Move():
                flits = op.words * (1 + 1 / chip.packet_words)
                yield layer, "network", op.src.tile, False, flits
                yield layer, "network", op.dst.tile, True, flits
                for tile in {op.src.tile, op.dst.tile} & drams:
                    yield layer, "dram", tile, False, op.words * rate


def busy(made: NetworkSchedule, chip: ChipConfig) -> dict[str, dict[str, float]]:
    """For each layer, the cycles for which its operations keep the busiest of each kind of resource."""
    loads: defaultdict[tuple[str, str], defaultdict[tuple[int, bool], float]]
    loads = defaultdict(lambda: defaultdict(float))
    for layer, resource, tile, inwards, cycles in _uses(made.schedule, chip):
        loads[layer, resource][tile, inwards] += cycles
    found: dict[str, dict[str, float]] = {}
    for (layer, resource), tiles in loads.items():
        found.setdefault(layer, dict.fromkeys(RESOURCES, 0.0))[resource] = max(tiles.values())
    return found


def totals(schedule: Schedule, chip: ChipConfig) -> dict[str, float]:
    """The cycles for which all operations together keep the busiest resource of each kind in `TOTALS`.

    The schedule takes no less than any of them, in whatever order its operations run: a resource serves one at a time.
    Programs, which are fetched by the same ports, are left out.
    """
    cores = set(chip.cores)
    loads: defaultdict[str, defaultdict[tuple[int, bool], float]] = defaultdict(lambda: defaultdict(float))
    for _, resource, tile, inwards, cycles in _uses(schedule, chip):
        if resource == "network":
            resource = ("receiving" if inwards else "sending") if tile in cores else "memories"
        loads[resource][tile, inwards] += cycles
    return {resource: max(loads[resource].values(), default=0.0) for resource in TOTALS}


def limits(made: NetworkSchedule, chip: ChipConfig) -> dict[str, str]:
    """The name of each layer's bounding resource."""
    return {layer: max(RESOURCES, key=cycles.__getitem__) for layer, cycles in busy(made, chip).items()}
