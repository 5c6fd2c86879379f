"""Sets of networks that are asked for at once, drawn with a stated seed (Layer-Puzzle, section IV-B.3).

The paper draws networks of its Table III "with varying batch sizes" in "3 distinct sizes of workloads", 30 in total,
and states neither the sizes nor a seed; those below are ours.
"""

from __future__ import annotations

import numpy as np

from .arrivals import Poisson
from .scenario import Request, Scenario

#: Table III of the paper.
NETWORKS = ("googlenet", "mobilenet_v1", "resnet50", "ncf", "transformer")
BATCHES = (1, 4)
#: Networks of a workload, by size.
SIZES = {"small": 3, "medium": 6, "large": 10}
#: Workloads of each size.
EACH = 10
SEED = 1
#: Deadline factors (Table II), by cores of the chip.
FACTORS = {9: 0.4, 25: 0.2}


def workload_sets(cores: int, rate: float = 0.0, seed: int = SEED) -> tuple[Scenario, ...]:
    """The 30 workloads for a chip with so many cores, small ones first.

    `rate`: arrivals in a million cycles, as a Poisson process; 0: all arrive in cycle 0. Names and batch sizes do not
    depend on cores and rate. Chips with other numbers of cores than the paper's get the factor of the nearest.
    """
    factor = FACTORS[min(FACTORS, key=lambda number_of_cores: abs(number_of_cores - cores))]
    raw = np.random.PCG64(seed)
    scenarios: list[Scenario] = []
    for size, count in SIZES.items():
        for index in range(EACH):
            draws = [int(draw) for draw in np.atleast_1d(np.asarray(raw.random_raw(2 * count)))]
            names = [NETWORKS[(draw >> 16) % len(NETWORKS)] for draw in draws[:count]]
            batches = [BATCHES[(draw >> 16) % len(BATCHES)] for draw in draws[count:]]
            drawn = seed * 1000 + len(scenarios)
            cycles = Poisson(poisson=rate, number=count, seed=drawn).cycles() if rate else (0,) * count
            requests = tuple(
                Request(name, batch, cycle, None, factor)
                for name, batch, cycle in zip(names, batches, cycles, strict=True)
            )
            scenarios.append(Scenario(f"{size}{index}", requests))
    return tuple(scenarios)
