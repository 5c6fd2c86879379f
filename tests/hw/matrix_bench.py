"""Runs a matrix unit in Amaranth's simulator: memories and GEMMs in, results and cycles out. A vector unit may read its
memories meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from meshloom.hw.core.golden import CoreMemories
from meshloom.hw.core.matrix import MatrixUnit
from meshloom.hw.core.readers import GEMM_LAYOUT
from meshloom.hw.core.vector import VectorUnit
from meshloom.hw.core.walk import VEC_LAYOUT
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode, Region

Gemm = dict[str, int]
FORMAT = INSTRUCTIONS[Opcode.GEMM]


@dataclass
class Outcome:
    """What a run showed."""

    accepted: list[int] = field(default_factory=list)
    retired: list[dict[str, int]] = field(default_factory=list)
    faults: list[tuple[int, int, int]] = field(default_factory=list)  #: cause, tag, value
    images: dict[Region, npt.NDArray[np.int8]] = field(default_factory=dict)
    reading: int = 0
    seen: dict[int, npt.NDArray[np.int8]] = field(default_factory=dict)  #: `out_write`: the last word of each address
    seen_writes: int = 0
    vecs_accepted: list[int] = field(default_factory=list)
    vecs_retired: list[tuple[int, int]] = field(default_factory=list)  #: start, end


class Bench(wiring.Component):
    """A matrix unit with a cycle counter, and a vector unit at its second read ports if there is need for one."""

    def __init__(self, config: ChipConfig, vector: bool = False) -> None:
        self.unit = MatrixUnit(config)
        self.vector = VectorUnit(config) if vector else None
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = self.unit
        m.d.sync += self.unit.now.eq(self.unit.now + 1)
        if self.vector is not None:
            m.submodules.vector = self.vector
            wiring.connect(m, self.vector.operands, self.unit.operands)
            m.d.comb += self.vector.now.eq(self.unit.now)
        return m


def run(
    config: ChipConfig,
    memories: CoreMemories,
    gemms: Sequence[Gemm | int],
    gaps: Sequence[int] = (),
    traffic: Callable[[MatrixUnit, Any], Any] | None = None,
    vecs: Sequence[dict[str, int]] = (),
) -> Outcome:
    """Loads the memories through `write`, issues each GEMM `gaps[i]` cycles after the acceptance of the one before,
    and reads ACC and OUT (and some of A and B) back through `read`. `traffic(unit, context)` runs beside the GEMMs, and
    `vecs` one after another in the vector unit; what they wrote is `images[Region.VEC]`.
    """
    bench = Bench(config, bool(vecs))
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
    loaded, quiet = False, traffic is None

    async def monitor(context: Any) -> None:
        while True:
            retire, fault = context.get(unit.retire), context.get(unit.fault)
            if retire.valid:
                outcome.retired.append(
                    {name: int(retire[name]) for name in ("tag", "post_sem", "post_n", "start", "end")}
                )
                assert retire.end == context.get(unit.now) + 1
            if fault.valid:
                outcome.faults.append((int(fault.cause), int(fault.tag), int(fault.value)))
            write = context.get(unit.out_write)
            if write.en:
                word = int(write.data).to_bytes(config.lanes, "little")
                outcome.seen[int(write.addr)] = np.frombuffer(word, np.int8)
                outcome.seen_writes += 1
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
            if quiet and not context.get(unit.busy):
                break
            await context.tick()
        assert not context.get(unit.busy), "the unit hangs"
        for region, image in images.items():
            result = outcome.images[region] = image.copy()
            whole = traffic or region in (Region.ACC, Region.OUT)
            some = range(0, len(image), 1 if whole else 17)
            for offset in some:
                result[offset] = await read(unit, context, region, offset, config.lanes)

    async def vectors(context: Any) -> None:
        vector = bench.vector
        assert vector is not None
        while not loaded:
            await context.tick()
        for vec in vecs:
            word = INSTRUCTIONS[Opcode.VEC].pack(vec)
            context.set(vector.issue.payload, VEC_LAYOUT.from_bits(word))
            context.set(vector.issue.valid, 1)
            while not context.get(vector.issue.ready):
                await context.tick()
            outcome.vecs_accepted.append(context.get(unit.now))
            await context.tick()
            context.set(vector.issue.valid, 0)
        while context.get(vector.busy):
            await context.tick()
        result = outcome.images[Region.VEC] = memories.vec.copy()
        context.set(vector.read.en, 1)
        for offset in range(len(result)):
            context.set(vector.read.offset, offset)
            await context.tick()
            result[offset] = np.frombuffer(context.get(vector.read_data).to_bytes(config.lanes, "little"), np.int8)

    async def vector_monitor(context: Any) -> None:
        assert bench.vector is not None
        while True:
            retire, fault = context.get(bench.vector.retire), context.get(bench.vector.fault)
            assert not fault.valid
            if retire.valid:
                outcome.vecs_retired.append((int(retire.start), int(retire.end)))
            await context.tick()

    async def beside(context: Any) -> None:
        nonlocal quiet
        while not loaded:
            await context.tick()
        assert traffic
        await traffic(unit, context)
        quiet = True

    simulator.add_testbench(main)
    simulator.add_testbench(monitor, background=True)
    if traffic:
        simulator.add_testbench(beside)
    if vecs:
        simulator.add_testbench(vectors)
        simulator.add_testbench(vector_monitor, background=True)
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
