"""Loop nests of layers that a search has found before, so that a second run of a layer need not search again."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Schedule
from ...mapping.emit.emission import emit, to_schedule
from ...mapping.tiling.tiles import Candidate
from ...store.findings import SearchCache
from ...workload.layers import ConvShape
from .scheduler import search, timeline

_CANDIDATE = TypeAdapter(Candidate)


def schedule(shape: ConvShape, chip: ChipConfig, scale: int, effort: float, folder: Path | None) -> Schedule:
    """What `scheduler.schedule` makes with the timeline model, operation by operation. What the search chose is kept
    below `folder` (None: nowhere), by layer, chip, effort and the code that decides it. Raises DoesNotFit."""
    memory = SearchCache(folder, chip, "loop_order-layer", __name__.partition(".")[2])
    question = shape, effort
    candidate = memory.get(question, _CANDIDATE)
    if candidate is None:
        leader = search(shape, chip, scale, effort=effort).ranked[0]
        memory.put(question, _CANDIDATE, leader.candidate)
        if leader.schedule is not None:
            return leader.schedule
        candidate = leader.candidate
    result = to_schedule(emit(shape, chip, candidate, scale), shape, chip)
    return result.model_copy(update={"predicted": timeline(result, chip)})
