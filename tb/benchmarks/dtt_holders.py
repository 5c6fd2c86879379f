"""What taking words from the nearest tile that holds them is worth on the RTL: cycles, flit-hops, bytes of DRAM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean

from meshloom.hw.config import ChipConfig, load
from meshloom.sched.schedulers.ahead.entry import NAME

from ..results.events import Event, OnEvent, Plan
from ..results.schema import Row
from ..runs.options import RunOptions
from .ahead import flit_hops
from .interface import all_ran
from .results import Result, Sheet

#: Loop nests that are timed where the fastest is asked for.
NESTS = 4
#: What is compared, by its name in the tables; the first is the baseline that has no plan.
RUNS: Mapping[str, str] = {
    "pulled": "loop_order",
    "pulled, nearest": f"{NAME}:sources=nearest,pushed=no",
    "pushed": NAME,
    "pushed, nearest": f"{NAME}:sources=nearest",
    "nearest, placed": f"{NAME}:sources=nearest,placing=first_best_fit",
    f"{NESTS} nests": f"{NAME}:nests={NESTS}",
    f"{NESTS} nests, nearest": f"{NAME}:sources=nearest,nests={NESTS}",
}
GIVEN, NEAREST, PLACED, NESTS_GIVEN, NESTS_NEAREST = list(RUNS)[2:]
#: Nine 16x16 cores between two DRAM channels.
_NINE = ("dram core core core spm", "spm  core core core host", "dtt  core core core dram")


def nine() -> ChipConfig:
    """Nine cores of ahead16, with its controller, two DRAM channels and two scratchpads."""
    base = load("ahead16")
    values = base.model_dump() | {"name": "nine16", "floorplan": _NINE}
    return ChipConfig.model_validate(values | {"noc": base.noc.model_dump() | {"route_hops": 10}})


#: What runs on four cores and on nine: products, and a layer whose cores share both operands.
LAYERS = ("gemm:64x256x128", "gemm:128x512x256", "conv:14x14x256-256,k1")


def wrong_with(row: Row) -> list[str]:
    """Bars that a run misses: a byte or an arrival that is off, or cycles that were not foreseen."""
    who = f"{row.workload} on {row.chip}, {row.scheduler}"
    found: list[str] = []
    if row.reason or not row.bytes_checked or row.mismatches:
        found.append(f"{who}: {row.reason or 'wrong bytes'}")
    if row.arrival_mismatches:
        found.append(f"{who}: {row.arrival_mismatches} arrivals are off; {row.first_arrival_mismatch}")
    if row.rtl_cycles != row.model_cycles:
        found.append(f"{who}: {row.rtl_cycles:,} cycles, {row.model_cycles:,} were planned")
    return found


def dram_bytes(row: Row) -> int:
    """Bytes read from and written to DRAM, code included."""
    return row.energy.parts["DRAM"].count if row.energy is not None else 0


def _microjoules(row: Row) -> float:
    return row.energy.microjoules if row.energy is not None else 0.0


Ran = Mapping[str, Row]


def cycles_sheet(ran: Sequence[Ran]) -> Sheet:
    """Cycles of every run, and how many times as fast the nearest sources make a pushed one."""
    columns = ("chip", "layer", *(f"{name}>" for name in RUNS), "nearest / given>", "the same, nests>")
    rows = [
        (
            one[GIVEN].chip,
            one[GIVEN].workload,
            *(f"{one[name].rtl_cycles:,}" for name in RUNS),
            f"{one[GIVEN].rtl_cycles / one[NEAREST].rtl_cycles:.3f}",
            f"{one[NESTS_GIVEN].rtl_cycles / one[NESTS_NEAREST].rtl_cycles:.3f}",
        )
        for one in ran
    ]
    bad = frozenset(number for number, one in enumerate(ran) if any(wrong_with(row) for row in one.values()))
    return Sheet("RTL cycles", columns, rows, bad)


def traffic_sheet(ran: Sequence[Ran]) -> Sheet:
    """What travels: flit-hops as the links counted them, bytes of DRAM, energy by the usual table."""
    pairs = ((GIVEN, NEAREST), (NESTS_GIVEN, NESTS_NEAREST))
    columns = (
        "chip", "layer", "flit-hops pushed>", "nearest>", "saved>", "KB of DRAM pushed>", "nearest>", "saved>",
        "uJ pushed>", "nearest>", "flit-hops placed>", "of nearest>",
        "flit-hops nests>", "nearest>", "saved>", "KB of DRAM nests>", "nearest>", "saved>",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for one in ran:
        cells = [one[GIVEN].chip, one[GIVEN].workload]
        for given, nearest in ((one[a], one[b]) for a, b in pairs):
            for count, unit in ((flit_hops, 1), (dram_bytes, 1024)):
                before, now = count(given), count(nearest)
                cells += [f"{before / unit:,.0f}", f"{now / unit:,.0f}", f"{100 * (1 - now / before):.1f} %"]
            if given is one[GIVEN]:
                cells += [f"{_microjoules(given):,.0f}", f"{_microjoules(nearest):,.0f}"]
                hops = flit_hops(one[PLACED])
                cells += [f"{hops:,}", f"{hops / flit_hops(nearest):.3f}"]
        rows.append(tuple(cells))
    return Sheet("What travels", columns, rows)


def _saved(ran: Sequence[Ran], given: str, nearest: str) -> float:
    return 1 - geometric_mean([flit_hops(one[nearest]) / flit_hops(one[given]) for one in ran])


def bars(ran: Sequence[Ran]) -> list[str]:
    """Bars that were missed: those of each run, and what the nearest sources must bring in the mean."""
    found = [text for one in ran for row in one.values() for text in wrong_with(row)]
    for given, nearest in ((GIVEN, NEAREST), (NESTS_GIVEN, NESTS_NEAREST)):
        if (saved := _saved(ran, given, nearest)) < 0.1:
            found.append(f"{nearest}: {100 * saved:.1f} % of the flit-hops saved in the mean, 10 % are the bar")
        gain = geometric_mean([one[given].rtl_cycles / one[nearest].rtl_cycles for one in ran])
        if gain < 1:
            found.append(f"{nearest}: {gain:.3f} times as fast in the mean")
    return found


def run(on_progress: OnEvent) -> Result:
    """Runs every layer every way. Raises BenchmarkError if one does not run."""
    from ..runs import runner

    def pass_on(event: Event) -> None:
        if not isinstance(event, Plan):  # the plan of all cases has been told
            on_progress(event)

    chips = (load("ahead16"), nine())
    on_progress(Plan(rows=len(RUNS) * len(LAYERS) * len(chips)))
    ran: list[Ran] = []
    for chip in chips:
        rows = {
            name: all_ran(runner.run(LAYERS, chip, scheduler, pass_on, RunOptions(links=True)))
            for name, scheduler in RUNS.items()
        }
        ran += [{name: rows[name][number] for name in RUNS} for number in range(len(LAYERS))]
    gains = {
        nearest: geometric_mean([one[given].rtl_cycles / one[nearest].rtl_cycles for one in ran])
        for given, nearest in ((GIVEN, NEAREST), (NESTS_GIVEN, NESTS_NEAREST))
    }
    checked = sum(row.bytes_checked for one in ran for row in one.values())
    arrivals = sum(row.planned_arrivals for one in ran for row in one.values())
    return Result(
        "dtt_holders",
        "From whoever holds it nearest",
        "Each MOVE into a core takes its words from the best of all memories that hold them: DRAM or the scratchpad, "
        "as the base schedule says, or a core that was sent them before, out of its operand memories A and B "
        "(`core.operand_sources`). So what several cores need goes from core to core, as in Figure 8 of "
        "*Dijkstra-Through-Time* (V. Tableau Roche and P. Murugappa Velayuthan). *Pulled*: cores ask, semaphores "
        "decide; *pushed*: `--scheduler dtt`; *nearest*: `sources=nearest`, on the same operations otherwise; "
        "*placed*: cores chosen by First Best Fit (Algorithm 1, `placing=first_best_fit`); "
        f"*{NESTS} nests*: the fastest of the best {NESTS} kinds of loop nests, each timed with its sources "
        "(`nests`). All on the RTL, every byte compared. Bars: no byte and no arrival off, cycles those of the model; "
        "in the mean no slower, and a tenth of the flit-hops saved.",
        (cycles_sheet(ran), traffic_sheet(ran)),
        (
            f"{checked:,} bytes compared, {arrivals:,} arrivals; in the geometric mean {gains[NEAREST]:.3f} times as "
            f"fast with the nearest sources, {100 * _saved(ran, GIVEN, NEAREST):.1f} % of the flit-hops saved; with "
            f"nests chosen for them {gains[NESTS_NEAREST]:.3f}, "
            f"{100 * _saved(ran, NESTS_GIVEN, NESTS_NEAREST):.1f} %. First Best Fit changes the flit-hops of the "
            f"nearest sources by {-100 * _saved(ran, NEAREST, PLACED):+.1f} % in the mean.",
            "*Flit-hops*: flits x links between routers, counted by the routers, code included. *DRAM*: reads, writes "
            "and code. *uJ*: by the usual energy table (`meshloom run`), an estimate.",
        ),
        tuple(bars(ran)),
    )
