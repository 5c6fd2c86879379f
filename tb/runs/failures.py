"""A workload that could not be run, as data: it becomes a row, and the other workloads still run."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from meshloom.sched.schedulers.registry import SchedulerError
from meshloom.sched.support.files import write_atomically
from meshloom.sched.support.limits import memory_shortage
from meshloom.sched.support.text import bounded

from ..results.exits import is_ours
from ..results.schema import RowError

T = TypeVar("T")
#: Called with the next step; its first word is the stage: scheduling, lowering, ...
At = Callable[[str], None]


def stage_of(step: str) -> str:
    """The stage of a step: its first word."""
    return step.partition(" ")[0].rstrip(":")


@dataclass(frozen=True)
class Failure:
    """What went wrong in which stage. `trace`: the traceback of an unexpected error, otherwise empty."""

    kind: str
    stage: str
    message: str
    trace: str = ""


def failure(error: BaseException, stage: str) -> Failure:
    """An error as data that can be sent to any process. For a SchedulerError, the error that caused it."""
    if isinstance(error, SchedulerError) and error.kind:
        return Failure(error.kind, stage, bounded(str(error)), error.trace)
    anticipated = _expected(error)
    message = bounded(str(error))
    if shortage := memory_shortage(error):
        message = bounded(shortage)
    elif anticipated and isinstance(error, OSError) and not is_ours(error):
        message = f"{error.filename}: {error.strerror}"
    trace = "" if anticipated else "".join(traceback.format_exception(error))
    kind = type(error).__name__
    return Failure(kind, stage, message or kind, trace)


def _expected(error: BaseException) -> bool:
    """Whether its message is enough."""
    return bool(memory_shortage(error)) or is_ours(error) or (isinstance(error, OSError) and error.filename is not None)


def attempt(make: Callable[[At], T], first: str) -> T | Failure:
    """The result of `make`, or how it failed and in which of the stages that it reports; `first` is the first stage."""
    stage = first

    def at(what: str) -> None:
        nonlocal stage
        stage = stage_of(what)

    try:
        return make(at)
    except Exception as error:
        return failure(error, stage)


def row_error(result: Failure, workload: str, folder: Path | None) -> RowError:
    """The failure as part of a row. Writes a traceback to a file in `folder`, unless that is None."""
    message, place = result.message, None
    if result.trace and folder is not None:
        path = folder / (re.sub(r"[^\w.-]+", "_", workload)[:100] + ".traceback.txt")
        try:
            write_atomically(path, result.trace)
            place = path.as_posix()
        except OSError as error:
            message += f" (its traceback could not be written: {error})"
    return RowError(kind=result.kind, stage=result.stage, message=message, traceback=place)
