"""The transaction-level model: predicts when every instruction of a program starts and ends.

It plays the streams, requests, packets, posts and DRAM bursts of a program as events, with the cycle counts that the
gateware's docstrings state (`hw/control/frontend.py`, `hw/memory/mover.py`, `hw/noc/interface.py`,
`hw/spec/timing.py`), down to the flit, but with events only where a flow begins or ends (`flow.py`). Nothing is fitted
to measurements: each mechanism is modelled by its contract. Faults are left out, and so is what the program checker
rejects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import fields as dataclass_fields
from typing import Final

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import GEMM_ISSUE_CYCLES, STAGE_CYCLES, VEC_ISSUE_CYCLES
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.hw.spec.timing import (
    GemmShape,
    VecShape,
    gemm_bubble,
    gemm_cycles,
    gemm_occupancy,
    vec_cycles,
    vec_occupancy,
)

from ..program.program import Program
from .controller import Controller, pushed_streams
from .delivery import Packets
from .frontend import FrontEnd
from .machine import Machine, Works
from .mover import Mover
from .posts import UNIT_POST
from .records import Executed, ModelError, Timeline

#: What the length of an instruction depends on: one of the matrix unit has fewer fields than one of the vector unit.
_GEMM_FIELDS: Final = [field.name for field in dataclass_fields(GemmShape)]
_VEC_FIELDS: Final = [field.name for field in dataclass_fields(VecShape)]

__all__ = ["Executed", "ModelError", "Timeline", "play"]


def play(program: Program, chip: ChipConfig) -> Timeline:
    """Predicts a program. Raises ModelError if it never ends, or an instruction is ready only after its fire time."""
    machine = played(program, chip)
    if machine.cycles is None:
        raise ModelError(
            "the program never ends: a stream waits for a post that no instruction makes, or packets deadlock; the "
            "program checker says which"
        )
    return Timeline(machine.cycles, machine.executed)


def played(program: Program, chip: ChipConfig) -> Machine:
    """A chip in which nothing more happens: after END, or (no `cycles`) because everything is blocked."""
    machine = assemble(program, chip)
    machine.streams[program.boot.tile, Unit.MOVER].start(0)
    machine.run()
    return machine


def assemble(program: Program, chip: ChipConfig) -> Machine:
    """A chip with a program in memory, before its first cycle."""
    machine = idle(chip)
    for stream in (*program.streams, program.boot):
        machine.streams[stream.tile, stream.unit] = FrontEnd(machine, stream)
    if chip.dtt is not None:
        for stream in pushed_streams(program, chip):
            machine.streams[stream.tile, stream.unit] = FrontEnd(machine, stream, pushed=True)
    return machine


def idle(chip: ChipConfig) -> Machine:
    """A chip without a program, before its first cycle."""
    machine = Machine(chip)
    for tile in chip.tiles:
        machine.movers[tile] = Mover(machine, tile)
    for tile in chip.cores:
        for unit in (Unit.MATRIX, Unit.VECTOR):
            machine.arrays[tile, unit] = _Array(machine, tile, unit)
    machine.packets = Packets(machine)
    if chip.dtt is not None:
        machine.controllers[chip.dtt] = Controller(machine, chip.dtt)
    return machine


class _Array(Works):
    """A computing unit of a core: the matrix or the vector unit."""

    def __init__(self, machine: Machine, tile: int, unit: Unit) -> None:
        self.machine, self.tile, self.unit = machine, tile, unit
        self.free = 0  # first cycle in which the readers can start on another instruction
        self.bytes = False  # whether the last GEMM had weights of whole bytes
        self.staged = 0  # first cycle in which the stage before the readers can take another
        self._read = 0  # cycles in which the readers worked, before those in `_reading`
        self._reading: deque[tuple[int, int]] = deque()  # first cycle of the latest instructions, and the one after

    def own(
        self, opcode: Opcode, fields: dict[str, int], waited: int, cycle: int, accept: Callable[[int], None]
    ) -> None:
        """An instruction offered in `cycle`; `accept` is called when the unit takes it."""
        accepted = max(cycle, self.staged)
        lead, occupied, cycles = self._lengths(opcode, fields)
        if opcode is Opcode.GEMM:
            int4 = bool(fields.get("int4", 0))
            self.free += gemm_bubble(self.machine.chip, int4, not self.bytes)
            self.bytes = not int4
        start = max(accepted + lead, self.free)
        self.free = start + occupied
        self._note(start)
        self.staged = (
            start - STAGE_CYCLES
        )  # the stage hands over, and takes the next, in the cycle before the first operand address
        end = start + cycles
        if opcode is Opcode.GEMM:
            self.machine.drains[self.tile].drains(self.machine.now, fields, start)
        else:
            self.machine.drains[self.tile].walks(self.machine.now, start, occupied)

        def retire(now: int) -> None:
            self.machine.record(self.tile, self.tile, self.unit, opcode, fields.get("tag", 0), waited, start, end)
            if fields.get("post_n", 0):
                post = self.machine.semaphores[self.tile].post
                post(now, UNIT_POST + self.unit, fields["post_sem"], fields["post_n"])

        self.machine.at(end, retire)
        self.machine.at(accepted, accept)

    def _lengths(self, opcode: Opcode, fields: dict[str, int]) -> tuple[int, int, int]:
        """`_lengths` of an instruction, from those that are known."""
        names = _GEMM_FIELDS if opcode is Opcode.GEMM else _VEC_FIELDS
        key = tuple([fields.get(name, 0) for name in names])
        lengths = self.machine.lengths
        if (cycles := lengths.get(key)) is None:
            cycles = lengths[key] = _lengths(opcode, fields, self.machine.chip)
        return cycles

    def _note(self, start: int) -> None:
        """The readers will work from `start` until they are free."""
        reading = self._reading
        while reading and reading[0][1] <= self.machine.now:
            first, after = reading.popleft()
            self._read += after - first
        reading.append((start, self.free))

    def busy(self, cycle: int) -> int:
        return self._read + sum(max(0, min(cycle, after) - first) for first, after in self._reading)


def _lengths(opcode: Opcode, fields: dict[str, int], chip: ChipConfig) -> tuple[int, int, int]:
    """Cycles from acceptance by an idle unit to the start, for which the readers are busy, and from start to end."""
    if opcode is Opcode.GEMM:
        gemm = GemmShape(
            fields["pixels"], fields["n_blocks"], fields["k_blocks"], fields["kernel_h"], fields["kernel_w"]
        )
        return GEMM_ISSUE_CYCLES, gemm_occupancy(chip, gemm), gemm_cycles(chip, gemm)
    vec = VecShape.of(fields)
    return VEC_ISSUE_CYCLES, vec_occupancy(chip, vec), vec_cycles(chip, vec)
