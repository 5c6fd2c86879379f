"""`dtt` to the registry: another scheduler's operations, timed by Dijkstra through time and pushed by the
controller."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from meshloom.hw.spec.config import ChipConfig

from ...schedulers.interface import Context, Maker, Options, Scheduler
from ...schedulers.loop_order.entry import NetworkOptions, network
from .timed import NAME, timed

if TYPE_CHECKING:
    from ...ir.schedule import Schedule
    from ...schedulers.network.scheduler import NetworkSchedule
    from ...workload.graph import Graph
    from ...workload.layers import ConvShape

#: Loop nests that are planned for a layer besides the base's.
_PLANS = 4


class TransferOptions(Options):
    """Which core does what, from where MOVEs take their words, and what starts them."""

    placing: Literal["given", "first_best_fit"] = Field(
        default="given",
        description="cores as the base scheduler numbers them, or each share of the work on the free core to which its "
        "words have the shortest way",
    )

    sources: Literal["given", "nearest"] = Field(
        default="given",
        description="each MOVE into a core reads what the base scheduler says, or the best of all memories that hold "
        "its words: cores (A and B on chips with core.operand_sources), scratchpads",
    )
    hop_weight: int = Field(
        default=16, ge=0, le=100_000, description="cycles that words from a nearer source may come later to save a hop"
    )

    pushed: bool = Field(
        default=True, description="the controller has all of it fire in its cycle (no: cores ask, semaphores decide)"
    )

    def laid(self, schedule: Schedule, chip: ChipConfig) -> Schedule:
        """The schedule with its cores and sources."""
        from ...lowering.timed.sources import nearest
        from .core_placing import placed

        near = self.sources == "nearest"
        if self.placing == "first_best_fit":
            schedule = placed(schedule, chip, near)
        return nearest(schedule, chip, self.hop_weight) if near else schedule

    def started(self, schedule: Schedule) -> Schedule:
        """The schedule with what starts its operations."""
        from ...ir.schedule import Execution

        return schedule if self.pushed else schedule.model_copy(update={"execution": Execution.TRIGGERED})


class LayerOptions(TransferOptions):
    """Options of `dtt` for layers."""

    base: str = Field(default="loop_order", description="the scheduler whose operations are timed")
    plans: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="loop nests that are planned besides: the schedule with the shortest plan is taken; by default 4 "
        "on chips with controller_channel, where a plan is made quickly, otherwise none",
    )


class AheadNetworkOptions(TransferOptions, NetworkOptions):
    """Options of `dtt` for networks."""


def _controlled(chip: ChipConfig) -> None:
    """Raises DttError for a chip without a controller, before anything is searched for it."""
    from ...routing.hardware import DttError

    if chip.dtt is None:
        raise DttError(
            f'chip {chip.name} has no controller; draw a "dtt" tile into its floorplan, as in the built-in chip ahead16'
        )


def _layer(shape: ConvShape, chip: ChipConfig, scale: int, options: LayerOptions, context: Context) -> Schedule:
    from ...schedulers.registry import find

    _controlled(chip)
    base = find(options.base, context.folder, context.on_progress)(shape, chip, scale)
    plans = options.plans
    if plans is None:
        plans = _PLANS if chip.controller_channel and options.pushed else 0
    if not plans:
        return options.started(options.laid(timed(base), chip))
    from .search import Laid, shortest

    def lay(one: Schedule) -> Schedule:
        return options.laid(one, chip)

    laid = Laid(lay, (options.placing, options.sources, options.hop_weight))
    return options.started(shortest(base, shape, chip, scale, plans, laid, context.folder))


def _network(graph: Graph, chip: ChipConfig, options: AheadNetworkOptions, context: Context) -> NetworkSchedule:
    _controlled(chip)
    plain = NetworkOptions.model_validate(options.model_dump(include=set(NetworkOptions.model_fields)))
    base = network(graph, chip, plain, context)
    return replace(base, schedule=options.started(options.laid(timed(base.schedule), chip)))


DTT = Scheduler(
    NAME,
    "another scheduler's operations timed ahead, on chips with a controller",
    Maker(_layer, LayerOptions),
    Maker(_network, AheadNetworkOptions),
)
