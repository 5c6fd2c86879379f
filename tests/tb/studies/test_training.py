"""`training`: a network must learn as in floating point, without a wrong byte or cycle, and alike by every order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshloom.sched.schedulers.training.orders import Order
from meshloom.tb.studies.engine.page import Page
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.gradient.training import ORDERED, STEPS, STUDY, WHOLE
from meshloom.tb.studies.gradient.trainings import TrainingPoint, TrainingRow

from .made_rows import page_of

LOSSES = (4.0,) * (STEPS - 1) + (0.5,)
GOOD = TrainingRow(STEPS, LOSSES, 0.95, 0.96, 100, 20_000, 20_000, 64, 0, 40.0, 512)
SEED = TrainingPoint(STEPS, False, 1)


def page(**rows: TrainingRow) -> Page:
    some: dict[Point, TrainingRow] = {
        TrainingPoint(ORDERED, True, order=order): replace(GOOD, steps=ORDERED, losses=(4.0, 4.1, 4.2))
        for order in Order
    }
    some[WHOLE], some[SEED] = rows.get("whole", GOOD), rows.get("seed", replace(GOOD, rtl_cycles=None))
    some |= {TrainingPoint(ORDERED, True, order=Order(name)): row for name, row in rows.items() if name in list(Order)}
    return page_of(STUDY, some)


def test_tables_and_figures() -> None:
    good = page()
    accuracy, curve, orders = good.tables
    assert accuracy.rows == [
        ("0", "RTL", "200", "4.0000", "0.5000", "95.0%", "96.0%", "20,000", "20,000", "64", "0", "0.20"),
        ("1", "functional", "200", "4.0000", "0.5000", "95.0%", "96.0%", "-", "20,000", "64", "0", "-"),
    ]
    assert [row[0] for row in curve.rows] == ["1", *(str(20 * at) for at in range(1, 11))]
    assert len(orders.rows) == len(Order)
    assert good.answer == "After 200 steps on the RTL it has 95.0 % of the test right, in floating point 96.0 %."
    assert good.missed == []


@pytest.mark.parametrize(
    ("rows", "texts"),
    [
        ({"seed": replace(GOOD, losses=(4.0, 1.0))}, ["seed 1: the loss goes from 4.0 to 1.0"]),
        ({"seed": replace(GOOD, steps=7)}, ["seed 1: the loss goes from 4.0 to 0.5"]),
        ({"seed": replace(GOOD, accuracy=0.93)}, ["seed 1: 93.0% of the test, in floating point 96.0%"]),
        ({"whole": replace(GOOD, accuracy=None)}, ["on the RTL: was not tested"]),
        ({"whole": replace(GOOD, wrong=3, reasons=("3 of 64 bytes are wrong",))},
         ["RTL: 3 of 64 bytes are wrong", "wrong bytes on the RTL: 3, not exactly 0"]),
        ({"whole": replace(GOOD, seconds=500.0)}, ["CPU-seconds of simulating a step: 2.50, not at most 2.00"]),
        ({"plain": replace(GOOD, steps=ORDERED, losses=(4.0, 4.1, 4.3))}, ["orders do not come to the same losses"]),
    ],
)  # fmt: skip
def test_bars(rows: dict[str, TrainingRow], texts: list[str]) -> None:
    assert page(**rows).missed == texts


def test_wrong_cycles_of_an_order_are_said() -> None:
    bad = replace(GOOD, steps=ORDERED, losses=(4.0, 4.1, 4.2), reasons=("2 cycles are not those of the model",))
    assert page(k_major=bad).missed == ["k_major: 2 cycles are not those of the model"]


@pytest.mark.slow
def test_a_training_is_measured() -> None:
    row = TrainingPoint(1, False).measure(lambda what: None)
    assert TrainingPoint.load(TrainingPoint.dump(row)) == row
    assert (row.steps, row.wrong, row.rtl_cycles) == (1, 0, None)
    assert row.dram_bytes > 0
