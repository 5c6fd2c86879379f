"""Programs with fire times, and the same with one field of one instruction changed by chance."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS
from meshloom.sched.program.program import Instruction, Program

from .random_programs import random_program, with_fire_times


def timed(seed: int, chip: ChipConfig) -> Program:
    """A random program of which a fifth of all instructions has a fire time, none of them late."""
    random = Random(seed)
    program = random_program(random, chip, random.randint(4, 12), threads=random.randint(1, 3))
    return with_fire_times(random, program, chip, 0.2)


def damaged(random: Random, program: Program) -> Program:
    """Another program: half of the time a fire time is another, else any field of any instruction has one bit changed,
    is one more or less, extreme, or anything."""
    places = [(at, position) for at, s in enumerate(program.streams) for position in range(len(s.instructions))]
    fires = [(at, p) for at, p in places if program.streams[at].instructions[p].fields.get("fire_at")]
    late = bool(fires) and random.random() < 0.5
    number, position = random.choice(fires if late else places)
    stream = program.streams[number]
    instruction = stream.instructions[position]
    widths = {field.name: field.width for field in INSTRUCTIONS[instruction.opcode].fields if field.name != "opcode"}
    fields = dict.fromkeys(widths, 0) | instruction.fields
    name = "fire_at" if late else random.choice(list(widths))
    top, old = (1 << widths[name]) - 1, fields[name]
    if late:
        values = [old - 1, old - 40, old + 40, random.randint(1, old), random.randint(1, 2 * old)]
    else:
        values = [0, 1, top, old + 1, old - 1, old ^ 1 << random.randrange(widths[name]), random.randint(0, top)]
    new = random.choice([value for value in values if 0 <= value <= top and value != old])
    code = list(stream.instructions)
    code[position] = Instruction(instruction.opcode, fields | {name: new})
    streams = list(program.streams)
    streams[number] = replace(stream, instructions=tuple(code))
    return replace(program, streams=tuple(streams))
