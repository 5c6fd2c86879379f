"""`gradient` to the registry: its options, and the function behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from meshloom.hw.config import ChipConfig

from ..interface import Context, Maker, Options, Scheduler

if TYPE_CHECKING:
    from ...workload.training import TrainingLayer
    from .scheduler import GradientSchedule


class GradientOptions(Options):
    """Options of `gradient`."""

    order: Literal["best", "algorithm1", "sequential", "plain", "interleaved", "dx_major", "dw_major", "k_major"] = (
        Field(
            default="best",
            description="how dX and dW share the time; best: the fastest by the timeline model, algorithm1: what the "
            "paper selects by the layer's sizes",
        )
    )
    cores: int = Field(
        default=0, ge=0, le=256, description="cores that share a layer (its k is split); 0: all, 1: the first alone"
    )
    effort: float = Field(default=1.0, gt=0, lt=1e6, description="steps played, as a multiple of the usual number")


def _gradients(layer: TrainingLayer, chip: ChipConfig, options: GradientOptions, _: Context) -> GradientSchedule:
    from .orders import Order, selected
    from .scheduler import schedule

    if options.order == "best":
        orders = tuple(Order)
    else:
        chosen = options.order
        orders = (selected(layer.m, layer.k, layer.n) if chosen == "algorithm1" else Order(chosen),)
    return schedule(layer, chip, orders, options.named("gradient"), effort=options.effort, cores=options.cores)


GRADIENT = Scheduler(
    "gradient",
    "both gradients of a layer in training, interleaved or not, whichever order is fastest",
    gradients=Maker(_gradients, GradientOptions),
)
