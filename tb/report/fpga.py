"""How a chip lies on an FPGA, as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table

from .console import percent

if TYPE_CHECKING:
    from ..build.fpga.layout import FpgaLayout

#: Kinds of cells by nextpnr's names, for people; the others are not shown.
_KINDS = {
    "TRELLIS_COMB": "LUT4",
    "TRELLIS_FF": "flip-flops",
    "TRELLIS_RAMW": "LUTs as memory (16 x 4 bits)",
    "DP16KD": "block RAMs (18 kbit)",
    "MULT18X18D": "multipliers",
    "EHXPLLL": "PLLs",
}
#: Hops of the longest path that are shown, how deep parts are, and the least share of all LUTs that one has.
_HOPS, _DEPTH, _LEAST = 8, 4, 0.01


def layout_tables(layout: FpgaLayout, clock: float) -> Iterator[Table]:
    """Of what there is, what is used; by part; and the longest path's longest hops."""
    whole = _table(f"Used; {layout.fmax:.2f} MHz at most, {clock:g} asked for", ("cells",), ("used", "of", "share"))
    for kind, name in _KINDS.items():
        if kind in layout.cells:
            one = layout.cells[kind]
            share = percent(100 * one.used / one.available, 1)
            whole.add_row(name, f"{one.used:,}", f"{one.available:,}", share)
    yield whole
    title = "By part, with all below it; of 1 % and more (layout.json has all)"
    parts = _table(title, ("part",), ("LUT4", "flip-flops", "block RAMs", "multipliers"))
    for part in layout.parts:
        if part.name.count(".") < _DEPTH and part.luts >= _LEAST * layout.parts[0].luts:
            numbers = part.luts, part.flip_flops, part.block_rams, part.multipliers
            parts.add_row(part.name, *(f"{number:,}" for number in numbers))
    yield parts
    path = _table(
        f"The longest path, {sum(hop.delay for hop in layout.path):.1f} ns: its longest hops", ("to", "by"), ("ns",)
    )
    longest = sorted(range(len(layout.path)), key=lambda at: -layout.path[at].delay)[:_HOPS]
    for at in sorted({0, *longest, len(layout.path) - 1} & set(range(len(layout.path)))):
        hop = layout.path[at]
        path.add_row(hop.cell, hop.kind, f"{hop.delay:.2f}")
    yield path


def _table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", pad_edge=False)
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table
