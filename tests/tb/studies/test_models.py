"""Closed forms against sums by hand, and the tables of the study `models`."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.workload.catalog import find
from meshloom.tb.runs.runner import prepare
from meshloom.tb.studies.networks import models
from meshloom.tb.studies.networks.closed_forms import FORMS, CountedCase, roofline, scale_sim, timeloop, zigzag
from meshloom.tb.studies.networks.model_layers import GROUPS, LONGEST, SHORTEST, Layer, count, names
from meshloom.tb.studies.networks.models import MODEL, CountedChunk, PackageChunk, SimulatedChunk, draw

from .made_rows import page_of, rows_of

TINY, QUAD = load("tiny"), load("quad16")


def case(name: str, config: ChipConfig = TINY) -> CountedCase:
    workload = find(name)[0]
    run = prepare(workload, config, "loop_order:effort=0.01")
    return CountedCase(workload.shape, config, run.schedule, 1.0)


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
    layer = count(name, TINY)
    useful = find(name)[0].shape.macs / 16
    assert useful + sum(layer.causes.values()) == pytest.approx(layer.cycles)
    assert layer.counted.keys() == {form.name for form in FORMS}
    assert all(form.terms <= GROUPS.keys() for form in FORMS)


def layer(cycles: int, counted: float, name: str = "gemm:1x1x1") -> Layer:
    causes = dict.fromkeys(GROUPS, 0.0) | {"dram": cycles / 2}
    return Layer(name, cycles, {form.name: counted for form in FORMS}, causes)


COUNTED, ON_RTL, PACKAGE = CountedChunk("mono16", 0), SimulatedChunk("mono16", 0), PackageChunk("mono16", 0)
KNOWN = {COUNTED: (layer(100, 50.0), layer(200, 150.0, "b")), ON_RTL: {"gemm:1x1x1": 100, "b": 200}}


def test_the_tables_say_how_far_forms_are_off() -> None:
    page = page_of(models.STUDY, KNOWN | {PACKAGE: {"gemm:1x1x1": 60, "b": 160}})
    assert page.missed == []
    errors = {row[0]: row for row in page.tables[0].rows}
    assert errors["roofline"][2:4] == ("-37.5", "37.5")
    assert errors[MODEL][3] == "0.0"
    assert page.texts["timeloop"] == "37.5 %"
    causes = {row[0]: row for row in page.tables[3].rows}
    assert causes["SCALE-Sim's formula"][4] == "-50.0"  # half of the cycles are DRAM's, for which it has no term
    assert causes["SCALE-Sim's formula"][-2] == "+12.5"
    assert page.tables[4].rows == [
        ("its formula", "2", "-37.5", "37.5", "50.0"),
        ("its program", "2", "-30.0", "30.0", "40.0"),
    ]


def test_the_model_has_to_be_right_on_the_rtl() -> None:
    wrong = page_of(models.STUDY, KNOWN | {ON_RTL: {"gemm:1x1x1": 101, "b": 200}})
    assert wrong.missed[0] == "mono16, gemm:1x1x1: 101 cycles on the RTL, 100 in the model"
    every = {point: KNOWN[COUNTED] if isinstance(point, CountedChunk) else {} for point in models.points(True)}
    assert [text.partition(",")[0] for text in page_of(models.STUDY, every).missed] == [
        "100 layers in all",
        "0 layers on the RTL",
    ]


def test_equal_figures_give_the_same_picture(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        draw(rows_of(KNOWN), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
