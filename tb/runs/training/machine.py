"""Who executes the programs of a step: the RTL, or the functional executor beside the timeline model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.ir import functional
from meshloom.sched.schedulers.training.step import Half

from ...compare import records
from ...compare.completeness import completeness
from ...devices.interface import Device, DeviceError, Job, Run
from ...devices.simulated import SimulatedDevice
from ..network import places

Arrays = dict[str, NDArray[Any]]
#: A run counts as hung if it takes this much longer than predicted.
_PATIENCE, _MARGIN = 4, 20_000


class ChipFault(DeviceError):
    """The chip stopped in the middle of a step; the message says where and why."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a program left: the words of its output tensors by name, uint8 [words, P]; its cycles, None without a chip;
    instructions whose cycles are not those predicted, and what is to be said of the first one."""

    words: dict[str, NDArray[np.uint8]]
    cycles: int | None = None
    divergences: int = 0
    first_divergence: str = ""


class Machine(Protocol):
    """Executes programs; `cpu_seconds`: of simulating, so far."""

    cpu_seconds: float

    def run(self, half: Half, arrays: Mapping[str, NDArray[Any]], multipliers: Mapping[str, int]) -> Outcome:
        """A program on its input tensors by name, with these multipliers by name."""
        ...


@dataclass
class Functional:
    """The meaning of the schedules, in NumPy; nothing is timed."""

    chip: ChipConfig
    cpu_seconds: float = 0.0

    def run(self, half: Half, arrays: Mapping[str, NDArray[Any]], multipliers: Mapping[str, int]) -> Outcome:
        schedule = half.schedule_with(multipliers)
        result = functional.run(schedule, self.chip, arrays)
        return Outcome({name: schedule.tensor(name).layout.pack(a, self.chip.lanes) for name, a in result.items()})


@dataclass
class OnDevice:
    """A device: the RTL. `execute` runs a job on it."""

    chip: ChipConfig
    execute: Callable[[Job], Run]
    cpu_seconds: float = field(default=0.0)

    def run(self, half: Half, arrays: Mapping[str, NDArray[Any]], multipliers: Mapping[str, int]) -> Outcome:
        """Raises ChipFault, and what the device raises."""
        program, schedule = half.program_with(multipliers), half.schedule
        memory, outputs = places(schedule, arrays, self.chip.lanes)
        run = self.execute(Job(program, memory, outputs, _PATIENCE * half.timeline.cycles + _MARGIN))
        self.cpu_seconds += run.cpu_seconds
        if reports := records.fault_reports(run, program, schedule, self.chip):
            raise ChipFault(f"{schedule.workload}: {reports[0]}")
        match = records.match(run.records, half.timeline.executed, program)
        traced = completeness(match, run, program, schedule, self.chip)
        wrong = sum(pair.differs for pair in match.pairs)
        first = records.first_divergence(match.pairs, schedule, program.operation_of_tag, program)
        text = str(traced.get("record_problem") or first or "")
        words: dict[str, NDArray[np.uint8]] = {}
        place = 0
        for tensor in schedule.tensors:
            if tensor.role == "output":
                words[tensor.name] = np.concatenate(run.memory[place : place + len(tensor.pieces)])
                place += len(tensor.pieces)
        wrong += bool(traced.get("record_problem"))
        wrong += run.cycles != half.timeline.cycles
        if run.cycles != half.timeline.cycles and not text:
            text = f"{schedule.workload}: {run.cycles} cycles on the RTL, {half.timeline.cycles} in the model"
        return Outcome(words, run.cycles, wrong, text)


@contextlib.contextmanager
def on_device(device: Device) -> Generator[OnDevice, None, None]:
    """A device for as many programs as come, in one process if it can."""
    with contextlib.ExitStack() as stack:
        if isinstance(device, SimulatedDevice):
            yield OnDevice(device.config, stack.enter_context(device.opened("train")))
        else:

            def alone(job: Job, /) -> Run:
                (run,) = device.run([job], "train")
                return run

            yield OnDevice(device.config, alone)
