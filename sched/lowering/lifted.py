"""From a program image back to a schedule: its operations, and their tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import ConfigDict, ValidationError

from meshloom.hw.spec.config import ChipConfig, Exact
from meshloom.hw.spec.isa import Opcode

from ..ir.schedule import (
    GEMM_FIELDS,
    VEC_FIELDS,
    Execution,
    Gemm,
    Move,
    Operation,
    Schedule,
    ScheduleError,
    Span,
    Tensor,
    Vec,
)
from ..program.image import ImageError
from ..program.program import OPERATIONS, Program


class Metadata(Exact):
    """The metadata of a program image: the chip's name, what the program computes, and where its tensors are stored.

    An empty `workload`: what it computes is unknown. Tensors are those of a Schedule.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    chip: str = ""
    workload: str = ""
    scheduler: str = ""
    tensors: tuple[Tensor, ...] = ()


def metadata_of(schedule: Schedule) -> str:
    """The metadata for the image of a schedule's program, as JSON."""
    metadata = Metadata(
        chip=schedule.chip, workload=schedule.workload, scheduler=schedule.scheduler, tensors=schedule.tensors
    )
    return metadata.model_dump_json(exclude_none=True)


def read_metadata(text: str, name: str) -> Metadata:
    """The metadata of an image; all unknown if there is none. Raises ImageError, prefixed with `name`."""
    try:
        return Metadata.model_validate_json(text) if text else Metadata()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "object"
        raise ImageError(f"{name}: metadata: {where}: {first['msg']}; write it again") from error


def lifted(program: Program, metadata: Metadata, chip: ChipConfig) -> tuple[Schedule, Program]:
    """The schedule that a program implements, and the program with a tag map that numbers its operations or is empty.

    Operations are in the order of the tag map; if that does not number all of them, stream by stream.
    Raises ImageError for a timed program without numbers, ScheduleError for tensors that contradict each other.
    """
    numbered: list[tuple[int | None, Operation]] = []
    for stream in program.streams:
        tile = stream.tile
        for number, instruction in zip(program.operations_of(stream), stream.instructions, strict=True):
            if instruction.opcode is Opcode.ORDER:
                tile = instruction.fields["tile"]
            elif instruction.opcode in OPERATIONS:
                # an instruction sent by a controller counts as issued where it is executed
                issuer = instruction.fields.get("src_tile", 0) if program.ahead else stream.tile
                numbered.append((number, _operation(instruction.opcode, instruction.fields, issuer, tile)))
    numbers = {number: op for number, op in numbered if number is not None}
    if len(numbers) == len(numbered) and numbers.keys() == set(range(len(numbered))):
        operations = [numbers[number] for number in range(len(numbered))]
    elif program.ahead:
        raise ImageError("the tag map of a program that is timed ahead must number its operations; write it again")
    else:
        operations, program = [op for _, op in numbered], replace(program, operation_of_tag={})
    try:
        schedule = Schedule(
            chip=chip.name,
            chip_digest=program.chip_digest,
            workload=metadata.workload,
            scheduler=metadata.scheduler or "unknown",
            execution=Execution.TIMED if program.ahead else Execution.TRIGGERED,
            operations=tuple(operations),
            tensors=metadata.tensors,
        )
    except ValidationError as error:
        raise ScheduleError(f"the image's tensors: {error.errors()[0]['msg']}; write it again") from error
    return schedule, program


def _operation(opcode: Opcode, fields: dict[str, int], issuer: int, core: int) -> Operation:
    """An instruction of the stream of `issuer`; a controller's GEMM or VEC is for `core`."""
    if opcode is Opcode.MOVE:
        src = Span(tile=fields["src_tile"], address=fields["src"], run=fields["src_run"], stride=fields["src_stride"])
        dst = Span(tile=fields["dst_tile"], address=fields["dst"], run=fields["dst_run"], stride=fields["dst_stride"])
        return Move(issuer=issuer, src=src, dst=dst, words=fields["words"], copies=fields["copies"])
    if opcode is Opcode.GEMM:
        return Gemm(core=core, fields={name: value for name, value in fields.items() if name in GEMM_FIELDS})
    return Vec(core=core, fields={name: value for name, value in fields.items() if name in VEC_FIELDS})
