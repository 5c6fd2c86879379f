"""List scheduling of sets of operations: GetSchedule of Algorithm 1.

Source: Min, Kwon, Egger, "Flexer" (CGO 2023), Algorithm 1. The paper never takes operations off its lists; here they
leave the ready queue when they are scheduled. If no set finds room beside the tiles that it needs and that lie badly,
everything leaves the scratchpad and a single operation goes on.
"""

from __future__ import annotations

import numpy as np

from .jit import compiled
from .machine import apart, commit, flush, hopeless, latency
from .sets import Scratch, choose
from .state import Array, CoreState, LayerConstants


@compiled
def make(
    work: LayerConstants,
    state: CoreState,
    room: Scratch,
    pruning: int,
    priority: int,
    policy: int,
    weights: Array,
    limit: float,
    most: int,
    record: bool,
) -> tuple[bool, float, int, Array]:
    """GetSchedule: (finished, cycles, words moved, log).

    `weights`: of cycles and words in the metric. Gives up, unfinished, as soon as it must end above `limit`,
    or has taken more than `most` steps of work.
    """
    log = state.log
    best = np.zeros(work.dims.cores, np.int64)
    while state.totals.ready > 0:
        apart(work, state)
        size = choose(work, state, room, pruning, priority, policy, best)
        if size == 0:
            log = flush(work, state, log, record)
            size = choose(work, state, room, pruning, priority, policy, best)
        log = commit(work, state, room.wanted, room.gone, best, size, policy, 0, log, record)
        if hopeless(work, state, weights, limit, most):
            return False, latency(work, state), state.totals.moved, log
    return True, latency(work, state), state.totals.moved, log
