"""Devices and reports of other people: from a file, by name, with what they can do."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshloom.sched.support.plugins import PluginError
from meshloom.tb.cli.main import app
from meshloom.tb.devices.interface import UnknownDeviceError
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
