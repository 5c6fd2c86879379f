"""Programs with fire times on the RTL: what `check` accepts ends in the predicted cycle without a fault, damaged or
not; what it refuses for a fire time ends in a LATE fault."""

from __future__ import annotations

from random import Random

from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import Cause
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.model.timeline import play
from meshloom.sched.program.program import Program
from meshloom.tb.build.builder import build
from meshloom.tb.devices.interface import Job, Run
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.verify.damage import damaged, timed

TINY = load("tiny")
SEEDS = range(24)
#: Programs that wait for later fire times than this are not run.
MOST_CYCLES = 50_000


def runs(programs: list[Program]) -> list[Run]:
    device = SimulatedDevice(build(TINY, "verilator"))
    return list(device.run([Job(program, [], [], 2 * MOST_CYCLES, stall_limit=0) for program in programs]))


def test_random_programs_fire_on_time() -> None:
    programs = [timed(seed, TINY) for seed in SEEDS]
    for program, run in zip(programs, runs(programs), strict=True):
        assert run.fault is None
        assert run.cycles == play(program, TINY).cycles


def test_damaged_programs_are_late_if_the_checker_says_so_and_only_then() -> None:
    good, late = list[Program](), list[Program]()
    for seed in SEEDS:
        random, program = Random(seed), timed(seed, TINY)
        for _ in range(6):
            other = damaged(random, program)
            if any(i.fields.get("fire_at", 0) > MOST_CYCLES for s in other.streams for i in s.instructions):
                continue
            try:
                check(other, TINY)
            except CheckError as error:
                if all("fire_at = " in problem.what for problem in error.problems):
                    late.append(other)
            else:
                good.append(other)
    good = [program for program in good if play(program, TINY).cycles < MOST_CYCLES]
    assert len(good) > 20
    assert len(late) > 20
    for number, (program, run) in enumerate(zip(good, runs(good), strict=True)):
        assert (number, run.fault) == (number, None)
        assert run.cycles == play(program, TINY).cycles
    for number, run in enumerate(runs(late)):
        assert run.fault is not None
        assert (number, run.fault.cause) == (number, Cause.LATE)
