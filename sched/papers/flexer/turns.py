"""Tasks side by side whose results are as if a fixed rule had done them one after the other.

Results are taken in the order of the tasks, whoever ends first. What a task may know of those before it is fixed, too:
the results of so many, `seen`, be there more or not. So neither the number of threads nor their speed decides
anything; a task merely waits until it may begin. The first tasks, from whose results the others learn most, see nearly
all before them; the further on, the more may be under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

R = TypeVar("R")
#: Tasks under way at most, and tasks after which one more may be.
WINDOW, RAMP = 16, 4


def seen(position: int) -> int:
    """Number of first tasks whose results a task knows, by its position."""
    return position + 1 - min(WINDOW, 1 + position // RAMP)


def in_turn(
    first: int,
    end: int,
    threads: int,
    begin: Callable[[int], Callable[[], R] | None],
    take: Callable[[int, R | None], bool],
    halt: Callable[[], None],
) -> None:
    """Does the tasks first..end.

    `begin(position)`: what a task has to do, None: nothing; called when the results of `seen(position)` tasks or more
    have been taken, by the thread that called this. So is `take(position, result)`, in the order of positions, which
    says whether to go on. Whatever ends this, no task is under way afterwards; `halt` asks those that are to be brief,
    because nobody takes what they find.
    """
    if threads == 1:
        for position in range(first, end):
            task = begin(position)
            if not take(position, task() if task else None):
                return
        return
    begun, waiting = first, deque[Future[R] | None]()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for next_position in range(first, end):
                while begun < end and seen(begun) <= next_position:
                    task = begin(begun)
                    waiting.append(pool.submit(task) if task else None)
                    begun += 1
                future = waiting.popleft()
                if not take(next_position, future.result() if future else None):
                    return
        finally:
            halt()
            pool.shutdown(wait=True, cancel_futures=True)
