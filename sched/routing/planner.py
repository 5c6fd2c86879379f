"""Plans a program of pages and tasks on a mesh: when each page leaves and which way it goes, when each task begins."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

import numpy as np

from meshloom.hw.spec.routes import DIRECTIONS, NEIGHBOURS

from .hardware import TimingFault
from .mesh import Mesh
from .plan import Ints, Plan, Records, Settings
from .program import Program

if TYPE_CHECKING:
    from .fetch import RoutingArrays
    from .levels import Levels
    from .search import Question, Space

#: Cycles beyond the last one that a search may ask for, which the tables have.
_MARGIN = 256
#: A page may be early by so many cycles, and by so many times what all pages of its task take.
_WINDOW, _TRAINS = 1024, 8
#: Changes of a memory's level that there is room for at first.
_STEPS = 256


class Planner:
    """Tables for one program; `plan()` fills them. The same program and settings give the same plan.

    Raises DttError for a program whose numbers do not fit.
    """

    def __init__(self, program: Program, settings: Settings | None = None) -> None:
        self.program, self.settings = program, settings or Settings()
        self.work, self.space, self.question = _tables(program, self.settings)

    def plan(self) -> Plan:
        """Plans all tasks. Raises TimingFault naming task, cycle and memory if one cannot be placed at all."""
        from . import tasks

        while (why := tasks.plan_tasks(self.work, self.space, self.question)) != tasks.DONE:
            if why == tasks.GROW:
                self._grow()
            elif why == tasks.GROW_LEVELS:
                self._grow_levels()
            else:
                raise self._fault(why == tasks.LOST)
        counts, tally = self.work.counts, self.space.tally
        moves, residencies = cast(Records, self.work.moves), cast(Records, self.work.residencies)
        return Plan(
            self.program,
            self.settings,
            moves,
            self.work.ways[: counts.way_entries],
            residencies[: counts.residencies],
            self.work.begun,
            int(tally.searches),
            int(tally.looked_at),
            int(counts.retries),
        )

    def _grow(self) -> None:
        """Doubles the tables' cycles."""
        busy = self.space.busy
        self.space = self.space._replace(busy=np.concatenate([busy, np.zeros_like(busy)], axis=1))
        self.work.common.horizon = 64 * self.space.busy.shape[1] - _MARGIN

    def _grow_levels(self) -> None:
        """Doubles the steps of memories' levels."""
        levels = self.work.levels
        at, words = (np.concatenate([table, np.zeros_like(table)], axis=1) for table in (levels.at, levels.words))
        self.work = self.work._replace(levels=levels._replace(at=at, words=words))

    def _fault(self, lost: bool) -> TimingFault:
        failure, mesh = self.work.failure, self.program.mesh
        task = self.program.tasks[failure.task]
        cycle, which = int(failure.cycle), int(failure.memory)
        if lost:
            page = self.program.pages[int(self.work.in_page[failure.input])]
            wire = mesh.resource_name(mesh.ejection(task.tile))
            return TimingFault(
                f"task {task.name}: page {page.name} has left every memory by cycle {cycle}, when {wire} could take "
                "it; deliver it to a memory behind the task that makes it",
                task.name,
                cycle,
                wire,
            )
        tile, region = mesh.tiles[which // mesh.regions], which % mesh.regions
        wire = mesh.resource_name(mesh.ejection(tile))
        return TimingFault(
            f"task {task.name}: region {region} of tile {tile:#04x} is full in cycle {cycle} behind {wire}, and again "
            "whenever it is tried; make its pages smaller",
            task.name,
            cycle,
            wire,
        )


def plan(program: Program, settings: Settings | None = None) -> Plan:
    """The plan of a program: every page lands by the start of its task, or the task begins later and the plan says so.

    Raises TimingFault (an error that names task, cycle and wire) if memories make that impossible.
    """
    return Planner(program, settings).plan()


def mesh_space(mesh: Mesh, settings: Settings, cycles: int) -> Space:
    """Empty reservation tables of a mesh for `cycles` cycles (rounded up), and scratch for searches."""
    from .search import LOOK_BACK, RULES, STEP, TALLY, Space

    tiles = mesh.tiles
    near, into, out = (np.full((len(tiles), 4), -1, np.int64) for _ in range(3))
    for number, tile in enumerate(tiles):
        for turn, heading in enumerate(LOOK_BACK):
            step_x, step_y = NEIGHBOURS[DIRECTIONS[heading]]
            x, y = number % mesh.width + step_x, number // mesh.width + step_y
            if 0 <= x < mesh.width and 0 <= y < mesh.height:
                near[number, turn] = y * mesh.width + x
                into[number, turn] = mesh.link(tiles[y * mesh.width + x], tile)
                out[number, turn] = mesh.link(tile, tiles[y * mesh.width + x])
    longest = mesh.width + mesh.height + settings.detour
    rules = np.zeros(1, RULES)[0]
    rules.gap, rules.hop_weight, rules.detour = mesh.gap, settings.hop_weight, settings.detour
    return Space(
        near,
        into,
        out,
        np.array([[mesh.distance(one, other) for other in tiles] for one in tiles], np.int64),
        np.array([mesh.injection(tile) for tile in tiles], np.int64),
        np.array([mesh.ejection(tile) for tile in tiles], np.int64),
        np.zeros((mesh.resources, -(-cycles // 64)), np.uint64),
        np.zeros((longest + 1, len(tiles)), np.int64),
        np.zeros(longest + 1, STEP),
        np.zeros(len(tiles), np.int64),
        np.zeros(longest + 1, np.int64),
        np.zeros(1, TALLY)[0],
        rules,
    )


def new_question(mesh: Mesh, settings: Settings, holders: int) -> Question:
    """Room for a question about a page with up to `holders` holders."""
    from .search import ANSWER, QUERY, Question

    tiles, residencies, ready, until, goals, which = (np.zeros(max(holders, 1), np.int64) for _ in range(6))
    early = np.zeros(mesh.width + mesh.height + settings.detour, np.int64)
    query, answer = np.zeros(1, QUERY)[0], np.zeros(1, ANSWER)[0]
    return Question(tiles, residencies, ready, until, goals, which, early, query, answer)


def _flat(lists: list[tuple[int, ...]]) -> tuple[Ints, Ints]:
    first = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(one) for one in lists], out=first[1:])
    return first, np.array([item for one in lists for item in one], np.int64)


def _entries(program: Program) -> int:
    """Journal entries of the task that needs most, with the deliveries that are planned with it: two for each page that
    is fetched, and one for each that is kept until the end."""
    most = now = 0
    for task in program.tasks:
        now = now + 2 if task.delivery else 3 * len(task.inputs) + 2
        most = max(most, now)
    return most


def _no_levels(memories: int, steps: int) -> Levels:
    """Memories that hold nothing."""
    from .levels import MOST, Levels

    at, words = (np.zeros((memories, steps), np.int64) for _ in range(2))
    return Levels(at, words, np.ones(memories, np.int64), np.ones(1, MOST)[0])


def _queues(program: Program) -> tuple[Ints, Ints]:
    """Tasks of each tile, and deliveries; those that follow the task whose result they deliver are planned with it."""
    mesh = program.mesh
    queues: list[list[int]] = [[] for _ in range(len(mesh.tiles) + 1)]
    outputs: tuple[int, ...] = ()
    for number, task in enumerate(program.tasks):
        if not task.delivery:
            outputs = task.outputs
            queues[mesh.number(task.tile)].append(number)
        elif task.inputs[0] not in outputs:
            outputs = ()
            queues[-1].append(number)
    return _flat([tuple(queue) for queue in queues])


def _tables(program: Program, settings: Settings) -> tuple[RoutingArrays, Space, Question]:
    from . import fetch

    mesh, pages, todo = program.mesh, program.pages, program.tasks
    in_first, in_page = _flat([task.inputs for task in todo])
    out_first, out_page = _flat([task.outputs for task in todo])
    homes = sum(len(page.homes) for page in pages)
    residencies = homes + len(in_page) + len(out_page)
    flits = np.array([page.flits for page in pages], np.int64)
    # Long enough for the plan as it was meant; doubled when that is not enough.
    meant = max([0, *((task.start or 0) + task.cycles for task in todo)])
    cycles = _MARGIN + max(4096, meant + meant // 4 + 4 * int(flits.max(initial=1)))
    space = mesh_space(mesh, settings, cycles)
    longest = space.path.shape[0]
    capacity = np.full(len(mesh.tiles) * mesh.regions, -1, np.int64)
    for (tile, region), words in mesh.capacity.items():
        capacity[mesh.number(tile) * mesh.regions + region] = words
    entries = _entries(program)
    copies = Counter[int](in_page.tolist())
    holders = max([1, *(len(page.homes) + copies[number] + 1 for number, page in enumerate(pages))])
    window = np.full(len(todo), settings.window or 0, np.int64)
    if settings.window is None:
        window = np.array(
            [_WINDOW + _TRAINS * sum(pages[page].flits for page in task.inputs) for task in todo], np.int64
        )
    queue_first, queue = _queues(program)
    common = np.zeros(1, fetch.COMMON)[0]
    common.regions, common.landing, common.launch = mesh.regions, mesh.landing, mesh.launch
    common.horizon = 64 * space.busy.shape[1] - _MARGIN
    work = fetch.RoutingArrays(
        flits=flits,
        words=np.array([page.words for page in pages], np.int64),
        region=np.array([page.region for page in pages], np.int64),
        result_region=np.array([page.made_region for page in pages], np.int64),
        head=np.full(len(pages), -1, np.int64),
        tile=np.array([mesh.number(task.tile) for task in todo], np.int64),
        start=np.array([-1 if task.start is None else task.start for task in todo], np.int64),
        cycles=np.array([task.cycles for task in todo], np.int64),
        window=window,
        in_first=in_first,
        in_page=in_page,
        out_first=out_first,
        out_page=out_page,
        levels=_no_levels(len(capacity), 4 * entries + _STEPS),
        capacity=capacity,
        residencies=np.zeros(residencies, fetch.RESIDENCY),
        moves=np.full(len(in_page), -1, fetch.MOVE),
        ways=np.zeros(len(in_page) * longest, np.int64),
        begun=np.zeros(len(todo), np.int64),
        counts=np.zeros(1, fetch.COUNTS)[0],
        failure=np.zeros(1, fetch.FAILURE)[0],
        journal=np.zeros(entries, fetch.EXTENSION),
        free=np.zeros(len(mesh.tiles), np.int64),
        queue_first=queue_first,
        queue=queue,
        turn=np.zeros(len(mesh.tiles) + 1, np.int64),
        common=common,
    )
    for number, page in enumerate(pages):
        for tile in page.homes:
            residency = work.residencies[work.counts.residencies]
            residency.page, residency.memory = number, mesh.number(tile) * mesh.regions + page.region
            residency.ready = int(mesh.launch > 0)  # nothing fires in cycle 0
            residency.until, residency.before, residency.brought = fetch.FOREVER, work.head[number], -1
            work.head[number] = work.counts.residencies
            work.counts.residencies += 1
    return work, space, new_question(mesh, settings, holders)
