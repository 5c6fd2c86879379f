"""The online schedulers to the registry: their options, and the functions behind them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...schedulers.interface import Options
from ...schedulers.online.congestion import Congestion, FairShare, NoCongestion
from ...schedulers.online.interface import OnlineScheduler, Platform
from ...schedulers.online.registry import OnlineMaker

Estimator = Literal["forest", "fair", "none"]
Schemes = Literal["all", "fmap", "output"]
_ESTIMATOR = "congestion: the trained forest, an even division of what is asked for, or none at all"


class SchemeOptions(Options):
    """Options of schedulers whose networks may be held to one parallelisation, as the paper's baselines are."""

    schemes: Schemes = Field(
        default="all",
        description="how layers are cut: each version as is best, all by the feature map, or all by output channels",
    )


class PremaOptions(SchemeOptions):
    """Options of `prema`."""

    period: int = Field(default=175_000, ge=1, description="cycles between choices; 175000 are 0.25 ms at 700 MHz")


class PlanariaOptions(SchemeOptions):
    """Options of `planaria`."""


class VeltairOptions(SchemeOptions):
    """Options of `veltair`."""

    estimator: Estimator = Field(default="forest", description=_ESTIMATOR)


class LayerPuzzleOptions(SchemeOptions):
    """Options of `layer_puzzle`."""

    estimator: Estimator = Field(default="forest", description=_ESTIMATOR)
    order: Literal["behind", "ahead"] = Field(
        default="behind", description="who comes first: whose work is behind the time, or, as printed, ahead"
    )
    skips: Literal["overtaken", "every"] = Field(
        default="overtaken", description="what counts as a skip: one of lower priority is launched, or any decision"
    )
    starvation: int = Field(default=3, ge=1, description="skips in a row after which all others have to wait")
    literal: bool = Field(default=False, description="the loop of Algorithm 2 as it is printed")


def congestion_of(name: Estimator, platform: Platform) -> Congestion:
    """The estimator of that name."""
    if name == "forest":
        from .estimator import trained

        return trained()
    return FairShare() if name == "fair" else NoCongestion()


def prema(platform: Platform, options: PremaOptions) -> OnlineScheduler:
    """See `prema.py`."""
    from .prema import Prema

    return Prema(options.period)


def planaria(platform: Platform, options: PlanariaOptions) -> OnlineScheduler:
    """See `planaria.py`."""
    from .planaria import Planaria

    return Planaria()


def veltair(platform: Platform, options: VeltairOptions) -> OnlineScheduler:
    """See `veltair.py`."""
    from .veltair import Veltair

    return Veltair(congestion_of(options.estimator, platform))


def layer_puzzle(platform: Platform, options: LayerPuzzleOptions) -> OnlineScheduler:
    """See `layer_puzzle.py`."""
    from .layer_puzzle import LayerPuzzle

    congestion = congestion_of(options.estimator, platform)
    return LayerPuzzle(congestion, options.order, options.skips, options.starvation, options.literal)


PREMA = OnlineMaker("prema", "one network at a time, by tokens, preempted at layer ends", prema, PremaOptions)
PLANARIA = OnlineMaker("planaria", "cores divided among networks at each arrival and end", planaria, PlanariaOptions)
VELTAIR = OnlineMaker("veltair", "blocks of layers, cores by deadline and load", veltair, VeltairOptions)
LAYER_PUZZLE = OnlineMaker(
    "layer_puzzle", "layer by layer, the fastest version that fits, by progress", layer_puzzle, LayerPuzzleOptions
)
