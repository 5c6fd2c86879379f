"""What taking words from the nearest tile that holds them is worth on the RTL: cycles, flit-hops, bytes of DRAM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.papers.dtt.entry import NAME
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.store.kinds import SCHEDULES

from ..build.builder import ingredients
from ..results.events import Event, OnEvent, RowCount
from ..results.schema import Row
from ..runs.options import RunOptions
from .ahead import flit_hops
from .interface import BenchmarkError, all_ran
from .results import Result, Sheet

_DEVICE = "verilator"
#: What is compared, by its name in the tables.
RUNS: Mapping[str, str] = {
    "pulled": "loop_order",
    "pulled, nearest": f"{NAME}:sources=nearest,pushed=no",
    "pushed": NAME,
    "pushed, nearest": f"{NAME}:sources=nearest",
    "nearest, placed": f"{NAME}:sources=nearest,placing=first_best_fit",
}
PULLED, PULLED_NEAREST, GIVEN, NEAREST, PLACED = RUNS
_ROW = TypeAdapter(Row)
#: Nine 16x16 cores between two DRAM channels.
_NINE = ("dram core core core spm", "spm  core core core host", "dtt  core core core dram")


#: Four, between three.
_FOUR = ("dram core core dtt", "spm  core core spm", "host spm  dram spm")


def four() -> ChipConfig:
    """ahead16 with a scratchpad in place of the channel for code, so that nothing but sources differs."""
    values = load("ahead16").model_dump() | {"name": "four16", "floorplan": _FOUR, "controller_channel": False}
    return ChipConfig.model_validate(values)


def nine() -> ChipConfig:
    """Nine cores of ahead16, with its controller, two DRAM channels and two scratchpads."""
    base = load("ahead16")
    values = base.model_dump() | {"name": "nine16", "floorplan": _NINE, "controller_channel": False}
    return ChipConfig.model_validate(values | {"noc": base.noc.model_dump() | {"route_hops": 10}})


#: What runs on four cores and on nine: products, and a layer whose cores share both operands.
LAYERS = ("gemm:64x256x128", "gemm:128x512x256", "conv:14x14x256-256")


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
    """Cycles of every run, and how many times as fast the nearest sources make one."""
    columns = ("chip", "layer", *(f"{name}>" for name in RUNS), "gain pulled>", "gain pushed>", "arrivals>", "off>")
    rows = [
        (
            one[GIVEN].chip,
            one[GIVEN].workload,
            *(f"{one[name].rtl_cycles:,}" for name in RUNS),
            f"{_gain([one], PULLED, PULLED_NEAREST):.3f}",
            f"{_gain([one], GIVEN, NEAREST):.3f}",
            f"{sum(row.planned_arrivals for row in one.values()):,}",
            f"{sum(row.arrival_mismatches for row in one.values())}",
        )
        for one in ran
    ]
    bad = frozenset(number for number, one in enumerate(ran) if any(wrong_with(row) for row in one.values()))
    return Sheet("RTL cycles", columns, rows, bad)


def traffic_sheet(ran: Sequence[Ran]) -> Sheet:
    """What travels in pushed runs: flit-hops as the links counted them, bytes of DRAM, energy by the usual table."""
    columns = (
        "chip", "layer", "flit-hops pushed>", "nearest>", "saved>", "placed>", "KB of DRAM pushed>", "nearest>",
        "saved>", "uJ pushed>", "nearest>",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for one in ran:
        given, nearest = one[GIVEN], one[NEAREST]
        rows.append(
            (
                given.chip,
                given.workload,
                f"{flit_hops(given):,}",
                f"{flit_hops(nearest):,}",
                f"{100 * _saved([one], GIVEN, NEAREST):.1f} %",
                f"{flit_hops(one[PLACED]):,}",
                f"{dram_bytes(given) / 1024:,.0f}",
                f"{dram_bytes(nearest) / 1024:,.0f}",
                f"{100 * (1 - dram_bytes(nearest) / dram_bytes(given)):.1f} %",
                f"{_microjoules(given):,.1f}",
                f"{_microjoules(nearest):,.1f}",
            )
        )
    return Sheet("What travels, pushed", columns, rows)


def _saved(ran: Sequence[Ran], given: str, nearest: str) -> float:
    return 1 - geometric_mean([flit_hops(one[nearest]) / flit_hops(one[given]) for one in ran])


def _gain(ran: Sequence[Ran], given: str, nearest: str) -> float:
    return geometric_mean([one[given].rtl_cycles / one[nearest].rtl_cycles for one in ran])


def bars(ran: Sequence[Ran]) -> list[str]:
    """Bars that were missed: those of each run, and what the nearest sources must bring in the mean."""
    found = [text for one in ran for row in one.values() for text in wrong_with(row)]
    if not ran:
        return found
    if (saved := _saved(ran, GIVEN, NEAREST)) < 0.1:
        found.append(f"{NEAREST}: {100 * saved:.1f} % of the flit-hops saved in the mean, 10 % are the bar")
    if (gain := _gain(ran, GIVEN, NEAREST)) < 1:
        found.append(f"{NEAREST}: {gain:.3f} times as fast in the mean")
    return found


def _memory(chip: ChipConfig) -> SearchCache:
    return SearchCache(SCHEDULES.folder(), chip, "holders", "sched.papers.dtt.entry", "sched.lowering.programs")


def _key(chip: ChipConfig, layer: str, scheduler: str) -> object:
    return layer, scheduler, ingredients(chip, _DEVICE, False)["sources"]


def known(chip: ChipConfig, layer: str) -> dict[str, Row]:
    """What is kept of a layer on a chip, by the name of the run."""
    found = {name: _memory(chip).get(_key(chip, layer, scheduler), _ROW) for name, scheduler in RUNS.items()}
    return {name: row for name, row in found.items() if row is not None}


def _measure(chip: ChipConfig, on_progress: OnEvent) -> None:
    """Runs what is not kept, and keeps each row as it comes. Raises BenchmarkError if one does not run."""
    from ..runs import runner

    for name, scheduler in RUNS.items():
        if left := [layer for layer in LAYERS if name not in known(chip, layer)]:

            def keep(event: Event, scheduler: str = scheduler) -> None:
                if isinstance(event, Row):
                    if event.error is None:
                        _memory(chip).put(_key(chip, event.workload, scheduler), _ROW, event)
                elif not isinstance(event, RowCount):  # each run has a plan of its own
                    on_progress(event)

            all_ran(runner.run(left, chip, scheduler, keep, RunOptions(device=_DEVICE, links=True, here=True)))


def run(on_progress: OnEvent, parts: Sequence[str] = ()) -> Result:
    """Runs every layer every way on the chips `parts` (all, if none is named), and shows what is known of the others,
    too. Rows are kept. Raises BenchmarkError if one does not run, or a part has another name than a chip."""
    chips = {chip.name: chip for chip in (four(), nine())}
    if unknown := [part for part in parts if part not in (*chips, "kept")]:
        raise BenchmarkError(f"there is no part {unknown[0]!r}; there are {', '.join(chips)} and kept")
    for name, chip in chips.items():
        if not parts or name in parts:
            _measure(chip, on_progress)
    every = [(name, layer, known(chip, layer)) for name, chip in chips.items() for layer in LAYERS]
    ran: list[Ran] = [rows for _, _, rows in every if len(rows) == len(RUNS)]
    missing = [f"{layer} on {name}" for name, layer, rows in every if len(rows) < len(RUNS)]
    remarks = [
        "*Flit-hops*: flits x links between routers, counted by the routers, code included. *DRAM*: reads, writes and "
        "code. *uJ*: by the usual energy table (`meshloom run`), an estimate."
    ]
    if missing:
        remarks.append(f"Not measured: {', '.join(missing)}; `meshloom bench dtt_holders` goes on.")
    if whole := [rows for rows in ran if not any(map(wrong_with, rows.values()))]:
        remarks.insert(0, _summary(whole))
    return Result(
        "dtt_holders",
        "From whoever holds it nearest",
        "Each MOVE into a core takes its words from the best of all memories that hold them: DRAM or the scratchpad, "
        "as the base schedule says, or a core that was sent them before, out of its operand memories A and B "
        "(`core.operand_sources`). So what several cores need goes from core to core, as in Figure 8 of "
        "*Dijkstra-Through-Time* (V. Tableau Roche and P. Murugappa Velayuthan). *Pulled*: cores ask, semaphores "
        "decide; *pushed*: `--scheduler dtt`; *nearest*: `sources=nearest`, on the same operations otherwise; "
        "*placed*: cores chosen by First Best Fit (Algorithm 1, `placing=first_best_fit`). All on the RTL, every byte "
        "compared. Bars: no byte and no arrival off, cycles those of the model; pushed in the mean no slower, and a "
        "tenth of the flit-hops saved.",
        (cycles_sheet(ran), traffic_sheet(ran)),
        tuple(remarks),
        tuple(bars(ran)),
    )


def _summary(ran: Sequence[Ran]) -> str:
    checked = sum(row.bytes_checked for one in ran for row in one.values())
    arrivals = sum(row.planned_arrivals for one in ran for row in one.values())
    return (
        f"{checked:,} bytes compared, {arrivals:,} arrivals. In the geometric mean the nearest sources make pushed "
        f"programs {_gain(ran, GIVEN, NEAREST):.3f} and pulled ones {_gain(ran, PULLED, PULLED_NEAREST):.3f} times as "
        f"fast, and save {100 * _saved(ran, GIVEN, NEAREST):.1f} % and "
        f"{100 * _saved(ran, PULLED, PULLED_NEAREST):.1f} % of the flit-hops. First Best Fit changes the flit-hops of "
        f"the nearest sources by {-100 * _saved(ran, NEAREST, PLACED):+.1f} %, cycles by a factor of "
        f"{1 / _gain(ran, NEAREST, PLACED):.3f}."
    )
