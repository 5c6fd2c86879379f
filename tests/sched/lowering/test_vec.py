"""Vector operations in software: their meaning against plain loops, validation, checks, lowering and the model."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.contracts import VEC_ISSUE_CYCLES
from meshloom.hw.spec.isa import TWO_OPERANDS, WINDOWED, Opcode, Pair, Region, Unit, VectorOp, YWalk, address
from meshloom.hw.spec.timing import VecShape, slides, vec_cycles, vec_occupancy, vec_start
from meshloom.sched.checker.accesses import vec_accesses
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.ir.functional import Memories, execute
from meshloom.sched.ir.schedule import Access, Move, Operation, ScheduleError, Span, Vec, reads, writes
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.predict import predict
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.model.timeline import play
from meshloom.sched.program.disasm import instruction_text
from meshloom.sched.program.program import Instruction, Program, place
from meshloom.tb.verify.random_schedules import DATA_REGIONS, random_vec, schedule_of

from ..ir.test_functional import requantised, wrap
from ..network_like import network_like
from ..random_schedules import expected, interleave, random_memories, same, small_chip

CHIP = small_chip()
CORE, SPM, DRAM = 1, 2, 0
ONES = dict.fromkeys(("blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation"), 1)
FIELDS = ONES | {"op": VectorOp.MAX, "x_plane": 6, "in_w": 3, "out_w": 3, "pixels": 6, "clamp": 127}


def vec(**changes: int) -> Vec:
    return Vec(core=CORE, fields=FIELDS | changes, label="the vec")


def valid_vecs(seed: int, chip: ChipConfig, count: int) -> list[Vec]:
    rng, result = random.Random(seed), []
    while len(result) < count:
        op = Vec(core=rng.choice(chip.cores), fields=random_vec(rng))
        try:
            validate(schedule_of([op], chip), chip)
        except ScheduleError:
            continue
        result.append(op)
    return result


# -- meaning --------------------------------------------------------------------------------------------------


FUNCTIONS = {
    Pair.MUL: operator.mul,
    Pair.MASK: lambda x, y: x if y > 0 else 0,
    Pair.EQUAL: lambda x, y: int(x == y),
    Pair.SUBTRACT: operator.sub,
}


class Loops:
    """Executes a VEC lane by lane and tap by tap. `read`: the words of P bytes of A, B, OUT and ACC it looked at."""

    def __init__(self, op: Vec, memories: Memories) -> None:
        self.op = op
        self.held = {region: memories.region(op.core, region).view(np.int8).tolist() for region in DATA_REGIONS}
        self.sums = memories.acc(op.core).tolist()
        self.lanes = memories.chip.lanes
        self.read: set[tuple[Region, int]] = set()

    def x(self, block: int, iy: int, ix: int) -> list[int] | None:
        op = self.op
        if not (0 <= ix < op["in_w"] and 0 <= iy * op["in_w"] < op["x_plane"]):
            return None
        at = op["x_base"] + block * op["x_plane"] + iy * op["in_w"] + ix
        if op["op"] == VectorOp.REQUANT:
            return self.acc(at)
        return self.word(Region.OUT if op["x_out"] else Region.MAIN, at)

    def word(self, region: Region, at: int) -> list[int]:
        self.read.add((region, at))
        return self.held[region][at]

    def acc(self, at: int) -> list[int]:
        self.read |= {(Region.ACC, 4 * at + i) for i in range(4)}
        return self.sums[at]

    def pixel(self, block: int, pixel: int) -> list[int]:
        """The result word of everything but TRANSPOSE; of that, the word of x."""
        op, kind = self.op, VectorOp(self.op["op"])
        oy, ox = (place // (op["repeat"] + 1) for place in divmod(pixel, op["out_w"]))
        total: list[int] | None = None
        for ky in range(op["kernel_h"]):
            for kx in range(op["kernel_w"]):
                y = [1] * self.lanes
                if kind is VectorOp.MAC:  # whether or not there is an x
                    y = self.word(Region.B, op["y_base"] + (block * op["kernel_h"] + ky) * op["kernel_w"] + kx)
                x = self.x(
                    block,
                    oy * op["stride_h"] + ky * op["dilation"] - op["pad_top"],
                    ox * op["stride_w"] + kx * op["dilation"] - op["pad_left"],
                )
                if x is None:
                    continue
                products = [a * b for a, b in zip(x, y, strict=True)]
                if total is None:
                    total = products
                elif kind is VectorOp.MAX:
                    total = [max(a, b) for a, b in zip(total, products, strict=True)]
                else:
                    total = [a + b for a, b in zip(total, products, strict=True)]
        if total is None:
            total = [-128 if kind is VectorOp.MAX else 0] * self.lanes
        if kind in TWO_OPERANDS:
            place = {YWalk.EACH: block * op["pixels"] + pixel, YWalk.BLOCK: block, YWalk.PIXEL: pixel}
            y = self.word(Region.OUT, op["y_base"] + place[YWalk(op["y_walk"])])
            function = FUNCTIONS[Pair(op["pair"])] if kind is VectorOp.PAIR else operator.add
            total = [function(a, b) for a, b in zip(total, y, strict=True)]
        if kind is VectorOp.TABLE:
            words = [self.word(Region.B, op["y_base"] + word) for word in range(256 // self.lanes)]
            total = [words[(value + 128) // self.lanes][(value + 128) % self.lanes] for value in total]
        if op["addend"]:
            total = [a + b for a, b in zip(total, self.acc(op["addend_base"] + block), strict=True)]
        scaled = kind in (VectorOp.MAC, VectorOp.SUM, VectorOp.REQUANT) or (kind is VectorOp.PAIR and op["pair"] == 0)
        scale, factor = op["scale"] if scaled else 1 << 17, 16 if op["times16"] else 1
        return [requantised(wrap(wrap(value) * factor), scale, op["relu"], op["clamp"]) for value in total]

    def whole(self) -> dict[int, list[int]]:
        """`run` where y is what becomes of a whole block."""
        op, kind, factor = self.op, VectorOp(self.op["op"]), 16 if self.op["times16"] else 1
        nothing = [-128 if kind is VectorOp.MAX else 0] * self.lanes
        result: dict[int, list[int]] = {}
        for block in range(op["blocks"]):
            words: list[list[int]] = []
            for pixel in range(op["pixels"]):
                row, column = divmod(pixel, op["out_w"])
                at = row * op["stride_h"] - op["pad_top"], column * op["stride_w"] - op["pad_left"]
                words.append(self.x(block, *at) or nothing)
            lanes: list[list[int]] = []
            for x in zip(*words, strict=True):
                if op["pair"] == Pair.SUBTRACT:
                    mean = requantised(wrap(sum(x) * factor), op["scale"], 0, 127)
                    y = max(x) if kind is VectorOp.MAX else mean
                    lanes.append([requantised(value - y, 1 << 17, op["relu"], op["clamp"]) for value in x])
                    continue
                total = math.isqrt(sum(v * v for v in x) * 256) if kind is VectorOp.MAC else sum(x)
                times = min(65535, op["scale"] * 4096 // total) if total > 0 else 65535
                lanes.append([requantised(value * factor, times, op["relu"], op["clamp"]) for value in x])
            base = op["dest_base"] + block * op["pixels"]
            result |= {base + pixel: list(word) for pixel, word in enumerate(zip(*lanes, strict=True))}
        return result

    def run(self) -> dict[int, list[int]]:
        """Word of VEC -> what it holds afterwards."""
        op, lanes = self.op, self.lanes
        result = {}
        if op["op"] in WINDOWED and op["y_walk"] == YWalk.WHOLE:
            return self.whole()
        for block in range(op["blocks"]):
            for pixel in range(op["pixels"]):
                word, base = self.pixel(block, pixel), op["dest_base"]
                if op["op"] != VectorOp.TRANSPOSE:
                    result[base + block * op["pixels"] + pixel] = word
                    continue
                group, column = divmod(pixel, lanes)
                for lane in range(lanes):
                    row = base + (group * op["blocks"] + block) * lanes + lane
                    result.setdefault(row, [0] * lanes)[column] = word[lane]
        return result


@pytest.mark.parametrize("kind", VectorOp)
def test_each_operation_is_its_formula(kind: VectorOp) -> None:
    chip = small_chip()
    for number, op in enumerate(one for one in valid_vecs(3, chip, 250) if one["op"] == kind):
        memories = random_memories(number, chip)
        before = {region: memories.region(op.core, region).copy() for region in DATA_REGIONS}
        loops = Loops(op, memories)
        target = loops.run()
        execute([op], memories)
        for at, word in target.items():
            assert memories.region(op.core, Region.VEC)[at].view(np.int8).tolist() == word, (op, at)
            before[Region.VEC][at] = np.array(word, np.int8).view(np.uint8)
        for region, words in before.items():  # and nothing else has changed
            np.testing.assert_array_equal(memories.region(op.core, region), words)

        def touched(accesses: list[Access], core: int = op.core) -> set[tuple[Region, int]]:
            assert all(access.tile == core for access in accesses)
            return {(access.region, at) for access in accesses for pair in access.intervals for at in range(*pair)}

        assert touched(writes(op, chip)) == {(Region.VEC, at) for at in target}
        message = touched(reads(op, chip))
        assert loops.read <= message
        checked = vec_accesses(op.core, dict.fromkeys(FIELDS, 0) | EVERY | op.fields, chip.lanes)
        exact = {
            (Region(access.region), at)
            for access in checked
            if not access.write
            for begin, end in zip(access.begins.tolist(), access.ends.tolist(), strict=True)
            for at in range(begin, end)
        }
        assert exact == loops.read


EVERY = dict.fromkeys(("x_out", "x_base", "pad_top", "pad_left", "y_base", "addend", "addend_base", "dest_base"), 0)


def test_large_windows_wrap_in_32_bits_and_round_halves_to_even() -> None:
    chip = load("tiny")
    memories = Memories(chip)
    memories.region(CORE, Region.MAIN)[:] = 0x80
    memories.acc(CORE)[:2] = [[-(1 << 31)], [(1 << 31) - 5]]
    window = {"op": VectorOp.SUM, "kernel_h": 31, "kernel_w": 31, "x_plane": 31 * 31, "in_w": 31, "out_w": 1}
    sums = vec(**window, pixels=1, blocks=2, addend=1, scale=1)
    execute([sums], memories)
    result = memories.region(CORE, Region.VEC)[:2].view(np.int8)
    total = -128 * 31 * 31
    for row, bias in enumerate((-(1 << 31), (1 << 31) - 5)):
        assert set(result[row].tolist()) == {requantised(wrap(total + bias), 1, 0, 127)}
    execute([vec(**window, pixels=1, scale=round(2**17 / 961), relu=0)], memories)
    assert set(memories.region(CORE, Region.VEC)[0].view(np.int8).tolist()) == {-128}


# -- validation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (vec(op=8), "VEC.op = 8 does not fit 3 bits"),
        (vec(op=VectorOp.ADD, kernel_w=2), "VEC ADD has a window of 1x2; it must be 1x1"),
        (vec(op=VectorOp.TRANSPOSE, kernel_h=3), "VEC TRANSPOSE has a window of 3x1"),
        (vec(op=VectorOp.REQUANT, x_out=1), "its x lies in ACC; x_out must be 0"),
        (vec(op=VectorOp.ADD, x_out=1), "its x lies in A; x_out must be 0"),
        (vec(addend=1), "VEC MAX has addend = 1; only MAC and SUM"),
        (vec(pixels=0), "VEC.pixels = 0 must be at least 1"),
        (vec(x_plane=7), "VEC.x_plane = 7 must be whole rows of in_w = 3"),
        (vec(kernel_h=32), "kernel_h = 32 does not fit 5 bits"),
        (vec(b_base=1), "VEC has no body field 'b_base'"),
        (vec(x_base=19), r"VEC MAX uses words 19\.\.24 of MAIN, which has 24"),
        (vec(x_base=11, x_out=1), r"VEC MAX uses words 11\.\.16 of OUT, which has 16"),
        (vec(op=VectorOp.REQUANT, x_base=5), r"VEC REQUANT uses words 20\.\.43 of ACC, which has 40"),
        (vec(op=VectorOp.ADD, y_base=11), r"VEC ADD uses words 11\.\.16 of OUT, which has 16"),
        (vec(op=VectorOp.MAC, y_base=72), r"VEC MAC uses words 72\.\.72 of B, which has 72"),
        (vec(op=VectorOp.TABLE, y_base=9), r"VEC TABLE uses words 9\.\.72 of B, which has 72"),
        (vec(op=VectorOp.PAIR, y_walk=1, y_base=16), r"VEC PAIR uses words 16\.\.16 of OUT, which has 16"),
        (vec(repeat=1, kernel_w=2), "VEC MAX has repeat = 1 with a window"),
        (vec(pair=2), r"VEC MAX has pair = 2 \(EQUAL\); it must be 0"),
        (vec(y_walk=1), "VEC MAX has y_walk = 1"),
        (
            vec(y_walk=3),
            "VEC MAX of whole blocks has pair = 0; there are MAX with SUBTRACT, SUM with SUBTRACT, SUM with",
        ),
        (vec(y_walk=3, pair=3, kernel_w=2), "VEC MAX of whole blocks has an addend, repeat or a window"),
        (vec(y_walk=3, pair=3, times16=1), "VEC MAX has times16 = 1, but no scale"),
        (vec(op=VectorOp.ADD, y_walk=3), "VEC ADD has y_walk = 3"),
        (vec(op=VectorOp.PAIR, pair=1, times16=1), "VEC PAIR has times16 = 1, but no scale"),
        (vec(op=VectorOp.SUM, addend=1, addend_base=10), r"VEC SUM uses words 40\.\.43 of ACC, which has 40"),
        (vec(dest_base=15), r"VEC MAX uses words 15\.\.20 of VEC, which has 20"),
        (vec(op=VectorOp.TRANSPOSE, dest_base=13), r"VEC TRANSPOSE uses words 13\.\.20 of VEC, which has 20"),
        (Vec(core=SPM, fields=FIELDS), "is not a core; a VEC needs one"),
        (
            Move(
                issuer=CORE,
                src=Span(tile=DRAM, address=0, run=1),
                dst=Span(tile=CORE, address=address(Region.VEC, 0), run=1),
                words=1,
            ),
            "destination is VEC, which only the vector unit writes",
        ),
    ],
)
def test_vecs_that_cannot_run_are_named(op: Operation, message: str) -> None:
    with pytest.raises(ScheduleError, match=f"^operation 1.*: .*{message}"):
        validate(schedule_of([vec(), op], CHIP), CHIP)


def test_words_past_the_last_window_need_not_be_there() -> None:
    """Every other column of a tile, from its second word on: the plane counts only as far as a window reaches."""
    validate(schedule_of([vec(x_base=19, x_plane=6, in_w=3, out_w=2, stride_w=2, pixels=2)], CHIP), CHIP)
    blocks = vec(blocks=3, x_plane=6, out_w=1, pixels=1)
    assert reads(blocks, CHIP)[0].intervals == [(0, 1), (6, 7), (12, 13)]
    assert reads(vec(pad_top=3, pixels=3, kernel_h=2), CHIP) == []


# -- programs -------------------------------------------------------------------------------------------------

TINY = load("tiny")


def program(codes: Mapping[tuple[int, Unit], list[Instruction]]) -> Program:
    done = Instruction(Opcode.SYNC, {"tile": TINY.host, "sem": 0, "n": 1})
    streams, boot = place({key: (*code, done) for key, code in codes.items()}, {TINY.drams[0]: 1024}, TINY)
    return Program(TINY.digest, streams, boot, {})


def good() -> dict[tuple[int, Unit], list[Instruction]]:
    """A tile pulled into A, its maximum, the result pushed back."""
    dram, delivered = TINY.drams[0], {"notify": 1, "notify_tile": CORE}
    runs = {"src_run": 6, "dst_run": 6, "words": 6}
    result = address(Region.VEC, 0)
    pull = {"src_tile": dram, "dst_tile": CORE, **runs, **delivered, "notify_sem": 1}
    push = {"src_tile": CORE, "src": result, "dst_tile": dram, "dst": 32, **runs, **delivered, "notify_sem": 3}
    return {
        (CORE, Unit.MOVER): [
            Instruction(Opcode.MOVE, pull),
            Instruction(Opcode.MOVE, push | {"wait_sem": 2, "wait_n": 1}),
            Instruction(Opcode.SYNC, {"wait_sem": 3, "wait_n": 1}),
        ],
        (CORE, Unit.VECTOR): [
            Instruction(Opcode.VEC, FIELDS | {"wait_sem": 1, "wait_n": 1, "post_sem": 2, "post_n": 1})
        ],
    }


MOVER, VECTOR = (CORE, Unit.MOVER), (CORE, Unit.VECTOR)


def test_a_good_program_passes() -> None:
    check(program(good()), TINY, initial=[(TINY.drams[0], 0, 6)], outputs=[(TINY.drams[0], 32, 6)])


@pytest.mark.parametrize(
    ("unit", "position", "fields", "message"),
    [
        (VECTOR, 0, {"post_n": 0}, "hangs"),
        (VECTOR, 0, {"wait_n": 0}, "races: writes core@(1,0) A words 0..5"),
        (MOVER, 1, {"wait_n": 0}, "races: writes core@(1,0) VEC words 0..5"),
        (MOVER, 0, {"words": 5}, "reads core@(1,0) A word 5, which nothing has written"),
        (MOVER, 1, {"words": 7, "src_run": 7, "dst_run": 7}, "reads core@(1,0) VEC word 6, which nothing has written"),
        (VECTOR, 0, {"op": VectorOp.ADD}, "reads core@(1,0) OUT words 0..5, which nothing has written"),
        (VECTOR, 0, {"op": VectorOp.MAC}, "reads core@(1,0) B word 0, which nothing has written"),
        (VECTOR, 0, {"op": VectorOp.SUM, "addend": 1}, "reads core@(1,0) ACC row 0, which nothing has written"),
        (VECTOR, 0, {"x_base": 4091}, "reads up to core@(1,0) A word 4096; the memory has 4096"),
        (VECTOR, 0, {"x_base": 2043, "x_out": 1}, "reads up to core@(1,0) OUT word 2048"),
        (VECTOR, 0, {"op": VectorOp.REQUANT, "x_base": 1019}, "reads up to core@(1,0) ACC word 4099"),
        (VECTOR, 0, {"dest_base": 2043}, "writes up to core@(1,0) VEC word 2048"),
        (VECTOR, 0, {"op": VectorOp.TRANSPOSE, "dest_base": 2041}, "writes up to core@(1,0) VEC word 2048"),
        (VECTOR, 0, {"op": VectorOp.TABLE}, "reads core@(1,0) B words 0..63, which nothing has written"),
        (VECTOR, 0, {"op": VectorOp.PAIR, "x_out": 1}, "PAIR with x_out = 1"),
        (VECTOR, 0, {"op": VectorOp.PAIR, "y_walk": 1}, "reads core@(1,0) OUT word 0, which nothing has written"),
        (VECTOR, 0, {"op": VectorOp.PAIR, "y_walk": 3}, "PAIR with y_walk = 3"),
        (VECTOR, 0, {"pair": 1}, "MAX with pair = 1"),
        (VECTOR, 0, {"y_walk": 3}, "MAX of whole blocks with pair = 0; MAX subtracts"),
        (VECTOR, 0, {"y_walk": 3, "pair": 3, "repeat": 1}, "MAX of whole blocks with repeat = 1; it must be 0"),
        (VECTOR, 0, {"y_walk": 3, "pair": 3, "kernel_h": 2}, "MAX of whole blocks with a window"),
        (VECTOR, 0, {"times16": 1}, "MAX with times16 = 1"),
        (VECTOR, 0, {"repeat": 1, "kernel_w": 2}, "MAX with repeat = 1 and a window"),
        (VECTOR, 0, {"op": VectorOp.ADD, "kernel_h": 2}, "ADD with a window of 2x1; its window must be 1x1"),
        (VECTOR, 0, {"op": VectorOp.REQUANT, "x_out": 1}, "REQUANT with x_out = 1"),
        (VECTOR, 0, {"addend": 1}, "MAX with addend = 1; only MAC and SUM add a bias"),
        (VECTOR, 0, {"blocks": 0}, "blocks = 0"),
        (MOVER, 0, {"dst": address(Region.VEC, 0)}, "VEC; the tile has no such region that a MOVE can write"),
    ],
)  # fmt: skip
def test_wrong_programs_are_found(unit: tuple[int, Unit], position: int, fields: dict[str, int], message: str) -> None:
    codes = good()
    codes[unit][position].fields.update(fields)
    with pytest.raises(CheckError) as error:
        check(program(codes), TINY, initial=[(TINY.drams[0], 0, 6)])
    assert message in str(error.value)


def test_a_vec_belongs_to_the_vector_unit_of_a_core() -> None:
    codes = good()
    codes[CORE, Unit.MATRIX] = codes.pop(VECTOR)
    with pytest.raises(CheckError, match="the matrix does not execute VEC"):
        check(program(codes), TINY)
    with pytest.raises(CheckError, match="a spm tile has no vector unit"):
        check(program({(TINY.spms[0], Unit.VECTOR): [Instruction(Opcode.SYNC)]}), TINY)


def test_a_chip_without_a_table_looks_up_nothing() -> None:
    bare = ChipConfig.model_validate(TINY.model_dump() | {"core": TINY.core.model_dump() | {"vec_table": False}})
    look_up = vec(op=VectorOp.TABLE)
    with pytest.raises(ScheduleError, match=r"the cores of tiny have no table; set core\.vec_table = true"):
        validate(schedule_of([look_up], bare), bare)
    codes = good()
    codes[VECTOR][0].fields.update(op=VectorOp.TABLE)
    with pytest.raises(CheckError, match=r"cores of tiny have none: core\.vec_table is off"):
        check(program(codes), bare, initial=[(TINY.drams[0], 0, 6)])


def test_a_chip_may_have_no_whole_blocks() -> None:
    bare = ChipConfig.model_validate(TINY.model_dump() | {"core": TINY.core.model_dump() | {"vec_whole": False}})
    less = vec(y_walk=3, pair=3)
    with pytest.raises(ScheduleError, match=r"the cores of tiny have none; set core\.vec_whole = true"):
        validate(schedule_of([less], bare), bare)
    codes = good()
    codes[VECTOR][0].fields.update(y_walk=3, pair=3)
    with pytest.raises(CheckError, match=r"cores of tiny have none: core\.vec_whole is off"):
        check(program(codes), bare, initial=[(TINY.drams[0], 0, 6)])


def test_listings_say_what_a_vec_does() -> None:
    text = instruction_text(good()[VECTOR][0], TINY)
    assert text == (
        "VEC wait s1>=1 | MAX A+0x0 1 x 2x3 words | window 1x1 stride 1x1 dilation 1 pad top 0 left 0 | "
        "-> VEC+0x0 6 pixels (2x3) | post s2+1"
    )
    mac = FIELDS | {"op": VectorOp.MAC, "y_base": 16, "addend": 1, "addend_base": 2, "scale": 9, "relu": 1, "clamp": 6}
    text = instruction_text(Instruction(Opcode.VEC, mac), TINY)
    assert "| filters B+0x10 | + bias ACC+0x2 | -> VEC+0x0 6 pixels (2x3) scale 9/2^17 relu clamp 6" in text
    pair = FIELDS | {"op": VectorOp.PAIR, "y_base": 3, "y_walk": YWalk.BLOCK, "scale": 8192, "times16": 1, "repeat": 1}
    text = instruction_text(Instruction(Opcode.VEC, pair), TINY)
    assert text.startswith("VEC | MUL A+0x0 ")
    assert "| each word 2x2 times | and OUT+0x3 for each block | -> VEC+0x0 6 pixels (2x3) scale 8192/2^13" in text
    table = FIELDS | {"op": VectorOp.TABLE, "y_base": 64}
    whole = FIELDS | {"op": VectorOp.MAC, "y_walk": YWalk.WHOLE, "scale": 7}
    assert "| MUL that of the whole block |" in instruction_text(Instruction(Opcode.VEC, whole), TINY)
    assert "| table B+0x40 |" in instruction_text(Instruction(Opcode.VEC, table), TINY)


@pytest.mark.parametrize("walk", YWalk)
@pytest.mark.parametrize("op", VectorOp)
def test_a_listing_names_the_second_operand_of_every_operation(op: VectorOp, walk: YWalk) -> None:
    """WHOLE belongs to windows alone; elsewhere a listing shows the words that the fields name, right or not."""
    fields = FIELDS | {"op": op, "y_base": 5, "y_walk": walk, "pair": Pair.SUBTRACT}
    body = instruction_text(Instruction(Opcode.VEC, fields), TINY).split(" | ")
    place = {YWalk.EACH: "", YWalk.BLOCK: " for each block", YWalk.PIXEL: " for each pixel", YWalk.WHOLE: ""}[walk]
    second = {
        VectorOp.MAC: "filters B+0x5",
        VectorOp.TABLE: "table B+0x5",
        VectorOp.ADD: f"+ OUT+0x5{place}",
        VectorOp.PAIR: f"and OUT+0x5{place}",
    }.get(op)
    if op in WINDOWED and walk == YWalk.WHOLE:
        second = "SUBTRACT that of the whole block"
    assert body[3:-1] == ([second] if second else [])


@pytest.mark.parametrize("pair", Pair)
@pytest.mark.parametrize("op", VectorOp)
def test_a_listing_shows_a_scale_where_one_is_used(op: VectorOp, pair: Pair) -> None:
    fields = FIELDS | {"op": op, "pair": pair, "scale": 8192, "times16": 1}
    text = instruction_text(Instruction(Opcode.VEC, fields), TINY)
    scaled = op in (VectorOp.MAC, VectorOp.SUM, VectorOp.REQUANT) or (op, pair) == (VectorOp.PAIR, Pair.MUL)
    assert text.endswith(" scale 8192/2^13") == ("scale" in text) == scaled


# -- lowering -------------------------------------------------------------------------------------------------


def roomy(**changes: object) -> ChipConfig:
    """A chip that `network_like` fits, with two banks and little of everything."""
    core = {"a_words": 64, "b_words": 16, "acc_words": 34, "out_words": 32, "vec_words": 32}
    floorplan = ["dram core spm", "core host core", "spm core dram"]
    return small_chip(floorplan=floorplan, core=core, spm_words=320, **changes)


@pytest.mark.parametrize(("semaphores", "more"), [(20, 1.5), (24, 1.1), (32, 1.02)])
def test_a_network_makes_do_with_the_semaphores_that_there_are(semaphores: int, more: float) -> None:
    """Semaphores are handed from channel to channel; nothing is ever wrong, and few instructions are added."""
    chip, plenty = roomy(semaphores=semaphores), roomy(semaphores=64)
    operations = network_like(chip, random.Random(1), 1000)
    program, free = (lower(schedule_of(operations, one), one) for one in (chip, plenty))
    used = [
        {
            (stream.tile, instruction.fields["wait_sem"])
            for stream in result.streams
            for instruction in stream.instructions
            if instruction.fields.get("wait_n")
        }
        for result in (program, free)
    ]
    assert max(number for _, number in used[0]) < semaphores < max(number for _, number in used[1])
    assert program.instructions <= more * free.instructions
    check(program, chip)
    memories, interleaver = interleave(program, chip, 1, semaphores)
    assert same(expected(schedule_of(operations, chip), chip, 1), memories, program)
    assert interleaver.most <= 192


@pytest.mark.parametrize("seed", range(6))
def test_gemms_vecs_and_moves_end_as_the_schedule_does(seed: int) -> None:
    chip, rng = roomy(semaphores=64), random.Random(seed)
    schedule = schedule_of(network_like(chip, rng, 80), chip)
    program = lower(schedule, chip, limit=rng.choice((2, 192)))
    check(program, chip)
    assert {stream.unit for stream in program.streams} >= {Unit.MOVER, Unit.VECTOR}
    target = expected(schedule, chip, seed)
    for order in range(3):
        memories, _ = interleave(program, chip, seed, order)
        assert same(target, memories, program)


def test_a_vector_unit_that_has_nothing_to_do_is_not_started() -> None:
    chip = roomy()
    operations: list[Operation] = [op for op in network_like(chip, random.Random(1), 60) if not isinstance(op, Vec)]
    program = lower(schedule_of(operations, chip), chip)
    assert all(stream.unit is not Unit.VECTOR for stream in program.streams)
    assert sum(one.opcode is Opcode.FETCH for one in program.boot.instructions) == len(program.streams)


# -- the model ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", VectorOp)
@pytest.mark.parametrize("chip", ["tiny", "quad16"])
def test_the_model_plays_the_closed_forms(chip: str, kind: VectorOp) -> None:
    """Behind one another without a bubble; behind a short one, which ends before the next has come; after a rest."""
    config = load(chip)
    core, taps = config.cores[0], 3 if kind in WINDOWED else 1
    windows = {"op": kind, "kernel_w": taps, "in_w": 8, "x_plane": 80, "out_w": 8}
    sizes = [(40, 3), (60, 1), (1, 1), (17, 2), (5, 1)]
    code = [
        Instruction(Opcode.VEC, FIELDS | windows | {"pixels": pixels, "blocks": blocks}) for pixels, blocks in sizes
    ]
    code[3] = replace(code[3], fields=code[3].fields | {"post_sem": 1, "post_n": 1})
    code[4] = replace(code[4], fields=code[4].fields | {"wait_sem": 1, "wait_n": 1, "post_sem": 1, "post_n": 1})
    done = Instruction(Opcode.SYNC, {"wait_sem": 1, "wait_n": 1, "tile": config.host, "sem": 0, "n": 1})
    streams, boot = place({(core, Unit.VECTOR): (*code, done)}, {}, config)
    timeline = play(Program(config.digest, streams, boot, {}), config)
    vecs = [entry for entry in timeline.executed if entry.opcode is Opcode.VEC]
    assert all((entry.tile, entry.unit) == (core, Unit.VECTOR) for entry in vecs)
    shapes = [VecShape.of(one.fields) for one in code]
    assert [slides(config, shape) for shape in shapes] == [taps > 1 and chip == "quad16"] * len(shapes)
    assert [entry.end - entry.start for entry in vecs] == [vec_cycles(config, shape) for shape in shapes]
    for before, after, shape in zip(vecs[:2], vecs[1:3], shapes[:2], strict=True):
        assert after.start == before.start + vec_occupancy(config, shape)
    # the stage before the reader takes the next one in the cycle before this one starts
    assert vecs[3].start == vec_start(config, vecs[2].start - 1, vecs[2].start, shapes[2])
    assert vecs[4].start == vecs[3].end + 2 + VEC_ISSUE_CYCLES
    assert vecs[4].wait > 0


def test_predictions_name_vecs() -> None:
    chip = roomy()
    schedule = schedule_of(network_like(chip, random.Random(2), 100), chip)
    result = predict(schedule, chip)
    for op, start, end in zip(schedule.operations, result.start, result.end, strict=True):
        assert 0 < start < end <= result.cycles
        if isinstance(op, Vec):
            assert end - start == vec_cycles(chip, VecShape.of(op.body))
