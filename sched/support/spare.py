"""Processors that this process may use beside its own: how many, who says so, and copies of it that work there.

A search that compares one schedule after another has nothing to do at once, but it can guess what it will compare next:
most changes do not help. A copy of its process (`fork`) goes on as if the one at hand did not, and leaves what it finds
in the store. So the search takes what it would have taken without copies, only sooner.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import last_words

#: Sets how many processors there are beside a process's own.
VARIABLE = "MESHLOOM_SPARE"
#: Of more copies the last ones mostly work for nothing: one change of three helps.
MOST = 3
_limit: int | None = None


def limit(processors: int) -> None:
    """From now on this process has no more than so many processors beside its own."""
    global _limit
    _limit = max(0, processors)


@contextmanager
def limited(processors: int) -> Generator[None]:
    """As `limit`, meanwhile."""
    global _limit
    before, _limit = _limit, max(0, processors)
    try:
        yield
    finally:
        _limit = before


def spare() -> int:
    """Processors beside this process's own, at most `MOST`: all that the system lets it use, if the machine is not
    busy, but no more than `limit` has set; or as many as the environment says (`VARIABLE`)."""
    if not hasattr(os, "fork"):
        return 0
    number = _limit
    text = os.environ.get(VARIABLE, "")
    if text.isdecimal():
        return min(int(text), MOST if number is None else number, MOST)
    if number is None:
        number = len(os.sched_getaffinity(0)) - 1
    if os.getloadavg()[0] > (os.cpu_count() or 1):  # others use them
        return 0
    return min(number, MOST)


class Copies:
    """Copies of this process, one for each of the steps that follow the one at hand.

    Before a step whose outcome nobody has, a copy asks whether it `leaves_out` that, since it is this process's or an
    earlier copy's; this process, whether it has had to `wait` for the copy whose step it was, and otherwise may
    `start` others before it does the `step` itself. A copy takes it that no step but its own has an effect, does that,
    and ends. `drop` says that one had.

    Only the store may know of a step. Whoever uses copies calls `end` when there are no steps any more, whatever has
    happened: a copy that has come so far ends there.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._copies: deque[int] = deque()
        self._left_out = 0
        self._is_copy = False

    def leaves_out(self) -> bool:
        """In a copy: whether another process has this step."""
        if self._left_out:
            self._left_out -= 1
            return True
        return False

    def wait(self) -> bool:
        """Whether a copy had this step. It has ended then, one way or the other: what it has found is in the store, if
        anything."""
        if not self._copies:
            return False
        _wait(self._copies.popleft())
        return True

    def start(self) -> bool:
        """Makes copies for the steps after this one. Returns twice: in a copy True, since this step is not its own."""
        while len(self._copies) < self.most:
            pid = _fork()
            if pid is None:
                self.most = len(self._copies)
                return False
            if pid == 0:
                self._left_out = len(self._copies)
                self._copies.clear()
                self.most, self._is_copy = 0, True
                return True
            self._copies.append(pid)
        return False

    @contextmanager
    def step(self) -> Generator[None]:
        """A step of this process. A copy ends with it."""
        try:
            yield
        finally:
            if self._is_copy:
                os._exit(0)

    def end(self) -> None:
        """There are no more steps."""
        if self._is_copy:
            os._exit(0)
        self.drop()

    def drop(self) -> None:
        """Ends all copies: what they took for granted has not come true."""
        _kill(self._copies)
        self._copies.clear()


class Helpers:
    """Copies of this process that do `work(number, count)` and end. What they find is in the store, if anything."""

    def __init__(self, count: int, work: Callable[[int, int], object]) -> None:
        self._copies: list[int] = []
        for number in range(count):
            pid = _fork()
            if pid is None:
                break
            if pid == 0:
                try:
                    work(number, count)
                finally:
                    os._exit(0)
            self._copies.append(pid)

    def end(self) -> None:
        """Ends them, whatever they do."""
        _kill(self._copies)
        self._copies.clear()


def _fork() -> int | None:
    """A copy's number, 0 in the copy, None if the system has none to give, or too little memory for one."""
    if not _fits():
        return None
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # there may be none, or a closed one
            stream.flush()
    caller = os.getpid()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads here: the copy uses nothing of theirs
            pid = os.fork()
    except OSError:
        return None
    if pid == 0:
        limit(0)
        last_words.die_with(caller)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # its caller hears of it
        last_words.leave_no_core()
    return pid


def _fits() -> bool:
    """Whether there is memory for twice what this process has: a copy shares it, until either changes it."""
    try:
        with Path("/proc/self/statm").open(encoding="ascii") as file:
            own = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        with Path("/proc/meminfo").open(encoding="ascii") as file:
            free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):  # no such system
        return True
    return 2 * own < free


def _kill(copies: Collection[int]) -> None:
    for pid in copies:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in copies:
        _wait(pid)


def _wait(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
