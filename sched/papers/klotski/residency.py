"""What lies where in one memory of a core, along the order of micro-ops (*positions*): operands, results, sums.

Room is given to what comes. When the uses of everything are known, the best to give up is what is used again last
(Belady, "A study of replacement algorithms for a virtual-storage computer", 1966); among words that nobody needs any
more, the best to take are those free for longest: whoever writes them next has to wait for their last reader. An
`Arena` (`mapping.tiling.arena`) decides otherwise: tiles leave one by one until words are free somewhere, at any price.
Here the neighbours that are needed last leave together, or nobody, if all are needed sooner than what comes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...mapping.tiling.arena import NEVER

#: Nobody has used these words yet.
_FRESH = -1


@dataclass(eq=False)
class HeldWords:
    """`words` words from word `at` on, until their last use. `uses`: positions that read or write them, rising."""

    at: int
    words: int
    uses: Sequence[int]
    gone: bool = field(default=False)

    def next_use(self, position: int) -> int:
        """The first use behind a position; NEVER if there is none."""
        index = bisect_right(self.uses, position)
        return self.uses[index] if index < len(self.uses) else NEVER


@dataclass
class _Segment:
    """Words [start, end) that one residency has, or none; `freed`: position of the last use of what was there."""

    start: int
    end: int
    residency: HeldWords | None
    freed: int


class Memory:
    """The words of one memory of a core."""

    def __init__(self, words: int) -> None:
        self.words = words
        self._segments = [_Segment(0, words, None, _FRESH)]
        self._next = NEVER  # no residency has its last use before this position, which may be too early

    def take(
        self, words: int, uses: Sequence[int], position: int, least: int = NEVER
    ) -> tuple[HeldWords, list[HeldWords]] | None:
        """A residency of so many words from `position` on, and those that are given up for it.

        Nothing is given up that is used at `position`, or again before position `least` or at it: NEVER if it is
        needed at any price. None if there is no room.
        """
        self._release(position)
        place = self._best(words, position)
        if place is None:
            return None
        soonest, at = place
        if soonest < NEVER and least < NEVER and soonest <= least:
            return None
        residency = HeldWords(at, words, uses)
        return residency, self._put(residency, position)

    def drop(self, residency: HeldWords, position: int) -> None:
        """Ends a residency; its words are in use up to `position`."""
        for segment in self._segments:
            if segment.residency is residency:
                segment.residency, segment.freed = None, position
        residency.gone = True

    def _release(self, position: int) -> None:
        """Frees what has had its last use."""
        if self._next >= position:
            return
        soonest = NEVER
        for segment in self._segments:
            residency = segment.residency
            if residency is not None:
                last = residency.uses[-1] if residency.uses else _FRESH
                if last < position:
                    segment.residency, segment.freed = None, last if residency.uses else position
                    residency.gone = True
                elif last < soonest:
                    soonest = last
        self._next = soonest

    def _best(self, words: int, position: int) -> tuple[int, int] | None:
        """Where words are taken at the least cost, from the beginning of a segment on: the next use of what is given up
        for them (NEVER: nothing), and the first word. Of equal ones that where the last use of the others is longest
        ago, then where they fit best. None if all are in use."""
        at = self._free(words)
        return (NEVER, at) if at >= 0 else self._occupied(words, position)

    def _free(self, words: int) -> int:
        """The same where nothing need be given up; -1 if there is no such place."""
        segments = self._segments
        at, least, rest = -1, 0, 0
        for first, segment in enumerate(segments):
            if segment.residency is not None:
                continue
            end = segment.start + words
            if end > self.words:
                break
            latest, last = segment.freed, segment.end
            index = first
            while last < end:
                index += 1
                other = segments[index]
                if other.residency is not None:
                    break
                if other.freed > latest:
                    latest = other.freed
                last = other.end
            if last >= end and (at < 0 or latest < least or (latest == least and last - end < rest)):
                at, least, rest = segment.start, latest, last - end
        return at

    def _occupied(self, words: int, position: int) -> tuple[int, int] | None:
        """The same where something has to be given up."""
        segments = self._segments
        uses = [segment.residency.next_use(position - 1) if segment.residency else NEVER for segment in segments]
        best: tuple[int, int, int] | None = None
        at = -1
        for first, segment in enumerate(segments):
            end = segment.start + words
            if end > self.words:
                break
            soonest, latest, last = NEVER, _FRESH, end
            least = max(position, best[0] - 1) if best else position  # what is used as soon is in use, or dearer
            for index in range(first, len(segments)):
                other = segments[index]
                if other.start >= end:
                    break
                if other.residency is None:
                    if other.freed > latest:
                        latest = other.freed
                elif uses[index] < soonest:
                    soonest = uses[index]
                    if soonest <= least:
                        break
                last = other.end
            if soonest > least:
                cost = soonest, -latest, end - last
                if best is None or cost > best:
                    best, at = cost, segment.start
        return None if best is None else (best[0], at)

    def _put(self, residency: HeldWords, position: int) -> list[HeldWords]:
        """Puts a residency in its place; what had some of it ends, and is returned."""
        at, end = residency.at, residency.at + residency.words
        victims: dict[int, HeldWords] = {}
        for segment in self._segments:
            if segment.residency is not None and segment.start < end and segment.end > at:
                victims[id(segment.residency)] = segment.residency
        for victim in victims.values():
            self.drop(victim, position)
        self._next = min(self._next, residency.uses[-1] if residency.uses else _FRESH)
        segments: list[_Segment] = []
        for segment in self._segments:
            if segment.end <= at or segment.start >= end:
                segments.append(segment)
                continue
            if segment.start == at:  # a residency begins where a segment does
                segments.append(_Segment(at, end, residency, _FRESH))
            if segment.end > end:
                segments.append(_Segment(end, segment.end, None, segment.freed))
        self._segments = segments
        self._merge()
        return list(victims.values())

    def _merge(self) -> None:
        """Neighbours that have been free for as long are one."""
        segments: list[_Segment] = []
        for segment in self._segments:
            last = segments[-1] if segments else None
            if last and last.residency is None and segment.residency is None and last.freed == segment.freed:
                last.end = segment.end
            else:
                segments.append(segment)
        self._segments = segments
