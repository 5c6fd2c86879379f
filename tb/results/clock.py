"""What the cycles of a run are in seconds, on a chip whose clock is known, as data."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .energy import EnergyFigures
from .record import Record

_Figure = Annotated[float, Field(ge=0)]


class ClockFigures(Record):
    """A run at `clock_mhz`: its `milliseconds`; `frames_per_second` of a network, one input after another; `tops`:
    useful operations a second, in 10^12, a multiply-accumulate is two; `dram_gigabytes_per_second`: to and from DRAM
    with the program; `watts`: of the energy that is estimated, so without clock, control and leakage. What is not known
    is null."""

    clock_mhz: Annotated[float, Field(gt=0)]
    milliseconds: _Figure
    frames_per_second: _Figure | None = None
    tops: _Figure | None = None
    dram_gigabytes_per_second: _Figure | None = None
    watts: _Figure | None = None

    @property
    def words(self) -> str:
        """All of it in a line."""
        parts = [f"{self.milliseconds:,.4g} ms at {self.clock_mhz:,g} MHz"]
        for value, unit in (
            (self.frames_per_second, "frames/s"),
            (self.tops, "TOPS"),
            (self.dram_gigabytes_per_second, "GB/s of DRAM"),
            (self.watts, "W (estimated energy over time)"),
        ):
            if value is not None:
                parts.append(f"{value:,.4g} {unit}")
        return ", ".join(parts)


def clock_figures(
    clock_mhz: float | None,
    cycles: int,
    *,
    macs: int | None = None,
    network: bool = False,
    energy: EnergyFigures | None = None,
) -> ClockFigures | None:
    """The figures of a run of `cycles`; None without a clock or cycles. `macs`: multiply-accumulates of all of it.
    `network`: whether it is a whole one, which makes a frame. `energy`: its estimate, which knows the bytes of DRAM."""
    if clock_mhz is None or not cycles:
        return None
    seconds = cycles / clock_mhz / 1e6
    dram = None if energy is None else energy.parts.get("DRAM")
    return ClockFigures(
        clock_mhz=clock_mhz,
        milliseconds=1e3 * seconds,
        frames_per_second=1 / seconds if network else None,
        tops=None if macs is None else 2 * macs / seconds / 1e12,
        dram_gigabytes_per_second=None if dram is None else dram.count / seconds / 1e9,
        watts=None if energy is None else energy.microjoules / 1e6 / seconds,
    )
