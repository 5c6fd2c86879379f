"""The same program pulled: a tile asks for its pages when it is their turn, and they come when they can.

What a directory protocol does, at its best: the asking tile knows the nearest holder for nothing, requests never queue
or collide, and the network lets trains pass each other as if each waited at its source for a free way. Whatever the
pulled flow loses here it loses to the round trip and to the order in which requests come.

A directory may know who holds a page, or also who will: to whom it is on its way. That matters where tiles that work in
step ask for the same page at the same time: nobody but its home has it then, whose port has to send it to each of them.
A directory that expects pages sends all but the first to a tile that passes it on when it has come (of all that hold or
expect it, the one from which it would arrive first).

A page goes by dimension order (XY). Memories are caches: pages of tasks that wait or run stay, others leave, the one
used longest ago first; results leave once they have been delivered.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count

import numpy as np

from meshloom.hw.spec.contracts import REQUEST_CYCLES
from meshloom.hw.spec.isa import REQUEST_FLITS
from meshloom.hw.spec.routes import dimension_ordered

from ...routing.hardware import DttError
from ...routing.plan import Settings
from ...routing.planner import mesh_space
from ...routing.program import Program


@dataclass(frozen=True)
class Pulled:
    """How a pulled run went. `begun`: start of each task; `flit_hops`: of data, `request_flit_hops`: of requests."""

    program: Program
    cycles: int
    begun: tuple[int, ...]
    moves: int
    hits: int
    flit_hops: int
    request_flit_hops: int

    @property
    def link_load(self) -> float:
        """Share of all links' cycles that data use."""
        return self.flit_hops / max(1, self.program.mesh.links * self.cycles)


@dataclass
class _Memory:
    """A cache: pages by last use, with how often each is pinned."""

    room: int | None
    pages: OrderedDict[int, int] = field(default_factory=OrderedDict[int, int])
    ready: dict[int, int] = field(default_factory=dict[int, int])
    used: int = 0


class _Run:
    def __init__(self, program: Program, ahead: int, expecting: bool) -> None:
        from ...routing import replay

        self.program, self.ahead, self.mesh = program, ahead, program.mesh
        self.expecting = expecting
        # pages: where they are expected, in which cycle, and by which request
        self.due: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
        self.leaving: defaultdict[int, int] = defaultdict(int)  # cycle until which a tile sends what it was asked for
        self.replay = replay
        self.limit = 1 << 14
        self.space = mesh_space(self.mesh, Settings(), self.limit)
        self.events: list[tuple[int, int, Callable[[int], None]]] = []
        self.order = count()
        self.memories: dict[tuple[int, int], _Memory] = {}
        self.holders: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.queues: defaultdict[int, list[int]] = defaultdict(list)
        self.at: defaultdict[int, int] = defaultdict(int)
        self.asked: defaultdict[int, int] = defaultdict(int)
        self.running: set[int] = set()
        self.missing = [0] * len(program.tasks)
        self.begun = [-1] * len(program.tasks)
        self.waiting: defaultdict[int, list[Callable[[int], None]]] = defaultdict(list)
        self.coming: defaultdict[tuple[int, int], list[Callable[[int], None]]] = defaultdict(list)
        self.full: defaultdict[int, list[Callable[[int], bool]]] = defaultdict(list)
        self.moves = self.hits = self.flit_hops = self.request_flit_hops = self.last = 0
        self.delivers: defaultdict[int, list[int]] = defaultdict(list)
        for number, page in enumerate(program.pages):
            for tile in page.homes:
                self.holders[number][tile] = 0
        for number, task in enumerate(program.tasks):
            if task.delivery:
                self.delivers[task.inputs[0]].append(number)
            else:
                self.queues[task.tile].append(number)

    def when(self, cycle: int, what: Callable[[int], None]) -> None:
        heappush(self.events, (cycle, next(self.order), what))

    def run(self) -> Pulled:
        for tile in self.queues:
            self.ask(tile, 0)
        while self.events:
            cycle, _, what = heappop(self.events)
            self.last = max(self.last, cycle)
            what(cycle)
        undone = [task.name for task, begun in zip(self.program.tasks, self.begun, strict=True) if begun < 0]
        if undone:
            raise DttError(f"pulled: task {undone[0]} never begins; its tile has too little memory for all its pages")
        return Pulled(
            self.program,
            self.last,
            tuple(self.begun),
            self.moves,
            self.hits,
            self.flit_hops,
            self.request_flit_hops,
        )

    # -- asking ---------------------------------------------------------------------------------------------------

    def ask(self, tile: int, cycle: int) -> None:
        """Requests the inputs of as many tasks of a tile as may be asked for."""
        queue = self.queues[tile]
        until = self.at[tile] + (self.ahead if tile in self.running else max(self.ahead, 1))
        while self.asked[tile] < min(until, len(queue)):
            number = queue[self.asked[tile]]
            self.asked[tile] += 1
            task = self.program.tasks[number]
            inputs = dict.fromkeys(task.inputs)
            self.missing[number] = len(inputs) + len(task.outputs) + 1
            for page in task.outputs:
                self.attempt(tile, cycle, partial(self.result_room, number, page))
            for turn, page in enumerate(inputs):
                self.attempt(tile, cycle, partial(self.room, number, page, cycle + turn * REQUEST_FLITS))
            self.delivered(number, cycle)

    def attempt(self, tile: int, cycle: int, what: Callable[[int], bool]) -> None:
        """Tries something now, or when a task of the tile has ended; nobody overtakes who waits for room."""
        if self.full[tile] or not what(cycle):
            self.full[tile].append(what)

    def memory(self, tile: int, region: int) -> _Memory:
        key = tile, region
        if key not in self.memories:
            self.memories[key] = _Memory(self.mesh.capacity.get(key))
        return self.memories[key]

    def result_room(self, task: int, page: int, cycle: int) -> bool:
        """Makes room for a result."""
        one = self.program.tasks[task]
        if not self.reserve(self.memory(one.tile, self.program.pages[page].made_region), one.tile, page):
            return False
        self.delivered(task, cycle)
        return True

    def room(self, task: int, page: int, earliest: int, cycle: int) -> bool:
        """Makes room for an input and requests it, not before `earliest`."""
        cycle = max(cycle, earliest)
        tile = self.program.tasks[task].tile
        memory = self.memory(tile, self.program.pages[page].region)
        if page in memory.pages:
            self.hits += 1
            memory.pages[page] += 1
            memory.pages.move_to_end(page)
            if page in memory.ready:
                self.when(max(cycle, memory.ready[page]), lambda at: self.delivered(task, at))
            else:  # on its way for another task
                self.coming[page, tile].append(lambda at: self.delivered(task, at))
            return True
        if not self.reserve(memory, tile, page):
            return False
        self.moves += 1
        self.request(page, tile, cycle, lambda at: self.arrived(task, page, tile, at))
        return True

    def reserve(self, memory: _Memory, tile: int, page: int) -> bool:
        """Takes room for a page, pinned once, if pages that nobody needs can make it."""
        words = self.program.pages[page].words
        if memory.room is not None:
            idle = [one for one, pins in memory.pages.items() if not pins and one in memory.ready]
            while memory.used + words > memory.room and idle:
                old = idle.pop(0)
                del memory.pages[old], memory.ready[old]
                self.holders[old].pop(tile, None)
                memory.used -= self.program.pages[old].words
            if memory.used + words > memory.room:
                return False
        memory.pages[page] = 1
        memory.used += words
        return True

    def request(self, page: int, tile: int, cycle: int, then: Callable[[int], None]) -> None:
        """Sends a request to the nearest holder; if nobody has the page yet, to who makes it."""
        holders = self.holders[page]
        there = [holder for holder, ready in holders.items() if ready <= cycle] or list(holders)
        if not there:
            self.waiting[page].append(lambda at: self.request(page, tile, at, then))
            return
        ready = {one: holders[one] for one in there}
        if self.expecting:
            ready = {one: due for one, (due, _) in self.due[page].items() if one != tile} | ready
        holder = min(
            ready, key=lambda one: (self.start(one, ready[one], cycle, tile), self.mesh.distance(one, tile), one)
        )
        hops = self.mesh.distance(holder, tile)
        self.request_flit_hops += REQUEST_FLITS * hops
        expected = None if holder in there else self.due[page][holder]
        if self.expecting:
            flits = self.program.pages[page].flits
            self.leaving[holder] = self.start(holder, ready[holder], cycle, tile) + flits
            arrival = self.leaving[holder] + self.mesh.launch + hops + self.mesh.landing
            self.due[page][tile] = arrival, next(self.order)
        self.when(cycle + hops + REQUEST_CYCLES, lambda at: self.send(page, holder, tile, at, then, expected))

    def start(self, holder: int, ready: int, cycle: int, tile: int) -> int:
        """When a page would begin to leave a tile for another one that asks for it now, as far as a directory knows; 0
        for one that only knows holders."""
        if not self.expecting:
            return 0
        return max(cycle + self.mesh.distance(holder, tile) + REQUEST_CYCLES, ready, self.leaving[holder])

    # -- sending --------------------------------------------------------------------------------------------------

    def send(
        self, page: int, source: int, tile: int, cycle: int, then: Callable[[int], None],
        expected: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """Sends a page as soon as its way is free, and if it was `expected` at its source, has come there."""
        if expected is not None and self.due[page].get(source) == expected:
            self.coming[page, source].append(lambda at: self.send(page, source, tile, at, then))
            return
        path, flits = dimension_ordered(source, tile), self.program.pages[page].flits
        after = max(cycle, self.holders[page].get(source, cycle)) + self.mesh.launch
        tiles = np.array([self.mesh.number(one) for one in path], np.int64)
        while (departure := self.replay.send(self.space, tiles, len(path) - 1, after, flits, self.limit - 256)) < 0:
            busy = self.space.busy
            self.space = self.space._replace(busy=np.concatenate([busy, np.zeros_like(busy)], axis=1))
            self.limit *= 2
        self.flit_hops += flits * (len(path) - 1)
        arrival = self.mesh.arrival(departure, len(path) - 1, flits)
        self.when(arrival + self.mesh.landing, then)

    def arrived(self, task: int, page: int, tile: int, cycle: int) -> None:
        region = self.program.pages[page].region
        self.memory(tile, region).ready[page] = cycle
        self.holders[page].setdefault(tile, cycle)
        self.due[page].pop(tile, None)
        self.delivered(task, cycle)
        for then in self.coming.pop((page, tile), []):
            then(cycle)

    # -- working --------------------------------------------------------------------------------------------------

    def delivered(self, task: int, cycle: int) -> None:
        self.missing[task] -= 1
        self.begin(self.program.tasks[task].tile, cycle)

    def begin(self, tile: int, cycle: int) -> None:
        """Begins the next task of a tile if it can."""
        queue, at = self.queues[tile], self.at[tile]
        if tile in self.running or at >= len(queue) or at >= self.asked[tile] or self.missing[queue[at]]:
            return
        number = queue[at]
        task = self.program.tasks[number]
        self.running.add(tile)
        self.at[tile] += 1
        self.begun[number] = cycle
        self.when(cycle + task.cycles, lambda now: self.end(number, now))
        if self.ahead:
            self.ask(tile, cycle)

    def end(self, number: int, cycle: int) -> None:
        task = self.program.tasks[number]
        self.running.discard(task.tile)
        for page in dict.fromkeys(task.inputs):
            self.unpin(task.tile, self.program.pages[page].region, page)
        for page in task.outputs:
            region = self.program.pages[page].made_region
            self.memory(task.tile, region).ready[page] = cycle
            self.holders[page][task.tile] = cycle
            for delivery in self.delivers[page]:
                self.deliver(delivery, page, task.tile, region, cycle)
            if not self.delivers[page]:
                self.unpin(task.tile, region, page)
            for then in (*self.waiting.pop(page, []), *self.coming.pop((page, task.tile), [])):
                then(cycle)
        self.retry(task.tile, cycle)
        self.ask(task.tile, cycle)
        self.begin(task.tile, cycle)

    def deliver(self, number: int, page: int, source: int, region: int, cycle: int) -> None:
        """A result is stored: the one thing that is pushed here, too."""
        target = self.program.tasks[number].tile

        def stored(now: int) -> None:
            self.begun[number] = now
            self.holders[page][target] = now
            self.unpin(source, region, page)
            self.retry(source, now)

        self.moves += 1
        self.send(page, source, target, cycle, stored)

    def unpin(self, tile: int, region: int, page: int) -> None:
        memory = self.memory(tile, region)
        memory.pages[page] -= 1
        memory.pages.move_to_end(page)

    def retry(self, tile: int, cycle: int) -> None:
        """Those who waited for room try again, in their order."""
        while self.full[tile] and self.full[tile][0](cycle):
            del self.full[tile][0]


def pull(program: Program, ahead: int = 1, expecting: bool = False) -> Pulled:
    """Plays a program on demand. `ahead`: tasks of a tile whose pages are asked for while another is worked on; with 0
    a tile asks when it has nothing to do. `expecting`: the directory also knows to whom pages are on their way.

    Planned starts are ignored. Raises DttError if a tile has too little room to go on.
    """
    if ahead < 0:
        raise DttError(f"ahead = {ahead} must not be negative")
    return _Run(program, ahead, expecting).run()
