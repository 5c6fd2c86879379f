"""Circles of channels: dimension-ordered ways have none, four routes round a square do, and the checker says so."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from meshloom.hw.spec.config import ChipConfig, tile_address
from meshloom.hw.spec.isa import Opcode, Region, Unit, address
from meshloom.hw.spec.routes import dimension_ordered
from meshloom.sched.checker.channel_dependences import DependenceGraph, channels_of
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.model.timeline import ModelError, play
from meshloom.sched.program.program import Instruction, Program, place
from meshloom.sched.program.routes import Route, route_fields
from meshloom.tb.verify.random_programs import random_path

#: A square of tiles, clockwise, and the ways of two links each round it.
SQUARE = (0x01, 0x02, 0x12, 0x11)
ROUND = [tuple(SQUARE[(at + step) % 4] for step in range(3)) for at in range(4)]


def chip_of(data_vcs: int = 2, **noc: object) -> ChipConfig:
    return ChipConfig.model_validate(
        {
            "name": "square",
            "lanes": 4,
            "floorplan": ["dram core spm", "host core dram"],
            "dram": {"bytes_per_cycle": 4},
            "noc": {"data_vcs": data_vcs, "route_hops": 5} | noc,
            "ring_instructions": 256,
        }
    )


@pytest.mark.parametrize("routing", ["xy", "yx"])
@pytest.mark.parametrize(("width", "height"), [(1, 5), (5, 1), (2, 2), (3, 2), (4, 4)])
def test_dimension_ordered_ways_make_no_circle(routing: str, width: int, height: int) -> None:
    tiles = [tile_address(x, y) for y in range(height) for x in range(width)]
    dependences = DependenceGraph()
    for source in tiles:
        for target in tiles:
            way = Route((source + target) % 3, dimension_ordered(source, target, routing))
            assert dependences.admits(way)
            dependences.add(way, "somebody")
    assert dependences.shortest_cycle() == []


def test_both_orders_together_do_and_on_two_channels_do_not() -> None:
    tiles = [tile_address(x, y) for y in range(2) for x in range(2)]
    for apart in (False, True):
        dependences = DependenceGraph()
        for source in tiles:
            for target in tiles:
                dependences.add(Route(0, dimension_ordered(source, target, "xy")), "xy")
                dependences.add(Route(int(apart), dimension_ordered(source, target, "yx")), "yx")
        assert len(dependences.shortest_cycle()) == (0 if apart else 4)


def test_four_routes_round_a_square_are_a_circle() -> None:
    dependences = DependenceGraph()
    for tiles in ROUND[:3]:
        assert dependences.admits(Route(1, tiles))
        dependences.add(Route(1, tiles), "somebody")
    assert dependences.shortest_cycle() == []
    assert dependences.admits(Route(0, ROUND[3]))  # on another channel
    assert not dependences.admits(Route(1, ROUND[3]))
    dependences.add(Route(1, ROUND[3]), "the last")
    cycle = dependences.shortest_cycle()
    assert sorted(cycle) == sorted(channel for tiles in ROUND for channel in channels_of(Route(1, tiles[:2])))
    for held, expected in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        assert held.after == expected.before


def test_a_way_can_be_a_circle_by_itself() -> None:
    dependences = DependenceGraph()
    twice = (*SQUARE, *SQUARE[:2])  # over the link that it began with
    assert not dependences.admits(Route(0, twice))
    assert dependences.admits(Route(0, (*SQUARE, SQUARE[0])))
    dependences.add(Route(0, twice), "somebody")
    assert len(dependences.shortest_cycle()) == 4


@pytest.mark.parametrize("seed", range(30))
def test_random_ways_make_circles_where_another_library_finds_some(seed: int) -> None:
    import networkx

    random = Random(seed)
    width, height = random.randint(2, 4), random.randint(2, 4)
    tiles = [tile_address(x, y) for y in range(height) for x in range(width)]
    dependences, graph = DependenceGraph(), networkx.DiGraph()
    refused = 0
    for _ in range(60):
        path = random_path(random, tiles, *random.sample(tiles, 2), hops=8)
        if path is None:
            continue
        way = Route(random.randrange(2), path)
        edges = list(pairwise(channels_of(way)))
        more = networkx.DiGraph([*graph.edges, *edges])
        admitted = dependences.admits(way)
        assert admitted == networkx.is_directed_acyclic_graph(more)
        refused += not admitted
        if admitted or random.random() < 0.02:
            dependences.add(way, "somebody")
            graph = more
        cycle = dependences.shortest_cycle()
        assert bool(cycle) != networkx.is_directed_acyclic_graph(graph)
        if cycle:
            assert all(graph.has_edge(*edge) for edge in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
            assert len(cycle) == min(len(result) for result in networkx.simple_cycles(graph, length_bound=len(cycle)))
            break
    assert refused > 0


# -- programs -------------------------------------------------------------------------------------------------------


def around(chip: ChipConfig, channels: tuple[int, int, int, int], pulled: bool = False, fire: int = 0) -> Program:
    """Four MOVEs of 200 words round the square, each over two links; `fire`: when the packets set out, all at once."""
    streams: dict[tuple[int, Unit], tuple[Instruction, ...]] = {}
    for at, (tiles, channel) in enumerate(zip(ROUND, channels, strict=True)):
        source, _, target = tiles
        owner = target if pulled else source
        body = {"words": 200, "src_tile": source, "src_run": 200, "dst_tile": target, "dst_run": 200, "dst": 512}
        body["src"] = address(Region.MAIN if source in chip.drams else Region.TRACE, 0)
        start = fire - chip.dram.latency if fire and source in chip.drams else fire
        notify = {"notify": 1, "notify_tile": owner, "notify_sem": 1}
        streams[owner, Unit.MOVER] = (
            Instruction(Opcode.ROUTE, {"tag": 10 * at + 1} | route_fields(chip, tiles, channel)),
            Instruction(Opcode.MOVE, {"tag": 10 * at + 2, "fire_at": start} | body | notify),
            Instruction(Opcode.SYNC, {"tag": 10 * at + 3, "wait_sem": 1, "wait_n": 1}),
            Instruction(Opcode.SYNC, {"tag": 10 * at + 4, "tile": chip.host, "sem": 0, "n": 1}),
        )
    placed, boot = place(streams, dict.fromkeys(chip.drams, 4000), chip)
    return Program(chip.digest, placed, boot, {})


@pytest.mark.parametrize("pulled", [False, True])
def test_the_checker_prints_the_circle_and_says_what_to_change(pulled: bool) -> None:
    chip = chip_of()
    with pytest.raises(CheckError) as caught:
        check(around(chip, (0, 0, 0, 0), pulled), chip)
    (problem,) = caught.value.problems
    assert problem.where == "data plane"
    assert "packets on virtual channel 0 can deadlock" in problem.what
    links = [
        "core@(1,0) -> spm@(2,0)",
        "spm@(2,0) -> dram@(2,1)",
        "dram@(2,1) -> core@(1,1)",
        "core@(1,1) -> core@(1,0)",
    ]
    for link, tag in zip(links, (2, 12, 22, 32), strict=True):
        part = problem.what.split(f"the link {link} waits for the next one, held by ")[1].split(";")[0]
        assert f"mover stream [1] MOVE tag {tag}" in part
    assert "closing the cycle" in problem.what
    assert "another virtual channel" in problem.fix


def test_code_that_is_fetched_can_be_part_of_a_circle() -> None:
    chip = chip_of()  # that for the dram tile at (2,1) comes over the first two sides, on channel 1
    check(around(chip, (0, 0, 1, 1)), chip)
    with pytest.raises(CheckError, match=r"held by the code of the dram@\(2,1\) mover stream"):
        check(around(chip, (0, 1, 1, 1)), chip)


def test_one_of_the_routes_on_another_channel_breaks_it() -> None:
    chip = chip_of(3)
    for at in range(4):
        one, two, three, four = (2 if at == number else 0 for number in range(4))
        result = around(chip, (one, two, three, four), fire=900)
        check(result, chip)
        assert play(result, chip).cycles < 2000


@pytest.mark.parametrize("data_vcs", [1, 2])
def test_what_the_checker_refuses_does_stand_still(data_vcs: int) -> None:
    chip = chip_of(data_vcs)
    channels = (0, 0, 0, 0)
    with pytest.raises(CheckError, match="can deadlock"):
        check(around(chip, channels, fire=900), chip)
    with pytest.raises(ModelError, match="or packets deadlock"):
        play(around(chip, channels, fire=900), chip)
