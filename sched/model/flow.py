"""Flits as flows: buffers and the links between them, to the cycle, without an event for each flit.

Everything in the chip that carries words is a queue with a registered `ready`: a flit goes from one buffer to the next
in cycle t exactly if, at the start of t, the first is not empty and the second not full. So a link is either flowing,
one flit a cycle, or it stands, and that changes only when a buffer runs empty or full, begins to fill, gets room, or a
packet ends. Those are the events; between them all levels are straight lines.

Three phases order the events of a cycle: 0 what follows from registers alone, 1 what arbiters of the network decide on,
2 what the semaphores decide on, which may take back what a link has begun in the same cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Where events are put."""

    def at(self, cycle: int, event: Callable[[int], None], phase: int = 0) -> None: ...


class User(Protocol):
    """Who fills or empties a buffer."""

    def evaluate(self, now: int) -> None:
        """Decides anew whether it flows from cycle `now` on."""

    def plan(self, now: int) -> None:
        """Finds out anew when to decide next: what its end was reckoned from has changed."""


class Place(Protocol):
    """What a link takes flits from (`has`, `dry`, `set_out`) or brings them to (`room`, `fills`, `opens`, `set_in`)."""

    feeder: User | None  #: who fills it

    def has(self, now: int) -> bool: ...

    def dry(self, now: int) -> int | None:
        """Cycles for which it can be taken from; None: as long as nobody says otherwise."""

    def set_out(self, now: int, rate: int) -> None: ...

    def room(self, now: int) -> bool: ...

    def fills(self, now: int) -> int | None:
        """Cycles for which it can be brought to; None: as long as nobody says otherwise."""

    def opens(self, now: int) -> int | None:
        """Cycle from which it has room again, if it knows that by itself."""

    def set_in(self, now: int, rate: int) -> None: ...


class Open:
    """A place that always has, and always takes."""

    feeder: User | None = None

    def has(self, now: int) -> bool:
        return True

    def dry(self, now: int) -> int | None:
        return None

    def set_out(self, now: int, rate: int) -> None:
        pass

    def room(self, now: int) -> bool:
        return True

    def fills(self, now: int) -> int | None:
        return None

    def opens(self, now: int) -> int | None:
        return None

    def set_in(self, now: int, rate: int) -> None:
        pass


class Door(Open):
    """A place that takes when it is open; who opens and shuts it tells the link that stands before it."""

    def __init__(self, open_: bool) -> None:
        self.open = open_

    def room(self, now: int) -> bool:
        return self.open

    def turn(self, now: int, open_: bool) -> None:
        """Opens or shuts it from cycle `now` on (in phase 2: what has begun in this cycle is taken back)."""
        if self.open != open_:
            self.open = open_
            if self.feeder is not None:
                self.feeder.evaluate(now)


class Buffer:
    """A queue of at most `cap` flits."""

    __slots__ = ("cap", "clock", "drainer", "feeder", "inn", "n", "out", "since")

    def __init__(self, clock: Clock, cap: int) -> None:
        self.clock, self.cap = clock, cap
        self.n = self.since = 0  # level at the start of cycle `since`
        self.inn = self.out = 0  # flits a cycle from then on
        self.feeder: User | None = None
        self.drainer: User | None = None

    def level(self, now: int) -> int:
        """Flits at the start of cycle `now`."""
        return self.n + (self.inn - self.out) * (now - self.since)

    def has(self, now: int) -> bool:
        return self.level(now) > 0

    def dry(self, now: int) -> int | None:
        return None if self.inn else self.level(now)

    def room(self, now: int) -> bool:
        return self.level(now) < self.cap

    def fills(self, now: int) -> int | None:
        return None if self.out else self.cap - self.level(now)

    def opens(self, now: int) -> int | None:
        return None  # whoever empties it tells

    def set_in(self, now: int, rate: int) -> None:
        self.n, self.since = self.level(now), now
        self.inn = rate
        if rate:
            if self.n == 0:
                self.clock.at(now + 1, self.arrive)
        elif self.drainer is not None:
            self.drainer.plan(now)  # it ends sooner

    def set_out(self, now: int, rate: int) -> None:
        self.n, self.since = self.level(now), now
        self.out = rate
        if self.feeder is not None:
            if rate:
                if self.n == self.cap:
                    self.clock.at(now + 1, self.feeder.evaluate)
            else:
                self.feeder.plan(now)  # it ends sooner

    def arrive(self, now: int) -> None:
        """It was empty, and may not be so from this cycle on."""
        if self.drainer is not None:
            self.drainer.evaluate(now)


class Peek(Open):
    """What stands in a buffer, without taking it."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.since = -1  # first cycle in which somebody asked and there was something

    def has(self, now: int) -> bool:
        there = self.buffer.level(now) > 0
        if there and self.since < 0:
            self.since = now
        return there


class Link:
    """Carries a number of flits from one place to another, then says so."""

    __slots__ = ("at", "clock", "down", "ended", "left", "mark", "marked", "next", "rate", "up")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.up: Place | None = None  # None: idle
        self.down: Place = OPEN
        self.left = self.rate = self.at = 0  # flits to go at the start of cycle `at`, and flits a cycle from then on
        self.next = -1  # cycle of the event that counts
        self.ended: Callable[[int], None] = lambda now: None
        self.mark = -1
        self.marked: Callable[[int], None] = lambda now: None

    def start(self, now: int, up: Place, down: Place, flits: int, ended: Callable[[int], None], mark: int = -1) -> None:
        """From cycle `now` on, `flits` may go; `ended` is called in the cycle after the last. `marked` is called in
        the cycle in which `mark` of them are left to go."""
        self.up, self.down, self.left, self.ended, self.mark = up, down, flits, ended, mark
        self.rate, self.at = 0, now
        self.evaluate(now)

    def remaining(self, now: int) -> int:
        """Flits that have not gone at the start of cycle `now`."""
        return 0 if self.up is None else self.left - self.rate * (now - self.at)

    def mark_at(self, now: int, left: int) -> None:
        """`marked` is called in the cycle in which `left` flits of the present ones are left to go."""
        self.mark = left
        self.plan(now)

    def evaluate(self, now: int) -> None:
        up, down = self.up, self.down
        if up is None or now < self.at:
            return
        if self.rate:
            self.left -= now - self.at
            self.at = now
            if self.left <= self.mark:
                self.mark = -1
                self.marked(now)
            if self.left == 0:
                self.rate = 0
                self.up = None
                up.set_out(now, 0)
                down.set_in(now, 0)
                self.ended(now)
                return
        can = int(up.has(now) and down.room(now))
        if can != self.rate:
            self.rate, self.at = can, now
            up.set_out(now, can)
            down.set_in(now, can)
        self.plan(now)

    def plan(self, now: int) -> None:
        up = self.up
        if up is None or self.next == now:
            return  # idle, or about to decide anyway
        if self.rate:
            when = self.at + self.left
            if self.mark >= 0:
                when -= self.mark
            if (cycles := up.dry(now)) is not None and now + cycles < when:
                when = now + cycles
            if (cycles := self.down.fills(now)) is not None and now + cycles < when:
                when = now + cycles
        elif (opens := self.down.opens(now)) is not None:
            when = opens
        else:
            return  # whoever changes that says so
        if when != self.next:
            self.next = when
            self.clock.at(when, self._event)

    def _event(self, now: int) -> None:
        if now == self.next:
            self.next = -1
            self.evaluate(now)


OPEN = Open()
