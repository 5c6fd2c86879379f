"""How the cores of a program that is given up become usable again.

Ending its streams is not enough: MOVEs that it has requested are still carried out, data is on its way, units work, and
whatever completes posts to semaphores. All of that comes to its end by itself, since every mover and unit always does.
Nothing overtakes anything between two tiles, and units work in order. So a core has seen the last of the old program
when it has pulled a word from, and pushed one to, every tile that the program could reach, and when each of its units
has done one more instruction. That is a program like others, on the same cores; it uses semaphores that no other
program does (`RESERVED`), because late posts may arrive until its end, and pages (`host_pages`) that no other program
may touch, because late data may.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.isa import COMPUTES, PAGE_WORDS, Opcode, Region, Unit, VectorOp, address, units_of, vector_ops

from ...ir import bodies
from ...program.program import Instruction, Stream, next_tag

#: The highest semaphores of every tile, which only this program uses: the mover's, the matrix and the vector unit's.
RESERVED = 3
#: The most that an instruction can wait for at once.
_MOST = 63


def flush(chip: ChipConfig, cores: Sequence[int], slot: int, page: int) -> tuple[Stream, ...]:
    """The streams that follow a program on `cores`: their code begins in `page` of the first dram tile, and before it
    each core writes a word there and in the same page of the other dram tiles."""
    place = page * PAGE_WORDS + 64
    streams: list[Stream] = []
    for index, core in enumerate(cores):
        for unit, code in _streams(chip, cores, index, slot, page * PAGE_WORDS).items():
            streams.append(Stream(core, unit, chip.drams[0], place, tuple(code)))
            place += _room(chip, len(code))
    return tuple(streams)


def host_pages(chip: ChipConfig) -> range:
    """The last pages of each dram tile, which belong to the host: what it launches to end programs (`end_address`) and
    to flush cores lies there, out of reach for what is left of them. No window may have them."""
    cores = len(chip.cores)
    moves = 2 * (len(chip.drams) + cores - 1)
    mover = moves + -(-moves // _MOST)
    words = 64 + cores * sum(_room(chip, count) for count in (mover, 2, 2)) + _room(chip, 3 * cores)
    pages = chip.dram.words // PAGE_WORDS
    return range(pages - -(-(words + chip.programs * _room(chip, cores)) // PAGE_WORDS), pages)


def end_address(chip: ChipConfig, slot: int) -> int:
    """The word of the first dram tile with which the boot stream that ends the program in `slot` begins."""
    return host_pages(chip).stop * PAGE_WORDS - (slot + 1) * _room(chip, len(chip.cores))


def _room(chip: ChipConfig, instructions: int) -> int:
    return -(-instructions * chip.instruction_words // 64) * 64


def _streams(chip: ChipConfig, cores: Sequence[int], index: int, slot: int, word: int) -> dict[Unit, list[Instruction]]:
    core = cores[index]
    mover, matrix, vector = range(chip.semaphores - RESERVED, chip.semaphores)
    end = {"tile": chip.host, "sem": slot, "n": 1}
    here, main = address(Region.OUT, 0), address(Region.MAIN, 0)
    ways: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for dram in chip.drams:
        ways += [((dram, word), (core, main)), ((core, here), (dram, word + index))]
    for peer in cores:
        if peer != core:
            ways += [((peer, here), (core, main)), ((core, here), (peer, main))]
    notify = {"notify": 1, "notify_tile": core, "notify_sem": mover}
    code = [Instruction(Opcode.MOVE, _move(number, *way) | notify) for number, way in enumerate(ways)]
    left = len(ways)
    while left:
        words = min(left, _MOST)
        left -= words
        fields = {"tag": next_tag(len(code)), "wait_sem": mover, "wait_n": words} | ({} if left else end)
        code.append(Instruction(Opcode.SYNC, fields))
    codes = {Unit.MOVER: code}
    for unit, semaphore in zip(units_of(chip, TileKind.CORE)[1:], (matrix, vector), strict=False):
        opcode = COMPUTES[unit]
        work = {"tag": 1, "post_sem": semaphore, "post_n": 1} | _work(chip, opcode)
        codes[unit] = [
            Instruction(opcode, work),
            Instruction(Opcode.SYNC, {"tag": 2, "wait_sem": semaphore, "wait_n": 1} | end),
        ]
    return codes


def _work(chip: ChipConfig, opcode: Opcode) -> dict[str, int]:
    """The smallest work of a unit."""
    if opcode is Opcode.GEMM:
        return bodies.gemm(scale=1)
    present = vector_ops(chip.core)
    return bodies.vec(op=VectorOp.MAX if VectorOp.MAX in present else present[0], scale=1)


def _move(number: int, src: tuple[int, int], dst: tuple[int, int]) -> dict[str, int]:
    return {
        "tag": next_tag(number), "src_tile": src[0], "src": src[1], "src_run": 1,
        "dst_tile": dst[0], "dst": dst[1], "dst_run": 1, "words": 1,
    }  # fmt: skip
