"""The first hour: files to begin with, a look at the machine, and what a shell completes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import meshloom
from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.model import native
from meshloom.sched.workload import zoo
from meshloom.sched.workload.scenario import load as load_scenario
from meshloom.tb.api.completion import complete_online_schedulers, complete_schedulers
from meshloom.tb.cli.templates import scheduler
from meshloom.tb.results.health import Check, Health

from .command_line import invoke


@pytest.mark.slow
def test_a_scheduler_runs_as_it_stands(folder: Path) -> None:
    assert invoke("init", "scheduler", "mine").exit_code == 0
    assert "TEMPLATE" not in (folder / "mine.py").read_text()
    shown = invoke("schedule", "gemm:64x64x64", "--chip", "tiny", "--scheduler", "./mine.py:schedule:rows=4")
    assert shown.exit_code == 0, shown.output
    assert "rows" in invoke("schedulers", "./mine.py:schedule").output


@pytest.mark.parametrize(
    "workload", ["conv:16x16x16-16,k3,p1,relu", "gemm:1x64x10", "conv:9x40x3-24,k5,s2", "conv:1x3000x8-8,k3,p1"]
)
def test_it_cuts_layers_until_they_fit(workload: str, folder: Path) -> None:
    invoke("init", "scheduler", "mine")
    shown = invoke("schedule", workload, "--chip", "tiny", "--scheduler", "./mine.py:schedule")
    assert shown.exit_code == 0, shown.output


def test_a_kernel_that_no_core_holds_is_named() -> None:
    chip = load_chip("tiny")
    small = chip.model_copy(update={"core": chip.core.model_copy(update={"b_words": 256})})
    with pytest.raises(DoesNotFit, match=r"B of a tiny core is too small: words 0\.\.675 are used, it has 256"):
        meshloom.schedule("conv:14x14x8-8,k13", small, scheduler.schedule, apart=False)


def test_a_chip_runs_as_it_stands(folder: Path) -> None:
    shown = invoke("init", "chip", "mine")
    assert "meshloom run resnet8/conv2_1_1 --chip mine.toml" in shown.output
    chip = load_chip(folder / "mine.toml")
    assert (chip.name, chip.clock_mhz) == ("mine", 400)
    assert invoke("schedule", "gemm:16x16x16", "--chip", "mine.toml").exit_code == 0


@pytest.mark.slow
def test_a_scenario_and_a_sweep_are_read(folder: Path) -> None:
    assert invoke("init", "scenario", "rush").exit_code == 0
    assert load_scenario(folder / "rush.toml", zoo.names()).name == "rush"
    assert invoke("init", "sweep", "sizes").exit_code == 0
    shown = invoke("sweep", "sizes.toml", "--plan")
    assert "sizes: 16 points, 0 of them in sim_build/sweeps/sizes" in shown.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["chip", "quad8"], "quad8 is a built-in chip; take another name"),
        (["scheduler", "class"], "class is a word of Python; take another name for the file"),
        (["scheduler", "json"], "json is a module of Python; take another name"),
        (["scheduler", "numpy"], "numpy is an installed module; take another name"),
        (["chip", "../x"], "must be letters, digits and underscores"),
        (["chp", "x"], "there is no template of a 'chp'; did you mean chip?"),
        (["chip", "x" * 41], "at most 40"),
    ],
)
def test_what_cannot_be_begun(words: list[str], message: str, folder: Path) -> None:
    shown = invoke("init", *words)
    assert shown.exit_code == 2
    assert message in " ".join(shown.output.replace("│", " ").split())
    assert not list(folder.iterdir())


def test_a_file_that_is_there_stays(folder: Path) -> None:
    (folder / "mine.py").write_text("work of weeks")
    shown = invoke("init", "scheduler", "mine")
    assert shown.exit_code == 2
    assert "mine.py is there already" in shown.output
    assert (folder / "mine.py").read_text() == "work of weeks"


def test_the_doctor_looks_at_all_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    shown = invoke("doctor", "--json", "-")
    health = Health.model_validate_json(shown.stdout)
    names = {check.name for check in health.checks}
    assert {"Python", "verilator", "C++ compiler", "cache", "disk", "timeline model"} <= names
    assert all(check.what for check in health.checks)
    assert len(shown.stderr.splitlines()) == len(health.checks), "a line for each, however long"
    assert shown.exit_code == (0 if health.ok else 4)


def test_what_is_missing_has_a_mend_and_an_exit_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH without tools, and a cache that cannot be."""
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "file" / "below"))
    shown = invoke("doctor", "--json", "-")
    assert shown.exit_code == 4
    checks = {each["name"]: each for each in json.loads(shown.stdout)["checks"]}
    for name in ("C++ compiler", "make", "perl", "cache"):
        assert checks[name]["state"] == "missing", name
        assert checks[name]["mend"], name
    assert checks["iverilog"]["state"] == "note"


def test_a_model_that_python_runs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.PURE, "1")
    shown = invoke("doctor")
    assert "several times slower; unset" in shown.output
    check = Check(name="x", state="note", what="y")
    assert Health(checks=(check,)).ok
    assert not Health(checks=(check.model_copy(update={"state": "missing"}),)).ok


def test_options_of_schedulers_are_completed() -> None:
    assert "flexer" in complete_schedulers("fl")
    assert "flexer:budget=" in complete_schedulers("flexer:b")
    assert complete_schedulers("zigzag:whole=") == ["zigzag:whole=yes", "zigzag:whole=no"]
    assert complete_schedulers("zigzag:whole=yes,wh") == [], "each once"
    assert complete_schedulers("unheard:x") == []
    assert complete_online_schedulers("lookahead:deadlines=n") == ["lookahead:deadlines=no"]
