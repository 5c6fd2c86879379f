"""An explorer that is told simpler hardware (Figure 7), and what a controller that searches again would need."""

from __future__ import annotations

from random import Random

import pytest

from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import Opcode
from meshloom.sched.ir.schedule import Move, Span
from meshloom.sched.lowering.timed.again import ahead_of_search, search_again, waypoint_orders
from meshloom.sched.lowering.timed.compile import compile_ahead
from meshloom.sched.lowering.timed.orders import waypoints_of
from meshloom.sched.lowering.timed.timetable import Timed
from meshloom.sched.papers.dtt import examples
from meshloom.sched.papers.dtt.upstream import explore, handed_on, mapped, simplified
from meshloom.sched.program.program import Instruction
from meshloom.sched.routing.hardware import Actor, DttError, Hardware
from meshloom.sched.schedulers.registry import find as scheduler
from meshloom.sched.workload.catalog import find
from meshloom.tb.studies.dtt.dtt_paper import random_workload

GIVEN = {"DRAM": range(8)}, examples.BUTTERFLY_DISTRIBUTION


def test_the_butterfly_becomes_a_star_of_its_actors() -> None:
    hardware = examples.butterfly()
    star = simplified(hardware, "DRAM")
    assert star.actors == hardware.actors
    assert sorted(star.nodes) == sorted(name for name in hardware.nodes if not name.startswith("SW"))
    # a wire of cost 10 and delay 4 to the first stage, then three of 1; results return over one
    wires = {wire.name: (wire.bandwidth, wire.cost, wire.delay) for wire in star.wires}
    assert wires == {f"DRAM -> {name}_input": (1, 13, 7) for name in star.actors} | {
        f"{name}_output -> DRAM": (1, 10, 4) for name in star.actors
    }


def test_nodes_between_count_and_the_cheapest_way_is_taken() -> None:
    hardware = Hardware()
    for name, cost, delay in (("MEM", 0, 0), ("near", 5, 1), ("far", 0, 0), ("in", 1, 2), ("out", 0, 0)):
        hardware.node(size=4, name=name, cost=cost, delay=delay)
    for way, wide in (("near", 8), ("far", 2)):
        hardware.wire(source="MEM", destination=way, bandwidth=wide, cost=1, delay=1)
        hardware.wire(source=way, destination="in", bandwidth=4, cost=2, delay=3)
    hardware.wire(source="out", destination="MEM", bandwidth=1, cost=1, delay=1)
    hardware.actor(Actor("PE", "in", "out"))
    star = simplified(hardware, "MEM")
    assert [(wire.name, wire.bandwidth, wire.cost, wire.delay) for wire in star.wires] == [
        ("MEM -> in", 2, 3, 4),
        ("out -> MEM", 1, 1, 1),
    ]
    assert (star.nodes["in"].cost, star.nodes["in"].delay) == (1, 2)
    hardware.node(size=4, name="lonely")
    hardware.actor(Actor("QE", "lonely", "out"))
    with pytest.raises(DttError, match="no way leads from MEM to lonely"):
        simplified(hardware, "MEM")


def test_what_is_found_in_the_star_is_nearly_as_good_as_the_full_search() -> None:
    hardware = examples.butterfly()
    star = simplified(hardware, "DRAM")
    operations = random_workload(1)
    upstream, whole = (explore(one, operations, *GIVEN, 8) for one in (star, hardware))
    handed = handed_on(upstream, hardware, operations, *GIVEN)
    assert {one.operation.result: one.actor for one in handed.placed} == upstream.actors
    assert handed.runtime <= 1.1 * whole.outcome.runtime
    assert upstream.moves < whole.moves / 2
    assert handed.runtime < mapped(hardware, operations, *GIVEN, {}).runtime


def test_the_first_mapping_of_an_exploration_has_no_random_preferences() -> None:
    hardware, operations = examples.butterfly(), random_workload(1)
    plain = mapped(hardware, operations, *GIVEN, {})
    assert {explore(hardware, operations, *GIVEN, 1, seed).outcome.runtime for seed in range(4)} == {plain.runtime}


def timed(fire: int, mover: int) -> Timed:
    op = Move(issuer=mover, src=Span(tile=mover, address=0, run=1), dst=Span(tile=9, address=0, run=1), words=1)
    return Timed(0, op, fire, fire + 1, fire + 5, 0, path=(mover, 9), arrival=fire + 8)


def test_moves_are_kept_until_those_that_their_mover_sends_first_are_known() -> None:
    assert ahead_of_search([timed(fire, 1) for fire in (10, 20, 30)]) == (0, 0)
    assert ahead_of_search([timed(30, 1), timed(20, 2), timed(10, 3)]) == (0, 28)
    # 40 waits for 20, 30 for 20, and 50 for nobody
    assert ahead_of_search([timed(40, 1), timed(30, 1), timed(5, 2), timed(20, 1), timed(50, 1)]) == (2, 43)


def waits(one: Timed, other: Timed) -> bool:
    """Whether a move may be sent only after another of its mover."""
    return other.path[0] == one.path[0] and other.fire < one.fire


@pytest.mark.parametrize("seed", range(5))
def test_kept_moves_counted_one_by_one(seed: int) -> None:
    """After every search: those that are known, while one of their mover that fires earlier is not."""
    random = Random(seed)
    for size in range(1, 13):
        moves = [timed(fire, random.randrange(3)) for fire in random.sample(range(5, 90), size)]
        held = [
            sum(any(waits(one, other) for other in moves[now:]) for one in moves[:now]) for now in range(1, size + 1)
        ]
        ahead = [max((one.arrival for one in moves[:at]), default=0) - moves[at].fire for at in range(size)]
        assert ahead_of_search(moves) == (max(held), max(0, *ahead)), moves


def test_instructions_that_only_carry_waypoints() -> None:
    def order(**fields: int) -> Instruction:
        return Instruction(Opcode.ORDER, fields)

    others = [order(tile=0x11), order(tile=0x11, count=0), Instruction(Opcode.FETCH, {"count": 3})]
    assert waypoint_orders(others) == 0
    assert waypoint_orders([order(count=1, points=7), *others, order(count=12)]) == 2


@pytest.mark.slow
def test_what_searching_again_needs() -> None:
    chip = load("ahead8")
    shape = find("conv:14x14x24-40,k3,s2,p1,relu")[0].shape
    schedule = scheduler("dtt")(shape, chip, 1 << 15)
    result, outcome = search_again(schedule, chip), compile_ahead(schedule, chip)
    assert result.instructions == len(outcome.program.streams[0].instructions)
    assert result.moves == sum(isinstance(one, Move) for one in outcome.schedule.operations) > 50
    ways = [one.path for one in outcome.orders.timed.values() if isinstance(one.op, Move)]
    assert result.waypoints == sum(bool(waypoints_of(way, chip.noc.data_routing)) for way in ways)
    planned = sorted((one for one in outcome.table.timed if isinstance(one.op, Move) and one.operation >= 0),
                     key=lambda one: one.operation)  # fmt: skip
    assert (result.held, result.ahead) == ahead_of_search(planned)
    assert result.looked_at >= sum(len(one.path) - 1 for one in planned), "every link of a way has been looked at"
    assert result.table_bits == result.resources * result.ahead > 10_000
