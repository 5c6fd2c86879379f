"""What a chip takes of an FPGA, by part and by feature, and which paths limit its clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...build.fpga.layout import FpgaPart
from ...build.fpga.timing import TimedPath
from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import DASH, Table, count, share, table
from ..points.fpga import QUAD8, SMALL2, SMALL4, SMALL_VECTOR, STEPS, EstimatePoint, PlacedPoint

WHOLE = EstimatePoint()
#: Without one thing after the other that may be left out: traces first, and at last all of it.
LESS = tuple(
    EstimatePoint(tuple(change for step in STEPS[: index + 1] for change in step)) for index in range(len(STEPS))
)
UNTRACED, LEAST = LESS[0], EstimatePoint(SMALL4)
#: The last with its vector unit.
LEAST_VECTOR = EstimatePoint(SMALL_VECTOR)
#: A smaller and a larger array.
SMALL = EstimatePoint((("rows", 2), ("cols", 2)))
LARGE = EstimatePoint((("lanes", 8), ("rows", 8), ("cols", 8), ("dram.words", 8192)))
PLACED = PlacedPoint()
#: Four larger cores.
QUAD = EstimatePoint(QUAD8)
#: The smallest chip as fast as it goes, and on a small FPGA.
FAST_PLACED = PlacedPoint(SMALL4, clock=60.0)
SMALL_PLACED = PlacedPoint(SMALL4, "ulx3s_25f", 50.0)
#: With the smallest array.
LEAST_PLACED = PlacedPoint(SMALL2, clock=60.0)
#: All that is placed.
ALL_PLACED = (PLACED, FAST_PLACED, SMALL_PLACED, LEAST_PLACED)
#: Parts of fewer LUTs are not shown.
_LEAST = 250
#: nextpnr's LUT4.
_LUTS = "TRELLIS_COMB"
#: What the names of parts say, for people.
_PEOPLE = {"chip": "the chip", "tile_0": "DRAM tile", "tile_1": "core tile", "tile_2": "host tile"}


def points(full: bool) -> list[Point]:
    """The chip as it is and the smallest; full: all between them, other arrays, and placed and routed."""
    more = [*LESS, LEAST_VECTOR, SMALL, LARGE, QUAD, *ALL_PLACED]
    return [WHOLE, LEAST, *(more if full else ())]


def _part(rows: Rows, point: EstimatePoint, name: str) -> FpgaPart | None:
    return next((part for part in rows[point].parts if part.name == name), None) if point in rows else None


def luts(rows: Rows, point: EstimatePoint) -> int | None:
    """LUT4 of a whole chip."""
    part = _part(rows, point, "chip")
    return None if part is None else part.luts


def megahertz(rows: Rows, point: EstimatePoint) -> float | None:
    """The estimated clock."""
    return rows[point].megahertz if point in rows else None


def fmax(rows: Rows, point: PlacedPoint = PLACED) -> float | None:
    """The clock that nextpnr allows."""
    return rows[point].fmax if point in rows else None


def fill(rows: Rows, point: PlacedPoint) -> float | None:
    """LUT4 that a chip takes with its board, in percent of the FPGA's."""
    return 100 * rows[point].cells[_LUTS].used / rows[point].cells[_LUTS].available if point in rows else None


class _Line(NamedTuple):
    name: str
    part: FpgaPart
    other: FpgaPart | None
    least: FpgaPart | None


def parts(rows: Rows) -> Table:
    """Each tile, mesh and larger unit: with all, without traces, and of the smallest chip."""
    lines: list[_Line] = []
    for part in rows[WHOLE].parts if WHOLE in rows else ():
        if part.name == "chip" or (part.name.count(".") < 2 and part.luts >= _LEAST):
            tile, _, unit = part.name.partition(".")
            name = _PEOPLE.get(tile, tile.replace("_", " "))
            lines.append(
                _Line(
                    f"{name}: {unit.replace('_', ' ')}" if unit else name,
                    part,
                    _part(rows, UNTRACED, part.name),
                    _part(rows, LEAST, part.name),
                )
            )
    columns: dict[str, Callable[[_Line], str]] = {
        "part, with all below it": lambda line: line.name,
        "LUT4>": lambda line: count(line.part.luts),
        "flip-flops>": lambda line: count(line.part.flip_flops),
        "block RAMs>": lambda line: count(line.part.block_rams),
        "multipliers>": lambda line: count(line.part.multipliers),
        "LUT4 without traces>": lambda line: count(line.other.luts) if line.other else DASH,
        "LUT4 of fpga4_small>": lambda line: count(line.least.luts) if line.least else DASH,
    }
    return table("By part (synthesised, not packed)", columns, lines)


def paths(rows: Rows) -> Table:
    """The longest path of each pair of parts that it begins and ends in."""
    columns: dict[str, Callable[[TimedPath], str]] = {
        "ns>": lambda path: f"{path.delay:.1f}",
        "cells>": lambda path: count(path.cells),
        "from": lambda path: path.start,
        "to": lambda path: path.end,
        "through": lambda path: ", ".join(path.through),
    }
    return table("The longest paths, estimated", columns, rows[WHOLE].paths if WHOLE in rows else ())


class _LeftOutLine(NamedTuple):
    words: str
    before: int | None
    after: int


def choices(rows: Rows) -> Table:
    """What each choice of fpga4_small saves, one after the other."""
    lines = [
        _LeftOutLine(", ".join(f"{field} = {value}" for field, value in step), luts(rows, before), after)
        for step, before, each in zip(STEPS, (WHOLE, *LESS), LESS, strict=False)
        if (after := luts(rows, each)) is not None
    ]
    columns: dict[str, Callable[[_LeftOutLine], str]] = {
        "choice, one after the other": lambda line: line.words,
        "LUT4>": lambda line: count(line.after),
        "saved>": lambda line: DASH if line.before is None else count(line.before - line.after),
    }
    return table("What may be left out", columns, lines)


def chips(rows: Rows) -> Table:
    """Each chip in a line."""
    some: Iterable[EstimatePoint] = [
        each for each in (WHOLE, UNTRACED, LEAST, LEAST_VECTOR, SMALL, LARGE, QUAD) if each in rows
    ]
    columns: dict[str, Callable[[EstimatePoint], str]] = {
        "chip": lambda each: each.words,
        "LUT4>": lambda each: count(luts(rows, each)),
        "flip-flops>": lambda each: count(rows[each].parts[0].flip_flops),
        "block RAMs>": lambda each: count(rows[each].parts[0].block_rams),
        "multipliers>": lambda each: count(rows[each].parts[0].multipliers),
        "MHz, estimated>": lambda each: f"{rows[each].megahertz:.1f}",
    }
    return table("Chips", columns, some)


def placed(rows: Rows) -> Table:
    """What nextpnr says."""
    columns: dict[str, Callable[[PlacedPoint], str]] = {
        "with board and DRAM": lambda each: f"{each.words} on {each.board}",
        "MHz at most>": lambda each: f"{rows[each].fmax:.1f}",
        "LUT4>": lambda each: count(rows[each].cells[_LUTS].used),
        "of the FPGA's>": lambda each: share((fill(rows, each) or 0) / 100),
        "multipliers>": lambda each: count(rows[each].cells["MULT18X18D"].used),
        "block RAMs>": lambda each: count(rows[each].cells["DP16KD"].used),
        "longest path from": lambda each: rows[each].path[0].cell,
        "to": lambda each: rows[each].path[-1].cell,
        "ns>": lambda each: f"{sum(hop.delay for hop in rows[each].path):.1f}",
    }
    return table(
        "Placed and routed",
        columns,
        [each for each in ALL_PLACED if each in rows],
    )


def saved(rows: Rows) -> float | None:
    """By how many percent the chip is smaller without traces."""
    whole, without = luts(rows, WHOLE), luts(rows, UNTRACED)
    return 100 * (1 - without / whole) if whole and without else None


STUDY = Study(
    name="fpga",
    title="A chip on an FPGA",
    question="What does a chip take of an FPGA, and which paths limit its clock?",
    answer="fpga4 takes {{ luts }} LUT4, {{ saved }} fewer without traces, and {{ least }} without all that it may "
    "leave out; its longest path allows an estimated {{ clock }} MHz.",
    about=prose(__file__),
    points=points,
    tables=(chips, choices, parts, paths, placed),
    figures=(
        Figure("luts", "LUT4 of fpga4", lambda rows: luts(rows, WHOLE), "{:,.0f}", Bar("at most", 40_000)),
        Figure("untraced", "LUT4 of fpga4 without traces", lambda rows: luts(rows, UNTRACED), "{:,.0f}"),
        Figure("least", "LUT4 of fpga4_small", lambda rows: luts(rows, LEAST), "{:,.0f}", Bar("at most", 20_000)),
        Figure("saved", "LUT4 that chips without traces save", saved, "{:.1f} %"),
        Figure("clock", "MHz of fpga4, estimated", lambda rows: megahertz(rows, WHOLE), "{:.1f}", Bar("at least", 54)),
        Figure("placed", "MHz of fpga4, placed and routed", fmax, "{:.1f}", Bar("at least", 25)),
        Figure(
            "fast", "MHz of fpga4_small, placed", lambda rows: fmax(rows, FAST_PLACED), "{:.1f}", Bar("at least", 60)
        ),
        Figure(
            "small", "MHz of it on a 25F, placed", lambda rows: fmax(rows, SMALL_PLACED), "{:.1f}", Bar("at least", 50)
        ),
        Figure(
            "least_fast",
            "MHz with a 2x2 array, placed",
            lambda rows: fmax(rows, LEAST_PLACED),
            "{:.1f}",
            Bar("at least", 60),
        ),
        Figure("quad", "LUT4 of four 8x8 cores", lambda rows: luts(rows, QUAD), "{:,.0f}"),
    ),
)
