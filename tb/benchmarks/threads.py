"""Seconds in which one chip is simulated by one thread and by several."""

from __future__ import annotations

import os
import time

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.workload.catalog import find

from ..build.assembly import THREADS
from ..results.events import OnEvent, Stage
from .interface import BenchmarkError
from .results import Sheet
from .variables import set_to

COUNT = 2
_REPEATS = 3


def _seconds(name: str, chip: ChipConfig, count: int, on_progress: OnEvent) -> tuple[int, float]:
    """(cycles, seconds of the fastest run) of a layer, loading and reading memory included. Raises BenchmarkError."""
    from ..devices.simulated import VERILATOR
    from ..runs import runner

    (workload,) = find(name)
    prepared = runner.prepare(workload, chip, "loop_order")
    device = VERILATOR.open(chip, False, lambda what: on_progress(Stage(workload=chip.name, what=what)))
    with set_to(THREADS, str(count)):
        took: list[float] = []
        cycles, begun = 0, 0.0
        # the first run starts the simulator, too
        for run in device.run([prepared.job(chip)] * (_REPEATS + 1), "bench"):
            if run.fault is not None or run.cycles != prepared.timeline.cycles:
                raise BenchmarkError(f"{name} on {chip.name} with {count} threads took {run.cycles} cycles")
            cycles, now = run.cycles, time.monotonic()
            took.append(now - begun)
            begun = now
    return cycles, min(took[1:])


def measure(layers: dict[str, tuple[ChipConfig, str]], on_progress: OnEvent) -> Sheet:
    """A table of these chips, each with a layer; no bar. Raises BenchmarkError if a run differs from its model."""
    cells: list[tuple[str, ...]] = []
    for name, (chip, layer) in layers.items():
        on_progress(Stage(workload=name, what=f"one thread and {COUNT}"))
        cycles, one = _seconds(layer, chip, 1, on_progress)
        _, several = _seconds(layer, chip, COUNT, on_progress)
        cells.append((name, layer, f"{cycles:,}", f"{one:.2f}", f"{several:.2f}", f"{one / several:.2f}"))
    title = f"One simulation by {COUNT} threads on {len(os.sched_getaffinity(0))} processors"
    columns = ("chip", "layer", "RTL cycles>", "1 thread, s>", f"{COUNT} threads, s>", "times as fast>")
    return Sheet(title, columns, cells)
