"""Out-of-order schedules on the RTL: speed-ups stated twice, and bars."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.workload import zoo
from meshloom.tb.results.schema import Status
from meshloom.tb.runs.options import RunOptions
from meshloom.tb.runs.runner import run
from meshloom.tb.studies.engine.page import Page
from meshloom.tb.studies.flexer import flexer_rtl
from meshloom.tb.studies.flexer.flexer_rtl import LAYER_SCHEDULERS, LAYERS, NETWORK_SCHEDULERS, STUDY
from meshloom.tb.studies.flexer.floors import floor_cycles
from meshloom.tb.studies.points.network_runs import NetworkCycles, NetworkRun

from .made_rows import page_of

LAYER = "vgg16/conv3_1"
#: Layers whose tiles do not all stay in quad8's scratchpad, whose sums are spilled, and of odd sizes.
SMALL = ("conv:10x10x40-40,k3,p1,relu", "conv:7x9x130-90,k3,p1", "gemm:40x70x300")


def row(rtl_cycles: int, **changes: Any) -> NetworkCycles:
    return replace(NetworkCycles(rtl_cycles, 0, 1, None, 1.0, rtl_cycles, 64), **changes)


def layers(*cycles: int) -> dict[NetworkRun, NetworkCycles]:
    pairs = zip(LAYER_SCHEDULERS, cycles, strict=False)
    return {flexer_rtl._point("arch5", LAYER, name): row(each) for name, each in pairs}


def networks(*cycles: int) -> dict[NetworkRun, NetworkCycles]:
    pairs = zip(NETWORK_SCHEDULERS, cycles, strict=True)
    return {flexer_rtl._point("arch5", "squeezenet", name): row(each) for name, each in pairs}


def test_speed_ups_are_stated_twice() -> None:
    some = layers(300, 200, 150, 100)
    (sheet,) = page_of(STUDY, some).tables
    cells = ("300", "200", "150", "100", "2.000 2.000", "1.333 1.333", "2.000 2.000", "+0.00 %")
    assert sheet.rows == [("arch5", LAYER, *cells)]
    assert not sheet.bad
    some[flexer_rtl._point("arch5", LAYER, "hybrid")] = row(100, cycles=80, wrong=1)
    (sheet,) = page_of(STUDY, some).tables
    assert sheet.rows[0][8] == "2.500 2.000"
    assert sheet.bad
    (sheet,) = page_of(STUDY, layers(300, 200, 150)).tables
    assert sheet.rows[0][8] == "-", "it was not measured"


def test_missed_bars_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flexer_rtl, "floor_cycles", lambda chip, network: 150)

    def missed(some: dict[NetworkRun, NetworkCycles]) -> list[str]:
        return page_of(STUDY, some).missed

    fine, whole = layers(300, 200, 150, 150), networks(400, 230, 300, 210, 200)
    assert missed(fine | whole) == []
    assert page_of(STUDY, fine | whole).tables[1].rows[0][7] == "150"
    assert missed(layers(300, 200, 149, 150)) == [f"{LAYER} on arch5: the hybrid takes 150 cycles, another 149"]
    (text,) = missed(fine | networks(400, 229, 300, 210, 200))
    assert "1.145 times as fast" in text
    assert "more than 1.527 times" in text
    point = flexer_rtl._point("arch5", LAYER, "flexer")
    assert missed(fine | {point: row(150, wrong=3)}) == ["bytes that differ: 3, not exactly 0"]
    assert missed(fine | {point: row(150, cycles=141)}) == [
        "the model's error, worst: 6.000 %, not at most 5.000 %"
    ]  # the mean is 1.5


def test_a_program_that_hung_is_an_error_of_the_page() -> None:
    point = flexer_rtl._point("arch5", LAYER, "flexer")
    page: Page = page_of(STUDY, layers(300, 200), errors={point: "simulating: it hung"})
    assert page.missed[0] == f"{LAYER} on arch5 by flexer:budget=100M: simulating: it hung"


def test_what_is_measured_is_what_the_paper_compares() -> None:
    names = {name for some in LAYERS.values() for name in some}
    assert {"vgg16/conv4_2", "vgg16/conv3_1", "resnet50/conv3_1_1"} <= names
    assert len(LAYERS["arch5"]) >= 24
    assert {name.partition("/")[0] for name in names} == {"vgg16", "resnet50", "squeezenet", "yolov2"}
    assert set(STUDY.points(False)) <= set(STUDY.points(True))


def test_no_schedule_undercuts_the_floor() -> None:
    chip, graph = load("arch5"), zoo.load("squeezenet")
    floor = floor_cycles("arch5", "squeezenet")
    weights = sum(layer.w.size for layer in graph.layers if layer.w is not None)
    assert floor >= weights / (len(chip.drams) * chip.dram.bytes_per_cycle)
    assert floor >= graph.total_macs / (len(chip.cores) * chip.rows * chip.cols)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "networks"),
    [("flexer:budget=10M", ("resnet8",)), ("paper_static:budget=10M", ()), ("hybrid:budget=10M", ())],
)
def test_schedules_run_as_predicted(scheduler: str, networks: tuple[str, ...]) -> None:
    """Every byte of layers and of a network with trained weights; the model to a percent."""
    rows = run([*SMALL, *networks], "quad8", scheduler, lambda event: None, RunOptions(jobs=2))
    assert [row.status for row in rows] == [Status.PASSED] * (len(SMALL) + len(networks))
    assert all(row.bytes_checked for row in rows)
    assert all(abs(row.error_percent or 0.0) <= 1.0 for row in rows)
    for row in rows[len(SMALL) :]:
        assert row.network is not None
        assert row.network.answer == row.network.expected
    assert {row.scheduler.partition(":")[0] for row in rows} == {scheduler.partition(":")[0]}
