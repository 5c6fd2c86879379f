"""Workloads in several processes: errors, progress, failures and interrupts."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshloom.sched.checker.problems import CheckError
from meshloom.sched.checker.problems import Problem as CheckProblem
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.onnx.errors import NodeRefusal, UnsupportedError
from meshloom.tb.inputs.sources import NetworkSource
from meshloom.tb.results.events import Event, Stage
from meshloom.tb.runs.workers import EVERY, report_progress, workers

from .layer_runs import run


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedError("m.onnx", [NodeRefusal("n", "Sin", "no"), NodeRefusal("o", "Elu", "no")]),
        CheckError((CheckProblem("tile 1", "waits for ever", "post it"),)),
        DoesNotFit("too big"),
        WorkloadError("wrong"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_come_whole_out_of_a_worker(error: Exception) -> None:
    with workers(1) as pool, pytest.raises(type(error), match=re.escape(str(error))):
        pool.submit(_raise, error).result()


def test_workers_tell_how_far_they_are() -> None:
    """What comes too soon after the last is not told; what is told comes before the result."""
    heard: list[Event] = []
    with workers(1) as pool:
        assert pool.result(pool.submit(_count, 3), heard.append) == 3
    assert heard == [Stage(workload="counting", what="1", passing=True), Stage("counting", "3", passing=True)]


def _count(most: int) -> int:
    for number in range(1, most + 1):
        report_progress("counting", str(number))
        if most == 3 and number == 2:
            time.sleep(EVERY + 0.1)
    return most


def test_a_worker_does_not_wait_to_be_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far more than a pipe holds is told while nobody listens."""
    monkeypatch.setattr("meshloom.tb.runs.workers.EVERY", -1.0)
    with workers(1) as pool:
        assert pool.submit(_count, 3000).result(timeout=60) == 3000


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.timeout(90)
def test_a_failure_ends_the_other_workers(tmp_path: Path) -> None:
    """One network is wrong while a layer is being scheduled, which never ends: that one is not waited for."""
    scheduler = tmp_path / "forever.py"
    scheduler.write_text("import time\n\ndef schedule(task):\n    while True:\n        time.sleep(1)\n")
    before = set(multiprocessing.active_children())
    with pytest.raises(WorkloadError, match=r"absent\.onnx"):
        run(["gemm:4x4x4", NetworkSource("absent.onnx")], scheduler=f"{scheduler}:schedule")
    while set(multiprocessing.active_children()) - before:  # as long as the limit lasts
        time.sleep(0.05)


# -- workloads that cannot be run ----------------------------------------------------------------------------------


def test_an_interrupt_while_scheduling_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "meshloom.tb.cli.main", "run", "resnet50", "vgg16", "--chip", "quad32"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests may run in the background of a shell, which has its children ignore interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "scheduling the network" in line:
            break
    time.sleep(0.3)  # workers ignore the signal from their first instructions on; let them get there
    assert len(in_session(process.pid)) > 1, "workers are at it"
    os.killpg(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.startswith("error: interrupted after no row; ")
    assert error.endswith("; go on with: meshloom run resnet50 vgg16 --chip quad32\n")
    assert "Traceback" not in out
    assert in_session(process.pid) == []
    assert not list(tmp_path.iterdir()), "nothing finished, so nothing is written"


def in_session(session: int) -> list[int]:
    """Processes of a session that are not zombies."""
    values = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            values.append(int(path.parent.name))
    return values


# -- bad input ----------------------------------------------------------------------------------------------------
