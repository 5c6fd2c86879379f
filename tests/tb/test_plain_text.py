"""Names and messages of users and files reach the terminal as they are: nothing in them is markup or an emoji."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.progress import Progress

import meshloom.tb
from meshloom.sched.schedulers.interface import Scheduler
from meshloom.tb.cli.errors import say_error
from meshloom.tb.report.console import console
from meshloom.tb.report.progress import Counted
from meshloom.tb.report.reporter import Reporter
from meshloom.tb.report.row_tables import table
from meshloom.tb.report.schedulers import schedulers_table
from meshloom.tb.report.tables import frame_table
from meshloom.tb.results.events import Stage, Unwritten
from meshloom.tb.runs.searching import searching

from .command_line import invoke, row

NAMES = ["[bold]x[/bold]", ":x:", "./buggy.py:x:", "[/]", "[/nope]", r"\[red]", "[red", ":smile:", "[link=http://x]y"]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_table_of_results_has_it_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    screen = console()
    screen.print(table([row(name, scheduler=name, simulator=name)]))
    assert capsys.readouterr().out.count(name) == 2


def test_progress_has_it_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    screen = console()
    with Reporter(screen) as report:
        report(Stage(workload=name, what=name))
        report(row(name))
        report(Unwritten(name, name, False))
    with Counted(screen, name) as counted:
        counted.begin(3, 1)
        counted.say(name)
    assert capsys.readouterr().out.count(name) == 8


def shown_by(bars: Progress) -> list[str]:
    """What each column shows of each task."""
    return [str(column(task)) for column in bars.columns if not isinstance(column, str) for task in bars.tasks]


def test_bars_have_it_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a terminal: what each column shows of a task."""
    shown: list[str] = []
    monkeypatch.setattr(Progress, "start", lambda self: bars.append(self))
    bars: list[Progress] = []
    screen = console()
    screen._force_terminal = True
    with Reporter(screen) as report:
        report(Stage(workload=name, what=name))
        shown += [text for bar in bars for text in shown_by(bar)]
    assert any(f"{name}: {name}" in text for text in shown)
    bars.clear()
    with searching(screen):
        bars[0].add_task(name, total=3, best=name, what=name)
        texts = shown_by(bars[0])
    assert sum(name in text for text in texts) == 3


def test_tables_of_names_have_it_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    import polars  # slow to import, as in other files

    screen = console()
    screen.print(schedulers_table([Scheduler(name, name)]))
    screen.print(frame_table(polars.DataFrame({name: [name]})))
    assert capsys.readouterr().out.count(name) == 4


def test_an_error_has_it_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    say_error(name)
    assert capsys.readouterr().err == f"error: {name}\n"


@pytest.mark.parametrize("name", ["[bold]x[/bold]", "./buggy.py:x:", ":smile", "[/]"])
def test_the_command_line_says_what_it_was_given(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = invoke("schedule", "gemm:4x4x4", "--chip", "tiny", "--scheduler", name)
    assert shown.exit_code == 2
    assert name.removesuffix(":") in shown.stderr
    shown = invoke("run", "x.onnx", "--bind", name)
    assert shown.exit_code == 2
    assert name in shown.stderr


def test_no_text_is_interpreted_anywhere() -> None:
    """Consoles are made in one place, and columns of bars take text as it is."""
    for path in sorted(Path(meshloom.tb.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "rich.markup" not in text, path
        assert "markup=True" not in text, path
        assert "from_markup" not in text, path
        assert path.name == "console.py" or not re.search(r"\b_?Console\(", text), path
        for column in re.findall(r"(?<!Bar)TextColumn\([^)]*\)", text):
            assert "markup=False" in column, f"{path}: {column}"


AUTHOR = """
from meshloom.sched.mapping.nodes import Run

def fails(task): raise ValueError({text!r})
def quits(task): raise SystemExit({text!r})
def labels(task): task.move(task.cores[0], Run(1, 0, 4, 0), Run(1, 8, 4, 0), 4, label={text!r})
"""


@pytest.mark.parametrize("scheduler", ["fails", "quits", "labels"])
def test_what_an_author_writes_is_said_so(scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder, the file, labels of operations, and what errors say."""
    monkeypatch.chdir(tmp_path)
    text, path = "[red]:X: [/nope] :x:", Path("[bold]") / "s[red].py"
    path.parent.mkdir()
    path.write_text(AUTHOR.format(text=text), encoding="utf-8")
    shown = invoke("schedule", "gemm:4x4x4", "--chip", "tiny", "--scheduler", f"./{path}:{scheduler}")
    assert shown.exit_code == 3
    assert text in shown.stderr
    assert "of s[red].py" in shown.stderr
    assert scheduler == "labels" or f"scheduler ./{path}:{scheduler} failed" in shown.stderr
