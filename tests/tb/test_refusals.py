"""Refusals of results, commands and the Python interface that no other test provokes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from meshloom.sched.workload.catalog import find
from meshloom.tb.inputs.golden.layer import golden
from meshloom.tb.results.figures import FaultReport

from .command_line import invoke, row


def test_more_reports_than_faults() -> None:
    report = FaultReport(cause="shape", tile=1, unit="matrix", tag=7, value=0)
    assert row(faults=1, fault_reports=[report]).fault_reports == (report,)
    with pytest.raises(ValidationError, match="1 fault_reports, but faults = 0"):
        row(faults=0, fault_reports=[report])


def test_fields_that_contradict_others() -> None:
    good = row().model_dump(mode="json")
    assert type(row()).model_validate(good) == row()
    with pytest.raises(ValidationError, match=r"contradicts the other fields, which give"):
        type(row()).model_validate(good | {"error_percent": 0.5})


def test_options_in_the_wrong_place(tmp_path: Path) -> None:
    shown = invoke("cache", "--json", tmp_path / "x.json", "show")
    assert shown.exit_code == 2
    assert "belongs after show" in re.sub(r"\s+", " ", shown.output)
    schedule = tmp_path / "s.json"
    assert invoke("schedule", "gemm:4x4x4", "--chip", "tiny", "--out", schedule).exit_code == 0
    shown = invoke("check", schedule, "--bind", "n=3")
    assert shown.exit_code == 2
    assert "is for ONNX files" in re.sub(r"\s+", " ", shown.output)


def test_the_golden_model_and_the_shape_agree_on_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    (workload,) = find("conv:4x4x2-2,k1")
    data = workload.data()
    monkeypatch.setattr(type(workload.shape), "y_shape", property(lambda shape: (1, 9, 9, 9)))
    with pytest.raises(AssertionError, match=r"ONNX Runtime gives \(1, 2, 4, 4\), the shape says \(1, 9, 9, 9\)"):
        golden(data)
