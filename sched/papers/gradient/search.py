"""The search of one order: tilings and nests judged by what they take, the leaders by the timeline model.

Every tiling and nest of an order is played on a core's memories, which counts words of DRAM and cycles of the units;
what cannot be among the leaders is left as soon as that is certain. The best few become operations, in several degrees
of fetching ahead, and the timeline model decides between them. All budgets count steps and operations, so that a search
finds the same on every machine.

Cores that share a layer (`pair.Split`) all do the same steps on tiles of their own part; what they take is judged by
the largest part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Prediction, Schedule
from ...mapping.play.interleave import Interleaver
from ...mapping.tiling.problem import DoesNotFit
from ...schedulers.network.limits import totals
from ...schedulers.training.orders import LOOPS, Nest, Order, TileProduct, alone, moved, nests, steps
from ...schedulers.training.pair import GradientPair, Part, Split, Tiling, cut
from ...support.garbage import uncollected
from ...workload.training_data import scales_of
from .emit import Emitter, Least, StepCosts
from .sharing import begun, together

#: Steps that the search of an order may play in all, and those that one nest may have.
PLAYED, LONGEST = 60_000, 4_000
#: Candidates of an order whose operations are ordered, and predicted by the model, unless asked otherwise.
LEADERS = 3
#: Cycles of computing ahead of which operands are fetched, as multiples of the longest operation.
HORIZONS = (2, 16)
#: A tile has at most so many groups of `lanes` pixels, or blocks of `cols` columns.
MOST_GROUPS = 16


@dataclass(frozen=True)
class Candidate:
    """One way to compute a pair: `nests` has one nest, or those of dX and of dW (`first` says which is first)."""

    order: Order
    nests: tuple[Nest, ...]
    first: str

    def __str__(self) -> str:
        if len(self.nests) == 1:
            return str(self.nests[0])
        named = dict(zip(("dx", "dw"), self.nests, strict=True))
        parts = ("dx", "dw") if self.first == "dx" else ("dw", "dx")
        return ", ".join(f"{part} {named[part]}" for part in parts)


@dataclass(frozen=True)
class BestTiling:
    """What the search of an order has found: the best candidate, and the horizon of its operations; its `cycles` by the
    model, the words of DRAM of all parts and those of spilled sums among them, cycles in which array and vector unit of
    the core with the largest part are busy."""

    candidate: Candidate
    horizon: int
    cycles: int
    words: int
    spilled: int
    array: int
    vector: int


@dataclass(frozen=True)
class Slower:
    """The search of an order was given up: it takes at least so many cycles, which was more than wanted."""

    cycles: int


def _sizes(end: int, unit: int) -> list[int]:
    """Sizes of tiles of one dimension: all of it in 1, 2, 3... equal parts of whole units, at most `MOST_GROUPS`."""
    units = ceil(end / unit)
    return sorted({ceil(units / parts) * unit for parts in range(1, units + 1)} & {
        size * unit for size in range(1, MOST_GROUPS + 1)
    })  # fmt: skip


def largest(pair: GradientPair) -> Part:
    """The part with the most products, the first of several."""
    return max(pair.parts, key=lambda part: part.m * part.k * part.n)


def tilings(pair: GradientPair) -> list[Tiling]:
    """All tilings of the largest part whose tiles a core can hold. Where parts add to the same sums, all have one tile
    in the dimension that is shared, or all have several: else they would not complete sums in the same order. Raises
    DoesNotFit with what a smallest one lacks, if there is none."""
    result: list[Tiling] = []
    why: DoesNotFit | None = None
    part = largest(pair)
    for m in _sizes(part.m, pair.lanes):
        for n in _sizes(part.n, pair.lanes):
            for k in _sizes(part.k, pair.cols):
                try:
                    pair.check(Tiling(m, k, n))
                except DoesNotFit as error:
                    why = why or error
                else:
                    size = {Split.M: m, Split.K: k, Split.N: n}[pair.split]
                    whole = {getattr(each, pair.split) <= size for each in pair.parts}
                    if part.sums is None or len(whole) == 1:
                        result.append(Tiling(m, k, n))
    if not result:
        assert why is not None
        raise why
    return result


class Search:
    """The search of one pair, for a scheduler of some `name`. `predict`: the model. Raises DoesNotFit if no tiling
    fits."""

    def __init__(
        self,
        pair: GradientPair,
        name: str,
        predict: Callable[[Schedule, ChipConfig], Prediction],
        effort: float = 1.0,
        leaders: int = LEADERS,
    ) -> None:
        self.pair, self.name, self.predict, self.effort, self.leaders = pair, name, predict, effort, leaders
        self.part = largest(pair)
        self.scales = scales_of(pair.layer)
        self.tilings = tilings(pair)
        # orders have walks in common where loops have a single trip: what they take, or at least; what they lead to
        self._works: dict[tuple[object, ...], StepCosts | float | None] = {}
        self._best: dict[tuple[object, ...], tuple[int, int]] = {}
        self._why = ""  # the last nest did not fit

    def best(self, order: Order, enough: float = inf) -> BestTiling | Slower:
        """The best schedule of an order, or that it takes `enough` cycles or more, if that is certain before all is
        played. Raises DoesNotFit."""
        self._why = ""
        with uncollected():
            separate = order is Order.SEQUENTIAL or self.pair.layer.first
            candidates = self._sequential() if separate else self._together(order)
            finalists: list[tuple[tuple[int, int], Candidate, StepCosts]] = []
            slower: list[int] = []
            for one, work in candidates[: self.leaders]:
                took = self._predicted(one, enough)
                if isinstance(took, Slower):
                    slower.append(took.cycles)
                else:
                    finalists.append((took, one, work))
            if slower and min((took[0] for took, _, _ in finalists), default=inf) >= enough:
                return Slower(min(*slower, *(took[0] for took, _, _ in finalists)) if finalists else min(slower))
            if not finalists:
                shared = f" whose cores share it by {self.pair.split}: {self._why}" if self.part.of > 1 else ""
                raise DoesNotFit(
                    f"{self.pair.layer.name}: no tiling of order {order} fits {self.pair.chip.name}{shared}"
                )
            (cycles, horizon), one, work = min(finalists, key=lambda each: each[0][0])
            works = [self._emitter(part, one, record=False).work for part in self.pair.parts]
        words, spilled = sum(each.dram for each in works), sum(each.spilled for each in works)
        return BestTiling(one, horizon, cycles, words, spilled, work.array, work.vector)

    def _together(self, order: Order) -> list[tuple[Candidate, StepCosts]]:
        part = self.part

        def some(nest: Nest) -> list[TileProduct]:
            return moved(steps(part, order, nest, lambda walk: begun(walk, part)), part.first)

        fused = order not in (Order.PLAIN, Order.INTERLEAVED)
        played = self._played("fused" if fused else order, lambda tiling: nests(order, tiling), some, ("dx", "dw"))
        return [(Candidate(order, (nest,), "dx"), work) for nest, work in played]

    def _sequential(self) -> list[tuple[Candidate, StepCosts]]:
        """Each product by itself with its best nests, then both, one after the other."""
        part = self.part

        def of(result: str) -> list[Nest]:
            def some(nest: Nest) -> list[TileProduct]:
                return moved(begun(alone(part, "dx" if result == "dx" else "dw", nest), part), part.first)

            def all_of(tiling: Tiling) -> list[Nest]:
                return [Nest(tiling, loops, snake=True) for loops in LOOPS]

            return [nest for nest, _ in self._played(result, all_of, some, (result,))[: self.leaders]]

        dw = of("dw")
        if self.pair.layer.first:
            pairs = [((nest,), "dw") for nest in dw]
        else:
            dx = of("dx")
            pairs = [((one, two), first) for one in dx for two in dw for first in ("dx", "dw")]
        candidates: list[tuple[Candidate, StepCosts]] = []
        for chosen, first in pairs:
            one = Candidate(Order.SEQUENTIAL, chosen, first)
            try:
                candidates.append((one, self._emitter(part, one, record=False).work))
            except DoesNotFit:
                continue
        return sorted(candidates, key=lambda each: each[1].pipelined)

    def _played(
        self,
        kind: str,
        all_of: Callable[[Tiling], Sequence[Nest]],
        some: Callable[[Nest], list[TileProduct]],
        products: tuple[str, ...],
    ) -> list[tuple[Nest, StepCosts]]:
        """Nests of `products` and what they take, best first: tilings with the fewest steps first, until the budget is
        spent. `all_of`: those of a tiling; `some`: the steps of one; `kind`: by name, what decides the latter.

        Left out are those that certainly take longer than the leaders. They count as played all the same, so that what
        is found is what would be found if all were played."""
        left = PLAYED * self.effort
        entries: list[tuple[int, int, Nest, StepCosts]] = []
        for tiling in sorted(self.tilings, key=lambda tiling: (self._steps(tiling), tiling.m, tiling.k)):
            count = len(products) * self._steps(tiling)
            if count > LONGEST and entries:
                break
            leaders = sorted(one[0] for one in entries)[: self.leaders]
            least = self._least(tiling, products)
            if len(leaders) == self.leaders and least.array > leaders[-1]:
                continue
            for nest in all_of(tiling):
                if left < count and entries:
                    break
                left -= count
                leaders = sorted(each[0] for each in entries)[: self.leaders]
                most = leaders[-1] if len(leaders) == self.leaders else inf
                key = kind, nest.walked(self.part) if kind in ("fused", *products) else nest
                work = self._work(key, nest, some, least, most)
                if work is not None:
                    entries.append((work.pipelined, work.dram, nest, work))
        return [(nest, work) for _, _, nest, work in sorted(entries, key=lambda one: one[:2])]

    def _work(
        self, key: tuple[object, ...], nest: Nest, some: Callable[[Nest], list[TileProduct]], least: Least, most: float
    ) -> StepCosts | None:
        """What a nest takes; None if that is more than `most`, or if it does not fit."""
        stored = self._works.get(key, 0.0)  # a number: it certainly takes more than so many cycles
        if isinstance(stored, float) and stored < most:
            try:
                played = Emitter(self.pair, some(nest), self.scales, False, self.part, least, most)
            except DoesNotFit as error:
                stored, self._why = None, str(error)
            else:
                stored = float(most) if played.late else played.work
            self._works[key] = stored
        return stored if isinstance(stored, StepCosts) else None

    def _least(self, tiling: Tiling, products: tuple[str, ...]) -> Least:
        """What some products of the largest part take at least."""
        pair, part, rows = self.pair, self.part, self.pair.chip.rows
        ms, ks, ns = cut(part.m, tiling.m), cut(part.k, tiling.k), cut(part.n, tiling.n)
        groups = {
            "dx": sum(ceil((m[1] - m[0]) / rows) for m in ms) * sum(map(pair.groups, ns)),
            "dw": sum(ceil((n[1] - n[0]) / rows) for n in ns) * sum(map(pair.groups, ms)),
        }
        columns = sum(map(pair.columns, ks))
        array = columns * pair.lanes * sum(groups[product] for product in products)
        first = part.first[1]  # blocks of lanes in which two tiles of k meet are loaded for both
        wide = sum(end - begin for begin, end in (pair.blocks((first + k[0], first + k[1])) for k in ks))
        deep = ceil(part.n / pair.lanes)
        other = {"dx": wide * part.n, "dw": wide * part.m}
        results = {"dx": columns * part.m, "dw": columns * part.n}
        stored = sum(results[product] for product in products if product != part.sums)
        return Least(array, deep * part.m + sum(other[product] for product in products), stored)

    def _steps(self, tiling: Tiling) -> int:
        part = self.part
        return ceil(part.m / tiling.m) * ceil(part.k / tiling.k) * ceil(part.n / tiling.n)

    def _emitter(self, part: Part, candidate: Candidate, record: bool = True) -> Emitter:
        """A part, done as a candidate says."""
        if candidate.order is Order.SEQUENTIAL:
            some = _in_turn(part, candidate.nests, candidate.first)
        else:
            some = steps(part, candidate.order, candidate.nests[0], lambda walk: begun(walk, part))
        return Emitter(self.pair, moved(some, part.first), self.scales, record, part)

    # -- operations ---------------------------------------------------------------------------------------------------

    def _predicted(self, candidate: Candidate, enough: float) -> tuple[int, int] | Slower:
        """The cycles of a candidate's best schedule, and its horizon; how long its operations keep the busiest resource
        if that is `enough`: in no order they take less."""
        walks = tuple(nest.walked(self.part) for nest in candidate.nests)
        if candidate.order is Order.SEQUENTIAL:
            key: tuple[object, ...] = (candidate.order, walks, candidate.first)
        else:
            fused = candidate.order not in (Order.PLAIN, Order.INTERLEAVED)
            key = ("fused", walks) if fused else (candidate,)
        if key in self._best:
            return self._best[key]
        cycles_of: list[tuple[int, int]] = []
        tried: set[tuple[int, ...]] = set()
        for horizon, order, make in self._schedules(candidate, HORIZONS):
            if order not in tried:
                tried.add(order)
                schedule = make()
                if len(tried) == 1 and (least := ceil(max(totals(schedule, self.pair.chip).values()))) >= enough:
                    return Slower(least)
                cycles_of.append((self.predict(schedule, self.pair.chip).cycles, horizon))
        self._best[key] = min(cycles_of, key=lambda each: each[0])
        return self._best[key]

    def schedule(self, best: BestTiling) -> Schedule:
        """The schedule of what was found, not predicted."""
        with uncollected():
            ((_, _, schedule),) = self._schedules(best.candidate, (best.horizon,))
            return schedule()

    def _schedules(
        self, candidate: Candidate, horizons: Sequence[int]
    ) -> Iterator[tuple[int, tuple[int, ...], Callable[[], Schedule]]]:
        """For each horizon the order of a candidate's operations, and what makes the schedule."""
        pair = self.pair
        parts = [self._emitter(part, candidate) for part in pair.parts]
        nodes = together([one.nodes for one in parts], [one.gives for one in parts], [one.takes for one in parts])
        interleaver = Interleaver(nodes, pair.chip, in_order=True)
        operations = interleaver.waits.operations
        longest = max(node.cycles for node in nodes)

        for horizon in horizons:
            order = tuple(interleaver.run(horizon * longest).order)

            def schedule(order: tuple[int, ...] = order) -> Schedule:
                return Schedule(
                    chip=pair.chip.name,
                    chip_digest=pair.chip.digest,
                    workload=pair.layer.name,
                    scheduler=self.name,
                    operations=tuple(operations[index] for index in order),
                    tensors=pair.tensors(),
                )

            yield horizon, order, schedule


def _in_turn(part: Part, chosen: Sequence[Nest], first: str) -> list[TileProduct]:
    """One product after the other; `chosen`: the nests of dX and of dW, of a first layer only of dW."""
    dw = begun(alone(part, "dw", chosen[-1]), part)
    if len(chosen) == 1:
        return dw
    dx = begun(alone(part, "dx", chosen[0]), part)
    return dx + dw if first == "dx" else dw + dx
