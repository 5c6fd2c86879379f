"""The parts of a router, each by itself: buffer, route, control of the inputs, output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from amaranth.hdl import ClockDomain, Module
from amaranth.sim import Simulator

from meshloom.hw.noc.input_unit import FlitBuffer, InputControl, RouteSelect
from meshloom.hw.noc.link import Plane, Position
from meshloom.hw.noc.output_unit import Output
from meshloom.hw.spec.config import tile_address
from meshloom.hw.spec.routes import LOCAL

BITS = 12


def answers(part: Any, steps: Sequence[Mapping[str, int]], *outputs: str) -> list[tuple[int, ...]]:
    """The named outputs in each cycle, with the inputs of that step; a name `a.b` is a member of an interface."""

    def signal(name: str) -> Any:
        value = part
        for piece in name.split("."):
            value = value[int(piece)] if piece.isdigit() else getattr(value, piece)
        return value

    rows: list[tuple[int, ...]] = []

    async def testbench(ctx: Any) -> None:
        for step in steps:
            for name, value in step.items():
                ctx.set(signal(name), value)
            rows.append(tuple(ctx.get(signal(name)) for name in outputs))
            await ctx.tick()

    top = Module()
    top.domains.sync = ClockDomain()  # routes have no register
    top.submodules.part = part
    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    return rows


def test_a_buffer_fills_up_and_gives_its_flits_back_in_order() -> None:
    push, pop, idle = {"arrives": 1, "pop": 0}, {"arrives": 0, "pop": 1}, {"arrives": 0, "pop": 0}
    steps = [push | {"flit": 5}, push | {"flit": 6}, push | {"flit": 7}, idle, pop, pop, idle]
    # valid, ready, front; the third flit finds the buffer full
    rows = answers(FlitBuffer(BITS, 2), steps, "valid", "ready", "front")
    assert [row[:2] for row in rows] == [(0, 1), (1, 1), (1, 0), (1, 0), (1, 0), (1, 1), (0, 1)]
    assert [row[2] for row in rows if row[0]] == [5, 5, 5, 5, 6]


def test_a_buffer_says_of_its_front_what_was_noted_when_it_arrived() -> None:
    steps = [
        {"arrives": 1, "note": 1},
        {"note": 2},
        {"pop": 1, "note": 3},
        {"pop": 0, "note": 4},
        {"pop": 1, "arrives": 0, "note": 5},
        {"pop": 1},
        {"pop": 0},
    ]
    rows = answers(FlitBuffer(BITS, 3, notes=3), steps, "valid", "noted")
    assert [noted for valid, noted in rows if valid] == [1, 1, 2, 2, 3, 4]


@pytest.mark.parametrize(
    ("port", "to", "target"),
    [
        (LOCAL, (1, 1), LOCAL),
        (LOCAL, (2, 0), "east"),
        ("west", (1, 2), "south"),
        ("north", (1, 2), "south"),
        ("north", (0, 1), None),  # against the dimension order
        (LOCAL, (3, 0), None),  # outside the mesh
    ],
)
def test_a_head_requests_the_output_of_dimension_order(port: str, to: tuple[int, int], target: str | None) -> None:
    route = RouteSelect(Position(1, 1, Plane(3, 3, BITS, 2)), port)
    (head,) = answers(route, [{"flit": tile_address(*to)}], *(f"to_{name}" for name in route.targets))
    assert head == tuple(int(name == target) for name in route.targets)


def test_a_packet_without_a_request_is_dropped_whole() -> None:
    front = {"valid": 1, "last": 0, "requested": 0, "taken": 0}
    steps = [front, front, front | {"last": 1}, front | {"requested": 1}, front | {"requested": 1, "taken": 1}, front]
    rows = answers(InputControl(1), steps, "head", "bad", "pop")
    assert rows == [(1, 1, 1), (0, 0, 1), (0, 0, 1), (1, 0, 0), (1, 0, 1), (0, 0, 0)]


def test_an_output_is_a_packet_s_until_its_last_flit_and_then_the_next_one_s() -> None:
    output = Output(Plane(3, 3, BITS, 2), "east", (0, 0))
    both = {"front.0": 0xA, "front.1": 0xB, "valid": 0b11, "request": 0b11, "link.ready": 1}
    steps = [both, both | {"request": 0b10, "last": 0b01}, both | {"request": 0b10}, both | {"link.ready": 0}]
    rows = answers(output, steps, "taken", "link.payload.data", "busy", "blocked")
    assert rows == [(0b01, 0xA, 1, 0), (0b01, 0xA, 1, 0), (0b10, 0xB, 1, 0), (0, 0xB, 0, 1)]
