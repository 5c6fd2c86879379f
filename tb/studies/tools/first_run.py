"""What a person waits for: a command in a process of its own, with and without what was kept, by stage."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from meshloom.sched.store import cache
from meshloom.sched.store.kinds import NATIVE, NUMBA, SCHEDULES
from meshloom.sched.support.processes import SEARCH_PROCESSES

from ...build.tools import compiler_version
from ...results.schema import Results
from ...runs import stage_times
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows, StudyError
from ..engine.study import Figure, Study, prose
from ..engine.tables import Table, count, share, table
from ..points.runs import gateware, scheduled_by

#: What is there when the command begins: what `make setup` compiles; simulators, too; everything.
SETUP, SIMULATOR, ALL = "make setup", "and the simulator", "and the schedule"
#: The stages of a run, in their order, and how tables name them.
STAGES: Mapping[str, str] = {
    "starting": "start",
    "reading": "read",
    "scheduling": "search",
    "lowering": "lower",
    "checking": "check",
    "predicting": "model",
    "building": "build",
    "loading": "load",
    "simulating": "simulate",
    "comparing": "compare",
}
#: Bytes of a unit of `ru_maxrss`.
_UNIT = 1024
_MEASURED_BY = """
import json, resource, subprocess, sys
status = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump([status, used.ru_utime + used.ru_stime, used.ru_maxrss], file)
"""


@dataclass(frozen=True)
class CommandCost:
    """A command: `seconds` of the processor, all of its processes; those of its `stages`; `peak` bytes of its largest
    process; simulated `cycles`, and how many bytes differed."""

    there: str
    seconds: float
    stages: Mapping[str, float]
    peak: int
    cycles: int
    mismatches: int


@dataclass(frozen=True)
class FirstRunPoint(Point):
    """`meshloom run WORKLOAD --chip CHIP` three times, in a cache of its own: with what `make setup` compiles; with the
    simulator, but without the schedule; again. `work_seconds`: roughly."""

    workload: str
    chip: str
    work_seconds: int
    row: ClassVar[Any] = tuple[CommandCost, ...]

    @property
    def name(self) -> str:
        return f"{self.workload} on {self.chip}"

    @property
    def work(self) -> float:
        return float(self.work_seconds)

    def inputs(self) -> Inputs:
        by = scheduled_by("loop_order")
        return Inputs((*by.modules, "tb.runs.runner"), (*by.more, ("gateware", gateware()), ("compiler", _compiler())))

    def measure(self, report: Report) -> tuple[CommandCost, ...]:
        """Raises StudyError."""
        with tempfile.TemporaryDirectory(prefix="meshloom_first_") as folder:
            root = Path(folder)
            for kind in (NATIVE, NUMBA):
                if kind.folder().is_dir():
                    shutil.copytree(kind.folder(), kind.folder(root), ignore=shutil.ignore_patterns("*.lock"))
            costs = [self._cost(SETUP, root, report)]
            shutil.rmtree(SCHEDULES.folder(root), ignore_errors=True)
            costs += [self._cost(each, root, report) for each in (SIMULATOR, ALL)]
        return tuple(costs)

    def _cost(self, there: str, root: Path, report: Report) -> CommandCost:
        report(f"running {self.name}, there is {there}")
        stages, sums, rows = root / "stages.jsonl", root / "sums.json", root / "rows.json"
        stages.unlink(missing_ok=True)
        request = [self.workload, "--chip", self.chip, "--jobs", "1", "--json", str(rows)]
        command = [sys.executable, "-m", "meshloom.tb.cli.main", "run", *request]
        settings = {cache.VARIABLE: str(root), stage_times.VARIABLE: str(stages), SEARCH_PROCESSES: "1"}
        process = subprocess.run(
            [sys.executable, "-c", _MEASURED_BY, str(sums), *command],
            env=os.environ | settings,
            text=True,
            stderr=subprocess.PIPE,
            check=False,
        )
        if process.returncode or not sums.exists():
            raise StudyError(f"{self.name}: {_error(process.stderr)}")
        status, seconds, peak = json.loads(sums.read_text(encoding="utf-8"))
        if status:
            raise StudyError(f"{self.name}: exit status {status}: {_error(process.stderr)}")
        spent: dict[str, float] = {}
        for line in stages.read_text(encoding="utf-8").splitlines():
            each = json.loads(line)
            spent[each["stage"]] = spent.get(each["stage"], 0.0) + each["seconds"]
        row = Results.model_validate_json(rows.read_text(encoding="utf-8")).rows[0]
        return CommandCost(there, seconds, spent, peak * _UNIT, row.rtl_cycles, row.mismatches)


def _error(text: str) -> str:
    """The error of a command: the line that says so, or its last words, without their frame."""
    lines = [line.strip("│╭╮╰╯─ ") for line in text.splitlines()]
    errors = [line for line in lines if line.startswith("error: ")]
    return next((line for line in (*errors, *reversed(lines)) if line), "it died without a word")


def _compiler() -> str:
    return compiler_version() or "unknown"


#: Workloads and chips; the first ones are the quick study's. CPU-seconds of all three runs, roughly.
QUICK = (("gemm:16x16x16", "tiny", 40), ("resnet8", "quad16", 75))
FULL = (
    *QUICK,
    ("ds_cnn", "quad16", 75),
    ("vww", "quad16", 90),
    ("squeezenet", "quad16", 90),
    ("efficientnet_lite0", "quad16", 150),
    ("minilm_block", "quad16", 75),
    ("mobilenet_v1", "quad16", 150),
    ("resnet18", "quad16", 130),
    ("googlenet", "quad16", 170),
    ("squeezenet", "quad32", 150),
    ("resnet50", "quad32", 300),
    ("vgg16", "quad32", 500),
)


def _every(rows: Rows) -> list[tuple[FirstRunPoint, CommandCost]]:
    return [(point, each) for point, some in rows.pairs(FirstRunPoint) for each in some]


def stages(rows: Rows) -> Table:
    """CPU-seconds by stage."""
    columns: dict[str, Callable[[tuple[FirstRunPoint, CommandCost]], str]] = {
        "workload": lambda each: each[0].workload,
        "chip": lambda each: each[0].chip,
        "there before": lambda each: each[1].there,
        "CPU s>": lambda each: f"{each[1].seconds:.1f}",
    }
    for stage, name in STAGES.items():
        columns[f"{name}>"] = lambda each, stage=stage: f"{each[1].stages.get(stage, 0.0):.2f}"
    columns["rest>"] = lambda each: f"{each[1].seconds - sum(each[1].stages.values()):.2f}"
    return table("CPU-seconds of `meshloom run`, by stage", columns, _every(rows), lambda each: each[1].mismatches > 0)


def memory(rows: Rows) -> Table:
    """Cycles, and the largest process."""
    columns: dict[str, Callable[[tuple[FirstRunPoint, CommandCost]], str]] = {
        "workload": lambda each: each[0].workload,
        "chip": lambda each: each[0].chip,
        "there before": lambda each: each[1].there,
        "RTL cycles>": lambda each: count(each[1].cycles),
        "simulating>": lambda each: share(each[1].stages.get("simulating", 0.0) / each[1].seconds),
        "largest process, MB>": lambda each: count(each[1].peak / 1e6),
    }
    return table("How much of it is simulating, and memory", columns, _every(rows))


def _seconds(workload: str, chip: str, there: str) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        known = {(point.workload, point.chip, cost.there): cost.seconds for point, cost in _every(rows)}
        return known.get((workload, chip, there))

    return value


def _peak(rows: Rows) -> float | None:
    return max((cost.peak / 1e6 for _, cost in _every(rows)), default=None)


def _figures() -> Sequence[Figure]:
    nets = (("resnet8", "quad16"), ("squeezenet", "quad16"), ("resnet50", "quad32"))
    states = (
        (SETUP, "first", "nothing but what `make setup` compiles"),
        (SIMULATOR, "new", "the simulator is there"),
        (ALL, "again", "all is there"),
    )
    return [
        Figure(f"{net}_{short}", f"CPU-seconds of {net} on {chip}, {words}", _seconds(net, chip, there), "{:,.1f}")
        for net, chip in nets
        for there, short, words in states
    ]


STUDY = Study(
    name="first_run",
    title="What a first run costs",
    question="How many seconds of the processor does a person wait for, and for what?",
    answer="The first run of resnet8 on quad16 takes {{ resnet8_first }} CPU-seconds, most of them to build the "
    "simulator; {{ resnet8_new }} where that is there, and {{ resnet8_again }} the next time.",
    about=prose(__file__),
    points=lambda full: [FirstRunPoint(*each) for each in (FULL if full else QUICK)],
    tables=(stages, memory),
    figures=(*_figures(), Figure("peak", "megabytes of the largest process", _peak, "{:,.0f}")),
    alone=True,
)
