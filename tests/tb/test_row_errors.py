"""What goes wrong with one workload is its row's error; what goes wrong with all ends the run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, ConfigError
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.schedulers import registry as scheduler_module
from meshloom.sched.schedulers.interface import Maker, Scheduler
from meshloom.sched.schedulers.registry import SchedulerError
from meshloom.sched.schedulers.registry import find as find_scheduler
from meshloom.sched.workload import catalog
from meshloom.sched.workload.layers import ConvShape, LayerData, WorkloadError
from meshloom.tb.devices import simulated
from meshloom.tb.devices.interface import Job, NoDeviceError, UnknownDeviceError
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.inputs.golden import layer
from meshloom.tb.inputs.sources import NetworkSource
from meshloom.tb.results.events import Stage
from meshloom.tb.results.schema import Row, Status
from meshloom.tb.runs import runner

from ..tiers import slow_but
from .layer_runs import CHIP, WORKLOADS, run


def broken(shape: ConvShape, chip: ChipConfig, scale: int, *_: object) -> Schedule:
    """A scheduler with a bug for one layer, and an honest refusal for another."""
    if shape.name == "gemm:1x1x1":
        raise ZeroDivisionError("a bug")
    if shape.name == "gemm:2x2x2":
        raise ValueError("no room for it")
    if shape.name == "gemm:4x4x4":
        os.kill(os.getpid(), signal.SIGKILL)
    return find_scheduler("loop_order")(shape, chip, scale)


BROKEN = Scheduler("broken", "", Maker(broken))


@pytest.fixture
def buggy(monkeypatch: pytest.MonkeyPatch) -> str:
    """Its name."""
    monkeypatch.setitem(scheduler_module.REGISTRY.shipped, "broken", f"{__name__}:BROKEN")
    monkeypatch.setattr(scheduler_module.REGISTRY, "_loaded", {})
    monkeypatch.setitem(sys.modules, __name__, sys.modules[broken.__module__])
    return "broken"


def test_one_that_cannot_be_scheduled_is_a_row_and_the_others_run(tmp_path: Path) -> None:
    """With pads that make windows of zeros only, too large for DRAM, and a network that is too big."""
    names = ["gemm:5x6x7", "conv:7x7x5-6,k2,p3", "gemm:1000000x1000000x1000000", NetworkSource("vgg16"), "gemm:3x10x20"]
    rows, events = run(names, traces=tmp_path)
    assert [row.workload for row in rows] == ["gemm:5x6x7", *names[1:3], "vgg16", "gemm:3x10x20"]
    assert [row.status for row in rows] == [Status.PASSED, *[Status.FAILED] * 3, Status.PASSED]
    errors = [row.error for row in rows if row.error is not None]
    assert [(error.kind, error.stage, error.traceback) for error in errors] == [("DoesNotFit", "scheduling", None)] * 3
    for row, words in zip(
        rows[1:4], ("pad_top = 3 makes", "too big for chip tiny: its tensors", "its weights"), strict=True
    ):
        assert row.error is not None
        assert words in row.error.message
        assert (row.chip, row.chip_digest, row.simulator, row.rtl_cycles) == ("tiny", CHIP.digest, "verilator", 0)
    result = [event for event in events if isinstance(event, Row)]
    assert sorted(row.workload for row in result) == sorted(row.workload for row in rows)
    building = next(at for at, event in enumerate(events) if isinstance(event, Stage) and "building" in event.what)
    assert [row for row in rows if row.error] == [event for event in events[:building] if isinstance(event, Row)]
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_run_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "build", None)
    rows, _ = run(["conv:7x7x5-6,k2,p3"])
    assert [row.error.kind for row in rows if row.error] == ["DoesNotFit"]


def test_a_bug_of_a_scheduler_is_its_rows_error(buggy: str, tmp_path: Path) -> None:
    rows, _ = run(["gemm:1x1x1", "gemm:5x6x7", "gemm:2x2x2"], scheduler=buggy, traces=tmp_path / "run")
    bug, good, honest = rows
    assert good.status is Status.PASSED
    assert bug.error is not None
    assert (bug.error.kind, bug.error.stage) == ("ZeroDivisionError", "scheduling")
    assert re.fullmatch(
        r"scheduler broken failed on gemm:1x1x1: ZeroDivisionError: a bug \(line \d+ of \S+\)", bug.error.message
    )
    assert bug.error.traceback == (tmp_path / "run" / "gemm_1x1x1.traceback.txt").as_posix()
    assert bug.error.traceback is not None
    text = Path(bug.error.traceback).read_text()
    assert text.startswith("Traceback")
    assert "in broken" in text
    assert bug.error.traceback in bug.reason
    assert honest.error is not None
    assert honest.error.kind == "ValueError"
    assert "no room for it" in honest.error.message
    assert honest.error.traceback is None


def test_a_traceback_that_cannot_be_written_costs_no_row(buggy: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (row,), _ = run(["gemm:1x1x1"], scheduler=buggy, traces=tmp_path / "file")
    assert row.error is not None
    assert row.error.traceback is None
    assert "ZeroDivisionError: a bug" in row.error.message
    assert "(its traceback could not be written: " in row.error.message


def test_a_worker_that_is_killed_takes_only_its_workload_along(buggy: str) -> None:
    rows, _ = run(["gemm:5x6x7", "gemm:4x4x4", "gemm:3x10x20"], scheduler=buggy)
    assert [row.status for row in rows] == [Status.PASSED, Status.FAILED, Status.PASSED]
    assert rows[1].error is not None
    assert "its process was killed; is there enough memory?" in rows[1].reason


@pytest.mark.parametrize("jobs", slow_but([1, 2], 1))
def test_a_simulator_that_dies_costs_one_row(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its image of the DRAM is cut short, which ends the simulation; jobs before and after it run."""
    (doomed,) = catalog.find("gemm:5x6x7")
    watchdog = runner.prepare(doomed, CHIP, "loop_order").job(CHIP).watchdog

    def cut(self: SimulatedDevice, number: int, job: Job, folder: Path) -> Any:
        plan = original(self, number, job, folder)
        if job.watchdog == watchdog:
            path = folder / f"job{number}_0.bin"
            path.write_bytes(path.read_bytes()[:-5])
        return plan

    original = SimulatedDevice._prepare
    monkeypatch.setattr(SimulatedDevice, "_prepare", cut)
    rows, _ = run(WORKLOADS, jobs=jobs)
    for row in rows:
        assert (row.error is None) == (row.workload != "gemm:5x6x7")
        if row.error is None:
            assert row.status is Status.PASSED
        else:
            assert (row.error.kind, row.error.stage) == ("DeviceError", "simulating")
            log = Path(row.error.message.split("see ")[1])
            assert "cut short" in log.read_text()
            shutil.rmtree(log.parent)


@pytest.mark.slow
def test_an_error_of_the_golden_model_costs_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(data: LayerData) -> np.ndarray:
        if data.shape.name == "gemm:5x6x7":
            raise RuntimeError("the golden model is ill")
        return original(data)

    original = layer.golden
    monkeypatch.setattr(layer, "golden", wrong)
    rows, _ = run(["gemm:5x6x7", "gemm:3x10x20"])
    assert [row.status for row in rows] == [Status.FAILED, Status.PASSED]
    assert rows[0].error is not None
    assert (rows[0].error.stage, rows[0].error.message) == ("comparing", "the golden model is ill")


def test_a_device_that_does_not_start_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job would meet it."""

    def never(self: SimulatedDevice, jobs: Any, label: str = "run") -> Any:
        raise NoDeviceError("it does not start")
        yield

    monkeypatch.setattr(SimulatedDevice, "run", never)
    with pytest.raises(NoDeviceError, match="it does not start"):
        run(["gemm:5x6x7", "gemm:3x10x20"])


def test_files_are_looked_for_before_anything_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runner, "workers", None)
    here = tmp_path / "here.onnx"
    here.touch()
    for source in (
        NetworkSource("absent.onnx"),
        NetworkSource(str(here), (Path("absent.png"),)),
        NetworkSource(str(here), calibration=(Path("absent.png"),)),
    ):
        with pytest.raises(WorkloadError, match=r"^absent\.\w+: cannot be read: No such file"):
            run(["gemm:5x6x7", source])


def test_a_file_that_is_no_network_is_a_row_beside_others(tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(b"nonsense")
    rows, _ = run([NetworkSource(str(path)), "gemm:5x6x7"])
    assert [row.status for row in rows] == [Status.FAILED, Status.PASSED]
    assert rows[0].error is not None
    assert rows[0].error.stage == "reading"
    with pytest.raises(WorkloadError, match=re.escape(rows[0].error.message)):
        run([NetworkSource(str(path))])


# -- what decided a row --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"workloads": ["resnet88"]}, WorkloadError, "unknown workload 'resnet88': did you mean resnet8"),
        ({"workloads": ["squeeznet"]}, WorkloadError, r"unknown workload 'squeeznet': did you mean squeezenet\?"),
        ({"workloads": ["gemm:5x6"]}, WorkloadError, "gemm:5x6"),
        ({"chip": "tiniest"}, ConfigError, "unknown chip 'tiniest': built in are .*tiny"),
        ({"scheduler": "best"}, SchedulerError, "unknown scheduler 'best'; known are .*loop_order"),
        ({"device": "modelsim"}, UnknownDeviceError, "unknown device 'modelsim'; known are icarus, verilator"),
    ],
)
def test_bad_names_are_told_before_anything_runs(
    changes: dict[str, Any], error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulated, "SimulatedDevice", None)
    workloads = changes.pop("workloads", ["gemm:5x6x7"])
    with pytest.raises(error, match=words):
        run(workloads, **changes)
