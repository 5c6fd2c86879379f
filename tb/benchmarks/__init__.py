"""Benchmarks by name: `meshloom bench NAME` runs one, `make bench` all. Each prints tables and commits them as text.

A benchmark is a module with `run(tell) -> Result`; what it measured lands in `docs/results/<name>.md` whether or not
its bars were reached. Nothing heavy is imported before a benchmark runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..results.schema import Row

from meshloom.hw.config import near_or_all


class BenchmarkError(RuntimeError):
    """A benchmark that cannot be run as asked, or at all; the message says why and what would help."""


#: Name to what it measures, in the order of a run of all: the long one last.
BENCHMARKS = {
    "gemm": "cycles of random GEMMs against the timing formulas; utilisation of a core fed from its own memories",
    "speed": "simulated cycles per CPU-second of whole chips that run real layers; the timeline model beside itself",
    "regression": "error of the model, layer by layer, on four chips",
    "networks": "whole networks: labels, cycles, CPU-seconds, the model's error, and where the arrays' time goes",
    "noc": "the network by itself: latency and saturation against BookSim 2, flits per CPU-second, cells of a router",
    "dtt_routing": "ahead-of-time routing: page moves per CPU-second beside networkx; way-points; pushed or pulled",
    "ahead": "schedules pushed ahead of time against the same ones pulled: cycles, arrivals, what a controller feeds",
    "flexer": "out-of-order schedules against static ones, all layers of four networks on eight chips, in the model",
    "flexer_policies": "its search: time, priorities and memory policies, what ours adds, what de-duplication costs",
    "flexer_rtl": "the same on the RTL: layers of all four networks, and three of these whole",
    "scalesim": "cycles and CPU-seconds side by side with SCALE-Sim v3",
}
#: Modules whose names are not those of their benchmarks.
_MODULES = {"scalesim": "scale_sim"}


def all_ran(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows of a run, for figures that need every one of them. Raises BenchmarkError when some have not run."""
    if missing := [f"{row.workload}: {row.reason}" for row in rows if row.error is not None]:
        raise BenchmarkError("; ".join(missing))
    return rows


def main(names: Sequence[str]) -> bool:
    """Runs benchmarks (none named = all), prints and writes their results; whether all reached their bars.

    Raises BenchmarkError on unknown names, before anything runs. A benchmark that cannot run counts as one that failed.
    """
    from ..build.builder import BuildError
    from ..devices.interface import DeviceError
    from ..report.console import Reporter, console
    from .results import print_result, save_result

    for name in names:
        if name not in BENCHMARKS:
            raise BenchmarkError(f"unknown benchmark {name!r}: {near_or_all(name, BENCHMARKS)}")
    screen = console()
    good = True
    for name in dict.fromkeys(names or BENCHMARKS):
        screen.print(f"{name}: {BENCHMARKS[name]}", style="bold", markup=False, soft_wrap=True)
        try:
            with Reporter(screen) as tell:
                result = import_module(f"{__name__}.{_MODULES.get(name, name)}").run(tell)
        except (BenchmarkError, BuildError, DeviceError) as error:
            screen.print(f"{name}: did not run: {error}", style="red", markup=False, soft_wrap=True)
            good = False
            continue
        print_result(result, screen)
        screen.print(f"results: {save_result(result)}", markup=False, soft_wrap=True)
        good &= result.passed
    return good
