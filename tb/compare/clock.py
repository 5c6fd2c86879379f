"""The cycles of a run as time."""

from __future__ import annotations

from meshloom.sched.ir.schedule import Schedule

from ..results.clock import ClockFigures, clock_figures
from ..results.energy import EnergyFigures
from ..results.schema import Row
from .finished import macs_of


def time_of(
    row: Row, schedule: Schedule, clock_mhz: float | None, energy: EnergyFigures | None, cycles: int | None = None
) -> ClockFigures | None:
    """The figures of a run at a clock; None without one. `cycles`: of the run, if not those of the RTL."""
    macs = macs_of(row, schedule)
    return clock_figures(
        clock_mhz,
        row.rtl_cycles if cycles is None else cycles,
        macs=None if macs is None else sum(macs.values()),
        network=row.network is not None,
        energy=energy,
    )
