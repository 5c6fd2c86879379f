"""Runs of the engine, with what it reports on its way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshloom.hw.spec.config import load
from meshloom.tb.inputs.sources import NetworkSource
from meshloom.tb.results.events import Event
from meshloom.tb.results.schema import Row
from meshloom.tb.runs import runner
from meshloom.tb.runs.options import RunOptions

WORKLOADS = ["conv:7x7x5-6,k3,p1", "gemm:5x6x7", "conv:6x5x9-5,k3x2,s2x1,p1x0,relu,clamp90", "gemm:3x10x20"]
CHIP = load("tiny")


def run(
    workloads: Sequence[str | NetworkSource], simulator: str = "verilator", **changes: Any
) -> tuple[list[Row], list[Event]]:
    events: list[Event] = []
    options = {"device": simulator, "jobs": 2}
    options |= {name: changes.pop(name) for name in [*changes] if name in RunOptions.__dataclass_fields__}
    values: dict[str, Any] = {"chip": "tiny", "scheduler": "loop_order", "on_event": events.append}
    values["options"] = RunOptions(**options)
    return runner.run(workloads, **(values | changes)), events
