"""Planned against measured arrivals, from records that the test makes: what is not there, or a cycle off, is a miss."""

from __future__ import annotations

from typing import Any

import pytest

from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import Cause, Opcode, Region, Unit, address
from meshloom.sched.program.program import Instruction, Program, Stream
from meshloom.tb.compare.arrivals import arrivals
from meshloom.tb.devices.interface import Fault, Run
from meshloom.tb.devices.readout import Record

CHIP = load("ahead8")
DRAM, SPM, CORE, DTT = 0x00, 0x20, 0x11, 0x03


def program(ahead: bool = True) -> Program:
    """MOVEs of 4 and 70 words, with tags 1 and 2, of a controller; and a GEMM that makes it one."""
    body = {"src_tile": SPM, "src": 0, "dst_tile": CORE}
    code = [
        Instruction(Opcode.MOVE, body | {"tag": 1, "fire_at": 500, "src_run": 4, "dst": 0, "dst_run": 4, "words": 4}),
        Instruction(
            Opcode.MOVE,
            body | {"tag": 2, "fire_at": 600, "src_run": 70, "dst": address(Region.B, 0), "dst_run": 70, "words": 70},
        ),
    ]
    ones = ("k_blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "n_blocks", "out_w", "pixels")
    gemm = dict.fromkeys((*ones, "a_plane", "in_w"), 1) | {"tag": 3, "fire_at": 800, "scale": 1, "clamp": 127}
    gemm |= {"addend": 0, "to_acc": 0, "a_base": 0, "b_base": 0, "dest_base": 0, "relu": 0, "pad_top": 0, "pad_left": 0}
    if ahead:
        code += [Instruction(Opcode.ORDER, {"tag": 9, "tile": CORE}), Instruction(Opcode.GEMM, gemm)]
    boot = Stream(CHIP.host, Unit.MOVER, DRAM, 9000, (Instruction(Opcode.END),))
    return Program(CHIP.digest, (Stream(DTT, Unit.MOVER, DRAM, 8000, tuple(code)),), boot, {1: 0, 2: 1, 3: 2})


#: When the last word of each can be read: 4 cycles to the head, 2 hops, its flits, and one.
PLANNED = {1: 500 + 4 + 2 + 5 + 1, 2: 600 + 4 + 2 + 72 + 1}


def packet(tag: int, end: int) -> Record:
    return Record(CORE, Unit.NONE, Opcode.MOVE, tag, 4, 0, end - 8, end)


def ran(*records: Record, fault: Fault | None = None) -> Run:
    return Run(1000, fault, [], list(records), {}, 0.0, "none")


#: The long MOVE comes in two packets, and has arrived when both have.
ON_TIME = (packet(1, PLANNED[1]), packet(2, PLANNED[2] - 7), packet(2, PLANNED[2]))


def test_what_is_on_time_is_no_miss_in_whatever_order_it_is_told() -> None:
    for records in (ON_TIME, ON_TIME[::-1]):
        assert arrivals(program(), ran(*records), CHIP) == {
            "planned_arrivals": 2,
            "arrival_mismatches": 0,
            "first_arrival_mismatch": "",
        }


@pytest.mark.parametrize("off", [-1, 1])
def test_a_cycle_early_or_late_is_a_miss(off: int) -> None:
    late = PLANNED[2] + off
    values = dict[str, Any](arrivals(program(), ran(ON_TIME[0], ON_TIME[1], packet(2, late)), CHIP))
    assert (values["planned_arrivals"], values["arrival_mismatches"]) == (2, 1)
    assert values["first_arrival_mismatch"] == (
        f"the MOVE with tag 2 was planned to arrive in cycle {PLANNED[2]}, but arrived in cycle {late} "
        "(its order: controller at (3,0))"
    )


def test_what_never_came_is_a_miss_and_the_first_planned_is_named() -> None:
    """Records of instructions, and of others' packets, are none of it."""
    instruction = Record(SPM, Unit.MOVER, Opcode.MOVE, 1, 0, 0, 500, PLANNED[1])
    gemm = Record(CORE, Unit.NONE, Opcode.GEMM, 1, 0, 0, 500, PLANNED[1])
    for records, misses in (((), 2), ((instruction, gemm, packet(7, PLANNED[1])), 2), (ON_TIME[1:], 1)):
        values = dict[str, Any](arrivals(program(), ran(*records), CHIP))
        assert values["arrival_mismatches"] == misses
        assert values["first_arrival_mismatch"].startswith(
            f"the MOVE with tag 1 was planned to arrive in cycle {PLANNED[1]}, but did not arrive"
        )


def test_of_a_run_that_faulted_or_is_not_timed_nothing_is_said() -> None:
    fault = Fault(Cause.LATE, CORE, Unit.MATRIX, 3, 5)
    assert arrivals(program(), ran(*ON_TIME, fault=fault), CHIP) == {}
    assert arrivals(program(ahead=False), ran(), CHIP) == {}
