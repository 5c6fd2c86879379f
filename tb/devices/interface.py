"""The interface of everything that runs programs: jobs go in, runs come out.

A device is registered by a `DeviceKind` (`devices.registry`): the RTL under a simulator, or a chip on a cable.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig, tile_position
from meshloom.hw.spec.isa import BlockedOn, Cause, Part, Region, Unit
from meshloom.hw.spec.registers import REPORT
from meshloom.sched.program.program import Program
from meshloom.sched.support.plugins import PluginError

from ..build.tools import ToolError
from . import readout
from .observe import Observed, Written

#: Initial contents of memory in which nothing was loaded and output is expected: makes a missing write visible.
FILL = 0xA5


class DeviceError(ToolError):
    """The device itself failed (not the program on it); the message names its log."""


class UnknownDeviceError(PluginError):
    """A name that means no device; the message lists those there are, or says what one looks like."""


class NoDeviceError(DeviceError):
    """No job at all can run on it; the message names the fix."""


@dataclass(frozen=True)
class Fault:
    """Why the chip stopped of its own accord."""

    cause: Cause
    tile: int
    unit: Unit
    tag: int
    value: int

    def describe(self, chip: ChipConfig) -> str:
        """One readable line."""
        x, y = tile_position(self.tile)
        kind = chip.tiles.get(self.tile)
        where = f"{kind.value if kind else 'tile'}@({x},{y})"
        if self.unit is not Unit.NONE:
            where += f" {self.unit.name.lower()}"
        if self.cause is Cause.UNREPORTED:
            return f"a fault in {where}; which one, chip {chip.name} does not tell: set reports = true in its file"
        return f"{self.cause.name} in {where}, tag {self.tag}, value {self.value:#x}"


@dataclass(frozen=True)
class BlockedStatus:
    """What a part of a tile was waiting for when a watchdog stopped the run; for the fields see `hw.spec.isa.Part`,
    `BlockedOn`.

    `unit` and `tag` are those of the instruction; for a fault that has not reached the host, `cause` is set and `waits`
    is FAULT. `detail`: sem, need, has and peer as one number, sem lowest.
    """

    tile: int
    part: Part
    unit: Unit
    waits: BlockedOn
    tag: int
    sem: int = 0
    need: int = 0
    has: int = 0
    peer: int = 0
    cause: Cause = Cause.NONE

    @property
    def detail(self) -> int:
        """sem, need, has and peer as one number, sem lowest: the low bits of a report."""
        return REPORT.pack({name: getattr(self, name) for name in ("sem", "need", "has", "peer")})


@dataclass(frozen=True)
class Job:
    """A program, the initial DRAM contents (`memory`: tile, word address, words uint8 [n, P]), and the DRAM ranges to
    read back (`outputs`: tile, word address, words). `watchdog`: cycles after which the run is a fault. `stall_limit`:
    cycles without progress after which it is one (0 = never). `observe`: log every word that the cores compute
    (`Run.observed`). `stays`: DRAM ranges as in `outputs` in which the job before has left what `memory` and `program`
    say of them: a device that keeps DRAM between jobs loads nothing there, another one loads everything."""

    program: Program
    memory: Sequence[tuple[int, int, NDArray[np.uint8]]]
    outputs: Sequence[tuple[int, int, int]]
    watchdog: int = 50_000_000
    stall_limit: int = 20_000
    observe: bool = False
    stays: Sequence[tuple[int, int, int]] = ()


@dataclass(frozen=True)
class Run:
    """The outcome of a job.

    `memory`: the requested outputs, in order, uint8 [n, P] (empty after a fault, like `records` and `counters`).
    `records`: as many of each tile as it counted itself, those for which its trace memory had room and which the
    program must make. `trace_shortage`: why some of the chip's records are missing; empty if none are. `observed`: what
    the cores computed, up to the fault if there is one; empty unless requested. `cpu_seconds`: of the run, without
    loading DRAM and reading traces back. `blocked_status`: after a watchdog, what every part of the chip was waiting
    for, and `quiet`, the number of cycles without progress; `tb.compare.explain` turns both into words. `unobserved`:
    why a job with `observe` has no `observed`; empty if it has. `loaded`: bytes of the job's memory and program that
    the host wrote to DRAM before it."""

    cycles: int
    fault: Fault | None
    memory: list[NDArray[np.uint8]]
    records: list[readout.Record]
    counters: dict[int, list[int]]
    cpu_seconds: float
    simulator: str
    trace_shortage: str = ""
    observed: Observed = field(default_factory=dict[tuple[int, Region], Written])
    blocked_status: tuple[BlockedStatus, ...] = ()
    quiet: int = 0
    unobserved: str = ""
    loaded: int = 0


class Device(Protocol):
    """Runs jobs one after another."""

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        ...

    @property
    def name(self) -> str:
        """Its name in rows: that of its kind."""
        ...

    @property
    def waves(self) -> Path | None:
        """Waveforms of the latest jobs, if any were written."""
        ...

    def run(self, jobs: Sequence[Job], label: str = "run") -> Generator[Run, None, None]:
        """Runs jobs one after another; yields each as soon as it is done. Closing the generator stops it.

        Raises NoDeviceError if no job can run on it, DeviceError if it dies during one.
        """
        ...

    def beside(self, on_progress: Callable[[str], None]) -> Device:
        """Another device like it, for concurrent use by another thread. `on_progress` is called with its progress."""
        ...


@dataclass(frozen=True)
class DeviceKind:
    """A kind of device.

    `open(chip, waves, on_progress)` makes one ready, which may take long: `on_progress` is called with each step. It
    raises BuildError or NoDeviceError. `version`: of the software it runs in, in one line, for its rows; `tools`: name
    to version of everything else that can change its results. `waves`: whether it can write waveforms. `most`: how many
    may run concurrently (None: one per CPU). `macs`: the largest layers of the regression that it runs in minutes
    (None: all)."""

    name: str
    summary: str
    open: Callable[[ChipConfig, bool, Callable[[str], None]], Device]
    version: Callable[[], str] = str
    tools: Callable[[], dict[str, str]] = dict
    waves: bool = False
    most: int | None = None
    macs: int | None = None
