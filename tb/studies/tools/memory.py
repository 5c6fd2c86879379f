"""What a command takes of memory and disk: the peak of each on the largest networks, and that of a build."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from meshloom.hw.spec.config import load
from meshloom.sched.store import cache
from meshloom.sched.store.kinds import BLOCKS, NATIVE, NUMBA, SIMULATORS, Kind

from ...build.tools import compiler_version
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, table
from ..points.runs import gateware, scheduled_by
from .builds import BUILD
from .peaks import Peak, peak_of, size_of

#: Megabytes that a command, and a build, may have in use.
COMMAND_BAR, BUILD_BAR = 1500, 2000
#: What is run of a saved schedule.
_OF_SCHEDULE: Mapping[str, tuple[str, ...]] = {
    "check": ("check", "plan.json"),
    "explain": ("explain", "plan.json", "--json", "why.json"),
    "report": ("report", "plan.json", "--out", "page.html"),
}


@dataclass(frozen=True)
class CommandPeak:
    """A `command`: bytes of its `largest` process, of all at one time `together`, and that it `leaves` on disk;
    `seconds` of the processor."""

    command: str
    largest: int
    together: int
    leaves: int
    seconds: float


def _copy(kinds: Sequence[Kind], root: Path) -> None:
    for kind in kinds:
        if kind.folder().is_dir():
            shutil.copytree(kind.folder(), kind.folder(root), ignore=shutil.ignore_patterns("*.lock"))


class _Bench:
    """A folder with a cache of its own, in which commands run one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peaks: list[CommandPeak] = []
        self._environment = os.environ | {cache.VARIABLE: str(folder / "cache"), "CCACHE_DISABLE": "1"}

    def run(self, name: str, *arguments: str) -> None:
        """A command of `meshloom`; names of files are below the folder. Raises StudyError."""
        files = [str(self.folder / each) if each.endswith((".json", ".html")) else each for each in arguments]
        self.keep(name, lambda: self.process([sys.executable, "-m", "meshloom.tb.cli.main", *files]))

    def keep(self, name: str, run: Callable[[], Peak]) -> None:
        """Enters what a command takes. Raises StudyError."""
        before = size_of(self.folder)
        peak = run()
        left = max(0, size_of(self.folder) - before)
        self.peaks.append(CommandPeak(name, peak.largest, peak.together, left, peak.seconds))

    def process(self, command: Sequence[str], stdin: str = "") -> Peak:
        """What a process takes. Raises StudyError."""
        return peak_of(command, self._environment, stdin)


@dataclass(frozen=True)
class MemoryPoint(Point):
    """The commands on a workload, one after the other. `effort`: of its search; `simulated`: whether it is run, too;
    `work_seconds`: roughly."""

    workload: str
    chip: str
    effort: str
    simulated: bool
    work_seconds: int
    row: ClassVar[Any] = tuple[CommandPeak, ...]

    @property
    def name(self) -> str:
        return f"commands on {self.workload}, {self.chip}, effort {self.effort}"

    @property
    def work(self) -> float:
        return float(self.work_seconds)

    def inputs(self) -> Inputs:
        by = scheduled_by("loop_order")
        return Inputs((*by.modules, "tb.runs.runner"), (*by.more, ("gateware", gateware())))

    def measure(self, report: Report) -> tuple[CommandPeak, ...]:
        """Raises StudyError."""
        what = (self.workload, "--chip", self.chip, "--effort", self.effort)
        with tempfile.TemporaryDirectory(prefix="meshloom_memory_") as folder:
            bench = _Bench(Path(folder))
            _copy((NATIVE, NUMBA, *((SIMULATORS, BLOCKS) if self.simulated else ())), Path(folder) / "cache")
            report(f"schedule: {self.name}")
            bench.run("schedule", "schedule", *what, "--out", "plan.json")
            for name, arguments in _OF_SCHEDULE.items():
                report(f"{name}: {self.name}")
                bench.run(name, *arguments)
            if self.simulated:
                report(f"run: {self.name}")
                bench.process([sys.executable, "-c", BUILD], load(self.chip).model_dump_json())
                bench.run("run", "run", *what, "--jobs", "1", "--json", "rows.json")
        return tuple(bench.peaks)


@dataclass(frozen=True)
class BuildPeakPoint(Point):
    """The simulator of a chip, from nothing."""

    chip: str
    row: ClassVar[Any] = tuple[CommandPeak, ...]

    @property
    def name(self) -> str:
        return f"memory of the build of {self.chip}"

    @property
    def work(self) -> float:
        return 100.0

    def inputs(self) -> Inputs:
        return Inputs((), (("gateware", gateware()), ("compiler", compiler_version())))

    def measure(self, report: Report) -> tuple[CommandPeak, ...]:
        """Raises StudyError."""
        report(f"building {self.chip}")
        with tempfile.TemporaryDirectory(prefix="meshloom_memory_") as folder:
            bench = _Bench(Path(folder))
            chip = load(self.chip).model_dump_json()
            bench.keep("build", lambda: bench.process([sys.executable, "-c", BUILD], chip))
        return tuple(bench.peaks)


#: The quick study.
QUICK = (MemoryPoint("resnet8", "quad16", "default", False, 20),)
#: All of it.
FULL = (
    *QUICK,
    MemoryPoint("resnet50", "quad32", "quick", False, 120),
    MemoryPoint("resnet50", "quad32", "default", True, 300),
    MemoryPoint("vgg16", "quad32", "default", True, 300),
    BuildPeakPoint("quad16"),
    BuildPeakPoint("quad32"),
)


def commands(rows: Rows) -> Table:
    """Each command on each workload."""
    every = [(point, each) for point, some in rows.pairs(MemoryPoint) for each in some]
    columns: dict[str, Callable[[tuple[MemoryPoint, CommandPeak]], str]] = {
        "workload": lambda each: each[0].workload,
        "chip": lambda each: each[0].chip,
        "effort": lambda each: each[0].effort,
        "command": lambda each: each[1].command,
        "largest process, MB>": lambda each: count(each[1].largest / 1e6),
        "together, MB>": lambda each: count(each[1].together / 1e6),
        "leaves, MB>": lambda each: f"{each[1].leaves / 1e6:.1f}",
        "CPU s>": lambda each: f"{each[1].seconds:.1f}",
    }
    return table("Commands", columns, every, lambda each: each[1].together > COMMAND_BAR * 1e6)


def builds(rows: Rows) -> Table:
    """Each build."""
    every = [(point, each) for point, some in rows.pairs(BuildPeakPoint) for each in some]
    columns: dict[str, Callable[[tuple[BuildPeakPoint, CommandPeak]], str]] = {
        "chip": lambda each: each[0].chip,
        "largest process, MB>": lambda each: count(each[1].largest / 1e6),
        "together, MB>": lambda each: count(each[1].together / 1e6),
        "leaves, MB>": lambda each: f"{each[1].leaves / 1e6:.1f}",
    }
    return table("Builds", columns, every, lambda each: each[1].together > BUILD_BAR * 1e6)


def _most(kind: type[MemoryPoint] | type[BuildPeakPoint], workload: str = "") -> Callable[[Rows], float | None]:
    """Megabytes of the hungriest command, or build."""

    def value(rows: Rows) -> float | None:
        wanted = ((point, some) for point, some in rows.pairs(kind) if workload in ("", getattr(point, "workload", "")))
        return max((each.together / 1e6 for _, some in wanted for each in some), default=None)

    return value


STUDY = Study(
    name="memory",
    title="Memory and disk",
    question="How much memory and disk does a command need?",
    answer="At most {{ command }} MB for a command on the networks that were measured ({{ resnet50 }} on resnet50, "
    "{{ vgg16 }} on vgg16), and {{ build }} MB for a build.",
    about=prose(__file__),
    points=lambda full: FULL if full else QUICK,
    tables=(commands, builds),
    figures=(
        Figure(
            "command", "megabytes of a command, at most", _most(MemoryPoint), "{:,.0f}", Bar("at most", COMMAND_BAR)
        ),
        Figure("resnet50", "of a command on resnet50", _most(MemoryPoint, "resnet50"), "{:,.0f}"),
        Figure("vgg16", "of a command on vgg16", _most(MemoryPoint, "vgg16"), "{:,.0f}"),
        Figure("build", "megabytes of a build, at most", _most(BuildPeakPoint), "{:,.0f}", Bar("at most", BUILD_BAR)),
    ),
    alone=True,
)
