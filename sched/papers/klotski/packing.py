"""Sharing out work among cores: runs of neighbours, then single pieces from hand to hand until no swap helps.

Neighbours in a layer read the same inputs, so a core that does a run of them needs little from elsewhere. Runs alone
leave up to a piece of difference; what is moved or swapped after that evens it out.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Moves and swaps of one sharing at most.
_STEPS = 400


def pack(sizes: Sequence[int], begins: Sequence[int]) -> list[int]:
    """The share (0, 1, ...) of each piece. `sizes`: cycles of the pieces, in an order in which neighbours have much in
    common; `begins`: of each share, the cycle from which on it has time."""
    shares = _runs(sizes, begins)
    ends = list(begins)
    for size, share in zip(sizes, shares, strict=True):
        ends[share] += size
    held: list[list[int]] = [[] for _ in begins]
    for piece, share in enumerate(shares):
        held[share].append(piece)
    for _ in range(_STEPS):
        last = max(range(len(ends)), key=ends.__getitem__)
        swap = _swap(sizes, ends, held, last)
        if swap is None:
            break
        give, take, other = swap
        held[last].remove(give)
        held[other].append(give)
        shares[give] = other
        change = sizes[give]
        if take >= 0:
            held[other].remove(take)
            held[last].append(take)
            shares[take] = last
            change -= sizes[take]
        ends[last] -= change
        ends[other] += change
    return shares


def _runs(sizes: Sequence[int], begins: Sequence[int]) -> list[int]:
    """Runs of pieces that end at about the same time."""
    left, rest = sum(sizes), sorted(begins)
    level = _level(left, rest)
    shares: list[int] = []
    share, end = 0, begins[0]
    for size in sizes:
        while share < len(begins) - 1 and end + size / 2 > level:
            share += 1
            end = begins[share]
        shares.append(share)
        end += size
    return shares


def _level(work: int, begins: Sequence[int]) -> float:
    """When all end if work is shared out evenly; `begins` rising."""
    total = 0
    for count, begin in enumerate(begins, 1):
        total += begin
        level = (work + total) / count
        if count == len(begins) or level <= begins[count]:
            return level
    return 0.0


def _swap(
    sizes: Sequence[int], ends: Sequence[int], held: Sequence[Sequence[int]], last: int
) -> tuple[int, int, int] | None:
    """The piece that the last share gives away, the one that it takes for it (-1: none), and the other share: those
    after which the later of both ends soonest; None if it ends no sooner."""
    best: tuple[int, int] | None = None
    swap: tuple[int, int, int] | None = None
    mine = {sizes[piece]: piece for piece in held[last]}
    for other, end in enumerate(ends):
        room = ends[last] - end
        if other == last or room <= 0:
            continue
        theirs = {0: -1} | {sizes[piece]: piece for piece in held[other]}
        for size, give in mine.items():
            for back, take in theirs.items():
                change = size - back
                if 0 < change < room:
                    key = max(ends[last] - change, end + change), abs(other - last)
                    if best is None or key < best:
                        best, swap = key, (give, take, other)
    return swap
