"""The ahead-of-time controller: routes from way-points, control packets, pacing, faults; to the cycle."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from amaranth.sim import Simulator

from meshloom.hw.dtt.controller import Controller
from meshloom.hw.dtt.route_builder import RouteBuilder
from meshloom.hw.spec.config import MOST_HOPS, MOST_POINTS, ChipConfig
from meshloom.hw.spec.contracts import CONTROLLER_CYCLES, PACE_CYCLES, ROUTE_BUILD_CYCLES
from meshloom.hw.spec.isa import INSTRUCTIONS, ROUTE_BODY, TRACE, Cause, Opcode, Unit, route_field
from meshloom.hw.spec.routes import RouteError, dimension_ordered, encode
from meshloom.hw.wiring.signatures import Issue, Request

from .unit_bench import Mood, Sink, Source, always, bits, faults_of, fields, simulate, sometimes

FLOORPLAN = ["dram core core dtt", "spm core core spm", "host spm dram spm"]
CORE, SPM, DTT, NOWHERE = 0x01, 0x10, 0x03, 0x04


def chip(hops: int = 7, routing: str = "xy", queue: int = 2) -> ChipConfig:
    values: dict[str, Any] = {"name": "t", "lanes": 8, "floorplan": FLOORPLAN, "mover_queue": queue}
    noc = {"route_hops": hops, "data_routing": routing}
    return ChipConfig.model_validate(values | {"dram": {"bytes_per_cycle": 8}, "noc": noc})


# -- RouteBuilder ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hops", "routing"), [(7, "xy"), (7, "yx"), (3, "xy")])
def test_routes_are_rebuilt_as_software_encodes_them(hops: int, routing: str) -> None:
    config = chip(hops, routing)
    field, tiles, rng = route_field(config), list(config.tiles), random.Random(hops)
    unit = RouteBuilder(config)
    kinds = {"built": 0, "refused": 0}

    async def testbench(context: Any) -> None:
        for _ in range(150):
            stops = [rng.choice(tiles) for _ in range(2 + rng.randrange(4))]
            path = [stops[0]]
            for before, after in pairwise(stops):
                path += dimension_ordered(before, after, routing)[1:]
            points = stops[1:-1]
            context.set(unit.source, stops[0])
            context.set(unit.target, stops[-1])
            context.set(unit.count, len(points))
            context.set(unit.points, sum(point << 8 * at for at, point in enumerate(points)))
            context.set(unit.start, 1)
            await context.tick()
            context.set(unit.start, 0)
            cycles = 1
            while not (context.get(unit.done) or context.get(unit.wrong)):
                await context.tick()
                cycles += 1
            if len(path) == 1:  # to oneself: no packet goes that way
                continue
            try:
                expected = encode(path, config.width, config.height, field)
            except RouteError:
                assert context.get(unit.wrong)
                assert context.get(unit.place) in path
                kinds["refused"] += 1
                continue
            assert context.get(unit.done)
            turns = context.get(unit.turns)
            assert tuple(turns >> 2 * at & 3 for at in range(len(expected))) == expected
            assert turns >> 2 * len(expected) == (1 << 2 * (hops + 1 - len(expected))) - 1  # EJECT to the end
            assert cycles == len(path) - 1 + len(points) + ROUTE_BUILD_CYCLES
            kinds["built"] += 1

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    assert min(kinds.values()) > 20


# -- Controller -----------------------------------------------------------------------------------------------------


def code(opcode: Opcode, **values: int) -> int:
    return INSTRUCTIONS[opcode].pack({"opcode": opcode, **values})


def move(tag: int, fire_at: int = 0, src_tile: int = SPM, dst_tile: int = CORE) -> int:
    return code(Opcode.MOVE, tag=tag, fire_at=fire_at, src_tile=src_tile, dst_tile=dst_tile, words=1)


def order(tag: int, tile: int = 0, points: Sequence[int] = (), channel: int = 0) -> int:
    named = sum(point << 8 * at for at, point in enumerate(points))
    return code(Opcode.ORDER, tag=tag, tile=tile, count=len(points), points=named, channel=channel)


class Outcome:
    """Control packets and records as (cycle, fields), and the cycles in which instructions were taken."""

    def __init__(
        self,
        own: Sequence[int],
        config: ChipConfig | None = None,
        forward: Mood = always,
        offer: Mood = always,
        cycles: int = 120,
        gated: bool = False,
    ) -> None:
        unit = Controller(config or chip())
        source = Source(unit.own, [(0, bits(Issue, code=each, waited=5)) for each in own], offer)
        sinks = [Sink(unit.forward, forward), Sink(unit.record, always)]
        faults = faults_of(unit.fault)

        def before(cycle: int, context: Any) -> None:
            context.set(unit.now, cycle)

        simulate(unit, cycles, [source], sinks, [faults], before, gated=gated)
        self.taken, self.faults = source.taken, faults.seen
        self.packets = [(cycle, fields(Request, payload)) for cycle, payload in sinks[0].got]
        self.records = [(cycle, fields(TRACE, payload)) for cycle, payload in sinks[1].got]


def test_a_move_goes_to_the_mover_of_its_source_with_its_fire_time() -> None:
    one = move(7, fire_at=500)
    out = Outcome([one])
    expected = {"dst_tile": SPM, "unit": Unit.MOVER, "fetch": 0, "route": 0, "code": one}
    assert out.packets == [(CONTROLLER_CYCLES, expected)]  # nothing in it is cleared, the cycle after it was offered
    record = {"tag": 7, "unit": Unit.MOVER, "opcode": Opcode.MOVE, "wait": 5, "stall": 0, "start": 0, "end": 2}
    assert out.records == [(2, record)]


@pytest.mark.parametrize(("opcode", "unit"), [(Opcode.GEMM, Unit.MATRIX), (Opcode.VEC, Unit.VECTOR)])
def test_computing_goes_to_the_core_that_an_order_names(opcode: Opcode, unit: Unit) -> None:
    one = code(opcode, tag=8, fire_at=600)
    out = Outcome([order(3, tile=0x12, points=(0x11,)), one])
    ((_, packet),) = out.packets
    assert packet == {"dst_tile": 0x12, "unit": unit, "fetch": 0, "route": 0, "code": one}
    assert [record["tag"] for _, record in out.records] == [3, 8]


@pytest.mark.parametrize("hops", [7, MOST_HOPS - 1, MOST_HOPS])
def test_an_order_is_for_one_instruction(hops: int) -> None:
    config = chip(hops)
    out = Outcome([order(1, points=(0x12, 0x13), channel=1), move(2, dst_tile=0x03), move(3, dst_tile=0x03)], config)
    path = [SPM, *dimension_ordered(SPM, 0x12)[1:], 0x13, 0x03]
    field = route_field(config)
    assert field is not None
    turns = encode(path, config.width, config.height, field)
    way = ROUTE_BODY.unpack(out.packets[0][1]["route"])
    assert (way["channel"], way["routed"]) == (1, 1)
    assert tuple(way["turns"] >> 2 * at & 3 for at in range(len(turns))) == turns
    assert way["turns"] >> 2 * len(turns) == (1 << ROUTE_BODY.offsets["turns"][1] - 2 * len(turns)) - 1
    assert out.packets[1][1]["route"] == 0


def test_no_more_packets_wait_for_their_time_than_a_unit_takes() -> None:
    """Two at most: the third goes when the first has fired, and those for others wait behind it."""
    fire = [60, 65, 70, 75]
    moves = [move(tag, fire_at=cycle) for tag, cycle in enumerate(fire)]
    out = Outcome([*moves, move(9, fire_at=90, src_tile=0x11)], chip(queue=2))
    cycles = [cycle for cycle, _ in out.packets]
    assert cycles[2] == fire[0] + PACE_CYCLES
    assert cycles[3] == fire[1] + PACE_CYCLES
    assert cycles[4] > cycles[3]
    others = Outcome([move(0, 60), move(1, 65), move(2, 70, 0x11), code(Opcode.SYNC)], chip(queue=2))
    assert others.packets[2][0] < 20  # another unit has room of its own


@pytest.mark.parametrize("gated", [False, True])
def test_random_orders_in_order_with_random_stalls(gated: bool) -> None:
    rng = random.Random(5)
    own, expected = [], []
    for tag in range(40):
        target = rng.choice((0x01, 0x02, 0x11, 0x12))
        if rng.random() < 0.5:
            own += [order(1000 + tag, tile=target), code(Opcode.GEMM, tag=tag, fire_at=1 + 9 * tag)]
            expected.append((target, Unit.MATRIX, tag))
        else:
            own.append(move(tag, fire_at=1 + 9 * tag, src_tile=target))
            expected.append((target, Unit.MOVER, tag))
    out = Outcome(own, chip(queue=3), sometimes(rng, 0.7), sometimes(rng, 0.8), cycles=1500, gated=gated)
    assert out.faults == []
    assert [(p["dst_tile"], p["unit"], p["code"] >> 4 & 0xFFFF) for _, p in out.packets] == expected
    assert len(out.records) == len(own)


@pytest.mark.parametrize(
    ("own", "cause", "value"),
    [
        ([move(4, src_tile=NOWHERE)], Cause.DESTINATION, NOWHERE),
        ([order(1, tile=0x40), code(Opcode.GEMM, tag=4)], Cause.DESTINATION, 0x40),
        ([order(1, channel=2), move(4)], Cause.ROUTE, SPM),
        ([order(1, points=(0x13, 0x10)), move(4, dst_tile=0x13)], Cause.ROUTE, 0x13),  # turns back there
        ([order(1, points=(0x12, 0x01)), move(4, dst_tile=0x01)], Cause.ROUTE, 0x12),
    ],
)
def test_what_cannot_be_sent_is_a_fault(own: list[int], cause: Cause, value: int) -> None:
    out = Outcome(own)
    assert out.faults[0][1] == {"cause": cause, "tag": 4, "value": value}
    assert out.packets == []


def test_a_chip_without_routes_refuses_way_points() -> None:
    out = Outcome([order(1, points=(0x11,)), move(4)], chip(hops=0))
    assert out.faults[0][1] == {"cause": Cause.ROUTE, "tag": 4, "value": SPM}
    assert [packet["code"] for _, packet in Outcome([move(5)], chip(hops=0)).packets] == [move(5)]


def test_as_many_way_points_as_an_order_holds() -> None:
    config = chip(hops=14)
    points = [0x11, 0x01, 0x02, 0x12, 0x22, 0x21, 0x20, 0x10, 0x00, 0x01, 0x02, 0x03]
    assert len(points) == MOST_POINTS
    out = Outcome([order(1, points=points), move(4, src_tile=SPM, dst_tile=0x13)], config)
    field = route_field(config)
    assert field is not None
    path = [SPM]
    for point in (*points, 0x13):
        path += dimension_ordered(path[-1], point)[1:]
    turns = encode(path, config.width, config.height, field)
    way = ROUTE_BODY.unpack(out.packets[0][1]["route"])
    assert tuple(way["turns"] >> 2 * at & 3 for at in range(len(turns))) == turns
