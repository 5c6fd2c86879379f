"""Which candidates of a layer make the same operations, known before any is emitted.

The smaller a layer, the more of its candidates are the same schedule by other names: orders of loops that turn once,
tiles that are larger than what there is to cut, ramps of a single piece. Of the 500 that a search judges for a GEMM of
8x8x9 on four cores, 46 have to be made.
"""

from __future__ import annotations

from meshloom.hw.spec.config import ChipConfig

from ...mapping.tiling.plan import CorePlan, plan
from ...mapping.tiling.problem import Problem
from ...mapping.tiling.tiles import Candidate, Order, Part, k_tiles, m_tiles, n_tiles, parts

#: What else decides operations besides the plans of the cores.
_Rest = tuple[int, int, bool, bool, bool, bool, bool]


class Alike:
    """The candidates of one layer on one chip that have come so far, each with the first that is the same schedule."""

    def __init__(self, problem: Problem, chip: ChipConfig) -> None:
        self.problem, self.chip = problem, chip
        self._parts: dict[tuple[int, int, bool], list[Part]] = {}
        self._by_tiles: dict[tuple[object, ...], Candidate] = {}
        self._plans: dict[Candidate, list[CorePlan]] = {}
        self._by_plans: dict[_Rest, list[tuple[list[CorePlan], Candidate]]] = {}

    def first(self, candidate: Candidate) -> Candidate:
        """The first candidate with the same operations in the same order; this one if there has been none. Raises
        DoesNotFit when a tile is too large for its memory."""
        tiles = self._tiles(candidate)
        result = self._by_tiles.get(tiles)
        if result is None:
            result = self._by_tiles[tiles] = self._of_plans(candidate)
        return result

    def plans(self, candidate: Candidate) -> list[CorePlan]:
        """The plans of a candidate's cores. Raises DoesNotFit."""
        plans = self._plans.get(candidate)
        if plans is None:
            work = self._work(candidate)
            plans = self._plans[candidate] = [plan(self.problem, self.chip, candidate, part) for part in work]
        return plans

    def _of_plans(self, candidate: Candidate) -> Candidate:
        plans, c = self.plans(candidate), candidate
        rest = c.parts_m, c.parts_n, c.x_spm, c.w_spm, c.late, c.strip, c.fair
        some = self._by_plans.setdefault(rest, [])
        for others, first in some:
            if others == plans:
                del self._plans[candidate]
                return first
        some.append((plans, candidate))
        return candidate

    def _work(self, candidate: Candidate) -> list[Part]:
        key = candidate.parts_m, candidate.parts_n, candidate.snap
        work = self._parts.get(key)
        if work is None:
            work = self._parts[key] = parts(self.problem, self.chip, candidate)
        return work

    def _tiles(self, candidate: Candidate) -> tuple[object, ...]:
        """The tiles of all cores, the order of visits as far as it matters, and the switches that act elsewhere."""
        work, c = self._work(candidate), candidate
        ms = tuple([tuple(m_tiles(self.problem, part, c)) for part in work])
        ns = tuple([tuple(n_tiles(part, c)) for part in work])
        ks = tuple(k_tiles(self.problem, c))
        order = _order(c.order, max(map(len, ms)), max(map(len, ns)), len(ks))
        switches = c.x_spm, c.w_spm, c.ramp_k, c.strip, c.late, c.tight, c.edges, c.fair
        return c.parts_m, c.parts_n, ms, ns, ks, order, switches


def _order(order: Order, ms: int, ns: int, ks: int) -> Order:
    """The first of the orders in which a core with at most so many tiles makes the same visits (`tiles.visits`)."""
    if ks == 1:
        outer: Order = "output" if order in ("input", "output") else "output_n"
        return "output" if min(ms, ns) == 1 else outer
    return "output" if ms == ns == 1 else order
