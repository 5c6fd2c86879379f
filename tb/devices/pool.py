"""Simulators that have started and wait for jobs. To start one takes as long as a hundred small runs.

A simulator is reset before each job, and its DRAM is zeros again. Scratchpads and the cores' memories keep what they
had, as in any batch of jobs: a program that the checker has accepted reads no word there that it has not written. One
that has failed, or whose jobs somebody has stopped reading, is ended and never used again. Those that wait end with
this process, however that ends.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
from collections.abc import Generator, Hashable
from contextvars import ContextVar
from dataclasses import dataclass, field
from multiprocessing.util import Finalize
from pathlib import Path
from typing import IO

from .folders import Claim
from .processes import Answers, stop

#: Simulators that wait in one process: others would hold memory, and a batch of a sweep is of one chip.
_WAITING = 1


@dataclass
class Started:
    """A simulator process that reads jobs from a pipe and answers on another. `numbers`: of its jobs."""

    process: subprocess.Popen[bytes]
    claim: Claim
    answers: Answers
    jobs: IO[str]
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def folder(self) -> Path:
        """Where it runs."""
        return self.claim.folder

    def alive(self) -> bool:
        """Whether it can take a job: it may have been killed, and its folder removed with the cache."""
        return self.process.poll() is None and self.folder.is_dir()

    def end(self, patience: float = 0, keep: bool = False) -> None:
        """Ends it: at once, or when it has done so by itself for `patience` seconds. `keep`: its folder."""
        with contextlib.suppress(OSError):
            self.jobs.close()
        stop(self.process, patience)
        self.answers.close()
        self.claim.release(keep)


class Pool:
    """Simulators that wait for jobs, by what they are (`kind`: see `SimulatedDevice`), `most` of them. For use by
    several threads. A copy of the process (`fork`) begins with none, and has its own from then on."""

    def __init__(self, most: int = _WAITING) -> None:
        self._most, self._owner, self._lock = most, 0, threading.Lock()
        self._waiting: list[tuple[Hashable, Started]] = []

    def _begin(self) -> None:
        """Where this process has not used the pool yet: those that wait are another process's."""
        if self._owner != os.getpid():
            self._owner, self._waiting = os.getpid(), []
            # also in processes that multiprocessing has started, which know nothing of `atexit`
            Finalize(None, self.close, exitpriority=10)

    def take(self, kind: Hashable) -> Started | None:
        """One that waits, which is the caller's from now on; None if there is none."""
        with self._lock:
            self._begin()
            for index in reversed(range(len(self._waiting))):
                if self._waiting[index][0] == kind:
                    simulator = self._waiting.pop(index)[1]
                    if simulator.alive():
                        return simulator
                    simulator.end()
        return None

    def put(self, kind: Hashable, simulator: Started) -> None:
        """Lets one wait. Beyond as many as may, the first is ended."""
        with self._lock:
            self._begin()
            self._waiting.append((kind, simulator))
            surplus = [self._waiting.pop(0)[1] for _ in range(len(self._waiting) - self._most)]
        for each in surplus:
            each.end()

    def close(self) -> None:
        """Ends all that wait. In a copy (`fork`) of the process that started them they are left alone."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if self._owner == os.getpid():
            for _, simulator in waiting:
                simulator.end()


_pool: ContextVar[Pool | None] = ContextVar("pool", default=None)


def current() -> Pool | None:
    """The pool of devices that are opened here and now."""
    return _pool.get()


@contextlib.contextmanager
def pooled(pool: Pool) -> Generator[None]:
    """Devices that are opened inside take their simulators from `pool`, and let them wait there afterwards."""
    before = _pool.set(pool)
    try:
        yield
    finally:
        _pool.reset(before)
