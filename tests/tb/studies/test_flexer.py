"""The study of out-of-order schedules: layers that are scheduled alike, whole networks, reuse of tiles, pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.flexer.flexer import FIGURE_9, STUDY, TRANSFERS, WEIGHED, points
from meshloom.tb.studies.flexer.layers import (
    ARCHS,
    EVERY,
    NETWORKS,
    QUICK,
    LayerCosts,
    LayerPoint,
    PolicyPoint,
    first_names,
    layers_of,
    points_of,
    same,
    shape_of,
)
from meshloom.tb.studies.flexer.reuse import Reuse, ReusePoint

from .made_rows import page_of, rows_of

COSTS = {
    "paper_static": (300, 30),
    "loop_order": (200, 40),
    "flexer": (150, 20),
    "nest": (160, 20),
    "hybrid": (150, 20),
}
REUSE = Reuse({"inputs": 40, "weights": 9}, {"inputs": {1: 3, 2: 5}, "weights": {}, "sums": {}}, {"both": 7})


def whole(
    arch: str, network: str, costs: dict[str, tuple[int, int]] = COSTS, best: str = "flexer"
) -> dict[Point, object]:
    return {point: LayerCosts(costs, best) for point in points_of([arch], [network])}


def test_layers_that_are_scheduled_alike_are_measured_once() -> None:
    assert same(shape_of("vgg16/conv4_2")) == same(shape_of("vgg16/conv4_3"))
    assert len(points_of(ARCHS[:1])) == len(first_names()) < sum(len(layers_of(network)) for network in NETWORKS)
    assert {load(arch).name for arch in ARCHS} == set(ARCHS)
    assert set(points(False)) <= set(points(True))


def test_networks_are_shown_where_all_of_their_layers_are_known() -> None:
    some = whole("arch1", "vgg16") | whole("arch5", "squeezenet")
    some.pop(LayerPoint("arch1", "vgg16/fc8"))
    page = page_of(STUDY, some)
    by_title = {table.title.partition(" (")[0]: table for table in page.tables}
    assert list(by_title) == ["End to end", "Single layers: the best and the worst"]
    layers = len(layers_of("squeezenet"))
    cycles = tuple(f"{layers * one:,}" for one in (300, 200, 150, 150))
    ratios = "2.00", "1.50", "1.33", "2.00", "1.33", "2.00"
    assert by_title["End to end"].rows == [("arch5", "squeezenet", *cycles, *ratios)]
    assert (page.texts["net_flexer_static"], page.texts["layer_words_flexer_loops"]) == ("2.00", "2.00")
    assert (page.texts["share_flexer"], page.texts["share_nest"]) == ("100 %", "0 %")
    assert page.missed == []


def test_the_sample_of_the_quick_study_is_shown_as_a_sample() -> None:
    some: dict[Point, object] = {
        point: LayerCosts(COSTS, "flexer") for point in points(False) if isinstance(point, LayerPoint)
    }
    (line,) = page_of(STUDY, some).tables[0].rows
    layers = len(layers_of(QUICK)[::EVERY])
    assert line[:3] == (FIGURE_9, f"{QUICK}, one layer of {EVERY}", f"{layers * 300:,}")
    some.pop(next(iter(some)))
    assert "End to end" not in str([table.title for table in page_of(STUDY, some).tables])


def test_a_hybrid_that_is_worse_than_another_is_named() -> None:
    some = whole("arch5", "squeezenet") | {
        LayerPoint("arch5", "vgg16/conv3_1"): LayerCosts(COSTS | {"hybrid": (151, 9)}, "nest")
    }
    assert page_of(STUDY, some).missed == [
        "vgg16/conv3_1 on arch5: the hybrid takes 151 cycles, not 150",
    ]


@pytest.mark.slow
def test_figures_9_to_11_are_shown_and_drawn(tmp_path: Path) -> None:
    layer = WEIGHED[0]
    some = whole(FIGURE_9, "vgg16") | {
        PolicyPoint(FIGURE_9, layer, TRANSFERS): (100, 15),
        ReusePoint("vgg16/conv4_2", "flexer"): REUSE,
    }
    page = page_of(STUDY, some)
    _, _, layers, heavy, reloads, sharing = page.tables
    assert layers.rows[0][:6] == ("vgg16/conv1_1", "300", "200", "150", "150", "flexer")
    assert heavy.rows == [(layer, "2.00 / 1.50", "3.00 / 2.00")]
    assert reloads.rows == [("vgg16/conv4_2", "flexer", "40", "9", "0", "0", "3 x 1; 5 x 2", "-", "-")]
    assert sharing.rows == [("vgg16/conv4_2", "flexer", "0", "0", "7", "0")]
    ((name, draw),) = STUDY.pictures.items()
    for file in ("a.svg", "b.svg"):
        draw(rows_of(some), tmp_path / file)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "Figure 11" in (tmp_path / "a.svg").read_text()
    assert name == "flexer.svg"


def test_words_weigh_on_what_a_search_chooses() -> None:
    """The same layer has a point of its own for each policy."""
    assert PolicyPoint("arch5", WEIGHED[0], TRANSFERS).key != PolicyPoint("arch5", WEIGHED[1], TRANSFERS).key
