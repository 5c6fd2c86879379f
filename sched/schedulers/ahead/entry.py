"""`dtt` to the registry: another scheduler's operations, timed by Dijkstra through time and pushed by the
controller."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import Field

from meshloom.hw.config import ChipConfig

from ..interface import Context, Maker, Options, Scheduler
from ..loop_order.entry import NetworkOptions, network
from .timed import NAME, timed

if TYPE_CHECKING:
    from ...ir.schedule import Schedule
    from ...workload.graph import Graph
    from ...workload.layers import ConvShape
    from ..network.scheduler import NetworkSchedule

#: Loop nests that are planned for a layer besides the base's.
_PLANS = 4


class LayerOptions(Options):
    """Options of `dtt` for layers."""

    base: str = Field(default="loop_order", description="the scheduler whose operations are timed")
    plans: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="loop nests that are planned besides: the schedule with the shortest plan is taken; by default 4 "
        "on chips with controller_channel, where a plan is made quickly, otherwise none",
    )


def _layer(shape: ConvShape, chip: ChipConfig, scale: int, options: LayerOptions, context: Context) -> Schedule:
    from ...routing.hardware import DttError
    from ..registry import find

    if chip.dtt is None:
        raise DttError(
            f'chip {chip.name} has no controller; draw a "dtt" tile into its floorplan, as in the built-in chip ahead16'
        )
    made = find(options.base, context.folder, context.on_progress)(shape, chip, scale)
    plans = _PLANS * chip.controller_channel if options.plans is None else options.plans
    if plans:
        from .search import shortest

        made = shortest(made, shape, chip, scale, plans, context.folder)
    return timed(made)


def _network(graph: Graph, chip: ChipConfig, options: NetworkOptions, context: Context) -> NetworkSchedule:
    made = network(graph, chip, options, context)
    return replace(made, schedule=timed(made.schedule))


DTT = Scheduler(
    NAME,
    "another scheduler's operations timed ahead, on chips with a controller",
    Maker(_layer, LayerOptions),
    Maker(_network, NetworkOptions),
)
