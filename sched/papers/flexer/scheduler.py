"""`hybrid` for layers: the best of what the other schedulers find."""

from __future__ import annotations

from pathlib import Path

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Schedule
from ...mapping.tiling.problem import DoesNotFit
from ...schedulers.budget import Budget, labelled
from ...workload.layers import ConvShape
from .layer import LayerSchedule, LayerSearch
from .policy import FASTEST, OURS, PAPER, PAPER_STATIC
from .search import OnProgress


def candidates(layer: LayerSearch) -> dict[str, LayerSchedule]:
    """What `hybrid` chooses from, by name; what does not fit is left out. Raises DoesNotFit if nothing does."""
    schedules: dict[str, LayerSchedule] = {}
    error: DoesNotFit | None = None
    attempts = {
        "loop_order": layer.loop_order,
        "paper_static": lambda: layer.best(PAPER_STATIC, "hybrid"),
        "flexer": lambda: layer.best(PAPER, "hybrid"),
        "nest": lambda: layer.best(OURS, "hybrid", FASTEST),
    }
    for name, attempt in attempts.items():
        try:
            schedules[name] = attempt()
        except DoesNotFit as short:
            error = error or short
    if not schedules and error is not None:
        raise error
    return schedules


def hybrid(
    shape: ConvShape,
    chip: ChipConfig,
    scale: int = 1 << 15,
    folder: Path | None = None,
    budget: Budget | None = None,
    on_progress: OnProgress | None = None,
) -> Schedule:
    """The fastest of the static orders, the paper's schedule and ours, by the timeline model. Raises DoesNotFit."""
    layer = LayerSearch(shape, chip, scale, folder, budget, on_progress)
    best = min(candidates(layer).values(), key=lambda schedule: schedule.cycles)
    return best.schedule.model_copy(update={"scheduler": labelled("hybrid", budget)})
