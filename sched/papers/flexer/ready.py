"""Has the search compiled before anything is searched, and says so: it takes half a minute, once.

`python -m meshloom.sched.papers.flexer.ready` compiles all of it ahead (`make setup` does). What was compiled is
kept (`jit.folder`); processes that need it at the same time wait for the one that compiles.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal

import numpy as np

from meshloom.hw.spec.config import load

from ...mapping.tiling.problem import pose
from ...workload.shapes import parse
from . import jit
from .playing import play
from .policy import OURS, PAPER, PAPER_STATIC, Choice, Kind, Policy
from .tiles import Tiling

#: Says how far that is: so many functions of so many.
Heard = Callable[[int, int], None]
#: What is compiled together: a kind of schedules, or looking ahead (which `make setup` leaves to its first use).
Part = Kind | Literal["ahead"]
#: What this process has already.
_ready: set[Part] = set()
#: A schedule of each part: it takes everything that is ever compiled for it.
_EXAMPLES: dict[Part, tuple[Policy, Choice]] = {
    "flexer": (PAPER, Choice(Tiling(4, 4, 1, 1), "mnk")),
    "static": (PAPER_STATIC, Choice(Tiling(4, 4, 1, 1), "mnk", slots=(1, 1, 1))),
    "nest": (OURS, Choice(Tiling(4, 4, 1, 1), "m", shape=(1, 1))),
    "ahead": (Policy("flexer", lookahead=1), Choice(Tiling(4, 4, 1, 1), "mnk")),
}
KINDS: tuple[Kind, ...] = ("flexer", "static", "nest")


def ready(kind: Part, heard: Heard | None = None) -> None:
    """Compiles, or loads, what searches of a kind, or looking ahead, need.

    `heard` is called while something is compiled, or another process does that.
    """
    kinds: set[Part] = {kind, "nest"}  # all play nests, to begin with
    with _alone(kinds - _ready, heard), jit.hearing(heard or (lambda done, total: None)):
        for each in sorted(kinds - _ready):
            policy, choice = _EXAMPLES[each]
            chip = load("tiny")
            play(pose(parse("conv:8x8x16-16,k3,p1"), chip), chip, choice, policy, np.inf if policy.lookahead else 0.0)
            _ready.add(each)


@contextmanager
def _alone(kinds: set[Part], heard: Heard | None) -> Generator[None]:
    """Lets one process at a time compile; whoever finds that done need not wait."""
    from filelock import FileLock, Timeout

    place = jit.folder()
    missing = place is not None and not all((place / f"{kind}.done").exists() for kind in kinds)
    if place is None or not missing:
        yield
        return
    lock = FileLock(place / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if heard:
            heard(0, 0)
        lock.acquire()
    try:
        yield
        for kind in kinds:
            (place / f"{kind}.done").touch()
    finally:
        lock.release()


def main() -> None:
    """Compiles everything, and says so if there was something to do, or if it cannot be kept."""
    heard: list[int] = []
    place = jit.folder()
    if place is not None and all((place / f"{kind}.done").exists() for kind in KINDS):
        return
    if place is None:
        sys.exit("search: not compiled ahead, nothing can be written where compiled code is kept")
    for kind in KINDS:
        ready(kind, lambda done, total: heard.append(done))
    if heard:
        sys.stdout.write("search for out-of-order schedules: compiled\n")


if __name__ == "__main__":
    main()
