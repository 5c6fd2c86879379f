"""The results of a scenario, as data: figures, its instances, and a row for each program that was launched."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, computed_field

from meshloom.hw.spec.config import tile_position
from meshloom.sched.support.files import write_atomically

from .busy import BusyRow
from .record import Record
from .recorder import RESULTS_FOLDER

#: A program may end so many percent of its length from where the model says, and each metric be so many percent off.
END_PERCENT, METRIC_PERCENT = 2.0, 1.0

Count = Annotated[int, Field(ge=0)]
Part = Annotated[float, Field(ge=0, le=1)]


class ProgramRow(Record):
    """A layer that was launched. `cores`: tiles; `launched`: cycle; `*_end`: cycle in which the host knew of its end,
    null if it did not run there or did not end; `code_bytes`: written to DRAM for it, with its boot stream."""

    instance: Count
    network: str
    layer: str
    scheme: str
    cores: tuple[Count, ...]
    slot: Count
    launched: Count
    rtl_end: Count | None = None
    model_end: Count | None = None
    instructions: Count
    code_bytes: Count
    fault: str | None = None

    @computed_field
    @property
    def error_percent(self) -> float | None:
        """100 * (model - RTL) / cycles on the RTL; null when there are not both."""
        if self.rtl_end is None or self.model_end is None:
            return None
        return 100.0 * (self.model_end - self.rtl_end) / max(1, self.rtl_end - self.launched)


class CoresRow(Record):
    """A step of a network's cores over time: from `cycle` on its program has `cores` cores, 0 if none runs. The first
    step of a network is its first launch, the last its end."""

    instance: Count
    network: str
    cycle: Count
    cores: Count


class InstanceRow(Record):
    """A network that was asked for. `end`: cycle, null if a fault ended it (`lost`); `isolated`: cycles alone on the
    whole chip; `met`: its deadline, null without one. Bytes: of every tensor that its layers left."""

    number: Count
    network: str
    batch: Count
    arrival: Count
    deadline: Count | None = None
    end: Count | None = None
    isolated: Count
    met: bool | None = None
    lost: str | None = None
    bytes_checked: Count = 0
    mismatches: Count = 0
    first_mismatch: str = ""

    @computed_field
    @property
    def turnaround(self) -> int | None:
        """Cycles from arrival to end."""
        return None if self.end is None else self.end - self.arrival

    @computed_field
    @property
    def hopeless(self) -> bool:
        """Whether its deadline was missed and leaves fewer cycles than it takes alone on the whole chip."""
        return self.met is False and (self.deadline or 0) - self.arrival < self.isolated

    @computed_field
    @property
    def slowdown(self) -> float | None:
        """Normalised turnaround time."""
        return None if self.turnaround is None else self.turnaround / max(1, self.isolated)


class Metrics(Record):
    """Of all instances: average normalised turnaround time, system throughput, part of the deadlines missed, PE
    utilisation, part of all core cycles with a program."""

    antt: float
    stp: float
    sla_violations: Part
    utilisation: Part
    busy: Part


class ScenarioFigures(Metrics):
    """A scenario as it ran on the RTL or, without an RTL run, in the timeline model. `model`: its metrics there.
    `decision_cycles`: from an event to the launch of what was decided on it. `decisions_differ`: launches of the RTL
    run that the model's does not share, from the first that differs on. `decision_seconds`: mean and worst of the
    scheduler's calls here. `clock_mhz`: of the chip, null if nobody says."""

    name: str
    chip: str
    chip_digest: str
    scheduler: str
    simulator: str = ""
    decision_cycles: Count
    rtl_cycles: Count | None = None
    model_cycles: Count
    model: Metrics
    mismatches: Count = 0
    bytes_checked: Count = 0
    faults: Count = 0
    decisions: Count
    decisions_differ: Count = 0
    first_difference: str = ""
    decision_seconds: tuple[float, float]
    cpu_seconds: float = 0.0
    clock_mhz: float | None = None

    def milliseconds(self, cycles: int) -> float | None:
        """Cycles as time; None without a clock."""
        return None if self.clock_mhz is None else cycles / self.clock_mhz / 1e3


class ScenarioResults(Record):
    """What `meshloom serve` writes. `cores`: over time, a row for each change; `busy`: a row for each counter of each
    tile at the end, none of a chip without counters; `strays`: faults of tiles on which no program ran; `notes`: on
    how files of networks were read; `models`: of each of these, by network, its digest, and what else decided what
    was read: digests of what it was quantised with, sizes. `ok`: every byte is right, nothing was lost, the model is
    close enough, and its counters are those of the RTL."""

    schema_version: Literal[1] = 1
    started: datetime
    environment: dict[str, str]
    scenario: ScenarioFigures
    instances: tuple[InstanceRow, ...]
    programs: tuple[ProgramRow, ...]
    cores: tuple[CoresRow, ...] = ()
    busy: tuple[BusyRow, ...] = ()
    strays: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    models: dict[str, dict[str, tuple[str, ...]]] = {}

    @computed_field
    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not `ok`, in words."""
        sentences = [f"{row.number}:{row.network} was lost: {row.lost}" for row in self.instances if row.lost]
        sentences += [f"a fault where no program ran: {stray}" for stray in self.strays]
        figures = self.scenario
        for row in self.instances:
            if row.mismatches:
                sentences.append(
                    f"{row.number}:{row.network}: {row.mismatches} of {row.bytes_checked} bytes differ from the golden "
                    f"model, first in {row.first_mismatch}"
                )
            if figures.rtl_cycles is not None and row.end is not None and not row.bytes_checked:
                sentences.append(f"{row.number}:{row.network}: no byte was compared")
        if figures.decisions_differ:
            sentences.append(f"RTL and model do not decide alike. {figures.first_difference}")
        elif figures.rtl_cycles is not None:
            for row in self.programs:
                if row.error_percent is not None and abs(row.error_percent) > END_PERCENT:
                    sentences.append(
                        f"{row.instance}:{row.network}/{row.layer}: model error {row.error_percent:+.2f} % exceeds "
                        f"{END_PERCENT:g} %"
                    )
            for name, model in figures.model.model_dump().items():
                rtl = getattr(figures, name)
                if not _close(rtl, model):
                    sentences.append(f"{name}: {rtl:.4f} on the RTL, {model:.4f} in the model")
            if not figures.faults:  # the model knows of none
                sentences += _counters_off(self.busy)
        return tuple(sentences)

    @computed_field
    @property
    def ok(self) -> bool:
        """Whether there are no `reasons`."""
        return not self.reasons

    def save(self, path: Path) -> None:
        """Writes the JSON file. Raises OSError."""
        write_atomically(path, self.model_dump_json(indent=1) + "\n")


def _counters_off(rows: Sequence[BusyRow]) -> list[str]:
    """The first counter that is not what the model says, and how many are not; nothing if there is none."""
    off = [row for row in rows if row.model_busy is not None and row.model_busy != row.busy]
    if not off:
        return []
    first, (x, y) = off[0], tile_position(off[0].tile)
    return [
        f"{len(off)} of {len(rows)} counters differ from the model, first {first.part} in {first.kind}@({x},{y}): busy "
        f"in {first.busy} cycles on the RTL, in {first.model_busy} in the model"
    ]


def _close(rtl: float, model: float) -> bool:
    """Whether a metric of the model is within `METRIC_PERCENT` of the RTL's."""
    return abs(rtl - model) <= METRIC_PERCENT / 100 * max(abs(rtl), 1e-9)


def results_path(started: datetime, name: str, folder: Path = RESULTS_FOLDER) -> Path:
    """Where a run's results go."""
    return folder / f"{started.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{name}.json"
