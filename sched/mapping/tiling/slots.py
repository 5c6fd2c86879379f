"""Tiles in a small memory: which slot holds which tile when.

The order in which a static schedule uses its tiles is known, so the best replacement is too: evict what is used again
last (Belady, "A study of replacement algorithms for a virtual-storage computer", 1966).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

_NEVER = 1 << 60
#: Slots that `fewest` leaves an operand at least: one in use, two on their way.
LEAST_SLOTS = 3


@dataclass
class Residency:
    """A tile in a slot from use `first` to use `last`; `free_after`: last use of what lay there before (-1: none)."""

    key: Any
    slot: int
    first: int
    last: int
    free_after: int


def assign(uses: Sequence[tuple[int, Hashable]], slots: int) -> list[Residency]:
    """Stays that serve `uses` = (time, key) in order of time with `slots` slots, in order of first use.

    A slot used at the time before is given up only if there is no other, so that the next tile can be fetched
    while the last one is in use. Raises ValueError when one time needs more tiles than there are slots.
    """
    following = [_NEVER] * len(uses)
    seen: dict[Hashable, int] = {}
    for index in range(len(uses) - 1, -1, -1):
        time, key = uses[index]
        following[index] = seen.get(key, _NEVER)
        seen[key] = time
    residencies: list[Residency] = []
    where: dict[Hashable, tuple[Residency, int]] = {}  # key -> its present stay, its next use
    for index, (time, key) in enumerate(uses):
        held = where.get(key)
        if held is not None:
            held[0].last = time
            where[key] = (held[0], following[index])
            continue
        if len(where) < slots:
            residency = Residency(key, len(where), time, time, -1)
        else:
            free = [(residency, nxt) for residency, nxt in where.values() if residency.last < time]
            if not free:
                raise ValueError(f"{slots} slots are too few for the tiles used at one time")
            idle = [entry for entry in free if entry[0].last < time - 1] or free
            victim, _ = max(idle, key=lambda entry: (entry[1], -entry[0].last))
            del where[victim.key]
            residency = Residency(key, victim.slot, time, time, victim.last)
        where[key] = (residency, following[index])
        residencies.append(residency)
    return residencies


def fewest(uses: Sequence[tuple[int, Hashable]], slots: int, least: int = LEAST_SLOTS) -> list[Residency]:
    """Stays in as few of `slots` slots as do not fetch anything more often, but in `least`, to fetch ahead."""
    most = assign(uses, slots)
    count = least
    while count < slots:
        residencies = assign(uses, count)
        if len(residencies) == len(most):
            return residencies
        count += max(1, count // 3)
    return most
