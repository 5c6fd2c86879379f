"""What a run of a step did, beside the model's cycles and ONNX Runtime's tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from ...compare import records
from ...compare.completeness import completeness
from ...devices import observe
from ...devices.interface import Job, Run
from ..network import PreparedNetwork, compare_bytes, job
from ..training.machine import ChipFault

#: A run counts as hung if it takes this much longer than predicted.
_PATIENCE, _MARGIN = 4, 20_000


@dataclass(frozen=True, eq=False)
class StepComparison:
    """Cycles on the device (0 without one) and in the model; bytes that the host wrote to DRAM before the step; bytes
    compared and wrong ones; instructions whose cycles are not the model's; what is to be said of the first of each."""

    model_cycles: int
    rtl_cycles: int = 0
    host_bytes: int = 0
    bytes_checked: int = 0
    mismatches: int = 0
    first_mismatch: str = ""
    divergences: int = 0
    first_divergence: str = ""
    cpu_seconds: float = 0.0


def step_job(prepared: PreparedNetwork, inputs: Mapping[str, NDArray[np.int8]], chip: ChipConfig) -> Job:
    """What a device is handed to run a step."""
    return job(prepared, inputs, chip, _PATIENCE, _MARGIN)


def run_compared(
    prepared: PreparedNetwork,
    inputs: Mapping[str, NDArray[np.int8]],
    chip: ChipConfig,
    execute: Callable[[], Run],
) -> tuple[Run, StepComparison]:
    """Runs a step and compares every tensor with ONNX Runtime's, every instruction's cycles with the model's. Raises
    ChipFault, and what the device raises."""
    run = execute()
    schedule, program = prepared.network_schedule.schedule, prepared.program
    if reports := records.fault_reports(run, program, schedule, chip):
        raise ChipFault(f"{schedule.workload}: {reports[0]}")
    match = records.match(run.records, prepared.timeline.executed, program)
    problem = str(completeness(match, run, program, schedule, chip).get("record_problem") or "")
    first = records.first_divergence(match.pairs, schedule, program.operation_of_tag, program)
    cycles = prepared.timeline.cycles
    others = bool(problem) + (run.cycles != cycles)
    text = f"{run.cycles} cycles on the RTL, {cycles} in the model" if others else ""
    try:
        compared = compare_bytes(prepared, run, inputs, chip, match)
    except observe.ObserveError as error:
        raise ChipFault(
            f"{schedule.workload}: what the cores computed is not what the schedule says: {error}"
        ) from error
    return run, StepComparison(
        model_cycles=cycles,
        rtl_cycles=run.cycles,
        host_bytes=run.loaded,
        bytes_checked=compared.checked,
        mismatches=compared.wrong,
        first_mismatch=compared.first,
        divergences=sum(pair.differs for pair in match.pairs) + others,
        first_divergence=problem or str(first or "") or text,
        cpu_seconds=run.cpu_seconds,
    )
