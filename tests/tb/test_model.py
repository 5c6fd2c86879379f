"""The timeline against the RTL, 0 cycles off: single moves of every kind, one after the other, and two that compete;
random vector operations, alone and beside matrix products, whose bytes are those of the functional executor."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from meshloom.hw.isa import Opcode, Region, Unit, VectorOp, address
from meshloom.sched.functional import Memories, execute
from meshloom.sched.model.timeline import play
from meshloom.sched.program.check import check
from meshloom.sched.program.lower import lower
from meshloom.sched.program.random_programs import random_gemm, random_vec
from meshloom.sched.schedule import Gemm, Move, Operation, Schedule, Span, Vec
from meshloom.tb.build import build
from meshloom.tb.compare import pair
from meshloom.tb.device import FILL, Job, SimulatedDevice

from .hand_made import CHIP, CORE, DRAM, SPM, finish, move, notify, program, random_words, sync, vec


def jobs(seed: int, count: int) -> list[Job]:
    """Programs of a pull, a wait, two pulls at once into one core, a wait, with random sizes, runs and strides."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        words = int(rng.integers(1, 200))
        src_run, dst_run = (int(run) for run in rng.integers(1, 80, 2))
        spread = {"src_run": src_run, "src_stride": src_run + int(rng.integers(0, 9)), "dst_run": dst_run}
        spread["dst_stride"] = dst_run + int(rng.integers(0, 9))
        at = int(rng.integers(0, 70))
        code = [
            move(1, (DRAM, Region.MAIN, at), (SPM, Region.MAIN, at), words, **spread, **notify(2, CORE)),
            sync(2, wait_sem=2, wait_n=1),
            move(3, (DRAM, Region.MAIN, at), (CORE, Region.MAIN, at), words, **notify(3, CORE)),
            move(4, (SPM, Region.MAIN, at), (CORE, Region.B, at), words, **notify(3, CORE)),
            sync(5, wait_sem=3, wait_n=2),
            finish(6),
        ]
        made.append(Job(program({(CORE, Unit.MOVER): code}), [(DRAM, 0, random_words(rng, 1500))], [], 20_000))
    return made


def test_single_moves_and_two_that_compete_are_predicted_to_the_cycle() -> None:
    given = jobs(1, 24)
    device = SimulatedDevice(build(CHIP, "verilator"))
    for job, run in zip(given, device.run(given), strict=True):
        timeline = play(job.program, CHIP)
        assert run.fault is None
        pairs = pair(run.records, timeline.executed)
        assert len(pairs) == len(run.records) > 6
        assert [found for found in pairs if found.differs] == []
        assert run.cycles == timeline.cycles


#: Words of each memory of the core that computing operations use (ACC: of P int32), and where results begin in DRAM.
ROOM = {Region.MAIN: 64, Region.B: 64, Region.ACC: 16, Region.OUT: 64, Region.VEC: 64}
RESULTS = 512


def computations(random: Random, count: int, gemms: float) -> list[Operation]:
    """All memories loaded; random VECs and GEMMs (a share of `gemms`), what they left now and then stored in DRAM."""
    found: list[Operation] = []
    stored = RESULTS

    def whole(tile: int, region: Region, at: int, words: int) -> Span:
        return Span(tile=tile, address=address(region, at), run=words, stride=words)

    def store(region: Region) -> None:
        nonlocal stored
        words = ROOM[region] * (4 if region is Region.ACC else 1)
        src, dst = whole(CORE, region, 0, words), whole(DRAM, Region.MAIN, stored, words)
        found.append(Move(issuer=CORE, src=src, dst=dst, words=words))
        stored += words

    at = 0
    for region in (Region.MAIN, Region.B, Region.ACC, Region.OUT):
        words = ROOM[region] * (4 if region is Region.ACC else 1)
        src, dst = whole(DRAM, Region.MAIN, at, words), whole(CORE, region, 0, words)
        found.append(Move(issuer=CORE, src=src, dst=dst, words=words))
        at += words
    # waits for the last load, so that no store competes with one
    first = vec(0, VectorOp.MAX, ROOM[Region.VEC], x_out=1).fields
    found.append(Vec(core=CORE, fields={name: value for name, value in first.items() if name != "tag"}))
    slices = dict.fromkeys(ROOM, 0)
    for _ in range(count):
        if random.random() < gemms:
            found.append(Gemm(core=CORE, fields=random_gemm(random, CHIP, slices, ROOM)))
        else:
            found.append(Vec(core=CORE, fields=random_vec(random, CHIP, slices, ROOM)))
        if random.random() < 0.3:
            store(Region.VEC)
    for region in (Region.VEC, Region.OUT, Region.ACC):
        store(region)
    return found


def computing_job(operations: list[Operation], data: NDArray[np.uint8]) -> Job:
    schedule = Schedule(
        chip=CHIP.name, chip_digest=CHIP.digest, workload="random", scheduler="test", operations=tuple(operations)
    )
    made = lower(schedule, CHIP)
    check(made, CHIP)
    code = min(stream.address for stream in (*made.streams, made.boot))
    return Job(made, [(DRAM, 0, data)], [(DRAM, RESULTS, code - RESULTS)], 200_000)


@pytest.mark.parametrize("gemms", [0, 0.4])
def test_random_vector_operations_are_right_and_predicted_to_the_cycle(gemms: float) -> None:
    given, wanted, kinds = [], [], set()
    for seed in range(16):
        operations = computations(Random(seed), 14, gemms)
        data = random_words(np.random.default_rng(seed), RESULTS)
        given.append(computing_job(operations, data))
        kinds |= {op["op"] for op in operations if isinstance(op, Vec)}
        memories = Memories(CHIP)
        dram = memories.region(DRAM, Region.MAIN)
        dram[:], dram[: len(data)] = FILL, data
        execute(operations, memories)
        wanted.append(dram)
    assert kinds == set(VectorOp)
    device = SimulatedDevice(build(CHIP, "verilator"))
    for job, memory, run in zip(given, wanted, device.run(given), strict=True):
        assert run.fault is None
        np.testing.assert_array_equal(run.memory[0], memory[RESULTS : RESULTS + len(run.memory[0])])
        timeline = play(job.program, CHIP)
        pairs = pair(run.records, timeline.executed)
        assert len(pairs) == len(run.records)
        assert sum(found.measured.opcode is Opcode.VEC for found in pairs) > 5
        assert [found for found in pairs if found.differs] == []
        assert run.cycles == timeline.cycles
