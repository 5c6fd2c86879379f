"""Many networks at once by five online schedulers, on the RTL and in the model, beside the figures of Layer-Puzzle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshloom.sched.workload.workload_sets import EACH, SIZES

from ..results.events import OnEvent, RowCount
from ..runs.workers import workers
from . import layer_puzzle_sheets as sheets
from . import layer_puzzle_waits as waits
from . import served_cases
from .interface import BenchmarkError
from .layer_puzzle_sheets import CHIPS, SCHEDULERS, Found
from .results import Result, Sheet
from .served import Asked, cpus, known, measure, result

CHIP = CHIPS[0]
#: On the RTL, by chip: workloads that every scheduler serves, and those that one does. `large3` has most work of all.
ALL = {"lp9": ("small3", "small7"), "lp25": ("small3",)}
ONE = {
    "lp9": (
        ("large3", "veltair"),
        ("large3", "layer_puzzle"),
        *((f"small{index}", "lookahead") for index in (0, 1, 2, 4, 5, 9)),
    ),
    "lp25": (("small7", "layer_puzzle"), ("small7", "lookahead")),
}
#: Schedulers that are also held to one parallelisation, and which ones.
HELD, KINDS = SCHEDULERS[:4], ("fmap", "output")
#: Sizes of the workloads on which Algorithm 2 is served by all its readings.
READ = ("small", "medium")
#: Cycles from an event to the launch of what is decided on it: none, the least that registers take on lp9, some more,
#: 10 us at 700 MHz, and ten and a hundred times that.
WAITS = (0, None, 2_000, 7_000, 70_000, 700_000)
#: Workloads for which these are tried.
WAITED = ("small3", "small7")


def plan() -> dict[str, tuple[Asked, ...]]:
    """What is served, by the name of the part."""
    found: dict[str, tuple[Asked, ...]] = {}
    for chip in CHIPS:
        for size in SIZES:
            names = [f"{size}{index}" for index in range(EACH)]
            found[f"{chip}-{size}"] = tuple(Asked(chip, name, each) for name in names for each in SCHEDULERS)
        every = [(name, each) for name in ALL[chip] for each in SCHEDULERS]
        found[f"{chip}-rtl"] = tuple(Asked(chip, *each, rtl=True) for each in (*every, *ONE[chip]))
    names = [f"small{index}" for index in range(EACH)]
    for kind in KINDS:
        found[kind] = tuple(Asked(CHIP, name, f"{each}:schemes={kind}") for name in names for each in HELD)
    found["decisions"] = tuple(
        Asked(CHIP, name, each, wait=wait) for name in WAITED for each in SCHEDULERS for wait in WAITS
    )
    found["readings"] = tuple(Asked(CHIP, name, each) for name in waits.workloads(READ) for each in waits.READINGS)
    return found


#: What `run` can be held to; "cases" are those of `served_cases`, "kept" measures nothing.
PARTS = (*plan(), "cases", "kept")


def run(on_progress: OnEvent, parts: Sequence[str] = ()) -> Result:
    """Serves `parts` of the plan (none named: all of it), but for what is kept; shows everything that there is then.

    Part "kept" measures nothing. Raises BenchmarkError for others.
    """
    if unknown := [part for part in parts if part not in PARTS]:
        raise BenchmarkError(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    planned = plan()
    chosen = [one for part in (parts or planned) for one in planned.get(part, ())]
    on_progress(RowCount(rows=len(chosen)))
    failures = measure(chosen, on_progress) if chosen else []
    if not parts or "cases" in parts:
        with workers(cpus()) as pool:
            served_cases.measure(pool, on_progress)
    everything = dict.fromkeys(one for part in planned.values() for one in part)
    compiled = known(everything)
    kept = ((one, result(one, compiled)) for one in everything)
    found: Found = {one: each for one, each in kept if each is not None}
    made = [
        sheets.on_rtl([one for chip in CHIPS for one in planned[f"{chip}-rtl"]], found, failures),
        served_cases.sheet(failures),
        sheets.means(found, failures),
        sheets.by_size(found),
        waits.waits(found),
        waits.readings(found, READ),
        sheets.held(found, HELD, KINDS),
        *sheets.decisions(found, WAITED, WAITS),
        sheets.programs(compiled),
    ]
    made.append(missing(planned, found))
    if made[-1].rows:
        failures.append(f"{len(everything) - len(found)} of {len(everything)} results are missing")
    return Result(
        "layer_puzzle",
        "Many networks at once",
        "Workloads of three, six and ten networks, drawn from those of the paper's Table III with batches of 1 and 4 "
        "(`sched/workload/workload_sets.py`), all asked for in cycle 0; deadlines of 0.4 (lp9) and 0.2 (lp25) times "
        "the time on one core. Isolated times: of the timeline model, the fastest version of each layer on all cores. "
        "Versions are compiled for every number of cores, as in the paper. `lookahead` is ours. On the RTL every "
        "tensor of every network is compared with ONNX Runtime. *a / b*: what was found, and what the paper says. "
        "Schedulers held to one parallelisation cut every layer by the feature map (`fmap`) or by output channels "
        "(`output`) alone; a layer with fewer parts than cores takes as many cores as it has parts.",
        tuple(sheet for sheet in made if sheet.rows),
        failures=tuple(failures),
    )


def missing(planned: Mapping[str, Sequence[Asked]], found: Found) -> Sheet:
    """What has not been measured, by part and scheduler."""
    rows: list[tuple[str, ...]] = []
    for part, asked in planned.items():
        left = [one.scheduler.partition(":")[0] for one in asked if one not in found]
        if left:
            by = ", ".join(f"{left.count(name)} by {name}" for name in dict.fromkeys(left))
            rows.append((part, f"{len(left)}", f"{len(asked)}", by))
    title = "Not measured since what decides it changed; `meshloom bench layer_puzzle --part NAME` measures a part"
    return Sheet(title, ("part", "missing>", "of>", "by scheduler"), rows)
