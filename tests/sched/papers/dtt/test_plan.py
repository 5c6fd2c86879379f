"""Plans of pages on a mesh: against brute force, under random programs, and what the independent checker finds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshloom.hw.spec.config import tile_address
from meshloom.hw.spec.routes import decode
from meshloom.hw.spec.timing import noc_arrival
from meshloom.sched.papers.dtt.synthetic import random_program, without_deadlines
from meshloom.sched.routing.check import problems
from meshloom.sched.routing.hardware import DttError, TimingFault
from meshloom.sched.routing.mesh import Mesh
from meshloom.sched.routing.plan import Carry, Plan, Settings
from meshloom.sched.routing.planner import Planner, plan
from meshloom.sched.routing.program import Page, Program, Task

# -- against brute force ----------------------------------------------------------------------------------------------


def crowded_program(seed: int) -> Program:
    """Pages of several sizes with one to three homes, wanted by tasks at nearly the same time."""
    random = Random(seed)
    width, height = random.choice([(3, 3), (4, 2), (3, 2), (4, 3)])
    tiles = [tile_address(x, y) for y in range(height) for x in range(width)]
    half = frozenset(random.sample(tiles, random.choice([0, 1, 2])))
    mesh = Mesh(
        width,
        height,
        half_duplex=half,
        gap=random.choice([0, 1, 3]),
        landing=random.choice([0, 1, 2]),
        launch=random.choice([0, 3]),
    )
    pages, tasks = [], []
    for number in range(random.randint(10, 22)):
        tile = random.choice(tiles)
        reads = []
        for _ in range(random.randint(1, 3)):
            homes = tuple(random.sample([one for one in tiles if one != tile], random.randint(1, 3)))
            pages.append(Page(f"p{len(pages)}", random.choice([1, 2, 5, 9]), homes))
            reads.append(len(pages) - 1)
        tasks.append(Task(f"t{number}", tile, random.randint(1, 8), tuple(reads), start=random.randint(5, 70)))
    return Program(mesh, tuple(pages), tuple(tasks))


class Brute:
    """The search as its docstring says it: every way over every free wire, the best by the tie rule."""

    RANK = {(0, -1): 0, (0, 1): 1, (1, 0): 2, (-1, 0): 3}  # where a hop comes from: north, south, east, west

    def __init__(self, program: Program, options: Settings, window: int) -> None:
        self.program, self.mesh, self.options, self.window = program, program.mesh, options, window
        self.busy: defaultdict[int, set[int]] = defaultdict(set)

    def ways(self, path: tuple[int, ...], most: int) -> list[tuple[int, ...]]:
        """All ways without a tile twice that end as `path` does, of at most so many hops, source first."""
        result = [path]
        if len(path) <= most:
            for tile in self.mesh.tiles:
                if self.mesh.distance(tile, path[0]) == 1 and tile not in path:
                    result += self.ways((tile, *path), most)
        return result

    def ranks(self, path: tuple[int, ...]) -> list[int]:
        """The way backwards, each hop by where it comes from."""
        steps = list(zip(path, path[1:], strict=False))
        return [self.RANK[(a % 16 - b % 16, a // 16 - b // 16)] for a, b in reversed(steps)]

    def free(self, path: tuple[int, ...], departure: int, flits: int) -> bool:
        occupied = self.mesh.occupied(path, departure, flits)
        launched = departure > self.mesh.launch or departure >= 0 == self.mesh.launch
        return launched and not any(
            cycle in self.busy[resource] for resource, start, end in occupied for cycle in range(start, end)
        )

    def best(self, page: Page, tile: int, due: int) -> tuple[int, tuple[int, ...]]:
        """(arrival, path)."""
        detour, weight = self.options.detour, self.options.hop_weight
        ways = []
        for path in self.ways((tile,), max(self.mesh.distance(home, tile) for home in page.homes) + detour):
            if path[0] in page.homes and len(path) - 1 <= self.mesh.distance(path[0], tile) + detour:
                ways.append((len(path) - 1, self.ranks(path), path))
        ways.sort()
        least = None
        for arrival in range(due, max(due - self.window, 0) - 1, -1):
            for hops, ranks, path in ways:
                key = (weight * hops + due - arrival, hops, ranks)
                if (least is None or key < least[0]) and self.free(path, arrival - hops - page.flits, page.flits):
                    least = key, arrival, path
        if least is not None:
            return least[1:]
        arrival = due
        while True:
            arrival += 1
            for hops, _, path in ways:
                if self.free(path, arrival - hops - page.flits, page.flits):
                    return arrival, path

    def replay(self, found: Plan) -> None:
        program, mesh = self.program, self.mesh
        carries = {(carry.task, carry.page): carry for carry in found.carries}
        order = sorted(
            {carry.task for carry in found.carries},
            key=lambda task: min(carry.number for carry in found.carries if carry.task == task),
        )
        until: dict[int, int] = {}
        for number in order:
            task = program.tasks[number]
            begin = max(task.start or 0, mesh.landing + 1, until.get(task.tile, 0))
            for page in task.inputs:
                carry = carries[number, page]
                arrival, path = self.best(program.pages[page], task.tile, begin - mesh.landing)
                assert (carry.arrival, carry.path) == (arrival, path), f"{task.name}, page {page}"
                begin = max(begin, arrival + mesh.landing)
                for resource, start, end in mesh.occupied(path, carry.departure, program.pages[page].flits):
                    self.busy[resource] |= set(range(start, end))
            assert found.begun[number] == begin
            until[task.tile] = begin + task.cycles


@pytest.mark.parametrize("seed", range(12))
def test_every_way_is_the_best_by_the_tie_rule(seed: int) -> None:
    program = crowded_program(seed)
    options = Settings(hop_weight=[1, 3, 16][seed % 3], window=60, detour=[0, 2, 2][seed % 3])
    result = plan(program, options)
    assert result.moves == sum(len(task.inputs) for task in program.tasks)
    Brute(program, options, 60).replay(result)
    assert problems(result) == []


def test_an_idle_mesh_goes_by_dimension_order_as_late_as_can_be() -> None:
    mesh = Mesh(4, 4, launch=3)
    source, target = tile_address(3, 3), tile_address(0, 1)
    result = plan(Program(mesh, (Page("p", 5, (source,)),), (Task("t", target, 10, (0,), start=50),)))
    (carry,) = result.carries
    assert carry.path == (0x33, 0x32, 0x31, 0x30, 0x20, 0x10)
    assert carry.arrival == 49
    assert carry.departure == 49 - noc_arrival(5, 5)
    assert carry.fire_at(mesh) == carry.departure - 3
    assert decode(mesh.route(carry.path), source, 4, 4) == carry.path
    assert result.cycles == 60
    assert result.busiest_port == ("ejection port of 0x10", 5 / 60)
    assert result.report().startswith(
        "program: 1 moves and 0 hits, 0 moves could not be in time; 0 of 1 tasks re-timed"
    )


def test_a_train_goes_round_what_is_busy() -> None:
    mesh = Mesh(3, 3)
    pages = (Page("long", 30, (0x01,)), Page("late", 4, (0x00,)))
    tasks = (Task("a", 0x02, 1, (0,), start=40), Task("b", 0x12, 1, (1,), start=40))
    result = plan(Program(mesh, pages, tasks), Settings(hop_weight=1))
    first, second = result.carries
    assert first.path == (0x01, 0x02)
    # along the top row it would meet the long train in 0x01 -> 0x02
    assert second.path == (0x00, 0x01, 0x11, 0x12) or second.path == (0x00, 0x10, 0x11, 0x12)
    assert second.arrival == 39


def test_multicast_takes_a_page_from_where_it_is_nearest() -> None:
    mesh = Mesh(4, 1)
    pages = (Page("p", 10, (0x00,)),)
    tasks = (
        Task("near", 0x02, 5, (0,), start=40),
        Task("far", 0x03, 5, (0,), start=80),
        Task("again", 0x03, 5, (0,), start=90),
    )
    result = plan(Program(mesh, pages, tasks))
    assert [carry.path for carry in result.carries] == [(0x00, 0x01, 0x02), (0x02, 0x03)]
    assert result.hits == 1
    assert problems(result) == []


# -- random programs --------------------------------------------------------------------------------------------------


@st.composite
def programs(draw: Any) -> Program:
    """Programs with results, deliveries, tight memories, regions, half duplex stores and sparse deadlines."""
    random = Random(draw(st.integers(0, 1 << 30)))
    width, height = draw(st.sampled_from([(2, 2), (3, 2), (4, 4), (1, 5), (5, 3)]))
    tiles = [tile_address(x, y) for y in range(height) for x in range(width)]
    stores = random.sample(tiles, random.randint(1, 2))
    cores = [tile for tile in tiles if tile not in stores]
    regions = random.choice([1, 2])
    room = random.choice([6, 9, 40])
    mesh = Mesh(
        width,
        height,
        {(tile, region): room for tile in cores for region in range(regions)},
        regions=regions,
        half_duplex=frozenset(stores if random.random() < 0.5 else ()),
        gap=random.choice([0, 1]),
        landing=random.choice([0, 1, 3]),
        launch=random.choice([0, 0, 3]),
    )
    pages: list[Page] = []
    tasks: list[Task] = []
    kept: list[int] = []
    for _ in range(draw(st.integers(3, 8))):
        homes = tuple(random.sample(stores, random.randint(1, len(stores))))
        pages.append(Page(f"p{len(pages)}", random.choice([1, 4, 17]), homes, random.choice([1, 2]), 0, regions - 1))
        kept.append(len(pages) - 1)
    for number in range(draw(st.integers(1, 30))):
        reads = tuple(random.sample(kept, min(len(kept), random.randint(0, 2))))
        start = random.choice([None, random.randint(0, 300)])
        pages.append(Page(f"p{len(pages)}", random.choice([1, 4, 17]), (), random.choice([1, 2]), 0, regions - 1))
        result = len(pages) - 1
        tasks.append(Task(f"t{number}", random.choice(cores), random.randint(1, 40), reads, (result,), start))
        for store in random.sample(stores, random.randint(1, len(stores))):
            soon = random.choice([None, None, random.randint(0, 400)])
            tasks.append(Task(f"s{number} {store}", store, 0, (result,), start=soon))
        kept.append(result)
    return Program(mesh, tuple(pages), tuple(tasks))


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(programs(), st.sampled_from([Settings(), Settings(hop_weight=1, window=50, detour=6), Settings(detour=0)]))
def test_random_programs_have_no_problems(program: Program, options: Settings) -> None:
    result = plan(program, options)
    assert problems(result) == []
    assert len(result.carries) == result.moves
    assert all(carry.fire_at(program.mesh) > 0 for carry in result.carries if program.mesh.launch)
    assert [carry.number for carry in result.carries] == sorted(carry.number for carry in result.carries)
    late = {one.task: one for one in result.late}
    for number, task in enumerate(program.tasks):
        moved = task.start is not None and int(result.begun[number]) > task.start
        assert moved == (number in late)
        if moved:
            assert late[number].wire
    assert len(result.report().splitlines()) == 1 + min(len(late), 10) + (len(late) > 10)
    # the same again, with tables that had to grow
    again = plan(program, options)
    assert np.array_equal(again.move, result.move)


@pytest.mark.parametrize("side", [4, 8])
@pytest.mark.parametrize("load", [0.5, 1.2])
def test_plans_at_scale_have_no_problems(side: int, load: float) -> None:
    program = random_program(side, 2000, load=load)
    result = plan(program)
    assert problems(result) == []
    assert result.moves + result.hits == sum(len(task.inputs) for task in program.tasks)
    # deadlines that are far apart are met but for the first ones, too close ones are not: and then the plan says so
    share = result.missed / result.moves
    assert share < 0.12 if load < 1 else share > 0.3
    assert bool(result.late) == any(
        task.start is not None and begun > task.start for task, begun in zip(program.tasks, result.begun, strict=True)
    )
    soon = plan(without_deadlines(program))
    assert problems(soon) == []
    assert soon.late == ()
    assert soon.cycles <= result.cycles


def test_late_pages_move_their_task_and_all_that_depends_on_it() -> None:
    mesh = Mesh(2, 1)
    pages = (Page("big", 100, (0x00,)), Page("result", 4), Page("other", 4, (0x00,)))
    tasks = (
        Task("first", 0x01, 10, (0,), (1,), start=20),
        Task("store", 0x00, 0, (1,)),
        Task("second", 0x01, 10, (2,), start=40),
    )
    result = plan(Program(mesh, pages, tasks, "late"))
    # 1 hop and 100 flits from cycle 0 on
    assert [carry.arrival for carry in result.carries if carry.page == 0] == [101]
    assert result.begun.tolist()[0] == 102
    assert result.begun.tolist()[2] >= 112
    assert [(one.task, one.planned, one.actual) for one in result.late] == [(0, 20, 102), (2, 40, 112)]
    assert result.late[0].wire == "0x00 -> 0x01"
    assert result.missed >= 1
    assert "first: planned for cycle 20, begins in 102; 0x00 -> 0x01" in result.report()
    assert problems(result) == []


def test_memory_decides_when_a_page_may_come() -> None:
    mesh = Mesh(2, 1, {(0x01, 0): 2})
    pages = tuple(Page(f"p{number}", 5, (0x00,), words=1) for number in range(4))
    tasks = (Task("a", 0x01, 50, (0, 1), start=20), Task("b", 0x01, 5, (2, 3), start=70))
    result = plan(Program(mesh, pages, tasks))
    # both places are taken until cycle 70: what b reads cannot come before, so b begins later
    assert all(carry.arrival >= 70 for carry in result.carries if carry.task == 1)
    assert result.begun.tolist() == [20, 80]
    assert problems(result) == []


# -- the checker ------------------------------------------------------------------------------------------------------


def changed(found: Plan, index: int, **changes: int) -> Plan:
    """A plan with one move's departure, arrival or first tile changed."""
    carries = list(found.carries)
    carries[index] = replace(carries[index], **changes)
    other = replace(found)
    other.__dict__["carries"] = tuple(carries)
    return other


@pytest.fixture(scope="module")
def sound() -> Plan:
    return plan(random_program(4, 300, load=0.9))


def test_the_checker_finds_every_departure_that_was_moved(sound: Plan) -> None:
    assert problems(sound) == []
    for index, carry in enumerate(sound.carries):
        assert problems(changed(sound, index, departure=carry.departure + 1, arrival=carry.arrival + 1))
        assert any("cannot arrive" in one for one in problems(changed(sound, index, arrival=carry.arrival - 1)))


def test_the_checker_finds_two_trains_on_a_wire(sound: Plan) -> None:
    flits = sound.program.pages[0].flits
    busiest = max(range(len(sound.carries)), key=lambda at: sound.carries[at].hops)
    carry = sound.carries[busiest]
    other = next(one for at, one in enumerate(sound.carries) if at != busiest and one.path[0] == carry.path[0])
    moved = other.departure + flits // 2
    result = problems(changed(sound, busiest, departure=moved, arrival=moved + carry.hops + flits))
    assert any(f"wire in {carry.path[0]:#04x} carries" in one for one in result)


def test_the_checker_finds_jumps_wrong_ends_and_overfull_memories(sound: Plan) -> None:
    carry = next(one for one in sound.carries if one.hops > 1)
    at = sound.carries.index(carry)
    jump: Any = (carry.path[0], *carry.path[2:])
    assert any("is no wire" in one for one in problems(changed(sound, at, path=jump)))
    short: Any = carry.path[:-1]
    assert any("ends in tile" in one for one in problems(changed(sound, at, path=short)))
    tight = replace(sound.program.mesh, capacity=dict.fromkeys(sound.program.mesh.capacity, 5))
    other = replace(sound, program=replace(sound.program, mesh=tight))
    assert any("holds 6 words" in one for one in problems(other))


def test_the_checker_finds_early_tasks_and_pages_that_were_not_there(sound: Plan) -> None:
    begun = sound.begun.copy()
    task = next(number for number, one in enumerate(sound.program.tasks) if one.inputs and not one.delivery)
    begun[task] -= 1
    assert any("begins in cycle" in one for one in problems(replace(sound, begun=begun)))
    residencies = sound.residency_table.copy()
    source = sound.carries[0].source
    residencies["until"][source] = sound.carries[0].departure  # gone when its train begins to leave
    assert any("leaves tile" in one for one in problems(replace(sound, residency_table=residencies)))
    residencies = sound.residency_table.copy()
    residencies["until"][sound.residency_of(task)[0]] -= 1
    assert any("it is there in" in one for one in problems(replace(sound, residency_table=residencies)))


# -- what cannot be ---------------------------------------------------------------------------------------------------


def test_programs_that_cannot_be() -> None:
    mesh = Mesh(2, 2, {(0x01, 0): 3})
    page, home = Page("p", 4, words=2), Page("home", 4, (0x00,), words=2)
    for pages, tasks, message in (
        ((page,), (Task("t", 0x01, 5, (0,)),), "task t: page p is nowhere yet"),
        ((home,), (Task("t", 0x01, 5, (0,), (0,)),), "page home is there already"),
        ((home,), (Task("t", 0x01, 5, (1,)),), "there is no page 1"),
        ((home,), (Task("t", 0x05, 5, (0,)),), "tile 0x05 is outside the 2x2 mesh"),
        ((home,), (Task("t", 0x01, -5, (0,)),), "cycles = -5"),
        ((home,), (Task("t", 0x00, 0, (0, 0)),), "a task of 0 cycles is a delivery of one page"),
        ((home,), (Task("t", 0x01, 0, (0,)),), "a delivery to tile 0x01, whose memory is limited"),
        ((home, page), (Task("t", 0x01, 5, (0,), (1,)),), "task t: its pages take 4 words of region 0 of tile 0x01"),
        ((Page("p", 0, (0x00,)),), (), "page p: 0 flits"),
        ((Page("p", 1, (0x01,)),), (), "page p: its home 0x01 has a limited memory"),
        ((Page("p", 1, (0x00,), region=1),), (), "page p: region 1, tiles have 1"),
    ):
        with pytest.raises(DttError, match=message):
            Program(mesh, pages, tasks)
    with pytest.raises(DttError, match="2 words of pages lie on tile 0x00 for good, it holds 1"):
        Program(mesh, (home,), (), kept_words={0x00: 1})
    with pytest.raises(DttError, match="17x1 tiles"):
        Mesh(17, 1)
    with pytest.raises(DttError, match="gap = -1"):
        Mesh(1, 1, gap=-1)
    with pytest.raises(DttError, match="0 words"):
        Mesh(1, 1, {(0, 0): 0})
    with pytest.raises(DttError, match="hop_weight = 0"):
        Settings(hop_weight=0)
    with pytest.raises(DttError, match=r"no wire 0x00 -> 0x11"):
        mesh.link(0x00, 0x11)


def test_a_page_that_has_left_every_memory_is_named_with_its_reader() -> None:
    mesh = Mesh(3, 1, {(0x01, 0): 1, (0x02, 0): 1})
    pages = (Page("made", 4), Page("b", 4, (0x00,)))
    tasks = (
        Task("maker", 0x01, 10, (), (0,), start=10),
        Task("other", 0x01, 500, (1,), start=30),
        Task("reader", 0x02, 10, (0,), start=400),
    )
    # nothing keeps the result when another page needs its only place
    with pytest.raises(
        TimingFault, match=r"task reader: page made has left every memory by cycle \d+, when ejection"
    ) as result:
        plan(Program(mesh, pages, tasks), Settings(window=8))
    assert (result.value.operation, result.value.wire) == ("reader", "ejection port of 0x02")


def test_a_fire_time_before_the_run_is_refused() -> None:
    mesh = Mesh(2, 1, launch=3)
    carry = Carry(0, 7, 0, (0x00, 0x01), 3, 9, 0, 1)
    with pytest.raises(
        TimingFault, match=r"move 0 for task 7: its mover would have to start in cycle 0 to be at inject"
    ):
        carry.fire_at(mesh)
    assert replace(carry, departure=4).fire_at(mesh) == 1


def slow_program() -> Program:
    """A result that is made after the tables end, read from where it has been delivered."""
    mesh = Mesh(3, 1, {(0x01, 0): 2, (0x02, 0): 2})
    pages = (Page("made", 4), Page("b", 4, (0x00,)))
    tasks = (
        Task("maker", 0x01, 5000, (), (0,), start=10),
        Task("store", 0x00, 0, (0,)),
        Task("reader", 0x02, 10, (1, 0), start=20),
    )
    return Program(mesh, pages, tasks)


@pytest.mark.parametrize("program", [random_program(4, 600, load=1.5), slow_program()], ids=["random", "slow"])
def test_tables_grow_without_changing_the_plan(program: Program) -> None:
    small = Planner(program)
    cut = small.space._replace(busy=small.space.busy[:, :24].copy())
    small.space = cut
    levels = small.work.levels
    few = 4 * len(small.work.journal) + 3
    small.work = small.work._replace(
        levels=levels._replace(at=levels.at[:, :few].copy(), words=levels.words[:, :few].copy())
    )
    small.work.common.horizon = 24 * 64 - 256
    result, expected = small.plan(), plan(program)
    assert small.space.busy.shape[1] > 24
    assert np.array_equal(result.move, expected.move)
    assert np.array_equal(result.begun, expected.begun)
