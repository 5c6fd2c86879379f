"""A session: a chip that runs programs as they are launched. The timeline model and the RTL are driven alike.

Whoever drives a session launches programs into free slots on free cores, and advances it to the next completion, or to
the cycle of its own next event (an arrival, say), whichever is first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Cause, Unit

from ..program.program import Program


class SessionError(ValueError):
    """A launch, or a wait, that a session cannot accept; the message names the place and the fix."""


@dataclass(frozen=True)
class Launch:
    """A program to start. `program`: placed on its cores, in its window of DRAM; `slot`: a free one, which the last
    SYNC of each of its streams names. `follows`: it is the successor of the program in the slot, and begins when that
    has ended."""

    slot: int
    program: Program
    follows: bool = False


@dataclass(frozen=True)
class Fault:
    """Why a program was cancelled: `cause`, and the instruction (`tag`) of a unit of a tile that raised it; `value`:
    what was wrong."""

    cause: Cause
    tile: int
    unit: Unit
    tag: int
    value: int


@dataclass(frozen=True)
class Completion:
    """The program in `slot` has ended: in `cycle` the host took the last of its streams' end-SYNCs. If it has a
    successor, that runs in the slot from then on. `fault`: it was cancelled instead, and its successor with it (RTL
    only)."""

    slot: int
    cycle: int
    fault: Fault | None = None


class Session(Protocol):
    """A chip that runs programs. Deterministic: the same calls lead to the same completions.

    `now`: the cycle reached.
    """

    @property
    def chip(self) -> ChipConfig: ...

    @property
    def now(self) -> int: ...

    def launch(self, launch: Launch, at: int) -> None:
        """The launch queue takes a launch in cycle `at` > `now`; cycles do not descend from one launch to the next.

        One that `follows` waits beside the queue, for the end of the program in its slot and for cycle `at`, and goes
        before the queue, the lowest slot first. Its cores are those of that program, or free, and are kept for it.
        Where no program runs in the slot it is a launch like others.

        Raises SessionError if the slot or a core is not free, and if the slot has a successor already.
        """
        ...

    def advance(self, until: int | None) -> tuple[Completion, ...]:
        """Goes on to the end of the first cycle with a completion, or to the end of cycle `until`; then none are
        returned.

        Raises SessionError if `until` is None and no program runs, or none can ever complete.
        """
        ...
