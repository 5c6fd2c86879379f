"""Orders of a list of operations: list scheduling by rank, the timeline model decides.

Every order keeps what each operation reads, so all have the same meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.timing import GemmShape, VecShape, gemm_occupancy, vec_occupancy

from ...ir.schedule import Gemm, Move, Operation, Prediction, Schedule, Span
from ...model.traffic import dram_word_cycles
from ...support.garbage import uncollected
from ..nodes import Node, Run
from .interleave import Interleaver
from .player import Waits

#: Cycles of computing ahead of which operands are fetched, as multiples of the longest operation; the last has no end.
HORIZONS = (2, 4, 16, 1 << 20)
#: Cycles between an operation's last word and the first one of who waits for it: they rank operations, no more.
_LATENCY = 30


class Rank(StrEnum):
    """Who goes first of operations that are ready."""

    PLACE = "place"  #: the first in the list
    WAY = "way"  #: that with the longest chain of operations that wait for each other from it to the end


def fastest(
    schedule: Schedule, chip: ChipConfig, ranks: Sequence[Rank], predict: Callable[[Schedule, ChipConfig], Prediction]
) -> tuple[tuple[int, ...], int]:
    """The fastest order of a schedule's operations by the timeline model, as indices into its list, and its cycles: the
    list's own, or one that list scheduling makes of it by one of `ranks` with some horizon. Deterministic."""
    with uncollected():
        nodes = nodes_of(schedule, chip)
        orders: dict[tuple[int, ...], None] = {tuple(range(len(nodes))): None}
        for rank in ranks:
            listed = longest_first(Waits(nodes, chip), chip) if rank is Rank.WAY else range(len(nodes))
            interleaver = Interleaver([nodes[index] for index in listed], chip)
            for horizon in HORIZONS:
                played = interleaver.run(horizon * interleaver.longest)
                orders[tuple(listed[index] for index in played.order)] = None
        cycles = {order: predict(in_order(schedule, order), chip).cycles for order in orders}
        best = min(cycles, key=cycles.__getitem__)
    return best, cycles[best]


def in_order(schedule: Schedule, order: Sequence[int]) -> Schedule:
    """The same operations in another order."""
    return schedule.model_copy(update={"operations": tuple(schedule.operations[index] for index in order)})


def longest_first(waits: Waits, chip: ChipConfig) -> Sequence[int]:
    """Operations by the cycles of the longest chain of operations that wait for each other from each to the end; so
    nothing comes before what it waits for."""
    left, drams, rate = [0.0] * len(waits.nodes), set(chip.drams), dram_word_cycles(chip)
    for index in range(len(left) - 1, -1, -1):
        node = waits.nodes[index]
        own = float(node.cycles)
        if node.fields is None:
            own = node.words * (rate if drams & {node.source.tile, node.target.tile} else 1.0)
        behind = (left[other] for other in (*waits.on_end[index], *waits.on_read[index]))
        left[index] = _LATENCY + own + max(behind, default=0.0)
    return sorted(range(len(left)), key=lambda index: (-left[index], index))


def nodes_of(schedule: Schedule, chip: ChipConfig) -> list[Node]:
    """A schedule's operations, with the cycles that they take."""
    return nodes_of_operations(schedule.operations, chip)


def nodes_of_operations(operations: Iterable[Operation], chip: ChipConfig) -> list[Node]:
    """Operations of a schedule, with the cycles that they take."""
    return list(_nodes(operations, chip))


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
