"""A planned program: when each page leaves and which way it goes, where pages stay, when each task begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .hardware import DttError, TimingFault
from .mesh import Mesh
from .program import Program

Ints = NDArray[np.int64]
#: Arrays with named fields.
Records = NDArray[np.void]


@dataclass(frozen=True)
class Settings:
    """How ways are weighed. `hop_weight`: cycles that a page may be earlier to save a hop. `window`: cycles that it may
    be early at most, and that a page may stay for somebody else (None: 1024, and eight times what all pages of its task
    take). `detour`: hops above the fewest, at most."""

    hop_weight: int = 16
    window: int | None = None
    detour: int = 4

    def __post_init__(self) -> None:
        for name, least in (("hop_weight", 1), ("window", 0), ("detour", 0)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise DttError(f"settings: {name} = {getattr(self, name)} must be at least {least}")


@dataclass(frozen=True)
class Carry:
    """A page's move for a task: `path` are the tile addresses it passes, source and destination included.

    `departure`: the head is taken by the source's router; `arrival`: its last flit is ejected. `number`: in the order
    of planning. `source`, `residency`: numbers of the residencies that it comes from and makes.
    """

    number: int
    task: int
    page: int
    path: tuple[int, ...]
    departure: int
    arrival: int
    source: int
    residency: int

    @property
    def hops(self) -> int:
        """Links that it goes over."""
        return len(self.path) - 1

    def fire_at(self, mesh: Mesh) -> int:
        """Cycle at which the source's mover has to start. Raises TimingFault if that is before the first one."""
        cycle = self.departure - mesh.launch
        if cycle < 1:
            wire = mesh.resource_name(mesh.injection(self.path[0]))
            raise TimingFault(
                f"move {self.number} for task {self.task}: its mover would have to start in cycle {cycle} to be at "
                f"{wire} in cycle {self.departure}; begin later",
                f"{self.task}",
                cycle,
                wire,
            )
        return cycle


@dataclass(frozen=True)
class Residency:
    """A page in a memory: room is taken from `since` on, it can be sent or read in [`ready`, `until`)."""

    page: int
    tile: int
    region: int
    since: int
    ready: int
    until: int


@dataclass(frozen=True)
class Late:
    """A task that begins later than planned. `wire`: the port or memory that its latest page waited for, or the task
    before it on its tile."""

    task: int
    planned: int
    actual: int
    wire: str


@dataclass(frozen=True, eq=False)
class Plan:
    """A planned program. Arrays are those of `fetch.RoutingArrays`: `move` [input] of `MoveRecord`, `ways`,
    `residency_table` [residency] of `ResidencyRecord`, `begun` [task].

    `searches`, `looked_at`: searches for a way, and tiles that they looked at. `retries`: attempts taken back.
    """

    program: Program
    settings: Settings
    move: Records
    ways: Ints
    residency_table: Records
    begun: Ints
    searches: int
    looked_at: int
    retries: int

    @cached_property
    def carries(self) -> tuple[Carry, ...]:
        """All moves in the order in which they were planned; pages that were there already need none."""
        return tuple(self._carries())

    def _carries(self) -> Iterator[Carry]:
        tiles = self.program.mesh.tiles
        tasks, pages = self._inputs
        source, residency, order = self.move["source"], self.move["residency"], self.move["order"]
        departure, arrival = self.move["departure"], self.move["arrival"]
        hops, way = self.move["hops"], self.move["way"]
        for index in np.argsort(order, kind="stable"):
            if departure[index] < 0:
                continue
            first = way[index]
            way_tiles: list[int] = self.ways[first : first + hops[index] + 1].tolist()
            path = tuple(tiles[tile] for tile in way_tiles)
            yield Carry(
                int(order[index]),
                int(tasks[int(index)]),
                int(pages[int(index)]),
                path,
                int(departure[index]),
                int(arrival[index]),
                int(source[index]),
                int(residency[index]),
            )

    @cached_property
    def residencies(self) -> tuple[Residency, ...]:
        """Where pages are, when."""
        regions, tiles = self.program.mesh.regions, self.program.mesh.tiles
        names = "page", "memory", "since", "ready", "until"
        columns: list[list[int]] = [self.residency_table[name].tolist() for name in names]
        return tuple(
            Residency(page, tiles[int(memory) // regions], memory % regions, since, ready, until)
            for page, memory, since, ready, until in zip(*columns, strict=True)
        )

    def residency_of(self, task: int) -> tuple[int, ...]:
        """For each input of a task the number of the residency that it is read from."""
        return tuple(self.move["residency"][slice(*self._in_first[task : task + 2])].tolist())

    @cached_property
    def _in_first(self) -> list[int]:
        counts = [len(task.inputs) for task in self.program.tasks]
        return [0, *np.cumsum(counts, dtype=np.int64).tolist()] if counts else [0]

    @cached_property
    def _inputs(self) -> tuple[list[int], list[int]]:
        inputs = [(number, page) for number, task in enumerate(self.program.tasks) for page in task.inputs]
        return [task for task, _ in inputs], [page for _, page in inputs]

    @property
    def moves(self) -> int:
        """Pages that travel."""
        return int((self.move["departure"] >= 0).sum())

    @property
    def hits(self) -> int:
        """Inputs that were on their tile already."""
        return len(self.move) - self.moves

    @property
    def cycles(self) -> int:
        """The cycle after the last task, and the last arrival."""
        ends = [int(start) + task.cycles for start, task in zip(self.begun, self.program.tasks, strict=True)]
        return max(max(ends, default=0), int(self.move["arrival"].max(initial=-1)) + 1)

    @property
    def flit_hops(self) -> int:
        """Flits x links that they went over."""
        flits = np.array([self.program.pages[page].flits for page in self._inputs[1]], dtype=np.int64)
        return int((flits * self.move["hops"]).sum())

    @property
    def link_load(self) -> float:
        """Share of all links' cycles that are used."""
        return self.flit_hops / max(1, self.program.mesh.links * self.cycles)

    @cached_property
    def busiest_port(self) -> tuple[str, float]:
        """The port of a tile that most flits pass, and the share of all cycles that they take."""
        mesh = self.program.mesh
        flits = dict.fromkeys((port(tile) for tile in mesh.tiles for port in (mesh.injection, mesh.ejection)), 0)
        for carry in self.carries:
            for port in (mesh.injection(carry.path[0]), mesh.ejection(carry.path[-1])):
                flits[port] += self.program.pages[carry.page].flits
        port = max(flits, key=lambda one: flits[one])
        return mesh.resource_name(port), flits[port] / max(self.cycles, 1)

    @cached_property
    def late(self) -> tuple[Late, ...]:
        """Tasks that begin later than planned: inputs that could not be in time, and what followed from it."""
        return tuple(self._late())

    def _late(self) -> Iterator[Late]:
        mesh = self.program.mesh
        for number, task in enumerate(self.program.tasks):
            actual = int(self.begun[number])
            if task.start is None or actual <= task.start:
                continue
            first, end = self._in_first[number : number + 2]
            arrivals = self.move["arrival"][first:end]
            wire = f"tile {task.tile:#04x}, busy with the task before it or waiting for a page that is made later"
            if len(arrivals) and int(arrivals.max()) + mesh.landing >= actual:
                index = first + int(arrivals.argmax())
                wire = mesh.resource_name(mesh.ejection(task.tile))
                move = self.move[index]
                if move["departure"] >= 0 and move["hops"] > 0:
                    at = int(move["way"]) + int(move["hops"])
                    before, here = self.ways[at - 1], self.ways[at]
                    wire = mesh.resource_name(mesh.link(mesh.tiles[int(before)], mesh.tiles[int(here)]))
            yield Late(number, task.start, actual, wire)

    @property
    def missed(self) -> int:
        """Moves that delivered after the cycle in which their task was planned to begin."""
        starts = np.array([-1 if task.start is None else task.start for task in self.program.tasks], dtype=np.int64)
        planned = starts[np.array(self._inputs[0], dtype=np.int64)] if len(self._inputs[0]) else starts[:0]
        late = self.move["arrival"] + self.program.mesh.landing > planned
        return int((late & (planned >= 0) & (self.move["departure"] >= 0)).sum())

    def report(self) -> str:
        """What became of the deadlines, in words: one line, and one for each of the first ten late tasks."""
        late = self.late
        lines = [
            f"{self.program.name}: {self.moves} moves and {self.hits} hits, {self.missed} moves could not be in time; "
            f"{len(late)} of {len(self.program.tasks)} tasks re-timed"
        ]
        for one in late[:10]:
            name = self.program.tasks[one.task].name
            lines.append(f"  {name}: planned for cycle {one.planned}, begins in {one.actual}; {one.wire}")
        if len(late) > 10:
            lines.append(f"  and {len(late) - 10} more")
        return "\n".join(lines)
