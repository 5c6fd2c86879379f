"""Reorders a list of operations so that units find work: list scheduling on estimated times.

Layers one after the other leave every unit idle at each border. What an operation really depends on are words
(`ir.dependences`), so weights can be fetched while the layer before computes, a core can begin with rows whose
producers are done, and branches fill each other's gaps. The list is played on the chip's resources (streams, movers,
DRAM channels, ports into tiles); whenever one is free it takes, of all operations whose inputs are there, the first in
the list. The order in which that happens is the new list: a topological order of the same dependences, so with the same
meaning.

Fetching ahead is bounded: a MOVE is held back while more than `horizon` cycles of computing lie before its first use.
That helps where results come too early for the memory that they go to; but until a core's result has been sent, nothing
can be computed in its place. So results can be sent `at_once` instead. Units can be told to keep the order of the list
(`in_order`); then only MOVEs change their places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.isa import Unit

from ...ir.dependences import Words
from ...ir.schedule import Operation
from ...model.list_play import NEVER_HELD, ListedOperations, ListPlay
from ..nodes import Node
from .estimate import VECTOR_CYCLES, pipeline_cycles
from .player import Waits

#: Times a MOVE's words that are added to the horizon: long transfers have to begin earlier.
PER_WORD = 4


@dataclass(frozen=True)
class Interleaved:
    """A new order (indices into the old list) and the cycles that the estimate gives it."""

    order: list[int]
    cycles: int


class Interleaver:
    """Prepares a list once; `run` plays it with some horizon."""

    def __init__(
        self,
        nodes: Sequence[Node],
        chip: ChipConfig,
        in_order: bool = False,
        operations: Sequence[Operation] | None = None,
        like: Interleaver | None = None,
        words: Iterable[Words] | None = None,
    ) -> None:
        """`operations`: what the nodes are in a schedule, and `words`: what these read and write, if that is known;
        `like`: another list, whose operations differ only in who issues them, and need not be looked at again."""
        self.waits = Waits(nodes, chip, operations, like and like.waits, words)
        self.nodes, self.in_order = nodes, in_order
        self._runs: dict[tuple[int, bool], Interleaved] = {}
        self._listed: ListedOperations | None = None
        # Cycles of computing that lie before each operation in its stream, and the first use of what a move brings.
        self.turns: dict[tuple[int, Unit], list[int]] = {}  # compute operations, by stream
        self.before: list[int] = [0] * len(nodes)
        self.use: list[tuple[tuple[int, Unit], int] | None] = [None] * len(nodes)
        self.longest = max((node.cycles for node in nodes), default=0)
        if like is not None:
            self.turns, self.before, self.use = like.turns, like.before, like.use
        else:
            self._look_ahead(chip)

    def _look_ahead(self, chip: ChipConfig) -> None:
        """Fills `turns`, `before` and `use`."""
        nodes = self.nodes
        users: list[list[int]] = [[] for _ in nodes]  # who reads what it writes
        for index, data in enumerate(self.waits.depends.data):
            for other in data:
                users[other].append(index)
        so_far: dict[tuple[int, Unit], int] = {}
        for index, node in enumerate(nodes):
            if node.fields is not None:
                stream = node.stream
                self.turns.setdefault(stream, []).append(index)
                self.before[index] = so_far.get(stream, 0)
                so_far[stream] = self.before[index] + node.cycles
        for index in range(len(nodes) - 1, -1, -1):
            if nodes[index].fields is not None:
                self.use[index] = nodes[index].stream, self.before[index]
            elif chip.tiles[nodes[index].target.tile] is TileKind.CORE or not self._carries_result(index):
                uses = [use for other in users[index] if (use := self.use[other])]
                self.use[index] = min(uses, key=lambda use: use[1], default=None)

    def _carries_result(self, index: int) -> bool:
        """Whether a move carries something computed; on its way to a memory that is never held back."""
        return any(self.nodes[other].fields is not None for other in self.waits.depends.data[index])

    def run(self, horizon: int, at_once: bool = False) -> Interleaved:
        """The order that a horizon of so many cycles gives, at least twice those of the longest operation. `at_once`:
        what a core sends is never held back."""
        key = max(horizon, 2 * self.longest), at_once
        if key not in self._runs:
            if self._listed is None:
                self._listed = self._numbered()
            played = ListPlay(self._listed, self.waits.chip, *key, self.in_order)
            played.play()
            self._runs[key] = Interleaved(played.order, int(played.end))
        return self._runs[key]

    def _numbered(self) -> ListedOperations:
        """The list as numbers."""
        numbers = {stream: number for number, stream in enumerate(self.turns)}
        waits, drain = self.waits, pipeline_cycles(self.waits.chip)
        listed = ListedOperations(
            [(tile, int(unit)) for tile, unit in numbers], waits.missing, waits.on_read, waits.on_end,
            list(self.turns.values()),
        )  # fmt: skip
        for index, node in enumerate(self.nodes):
            if node.fields is not None:
                result = node.cycles + (VECTOR_CYCLES if node.vec else drain)
                listed.add_compute(numbers[node.stream], node.cycles, result, self.before[index])
            else:
                use, at = NEVER_HELD, 0
                if (first := self.use[index]) is not None:
                    use, at = numbers[first[0]], first[1] - PER_WORD * node.words
                listed.add_move(node.issuer, node.source.tile, node.target.tile, node.words, use, at)
        return listed
