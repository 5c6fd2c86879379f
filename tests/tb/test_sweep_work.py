"""What a point of a sweep costs, as work and not as seconds: everything is done once, and a started simulator, its
device and what is read for it serve all points on the same chip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.lowering import predict, programs
from meshloom.sched.schedulers.network import limits
from meshloom.tb.build import builder
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.results.identity import sources
from meshloom.tb.results.sweep import PointRow
from meshloom.tb.runs.sweeps import evaluate as worker
from meshloom.tb.runs.sweeps.evaluate import Batch, Done, Task, evaluate

from ..tiers import slow_but

#: What is watched, by what it is.
WATCHED: dict[str, list[tuple[Any, str]]] = {
    "lowered": [(predict, "lower"), (programs, "lower")],
    "played": [(predict, "play"), (programs, "play")],
    "checked": [(programs, "check")],
    "played to say what bounds a layer": [(limits, "WhatIf")],
    "simulators started": [(SimulatedDevice, "_start")],
    "simulators looked for": [(builder, "ingredients")],
    "programs run": [(SimulatedDevice, "_execute")],
}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    total = Counter[str]()

    def watched(what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*values: Any, **named: Any) -> Any:
            total[what] += 1
            return call(*values, **named)

        return counted

    for what, places in WATCHED.items():
        for place, name in places:
            monkeypatch.setattr(place, name, watched(what, getattr(place, name)))
    yield total
    worker._DEVICES.clear()
    worker._POOL.close()


def rows(device: str | None, *workloads: str) -> tuple[PointRow, ...]:
    """The rows of a batch on the smallest chip."""
    tasks = tuple(
        Task(key=name, scheduler="loop_order:effort=0.005", workload=name, parameters="{}", code="c")
        for name in workloads
    )
    batch = Batch(sources=sources(), chip=load("tiny"), device=device, tasks=tasks)
    return Done.model_validate_json(evaluate(batch.model_dump_json())).rows


@pytest.mark.parametrize("device", slow_but([None, "verilator"], None))
def test_everything_is_done_once_for_a_point(device: str | None, work: Counter[str]) -> None:
    first = rows(device, "gemm:4x8x16")
    runs = device is not None
    point = Counter({"lowered": 1, "played": 1, "checked": 1, "programs run": runs})
    assert work == point + Counter({"simulators started": runs, "simulators looked for": runs})
    work.clear()
    later = rows(device, "gemm:8x8x16", "gemm:8x12x8", "gemm:12x4x24")
    assert work == point + point + point
    assert {row.status for row in (*first, *later)} == {"passed" if runs else "predicted"}
    assert all(bool(row.bytes_checked) == runs for row in (*first, *later))
