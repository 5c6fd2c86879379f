"""`flexer`, `paper_static` and `hybrid` to the registry: their options, and the functions behind them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from meshloom.hw.spec.config import ChipConfig

from ...schedulers.interface import Context, Maker, Scheduler, SearchOptions

if TYPE_CHECKING:
    from ...ir.schedule import Schedule
    from ...schedulers.network.scheduler import NetworkSchedule
    from ...workload.graph import Graph
    from ...workload.layers import ConvShape
    from .policy import Kind, Policy


class PolicyOptions(SearchOptions):
    """How schedules are ranked: the exponents of "Flexer"'s metric; and what is assumed of the cores."""

    cycles: float = Field(default=1.0, ge=0, le=100, description="exponent of the cycles in the metric")
    words: float = Field(default=1.0, ge=0, le=100, description="exponent of the words from and to DRAM")
    private: bool = Field(default=True, description="cores keep tiles from one operation to the next")

    def policy(self, kind: Kind) -> Policy:
        """As the search takes it."""
        from .policy import Policy

        return Policy(kind, by_cycles=self.cycles, by_words=self.words, private=self.private)


class ListOptions(PolicyOptions):
    """And what list scheduling may do: the choices of "Flexer", Table 2, and ours."""

    priority: Literal["benefit", "min_transfer", "min_spill"] = Field(
        default="benefit", description="which set goes first"
    )
    memory: Literal["fragmentation", "first_fit", "small"] = Field(
        default="fragmentation", description="which words a tile gets"
    )
    pruning: Literal["every", "pruned", "levels", "beam"] = Field(
        default="levels", description="which sets are looked at"
    )
    home: bool = Field(default=False, description="partial sums stay in the core that makes them")
    again: bool = Field(
        default=False, description="what list scheduling found is played once more, with its future known"
    )
    lookahead: int = Field(
        default=0, ge=0, le=64, description="partial schedules that are kept side by side (0: list scheduling alone)"
    )

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.home and not self.private:
            raise ValueError("home=yes keeps partial sums in cores, which keep nothing with private=no: leave one out")
        return self

    def policy(self, kind: Kind) -> Policy:
        """As the search takes it."""
        from .policy import MEMORIES, PRIORITIES, PRUNINGS

        return replace(
            super().policy(kind),
            priority=PRIORITIES.index(self.priority),
            memory=MEMORIES.index(self.memory),
            pruning=PRUNINGS.index(self.pruning),
            home=self.home,
            again=self.again,
            lookahead=self.lookahead,
        )


class LayerOptions(PolicyOptions):
    """And what holds for layers alone: a network's operations are interleaved, so its layers always overlap."""

    overlap: bool = Field(
        default=True, description="tiles travel while cores compute (no: they come, then cores compute)"
    )

    def policy(self, kind: Kind) -> Policy:
        """As the search takes it."""
        return replace(super().policy(kind), overlap=self.overlap)


class ListLayerOptions(ListOptions, LayerOptions):
    """Of list scheduling, for layers."""


class StaticOptions(PolicyOptions):
    """And what the baseline may do."""

    unroll: Literal["any", "m", "n"] = Field(
        default="any", description="which loop goes over the cores: pixels (m), output channels (n)"
    )
    regions: Literal["best", "equal"] = Field(
        default="best", description="shares of the scratchpad for inputs, weights and sums"
    )

    def policy(self, kind: Kind) -> Policy:
        """As the search takes it."""
        return replace(super().policy(kind), unroll=self.unroll, regions=self.regions)


class StaticLayerOptions(StaticOptions, LayerOptions):
    """Of the baseline, for layers."""


def _layers(kind: Kind, name: str) -> Maker:
    def make(shape: ConvShape, chip: ChipConfig, scale: int, options: PolicyOptions, context: Context) -> Schedule:
        from .layer import LayerSearch

        layer = LayerSearch(shape, chip, scale, context.folder, options.budget, context.on_progress)
        return layer.best(options.policy(kind), name).schedule

    return Maker(make, StaticLayerOptions if kind == "static" else ListLayerOptions)


def _networks(kind: Kind, name: str) -> Maker:
    def make(graph: Graph, chip: ChipConfig, options: PolicyOptions, context: Context) -> NetworkSchedule:
        from .network import layerwise

        return layerwise(graph, chip, options.policy(kind), name, options.budget, context)

    return Maker(make, StaticOptions if kind == "static" else ListOptions)


def _hybrid(shape: ConvShape, chip: ChipConfig, scale: int, options: SearchOptions, context: Context) -> Schedule:
    from .scheduler import hybrid

    return hybrid(shape, chip, scale, context.folder, options.budget, context.on_progress)


def _hybrid_network(graph: Graph, chip: ChipConfig, options: SearchOptions, context: Context) -> NetworkSchedule:
    from .network import hybrid

    return hybrid(graph, chip, context.on_layer, context.folder, options.budget, context.on_progress)


FLEXER = Scheduler(
    "flexer",
    "out-of-order list scheduling with the scratchpad as a cache of tiles",
    _layers("flexer", "flexer"),
    _networks("flexer", "flexer"),
    by_channel=True,
)
PAPER_STATIC = Scheduler(
    "paper_static",
    "the best loop nest with fixed regions of the scratchpad: the baseline of flexer's paper",
    _layers("static", "paper_static"),
    _networks("static", "paper_static"),
    by_channel=True,
)
HYBRID = Scheduler(
    "hybrid",
    "the fastest of the static orders and the out-of-order ones, by the timeline model",
    Maker(_hybrid, SearchOptions),
    Maker(_hybrid_network, SearchOptions),
    by_channel=True,
)
