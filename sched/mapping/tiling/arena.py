"""A memory of a core that tiles share: who lies where, and who has to leave.

The order of all uses is known, so what is used again last leaves first (Belady, "A study of replacement algorithms for
a virtual-storage computer", 1966), but rather not what was used a moment ago: its words could not be fetched into while
it is in use. Free words are taken round the memory, so that those that have been free for longest are written first.
Tiles may have any size (`Arena`); slots are tiles of one word (`assign`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .problem import DoesNotFit

K = TypeVar("K", bound=Hashable)
#: The next use of what is not used again.
NEVER = 1 << 60
#: Slots that `fewest` leaves an operand at least: one in use, two on their way.
LEAST_SLOTS = 3


@dataclass(slots=True, eq=False)
class _Stay(Generic[K]):
    key: K
    start: int
    words: int
    last: int


class Arena(Generic[K]):
    """`words` words from `base` on. `leave(key, address)` is called for whatever has to leave; `following(key)` gives
    the next use of a key, as a number that grows with time, or NEVER. `name`: of the memory, for errors."""

    def __init__(
        self,
        name: str,
        words: int,
        following: Callable[[K], int],
        leave: Callable[[K, int], object] = lambda key, at: None,
        base: int = 0,
    ) -> None:
        self.name, self.end, self.base = name, base + words, base
        self._following, self._leave = following, leave
        self._stays: list[_Stay[K]] = []  # by address
        self._where: dict[K, _Stay[K]] = {}  # as they came
        self._next = base

    def at(self, key: K, now: int) -> int | None:
        """The address of a key, which is used at `now`; None if it is not here."""
        stay = self._where.get(key)
        if stay is None:
            return None
        stay.last = now
        return stay.start

    def __contains__(self, key: K) -> bool:
        return key in self._where

    def take(self, key: K, words: int, now: int) -> int:
        """Room for a key that is not here. Nothing that is used at `now` leaves for it. Raises DoesNotFit."""
        while (start := self._gap(words)) is None:
            self._leave_one(words, now)
        stay = _Stay(key, start, words, now)
        self._where[key] = stay
        index = next((at for at, other in enumerate(self._stays) if other.start > start), len(self._stays))
        self._stays.insert(index, stay)
        self._next = start + words
        return start

    def free(self, key: K) -> None:
        """A key is not needed any more."""
        stay = self._where.pop(key)
        self._stays.remove(stay)

    def _gap(self, words: int) -> int | None:
        """The first free words from where the last ones were taken, round the memory."""
        first: int | None = None
        end, after = self.base, self._next
        for stay in self._stays:
            start = stay.start
            if start > after and start - (end if end > after else after) >= words:
                return max(end, after)
            if first is None and start - end >= words:
                first = end
            end = start + stay.words
        if self.end > after and self.end - max(end, after) >= words:
            return max(end, after)
        return end if first is None and self.end - end >= words else first

    def _leave_one(self, words: int, now: int) -> None:
        """The one that is used again last leaves, of those that were not used just before if there are any; of equal
        ones the one that has not been used for longest, then the largest, then the one that came first."""
        free = [stay for stay in self._where.values() if stay.last < now]
        if not free:
            raise DoesNotFit(
                f"{self.name} is too small: {words} words for a tile, {max(0, self.end - self.base)} in all"
            )
        idle = [stay for stay in free if stay.last < now - 1] or free
        victim = max(idle, key=lambda stay: (self._following(stay.key), -stay.last, stay.words))
        self._leave(victim.key, victim.start)
        self.free(victim.key)


@dataclass
class TileResidency:
    """A tile in a slot from use `first` to use `last`; `free_after`: last use of what lay there before (-1: none)."""

    key: Any
    slot: int
    first: int
    last: int
    free_after: int


def assign(uses: Sequence[tuple[int, Hashable]], slots: int) -> list[TileResidency]:
    """Stays that serve `uses` = (time, key) in order of time with `slots` slots, in order of first use.

    A slot used at the time before is given up only if there is no other, so that the next tile can be fetched
    while the last one is in use. Raises ValueError when one time needs more tiles than there are slots.
    """
    following = [NEVER] * len(uses)
    seen: dict[Hashable, int] = {}
    for index in range(len(uses) - 1, -1, -1):
        time, key = uses[index]
        following[index] = seen.get(key, NEVER)
        seen[key] = time
    upcoming: dict[Hashable, int] = {}
    residencies: list[TileResidency] = []
    here: dict[Hashable, TileResidency] = {}
    left = [-1] * slots  # last use of what lay in a slot before
    arena: Arena[Hashable] = Arena(
        "memory", slots, upcoming.__getitem__, lambda key, slot: left.__setitem__(slot, here[key].last)
    )
    for (time, key), after in zip(uses, following, strict=True):
        upcoming[key] = after
        if arena.at(key, time) is None:
            try:
                slot = arena.take(key, 1, time)
            except DoesNotFit:
                raise ValueError(f"{slots} slots are too few for the tiles used at one time") from None
            here[key] = TileResidency(key, slot, time, time, left[slot])
            residencies.append(here[key])
        here[key].last = time
    return residencies


def fewest(uses: Sequence[tuple[int, Hashable]], slots: int, least: int = LEAST_SLOTS) -> list[TileResidency]:
    """Stays in as few of `slots` slots as do not fetch anything more often, but in `least`, to fetch ahead."""
    most = assign(uses, slots)
    count = least
    while count < slots:
        residencies = assign(uses, count)
        if len(residencies) == len(most):
            return residencies
        count += max(1, count // 3)
    return most
