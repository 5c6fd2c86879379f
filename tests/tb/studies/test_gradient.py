"""`gradient`: which order is chosen, what is summed, and the bars."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.sched.papers.gradient.scheduler import Refused
from meshloom.sched.schedulers.training.orders import Order
from meshloom.sched.schedulers.training.pair import Split
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.engine.tables import Table
from meshloom.tb.studies.gradient import gradient_points
from meshloom.tb.studies.gradient import gradient_sums as sums
from meshloom.tb.studies.gradient import gradient_tables as tables
from meshloom.tb.studies.gradient.gradient import ENOUGH, STUDY
from meshloom.tb.studies.gradient.gradient_cases import Case
from meshloom.tb.studies.gradient.gradient_forward import ForwardCycles, ForwardModelled, forward
from meshloom.tb.studies.gradient.gradient_plot import draw, panels
from meshloom.tb.studies.gradient.gradient_points import (
    SMALL,
    OrderCycles,
    PairCycles,
    PairModelled,
    PairRow,
    PairRun,
    modelled,
    on_rtl,
)
from meshloom.tb.studies.gradient.neighbours import Sample, predicted

from .made_rows import page_of, rows_of

ONE = 1, Split.K
ORDERS = (
    OrderCycles(Order.SEQUENTIAL, *ONE, 100, 1000),
    OrderCycles(Order.PLAIN, *ONE, 120, 900),
    OrderCycles(Order.INTERLEAVED, *ONE, 110, 950),
    OrderCycles(Order.DX_MAJOR, *ONE, 90, 800, 40),
    OrderCycles(Order.DW_MAJOR, *ONE, refused="too small"),
    OrderCycles(Order.K_MAJOR, *ONE, 95, 850),
)
EDGE, SERVER = Case("edge45"), Case("server1")
GOOD = PairRow("", 1000, 1001, 5000, 0)


def rows(*cases: Case, networks: tuple[str, ...] = ("ncf", "dlrm", "bert")) -> dict[Point, PairCycles]:
    return {
        modelled(case, layer): PairCycles(ORDERS) for case in cases for name in networks for layer in case.layers(name)
    }


def forwards(*cases: Case, networks: tuple[str, ...] = ("ncf", "dlrm", "bert")) -> dict[Point, ForwardCycles]:
    layers = [(case, layer) for case in cases for name in networks for layer in case.layers(name)]
    return {forward(case, layer): ForwardCycles(60) for case, layer in layers}


def cells(table: Table, row: str) -> dict[str, str]:
    """A row by its columns."""
    (one,) = [each for each in table.rows if each[0] == row]
    return dict(zip(table.columns, one, strict=True))


def test_orders_are_chosen_as_they_are_named() -> None:
    wide = EDGE.layers("dlrm")[1]  # 4 x 512 x 256: algorithm 1 takes dw_major, which does not fit here
    cycles = {way: sums.chosen(wide, ORDERS, way).cycles for way in sums.WAYS}
    assert cycles == {
        "plain": 120, "interleaved": 110, "algorithm 1": 100, "and the split": 100, "sequential": 100, "best": 90,
    }  # fmt: skip


def test_splits_are_chosen_as_they_are_named() -> None:
    layer = Case("server2").layers("bert")[1]  # 2048 x 1024 x 1024: almost square
    some = [
        OrderCycles(order, 2, split, cycles, 10)
        for split, all_of in (
            (Split.M, {Order.SEQUENTIAL: 130, Order.PLAIN: 150, Order.INTERLEAVED: 140}),
            (Split.K, {Order.SEQUENTIAL: 110, Order.PLAIN: 105, Order.INTERLEAVED: 120}),
        )
        for order, cycles in all_of.items()
    ]
    some.append(OrderCycles(Order.PLAIN, 2, Split.N, 1, slower=True))
    cycles = {way: sums.chosen(layer, some, way).cycles for way in sums.WAYS}
    assert cycles == {
        "plain": 150, "interleaved": 140, "algorithm 1": 140, "and the split": 120, "sequential": 105, "best": 105,
    }  # fmt: skip


def test_batches_are_cut_where_sums_may_leave_int32() -> None:
    cut, whole = EDGE.layers("yolo")[:2]
    assert (cut.name, cut.m, cut.count) == ("gradient:yolov2_tiny/conv2,b2", 86_528, 2)
    assert (whole.name, whole.m, whole.count) == ("gradient:yolov2_tiny/conv3,b4", 43_264, 1)
    assert [layer.name for layer in EDGE.left_out("yolo")] == ["gradient:yolov2_tiny/conv1,b1"]  # of one picture
    assert EDGE.left_out("res") == ()


def test_layers_count_as_often_as_their_network_has_them() -> None:
    layers = EDGE.layers("bert")
    times = sum(one.count for one in layers)
    one = sums.network_sums(rows_of(rows(EDGE) | forwards(EDGE)), EDGE, "bert")
    assert one is not None
    assert one.ways["best"] == sums.Sum(90 * times, 51_200 * times, 2560 * times)
    assert (one.layers, one.searched, one.forward) == (times, times, 60 * times)
    assert any(one.count > 1 for one in layers)
    assert sums.network_sums(rows_of({}), EDGE, "bert") is None


def test_percentages_of_a_step_count_the_forward_pass() -> None:
    shown, _ = tables.networks(rows_of(rows(EDGE) | forwards(EDGE)), "edge45")
    bert = cells(shown, "bert")
    assert (bert["best>"], bert["step: best>"]) == ("+25.0", "+16.7")  # 90 of 120, 90 + 60 of 120 + 60
    assert (bert["best, of sequential>"], bert["step: best, of sequential>"]) == ("+10.0", "+6.2")
    assert cells(shown, "the paper, mean of 9")["step: and the split>"] == "+29.3"
    assert cells(shown, "the paper, mean of 9")["and the split>"] == "-"
    some = rows(EDGE) | forwards(EDGE)
    some[forward(EDGE, EDGE.layers("bert")[0])] = ForwardCycles(refused="too large")
    shown, _ = tables.networks(rows_of(some), "edge45")
    assert [cells(shown, name)["step: best>"] for name in ("bert", "mean of 3")] == ["-", "-"]
    assert cells(shown, "bert")["best>"] == "+25.0"


def test_what_is_not_searched_in_every_order_is_a_lower_bound() -> None:
    case = Case("server2")
    some = rows(case, networks=("ncf", "rcnn"))
    shown, _ = tables.networks(rows_of(some), "server2")
    small, large, mean = (cells(shown, name) for name in ("ncf", "rcnn", "mean of 2"))
    every = sum(layer.count for layer in case.layers("rcnn"))
    searched = sum(layer.count for layer in case.layers("rcnn") if layer.first or layer.macs <= SMALL)
    assert (small["all orders>"], small["best>"], small["interleaved>"]) == (small["layers>"], "+25.0", "+8.3")
    assert (large["all orders>"], large["layers>"]) == (f"{searched}", f"{every}")
    assert searched < every
    assert large["best>"].startswith("≥ +")
    assert mean["best>"].startswith("≥ +")
    assert (large["interleaved>"], mean["interleaved>"]) == ("-", "-")
    assert not large["and the split>"].startswith("≥")
    wide = modelled(case, max(case.layers("rcnn"), key=lambda layer: layer.macs))
    assert not wide.every_order


def test_layers_with_more_dram_than_their_chip_has_are_counted() -> None:
    some = rows(SERVER, networks=("ncf", "dlrm"))
    large = SERVER.layers("ncf")[0]
    some[modelled(SERVER, large)] = PairCycles(ORDERS, 1 << 24)
    _, shown = tables.networks(rows_of(some), "server1")
    ncf, dlrm = (cells(shown, name) for name in ("ncf", "dlrm"))
    assert (ncf["layers with more DRAM>"], ncf["words a channel then>"]) == (f"{large.count}", "16,777,216")
    assert (dlrm["layers with more DRAM>"], dlrm["words a channel then>"]) == ("0", "-")
    longest = tables.longest(rows_of(some), "server1")
    assert [row[-1] for row in longest.rows].count("16,777,216") == 1


def test_a_row_says_with_how_much_dram_it_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_points.Searches, "find", lambda *question: Refused("no"))  # plays nothing
    large, small = (PairModelled("server1", f"gradient:rcnn/{name},b8", None, False) for name in ("fc6", "fc7"))
    assert large.measure(lambda what: None).enlarged == 1 << 24
    assert small.measure(lambda what: None).enlarged == 0


def test_memories_are_those_of_the_chips() -> None:
    shown = tables.memories(rows_of(rows(EDGE, SERVER, Case("server8"), networks=("ncf",))))
    edge = cells(shown, "edge45")
    for chip in ("edge45", "server1", "server8"):  # as docs/architecture/gradients.md has it
        sizes = [float(text) for text in cells(shown, chip)["A / B / ACC / OUT / VEC, KiB"].split(" / ")]
        assert [size / sum(sizes) for size in sizes] == [1 / 4, 1 / 4, 3 / 8, 1 / 16, 1 / 16]
    assert (edge["A, words>"], edge["ACC, words of sums>"]) == ("4,096", "1,536")
    assert edge["A / B / ACC / OUT / VEC, KiB"] == "256 / 256 / 384 / 64 / 64"
    assert edge["KiB of a core>"] == "1,024"


def test_layers_of_the_same_sizes_are_one_point() -> None:
    names = {modelled(EDGE, layer).layer for layer in EDGE.layers("res")}
    assert len(names) < len(EDGE.layers("res"))
    assert modelled(SERVER, SERVER.layers("ncf")[0]).every_order
    wide = Case("server1", 128)  # what the chip has
    assert modelled(wide, wide.layers("ncf")[0]) == modelled(SERVER, SERVER.layers("ncf")[0])
    assert forward(wide, wide.layers("ncf")[0]) == forward(SERVER, SERVER.layers("ncf")[0])
    assert forward(Case("server1", 64), SERVER.layers("ncf")[0]).bytes == 64


@pytest.mark.slow
def test_tables_and_figures(tmp_path: Path) -> None:
    cases = EDGE, Case("edge45", 22), Case("edge45", 11)
    page = page_of(STUDY, rows(*cases) | forwards(*cases))
    memories, networks, traffic, widths, widths_traffic = page.tables
    assert [row[0] for row in memories.rows] == ["edge45"]
    assert len(traffic.rows) == 4
    assert len(widths_traffic.rows) == 2
    assert [row[0] for row in networks.rows] == ["ncf", "dlrm", "bert", "mean of 3", "the paper, mean of 9"]
    assert cells(networks, "ncf")["best>"] == "+25.0"  # 90 of 120 cycles
    assert [row[0] for row in widths.rows] == ["22", "11"]
    assert page.texts["edge45_best"] == "+24.5 %"  # a first layer has one order
    assert page.texts["edge45_step_best"] == "+16.3 %"
    assert page.texts["server1_best"] == "-"
    assert page.missed == []
    assert page.remarks() == ["Left out: yolov2_tiny/conv1,b1 (173,056 pixels)."]
    for name in ("one.svg", "two.svg"):
        draw(page.rows, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert b"cycles of steps (figure 12)" in (tmp_path / "one.svg").read_bytes()


def test_pictures_are_relative_to_plain() -> None:
    servers = [Case(chip) for chip in ("server2", "server4", "server8")]
    (edge,), (_,), (longest,), (cores, *_) = panels(rows_of(rows(EDGE, SERVER, *servers, networks=("ncf", "dlrm"))))
    assert edge.groups == ["ncf", "dlrm", "mean"]
    shares = {way: value for way, values in edge.series.items() if (value := values[0]) is not None}
    assert [shares[way] for way in ("interleaved", "sequential", "best")] == pytest.approx([110 / 120, 100 / 120, 0.75])
    assert shares["sequential"] > shares["algorithm 1"] > shares["best"]  # dx_major for some layers of ncf
    assert edge.paper["algorithm 1"][-1] == pytest.approx(1 - 0.238)
    assert 0 < len(longest.groups) == len(longest.series["DRAM"]) <= tables.LONGEST
    assert cores.groups == ["1", "2", "4", "8"]
    assert cores.paper["and the split"][1] is None  # the paper prints no figure of two cores
    assert edge.title == "edge45: cycles of both gradients (figure 12)"


def test_nothing_measured_draws_nothing(tmp_path: Path) -> None:
    draw(rows_of({}), tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()


def test_what_runs_on_the_rtl_is_enough() -> None:
    for chip, bar in ENOUGH.items():
        runs = on_rtl(chip)
        assert len({one.layer for one in runs}) >= bar
        assert {one.order for one in runs} == set(Order)
        if len(Case(chip).config.cores) > 1:
            assert {one.split for one in runs} == set(Split)
    assert on_rtl("server2")[-1].scheduler == "gradient:order=k_major,split=k"


@pytest.mark.slow
def test_bars_of_the_rtl() -> None:
    some: dict[Point, PairRow] = {point: GOOD for chip in ENOUGH for point in on_rtl(chip)}
    assert page_of(STUDY, some).missed == []
    first, server2 = on_rtl("edge45")[0], on_rtl("server2")
    some[first] = replace(GOOD, model_cycles=1040)
    some |= {point: replace(GOOD, trouble="no") for point in server2[:1]}
    assert page_of(STUDY, some).missed == [f"{first.name}: the model is 4.00 % off", f"{server2[0].name}: no"]
    some |= {point: replace(GOOD, rtl_cycles=0, refused="too big") for point in server2}
    page = page_of(STUDY, some)
    assert page.missed[1:] == ["server2, layers on the RTL: 0, not at least 4"]


def test_the_quick_study_is_held_to_no_number_of_layers() -> None:
    runs: dict[Point, PairRow] = {point: GOOD for point in STUDY.points(False) if isinstance(point, PairRun)}
    page = page_of(STUDY, runs)
    assert (page.texts["edge45_layers"], page.texts["edge45_error"]) == ("-", "0.100 %")
    assert page.missed == []
    assert len(page.tables[0].rows) == 3


def test_the_quick_study_is_part_of_the_full_one() -> None:
    assert set(STUDY.points(False)) < set(STUDY.points(True))


def test_a_pair_is_modelled() -> None:
    point = PairModelled("edge45", EDGE.layers("ncf")[0].name, None, False)
    row = point.measure(lambda what: None)
    assert point.load(point.dump(row)) == row
    assert {one.order for one in row.orders} >= {Order.SEQUENTIAL, Order.PLAIN}
    assert all(one.cycles > 0 for one in row.orders if one.played)


def test_a_forward_pass_is_modelled() -> None:
    layer = min(EDGE.layers("ncf"), key=lambda layer: layer.macs)
    point = forward(EDGE, layer)
    row = point.measure(lambda what: None)
    assert point.load(point.dump(row)) == row
    assert row.cycles > layer.k * layer.n / 22  # all of W comes from DRAM
    assert not row.refused
    faster = ForwardModelled("edge45", layer.name, 64).measure(lambda what: None)
    assert faster.cycles < row.cycles


@pytest.mark.slow
def test_neighbours_vote_for_a_split() -> None:
    wide = [Sample((4 << at, 64, 64), {"m": 10, "n": 20, "k": 30}, 40) for at in range(10)]
    deep = [Sample((64, 64, 4096 << at), {"m": 20, "n": 10}, 40) for at in range(10)]
    for one in predicted(wide + deep, repeats=20):
        assert one.right > 0.9
        assert 0.7 < one.less <= one.least == pytest.approx(0.75)
    assert predicted(wide[:9]) == []
