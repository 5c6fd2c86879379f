"""Instructions as programs hold them: a field that is not given is 0, for everybody who reads one."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Opcode, Region, Unit, address, decode
from meshloom.sched.checker.check import check
from meshloom.sched.model.timeline import play
from meshloom.sched.program.disasm import listing
from meshloom.sched.program.program import Instruction, Program, end_post, place
from meshloom.tb.verify.random_programs import random_instruction

CHIP = load("tiny")
DRAM, CORE, HOST, SPM = CHIP.drams[0], CHIP.cores[0], CHIP.host, CHIP.spms[0]


@pytest.mark.parametrize("opcode", list(Opcode))
def test_an_instruction_has_all_the_fields_that_its_bytes_have(opcode: Opcode) -> None:
    random = Random(int(opcode))
    for _ in range(50):
        whole = random_instruction(random, opcode).fields
        given = {name: value for name, value in whole.items() if value and random.random() < 0.7}
        result = Instruction(opcode, given)
        assert result == Instruction(*decode(result.encode()))
        assert {name: value for name, value in result.fields.items() if value} == given
        assert str(result).split()[1:] == [f"{name}={value}" for name, value in result.fields.items() if value]


def sync(**fields: int) -> Instruction:
    return Instruction(Opcode.SYNC, fields)


def sparse(complete: Callable[[Instruction], Instruction]) -> Program:
    """Tile 0 is the DRAM of `tiny`, its semaphore 0 the one that a field left out means."""
    spm = [
        sync(tag=1, sem=2, n=1),  # to tile 0
        sync(tag=2, tile=CORE, n=2),  # to semaphore 0
        sync(tag=3, post_n=1),  # to its own semaphore 0
        sync(tag=4, wait_n=1),
        # the DRAM's words 0 to 4, to its own word 64
        Instruction(
            Opcode.MOVE,
            {"tag": 5, "src_run": 5, "dst_run": 5, "dst": address(Region.MAIN, 64), "words": 5, "notify": 1},
        ),
        sync(tag=6, tile=HOST, n=1),
    ]
    dram = [sync(tag=7, wait_sem=2, wait_n=1), sync(tag=8, wait_n=1), sync(tag=9, tile=HOST, n=1)]
    core = [sync(tag=10, wait_n=2), sync(tile=HOST, n=1)]
    codes = {(SPM, Unit.MOVER): spm, (DRAM, Unit.MOVER): dram, (CORE, Unit.MATRIX): core}
    streams, boot = place({key: tuple(map(complete, code)) for key, code in codes.items()}, {DRAM: 200}, CHIP)
    return Program(CHIP.digest, streams, boot, {})


def test_what_is_left_out_is_played_checked_and_listed_as_0() -> None:
    """`SYNC {tag, sem, n}` says no tile, `{tag, post_n}` no semaphore: the timeline used to end in a KeyError."""
    given = sparse(lambda instruction: instruction)
    decoded = sparse(lambda instruction: Instruction(*decode(instruction.encode())))
    timeline = play(given, CHIP)
    assert timeline == play(decoded, CHIP)
    assert {(entry.tile, entry.tag) for entry in timeline.executed} >= {(SPM, 1), (SPM, 3), (DRAM, 5), (DRAM, 8)}
    report = check(given, CHIP, initial=[(DRAM, 0, 8)], outputs=[(DRAM, 64, 5)])
    assert report == check(decoded, CHIP, initial=[(DRAM, 0, 8)], outputs=[(DRAM, 64, 5)])
    assert list(listing(given, CHIP)) == list(listing(decoded, CHIP))


#: The largest mesh with the most streams: three in each tile but the host's and the DRAM's.
_ROWS = (("host", "dram", *["core"] * 14), *[("core",) * 16] * 15)
LARGEST = ChipConfig.model_validate({"name": "largest", "lanes": 4, "semaphores": 8, "floorplan": _ROWS})


def ending(count: int) -> Program:
    """A program of so many streams that do nothing but end."""
    units = [(core, unit) for core in LARGEST.cores for unit in (Unit.MOVER, Unit.MATRIX, Unit.VECTOR)]
    units.append((LARGEST.drams[0], Unit.MOVER))
    codes = {at: (sync(tag=1, **end_post(number, LARGEST)),) for number, at in enumerate(units[:count])}
    assert len(codes) == count
    streams, boot = place(codes, dict.fromkeys(LARGEST.drams, 0), LARGEST)
    return Program(LARGEST.digest, streams, boot, {})


@pytest.mark.parametrize(("count", "semaphores"), [(255, 1), (256, 2), (510, 2), (511, 3), (763, 3)])
def test_any_number_of_streams_may_end_at_once(count: int, semaphores: int) -> None:
    """As many of the host's semaphores count them as it takes, of eight bits each."""
    program = ending(count)
    posted = {stream.instructions[-1].fields["sem"] for stream in program.streams}
    assert posted == {*range(semaphores)}
    report = check(program, LARGEST)
    assert report.warnings == ()
    assert report.peak == min(count, 255)
    assert play(program, LARGEST).cycles > 0
