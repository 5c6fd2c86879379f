"""The timeline model as Python and as machine code, side by side. Part of `meshloom bench speed`; by itself

python -m meshloom.tb.benchmarks.timeline
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from meshloom.hw.spec.config import load
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.model import native

from ..results.events import OnEvent, Stage
from .interface import BenchmarkError
from .results import Result, Sheet

#: How many times as fast compiled code must be on chips with several cores and flows (`sched/model/flow.py`).
BAR = 5.0
#: What is played; the last chip's virtual channels are played flit by flit.
CASES = (
    ("arch5", "resnet50/conv3_1_1"),
    ("arch5", "resnet50/conv3_2_2"),
    ("quad16", "resnet50/conv3_1_1"),
    ("quad16", "conv:56x56x128-128,k3,p1,relu"),
    ("nine8", "resnet50/conv3_1_1"),
)
_BARRED = ("arch5", "quad16")
#: The best of so many counts.
_REPEATS = 3


@dataclass(frozen=True)
class Played:
    """A program as one process played it. `digest`: of every executed instruction; `seconds`: of CPU."""

    compiled: bool
    cycles: int
    instructions: int
    digest: str
    seconds: float

    @property
    def speed(self) -> float:
        """Cycles per CPU-second."""
        return self.cycles / self.seconds


def play(chip_name: str, path: Path) -> Played:
    """Plays the schedule in a file, in this process."""
    from meshloom.sched.lowering.semaphores.lower import lower
    from meshloom.sched.model.timeline import play

    chip = load(chip_name)
    program = lower(Schedule.model_validate_json(path.read_text()), chip)
    spent: list[float] = []
    while True:
        before = time.process_time()
        timeline = play(program, chip)
        spent.append(time.process_time() - before)
        if len(spent) == _REPEATS:
            break
    lines = "\n".join(map(repr, timeline.executed))
    digest = hashlib.sha256(lines.encode()).hexdigest()
    return Played(native.compiled(), timeline.cycles, len(timeline.executed), digest, min(spent))


def missed(cases: Sequence[tuple[str, str]], pairs: Sequence[tuple[Played, Played]]) -> list[str]:
    """What is wrong with pairs of (as Python, compiled): they differ, or the second is not fast enough."""
    found: list[str] = []
    for (chip, layer), (pure, compiled) in zip(cases, pairs, strict=True):
        if (pure.cycles, pure.instructions, pure.digest) != (compiled.cycles, compiled.instructions, compiled.digest):
            found.append(f"{chip}, {layer}: compiled code says {compiled.cycles:,} cycles, Python {pure.cycles:,}")
        elif chip in _BARRED and compiled.speed < BAR * pure.speed:
            found.append(f"{chip}, {layer}: {compiled.speed / pure.speed:.1f} times as fast, the bar is {BAR:g}")
    return found


def measure(on_progress: OnEvent) -> tuple[Sheet, list[str]]:
    """The table, and the bars that were missed. Raises BenchmarkError where the model cannot be compiled."""
    from meshloom.sched.schedulers.registry import find as scheduler
    from meshloom.sched.workload.catalog import find

    on_progress(Stage(workload="timeline", what="compiling the model, unless it has been"))
    try:
        native.build()
    except native.NativeError as error:
        raise BenchmarkError(f"the timeline model cannot be compiled: {error}") from None
    pairs: list[tuple[Played, Played]] = []
    with TemporaryDirectory() as folder:
        for chip, layer in CASES:
            on_progress(Stage(workload=layer, what=f"playing it on {chip}"))
            path = Path(folder, "schedule.json")
            (workload,) = find(layer)
            path.write_text(scheduler("loop_order:effort=0.2")(workload.shape, load(chip), 0).model_dump_json())
            pairs.append((_apart(chip, path, pure=True), _apart(chip, path, pure=False)))
    cells = [
        (
            chip,
            layer,
            f"{pure.cycles:,}",
            f"{pure.speed:,.0f}",
            f"{compiled.speed:,.0f}",
            f"{compiled.speed / pure.speed:.1f}",
            "yes" if pure.digest == compiled.digest else "no",
        )
        for (chip, layer), (pure, compiled) in zip(CASES, pairs, strict=True)
    ]
    bad = frozenset(n for n, (case, pair) in enumerate(zip(CASES, pairs, strict=True)) if missed([case], [pair]))
    columns = (
        "chip",
        "layer",
        "cycles>",
        "Python: cycles/s>",
        "compiled: cycles/s>",
        "times as fast>",
        "same timeline",
    )
    return Sheet("The timeline model as Python and compiled, cycles per CPU-second", columns, cells, bad), missed(
        CASES, pairs
    )


def _apart(chip: str, path: Path, *, pure: bool) -> Played:
    """Plays a schedule in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, chip, str(path)]
    environment = os.environ | {native.PURE: "1" if pure else "0"}
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode:
        raise BenchmarkError(f"playing on {chip} ended with status {ran.returncode}")
    played = Played(**json.loads(ran.stdout))
    if played.compiled == pure:
        raise BenchmarkError("the sources of the timeline model have changed meanwhile; run it again")
    return played


def main() -> None:
    """Prints the table; with the name of a chip and a file: one measurement, for `_apart`."""
    from ..report.console import Reporter, console
    from .results import print_result

    if len(sys.argv) > 1:
        print(json.dumps(vars(play(sys.argv[1], Path(sys.argv[2])))))
        return
    screen = console()
    try:
        with Reporter(screen) as on_progress:
            sheet, failures = measure(on_progress)
    except BenchmarkError as error:
        sys.exit(f"error: {error}")
    result = Result("timeline", sheet.title, "", (sheet,), failures=tuple(failures))
    print_result(result, screen)
    sys.exit(not result.passed)


if __name__ == "__main__":
    main()
