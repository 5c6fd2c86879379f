"""The timeline against the RTL, 0 cycles off: single moves of every kind, one after the other, and two that compete."""

from __future__ import annotations

import numpy as np

from meshloom.hw.isa import Region, Unit
from meshloom.sched.model.timeline import play
from meshloom.tb.build import build
from meshloom.tb.compare import pair
from meshloom.tb.device import Job, SimulatedDevice

from .hand_made import CHIP, CORE, DRAM, SPM, finish, move, notify, program, random_words, sync


def jobs(seed: int, count: int) -> list[Job]:
    """Programs of a pull, a wait, two pulls at once into one core, a wait, with random sizes, runs and strides."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        words = int(rng.integers(1, 200))
        src_run, dst_run = (int(run) for run in rng.integers(1, 80, 2))
        spread = {"src_run": src_run, "src_stride": src_run + int(rng.integers(0, 9)), "dst_run": dst_run}
        spread["dst_stride"] = dst_run + int(rng.integers(0, 9))
        at = int(rng.integers(0, 70))
        code = [
            move(1, (DRAM, Region.MAIN, at), (SPM, Region.MAIN, at), words, **spread, **notify(2, CORE)),
            sync(2, wait_sem=2, wait_n=1),
            move(3, (DRAM, Region.MAIN, at), (CORE, Region.MAIN, at), words, **notify(3, CORE)),
            move(4, (SPM, Region.MAIN, at), (CORE, Region.B, at), words, **notify(3, CORE)),
            sync(5, wait_sem=3, wait_n=2),
            finish(6),
        ]
        made.append(Job(program({(CORE, Unit.MOVER): code}), [(DRAM, 0, random_words(rng, 1500))], [], 20_000))
    return made


def test_single_moves_and_two_that_compete_are_predicted_to_the_cycle() -> None:
    given = jobs(1, 24)
    device = SimulatedDevice(build(CHIP, "verilator"))
    for job, run in zip(given, device.run(given), strict=True):
        timeline = play(job.program, CHIP)
        assert run.fault is None
        pairs = pair(run.records, timeline.executed)
        assert len(pairs) == len(run.records) > 6
        assert [found for found in pairs if found.differs] == []
        assert run.cycles == timeline.cycles
