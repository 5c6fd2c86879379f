"""The tables of `meshloom bench gradient` and `training`: which order is chosen, what is summed, and the bars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from meshloom.sched.schedulers.gradient.orders import Order
from meshloom.tb.benchmarks import gradient, gradient_runs, training
from meshloom.tb.benchmarks.gradient_runs import Ran, Taken
from meshloom.tb.benchmarks.interface import BenchmarkError
from meshloom.tb.results.training import TrainingResults

FOUND = {
    Order.SEQUENTIAL: Taken(100, 1000, 0),
    Order.PLAIN: Taken(120, 900, 0),
    Order.INTERLEAVED: Taken(110, 950, 0),
    Order.DX_MAJOR: Taken(90, 800, 40),
    Order.DW_MAJOR: Taken(trouble="too small"),
    Order.K_MAJOR: Taken(95, 850, 0),
}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_runs, "taken", lambda layer, config: FOUND)
    monkeypatch.setattr(gradient_runs, "ran", lambda layer: None)


def test_orders_are_chosen_as_they_are_named() -> None:
    wide = gradient_runs.layers("dlrm")[1]  # 4 x 512 x 256: algorithm 1 takes dw_major, which does not fit here
    assert gradient.chosen(wide, FOUND, "algorithm 1") == FOUND[Order.SEQUENTIAL]
    assert gradient.chosen(wide, FOUND, "plain").cycles == 120
    assert gradient.chosen(wide, FOUND, "best").cycles == 90


@pytest.mark.usefixtures("measured")
def test_layers_count_as_often_as_their_network_has_them() -> None:
    some = gradient_runs.layers("bert_tiny")
    found = gradient.total(some, gradient_runs.chip(), "best")
    times = sum(one.count for one in some)
    assert found == Taken(90 * times, 800 * times, 40 * times)
    assert any(one.count > 1 for one in some)


@pytest.mark.usefixtures("measured")
def test_the_page_shows_what_is_kept_and_names_what_is_not() -> None:
    page = gradient.run(lambda event: None, ["kept"])
    networks, bandwidth, _, rtl, missing = page.sheets
    assert [row[0] for row in networks.rows[:9]] == list(gradient.NETWORKS)
    assert networks.rows[0][6] == "+25.0"  # 90 of 120 cycles
    assert len(bandwidth.rows) == 3
    assert rtl.rows == []
    assert [row[0] for row in missing.rows] == ["rtl"]
    assert page.failures == ("0 layers ran on the RTL, the bar is 30",)
    with pytest.raises(BenchmarkError, match="'dense' is none of rcnn"):
        gradient.run(lambda event: None, ["dense"])


def test_bars_of_the_rtl() -> None:
    good = Ran("dx_major", 1000, 1001, 5000, 0)
    assert gradient._failures({f"l{n}": good for n in range(30)}) == []
    off = {f"l{n}": good for n in range(29)} | {
        "bad": replace(good, model_cycles=1040),
        "w": replace(good, trouble="no"),
    }
    assert gradient._failures(off) == ["w: no", "bad: the model is 4.00 % off"]


@pytest.fixture
def result() -> Callable[..., TrainingResults]:
    base = TrainingResults(
        started=datetime(2026, 1, 1, tzinfo=UTC), environment={}, code="", network="digits", chip="quad16",
        chip_digest="", order="plain", simulator="", batch=64, seed=0, learning_rate=0.05, momentum=0.9, complete=True,
        steps=2, losses=(4.0, 0.5), accuracy=0.95, float_accuracy=0.96, step_cycles=1, model_cycles=2, bytes_checked=1,
        mismatches=0, divergences=0, cpu_seconds=0.0, checkpoint="",
    )  # fmt: skip
    return lambda **changes: base.model_copy(update=changes)


def test_bars_of_training(result: Callable[..., TrainingResults]) -> None:
    assert training._learning(result(), "x", 2) == []
    assert training._learning(result(losses=(4.0, 1.0)), "x", 2) == ["x: the loss goes from 4.0 to 1.0"]
    assert training._learning(result(accuracy=0.93), "x", 2) == ["x: 93.0% of the test, in floating point 96.0%"]
    assert training._learning(result(accuracy=None), "x", 2) == ["x: was not tested"]


def test_wrong_bytes_and_cycles_are_reasons(result: Callable[..., TrainingResults]) -> None:
    assert result().ok
    wrong = result(mismatches=3, first_mismatch="step 1, y", divergences=2, first_divergence="step 2")
    assert wrong.reasons == ("3 of 1 bytes are wrong: step 1, y", "2 cycles are not those of the model: step 2")
