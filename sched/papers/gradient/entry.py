"""`gradient` to the registry: its options, and the function behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from meshloom.hw.spec.config import ChipConfig

from ...schedulers.interface import Context, Maker, Options, Scheduler

if TYPE_CHECKING:
    from ...schedulers.training.schedules import GradientSchedule
    from ...workload.training import TrainingLayer


class GradientOptions(Options):
    """Options of `gradient`."""

    order: Literal["best", "algorithm1", "sequential", "plain", "interleaved", "dx_major", "dw_major", "k_major"] = (
        Field(
            default="best",
            description="how dX and dW share the time; best: the fastest by the timeline model, algorithm1: what the "
            "paper selects by the layer's sizes",
        )
    )
    cores: int = Field(default=0, ge=0, le=256, description="cores that share a layer; 0: all, 1: the first alone")
    split: Literal["best", "m", "n", "k"] = Field(
        default="best",
        description="what they share: rows of X and dY (m), columns of dY (n), columns of X (k); best: the fastest",
    )
    effort: float = Field(default=1.0, gt=0, lt=1e6, description="steps played, as a multiple of the usual number")
    leaders: int = Field(
        default=3, ge=1, le=1000, description="tilings and loops of each order that the timeline model decides between"
    )


def _gradients(layer: TrainingLayer, chip: ChipConfig, options: GradientOptions, context: Context) -> GradientSchedule:
    from ...schedulers.training.orders import Order, selected
    from ...schedulers.training.pair import Split
    from .scheduler import schedule

    if options.order == "best":
        orders = tuple(Order)
    else:
        chosen = options.order
        orders = (selected(layer.m, layer.k, layer.n) if chosen == "algorithm1" else Order(chosen),)
    return schedule(
        layer,
        chip,
        orders,
        options.named("gradient"),
        effort=options.effort,
        leaders=options.leaders,
        cores=options.cores,
        splits=tuple(Split) if options.split == "best" else (Split(options.split),),
        folder=context.folder,
    )


GRADIENT = Scheduler(
    "gradient",
    "both gradients of a layer in training, interleaved or not, whichever order is fastest",
    gradients=Maker(_gradients, GradientOptions),
)
