"""The best schedule of a layer's two gradients: tilings and orders judged by what they take, the leaders by the model.

Every tiling and nest of an order is played on a core's memories, which counts words of DRAM and cycles of the units.
The best few become operations, in several degrees of fetching ahead, and the timeline model decides between them. All
budgets count steps and operations, so that a search finds the same on every machine.

Several cores share the columns of X: each makes its columns of dX and its rows of dW, for which it reads all of dY (the
paper's sharing of dY, K is split). All do the same steps; what they take is judged by the largest part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import ceil

from meshloom.hw.config import ChipConfig

from ...ir.schedule import Prediction, Schedule
from ...lowering.predict import predict
from ...mapping.interleave import Interleaver
from ...mapping.problem import DoesNotFit
from ...workload.training import TrainingLayer
from ...workload.training_data import scales_of
from .emit import Emitter, Work
from .orders import LOOPS, Nest, Order, Step, alone, moved, nests, steps
from .pair import Pair, Part, Tiling, cut

#: Steps that the search of an order may play in all, and those that one nest may have.
PLAYED, LONGEST = 60_000, 4_000
#: Candidates of an order whose operations are ordered, and predicted by the model.
LEADERS = 3
#: Cycles of computing ahead of which operands are fetched, as multiples of the longest operation.
HORIZONS = (2, 16)
#: A tile has at most so many groups of `lanes` pixels, or blocks of `cols` columns.
MOST_GROUPS = 16


@dataclass(frozen=True)
class Candidate:
    """One way to compute a pair, and what it takes: `nests` has one nest, or those of dX and of dW (`of` says which is
    first)."""

    order: Order
    nests: tuple[Nest, ...]
    first: str
    work: Work

    def __str__(self) -> str:
        if len(self.nests) == 1:
            return str(self.nests[0])
        named = dict(zip(("dx", "dw"), self.nests, strict=True))
        parts = ("dx", "dw") if self.first == "dx" else ("dw", "dx")
        return ", ".join(f"{part} {named[part]}" for part in parts)


@dataclass(frozen=True)
class GradientSchedule:
    """The schedule of a pair and what is known of it: the `order` that it took, its `nest` in words, bytes to and from
    DRAM (`spilled_bytes`: of partial sums among them), cycles in which array and vector unit of the core with the
    largest part are busy, and the `predicted` cycles of the best schedule of every order that was tried."""

    layer: TrainingLayer
    schedule: Schedule
    order: Order
    nest: str
    dram_bytes: int
    spilled_bytes: int
    array_cycles: int
    vector_cycles: int
    predicted: dict[Order, int]


def _sizes(end: int, unit: int) -> list[int]:
    """Sizes of tiles of one dimension: all of it in 1, 2, 3... equal parts of whole units, at most `MOST_GROUPS`."""
    units = ceil(end / unit)
    return sorted({ceil(units / parts) * unit for parts in range(1, units + 1)} & {
        size * unit for size in range(1, MOST_GROUPS + 1)
    })  # fmt: skip


def largest(pair: Pair) -> Part:
    """The part with the most columns, the first of several."""
    return max(pair.parts, key=lambda part: part.k)


def tilings(pair: Pair) -> list[Tiling]:
    """All tilings of the largest part whose tiles a core can hold. Raises DoesNotFit with what a smallest one lacks, if
    there is none."""
    found: list[Tiling] = []
    why: DoesNotFit | None = None
    for m in _sizes(pair.m, pair.lanes):
        for n in _sizes(pair.n, pair.lanes):
            for k in _sizes(largest(pair).k, pair.cols):
                try:
                    pair.check(Tiling(m, k, n))
                except DoesNotFit as error:
                    why = why or error
                else:
                    found.append(Tiling(m, k, n))
    if not found:
        assert why is not None
        raise why
    return found


class _Search:
    """The search of one pair, for a scheduler of some `name`. `predict`: the model."""

    def __init__(
        self, pair: Pair, name: str, predict: Callable[[Schedule, ChipConfig], Prediction], effort: float
    ) -> None:
        self.pair, self.name, self.predict, self.effort = pair, name, predict, effort
        self.part = largest(pair)
        self.scales = scales_of(pair.layer)
        self.tilings = tilings(pair)

    def best(self, order: Order) -> tuple[Candidate, Schedule]:
        """The best schedule of an order. Raises DoesNotFit."""
        found = self._sequential() if order is Order.SEQUENTIAL or self.pair.layer.first else self._together(order)
        made = [(one, schedule) for one in found[:LEADERS] for schedule in self._schedules(one)]
        if not made:
            raise DoesNotFit(f"{self.pair.layer.name}: no tiling of order {order} fits {self.pair.chip.name}")
        return min(made, key=lambda pair: pair[1].predicted.cycles if pair[1].predicted else 0)

    def _together(self, order: Order) -> list[Candidate]:
        def all_of(tiling: Tiling) -> Iterator[tuple[Nest, list[Step]]]:
            for nest in nests(order, tiling):
                yield nest, moved(steps(self.part, order, nest), self.part.first)

        return [Candidate(order, (nest,), "dx", work) for nest, work in self._played(all_of, ("dx", "dw"))]

    def _sequential(self) -> list[Candidate]:
        """Each product by itself with its best nests, then both, one after the other."""

        def of(result: str) -> list[Nest]:
            def all_of(tiling: Tiling) -> Iterator[tuple[Nest, list[Step]]]:
                for loops in LOOPS:
                    nest = Nest(tiling, loops, snake=True)
                    made = alone(self.part, "dx" if result == "dx" else "dw", nest)
                    yield nest, moved(made, self.part.first)

            return [nest for nest, _ in self._played(all_of, (result,))[:LEADERS]]

        dw = of("dw")
        if self.pair.layer.first:
            pairs = [((nest,), "dw") for nest in dw]
        else:
            dx = of("dx")
            pairs = [((one, two), first) for one in dx for two in dw for first in ("dx", "dw")]
        found: list[Candidate] = []
        for chosen, first in pairs:
            try:
                work = self._emitter(self.part, Candidate(Order.SEQUENTIAL, chosen, first, Work()), record=False).work
            except DoesNotFit:
                continue
            found.append(Candidate(Order.SEQUENTIAL, chosen, first, work))
        return sorted(found, key=lambda one: one.work.pipelined)

    def _played(
        self, all_of: Callable[[Tiling], Iterator[tuple[Nest, list[Step]]]], products: tuple[str, ...]
    ) -> list[tuple[Nest, Work]]:
        """Nests of `products` and what they take, best first: tilings with the fewest steps first, until the budget is
        spent. Left out are those whose array works for longer than the leaders take."""
        pair, left = self.pair, PLAYED * self.effort
        found: list[tuple[int, int, Nest, Work]] = []
        for tiling in sorted(self.tilings, key=lambda tiling: (self._steps(tiling), tiling.m, tiling.k)):
            count = len(products) * self._steps(tiling)
            if count > LONGEST and found:
                break
            leaders = sorted(one[0] for one in found)[:LEADERS]
            if len(leaders) == LEADERS and self._array_cycles(tiling, products) > leaders[-1]:
                continue
            for nest, some in all_of(tiling):
                if left < count and found:
                    break
                left -= count
                try:
                    work = Emitter(pair, some, self.scales, record=False, tile=self.part.core).work
                except DoesNotFit:
                    continue
                found.append((work.pipelined, work.dram, nest, work))
        return [(nest, work) for _, _, nest, work in sorted(found, key=lambda one: one[:2])]

    def _array_cycles(self, tiling: Tiling, products: tuple[str, ...]) -> int:
        """Cycles of the array for all steps of some products."""
        pair, rows = self.pair, self.pair.chip.rows
        ms, ks, ns = cut(pair.m, tiling.m), cut(self.part.k, tiling.k), cut(pair.n, tiling.n)
        groups = {
            "dx": sum(ceil((m[1] - m[0]) / rows) for m in ms) * sum(map(pair.groups, ns)),
            "dw": sum(ceil((n[1] - n[0]) / rows) for n in ns) * sum(map(pair.groups, ms)),
        }
        return sum(map(pair.columns, ks)) * pair.lanes * sum(groups[product] for product in products)

    def _steps(self, tiling: Tiling) -> int:
        return ceil(self.pair.m / tiling.m) * ceil(self.part.k / tiling.k) * ceil(self.pair.n / tiling.n)

    def _emitter(self, part: Part, candidate: Candidate, record: bool = True) -> Emitter:
        """A part, done as a candidate says."""
        if candidate.order is Order.SEQUENTIAL:
            some = _in_turn(part, candidate.nests, candidate.first)
        else:
            some = steps(part, candidate.order, candidate.nests[0])
        return Emitter(self.pair, moved(some, part.first), self.scales, record, part.core)

    def words(self, candidate: Candidate) -> tuple[int, int]:
        """Words of DRAM that all parts take together, and those of spilled sums among them."""
        works = [self._emitter(part, candidate, record=False).work for part in self.pair.parts]
        return sum(work.dram for work in works), sum(work.spilled for work in works)

    def _schedules(self, candidate: Candidate) -> Iterator[Schedule]:
        """The schedules of a candidate, one for each horizon, with their predictions."""
        pair = self.pair
        made_by = [self._emitter(part, candidate).nodes for part in pair.parts]
        # by turns, so that none comes behind all of the others at the channels
        nodes = [node for some in zip_longest(*made_by) for node in some if node is not None]
        order = Interleaver(nodes, pair.chip, in_order=True)
        made = Schedule(
            chip=pair.chip.name,
            chip_digest=pair.chip.digest,
            workload=pair.layer.name,
            scheduler=self.name,
            operations=(),
            tensors=pair.tensors(),
        )
        operations = [node.operation() for node in nodes]
        longest = max(node.cycles for node in nodes)
        tried: set[tuple[int, ...]] = set()
        for horizon in HORIZONS:
            found = tuple(order.run(horizon * longest).order)
            if found in tried:
                continue
            tried.add(found)
            one = made.model_copy(update={"operations": tuple(operations[index] for index in found)})
            yield one.model_copy(update={"predicted": self.predict(one, pair.chip)})


def _in_turn(part: Part, nests: Sequence[Nest], first: str) -> list[Step]:
    """One product after the other; `nests`: of dX and of dW, of a first layer only of dW."""
    if len(nests) == 1:
        return alone(part, "dw", nests[0])
    dx, dw = alone(part, "dx", nests[0]), alone(part, "dw", nests[1])
    return dx + dw if first == "dx" else dw + dx


def schedule(
    layer: TrainingLayer,
    chip: ChipConfig,
    orders: Sequence[Order] = tuple(Order),
    name: str = "gradient",
    predict: Callable[[Schedule, ChipConfig], Prediction] = predict,
    effort: float = 1.0,
    cores: int = 0,
) -> GradientSchedule:
    """The best schedule of a pair among `orders` on up to `cores` cores of a chip, 0: all. `name`: of the scheduler;
    `effort`: share of the budget of each order.

    Of a first layer, which has no dX, all orders are one. Deterministic. Raises DoesNotFit if no tiling of no order
    fits.
    """
    pair = Pair(layer, chip, cores or len(chip.cores))
    search = _Search(pair, name, predict, effort)
    if layer.first:
        orders = (Order.SEQUENTIAL,)
    found = [search.best(order) for order in orders]
    cycles = {one.order: made.predicted.cycles for one, made in found if made.predicted}
    best, made = min(found, key=lambda one: cycles[one[0].order])
    words, spilled = search.words(best)
    return GradientSchedule(
        layer,
        made,
        best.order,
        f"{best} on {len(pair.parts)} cores" if len(pair.parts) > 1 else str(best),
        words * chip.lanes,
        spilled * chip.lanes,
        best.work.array,
        best.work.vector,
        cycles,
    )
