"""A Program: an instruction stream for each unit that has work, placed in DRAM, and the boot stream that starts all."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import INSTRUCTION_BYTES, OFFSET_BITS, ChipConfig
from meshloom.hw.spec.contracts import SEMAPHORE_MAX
from meshloom.hw.spec.isa import COMPUTES, FETCH_TAG, INSTRUCTIONS, Opcode, Unit, decode, encode

#: Opcodes of schedule operations; lowering adds the other instructions.
OPERATIONS = (Opcode.MOVE, *COMPUTES.values())
#: Posts that one instruction can wait for.
MOST_WAIT = (1 << INSTRUCTIONS[Opcode.SYNC].offsets["wait_n"][1]) - 1
#: Number of tags; longer programs reuse them from the first on.
TAGS = FETCH_TAG - 1
#: All fields except the opcode of each kind of instruction, with their default of 0.
_BLANK = {
    opcode: dict.fromkeys((name for name in layout.offsets if name != "opcode"), 0)
    for opcode, layout in INSTRUCTIONS.items()
}


class ProgramError(ValueError):
    """A program that cannot be built or placed; the message names the tile and the fix. `need`: the words that each
    DRAM tile must have for it, if that is what it lacks."""

    need: int = 0


@dataclass(frozen=True)
class Instruction:
    """One instruction: opcode and all other fields by name. Fields that are not given are present as 0, so an
    instruction has the same fields whether it was built or decoded from its bytes."""

    opcode: Opcode
    fields: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", _BLANK[self.opcode] | self.fields)

    def encode(self) -> bytes:
        """Its 32 bytes. Raises hw.spec.isa.IsaError if a value does not fit."""
        return encode(self.opcode, **self.fields)

    def __str__(self) -> str:
        return " ".join([self.opcode.name, *(f"{name}={value}" for name, value in self.fields.items() if value)])


@dataclass(frozen=True)
class Stream:
    """The instructions of one unit; their code is stored in `dram_tile` from word `address` on."""

    tile: int
    unit: Unit
    dram_tile: int
    address: int
    instructions: tuple[Instruction, ...]

    def code(self, chip: ChipConfig) -> NDArray[np.uint8]:
        """The code as memory words, uint8 [words, P]: an instruction takes `chip.instruction_words` words, low bytes
        first; when P > 32 the upper bytes of its word are zero."""
        raw = b"".join(instruction.encode() for instruction in self.instructions)
        return to_words(np.frombuffer(raw, np.uint8), chip)


@dataclass(frozen=True)
class EncodedStream(Stream):
    """A stream whose code is there already, uint8 [32 n]."""

    raw: NDArray[np.uint8]

    def code(self, chip: ChipConfig) -> NDArray[np.uint8]:
        """The code as memory words (see `Stream.code`)."""
        return to_words(self.raw, chip)


@dataclass(frozen=True)
class Program:
    """All streams of a run. `boot` runs on the host tile's mover; the host writes its address to the chip.

    `operation_of_tag` maps the tags of instructions that are schedule operations (`OPERATIONS`) to operation indices.
    Other instructions may have the same tags. In schedules of more than `TAGS` operations tags wrap around and map to
    the last operation that has them; `operations_of` distinguishes them. `skips`: the operations, by tile, unit and
    number of the instruction, that come more than `TAGS` operations after the one before in their stream (`skips_of`).
    """

    chip_digest: str
    streams: tuple[Stream, ...]
    boot: Stream
    operation_of_tag: dict[int, int]
    skips: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int])

    def image(self, chip: ChipConfig) -> list[tuple[int, int, NDArray[np.uint8]]]:
        """(DRAM tile, word address, words uint8 [n, P]) of every stream, to be loaded before the run."""
        return [(s.dram_tile, s.address, s.code(chip)) for s in (*self.streams, self.boot)]

    def operations_of(self, stream: Stream) -> list[int | None]:
        """For each instruction of a stream the index of its operation, None if lowering added it.

        Where tags have wrapped around, it is the first one with that tag after the previous operation in the stream,
        but for `skips`.
        """
        numbers: list[int | None] = []
        at = -1
        for number, instruction in enumerate(stream.instructions):
            last = self.operation_of_tag.get(instruction.fields.get("tag", 0))
            if last is None or instruction.opcode not in OPERATIONS:
                numbers.append(None)
                continue
            at = self.skips.get((stream.tile, stream.unit, number), min(last, at + 1 + (last - at - 1) % TAGS))
            numbers.append(at)
        return numbers

    @property
    def ahead(self) -> bool:
        """Whether a controller sends its operations ahead of time: only such programs have ORDERs, and all of them that
        compute anything do."""
        return any(one.opcode is Opcode.ORDER for stream in self.streams for one in stream.instructions)

    @property
    def instructions(self) -> int:
        """Instructions of all streams except the boot stream."""
        return sum(len(stream.instructions) for stream in self.streams)


def to_words(code: NDArray[np.uint8], chip: ChipConfig) -> NDArray[np.uint8]:
    """Machine code, uint8 [32 n], as memory words uint8 [n * instruction_words, P]."""
    rows = code.reshape(-1, min(INSTRUCTION_BYTES, chip.lanes))
    words = np.zeros((len(rows), chip.lanes), np.uint8)
    words[:, : rows.shape[1]] = rows
    return words


def from_words(words: NDArray[np.uint8], chip: ChipConfig) -> tuple[Instruction, ...]:
    """Decodes memory words uint8 [n * instruction_words, P]. Raises hw.spec.isa.IsaError on an invalid instruction."""
    raw = np.ascontiguousarray(words[:, :INSTRUCTION_BYTES]).tobytes()
    codes = (raw[at : at + INSTRUCTION_BYTES] for at in range(0, len(raw), INSTRUCTION_BYTES))
    return tuple(Instruction(*decode(code)) for code in codes)


def skips_of(stream: tuple[int, Unit], operations: Sequence[int | None]) -> dict[tuple[int, int, int], int]:
    """What `Program.skips` has to say of a stream, given by tile and unit. `operations`: of each of its instructions,
    None of those that lowering added."""
    skips: dict[tuple[int, int, int], int] = {}
    at = -1
    for number, operation in enumerate(operations):
        if operation is not None:
            if operation - at > TAGS:
                skips[(*stream, number)] = operation
            at = operation
    return skips


def next_tag(number: int) -> int:
    """The tag of the instruction with this number, counted from 0: 1, 2, ... 65534, then 1 again."""
    return number % TAGS + 1


def end_post(number: int, chip: ChipConfig) -> dict[str, int]:
    """Fields of the SYNC that ends a program's stream of this number, counted from 0: its post to the host.

    Streams take the host's semaphores in turn, so that none overflows if all of its streams end before the boot stream
    has started the last. The largest chip has three streams in each of 255 tiles, so three semaphores are enough.
    """
    return {"tile": chip.host, "sem": number // SEMAPHORE_MAX, "n": 1}


def place(
    codes: dict[tuple[int, Unit], tuple[Instruction, ...]], used: dict[int, int], chip: ChipConfig
) -> tuple[tuple[Stream, ...], Stream]:
    """Places streams after the data of the DRAM tiles, each where there is least code so far; makes the boot stream.

    Each stream ends with the `end_post` of its number in `codes`. `used`: DRAM tile to its first free word. Raises
    ProgramError if the code does not fit.
    """
    try:
        return _placed(codes, used, chip, chip.dram.words)
    except ProgramError as error:
        need = code_end(*_placed(codes, used, chip, sys.maxsize), chip)
        words = ample_words(need)
        lack = ProgramError(f"{error}; raise dram.words to {words} (--set dram.words={words})")
        lack.need = need
        raise lack from None


def ample_words(words: int) -> int:
    """Words of each DRAM tile, a power of two, of which at least a fifth is left for a trace when `words` are used; or
    the most that a tile can have, if that is less."""
    return 1 << min(OFFSET_BITS, ((5 * words - 1) // 4).bit_length())


def code_end(streams: Sequence[Stream], boot: Stream, chip: ChipConfig) -> int:
    """First word after the code in the fullest DRAM tile."""
    return max(stream.address + len(stream.instructions) * chip.instruction_words for stream in (*streams, boot))


def _placed(
    codes: dict[tuple[int, Unit], tuple[Instruction, ...]], used: dict[int, int], chip: ChipConfig, most: int
) -> tuple[tuple[Stream, ...], Stream]:
    """The same in DRAM tiles of `most` words."""
    free = {tile: -(-used.get(tile, 0) // 64) * 64 for tile in chip.channels}
    load = dict.fromkeys(chip.channels, 0)

    def put(tile: int, unit: Unit, instructions: tuple[Instruction, ...]) -> Stream:
        words = len(instructions) * chip.instruction_words
        dram = min(chip.channels, key=lambda dram: (free[dram] + words > most, load[dram]))
        if free[dram] + words > most:
            raise ProgramError(
                f"{words} words of code for tile {tile:#04x} do not fit after the tensors: the emptiest DRAM tile has "
                f"{max(0, chip.dram.words - min(free.values()))} of {chip.dram.words} words left"
            )
        stream = Stream(tile, unit, dram, free[dram], instructions)
        free[dram] += -(-words // 64) * 64
        load[dram] += words
        return stream

    streams = tuple(put(tile, unit, instructions) for (tile, unit), instructions in codes.items())
    boot = [
        Instruction(
            Opcode.FETCH,
            {
                "tag": next_tag(index),
                "tile": stream.tile,
                "unit": int(stream.unit),
                "dram": stream.dram_tile,
                "addr": stream.address,
                "count": len(stream.instructions),
            },
        )
        for index, stream in enumerate(streams)
    ]
    ends = Counter(end_post(number, chip)["sem"] for number in range(len(streams)))
    for semaphore, left in ends.items():
        for done in range(0, left, MOST_WAIT):
            wait = {"wait_sem": semaphore, "wait_n": min(left - done, MOST_WAIT)}
            boot.append(Instruction(Opcode.SYNC, {"tag": next_tag(len(boot))} | wait))
    boot.append(Instruction(Opcode.END, {"tag": next_tag(len(boot))}))
    return streams, put(chip.host, Unit.MOVER, tuple(boot))
