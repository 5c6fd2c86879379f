"""Studies of many networks at once: what is served, what decides its rows, what tables say of them. Without RTL."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.workload.scenario import Request, Scenario
from meshloom.tb.results.scenario import ScenarioResults
from meshloom.tb.runs.online.serve import serve
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.layer_puzzle import layer_puzzle, online_ablation, served, views
from meshloom.tb.studies.layer_puzzle.cases import CASES, CasePoint, Outcome
from meshloom.tb.studies.layer_puzzle.served import Life, Programs, ProgramsPoint, Scores, Served, ServedPoint, lives_of

from ..served_chip import CHIP
from .made_rows import page_of, rows_of

ONE = {"small0": Scenario("small0", (Request("ds_cnn"), Request("ds_cnn", 1, 2000)))}
PREMA = ServedPoint("lp4", "small0", "prema")
BASE = Served(
    Scores(2.0, 1.5, 0.5, 0.4), Scores(2.0, 1.5, 0.5, 0.4), 3, 0, 1000, 560, 82, 0, (5e-5, 4e-4), 0.0, 0, 0,
    (Life("ncf", 1000, 10.0, 400, 1200),),
)  # fmt: skip


def row(antt: float, sla: float) -> Served:
    return replace(BASE, model=Scores(antt, 1.5, sla, 0.4))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small chip and one workload."""

    def chip_of(name: str) -> ChipConfig:
        assert name == "lp4"
        return CHIP

    monkeypatch.setattr(served, "chip_of", chip_of)
    monkeypatch.setattr(served, "_scenarios", lambda chip: ONE)


@pytest.mark.usefixtures("world")
def test_rows_are_of_what_was_served() -> None:
    one, results = PREMA.measure(lambda what: None), serve(ONE["small0"], CHIP, "prema", device=None).results
    assert one.model == served.scores_of(results.scenario.model)
    assert (one.networks, one.decisions, one.reasons) == (2, results.scenario.decisions, ())
    assert [life.network for life in one.lives] == ["ds_cnn", "ds_cnn"]
    compiled = ProgramsPoint("lp4", "ds_cnn", 1).measure(lambda what: None)
    assert compiled.layers > 0
    assert compiled.templates >= compiled.forms > 0


@pytest.mark.slow
@pytest.mark.usefixtures("world")
def test_all_that_decides_a_row_is_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    others = (
        ServedPoint("lp4", "small0", "prema:period=1000"),
        ServedPoint("lp4", "small0", "prema", wait=0),
        ServedPoint("lp4", "small0", "prema", rtl=True),
        ServedPoint("lp4", "small0", "veltair:estimator=none"),
    )
    forest = ServedPoint("lp4", "small0", "layer_puzzle:estimator=forest")
    keys = [PREMA.key, forest.key]
    assert len({*keys, *(one.key for one in others)}) == 6
    monkeypatch.setattr(served, "digest_of", lambda file: "changed")
    assert PREMA.key == keys[0]
    assert forest.key != keys[1]
    monkeypatch.setattr(served, "_scenarios", lambda chip: {"small0": Scenario("small0", (Request("ds_cnn"),))})
    assert PREMA.key != keys[0]


def test_fixed_parallelisations_are_compiled_with_all_versions() -> None:
    """These give deadlines and isolated times."""
    networks = ServedPoint("lp9", "small3", "prema:schemes=fmap").networks
    assert ProgramsPoint("lp9", "googlenet", 1) in networks
    assert ProgramsPoint("lp9", "googlenet", 1, "fmap") in networks
    assert all(network.schemes == "all" for network in ServedPoint("lp9", "small3", "prema").networks)


def test_the_study_has_what_the_page_promises() -> None:
    points = [point for point in layer_puzzle.points(True) if isinstance(point, ServedPoint)]
    assert len(points) == len(set(points))
    for chip, on_rtl in (("lp9", 8), ("lp25", 2)):
        plain = [one for one in points if one.chip == chip and one.scheduler in views.SCHEDULERS]
        assert sum(not one.rtl and one.wait is None for one in plain) == 150
        assert len({one.workload for one in plain if one.rtl}) >= on_rtl
    for name in ("small3", "small7"):
        assert sum(one.rtl and one.chip == "lp9" and one.workload == name for one in points) == 5
    for study in (layer_puzzle, online_ablation):
        assert {*study.points(False)} < {*study.points(True)}
    first = max(layer_puzzle.points(True), key=lambda point: point.work)
    assert isinstance(first, ProgramsPoint)


def test_what_ran_on_the_rtl_answers_for_the_model() -> None:
    point = ServedPoint("lp9", "small3", "prema")
    assert served.look(rows_of({replace(point, rtl=True): BASE}), point) == BASE
    assert served.look(rows_of({}), point) is None


def test_means_are_of_workloads_that_all_have_served() -> None:
    """One that a scheduler lacks counts for nobody."""
    known: dict[Point, object] = {
        ServedPoint("lp9", "small0", name): row(2.0 + index, 0.5) for index, name in enumerate(views.SCHEDULERS)
    }
    known[ServedPoint("lp9", "small1", "prema")] = row(100.0, 1.0)
    table = views.by_chip(rows_of(known))
    assert [cells[1:4] for cells in table.rows] == [
        ("1", "prema", "2.000"),
        ("1", "planaria", "3.000"),
        ("1", "veltair", "4.000"),
        ("1", "layer_puzzle", "5.000"),
        ("1", "lookahead", "6.000"),
    ]
    assert table.rows[0][7] == "0.40 / 1.61"
    assert views.behind(rows_of(known)) == [
        "lookahead on lp9: ANTT 6.000 and 50.0 % SLA violations; the best of the four have 2.000 and 50.0 %"
    ]
    assert views.by_size(rows_of(known)).rows == [("lp9", "small", "1", "2.000", "3.000", "4.000", "5.000", "6.000")]
    page = page_of(layer_puzzle.STUDY, known)
    assert (page.texts["antt_prema_lp9"], page.texts["antt_prema_lp25"]) == ("0.40", "-")
    ours = ServedPoint("lp9", "small0", "lookahead")
    assert views.behind(rows_of(known | {ours: row(1.9, 0.5)})) == []
    del known[ours]
    assert len(views.by_chip(rows_of(known)).rows) == 4
    assert views.by_size(rows_of(known)).rows[0][-1] == "-"


def test_tables_of_decisions_and_parallelisations() -> None:
    known: dict[Point, object] = {ServedPoint("lp9", "small0", name): BASE for name in views.FOUR}
    known |= {ServedPoint("lp9", "small0", f"{name}:schemes=fmap"): BASE for name in views.FOUR}
    cells = views.one_parallelisation(rows_of(known), ("fmap", "output")).rows
    assert [each[1] for each in cells] == ["all"] * 4 + ["fmap"] * 4
    known[ServedPoint("lp9", "small3", "prema", wait=7000)] = BASE
    cost, took = views.decisions(rows_of(known), ("small0", "small3"), (None, 7000))
    assert cost.columns == ("workload", "scheduler", "560 cycles>", "7,000 cycles>")
    assert cost.rows[:2] == [("small0", "prema", "2.000, 50", "-"), ("small3", "prema", "-", "2.000, 50")]
    assert took.rows[0] == ("prema", "50", "400", "35,000", "280,000")


def test_lives_are_reckoned_from_turnarounds_and_programs() -> None:
    """A successor counts from the end of the layer before it."""
    base = serve(ONE["small0"], CHIP, "prema", device=None).results
    instance = base.instances[0].model_copy(update={"network": "ncf", "isolated": 100, "end": 1000})
    programs = tuple(
        base.programs[0].model_copy(update={"launched": launched, "model_end": end, "cores": cores})
        for launched, end, cores in ((100, 400, (1, 2)), (200, 500, (1, 2, 3, 4, 5, 6)))
    )
    results: ScenarioResults = base.model_copy(update={"instances": (instance,), "programs": programs})
    assert lives_of(results) == BASE.lives


def test_who_waits_and_readings_of_workloads_that_all_of_them_have() -> None:
    known: dict[Point, object] = {ServedPoint("lp9", "small0", name): BASE for name in views.SCHEDULERS}
    cells = views.waits(rows_of(known)).rows
    assert len(cells) == 5
    assert cells[0] == ("lp9", "1", "prema", "-", "-", "-", "10.00", "-", "10.0, ncf", "60", "3.0")
    assert views.readings(rows_of(known), ("small",)).rows == []  # nothing to compare it with
    known |= {ServedPoint("lp9", name, "layer_puzzle:order=ahead"): BASE for name in ("small0", "small1")}
    readings = views.readings(rows_of(known), ("small",)).rows
    assert [(one[0], one[2], one[-1]) for one in readings] == [
        ("layer_puzzle", "1", "10.0"),
        ("layer_puzzle:order=ahead", "1", "10.0"),
    ]


def test_runs_on_the_rtl_cases_and_programs_have_rows_of_their_own() -> None:
    first, second, *_ = CASES
    known: dict[Point, object] = {
        ServedPoint("lp9", "small3", "prema", rtl=True): replace(
            BASE, rtl_cycles=900, compared=64, wrong=3, reasons=("3 bytes are wrong",)
        ),
        ProgramsPoint("lp9", "ncf", 4): Programs(5, 28, 26, 2654, 84_000, 4),
        CasePoint(first): Outcome(4, 100_000, 5_000, 0, "-", "as it must", ok=True),
        CasePoint(second): Outcome(4, None, 5_000, 3, "-", "3 bytes", ok=False),
    }
    page = page_of(layer_puzzle.STUDY, known)
    tables = {table.title.partition(",")[0]: table for table in page.tables}
    rtl, outcomes, programs = tables["On the RTL"], tables["Cases"], tables["Programs of each network"]
    assert rtl.rows[0][:6] == ("lp9", "small3", "3", "prema", "900", "1,000")
    assert rtl.bad == {0}
    assert [cells[:4] for cells in outcomes.rows] == [
        (first, "4", "100,000", "5,000"),
        (second, "4", "-", "5,000"),
    ]
    assert outcomes.bad == {1}
    assert programs.rows == [("lp9", "ncf", "4", "all", "5", "28", "26", "2,654", "0.1", "4")]
    assert page.missed == [
        "small3 on lp9 by prema on the RTL: 3 bytes are wrong",
        f"{second}: 3 bytes",
        "bytes that differ: 3, not exactly 0",
    ]


def test_an_ablation_is_of_workloads_that_a_variant_has_served_all() -> None:
    known: dict[Point, object] = {
        ServedPoint("lp9", name, scheduler): row(antt, sla)
        for name in online_ablation.QUICK
        for scheduler, antt, sla in (("prema", 1.8, 0.5), ("lookahead", 1.6, 0.5), ("lookahead:pace=no", 1.7, 0.5))
    }
    page = page_of(online_ablation.STUDY, known)
    (table,) = page.tables
    assert table.rows[1] == ("lookahead", "", "1.600", "1.500", "50.0", "40.0")
    assert page.missed == ["lookahead: ANTT 1.600 and 50.0 % of deadlines missed; prema has 1.800 and 50.0 %"]
    rows = rows_of(known)
    known[ServedPoint("lp9", "small1", "prema")] = row(9.0, 1.0)
    assert [cells[0] for cells in online_ablation.variants(rows).rows] == ["prema", "lookahead", "lookahead:pace=no"]
    assert [cells[0] for cells in online_ablation.variants(rows_of(known)).rows] == ["prema"]
