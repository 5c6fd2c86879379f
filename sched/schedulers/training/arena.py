"""A memory of a core that tiles of any size share: who lies where, and who has to leave.

The order of all uses is known, so what is used again last leaves first (Belady 1966), but rather not what was used
a moment ago: its words could not be fetched into while it is in use. Free words are taken round the memory, so that
those that have been free for longest are written first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...mapping.problem import DoesNotFit
from ...mapping.tiling import Range

#: What lies somewhere: the name of a tensor, channels, pixels.
Key = tuple[str, Range, Range]
#: The next use of what is not used again.
NEVER = 1 << 60


@dataclass(slots=True, eq=False)
class _Stay:
    key: Key
    start: int
    words: int
    last: int


class Arena:
    """`words` words from `base` on. `leave(key, address)` is called for whatever has to leave; `following(key)` gives
    the next use of a key, as a number that grows with time, or NEVER. `name`: of the memory, for errors."""

    def __init__(
        self,
        name: str,
        words: int,
        following: Callable[[Key], int],
        leave: Callable[[Key, int], None],
        base: int = 0,
    ) -> None:
        self.name, self.end, self.base = name, base + words, base
        self._following, self._leave = following, leave
        self._stays: list[_Stay] = []  # by address
        self._where: dict[Key, _Stay] = {}
        self._next = base

    def at(self, key: Key, now: int) -> int | None:
        """The address of a key, which is used at `now`; None if it is not here."""
        stay = self._where.get(key)
        if stay is None:
            return None
        stay.last = now
        return stay.start

    def __contains__(self, key: Key) -> bool:
        return key in self._where

    def take(self, key: Key, words: int, now: int) -> int:
        """Room for a key that is not here. Nothing that is used at `now` leaves for it. Raises DoesNotFit."""
        while (start := self._gap(words)) is None:
            self._leave_one(words, now)
        stay = _Stay(key, start, words, now)
        self._where[key] = stay
        index = next((at for at, other in enumerate(self._stays) if other.start > start), len(self._stays))
        self._stays.insert(index, stay)
        self._next = start + words
        return start

    def free(self, key: Key) -> None:
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
        """The one that is used again last leaves, of those that were not used just before if there are any."""
        free = [stay for stay in self._stays if stay.last < now]
        if not free:
            raise DoesNotFit(
                f"{self.name} is too small: {words} words for a tile, {max(0, self.end - self.base)} in all"
            )
        idle = [stay for stay in free if stay.last < now - 1] or free
        victim = max(idle, key=lambda stay: (self._following(stay.key), -stay.last, stay.words))
        self._leave(victim.key, victim.start)
        self.free(victim.key)
