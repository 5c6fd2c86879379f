"""Closed forms against sums by hand, and the tables of `bench models`."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.workload.catalog import find
from meshloom.tb.benchmarks import models
from meshloom.tb.benchmarks.closed_forms import FORMS, Case, roofline, scale_sim, timeloop, zigzag
from meshloom.tb.benchmarks.model_layers import GROUPS, LONGEST, SHORTEST, Layer, _layer, names
from meshloom.tb.benchmarks.models import MODEL, Judged, draw, result
from meshloom.tb.runs.runner import prepare

TINY, QUAD = load("tiny"), load("quad16")


def case(name: str, config: ChipConfig = TINY) -> Case:
    workload = find(name)[0]
    run = prepare(workload, config, "loop_order:effort=0.01")
    return Case(workload.shape, config, run.schedule, 1.0)


def test_scale_sims_formula_by_hand() -> None:
    one = case("gemm:9x5x7")  # 4 x 4: three folds of pixels, two of outputs
    assert scale_sim(one) == 3 * 2 * (2 * 4 + 4 + 7 - 2)
    four = case("gemm:64x64x32", QUAD)  # 16 x 16: 16 folds on four cores, four on each
    assert scale_sim(four) == 4 * (2 * 16 + 16 + 32 - 2)


def test_the_roofline_by_hand() -> None:
    shape = find("gemm:9x5x7")[0].shape
    rate = len(TINY.drams) * TINY.dram.bytes_per_cycle
    assert roofline(shape, TINY) == max(9 * 5 * 7 / 16, (9 * 7 + 5 * 7 + 9 * 5) / rate)


def test_styles_of_counting_know_the_schedule_and_bound_each_other() -> None:
    one = case("conv:9x7x5-6,k3,p1,relu")
    least = find("conv:9x7x5-6,k3,p1,relu")[0].shape.macs / 16
    predicted = one.schedule.predicted
    assert predicted is not None
    assert least <= timeloop(one) <= zigzag(one)
    assert timeloop(one) < predicted.cycles


def test_layers_are_drawn_alike_none_twice_and_within_the_bounds() -> None:
    drawn = names(TINY, 0)
    assert drawn == names(TINY, 0)
    assert len(set(drawn + names(TINY, 1))) == 2 * len(drawn)
    assert drawn != names(QUAD, 0)
    assert all(SHORTEST <= roofline(find(name)[0].shape, TINY) <= LONGEST for name in drawn)
    assert {name[:4] for name in drawn} == {"gemm", "conv"}


def test_every_cycle_of_a_layer_has_a_cause() -> None:
    name = "gemm:9x5x7"
    layer = _layer(name, TINY)
    useful = find(name)[0].shape.macs / 16
    assert useful + sum(layer.causes.values()) == pytest.approx(layer.cycles)
    assert layer.counted.keys() == {form.name for form in FORMS}
    assert all(form.terms <= GROUPS.keys() for form in FORMS)


def judged(cycles: int, counted: float, rtl: int) -> Judged:
    causes = dict.fromkeys(GROUPS, 0.0) | {"dram": cycles / 2}
    return Judged("tiny", Layer("gemm:1x1x1", cycles, {form.name: counted for form in FORMS}, causes), rtl, rtl=True)


def test_the_tables_say_what_is_missing_and_where_the_model_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "LAYERS", 2)
    monkeypatch.setattr(models, "RTL_LAYERS", 2)
    right = [judged(100, 50.0, 100), judged(200, 150.0, 200)]
    value = result(right, {}, "no network")
    assert value.passed
    assert "SCALE-Sim's own program is not in the tables: no network." in value.remarks
    errors = {row[0]: row for row in value.sheets[0].rows}
    assert errors["roofline"][2:4] == ("-37.5", "37.5")
    assert errors[MODEL][3] == "0.0"
    causes = {row[0]: row for row in value.sheets[3].rows}
    assert causes["SCALE-Sim's formula"][4] == "-50.0"  # half of the cycles are DRAM's, for which it has no term
    assert causes["SCALE-Sim's formula"][-2] == "+12.5"
    wrong = result([*right, judged(100, 50.0, 101)], {}, "")
    assert wrong.failures == ("tiny, gemm:1x1x1: 101 cycles on the RTL, 100 in the model",)
    draw(right, tmp_path / "a.svg")
    draw(right, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert [each[:8] for each in result(right[:1], {}, "").failures] == ["1 layers", "1 layers"]
