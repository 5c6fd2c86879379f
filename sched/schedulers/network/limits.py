"""What bounds each layer of a schedule at best, whatever the order of its operations: its busiest resource."""

from __future__ import annotations

from collections import defaultdict

from meshloom.hw.config import ChipConfig
from meshloom.hw.timing import GemmShape, VecShape, gemm_occupancy, vec_occupancy

from ...ir.schedule import Gemm, Move, Vec
from ...mapping.traffic import dram_word_cycles
from .scheduler import NetworkSchedule, layer_of

#: Resources, the first of equals counts: arrays, vector units, DRAM channels, ports of tiles into and out of the mesh.
RESOURCES = ("compute", "vector", "dram", "network")


def busy(made: NetworkSchedule, chip: ChipConfig) -> dict[str, dict[str, float]]:
    """For each layer, the cycles for which its operations keep the busiest of each kind of resource."""
    loads: defaultdict[tuple[str, str], defaultdict[tuple[int, bool], float]]
    loads = defaultdict(lambda: defaultdict(float))

    def add(layer: str, resource: str, tile: int, cycles: float, inwards: bool = False) -> None:
        loads[layer, resource][tile, inwards] += cycles

    rate, drams = dram_word_cycles(chip), set(chip.drams)
    for op in made.schedule.operations:
        layer = layer_of(op.label)
        match op:
            case Gemm():
                shape = GemmShape(op["pixels"], op["n_blocks"], op["k_blocks"], op["kernel_h"], op["kernel_w"])
                add(layer, "compute", op.core, gemm_occupancy(chip, shape))
            case Vec():
                add(layer, "vector", op.core, vec_occupancy(chip, VecShape.of(op.body)))
            case Move():
                flits = op.words * (1 + 1 / chip.packet_words)
                add(layer, "network", op.src.tile, flits)
                add(layer, "network", op.dst.tile, flits, inwards=True)
                for tile in {op.src.tile, op.dst.tile} & drams:
                    add(layer, "dram", tile, op.words * rate)
    found: dict[str, dict[str, float]] = {}
    for (layer, resource), tiles in loads.items():
        found.setdefault(layer, dict.fromkeys(RESOURCES, 0.0))[resource] = max(tiles.values())
    return found


def limits(made: NetworkSchedule, chip: ChipConfig) -> dict[str, str]:
    """The name of each layer's bounding resource."""
    return {layer: max(RESOURCES, key=cycles.__getitem__) for layer, cycles in busy(made, chip).items()}
