"""Tables on narrow consoles: nothing is cut, and every row can be told by its first column."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from meshloom.hw.spec.config import built_in_chips
from meshloom.tb.cli.main import app
from meshloom.tb.report.console import LOG_WIDTH, console
from meshloom.tb.report.narrow import show


def drawn(table: Table, width: int) -> str:
    to = Console(file=io.StringIO(), width=width, highlight=False)
    show(table, to)
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def numbers(columns: int = 9, first: str = "row") -> Table:
    table = Table(title="the title", pad_edge=False)
    table.add_column("name", no_wrap=True)
    for column in range(columns):
        table.add_column(f"column {column}", justify="right", no_wrap=True)
    for row in range(3):
        table.add_row(f"{first} {row}", *(f"{row},{column:03},{row:03}" for column in range(columns)))
    return table


@pytest.mark.parametrize("width", [30, 40, 80, 120])
def test_every_cell_is_there_once_and_whole(width: int) -> None:
    text = drawn(numbers(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert text.count("the title") == 1
    for row in range(3):
        for column in range(9):
            assert text.count(f"{row},{column:03},{row:03}") == 1
    parts = text.count("column ") and len(re.findall(r"^.?name", text, re.MULTILINE))
    assert all(text.count(f"row {row}") == parts for row in range(3))


def test_a_table_that_fits_is_left_alone() -> None:
    plain = Console(file=io.StringIO(), width=150, highlight=False)
    plain.print(numbers())
    assert isinstance(plain.file, io.StringIO)
    assert drawn(numbers(), 150) == plain.file.getvalue()


def test_a_long_first_column_is_folded() -> None:
    text = drawn(numbers(first="a" * 70), 60)
    assert max(map(len, text.splitlines())) <= 60
    assert "…" not in text
    assert "2,008,002" in text


@pytest.mark.parametrize(
    "command", [("chips",), ("workloads", "squeezenet"), ("workloads", "regression"), ("workloads",)]
)
def test_commands_at_80_columns(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = CliRunner().invoke(app, list(command)).output
    tables = [line for line in text.splitlines() if not line.startswith(("networks:", "layers:"))]
    assert max(map(len, tables)) <= 80
    assert "…" not in text
    if command == ("chips",):
        assert all(text.count(name) >= 2 for name in built_in_chips())


def test_columns_say_how_wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console().width == LOG_WIDTH
    monkeypatch.setenv("COLUMNS", "100")
    assert console().width == 100
    monkeypatch.setenv("COLUMNS", "0")
    assert console().width == LOG_WIDTH, "nobody has a screen of no columns"
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert console().width >= 80, "a terminal's own width"


def test_a_table_of_very_many_rows_is_text_with_all_of_its_cells() -> None:
    table = Table(title="the title")
    table.add_column("name")
    table.add_column("number", justify="right")
    for row in range(201):
        table.add_row(f"[x] 漢{row}" if row % 2 else "a\x1b", f"{row:,}")
    lines = drawn(table, 40).splitlines()
    assert lines[0] == "the title"
    assert lines[1].split() == ["name", "number"]
    assert lines[2] == "a\\x1b" + " " * 11 + "0"
    assert lines[3].startswith("[x] 漢1 ")
    assert len(lines) == 203
