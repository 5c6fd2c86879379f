"""Flits as flows: buffers and the links between them, to the cycle, without an event for each flit.

Everything in the chip that carries words is a queue with a registered `ready`: a flit moves from one buffer to the next
in cycle t exactly if, at the start of t, the first is not empty and the second not full. So a link is either flowing,
one flit a cycle, or stalled, and that changes only when a buffer runs empty or full, begins to fill, gets room, or a
packet ends. Those are the events; between them all levels change linearly.

Three phases order the events of a cycle: 0 what follows from registers alone, 1 decisions of the NoC's arbiters,
2 decisions of the semaphores, which may cancel what a link has started in the same cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from .clock import Clock, Event

#: A number of cycles without a known end.
FOREVER: Final = 1 << 60


class User(Event):
    """A part that fills or empties a buffer. As an event: the cycle for which it planned a decision has come."""

    __slots__ = ("decision",)

    def __init__(self) -> None:
        self.decision: Event = _Decision(self)

    def evaluate(self, now: int) -> None:
        """Decides again whether it flows from cycle `now` on."""
        raise NotImplementedError

    def plan(self, now: int) -> None:
        """Recomputes when to decide next, because the basis of that estimate has changed."""
        raise NotImplementedError


class _Decision(Event):
    """Makes a user decide, whatever it has planned."""

    __slots__ = ("_user",)

    def __init__(self, user: User) -> None:
        self._user = user

    def happen(self, now: int) -> None:
        self._user.evaluate(now)


@mypyc_attr(allow_interpreted_subclasses=True)
class Place:
    """The source of a link's flits (`has`, `dry`, `set_out`) or their destination (`room`, `fills`, `opens`, `set_in`).

    This one never runs empty and is always ready.
    """

    __slots__ = ("feeder",)

    def __init__(self) -> None:
        self.feeder: User | None = None  # the part that fills it

    def has(self, now: int) -> bool:
        """Whether there is a flit in cycle `now`."""
        return True

    def dry(self, now: int) -> int:
        """Cycles for which it can be read; FOREVER: until further notice."""
        return FOREVER

    def set_out(self, now: int, rate: int) -> None:
        """From cycle `now` on, `rate` flits a cycle are taken."""

    def room(self, now: int) -> bool:
        """Whether it takes a flit in cycle `now`."""
        return True

    def fills(self, now: int) -> int:
        """Cycles for which it can be filled; FOREVER: until further notice."""
        return FOREVER

    def opens(self, now: int) -> int:
        """Cycle from which it has room again, if that is known already; otherwise FOREVER."""
        return FOREVER

    def set_in(self, now: int, rate: int) -> None:
        """From cycle `now` on, `rate` flits a cycle arrive."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Door(Place):
    """A place that takes flits while it is open; opening or shutting it notifies the link that feeds it."""

    __slots__ = ("open",)

    def __init__(self, open_: bool) -> None:
        super().__init__()
        self.open = open_

    def room(self, now: int) -> bool:
        return self.open

    def turn(self, now: int, open_: bool) -> None:
        """Opens or shuts it from cycle `now` on (in phase 2: cancels what has started in this cycle)."""
        if self.open != open_:
            self.open = open_
            if self.feeder is not None:
                self.feeder.evaluate(now)


class Buffer(Place):
    """A queue of at most `cap` flits."""

    __slots__ = ("arrival", "cap", "clock", "drainer", "inn", "n", "out", "since")

    def __init__(self, clock: Clock, cap: int) -> None:
        super().__init__()
        self.clock, self.cap = clock, cap
        self.n = self.since = 0  # level at the start of cycle `since`
        self.inn = self.out = 0  # flits a cycle since then
        self.drainer: User | None = None
        self.arrival = _Arrival(self)

    def level(self, now: int) -> int:
        """Flits at the start of cycle `now`."""
        if self.inn == self.out:
            return self.n
        passed = now - self.since
        return self.n + passed if self.inn else self.n - passed

    def has(self, now: int) -> bool:
        return self.level(now) > 0

    def dry(self, now: int) -> int:
        return FOREVER if self.inn else self.level(now)

    def room(self, now: int) -> bool:
        return self.level(now) < self.cap

    def fills(self, now: int) -> int:
        return FOREVER if self.out else self.cap - self.level(now)

    def set_in(self, now: int, rate: int) -> None:
        self.n, self.since = self.level(now), now
        self.inn = rate
        if rate:
            if self.n == 0:
                self.clock.put(now + 1, self.arrival)
        elif self.drainer is not None:
            self.drainer.plan(now)  # it ends sooner

    def set_out(self, now: int, rate: int) -> None:
        self.n, self.since = self.level(now), now
        self.out = rate
        if self.feeder is not None:
            if rate:
                if self.n == self.cap:
                    self.clock.put(now + 1, self.feeder.decision)
            else:
                self.feeder.plan(now)  # it ends sooner

    def arrive(self, now: int) -> None:
        """It may have what its drainer waits for, from this cycle on."""
        if self.drainer is not None:
            self.drainer.evaluate(now)


class PacketBuffer(Buffer):
    """A buffer whose drainer begins only when there are `least` flits at once."""

    __slots__ = ("least",)

    def __init__(self, clock: Clock, cap: int) -> None:
        super().__init__(clock, cap)
        self.least: int = 1

    def want(self, now: int, flits: int) -> None:
        """From cycle `now` on, nothing is there unless so many are."""
        self.least = flits
        if self.inn and (missing := flits - self.level(now)) > 0:
            self.clock.put(now + missing, self.arrival)

    def has(self, now: int) -> bool:
        return self.level(now) >= self.least

    def set_in(self, now: int, rate: int) -> None:
        self.n, self.since = self.level(now), now
        self.inn = rate
        if rate:
            if self.n < self.least:
                self.clock.put(now + self.least - self.n, self.arrival)
        elif self.drainer is not None:
            self.drainer.plan(now)  # it ends sooner


class _Arrival(Event):
    """A buffer may have what its drainer waits for: flits after it was empty, or as many as that wants."""

    __slots__ = ("_buffer",)

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer

    def happen(self, now: int) -> None:
        self._buffer.arrive(now)


class Peek(Place):
    """The contents of a buffer, without taking them."""

    __slots__ = ("buffer", "since")

    def __init__(self, buffer: Buffer) -> None:
        super().__init__()
        self.buffer = buffer
        self.since = -1  # first cycle in which it was asked and the buffer was not empty

    def has(self, now: int) -> bool:
        there = self.buffer.has(now)
        if there and self.since < 0:
            self.since = now
        return there


def nothing(now: int) -> None:
    """A callback that does nothing."""


class Link(User):
    """Carries a number of flits from one place to another, then calls back."""

    __slots__ = ("at", "carried", "clock", "down", "ended", "left", "next", "rate", "up")

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.up: Place | None = None  # None: idle
        self.down: Place = OPEN
        # flits that remain at the start of cycle `at`, and flits a cycle from then on
        self.left: int = 0
        self.rate: int = 0
        self.at: int = 0
        self.carried: int = 0  # flits before cycle `at`
        self.next = -1  # cycle of the event that is valid
        self.ended: Callable[[int], None] = nothing

    def start(self, now: int, up: Place, down: Place, flits: int, ended: Callable[[int], None]) -> None:
        """From cycle `now` on, `flits` may move; `ended` is called in the cycle after the last."""
        self.up, self.down, self.left, self.ended = up, down, flits, ended
        self.rate, self.at = 0, now
        self.evaluate(now)

    def evaluate(self, now: int) -> None:
        up, down = self.up, self.down
        if up is None or now < self.at:
            return
        if self.rate:
            self.left -= now - self.at
            self.carried += now - self.at
            self.at = now
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
            return  # idle, or about to decide in any case
        if self.rate:
            when = self.at + self.left
            if (then := now + up.dry(now)) < when:
                when = then
            if (then := now + self.down.fills(now)) < when:
                when = then
        else:
            when = self.down.opens(now)
            if when == FOREVER:
                return  # the part that changes that calls `evaluate`
        if when != self.next:
            self.next = when
            self.clock.put(when, self)

    def happen(self, now: int) -> None:
        if now == self.next:
            self.next = -1
            self.evaluate(now)

    def busy(self, cycle: int) -> int:
        """Cycles before `cycle` in which a flit moved, once everything before has happened."""
        return self.carried + self.rate * (cycle - self.at)


OPEN: Final = Place()
