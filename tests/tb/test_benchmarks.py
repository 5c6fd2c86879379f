"""Benchmarks: who is run, what is judged, what is printed and written. No simulator is built or run here."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

from meshloom.sched.support.plugins import PluginError
from meshloom.tb.benchmarks import registry
from meshloom.tb.benchmarks.interface import Benchmark, BenchmarkError, all_ran
from meshloom.tb.benchmarks.registry import SHIPPED
from meshloom.tb.benchmarks.results import Result, Sheet, markdown, print_result, save_result
from meshloom.tb.report.console import console
from meshloom.tb.results.events import OnEvent

from .benchmark_rows import row


def test_figures_are_made_of_rows_that_have_run() -> None:
    """Others are refused, so that no gain is computed from cycles that are none."""
    failed = row(
        workload="big", error={"kind": "DoesNotFit", "stage": "scheduling", "message": "too big"}, rtl_cycles=0
    )
    assert all_ran([row(), row(mismatches=1)]) == [row(), row(mismatches=1)]
    with pytest.raises(BenchmarkError, match=r"^big: scheduling: too big$"):
        all_ran([row(), failed])


# -- who runs ---------------------------------------------------------------------------------------------------------

#: The first cannot run, the second misses a bar; the third does neither, and has parts.
ABSENT, SLOW, GOOD = "absent", "slow", "good"


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Three benchmarks that end at once, and no others. Returns who was run."""
    calls: list[str] = []

    def benchmark(name: str) -> Benchmark:
        def run(on_progress: OnEvent, parts: Sequence[str] = ()) -> Result:
            calls.append(" ".join((name, *parts)))
            if name == ABSENT:
                raise BenchmarkError("no such tool")
            return Result(name, name, "", (), failures=("too slow",) if name == SLOW else ())

        return Benchmark(name, run, parts=name == GOOD)

    names = dict.fromkeys((ABSENT, SLOW, GOOD), "nowhere:THING")
    monkeypatch.setattr(registry, "SHIPPED", names)
    monkeypatch.setattr(registry.REGISTRY, "shipped", names)
    monkeypatch.setattr(registry.REGISTRY, "_loaded", {name: benchmark(name) for name in names})
    monkeypatch.setattr("meshloom.tb.benchmarks.results.save_result", lambda result: save_result(result, tmp_path))
    return calls


def test_an_unknown_name_runs_nothing(engines: list[str]) -> None:
    with pytest.raises(PluginError, match=rf"unknown benchmark 'scale'.*{GOOD}"):
        registry.run([GOOD, "scale"])
    assert engines == []


def test_named_ones_run_once_each_and_are_written(engines: list[str], tmp_path: Path) -> None:
    assert not registry.run([GOOD, SLOW, SLOW])
    assert engines == [GOOD, SLOW]
    assert {path.name for path in tmp_path.iterdir()} == {f"{GOOD}.md", f"{SLOW}.md"}
    assert registry.run([GOOD])


def test_parts_are_for_those_that_have_some(engines: list[str]) -> None:
    assert registry.run([GOOD], ["lp9-small", "kept"])
    with pytest.raises(BenchmarkError, match=rf"^{SLOW}: no parts to choose from"):
        registry.run([GOOD, SLOW], ["kept"])
    assert engines == [f"{GOOD} lp9-small kept"]


def test_all_run_even_if_one_cannot_and_the_verdict_says_so(
    engines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not registry.run([])
    assert engines == [ABSENT, SLOW, GOOD]
    assert f"{ABSENT}: did not run: no such tool" in capsys.readouterr().out
    assert not (tmp_path / f"{ABSENT}.md").exists()
    assert "too slow" in (tmp_path / f"{SLOW}.md").read_text()


def test_a_missed_bar_alone_fails(engines: list[str]) -> None:
    assert not registry.run([SLOW])


def test_every_benchmark_that_ships_is_a_module_with_run() -> None:
    assert SHIPPED.keys() == set(registry.REGISTRY.names())
    for name in SHIPPED:
        assert callable(import_module(f"meshloom.tb.benchmarks.{name}").run)
        assert registry.REGISTRY.get(name).summary


def test_one_from_a_file_runs(engines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from meshloom.tb.benchmarks.results import Result, Sheet\n"
        "def run(tell):\n"
        '    """How long nothing takes."""\n'
        '    return Result("nothing", "Nothing", "", (Sheet("It", ("took>",), [("0",)]),))\n'
    )
    assert registry.run([f"{file}:run"])
    assert "mine.py:run: How long nothing takes." in capsys.readouterr().out
    assert "Printed by `meshloom bench nothing`" in (tmp_path / "nothing.md").read_text()
    other = tmp_path / "other.py"
    other.write_text("run = 3\n")
    with pytest.raises(PluginError, match="is of type int; it must be a Benchmark or a function of `on_progress`"):
        registry.run([GOOD, f"{other}:run"])
    assert engines == []


# -- tables -----------------------------------------------------------------------------------------------------------


RESULT = Result(
    "speed",
    "Speed",
    "How fast.",
    (Sheet("A chip", ("layer", "cycles>"), [("a|b [x]", "1,000"), ("c", "2")], frozenset({1})),),
    ("A remark.",),
    ("c: too slow",),
    {"other": "1.2"},
)


def test_a_page_holds_tables_command_verdict_and_versions() -> None:
    page = markdown(RESULT)
    assert "# Speed" in page
    assert "`meshloom bench speed`" in page
    assert "| layer | cycles |\n|---|---:|\n| a\\|b [x] | 1,000 |\n| c | 2 |\n" in page
    assert "**Verdict: 1 bars missed.**" in page
    assert "- missed: c: too slow" in page
    assert re.search(r"^Versions: python \d.*verilator \d.*other 1\.2\.$", page, re.MULTILINE)


def test_a_page_names_no_machine_path_or_date(tmp_path: Path) -> None:
    page = save_result(RESULT, tmp_path / "new").read_text()
    assert page == markdown(RESULT)
    for word in (str(Path.home()), os.uname().nodename, str(Path.cwd())):
        assert word not in page
    assert not re.search(r"\b20\d\d-\d\d|\d:\d\d:\d\d", page)


def test_a_result_prints_its_cells_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    screen = console()
    screen.width = 100
    print_result(RESULT, screen)
    shown = capsys.readouterr().out
    for word in ("A chip", "a|b [x]", "1,000", "A remark.", "missed: c: too slow", "speed: 1 bars missed"):
        assert word in shown


def test_a_sheet_refuses_a_row_of_another_width() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 2 columns"):
        Sheet("t", ("a", "b"), [("1",)])
