"""The model's memories that a mover reads word by word: all except DRAM.

Mirrors the source generator of `hw/memory/source.py`, and the read ports of `hw/core/matrix.py`.
"""

from __future__ import annotations

from meshloom.hw.spec.contracts import LOCAL_FIFO, WORD_CYCLES

from .clock import Clock
from .flow import FOREVER, OPEN, Buffer, Place


class Words(Buffer):
    """The words that have been read but not sent; filled by a link that reads one a cycle.

    A word read in cycle t counts from t + 1 on, as in every buffer, but can be sent only from t + 2 on. `port`: of the
    memory that is read; while it is occupied, nothing is read.
    """

    __slots__ = ("_began", "_ceased", "port")

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, LOCAL_FIFO)
        self.port: Place = OPEN
        # cycle in which reading last started, and the first one in which it had stopped
        self._began = self._ceased = -1

    def _there(self, now: int) -> int:
        """Words that can be sent at the start of cycle `now`: all except one read in the previous cycle."""
        arriving = self._ceased == now or (self.inn and self._began < now)
        return self.level(now) - int(arriving)

    def has(self, now: int) -> bool:
        return self._there(now) > 0

    def dry(self, now: int) -> int:
        if not self.inn:
            return self.level(now)
        there = self._there(now)
        # reading has just resumed: its first word arrives too late if all others have been sent
        return there if self._began == now and there < WORD_CYCLES else FOREVER

    def set_in(self, now: int, rate: int) -> None:
        self.n, self.since = self.level(now), now
        self.inn = rate
        if rate:
            self._began = now
            if self.n < WORD_CYCLES:
                self.clock.put(now + WORD_CYCLES, self.arrival)
            return
        self._ceased = now
        if self.drainer is not None:
            self.drainer.plan(now)  # it ends sooner

    def room(self, now: int) -> bool:
        return self.level(now) < self.cap and self.port.room(now)

    def fills(self, now: int) -> int:
        return min(super().fills(now), self.port.fills(now))

    def opens(self, now: int) -> int:
        return self.port.opens(now)
