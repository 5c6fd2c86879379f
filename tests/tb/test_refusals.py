"""Refusals of results, commands and the Python interface that no other test provokes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from amaranth.hdl import Fragment, Module, Signal, Value
from pydantic import ValidationError

from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.layers import WorkloadError
from meshloom.tb.api.workload import Workload
from meshloom.tb.inputs.golden.layer import golden
from meshloom.tb.report.plots import save_plot
from meshloom.tb.results.explanation import Waterfall
from meshloom.tb.results.figures import FaultReport
from meshloom.tb.runs.sweeps import cluster
from meshloom.tb.verify.prove import engine

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


def test_a_picture_has_a_form(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    with pytest.raises(ValueError, match="plot has no suffix, which would say the form"):
        save_plot(Figure(), tmp_path / "plot")
    assert not list(tmp_path.iterdir())


def test_causes_of_a_waterfall_are_all_of_its_cycles() -> None:
    with pytest.raises(ValidationError, match="total is 0 PE cycles, not 3 x 4"):
        Waterfall(cycles=3, pes=4, layers=(), total={})


def test_what_a_schedule_computes_is_no_schedule() -> None:
    with pytest.raises(WorkloadError, match=r"s\.json: computes a layer or a network, not t\.json"):
        Workload.of("s.json", Workload.of("t.json"))


def test_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 1)
    with (
        pytest.raises(cluster.ClusterError, match=r"cluster nowhere: cannot be reached: "),
        cluster.opened(1, "nowhere"),
    ):
        pytest.fail("there is no such cluster")


def test_claims_are_bits_and_get_an_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Signal(2)

    def bench(name: str, claim: Value) -> engine.Bench:
        module = Module()
        Fragment.get(module, None)  # or Amaranth warns, whenever the collector comes by, that nobody has used it
        return engine.Bench(module, [x], {name: claim})

    with pytest.raises(engine.ProveError, match="wide has 2 bits; a claim has one"):
        engine.Netlist(bench("wide", x))
    monkeypatch.setattr(engine, "PATIENCE", 0.01)
    with pytest.raises(engine.ProveError, match=r"no answer within 0\.01 s"):
        engine.Netlist(bench("low", x[0]))
    monkeypatch.setattr(engine, "PATIENCE", 60)
    monkeypatch.setattr(engine, "_PREPARE", "no_such_command")
    with pytest.raises(engine.ProveError, match=r"the solver failed: .*no_such_command"):
        engine.Netlist(bench("low", x[0]))
