"""The model's queues of requests for DRAM by tile, and whose is next.

Mirrors `hw/noc/arbitration.py`, whose docstrings say how it is decided.
"""

from __future__ import annotations

from collections import deque

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import most_credit

from .flow import FOREVER

#: Nobody.
NONE = -1


class Turns:
    """The requests that a DRAM tile has not read yet, of each tile.

    Credits are those at the start of cycle `_at`; a round that ends in a cycle without solvent requesters is accounted
    for when somebody looks.
    """

    def __init__(self, chip: ChipConfig) -> None:
        self._numbers = {tile: number for number, tile in enumerate(chip.tiles)}
        count = len(self._numbers)
        self._room = [chip.mover_queue] * count
        self._queues: list[deque[dict[str, int]]] = [deque() for _ in range(count)]
        self._most = list(most_credit(chip)) if str(chip.dram.arbitration) == "weighted" else []
        self._credits = list(self._most)
        self._before = NONE  # the latest that was served
        self._at = 0

    def room(self, tile: int) -> bool:
        """Whether the queue of a tile can take another request."""
        return self._room[self._numbers[tile]] > 0

    def expect(self, tile: int) -> None:
        """A request of a tile is on its way into the queue."""
        self._room[self._numbers[tile]] -= 1

    def enter(self, tile: int, fields: dict[str, int], now: int) -> None:
        """An expected request can be read from cycle `now` on."""
        self._advance(now)
        self._queues[self._numbers[tile]].append(fields)

    def next(self, now: int) -> int:
        """The number of the tile whose request is offered in cycle `now`; NONE if none is."""
        self._advance(now)
        count = len(self._queues)
        for step in range(1, count + 1):
            number = (self._before + step) % count
            if self._queues[number] and (not self._credits or self._credits[number] > 0):
                return number
        return NONE

    def offered(self, now: int) -> int:
        """The first cycle from `now` on in which a request is offered, if no other comes; FOREVER if there is none."""
        if self.next(now) != NONE:
            return now
        rounds = self._rounds()
        return now + rounds if rounds < FOREVER else FOREVER

    def take(self, number: int, now: int) -> dict[str, int]:
        """The mover takes the offered request in cycle `now`."""
        fields = self._queues[number].popleft()
        self._room[number] += 1
        self._before = number
        self._at = now + 1
        if self._credits:
            self._credits[number] -= fields["words"]
        return fields

    def _rounds(self) -> int:
        """Rounds after which one that asks has credit; FOREVER if none asks."""
        rounds = FOREVER
        for number, queue in enumerate(self._queues):
            if queue:
                rounds = min(rounds, self._debt(number))
        return rounds

    def _debt(self, number: int) -> int:
        """Rounds after which a tile has credit; 0: it has some."""
        credit, most = self._credits[number], self._most[number]
        return 0 if credit > 0 else (most - credit) // most

    def _advance(self, now: int) -> None:
        """Accounts for the rounds that have ended before cycle `now`."""
        cycles = now - self._at
        if cycles <= 0:
            return
        self._at = now
        if not self._credits:
            return
        rounds = min(cycles, self._rounds())
        if rounds == 0:
            return
        for number, most in enumerate(self._most):
            self._credits[number] = self._credits[number] + rounds * most if rounds <= self._debt(number) else most
