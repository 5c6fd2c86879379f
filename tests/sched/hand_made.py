"""Programs written by hand, instruction by instruction, for tests of the checker."""

from __future__ import annotations

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Opcode, Region, Unit, address
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.program.program import Instruction, Program, ProgramError, place

TINY = load("tiny")
DRAM, CORE, HOST, SPM = TINY.drams[0], TINY.cores[0], TINY.host, TINY.spms[0]
MOVER, MATRIX = Unit.MOVER, Unit.MATRIX
#: A tensor that the host loads, and free words behind it.
LOADED = (DRAM, 0, 64)


def at(region: Region, offset: int = 0) -> int:
    return address(region, offset)


def sync(**fields: int) -> Instruction:
    return Instruction(Opcode.SYNC, fields)


def done() -> Instruction:
    return sync(tile=HOST, sem=0, n=1)


def move(src: int, src_at: int, dst: int, dst_at: int, words: int = 8, **fields: int) -> Instruction:
    body = {"src_tile": src, "src": src_at, "src_run": words, "dst_tile": dst, "dst": dst_at, "dst_run": words}
    return Instruction(Opcode.MOVE, body | {"words": words} | fields)


def gemm(**fields: int) -> Instruction:
    ones = dict.fromkeys(("k_blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "n_blocks"), 1)
    body = ones | {"a_plane": 4, "in_w": 4, "out_w": 4, "pixels": 4, "scale": 1, "clamp": 127}
    return Instruction(Opcode.GEMM, body | fields)


def program(codes: dict[tuple[int, Unit], list[Instruction]], chip: ChipConfig = TINY) -> Program:
    """Streams with tags; each gets the SYNC that reports its end."""
    tag, tagged = 100, {}
    for key, code in codes.items():
        tagged[key] = ()
        for instruction in [*code, done()]:
            tag += 1
            fields = instruction.fields | {"tag": instruction.fields["tag"] or tag}
            tagged[key] += (Instruction(instruction.opcode, fields),)
    streams, boot = place(tagged, dict.fromkeys(chip.drams, 1024), chip)
    return Program(chip.digest, streams, boot, {101: 0})


def problems(found: Program, chip: ChipConfig = TINY, **options: object) -> str:
    with pytest.raises(CheckError) as error:
        check(found, chip, **options)  # pyright: ignore[reportArgumentType]
    assert isinstance(error.value, ProgramError)
    return str(error.value)


def fed() -> dict[tuple[int, Unit], list[Instruction]]:
    """DRAM pushes both operands, the core computes, and its mover brings the result back: no hazards."""
    delivered = {"notify": 1, "notify_tile": CORE}
    return {
        (DRAM, MOVER): [
            move(DRAM, 0, CORE, at(Region.MAIN), **delivered, notify_sem=1),
            move(DRAM, 8, CORE, at(Region.B), **delivered, notify_sem=1),
        ],
        (CORE, MATRIX): [gemm(wait_sem=1, wait_n=2, post_sem=2, post_n=1)],
        (CORE, MOVER): [
            move(CORE, at(Region.OUT), DRAM, 32, 4, wait_sem=2, wait_n=1, **delivered, notify_sem=3),
            sync(wait_sem=3, wait_n=1),
        ],
    }
