"""Samples: a program for a chip, and what the model and the executor say of it before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, VectorOp, address, units_of, vector_ops
from meshloom.hw.spec.timing import table_words
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.ir.functional import Memories, execute
from meshloom.sched.ir.schedule import Move, Operation, Span, Vec, memory_words
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.model.records import ModelError
from meshloom.sched.model.timeline import Timeline, play
from meshloom.sched.program.program import Program, ProgramError

from ...compare.records import pair
from ...devices.interface import Job, Run
from ..damage import damaged
from ..random_programs import random_program, with_fire_times
from ..random_schedules import DATA_REGIONS, DATA_WORDS, copy_of_a, random_operations, schedule_of

#: Programs that are predicted to take longer are not run: a damaged fire time may be any number.
MOST_CYCLES = 100_000
#: Words of each memory (ACC: of P int32, B: besides what the largest random GEMM reads) that random operations find
#: filled; of each channel, those that are compared, and where what memories are filled with lies.
_FILLED, _KEPT, _SOURCE = 128, 4000, 4096
#: Words of B in which tables of random VECs begin.
_FIRST_TABLES = 8
#: Words after `_SOURCE` that fills read.
_SOURCE_WORDS = 4 * _FILLED + 100
#: Threads of a random program, where a chip has room for them; the share of instructions with a fire time.
_THREADS, _TIMED = 4, 0.15


class ProgramKind(StrEnum):
    """What a sample is drawn as."""

    PROGRAM = "program"  #: instructions of all kinds in every stream, untimed
    TIMED = "timed"  #: the same, some with a fire time
    SCHEDULE = "schedule"  #: operations with dependences, lowered; its bytes are compared, too
    DAMAGED = "damaged"  #: a program or a timed one, of which one field is another


@dataclass(frozen=True)
class SampleKey:
    """All that decides a sample on its chip. `size`: operations (of each thread); `omitted`: numbers of those of a
    schedule that are left out, after it has been drawn."""

    kind: ProgramKind
    seed: int
    size: int
    omitted: tuple[int, ...] = ()


@dataclass(frozen=True)
class FuzzSample:
    """A job, its prediction, and the first words of each channel that the executor leaves, uint8 [n, P] each; none if
    bytes are not compared."""

    job: Job
    timeline: Timeline
    words: Sequence[NDArray[np.uint8]] = ()


class OmittedError(ValueError):
    """The sample is not run; the message says why, in few words, to be counted."""


class Disagreement(ValueError):
    """Two of those that have to say the same do not; the message says which, and in what."""


def draw(origin: SampleKey, chip: ChipConfig) -> FuzzSample:
    """The sample. Raises OmittedError, and Disagreement if what the checker accepts is nothing that the model can
    play."""
    random = Random(f"{origin.kind} {origin.seed}")
    if origin.kind is ProgramKind.SCHEDULE:
        return _schedule(random, origin, chip)
    program = _program(random, origin, chip)
    if origin.kind is ProgramKind.DAMAGED:
        program = damaged(random, program)
        try:
            check(program, chip)
        except CheckError:
            raise OmittedError("refused by the checker") from None
    return FuzzSample(_job(program), _played(program, chip))


def _program(random: Random, origin: SampleKey, chip: ChipConfig) -> Program:
    threads = random.randint(1, _THREADS)
    while True:
        try:
            program = random_program(random, chip, origin.size, threads)
        except ValueError as error:
            if threads == 1:
                raise OmittedError("no room for a thread") from error
            threads -= 1
        else:
            break
    timed = origin.kind is ProgramKind.TIMED or (origin.kind is ProgramKind.DAMAGED and random.random() < 0.5)
    return with_fire_times(random, program, chip, _TIMED) if timed else program


def _job(program: Program) -> Job:
    return Job(program, [], [], watchdog=2 * MOST_CYCLES, stall_limit=0)


def _played(program: Program, chip: ChipConfig) -> Timeline:
    try:
        timeline = play(program, chip)
    except ModelError as error:
        raise Disagreement(f"the checker accepts it, the model does not: {error}") from error
    if timeline.cycles > MOST_CYCLES:
        raise OmittedError("too long")
    return timeline


def _schedule(random: Random, origin: SampleKey, chip: ChipConfig) -> FuzzSample:
    fills, stores = _around(random, chip)
    drawn = random_operations(random, chip, origin.size)
    some = [operation for number, operation in enumerate(drawn) if number not in origin.omitted]
    operations = [*fills, *some, *stores]
    try:
        program = lower(schedule_of(operations, chip), chip)
    except ProgramError:
        raise OmittedError("too few semaphores") from None
    try:
        check(program, chip)
    except CheckError as error:
        raise Disagreement(f"the lowering made it, the checker refuses it: {error}") from error
    data = np.random.default_rng(origin.seed).integers(0, 256, (_SOURCE + _SOURCE_WORDS, chip.lanes), np.uint8)
    memories = Memories(chip)
    for dram in chip.drams:
        memories.region(dram, Region.MAIN)[: len(data)] = data
    execute(operations, memories)
    words = [memories.region(dram, Region.MAIN)[:_KEPT] for dram in chip.drams]
    places = [(dram, 0, data) for dram in chip.drams]
    job = replace(_job(program), memory=places, outputs=[(dram, 0, _KEPT) for dram in chip.drams])
    return FuzzSample(job, _played(program, chip), words)


def _around(random: Random, chip: ChipConfig) -> tuple[list[Operation], list[Operation]]:
    """What fills the memories before random operations, and what stores them afterwards, those that can be read."""
    if chip.core.has_vector and VectorOp.MAX not in vector_ops(chip.core):
        raise OmittedError("a vector unit that cannot copy")
    places = [(tile, region) for tile in chip.tiles for region in DATA_REGIONS if tile not in chip.channels]
    # whose stream has what one would have: its own where it has one
    issuers = {tile: tile if units_of(chip, kind) else chip.cores[0] for tile, kind in chip.tiles.items()}
    weights = max(_FILLED // 4 + 16 * chip.cols, _FIRST_TABLES + table_words(chip))
    filled = {Region.ACC: 4 * _FILLED, Region.B: weights}
    sizes = {place: filled.get(place[1], _FILLED) for place in places if memory_words(chip, *place)}
    home = dict.fromkeys(chip.drams, DATA_WORDS)
    fills, stores = list[Operation](), list[Operation]()
    for dram in chip.drams:  # whose code then lies behind the words that are compared
        there, here = (Span(tile=tile, address=at, run=1) for tile, at in ((dram, _SOURCE), (chip.cores[0], 0)))
        fills.append(Move(issuer=issuers[dram], src=there, dst=here, words=1))
    for (tile, region), words in sizes.items():
        here = Span(tile=tile, address=address(region, 0), run=words)
        if region is Region.VEC:
            fills.append(Vec(core=tile, fields=copy_of_a(words)))
        else:
            dram = random.choice(chip.drams)
            there = Span(tile=dram, address=address(Region.MAIN, _SOURCE + random.randrange(100)), run=words)
            fills.append(Move(issuer=issuers[random.choice((tile, dram))], src=there, dst=here, words=words))
        if tile in chip.spms or region in (Region.ACC, Region.OUT, Region.VEC):
            dram = min(home, key=home.__getitem__)
            there = Span(tile=dram, address=address(Region.MAIN, home[dram]), run=words)
            stores.append(Move(issuer=issuers[tile], src=here, dst=there, words=words))
            home[dram] += words
    if max(home.values()) > _KEPT:
        raise OmittedError("more memories than are compared")
    return fills, stores


def difference(sample: FuzzSample, run: Run, chip: ChipConfig) -> str:
    """What the RTL says otherwise than model and executor, in words; empty if nothing. Of a chip without trace memory,
    cycles and bytes."""
    if run.fault is not None:
        return f"a fault that nobody predicts: {run.fault.describe(chip)}"
    if chip.trace_records:
        if run.trace_shortage:
            return run.trace_shortage
        executed = sample.timeline.executed
        pairs = pair(run.records, executed)
        for value in pairs:
            if value.differs or value.measured.wait != value.predicted.wait:
                return f"measured {value.measured}, predicted {value.predicted}"
        if not len(pairs) == len(run.records) == len(executed):
            return f"{len(run.records)} records, {len(executed)} predicted"
    if run.cycles != sample.timeline.cycles:
        return f"{run.cycles:,} cycles, {sample.timeline.cycles:,} predicted"
    for dram, words, array in zip(chip.drams, sample.words, run.memory, strict=True) if sample.words else ():
        if wrong := np.flatnonzero((words != array).any(axis=1)).tolist():
            return f"{len(wrong)} words of DRAM tile {dram:#04x} are not the executor's, the first at {wrong[0]}"
    return ""
