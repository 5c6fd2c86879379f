"""Flexer's assumptions: chips of wide elements, what tables say of rows, tilings up to so many operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import pose
from meshloom.sched.papers.flexer.tiles import viable
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.flexer.assumed import (
    ASSUMPTIONS,
    AssumedNetwork,
    AssumedRun,
    Gain,
    NetworkGain,
    RunGain,
    Scatter,
    Tilings,
    WeighedNetwork,
    convolutions,
    gain_of,
)
from meshloom.tb.studies.flexer.flexer_assumptions import ON_RTL, STUDY, points
from meshloom.tb.studies.flexer.layers import shape_of

from .made_rows import page_of, rows_of

NAMES = tuple(ASSUMPTIONS)
APART = ASSUMPTIONS["static does not overlap, 2 bytes"]


def network(name: str, cycles: float, layer: float) -> dict[Point, object]:
    gain = Gain(cycles, layer, 1.0)
    return {AssumedNetwork("vgg16", "arch5", name, timeline=True): NetworkGain(gain, gain)}


def test_wide_elements_take_room_and_time() -> None:
    chip, plain = APART.chip("arch5"), load("arch5")
    assert (chip.spm_words, chip.dram.bytes_per_cycle) == (plain.spm_words // 2, plain.dram.bytes_per_cycle // 2)
    assert chip.name == "arch5_2byte"
    static, flexer = APART.policies()
    assert (static.overlap, flexer.overlap) == (False, True)
    assert APART.names() == ("paper_static:budget=20M,overlap=no", "flexer:budget=20M")
    keys = {AssumedRun(ON_RTL[0], name).key for name in NAMES}
    assert len(keys) == len(NAMES)


def test_gains_are_of_sums_and_of_the_best_layer() -> None:
    assert gain_of([((300, 30), (100, 10)), ((100, 10), (100, 30))]) == Gain(2.0, 3.0, 1.0)


def test_tables_and_remarks_follow_from_rows() -> None:
    some = network(NAMES[0], 1.02, 1.07) | network(NAMES[2], 1.82, 2.16) | network(NAMES[-1], 3.09, 8.63)
    wide = AssumedNetwork("yolov2", "arch5", NAMES[2]), AssumedNetwork("yolov2", "arch5", NAMES[3])
    more: dict[Point, object] = {point: NetworkGain(Gain(2.5, 4.0, 1.17)) for point in wide}
    runs: dict[Point, object] = {AssumedRun(ON_RTL[0], NAMES[2]): RunGain(1.47, 100, 0.02, ("7 bytes are wrong",))}
    heavy: dict[Point, object] = {WeighedNetwork("vgg16"): {"flexer": (1.02, 0.98), "weighed": (1.01, 1.03)}}
    page = page_of(STUDY, some | more | runs | heavy)
    one_by_one, everywhere, on_rtl, weighed = page.tables
    assert one_by_one.rows[1] == (NAMES[2], *("1.82", "2.16", "1.00") * 2)
    assert everywhere.rows == [("arch5", "yolov2", *("2.50", "4.00", "1.17") * 2)]
    assert on_rtl.rows == [(NAMES[2], "1.47", "-", "-", "-", "100", "0.02 %")]
    assert weighed.rows == [("vgg16", "1.02", "0.98", "1.01", "1.03")]
    assert page.missed == ["7 bytes are wrong"]
    assert page.remarks()[0].endswith("2.17: static does not overlap, 1 byte, 1.82 and 2.16.")
    assert page.remarks()[1].endswith("2.50 for a network (arch5, yolov2), 4.00 for a layer (arch5, yolov2).")
    assert page.texts["rtl"] == "1.47"


def test_of_a_layer_those_tilings_are_shown_that_are_most(tmp_path: Path) -> None:
    few, most = (Tilings("vgg16/conv4_2", shown=shown) for shown in (40, 400))
    spots: dict[str, list[tuple[float, int]]] = {"best static": [(100.0, 9), (90.0, 20)], "out of order": [(95.0, 9)]}
    rows: dict[Point, object] = {few: Scatter({"out of order": [(1.0, 1)]}, 50), most: Scatter(spots, 50)}
    (tilings,) = page_of(STUDY, rows).tables
    assert tilings.rows[0] == ("vgg16/conv4_2", "best static", "2 of 50", "100", "9", "90", "20")
    assert [row[2] for row in tilings.rows] == ["2 of 50", "1 of 50"]
    ((name, draw),) = STUDY.pictures.items()
    draw(rows_of(rows), tmp_path / name)
    assert "vgg16/conv4_2 on arch1" in (tmp_path / name).read_text()


@pytest.mark.slow
def test_tilings_have_so_many_operations_at_most() -> None:
    """One of 100,000 takes minutes. The row says how many there are in all."""
    layer = "squeezenet/fire2_squeeze"
    every = len(viable(pose(shape_of(layer), load("arch1")), load("arch1"), layer))
    row = Tilings(layer, most=20, shown=5).measure(lambda what: None)
    assert row.every == every
    assert list(row.spots) == ["best static", "out of order"]
    assert all(len(spots) in range(1, 10) for spots in row.spots.values())
    counts = [len(Tilings(layer, most, every).measure(lambda what: None).spots["out of order"]) for most in (20, 40)]
    assert 9 < counts[0] < counts[1] < every


def test_the_quick_study_is_of_all_tables() -> None:
    kinds = {type(point) for point in points(False)}
    assert kinds == {type(point) for point in points(True)} == {AssumedNetwork, AssumedRun, WeighedNetwork, Tilings}


def test_a_sample_of_a_network_is_called_one() -> None:
    gain = Gain(1.5, 2.0, 1.0)
    few: dict[Point, object] = {
        point: NetworkGain(gain, gain if point.timeline else None)
        for point in points(False)
        if isinstance(point, AssumedNetwork)
    }
    one_by_one, everywhere = page_of(STUDY, few).tables
    assert one_by_one.title.startswith("vgg16, one convolution of 8 on arch5")
    assert [row[1] for row in everywhere.rows] == ["squeezenet, one convolution of 8"]
    page = page_of(STUDY, few | network(NAMES[0], 1.02, 1.07))
    assert page.tables[0].title.startswith("vgg16 on arch5")
    assert [row[0] for row in page.tables[0].rows] == [NAMES[0]]
    assert len(convolutions("vgg16", 8)) == 2 < len(convolutions("vgg16"))
