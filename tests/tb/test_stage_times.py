"""Seconds of the processor by stage: who adds them to the file, and when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from meshloom.sched.support.files import WriteError
from meshloom.tb.results.events import Event
from meshloom.tb.runs import stage_times
from meshloom.tb.runs.runner import run


def read(path: Path) -> list[tuple[str, float]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(each["stage"], each["seconds"]) for each in map(json.loads, lines)]


def busy() -> int:
    return sum(number * number for number in range(300_000))


def test_nothing_is_written_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(stage_times.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    stage_times.enter("scheduling")
    stage_times.enter("")
    stage_times.started()
    assert not list(tmp_path.iterdir())


def test_each_stage_has_what_was_used_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stages.jsonl"
    monkeypatch.setenv(stage_times.VARIABLE, str(path))
    stage_times.enter("idle")
    stage_times.enter("busy")
    busy()
    stage_times.enter("child")
    subprocess.run([sys.executable, "-c", "sum(number * number for number in range(300_000))"], check=True)
    stage_times.enter("")
    busy()  # in no stage
    stage_times.enter("last")
    stage_times.enter("")
    stage_times.enter("")
    assert [stage for stage, _ in read(path)] == ["idle", "busy", "child", "last"]
    spent = dict(read(path))
    assert spent["busy"] > spent["idle"] >= 0
    assert spent["child"] > spent["last"] >= 0


def test_a_run_names_its_stages_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stages.jsonl"
    monkeypatch.setenv(stage_times.VARIABLE, str(path))
    events: list[Event] = []
    (row,) = run(["gemm:4x4x4"], "tiny", "loop_order", events.append)
    assert not row.error
    stages = [stage for stage, _ in read(path)]
    # the search has lowered what it returns
    order = ["scheduling", "checking", "predicting", "building", "loading", "simulating", "comparing"]
    assert [each for each in dict.fromkeys(stages) if each in order] == order
    assert set(stages) == set(order)


def test_a_file_that_cannot_be_written_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stage_times.VARIABLE, str(tmp_path / "nowhere" / "stages.jsonl"))
    with pytest.raises(WriteError, match="nowhere"):
        stage_times.started()
