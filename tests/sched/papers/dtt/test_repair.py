"""Routing several data: orders and stopovers repair what one after the other spoils; an exact solver as a witness."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from meshloom.sched.papers.dtt.exact_routing import optimum
from meshloom.sched.papers.dtt.placing import Operation
from meshloom.sched.papers.dtt.random_needs import random_needs
from meshloom.sched.papers.dtt.repair import Load, Need, Routed, repaired, routed
from meshloom.sched.papers.dtt.schedule import plan
from meshloom.sched.routing.hardware import Actor, DttError, Hardware, TimingFault

PATIENCE = 6


def narrow() -> Hardware:
    """P leads to X and to Y; X can be reached without it, for more."""
    hardware = Hardware()
    hardware.node(size=None, name="MEM", keeps=True)
    for name in ("P", "X", "Y"):
        hardware.node(size=2, name=name)
    for source, destination, cost, delay in (
        ("MEM", "P", 1, 1),
        ("P", "X", 1, 1),
        ("P", "Y", 1, 1),
        ("MEM", "X", 5, 2),
    ):
        hardware.wire(source=source, destination=destination, bandwidth=1, cost=cost, delay=delay)
    return hardware


LOADS = (Load(0, "MEM"), Load(1, "MEM"))
BOTH = (Need(0, "X", 2), Need(1, "Y", 2))


def test_who_goes_first_may_take_the_only_wire_of_another() -> None:
    with pytest.raises(TimingFault, match="datum 1 cannot be in Y in cycle 2"):
        routed(narrow(), LOADS, BOTH, 0)
    result = repaired(narrow(), LOADS, BOTH, 0, rounds=20)
    assert (result.cycles, result.late, result.energy) == ((2, 2), 0, 7)
    assert routed(narrow(), LOADS, BOTH, 1).late == 1


def test_a_stopover_lets_two_needs_share_a_route() -> None:
    """By itself datum 0 reaches X directly, for less than by P; on its way to Y it passes P, for less in all."""
    hardware = narrow()
    hardware.wire(source="MEM", destination="X", bandwidth=1, cost=1.5, delay=2)
    needs = (Need(0, "X", 3), Need(0, "Y", 2))
    assert routed(hardware, LOADS, needs, 0).energy == 3.5
    result = repaired(hardware, LOADS, needs, 0, rounds=60)
    assert result.energy == optimum(hardware, LOADS, needs, 0, 5.0).energy < 3.5


def test_nothing_and_no_rounds() -> None:
    assert repaired(narrow(), LOADS, (), 0, rounds=5).cycles == ()
    assert repaired(narrow(), LOADS, BOTH, 1, rounds=0).cycles == routed(narrow(), LOADS, BOTH, 1).cycles
    with pytest.raises(TimingFault, match="datum 1 cannot be in Y in cycle 1"):
        repaired(narrow(), LOADS, (Need(1, "Y", 1),), 0, rounds=5)


def legal(hardware: Hardware, found: Routed, needs: tuple[Need, ...]) -> None:
    """Wires carry no more than they can, and every need has what it asked for when it says."""
    starts = Counter((move.source, move.destination, move.start) for move in found.router.movements)
    for (source, destination, _), count in starts.items():
        of = [wire.bandwidth for wire in hardware.wires if (wire.source, wire.destination) == (source, destination)]
        assert count <= sum(of)
    for need, cycle in zip(needs, found.cycles, strict=True):
        assert found.router.has(need.datum, need.node, cycle)


@pytest.mark.parametrize("seed", [4, 19, 25])
def test_what_is_repaired_is_as_good_as_it_can_be(seed: int) -> None:
    hardware, loads, needs = random_needs(Random(seed), PATIENCE)
    first = routed(hardware, loads, needs, PATIENCE)
    result = repaired(hardware, loads, needs, PATIENCE, rounds=200)
    best = optimum(hardware, loads, needs, PATIENCE, 5.0)
    legal(hardware, result, needs)
    assert best.proven
    assert (best.late, best.energy) <= (result.late, result.energy) <= (first.late, first.energy)
    assert result.late == best.late
    assert result.energy <= best.energy * 1.01
    again = repaired(hardware, loads, needs, PATIENCE, rounds=200)
    assert (again.cycles, again.energy) == (result.cycles, result.energy)


def test_the_solver_says_what_it_does_not_know() -> None:
    with pytest.raises(DttError, match="node MEM keeps what it gets"):
        optimum(narrow(), LOADS, (Need(0, "MEM", 2),), 0, 1.0)
    back = narrow()
    back.wire(source="X", destination="MEM", bandwidth=1, cost=1, delay=1)
    with pytest.raises(DttError, match="node MEM keeps what it gets"):
        optimum(back, LOADS, BOTH, 0, 1.0)
    with pytest.raises(DttError, match="no routes for 1 needs were found"):
        optimum(narrow(), LOADS, (Need(1, "Y", 1),), 0, 1.0)


def test_a_schedule_tries_other_orders_before_it_is_late() -> None:
    hardware = narrow()
    for name in ("X", "Y"):
        hardware.node(size=None, name=f"{name}_out", keeps=True)
        hardware.actor(Actor(f"at {name}", name, f"{name}_out"))
    work = [Operation(10, (0,), label="first"), Operation(11, (1,), label="second")]
    given = {"MEM": (0, 1)}
    with pytest.raises(TimingFault, match="second: datum 1"):
        plan(hardware, work, given, 2)
    result = plan(hardware, work, given, 2, repair=20)
    assert [one.cycle for one in result.placed] == [2, 2]
    late = plan(hardware, work, given, 2, patience=3)
    assert [one.operation for one in late.retimed] == ["second"]
    assert plan(hardware, work, given, 2, patience=3, repair=20).retimed == ()
    with pytest.raises(TimingFault):
        plan(hardware, work, given, 1, repair=20)
