"""What taking words from the nearest tile that holds them is worth on the RTL: cycles, flit-hops, bytes of DRAM."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from meshloom.sched.papers.dtt.entry import NAME

from ...results.schema import Row
from ..engine.figures import total
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, mean_ratio, ratio, share, table
from ..points.runs import Changes, RunPoint
from .traffic import flit_hops, off_plan

#: What is compared, by its name in the tables.
RUNS: Mapping[str, str] = {
    "pulled": "loop_order",
    "pulled, nearest": f"{NAME}:sources=nearest,pushed=no",
    "pushed": NAME,
    "pushed, nearest": f"{NAME}:sources=nearest",
    "nearest, placed": f"{NAME}:sources=nearest,placing=first_best_fit",
}
PULLED, PULLED_NEAREST, PUSHED, NEAREST, PLACED = RUNS
#: Four 16x16 cores between three DRAM channels: `ahead16` with a scratchpad in place of the channel for code, so that
#: nothing but sources differs.
FOUR: Changes = (
    ("controller_channel", False),
    ("floorplan", ("dram core core dtt", "spm  core core spm", "host spm  dram spm")),
)
#: Nine, between two channels and two scratchpads.
NINE: Changes = (
    ("controller_channel", False),
    ("floorplan", ("dram core core core spm", "spm  core core core host", "dtt  core core core dram")),
    ("noc.route_hops", 10),
)
#: What differs from `ahead16`, by the name in the tables; the first chip is quick.
CHIPS: Mapping[str, Changes] = {"four cores": FOUR, "nine cores": NINE}
#: Products, and a layer whose cores share both operands.
LAYERS = ("gemm:64x256x128", "gemm:128x512x256", "conv:14x14x256-256")


def _point(chip: str, layer: str, run: str) -> RunPoint:
    return RunPoint("ahead16", layer, RUNS[run], CHIPS[chip], links=True)


def points(full: bool) -> list[RunPoint]:
    """Every layer every way."""
    chips = list(CHIPS)[: None if full else 1]
    return [_point(chip, layer, run) for chip in chips for layer in LAYERS for run in RUNS]


class _Line:
    """A layer on a chip every way."""

    def __init__(self, chip: str, layer: str, rows: Mapping[str, Row]) -> None:
        self.chip, self.layer, self.rows = chip, layer, rows

    def cycles(self, run: str) -> int:
        """On the RTL."""
        return self.rows[run].rtl_cycles

    def hops(self, run: str) -> int:
        """Flit-hops as the links counted them."""
        return flit_hops(self.rows[run])

    def dram(self, run: str) -> int:
        """Bytes read from and written to DRAM, code included."""
        energy = self.rows[run].energy
        return energy.parts["DRAM"].count if energy is not None else 0

    def microjoules(self, run: str) -> float:
        """By the usual energy table."""
        energy = self.rows[run].energy
        return energy.microjoules if energy is not None else 0.0


def _lines(rows: Rows) -> list[_Line]:
    """Those of which every way has a row."""
    lines: list[_Line] = []
    for chip in CHIPS:
        for layer in LAYERS:
            some = {run: rows[point] for run in RUNS if (point := _point(chip, layer, run)) in rows}
            if len(some) == len(RUNS):
                lines.append(_Line(chip, layer, some))
    return lines


def _gain(lines: list[_Line], base: str, other: str) -> float | None:
    """Times as fast, geometric mean."""
    return mean_ratio((line.cycles(base), line.cycles(other)) for line in lines)


def _saved(lines: list[_Line], base: str, other: str) -> float | None:
    """Percent of the flit-hops, geometric mean."""
    mean = mean_ratio((line.hops(other), line.hops(base)) for line in lines)
    return None if mean is None else 100 * (1 - mean)


def cycles(rows: Rows) -> Table:
    """Cycles of every run, and how many times as fast the nearest sources make one."""
    columns: dict[str, Callable[[_Line], str]] = {
        "chip": lambda line: line.chip,
        "layer": lambda line: line.layer,
        **{f"{run}>": lambda line, run=run: count(line.cycles(run)) for run in RUNS},
        "gain pulled>": lambda line: ratio(_gain([line], PULLED, PULLED_NEAREST)),
        "gain pushed>": lambda line: ratio(_gain([line], PUSHED, NEAREST)),
        "arrivals>": lambda line: count(sum(row.planned_arrivals for row in line.rows.values())),
        "off>": lambda line: count(sum(row.arrival_mismatches for row in line.rows.values())),
    }
    return table("RTL cycles", columns, _lines(rows))


def _less(one: int, other: int) -> str:
    """How much less one is than another."""
    return share(1 - one / other if other else None)


def traffic(rows: Rows) -> Table:
    """What travels in pushed runs: flit-hops, bytes of DRAM, energy."""
    columns: dict[str, Callable[[_Line], str]] = {
        "chip": lambda line: line.chip,
        "layer": lambda line: line.layer,
        "flit-hops pushed>": lambda line: count(line.hops(PUSHED)),
        "nearest>": lambda line: count(line.hops(NEAREST)),
        "saved>": lambda line: _less(line.hops(NEAREST), line.hops(PUSHED)),
        "placed>": lambda line: count(line.hops(PLACED)),
        "KB of DRAM pushed>": lambda line: count(line.dram(PUSHED) / 1024),
        "nearest >": lambda line: count(line.dram(NEAREST) / 1024),
        "saved >": lambda line: _less(line.dram(NEAREST), line.dram(PUSHED)),
        "uJ pushed>": lambda line: f"{line.microjoules(PUSHED):,.1f}",
        "nearest  >": lambda line: f"{line.microjoules(NEAREST):,.1f}",
    }
    return table("What travels, pushed", columns, _lines(rows))


def _wrong(rows: Rows) -> list[str]:
    return [text for point, row in rows.items() if isinstance(point, RunPoint) for text in off_plan(point, row)]


def _placed_hops(rows: Rows) -> float | None:
    saved = _saved(_lines(rows), NEAREST, PLACED)
    return None if saved is None else -saved


STUDY = Study(
    name="dtt_holders",
    title="From whoever holds it nearest",
    question="What is it worth to take words from the nearest tile that holds them, from core to core too?",
    answer="Pushed programs become {{ pushed_gain }} times as fast and save {{ pushed_saved }} of the flit-hops in the "
    "geometric mean.",
    about=prose(__file__),
    points=points,
    tables=(cycles, traffic),
    figures=(
        total("bytes", "bytes compared", "bytes_checked"),
        total("arrivals", "arrivals", "planned_arrivals"),
        total("off", "arrivals that are off", "arrival_mismatches", none=True),
        Figure(
            "pushed_gain",
            "nearest sources, pushed: times as fast",
            lambda rows: _gain(_lines(rows), PUSHED, NEAREST),
            bar=Bar("at least", 1),
        ),
        Figure(
            "pulled_gain",
            "nearest sources, pulled: times as fast",
            lambda rows: _gain(_lines(rows), PULLED, PULLED_NEAREST),
        ),
        Figure(
            "pushed_saved",
            "nearest sources, pushed: flit-hops saved",
            lambda rows: _saved(_lines(rows), PUSHED, NEAREST),
            "{:.1f} %",
            Bar("at least", 10),
        ),
        Figure(
            "pulled_saved",
            "nearest sources, pulled: flit-hops saved",
            lambda rows: _saved(_lines(rows), PULLED, PULLED_NEAREST),
            "{:.1f} %",
        ),
        Figure("placed_hops", "First Best Fit: more flit-hops", _placed_hops, "{:+.1f} %"),
        Figure("placed_cycles", "First Best Fit: times the cycles", lambda rows: _gain(_lines(rows), PLACED, NEAREST)),
    ),
    checks=_wrong,
    paper="dtt",
)
