"""The tables of `meshloom bench gradient` and `training`: which order is chosen, what is summed, and the bars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from meshloom.sched.papers.gradient.scheduler import Refused
from meshloom.sched.papers.gradient.search import BestTiling, Candidate
from meshloom.sched.schedulers.training.orders import Nest, Order
from meshloom.sched.schedulers.training.pair import Split, Tiling
from meshloom.sched.workload.training_chain import Chain
from meshloom.tb.benchmarks import gradient, gradient_chain, gradient_plot, gradient_runs, gradient_sheets, training
from meshloom.tb.benchmarks import gradient_chain_runs as chain_runs
from meshloom.tb.benchmarks.gradient_knn import Sample, predicted
from meshloom.tb.benchmarks.gradient_runs import Case, Ran, Taken
from meshloom.tb.benchmarks.interface import BenchmarkError
from meshloom.tb.results.training import TrainingResults


def answer_of(order: Order, cycles: int, words: int, spilled: int = 0) -> BestTiling:
    return BestTiling(Candidate(order, (Nest(Tiling(8, 8, 8)),), "dx"), 2, cycles, words, spilled, 1, 1)


ONE = 1, Split.K
ANSWERS: Taken = {
    (Order.SEQUENTIAL, *ONE): answer_of(Order.SEQUENTIAL, 100, 1000),
    (Order.PLAIN, *ONE): answer_of(Order.PLAIN, 120, 900),
    (Order.INTERLEAVED, *ONE): answer_of(Order.INTERLEAVED, 110, 950),
    (Order.DX_MAJOR, *ONE): answer_of(Order.DX_MAJOR, 90, 800, 40),
    (Order.DW_MAJOR, *ONE): Refused("too small"),
    (Order.K_MAJOR, *ONE): answer_of(Order.K_MAJOR, 95, 850),
}


ALL_ON_RTL = gradient_runs.on_rtl


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gradient, "FOLDER", tmp_path)
    monkeypatch.setattr(gradient_runs, "taken", lambda case, layer: ANSWERS)
    monkeypatch.setattr(gradient_runs, "ran", lambda value: None)
    monkeypatch.setattr(gradient_runs, "on_rtl", lambda chip: ALL_ON_RTL(chip)[:6] if chip == "edge45" else ())


def test_orders_are_chosen_as_they_are_named() -> None:
    wide = Case("edge45").layers("dlrm")[1]  # 4 x 512 x 256: algorithm 1 takes dw_major, which does not fit here
    cycles = {way: gradient_sheets.chosen(wide, ANSWERS, way).cycles for way in gradient_sheets.WAYS}
    assert cycles == {
        "plain": 120, "interleaved": 110, "algorithm 1": 100, "and the split": 100, "sequential": 100, "best": 90,
    }  # fmt: skip


def test_splits_are_chosen_as_they_are_named() -> None:
    layer = Case("server2").layers("bert")[1]  # 2048 x 1024 x 1024: almost square
    some: Taken = {
        (order, 2, split): answer_of(order, cycles, 10)
        for split, all_of in (
            (Split.M, {Order.SEQUENTIAL: 130, Order.PLAIN: 150, Order.INTERLEAVED: 140}),
            (Split.K, {Order.SEQUENTIAL: 110, Order.PLAIN: 105, Order.INTERLEAVED: 120}),
        )
        for order, cycles in all_of.items()
    }
    cycles = {way: gradient_sheets.chosen(layer, some, way).cycles for way in gradient_sheets.WAYS}
    assert cycles == {
        "plain": 150, "interleaved": 140, "algorithm 1": 140, "and the split": 120, "sequential": 105, "best": 105,
    }  # fmt: skip


def test_batches_are_cut_where_sums_may_leave_int32() -> None:
    case = Case("edge45")
    cut, whole = case.layers("yolo")[:2]
    assert (cut.name, cut.m, cut.count) == ("gradient:yolov2_tiny/conv2,b2", 86_528, 2)
    assert (whole.name, whole.m, whole.count) == ("gradient:yolov2_tiny/conv3,b4", 43_264, 1)
    assert [layer.name for layer in case.left_out("yolo")] == ["gradient:yolov2_tiny/conv1,b1"]  # of one picture
    assert case.left_out("res") == ()


@pytest.mark.usefixtures("measured")
def test_layers_count_as_often_as_their_network_has_them() -> None:
    case = Case("edge45")
    some = case.layers("bert")
    times = sum(one.count for one in some)
    assert gradient_sheets.total(case, some, "best") == gradient_sheets.Sum(90 * times, 51_200 * times, 2560 * times)
    assert any(one.count > 1 for one in some)


@pytest.mark.usefixtures("measured")
def test_the_page_shows_what_is_kept_and_names_what_is_not(tmp_path: Path) -> None:
    page = gradient.run(lambda event: None, ["kept"])
    networks, figure13, rtl, missing = page.sheets[0], page.sheets[5], page.sheets[-2], page.sheets[-1]
    assert [row[0] for row in networks.rows[:9]] == list(gradient_runs.NETWORKS)
    assert networks.rows[2][7] == "+25.0"  # 90 of 120 cycles
    assert [row[0] for row in networks.rows[9:]] == ["mean of 9", "the paper, mean of 9"]
    assert len(figure13.rows) == 24
    assert rtl.rows == []
    assert missing.rows == [("rtl_edge45", "6", "6")]
    assert "0 layers ran on the RTL of edge45, the bar is 30" in page.failures
    assert len(page.failures) == 5
    with pytest.raises(BenchmarkError, match="'dense' is none of edge45"):
        gradient.run(lambda event: None, ["dense"])
    picture = (tmp_path / gradient.PLOT).read_text()
    assert all(f"(figure {number})" in picture for number in range(12, 17))
    assert "the paper" in picture


@pytest.mark.usefixtures("measured")
def test_figures_are_relative_to_plain() -> None:
    (edge,), (_,), (longest,), (cores, *_) = gradient_plot.rows()
    assert edge.groups == [*gradient_runs.NETWORKS, "mean"]
    shares = {way: value for way, values in edge.series.items() if (value := values[2]) is not None}
    assert [shares[way] for way in ("interleaved", "sequential", "best")] == pytest.approx([110 / 120, 100 / 120, 0.75])
    assert shares["sequential"] > shares["algorithm 1"] > shares["best"]  # dx_major for some layers of ncf
    assert edge.paper["algorithm 1"][-1] == pytest.approx(1 - 0.238)
    assert len(longest.groups) == gradient_sheets.LONGEST == len(longest.series["DRAM"])
    assert cores.groups == ["1", "2", "4", "8"]
    assert cores.paper["and the split"][1] is None  # the paper prints no figure of two cores


def test_nothing_measured_draws_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gradient_runs, "taken", lambda case, layer: None)
    gradient_plot.draw(gradient_plot.rows(), tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()


def test_what_runs_on_the_rtl_is_enough() -> None:
    for chip, bar in gradient.ENOUGH.items():
        requests = gradient_runs.on_rtl(chip)
        assert len({one.layer.name for one in requests}) >= bar
        assert {one.order for one in requests} == set(Order)
        if len(Case(chip).config.cores) > 1:
            assert {one.split for one in requests} == set(Split)
    assert gradient_runs.on_rtl("server2")[-1].scheduler == "gradient:order=k_major,split=k"


def test_bars_of_the_rtl() -> None:
    some = {
        chip: [(one, Ran("", 1000, 1001, 5000, 0)) for one in gradient_runs.on_rtl(chip)] for chip in gradient.ENOUGH
    }
    assert gradient._failures(some) == []
    request, _ = some["edge45"][0]
    some["edge45"][0] = request, Ran("", 1000, 1040, 5000, 0)
    some["server2"] = [(one, replace(ran, trouble="no")) for one, ran in some["server2"][:1]]
    first, second, *more = gradient._failures(some)
    assert first == f"edge45, {request.layer.name}, {request.order}: the model is 4.00 % off"
    assert second.endswith(": no")
    assert more == ["0 layers ran on the RTL of server2, the bar is 4"]


def test_chains_are_measured_against_their_layers_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A way that is refused counts as the layers by themselves; the fastest of each is taken in the last row."""
    monkeypatch.setattr(chain_runs, "argmin", lambda chip, chain: chain_runs.Taken(1000, 500, plain=1100))
    refused = chain_runs.Taken(0, 0, "too small")

    def cycles_of(chip: str, chain: Chain, way: str) -> chain_runs.Taken:
        return refused if "bottom" in chain.name and way != "one program" else chain_runs.Taken(800, 400)

    monkeypatch.setattr(chain_runs, "taken", cycles_of)
    sheet = gradient_chain._rows("edge45", ("dlrm",))
    bottom, top, every, best = sheet.rows
    assert bottom[3:7] == ("+20.0", "refused", "refused", "refused")
    assert top == ("dlrm/top1..top5,b4", "1,100", "1,000", "+20.0", "+20.0", "+20.0", "+20.0", "500", "400")
    assert every[3:7] == ("+20.0", "+10.0", "+10.0", "+10.0")
    assert best[6] == "+20.0"
    assert [row[0] for row in gradient_chain._updates().rows[:2]] == ["edge45", "edge45"]


def test_siblings_are_layers_that_read_the_same_map() -> None:
    some = chain_runs.siblings("edge45", "goo")
    assert len(some) == 9
    assert some[0].joined == "gradient:gemm:3136x176x192"  # 64 + 96 + 16 outputs; the projection reads the pool
    (two,) = chain_runs.siblings("edge45", "res")
    assert two.joined == "gradient:gemm:12544x320x64"
    for layers in (one.layers for one in (*some, two)):
        assert len({(layer.m, layer.k) for layer in layers}) == 1


def test_what_is_not_measured_across_layers_is_a_missed_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("step", "ran", "learned", "argmin", "taken", "apart", "joined"):
        monkeypatch.setattr(chain_runs, name, lambda *value: None)
    page = gradient_chain.run(lambda event: None, ["kept"])
    assert all("not measured" in failure for failure in page.failures)
    assert len(page.failures) == len(chain_runs.STEP_WAYS) + len(page.sheets[-1].rows)
    with pytest.raises(BenchmarkError, match="'dense' is none of steps, edge45"):
        gradient_chain.run(lambda event: None, ["dense"])


def test_neighbours_vote_for_a_split() -> None:
    wide = [Sample((4 << at, 64, 64), {"m": 10, "n": 20, "k": 30}, 40) for at in range(10)]
    deep = [Sample((64, 64, 4096 << at), {"m": 20, "n": 10}, 40) for at in range(10)]
    for one in predicted(wide + deep, repeats=20):
        assert one.right > 0.9
        assert 0.7 < one.less <= one.least == pytest.approx(0.75)
    assert predicted(wide[:9]) == []


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
