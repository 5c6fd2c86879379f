"""A schedule whose operations are to be timed ahead."""

from __future__ import annotations

from ...ir.schedule import Execution, Schedule, ScheduleError

#: The name of the scheduler that times them.
NAME = "dtt"


def timed(schedule: Schedule) -> Schedule:
    """The same operations, to be run ahead of time. What was predicted of them no longer holds. Raises ScheduleError
    for a schedule with fences."""
    if schedule.fences:
        raise ScheduleError(
            f"schedule of {schedule.workload} by {schedule.scheduler} has fences, which operations that are timed "
            "ahead cannot keep; let its transfers overlap"
        )
    return schedule.model_copy(update={"scheduler": NAME, "execution": Execution.TIMED, "predicted": None})
