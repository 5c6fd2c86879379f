"""The timeline against the RTL, 0 cycles off, where packets share links and tiles: virtual channels, routes, both
dimension orders, fire times, arrivals; and the table of latencies, and what a circle of routes does."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import CREDIT_WORDS
from meshloom.hw.spec.isa import Cause, Opcode, Region, Unit, address
from meshloom.hw.spec.routes import dimension_ordered
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.ir.functional import Memories, execute
from meshloom.sched.ir.schedule import Move, Operation, Span, Vec, memory_words
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.model.latency import landing
from meshloom.sched.model.timeline import ModelError, Timeline, play
from meshloom.sched.program.program import Instruction, Program, place
from meshloom.sched.program.routes import route_fields
from meshloom.tb.build.builder import build
from meshloom.tb.compare.records import pair
from meshloom.tb.devices.interface import Job, Run
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.verify.random_programs import random_program, with_fire_times
from meshloom.tb.verify.random_schedules import DATA_REGIONS, DATA_WORDS, copy_of_a, random_operations, schedule_of

from ..tiers import slow_but
from .crossfire import crossfire, finished
from .hand_made import CODE, move, notify, random_words, sync
from .ways import GAPS, WAYS

_PLACES = {"lanes": 4, "floorplan": ["dram core spm", "host core dram"], "mover_queue": 2}
#: Three channels of small buffers, and DRAM that is slower than a word a cycle, from which tiles read in turn.
THREE = ChipConfig.model_validate(
    {
        "name": "three",
        "dram": {"bytes_per_cycle": 3, "latency": 13, "arbitration": "round_robin"},
        "noc": {
            "data_vcs": 3,
            "data_depth": 2,
            "request_depth": 2,
            "data_routing": "yx",
            "route_hops": 5,
            "arrivals": True,
        },
    }
    | _PLACES
)
#: One virtual channel; DRAM channels with half a word a cycle, which send packets whole, and from which tiles read by
#: credit.
WHOLE = ChipConfig.model_validate(
    {
        "name": "whole",
        "dram": {
            "bytes_per_cycle": 2,
            "latency": 13,
            "whole_packets": True,
            "arbitration": "weighted",
            "weights": (3, 1),
        },
        "noc": {"data_depth": 3, "request_depth": 2, "data_routing": "yx", "route_hops": 5, "arrivals": True},
    }
    | _PLACES
)
CHIPS = {"ways": WAYS, "three": THREE, "whole": WHOLE, "gaps": GAPS}
#: A simulator takes a minute to build: the first tier makes do with one that other tests need, too.
NAMES = slow_but(CHIPS, "ways")
#: Those on which packets can go around a square of tiles.
SQUARE = slow_but([name for name in CHIPS if name != "gaps"], "ways")


def runs(chip: ChipConfig, jobs: list[Job]) -> list[Run]:
    return list(SimulatedDevice(build(chip, "verilator")).run(jobs))


def exact(run: Run, timeline: Timeline) -> bool:
    """Whether every record, waits and arrivals included, is as predicted, and none is missing."""
    assert run.fault is None
    pairs = pair(run.records, timeline.executed)
    assert [value for value in pairs if value.differs or value.measured.wait != value.predicted.wait] == []
    assert len(pairs) == len(run.records) == len(timeline.executed)
    return run.cycles == timeline.cycles


@pytest.mark.parametrize("name", NAMES)
def test_crossfire_over_all_ways_is_predicted_to_the_cycle(name: str) -> None:
    chip = CHIPS[name]
    jobs = [crossfire(seed, chip, seed % 2 == 1) for seed in range(16)]
    arrivals = routes = 0
    for job, run in zip(jobs, runs(chip, jobs), strict=True):
        timeline = play(job.program, chip)
        assert exact(run, timeline)
        arrivals += sum(entry.unit is Unit.NONE for entry in timeline.executed)
        routes += sum(entry.opcode is Opcode.ROUTE for entry in timeline.executed)
    assert arrivals > 1500
    assert routes > 300 or not chip.noc.route_hops


@pytest.mark.parametrize("name", NAMES)
def test_random_programs_are_predicted_to_the_cycle(name: str) -> None:
    """Units that wait for each other, and moves that read ACC while the drain path does."""
    jobs = []
    for seed in range(16):
        random = Random(seed)
        program = random_program(random, CHIPS[name], random.randint(5, 40), threads=1 + seed % 4)
        jobs.append(Job(program, [], [], 200_000))
    for job, run in zip(jobs, runs(CHIPS[name], jobs), strict=True):
        assert exact(run, play(job.program, CHIPS[name]))


@pytest.mark.parametrize("name", NAMES)
def test_fire_times_are_predicted_to_the_cycle(name: str) -> None:
    chip = CHIPS[name]
    jobs = [crossfire(seed, chip, seed % 2 == 1, count=10) for seed in range(100, 108)]
    jobs = [replace(job, program=with_fire_times(Random(at), job.program, chip, 0.15)) for at, job in enumerate(jobs)]
    timed = 0
    for job, run in zip(jobs, runs(chip, jobs), strict=True):
        assert exact(run, play(job.program, chip))
        timed += sum(bool(i.fields.get("fire_at")) for stream in job.program.streams for i in stream.instructions)
    assert timed > 80


@pytest.mark.parametrize("name", NAMES)
def test_a_fire_time_that_the_model_calls_late_is_a_fault(name: str) -> None:
    chip = CHIPS[name]
    spm = chip.spms[0]
    code = [sync(1, fire_at=1000), sync(2, fire_at=1003), sync(3, fire_at=1005), finished(chip, 4)]
    placed, boot = place({(spm, Unit.MOVER): tuple(code)}, dict.fromkeys(chip.drams, CODE), chip)
    program = Program(chip.digest, placed, boot, {})
    with pytest.raises(ModelError, match=r"SYNC tag 3, .* is ready only in cycle 1006"):
        play(program, chip)
    (run,) = runs(chip, [Job(program, [], [], 20_000)])
    assert run.fault is not None
    assert (run.fault.cause, run.fault.tile, run.fault.tag, run.fault.value) == (Cause.LATE, spm, 3, 1)


def scheduled(seed: int, chip: ChipConfig) -> tuple[Job, NDArray[np.uint8]]:
    """A random schedule whose moves go all ways, lowered; and what it must leave in the words `_KEPT` of each channel:
    what random operations have written there, and behind that all other memories."""
    random = Random(seed)
    places = [(tile, region) for tile in chip.tiles for region in DATA_REGIONS if tile not in chip.drams]
    places = [place for place in places if memory_words(chip, *place)]
    sizes = {place: 4 * _FILLED if place[1] is Region.ACC else _FILLED for place in places}
    home = dict.fromkeys(chip.drams, DATA_WORDS)
    fills, stores = list[Operation](), list[Operation]()
    for (tile, region), words in sizes.items():
        here = Span(tile=tile, address=address(region, 0), run=words)
        if region is Region.VEC:
            fills.append(Vec(core=tile, fields=copy_of_a(words)))
        else:
            dram = random.choice(chip.drams)
            there = Span(tile=dram, address=address(Region.MAIN, _LOADED + random.randrange(100)), run=words)
            fills.append(Move(issuer=random.choice((tile, dram)), src=there, dst=here, words=words))
        if tile in chip.spms or region in (Region.ACC, Region.OUT, Region.VEC):  # others cannot be read
            dram = min(home, key=home.__getitem__)
            there = Span(tile=dram, address=address(Region.MAIN, home[dram]), run=words)
            stores.append(Move(issuer=tile, src=here, dst=there, words=words))
            home[dram] += words
    assert max(home.values()) <= _KEPT <= _LOADED
    operations = [*fills, *random_operations(random, chip, 40), *stores]
    schedule = schedule_of(operations, chip)
    program = lower(schedule, chip)
    check(program, chip)
    loaded = random_words(np.random.default_rng(seed), _LOADED + 1000)
    memories = Memories(chip)
    for dram in chip.drams:
        memories.region(dram, Region.MAIN)[: len(loaded)] = loaded
    execute(operations, memories)
    array = np.stack([memories.region(dram, Region.MAIN)[:_KEPT] for dram in chip.drams])
    assert any(isinstance(op, Move) and op.route for op in operations)
    job = Job(program, [(dram, 0, loaded) for dram in chip.drams], [(dram, 0, _KEPT) for dram in chip.drams], 100_000)
    return job, array


#: Words of each memory (ACC: of P int32) that random operations find filled, and of each channel: those compared, and
#: where what memories are filled with begins.
_FILLED, _KEPT, _LOADED = 128, 1600, 2000


@pytest.mark.parametrize("name", slow_but(["ways", "three"], "ways"))
def test_random_schedules_over_all_ways_leave_the_right_bytes(name: str) -> None:
    pairs = [scheduled(seed, CHIPS[name]) for seed in range(8)]
    for (_, array), run in zip(pairs, runs(CHIPS[name], [job for job, _ in pairs]), strict=True):
        assert run.fault is None
        np.testing.assert_array_equal(np.stack(run.memory), array)


# -- the table of latencies -----------------------------------------------------------------------------------------

WORDS = (1, 2, 5, 63, 64, 65, 130, 200)
#: From the scratchpad: in dimension order, and over routes of up to five hops.
PATHS = (
    (0x02, 0x01),
    (0x02, 0x12, 0x11),
    (0x02, 0x12, 0x11, 0x01),
    (0x02, 0x01, 0x00, 0x10, 0x11),
    (0x02, 0x12, 0x11, 0x10, 0x00, 0x01),
)


def one_by_one(chip: ChipConfig, words: int) -> tuple[Job, dict[int, tuple[int, bool]]]:
    """MOVEs of so many words from the scratchpad and to it, each after the one before has been delivered, when all code
    is there; by tag: hops, and whether from DRAM."""
    spm, code, pairs = chip.spms[0], [sync(1, fire_at=3000)], dict[int, tuple[int, bool]]()

    def add(source: int, target: int, hops: int) -> None:
        code.append(move(len(code) + 1, (source, Region.MAIN, 0), (target, Region.MAIN, 256), words, **notify(2, spm)))
        pairs[len(code)] = hops, source in chip.drams
        code.append(sync(len(code) + 1, wait_sem=2, wait_n=1))

    for target in (spm, *chip.cores):
        add(spm, target, len(dimension_ordered(spm, target, "yx")) - 1)
    for path in PATHS:
        route = route_fields(chip, path, 1 if chip is THREE else None)
        code.append(Instruction(Opcode.ROUTE, {"tag": len(code) + 1} | route))
        add(spm, path[-1], len(path) - 1)
    if chip.dram.bytes_per_cycle == chip.lanes:
        add(chip.drams[1], spm, 1)
    assert len(code) < chip.ring_instructions
    streams = {(spm, Unit.MOVER): (*code, finished(chip, len(code) + 1))}
    placed, boot = place(streams, dict.fromkeys(chip.drams, CODE), chip)
    return Job(Program(chip.digest, placed, boot, {}), [], [], 60_000), pairs


@pytest.mark.parametrize("name", SQUARE)
def test_moves_on_an_idle_mesh_take_what_the_closed_form_says(name: str) -> None:
    chip = CHIPS[name]
    pairs = {words: one_by_one(chip, words) for words in WORDS}
    table = set()
    for (words, (job, result)), run in zip(pairs.items(), runs(chip, [job for job, _ in pairs.values()]), strict=True):
        assert exact(run, play(job.program, chip))
        for tag, (hops, from_dram) in result.items():
            mine = [record for record in run.records if record.tag == tag and record.opcode is Opcode.MOVE]
            end = max(record.end for record in mine if record.unit is Unit.NONE)
            start = max(record.start for record in mine if record.unit is Unit.MOVER)  # of a pull: where it is executed
            assert end - start == landing(chip, hops, words, from_dram=from_dram), (hops, words)
            table.add((hops, words))
    assert table == {(hops, words) for hops in range(6) for words in WORDS}


# -- circles --------------------------------------------------------------------------------------------------------


def round_the_square(chip: ChipConfig) -> Program:
    """Four MOVEs at once, each over two links of the square on the right."""
    square = (0x01, 0x02, 0x12, 0x11)
    streams = {}
    ahead = chip.dram.latency  # so that all heads leave in the same cycle
    if chip.dram.whole_packets:
        ahead += (chip.packet_words - CREDIT_WORDS) * chip.lanes // chip.dram.bytes_per_cycle
    for at in range(4):
        path = tuple(square[(at + step) % 4] for step in range(3))
        source, region = path[0], Region.MAIN if path[0] in chip.drams else Region.TRACE
        fire = 2000 - (ahead if path[0] in chip.drams else 0)
        streams[source, Unit.MOVER] = (
            Instruction(Opcode.ROUTE, {"tag": 1} | route_fields(chip, path, 0)),
            move(2, (source, region, 0), (path[-1], Region.MAIN, 512), 200, fire_at=fire, **notify(1, source)),
            sync(3, wait_sem=1, wait_n=1),
            finished(chip, 4),
        )
    placed, boot = place(streams, dict.fromkeys(chip.drams, CODE), chip)
    return Program(chip.digest, placed, boot, {})


@pytest.mark.parametrize("name", SQUARE)
def test_what_the_checker_refuses_stands_still_on_the_chip(name: str) -> None:
    chip = CHIPS[name]
    program = round_the_square(chip)
    with pytest.raises(CheckError, match="data plane: packets on virtual channel 0 can deadlock"):
        check(program, chip)
    with pytest.raises(ModelError, match="or packets deadlock"):
        play(program, chip)
    (run,) = runs(chip, [Job(program, [], [], 50_000, stall_limit=500)])
    assert run.fault is not None
    assert run.fault.cause is Cause.STALLED
