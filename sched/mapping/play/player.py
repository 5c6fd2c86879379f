"""Playing a list of operations on the chip's resources: what becomes ready when, in the order of events.

`Waits` says once what each operation depends on; a `Player` plays that with a policy of its own, which says who is
issued when and what it occupies (`what_if`, and `flexer.order` for out-of-order schedules). List scheduling, asked for
most often, is compiled (`model.list_play`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from meshloom.hw.spec.config import ChipConfig

from ...ir.dependences import Depends, Words
from ...ir.schedule import Operation
from ...model.traffic import START_CYCLES
from ..nodes import Node
from .estimate import pipeline_cycles


class Waits:
    """What each operation waits for, as counts and as lists of who is released by whom.

    `operations`: what the nodes become in a schedule; `on_end`: by number of an operation, those that wait until it has
    ended; `on_read`: until it has read its words; `missing`: how many each waits for.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        chip: ChipConfig,
        operations: Sequence[Operation] | None = None,
        like: Waits | None = None,
        words: Iterable[Words] | None = None,
    ) -> None:
        """`operations`, and `words` that they read and write: if they are known; `like`: another list, whose
        operations differ only in who issues them."""
        self.nodes, self.chip = nodes, chip
        self.operations = operations or [node.operation() for node in nodes]
        if like is not None:
            self.depends, self.on_end, self.on_read, self.missing = (
                like.depends, like.on_end, like.on_read, like.missing,
            )  # fmt: skip
            return
        self.depends = Depends(self.operations, chip, words)
        self.on_end: list[list[int]] = [[] for _ in nodes]
        self.on_read: list[list[int]] = [[] for _ in nodes]
        self.missing = [0] * len(nodes)
        for index, node in enumerate(nodes):
            for other in self.depends.data[index]:
                self.on_end[other].append(index)
            for other in self.depends.room[index]:
                before = nodes[other]
                # Moves into the same words land in order only on the same route; waiting is always correct.
                wrote = before.fields is not None or (node.fields is None and before.target.tile == node.target.tile)
                (self.on_end if wrote else self.on_read)[other].append(index)
            self.missing[index] = len(self.depends.data[index]) + len(self.depends.room[index])


class Player(ABC):
    """Plays operations once. `order`: as they were issued; `now`, `end`: the cycle, and that of the last end so far."""

    def __init__(self, waits: Waits) -> None:
        self.waits, self.nodes, self.chip = waits, waits.nodes, waits.chip
        self.missing = list(waits.missing)
        self.drain = pipeline_cycles(self.chip)
        self.order: list[int] = []
        self.now, self.end = float(START_CYCLES), 0.0
        self._events: list[tuple[float, int, int, int]] = []
        self._number = 0

    @abstractmethod
    def ready(self, index: int) -> None:
        """An operation waits for nothing any more."""

    @abstractmethod
    def event(self, kind: int, index: int) -> None:
        """Something that was put `at` this cycle happens."""

    @abstractmethod
    def settle(self) -> None:
        """All events of a cycle have happened."""

    def at(self, time: float, kind: int, index: int) -> None:
        """Puts an event of an operation at a time; those of one time happen in the order in which they are put."""
        self._number += 1
        heappush(self._events, (time, self._number, kind, index))

    def has_read(self, index: int) -> None:
        """An operation has read its words: what waits to overwrite them goes on."""
        self._release(self.waits.on_read[index])

    def has_ended(self, index: int) -> None:
        """An operation has ended: what it wrote is there."""
        self.end = max(self.end, self.now)
        if self.nodes[index].fields is not None:
            self._release(self.waits.on_read[index])
        self._release(self.waits.on_end[index])

    def play(self) -> None:
        """Plays all operations."""
        for index, missing in enumerate(self.missing):
            if not missing:
                self.ready(index)
        self.settle()
        while self._events:
            self.now = self._events[0][0]
            while self._events and self._events[0][0] == self.now:
                _, _, kind, index = heappop(self._events)
                self.event(kind, index)
            self.settle()
        assert len(self.order) == len(self.nodes), "a dependence that points forward"

    def _release(self, waiting: list[int]) -> None:
        for index in waiting:
            self.missing[index] -= 1
            if not self.missing[index]:
                self.ready(index)
