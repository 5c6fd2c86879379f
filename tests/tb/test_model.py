"""The timeline against the RTL, 0 cycles off: single moves of every kind, one after the other, and two that compete;
random vector operations, alone and beside matrix products, whose bytes are those of the functional executor; a move
that reads ACC beside the drain path, in every phase of its folds; and random programs. Crossfire, in which all movers
send at once: `test_crossfire.py`."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from meshloom.hw.spec.isa import Addend, Opcode, Region, Unit, VectorOp, address
from meshloom.sched.checker.check import check
from meshloom.sched.ir.functional import Memories, execute
from meshloom.sched.ir.schedule import VEC_FIELDS, Gemm, Move, Operation, Schedule, Span, Vec
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.model.timeline import play
from meshloom.tb.build.builder import build
from meshloom.tb.compare.records import pair
from meshloom.tb.devices.interface import FILL, Job
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.verify.random_programs import random_gemm, random_program, random_vec

from .hand_made import CHIP, CORE, DRAM, SPM, finish, gemm, move, notify, program, random_words, sync, vec


def jobs(seed: int, count: int) -> list[Job]:
    """Programs of a pull, a wait, two pulls at once into one core, a wait, with random sizes, runs and strides."""
    rng = np.random.default_rng(seed)
    values = []
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
        values.append(Job(program({(CORE, Unit.MOVER): code}), [(DRAM, 0, random_words(rng, 1500))], [], 20_000))
    return values


def test_single_moves_and_two_that_compete_are_predicted_to_the_cycle() -> None:
    result = jobs(1, 24)
    device = SimulatedDevice(build(CHIP, "verilator"))
    for job, run in zip(result, device.run(result), strict=True):
        timeline = play(job.program, CHIP)
        assert run.fault is None
        pairs = pair(run.records, timeline.executed)
        assert len(pairs) == len(run.records) > 6
        assert [value for value in pairs if value.differs] == []
        assert run.cycles == timeline.cycles


#: Words of each memory of the core that computing operations use (ACC: of P int32), and where results begin in DRAM.
ROOM = {Region.MAIN: 64, Region.B: 64, Region.ACC: 16, Region.OUT: 64, Region.VEC: 64}
RESULTS = 512


def computations(random: Random, count: int, gemms: float) -> list[Operation]:
    """All memories loaded; random VECs and GEMMs (a share of `gemms`), what they left now and then stored in DRAM."""
    result: list[Operation] = []
    stored = RESULTS

    def whole(tile: int, region: Region, at: int, words: int) -> Span:
        return Span(tile=tile, address=address(region, at), run=words, stride=words)

    def store(region: Region) -> None:
        nonlocal stored
        words = ROOM[region] * (4 if region is Region.ACC else 1)
        src, dst = whole(CORE, region, 0, words), whole(DRAM, Region.MAIN, stored, words)
        result.append(Move(issuer=CORE, src=src, dst=dst, words=words))
        stored += words

    at = 0
    for region in (Region.MAIN, Region.B, Region.ACC, Region.OUT):
        words = ROOM[region] * (4 if region is Region.ACC else 1)
        src, dst = whole(DRAM, Region.MAIN, at, words), whole(CORE, region, 0, words)
        result.append(Move(issuer=CORE, src=src, dst=dst, words=words))
        at += words
    # waits for the last load, so that no store competes with one
    first = vec(0, VectorOp.MAX, ROOM[Region.VEC], x_out=1).fields
    result.append(Vec(core=CORE, fields={name: first[name] for name in VEC_FIELDS}))
    slices = dict.fromkeys(ROOM, 0)
    for _ in range(count):
        if random.random() < gemms:
            result.append(Gemm(core=CORE, fields=random_gemm(random, CHIP, slices, ROOM)))
        else:
            result.append(Vec(core=CORE, fields=random_vec(random, CHIP, slices, ROOM)))
        if random.random() < 0.3:
            store(Region.VEC)
    for region in (Region.VEC, Region.OUT, Region.ACC):
        store(region)
    return result


def computing_job(operations: list[Operation], data: NDArray[np.uint8]) -> Job:
    schedule = Schedule(
        chip=CHIP.name, chip_digest=CHIP.digest, workload="random", scheduler="test", operations=tuple(operations)
    )
    result = lower(schedule, CHIP)
    check(result, CHIP)
    code = min(stream.address for stream in (*result.streams, result.boot))
    return Job(result, [(DRAM, 0, data)], [(DRAM, RESULTS, code - RESULTS)], 200_000)


@pytest.mark.parametrize("gemms", [0, 0.4])
def test_random_vector_operations_are_right_and_predicted_to_the_cycle(gemms: float) -> None:
    values, result, kinds = [], [], set()
    for seed in range(16):
        operations = computations(Random(seed), 14, gemms)
        data = random_words(np.random.default_rng(seed), RESULTS)
        values.append(computing_job(operations, data))
        kinds |= {op["op"] for op in operations if isinstance(op, Vec)}
        memories = Memories(CHIP)
        dram = memories.region(DRAM, Region.MAIN)
        dram[:], dram[: len(data)] = FILL, data
        execute(operations, memories)
        result.append(dram)
    assert kinds == set(VectorOp)
    device = SimulatedDevice(build(CHIP, "verilator"))
    for job, memory, run in zip(values, result, device.run(values), strict=True):
        assert run.fault is None
        np.testing.assert_array_equal(run.memory[0], memory[RESULTS : RESULTS + len(run.memory[0])])
        timeline = play(job.program, CHIP)
        pairs = pair(run.records, timeline.executed)
        assert len(pairs) == len(run.records)
        assert sum(value.measured.opcode is Opcode.VEC for value in pairs) > 5
        assert [value for value in pairs if value.differs] == []
        assert run.cycles == timeline.cycles


# -- ACC has one read port for the drain path and the mover ---------------------------------------------------------

#: When the first product fires, and the shape of both.
FIRE, PIXELS = 3000, 16
#: Cycles that eleven words lose at most, by blocks of K. The drain path takes 4 of 4, 8 or 16 cycles: all rows of both
#: products one after the other; three folds, less the word that was read while the head went; one fold.
LOST = {1: 32, 2: 11, 4: 4}


def beside_addends(delay: int, k_blocks: int, addend: Addend, words: int, **fields: int) -> Job:
    """ACC to the scratchpad, `delay` cycles after the first of two matrix products, when all code is there."""
    moved = move(1, (CORE, Region.ACC, 0), (SPM, Region.MAIN, 0), words, fire_at=FIRE + delay, **notify(2, CORE))
    matrix = {"k_blocks": k_blocks, "addend": addend, "addend_base": 7} | fields
    stored = {"to_acc": 1, "dest_base": 200, "post_sem": 3, "post_n": 1}
    products = [gemm(1, PIXELS, **matrix, fire_at=FIRE), gemm(2, PIXELS, **matrix, **stored)]
    streams = {
        (CORE, Unit.MOVER): [moved, sync(2, wait_sem=2, wait_n=1), finish(3)],
        (CORE, Unit.MATRIX): [*products, sync(3, wait_sem=3, wait_n=1), finish(4)],
    }
    return Job(program(streams), [], [], 20_000)


@pytest.mark.parametrize("k_blocks", [1, 2, 4])
def test_a_move_that_reads_acc_waits_for_the_drain_path(k_blocks: int) -> None:
    """All delays from before the first product to behind the second, over whole folds."""
    products = 2 * PIXELS // CHIP.rows * k_blocks * CHIP.lanes
    kinds = [addend for _ in range(products + 20) for addend in Addend]
    result = [beside_addends(at // len(Addend), k_blocks, addend, words=11) for at, addend in enumerate(kinds)]
    took: dict[Addend, list[int]] = {addend: [] for addend in Addend}
    for job, addend, run in zip(result, kinds, SimulatedDevice(build(CHIP, "verilator")).run(result), strict=True):
        assert run.fault is None
        timeline = play(job.program, CHIP)
        pairs = pair(run.records, timeline.executed)
        assert len(pairs) == len(run.records) == len(timeline.executed)
        assert [value for value in pairs if value.differs] == []
        assert run.cycles == timeline.cycles
        (moved,) = [record for record in run.records if record.opcode is Opcode.MOVE]
        took[addend].append(moved.end - moved.start)
    (alone,) = set(took[Addend.NONE])
    assert took[Addend.BIAS] == took[Addend.PARTIAL]
    # from one cycle, where only the last word has to wait, to all folds that drain meanwhile
    lost = {cycles - alone for cycles in took[Addend.BIAS]}
    assert lost >= set(range(CHIP.rows + 1))
    assert max(lost) == LOST[k_blocks]


@pytest.mark.parametrize(("k_blocks", "addend"), [(1, Addend.BIAS), (2, Addend.BIAS), (2, Addend.PARTIAL)])
def test_a_move_that_reads_acc_waits_for_multipliers(k_blocks: int, addend: Addend) -> None:
    """By channel a fold reads its bias once, then multipliers; with partial sums the multipliers before these."""
    products = 2 * PIXELS // CHIP.rows * k_blocks * CHIP.lanes
    delays = range(products + 20)
    result = [beside_addends(delay, k_blocks, addend, words=11, by_channel=1, scale=8) for delay in delays]
    took: set[int] = set()
    for job, run in zip(result, SimulatedDevice(build(CHIP, "verilator")).run(result), strict=True):
        assert run.fault is None
        timeline = play(job.program, CHIP)
        pairs = pair(run.records, timeline.executed)
        assert len(pairs) == len(run.records) == len(timeline.executed)
        assert [value for value in pairs if value.differs] == []
        assert run.cycles == timeline.cycles
        (moved,) = [record for record in run.records if record.opcode is Opcode.MOVE]
        took.add(moved.end - moved.start)
    assert len(took) > 3


def test_random_programs_are_predicted_to_the_cycle() -> None:
    """Everything at once on one core; in a third of them a move reads ACC while the drain path does."""
    values = []
    for seed in range(40):
        random = Random(seed)
        result = random_program(random, CHIP, random.randint(5, 40), threads=1 + seed % 4)
        values.append(Job(result, [], [], 200_000))
    for job, run in zip(values, SimulatedDevice(build(CHIP, "verilator")).run(values), strict=True):
        timeline = play(job.program, CHIP)
        assert run.fault is None
        pairs = pair(run.records, timeline.executed, job.program)
        assert len(pairs) == len(run.records) == len(timeline.executed)
        assert [value for value in pairs if value.differs] == []
        assert run.cycles == timeline.cycles
