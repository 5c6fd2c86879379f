"""Graphs of micro-ops for the comparison of solvers: random layers, with halos, barriers and ways around."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meshloom.sched.papers.klotski.dag import Dag, dag

#: Other graphs that are measured beside the random ones: a name, and what makes the graph for a number of cores.
NETWORKS: dict[str, Callable[[int], Dag]] = {}


def layered(size: int, seed: int, barriers: float = 0.1) -> Dag:
    """`size` micro-ops in layers of 2 to 39 (a third of them all at most, or 3), as a partition of a network has them.

    Cycles are log-normal (median 1,100) by layer, shorter at some edges of it. A micro-op reads those of the layer
    before that lie beside it, one more at each side (halo); a share `barriers` of layers reads all of it; three in ten
    read another layer too, as additions and concatenations do. 50 to 1,999 words for each edge.
    """
    random = np.random.default_rng(seed)
    cycles, edges, words = list[int](), list[tuple[int, int]](), list[int]()
    layers, widest = list[list[int]](), min(39, max(3, size // 3))
    while len(cycles) < size:
        width = min(int(random.integers(2, widest + 1)), size - len(cycles))
        length, short = int(np.exp(random.normal(7, 0.8))) + 1, int(random.integers(1, 4))
        layer = list(range(len(cycles), len(cycles) + width))
        for at in range(width):
            whole = at % short == 0 or random.random() < 0.7
            cycles.append(length if whole else max(1, int(length * random.uniform(0.3, 1))))
        sources = layers[-1:]
        if len(layers) > 1 and random.random() < 0.3:
            sources = [*sources, layers[int(random.integers(0, len(layers) - 1))]]
        for source in sources:
            everything, count = bool(random.random() < barriers), int(random.integers(50, 2000))
            for at, op in enumerate(layer):
                first, behind = at * len(source) // width - 1, (at + 1) * len(source) // width + 2
                some = source if everything else source[max(0, first) : behind]
                edges += [(other, op) for other in some]
                words += [count] * len(some)
        layers.append(layer)
    return dag(cycles, edges, words)
