"""Programs written by hand for the chip `tiny`, and what they must leave in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import INSTRUCTION_BYTES, Opcode, Region, Unit, VectorOp, address
from meshloom.sched.program.program import Instruction, Program, place
from meshloom.tb.devices.interface import FILL, Job

CHIP = load("tiny")
DRAM, CORE, HOST, SPM = CHIP.drams[0], CHIP.cores[0], CHIP.host, CHIP.spms[0]
#: Programs lie behind this word of DRAM.
CODE = 4000
Words = NDArray[np.uint8]


@dataclass(frozen=True)
class Raw(Instruction):
    """256 bits that need not be an instruction; `opcode` and `fields` say what software believes it is."""

    word: int = 0

    def encode(self) -> bytes:
        return self.word.to_bytes(INSTRUCTION_BYTES, "little")


def move(
    tag: int, src: tuple[int, Region, int], dst: tuple[int, Region, int], words: int, **fields: int
) -> Instruction:
    """A MOVE between two (tile, region, offset), contiguous unless `fields` say otherwise."""
    counts = {
        "tag": tag, "src_tile": src[0], "src": address(src[1], src[2]), "src_run": max(1, words),
        "dst_tile": dst[0], "dst": address(dst[1], dst[2]), "dst_run": max(1, words), "words": words,
    }  # fmt: skip
    return Instruction(Opcode.MOVE, counts | fields)


def sync(tag: int, **fields: int) -> Instruction:
    return Instruction(Opcode.SYNC, {"tag": tag, **fields})


def finish(tag: int) -> Instruction:
    """The end of a stream: tells the host."""
    return sync(tag, tile=HOST, sem=0, n=1)


def notify(semaphore: int, tile: int) -> dict[str, int]:
    return {"notify": 1, "notify_tile": tile, "notify_sem": semaphore}


def gemm(tag: int, pixels: int, k_blocks: int, **fields: int) -> Instruction:
    """A matrix product: `pixels` rows of A (block-major) by the P columns in B, requantised into OUT from word 0 on."""
    shape = {
        "a_plane": pixels, "in_w": pixels, "k_blocks": k_blocks, "kernel_h": 1, "kernel_w": 1, "stride_h": 1,
        "stride_w": 1, "dilation": 1, "out_w": pixels, "pixels": pixels, "n_blocks": 1, "scale": 1 << 13, "clamp": 127,
    }  # fmt: skip
    return Instruction(Opcode.GEMM, {"tag": tag} | shape | fields)


def vec(tag: int, op: VectorOp, pixels: int, **fields: int) -> Instruction:
    """A vector operation on one row of `pixels` words, with a window of one word, into VEC from word 0 on."""
    shape = {
        "op": op, "x_plane": pixels, "in_w": pixels, "blocks": 1, "kernel_h": 1, "kernel_w": 1, "stride_h": 1,
        "stride_w": 1, "dilation": 1, "out_w": pixels, "pixels": pixels, "scale": 1 << 13, "clamp": 127,
    }  # fmt: skip
    return Instruction(Opcode.VEC, {"tag": tag} | shape | fields)


def program(streams: Mapping[tuple[int, Unit], Sequence[Instruction]], chip: ChipConfig = CHIP) -> Program:
    """Streams in DRAM from word CODE on, started by a boot stream that waits for `finish` of each."""
    placed, boot = place({key: tuple(code) for key, code in streams.items()}, {DRAM: CODE}, chip)
    return Program(chip.digest, placed, boot, {})


def random_words(rng: np.random.Generator, words: int) -> Words:
    return rng.integers(0, 256, (words, CHIP.lanes), dtype=np.uint8)


@dataclass(frozen=True)
class Case:
    """A job, and what its outputs must be."""

    job: Job
    expected: list[Words]


def there_and_back(seed: int, words: int = 100) -> Case:
    """DRAM -> SPM gathered from runs of 30, SPM -> DRAM scattered into runs of 50 with holes between."""
    rng = np.random.default_rng(seed)
    source = random_words(rng, 200)
    code = [
        move(1, (DRAM, Region.MAIN, 5), (SPM, Region.MAIN, 3), words, src_run=30, src_stride=40, **notify(2, SPM)),
        sync(2, wait_sem=2, wait_n=1),
        move(3, (SPM, Region.MAIN, 3), (DRAM, Region.MAIN, 1000), words, dst_run=50, dst_stride=70, **notify(3, SPM)),
        sync(4, wait_sem=3, wait_n=1),
        finish(5),
    ]
    index = np.arange(words)
    gathered = source[5 + index // 30 * 40 + index % 30]
    expected = np.full((120, CHIP.lanes), FILL, np.uint8)  # what nobody writes shows as the fill pattern
    expected[index // 50 * 70 + index % 50] = gathered
    return Case(Job(program({(SPM, Unit.MOVER): code}), [(DRAM, 0, source)], [(DRAM, 1000, 120)], 20_000), [expected])


def product(seed: int, pixels: int = 10, k_blocks: int = 3) -> Case:
    """Operands pulled from DRAM into A and B, a GEMM, its result pushed to DRAM: mover and matrix in step."""
    rng = np.random.default_rng(seed)
    lanes = CHIP.lanes
    a, b = random_words(rng, k_blocks * pixels), random_words(rng, k_blocks * lanes)
    mover = [
        move(1, (DRAM, Region.MAIN, 0), (CORE, Region.MAIN, 0), len(a), **notify(1, CORE)),
        move(2, (DRAM, Region.MAIN, 500), (CORE, Region.B, 0), len(b), **notify(1, CORE)),
        move(4, (CORE, Region.OUT, 0), (DRAM, Region.MAIN, 700), pixels, wait_sem=2, wait_n=3, **notify(3, CORE)),
        sync(5, wait_sem=3, wait_n=1),
        finish(6),
    ]
    matrix = [gemm(3, pixels, k_blocks, wait_sem=1, wait_n=2, post_sem=2, post_n=3), finish(7)]
    streams = {(CORE, Unit.MOVER): mover, (CORE, Unit.MATRIX): matrix}
    left = a.view(np.int8).reshape(k_blocks, pixels, lanes).astype(np.int64)
    right = b.view(np.int8).reshape(k_blocks, lanes, lanes).astype(np.int64)
    sums = np.einsum("kpl,kcl->pc", left, right)
    result = np.clip(np.rint(sums * (1 << 13) / (1 << 17)), -128, 127).astype(np.int8).view(np.uint8)
    expected = np.full((pixels + 5, lanes), FILL, np.uint8)
    expected[:pixels] = result
    return Case(Job(program(streams), [(DRAM, 0, a), (DRAM, 500, b)], [(DRAM, 700, pixels + 5)], 20_000), [expected])


def nothing_to_do() -> Case:
    """The shortest run: one stream that only says that it is done."""
    return Case(
        Job(program({(SPM, Unit.MOVER): [finish(1)]}), [], [(DRAM, 64, 2)], 20_000), [np.full((2, 4), FILL, np.uint8)]
    )


def illegal() -> Job:
    """A job that ends with a fault."""
    return Job(program({(SPM, Unit.MOVER): [Raw(Opcode.SYNC, {}, 0)]}), [], [(DRAM, 0, 1)], 20_000)


def endless(watchdog: int) -> Job:
    """A job that waits for a post that nobody makes, until `watchdog` cycles are over: nobody looks for standstill."""
    stream = [sync(1, wait_sem=5, wait_n=1), finish(2)]
    return Job(program({(SPM, Unit.MOVER): stream}), [], [], watchdog, stall_limit=0)
