"""`gradient_chain`: rows of layers against their layers by themselves, and bars of bytes, cycles, losses and steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshloom.sched.schedulers.training.orders import Order
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.gradient.chain_points import (
    ARGMIN,
    UPDATES,
    WAYS,
    ChainCycles,
    ChainModelled,
    ChainRow,
    ChainRun,
    SiblingsModelled,
    chains,
    siblings,
)
from meshloom.tb.studies.gradient.gradient_chain import LEARNED, STEP_WAYS, STUDY
from meshloom.tb.studies.gradient.trainings import TrainingPoint, TrainingRow

from .made_rows import page_of

STEP = TrainingRow(3, (4.0, 4.1, 4.2), 0.1, 0.1, 1000, 3500, 3500, 64, 0, 1.0, 512)
RUN = ChainRun("server2", "chain:ncf/mlp1..mlp3,b16", "keep, defer")
GOOD = ChainRow("16x1x128", 3663, 3663, 110_592, 0)


def test_chains_are_measured_against_their_layers_by_themselves() -> None:
    """A way that is refused counts as the layers by themselves; the fastest of each is taken in the last row."""
    rows: dict[Point, ChainCycles] = {}
    for chain in chains("server1", "dlrm"):
        for way in (*WAYS, *UPDATES):
            refused = "bottom" in chain.name and way not in ("one program", *UPDATES)
            rows[ChainModelled("server1", chain.name, way)] = (
                ChainCycles(0, 0, "no") if refused else ChainCycles(800, 400)
            )
        rows[ChainModelled("server1", chain.name, ARGMIN)] = ChainCycles(1000, 500, plain=1100)
    page = page_of(STUDY, rows)
    in_a_row, updates = page.tables
    bottom, top, every, best = in_a_row.rows
    assert bottom[3:] == ("+20.0", "refused", "refused", "refused", "500", "-")
    assert top == ("dlrm/top1..top5,b8", "1,100", "1,000", "+20.0", "+20.0", "+20.0", "+20.0", "500", "400")
    assert every[2:7] == ("2,000", "+20.0", "+10.0", "+10.0", "+10.0")
    assert (best[2], best[6]) == ("1,600", "+20.0")
    assert updates.rows == [("server1", top[0], "800", "800", "800", "+0.0", "400", "400", "400", "+0.0")]
    assert page.texts["server1"] == "20.0 %"
    assert page.missed == []


def test_siblings_are_layers_that_read_the_same_map() -> None:
    some = siblings("edge45", "goo")
    assert len(some) == 9
    assert some[0].joined == "gradient:gemm:3136x176x192"  # 64 + 96 + 16 outputs; the projection reads the pool
    (two,) = siblings("edge45", "res")
    assert two.joined == "gradient:gemm:12544x320x64"
    for layers in (one.layers for one in (*some, two)):
        assert len({(layer.m, layer.k) for layer in layers}) == 1


def test_siblings_are_compared() -> None:
    cycles = iter((1000, 700))
    rows: dict[Point, ChainCycles] = {
        point: ChainCycles(next(cycles), 64) for point in STUDY.points(True) if isinstance(point, SiblingsModelled)
    }
    (joined,) = page_of(STUDY, rows).tables
    assert [row[2:5] for row in joined.rows] == [("1,000", "700", "+30.0")] * 2
    assert [row[0] for row in joined.rows] == ["goo/conv5_a: 3", "all"]


def test_training_steps_have_bars() -> None:
    rows: dict[Point, TrainingRow] = dict.fromkeys(STEP_WAYS, STEP)
    everything = [point for point in STEP_WAYS if len(point.across) == 3]
    rows |= dict.fromkeys(everything, replace(STEP, step_cycles=740))
    page = page_of(STUDY, rows)
    assert page.missed == []
    assert page.tables[0].rows[5][3:5] == ("740", "+26.0")
    assert page.texts["sequential"] == "26.0 %"
    rows[everything[0]] = replace(STEP, step_cycles=760, losses=(4.0, 4.1, 4.3), reasons=("1 of 64 bytes are wrong",))
    who = "sequential, overlap,keep,defer, double"
    assert page_of(STUDY, rows).missed == [
        f"step, {who}: 1 of 64 bytes are wrong",
        f"step, {who}: comes to other losses",
        "a training step in `sequential` order, all across layers: cycles less: 24.0 %, not at least 25.0 %",
    ]


def test_weights_in_int8_may_come_to_other_losses_than_in_double() -> None:
    others = replace(STEP, losses=(4.0, 4.1, 5.0))
    rows: dict[Point, TrainingRow] = {
        point: STEP if point.weights.value == "double" else others for point in STEP_WAYS if not point.across
    }
    assert page_of(STUDY, rows | dict.fromkeys(LEARNED, others)).missed == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"wrong": 2}, "2 wrong bytes"),
        ({"trouble": "fault: no"}, "fault: no"),
        ({"model_cycles": 3000}, "3,663 cycles, the model says 3,000"),
    ],
)
def test_runs_have_bars(changes: dict[str, Any], text: str) -> None:
    page = page_of(STUDY, {RUN: replace(GOOD, **changes)})
    assert page.missed == [f"{RUN.name}: {text}"]
    assert page.tables[0].bad == {0}
    assert page_of(STUDY, {RUN: GOOD}).missed == []


def test_points() -> None:
    quick, full = STUDY.points(False), STUDY.points(True)
    assert set(quick) < set(full)
    assert len(STEP_WAYS) == 16
    assert {point.order for point in STEP_WAYS} == {Order.SEQUENTIAL, Order.INTERLEAVED}
    schedulers = {point.scheduler for point in full if isinstance(point, ChainRun)}
    assert "chain:keep=true,defer=true,update=fused" in schedulers


def test_rows_of_the_rtl_are_those_of_their_gateware() -> None:
    for point in STUDY.points(True):
        on_rtl = point.rtl if isinstance(point, TrainingPoint) else isinstance(point, ChainRun)
        assert ("gateware" in dict(point.inputs().more)) == on_rtl, point.name
