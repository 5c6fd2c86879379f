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

from meshloom.hw.spec.config import ChipConfig

from ...schedulers.budget import labelled
from ...schedulers.interface import Context, Maker, Options, Scheduler, SearchOptions

if TYPE_CHECKING:
    from ...ir.schedule import Schedule
    from ...schedulers.network.scheduler import NetworkSchedule
    from ...workload.graph import Graph
    from ...workload.layers import ConvShape
    from ...workload.stages import Stages
    from .judging import Objective
    from .partition import Partition
    from .search import Method

#: How much it counts that results come early, and which part of moving words is not hidden behind computing
#: (`shares`): of these the best is taken, by the timeline model, if nothing else is asked for. Many cores on few
#: channels are better off with less to move. Layers whose weights are much of what they read are sometimes better off
#: as `atomic` has them, which is tried, too.
SHARINGS = ((0.5, 0.3), (0.5, 0.6), (1.0, 0.3))


class KlotskiOptions(SearchOptions):
    """Options of `klotski`. A step of its budget is a micro-op that is scheduled (see `trying`)."""

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
    from .shares import BARED, shared
    from .trying import Try, Trying, outcomes
    from .work import stages_of, works

    stages = stages_of(graph, chip)
    name = _named(options)

    def made(parts: Sequence[Partition]) -> NetworkSchedule:
        cut = micro_ops(stages, chip, parts)
        if options.plan == "solved":
            delays = Delays.wormhole(hops_between(chip), 1)
            plan = orchestrate(cut, chip, memory=orchestration_cache(context.folder, chip), delays=delays)
        else:
            plan = (settled if options.plan == "settled" else placed)(cut, chip)
        rounds = by_turns(cut, plan) if options.rounds else None
        return program(cut, plan, chip, name, rounds, options.copies and not single)

    def asked(*what: object) -> object:
        return *what, options.partition, options.plan, options.rounds, options.copies, single

    tries: list[Try] = []
    if options.partition == "bayes":

        def searched() -> NetworkSchedule:
            return made(_searched(stages, chip, Method.BAYES, Objective.ENTROPY, options.evaluations, context))

        tries.append(Try("micro-ops", "micro-ops of the search", asked(options.evaluations), searched))
    else:
        all_works = works(stages, chip)
        for fineness, bared in SHARINGS if options.fineness is None else ((options.fineness, BARED),):

            def sharing(fineness: float = fineness, bared: float = bared) -> NetworkSchedule:
                return made(shared(all_works, chip, fineness, bared))

            what = f"micro-ops of fineness {fineness:g} with {bared:g} of all words bare"
            tries.append(Try("micro-ops", what, asked(fineness, bared), sharing))
        if options.fineness is None and options.plan == "settled" and not options.rounds and not single:
            annealed = AtomicOptions()
            tries.append(
                Try("atomic", "micro-ops as atomic dataflow has them", asked("atomic", annealed.evaluations),
                    lambda: _annealed(graph, chip, name, annealed, context))
            )  # fmt: skip
    if options.fallback == "loop_order" and not options.rounds and not single:
        tries.append(Try("loop_order", "loop nests", "loop_order", lambda: _loops(graph, chip, name, context)))
    search = Trying(graph, chip, options.budget, outcomes(context.folder, chip), context.on_layer)
    return search.quickest(tries)


def _named(options: KlotskiOptions) -> str:
    """What the scheduler is called: its budget decides what it makes only if it is one of seconds."""
    return labelled(options.model_copy(update={"budget": None}).named("klotski"), options.budget)


def _loops(graph: Graph, chip: ChipConfig, name: str, context: Context) -> NetworkSchedule:
    """Loop nests of whole layers, under the name of what takes them. Raises DoesNotFit."""
    from ...schedulers.loop_order.entry import NetworkOptions, network

    other = network(graph, chip, NetworkOptions(), context)
    return replace(other, schedule=other.schedule.model_copy(update={"scheduler": name}))


def _annealed(graph: Graph, chip: ChipConfig, name: str, options: AtomicOptions, context: Context) -> NetworkSchedule:
    """What `atomic` makes, under the name of what takes it. Raises DoesNotFit."""
    other = _atomic(graph, chip, options, context)
    figures = other.micro_ops and replace(other.micro_ops, taken="atomic")
    return replace(other, schedule=other.schedule.model_copy(update={"scheduler": name}), micro_ops=figures)


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
