"""MOVEs on virtual channels and source routes, on RTL: right bytes, the same run on both simulators, arrivals in closed
form, and links that count what passes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from meshloom.hw.control.trace import LINK_BLOCKED, LINK_BUSY
from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.contracts import HEAD_CYCLES
from meshloom.hw.spec.isa import Cause, Opcode, Region, Unit
from meshloom.hw.spec.timing import noc_arrival
from meshloom.hw.wiring.link_counters import OUTPUTS
from meshloom.sched.checker.channel_dependences import DependenceGraph
from meshloom.sched.checker.check import check
from meshloom.sched.model.timeline import play
from meshloom.sched.program.packets import packets
from meshloom.sched.program.program import Instruction, Program
from meshloom.sched.program.routes import default_route
from meshloom.tb.build.builder import SIMULATORS, build
from meshloom.tb.compare.explain import explain
from meshloom.tb.compare.records import pair
from meshloom.tb.devices.interface import Job, Run
from meshloom.tb.devices.readout import Record
from meshloom.tb.devices.simulated import SimulatedDevice

from ..tiers import slow_but
from .hand_made import move, notify, sync
from .ways import MAIN, TOUR, TOUR_YX, WAYS, WAYS_YX, flits_on_links, movers, route, tour, ways

TOURS = {"ways": tour(WAYS, TOUR, 1), "ways_yx": tour(WAYS_YX, TOUR_YX, 2), "few words": tour(WAYS, TOUR, 3, words=1)}
CHIPS = {"ways": WAYS, "ways_yx": WAYS_YX, "few words": WAYS}
#: Tours and simulators: Verilator's takes a minute to build for each chip.
EACH = [
    ("ways", "icarus"),
    ("few words", "icarus"),
    *(
        pytest.param(*each, marks=pytest.mark.slow)
        for each in (("ways", "verilator"), ("few words", "verilator"), ("ways_yx", "icarus"))
    ),
]


class Runs(dict[tuple[str, str], Run]):
    """(simulator, tour) -> run; made when first asked for, because a simulator takes a minute for each chip."""

    def __missing__(self, key: tuple[str, str]) -> Run:
        simulator, chip = key[0], CHIPS[key[1]]
        mine = {(simulator, name): case.job for name, case in TOURS.items() if CHIPS[name] is chip}
        device = SimulatedDevice(build(chip, simulator))
        self.update(zip(mine, device.run(list(mine.values()), "ways"), strict=True))
        return self[key]


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs()


@pytest.mark.parametrize(("name", "simulator"), EACH)
def test_every_byte_arrives_over_every_detour(name: str, simulator: str, runs: Runs) -> None:
    run = runs[simulator, name]
    assert run.fault is None
    for got, array in zip(run.memory, TOURS[name].expected, strict=True):
        np.testing.assert_array_equal(got, array)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ways", "few words"])
def test_both_simulators_agree_to_the_last_cycle(name: str, runs: Runs) -> None:
    first, second = (runs[simulator, name] for simulator in SIMULATORS)
    assert first.cycles == second.cycles > 0
    assert first.records == second.records
    assert first.counters == second.counters


@pytest.mark.parametrize("name", slow_but(TOURS, "ways", "few words"))
def test_the_links_count_every_flit_of_a_busy_mesh(name: str, runs: Runs) -> None:
    """However they wait for each other: a flit that leaves is one busy cycle, on the links of its way and no other."""
    run, chip = runs["icarus", name], CHIPS[name]
    assert busy_of(run, chip) == flits_on_links(TOURS[name].job.program, chip)
    blocked = sum(run.counters[tile][counter] for tile in chip.tiles for counter in LINK_BLOCKED)
    assert blocked > 0 or name == "few words"


@pytest.mark.parametrize("name", slow_but(TOURS, "ways", "few words"))
def test_the_ways_of_a_tour_are_detours_without_a_circle(name: str) -> None:
    chip, job, dependences = CHIPS[name], TOURS[name].job, DependenceGraph()
    for stream in (*job.program.streams, job.program.boot):
        dependences.add(default_route(chip, stream.dram_tile, stream.tile), "code")
    used = set()
    for _, fields, way in ways(job.program, chip):
        dependences.add(way, str(fields["tag"]))
        if fields["tag"] != 8:
            used.add(way.channel)
            assert way != default_route(chip, way.tiles[0], way.tiles[-1])
    assert dependences.shortest_cycle() == []
    assert used == set(range(chip.noc.data_vcs))


@pytest.mark.parametrize("name", ["ways", "few words"])
def test_each_packet_of_a_tour_leaves_one_arrival(name: str, runs: Runs) -> None:
    """Where it came, with its words, within the run; and every ROUTE a record of its own. Without: not one."""
    run, job = runs["icarus", name], TOURS[name].job
    sent = [
        (fields["dst_tile"], fields["tag"], words)
        for _, fields, _ in ways(job.program, WAYS)
        for _, words in packets(fields, WAYS.packet_words)
    ]
    arrivals = arrivals_of(run)
    assert sorted((record.tile, record.tag, record.wait) for record in arrivals) == sorted(sent)
    for record in arrivals:
        assert record.opcode is Opcode.MOVE
        assert 0 < record.start < record.end <= run.cycles
    routes = [record for record in run.records if record.opcode is Opcode.ROUTE]
    assert sorted((record.tile, record.tag) for record in routes) == [(tile, tag) for tile in TOUR for tag in (1, 4, 6)]
    assert all(record.unit is Unit.MOVER for record in routes)


@pytest.mark.slow
def test_a_chip_without_arrivals_leaves_none(runs: Runs) -> None:
    assert arrivals_of(runs["icarus", "ways_yx"]) == []


@pytest.mark.parametrize("name", slow_but(TOURS, "ways", "few words"))
def test_the_model_says_the_same_of_every_record(name: str, runs: Runs) -> None:
    """Instructions and arrivals, each with its own prediction; one that comes a cycle late is seen."""
    run, program = runs["icarus", name], TOURS[name].job.program
    timeline = play(program, CHIPS[name])
    assert timeline.cycles == run.cycles
    pairs = pair(run.records, timeline.executed, program)
    assert sorted(map(str, (value.measured for value in pairs))) == sorted(map(str, run.records))
    assert [value for value in pairs if value.differs] == []
    assert [value.measured.start for value in pairs] == sorted(record.start for record in run.records)
    if arrivals := arrivals_of(run):
        late = replace(arrivals[3], end=arrivals[3].end + 1)
        changed = [late if record is arrivals[3] else record for record in run.records]
        assert [value.measured for value in pair(changed, timeline.executed, program) if value.differs] == [late]


def arrivals_of(run: Run) -> list[Record]:
    return [record for record in run.records if record.arrival]


def busy_of(run: Run, chip: ChipConfig) -> dict[tuple[int, str], int]:
    """(tile, output) to cycles in which a flit left by it."""
    return {
        (tile, port): run.counters[tile][counter]
        for tile in chip.tiles
        for port, counter in zip(OUTPUTS, LINK_BUSY, strict=True)
    }


# -- one packet at a time -----------------------------------------------------------------------------------------

#: A way of each length that the chip allows, from a scratchpad to a memory that takes a word a cycle.
PATHS: dict[int, Sequence[int]] = {
    0: (0x11,),
    1: (0x11, 0x12),
    2: (0x11, 0x12, 0x02),
    3: (0x02, 0x01, 0x11, 0x12),
    4: (0x12, 0x11, 0x01, 0x02, 0x12),
    5: (0x12, 0x02, 0x01, 0x00, 0x10, 0x11),
    6: (0x02, 0x12, 0x11, 0x10, 0x00, 0x01, 0x02),
}
#: Words of single packets, and (words, length of a destination run, its address) of MOVEs of several.
SINGLE = range(1, 65)
SEVERAL = ((65, 65, 0), (130, 130, 0), (64, 64, 1), (40, 7, 3), (10, 1, 20), (200, 90, 60))
#: What Icarus runs of it.
FEW, FEW_HOPS = (1, 2, 3, 17, 64), (0, 3, 6)


def fetched(instructions: int) -> int:
    """A cycle by which so much code is there: 8 words each, of which DRAM gives three in four cycles."""
    return 400 + 11 * instructions


def one_by_one(shapes: Sequence[tuple[int, int, int]], hops: int) -> list[Instruction]:
    """MOVEs of these shapes over the way with so many hops, on one channel after another, each when the one before has
    delivered."""
    path = PATHS[hops]
    source, target = path[0], path[-1]
    code = [sync(0xFFF, fire_at=fetched(3 + 2 * len(shapes)))]
    for number, (words, run, at) in enumerate(shapes):
        waits = {"wait_sem": 2, "wait_n": 1} if number else {}
        code.append(route(WAYS, 0x800 + number, path if hops else None, (number + words) % 3, **waits))
        shape = {"dst_run": run, "dst_stride": run + 5}
        code.append(move(number + 1, (source, MAIN, 0), (target, MAIN, 256 + at), words, **shape, **notify(2, source)))
    return [*code, sync(0xFFE, wait_sem=2, wait_n=1)]


def jobs_of(shapes: Sequence[tuple[int, int, int]]) -> dict[int, Job]:
    """Hops to a job."""
    return {
        hops: Job(movers(WAYS, {path[0]: one_by_one(shapes, hops)}), [], [], 40_000) for hops, path in PATHS.items()
    }


def closed_form(record: Record, hops: int, shape: tuple[int, int, int]) -> list[tuple[int, int]]:
    """(born, end) of each packet of a MOVE that its mover has taken at the start of `record`, on an idle mesh: the head
    when the words are there or the packet before has gone; `noc_arrival` until its tail is offered, one cycle in the
    ejection buffer, and `end` is the one after."""
    words, run, at = shape
    values, injected_at = [], record.start + HEAD_CYCLES
    for _, size in packets({"dst": 256 + at, "dst_run": run, "dst_stride": run + 5, "words": words}, WAYS.packet_words):
        values.append((injected_at, injected_at + noc_arrival(hops, 1 + size) + 1 + 1))
        injected_at += 1 + size
    return values


TABLE = {"single": [(words, words, 0) for words in SINGLE], "several": list(SEVERAL)}


class IdleRuns(dict[str, dict[int, Run]]):
    """Part of the table -> hops -> run, on Verilator; "few" on Icarus. Made when first asked for."""

    def __missing__(self, name: str) -> dict[int, Run]:
        jobs = jobs_of(TABLE.get(name, [(words, words, 0) for words in FEW]))
        if name == "few":
            jobs = {hops: jobs[hops] for hops in FEW_HOPS}
        device = SimulatedDevice(build(WAYS, "icarus" if name == "few" else "verilator"))
        self[name] = dict(zip(jobs, device.run(list(jobs.values()), "idle"), strict=True))
        return self[name]


@pytest.fixture(scope="module")
def idle_runs() -> IdleRuns:
    return IdleRuns()


@pytest.mark.parametrize(
    ("name", "hops"),
    [
        *(pytest.param(name, hops, marks=pytest.mark.slow) for name in TABLE for hops in PATHS),
        *(("few", hops) for hops in FEW_HOPS),
    ],
)
def test_packets_arrive_in_closed_form(name: str, hops: int, idle_runs: IdleRuns) -> None:
    """Every pair of hops and words: 0 cycles off."""
    shapes = TABLE.get(name, [(words, words, 0) for words in FEW])
    run = idle_runs[name][hops]
    assert run.fault is None
    records = {
        record.tag: record for record in run.records if record.unit is Unit.MOVER and record.opcode is Opcode.MOVE
    }
    arrived: dict[int, list[Record]] = defaultdict(list)
    for record in sorted(arrivals_of(run), key=lambda record: record.end):
        assert record.tile == PATHS[hops][-1]
        arrived[record.tag].append(record)
    assert len(records) == len(arrived) == len(shapes)
    for number, shape in enumerate(shapes):
        right = closed_form(records[number + 1], hops, shape)
        assert [(record.start, record.end) for record in arrived[number + 1]] == right, (hops, shape)
        assert sum(record.wait for record in arrived[number + 1]) == shape[0]
        # and the MOVE itself ends with its last word: no flit has waited
        assert records[number + 1].end == records[number + 1].start + HEAD_CYCLES + shape[0] + len(right)


@pytest.mark.slow
@pytest.mark.parametrize("hops", PATHS)
@pytest.mark.parametrize("name", TABLE)
def test_idle_links_count_every_flit_and_block_none(name: str, hops: int, idle_runs: IdleRuns) -> None:
    run = idle_runs[name][hops]
    job = jobs_of(TABLE[name])[hops]
    assert busy_of(run, WAYS) == flits_on_links(job.program, WAYS)
    assert {run.counters[tile][counter] for tile in WAYS.tiles for counter in LINK_BLOCKED} == {0}


def test_the_paths_are_as_long_as_the_table_says() -> None:
    assert {hops: len(path) - 1 for hops, path in PATHS.items()} == {
        hops: hops for hops in range(WAYS.noc.route_hops + 1)
    }
    for path in PATHS.values():
        assert all(abs(a // 16 - b // 16) + abs(a % 16 - b % 16) == 1 for a, b in pairwise(path))
        assert {WAYS.tiles[path[0]], WAYS.tiles[path[-1]]} == {TileKind.SPM}


# -- ways that wait for each other --------------------------------------------------------------------------------

#: Round a square of tiles, three hops each: on one channel every packet holds what the next one needs.
SQUARE = (0x01, 0x02, 0x12, 0x11)


def round_the_square(channels: Sequence[int]) -> Program:
    """One packet of 64 words from each of the four tiles, all at once, each on its channel."""
    streams = {}
    for number, (tile, channel) in enumerate(zip(SQUARE, channels, strict=True)):
        path = [SQUARE[(number + at) % 4] for at in range(4)]
        region = Region.OUT if WAYS.tiles[tile] is TileKind.CORE else MAIN
        streams[tile] = [
            sync(1, fire_at=fetched(20)),
            route(WAYS, 2, path, channel),
            move(3, (tile, region, 0), (path[-1], MAIN, 512), 64, **notify(2, tile)),
            sync(4, wait_sem=2, wait_n=1),
        ]
    return movers(WAYS, streams)


def test_ways_in_a_circle_stand_still_in_words_and_on_two_channels_they_do_not() -> None:
    stuck, free = round_the_square((1, 1, 1, 1)), round_the_square((1, 1, 2, 2))
    jobs = [Job(stuck, [], [], 20_000, stall_limit=300), Job(free, [], [], 20_000, stall_limit=300)]
    still, through = SimulatedDevice(build(WAYS, "verilator")).run(jobs, "square")
    assert still.fault is not None
    assert still.fault.cause is Cause.STALLED
    text = explain(still, stuck, None, WAYS)
    assert text.startswith(("hang: ", "deadlock: "))
    assert "MOVE tag 3 waits for the data plane to take a flit for" in text
    with pytest.raises(ValueError, match="packets on virtual channel 1 can deadlock"):
        check(stuck, WAYS)
    assert through.fault is None
    assert len(arrivals_of(through)) == 4
    with pytest.raises(ValueError, match="which nothing has written") as caught:
        check(free, WAYS)  # what they carry is of no matter here
    assert "deadlock" not in str(caught.value)
