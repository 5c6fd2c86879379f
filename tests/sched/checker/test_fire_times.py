"""Fire times that cannot be met are refused before anything runs, those that can are not: to the cycle."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.model.frontend import LateError
from meshloom.sched.model.timeline import play
from meshloom.sched.program.program import Instruction, Program
from meshloom.tb.verify.damage import damaged, timed
from meshloom.tb.verify.random_programs import random_program

TINY = load("tiny")


def fired(program: Program, number: int, position: int, cycle: int) -> Program:
    """The program with a fire time."""
    stream = program.streams[number]
    code = list(stream.instructions)
    code[position] = Instruction(code[position].opcode, code[position].fields | {"fire_at": cycle})
    streams = list(program.streams)
    streams[number] = replace(stream, instructions=tuple(code))
    return replace(program, streams=tuple(streams))


@pytest.mark.parametrize("seed", range(3))
def test_the_first_fire_time_that_can_be_met_is_the_first_that_passes(seed: int) -> None:
    """Whatever an instruction has to wait for: its code, semaphores, the one before it."""
    random = Random(seed)
    program = random_program(random, TINY, 6, threads=2)
    for _ in range(6):
        number = random.randrange(len(program.streams))
        stream = program.streams[number]
        position = random.randrange(len(stream.instructions))
        with pytest.raises(LateError) as late:
            play(fired(program, number, position, 1), TINY)
        first, tag = late.value.cycle, stream.instructions[position].fields["tag"]
        check(fired(program, number, position, first), TINY)
        words = (
            f"tag {tag}: has fire_at = {first - 1} and is ready only in cycle {first}, 1 late: a LATE fault; "
            f"set fire_at to {first}"
        )
        with pytest.raises(CheckError, match=words):
            check(fired(program, number, position, first - 1), TINY)


@pytest.mark.parametrize("seed", range(40, 48))
def test_what_passes_can_be_played_to_its_end(seed: int) -> None:
    """Damaged programs are refused, for their fire times or for whatever else is wrong, or they run."""
    program, random = timed(seed, TINY), Random(seed)
    check(program, TINY)
    for _ in range(8):
        other = damaged(random, program)
        try:
            check(other, TINY)
        except CheckError:
            continue
        assert play(other, TINY).cycles > 0


def test_a_fire_time_of_the_boot_stream_counts_too() -> None:
    program = random_program(Random(5), TINY, 4, threads=1)
    *boot, last = program.boot.instructions
    late = Instruction(last.opcode, last.fields | {"fire_at": 99})
    changed = replace(program, boot=replace(program.boot, instructions=(*boot, late)))
    with pytest.raises(CheckError, match=r"boot stream \[\d+\] END tag \d+: has fire_at = 99 and is ready only in"):
        check(changed, TINY)
