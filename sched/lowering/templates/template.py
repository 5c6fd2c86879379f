"""Templates: the program of one stage of a network for one scheme, compiled once and placed wherever cores are free.

A template runs on cores only. DRAM tiles serve its pulls and take its pushes; what notifies and what is posted goes to
cores of its group, and the last instruction of each stream adds 1 to the host's semaphore. It is compiled for the first
cores of the floorplan and a window that begins with page 0; `relocate` says what changes elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Base64Encoder, EncodedBytes, TypeAdapter

from meshloom.hw.config import INSTRUCTION_BYTES, ChipConfig
from meshloom.hw.isa import PAGE_WORDS, Opcode, Unit, decode
from meshloom.hw.timing import GemmShape, VecShape, gemm_occupancy, vec_occupancy

from ...ir.schedule import Gemm, Move, Schedule
from ...model.timeline import play
from ...program.program import Instruction, Program, ProgramError, Stream, next_tag
from ...store.findings import SearchCache
from ..semaphores.lower import lower
from .flush import RESERVED
from .memory import ALIGNED
from .network import ServedNetwork
from .schemes import Scheme


@dataclass(frozen=True)
class TemplateStream:
    """A stream of a template: core `core` of the group, `count` instructions from number `first` of its code on.

    The code lies in DRAM tile number `dram`, `offset` words behind the beginning of the window's code.
    """

    core: int
    unit: Unit
    first: int
    count: int
    dram: int
    offset: int


@dataclass(frozen=True)
class Measures:
    """What a template costs, alone on an idle chip. `cycles`: of the timeline model, from the start of the boot stream
    to the end; `compute`: cycles in which matrix and vector units work, all cores together; `read`, `written`: DRAM
    words, without code; `macs`: useful multiply-accumulates; `utilisation`: share of the group's PEs that they keep
    busy over all cycles."""

    cycles: int
    compute: int
    read: int
    written: int
    macs: int
    utilisation: float


@dataclass(frozen=True, eq=False)
class Template:
    """The program of a stage. `cores`: for which it was compiled; `code`: encoded instructions of all streams, one
    after the other; `code_words`: words of each DRAM tile that they take, boot stream included; `operations`: of its
    schedule, which have the first tags."""

    network: str
    batch: int
    stage: str
    scheme: Scheme
    cores: tuple[int, ...]
    streams: tuple[TemplateStream, ...]
    code: Annotated[bytes, EncodedBytes(encoder=Base64Encoder)]
    code_words: int
    operations: int
    measures: Measures

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """The code as 64-bit words, low ones first: uint64 [instructions, 4]."""
        return np.frombuffer(self.code, "<u8").reshape(-1, INSTRUCTION_BYTES // 8)

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """The code, decoded."""
        size = INSTRUCTION_BYTES
        return tuple(Instruction(*decode(self.code[at : at + size])) for at in range(0, len(self.code), size))

    @property
    def size(self) -> int:
        """Bytes of its code."""
        return len(self.code)


_TEMPLATE = TypeAdapter(Template)


def template_cache(folder: Path | None, chip: ChipConfig) -> SearchCache:
    """Where templates are kept below `folder` (None: in this process only). Raises SettingError."""
    return SearchCache(folder, chip, "templates", __name__.partition(".")[2])


def compile_stage(net: ServedNetwork, index: int, scheme: Scheme, memory: SearchCache | None = None) -> Template:
    """The template of stage `index` for a scheme, from `memory` if it has been compiled before.

    Raises DoesNotFit when its tiles do not fit the cores, ProgramError when its semaphores do not.
    """
    cores = net.chip.cores[: scheme.cores]
    asked = (net.graph.name, net.batch, net.stages[index].y, net.described(index), scheme)
    if memory is not None and (found := memory.get(asked, _TEMPLATE)) is not None:
        return found
    schedule = net.schedule(index, scheme, cores)
    template = _template(net, index, scheme, schedule, lower(schedule, net.chip, reserved=RESERVED))
    if memory is not None:
        memory.put(asked, _TEMPLATE, template)
    return template


def _template(net: ServedNetwork, index: int, scheme: Scheme, schedule: Schedule, program: Program) -> Template:
    chip, cores = net.chip, net.chip.cores[: scheme.cores]
    where = {core: number for number, core in enumerate(cores)}
    used = [0] * len(chip.drams)
    streams: list[TemplateStream] = []
    code: list[bytes] = []
    for stream in sorted(program.streams, key=lambda stream: (where[stream.tile], stream.unit)):
        dram = min(range(len(used)), key=lambda number: used[number])
        count = len(stream.instructions)
        streams.append(TemplateStream(where[stream.tile], stream.unit, len(code), count, dram, used[dram]))
        used[dram] += -(-count * chip.instruction_words // ALIGNED) * ALIGNED
        code += [instruction.encode() for instruction in stream.instructions]
    boot = -(-_boot_length(len(streams)) * chip.instruction_words // ALIGNED) * ALIGNED
    measures = measure(schedule, chip, cores, play(program, chip).cycles, net.shapes[index].macs)
    return Template(
        net.graph.name, net.batch, net.stages[index].y, scheme, cores, tuple(streams), b"".join(code),
        max(used) + boot, len(schedule.operations), measures,
    )  # fmt: skip


def _boot_length(streams: int) -> int:
    """Instructions of a boot stream, with the waits and the END of one that runs by itself."""
    return streams + -(-streams // 63) + 1


def measure(schedule: Schedule, chip: ChipConfig, cores: Sequence[int], cycles: int, macs: int) -> Measures:
    """The measures of a schedule that takes so many cycles for so many useful multiply-accumulates."""
    compute = read = written = 0
    for op in schedule.operations:
        if isinstance(op, Move):
            read += op.words if op.src.tile in chip.drams else 0
            written += op.words if op.dst.tile in chip.drams else 0
        elif isinstance(op, Gemm):
            shape = GemmShape(op["pixels"], op["n_blocks"], op["k_blocks"], op["kernel_h"], op["kernel_w"])
            compute += gemm_occupancy(chip, shape)
        else:
            compute += vec_occupancy(chip, VecShape.of(op.fields))
    matrix = any(isinstance(op, Gemm) for op in schedule.operations)
    peak = len(cores) * (chip.rows * chip.cols if matrix else chip.lanes)
    return Measures(cycles, compute, read, written, macs, macs / (peak * cycles))


@dataclass(frozen=True)
class Place:
    """Where a program goes: its cores, in the order of the template's; the window of its instance, pages [`first_page`,
    `end_page`), whose code begins with `code_page`; the slot of the host that it reports to."""

    cores: tuple[int, ...]
    first_page: int
    code_page: int
    end_page: int
    slot: int = 0


def boot_stream(template: Template, place: Place, chip: ChipConfig, *, alone: bool = False) -> Stream:
    """The boot stream of a placed template, one FETCH for each stream, with the rights of its instance.

    `alone`: for a chip that runs one program at a time: without rights, and it waits for all streams and ends the run.
    """
    code = place.code_page * PAGE_WORDS
    order = {core: number for number, core in enumerate(chip.cores)}
    rights = {
        "slot": place.slot,
        "cores": sum(1 << order[core] for core in place.cores),
        "first_page": place.first_page,
        "end_page": place.end_page,
    }
    found: list[Instruction] = []
    begun: set[int] = set()
    for stream in template.streams:
        fields = {
            "tag": next_tag(len(found)),
            "tile": place.cores[stream.core],
            "unit": int(stream.unit),
            "dram": chip.drams[stream.dram],
            "addr": code + stream.offset,
            "count": stream.count,
        }
        if not alone:
            fields |= rights | {"clear": int(stream.core not in begun)}
            begun.add(stream.core)
        found.append(Instruction(Opcode.FETCH, fields))
    if alone:
        left = len(template.streams)
        while left:
            wait = min(left, 63)
            fields = {"tag": next_tag(len(found)), "wait_sem": place.slot, "wait_n": wait}
            found.append(Instruction(Opcode.SYNC, fields))
            left -= wait
        found.append(Instruction(Opcode.END, {"tag": next_tag(len(found))}))
    ends = [0] * len(chip.drams)
    for stream in template.streams:
        words = stream.offset + stream.count * chip.instruction_words
        ends[stream.dram] = max(ends[stream.dram], -(-words // ALIGNED) * ALIGNED)
    dram = min(range(len(ends)), key=lambda number: ends[number])
    last = code + ends[dram] + len(found) * chip.instruction_words
    if last > place.end_page * PAGE_WORDS:
        raise ProgramError(
            f"code of {template.network}/{template.stage} needs {template.code_words} words of each DRAM tile from "
            f"page {place.code_page} on; the window ends with page {place.end_page}: allot "
            f"{-(-template.code_words // PAGE_WORDS)} pages for code"
        )
    return Stream(chip.host, Unit.MOVER, chip.drams[dram], code + ends[dram], tuple(found))
