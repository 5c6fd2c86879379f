"""Runs a vector unit in Amaranth's simulator, on memories that hold what they shall from the first cycle on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import EnableInserter, Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator

from meshloom.hw.core.golden import CoreMemories
from meshloom.hw.core.vector import VectorUnit
from meshloom.hw.core.walk import VEC_LAYOUT
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import (
    INSTRUCTIONS,
    OPERAND_WALKS,
    REQUANTISING,
    TWO_OPERANDS,
    WHOLE_PAIRS,
    WINDOWED,
    Opcode,
    Pair,
    VectorOp,
    YWalk,
)
from meshloom.hw.spec.timing import VecShape, table_words, vec_words

Vec = dict[str, int]
FORMAT = INSTRUCTIONS[Opcode.VEC]


@dataclass
class Outcome:
    """What a run showed."""

    accepted: list[int] = field(default_factory=list)
    retired: list[dict[str, int]] = field(default_factory=list)
    faults: list[tuple[int, int, int]] = field(default_factory=list)  #: cause, tag, value
    written: list[tuple[int, int]] = field(default_factory=list)  #: cycle, address
    vec: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros((0, 0), np.int8))
    reading: int = 0
    out_of_range: int = 0  #: reads past a memory


class Bench(wiring.Component):
    """A vector unit that stands still whenever it may, its operand memories, and a cycle counter."""

    def __init__(self, config: ChipConfig, memories: CoreMemories) -> None:
        self.config, self.memories = config, memories
        self.unit = VectorUnit(config)
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        unit = self.unit
        active = unit.busy | unit.issue.valid | unit.read.en
        m.submodules.unit = EnableInserter(active)(unit)
        m.d.sync += unit.now.eq(unit.now + 1)
        for name in ("a", "b", "out", "acc"):
            image = getattr(self.memories, name)
            bits = 8 * image[0].nbytes
            words = [int.from_bytes(word.tobytes(), "little") for word in image]
            m.submodules[name] = memory = Memory(shape=bits, depth=len(words), init=words)
            port, expected = memory.read_port(), getattr(unit.operands, name)
            m.d.comb += [port.en.eq(expected.en), port.addr.eq(expected.addr)]
            m.d.comb += getattr(unit.operands, f"{name}_data").eq(port.data)
        return m


def run(config: ChipConfig, memories: CoreMemories, vecs: Sequence[Vec | int], gaps: Sequence[int] = ()) -> Outcome:
    """Issues each VEC `gaps[i]` cycles after the acceptance of the one before, and reads VEC back through `read`.

    VEC starts unknown to the test; words that nobody wrote are those of `memories.vec`.
    """
    bench = Bench(config, memories)
    unit = bench.unit
    simulator = Simulator(bench)
    simulator.add_clock(1e-6)
    outcome = Outcome(vec=memories.vec.copy())
    sizes = {name: len(getattr(memories, name)) for name in ("a", "b", "out", "acc")}

    async def monitor(context: Any) -> None:
        operands: Any = unit.operands
        while True:
            retire, fault, write = context.get(unit.retire), context.get(unit.fault), context.get(unit.write)
            if retire.valid:
                outcome.retired.append(
                    {name: int(retire[name]) for name in ("tag", "post_sem", "post_n", "start", "end")}
                )
                assert retire.end == context.get(unit.now) + 1
            if fault.valid:
                outcome.faults.append((int(fault.cause), int(fault.tag), int(fault.value)))
            if write.en:
                outcome.written.append((context.get(unit.now), int(write.addr)))
            for name, size in sizes.items():
                expected = context.get(getattr(operands, name))
                outcome.out_of_range += int(expected.en and expected.addr >= size)
            outcome.reading += context.get(unit.reading)
            await context.tick()

    async def main(context: Any) -> None:
        for index, vec in enumerate(vecs):
            for _ in range(gaps[index] if index < len(gaps) else 0):
                await context.tick()
            word = vec if isinstance(vec, int) else FORMAT.pack(vec)
            context.set(unit.issue.payload, VEC_LAYOUT.from_bits(word))
            context.set(unit.issue.valid, 1)
            while not context.get(unit.issue.ready):
                await context.tick()
            outcome.accepted.append(context.get(unit.now))
            await context.tick()
            context.set(unit.issue.valid, 0)
        for _ in range(100_000):
            if not context.get(unit.busy):
                break
            await context.tick()
        assert not context.get(unit.busy), "the unit hangs"
        context.set(unit.read.en, 1)
        for offset in sorted({address for _, address in outcome.written}):
            context.set(unit.read.offset, offset)
            await context.tick()
            word = context.get(unit.read_data).to_bytes(config.lanes, "little")
            outcome.vec[offset] = np.frombuffer(word, np.int8)

    simulator.add_testbench(main)
    simulator.add_testbench(monitor, background=True)
    simulator.run()
    return outcome


# -- VECs for tests ------------------------------------------------------------------------------------------------

COUNTS = ("in_w", "blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "out_w", "pixels")
#: One word; requantised with m / 2^17 = 1/4.
ONE: Vec = dict.fromkeys(COUNTS, 1) | {"scale": 1 << 15, "clamp": 127, "x_plane": 1}


def chip(lanes: int, **core: int | Sequence[str]) -> ChipConfig:
    words = {"a_words": 256, "b_words": 128, "acc_words": 64, "out_words": 160, "vec_words": 200}
    words |= {"vec_table": True, "vec_whole": True} | core
    values = {"name": "t", "lanes": lanes, "rows": 1, "cols": 1, "floorplan": ["dram core host"], "core": words}
    return ChipConfig.model_validate(values)


def complete(vec: Vec) -> Vec:
    """All body fields of a VEC, those not given 0."""
    return dict.fromkeys(FORMAT.offsets, 0) | vec


def shape(vec: Vec) -> VecShape:
    return VecShape.of(vec)


def random_memories(config: ChipConfig, seed: int) -> CoreMemories:
    rng = np.random.default_rng(seed)
    memories = CoreMemories.zeros(config)
    for memory in (memories.a, memories.b, memories.out, memories.vec):
        memory[:] = rng.integers(-128, 128, memory.shape)
    memories.acc[:] = rng.integers(-(1 << 17), 1 << 17, memories.acc.shape)
    memories.acc[::5] = rng.integers(-(1 << 31), 1 << 31, memories.acc[::5].shape)
    return memories


def random_whole(config: ChipConfig, rng: random.Random, words: int) -> Vec:
    """One with `YWalk.WHOLE`."""
    while True:
        vec = random_vec(config, rng, rng.choice(WINDOWED), words)
        if vec["y_walk"] == YWalk.WHOLE:
            return vec


def random_vec(config: ChipConfig, rng: random.Random, op: VectorOp, words: int) -> Vec:
    """A VEC of at most `words` words that stays inside the memories."""
    core, lanes = config.core, config.lanes
    while True:
        vec = complete(
            {
                "op": op,
                "x_out": rng.randint(0, 1) if op not in (*TWO_OPERANDS, VectorOp.REQUANT) else 0,
                "blocks": rng.choice((1, 1, 2, 3)),
                "kernel_h": rng.choice((1, 2, 3, 5)) if op in WINDOWED else 1,
                "kernel_w": rng.choice((1, 2, 3, 7)) if op in WINDOWED else 1,
                "stride_h": rng.randint(1, 3),
                "stride_w": rng.randint(1, 3),
                "dilation": rng.choice((1, 1, 2)),
                "pad_top": rng.choice((0, rng.randint(0, 3))),
                "pad_left": rng.choice((0, rng.randint(0, 3))),
                "in_w": rng.randint(1, 9),
                "out_w": rng.randint(1, 7),
                "pixels": rng.randint(1, rng.choice((3, 40))),
                "addend": rng.randint(0, 1) if op in (VectorOp.MAC, VectorOp.SUM) else 0,
                "scale": rng.choice((rng.randint(1, 64), rng.randint(0, 9000), rng.randint(0, 65535))),
                "relu": rng.randint(0, 1),
                "clamp": rng.choice((127, rng.randint(0, 127))),
                "pair": rng.choice(list(Pair)) if op is VectorOp.PAIR else 0,
                "y_walk": rng.choice(OPERAND_WALKS) if op in TWO_OPERANDS else 0,
                "tag": rng.randint(0, 65535),
                "post_sem": rng.randint(0, 63),
                "post_n": rng.randint(0, 15),
            }
        )
        vec["x_plane"] = vec["in_w"] * rng.randint(1, 6)
        if config.core.vec_whole and op in WINDOWED and rng.randrange(3) == 0:
            pair = rng.choice([pair for known, pair in WHOLE_PAIRS if known is op])
            vec |= {"y_walk": YWalk.WHOLE, "pair": pair, "kernel_h": 1, "kernel_w": 1, "addend": 0}
        elif vec["kernel_h"] == vec["kernel_w"] == 1:
            vec["repeat"] = rng.choice((0, 0, rng.randint(1, 3)))
        if op in REQUANTISING or (op is VectorOp.PAIR and vec["pair"] == Pair.MUL):
            vec["times16"] = rng.randint(0, 1)
        results = vec["blocks"] * vec["pixels"]
        second = {YWalk.BLOCK: vec["blocks"], YWalk.PIXEL: vec["pixels"]}.get(YWalk(vec["y_walk"]), results)
        written = vec_words(config, shape(vec)) if op is VectorOp.TRANSPOSE else results
        x_words = {VectorOp.REQUANT: core.acc_words}.get(op, core.out_words if vec["x_out"] else core.a_words)
        y = {VectorOp.MAC: core.b_words - vec["blocks"] * vec["kernel_h"] * vec["kernel_w"]}
        y |= {VectorOp.TABLE: core.b_words - table_words(config)} | dict.fromkeys(TWO_OPERANDS, core.out_words - second)
        room = {
            "x_base": x_words - vec["blocks"] * vec["x_plane"],
            "y_base": y.get(op, 0),
            "addend_base": core.acc_words - vec["blocks"] if vec["addend"] else 0,
            "dest_base": core.vec_words - written,
        }
        if min(room.values()) >= 0 and vec_words(config, shape(vec)) <= max(words, 3 * lanes):
            return vec | {name: rng.choice((0, rng.randint(0, most), most)) for name, most in room.items()}


_ODD = {"a_words": 61, "b_words": 67, "acc_words": 19, "out_words": 71, "vec_words": 83}
CHIPS = {
    "4": chip(4),
    "8": chip(8),
    "16": chip(16),
    "odd memories": chip(4, **_ODD),
    "2 windows": chip(8, vec_windows=2),
    "3 windows": chip(4, vec_windows=3, **_ODD),
    "5 windows": chip(4, vec_windows=5),
}
