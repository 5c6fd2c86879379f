"""Ahead-of-time routing: page moves planned per CPU-second, beside networkx; waypoints; pushed against pulled flow."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.papers.dtt import examples
from meshloom.sched.papers.dtt.reduction import Reduction, reduce
from meshloom.sched.papers.dtt.synthetic import random_program
from meshloom.sched.routing import check
from meshloom.sched.routing.hardware import DttError
from meshloom.sched.routing.plan import Plan, Settings
from meshloom.sched.routing.waypoints import Between, compress

from ..results.events import OnEvent, Stage
from .dtt_flows import FLOWS, Flows, Routed, flows_row, pushed_and_pulled, route
from .interface import BenchmarkError
from .results import FOLDER, Result, Sheet

if TYPE_CHECKING:
    from meshloom.sched.papers.dtt.reference_search import Yardstick

PLOT = "dtt_routing.svg"
#: Least page moves per CPU-second.
BAR = 30_000
SIDES = (4, 8)
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
#: Share of cycles in which the busiest ports carry a flit as planned; the second is more than there is.
LOAD, TOO_MUCH = 0.6, 1.1
#: Flits of a page: 16 words and a head.
FLITS = 17
#: Short plans are made so many times, and the fastest counts.
REPEATS, SHORT = 3, 30_000
#: Moves that networkx is asked for, and weights of a hop: against a cycle waited, as planned and as in the paper.
ASKED, WEIGHTS = 150, (16, 1000)
#: Moves of the plans whose waypoints are counted.
STORED = 10_000
WORKLOADS = {
    "resnet8, all layers": ("resnet8",),
    "resnet50/conv2_1_2": ("resnet50/conv2_1_2",),
    "resnet50/conv3_2_1..3": ("resnet50/conv3_2_1", "resnet50/conv3_2_2", "resnet50/conv3_2_3"),
    "resnet50/conv5_2_2": ("resnet50/conv5_2_2",),
    "vgg16/conv4_2": ("vgg16/conv4_2",),
    "gemm:256x256x256": ("gemm:256x256x256",),
}
#: Whole networks take minutes; this one is planned on the largest mesh only.
WHOLE = {"vgg16, all layers": ("vgg16",)}
#: Sizes of dot products that share the eight multipliers of the reduction tree, and how often.
REDUCTIONS, BATCHES = ((8,), (4, 4), (3, 3, 2), (2, 4, 2), (1, 2, 2, 2, 1), (3, 2, 3)), 6


def square(side: int) -> ChipConfig:
    """A chip of `side` x `side` tiles: memories in the first column, of large ones DRAM in the last, else cores."""
    rows: list[list[str]] = []
    for y in range(side):
        kinds = ["dram" if y % 2 == 0 else "spm", *["core"] * (side - 1)]
        if side > 4 and y % 2 == 0:
            kinds[-1] = "dram"
        rows.append(kinds)
    rows[-1][0] = "host"
    return ChipConfig.model_validate(
        {
            "name": f"square{side}",
            "lanes": 16,
            "floorplan": [" ".join(kinds) for kinds in rows],
            "dram": {"bytes_per_cycle": 16, "words": 1 << 22},
            "spm_words": 1 << 16,
        }
    )


# -- tables -----------------------------------------------------------------------------------------------------------


def speed_row(side: int, load: float, routed: Routed) -> tuple[str, ...]:
    """A row of `speed_sheet`."""
    plan = routed.plan
    return (
        f"{side}x{side}",
        f"{100 * load:.0f} %",
        f"{plan.moves:,}",
        f"{plan.hits:,}",
        f"{plan.cycles:,}",
        f"{100 * plan.link_load:.0f} %",
        f"{100 * plan.missed / max(plan.moves, 1):.1f} %",
        f"{len(plan.late):,} of {len(plan.program.tasks):,}",
        f"{plan.looked_at / max(plan.moves, 1):.0f}",
        f"{1000 * routed.seconds:,.0f}",
        f"{routed.rate:,.0f}",
    )


_SPEED = (
    "mesh",
    "port load>",
    "moves>",
    "hits>",
    "cycles>",
    "link load>",
    "late moves>",
    "tasks re-timed>",
    "links looked at>",
    "CPU ms>",
    "moves/s>",
)


def slow(side: int, load: float, routed: Routed) -> list[str]:
    """Bars that a plan misses, in words."""
    found = check.problems(routed.plan)
    reasons = [f"{side}x{side}, {routed.plan.moves:,} moves: {found[0]} (and {len(found) - 1} more)"] if found else []
    if load == LOAD and routed.rate < BAR:
        reasons.append(f"{side}x{side}: {routed.plan.moves:,} moves at {routed.rate:,.0f} moves/s, below {BAR:,}")
    return reasons


def yardstick_row(side: int, weight: int, routed: Routed, found: Yardstick) -> tuple[str, ...]:
    """The plain formulation beside the compiled search, on the same moves."""
    return (
        f"{side}x{side}",
        f"{weight}",
        f"{found.moves}",
        f"{found.equal}",
        f"{found.turning}",
        f"{found.building:.2f}",
        f"{found.rate:,.1f}",
        f"{routed.rate:,.0f}",
        f"{routed.rate / found.rate:,.0f}",
    )


_YARDSTICK = (
    "mesh",
    "hop weight>",
    "moves>",
    "of equal cost>",
    "turning back>",
    "graph, CPU s>",
    "networkx moves/s>",
    "compiled moves/s>",
    "ratio>",
)


def stored_row(side: int, plan: Plan, between: Between) -> tuple[str, ...]:
    """What is stored of a plan. Raises DttError if a route is not rebuilt as it was planned."""
    found = compress(plan, between)
    moves = max(len(found.moves), 1)
    name = {"xy": "XY", "yx": "YX", "search": "the same search"}[between]
    return (
        f"{side}x{side}",
        name,
        f"{len(found.moves):,}",
        f"{sum(carry.hops for carry in plan.carries) / moves:.2f}",
        f"{found.points / moves:.3f}",
        f"{found.most_points}",
        f"{found.listed_bits / moves:.1f}",
        f"{found.route_bits / moves:.1f}",
        f"{found.stored_bits / moves:.1f}",
        f"{found.listed_bits / found.stored_bits:.2f}",
        f"{found.turn_bits / max(found.point_bits, 1):.2f}",
    )


_STORED = (
    "mesh",
    "between waypoints",
    "moves>",
    "hops>",
    "waypoints>",
    "most>",
    "listed>",
    "routes>",
    "stored>",
    "listed / stored>",
    "turns / rest>",
)


def reductions_sheet() -> Sheet:
    """The reduction tree of the paper's section III-B, with and without its side links. Raises TimingFault."""
    rows: list[tuple[str, ...]] = []
    for sizes in REDUCTIONS:
        todo: list[Reduction] = []
        for batch in range(BATCHES):
            ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
            for number, (size, end) in enumerate(zip(sizes, ends, strict=True)):
                names = tuple(f"MUL_{index}" for index in range(end - size, end))
                todo.append(Reduction(batch * len(sizes) + number, names))
        plain, augmented = (reduce(examples.reduction_network(style), todo) for style in (False, True))
        used = [augmented.utilisation[wire] for wire in examples.AUGMENTED]
        rows.append(
            (
                "+".join(map(str, sizes)),
                f"{len(todo)}",
                f"{float(plain.energy):.1f}",
                f"{float(augmented.energy):.1f}",
                f"{100 * float(1 - augmented.energy / plain.energy):.1f} %",
                f"{plain.runtime}",
                f"{augmented.runtime}",
                " / ".join(f"{100 * share:.0f} %" for share in used),
            )
        )
    columns = (
        "dot products",
        "in all>",
        "energy, tree>",
        "augmented>",
        "saved>",
        "cycles, tree>",
        "augmented>",
        "side links used>",
    )
    return Sheet(f"Reduction tree, scheduled backwards: {BATCHES} times eight products", columns, rows)


# -- the run ----------------------------------------------------------------------------------------------------------


def run(on_progress: OnEvent) -> Result:
    """Measures everything; writes the plot beside the tables."""
    try:
        return _run(on_progress)
    except DttError as error:
        raise BenchmarkError(str(error)) from error


def _speeds(on_progress: OnEvent) -> tuple[Sheet, list[str], dict[int, list[Routed]]]:
    """Random programs of all sizes; bars that were missed, and the plans below full load, by side of the mesh."""
    rows: list[tuple[str, ...]] = []
    failures: list[str] = []
    failed: set[int] = set()
    speeds: dict[int, list[Routed]] = {side: [] for side in SIDES}
    for side in SIDES:
        for load_now, size in (*((LOAD, size) for size in SIZES), (TOO_MUCH, SIZES[-1])):
            on_progress(Stage(workload=f"{side}x{side}", what=f"planning and checking {size:,} page moves"))
            program = random_program(side, size, load=load_now, flits=FLITS)
            routed = route(program, repeats=REPEATS if size < SHORT else 1)
            rows.append(speed_row(side, load_now, routed))
            if reasons := slow(side, load_now, routed):
                failures += reasons
                failed.add(len(rows) - 1)
            if load_now == LOAD:
                speeds[side].append(routed)
    speed = Sheet(f"Random programs, pages of {FLITS} flits", _SPEED, rows, frozenset(failed))
    return speed, failures, speeds


def _beside(on_progress: OnEvent) -> tuple[Sheet, list[str], dict[int, float]]:
    """The same questions asked of networkx; what differs, and its rate by side of the mesh."""
    from meshloom.sched.papers.dtt.reference_search import compare

    failures: list[str] = []
    beside: list[tuple[str, ...]] = []
    rates: dict[int, float] = {}
    for side in SIDES:
        for weight in WEIGHTS:
            on_progress(Stage(workload=f"{side}x{side}", what=f"asking networkx for {ASKED} moves"))
            program = random_program(side, ASKED, load=LOAD, flits=FLITS, results=False)
            routed = route(program, Settings(hop_weight=weight), REPEATS)
            found = compare(routed.plan, ASKED)
            beside.append(yardstick_row(side, weight, routed, found))
            rates[side] = min(rates.get(side, found.rate), found.rate)
            if found.wrong:
                failures.append(f"{side}x{side}: {found.wrong} of {found.moves} routes do not cost what networkx finds")
    yardstick = Sheet("Beside networkx: the same questions over the same reservations", _YARDSTICK, beside)
    return yardstick, failures, rates


def _waypoint_sheet(on_progress: OnEvent) -> Sheet:
    """What the routes of a plan cost as waypoints."""
    stored: list[tuple[str, ...]] = []
    for side in SIDES:
        on_progress(Stage(workload=f"{side}x{side}", what="choosing waypoints and rebuilding every route"))
        plan = route(random_program(side, STORED, load=LOAD, flits=FLITS)).plan
        betweens: tuple[Between, ...] = ("yx", "xy", "search")
        stored += [stored_row(side, plan, between) for between in betweens]
    return Sheet("Waypoints: bits of a move", _STORED, stored)


def _both(on_progress: OnEvent) -> list[Flows]:
    """All workloads, pushed and pulled, on all chips."""
    flows: list[Flows] = []
    for chip in (load("quad16"), *map(square, SIDES)):
        for workload, names in (WORKLOADS | WHOLE if chip.width == SIDES[-1] else WORKLOADS).items():
            on_progress(Stage(workload=workload, what=f"pushed and pulled on {chip.name}"))
            flows.append(pushed_and_pulled(chip, workload, names))
    return flows


def _run(on_progress: OnEvent) -> Result:
    from .dtt_plot import draw

    on_progress(Stage(workload="dtt", what="compiling the search, unless it is cached"))
    route(random_program(4, 50))
    speed, failures, speeds = _speeds(on_progress)
    yardstick, wrong, rates = _beside(on_progress)
    failures += wrong
    waypoint_sheet = _waypoint_sheet(on_progress)
    flows = _both(on_progress)
    lost = [one for one in flows if one.gain < 1]
    pushed = Sheet(
        "Pushed and pulled",
        FLOWS,
        [flows_row(one) for one in flows],
        frozenset(number for number, one in enumerate(flows) if one in lost),
    )
    on_progress(Stage(workload="plot", what=f"drawing {PLOT}"))
    draw(
        {side: [(one.plan.moves, one.rate) for one in some] for side, some in speeds.items()},
        rates,
        flows,
        FOLDER / PLOT,
    )
    return Result(
        "dtt_routing",
        "Dijkstra through time",
        "Page moves planned ahead of time (`sched/routing`), after Tableau Roche and Murugappa Velayuthan, "
        "*Dijkstra-Through-Time*. One CPU; CPU time of `Planner.plan`, without making programs and tables, "
        f"without compiling; plans below {SHORT:,} moves are made {REPEATS} times, and the fastest counts. *Port "
        "load*: share of cycles for which the busiest ports are planned; *late moves*: delivered after the planned "
        "start of their task, which begins later then; *links looked at*: per move. Every plan is proved by "
        f"`sched/routing/check.py`. Bars: {BAR:,} moves/s at {100 * LOAD:.0f} % port load at every size; no problem "
        "found; every route of the cost that networkx finds; every route rebuilt as it was planned.",
        (speed, yardstick, waypoint_sheet, pushed, reductions_sheet()),
        (
            f"![Moves per second, and pushed against pulled]({PLOT})",
            "*networkx*: the plain formulation, an explicit time-expanded graph and Dijkstra's algorithm; it may turn "
            "back on the spot, which no router does. The higher a hop weighs against a cycle waited, the more of the "
            "time axis it floods.",
            "*Waypoints*: `listed`: (tile, cycle) of every hop, as the search puts them out; `routes`: a departure "
            "and two bits for each hop and the end; `stored`: departure, waypoints and, for the search, the number of "
            "extra hops; `turns / rest`: the last two without departures. A controller that repeats the search over "
            "the same reservations in the same order needs no waypoint; one that repeats the whole planning needs no "
            "departure either.",
            "*Pulled*: a tile requests a page from whoever holds it nearest, 0, 1 or 2 tasks ahead; an ideal protocol "
            "(no directory traffic, requests never wait, trains wait at their sources only). *Pages expected*: the "
            "directory also knows to whom a page is on its way, and sends who asks next there if it would come from "
            "there first. Without that, asking ahead makes tiles ask in step: nobody but its home has a page then, "
            "whose port sends it to each of them, one after the other (asking late spreads the tiles, so that later "
            "ones find pages nearby). *Gain*: cycles of the best pulled run of both kinds for each pushed one. *Ideal "
            "cycles*: if no core ever waited. *Busiest port*: of the pushed flow, its share of cycles with a flit. "
            "Networks are the convolutions and matrix products of their tables, each reading what the one before has "
            "made where shapes "
            "allow it." + ("" if not lost else " " + _lost(lost)),
        ),
        tuple(failures),
        {name: metadata.version(name) for name in ("numba", "networkx", "matplotlib")},
    )


def _lost(lost: Sequence[Flows]) -> str:
    """Where the pulled flow is faster, and how near the pushed one is to the limits of the chip there."""
    reasons: list[str] = []
    for one in lost:
        port, share = one.pushed.busiest_port
        reasons.append(
            f"{one.workload} on {one.chip}, by {100 * (1 - one.gain):.1f} % (pushed, the cores work in "
            f"{100 * one.ideal / one.pushed.cycles:.0f} % of all cycles, and the {port} carries flits in "
            f"{100 * share:.0f} %)"
        )
    return f"Pulled is faster in {'; '.join(reasons)}."
