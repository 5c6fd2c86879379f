"""Among how many processes of this program the machine is divided, for whoever could use more of it."""

from __future__ import annotations

import os

#: Environment variable that says how many processes a search may use, its own among them; 0: as many as pay.
SEARCH_PROCESSES = "MESHLOOM_SEARCH_PROCESSES"
_sharers = 1


def share(count: int) -> None:
    """This process is one of so many that work side by side."""
    global _sharers
    _sharers = count


def alone() -> None:
    """This process keeps to one processor."""
    share(len(os.sched_getaffinity(0)))


def processors() -> int:
    """How many processors this process may keep busy, 1 at least."""
    return max(1, len(os.sched_getaffinity(0)) // _sharers)
