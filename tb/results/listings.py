"""What the commands that list things print with `--json`: one object, whose one field is the list.

Chips, schedulers, workloads, devices, studies and runs each have a `name` (of a run: `run`), by which other commands
know them, and a `summary` where there is something to say.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from .record import Count, Record


class ChipEntry(Record):
    """A chip. `floorplan`: rows of tiles; `pes`: multiply-accumulates a cycle, of all cores; `dram_bytes_per_cycle`: of
    each channel; `scratchpad_bytes`: of all of them together; `clock_mhz`: null if nobody says."""

    name: str
    digest: str
    floorplan: tuple[str, ...]
    cores: Count
    rows: Count
    cols: Count
    lanes: Count
    pes: Count
    scratchpad_bytes: Count
    channels: Count
    dram_bytes_per_cycle: Count
    clock_mhz: float | None = None


class ChipList(Record):
    """What `meshloom chips --json` prints."""

    chips: tuple[ChipEntry, ...]


class OptionEntry(Record):
    """An option of a scheduler. `default`: as it is written on the command line; null if it must be given, or has none,
    which `required` tells apart."""

    name: str
    values: str
    default: str | None = None
    required: bool
    summary: str


class SchedulerEntry(Record):
    """A scheduler. `schedules`: kinds of workloads, `serving` or `texts`. `options`: by such a kind, of one that was
    named."""

    name: str
    summary: str
    schedules: tuple[str, ...]
    options: dict[str, tuple[OptionEntry, ...]] = {}


class SchedulerList(Record):
    """What `meshloom schedulers --json` prints. `broken`: what is wrong with those that cannot be loaded."""

    schedulers: tuple[SchedulerEntry, ...]
    broken: tuple[str, ...] = ()


class WorkloadEntry(Record):
    """A built-in network, or a layer: its shapes then, and its multiply-accumulates (null: not known). `kind`:
    network, layer or other (gradients, chains). `real`: whether its weights are trained ones."""

    name: str
    kind: str
    macs: Count | None = None
    input: tuple[Count, ...] = ()
    output: tuple[Count, ...] = ()
    real: bool | None = None


class WorkloadList(Record):
    """What `meshloom workloads --json` prints. `syntaxes`: what else is a workload, in words."""

    workloads: tuple[WorkloadEntry, ...]
    syntaxes: tuple[str, ...] = ()


class DeviceEntry(Record):
    """A kind of device. `version`: of its tool; empty if that is not there. `most`: at the same time, null: any number;
    `waves`: whether it writes waveforms."""

    name: str
    summary: str
    version: str
    waves: bool
    most: Count | None


class DeviceList(Record):
    """What `meshloom devices --json` prints. `broken`: as of schedulers."""

    devices: tuple[DeviceEntry, ...]
    broken: tuple[str, ...] = ()


class StudyEntry(Record):
    """A study. `paper`: whose claims it checks, empty if nobody's."""

    name: str
    question: str
    paper: str


class StudyList(Record):
    """What `meshloom studies --json` prints. `broken`: as of schedulers."""

    studies: tuple[StudyEntry, ...]
    broken: tuple[str, ...] = ()


class PastRun(Record):
    """A run that is over, or was interrupted. `kind`: run, serve, serve-tokens, train, or unknown if its file cannot
    be read. `seconds`: that it took; null if its file does not say. `cycles`: of all its rows on the device. `ok`:
    whether all is well; `ended`: how it ended, in words."""

    run: str
    kind: str
    started: datetime
    seconds: Annotated[float, Field(ge=0)] | None = None
    workloads: tuple[str, ...] = ()
    chips: tuple[str, ...] = ()
    schedulers: tuple[str, ...] = ()
    device: str = ""
    cycles: Count = 0
    ok: bool = False
    ended: str


class RunList(Record):
    """What `meshloom runs --json` prints, newest first."""

    runs: tuple[PastRun, ...]
