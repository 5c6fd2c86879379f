"""Layer by layer, cores in zig-zag order: the first baseline of C. Bai et al., "Klotski", ICCAD 2023, section IV-B.

The paper takes the order from M. Gao et al., "Tangram", ASPLOS 2019. Its baseline "does not partition a DNN model", and
the cycles in its Tables I-III are the same on 9, 16 and 25 cores: so each layer runs on one core, the next one on the
next core (`whole`). The stronger reading deals the micro-ops of each layer out to all cores. Either way a layer begins
when the one before has ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.hw.spec.config import ChipConfig, tile_position

from .muops import MuGraph, Orchestration
from .partition import Partition, fit
from .proof import proven
from .work import StageWork


def snake(chip: ChipConfig) -> list[int]:
    """Indices of all cores, row after row of the floorplan, every other row backwards."""
    rows: dict[int, list[tuple[int, int]]] = {}
    for index, core in enumerate(chip.cores):
        x, y = tile_position(core)
        rows.setdefault(y, []).append((x, index))
    order: list[int] = []
    for number, y in enumerate(sorted(rows)):
        order += [index for _, index in sorted(rows[y], reverse=number % 2 == 1)]
    return order


def undivided(works: Sequence[StageWork], chip: ChipConfig) -> list[Partition]:
    """A partition for each stage: all of it, or the nearest that fits a core. Raises DoesNotFit."""
    return [Partition.of(fit(work, chip, work.whole), chip) for work in works]


def zigzag(graph: MuGraph, chip: ChipConfig, whole: bool = False) -> Orchestration:
    """A core and a start for each micro-op. Those that add up the same sums share a core; `whole`: so do all of a
    layer."""
    turn = snake(chip)
    cores, starts = [0] * len(graph.ops), [0] * len(graph.ops)
    busy = [0] * len(turn)
    place, stage = -1, -1
    for op in graph.ops:
        if op.stage != stage:
            stage, busy = op.stage, [max(busy)] * len(turn)
            place += whole
        if not whole and op.sums is None:
            place += 1
        core = cores[op.number] = turn[place % len(turn)]
        starts[op.number] = busy[core]
        busy[core] += op.cycles
    return Orchestration(tuple(cores), tuple(starts), max(busy), proven(graph, len(turn)))
