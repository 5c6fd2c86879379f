"""How long it takes to build the simulator of a chip, of which nothing or something is there."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.store import cache
from meshloom.sched.store.kinds import BLOCKS

from ..build import blocks
from ..build.tools import compiler_version
from ..results.events import OnEvent, RowCount, Stage
from .interface import BenchmarkError
from .results import Result, Sheet

#: Builds a simulator in a cache of its own: by itself, so that what it costs is that of its processes.
_BUILD = (
    "import sys; from meshloom.hw.spec.config import ChipConfig; from meshloom.tb.build.builder import build; "
    "build(ChipConfig.model_validate_json(sys.stdin.read()))"
)
#: What was there: nothing; the blocks of a chip with a larger scratchpad.
NOTHING, SCRATCHPAD = "nothing", "all but the scratchpad"
#: Seconds on two processors, at most.
BARS = {"quad16": 30, "quad16s": 10, "nine32": 90, "twentyfive32": 240}


def grid(name: str, columns: int, rows: int) -> ChipConfig:
    """A chip with so many cores of 32 x 32 in a mesh of four virtual channels, between columns of memories."""
    sides = [("dram", "spm"), ("host", "dram"), ("spm", "dram"), ("dram", "spm"), ("spm", "dram")]
    floorplan = [" ".join([left, *["core"] * columns, right]) for left, right in sides[:rows]]
    values = load("quad32").model_dump(mode="json")
    changed: Mapping[str, Any] = {"name": name, "floorplan": floorplan, "noc": values["noc"] | {"data_vcs": 4}}
    return ChipConfig.model_validate(values | changed)


def _build(chip: ChipConfig, root: Path) -> tuple[float, float, int]:
    """(seconds, CPU-seconds, libraries that were compiled) of a build with what is in `root`."""
    before, there = _spent(), _libraries(root)
    started = time.monotonic()
    environment = os.environ | {cache.VARIABLE: str(root), "CCACHE_DISABLE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _BUILD],
        input=chip.model_dump_json(),
        env=environment,
        text=True,
        capture_output=True,
    )
    if done.returncode:
        raise BenchmarkError(f"{chip.name} was not built: {(done.stderr.splitlines() or ['?'])[-1]}")
    return time.monotonic() - started, _spent() - before, len(_libraries(root) - there)


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _libraries(root: Path) -> set[str]:
    return {path.parent.name for path in BLOCKS.folder(root).glob(f"*/{blocks.LIBRARY}")}


def run(on_progress: OnEvent) -> Result:
    """Builds chips from nothing, then what changes when one of them changes."""
    quad = load("quad16")
    smaller = quad.model_copy(update={"name": "quad16s", "spm_words": quad.spm_words // 2})
    steps = [
        [(quad, NOTHING), (smaller, SCRATCHPAD)],
        [(load("quad32"), NOTHING)],
        [(grid("nine32", 3, 3), NOTHING)],
        [(grid("twentyfive32", 5, 5), NOTHING)],
    ]
    on_progress(RowCount(rows=sum(map(len, steps))))
    cells: list[tuple[str, ...]] = []
    failed: dict[int, str] = {}
    for chips in steps:
        with tempfile.TemporaryDirectory(prefix="meshloom_builds_") as folder:
            for chip, there in chips:
                on_progress(Stage(workload=chip.name, what=f"building, there is {there}"))
                seconds, spent, compiled = _build(chip, Path(folder))
                size, bar = f"{chip.rows}x{chip.cols}", BARS.get(chip.name)
                if bar is not None and seconds > bar:
                    failed[len(cells)] = f"{chip.name}: {seconds:.0f} s, the bar is {bar}"
                cells.append(
                    (
                        chip.name,
                        f"{len(chip.cores)}",
                        size,
                        f"{chip.noc.data_vcs}",
                        there,
                        f"{compiled}",
                        f"{seconds:.0f}",
                        f"{spent:.0f}",
                        "" if bar is None else f"{bar}",
                    )
                )
    columns = ("chip", "cores>", "array", "channels>", "what was there", "compiled>", "seconds>", "CPU s>", "bar, s>")
    return Result(
        "builds",
        "Time to a simulator",
        f"Verilator, {len(os.sched_getaffinity(0))} processors, without a compiler cache, in a folder of its own. "
        "*compiled*: blocks (kinds of tiles, and meshes) that were not there. nine32 and twentyfive32: cores and "
        "memories of quad32, four virtual channels. Bars: seconds on two processors.",
        (Sheet(f"Builds with {compiler_version() or 'an unknown compiler'}", columns, cells, frozenset(failed)),),
        failures=tuple(failed.values()),
    )
