"""Checks a whole program that is timed ahead: its fields, its results, its timing. It needs no schedule: the program's
tags give the position of each operation in the total order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, Region

from ...checker.accesses import region_words, words_of
from ...checker.check import tensors_inside
from ...checker.problems import Problems, Report
from ...checker.races import Extent
from ...checker.results import result_name
from ...checker.static import DecodedInstruction
from ...ir.schedule import GEMM_FIELDS, VEC_FIELDS, Gemm, Move, Operation, Schedule, Span, Vec
from ...program.names import Names
from ...program.program import OPERATIONS, Instruction, Program
from .boot import boot_of  # played by the model: no code of the planner
from .prove import prove
from .static import OrdersCheck


def check_ahead(program: Program, chip: ChipConfig, schedule: Schedule | None = None) -> Report:
    """Proves that a program that is timed ahead can run on a chip, that it implements `schedule` (if given), and that
    every word has arrived when it is read.

    Raises CheckError for what does not depend on time (fields that do not fit the chip, operations that differ from
    the schedule's, words that nothing writes), ProofError for words that arrive too late or collide on a wire.
    """
    problems, names = Problems(), Names.of(chip, program, schedule)
    static = OrdersCheck(program, chip, names, problems)
    static.run()
    problems.settle()
    initial, outputs = _tensors(schedule, chip)
    tensors_inside(static, initial if schedule else (), outputs)
    positions = _positions(program, static.steps[1], schedule, problems, names)
    problems.settle()
    steps, executing = static.steps[1], static.executing
    operations = [_operation(steps[position], executing[position]) for position in positions]
    if schedule is not None:
        _compare(operations, schedule.operations, positions, names, problems)
    initial += [(tile, begin, end - begin) for tile, code in static.code.items() for begin, end, _ in code]
    _defined([(position, steps[position]) for position in positions], initial, outputs, chip, names, problems)
    problems.settle()
    (stream,) = program.streams
    code = tuple(Instruction(step.opcode, step.fields) for step in steps)  # with all fields, as in an image
    whole = replace(program, streams=(replace(stream, instructions=code),))
    begins = boot_of(chip, stream.dram_tile, stream.address, len(stream.instructions)).begins
    meant = schedule or Schedule(
        chip=chip.name, chip_digest=chip.digest, workload="", scheduler="", operations=tuple(operations)
    )
    proven = prove(whole, meant, chip, begins)
    return Report(
        instructions=len(steps) + len(static.steps[0]),
        streams=len(names.streams),
        semaphores=1,
        accesses=sum(len(step.accesses) for step in steps),
        chains=0,
        peak=1,
        warnings=(),
        timed=proven,
    )


def _tensors(schedule: Schedule | None, chip: ChipConfig) -> tuple[list[Extent], list[Extent]]:
    """What the host loads and what must be written, as (tile, word, words); all of DRAM and nothing by default."""
    if schedule is None:
        return [(tile, 0, chip.dram.words) for tile in chip.drams], []
    initial: list[Extent] = []
    outputs: list[Extent] = []
    for tensor in schedule.tensors:
        pieces = [(piece.tile, piece.address, piece.words) for piece in tensor.pieces]
        (outputs if tensor.role == "output" else initial).extend(pieces)
    return initial, outputs


def _positions(
    program: Program, steps: Sequence[DecodedInstruction], schedule: Schedule | None, problems: Problems, names: Names
) -> list[int]:
    """The position of each operation in the controller's stream."""
    positions: dict[int, int] = {}
    seen: dict[int, int] = {}
    for position, step in enumerate(steps):
        if step.opcode not in OPERATIONS:
            continue
        tag = step.fields["tag"]
        if tag in seen:
            what = f"has the tag of instruction {seen[tag]}"
            problems.add(names.instruction(1, position), what, "tags of a program that is timed ahead are unique")
        seen[tag] = position
        if tag in program.operation_of_tag:
            positions[program.operation_of_tag[tag]] = position
    count = len(schedule.operations) if schedule is not None else len(program.operation_of_tag)
    if sorted(positions) != list(range(count)) or len(program.operation_of_tag) != count:
        what = f"its tags name {len(positions)} operations; they must be 0..{count - 1}, each once"
        problems.add("program", what, "make it again from its schedule")
    return [positions[index] for index in sorted(positions)]


def _operation(step: DecodedInstruction, tile: int) -> Operation:
    """The schedule operation of an instruction. `tile`: where it is executed."""
    fields = step.fields
    if step.opcode is Opcode.MOVE:
        src, dst = (
            Span(
                tile=fields[f"{end}_tile"],
                address=fields[end],
                run=fields[f"{end}_run"],
                stride=fields[f"{end}_stride"],
            )
            for end in ("src", "dst")
        )
        return Move(issuer=tile, src=src, dst=dst, words=fields["words"])
    if step.opcode is Opcode.GEMM:
        return Gemm(core=tile, fields={name: fields[name] for name in GEMM_FIELDS})
    return Vec(core=tile, fields={name: fields[name] for name in VEC_FIELDS})


def _compare(
    actual: Sequence[Operation], meant: Sequence[Operation], positions: Sequence[int], names: Names, problems: Problems
) -> None:
    """The program implements the schedule. A MOVE's issuer and route may differ: the controller decides them."""
    for position, one, other in zip(positions, actual, meant, strict=True):
        same = one.kind == other.kind
        if same and not (isinstance(one, Move) or isinstance(other, Move)):
            same = one.core == other.core
        if not same or any(value != other.body.get(name, 0) for name, value in one.body.items()):
            what = "differs from its operation in the schedule"
            problems.add(names.instruction(1, position), what, "make the program again from its schedule")


def _defined(
    steps: Sequence[tuple[int, DecodedInstruction]],
    initial: Iterable[Extent],
    outputs: Iterable[Extent],
    chip: ChipConfig,
    names: Names,
    problems: Problems,
) -> None:
    """In the order of the operations, every word is written before it is read, and every output is written.

    (`prove` shows that execution is equivalent to that order.)
    """
    written: dict[tuple[int, int], NDArray[np.bool_]] = {}

    def words(tile: int, region: int) -> NDArray[np.bool_]:
        if (tile, region) not in written:
            # regions without data (traces and counters) can be read at any time
            size = region_words(chip, tile, region, None)
            written[tile, region] = np.full(size or region_words(chip, tile, region, "src"), not size)
        return written[tile, region]

    for tile, begin, count in initial:
        words(tile, Region.MAIN)[begin : begin + count] = True
    for position, step in steps:
        for access in step.accesses:
            there = words(access.tile, access.region)
            touched = words_of(access.begins, access.ends)
            if access.write:
                there[touched] = True
            elif not there[touched].all():
                word = int(touched[np.argmin(there[touched])])
                what = f"reads {names.words(access.tile, access.region, word, word + 1)}, which nothing has written"
                problems.add(names.instruction(1, position), what, "write it first, or load it as a tensor")
    for tile, begin, count in outputs:
        missing = ~words(tile, Region.MAIN)[begin : begin + count]
        if missing.any():
            word = begin + int(np.argmax(missing))
            what = f"{result_name(names, tile, word)} is never written"
            problems.add("program", what, "move the result there")
