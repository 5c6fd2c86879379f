"""What is made of plans: way-points, the pulled flow beside the pushed one, tiled layers, the plain formulation."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from math import ceil

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.contracts import REQUEST_CYCLES
from meshloom.hw.spec.isa import REQUEST_FLITS
from meshloom.hw.spec.routes import dimension_ordered
from meshloom.hw.spec.timing import GemmShape, gemm_occupancy
from meshloom.sched.mapping.tiling.problem import pose
from meshloom.sched.papers.dtt.demand_model import pull
from meshloom.sched.papers.dtt.layers import cut, flits_of, layer_program
from meshloom.sched.papers.dtt.placing import cached, first
from meshloom.sched.papers.dtt.reference_search import compare
from meshloom.sched.papers.dtt.synthetic import random_program, without_deadlines
from meshloom.sched.routing import waypoints
from meshloom.sched.routing.check import problems
from meshloom.sched.routing.hardware import DttError
from meshloom.sched.routing.mesh import OPERAND_A, OPERAND_B, Mesh, mesh_of
from meshloom.sched.routing.plan import Plan, Settings
from meshloom.sched.routing.planner import plan
from meshloom.sched.routing.program import Page, Program, Task
from meshloom.sched.routing.replay import LONGEST
from meshloom.sched.routing.waypoints import CYCLE_BITS, Between, compress, rebuild
from meshloom.sched.workload.catalog import find

# -- way-points -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowded() -> Plan:
    """A plan with many detours."""
    return plan(random_program(5, 1500, load=1.0), Settings(hop_weight=2))


@pytest.mark.parametrize("between", ["xy", "yx", "search"])
def test_ways_rebuilt_from_what_is_stored_are_the_planned_ones(crowded: Plan, between: Between) -> None:
    stored = compress(crowded, between)
    assert rebuild(crowded, stored.moves, between) == [carry.path for carry in crowded.carries]
    moves = len(crowded.carries)
    hops = sum(carry.hops for carry in crowded.carries)
    assert stored.route_bits == moves * CYCLE_BITS + 2 * (hops + moves)
    assert stored.listed_bits == (hops + moves) * (CYCLE_BITS + 5)  # 25 tiles
    assert stored.stored_bits < stored.listed_bits
    assert stored.point_bits == stored.stored_bits - moves * CYCLE_BITS


def test_the_search_needs_no_way_points_and_dimension_order_does(crowded: Plan) -> None:
    by_search, by_xy = compress(crowded, "search"), compress(crowded, "xy")
    assert by_search.points == 0
    assert by_search.stored_bits < by_xy.stored_bits < by_xy.route_bits
    detours = sum(carry.path != dimension_ordered(carry.path[0], carry.path[-1]) for carry in crowded.carries)
    assert sum(bool(move.points) for move in by_xy.moves) == detours > 20
    assert any(move.extra for move in by_search.moves)


def test_no_fewer_way_points_would_do(crowded: Plan) -> None:
    for carry, move in zip(crowded.carries, compress(crowded, "xy").moves, strict=True):
        path = carry.path
        # fewest parts of the path that are dimension-ordered, by trying all places to cut
        parts = {0: 0}
        for last in range(1, len(path)):
            parts[last] = min(
                parts[cut] + 1
                for cut in range(last)
                if dimension_ordered(path[cut], path[last]) == path[cut : last + 1]
            )
        assert len(move.points) == max(parts[len(path) - 1], 1) - 1
        assert [path[hop] for _, hop in move.points] == [tile for tile, _ in move.points]


def test_a_way_that_cannot_be_rebuilt_is_refused(crowded: Plan) -> None:
    moves = list(compress(crowded, "search").moves)
    at = next(number for number, move in enumerate(moves) if move.extra)
    # another departure meets other reservations, or has no way at all
    with pytest.raises(DttError, match=f"move {crowded.carries[at].number} in cycle .*the search finds no way"):
        rebuild(crowded, [*moves[:at], replace(moves[at], extra=0), *moves[at + 1 :]], "search")
    wrong = list(compress(crowded, "xy").moves)
    bent = next(number for number, move in enumerate(wrong) if move.points)
    wrong[bent] = replace(wrong[bent], points=())
    assert rebuild(crowded, wrong, "xy")[bent] != crowded.carries[bent].path


def test_a_rebuilt_way_of_the_right_length_over_other_tiles_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result = plan(random_program(4, 300, load=0.4))
    monkeypatch.setattr(waypoints, "_corners", lambda path, routing: ())
    with pytest.raises(DttError, match=r"move \d+ in cycle \d+: rebuilt by yx it goes over 0x") as error:
        compress(result, "yx")
    rebuilt, planned = str(error.value).partition("over ")[2].split(", planned was ")
    assert len(rebuilt) == len(planned)


def snake(tiles: int, detour: int = 64) -> Plan:
    """A plan of one move over so many of a mesh's 65 tiles, up and down its columns, which the search finds at once."""
    page, task = Page("p", 7, (0,)), Task("t", 9, 100, (0,))
    result = plan(Program(Mesh(13, 5, launch=3), (page,), (task,)), Settings(detour=detour))
    (carry,) = result.carries
    path = [y * 16 + x for x in range(13) for y in (range(5) if x % 2 == 0 else reversed(range(5)))][:tiles]
    vars(result)["carries"] = (replace(carry, path=tuple(path)),)
    return result


@pytest.mark.parametrize("tiles", [LONGEST - 1, LONGEST])
def test_way_points_of_the_longest_way(tiles: int) -> None:
    result = snake(tiles)
    stored = compress(result, "search")
    assert rebuild(result, stored.moves, "search") == [carry.path for carry in result.carries]


def test_a_way_that_is_too_long_for_way_points_is_refused() -> None:
    """Compiled code would write behind the end of its tables."""
    with pytest.raises(DttError, match=f"a way of {LONGEST} hops is too long for way-points; {LONGEST - 1} is"):
        compress(snake(LONGEST + 1), "search")
    stored = compress(snake(LONGEST), "search").moves
    with pytest.raises(DttError, match=f"a way of {LONGEST + 1} hops is too long"):
        rebuild(snake(LONGEST), [replace(stored[0], extra=stored[0].extra + 2)], "search")


def test_a_way_that_is_longer_than_the_settings_allow_is_refused() -> None:
    """The search has room for as many hops as the mesh is wide and high, and for its detours."""
    compress(snake(13 + 5 + 8 + 1, detour=8), "search")
    with pytest.raises(DttError, match="a way of 27 hops is too long for way-points; 26 is the most"):
        compress(snake(13 + 5 + 8 + 2, detour=8), "search")


def test_a_plan_made_with_way_points_of_another_order_needs_them() -> None:
    # in `yx` almost every bend of an XY path is a way-point
    result = plan(random_program(4, 300, load=0.4))
    assert compress(result, "yx").points > 3 * compress(result, "xy").points


# -- pulled -----------------------------------------------------------------------------------------------------------


def one_page(hops: int) -> Program:
    return Program(Mesh(6, 1, launch=3), (Page("p", 7, (0,)),), (Task("t", hops, 20, (0,)),))


@pytest.mark.parametrize("hops", [1, 3, 5])
def test_a_pulled_page_takes_a_round_trip(hops: int) -> None:
    result = pull(one_page(hops))
    # the request's way, the mover, the page's way, its landing
    assert result.begun == (hops + REQUEST_CYCLES + 3 + hops + 7 + 1,)
    assert result.cycles == result.begun[0] + 20
    assert (result.moves, result.flit_hops, result.request_flit_hops) == (1, 7 * hops, REQUEST_FLITS * hops)
    assert result.link_load == pytest.approx(7 * hops / (10 * result.cycles))


def test_asking_ahead_hides_what_asking_when_idle_does_not() -> None:
    mesh = Mesh(2, 1, launch=3)
    pages = tuple(Page(f"p{number}", 17, (0,)) for number in range(6))
    tasks = tuple(Task(f"t{number}", 1, 100, (number,)) for number in range(6))
    program = Program(mesh, pages, tasks)
    idle, ahead = pull(program, 0), pull(program, 1)
    wait = ahead.begun[0]
    assert ahead.begun == tuple(wait + 100 * number for number in range(6))
    assert idle.begun == tuple((wait + 100) * number + wait for number in range(6))
    # pushed ahead of time nothing but the first page is waited for, and not for a request
    pushed = plan(program)
    assert pushed.begun[0] == 4 + 1 + 17 + 1
    assert pushed.cycles == pushed.begun[0] + 600


@pytest.mark.parametrize("ahead", [0, 1])
def test_tiles_in_step_pass_pages_on_if_they_are_expected(ahead: int) -> None:
    """Eight pages for four tiles at the same time: their home's port sends each of them four times, or about once."""
    pages = tuple(Page(f"p{number}", 17, (0,)) for number in range(8))
    tasks = tuple(Task(f"t{page} {tile}", tile, 20, (page,)) for page in range(8) for tile in range(1, 5))
    program = Program(Mesh(5, 1, launch=3), pages, tasks)
    known, expected = pull(program, ahead), pull(program, ahead, expecting=True)
    assert known.moves == expected.moves == 32
    assert expected.cycles < known.cycles
    if ahead:
        assert known.cycles > 32 * 17
        assert expected.cycles < 0.75 * known.cycles
    assert expected.flit_hops < known.flit_hops


@pytest.mark.parametrize("expecting", [False, True])
def test_every_pulled_task_comes_behind_what_it_reads(expecting: bool) -> None:
    for seed in range(4):
        program = random_program(4, 400, load=0.9, seed=seed)
        outcome = {page: number for number, task in enumerate(program.tasks) for page in task.outputs}
        for ahead in (0, 1, 3):
            result = pull(program, ahead, expecting)
            busy: defaultdict[int, int] = defaultdict(int)
            for number, task in enumerate(program.tasks):
                for page in task.inputs:
                    if page in outcome:
                        maker = outcome[page]
                        assert result.begun[number] >= result.begun[maker] + program.tasks[maker].cycles
                if not task.delivery:
                    assert result.begun[number] >= busy[task.tile]
                    busy[task.tile] = result.begun[number] + task.cycles
            assert result.moves + result.hits == sum(len(task.inputs) for task in program.tasks)


def test_pushed_beats_pulled_and_both_carry_the_same_data() -> None:
    program = without_deadlines(random_program(4, 1500, load=1.0))
    pushed, pulled = plan(program), [pull(program, ahead) for ahead in (0, 1, 2)]
    assert problems(pushed) == []
    assert pushed.cycles < min(result.cycles for result in pulled)
    assert all(result.moves + result.hits == pushed.moves + pushed.hits for result in pulled)


def test_a_pulled_flow_without_room_says_so() -> None:
    with pytest.raises(DttError, match="ahead = -1"):
        pull(one_page(1), -1)
    mesh = Mesh(2, 1, {(1, 0): 2})
    pages = (Page("a", 4, (0,)), Page("b", 4, (0,)), Page("kept", 4), Page("also", 4))
    # results that nobody fetches stay only as long as nobody needs their room
    tasks = tuple(Task(f"t{number}", 1, 5, (number,), (2 + number,)) for number in range(2))
    assert pull(Program(mesh, pages, tasks)).begun[1] > 0


# -- layers -----------------------------------------------------------------------------------------------------------


def mesh_chip(side: int) -> ChipConfig:
    """A square chip: DRAM channels and scratchpads in the first column."""
    kinds = ["dram", "spm"] * (side // 2)
    rows = [" ".join([kinds[y], *["core"] * (side - 1)]) for y in range(side)]
    rows[-1] = rows[-1].replace("spm", "host")
    return ChipConfig.model_validate(
        {"name": f"mesh{side}", "lanes": 16, "floorplan": rows, "dram": {"bytes_per_cycle": 16}}
    )


@pytest.mark.parametrize("chip", [load("quad16"), load("pe12x14"), mesh_chip(4)], ids=lambda chip: chip.name)
@pytest.mark.parametrize(
    "name", ["resnet8", "resnet50/conv3_2_1", "resnet50/conv5_2_2", "gemm:256x256x256", "conv:14x14x33-33,k3,p2,d2"]
)
def test_layers_as_programs(chip: ChipConfig, name: str) -> None:
    shapes = [workload.shape for workload in find(name)]
    program = layer_program(shapes, chip)
    # all work is there: windows of every fold of every band
    work = sum(task.cycles for task in program.tasks)
    assert work * chip.rows * chip.cols >= sum(shape.macs for shape in shapes)
    result = plan(program)
    assert problems(result) == []
    assert result.cycles * len(chip.cores) >= work
    # every page that travels goes where its kind belongs, once for each memory that does not have it
    assert {page.region for page in program.pages} == {OPERAND_A, OPERAND_B}
    stored = [task for task in program.tasks if task.delivery]
    assert len(stored) == len([page for page in program.pages if not page.homes])


def test_the_pages_of_a_layer_hold_it_exactly() -> None:
    chip = load("quad16")
    (shape,) = [workload.shape for workload in find("resnet50/conv3_2_2")]
    program = layer_program([shape], chip)
    problem = pose(shape, chip)
    words: dict[str, int] = defaultdict(int)
    for page in program.pages:
        words[page.name.split(" ")[1][0]] += page.words
        assert page.flits == page.words + ceil(page.words / 64)
    assert words["x"] == problem.in_rows * problem.in_w * problem.k_blocks
    assert words["w"] == problem.taps * problem.k_blocks * problem.n_blocks * chip.cols
    assert words["y"] == shape.out_h * shape.out_w * problem.n_blocks
    result = cut(problem, chip)
    bands = ceil(problem.out_rows / result.rows)
    parts = ceil(problem.k_blocks / result.blocks)
    assert len([task for task in program.tasks if not task.delivery]) == bands * problem.n_blocks * parts
    one = next(task for task in program.tasks if not task.delivery and not task.outputs)
    gemm = GemmShape(result.rows * problem.out_w, 1, result.blocks, problem.kernel_h, problem.kernel_w)
    assert one.cycles == gemm_occupancy(chip, gemm)
    assert flits_of(64, chip) == 65
    assert flits_of(65, chip) == 67


def test_chained_layers_read_what_the_one_before_has_made() -> None:
    chip = load("quad16")
    shapes = [
        workload.shape for name in ("conv:16x16x32-32,k3,p1", "conv:16x16x32-48,k3,p1") for workload in find(name)
    ]
    chained, apart = layer_program(shapes, chip), layer_program(shapes, chip, chain=False)
    assert sum(bool(page.homes) for page in chained.pages) < sum(bool(page.homes) for page in apart.pages)
    outcome = {page for task in chained.tasks for page in task.outputs}
    assert any(outcome & set(task.inputs) for task in chained.tasks if not task.delivery)
    result = plan(chained)
    assert problems(result) == []
    # some of it comes from the core that made it, over no memory
    cores = set(chip.cores)
    assert any(carry.page in outcome and {carry.path[0], carry.path[-1]} <= cores for carry in result.carries)


def test_affinity_saves_moves() -> None:
    chip = load("quad16")
    # three output blocks on four cores: in turns, a core has another block's weights each time
    (shape,) = [workload.shape for workload in find("conv:28x28x64-48,k3,p1")]
    kept, spread = (plan(layer_program([shape], chip, affinity)) for affinity in (cached, first))
    assert kept.moves < spread.moves


def test_layers_that_do_not_fit_are_refused() -> None:
    chip = load("quad16")
    with pytest.raises(DttError, match="at least one layer"):
        layer_program([], chip)
    (wide,) = [workload.shape for workload in find("conv:4x1000x64-64,k3,p1")]
    with pytest.raises(DttError, match=r"a row of results takes 1000 of \d+ words"):
        layer_program([wide], chip)
    slow = chip.model_copy(update={"dram": chip.dram.model_copy(update={"bytes_per_cycle": 4})})
    with pytest.raises(DttError, match=r"bytes_per_cycle = 4 is not a word of 16 bytes"):
        mesh_of(slow)
    small = chip.model_copy(update={"dram": chip.dram.model_copy(update={"words": 4096})})
    (big,) = [workload.shape for workload in find("resnet50/conv5_2_2")]
    with pytest.raises(DttError, match=r"no memory of chip quad16 has \d+ words left"):
        layer_program([big], small)


# -- imports ----------------------------------------------------------------------------------------------------------


def test_nothing_is_compiled_or_slow_before_it_is_needed() -> None:
    routing = ("planner", "waypoints", "check")
    paper = ("demand_model", "reference_search", "layers", "schedule", "reduction")
    modules = [*(f"routing.{name}" for name in routing), *(f"papers.dtt.{name}" for name in paper)]
    code = "".join(f"import meshloom.sched.{name}\n" for name in modules)
    code += "import sys; print([name for name in ('numba', 'networkx') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


# -- the yardstick ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [3, 4])
@pytest.mark.parametrize("hop_weight", [2, 16])
def test_networkx_finds_ways_of_the_same_cost(side: int, hop_weight: int) -> None:
    result = plan(random_program(side, 90, load=1.0, flits=7, results=False), Settings(hop_weight=hop_weight))
    measured = compare(result, 80)
    assert measured.wrong == 0
    assert measured.equal + measured.turning == measured.moves > 30
    assert measured.equal > 0.9 * measured.moves
    assert measured.rate > 0


def test_only_equal_questions_are_compared() -> None:
    with pytest.raises(DttError, match="only pages of one size"):
        compare(plan(random_program(3, 30)), 10)
    with pytest.raises(DttError, match="has no deadline to compare"):
        compare(plan(without_deadlines(random_program(3, 30, results=False))), 10)
