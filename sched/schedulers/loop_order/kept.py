"""Loop nests of layers that a search has found before, so that a second run of a layer need not search again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Schedule
from ...mapping.emit.emission import emit, to_schedule
from ...mapping.tiling.tiles import Candidate
from ...store.findings import SearchCache
from ...workload.layers import ConvShape
from .scheduler import search, timeline

if TYPE_CHECKING:
    from ...lowering.predict import Lowered

_CANDIDATE = TypeAdapter(Candidate)


class _Shortest:
    """Of the programs that the model has played, the first of those that take the fewest cycles."""

    def __init__(self) -> None:
        self.done: Lowered | None = None

    def see(self, done: Lowered) -> None:
        if self.done is None or done.timeline.cycles < self.done.timeline.cycles:
            self.done = done


def schedule(
    shape: ConvShape,
    chip: ChipConfig,
    scale: int,
    effort: float,
    folder: Path | None,
    on_lowered: Callable[[Lowered], None] | None = None,
) -> Schedule:
    """What `scheduler.schedule` makes with the timeline model, operation by operation. What the search chose is kept
    below `folder` (None: nowhere), by layer, chip, effort and the code that decides it. `on_lowered`: see `Context`.
    Raises DoesNotFit."""
    memory = SearchCache(folder, chip, "loop_order-layer", __name__.partition(".")[2])
    shortest = _Shortest()
    predict = partial(timeline, on_lowered=shortest.see)
    question = shape, effort
    candidate = memory.get(question, _CANDIDATE)
    result: Schedule | None = None
    if candidate is None:
        leader = search(shape, chip, scale, predict, effort).ranked[0]
        memory.put(question, _CANDIDATE, leader.candidate)
        candidate, result = leader.candidate, leader.schedule
    if result is None:
        result = to_schedule(emit(shape, chip, candidate, scale), shape, chip)
        result = result.model_copy(update={"predicted": predict(result, chip)})
    if on_lowered is not None and shortest.done is not None and shortest.done.is_of(result):
        on_lowered(shortest.done)
    return result
