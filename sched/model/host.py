"""The model's host on a chip that runs several programs (`ChipConfig.programs`): launches and completions.

A launch waits in the queue until the host's mover stream is idle; then its boot stream runs there. Its FETCHes start
the streams of the program, each of which ends with a SYNC that adds 1 to the host's semaphore of the program's slot.
The successor of a program waits beside the queue until that has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from meshloom.hw.spec.contracts import LAUNCH_CYCLES, LAUNCH_INTERVAL
from meshloom.hw.spec.isa import Unit

from ..program.program import Stream
from .clock import Clock
from .flow import FOREVER
from .frontend import FrontEnd
from .machine import Machine
from .posts import Semaphores
from .records import Executed, ModelError


class EndCounters(Semaphores):
    """The host's semaphores, one for each slot: counters of streams that have ended, which never refuse a post."""

    def __init__(self, clock: Clock, ended: Callable[[int, int], None]) -> None:
        """`ended(slot, cycle)` is called in the cycle in which the last expected post to a slot is taken."""
        super().__init__(clock)
        self._left: dict[int, int] = {}
        self._ended = ended

    def expect(self, slot: int, streams: int) -> None:
        """The program that starts in `slot` has this many streams."""
        self._left[slot] = streams

    def post(
        self, now: int, port: int, semaphore: int, count: int, accepted: Callable[[int], None] | None = None
    ) -> None:
        """A post taken off the post plane in cycle `now`."""
        left = self._left.get(semaphore, 0) - count
        if left < 0:
            raise ModelError(
                f"cycle {now}: a SYNC adds {count} to the host's semaphore {semaphore}, where {left + count} streams "
                "have yet to end; each stream of a program ends with one SYNC that adds 1 to the semaphore of its slot"
            )
        if accepted is not None:
            accepted(now)
        if left:
            self._left[semaphore] = left
        else:
            del self._left[semaphore]
            self._ended(semaphore, now)


class _Queued:
    """A launch that can be taken from cycle `there` on. `streams`: of its program, which are not on the chip yet."""

    __slots__ = ("boot", "log", "streams", "there")

    def __init__(self, boot: Stream, there: int, log: list[Executed] | None, streams: tuple[Stream, ...] = ()) -> None:
        self.boot, self.there, self.log, self.streams = boot, there, log, streams


class Host:
    """Launches that wait, and the host's mover stream that takes them: successors whose slot is free, the lowest slot
    first, then the queue, first come, first served."""

    def __init__(self, machine: Machine, ended: Callable[[int, int], None]) -> None:
        """`ended(slot, cycle)`: see `EndCounters`."""
        self.machine, self.tile = machine, machine.chip.host
        self.counters = EndCounters(machine, self._over)
        machine.semaphores[self.tile] = self.counters
        self._ended = ended
        self._queue: deque[_Queued] = deque()
        self._after: dict[int, _Queued] = {}  # successors, by slot
        self._ready: dict[int, _Queued] = {}  # of these, those whose slot is free
        self._idle = 0  # first cycle in which the mover's stream can be started

    def launch(
        self, boot: Stream, slot: int, streams: tuple[Stream, ...], cycle: int, log: list[Executed] | None
    ) -> None:
        """Writes a launch to the queue in `cycle`, which must not be earlier than that of the previous launch.

        The units of `streams` run no other stream by then, and `slot` is free. `log`: for the program's instructions
        and those of its boot stream.
        """
        self._place(slot, streams, log)
        self._queue.append(_Queued(boot, cycle + LAUNCH_CYCLES, log))
        self.machine.at(cycle + LAUNCH_CYCLES, self._take)

    def follow(
        self, boot: Stream, slot: int, streams: tuple[Stream, ...], cycle: int, log: list[Executed] | None
    ) -> None:
        """The same for the successor of the program in `slot`, which has none yet: it begins when that has ended."""
        self._after[slot] = _Queued(boot, cycle + LAUNCH_CYCLES, log, streams)

    def _over(self, slot: int, cycle: int) -> None:
        """The program in a slot has ended: its successor can be taken, if it has one."""
        after = self._after.pop(slot, None)
        if after is not None:
            self._place(slot, after.streams, after.log)
            after.there = max(after.there, cycle + LAUNCH_CYCLES)
            self._ready[slot] = after
            self.machine.at(after.there, self._take)
        self._ended(slot, cycle)

    def _place(self, slot: int, streams: tuple[Stream, ...], log: list[Executed] | None) -> None:
        """The streams of a program, before they are started."""
        machine = self.machine
        for stream in streams:
            machine.streams[stream.tile, stream.unit] = FrontEnd(machine, stream)
            machine.logs[stream.tile] = log
        self.counters.expect(slot, len(streams))

    def _take(self, now: int) -> None:
        """Takes the launch whose turn it is, if the mover's stream is idle."""
        if now < self._idle:
            return
        slot = min([slot for slot, one in self._ready.items() if one.there <= now], default=-1)
        if slot >= 0:
            launch = self._ready.pop(slot)
        elif self._queue and self._queue[0].there <= now:
            launch = self._queue.popleft()
        else:
            return
        self._idle = FOREVER
        front = FrontEnd(self.machine, launch.boot)
        front.on_last = self._last
        self.machine.streams[self.tile, Unit.MOVER] = front
        self.machine.logs[self.tile] = launch.log
        front.start(now)

    def _last(self, now: int) -> None:
        """The mover took the last instruction of a boot stream in cycle `now`."""
        self._idle = now + LAUNCH_INTERVAL
        self.machine.at(self._idle, self._take)
