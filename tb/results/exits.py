"""What the exit status of the command line says, and which errors are whose fault."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from meshloom.sched.store.room import unwritten
from meshloom.sched.support.limits import memory_shortage
from meshloom.sched.support.text import bounded

from ..build.tools import ToolError

if TYPE_CHECKING:
    from .schema import Results


class Exit(IntEnum):
    """Exit statuses of `meshloom`. Where several would do it is the one named first of: 1, 4, 3, 5."""

    def __new__(cls, value: int, meaning: str = "") -> Exit:
        result = int.__new__(cls, value)
        result._value_ = value
        result.meaning = meaning
        return result

    meaning: str

    OK = 0, "all is well"
    WRONG = (
        1,
        "a byte differs, the chip raised a fault, the comparison is incomplete, or the model is off by too much",
    )
    BAD_INPUT = 2, "the command, the chip, a name or a file is wrong: nothing has been run"
    NOT_RUN = (
        3,
        "a workload could not be run: it does not fit, its scheduler failed, its file cannot be read; others ran",
    )
    TOOL = 4, "the simulator or a tool failed, or Meshloom has a bug"
    NOT_WRITTEN = 5, "a file cannot be written: no room, or no right to"
    INTERRUPTED = 130, "interrupted; what had finished is kept"
    UNREAD = 141, "whoever reads the output has closed it, as head does; what had finished is kept"


def is_ours(error: BaseException) -> bool:
    """Whether an error is one that this project raises on purpose: its message is enough."""
    return type(error).__module__.partition(".")[0] == "meshloom"


def expected(error: Exception) -> tuple[str, Exit] | None:
    """Message and status of an error that is not a bug: one of ours, or a file that cannot be read or written."""
    from meshloom.sched.schedulers.failures import SchedulerError  # late: `--help` needs none of it

    if isinstance(error, SchedulerError) and error.kind:
        return str(error), Exit.NOT_RUN
    unwritable = unwritten(error)
    if shortage := memory_shortage(error):
        return bounded(shortage), Exit.TOOL
    if is_ours(error):
        if unwritable is not None:
            return bounded(str(error)), Exit.NOT_WRITTEN
        return bounded(str(error)), Exit.TOOL if isinstance(error, ToolError) else Exit.BAD_INPUT
    if unwritable is not None:
        return bounded(str(unwritable)), Exit.NOT_WRITTEN
    if isinstance(error, OSError) and error.filename is not None:
        return bounded(f"{error.filename}: {error.strerror}"), Exit.BAD_INPUT
    return None


def verdict(results: Results) -> Exit:
    """The status of a run that has come to its end."""
    if results.summary.ok:
        return Exit.OK
    errors = [row.error for row in results.rows if row.error is not None]
    # each of these gives a reason; where there are more, a row or the run as a whole is wrong
    if len(results.summary.reasons) > len(errors):
        return Exit.WRONG
    return Exit.TOOL if any(error.stage == "simulating" for error in errors) else Exit.NOT_RUN


def help_text() -> str:
    """All statuses, for `--help`."""
    return "Exit status: " + "; ".join(f"{status.value} {status.meaning}" for status in Exit) + "."
