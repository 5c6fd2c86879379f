"""The cocotb side of a simulation: hands jobs to the bench one after another. Runs inside the simulator.

`+jobs=<file>`: a line of JSON for each job, {"number", "inputs": {name: value}}; a pipe if later jobs depend on what
earlier ones leave. For each one a line of JSON goes to the pipe `ANSWERS` of the run when it has run, so that the
process that started the simulator can follow, and nothing is lost when it is interrupted. `STARTED` is written when the
chip is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import Timer

from .ports import STARTED
from .simulate import ANSWERS

#: Those of `ports.OUTPUTS` that say how a job ended; the others are how bench and simulator talk.
_OUTPUTS = ("status", "cycles", "fault_who", "fault_value", "quiet", "chip_id", "protocol")


@cocotb.test()
async def run_jobs(dut: Any) -> None:
    """Runs every job of the file; the results are judged outside."""
    Path(STARTED).touch()  # what goes wrong from here on is no damaged simulator
    bench = _JobBench(dut)
    with Path(str(cocotb.plusargs["jobs"])).open() as lines, Path(ANSWERS).open("w") as answers:
        await Timer(1, "ns")
        for line in lines:
            job = json.loads(line)
            answers.write(json.dumps({"number": job["number"]} | await bench.run(job)) + "\n")
            answers.flush()


class _JobBench:
    """The bench, which keeps the inputs that it has been given."""

    def __init__(self, dut: Any) -> None:
        self._dut, self._inputs = dut, dict[str, int]()
        self._outputs = {name: getattr(dut, name) for name in _OUTPUTS}
        self._request = 0

    def _set(self, inputs: Mapping[str, int]) -> None:
        for name, value in inputs.items():
            if self._inputs.get(name) != value:
                self._inputs[name] = value
                getattr(self._dut, name).value = value

    async def run(self, job: Mapping[str, Any]) -> dict[str, float]:
        """Runs a job."""
        dut = self._dut
        self._set({**job["inputs"], "job": job["number"]})
        await Timer(1, "ns")
        self._request = 1 - self._request
        dut.request.value = self._request
        await dut.loaded.value_change
        before = time.process_time()
        await dut.ran.value_change
        spent = time.process_time() - before
        await dut.finished.value_change
        return {name: int(signal.value) for name, signal in self._outputs.items()} | {"cpu_seconds": spent}
