"""The scheduler of layers in a row in training, and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from meshloom.hw.spec.config import ChipConfig

from ...schedulers.interface import Context, Maker, Options, Scheduler

if TYPE_CHECKING:
    from ...schedulers.training.schedules import ChainSchedule
    from ...workload.training_chain import Chain


class ChainOptions(Options):
    """Options of `chain`."""

    keep: bool = Field(
        default=True, description="dX goes from core to core as dY of the layer before; false: through DRAM"
    )
    defer: bool = Field(
        default=True, description="dW gives way to dX, on whichever core has the least to do, where that is faster"
    )
    update: Literal["none", "apart", "fused"] = Field(
        default="none",
        description="what becomes of dW: none: it is the result; W' = sat8(W - dW) instead, in a pass of its own "
        "(apart) or as soon as a tile of dW is complete (fused)",
    )
    cores: int = Field(default=0, ge=0, le=256, description="cores that share the layers; 0: all, 1: the first alone")


def _chain(chain: Chain, chip: ChipConfig, options: ChainOptions, context: Context) -> ChainSchedule:
    from .chain_plan import ChainPlan, Update
    from .chain_search import schedule

    cores = min(options.cores or len(chip.cores), len(chip.cores))
    plan = ChainPlan(0, 0, 0, cores, options.keep, options.defer, Update(options.update))
    return schedule(chain, chip, plan, options.named("chain"), context.folder)


CHAIN = Scheduler(
    "chain",
    "gradients of layers in a row in training as one program: dX stays in the cores, dW gives way, updates are fused",
    chains=Maker(_chain, ChainOptions),
)
