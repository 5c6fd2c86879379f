"""Programs of random GEMMs, and how far their trace records are from the formulas of `hw/spec/timing.py`.

A program of GEMMs alone runs on one core of the chip: operands are whatever its memories hold, since no value changes a
cycle. Trace records say when each one started and ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Addend, Opcode, Unit
from meshloom.hw.spec.timing import GemmShape, gemm_cycles, gemm_occupancy, gemm_start
from meshloom.sched.program.program import Instruction, Program, ProgramError, next_tag, place

from ...devices.readout import Record

#: Random GEMMs on each chip.
COUNT = 300
#: Cycles of the longest random GEMM, and of every `_LONG_EVERY`th one at least: so that code always comes in time.
_LONGEST, _LONG, _LONG_EVERY = 8000, 700, 6
#: Every so many GEMMs one waits until the one before it has ended, and so starts on an idle unit.
_WAIT_EVERY = 7
#: From the end of a GEMM (the cycle in which it posts) to the acceptance of one that waits for it: the semaphore can be
#: taken in the next cycle, the instruction is offered in the one after.
_WAKE = 2
_SEMAPHORE = 1


@dataclass(frozen=True)
class Deviation:
    """Largest |measured - formula| in cycles over `count` GEMMs, for starts and ends."""

    count: int
    start: int
    end: int


def shape_of(fields: dict[str, int]) -> GemmShape:
    """What the timing of an instruction depends on."""
    return GemmShape(fields["pixels"], fields["n_blocks"], fields["k_blocks"], fields["kernel_h"], fields["kernel_w"])


def random_gemm(random: Random, chip: ChipConfig, least: int = 1) -> dict[str, int]:
    """Body of a GEMM of any shape that fits the core's memories and occupies the array for `least` cycles or more.

    Small and large ones, all kernels up to 7x7, all addends, to OUT and to ACC; partial sums in place or apart.
    """
    core = chip.core

    def some(top: int) -> int:
        return random.randint(1, random.choice((1, 2, top)))

    while True:
        kernel_h, kernel_w, k_blocks, n_blocks = some(7), some(7), some(24), some(12)
        in_w, in_h = some(40), some(40)
        out_w, out_h = some(24), some(24)
        pixels = max(1, out_w * out_h - random.choice((0, 0, random.randrange(out_w))))
        shape = GemmShape(pixels, n_blocks, k_blocks, kernel_h, kernel_w)
        results = n_blocks * pixels
        to_acc = random.random() < 0.5
        addend = random.choice(list(Addend))
        added = {Addend.NONE: 0, Addend.BIAS: n_blocks, Addend.PARTIAL: results}[addend]
        room_a = core.a_words - k_blocks * in_w * in_h
        room_b = core.b_words - n_blocks * shape.taps * chip.cols
        room_dest = (core.acc_words if to_acc else core.out_words) - results
        room_addend = core.acc_words - added
        long_enough = least <= gemm_occupancy(chip, shape) <= _LONGEST
        if min(room_a, room_b, room_dest, room_addend) < 0 or not long_enough:
            continue
        dest, addend_base = random.randint(0, room_dest), random.randint(0, room_addend) if added else 0
        if addend is Addend.PARTIAL and to_acc and random.random() < 0.7:
            addend_base = dest
        # an addend that overlaps the result has to be the very same words
        apart = addend_base + added <= dest or dest + results <= addend_base
        if apart or not to_acc or not added or (addend is Addend.PARTIAL and addend_base == dest):
            break
    return {
        "a_base": random.randint(0, room_a),
        "a_plane": in_w * in_h,
        "in_w": in_w,
        "k_blocks": k_blocks,
        "kernel_h": kernel_h,
        "kernel_w": kernel_w,
        "stride_h": random.randint(1, 4),
        "stride_w": random.randint(1, 4),
        "dilation": random.randint(1, 4),
        "pad_top": random.randint(0, 4),
        "pad_left": random.randint(0, 4),
        "out_w": out_w,
        "pixels": pixels,
        "b_base": random.randint(0, room_b),
        "n_blocks": n_blocks,
        "addend": int(addend),
        "addend_base": addend_base,
        "to_acc": int(to_acc),
        "dest_base": dest,
        "scale": random.randint(0, 0xFFFF),
        "relu": random.randint(0, 1),
        "clamp": random.randint(1, 127),
    }


def random_gemms(chip: ChipConfig, count: int = COUNT, seed: int = 0) -> list[dict[str, int]]:
    """Bodies of `count` GEMMs; the same for the same chip and seed."""
    random = Random(f"{chip.name} {seed}")
    return [random_gemm(random, chip, 1 if number % _LONG_EVERY else _LONG) for number in range(count)]


def waits(number: int) -> bool:
    """Whether a GEMM of the random program waits for the end of the one before it."""
    return number > 0 and number % _WAIT_EVERY == 0


def program(gemms: Sequence[dict[str, int]], chip: ChipConfig) -> Program:
    """Runs GEMMs one after another on the chip's first core; some wait for the one before (`waits`)."""
    tile = chip.cores[0]
    code: list[Instruction] = []
    for number, body in enumerate(gemms):
        header = {"tag": next_tag(number)}
        if waits(number):
            header |= {"wait_sem": _SEMAPHORE, "wait_n": 1}
        if waits(number + 1) or number + 1 == len(gemms):
            header |= {"post_sem": _SEMAPHORE, "post_n": 1}
        code.append(Instruction(Opcode.GEMM, header | body))
    end = {"tag": next_tag(len(gemms)), "tile": chip.host, "sem": 0, "n": 1, "wait_n": 1, "wait_sem": _SEMAPHORE}
    code.append(Instruction(Opcode.SYNC, end))
    streams, boot = place({(tile, Unit.MATRIX): tuple(code)}, {}, chip)
    return Program(chip.digest, streams, boot, {})


def deviation(measured: Sequence[tuple[int, int]], gemms: Sequence[dict[str, int]], chip: ChipConfig) -> Deviation:
    """Compares (start, end) of each GEMM with the formulas, given when the one before it started and ended.

    Raises ProgramError when there are not as many records as GEMMs.
    """
    if len(measured) != len(gemms):
        raise ProgramError(f"{chip.name}: {len(gemms)} GEMMs left {len(measured)} trace records")
    worst_start = worst_end = 0
    before: tuple[int, int, GemmShape] | None = None
    for number, ((start, end), fields) in enumerate(zip(measured, gemms, strict=True)):
        shape = shape_of(fields)
        if before is not None:
            # without a wait the unit holds the next GEMM as soon as the one before it has started
            accepted = before[1] + _WAKE if waits(number) else before[0]
            worst_start = max(worst_start, abs(start - gemm_start(chip, accepted, before[0], before[2])))
        worst_end = max(worst_end, abs(end - start - gemm_cycles(chip, shape)))
        before = start, end, shape
    return Deviation(len(gemms), worst_start, worst_end)


def fold_rich(chip: ChipConfig) -> dict[str, int]:
    """Body of a 1x1 GEMM that fills A with whole groups of pixels, with as many folds as OUT and B hold."""
    core = chip.core
    k_blocks = 16
    pixels = min(256, core.a_words // k_blocks) // chip.rows * chip.rows
    n_blocks = min(8, core.out_words // max(1, pixels), core.b_words // (k_blocks * chip.cols))
    if min(pixels, n_blocks) < 1:
        raise ProgramError(f"{chip.name}: its cores' memories are too small for a fold-rich GEMM")
    ones = ("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation")
    return {
        **dict.fromkeys(ones, 1),
        "a_plane": pixels,
        "in_w": pixels,
        "out_w": pixels,
        "pixels": pixels,
        "k_blocks": k_blocks,
        "n_blocks": n_blocks,
        "scale": 1 << 10,
        "clamp": 127,
    }


def utilisation(measured: Sequence[tuple[int, int]], gemms: Sequence[dict[str, int]], chip: ChipConfig) -> float:
    """Useful multiply-accumulates / (PEs x cycles from the first start to the last end)."""
    useful = sum(
        fields["pixels"] * fields["n_blocks"] * chip.cols * shape_of(fields).taps * chip.lanes for fields in gemms
    )
    cycles = max(end for _, end in measured) - min(start for start, _ in measured)
    return useful / (chip.rows * chip.cols * cycles)


def spans(records: Sequence[Record]) -> list[tuple[int, int]]:
    """(start, end) of all GEMMs, by start."""
    return sorted((record.start, record.end) for record in records if record.opcode is Opcode.GEMM)
