"""What a training step may do across its layers; none of it changes a byte of a result.

A layer's gradients computed by themselves leave units idle wherever dX is on its way to the layer before. Only dX is
on that way: nobody waits for dW but the update. So dW can give way until a unit has nothing else to do, as between the
stages of a pipeline in P. Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024), here between a core's units.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from meshloom.hw.config import ChipConfig
from meshloom.hw.timing import GemmShape, VecShape, gemm_occupancy, vec_occupancy

from ...ir.schedule import Gemm, Move, Operation, Schedule, Span
from ...lowering.predict import predict
from ...mapping.interleave import Interleaver
from ...mapping.nodes import Node, Run
from ...mapping.player import Waits
from ...support.garbage import uncollected

#: Cycles of computing ahead of which operands are fetched, as multiples of the longest operation; the last has no end.
HORIZONS = (2, 4, 16, 1 << 20)
#: What an operation takes between its last word and the first one of who waits for it, in cycles, and a word of a MOVE:
#: they rank operations, no more.
_LATENCY, _PER_WORD = 30, 1.1


class Across(StrEnum):
    """One thing that a step may do across layers."""

    OVERLAP = "overlap"  #: operations start when what they need is there, of whatever layer they are
    KEEP = "keep"  #: what the core has anyway is neither stored nor loaded again: gradients at sums, maps for masks
    DEFER = "defer"  #: so does this, but whoever has the longest way to the end goes first: dW gives way to dX


#: An order of operations in which everything comes behind what it waits for.
_Order = Sequence[int]


@dataclass(frozen=True)
class Reordered:
    """Operations in another order, and where the multipliers now are (`step.Half.multipliers`)."""

    schedule: Schedule
    multipliers: dict[int, str]


def named(some: Collection[Across]) -> str:
    """Their names in one fixed order, with commas; `none` for none."""
    return ",".join(each for each in Across if each in some) or "none"


def ranks_of(some: Collection[Across]) -> tuple[Across, ...]:
    """Those that order operations."""
    return tuple(each for each in (Across.OVERLAP, Across.DEFER) if each in some)


def reordered(
    schedule: Schedule, multipliers: Mapping[int, str], chip: ChipConfig, ranks: Sequence[Across]
) -> Reordered:
    """The fastest order of a list's operations by the timeline model: its own, or one that list scheduling makes of it
    with some horizon, where operations that are ready go by their places in the list (`OVERLAP`) or by the length of
    their way to the end (`DEFER`). All give the same bytes. Deterministic."""
    with uncollected():
        nodes = list(_nodes(schedule.operations, chip))
        made: dict[tuple[int, ...], None] = {tuple(range(len(nodes))): None}
        for rank in ranks:
            listed = _longest_first(Waits(nodes, chip)) if rank is Across.DEFER else range(len(nodes))
            interleaver = Interleaver([nodes[index] for index in listed], chip)
            for horizon in HORIZONS:
                played = interleaver.run(horizon * interleaver.longest)
                made[tuple(listed[index] for index in played.order)] = None
        found = [(_in(schedule, order), order) for order in made]
        best, order = min(found, key=lambda one: predict(one[0], chip).cycles)
    place = {old: new for new, old in enumerate(order)}
    return Reordered(best, {place[index]: name for index, name in multipliers.items()})


def _in(schedule: Schedule, order: _Order) -> Schedule:
    return schedule.model_copy(update={"operations": tuple(schedule.operations[index] for index in order)})


def _longest_first(waits: Waits) -> _Order:
    """The operations by the cycles of the longest chain of operations that wait for each other from each to the end; so
    nothing comes before what it waits for."""
    left = [0.0] * len(waits.nodes)
    for index in range(len(left) - 1, -1, -1):
        node = waits.nodes[index]
        own = _PER_WORD * node.words if node.fields is None else node.cycles
        behind = (left[other] for other in (*waits.on_end[index], *waits.on_read[index]))
        left[index] = _LATENCY + own + max(behind, default=0.0)
    return sorted(range(len(left)), key=lambda index: (-left[index], index))


def _nodes(operations: Iterable[Operation], chip: ChipConfig) -> Iterator[Node]:
    for one in operations:
        if isinstance(one, Move):
            yield Node(one.issuer, [], one.label, _run(one.src), _run(one.dst), one.words)
        elif isinstance(one, Gemm):
            shape = GemmShape(one["pixels"], one["n_blocks"], one["k_blocks"], one["kernel_h"], one["kernel_w"])
            yield Node(one.core, [], one.label, fields=one.fields, cycles=gemm_occupancy(chip, shape))
        else:
            cycles = vec_occupancy(chip, VecShape.of(one.body))
            yield Node(one.core, [], one.label, fields=one.fields, cycles=cycles, vec=True)


def _run(span: Span) -> Run:
    return Run(span.tile, span.address, span.run, span.stride)
