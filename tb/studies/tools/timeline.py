"""The timeline model as Python and as machine code: what either plays, and how fast. Run as a program with a chip and
the file of a schedule it prints one measurement.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from meshloom.hw.spec.config import load
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.model import native

from ..engine.rows import StudyError

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


def schedule(chip: str, layer: str, path: Path) -> None:
    """Writes a schedule for a layer."""
    from meshloom.sched.schedulers.registry import find as scheduler
    from meshloom.sched.workload.catalog import find

    (workload,) = find(layer)
    path.write_text(scheduler("loop_order:effort=0.2")(workload.shape, load(chip), 0).model_dump_json())


def apart(chip: str, path: Path, *, pure: bool) -> Played:
    """Plays a schedule in a process of its own. Raises StudyError."""
    command = [sys.executable, "-m", __spec__.name, chip, str(path)]
    environment = os.environ | {native.PURE: "1" if pure else "0"}
    process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode:
        raise StudyError(f"playing on {chip} ended with status {process.returncode}")
    played = Played(**json.loads(process.stdout))
    if played.compiled == pure:
        raise StudyError("the sources of the timeline model have changed meanwhile; run it again")
    return played


if __name__ == "__main__":
    print(json.dumps(vars(play(sys.argv[1], Path(sys.argv[2])))))
