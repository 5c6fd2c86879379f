"""Templates: the program of one stage of a network for one scheme, compiled once and placed wherever cores are free.

A template runs on cores only. DRAM tiles serve its pulls and take its pushes; what notifies and what is posted goes to
cores of its group, and the last instruction of each stream adds 1 to the host's semaphore. It is compiled for the first
cores of the floorplan and a window that begins with page 0; `relocate` says what changes elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Base64Encoder, EncodedBytes

from meshloom.hw.spec.config import INSTRUCTION_BYTES, ChipConfig
from meshloom.hw.spec.isa import PAGE_WORDS, Opcode, Unit

from ...program.decoding import decoded
from ...program.program import Instruction, ProgramError, Stream, next_tag
from .memory import ALIGNED
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
        return tuple(decoded(self.words))

    @property
    def size(self) -> int:
        """Bytes of its code."""
        return len(self.code)


@dataclass(frozen=True)
class ProgramPlace:
    """Where a program goes: its cores, in the order of the template's; the window of its instance, pages [`first_page`,
    `end_page`), whose code begins with `code_page`; the slot of the host that it reports to."""

    cores: tuple[int, ...]
    first_page: int
    code_page: int
    end_page: int
    slot: int = 0


def boot_length(streams: int) -> int:
    """Instructions of a boot stream, with the waits and the END of one that runs by itself."""
    return streams + -(-streams // 63) + 1


def boot_stream(template: Template, place: ProgramPlace, chip: ChipConfig, *, alone: bool = False) -> Stream:
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
    fetches: list[Instruction] = []
    begun: set[int] = set()
    for stream in template.streams:
        fields = {
            "tag": next_tag(len(fetches)),
            "tile": place.cores[stream.core],
            "unit": int(stream.unit),
            "dram": chip.drams[stream.dram],
            "addr": code + stream.offset,
            "count": stream.count,
        }
        if not alone:
            fields |= rights | {"clear": int(stream.core not in begun)}
            begun.add(stream.core)
        fetches.append(Instruction(Opcode.FETCH, fields))
    if alone:
        left = len(template.streams)
        while left:
            wait = min(left, 63)
            fields = {"tag": next_tag(len(fetches)), "wait_sem": place.slot, "wait_n": wait}
            fetches.append(Instruction(Opcode.SYNC, fields))
            left -= wait
        fetches.append(Instruction(Opcode.END, {"tag": next_tag(len(fetches))}))
    ends = [0] * len(chip.drams)
    for stream in template.streams:
        words = stream.offset + stream.count * chip.instruction_words
        ends[stream.dram] = max(ends[stream.dram], -(-words // ALIGNED) * ALIGNED)
    dram = min(range(len(ends)), key=lambda number: ends[number])
    last = code + ends[dram] + len(fetches) * chip.instruction_words
    if last > place.end_page * PAGE_WORDS:
        raise ProgramError(
            f"code of {template.network}/{template.stage} needs {template.code_words} words of each DRAM tile from "
            f"page {place.code_page} on; the window ends with page {place.end_page}: allot "
            f"{-(-template.code_words // PAGE_WORDS)} pages for code"
        )
    return Stream(chip.host, Unit.MOVER, chip.drams[dram], code + ends[dram], tuple(fetches))
