"""One schedule of a tiled layer, made as its choice and policy say, and the work that it took.

Work is counted in steps: turns of the loops in which the compiled code spends its time. What it takes to set a
schedule up is counted in the same unit, as measured once. (A step takes some 15 ns.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from ...mapping.tiling.problem import Problem
from .listing import make
from .memory import FUTURE
from .nests import nest, of_log, replay
from .policy import Choice, Policy
from .sets import scratch
from .state import Order, begin
from .static import K, M, N, regions, unroll
from .tiles import Tiles

#: Steps after which looking ahead from one list schedule ends without a result.
AHEAD_STEPS = 100_000_000
#: Steps that it takes to set up a schedule, and to set up each of its tiles; more steps than any schedule takes.
PLAY_STEPS, TILE_STEPS, UNLIMITED = 12_000, 120, 1 << 62
_LOOPS = {"m": M, "n": N, "k": K}


def play(
    problem: Problem, chip: ChipConfig, choice: Choice, policy: Policy, limit: float = np.inf, record: bool = False
) -> tuple[bool, float, int, NDArray[np.void]]:
    """Makes the schedule of a choice: (finished, cycles, words moved, log)."""
    return attempt(problem, chip, choice, policy, limit, record)[:4]


def attempt(
    problem: Problem,
    chip: ChipConfig,
    choice: Choice,
    policy: Policy,
    limit: float = np.inf,
    record: bool = False,
    most: int = UNLIMITED,
) -> tuple[bool, float, int, NDArray[np.void], int]:
    """The same, and the steps that it took; it is given up after more than `most`."""
    tiles = Tiles(problem, choice.tiling)
    order = Order(choice.loops if len(choice.loops) == 3 else "mnk")
    start = begin(tiles, chip, order, policy.home, policy.overlap, policy.private)
    arrays = start.work
    weights = np.array([policy.by_cycles, policy.by_words])
    room = scratch(start)
    steps = PLAY_STEPS + TILE_STEPS * len(start.tiles)
    if choice.shape is not None:
        order_ = nest(arrays.dims, *choice.shape, choice.loops == "m", choice.group)
        state = start.fresh(steps)
        done = replay(arrays, state, room, order_, FUTURE, weights, limit, most, record)
    elif choice.slots is not None:
        state = regions(start, choice.slots, steps)
        loops = np.array([_LOOPS[loop] for loop in choice.loops])
        done = unroll(arrays, state, loops, np.array(choice.slots), weights, limit, most, record)
    else:
        state = start.fresh(steps)
        late = np.inf if policy.again or policy.lookahead else limit
        done = make(
            arrays, state, room, policy.pruning, policy.priority, policy.memory, weights, late, most,
            record or policy.again,
        )  # fmt: skip
        order_ = of_log(arrays.dims, done[3][: state.totals.logged]) if policy.again and done[0] else None
        if policy.lookahead and done[0]:
            from .beam import ahead  # compiled by itself (see `ready`)

            worth = policy.metric(done[1], done[2])
            better, more = ahead(
                start, room, policy.lookahead, policy.priority, policy.memory, weights, worth, AHEAD_STEPS
            )
            state.totals.steps += more
            if better is not None:
                order_ = better
        if order_ is not None:
            state = start.fresh(int(state.totals.steps))
            memory = FUTURE if policy.again else policy.memory
            done = replay(arrays, state, room, order_, memory, weights, limit, most, record)
    good, cycles, words, log = done
    return good, cycles, int(words), log[: state.totals.logged], int(state.totals.steps)
