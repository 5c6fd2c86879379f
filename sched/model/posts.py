"""A tile's semaphores, the trace port and the path to the post plane: each serves one request a cycle in fixed order.

Mirrors `hw/control/semaphores.py`, `hw/control/trace.py` and the multiplexer in `hw/assembly/tile_reports.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from meshloom.hw.spec.contracts import POST_CYCLES

from .clock import Clock
from .noc_flow import Packet, Plane

#: Ports of a tile's semaphores: the mover's; the first for SYNCs (by unit); deliveries; the post plane; the last port
#: before those of computing units (by unit).
MOVER_POST, SYNC_POST, DELIVERED_POST, PLANE_POST, UNIT_POST = 0, 1, 4, 5, 5

_Then = Callable[[int], None]


class Semaphores:
    """Posts before takes, lower-numbered ports first. A post accepted in cycle t can be taken from t + 1 on.

    `clearing`: cycles that it takes to clear them.
    """

    def __init__(self, clock: Clock, clearing: int = 0) -> None:
        self._clock, self._clearing = clock, clearing
        self._opens = 0  # first cycle in which they accept posts and takes
        self._values: dict[int, int] = {}
        self._posts: dict[int, deque[tuple[int, int, _Then | None]]] = {}  # by port
        self._takes: dict[int, tuple[int, int, _Then]] = {}  # by port
        self._due = -1

    def post(self, now: int, port: int, semaphore: int, count: int, accepted: _Then | None = None) -> None:
        """A post offered in cycle `now`; `accepted` is called in the cycle in which it is accepted."""
        self._posts.setdefault(port, deque()).append((semaphore, count, accepted))
        self._decide(now)

    def take(self, now: int, port: int, semaphore: int, count: int, granted: _Then) -> None:
        """A wait from cycle `now` on; `granted` is called in the cycle of the grant."""
        self._takes[port] = semaphore, count, granted
        self._decide(now)

    def clear(self, now: int) -> None:
        """They are cleared from cycle `now` on."""
        self._values.clear()
        self._opens = now + self._clearing

    def _decide(self, cycle: int) -> None:
        if self._due != cycle:
            self._due = cycle
            self._clock.at(cycle, self._resolve, 2)

    def _resolve(self, now: int) -> None:
        if now != self._due:
            return
        self._due = -1
        if now < self._opens:
            self._decide(self._opens)
            return
        if self._posts:
            port = min(self._posts)
            waiting = self._posts[port]
            semaphore, count, accepted = waiting.popleft()
            if not waiting:
                del self._posts[port]
            self._values[semaphore] = self._values.get(semaphore, 0) + count
            if self._posts or self._takes:
                self._decide(now + POST_CYCLES)
            if accepted is not None:
                accepted(now)
            return
        enough = [port for port, (semaphore, n, _) in self._takes.items() if self._values.get(semaphore, 0) >= n]
        if not enough:
            return
        semaphore, count, granted = self._takes.pop(min(enough))
        self._values[semaphore] = self._values.get(semaphore, 0) - count
        if len(enough) > 1:
            self._decide(now + POST_CYCLES)
        granted(now)


class Ordered:
    """A fixed-priority arbiter: the lowest number asking in a cycle is granted; the others ask again in the next."""

    def __init__(self, clock: Clock, ready: Callable[[int], bool] | None = None, phase: int = 1) -> None:
        self._clock, self._ready, self._phase = clock, ready, phase
        self._asking: dict[int, deque[_Then]] = {}
        self._due = -1

    def ask(self, now: int, number: int, chosen: _Then) -> None:
        """`chosen` is called in the cycle of the grant, in cycle `now` or later."""
        self._asking.setdefault(number, deque()).append(chosen)
        self._decide(now)

    def _decide(self, cycle: int) -> None:
        if self._due != cycle:
            self._due = cycle
            self._clock.at(cycle, self._resolve, self._phase)

    def _resolve(self, now: int) -> None:
        if now != self._due:
            return
        self._due = -1
        if self._ready is not None and not self._ready(now):
            self._decide(now + 1)
            return
        number = min(self._asking)
        waiting = self._asking[number]
        chosen = waiting.popleft()
        if not waiting:
            del self._asking[number]
        if self._asking:
            self._decide(now + 1)
        chosen(now)


class PostSender:
    """Injects the posts of a tile into the post plane: deliveries before SYNCs, and those in the order of their
    units."""

    def __init__(self, clock: Clock, plane: Plane, tile: int) -> None:
        self._plane, self._tile = plane, tile
        self._order = Ordered(clock, lambda now: plane.room(tile, now))

    def offer(self, now: int, number: int, target: int, packet: Packet, accept: _Then) -> None:
        """A post offered in cycle `now` (number 0: delivered, 1 + unit: a SYNC); `accept` is called when the NoC takes
        it."""

        def chosen(cycle: int) -> None:
            self._plane.send(cycle, self._tile, target, packet)
            accept(cycle)

        self._order.ask(now, number, chosen)


class Trace:
    """The trace port: one record a cycle, the mover's first. A SYNC completes only when its record has been taken:
    at once without trace memory (`stores` is false)."""

    def __init__(self, clock: Clock, stores: bool) -> None:
        self._clock, self._stores = clock, stores
        self._sent = self._dispatched = -1  # cycles of the mover's latest records
        self._order = Ordered(clock, lambda now: now not in (self._sent, self._dispatched))

    def sent(self, now: int) -> None:
        """The mover's packetiser offers a record in cycle `now`."""
        self._sent = now
        if self._dispatched == now:
            self._dispatched = now + 1

    def dispatched(self, cycle: int) -> None:
        """The mover's dispatcher offers one, unless the packetiser does."""
        self._dispatched = cycle

    def sync(self, now: int, unit: int, accept: _Then) -> None:
        """A SYNC's record, offered in cycle `now`."""
        if self._stores:
            self._order.ask(now, unit, accept)
        else:
            self._clock.at(now, accept, 1)
