"""Memory management of the scratchpad: where a tile is put, and what has to leave for it.

Tiles that a set of operations lacks are placed in three steps: in place of a dead tile of the same size; in the free
run that fits best; and by spilling (Algorithm 2, or one of the other policies). Blocks have variable sizes and explicit
addresses. Source: Min, Kwon, Egger, "Flexer" (CGO 2023), section 4.1. What the paper's Algorithm 2 leaves open or
misplaces is decided here: `pick` is reset for each sequence, a sequence ends with the first block that makes it large
enough, tiles that the set needs interrupt it, and free or dead blocks in it cost nothing.
"""

from __future__ import annotations

import numpy as np

from ...support.records import Table
from .jit import compiled, inner
from .state import Array, BufferTile, Segment

#: Policies: Algorithm 2; Table 2's "first-fit spill" and "small spill"; ours, for a sequence of sets that is known:
#: what is needed again last leaves first.
FRAGMENTATION, FIRST_FIT, SMALL, FUTURE = range(4)
#: What a word costs that is spilled, divided by the number of sets until it is needed again.
_NEAR = 1 << 20
_NEVER = 1 << 60


@inner
def _replace(spm: Table[Segment], time: Array, count: int, first: int, last: int, size: int, tile: int) -> int:
    """Segments first..last become `tile` with `size` rows, and what is left over a free segment; how many there are."""
    total, latest = 0, 0.0
    for index in range(first, last + 1):
        total += spm[index].rows
        latest = max(latest, time[index])
    rest = total - size
    if rest and last + 1 < count and spm[last + 1].tile == -1:  # free neighbours become one
        rest += spm[last + 1].rows
        latest = max(latest, time[last + 1])
        last += 1
    shift = (2 if rest else 1) - (last - first + 1)
    if shift < 0:
        for index in range(last + 1, count):
            spm[index + shift].rows, spm[index + shift].tile = spm[index].rows, spm[index].tile
            time[index + shift] = time[index]
    elif shift > 0:
        for index in range(count - 1, last, -1):
            spm[index + shift].rows, spm[index + shift].tile = spm[index].rows, spm[index].tile
            time[index + shift] = time[index]
    spm[first].rows, spm[first].tile, time[first] = size, tile, latest
    if rest:
        spm[first + 1].rows, spm[first + 1].tile, time[first + 1] = rest, -1, latest
    return count + shift


@inner
def _best_fit(
    spm: Table[Segment], time: Array, count: int, tiles: Table[BufferTile], stamp: int, size: int, when: float
) -> int:
    """The first segment of the smallest sufficient run of free and dead ones that nobody reads from cycle `when` on;
    -1: there is none."""
    best, best_size = -1, _NEVER
    index = 0
    while index < count:
        first, total = index, 0
        while index < count:
            held = spm[index].tile
            if time[index] > when or (held >= 0 and (tiles[held].uses > 0 or tiles[held].pin == stamp)):
                break
            total += spm[index].rows
            index += 1
        if size <= total < best_size:
            best, best_size = first, total
        index += 1
    return best


@inner
def _until(spm: Table[Segment], first: int, size: int) -> int:
    """The last segment of the shortest run from `first` on that has `size` rows."""
    last, total = first, spm[first].rows
    while total < size:
        last += 1
        total += spm[last].rows
    return last


@inner
def _victims(
    spm: Table[Segment], count: int, tiles: Table[BufferTile], stamp: int, now: int, size: int, policy: int
) -> tuple[int, int]:
    """First and last segment of the sequence to spill; (-1, -1) if tiles that are needed leave no room."""
    if policy == FIRST_FIT:
        for index in range(count):
            held = spm[index].tile
            if spm[index].rows >= size and (held < 0 or tiles[held].pin != stamp):
                return index, index
    best_first, best_last, best_major, best_minor = -1, -1, _NEVER, _NEVER
    for first in range(count):
        total, cost = 0, 0
        for last in range(first, count):
            held = spm[last].tile
            if held >= 0:
                if tiles[held].pin == stamp:
                    break
                if policy != FUTURE:
                    cost += spm[last].rows * tiles[held].uses
                elif tiles[held].uses > 0:
                    cost += spm[last].rows * _NEAR // max(1, tiles[held].following - now)
            total += spm[last].rows
            if total >= size:
                if policy == FIRST_FIT:
                    return first, last
                major, minor = total - size, cost
                if policy == FUTURE:
                    major, minor = cost, total - size
                if (
                    major < best_major
                    or (major == best_major and minor < best_minor)
                    or (major == best_major and minor == best_minor and last - first < best_last - best_first)
                ):
                    best_first, best_last, best_major, best_minor = first, last, major, minor
                break
    return best_first, best_last


@inner
def _smallest(spm: Table[Segment], count: int, tiles: Table[BufferTile], stamp: int) -> int:
    """The segment of the smallest live tile that may leave; -1: there is none."""
    best = -1
    for index in range(count):
        held = spm[index].tile
        if (
            held >= 0
            and tiles[held].pin != stamp
            and tiles[held].uses > 0
            and (best < 0 or spm[index].rows < spm[best].rows)
        ):
            best = index
    return best


@inner
def _in_place(spm: Table[Segment], time: Array, count: int, tiles: Table[BufferTile], stamp: int, size: int) -> int:
    """The segment of a dead tile of exactly this size, of several the one that is read no more first; -1: none."""
    best = -1
    for index in range(count):
        held = spm[index].tile
        dead = held >= 0 and spm[index].rows == size and tiles[held].uses == 0 and tiles[held].pin != stamp
        if dead and (best < 0 or time[index] < time[best]):
            best = index
    return best


@compiled
def place(
    spm: Table[Segment], time: Array, count: int, tiles: Table[BufferTile], stamp: int, now: int, tiles_to_place: Array,
    missing: int, policy: int, when: float, gone: Array,
) -> tuple[int, int]:  # fmt: skip
    """Places the first `missing` tiles of `tiles_to_place`, which it uses up, in `count` segments.

    Live tiles that have to leave are listed in `gone`; returns how many segments there are then, and how many tiles
    leave, or -1 if it cannot be done. Tiles with a PIN of `stamp` stay. `now`: number of the set, for FUTURE. `when`:
    the cycle in which loads could begin; a dead tile that a core still reads then is replaced only if no idle rows
    fit, so that loads overlap with the copies of what was loaded before.
    """
    lost = 0
    left = 0
    for number in range(missing):  # in place of dead tiles of the same size, unless that would delay the load
        tile = tiles_to_place[number]
        size = tiles[tile].height
        at, idle = _in_place(spm, time, count, tiles, stamp, size), -1
        if at >= 0 and time[at] > when:
            idle = _best_fit(spm, time, count, tiles, stamp, size, when)
        if idle >= 0:
            count = _replace(spm, time, count, idle, _until(spm, idle, size), size, tile)
        elif at >= 0:
            spm[at].tile = tile
        else:
            tiles_to_place[left] = tile
            left += 1
    missing, left = left, 0
    for number in range(missing):  # where it fits best
        tile = tiles_to_place[number]
        size = tiles[tile].height
        first = _best_fit(spm, time, count, tiles, stamp, size, np.inf)
        if first >= 0:
            count = _replace(spm, time, count, first, _until(spm, first, size), size, tile)
        else:
            tiles_to_place[left] = tile
            left += 1
    for number in range(left):  # by spilling
        tile = tiles_to_place[number]
        size = tiles[tile].height
        if policy == SMALL:  # the smallest tile again and again, until a run is large enough
            first = _best_fit(spm, time, count, tiles, stamp, size, np.inf)
            while first < 0:
                victim = _smallest(spm, count, tiles, stamp)
                if victim < 0:
                    return count, -1
                gone[lost] = spm[victim].tile
                lost += 1
                spm[victim].tile = -1
                first = _best_fit(spm, time, count, tiles, stamp, size, np.inf)
            last = _until(spm, first, size)
        else:
            first, last = _victims(spm, count, tiles, stamp, now, size, policy)
            if first < 0:
                return count, -1
            for index in range(first, last + 1):
                held = spm[index].tile
                if held >= 0 and tiles[held].uses > 0:
                    gone[lost] = held
                    lost += 1
        count = _replace(spm, time, count, first, last, size, tile)
    return count, lost
