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
    from ...workload.graph import Graph
    from ...workload.layers import ConvShape
    from ..network.scheduler import NetworkSchedule

#: The name of this scheduler.
NAME = "dtt"


class SourceOptions(Options):
    """From where MOVEs take their words."""

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

    def weight(self) -> int | None:
        """`hop_weight`, if sources are to be chosen."""
        return self.hop_weight if self.sources == "nearest" else None


class LayerOptions(SourceOptions):
    """Options of `dtt` for layers."""

    base: str = Field(default="loop_order", description="the scheduler whose operations are timed")
    nests: int = Field(
        default=1,
        ge=1,
        le=100,
        description="kinds of loop nests of loop_order that are timed, for the fastest (1: what it takes by itself)",
    )


class AheadNetworkOptions(SourceOptions, NetworkOptions):
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
        return _sourced(made, chip, options)
    if options.base != LOOP_ORDER.name:
        raise ScheduleError(
            f"{NAME}:nests={options.nests} compares loop nests of {LOOP_ORDER.name}, not of {options.base}; leave one "
            "of the two options out"
        )
    from .nests import best_nest

    made = timed(best_nest(shape, chip, scale, options.nests, options.weight(), context.folder))
    return _executed(made, options)


def _network(graph: Graph, chip: ChipConfig, options: AheadNetworkOptions, context: Context) -> NetworkSchedule:
    plain = NetworkOptions.model_validate(options.model_dump(include=set(NetworkOptions.model_fields)))
    made = network(graph, chip, plain, context)
    return replace(made, schedule=_sourced(timed(made.schedule), chip, options))


def _sourced(schedule: Schedule, chip: ChipConfig, options: SourceOptions) -> Schedule:
    """The schedule with the sources that the options ask for."""
    if (weight := options.weight()) is not None:
        from ...lowering.timed.sources import choose

        schedule = choose(schedule, chip, weight).schedule
    return _executed(schedule, options)


def _executed(schedule: Schedule, options: SourceOptions) -> Schedule:
    """The schedule, started by what the options say."""
    return schedule if options.pushed else schedule.model_copy(update={"execution": Execution.TRIGGERED})


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
