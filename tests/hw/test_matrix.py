"""The matrix unit against the NumPy golden model (every byte) and the timing formula (every cycle)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator
from meshloom.hw.config import ChipConfig
from meshloom.hw.core import golden
from meshloom.hw.core.array import split
from meshloom.hw.core.golden import CoreMemories
from meshloom.hw.core.matrix import MatrixUnit
from meshloom.hw.core.readers import GEMM_LAYOUT
from meshloom.hw.isa import INSTRUCTIONS, Addend, Cause, Opcode, Region, address
from meshloom.hw.timing import GemmShape, gemm_cycles, gemm_occupancy, gemm_start

Gemm = dict[str, int]
FORMAT = INSTRUCTIONS[Opcode.GEMM]
ONE: Gemm = {
    name: 1
    for name in ("k_blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "out_w", "pixels", "n_blocks")
} | {"scale": 1 << 15, "clamp": 127, "in_w": 1, "a_plane": 1}


def chip(lanes: int, rows: int = 0, cols: int = 0, product_register: bool = False, **core: int) -> ChipConfig:
    words = {"a_words": 256, "b_words": 512, "acc_words": 64, "out_words": 64} | core
    return ChipConfig.model_validate(
        {
            "name": "t",
            "lanes": lanes,
            "rows": rows or lanes,
            "cols": cols or lanes,
            "floorplan": ["dram core host"],
            "core": words,
            "dram": {"bytes_per_cycle": min(lanes, 16)},
            "product_register": product_register,
        }
    )


def complete(gemm: Gemm) -> Gemm:
    """All body fields of a GEMM, those not given 0."""
    return {name: 0 for name in FORMAT.offsets} | gemm


def shape(gemm: Gemm) -> GemmShape:
    return GemmShape(**{name: gemm[name] for name in vars(GemmShape(1))})


def random_memories(config: ChipConfig, rng: np.random.Generator) -> CoreMemories:
    memories = CoreMemories.zeros(config)
    memories.a[:] = rng.integers(-128, 128, memories.a.shape)
    memories.b[:] = rng.integers(-128, 128, memories.b.shape)
    memories.acc[:, : config.cols] = rng.integers(-(1 << 17), 1 << 17, (len(memories.acc), config.cols))
    memories.out[:, : config.cols] = rng.integers(-128, 128, (len(memories.out), config.cols))
    return memories


def random_gemm(config: ChipConfig, rng: random.Random, windows: int) -> Gemm:
    """A GEMM of at most `windows` windows that stays inside the memories."""
    core = config.core
    while True:
        gemm = complete(
            {
                "kernel_h": rng.choice((1, 1, 2, 3, 5, 7)),
                "kernel_w": rng.choice((1, 1, 2, 3, 5, 7)),
                "stride_h": rng.randint(1, 3),
                "stride_w": rng.randint(1, 3),
                "dilation": rng.choice((1, 1, 2)),
                "k_blocks": rng.choice((1, 1, 2, 3)),
                "n_blocks": rng.choice((1, 1, 2, 3)),
                "pad_top": rng.randint(0, 3),
                "pad_left": rng.randint(0, 3),
                "in_w": rng.randint(1, 9),
                "out_w": rng.randint(1, 7),
                "pixels": rng.randint(1, 3 * config.rows),
                "addend": rng.choice(tuple(Addend)),
                "to_acc": rng.randint(0, 1),
                "scale": rng.choice((rng.randint(1, 64), rng.randint(0, 2000), rng.randint(0, 65535))),
                "relu": rng.randint(0, 1),
                "clamp": rng.choice((127, rng.randint(0, 127))),
                "tag": rng.randint(0, 65535),
                "post_sem": rng.randint(0, 63),
                "post_n": rng.randint(0, 15),
            }
        )
        gemm["a_plane"] = gemm["in_w"] * rng.randint(1, 9)
        results = gemm["n_blocks"] * gemm["pixels"]
        room = {
            "a_base": core.a_words - gemm["k_blocks"] * gemm["a_plane"],
            "b_base": core.b_words - gemm["n_blocks"] * shape(gemm).taps * config.cols,
            "addend_base": core.acc_words - (gemm["n_blocks"] if gemm["addend"] == Addend.BIAS else results),
            "dest_base": (core.acc_words if gemm["to_acc"] else core.out_words) - results,
        }
        if min(room.values()) >= 0 and gemm_occupancy(config, shape(gemm)) <= windows * config.lanes:
            # Often at the edges of the memories, often on what was just written.
            return gemm | {name: rng.choice((0, rng.randint(0, most), most)) for name, most in room.items()}


@dataclass
class Outcome:
    """What a run showed."""

    accepted: list[int] = field(default_factory=list)
    retired: list[dict[str, int]] = field(default_factory=list)
    faults: list[tuple[int, int, int]] = field(default_factory=list)  #: cause, tag, value
    images: dict[Region, npt.NDArray[np.int8]] = field(default_factory=dict)
    reading: int = 0


class Bench(wiring.Component):
    """A matrix unit with a cycle counter."""

    def __init__(self, config: ChipConfig) -> None:
        self.unit = MatrixUnit(config)
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = self.unit
        m.d.sync += self.unit.now.eq(self.unit.now + 1)
        return m


def run(
    config: ChipConfig,
    memories: CoreMemories,
    gemms: Sequence[Gemm | int],
    gaps: Sequence[int] = (),
    traffic: Callable[[MatrixUnit, Any], Any] | None = None,
) -> Outcome:
    """Loads the memories through `write`, issues each GEMM `gaps[i]` cycles after the acceptance of the one before,
    and reads ACC and OUT (and some of A and B) back through `read`. `traffic(unit, context)` runs beside the GEMMs.
    """
    bench = Bench(config)
    unit = bench.unit
    simulator = Simulator(bench)
    simulator.add_clock(1e-6)
    outcome = Outcome()
    images = {
        region: memory.view(np.int8).reshape(-1, config.lanes)
        for region, memory in (
            (Region.MAIN, memories.a), (Region.B, memories.b), (Region.ACC, memories.acc), (Region.OUT, memories.out),
        )
    }  # fmt: skip
    loaded = False

    async def monitor(context: Any) -> None:
        while True:
            retire, fault = context.get(unit.retire), context.get(unit.fault)
            if retire.valid:
                outcome.retired.append({name: int(retire[name]) for name in ("tag", "post_sem", "post_n", "start", "end")})
                assert retire.end == context.get(unit.now) + 1
            if fault.valid:
                outcome.faults.append((int(fault.cause), int(fault.tag), int(fault.value)))
            outcome.reading += context.get(unit.reading)
            await context.tick()

    async def main(context: Any) -> None:
        nonlocal loaded
        for region, image in images.items():
            for offset, word in enumerate(image):
                if word.any():
                    await write(unit, context, region, offset, word)
        loaded = True
        for index, gemm in enumerate(gemms):
            for _ in range(gaps[index] if index < len(gaps) else 0):
                await context.tick()
            word = gemm if isinstance(gemm, int) else FORMAT.pack(gemm)
            context.set(unit.issue.payload, GEMM_LAYOUT.from_bits(word))
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
        for region, image in images.items():
            found = outcome.images[region] = image.copy()
            some = range(len(image)) if region in (Region.ACC, Region.OUT) else range(0, len(image), 17)
            for offset in some:
                found[offset] = await read(unit, context, region, offset, config.lanes)

    async def beside(context: Any) -> None:
        while not loaded:
            await context.tick()
        assert traffic
        await traffic(unit, context)

    simulator.add_testbench(main)
    simulator.add_testbench(monitor, background=True)
    if traffic:
        simulator.add_testbench(beside)
    simulator.run()
    return outcome


async def write(unit: MatrixUnit, context: Any, region: int, offset: int, word: npt.NDArray[np.int8]) -> None:
    data = int.from_bytes(word.tobytes(), "little")
    context.set(unit.write.payload, {"region": region, "offset": offset, "data": data})
    context.set(unit.write.valid, 1)
    while not context.get(unit.write.ready):
        await context.tick()
    await context.tick()
    context.set(unit.write.valid, 0)


async def read(unit: MatrixUnit, context: Any, region: int, offset: int, lanes: int) -> npt.NDArray[np.int8]:
    context.set(unit.read.payload, {"region": region, "offset": offset})
    context.set(unit.read.valid, 1)
    while not context.get(unit.read.ready):
        await context.tick()
    await context.tick()
    context.set(unit.read.valid, 0)
    return np.frombuffer(context.get(unit.read_data).to_bytes(lanes, "little"), np.int8)


def check(config: ChipConfig, memories: CoreMemories, gemms: Sequence[Gemm], gaps: Sequence[int] = ()) -> Outcome:
    """Runs the GEMMs and compares every result byte and every start and end cycle."""
    outcome = run(config, memories, gemms, gaps)
    expected = memories.copy()
    start, before = None, None
    assert len(outcome.retired) == len(gemms)
    for index, (gemm, accepted, retired) in enumerate(zip(gemms, outcome.accepted, outcome.retired, strict=True)):
        golden.gemm(config, expected, gemm)
        start = gemm_start(config, accepted, start, before)
        before = shape(gemm)
        wanted = {name: gemm[name] for name in ("tag", "post_sem", "post_n")}
        wanted |= {"start": start, "end": start + gemm_cycles(config, before)}
        assert retired == wanted, f"GEMM {index}: {gemm}"
    assert not outcome.faults
    assert outcome.reading == sum(gemm_occupancy(config, shape(gemm)) for gemm in gemms)
    compare(outcome, expected, config)
    return outcome


def compare(outcome: Outcome, expected: CoreMemories, config: ChipConfig) -> None:
    lanes = config.lanes
    np.testing.assert_array_equal(outcome.images[Region.MAIN], expected.a)
    np.testing.assert_array_equal(outcome.images[Region.B], expected.b)
    np.testing.assert_array_equal(outcome.images[Region.ACC].view(np.int32).reshape(-1, lanes), expected.acc)
    np.testing.assert_array_equal(outcome.images[Region.OUT], expected.out)


CHIPS = {
    "4x4": chip(4),
    "4x4 product": chip(4, product_register=True),
    "3x2 of 4": chip(4, 3, 2),
    "1x1 of 4": chip(4, 1, 1),
    "8x8": chip(8),
    "5x7 of 8 product": chip(8, 5, 7, product_register=True),
    "odd memories": chip(4, a_words=201, b_words=301, acc_words=45, out_words=33),
    "12x14 of 16": chip(16, 12, 14, a_words=64, b_words=300, acc_words=48, out_words=48),
}


@pytest.mark.parametrize("name", CHIPS)
@pytest.mark.parametrize("seed", range(2))
def test_random_sequences(name: str, seed: int) -> None:
    config = CHIPS[name]
    rng = random.Random(f"{name} {seed}")
    big = config.lanes == 16
    gemms = [random_gemm(config, rng, rng.choice((2, 6) if big else (2, 10, 60))) for _ in range(6 if big else 16)]
    gaps = [rng.choice((0, 0, 0, rng.randint(1, 2 * config.lanes), 100)) for _ in gemms]
    check(config, random_memories(config, np.random.default_rng(seed)), gemms, gaps)
