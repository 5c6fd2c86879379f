"""Tables on a console that is too narrow for them: several, one below the other, and no cell is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from meshloom.sched.support.text import printable

#: Part of the width that the first column may take where there is not enough for all; what is longer is folded.
_FIRST = 2.5
#: Rows from which on a table is plain text.
_MANY = 200


def show(table: Table, to: Console) -> None:
    """Prints a table. Where its columns do not fit beside each other, those that do come first, and the others below,
    each time behind the first column, which says what the rows are. A table of very many rows is plain text."""
    if table.row_count > _MANY and not any(row.style for row in table.rows):
        to.out(_plain(table), highlight=False)
        return
    for part in parts(table, to):
        to.print(part)


def _plain(table: Table) -> str:
    """A table as text, its columns below each other: rich takes milliseconds a row."""
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    columns = [[printable(cell) for cell in cells] for cells in columns]
    widths = [max(map(cell_len, cells)) for cells in columns]
    right = [column.justify == "right" for column in table.columns]
    lines: list[str] = []
    for row in zip(*columns, strict=True):
        padded = (
            " " * (width - cell_len(cell)) + cell if ragged else cell + " " * (width - cell_len(cell))
            for cell, width, ragged in zip(row, widths, right, strict=True)
        )
        lines.append("  ".join(padded).rstrip())
    return "\n".join([printable(str(table.title)), *lines] if table.title else lines)


def parts(table: Table, to: Console) -> Iterator[Table]:
    """The table, or tables of some of its columns that are no wider than the console."""
    columns = range(len(table.columns))
    if _width(table, to) <= to.width or len(columns) < 3:
        yield table
        return
    most = int(to.width / _FIRST)
    title = table.title
    group: list[int] = []
    for column in columns[1:]:
        if group and _width(_part(table, [0, *group, column], most), to) > to.width:
            yield _part(table, [0, *group], most, title)
            group, title = [], None
        group.append(column)
    yield _part(table, [0, *group], most, title)


def _width(table: Table, to: Console) -> int:
    """What it takes so that nothing is folded or cut."""
    return Measurement.get(to, to.options.update(max_width=1 << 16), table).maximum


def _part(table: Table, columns: Sequence[int], most: int, title: object = None) -> Table:
    """A table of some columns; the first of them is folded at `most` characters."""
    result = Table(
        title=title,  # type: ignore[arg-type]
        title_justify=table.title_justify,
        header_style=table.header_style,
        box=table.box,
        padding=table.padding,
        pad_edge=table.pad_edge,
        show_edge=table.show_edge,
    )
    for number, column in enumerate(columns):
        value = replace(table.columns[column], _cells=[], _index=number)
        result.columns.append(replace(value, no_wrap=False, overflow="fold", max_width=most) if number == 0 else value)
    cells = [list(table.columns[column].cells) for column in columns]
    for number, row in enumerate(table.rows):
        result.add_row(*(column[number] for column in cells), style=row.style, end_section=row.end_section)
    return result
