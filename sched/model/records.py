"""The model's records of an instruction and of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from meshloom.hw.spec.isa import Opcode, Unit


class ModelError(ValueError):
    """A program that the model cannot play to its end, because the chip could not run it either; see also
    `sched.checker.check`."""


class Executed(NamedTuple):
    """One instruction as one unit executed it; `wait` and the cycles as in a trace record (`hw.spec.isa.TRACE`).

    On chips with `noc.arrivals` also each arrival of a data packet: unit NONE, opcode and `tag` of its MOVE, `tile` its
    destination, `wait` its words, `start` the cycle from which its head was offered to the NoC, `end` the cycle after
    its last word was taken at the destination.
    """

    tile: int
    unit: Unit
    opcode: Opcode
    tag: int
    wait: int
    start: int
    end: int


@dataclass(frozen=True)
class Timeline:
    """Cycles of the whole run, and every executed instruction in the order of its end."""

    cycles: int
    executed: list[Executed]
