"""`klotski` and its baselines to the registry: their options, and the functions behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from meshloom.hw.config import ChipConfig

from ..interface import Context, Maker, Options, Scheduler

if TYPE_CHECKING:
    from ...ir.schedule import Schedule
    from ...workload.graph import Graph
    from ...workload.layers import ConvShape
    from ..network.scheduler import NetworkSchedule

#: How much it counts that results come early: the best of these is taken if nothing else is asked for.
FINENESS = (0.5, 1.0, 2.0)


class KlotskiOptions(Options):
    """Options of `klotski`."""

    fineness: float | None = Field(
        default=None, gt=0, lt=100, description="how much it counts that results come early; the best of a few if none"
    )
    rounds: bool = Field(
        default=False, description="one micro-op a core at a time, with a barrier between rounds, for comparison"
    )


class ZigzagOptions(Options):
    """Options of `zigzag`."""

    whole: bool = Field(default=False, description="each layer on one core, as in the paper's tables")
    barrier: bool = Field(default=True, description="a layer begins when the one before has ended on all cores")


def _klotski(graph: Graph, chip: ChipConfig, options: KlotskiOptions, context: Context) -> NetworkSchedule:
    from .partition import micro_ops
    from .placing import settled
    from .program import program
    from .rounds import by_turns
    from .shares import shared
    from .work import stages_of, works

    stages = stages_of(graph, chip)
    all_works = works(stages, chip)
    found: list[NetworkSchedule] = []
    tries = FINENESS if options.fineness is None else (options.fineness,)
    for index, fineness in enumerate(tries):
        if context.on_layer:
            context.on_layer(f"micro-ops of fineness {fineness:g}", index, len(tries))
        cut = micro_ops(stages, chip, shared(all_works, chip, fineness))
        plan = settled(cut, chip)
        rounds = by_turns(cut, plan) if options.rounds else None
        found.append(program(cut, plan, chip, options.named("klotski"), rounds))
    return min(found, key=lambda made: made.estimate)


def _zigzag(graph: Graph, chip: ChipConfig, options: ZigzagOptions, _: Context) -> NetworkSchedule:
    from .partition import micro_ops
    from .program import program
    from .rounds import by_stages
    from .shares import shared
    from .work import stages_of, works
    from .zigzag import undivided, zigzag

    stages = stages_of(graph, chip)
    all_works = works(stages, chip)
    parts = undivided(all_works, chip) if options.whole else shared(all_works, chip)
    cut = micro_ops(stages, chip, parts)
    return program(
        cut,
        zigzag(cut, chip, options.whole),
        chip,
        options.named("zigzag"),
        by_stages(cut) if options.barrier else None,
    )


def _klotski_layer(
    shape: ConvShape, chip: ChipConfig, scale: int, options: KlotskiOptions, context: Context
) -> Schedule:
    from .layer import schedule_layer

    return schedule_layer(shape, chip, scale, lambda graph, on: _klotski(graph, on, options, context))


def _zigzag_layer(shape: ConvShape, chip: ChipConfig, scale: int, options: ZigzagOptions, context: Context) -> Schedule:
    from .layer import schedule_layer

    return schedule_layer(shape, chip, scale, lambda graph, on: _zigzag(graph, on, options, context))


KLOTSKI = Scheduler(
    "klotski",
    "micro-ops that fire when their operands have come, pushed from core to core",
    Maker(_klotski_layer, KlotskiOptions),
    Maker(_klotski, KlotskiOptions),
)
ZIGZAG = Scheduler(
    "zigzag",
    "one layer at a time, cores in zig-zag order: the first baseline of klotski's paper",
    Maker(_zigzag_layer, ZigzagOptions),
    Maker(_zigzag, ZigzagOptions),
)
