"""The best schedule of a layer's two gradients, of all orders and all ways to share it among cores.

What a search finds for one order and one way is kept, so that a second run only makes its operations again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Prediction, Schedule
from ...lowering.predict import predict
from ...mapping.tiling.problem import DoesNotFit
from ...schedulers.training.orders import Order
from ...schedulers.training.pair import GradientPair, Split
from ...schedulers.training.schedules import GradientSchedule
from ...store.findings import SearchCache
from ...workload.training import TrainingLayer
from .search import LEADERS, BestTiling, Search, Slower


@dataclass(frozen=True)
class Refused:
    """Why an order has no schedule."""

    why: str


_RESULT = TypeAdapter[BestTiling | Refused](BestTiling | Refused)
_SLOWER = TypeAdapter(Slower)


class Searches:
    """Searches of layers on one chip for a scheduler of some `name`; kept in `folder` (None: in this process only).
    `effort`: share of the budget of each order; `leaders`: its candidates that the model plays; `predict`: the
    model."""

    def __init__(
        self,
        chip: ChipConfig,
        folder: Path | None = None,
        name: str = "gradient",
        effort: float = 1.0,
        leaders: int = LEADERS,
        predict: Callable[[Schedule, ChipConfig], Prediction] = predict,
    ) -> None:
        self.chip, self._name, self._effort, self._leaders, self._predict = chip, name, effort, leaders, predict
        self._memory = SearchCache(folder, chip, "gradients", __name__.partition(".")[2])
        self._open: tuple[GradientPair, Search] | None = None  # the last one, which other orders share

    def stored(
        self, layer: TrainingLayer, order: Order, cores: int, split: Split, enough: float = inf
    ) -> BestTiling | Refused | Slower | None:
        """What `find` has found; None if it was not asked."""
        question = self._question(layer, order, cores, split)
        result = self._memory.get(question, _RESULT)
        if result is not None:
            return result
        slower = self._memory.get((*question, "slower"), _SLOWER)
        return slower if slower is not None and slower.cycles >= enough else None

    def find(
        self, layer: TrainingLayer, order: Order, cores: int = 1, split: Split = Split.K, enough: float = inf
    ) -> BestTiling | Refused | Slower:
        """The best schedule of an order on `cores` cores that share a layer by `split`, or why there is none, or that
        it takes `enough` cycles or more (never, unless that is given). Raises DoesNotFit if the layer fits in no
        order."""
        result = self.stored(layer, order, cores, split, enough)
        if result is not None:
            return result
        question = self._question(layer, order, cores, split)
        try:
            answer: BestTiling | Refused | Slower = self.search(layer, cores, split).best(order, enough)
        except DoesNotFit as error:
            answer = Refused(str(error))
        if isinstance(answer, Slower):
            self._memory.put((*question, "slower"), _SLOWER, answer)
        else:
            self._memory.put(question, _RESULT, answer)
        return answer

    def search(self, layer: TrainingLayer, cores: int, split: Split) -> Search:
        """That of a layer. Raises DoesNotFit."""
        pair = self._open[0] if self._open else None
        if pair is None or (pair.layer, len(pair.parts), pair.split) != (layer, cores, split):
            pair = GradientPair(layer, self.chip, cores, split)
            self._open = pair, Search(pair, self._name, self._predict, self._effort, self._leaders)
        assert self._open is not None
        return self._open[1]

    def _question(self, layer: TrainingLayer, order: Order, cores: int, split: Split) -> tuple[object, ...]:
        # nothing else of a layer counts: whatever its name, the operations are the same
        sizes = layer.m, layer.k, layer.n, layer.first
        return *sizes, order.value, cores, split.value if cores > 1 else "", self._effort, self._leaders


def ways(layer: TrainingLayer, chip: ChipConfig, cores: int, splits: Sequence[Split]) -> list[tuple[int, Split]]:
    """The different ways to share a layer among at most `cores` cores: how many do something, and the split. Raises
    DoesNotFit."""
    options = [(len(GradientPair(layer, chip, cores, split).parts), split) for split in splits]
    several = [way for way in options if way[0] > 1]
    return several + [way for way in options if way[0] == 1][:1]


def schedule(
    layer: TrainingLayer,
    chip: ChipConfig,
    orders: Sequence[Order] = tuple(Order),
    name: str = "gradient",
    predict: Callable[[Schedule, ChipConfig], Prediction] = predict,
    effort: float = 1.0,
    leaders: int = LEADERS,
    cores: int = 0,
    splits: Sequence[Split] = tuple(Split),
    folder: Path | None = None,
) -> GradientSchedule:
    """The best schedule of a pair among `orders` on up to `cores` cores of a chip, 0: all, that share it by one of
    `splits`. `name`: of the scheduler; `effort`: share of the budget of each order; `leaders`: its candidates that
    the model plays; `folder`: where what is found is kept.

    Of a first layer, which has no dX, all orders are one. Deterministic. Raises DoesNotFit if no tiling of no order
    fits.
    """
    if layer.first:
        orders = (Order.SEQUENTIAL,)
    searches = Searches(chip, folder, name, effort, leaders, predict)
    candidates: list[tuple[BestTiling, int, Split]] = []
    refused: list[str] = []
    cycles: dict[Order, int] = {}
    for count, split in ways(layer, chip, cores or len(chip.cores), splits):
        for order in orders:
            one = searches.find(layer, order, count, split, cycles.get(order, inf))
            if isinstance(one, Refused):
                refused.append(one.why)
            elif isinstance(one, BestTiling):
                candidates.append((one, count, split))
                cycles[order] = min(one.cycles, cycles.get(order, one.cycles))
    if not candidates:
        raise DoesNotFit(refused[0])
    best, count, split = min(candidates, key=lambda each: each[0].cycles)
    result = searches.search(layer, count, split).schedule(best)
    result = result.model_copy(update={"predicted": predict(result, chip)})
    shared = f" on {count} cores" if split is Split.K else f" on {count} cores by {split}"
    return GradientSchedule(
        layer,
        result,
        best.candidate.order,
        f"{best.candidate}{shared if count > 1 else ''}",
        best.words * chip.lanes,
        best.spilled * chip.lanes,
        best.array,
        best.vector,
        cycles,
    )
