"""Links and congestion of a run: MOVEs on an idle chip in closed form, what the counters say, and levels by source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest

from meshloom.hw.control.trace import Counter
from meshloom.hw.spec.config import ChipConfig, TileKind, load
from meshloom.hw.spec.isa import Cause, Opcode, Unit
from meshloom.hw.spec.routes import ports_at
from meshloom.sched.model.timeline import play
from meshloom.sched.program.program import Instruction, Program, Stream
from meshloom.sched.program.routes import default_route, route_of
from meshloom.tb.build.builder import build
from meshloom.tb.compare.idle import ideal_move_cycles, idle_move, steady_cycles
from meshloom.tb.compare.links import LinksError, congestion, figures, links, transfers
from meshloom.tb.devices.interface import Fault, Job, Run
from meshloom.tb.devices.readout import Record
from meshloom.tb.devices.simulated import SimulatedDevice

from .hand_made import move, notify, sync
from .ways import MAIN, TOUR, WAYS, flits_on_links, movers, route, tour

DRAM, SPM, FAR, NEAR = 0x00, 0x11, 0x02, 0x12
#: Code has been fetched by then.
FIRST = 5000


def shaped(random: Random, tag: int, places: Sequence[int], **fields: int) -> Instruction:
    """A MOVE of a random shape between two memories that have MAIN."""
    source, target = random.choice(places), random.choice(places)
    words = random.choice((1, 2, 3, 8, 30, 64, 65, 100, 200, 400))
    shape = {}
    for end in ("src", "dst"):
        run = random.choice((1, 2, 5, 30, 64, words, words))
        strides = (run, run + 3, 64 if words <= 200 else 9, 7)  # all inside the bank
        shape |= {f"{end}_run": run, f"{end}_stride": random.choice(strides)}
    ends = (source, MAIN, random.randrange(300)), (target, MAIN, random.randrange(300))
    return move(tag, *ends, words, **shape, **fields)


def one_by_one(random: Random, chip: ChipConfig, count: int, owner: int, places: Sequence[int]) -> list[Instruction]:
    """Random MOVEs, pushed and pulled, each when the one before has been delivered."""
    code = [sync(0xFFF, fire_at=FIRST)]
    while len(code) < 2 * count:
        instruction = shaped(random, len(code), places, **notify(2, owner))
        fields = instruction.fields
        if fields["src_tile"] != fields["dst_tile"] or chip.tiles[fields["src_tile"]] is not TileKind.DRAM:
            code += [instruction, sync(0x800 + len(code), wait_sem=2, wait_n=1)]
    return code


def variant(**changes: object) -> ChipConfig:
    return ChipConfig.model_validate(WAYS.model_dump() | changes)


ALONE = {
    "three channels": WAYS,
    "one channel, shallow, a slow DRAM": variant(
        noc={"arrivals": True, "data_depth": 2}, dram={"bytes_per_cycle": 1, "latency": 17}
    ),
    "two channels, YX, a far DRAM": variant(
        noc={"data_vcs": 2, "data_depth": 3, "data_routing": "yx", "arrivals": True},
        dram={"bytes_per_cycle": 4, "latency": 100},
    ),
    "one channel, a slow DRAM that sends whole packets": variant(
        noc={"arrivals": True, "data_depth": 2}, dram={"bytes_per_cycle": 1, "latency": 17, "whole_packets": True}
    ),
    "a DRAM that sends whole packets though it is fast": variant(
        noc={"arrivals": True, "data_depth": 4}, dram={"bytes_per_cycle": 4, "latency": 5, "whole_packets": True}
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_the_model_says_the_same_of_a_move_alone(name: str) -> None:
    """Every MOVE and every packet of it, 0 cycles off: bursts, latency, bandwidth and buffers of DRAM at either end."""
    chip, random = ALONE[name], Random(name)
    program = movers(chip, {NEAR: one_by_one(random, chip, 60, NEAR, (DRAM, FAR, SPM, NEAR))})
    entries = play(program, chip).executed
    sent = {entry.tag: entry for entry in sorted(entries, key=lambda entry: entry.start) if entry.unit is Unit.MOVER}
    arrived = defaultdict(list)
    for entry in entries:
        if entry.unit is Unit.NONE:
            arrived[entry.tag].append((entry.start, entry.end))
    check_alone(program, chip, {tag: (entry.start, entry.end) for tag, entry in sent.items()}, arrived)


def check_alone(
    program: Program,
    chip: ChipConfig,
    sent: Mapping[int, tuple[int, int]],
    arrived: Mapping[int, Sequence[tuple[int, int]]],
) -> None:
    """Tag to start and end of each MOVE where it was executed, and of its packets: as `idle_move` says."""
    checked = 0
    for stream in program.streams:
        named: Mapping[str, int] = {}
        for instruction in stream.instructions:
            fields, tag = instruction.fields, instruction.fields["tag"]
            if instruction.opcode is Opcode.ROUTE:
                named = fields
            if instruction.opcode is not Opcode.MOVE:
                continue
            way = route_of(chip, fields["src_tile"], fields["dst_tile"], named)
            named, alone = {}, idle_move(fields, chip, way)
            start, end = sent[tag]
            assert end - start == alone.cycles == ideal_move_cycles(fields, chip, way), instruction
            right = [
                (start + packet.injected_at, start + packet.injected_at + packet.latency) for packet in alone.packets
            ]
            assert sorted(arrived[tag]) == right, instruction
            checked += 1
    assert checked > 20


# -- on RTL -------------------------------------------------------------------------------------------------------


def in_turn(count: int, words: int, source: int, target: int, owner: int) -> list[Instruction]:
    """MOVEs right behind each other."""
    code = [sync(0xFFF, fire_at=FIRST)]
    for tag in range(1, count + 1):
        code.append(move(tag, (source, MAIN, 3), (target, MAIN, 200), words, **notify(2, owner)))
    return [*code, sync(0xFFE, wait_sem=2, wait_n=count)]


def detours(random: Random) -> list[Instruction]:
    """Random MOVEs, each on a way of its own."""
    ways = {
        (DRAM, SPM): (0x00, 0x10, 0x11),
        (SPM, DRAM): (0x11, 0x12, 0x02, 0x01, 0x00),
        (FAR, SPM): (0x02, 0x12, 0x11),
        (SPM, SPM): (0x11, 0x01, 0x02, 0x12, 0x11),
        (DRAM, NEAR): (0x00, 0x10, 0x11, 0x01, 0x02, 0x12),
    }
    code = [sync(0xFFF, fire_at=FIRST)]
    while len(code) < 75:
        instruction = shaped(random, len(code), (DRAM, SPM, FAR, NEAR), **notify(2, SPM))
        if (path := ways.get((instruction.fields["src_tile"], instruction.fields["dst_tile"]))) is not None:
            code += [route(WAYS, 0x400 + len(code), path, random.randrange(3)), instruction]
            code.append(sync(0x800 + len(code), wait_sem=2, wait_n=1))
    return code


JOBS = {
    "alone": Job(movers(WAYS, {NEAR: one_by_one(Random(1), WAYS, 60, NEAR, (DRAM, FAR, SPM, NEAR))}), [], []),
    "detours": Job(movers(WAYS, {SPM: detours(Random(2))}), [], []),
    "local, behind each other": Job(movers(WAYS, {SPM: in_turn(12, 70, SPM, FAR, SPM)}), [], []),
    "dram, behind each other": Job(movers(WAYS, {SPM: in_turn(12, 40, DRAM, SPM, SPM)}), [], []),
    "three to one": Job(movers(WAYS, {tile: in_turn(6, 64, tile, SPM, tile) for tile in (FAR, SPM, NEAR)}), [], []),
    "tour": tour(WAYS, TOUR, 1).job,
    "nothing": Job(movers(WAYS, {SPM: [sync(1)]}), [], []),
}


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    result = SimulatedDevice(build(WAYS, "verilator")).run(list(JOBS.values()), "links")
    return dict(zip(JOBS, result, strict=True))


@pytest.mark.parametrize("name", ["alone", "detours"])
def test_a_move_alone_takes_what_the_closed_form_says(name: str, runs: dict[str, Run]) -> None:
    """And so its congestion level is 1, whatever its shape and way, and no packet is late."""
    run, program = runs[name], JOBS[name].program
    sent: dict[int, tuple[int, int]] = {}
    arrived: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for record in sorted(run.records, key=lambda record: record.start):
        if record.arrival:
            arrived[record.tag].append((record.start, record.end))
        elif record.opcode is Opcode.MOVE:
            sent[record.tag] = record.start, record.end  # of a pull: the execution is the later one
    check_alone(program, WAYS, sent, arrived)
    result = congestion(run, program, WAYS)
    assert result is not None
    assert (result.level, {source.level for source in result.sources}) == (1.0, {1.0})
    assert result.packets is not None
    assert result.packets.count == sum(map(len, arrived.values()))
    assert (result.packets.mean, result.packets.worst_late) == (result.packets.idle_mean, 0)
    assert result.packets.worst == max(end - start for times in arrived.values() for start, end in times)


def test_moves_behind_each_other_hold_up_nobody(runs: dict[str, Run]) -> None:
    """One mover alone: what waits for its own MOVE before is not congestion. DRAM gives what its bandwidth allows."""
    local = congestion(runs["local, behind each other"], JOBS["local, behind each other"].program, WAYS)
    assert local is not None
    assert local.level == 1.0
    dram = congestion(runs["dram, behind each other"], JOBS["dram, behind each other"].program, WAYS)
    assert dram is not None
    assert [source.tile for source in dram.sources] == [DRAM]
    assert 0.98 < dram.level <= 1.0
    # 11 of 12 follow another one at 3 bytes of 4 a cycle
    assert dram.real_cycles >= 12 * 40 * 4 // 3


def test_three_senders_to_one_tile_share_its_link(runs: dict[str, Run]) -> None:
    """Each takes about three times as long as alone, and packets come late."""
    result = congestion(runs["three to one"], JOBS["three to one"].program, WAYS)
    assert result is not None
    assert {source.tile: source.moves for source in result.sources} == {FAR: 6, SPM: 6, NEAR: 6}
    assert 0.3 < result.level < 0.5
    assert all(0.25 < source.level < 0.7 for source in result.sources)
    assert result.ideal_cycles == sum(source.ideal_cycles for source in result.sources)
    assert result.real_cycles == sum(source.real_cycles for source in result.sources)
    assert result.packets is not None
    assert result.packets.count >= 18
    assert result.packets.mean > 1.5 * result.packets.idle_mean
    assert result.packets.worst_late > 64


@pytest.mark.parametrize("name", JOBS)
def test_every_link_is_there_with_its_flits(name: str, runs: dict[str, Run]) -> None:
    run = runs[name]
    link_figures = {(link.tile, link.port): link for link in links(run, WAYS)}
    there = {(tile, port) for tile in WAYS.tiles for port in ports_at(tile % 16, tile // 16, WAYS.width, WAYS.height)}
    assert set(link_figures) == there
    flits = flits_on_links(JOBS[name].program, WAYS)
    assert {key: link.busy for key, link in link_figures.items()} == {key: flits[key] for key in there}
    for link in link_figures.values():
        assert link.cycles == run.cycles
        assert link.load == link.busy / run.cycles
    if name == "three to one":
        into = link_figures[SPM, "local"]
        assert into.load > 0.2
        assert sum(link.blocked for link in link_figures.values()) > into.busy / 2


def test_the_tour_is_held_up(runs: dict[str, Run]) -> None:
    result = figures(runs["tour"], JOBS["tour"].program, WAYS)["congestion"]
    assert result == congestion(runs["tour"], JOBS["tour"].program, WAYS)
    assert result is not None
    assert 0.3 < result.level < 0.9
    assert [source.tile for source in result.sources] == [DRAM, FAR, SPM, NEAR]


def test_each_move_is_found_with_its_way_and_its_executing_record(runs: dict[str, Run]) -> None:
    result = list(transfers(runs["tour"], JOBS["tour"].program, WAYS))
    assert [transfer.fields["tag"] for transfer in result] == [2, 5, 7, 8] * 3
    for (tile, ways), own in zip(TOUR.items(), (result[:4], result[4:8], result[8:]), strict=True):
        assert [transfer.record.tile for transfer in own] == [DRAM, tile, tile, tile]
        assert [(transfer.route.channel, transfer.route.tiles) for transfer in own[:3]] == list(ways)
        assert own[3].route == default_route(WAYS, tile, DRAM)


# -- what cannot be told ------------------------------------------------------------------------------------------


def test_runs_without_moves_or_with_a_fault_have_no_level(runs: dict[str, Run]) -> None:
    assert congestion(runs["nothing"], JOBS["nothing"].program, WAYS) is None
    fault = Fault(Cause.SHAPE, SPM, Unit.MOVER, 1, 0)
    stopped = replace(runs["alone"], fault=fault, records=[], counters={})
    assert figures(stopped, JOBS["alone"].program, WAYS) == {"links": (), "congestion": None}


def test_a_trace_that_is_not_complete_is_an_error(runs: dict[str, Run]) -> None:
    short = replace(runs["alone"], trace_shortage="spm@(1,1) made 9 records; set trace_records = 16 in chip ways")
    with pytest.raises(LinksError, match=r"needs all of its records: spm@.*; set trace_records = 16"):
        congestion(short, JOBS["alone"].program, WAYS)
    assert len(links(short, WAYS)) > 0


def test_chips_without_arrivals_have_no_latencies(runs: dict[str, Run]) -> None:
    silent = variant(noc=WAYS.noc.model_dump() | {"arrivals": False})
    run = replace(runs["alone"], records=[record for record in runs["alone"].records if not record.arrival])
    result = congestion(run, JOBS["alone"].program, silent)
    assert result is not None
    assert (result.level, result.packets) == (1.0, None)


def test_levels_by_hand() -> None:
    """Two MOVEs of 4 words of one mover on `tiny`: alone each takes 8 cycles, behind the other 6."""
    chip = load("tiny")
    spm, core = chip.spms[0], chip.cores[0]
    code = tuple(move(tag, (spm, MAIN, 0), (core, MAIN, 0), 4) for tag in (1, 2))
    program = Program(chip.digest, (Stream(spm, Unit.MOVER, 0, 64, code),), Stream(chip.host, Unit.MOVER, 0, 0, ()), {})
    fields = code[0].fields
    assert (ideal_move_cycles(fields, chip), steady_cycles(fields, chip)) == (8, 6)
    for (first, second), (ideal, real) in {
        ((10, 18), (30, 38)): (16, 16),  # apart
        ((10, 18), (14, 24)): (14, 14),  # behind each other
        ((10, 18), (17, 25)): (15, 15),  # nearly so: its head is ready two cycles after the last word of the other
        ((10, 22), (14, 34)): (14, 24),  # 4 and 6 cycles late
        ((10, 22), (22, 34)): (16, 24),  # 4 each
        ((10, 18), (14, 23)): (13, 13),  # as no mover can: counts as ideal
    }.items():
        records = [Record(spm, Unit.MOVER, Opcode.MOVE, tag, 0, 0, *times) for tag, times in ((1, first), (2, second))]
        run = Run(100, None, [], records, {spm: [0] * len(Counter)}, 0.1, "verilator")
        result = congestion(run, program, chip)
        assert result is not None
        assert (result.ideal_cycles, result.real_cycles) == (ideal, real), (first, second)
        assert result.sources[0].moves == 2
        assert result.level == ideal / real


def test_an_order_names_way_points() -> None:
    """As the controller rebuilds the route: dimension order from each to the next."""
    chip = load("tiny")
    dram, core, spm = chip.drams[0], chip.cores[0], chip.spms[0]
    order = Instruction(Opcode.ORDER, {"tag": 1, "count": 1, "points": chip.host})
    code = (order, move(2, (dram, MAIN, 0), (spm, MAIN, 0), 4))
    stream = Stream(core, Unit.MOVER, 0, 64, code)
    program = Program(chip.digest, (stream,), Stream(chip.host, Unit.MOVER, 0, 0, ()), {})
    records = [
        Record(core, Unit.MOVER, Opcode.ORDER, 1, 0, 0, 5, 6),
        Record(core, Unit.MOVER, Opcode.MOVE, 2, 0, 0, 7, 8),
        Record(dram, Unit.MOVER, Opcode.MOVE, 2, 0, 0, 20, 70),
    ]
    run = Run(100, None, [], records, {}, 0.1, "verilator")
    (transfer,) = transfers(run, program, chip)
    assert transfer.route.tiles == (dram, chip.host, spm)
    assert transfer.record is records[2]
