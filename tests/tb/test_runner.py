"""Real layers all the way: schedule, lower, check, predict, simulate, compare. And that each comparison can fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.lowering import predict, programs
from meshloom.sched.model import timeline as timeline_module
from meshloom.sched.model.timeline import Timeline, play
from meshloom.sched.program.program import Program
from meshloom.sched.workload import catalog, zoo
from meshloom.sched.workload.layers import LayerData
from meshloom.tb.build.builder import SIMULATORS
from meshloom.tb.devices.interface import Job
from meshloom.tb.inputs.sources import NetworkSource, feeds
from meshloom.tb.results import identity
from meshloom.tb.results.events import Event, RowCount, Stage
from meshloom.tb.results.schema import Row, Status
from meshloom.tb.runs import runner, single
from meshloom.tb.runs.kinds import layers, table
from meshloom.tb.runs.options import RunOptions

from ..tiers import slow_but
from .layer_runs import CHIP, WORKLOADS, run


@pytest.fixture(scope="module")
def results() -> dict[str, tuple[list[Row], list[Event]]]:
    return {simulator: run(WORKLOADS, simulator) for simulator in SIMULATORS}


@pytest.fixture(scope="module")
def rows(results: dict[str, tuple[list[Row], list[Event]]]) -> list[Row]:
    return results["verilator"][0]


@pytest.mark.parametrize("number", range(len(WORKLOADS)))
def test_every_output_byte_is_checked_and_right(number: int, rows: list[Row]) -> None:
    row = rows[number]
    assert row.workload == WORKLOADS[number]
    assert (row.chip, row.scheduler, row.simulator) == ("tiny", "loop_order", "verilator")
    shape = catalog.find(row.workload)[0].shape
    blocks = -(-shape.out_channels // CHIP.lanes)
    assert row.bytes_checked == shape.batch * blocks * CHIP.lanes * shape.out_h * shape.out_w
    assert (row.mismatches, row.faults, row.fault_reports, row.failure) == (0, 0, (), None)
    assert row.instructions > 5
    assert row.utilisation == pytest.approx(shape.macs / (16 * row.rtl_cycles))
    assert 0 < row.utilisation <= 1
    assert row.cpu_seconds > 0


def test_the_model_is_close_on_a_chip_that_nobody_tuned_it_on(rows: list[Row]) -> None:
    """Issue's bound for whole layers: worst 5 %."""
    assert max(abs(row.error_percent or 0) for row in rows) <= 5


def test_both_simulators_give_the_same_rows(results: dict[str, tuple[list[Row], list[Event]]]) -> None:
    def shared(row: Row) -> Row:
        assert row.settings is not None
        settings = row.settings.model_copy(update={"simulator_version": ""})
        return row.model_copy(update={"simulator": "", "cpu_seconds": 0.0, "settings": settings})

    first, second = ([shared(row) for row in results[simulator][0]] for simulator in SIMULATORS)
    assert first == second


def test_events_come_as_things_happen(results: dict[str, tuple[list[Row], list[Event]]]) -> None:
    result, events = results["verilator"]
    assert events[0] == RowCount(rows=len(WORKLOADS))
    value = [event for event in events if isinstance(event, Row)]
    assert sorted(row.workload for row in value) == sorted(row.workload for row in result)
    for workload in WORKLOADS:
        assert {event.what for event in events if isinstance(event, Stage) and event.workload == workload} >= {
            "scheduling",
            "simulating",
        }


# -- checks that can fail -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", slow_but(["x", "w", "bias"], "w"))
def test_one_wrong_operand_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single number in the chip's memory differs from what the golden model is given."""

    def corrupted(data: LayerData) -> dict[str, np.ndarray]:
        arrays = original(data)
        array = arrays[name].copy()
        if name == "bias":
            array[1] += 1 << 20
        else:
            array.reshape(-1)[array.size // 2] ^= 0x40
        return arrays | {name: array}

    original = layers.arrays
    monkeypatch.setattr(layers, "arrays", corrupted)
    (row,), _ = run(["conv:7x7x5-6,k3,p1"])
    shape = catalog.find(row.workload)[0].shape
    assert 0 < row.mismatches < row.bytes_checked
    if name != "x":  # one output channel at most
        assert row.mismatches <= shape.out_h * shape.out_w
    assert row.faults == 0


def test_a_result_that_is_not_written_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chip's output is brought back from where it does not write: the fill pattern is no result."""

    def elsewhere(*arguments: Any) -> Job:
        job = original(*arguments)
        far = CHIP.dram.words // 2
        return replace(job, outputs=[(tile, at + far, words) for tile, at, words in job.outputs])

    original = single.job_of
    monkeypatch.setattr(single, "job_of", elsewhere)
    (row,), _ = run(["gemm:5x6x7"])
    assert row.mismatches > row.bytes_checked / 2


def test_a_run_that_takes_too_long_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def hurried(*arguments: Any) -> Job:
        return replace(original(*arguments), watchdog=300)

    original = single.job_of
    monkeypatch.setattr(single, "job_of", hurried)
    rows, _ = run(["gemm:5x6x7", "gemm:3x10x20"])
    for row in rows:
        assert (row.faults, row.bytes_checked) == (1, 0)
        (report,) = row.fault_reports
        assert (report.cause, report.tile, report.value) == ("WATCHDOG", CHIP.host, 300)


# -- divergence ---------------------------------------------------------------------------------------------------


def test_hardware_with_another_dram_than_the_model_thinks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    slower = ChipConfig.model_validate(CHIP.model_dump() | {"dram": CHIP.dram.model_dump() | {"latency": 90}})

    def wrong(program: Program, chip: ChipConfig) -> Timeline:
        return play(program, slower)

    for module in (predict, programs):  # the search's program is not played again
        monkeypatch.setattr(module, "play", wrong)
    (row,), _ = run(["conv:7x7x5-6,k3,p1"])
    assert row.mismatches == 0
    assert row.model_cycles > row.rtl_cycles
    divergence = row.first_divergence
    assert divergence is not None
    # the boot program itself comes from DRAM: the very first instruction shows it, by exactly the 50 cycles
    assert (divergence.tile, divergence.unit, divergence.label, divergence.operation) == (
        CHIP.host,
        "mover",
        "FETCH",
        None,
    )
    assert (
        divergence.predicted_start - divergence.measured_start,
        divergence.predicted_end - divergence.measured_end,
    ) == (50, 50)


def test_a_gemm_that_takes_longer_than_the_model_thinks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    exact, _ = run(["gemm:5x6x7"])
    formula = timeline_module.gemm_cycles
    monkeypatch.setattr(timeline_module, "gemm_cycles", lambda chip, shape: formula(chip, shape) - 1)
    (row,), _ = run(["gemm:5x6x7"])
    divergence = row.first_divergence
    assert divergence is not None
    before = exact[0].first_divergence
    assert before is None or before.measured_start >= divergence.measured_start, (
        "the model is wrong elsewhere, and earlier"
    )
    assert (divergence.tile, divergence.unit) == (CHIP.cores[0], "matrix")
    assert divergence.operation is not None
    assert divergence.label != "GEMM"
    assert divergence.label
    assert divergence.measured_start == divergence.predicted_start
    assert divergence.measured_end == divergence.predicted_end + 1


@pytest.mark.slow
def test_a_network_and_a_layer_side_by_side() -> None:
    """Rows come in the order asked for, one for each input of a network."""
    shown = [path for path, _ in zoo.pictures("resnet8")[:2]]
    rows, events = run(["gemm:5x6x7", NetworkSource("resnet8", tuple(shown))])
    assert [row.workload for row in rows] == ["gemm:5x6x7", "resnet8", "resnet8"]
    assert [row.scheduler for row in rows] == ["loop_order"] * 3
    assert events[0] == RowCount(rows=3)
    assert Stage(workload="resnet8", what="scheduling the network") in events
    assert rows[0].network is None
    layers = len([layer for layer in zoo.load("resnet8").layers if layer.kind != "concat"])
    for row, path, label in zip(rows[1:], shown, zoo.int8_top1("resnet8"), strict=False):
        assert (row.status, row.mismatches, row.faults) == (Status.PASSED, 0, 0)
        assert row.network is not None
        assert (row.network.picture, row.network.tensors_checked) == (path.name, layers)
        assert row.network.answer == zoo.load("resnet8").labels[label]
        assert row.utilisation > 0.9, "one small core is easily kept busy"
        assert abs(row.error_percent or 0) <= 2
        assert row.network.layer_error_percent is not None
        assert row.network.layer_error_percent <= 2
        assert sum(row.network.shares.values()) == pytest.approx(100)
    assert rows[1].rtl_cycles == rows[2].rtl_cycles, "time does not depend on the picture"


def test_a_bare_name_is_the_network_and_a_star_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Enough(Exception):
        pass

    def stop(*_: Any) -> None:
        raise Enough

    monkeypatch.setattr(runner, "workers", stop)
    for names, count in ((["resnet8"], 1), (["resnet8/*"], 10), (["squeezenet/*"], 26), ([], 0)):
        events: list[Event] = []
        with pytest.raises(Enough):
            run(names, on_event=events.append)
        assert events == [RowCount(rows=count)]


def test_nothing_asked_for_is_nothing_done() -> None:
    assert run([])[0] == []


def test_rows_say_what_decided_them(rows: list[Row]) -> None:
    for row in rows:
        assert row.chip_digest == CHIP.digest
        assert row.settings is not None
        assert row.settings.scheduler == "loop_order"
        assert row.settings.code == identity.code()
        assert row.settings.simulator_version.startswith("Verilator 5.")
        assert "random" in row.settings.input
    assert len({row.settings.input_digest for row in rows if row.settings}) == len(rows)


def test_networks_say_which_picture_it_was() -> None:
    first, second = (path for path, _ in zoo.pictures("resnet8")[:2])
    values = {}
    for name, path in (("a", first), ("b", second), ("again", first)):
        (feed,) = feeds(NetworkSource("resnet8", (path,)), zoo.load("resnet8"))
        values[name] = single.digest(feed.arrays)
    assert values["a"] == values["again"] != values["b"]


def test_the_code_is_named_by_commit_and_sources() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+, commit [0-9a-f]{7,40}(-dirty)?, sources [0-9a-f]{12}", identity.code())


@pytest.mark.slow  # a simulator of its own each
@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_waves_are_written_where_the_row_says(simulator: str) -> None:
    rows = runner.run(["gemm:3x4x4"], "tiny", "loop_order", lambda event: None, RunOptions(simulator, waves=True))
    assert rows[0].status is Status.PASSED
    assert rows[0].waves is not None
    path = Path(rows[0].waves)
    assert not path.is_absolute()
    assert path.stat().st_size > 10_000, "an FST file of a whole chip"


class _Pool:
    """Calls functions at once, in this process; of a broken one, whose worker was killed, nothing can be had."""

    def __init__(self, broken: bool) -> None:
        self.broken = broken

    def submit(self, function: Callable[..., object], *arguments: object) -> Future[object]:
        if self.broken:
            raise BrokenProcessPool
        future = Future[object]()
        future.set_result(function(*arguments))
        return future

    def result(self, future: Future[object], on_event: Callable[[Event], None]) -> object:
        return future.result()


def test_a_pool_that_breaks_before_all_work_is_handed_out_costs_no_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    @contextmanager
    def workers(count: int) -> Generator[_Pool]:
        opened.append(count)
        yield _Pool(broken=len(opened) == 1)

    monkeypatch.setattr(runner, "workers", workers)
    names = ["gemm:4x4x4", "gemm:4x4x8"]
    requests = [request for name in names for request in table.requests(name, CHIP)]
    prepared = runner._prepared(requests, CHIP, "loop_order", RunOptions(jobs=2), lambda event: None)
    assert [run.name for runs in prepared if isinstance(runs, list) for run in runs] == names
    assert opened == [2, 1, 1], "each in a pool of its own, so that the culprit is known"
