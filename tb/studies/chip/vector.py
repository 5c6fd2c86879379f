"""The vector unit by the number of windows that it computes at once: cycles of networks on the RTL, and its size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...build.synthesis import Area
from ...results.legend import GROUPS
from ...results.schema import Row
from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, mean_ratio, share, table
from ..points.areas import UnitArea
from ..points.runs import Changes, RunPoint, wrong_with

CHIP = "quad16"
#: 1: every tap of every window is read by itself.
WINDOWS = (1, 3, 5)
NETWORKS = ("ds_cnn", "vww", "mobilenet_v1")


def changes(windows: int) -> Changes:
    """Of the chip."""
    return (("core.vec_windows", windows),)


def run_of(network: str, windows: int) -> RunPoint:
    """A network on the chip with so many windows."""
    return RunPoint(CHIP, network, changes=changes(windows))


def unit_of(windows: int) -> UnitArea:
    """The vector unit with so many."""
    return UnitArea("vector", CHIP, changes(windows))


#: The other unit of a core.
MATRIX = UnitArea("matrix", CHIP)


def points(full: bool) -> list[Point]:
    """Quick: the smallest network, 1 and 3 windows."""
    networks, windows = (NETWORKS, WINDOWS) if full else (NETWORKS[:1], WINDOWS[:2])
    runs = [run_of(network, each) for network in networks for each in windows]
    return [*runs, *([MATRIX] * full), *map(unit_of, windows)]


def _runs(rows: Rows) -> list[tuple[str, int, RunPoint, Row]]:
    every = [(network, windows, run_of(network, windows)) for network in NETWORKS for windows in WINDOWS]
    return [(*each, rows[each[2]]) for each in every if each[2] in rows]


def networks(rows: Rows) -> Table:
    """Cycles, and causes of the PE cycles."""
    columns: dict[str, Callable[[tuple[str, int, RunPoint, Row]], str]] = {
        "network": lambda each: each[0],
        "windows>": lambda each: str(each[1]),
        "RTL cycles>": lambda each: count(each[3].rtl_cycles),
        "error>": lambda each: share((each[3].error_percent or 0.0) / 100, 2, "+"),
        "bytes>": lambda each: count(each[3].bytes_checked),
        "mismatches>": lambda each: str(each[3].mismatches),
        "PE util.>": lambda each: share(each[3].utilisation),
        **{f"{cause}>": lambda each, cause=cause: _cause(each[3], cause) for cause in GROUPS},
    }
    return table(f"Networks on {CHIP}, and where their PE cycles went, %", columns, _runs(rows))


def _cause(row: Row, cause: str) -> str:
    return f"{row.network.shares[cause]:.1f}" if row.network else ""


def more(rows: Rows, windows: int) -> float | None:
    """Cells that windows add to both units of a core, as a share."""
    if any(point not in rows for point in (MATRIX, unit_of(1), unit_of(windows))):
        return None
    first: Area = rows[unit_of(1)]
    return (rows[unit_of(windows)].cells - first.cells) / (rows[MATRIX].cells + first.cells)


def units(rows: Rows) -> Table:
    """Cells of both units."""
    columns: dict[str, Callable[[tuple[str, int, UnitArea]], str]] = {
        "unit": lambda each: each[0],
        "windows>": lambda each: str(each[1] or ""),
        "cells>": lambda each: count(rows[each[2]].cells),
        "of them flip-flops>": lambda each: count(rows[each[2]].flip_flops),
        "of both units>": lambda each: share(more(rows, each[1]), sign="+") if each[1] else "",
    }
    some = [("matrix", 0, MATRIX), *(("vector", windows, unit_of(windows)) for windows in WINDOWS)]
    title = f"Units of a {CHIP} core without their memories (Yosys `synth`, generic cells)"
    return table(title, columns, [each for each in some if each[2] in rows])


def wrong(rows: Rows) -> list[str]:
    """Bytes that differ, errors of the model, and networks that more windows make slower."""
    reasons: list[str] = []
    for network, windows, point, row in _runs(rows):
        reasons += wrong_with(point, row, exact=True)
        plain = rows.get(run_of(network, WINDOWS[0]))
        if plain and row.rtl_cycles > plain.rtl_cycles:
            reasons.append(
                f"{network} with {windows} windows: {row.rtl_cycles:,} cycles, {plain.rtl_cycles:,} with {WINDOWS[0]}"
            )
    return reasons


def _gain(windows: int, names: Sequence[str] = NETWORKS) -> Callable[[Rows], float | None]:
    def cycles(rows: Rows, network: str, windows: int) -> int | None:
        point = run_of(network, windows)
        return rows[point].rtl_cycles if point in rows else None

    return lambda rows: mean_ratio((cycles(rows, name, WINDOWS[0]), cycles(rows, name, windows)) for name in names)


def _cells(rows: Rows) -> float | None:
    value = more(rows, 3)
    return None if value is None else 100 * value


STUDY = Study(
    name="vector",
    title="Windows at once in the vector unit",
    question="What is it worth, and what does it cost, that the vector unit computes several windows at once?",
    answer="Three windows make networks of depthwise layers {{ three }} times as fast and add {{ cells }} to the cells "
    "of a core's units.",
    about=prose(__file__),
    points=points,
    tables=(networks, units),
    figures=(
        Figure("three", "times as fast with 3 windows, mean", _gain(3), "{:.3f}", Bar("at least", 1.0)),
        Figure("five", "times as fast with 5 windows, mean", _gain(5), "{:.3f}", Bar("at least", 1.0)),
        Figure("cells", "cells more with 3 windows, both units", _cells, "{:+.1f} %"),
    ),
    checks=wrong,
)
