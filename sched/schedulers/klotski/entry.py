"""`klotski` and its baselines to the registry: their options, and the functions behind them.

`atomic` is the second baseline of C. Bai et al., "Klotski", ICCAD 2023, section IV-B: S. Zheng et al., "Atomic Dataflow
based Graph-Level Workload Orchestration for Scalable DNN Accelerators", HPCA 2022, without its rounds. Simulated
annealing cuts the network; of all micro-ops whose operands are there the one with the longest chain behind it goes to
the core on which it ends first, reuse of what cores have counted in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from meshloom.hw.config import ChipConfig

from ..interface import Context, Maker, Options, Scheduler

if TYPE_CHECKING:
    from ...ir.schedule import Schedule
    from ...mapping.stages import Stages
    from ...workload.graph import Graph
    from ...workload.layers import ConvShape
    from ..network.scheduler import NetworkSchedule
    from .judging import Objective
    from .partition import Partition
    from .search import Method

#: How much it counts that results come early: of these the best is taken, by the timeline model, if nothing else is
#: asked for.
FINENESS = (0.5, 1.0)


class KlotskiOptions(Options):
    """Options of `klotski`."""

    partition: Literal["shared", "bayes"] = Field(
        default="shared",
        description="layers shared out evenly, or the paper's Bayesian optimisation of entropy over makespan",
    )
    plan: Literal["settled", "listed", "solved"] = Field(
        default="settled",
        description="runs of neighbours to each core, the lists of `atomic`, or the paper's two stages: solvers for "
        "starts, then for cores",
    )
    fineness: float | None = Field(
        default=None, gt=0, lt=100, description="how much it counts that results come early; the best of a few if none"
    )
    evaluations: int = Field(default=50, ge=1, le=100_000, description="partitions that Bayesian optimisation tries")
    rounds: bool = Field(
        default=False, description="one micro-op a core at a time, with a barrier between rounds, for comparison"
    )
    copies: bool = Field(default=True, description="weights in each DRAM tile that is near to a core which needs them")
    fallback: Literal["loop_order", "none"] = Field(
        default="loop_order",
        description="what is taken where the timeline model says that it is quicker (with rounds, nothing)",
    )


class AtomicOptions(Options):
    """Options of `atomic`."""

    evaluations: int = Field(default=50, ge=1, le=100_000, description="partitions that simulated annealing tries")
    rounds: bool = Field(default=False, description="one micro-op a core at a time, with a barrier between rounds")


class ZigzagOptions(Options):
    """Options of `zigzag`."""

    whole: bool = Field(default=False, description="each layer on one core, as in the paper's tables")
    barrier: bool = Field(default=True, description="a layer begins when the one before has ended on all cores")


def _klotski(
    graph: Graph, chip: ChipConfig, options: KlotskiOptions, context: Context, single: bool = False
) -> NetworkSchedule:
    """`single`: a layer by itself, whose constants lie once, as it names them, and for which nothing else is taken."""
    from .judging import Objective
    from .listing import Delays
    from .mapping import hops_between
    from .orchestrate import orchestrate, orchestration_cache
    from .partition import micro_ops
    from .placing import placed, settled
    from .program import program
    from .rounds import by_turns
    from .search import Method
    from .shares import shared
    from .work import stages_of, works

    stages = stages_of(graph, chip)
    copies = options.copies and not single
    tries: list[tuple[str, Sequence[Partition]]]
    if options.partition == "bayes":
        found = _searched(stages, chip, Method.BAYES, Objective.ENTROPY, options.evaluations, context)
        tries = [("micro-ops of the search", found)]
    else:
        all_works = works(stages, chip)
        wanted = FINENESS if options.fineness is None else (options.fineness,)
        tries = [(f"micro-ops of fineness {one:g}", shared(all_works, chip, one)) for one in wanted]
    made: list[NetworkSchedule] = []
    for index, (what, parts) in enumerate(tries):
        if context.on_layer:
            context.on_layer(what, index, len(tries))
        cut = micro_ops(stages, chip, parts)
        if options.plan == "solved":
            delays = Delays.wormhole(hops_between(chip), 1)
            plan = orchestrate(cut, chip, memory=orchestration_cache(context.folder, chip), delays=delays)
        else:
            plan = (settled if options.plan == "settled" else placed)(cut, chip)
        rounds = by_turns(cut, plan) if options.rounds else None
        made.append(program(cut, plan, chip, options.named("klotski"), rounds, copies))
    if options.fallback == "loop_order" and not options.rounds and not single:
        made += _others(graph, chip, options, context, made[0])
    return made[0] if len(made) == 1 else _quickest(made, chip)


def _quickest(made: Sequence[NetworkSchedule], chip: ChipConfig) -> NetworkSchedule:
    """The schedule that ends first, by the timeline model; of equal ones the first."""
    from ...lowering.semaphores.lower import lower
    from ...model.timeline import play

    return min(made, key=lambda one: play(lower(one.schedule, chip), chip).cycles)


def _others(
    graph: Graph, chip: ChipConfig, options: KlotskiOptions, context: Context, instead: NetworkSchedule
) -> list[NetworkSchedule]:
    """What can be taken `instead` of micro-ops: loop nests of whole layers, if they fit."""
    from ...mapping.problem import DoesNotFit
    from ..loop_order.entry import NetworkOptions, network

    try:
        other = network(graph, chip, NetworkOptions(), context)
    except DoesNotFit:
        return []
    assert instead.micro_ops is not None
    named = other.schedule.model_copy(update={"scheduler": options.named("klotski")})
    return [replace(other, schedule=named, micro_ops=replace(instead.micro_ops, taken="loop_order"))]


def _searched(
    stages: Stages, chip: ChipConfig, method: Method, objective: Objective, evaluations: int, context: Context
) -> Sequence[Partition]:
    """The best partition that a search finds."""
    from .judging import Judge, Trial, trial_cache
    from .search import search

    def heard(number: int, budget: int, _: Trial) -> None:
        if context.on_layer:
            context.on_layer("partitions", number - 1, budget)

    judge = Judge(stages, chip, trial_cache(context.folder, chip))
    return search(judge, method, objective=objective, budget=evaluations, progress=heard).best.partitions(chip)


def _atomic(
    graph: Graph, chip: ChipConfig, options: AtomicOptions, context: Context, single: bool = False
) -> NetworkSchedule:
    from .judging import Objective
    from .partition import micro_ops
    from .placing import placed
    from .program import program
    from .rounds import by_turns
    from .search import Method
    from .work import stages_of

    stages = stages_of(graph, chip)
    parts = _searched(stages, chip, Method.ANNEALING, Objective.MAKESPAN, options.evaluations, context)
    cut = micro_ops(stages, chip, parts)
    plan = placed(cut, chip)
    rounds = by_turns(cut, plan) if options.rounds else None
    return program(cut, plan, chip, options.named("atomic"), rounds, copies=not single)


def _zigzag(
    graph: Graph, chip: ChipConfig, options: ZigzagOptions, _: Context, single: bool = False
) -> NetworkSchedule:
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
        copies=not single,
    )


def _layer(networks: Callable[..., NetworkSchedule]) -> Callable[..., Schedule]:
    """How a scheduler of networks schedules a layer."""

    def make(shape: ConvShape, chip: ChipConfig, scale: int, options: Options, context: Context) -> Schedule:
        from .layer import schedule_layer

        return schedule_layer(shape, chip, scale, lambda graph, on: networks(graph, on, options, context, single=True))

    return make


KLOTSKI = Scheduler(
    "klotski",
    "micro-ops that fire when their operands have come, pushed from core to core",
    Maker(_layer(_klotski), KlotskiOptions),
    Maker(_klotski, KlotskiOptions),
)
ZIGZAG = Scheduler(
    "zigzag",
    "one layer at a time, cores in zig-zag order: the first baseline of klotski's paper",
    Maker(_layer(_zigzag), ZigzagOptions),
    Maker(_zigzag, ZigzagOptions),
)
ATOMIC = Scheduler(
    "atomic",
    "micro-ops by simulated annealing and lists, without rounds: the second baseline of klotski's paper",
    Maker(_layer(_atomic), AtomicOptions),
    Maker(_atomic, AtomicOptions),
)
