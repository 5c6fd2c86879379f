"""The cycles below which no schedule of the micro-ops of a network can be.

A core has two units, an array and a vector unit, which work side by side. So bounds are those of the array's micro-ops
on as many machines as there are cores, those of the vector unit counting only in chains, and the work of the vector
unit by itself. A network falls into segments that follow each other (`exact.segments`), whose bounds add up.
"""

from __future__ import annotations

import numpy as np

from meshloom.hw.spec.isa import Unit

from .bounds import bound, by_chains
from .dag import Dag, of_graph
from .exact import segments
from .flexibility import levels
from .muops import MuGraph

#: Micro-ops of a segment for which what must come before each is bounded in turn, at most, and those up to which
#: intervals are: both take more than the square of it.
DEEP, INTERVALS = 600, 300


def proven(graph: MuGraph, cores: int) -> int:
    """The strongest bound that there is. Raises GraphError for micro-ops that wait for each other in a circle."""
    dag = of_graph(graph)
    matrix = np.array([op.unit is Unit.MATRIX for op in graph.ops], np.bool_)
    vector = -(-int(dag.cycles[~matrix].sum()) // cores)
    array = Dag(np.where(matrix, dag.cycles, 0), dag.edges, dag.words, dag.order)
    total = 0
    for chosen in segments(dag):
        part, alone = dag.part(chosen), array.part(chosen)
        best = max(int(levels(part).max()), by_chains(part, alone.cycles, cores))
        if len(chosen) <= DEEP:
            best = max(best, bound(alone, cores, intervals=len(chosen) <= INTERVALS).best)
        total += best
    return max(total, vector)
