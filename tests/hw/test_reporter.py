"""What a tile tells the host by itself: its first fault, and where its parts stand when the host asks."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.sim import Simulator

from meshloom.hw.assembly.tile_reports import PLANES, add_reporter
from meshloom.hw.host_link.reporter import Reporter, most_reports, parts_of, report_cycles
from meshloom.hw.spec.config import TileKind, load
from meshloom.hw.spec.isa import POST, STATE, BlockedOn, Cause, Part, Unit
from meshloom.hw.wiring.signatures import BlockedStatus, FaultReport

from .unit_bench import Mood, Sink, always, bits, fields, never, simulate, sometimes

HERE, HOST, OFFENDER = 0x21, 0x10, 0x35
SOURCES = (Unit.MOVER, Unit.NONE, Unit.MATRIX)
PARTS = parts_of(load("tiny"), TileKind.CORE)


@dataclass
class Outcome:
    sent: list[tuple[int, int]] = field(default_factory=list)  #: cycle, flit
    free: list[int] = field(default_factory=list)  #: of every cycle: a fault raised now is reported
    owes: list[int] = field(default_factory=list)  #: of every cycle: a report has not left

    @property
    def faults(self) -> list[tuple[int, dict[str, int]]]:
        return [(cycle, POST.unpack(flit)) for cycle, flit in self.sent]

    @property
    def states(self) -> list[tuple[int, dict[str, int]]]:
        return [(cycle, STATE.unpack(flit)) for cycle, flit in self.sent]


def run(
    faults: dict[int, dict[int, dict[str, int]]] | None = None,
    blocked_status: dict[int, dict[str, int]] | None = None,
    *,
    ask: int = 1000,
    stop: int = 1000,
    send: Mood = always,
    cycles: int = 60,
    gated: bool = False,
    clear: Mood = never,
    offender: Mood = never,
    reports: bool = True,
) -> Outcome:
    """`faults`: cycle to port to what is raised there; `blocked_status`: part to what it waits for; `ask`, `stop`:
    cycles from which the host asks, and in which `go` falls. `clear`: when another fault is accepted; `offender`: when
    port 0 names the tile OFFENDER; `reports`: as of the chip."""
    unit = Reporter(SOURCES, PARTS, reports)
    sink = Sink(unit.send, send)
    free: list[int] = []
    owes: list[int] = []

    def before(cycle: int, context: Any) -> None:
        context.set(unit.go, cycle < stop)
        context.set(unit.ask, cycle >= ask)
        context.set(unit.clear, clear(cycle))
        context.set(unit.offender.valid, offender(cycle))
        context.set(unit.offender.tile, OFFENDER)
        raised = (faults or {}).get(cycle, {})
        for port in range(len(SOURCES)):
            values = {"valid": int(port in raised), **raised.get(port, {})}
            context.set(unit.fault(port).as_value(), bits(FaultReport, **values))
        for i in range(len(PARTS)):
            context.set(unit.blocked_status(i).as_value(), bits(BlockedStatus, **(blocked_status or {}).get(i, {})))

    constant = {"tile": HERE, "host": HOST}

    def note(_cycle: int, context: Any) -> None:
        free.append(context.get(unit.free))
        owes.append(context.get(unit.owes))

    simulate(unit, cycles, [], [sink], before=before, after=note, constant=constant, gated=gated)
    return Outcome(sink.got, free, owes)


def fault(cause: Cause, number: int) -> dict[str, int]:
    return {"cause": int(cause), "tag": 0x100 + number, "value": 0x2000000 + number}


def test_the_first_fault_is_sent_two_cycles_later_and_no_other() -> None:
    """Of two in one cycle that of the lower port."""
    first = {2: fault(Cause.SHAPE, 2), 1: fault(Cause.ADDRESS, 1)}
    out = run({7: first, 8: {0: fault(Cause.LATE, 0)}, 30: {1: fault(Cause.BUS, 3)}})
    ((cycle, sent),) = out.faults
    message = {"dst_tile": HOST, "fault": 1, "tile": HERE, "unit": Unit.NONE} | fault(Cause.ADDRESS, 1)
    assert (cycle, sent) == (9, dict.fromkeys(POST.offsets, 0) | message)


@pytest.mark.parametrize("gated", [False, True])
def test_without_reports_a_fault_names_its_tile_in_the_same_cycle(gated: bool) -> None:
    """Once, until `clear`; and nothing waits for anything."""
    raised = {at: {1: fault(Cause.SHAPE, at), 2: fault(Cause.LATE, at)} for at in (7, 8, 30)}
    waiting = {0: {"waits": int(BlockedOn.UNIT)}}
    both = [
        run(
            raised,
            waiting,
            reports=reports,
            gated=gated,
            send=lambda cycle: cycle >= 12,
            clear=lambda cycle: cycle == 20,
        )
        for reports in (True, False)
    ]
    message = {"dst_tile": HOST, "fault": 1, "tile": HERE, "unit": Unit.NONE, "cause": Cause.UNREPORTED}
    assert [cycle for cycle, _ in both[1].faults] == [cycle for cycle, _ in both[0].faults] == [12, 32]
    assert all(sent == dict.fromkeys(POST.offsets, 0) | message for _, sent in both[1].faults)
    assert (both[1].free, both[1].owes) == (both[0].free, both[0].owes)
    assert run(blocked_status=waiting, ask=5, reports=False).sent == []


def test_a_report_is_owed_from_the_cycle_after_the_fault_until_it_has_left() -> None:
    """Of a fault that is not accepted, nothing is."""
    out = run({at: {1: fault(Cause.SHAPE, at)} for at in (7, 8, 30)}, send=lambda cycle: cycle >= 12)
    assert out.owes == [int(8 <= cycle <= 12) for cycle in range(60)]


def test_a_fault_outside_of_a_run_is_not_heard() -> None:
    assert run({7: {0: fault(Cause.SHAPE, 1)}}, stop=7).sent == []


@pytest.mark.parametrize("gated", [False, True])
def test_after_clear_another_fault_is_sent(gated: bool) -> None:
    """Not the one in between, and none by itself."""
    raised = {at: {1: fault(Cause.SHAPE, at)} for at in (7, 10, 21, 22, 40)}
    out = run(raised, clear=lambda cycle: cycle in (20, 30), gated=gated)
    assert [(cycle, sent["tag"]) for cycle, sent in out.faults] == [(9, 0x107), (23, 0x115), (42, 0x128)]
    assert out.free == [int(cycle <= 7 or 21 <= cycle <= 21 or 31 <= cycle <= 40) for cycle in range(60)]


def test_a_tile_that_clears_itself_reports_every_fault_that_is_held_until_it_is_heard() -> None:
    """As dram tiles do: the next one can be raised in the second cycle after the first was taken."""
    raised = {at: {0: fault(Cause.RIGHTS, at)} for at in range(7, 11)}
    out = run(raised, send=lambda cycle: cycle >= 9, clear=lambda cycle: cycle == 9)
    assert [(cycle, sent["tag"]) for cycle, sent in out.faults] == [(9, 0x107), (12, 0x10A)]


def test_nothing_is_heard_outside_of_a_run_and_that_is_said() -> None:
    out = run({30: {0: fault(Cause.SHAPE, 1)}}, stop=20)
    assert out.free == [int(cycle < 20) for cycle in range(60)]


@pytest.mark.parametrize(("port", "named", "tile"), [(0, True, OFFENDER), (0, False, HERE), (1, True, HERE)])
def test_whose_fault_it_was(port: int, named: bool, tile: int) -> None:
    """Only the mover's faults, on the first port, can be another tile's."""
    out = run({7: {port: fault(Cause.RIGHTS, 3)}}, offender=lambda cycle: named)
    ((_, sent),) = out.faults
    assert (sent["tile"], sent["cause"], sent["dst_tile"]) == (tile, Cause.RIGHTS, HOST)


def test_a_lower_port_hides_a_higher_one_and_keeps_its_name() -> None:
    both = {0: fault(Cause.RIGHTS, 3), 2: fault(Cause.SHAPE, 4)}
    ((_, sent),) = run({7: both}, offender=always).faults
    assert (sent["tile"], sent["tag"], sent["unit"]) == (OFFENDER, 0x103, Unit.MOVER)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_states_of_all_parts_that_wait(seed: int, gated: bool) -> None:
    rng = random.Random(seed)
    blocked_status = {
        i: {"waits": rng.randrange(1, len(BlockedOn)), "tag": rng.getrandbits(16), "sem": rng.getrandbits(6),
            "need": rng.getrandbits(6), "has": rng.getrandbits(8), "peer": rng.getrandbits(8)}
        for i in range(len(PARTS)) if rng.random() < 0.7
    }  # fmt: skip
    idle = {i: {"tag": 7, "peer": 9} for i in range(len(PARTS)) if i not in blocked_status}
    out = run(blocked_status=blocked_status | idle, ask=5, stop=5, send=sometimes(rng, 0.5), gated=gated, cycles=150)
    common = {"dst_tile": HOST, "fault": 1, "cause": 0, "tile": HERE, "parity": 0}
    assert [state for _, state in out.states] == [
        common | {"part": PARTS[i][0], "unit": PARTS[i][1]} | message for i, message in sorted(blocked_status.items())
    ]


def test_one_state_every_two_cycles() -> None:
    blocked_status = {i: {"waits": int(BlockedOn.UNIT)} for i in (0, 1, 3)}
    out = run(blocked_status=blocked_status, ask=5, stop=5)
    # cycle 5 is the fault's turn, then a part each; part 2 has nothing to say
    assert [cycle for cycle, _ in out.sent] == [7, 9, 12]


def test_a_fault_that_may_be_lost_is_told_again() -> None:
    """As a state, before all others; a fault whose report has not even left is sent first."""
    blocked_status = {0: {"waits": int(BlockedOn.FAULT), "tag": 3}}
    out = run({7: {2: fault(Cause.SHAPE, 5)}}, blocked_status, ask=20, stop=20)
    (_, report), (_, again), (_, stream) = out.states
    assert (report["cause"], again["cause"]) == (Cause.SHAPE, 0)
    assert (again["part"], again["waits"], again["unit"], again["tag"]) == (Part.FAULT, Cause.SHAPE, Unit.MATRIX, 0x105)
    assert POST.unpack(out.sent[1][1])["value"] == 0x2000005
    assert (stream["part"], stream["waits"], stream["tag"]) == (Part.STREAM, BlockedOn.FAULT, 3)
    late = run({7: {2: fault(Cause.SHAPE, 5)}}, ask=8, stop=8, send=lambda cycle: cycle > 20)
    assert [state["cause"] for _, state in late.states] == [Cause.SHAPE, 0]


def test_nothing_is_said_unless_asked() -> None:
    assert run(blocked_status={i: {"waits": int(BlockedOn.UNIT)} for i in range(len(PARTS))}).sent == []
    assert run(ask=5, stop=5, send=never).sent == []


@pytest.mark.parametrize("chip", ["tiny", "quad16", "pe12x14"])
def test_as_many_reports_as_the_chip_has_parts(chip: str) -> None:
    config = load(chip)
    parts = {TileKind.CORE: 7, TileKind.SPM: 5, TileKind.HOST: 5, TileKind.DRAM: 6}  # a fault, streams, ...
    assert most_reports(config) == sum(parts[kind] for kind in config.tiles.values())
    assert report_cycles(config) > 2 * most_reports(config)
    assert most_reports(config.model_copy(update={"reports": False})) == 0


class Station(Elaboratable):
    """The reporter of a core with a controller, and stand-ins for its other parts. `shown`: what it is told that the
    mover's stream waits for."""

    def __init__(self) -> None:
        def part() -> SimpleNamespace:
            return SimpleNamespace(fault=Signal(FaultReport), blocked_status=Signal(BlockedStatus))

        self.fronts, self.controller, self.mover = [part() for _ in range(3)], part(), part()
        self.mover.forward = SimpleNamespace(valid=Signal(), payload=SimpleNamespace(dst_tile=Signal(8)))
        self._others = {"delivery": part(), "taker": part(), "semaphores": part()}
        self.shown = Signal(BlockedStatus)

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def add(name: str, unit: Reporter) -> Reporter:
            m.submodules[name] = unit
            return unit

        ports = {f"{plane}_dropped{end}": Signal(8) for plane in PLANES for end in ("", "_tile")}
        tile = SimpleNamespace(
            config=load("tiny"),
            kind=TileKind.CORE,
            **{name: Signal(8) for name in ("tile", "host", "go", "ask")},
            **ports,
        )
        parts = SimpleNamespace(
            fronts=self.fronts, controller=self.controller, mover=self.mover, **self._others, core=None, dram=None,
            sleepers=SimpleNamespace(add=add),
        )  # fmt: skip
        reporter = add_reporter(m, cast(Any, tile), cast(Any, parts), Signal(FaultReport), None)
        m.d.comb += self.shown.eq(reporter.blocked_status(PARTS.index((Part.STREAM, Unit.MOVER))))
        return m


def test_a_stream_does_not_know_what_its_unit_waits_for() -> None:
    """The controller says it for the mover's stream, or else where the mover's request goes; each only while that
    stream, and no other, waits for its unit."""
    station = Station()
    semaphore, request = (
        {"waits": BlockedOn.SEMAPHORE, "sem": 3},
        {"waits": BlockedOn.REQUEST_PLANE, "tag": 5, "peer": 0x21},
    )

    async def body(context: Any) -> None:
        def wait(part: Any, **values: int) -> None:
            context.set(part.blocked_status.as_value(), bits(BlockedStatus, **values))

        async def shown() -> dict[str, int]:
            await context.delay(1e-9)
            status = fields(BlockedStatus, context.get(station.shown.as_value()))
            return {name: value for name, value in status.items() if value}

        wait(station.controller, **request)
        wait(station.fronts[0], **semaphore)
        wait(station.fronts[-1], waits=BlockedOn.UNIT)
        assert await shown() == semaphore
        wait(station.fronts[0], waits=BlockedOn.UNIT)
        wait(station.fronts[-1], **semaphore)
        assert await shown() == request
        context.set(station.mover.forward.payload.dst_tile, 0x35)
        context.set(station.mover.forward.valid, 1)
        assert await shown() == request | {"peer": 0x35}
        wait(station.fronts[0], **semaphore)
        assert await shown() == semaphore

    simulator = Simulator(station)
    simulator.add_clock(1e-6)
    simulator.add_testbench(body)
    simulator.run()
