"""Worker processes that prepare workloads, and tell their parent how far they are."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing.queues import SimpleQueue
from typing import Any, TypeVar

from .results import Stage

T = TypeVar("T")
#: Seconds between two stages that a worker tells of, and between two looks at what they have told.
EVERY = 0.2
_queue: SimpleQueue[Stage] | None = None
_told = 0.0


def tell(workload: str, what: str) -> None:
    """Says, in a worker process, how far it is; what comes too soon after the last is not told."""
    global _told
    if _queue is not None and time.monotonic() - _told > EVERY:
        _told = time.monotonic()
        _queue.put(Stage(workload=workload, what=what, passing=True))


def tell_search(told: Any) -> None:
    """The same of a search: `layer`, `done`, `total`, and the `best` so far."""
    best = f"; best so far {told.best.cycles:,.0f} cycles" if told.best is not None else ""
    tell(told.layer, f"{told.done:,} of {told.total:,} tilings searched{best}")


def _begin(queue: SimpleQueue[Stage]) -> None:
    """Ctrl-C is the parent's business; it stops its workers."""
    global _queue
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _queue = queue


class Workers:
    """A pool of worker processes."""

    def __init__(self, pool: ProcessPoolExecutor, told: SimpleQueue[Stage]) -> None:
        self._pool, self._told = pool, told

    def submit(self, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Has a worker call a function."""
        return self._pool.submit(function, *arguments)

    def result(self, future: Future[Any], on_event: Callable[[Stage], None]) -> Any:
        """What a worker made; until then, hands on what they all tell. Raises what it raised."""
        while True:
            ready = wait([future], EVERY).done
            while not self._told.empty():
                on_event(self._told.get())
            if ready:
                return future.result()


@contextmanager
def workers(count: int) -> Iterator[Workers]:
    """Worker processes. Whatever ends their use early ends them too: a network may take them minutes."""
    others = set(multiprocessing.active_children())
    told: SimpleQueue[Stage] = multiprocessing.get_context().SimpleQueue()
    with ProcessPoolExecutor(max_workers=count, initializer=_begin, initargs=(told,)) as pool:
        try:
            yield Workers(pool, told)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
