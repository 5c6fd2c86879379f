"""The data flows of a tiling: loop orders, divisions of the scratchpad, nests of rectangles.

Source: Min, Kwon, Egger, "Flexer" (CGO 2023), Algorithm 1 (data flows) and section 5 (the baseline's).
"""

from __future__ import annotations

from collections.abc import Iterator

from meshloom.hw.spec.config import ChipConfig

from ...mapping.tiling.problem import Problem
from .policy import Choice, Policy
from .state import ORDERS, begin
from .static import divisions, unrolled
from .tiles import Tiles, Tiling


def flows(problem: Problem, chip: ChipConfig, policy: Policy, tiling: Tiling) -> Iterator[Choice]:
    """All data flows of a tiling that a policy allows; of the baseline, with all divisions of the scratchpad."""
    if policy.kind == "nest":
        yield from _nests(problem, chip, tiling)
        return
    tiles = Tiles(problem, tiling)
    long = {loop for loop, size in zip("mnk", tiles.shape, strict=True) if size > 1}
    seen: set[str] = set()
    for order in ORDERS:  # a loop of one step is nowhere
        same = "".join(loop for loop in order.loops if loop in long)
        if policy.static:
            same += unrolled(order.loops)  # but the one that goes over the cores
            if policy.unroll not in ("any", unrolled(order.loops)):
                continue
        if same in seen:
            continue
        seen.add(same)
        if not policy.static:
            yield Choice(tiling, order.loops)
            continue
        for slots in divisions(begin(tiles, chip, order), order, policy.regions):
            yield Choice(tiling, order.loops, slots)


def _nests(problem: Problem, chip: ChipConfig, tiling: Tiling) -> Iterator[Choice]:
    """All nests of rectangles of a tiling."""
    dims = begin(Tiles(problem, tiling), chip, ORDERS[0], True).work.dims
    m, n, k, cores, slots = dims.m, dims.n, dims.k, dims.cores, dims.sum_slots
    shapes = {(min(tall, m), min(cores // tall, n)) for tall in range(1, cores + 1)}
    shapes |= {(min(cores // wide, m), wide) for _, wide in shapes}
    widest = max(tall * wide for tall, wide in shapes)
    for tall, wide in sorted(shape for shape in shapes if 2 * shape[0] * shape[1] > widest):
        for loops, inner in (("m", -(-n // wide)), ("n", -(-m // tall))):
            for group in sorted({1, min(2, slots, inner), min(slots, inner)}) if k > 1 else (1,):
                yield Choice(tiling, loops, shape=(tall, wide), group=group)
