"""The events of a run, in order.

An event is an object with a method instead of a closure: the same object is scheduled over and over, and compiled code
(`sched/model/native.py`) calls it without any lookup. Most events occur a few cycles after they are scheduled, many of
them in the same turn. So each of the next turns has a list, in a ring, and only turns further away are in a heap: a
calendar queue of one short year (R. Brown, "Calendar Queues", Communications of the ACM 31(10), 1988).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from ..support.garbage import uncollected

#: Phases of a cycle, each a turn: 0 what follows from registers alone, 1 decisions of arbiters, 2 decisions of
#: semaphores, 3 moves of single flits.
PHASES: Final = 4
#: Turns in the ring: as many cycles as most events lie ahead, DRAM's latency included.
_NEAR: Final = 64 * PHASES
#: A cycle that no run reaches.
_NEVER: Final = 1 << 60


class Event:
    """Something that happens in a cycle."""

    __slots__ = ()

    def happen(self, now: int) -> None:
        """Called in cycle `now`, in which it happens."""
        raise NotImplementedError


class Call(Event):
    """A function call."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[int], None]) -> None:
        self._function = function

    def happen(self, now: int) -> None:
        self._function(now)


class Clock:
    """Runs events in the order of their cycles, then of their phases, then in which they were scheduled."""

    __slots__ = ("_count", "_end", "_far", "_last", "_later", "_near", "_stopped", "_turn", "now")

    def __init__(self) -> None:
        self.now = 0
        self._turn = 0  # the first turn in which an event can be pending
        self._end = _NEAR  # the first turn that is not in the ring
        self._near: list[list[Event]] = [[] for _ in range(_NEAR)]  # by turn % _NEAR
        self._count = 0  # pending events in the ring
        self._far: list[int] = []  # turns beyond the ring, a heap
        self._later: dict[int, list[Event]] = {}  # their events
        self._stopped = False
        self._last = _NEVER  # cycle after which the run pauses

    def at(self, cycle: int, function: Callable[[int], None], phase: int = 0) -> None:
        """Calls `function(cycle)` in its turn."""
        self.put(cycle, Call(function), phase)

    def put(self, cycle: int, event: Event, phase: int = 0) -> None:
        """Schedules an event."""
        assert cycle >= self.now, "an event in the past"
        turn = cycle * PHASES + phase
        if turn < self._end:
            self._near[turn % _NEAR].append(event)
            self._count += 1
            if turn < self._turn:
                self._turn = turn
        elif turn in self._later:
            self._later[turn].append(event)
        else:
            self._later[turn] = [event]
            heappush(self._far, turn)

    def run(self, last: int = _NEVER) -> None:
        """Runs until no event is pending, until stopped, or to the end of cycle `last`; then it can be run on.

        `now` is then the cycle of the latest event, and events can be put into any later cycle.
        """
        with uncollected():
            self._run(last)

    def _run(self, last: int) -> None:
        self._last = last
        near = self._near
        while not self._stopped:
            turn = self._turn
            if self._count:
                while not near[turn % _NEAR]:
                    turn += 1
            elif self._far:
                turn = self._far[0]
            else:
                break
            now = turn // PHASES
            if now != self.now:
                if now > self._last:
                    break
                self.now = now
                self._end = now * PHASES + _NEAR
                if self._far:
                    self._come_near()
            self._turn = turn
            events = near[turn % _NEAR]
            begun = 0
            for event in events:  # including those scheduled meanwhile
                begun += 1
                self._count -= 1
                event.happen(now)
                if self._turn != turn or self._stopped:  # an earlier phase goes first
                    break
            if begun == len(events):
                events.clear()
            else:
                del events[:begun]

    def _come_near(self) -> None:
        """Moves what the ring now reaches into it."""
        while self._far and self._far[0] < self._end:
            turn = heappop(self._far)
            events = self._later.pop(turn)
            self._near[turn % _NEAR] = events
            self._count += len(events)

    def pause(self) -> None:
        """Makes `run` return at the end of this cycle."""
        self._last = self.now

    def stop(self) -> None:
        """Drops all pending events."""
        self._stopped = True

    @property
    def idle(self) -> bool:
        """Whether no event is pending after the current one."""
        return not self._count and not self._far
