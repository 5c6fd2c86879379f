"""The study of Layer-Puzzle's assumptions: workloads, intervals, what flips, what the page says of made-up rows."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.papers.layer_puzzle.veltair import Veltair
from meshloom.sched.schedulers.online.congestion import NoCongestion
from meshloom.sched.schedulers.online.interface import Instance
from meshloom.sched.workload.scenario import load
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.engine.study import Study
from meshloom.tb.studies.layer_puzzle import assumed, flips, paired
from meshloom.tb.studies.layer_puzzle.assumed import (
    MIXES,
    SEEDS,
    SHORT,
    AssumedPoint,
    Lives,
    NetworkTimes,
    NetworkTimesPoint,
    RequestLife,
    Setting,
    poisson,
)
from meshloom.tb.studies.layer_puzzle.flips import BASE, HELD, Assumption
from meshloom.tb.studies.layer_puzzle.paired import Counting, Interval, interval
from meshloom.tb.studies.layer_puzzle.puzzle_assumptions import SETTINGS, STUDY
from meshloom.tb.studies.layer_puzzle.replanned import NAME, ReplannedVeltair
from meshloom.tb.studies.layer_puzzle.views import FOUR, SCHEDULERS

from ...sched.serving_world import network, serve
from ..served_chip import CHIP
from .made_rows import page_of, rows_of

SCRIPT = Path(__file__).parents[3] / "scripts" / "puzzle_scenario.py"


def life(turnaround: int, network: str = "googlenet", every: int = 100, due: int = 400) -> RequestLife:
    return RequestLife(network, 1, 0, turnaround, 4 * every, every, due, 10, 2.0)


def served(*turnarounds: int, short: int = 200) -> Lives:
    """A workload of some requests, NCF's the last, which cannot be in time."""
    return Lives((*map(life, turnarounds), life(short, SHORT, 50, 40)), 1000, 0.4, 12)


@pytest.mark.parametrize("seed", [1, 7])
def test_workloads_of_one_seed_differ_by_what_is_assumed_alone(seed: int) -> None:
    base = BASE.scenario(seed).requests
    names = [one.network for one in base]
    assert names.count(SHORT) == 1
    assert set(names) <= {SHORT, *MIXES["two"]}
    assert {one.arrival for one in base} == {0}
    early, late = (poisson(load).scenario(seed).requests for load in (1.2, 0.3))
    assert [one.network for one in early] == [one.network for one in late] == names
    assert all(abs(b.arrival - 4 * a.arrival) <= 4 for a, b in zip(early, late, strict=True)), "the same draws, spread"
    without = replace(poisson(1.2), short=False).scenario(seed).requests
    assert without == tuple(one for one in early if one.network != SHORT)
    assert [one.arrival for one in Setting("trace").scenario(seed).requests] == [0, 20_000, 400_000, 420_000]
    batches = {one.network: one.batch for one in Setting(batch=4).scenario(seed).requests}
    assert batches == {name: 1 if name == "googlenet" else 4 for name in batches}


def test_an_arbitration_is_that_of_the_chip() -> None:
    assert BASE.chip.dram.arbitration == "fifo"
    assert Setting(arbitration="weighted").chip.dram.arbitration == "weighted"
    assert len({AssumedPoint(one, 1, "prema").key for one in (BASE, Setting(arbitration="weighted"))}) == 2


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        (["--load", "0.9"], poisson(0.9)),
        (["--trace"], Setting("trace")),
        (["--without-ncf", "--mix", "table3", "--batch", "4"], Setting(short=False, mix="table3", batch=4)),
    ],
)
def test_the_script_writes_what_is_served(tmp_path: Path, options: list[str], setting: Setting) -> None:
    script = runpy.run_path(str(SCRIPT))
    path = tmp_path / "s.toml"
    path.write_text(script["main"](["--seed", "3", *options]))
    assert load(path) == setting.scenario(3)


def test_intervals_are_students() -> None:
    assert interval([]) is None
    one = interval([2.0])
    assert (str(one), one and one.side) == ("2.00", 0)
    # logarithms 0, 1, 2 times that of 2: mean 1, deviation 1, and 4.303 standard errors on two degrees of freedom
    three = interval([1.0, 2.0, 4.0])
    assert three is not None
    assert three.mean == pytest.approx(2.0)
    assert three.high == pytest.approx(2.0 ** (1 + 4.302653 / 3**0.5), rel=1e-5)
    assert three.low * three.high == pytest.approx(4.0)
    assert three.side == 0
    ten = interval([1.5, 1.6] * 5)
    assert ten is not None
    assert (ten.side, str(ten)) == (1, "1.55 [1.51, 1.59]")
    assert Interval(0.5, 0.4, 0.6, 9).side == -1


def test_metrics_count_as_they_are_asked_to() -> None:
    lives = served(200, 400)
    assert paired.antt(lives) == pytest.approx((2 + 4 + 4) / 3)
    assert paired.antt(lives, Counting(one=True)) == pytest.approx((0.5 + 1 + 1) / 3)
    assert paired.antt(lives, Counting(short=False)) == pytest.approx(3)
    assert paired.stp(lives) == pytest.approx(0.5 + 0.25 + 0.25)
    late = served(200, 500)
    assert paired.missed([late]) == pytest.approx(2 / 3)
    assert paired.missed([late], possible=True) == pytest.approx(1 / 2)
    assert paired.missed([], possible=True) is None
    twice = paired.better("STP", {1: served(100)}, {1: served(200), 2: lives}, Counting(short=False))
    assert (twice and twice.mean, twice and twice.seeds) == (pytest.approx(2.0), 1)


def known_rows() -> dict[Point, object]:
    """Layer-Puzzle behind at once, ahead one by one and of PREMA that is held; ours ahead but of PREMA one by one."""
    rows: dict[Point, object] = {}
    for seed in SEEDS:
        for name in SCHEDULERS:
            at_once = {"layer_puzzle": 400, "lookahead": 100}.get(name, 200) + seed
            apart = {"layer_puzzle": 100, "lookahead": 150, "prema": 140}.get(name, 300) + seed
            rows[AssumedPoint(BASE, seed, name)] = served(at_once, short=at_once)
            rows[AssumedPoint(poisson(0.9), seed, name)] = served(apart, short=apart)
        for name in FOUR:
            rows[AssumedPoint(BASE, seed, name + HELD)] = served(900 + seed, short=900)
        rows[AssumedPoint(poisson(0.9), seed, NAME)] = served(200, short=100)
        short = replace(life(100, SHORT, 50, 40), waited=40)
        rows[AssumedPoint(poisson(0.9), seed, "lookahead:ahead=no")] = replace(served(200), requests=(life(200), short))
    rows[NetworkTimesPoint("googlenet")] = NetworkTimes(72, 663, 2_152_608, 434_768)
    rows[NetworkTimesPoint(SHORT)] = NetworkTimes(5, 26, 6_143, 3_156)
    return rows


def test_what_flips_is_in_the_table_with_what_brings_it_about() -> None:
    page = page_of(STUDY, known_rows())
    tables = {table.title.partition(",")[0].partition(":")[0]: table for table in page.tables}
    cells = {(one[0], one[1]): one for one in tables["Which assumption flips which comparison"].rows}
    flip = cells["Poisson, load 0.9", "ANTT, layer_puzzle and prema"]
    assert flip[4:] == ("flips", "`python scripts/puzzle_scenario.py --load 0.9`")
    held = cells["at once, others by output channels", "STP, layer_puzzle and veltair"]
    assert held[4:] == ("flips", "`--scheduler prema:schemes=output`")
    assert cells["at once, all by output channels", "ANTT, layer_puzzle and prema"][4] == "undecided"
    assert page.texts["prema_at_once"] == "0.51"
    assert not any(one[0] == "at once" for one in cells.values())
    assert page.texts["impossible"] == "50 %"
    (remark,) = page.remarks()
    assert "has the better ANTT in 26 of 32 comparisons. It is behind prema (Poisson, load 0.9: 0.9" in remark
    assert "Its intervals have 1 beside" not in remark
    assert "NCF waits 10 cycles at most, with PREMA 10, with `lookahead:ahead=no` 40; alone it takes 3,000" in remark
    waits = [one for one in tables["NCF from its arrival to its first launch"].rows if "anew" in one[1]]
    assert waits == [("Poisson, load 0.9", "veltair, blocks planned anew", "10", "10", "10", "2.00", "2.0")]
    assert page.missed == []
    alone = tables["Networks alone on lp9"].rows
    assert [(one[0], one[5], one[6]) for one in alone] == [("googlenet", "861,043", "yes"), ("ncf", "2,457", "no")]


def test_wrong_loads_and_workloads_are_named() -> None:
    rows = known_rows()
    rows[NetworkTimesPoint("googlenet")] = NetworkTimes(72, 663, 2_152_608, 500_000)
    rows[AssumedPoint(BASE, 1, "prema")] = replace(served(200), reasons=("a network was lost",))
    assert page_of(STUDY, rows).missed == [
        "workload 1, at once, by prema: a network was lost",
        "googlenet x1 for lp9, fifo, schemes all: 500,000 cycles alone, not 435 thousand",
    ]


def test_the_study_has_all_settings_with_all_seeds() -> None:
    full, quick = STUDY.points(True), STUDY.points(False)
    assert {*quick} < {*full}
    for setting in SETTINGS:
        points = {(one.seed, one.scheduler) for one in full if isinstance(one, AssumedPoint) and one.setting == setting}
        assert points >= {(seed, name) for seed in SEEDS for name in SCHEDULERS}
    assert len(SEEDS) >= 10
    assert NetworkTimesPoint("googlenet", 1, "fifo", "output") in full
    assert NetworkTimesPoint("mobilenet_v1", 1, "round_robin") in quick
    assert NetworkTimesPoint("googlenet", 1, "round_robin") not in quick


def test_one_assumption_says_all_its_options() -> None:
    one = Assumption(
        Setting("trace", arbitration="round_robin", short=False, mix="table3", batch=4), Counting(True, False), HELD
    )
    assert one.option == (
        "`python scripts/puzzle_scenario.py --trace --without-ncf --mix table3 --batch 4`, "
        "`--set dram.arbitration=round_robin`, `--scheduler prema:schemes=output`, field `one` of the rows, "
        "slowdowns of the others, in the results"
    )
    assert one.words == (
        "trace, channels round robin, no NCF, all of Table III, batches of 4, time alone on one core, NCF not counted, "
        "others by output channels"
    )
    assert one.better(rows_of({}), "ANTT", "layer_puzzle", "prema") is None
    assert flips.BASE in SETTINGS


def test_a_block_of_the_whole_chip_keeps_who_comes_next_waiting_and_one_that_ends_does_not() -> None:
    long, short = network("long", *[4000] * 20), network("short", 400)
    coming = [Instance(0, long, 0, 100_000), Instance(1, short, 1500, 3000)]
    begun = []
    for scheduler in (Veltair(NoCongestion()), ReplannedVeltair(NoCongestion())):
        run = serve(scheduler, coming)
        begun.append(next(one.placement.start for one in run.ran if one.placement.instance == 1))
        ends = [one.end for one in run.ran if one.placement.instance == 0]
        if scheduler.name == "veltair" and len(begun) == 1:
            assert begun[0] > max(ends)
    assert begun[1] < 1500 + 4000


@pytest.mark.slow
def test_a_workload_is_served_and_what_the_study_needs_of_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a small chip, with small networks."""

    def chip_of(name: str, changes: object = ()) -> ChipConfig:
        return CHIP

    monkeypatch.setattr(assumed, "chip_of", chip_of)
    monkeypatch.setattr(assumed, "SHORT", "ds_cnn")
    monkeypatch.setitem(MIXES, "two", ("resnet8",))
    monkeypatch.setattr(assumed, "KILOCYCLES", {"ds_cnn": 20, "resnet8": 30})
    point = AssumedPoint(BASE, 1, "prema")
    row = point.measure(lambda what: None)
    assert row.reasons == ()
    assert [one.network for one in row.requests].count("ds_cnn") == 1
    assert all(0 <= one.free <= 4 for one in row.requests)
    assert max(one.turnaround for one in row.requests) == row.cycles
    times = {one.network: one.measure(lambda what: None) for one in point.networks}
    assert all((one.one, one.all) == (times[one.network].one, times[one.network].all) for one in row.requests)
    assert isinstance(STUDY, Study)
