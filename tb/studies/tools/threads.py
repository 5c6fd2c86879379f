"""Seconds in which one chip is simulated by one thread and by several."""

from __future__ import annotations

import time

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.workload.catalog import find

from ...build.ports import THREADS
from ..engine.point import Report
from ..engine.rows import StudyError
from .variables import set_to

#: Threads, beside one.
COUNT = 2
_REPEATS = 3


def seconds(name: str, chip: ChipConfig, count: int, report: Report) -> tuple[int, float]:
    """(cycles, seconds of the fastest run) of a layer, loading and reading memory included. Raises StudyError."""
    from ...devices.simulated import VERILATOR
    from ...runs import runner

    (workload,) = find(name)
    prepared = runner.prepare(workload, chip, "loop_order")
    device = VERILATOR.open(chip, False, report)
    with set_to(THREADS, str(count)):
        spent: list[float] = []
        cycles, begun = 0, 0.0
        # the first run starts the simulator, too
        for run in device.run([prepared.job(chip)] * (_REPEATS + 1), "bench"):
            if run.fault is not None or run.cycles != prepared.timeline.cycles:
                raise StudyError(f"{name} on {chip.name} with {count} threads took {run.cycles} cycles")
            cycles, now = run.cycles, time.monotonic()
            spent.append(now - begun)
            begun = now
    return cycles, min(spent[1:])
