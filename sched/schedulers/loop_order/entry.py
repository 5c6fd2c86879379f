"""`loop_order` to the registry: its options, and the functions behind them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from meshloom.hw.spec.config import ChipConfig

from ..interface import Context, Maker, Options, Scheduler

if TYPE_CHECKING:
    from ...ir.schedule import Schedule
    from ...workload.graph import Graph
    from ...workload.layers import ConvShape
    from ..network.scheduler import NetworkSchedule


#: What the words for an effort are for a layer.
EFFORTS = {"quick": 0.1, "default": 1.0, "thorough": 4.0}


def _effort(value: object) -> object:
    return EFFORTS.get(value, value) if isinstance(value, str) else value


class LayerOptions(Options):
    """Options of `loop_order` for layers."""

    effort: Annotated[float, BeforeValidator(_effort)] = Field(
        default=1.0,
        gt=0,
        lt=1e9,
        description="candidates emitted and predicted, as a multiple of the usual number, or quick, default, thorough",
    )


class NetworkOptions(Options):
    """What the layers of a network have in common, as `loop_order` schedules it."""

    between: Literal["dram", "whole", "planes"] = Field(
        default="whole",
        description="what may stay in the scratchpad between layers: nothing, whole tensors (refined also with single "
        "planes), or also single planes",
    )
    fused: bool = Field(default=True, description="fuse additions and max pools with the convolution before")
    tight: bool = Field(default=False, description="also fuse max pools for which rows are computed twice")
    refine: int | None = Field(
        default=None,
        ge=0,
        le=10000,
        description="whole schedules that the timeline model compares; by default 34 where depthwise layers may be "
        "fused or not, else 8, or 4 of large networks",
    )
    effort: Literal["quick", "default", "thorough"] = Field(
        default="default",
        description="without refine: up to 7 schedules (quick), as many as usual, or 8 times as many (thorough)",
    )


def _layer(shape: ConvShape, chip: ChipConfig, scale: int, options: LayerOptions, context: Context) -> Schedule:
    from .kept import schedule

    return schedule(shape, chip, scale, options.effort, context.folder, context.on_lowered)


def network(graph: Graph, chip: ChipConfig, options: NetworkOptions, context: Context) -> NetworkSchedule:
    """The schedule of a network. With other options than usual it names them."""
    from ..network.refine import Effort, refined, with_effort
    from ..network.room import with_need
    from ..network.scheduler import schedule as first_schedule
    from ..network.scheduler import search_cache
    from ..network.sharing import SharingOptions
    from ..network.storage import Between

    sharing = SharingOptions(Between(options.between), options.fused, options.tight)
    memory, effort = search_cache(context.folder, chip), Effort(options.effort)

    def search() -> NetworkSchedule:
        if options.refine is None:
            return with_effort(effort, graph, chip, context.on_layer, memory, sharing)
        return refined(graph, chip, context.on_layer, memory, sharing, options.refine)

    def search_on(larger: ChipConfig) -> NetworkSchedule:
        return first_schedule(graph, larger, sharing=sharing)

    result = with_need(search, search_on, graph, chip)
    name = options.named("loop_order")
    if name == "loop_order":
        return result  # under the name that it gives itself
    return replace(result, schedule=result.schedule.model_copy(update={"scheduler": name}))


LOOP_ORDER = Scheduler(
    "loop_order",
    "the best static loop nest of each layer; networks with tensors in the scratchpad where they fit",
    Maker(_layer, LayerOptions),
    Maker(network, NetworkOptions),
    by_channel=True,
)
