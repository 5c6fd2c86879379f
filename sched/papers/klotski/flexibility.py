"""When a micro-op can start at the earliest and at the latest (Klotski, section II-B).

Eq. 2 as printed subtracts the consumer's cycles from the consumer's last start, and leaves the start of a micro-op that
nobody waits for to the largest ALAP of all, which is itself. Here a micro-op's own cycles are subtracted, and one that
nobody waits for ends at the horizon.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .dag import Dag, GraphError, Ints, numbers


def asap(dag: Dag) -> Ints:
    """First cycle in which each micro-op can start, with as many cores as it takes (Eq. 1)."""
    first = np.zeros(len(dag), np.int64)
    cycles = dag.cycles.tolist()
    for number in numbers(dag.order):
        end = first[number] + cycles[number]
        for consumer in dag.consumers[number]:
            first[consumer] = max(first[consumer], end)
    return first


def levels(dag: Dag) -> Ints:
    """Cycles from the start of each micro-op to the end of the longest chain that it begins: its bottom level."""
    return asap(dag.backwards) + dag.cycles


def alap(dag: Dag, horizon: int) -> Ints:
    """Last cycle in which each micro-op can start when all must end by `horizon` (Eq. 2, mended). Raises GraphError if
    the longest chain is longer than that."""
    below = levels(dag)
    if len(dag) and below.max() > horizon:
        raise GraphError(f"the longest chain takes {below.max()} cycles, which is beyond the horizon of {horizon}")
    return horizon - below


@dataclass(frozen=True, eq=False)
class Windows:
    """First and last cycle in which each micro-op can start."""

    first: Ints
    last: Ints

    @property
    def flexibility(self) -> Ints:
        """Cycles by which each can be moved."""
        return self.last - self.first


def windows(dag: Dag, horizon: int) -> Windows:
    """Windows of all micro-ops when all must end by `horizon`. Raises GraphError as `alap`."""
    return Windows(asap(dag), alap(dag, horizon))
