"""Micro-ops as scheduling theory sees them: cycles, and who waits for whom.

The same numbers lie in tables for compiled code, where the neighbours of a micro-op follow each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ...support.records import Table, layout
from .muops import MuGraph

#: Whole numbers, one for each micro-op unless it is said otherwise.
Ints = NDArray[np.int64]


def numbers(array: Ints) -> list[int]:
    """The same as Python's own."""
    return cast("list[int]", array.tolist())


class GraphError(ValueError):
    """Micro-ops that cannot be scheduled; the message says which and why."""


class Op:
    """Cycles of a micro-op; its arcs in the table of producers and in that of consumers, first and behind the last."""

    cycles: int
    first_in: int
    end_in: int
    first_out: int
    end_out: int


class Arc:
    """A neighbour: its number, and the words that are handed over."""

    other: int
    words: int


class Tables(NamedTuple):
    """A graph for compiled code: micro-ops, what each gets, what each hands on."""

    ops: Table[Op]
    ins: Table[Arc]
    outs: Table[Arc]


@dataclass(frozen=True, eq=False)
class Dag:
    """A directed graph without circles. `cycles`: int64 [n], each above 0; `edges`: int64 [e, 2], producer and
    consumer, each pair once, by consumer; `words`: int64 [e]; `order`: int64 [n], producers before consumers."""

    cycles: Ints
    edges: Ints
    words: Ints
    order: Ints

    def __len__(self) -> int:
        return len(self.cycles)

    @cached_property
    def tables(self) -> Tables:
        """The same for compiled code."""
        size = len(self)
        ops: Any = np.zeros(size, layout(Op))
        ins: Any = np.zeros(len(self.edges), layout(Arc))
        outs: Any = np.zeros(len(self.edges), layout(Arc))
        ops["cycles"] = self.cycles
        for arcs, own, other in ((ins, 1, 0), (outs, 0, 1)):
            by = np.argsort(self.edges[:, own], kind="stable")
            arcs["other"], arcs["words"] = self.edges[by, other], self.words[by]
        for name, own in (("in", 1), ("out", 0)):
            ends = np.cumsum(np.bincount(self.edges[:, own], minlength=size))
            ops[f"end_{name}"], ops[f"first_{name}"] = ends, np.concatenate(([0], ends[:-1])) if size else ends
        return Tables(ops, ins, outs)

    @cached_property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """For each micro-op, those that it gets something from."""
        return self._neighbours(1, 0)

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each micro-op, those that get something from it."""
        return self._neighbours(0, 1)

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Producer and consumer of each edge."""
        return [(int(producer), int(consumer)) for producer, consumer in self.edges]

    def _neighbours(self, own: int, other: int) -> tuple[tuple[int, ...], ...]:
        lists: list[list[int]] = [[] for _ in range(len(self))]
        for edge in self.pairs:
            lists[edge[own]].append(edge[other])
        return tuple(map(tuple, lists))

    @cached_property
    def backwards(self) -> Dag:
        """The same micro-ops with time running back: consumers are producers."""
        return Dag(self.cycles, self.edges[:, ::-1].copy(), self.words, self.order[::-1].copy())

    def part(self, chosen: Sequence[int]) -> Dag:
        """Some of the micro-ops, numbered anew in the order given, and the edges between these."""
        place = np.full(len(self), -1, np.int64)
        place[list(chosen)] = np.arange(len(chosen))
        inside = (place[self.edges] >= 0).all(axis=1)
        order = place[self.order]
        return Dag(self.cycles[list(chosen)], place[self.edges[inside]], self.words[inside], order[order >= 0])


def dag(cycles: Iterable[int], edges: Iterable[tuple[int, int]], words: Iterable[int] | None = None) -> Dag:
    """A graph of micro-ops 0, 1, ... that take `cycles`; `edges` of the same pair count as one that hands over all
    their `words` (None: none). Raises GraphError for a circle, a micro-op that takes no time, an edge to nowhere."""
    lengths = np.array(list(cycles), np.int64)
    size = len(lengths)
    for number, length in enumerate(lengths.tolist()):
        if length < 1:
            raise GraphError(f"micro-op {number} takes {length} cycles; it must take at least one")
    pairs = list(edges)
    handed = [0] * len(pairs) if words is None else list(words)
    together: dict[tuple[int, int], int] = {}
    for (producer, consumer), count in zip(pairs, handed, strict=True):
        if not (0 <= producer < size and 0 <= consumer < size):
            raise GraphError(f"an edge leads from micro-op {producer} to {consumer}; there are 0 to {size - 1}")
        together[producer, consumer] = together.get((producer, consumer), 0) + count
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(range(size), ()))
    for producer, consumer in together:
        sorter.add(consumer, producer)
    try:
        order = list(sorter.static_order())
    except CycleError as circle:
        names = " -> ".join(map(str, circle.args[1]))
        raise GraphError(f"micro-ops wait for each other in a circle: {names}") from None
    ordered = sorted(together, key=lambda pair: (pair[1], pair[0]))
    return Dag(
        lengths,
        np.array(ordered, np.int64).reshape(-1, 2),
        np.array([together[pair] for pair in ordered], np.int64),
        np.array(order, np.int64),
    )


def of_graph(graph: MuGraph) -> Dag:
    """The micro-ops of a network. Raises GraphError."""
    return dag(
        (op.cycles for op in graph.ops),
        ((edge.producer, edge.consumer) for edge in graph.edges),
        (edge.words for edge in graph.edges),
    )
