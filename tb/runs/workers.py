"""Worker processes that prepare workloads and report their progress to their parent."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from meshloom.sched.support.last_words import die_with
from meshloom.sched.support.limits import Guard, guard, guarded
from meshloom.sched.support.processes import share

from ..results.events import Stage

T = TypeVar("T")
#: Seconds between two progress reports of a worker, and between two reads of them by the parent.
EVERY = 0.2
#: Characters of a report. A message must fit into one atomic write to a pipe, so that workers need no lock.
_MOST = 400
_parent: Connection | None = None
_messages = 0.0


def report_progress(workload: str, what: str) -> None:
    """Reports the progress of a worker process. Drops a report that follows the last too soon, or that finds the pipe
    full because the parent is busy: a worker never waits."""
    global _messages
    if _parent is not None and time.monotonic() - _messages > EVERY and select.select([], [_parent], [], 0)[1]:
        _messages = time.monotonic()
        _parent.send(Stage(workload=workload[:_MOST], what=what[:_MOST], passing=True))


def report_search(state: Any) -> None:
    """The same for a search: `layer`, `done`, `total`, and the `best` so far; or that it is being compiled."""
    if state.compiling:
        far = f": {state.done} of {state.total} functions" if state.total else ", in another process"
        report_progress(state.layer, f"compiling the search, once{far}")
        return
    best = f"; best so far {state.best.cycles:,.0f} cycles" if state.best is not None else ""
    report_progress(state.layer, f"{state.done:,} of {state.total:,} tilings searched{best}")


def _begin(parent: Connection, by: Guard, count: int) -> None:
    """Ignores Ctrl-C, which the parent handles by stopping its workers, and ends when the parent does. `by`: what
    schedulers are held to; `count`: how many workers share the processors."""
    global _parent
    die_with(os.getppid())
    share(count)
    guarded(by).__enter__()  # as long as the process lives
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _parent = parent


class Workers:
    """A pool of worker processes."""

    def __init__(self, pool: ProcessPoolExecutor, messages: Connection) -> None:
        self._pool, self._messages = pool, messages

    def submit(self, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Makes a worker call a function."""
        return self._pool.submit(function, *arguments)

    def result(self, future: Future[Any], on_event: Callable[[Stage], None]) -> Any:
        """The result of a worker; meanwhile, forwards the reports of all workers. Raises what the worker raised."""
        while True:
            ready = wait([future], EVERY).done
            while self._messages.poll():
                on_event(self._messages.recv())
            if ready:
                return future.result()


@contextmanager
def workers(count: int) -> Generator[Workers]:
    """Worker processes. Ends them when their use ends early, because a network may take them minutes."""
    others = set(multiprocessing.active_children())
    messages, heard = multiprocessing.Pipe(duplex=False)
    pool = ProcessPoolExecutor(max_workers=count, initializer=_begin, initargs=(heard, guard(), count))
    with messages, heard, pool:
        try:
            yield Workers(pool, messages)
        except BaseException:
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
