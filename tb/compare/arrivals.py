"""Planned and measured arrivals of an ahead-of-time program: the bound is 0 cycles."""

from __future__ import annotations

from typing import TypedDict

from meshloom.hw.spec.config import ChipConfig, tile_position
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.sched.program.program import Program

from ..devices.interface import Run


class Arrivals(TypedDict, total=False):
    """Fields of a result row."""

    planned_arrivals: int
    arrival_mismatches: int
    first_arrival_mismatch: str


def arrivals(program: Program, run: Run, chip: ChipConfig) -> Arrivals:
    """How many MOVEs of a program have a planned arrival, and how many missed it; empty if it is not timed ahead.

    Planned arrivals follow from the program's own bytes (`sched.lowering.timed.prove`), measured ones from the records
    that the receiving tiles leave. A MOVE without a record has missed its arrival.
    """
    if not program.ahead or run.fault is not None:
        return {}
    from meshloom.sched.lowering.timed.prove import arrivals as plan

    measured: dict[int, int] = {}
    for record in run.records:
        if record.unit is Unit.NONE and record.opcode is Opcode.MOVE:
            measured[record.tag] = max(record.end, measured.get(record.tag, 0))
    planned = plan(program, chip)
    wrong = [(cycle, tag) for tag, cycle in planned.items() if measured.get(tag) != cycle]
    first = ""
    if wrong:
        cycle, tag = min(wrong)
        text = f"arrived in cycle {measured[tag]}" if tag in measured else "did not arrive"
        first = f"the MOVE with tag {tag} was planned to arrive in cycle {cycle}, but {text}"
        if chip.dtt is not None:
            x, y = tile_position(chip.dtt)
            first += f" (its order: controller at ({x},{y}))"
    return {"planned_arrivals": len(planned), "arrival_mismatches": len(wrong), "first_arrival_mismatch": first}
