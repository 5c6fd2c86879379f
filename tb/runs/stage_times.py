"""Where the processor's time of a command goes, by stage. With `MESHLOOM_STAGES=FILE` each process adds to that file a
line of JSON for each stage that it ends.

A line is `{"stage": "scheduling", "seconds": 1.234}`: seconds of the processor, those of processes that were waited for
among them. A process is in one stage at a time, so that runs of several jobs are not told apart: measure with one.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from meshloom.sched.support.files import write_error

#: Environment variable that names the file.
VARIABLE = "MESHLOOM_STAGES"


@dataclass
class _Current:
    """The stage of this process, and the seconds that it had used when that began. A forked process begins anew."""

    stage: str = ""
    since: float = 0.0
    process: int = 0


_current = _Current()


def enter(stage: str) -> None:
    """Ends the stage that this process is in, and begins another one; with an empty text, none."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    now = _used()
    if _current.stage and _current.process == os.getpid():
        _add(path, _current.stage, now - _current.since)
    _current.stage, _current.since, _current.process = stage, now, os.getpid()


def started() -> None:
    """Says that what this process has used until now is its start: the interpreter, and what every command imports."""
    if path := os.environ.get(VARIABLE):
        _add(path, "starting", _used())


def _used() -> float:
    """Seconds of the processor of this process and of those that it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _add(path: str, stage: str, seconds: float) -> None:
    """Adds a line, in one write, so that processes do not mix theirs. Raises WriteError."""
    line = json.dumps({"stage": stage, "seconds": round(seconds, 6)}) + "\n"
    try:
        with Path(path).open("ab", buffering=0) as file:
            file.write(line.encode())
    except OSError as error:
        raise write_error(error, path) from error
