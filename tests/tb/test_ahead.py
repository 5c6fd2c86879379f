"""Ahead-of-time programs on the RTL: every arrival in the planned cycle; and a network that is slower is found out."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from meshloom.hw.noc import mesh as mesh_module
from meshloom.hw.noc.router import Router
from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig, load
from meshloom.hw.spec.isa import Opcode, Region
from meshloom.hw.spec.routes import LOCAL
from meshloom.sched.model.timeline import play
from meshloom.sched.store.kinds import SIMULATORS
from meshloom.sched.store.store import Recipe, key
from meshloom.sched.workload.catalog import find
from meshloom.tb.build import builder as build_module
from meshloom.tb.build.builder import Build, build
from meshloom.tb.compare.records import pair
from meshloom.tb.devices.interface import Job
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.results.schema import Row, Settings, Status
from meshloom.tb.runs.batch import simulate
from meshloom.tb.runs.runner import prepare
from meshloom.tb.verify.ahead_soak import chips, workloads, wrong_with
from meshloom.tb.verify.random_programs import random_program

#: The smallest chip with a controller that computes anything.
SMALL = ChipConfig.model_validate(
    load("ahead8").model_dump()
    | {"name": "ahead4", "lanes": 4, "rows": 4, "cols": 4, "floorplan": ["dram core dtt", "host spm core"]}
    | {"dram": {"bytes_per_cycle": 4, "latency": 20}, "controller_instructions": 64}
)
#: The same with two virtual channels, whose flits wait in an ejection buffer where they arrive, and a DRAM tile below
#: the controller for its code: longer programs are fetched ring after ring.
FETCHED = ChipConfig.model_validate(
    SMALL.model_dump()
    | {"name": "ahead4_fetched", "floorplan": ["dram core dtt", "host core dram"]}
    | {"controller_channel": True, "controller_instructions": 16}
    | {"noc": SMALL.noc.model_dump() | {"data_vcs": 2, "data_depth": 2}}
)
#: The controller's code lies in the first DRAM tile, all data and the records of a run in the second.
CODE_FIRST = ChipConfig.model_validate(
    FETCHED.model_dump() | {"name": "ahead4_code_first", "floorplan": ["dram dtt core", "host core dram"]}
)


def rows(names: list[str], device: SimulatedDevice, chip: ChipConfig, scheduler: str = "dtt") -> list[Row]:
    items = [prepare(find(name)[0], chip, scheduler) for name in names]
    return simulate(items, device, Settings(code="", scheduler=scheduler, simulator_version=""), lambda event: None)


@pytest.mark.slow
def test_every_word_lands_when_it_was_planned_to_with_one_channel() -> None:
    names = ["gemm:9x8x7", "conv:5x6x5-6,k3,p1,relu"]
    result = rows(names, SimulatedDevice(build(SMALL, "icarus")), SMALL)
    assert [wrong_with(row) for row in result] == [""] * len(names)
    assert sum(row.planned_arrivals for row in result) > 20


@pytest.mark.slow
def test_records_come_from_the_channel_that_holds_data() -> None:
    result = rows(["gemm:9x8x7"], SimulatedDevice(build(CODE_FIRST, "verilator")), CODE_FIRST)
    assert CODE_FIRST.drams != CODE_FIRST.channels[:1]
    assert [wrong_with(row) for row in result] == [""]
    assert sum(row.planned_arrivals for row in result) > 0


@pytest.mark.slow
def test_words_from_the_nearest_holder_land_when_they_were_planned_to() -> None:
    """Pushed as planned, and pulled: what a core was sent leaves its operand memories beside GEMMs."""
    device, names = SimulatedDevice(build(FETCHED, "verilator")), ["gemm:43x60x56", "conv:9x9x20-24,k3,p1,relu"]
    result = rows(names, device, FETCHED, "dtt:sources=nearest")
    assert [wrong_with(row) for row in result] == [""] * len(names)
    assert sum(row.planned_arrivals for row in result) > 50
    for row in rows(names, device, FETCHED, "dtt:sources=nearest,pushed=no"):
        assert row.status is Status.PASSED, row.reason
        assert row.rtl_cycles == row.model_cycles


@pytest.mark.slow
def test_operand_memories_are_read_beside_the_vector_unit_to_the_cycle() -> None:
    """Random programs of four threads on a core: MOVEs out of A and B wait while a VEC walks over its operands."""
    values, beside = [], 0
    for seed in range(40):
        random = Random(seed)
        program = random_program(random, FETCHED, random.randint(10, 40), threads=4)
        values.append(Job(program, [], [], 200_000))
    for job, run in zip(values, SimulatedDevice(build(FETCHED, "verilator")).run(values), strict=True):
        assert run.fault is None
        timeline = play(job.program, FETCHED)
        pairs = pair(run.records, timeline.executed, job.program)
        assert len(pairs) == len(run.records) == len(timeline.executed)
        assert [one for one in pairs if one.differs] == []
        assert run.cycles == timeline.cycles
        code = [one for stream in job.program.streams for one in stream.instructions if one.opcode is Opcode.MOVE]
        operands = {
            one.fields["tag"]: one.fields["src_tile"]
            for one in code
            if one.fields["src_tile"] in FETCHED.cores and one.fields["src"] >> OFFSET_BITS in (Region.MAIN, Region.B)
        }
        moves = [one for one in run.records if one.opcode is Opcode.MOVE and one.tag in operands]
        vecs = [one for one in run.records if one.opcode is Opcode.VEC]
        beside += sum(
            operands[one.tag] == vec.tile and one.start < vec.end and vec.start < one.end
            for one in moves
            for vec in vecs
        )
    assert beside > 20


@pytest.mark.slow
def test_every_word_lands_when_it_was_planned_to_with_two_channels_while_code_is_fetched() -> None:
    names = [*workloads(11, 8), *workloads(5, 4), "gemm:8x6x8", "gemm:43x60x56"]
    result = rows(names, SimulatedDevice(build(FETCHED, "verilator")), FETCHED)
    assert [wrong_with(row) for row in result] == [""] * len(names)
    assert max(row.instructions for row in result) > 4 * FETCHED.controller_instructions


def test_the_chips_of_the_soak_are_what_they_say() -> None:
    assert {chip.noc.data_routing.value for chip in chips()} == {"xy", "yx"}
    assert {chip.noc.data_vcs for chip in chips()} == {1, 2}
    assert {chip.controller_channel for chip in chips()} == {False, True}
    assert len({(chip.width, chip.height) for chip in chips()}) == len(chips())


class _SlowRouter(Router):
    """A router that keeps every flit that leaves towards its tile for a cycle longer."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = Router(self.x, self.y, self.plane)
        m.d.comb += [self.fault.eq(inner.fault), self.fault_tile.eq(inner.fault_tile)]
        held, flit = Signal(), Signal(inner.output(LOCAL).payload.shape())
        m.d.comb += self.active.eq(inner.active | held)
        for port in self.ports:
            m.d.comb += [out.eq(inside) for out, inside in zip(self.counters(port), inner.counters(port), strict=True)]
            wiring.connect(m, wiring.flipped(self.input(port)), inner.input(port))
            source: Any = inner.output(port)
            target: Any = self.output(port)
            if port != LOCAL:
                wiring.connect(m, source, wiring.flipped(target))
                continue
            m.d.comb += [target.valid.eq(held), target.payload.eq(flit), source.ready.eq(~held | target.ready)]
            with m.If(source.ready):
                m.d.sync += [held.eq(source.valid), flit.eq(source.payload)]
        return m


def slower(config: ChipConfig) -> Build:
    """The chip with routers that are slower by a cycle, for Icarus: its chips are converted in this process, where the
    router can be another one."""
    made_of = build_module.ingredients(config, "icarus", False)
    name = key(f"{config.name}-slow", router=Path(__file__).read_text(), **made_of)

    def make(folder: Path, log: Path) -> None:
        with mock.patch.object(mesh_module, "Router", _SlowRouter):
            build_module.compile_into(folder, config, "icarus", False, log)

    folder, _ = SIMULATORS.store().build(Recipe(name, make, build_module.PROGRAMS["icarus"]))
    return Build(config, "icarus", False, folder, False)


@pytest.mark.slow
def test_a_router_that_is_slower_by_a_cycle_is_found_out() -> None:
    """The bytes may still be right, but nothing lands when it should; or a control packet is too late, and says so."""
    (row,) = rows(["gemm:9x8x7"], SimulatedDevice(slower(SMALL)), SMALL)
    assert row.status is not Status.PASSED
    if row.faults:
        assert row.fault_reports[0].cause == "LATE"
    else:
        assert row.arrival_mismatches == row.planned_arrivals > 0
        assert "was planned to arrive in cycle" in row.first_arrival_mismatch
