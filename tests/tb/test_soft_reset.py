"""CONTROL.reset in the middle of anything: DRAM's bursts are finished, and the next run is as if nothing had been."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.registers import CONTROL, IRQ, STATUS, Register
from meshloom.sched.workload.catalog import find
from meshloom.tb.build.builder import build
from meshloom.tb.devices.images import loads
from meshloom.tb.devices.interface import Job
from meshloom.tb.devices.serving import ServedChip
from meshloom.tb.runs.runner import prepare

from ..tiers import slow_but
from .served_chip import CHIP

#: Small enough for Icarus, with memories beside DRAM that no layer fits into.
SMALL = ChipConfig.model_validate({
    "name": "small", "lanes": 4, "floorplan": ["dram core", "host dram"], "programs": 1, "trace_records": 16,
    "core": {"a_words": 64, "b_words": 64, "acc_words": 32, "out_words": 32, "vec_words": 16},
    "dram": {"words": 1 << 13, "bytes_per_cycle": 3, "latency": 30},
})  # fmt: skip
#: A chip, and a layer that reads and writes both channels of its DRAM nearly all the time.
CASES = {"verilator": (CHIP, "gemm:40x64x64"), "icarus": (SMALL, "gemm:24x24x24")}
RESET = CONTROL.pack({"reset": 1})
#: Registers that keep what is written, and what they hold after any reset.
KEPT = {
    Register.PROGRAM_TILE: 0, Register.PROGRAM_ADDR: 0, Register.PROGRAM_COUNT: 0, Register.WATCHDOG: 0,
    Register.STALL_LIMIT: 0, Register.CYCLES: 0, Register.IRQ_ENABLE: (1 << IRQ.used) - 1, Register.IRQ_STATUS: 0,
    Register.STATUS: STATUS.pack({"ready": 1}),
}  # fmt: skip


def begin(chip: ServedChip, job: Job) -> None:
    """Loads the job and starts it."""
    needed, boot = loads(job, chip.config, anew=True), job.program.boot
    chip.load([(tile, at, words) for tile, parts in needed.segments.items() for at, words in parts])
    chip.write(Register.PROGRAM_TILE, boot.dram_tile)
    chip.write(Register.PROGRAM_ADDR, boot.address)
    chip.write(Register.PROGRAM_COUNT, len(boot.instructions))
    chip.write(Register.CONTROL, CONTROL.pack({"start": 1}))


def outcome(chip: ServedChip, job: Job) -> tuple[int, list[Any]]:
    """Cycles and outputs of a job."""
    begin(chip, job)
    assert chip.run(50_000), "it has ended"
    status, cycles = chip.read(Register.STATUS, Register.CYCLES)
    assert STATUS.unpack(status)["done"]
    assert not STATUS.unpack(status)["fault"]
    return cycles, [part.tolist() for part in chip.dump(job.outputs)]


def reset(chip: ServedChip) -> int:
    """Resets the chip; returns how often STATUS has said that DRAM is not done yet."""
    chip.write(Register.CONTROL, RESET)
    looks = resetting = 0
    while not (status := STATUS.unpack(chip.read(Register.STATUS)[0]))["ready"]:  # semaphores are cleared last
        resetting += status["resetting"]
        looks += 1
        assert looks < 1000
    assert dict(zip(KEPT, chip.read(*KEPT), strict=True)) == KEPT
    return resetting


@pytest.mark.parametrize("simulator", slow_but(CASES, "verilator"))
def test_a_run_after_a_reset_is_as_the_first(simulator: str) -> None:
    """Programs that come and go, and a run, each reset at random cycles; Icarus' DRAM is not reset with the chip."""
    rng = Random(3)
    config, workload = CASES[simulator]
    with ServedChip(build(config, simulator)) as chip:
        job = prepare(find(workload)[0], config, "loop_order:effort=0.01").job(config)
        reset(chip)  # it was serving
        right = outcome(chip, job)
        looks = [reset(chip)]
        for _ in range(12):
            begin(chip, job)
            assert not chip.run(rng.randrange(right[0] - 50)), "it still runs"
            looks.append(reset(chip))
            assert outcome(chip, job) == right
            reset(chip)
    assert max(looks) > 0, "once at least DRAM had something to finish"
