"""How long it takes to build the simulator of a chip, of which nothing or something is there."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.store import cache
from meshloom.sched.store.kinds import BLOCKS

from ...build import compiling
from ...build.tools import compiler_version
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows, StudyError
from ..engine.study import Figure, Study, prose
from ..engine.tables import Table, table
from ..points.runs import gateware

#: Builds a simulator in a cache of its own: by itself, so that what it costs is that of its processes.
BUILD = (
    "import sys; from meshloom.hw.spec.config import ChipConfig; from meshloom.tb.build.builder import build; "
    "build(ChipConfig.model_validate_json(sys.stdin.read()))"
)
#: What was there: nothing; the blocks of a chip with a larger scratchpad.
NOTHING, SCRATCHPAD = "nothing", "all but the scratchpad"
#: Seconds on two processors, at most.
BARS: Mapping[str, float] = {"quad16": 30, "quad16s": 10, "nine32": 90, "twentyfive32": 240}


def grid(name: str, columns: int, rows: int) -> ChipConfig:
    """A chip with so many cores of 32 x 32 in a mesh of four virtual channels, between columns of memories."""
    sides = [("dram", "spm"), ("host", "dram"), ("spm", "dram"), ("dram", "spm"), ("spm", "dram")]
    floorplan = [" ".join([left, *["core"] * columns, right]) for left, right in sides[:rows]]
    values = load("quad32").model_dump(mode="json")
    changes: Mapping[str, Any] = {"name": name, "floorplan": floorplan, "noc": values["noc"] | {"data_vcs": 4}}
    return ChipConfig.model_validate(values | changes)


def build(chip: ChipConfig, root: Path) -> tuple[float, float, int]:
    """(seconds, CPU-seconds, libraries that were compiled) of a build with what is in `root`."""
    before, there = _spent(), _libraries(root)
    started = time.monotonic()
    environment = os.environ | {cache.VARIABLE: str(root)}
    process = subprocess.run(
        [sys.executable, "-c", BUILD],
        input=chip.model_dump_json(),
        env=environment,
        text=True,
        capture_output=True,
    )
    if process.returncode:
        raise StudyError(f"{chip.name} was not built: {(process.stderr.splitlines() or ['?'])[-1]}")
    return time.monotonic() - started, _spent() - before, len(_libraries(root) - there)


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _libraries(root: Path) -> set[str]:
    return {path.parent.name for path in BLOCKS.folder(root).glob(f"*/{compiling.OBJECTS[0]}")}


@dataclass(frozen=True)
class Build:
    """A simulator. `there`: what was; `compiled` blocks; wall-clock and CPU-`spent` seconds."""

    chip: str
    cores: int
    array: str
    channels: int
    there: str
    compiled: int
    seconds: float
    spent: float


@dataclass(frozen=True)
class BuildPoint(Point):
    """A chip from nothing; after quad16 one that differs in its scratchpad."""

    chip: str
    row: ClassVar[Any] = tuple[Build, ...]

    @property
    def name(self) -> str:
        return f"simulator of {self.chip}"

    @property
    def work(self) -> float:
        return 140.0 if self.chip in GRIDS else 60.0

    def inputs(self) -> Inputs:
        return Inputs((), (("gateware", gateware()), ("compiler", compiler_version())))

    def measure(self, report: Report) -> tuple[Build, ...]:
        """Raises StudyError."""
        chip = chip_of(self.chip)
        chips = [(chip, NOTHING)]
        if self.chip == "quad16":
            chips.append((chip.model_copy(update={"name": "quad16s", "spm_words": chip.spm_words // 2}), SCRATCHPAD))
        builds: list[Build] = []
        with tempfile.TemporaryDirectory(prefix="meshloom_builds_") as folder:
            for one, there in chips:
                report(f"building {one.name}, there is {there}")
                seconds, spent, compiled = build(one, Path(folder))
                array = f"{one.rows}x{one.cols}"
                builds.append(Build(one.name, len(one.cores), array, one.noc.data_vcs, there, compiled, seconds, spent))
        return tuple(builds)


#: Chips that no file describes: columns and rows of cores.
GRIDS: Mapping[str, tuple[int, int]] = {"nine32": (3, 3), "twentyfive32": (5, 5)}
CHIPS = ("quad16", "quad32", *GRIDS)


def chip_of(name: str) -> ChipConfig:
    """A built-in chip, or one of the larger ones."""
    return grid(name, *GRIDS[name]) if name in GRIDS else load(name)


def _every(rows: Rows) -> list[Build]:
    return [each for _, some in rows.pairs(BuildPoint) for each in some]


def slow(each: Build) -> list[str]:
    """The bar that a build missed."""
    bar = BARS.get(each.chip)
    return [f"{each.chip}: {each.seconds:.0f} s, the bar is {bar:g}"] if bar is not None and each.seconds > bar else []


def builds(rows: Rows) -> Table:
    """Every build."""
    columns: dict[str, Callable[[Build], str]] = {
        "chip": lambda each: each.chip,
        "cores>": lambda each: str(each.cores),
        "array": lambda each: each.array,
        "channels>": lambda each: str(each.channels),
        "what was there": lambda each: each.there,
        "compiled>": lambda each: str(each.compiled),
        "seconds>": lambda each: f"{each.seconds:.0f}",
        "CPU s>": lambda each: f"{each.spent:.0f}",
        "bar, s>": lambda each: f"{BARS[each.chip]:g}" if each.chip in BARS else "",
    }
    title = f"Builds with {compiler_version() or 'an unknown compiler'} on {len(os.sched_getaffinity(0))} processors"
    return table(title, columns, _every(rows), lambda each: bool(slow(each)))


def _seconds(chip: str) -> Callable[[Rows], float | None]:
    return lambda rows: next((each.seconds for each in _every(rows) if each.chip == chip), None)


STUDY = Study(
    name="builds",
    title="Time to a simulator",
    question="How long does it take to build the simulator of a chip, of which nothing or something is there?",
    answer="That of a chip with four cores takes {{ quad16 }} seconds from nothing, and {{ quad16s }} where only its "
    "scratchpad differs.",
    about=prose(__file__),
    points=lambda full: [BuildPoint(chip) for chip in (CHIPS if full else CHIPS[:1])],
    tables=(builds,),
    figures=tuple(
        Figure(name, f"seconds to {name}", _seconds(name), "{:,.0f}") for name in ("quad16", "quad16s", *CHIPS[1:])
    ),
    checks=lambda rows: [text for each in _every(rows) for text in slow(each)],
    alone=True,
)
