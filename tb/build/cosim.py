"""The cocotb side of a simulation: hands jobs to the bench one after another. Runs inside the simulator.

`+jobs=<file>`: a line of JSON for each job, {"number", "inputs": {name: value}}; a pipe if later jobs depend on what
earlier ones leave. For each one `job<n>.json` is written when it has run, so that the process that started the
simulator can follow, and nothing is lost when it is interrupted. `STARTED` is written when the chip is there.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import Timer

from .ports import OUTPUTS, STARTED


@cocotb.test()
async def run_jobs(dut: Any) -> None:
    """Runs every job of the file; the results are judged outside."""
    Path(STARTED).touch()  # what goes wrong from here on is no damaged simulator
    with Path(str(cocotb.plusargs["jobs"])).open() as lines:
        await Timer(1, "ns")
        for number, line in enumerate(lines):
            await _run_job(dut, number, json.loads(line))


async def _run_job(dut: Any, number: int, job: dict[str, Any]) -> None:
    """Runs the job that has this number in this process."""
    for name, value in job["inputs"].items():
        getattr(dut, name).value = value
    dut.job.value = job["number"]
    await Timer(1, "ns")
    dut.request.value = 1 - number % 2
    await dut.loaded.value_change
    before = time.process_time()
    await dut.ran.value_change
    spent = time.process_time() - before
    await dut.finished.value_change
    result = {name: int(getattr(dut, name).value) for name in OUTPUTS} | {"cpu_seconds": spent}
    partial = Path(f"job{job['number']}.json.part")
    partial.write_text(json.dumps(result))
    partial.replace(f"job{job['number']}.json")
