"""Happens-before: what is ordered in *every* timing, as vector clocks.

Events belong to chains, each totally ordered by the hardware:

    FRONT  (stream)                  its instructions leave the front end in order; a SYNC posts in that cycle
    UNIT   (stream)                  its own MOVEs read, or its GEMMs or VECs compute, in order; completion posts
    PULL   (stream, executing tile)  its forwarded MOVEs read there in order; completion posts there
    DELIVERED (stream, executing tile, receiving tile, route)  its words arrive there in order; the notify posts

Words that take different routes between the same two tiles (another path or virtual channel) may overtake each other.

The front end hands an instruction to its unit and continues, so a SYNC after a GEMM does **not** wait for that GEMM.

A wait that raises a stream's consumption of a semaphore to C units is ordered after an event exactly if the posts that
can occur without it (those neither after the event nor after the wait itself) add up to less than C. With one chain of
posts that means: after the post with which their sum reaches C. With several chains, take the clocks of all posts that
need not come after the wait; component by component, the C-th smallest is what must have happened. Which posts come
after the wait depends in turn on the clocks. So start with the clocks of the token run, and weaken them until their
claims follow from the clocks themselves. That is sound: were a claim "e before w" the first to fail in some run, then w
would have had its C units from posts of which one comes after e or after w by an earlier failure, and there is none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import cast

import numpy as np
import numpy.typing as npt

from meshloom.hw.spec.isa import Opcode

from ..program.names import Names
from .accesses import Access
from .static import DecodedInstruction
from .tokens import Poster, Semaphore, posts_of

Clock = npt.NDArray[np.int32]
#: Whether a mover's front end holds its stream until the last word of an own MOVE has been sent. It does not: a SYNC, a
#: FETCH or a forwarded MOVE after an own MOVE is issued while that MOVE may still be reading.
MOVER_BLOCKS = False


class Kind(IntEnum):
    """Kind of a chain; see the module docstring."""

    FRONT = 0
    UNIT = 1
    PULL = 2
    DELIVERED = 3


@dataclass
class Posts:
    """Posts of one chain to one semaphore: running sum of units, tick of each, clock of each (from a pass)."""

    sums: list[int] = field(default_factory=list[int])
    ticks: list[int] = field(default_factory=list[int])
    clocks: list[Clock] = field(default_factory=list[Clock])

    def first_after(self, chain: int, tick: int, low: int = 0) -> int:
        """Index, from `low` on, of the first post known to come after `tick` of `chain`."""
        return bisect_left(self.clocks, True, low, key=lambda clock: clock[chain] >= tick)


@dataclass(frozen=True)
class TimedAccess:
    """An access with its place in the order: `begin` is the clock at its start, and it ends at `tick` of `chain`."""

    stream: int
    position: int
    access: Access
    begin: Clock
    chain: int
    tick: int


@dataclass(frozen=True)
class _Plan:
    """The effect of one instruction on the chains (-1 = none)."""

    stream: int
    position: int
    wait: Semaphore | None
    need: int  # cumulative consumption of the semaphore, this wait included
    consumed: int  # ... before this wait
    run: int
    run_tick: int
    land: int
    land_tick: int
    posts: tuple[tuple[Poster, Semaphore, int], ...]  # with the index among its chain's posts to the semaphore
    starts: int


class Order:
    """Vector clocks of a program whose token run took the instructions in `order`.

    `passes` counts the passes needed. After construction: `events()`, `end` (clock of END), `last` (last tick of each
    chain with its instruction), `posts` and `waits` per semaphore.
    """

    def __init__(
        self, steps: Sequence[Sequence[DecodedInstruction]], order: Sequence[tuple[int, int]], names: Names
    ) -> None:
        self.steps, self.names = steps, names
        self.chains: dict[tuple[int, ...], int] = {}
        self.last: list[tuple[int, int, int]] = []  # per chain: last tick, stream, position
        self.posts: dict[Semaphore, dict[int, Posts]] = {}
        self.waits: dict[Semaphore, list[_Plan]] = {}
        for stream in range(len(steps)):
            self._chain((Kind.FRONT, stream))
        self._plans = [self._plan(stream, position) for stream, position in order]
        self._begins: list[Clock] = []
        self._land_begins: list[Clock] = []
        self.end: Clock = np.zeros(len(self.chains), np.int32)
        self.passes = 0
        claimed: list[Clock] | None = None
        while True:
            claims = self._pass(claimed is not None)
            self.passes += 1
            if not claims or (claimed and all(map(np.array_equal, claims, claimed))):
                break
            claimed = claims

    def events(self) -> Iterator[TimedAccess]:
        """All accesses, in a possible order."""
        for plan, begin, land_begin in zip(self._plans, self._begins, self._land_begins, strict=True):
            for access in self.steps[plan.stream][plan.position].accesses:
                if plan.land >= 0 and access.write:
                    yield TimedAccess(plan.stream, plan.position, access, land_begin, plan.land, plan.land_tick)
                else:
                    yield TimedAccess(plan.stream, plan.position, access, begin, plan.run, plan.run_tick)

    def _own(self, plan: _Plan) -> bool:
        tile = int(self.names.streams[plan.stream].tile)
        return self.steps[plan.stream][plan.position].fields["src_tile"] == tile

    # -- the chains -------------------------------------------------------------------------------------------

    def _chain(self, key: tuple[int, ...]) -> int:
        if key not in self.chains:
            self.chains[key] = len(self.chains)
            self.last.append((0, key[1], 0))
        return self.chains[key]

    def _tick(self, key: tuple[int, ...], stream: int, position: int) -> tuple[int, int]:
        chain = self._chain(key)
        tick = self.last[chain][0] + 1
        self.last[chain] = (tick, stream, position)
        return chain, tick

    def _plan(self, stream: int, position: int) -> _Plan:
        step = self.steps[stream][position]
        fields, tile = step.fields, int(self.names.streams[stream].tile)
        front, front_tick = self._tick((Kind.FRONT, stream), stream, position)
        run = run_tick = land = land_tick = starts = -1
        # the end of a FETCH is irrelevant unless it posts
        if step.opcode in (Opcode.MOVE, Opcode.GEMM, Opcode.VEC) or (step.opcode is Opcode.FETCH and fields["post_n"]):
            at = fields["src_tile"] if step.opcode is Opcode.MOVE else tile
            key = (Kind.UNIT, stream) if at == tile else (Kind.PULL, stream, at)
            run, run_tick = self._tick(key, stream, position)
            if step.opcode is Opcode.MOVE:
                channel, tiles = step.route or (0, ())
                route = (Kind.DELIVERED, stream, at, fields["dst_tile"], channel, *tiles)
                land, land_tick = self._tick(route, stream, position)
        if step.opcode is Opcode.FETCH:
            goal = (fields["tile"], fields["unit"])
            starts = next(i for i, s in enumerate(self.names.streams) if (int(s.tile), int(s.unit)) == goal)
        posts: list[tuple[Poster, Semaphore, int]] = []
        places = {Poster.FRONT: (front, front_tick), Poster.UNIT: (run, run_tick), Poster.DELIVERED: (land, land_tick)}
        for who, semaphore, count in posts_of(step, tile):
            # END completes nothing that could still be waited for
            chain, tick = places[who] if places[who][0] >= 0 else (front, front_tick)
            chain_posts = self.posts.setdefault(semaphore, {}).setdefault(chain, Posts())
            posts.append((who, semaphore, len(chain_posts.sums)))
            chain_posts.sums.append(count + (chain_posts.sums[-1] if chain_posts.sums else 0))
            chain_posts.ticks.append(tick)
        wait, need, consumed = None, 0, 0
        if fields["wait_n"]:
            wait = (tile, fields["wait_sem"])
            earlier = self.waits.setdefault(wait, [])
            consumed = earlier[-1].need if earlier else 0
            need = consumed + fields["wait_n"]
        plan = _Plan(stream, position, wait, need, consumed, run, run_tick, land, land_tick, tuple(posts), starts)
        if wait is not None:
            self.waits[wait].append(plan)
        return plan

    # -- the clocks -------------------------------------------------------------------------------------------

    def _pass(self, again: bool) -> list[Clock]:
        """Computes all clocks once. Returns those of waits on posts of several chains."""
        size = len(self.chains)
        zero = np.zeros(size, np.int32)
        clocks: list[Clock] = [zero] * size
        self._begins, self._land_begins = [], []
        fresh: dict[Semaphore, dict[int, list[Clock]]] = {
            semaphore: {chain: [] for chain in by_chain} for semaphore, by_chain in self.posts.items()
        }
        claims: list[Clock] = []
        for plan in self._plans:
            front = plan.stream  # the chains of the front ends come first
            clock = clocks[front].copy()
            if plan.wait is not None:
                by_chain = fresh[plan.wait]
                if len(by_chain) == 1:
                    ((chain, chain_clocks),) = by_chain.items()
                    index = bisect_left(self.posts[plan.wait][chain].sums, plan.need)
                    np.maximum(clock, chain_clocks[index], out=clock)
                else:
                    self._join(plan, clock, by_chain, again)
                    claims.append(clock)
            clock[front] = plan.position + 1
            clocks[front] = clock
            begin = run_clock = land_clock = land_begin = clock
            if plan.run >= 0:
                begin = np.maximum(clock, clocks[plan.run])
                run_clock = begin.copy()
                run_clock[plan.run] = plan.run_tick
                clocks[plan.run] = run_clock
                if MOVER_BLOCKS and self.steps[plan.stream][plan.position].opcode is Opcode.MOVE and self._own(plan):
                    clocks[front] = np.maximum(clock, run_clock)
            if plan.land >= 0:
                land_begin = np.maximum(begin, clocks[plan.land])
                land_clock = np.maximum(land_begin, run_clock)
                land_clock[plan.land] = plan.land_tick
                clocks[plan.land] = land_clock
            self._begins.append(begin)
            self._land_begins.append(land_begin)
            if plan.starts >= 0:
                clocks[plan.starts] = np.maximum(clocks[plan.starts], clock)
            for who, semaphore, _ in plan.posts:
                chain = (front, plan.run if plan.run >= 0 else front, plan.land)[who]
                fresh[semaphore][chain].append((clock, run_clock, land_clock)[who])
        self.end = clocks[0]
        for semaphore, by_chain in fresh.items():
            for chain, chain_clocks in by_chain.items():
                self.posts[semaphore][chain].clocks = chain_clocks
        return claims

    def _join(self, plan: _Plan, clock: Clock, clocks: dict[int, list[Clock]], again: bool) -> None:
        """Raises the clock of a wait to what its posts, from several chains, have in common."""
        need = plan.need
        windows: list[tuple[Posts, list[Clock], int, int]] = []
        for chain, posts in self.posts[cast(Semaphore, plan.wait)].items():
            low = bisect_right(posts.ticks, clock[chain])  # these have occurred in any case
            high = posts.first_after(plan.stream, plan.position + 1, low) if again else len(clocks[chain])
            if low < high:
                windows.append((posts, clocks[chain], low, high))
            need -= posts.sums[low - 1] if low else 0
        if need <= 0:
            return
        rows: list[Clock] = []
        weights: list[int] = []
        for posts, mine, low, high in windows:
            # clocks rise along a chain, so only its first `need` units can hold the `need` smallest
            base = posts.sums[low - 1] if low else 0
            for i in range(low, min(high, bisect_left(posts.sums, base + need) + 1)):
                rows.append(mine[i] if i < len(mine) else posts.clocks[i])
                weights.append(posts.sums[i] - (posts.sums[i - 1] if i else 0))
        if need <= min(weights):
            picked = np.minimum.reduce(rows)
        else:
            table = np.stack(rows)
            ranks = np.argsort(table, axis=0, kind="stable")
            enough = np.cumsum(np.array(weights)[ranks], axis=0) >= need
            row = np.argmax(enough, axis=0)
            picked = np.take_along_axis(table, ranks, axis=0)[row, np.arange(table.shape[1])]
        np.maximum(clock, picked, out=clock)
