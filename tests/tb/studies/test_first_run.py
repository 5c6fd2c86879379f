"""The study of first runs: tables, and commands that fail. One small run on a simulator that is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.tb.studies.engine.rows import StudyError
from meshloom.tb.studies.tools import first_run

from .made_rows import page_of

COST = first_run.CommandCost(
    first_run.SETUP, 40.0, {"scheduling": 3.0, "building": 35.0, "simulating": 1.0}, 300_000_000, 70, 0
)


def test_stages_and_what_is_in_none_add_up() -> None:
    row = (COST, replace(COST, there=first_run.SIMULATOR, seconds=5.0, stages={"scheduling": 3.0}, mismatches=1))
    page = page_of(first_run.STUDY, {first_run.FirstRunPoint("resnet8", "quad16", 75): row})
    stages, memory = page.tables
    columns = [name.rstrip(">") for name in stages.columns]
    first, second = (dict(zip(columns, row, strict=True)) for row in stages.rows)
    assert (first["search"], first["build"], first["simulate"], first["rest"]) == ("3.00", "35.00", "1.00", "1.00")
    assert (second["search"], second["read"], second["rest"]) == ("3.00", "0.00", "2.00")
    assert stages.bad == {1}
    assert memory.rows[0][-2:] == ("2.5 %", "300")
    assert "takes 40.0 CPU-seconds" in page.answer
    assert "; 5.0 where that is there, and - the next time." in page.answer


def test_a_command_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path))  # nothing is copied
    with pytest.raises(StudyError, match=r"gemm:0x4x4 on tiny: exit status 2: error: .*M = 0"):
        first_run.FirstRunPoint("gemm:0x4x4", "tiny", 1).measure(lambda what: None)
