"""Among how many processes of this program the machine is divided, for whoever could use more of it."""

from __future__ import annotations

import os

#: Environment variable that says how many processes a search may use, its own among them; 0: as many as pay.
SEARCH_PROCESSES = "MESHLOOM_SEARCH_PROCESSES"
_sharers = 1
_single = False


def share(count: int) -> None:
    """This process is one of so many that work side by side."""
    global _sharers
    _sharers = count


def stay_single() -> None:
    """This process keeps to one processor, and begins no others."""
    global _single
    _single = True


def is_single() -> bool:
    """Whether this process keeps to one processor, whatever a user has set."""
    return _single


def processors() -> int:
    """How many processors this process may keep busy, 1 at least."""
    return 1 if _single else max(1, len(os.sched_getaffinity(0)) // _sharers)
