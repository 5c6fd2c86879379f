"""`--scheduler dtt`: another scheduler's operations, timed by Dijkstra through time and pushed by the controller."""

from __future__ import annotations

from meshloom.hw.config import ChipConfig

from ...ir.schedule import Execution, Schedule
from ...workload.layers import ConvShape

#: The name of this scheduler.
NAME = "dtt"


def schedule(shape: ConvShape, chip: ChipConfig, scale: int = 1 << 10, base: str = "loop_order") -> Schedule:
    """The schedule of `base`, to be run ahead of time.

    Raises what `base` raises, DttError for a chip without a controller.
    """
    from ...routing.hardware import DttError
    from ..registry import find

    if chip.dtt is None:
        raise DttError(
            f'chip {chip.name} has no controller; draw a "dtt" tile into its floorplan, as in the built-in chip ahead16'
        )
    return timed(find(base)(shape, chip, scale))


def timed(schedule: Schedule) -> Schedule:
    """The same operations, to be run ahead of time. What was predicted of them no longer holds."""
    return schedule.model_copy(update={"scheduler": NAME, "execution": Execution.TIMED, "predicted": None})
