"""What a chip pays to serve many networks at once: cells of its tiles after synthesis."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from meshloom.hw.spec.config import TileKind, load

from ...build.synthesis import Area
from ..engine.rows import Rows
from ..engine.study import Figure, Study, prose
from ..engine.tables import Table, count, share, table
from ..points.areas import AreaPoint, TileArea, UnitArea
from ..points.runs import Changes

#: The chips whose tiles are measured, with and without what serving takes: small cores are quickly synthesised, those
#: of the quick study most of all.
CHIP, QUICK = "nine8", "tiny"
KINDS = (TileKind.HOST, TileKind.DRAM, TileKind.SPM, TileKind.CORE)
_PROGRAMS, _COUNTERS = ("programs", 9), ("counters", True)
#: What a line of the table adds to the chip.
VARIANTS: Mapping[str, Changes] = {
    "": (),
    "programs": (_PROGRAMS,),
    "counters": (_COUNTERS,),
    "programs, counters": (_PROGRAMS, _COUNTERS),
}
#: The last line of each variant: all tiles of the floorplan.
ALL = "all tiles"


def _parts(variant: str, chip: str) -> dict[str, AreaPoint]:
    changes = VARIANTS[variant]
    tiles = {f"{kind.value} tile": TileArea(kind, chip, changes) for kind in KINDS}
    return {"mover of a core": UnitArea("mover", chip, changes), **tiles}


def _chip(rows: Rows) -> str:
    """Which of the chips the rows are of: the larger one's if there are both."""
    return CHIP if any(point in rows for point in _parts("", CHIP).values()) else QUICK


def points(full: bool) -> list[AreaPoint]:
    """Every part by every variant; quick: of a smaller chip, as it is, and with both."""
    variants, chip = (list(VARIANTS), CHIP) if full else (["", "programs, counters"], QUICK)
    return [point for variant in variants for point in _parts(variant, chip).values()]


def _areas(rows: Rows, variant: str) -> dict[str, Area]:
    """By part, all tiles at the end; none if one is not known."""
    chip = _chip(rows)
    parts = _parts(variant, chip)
    if not all(point in rows for point in parts.values()):
        return {}
    areas: dict[str, Area] = {part: rows[point] for part, point in parts.items()}
    tiles = [areas[f"{kind.value} tile"] for kind in load(chip).tiles.values()]
    areas[ALL] = Area(sum(each.cells for each in tiles), sum(each.flip_flops for each in tiles))
    return areas


def more(rows: Rows, part: str, variant: str) -> float | None:
    """Cells that a variant adds to a part, as a share of the plain one's."""
    plain, added = _areas(rows, ""), _areas(rows, variant)
    return added[part].cells / plain[part].cells - 1 if plain and added else None


def cells(rows: Rows) -> Table:
    """Every part by every variant."""
    areas = {variant: some for variant in VARIANTS if (some := _areas(rows, variant))}
    columns: dict[str, Callable[[tuple[str, str]], str]] = {
        "part": lambda each: each[0],
        "with": lambda each: each[1],
        "cells>": lambda each: count(areas[each[1]][each[0]].cells),
        "of them flip-flops>": lambda each: count(areas[each[1]][each[0]].flip_flops),
        "more>": lambda each: share(more(rows, *each), sign="+") if each[1] else "",
    }
    items = [(part, variant) for part in (*_parts("", CHIP), ALL) for variant in areas]
    title = f"Tiles of {_chip(rows)} without routers and memories (Yosys `synth`, generic cells)"
    return table(title, columns, items)


def _percent(part: str, variant: str) -> Callable[[Rows], float | None]:
    return lambda rows: None if (value := more(rows, part, variant)) is None else 100 * value


STUDY = Study(
    name="area",
    title="Area of serving",
    question="What does a chip pay to run several programs at once, and to have its counters read meanwhile?",
    answer="All tiles of a chip with small cores have {{ tiles }} more cells, the host's {{ host }}, a core's "
    "{{ core }}.",
    about=prose(__file__),
    points=points,
    tables=(cells,),
    figures=tuple(
        Figure(name, f"cells more, {part}, with both", _percent(part, "programs, counters"), "{:+.1f} %")
        for name, part in (("tiles", ALL), ("host", "host tile"), ("core", "core tile"))
    ),
)
