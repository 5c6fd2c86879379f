"""Out-of-order schedules on the RTL, and what their benchmarks make of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.workload.zoo import load as load_network
from meshloom.tb.benchmarks import flexer_rtl, network_runs
from meshloom.tb.benchmarks.flexer_layers import NETWORKS, floor_cycles
from meshloom.tb.benchmarks.flexer_rtl import LAYERWISE
from meshloom.tb.benchmarks.interface import BenchmarkError
from meshloom.tb.benchmarks.network_runs import Asked, Found
from meshloom.tb.results.events import OnEvent
from meshloom.tb.results.schema import Status
from meshloom.tb.runs.options import RunOptions
from meshloom.tb.runs.runner import run

#: Layers whose tiles do not all stay in quad8's scratchpad, whose sums are spilled, and of odd sizes.
LAYERS = ("conv:10x10x40-40,k3,p1,relu", "conv:7x9x130-90,k3,p1", "gemm:40x70x300")


def silent(event: object) -> None:
    pass


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["flexer:budget=10M", "paper_static:budget=10M", "hybrid:budget=10M"])
def test_schedules_run_as_predicted(scheduler: str) -> None:
    """Every byte of layers and of a network with trained weights; the model to a percent."""
    rows = run([*LAYERS, "resnet8"], "quad8", scheduler, silent, RunOptions(jobs=2))
    assert [row.status for row in rows] == [Status.PASSED] * 4
    assert all(row.bytes_checked for row in rows)
    assert all(abs(row.error_percent or 0.0) <= 1.0 for row in rows)
    network = rows[-1].network
    assert network is not None
    assert network.answer == network.expected
    assert rows[-1].scheduler == scheduler.partition(":")[0]


# -- benchmarks -------------------------------------------------------------------------------------------------------


def ran(count: int, **changes: Any) -> Found:
    return replace(Found(count, 0, 1, None, 1.0, count, 64), **changes)


def rows(*cycles: int, names: tuple[str, ...] = flexer_rtl.LAYER_SCHEDULERS) -> dict[str, Found]:
    return {name: ran(count) for name, count in zip(names, cycles, strict=True)}


def test_speed_ups_are_stated_twice() -> None:
    some = rows(300, 200, 150, 100)
    assert flexer_rtl.twice(some, "hybrid", "loop_order") == "2.000 2.000"
    some["hybrid"] = ran(100, cycles=80)
    assert flexer_rtl.twice(some, "hybrid", "loop_order") == "2.500 2.000"
    del some["hybrid"]
    assert flexer_rtl.twice(some, "hybrid", "loop_order") == "-", "it was not measured"


def test_missed_bars_are_named() -> None:
    floors = {("arch5", "n"): 150}
    fine = {("arch5", "w"): rows(300, 200, 150, 150)}
    whole = {("arch5", "n"): rows(400, 230, 300, 210, 200, names=flexer_rtl.NETWORK_SCHEDULERS)}
    assert flexer_rtl.failures(fine, whole, floors) == []
    worse = {("arch5", "w"): rows(300, 200, 149, 150)}
    assert flexer_rtl.failures(worse, whole, floors) == ["w on arch5: the hybrid takes 150 cycles, another 149"]
    slow = {("arch5", "n"): rows(400, 229, 300, 210, 200, names=flexer_rtl.NETWORK_SCHEDULERS)}
    (words,) = flexer_rtl.failures(fine, slow, floors)
    assert "1.145 times as fast" in words
    assert "more than 1.527 times" in words
    wrong = {("arch5", "w"): rows(300, 200, 150, 150) | {"flexer": ran(150, wrong=3)}}
    assert flexer_rtl.failures(wrong, whole, floors) == ["w on arch5 by flexer: 3 bytes are wrong"]
    hung = {("arch5", "w"): rows(300, 200, 150, 150) | {"flexer": ran(150, trouble="it hung")}}
    assert flexer_rtl.failures(hung, whole, floors) == ["w on arch5 by flexer: it hung"]
    off = {("arch5", "w"): rows(300, 200, 150, 150) | {"flexer": ran(150, cycles=141)}}
    assert "the model is 6.0 % off" in flexer_rtl.failures(off, whole, floors)[0]


def test_tables_have_a_row_for_each_workload() -> None:
    sheet = flexer_rtl.layer_sheet({("arch5", "w"): rows(300, 200, 150, 100)})
    assert sheet.rows == [
        ("arch5", "w", "300", "200", "150", "100", "2.000 2.000", "1.333 1.333", "2.000 2.000", "+0.00 %")
    ]
    assert not sheet.failed
    assert flexer_rtl.layer_sheet({("arch5", "w"): rows(300, 200, 150, 100) | {"flexer": ran(1, wrong=1)}}).failed
    whole = {("arch1", "n"): rows(400, 230, 300, 210, 200, names=flexer_rtl.NETWORK_SCHEDULERS)}
    assert flexer_rtl.network_sheet(whole, {("arch1", "n"): 100}).rows[0][7] == "100"
    assert LAYERWISE in flexer_rtl.NETWORK_SCHEDULERS


def test_programs_are_shown_as_far_as_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is measured, and whatever else is kept is beside it; what is missing is said."""
    answers: dict[Asked, Found] = {}
    monkeypatch.setattr(
        network_runs.KEPT, "collected", lambda some: (answers, {one for one in answers if one.chip == "arch6"})
    )
    monkeypatch.setattr(flexer_rtl, "compile_search", silent)

    def measure(requests: Sequence[Asked], on_progress: OnEvent) -> list[str]:
        answers.update((one, ran(100)) for one in requests)
        return []

    monkeypatch.setattr(network_runs, "measure", measure)
    with pytest.raises(BenchmarkError, match="nothing is kept that could be shown; name a part: arch5-layers, "):
        flexer_rtl.run(silent, ["kept"])
    with pytest.raises(BenchmarkError, match=r"^no part arch5; there are arch5-layers, .*, arch7-networks, kept$"):
        flexer_rtl.run(silent, ["arch5"])
    result = flexer_rtl.run(silent, ["arch6-layers", "arch3-networks"])
    layers, networks = result.sheets
    assert {row[0] for row in layers.rows} == {"arch6"}
    assert [row[:2] for row in networks.rows] == [("arch3", "squeezenet")]
    total = sum(len(one) for one in flexer_rtl.plan().values())
    assert f"{total - len(answers)} of {total} results are missing" in result.failures
    assert result.remarks[0].startswith("25 programs; the model's error: mean 0.000 %")
    assert "(20 results): resnet50/conv3_1_1 on arch6 by flexer:budget=100M, " in result.remarks[1]


def test_what_is_measured_is_what_the_papers_compare() -> None:
    names = {name for layers in flexer_rtl.LAYERS.values() for name in layers}
    assert {"vgg16/conv4_2", "vgg16/conv3_1", "resnet50/conv3_1_1"} <= names
    assert len(flexer_rtl.LAYERS["arch5"]) >= 24
    assert {name.partition("/")[0] for name in names} == set(NETWORKS)


def test_no_schedule_undercuts_the_floor() -> None:
    chip, graph = load("arch5"), load_network("squeezenet")
    floor = floor_cycles("arch5", "squeezenet")
    weights = sum(layer.w.size for layer in graph.layers if layer.w is not None)
    assert floor >= weights / (len(chip.drams) * chip.dram.bytes_per_cycle)
    assert floor >= graph.total_macs / (len(chip.cores) * chip.rows * chip.cols)
