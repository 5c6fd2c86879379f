"""`dtt` to the registry: another scheduler's operations, timed by Dijkstra through time and pushed by the
controller."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from meshloom.hw.config import ChipConfig

from ...ir.schedule import Execution, Schedule, ScheduleError
from ..interface import Context, Maker, Options, Scheduler
from ..loop_order.entry import LOOP_ORDER, NetworkOptions, network

if TYPE_CHECKING:
    from ...lowering.timed.sources import Chosen
    from ...workload.graph import Graph
    from ...workload.layers import ConvShape
    from ..network.scheduler import NetworkSchedule

#: The name of this scheduler.
NAME = "dtt"


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

    def laid(self, schedule: Schedule, chip: ChipConfig) -> Chosen:
        """The schedule with its cores and sources, and how long it takes."""
        from ...lowering.timed.sources import choose
        from .placing import placed

        nearest = self.sources == "nearest"
        if self.placing == "first_best_fit":
            schedule = placed(schedule, chip, nearest)
        return choose(schedule, chip, self.hop_weight if nearest else None)

    def applied(self, schedule: Schedule, chip: ChipConfig) -> Schedule:
        """The schedule as the options want it, timed or not."""
        if (self.sources, self.placing) != ("given", "given"):
            schedule = self.laid(schedule, chip).schedule
        return schedule if self.pushed else schedule.model_copy(update={"execution": Execution.TRIGGERED})


class LayerOptions(TransferOptions):
    """Options of `dtt` for layers."""

    base: str = Field(default="loop_order", description="the scheduler whose operations are timed")
    nests: int = Field(
        default=1,
        ge=1,
        le=100,
        description="kinds of loop nests of loop_order that are timed, for the fastest (1: what it takes by itself)",
    )


class AheadNetworkOptions(TransferOptions, NetworkOptions):
    """Options of `dtt` for networks."""


def _layer(shape: ConvShape, chip: ChipConfig, scale: int, options: LayerOptions, context: Context) -> Schedule:
    from ...routing.hardware import DttError
    from ..registry import find

    if chip.dtt is None:
        raise DttError(
            f'chip {chip.name} has no controller; draw a "dtt" tile into its floorplan, as in the built-in chip ahead16'
        )
    if options.nests == 1:
        made = timed(find(options.base, context.folder, context.on_progress)(shape, chip, scale))
        return options.applied(made, chip)
    if options.base != LOOP_ORDER.name:
        raise ScheduleError(
            f"{NAME}:nests={options.nests} compares loop nests of {LOOP_ORDER.name}, not of {options.base}; leave one "
            "of the two options out"
        )
    from .nests import best_nest

    asked = options.placing, options.sources, options.hop_weight
    made = best_nest(shape, chip, scale, options.nests, lambda one: options.laid(one, chip), asked, context.folder)
    return options.model_copy(update={"sources": "given", "placing": "given"}).applied(timed(made), chip)


def _network(graph: Graph, chip: ChipConfig, options: AheadNetworkOptions, context: Context) -> NetworkSchedule:
    plain = NetworkOptions.model_validate(options.model_dump(include=set(NetworkOptions.model_fields)))
    made = network(graph, chip, plain, context)
    return replace(made, schedule=options.applied(timed(made.schedule), chip))


def timed(schedule: Schedule) -> Schedule:
    """The same operations, to be run ahead of time. What was predicted of them no longer holds. Raises ScheduleError
    for a schedule with fences."""
    if schedule.fences:
        raise ScheduleError(
            f"schedule of {schedule.workload} by {schedule.scheduler} has fences, which operations that are timed "
            "ahead cannot keep; let its transfers overlap"
        )
    return schedule.model_copy(update={"scheduler": NAME, "execution": Execution.TIMED, "predicted": None})


DTT = Scheduler(
    NAME,
    "another scheduler's operations timed ahead, on chips with a controller",
    Maker(_layer, LayerOptions),
    Maker(_network, AheadNetworkOptions),
)
