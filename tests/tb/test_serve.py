"""`meshloom serve`: scenarios by several schedulers, on the RTL and in the model; what goes wrong is said."""

from __future__ import annotations

import itertools
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.model.session import Launch
from meshloom.sched.program.program import Instruction, Stream
from meshloom.sched.schedulers.online.interface import Instance, ServingError
from meshloom.sched.workload.scenario import Request, Scenario
from meshloom.tb.cli.main import app
from meshloom.tb.devices.interface import DeviceError
from meshloom.tb.devices.serving import ServedChip
from meshloom.tb.results.exits import Exit
from meshloom.tb.results.scenario import ScenarioResults
from meshloom.tb.runs.online import executor
from meshloom.tb.runs.online.rtl_session import RtlSession
from meshloom.tb.runs.online.serve import Served, serve

from .served_chip import CHIP, chip_with

TWO = Scenario("two", (Request("resnet8", 1, 0, None, 1.0), Request("ds_cnn", 2, 3000), Request("resnet8", 1, 90_000)))


@pytest.fixture(scope="module")
def served() -> Served:
    return serve(TWO, CHIP, "layer_puzzle:estimator=fair")


def test_every_byte_is_right_and_the_model_is_exact(served: Served) -> None:
    results = served.results
    assert results.ok, results.reasons
    figures = results.scenario
    assert figures.rtl_cycles == figures.model_cycles
    assert figures.decisions == len(results.programs) == 11 + 11 + 11
    assert (figures.decisions_differ, figures.mismatches, figures.faults) == (0, 0, 0)
    assert all(row.bytes_checked > 10_000 for row in results.instances)
    assert all(row.error_percent == 0 for row in results.programs)


def test_counters_and_cores_over_time_are_those_of_the_run(served: Served) -> None:
    """The RTL's counters, the model's beside them; and the cycles of a core's programs are those of its steps."""
    results = served.results
    assert {row.cycles for row in results.busy} == {results.scenario.rtl_cycles}
    assert all(row.busy == row.model_busy for row in results.busy)
    for part in ("mover", "matrix", "vector", "dram_read", "dram_write", "local"):
        assert any(row.busy for row in results.busy if row.part == part)
    for row in results.instances:
        steps = [step for step in results.cores if step.instance == row.number]
        assert (steps[0].cycle, steps[-1].cycle, steps[-1].cores) == (
            min(one.launched for one in results.programs if one.instance == row.number),
            row.end,
            0,
        )
        held = sum(one.cores * (other.cycle - one.cycle) for one, other in itertools.pairwise(steps))
        programs = (one for one in results.programs if one.instance == row.number)
        assert held == sum(((one.rtl_end or 0) - one.launched) * len(one.cores) for one in programs)
        assert all(one.cores != other.cores for one, other in itertools.pairwise(steps))


def test_a_counter_that_the_model_does_not_have_so_is_a_reason(served: Served) -> None:
    rows = list(served.results.busy)
    rows[3] = rows[3].model_copy(update={"model_busy": rows[3].busy + 1})
    off = served.results.model_copy(update={"busy": tuple(rows)})
    (reason,) = off.reasons
    assert f"1 of {len(rows)} counters differ from the model, first {rows[3].part} in dram@(0,0): busy in " in reason
    figures = off.scenario.model_copy(update={"faults": 1})
    assert off.model_copy(update={"scenario": figures}).ok  # the model knows of no faults


def test_a_chip_without_counters_serves_without(tmp_path: Path) -> None:
    results = serve(Scenario("one", (Request("ds_cnn"),)), chip_with("lp4bare", counters=False), "prema", device=None)
    assert results.results.busy == ()
    assert results.results.ok


def test_results_are_written_and_read_again(served: Served, tmp_path: Path) -> None:
    served.results.save(tmp_path / "out.json")
    read = json.loads((tmp_path / "out.json").read_text())
    assert read["scenario"]["antt"] == served.results.scenario.antt
    assert {"error_percent", "rtl_end", "model_end", "launched", "cores"} <= read["programs"][0].keys()
    assert ScenarioResults.model_validate(read) == served.results
    read["programs"][0]["error_percent"] = 3.0
    with pytest.raises(ValueError, match=r"error_percent = 3\.0 contradicts"):
        ScenarioResults.model_validate(read)


def test_networks_held_to_one_parallelisation_have_the_same_deadlines_and_isolated_times() -> None:
    scheduler = "layer_puzzle:estimator=fair"
    free, held = (serve(TWO, CHIP, name, device=None).results for name in (scheduler, f"{scheduler},schemes=output"))
    for one, other in zip(held.instances, free.instances, strict=True):
        assert (one.deadline, one.isolated) == (other.deadline, other.isolated)
    assert {row.scheme.rstrip("234") for row in held.programs} <= {"single", "o"}
    assert {row.scheme for row in free.programs} - {row.scheme for row in held.programs}


def test_only_the_model_decides_in_no_time() -> None:
    one = Scenario("one", (Request("ds_cnn"),))
    quick, slow = (serve(one, CHIP, "prema", device=None, wait=wait).results.scenario for wait in (0, 5000))
    assert (quick.decision_cycles, slow.decision_cycles) == (0, 5000)
    assert slow.model_cycles - quick.model_cycles == quick.decisions * 4999  # launches are a cycle later at least
    with pytest.raises(ServingError, match=r"wait = 0 cycles: reading and writing registers takes 320 on lp4"):
        serve(one, CHIP, "prema", wait=0)


def test_two_programs_run_at_the_same_time(served: Served) -> None:
    """Or nothing is shown by all this."""
    rows = served.results.programs
    overlaps = [
        (one, other)
        for one in rows
        for other in rows
        if one.instance < other.instance and one.launched < (other.rtl_end or 0) and other.launched < (one.rtl_end or 0)
    ]
    assert len(overlaps) > 5
    assert all(not set(one.cores) & set(other.cores) for one, other in overlaps)


def test_a_wrong_byte_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that somebody else's write would leave."""
    release, once = executor.SessionExecutor.release, []

    def spoilt(self: executor.SessionExecutor, instance: Instance) -> None:
        if self.memory is not None and not once:
            once.append(True)
            window = self._windows[instance.number]
            compilation = self._compiled(instance)
            piece = list(compilation.served.results())[-1].pieces[0]
            at = window.base + (piece.address & 0xFFFFFF)
            (words,) = self.memory.dump([(piece.tile, at, 1)])
            self.memory.load([(piece.tile, at, words ^ np.uint8(1))])
        release(self, instance)

    monkeypatch.setattr(executor.SessionExecutor, "release", spoilt)
    results = serve(Scenario("one", (Request("resnet8"),)), CHIP, "prema").results
    assert not results.ok
    assert "resnet8: 8 of " in results.reasons[0]
    assert "first in tensor" in results.reasons[0]


def test_a_simulator_that_dies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ServedChip.run

    def dies(self: ServedChip, cycles: int) -> bool:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        return run(self, cycles)

    monkeypatch.setattr(ServedChip, "run", dies)
    with pytest.raises(DeviceError, match=r"verilator ended while programs were running; see .*sim\.log"):
        serve(Scenario("one", (Request("resnet8"),)), CHIP, "prema")


@pytest.mark.parametrize(
    ("lines", "arguments", "said"),
    [
        ("name = 'x'\n[[network]]\nname = 'resnet9'", [], "unknown network 'resnet9'"),
        ("name = 'x'\n[[network]]\nname = 'resnet8'", ["--scheduler", "nobody"], "unknown online scheduler"),
        ("name = 'x'\n[[network]]\nname = 'resnet8'", ["--chip", "quad16"], "one program at a time"),
        ("name = 'x'\n[[network]]\nname = 'resnet8'", ["--gantt", "x.txt"], "ends with none of"),
    ],
)
def test_what_cannot_be_served_is_one_error(tmp_path: Path, lines: str, arguments: list[str], said: str) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(lines)
    done = CliRunner().invoke(app, ["serve", str(path), *arguments])
    assert done.exit_code == Exit.BAD_INPUT, done.output
    assert said in done.output


def test_larger_than_memory() -> None:
    """One clear error, before anything runs."""
    small = ChipConfig.model_validate(
        CHIP.model_dump() | {"name": "poor", "dram": CHIP.dram.model_dump() | {"words": 1 << 11}}
    )
    with pytest.raises(
        DoesNotFit, match=r"network resnet8, batch 1: each DRAM tile of poor is too small: .* it has 2048"
    ):
        serve(Scenario("one", (Request("resnet8"),)), small, "prema", device=None)


def test_a_fault_in_one_network_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fourth layer has a GEMM of no pixels, on the RTL only; what follows on the same cores is right."""
    launch, launches = RtlSession.launch, []

    def spoilt(self: RtlSession, each: Launch, at: int) -> None:
        launches.append(at)
        program = each.program
        matrix = [stream for stream in program.streams if stream.unit is Unit.MATRIX]
        if len(launches) == 7 and matrix:
            first = matrix[0]
            number = next(n for n, one in enumerate(first.instructions) if one.opcode is Opcode.GEMM)
            code = list(first.instructions)
            code[number] = Instruction(Opcode.GEMM, code[number].fields | {"pixels": 0})
            bad = Stream(first.tile, first.unit, first.dram_tile, first.address, tuple(code))
            streams = tuple(bad if stream is first else stream for stream in program.streams)
            each = replace(each, program=replace(program, streams=streams))
        launch(self, each, at)

    monkeypatch.setattr(RtlSession, "launch", spoilt)
    three = Scenario("three", (Request("resnet8"), Request("resnet8"), Request("ds_cnn"), Request("ds_cnn", 1, 60_000)))
    results = serve(three, CHIP, "planaria").results
    (lost,) = [row for row in results.instances if row.lost]
    assert lost.lost is not None
    assert "SHAPE in core" in lost.lost
    assert (lost.end, lost.bytes_checked) == (None, 0)
    assert results.scenario.faults == 1
    for row in results.instances:
        if row is not lost:
            assert row.end is not None
            assert row.bytes_checked > 10_000
            assert row.mismatches == 0
    assert any(f"{lost.number}:{lost.network} was lost" in reason for reason in results.reasons)
