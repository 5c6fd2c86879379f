"""Schedules that have not run: explained, compared and shown as the model plans them, and never as if measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import meshloom
from meshloom.hw.spec.config import ConfigError, load
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.lowering.lifted import metadata_of
from meshloom.sched.program import image
from meshloom.sched.workload.catalog import find as workload
from meshloom.tb.compare.compared import compare
from meshloom.tb.compare.explained import explained_all
from meshloom.tb.compare.timelines import timeline
from meshloom.tb.results.explanation import Explanations
from meshloom.tb.results.named import RunNameError
from meshloom.tb.results.schema import Status
from meshloom.tb.runs import planned
from meshloom.tb.runs.runner import prepare

from .command_line import invoke
from .kept_runs import keep

LAYER = "gemm:17x33x9"
TINY = load("tiny")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A schedule, its program, the same schedule for nobody knows what, and the run of it."""
    folder = tmp_path_factory.mktemp("saved")
    run = prepare(workload(LAYER)[0], TINY, "loop_order")
    unnamed = run.schedule.model_copy(update={"workload": ""})
    for name, each in (("named", run.schedule), ("unnamed", unnamed)):
        (folder / f"{name}.json").write_text(each.model_dump_json())
    (folder / "program.bin").write_bytes(image.to_bytes(run.program, metadata_of(run.schedule)))
    return {path.stem: path for path in folder.iterdir()} | {"run": keep(folder / "runs", LAYER, TINY)}


@pytest.mark.parametrize("name", ["named", "unnamed", "program"])
def test_the_plan_is_explained_as_a_plan(files: dict[str, Path], name: str) -> None:
    ((one,), failed) = explained_all(planned.find(str(files[name])), None, None)
    assert not failed
    assert one.run.row.status is Status.PLANNED
    assert (one.why.source, one.why.planned, one.why.spread.instructions, one.why.spread.unmatched) == (
        "model",
        True,
        0,
        0,
    )
    ((other,), _) = explained_all(planned.find(str(files["run"])), None, True)
    assert one.why.waterfall.cycles == other.why.waterfall.cycles == one.run.row.model_cycles
    assert one.why.path is not None
    assert other.why.path is not None
    assert [step.end for step in one.why.path.steps] == [step.end for step in other.why.path.steps]
    if name == "named":
        assert one.why.waterfall == other.why.waterfall
        assert one.why.energy == other.why.energy
    assert one.artefacts.row.rtl_cycles == 0
    assert not len(timeline(one.run).measured)


def test_every_view_says_that_nothing_was_measured(files: dict[str, Path], tmp_path: Path) -> None:
    shown = invoke("explain", files["named"])
    assert shown.exit_code == 0
    assert "planned by the timeline model, not measured: it has not run" in shown.output
    assert "nothing was measured" in shown.output
    explanations = Explanations.model_validate_json(invoke("explain", files["named"], "--json", "-").output)
    assert explanations.workloads[0].planned
    assert invoke("report", files["named"], "--out", tmp_path / "a.html", "--trace", tmp_path / "a.json").exit_code == 0
    page = (tmp_path / "a.html").read_text()
    assert f"<title>{LAYER} on tiny by loop_order, planned and not measured</title>" in page
    assert "<h2>Faults</h2>" not in page
    events = json.loads((tmp_path / "a.json").read_text())
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {
        f"{LAYER} on tiny: planned (timeline model); 1 us here is 1 cycle"
    }


def test_a_plan_and_a_run_are_compared(files: dict[str, Path]) -> None:
    (one,) = compare(planned.find(str(files["named"])), planned.find(str(files["run"]))).workloads
    assert (one.a.source, one.b.source, one.a.status, one.change) == ("model", "rtl", Status.PLANNED, 0)
    assert one.a_causes == one.b_causes
    assert invoke("compare", files["named"], files["run"], "--chip", "tiny").exit_code == 0


def test_what_cannot_be_planned_is_told(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(RunNameError, match="is a run, whose chip is known"):
        planned.find(str(files["run"]), "tiny")
    assert invoke("compare", files["run"], "--chip", "tiny").exit_code == 2
    with pytest.raises(ConfigError, match="unknown chip 'nope'"):
        planned.find(str(files["named"]), "nope")
    assert "was made for chip tiny" in invoke("explain", files["named"], "--chip", "quad8").output
    broken = tmp_path / "broken.json"
    broken.write_text(files["named"].read_text().replace('"operations"', '"operation"'))
    assert invoke("explain", broken).exit_code == 2
    late = json.loads(files["named"].read_text())
    late["operations"] = late["operations"][1:]
    broken.write_text(json.dumps(late))
    assert invoke("explain", broken).exit_code in (2, 3)


def test_a_network_has_its_layers(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    path.write_text(meshloom.schedule("ncf", "quad16", options={"refine": 0}).model_dump_json())
    ((one,), _) = explained_all(planned.find(str(path)), None, None)
    assert one.run.row.network is not None
    layers = one.run.row.network.layers
    assert [layer.name for layer in layers if layer.macs] == ["mlp1", "mlp2", "mlp3", "predict"]
    assert {layer.layer for layer in one.why.waterfall.layers} <= {layer.name for layer in layers}
    assert sum(layer.macs for layer in layers) == one.run.row.network.macs
    assert {(layer.rtl_cycles, layer.core_cycles, layer.utilisation) for layer in layers} == {(0, 0, 0)}
    assert Schedule.load(path).predicted is not None
