"""Devices and reports of other people: from a file, by name, with what they can do."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from meshloom.hw.spec.config import load
from meshloom.sched.support.plugins import PluginError
from meshloom.tb.cli.main import app
from meshloom.tb.devices.interface import DeviceError, NoDeviceError, UnknownDeviceError
from meshloom.tb.devices.registry import REGISTRY, find
from meshloom.tb.report.registry import REGISTRY as REPORTS
from meshloom.tb.report.registry import form_and_place
from meshloom.tb.results.events import Event, Stage
from meshloom.tb.results.schema import Row, Status
from meshloom.tb.runs import runner
from meshloom.tb.runs.options import RunOptions

#: A device that hands everything to Verilator, and counts how many of it there were at a time.
MINE = """
from dataclasses import replace
from meshloom.tb.devices.simulated import VERILATOR

opened = []


class Mine:
    waves = None

    def __init__(self, device, name="mine"):
        self.device, self.name = device, name
        opened.append(self)

    @property
    def config(self):
        return self.device.config

    def run(self, jobs, label="run"):
        for run in self.device.run(jobs, label):
            yield replace(run, simulator=self.name)

    def beside(self, tell):
        return Mine(self.device.beside(tell))


def open_one(chip, waves, tell):
    tell("plugging in the board")
    return Mine(VERILATOR.open(chip, waves, tell))


KIND = replace(VERILATOR, open=open_one, version=lambda: "board 3", waves=False, most=1, macs=2000)
NOT_ONE = open_one
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(MINE)
    return f"{tmp_path / 'mine.py'}:KIND"


def run(workloads: list[str], device: str, waves: bool = False) -> tuple[list[Row], list[Event]]:
    events: list[Event] = []
    rows = runner.run(workloads, "tiny", "loop_order", events.append, RunOptions(device, 4, waves))
    return rows, events


def test_a_device_from_a_file_runs_programs(mine: str) -> None:
    rows, events = run(["gemm:5x6x7", "gemm:3x4x4", "conv:7x7x5-6,k2,p3"], mine)
    assert [row.status for row in rows] == [Status.PASSED, Status.PASSED, Status.FAILED]
    assert {row.simulator for row in rows} == {"mine", mine}
    assert {row.settings.simulator_version for row in rows if row.settings} == {"board 3"}
    assert any(isinstance(event, Stage) and event.what == "plugging in the board" for event in events)
    opened = __import__("sys").modules[find(mine).open.__module__].opened
    assert len(opened) == 2, "the one that was opened, and one beside it: no more may run at a time"


def test_the_regression_is_as_large_as_the_device_can_bear(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_prepared", lambda value, *rest: (_ for _ in ()).throw(PluginError(f"{len(value)}")))
    with pytest.raises(PluginError, match=r"^\d+$") as few:
        run(["regression"], mine)
    with pytest.raises(PluginError, match=r"^\d+$") as all_of_them:
        run(["regression"], "verilator")
    assert int(str(few.value)) < int(str(all_of_them.value))


def test_what_a_device_cannot_do_is_told_before_anything_runs(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "workers", None)
    with pytest.raises(PluginError, match="writes no waveforms"):
        run(["gemm:3x4x4"], mine, waves=True)


def test_what_is_no_device_is_refused(mine: str) -> None:
    with pytest.raises(UnknownDeviceError, match="is of type function; it must be a DeviceKind"):
        find(mine.replace("KIND", "NOT_ONE"))
    with pytest.raises(UnknownDeviceError, match="has no KINDS; did you mean KIND"):
        find(mine.replace("KIND", "KINDS"))
    assert REGISTRY.names() == ("icarus", "verilator")


#: What a device's `run` does with the jobs, and what is said of it.
BAD_RUNS = {
    "return iter(())": "yields nothing for job 1 of 1",
    "yield 'text'": "yields a str, not a Run, for job 1 of 1",
    "return None": "failed: TypeError: 'NoneType' object is not iterable",
    "raise SystemExit(3)": r"failed: SystemExit: 3 .line \d+ of mine.py.",
}


@pytest.mark.parametrize("body", BAD_RUNS)
def test_a_device_that_fails_is_a_row_of_its_own(body: str, tmp_path: Path) -> None:
    code = MINE.replace(
        "        for run in self.device.run(jobs, label):\n            yield replace(run, simulator=self.name)",
        f"        {body}",
    )
    (tmp_path / "mine.py").write_text(code)
    device = find(f"{tmp_path / 'mine.py'}:KIND").open(load("tiny"), False, lambda what: None)
    with pytest.raises(DeviceError, match=rf"device .*mine.py:KIND {BAD_RUNS[body]}"):
        next(device.run([cast("Any", None)]))


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("open=lambda *all: 1 / 0", "cannot be opened: ZeroDivisionError: division by zero .line"),
        ("open=lambda *all: None", "is a NoneType without run, beside, config, name, waves; return a Device"),
        ("version=lambda: 1 / 0", "has no version: ZeroDivisionError"),
        ("tools=lambda: 1 / 0", "does not say its tools: ZeroDivisionError"),
    ],
)
def test_what_a_device_cannot_say_of_itself(broken: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{MINE}\nBROKEN = replace(KIND, {broken})\n")
    kind = find(f"{tmp_path / 'mine.py'}:BROKEN")
    with pytest.raises(NoDeviceError, match=f"device .*mine.py:BROKEN {says}"):
        assert (kind.version(), kind.tools(), kind.open(load("tiny"), False, lambda what: None)) == ()


def test_a_device_beside_another_is_looked_at_too(mine: str) -> None:
    path = Path(mine.partition(":")[0])
    path.write_text(path.read_text().replace("return Mine(self.device.beside(tell))", "raise KeyError(tell)"))
    with pytest.raises(DeviceError, match=r"device .* has none beside it: KeyError"):
        find(mine).open(load("tiny"), False, lambda what: None).beside(lambda what: None)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return None", "returns a NoneType; it must return text or bytes"),
        ("return results.nothing", "failed: AttributeError: .* .line 2 of mine.py."),
        ("raise SystemExit(2)", "failed: SystemExit: 2 .line 2 of mine.py."),
        ("return chr(0xD800)", "failed: UnicodeEncodeError"),
    ],
)
def test_a_report_that_fails_is_one_line_and_the_others_are_written(body: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"def short(results):\n    {body}\n")
    options = ["--report", f"{tmp_path / 'mine.py'}:short={tmp_path / 'a'}", "--report", f"csv={tmp_path / 'b'}"]
    shown = CliRunner().invoke(app, ["run", "gemm:3x4x4", "--chip", "tiny", *options])
    assert shown.exit_code == 5, shown.output
    assert re.search(f"error: report .*mine.py:short {says}", shown.stderr), shown.stderr
    assert "1 of 1 passed" in shown.output
    assert (tmp_path / "b").read_text().startswith("workload,")
    assert not (tmp_path / "a").exists()


def test_reports_say_what_the_results_say(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text('def short(results):\n    return f"{len(results.rows)} rows\\n"\n')
    forms = {name: tmp_path / f"rows.{name}" for name in REPORTS.names()}
    forms[f"{tmp_path / 'mine.py'}:short"] = tmp_path / "rows.txt"
    options: list[Any] = [part for name, path in forms.items() for part in ("--report", f"{name}={path}")]
    shown = CliRunner().invoke(app, ["run", "gemm:3x4x4", "gemm:4x4x4", "--chip", "tiny", *options])
    assert shown.exit_code == 0, shown.output
    assert (tmp_path / "rows.txt").read_text() == "2 rows\n"
    stated = json.loads((tmp_path / "rows.json").read_text())["rows"]
    with (tmp_path / "rows.csv").open() as file:
        assert [row["workload"] for row in csv.DictReader(file)] == [row["workload"] for row in stated]
    assert (tmp_path / "rows.parquet").read_bytes()[:4] == b"PAR1"
    assert (tmp_path / "rows.junit").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("csv", "is not FORM=PATH"),
        ("csv=", "is not FORM=PATH"),
        ("csvs=x", "unknown report 'csvs'; known are csv, json, junit, parquet; did you mean csv"),
        ("meshloom.tb.report.registry:GROUP=x", "is of type str; it must be a Report or a function of Results"),
    ],
)
def test_what_is_no_report_is_refused(text: str, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        form_and_place(text)
