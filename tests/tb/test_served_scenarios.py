"""Scenarios that benchmarks serve: what their results are kept under, what is shown of them. No RTL runs here."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.schedulers.online.interface import ServingError
from meshloom.sched.workload.scenario import Request, Scenario
from meshloom.tb.benchmarks import layer_puzzle, layer_puzzle_sheets, layer_puzzle_waits, served
from meshloom.tb.benchmarks.interface import BenchmarkError
from meshloom.tb.benchmarks.served import Asked, Network
from meshloom.tb.results.events import Event, Stage
from meshloom.tb.results.scenario import ScenarioResults
from meshloom.tb.runs.online.serve import Served, serve
from meshloom.tb.runs.workers import Workers

from .test_serve import CHIP

T = TypeVar("T")
ONE = {"small0": Scenario("small0", (Request("ds_cnn"), Request("ds_cnn", 1, 2000)))}
PREMA = Asked("lp4", "small0", "prema")


def _chip(name: str) -> ChipConfig:
    assert name == "lp4"
    return CHIP


def _scenarios(cores: int) -> dict[str, Scenario]:
    assert cores == 4
    return ONE


class _Here(Workers):
    """Calls at once, in this process."""

    def __init__(self) -> None: ...

    def submit(self, function: Callable[..., T], *arguments: object) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def result(self, future: Future[Any], on_event: Callable[[Stage], None]) -> Any:
        return future.result()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small chip, one workload, and a store of results that begins empty."""
    monkeypatch.setattr(served, "SCHEDULES", SimpleNamespace(folder=lambda: tmp_path))
    monkeypatch.setattr(served, "_chip", _chip)
    monkeypatch.setattr(served, "_scenarios", _scenarios)
    return tmp_path


def measure(*requests: Asked) -> list[str]:
    """What was said while these were served."""
    counts: list[Event] = []
    served.serve_all(requests, served.compile_all(requests, _Here(), counts.append), _Here(), counts.append)
    return [event.what for event in counts if isinstance(event, Stage)]


def stored(request: Asked) -> ScenarioResults | None:
    return served.result(request, served.known([request]))


def test_what_has_been_served_is_not_served_again(world: Path) -> None:
    assert stored(PREMA) is None
    other = Asked("lp4", "small0", "planaria")
    assert len(measure(PREMA)) == 2  # compiled, served
    assert measure(PREMA, other) == ["by planaria; 0 of 1 served, 100 % of the work left"]
    assert measure(PREMA, other) == []
    results, alone = stored(PREMA), serve(ONE["small0"], CHIP, "prema", device=None).results
    assert results is not None
    assert results.programs == alone.programs
    assert results.scenario.model == alone.scenario.model


def test_results_are_kept_under_all_that_decides_them(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(PREMA)
    compiled = served.known([PREMA])
    assert served.result(PREMA, compiled) is not None
    for one in (
        Asked("lp4", "small0", "prema:period=1000"),
        Asked("lp4", "small0", "prema", wait=0),
        Asked("lp4", "small0", "prema", rtl=True),
        Asked("lp4", "small0", "veltair:estimator=none"),
    ):
        assert served.result(one, compiled) is None, one
    (network,) = compiled
    others = {network: replace(compiled[network], digest="another")}
    assert served.result(PREMA, others) is None
    monkeypatch.setattr(served, "_sources", lambda files: "changed")
    assert served.result(PREMA, compiled) is None


def test_options_at_their_defaults_are_the_same_question(world: Path) -> None:
    measure(PREMA)
    assert stored(Asked("lp4", "small0", "prema:schemes=all")) == stored(PREMA)


def test_what_ran_on_the_rtl_answers_for_the_model(world: Path) -> None:
    compiled = served.compile_all([PREMA], _Here(), lambda event: None)
    on_rtl = Asked("lp4", "small0", "prema", rtl=True)
    results = serve(ONE["small0"], CHIP, "prema", device=None).results
    served._memory(on_rtl).put(served._key(on_rtl, compiled), served._RESULTS, results)  # as a worker does
    assert stored(PREMA) == results


def test_fixed_parallelisations_are_compiled_with_all_versions() -> None:
    """These give deadlines and isolated times."""
    networks = Asked("lp9", "small3", "prema:schemes=fmap").networks
    assert Network("lp9", "googlenet", 1) in networks
    assert Network("lp9", "googlenet", 1, "fmap") in networks
    assert all(network.schemes == "all" for network in Asked("lp9", "small3", "prema").networks)


def test_the_plan_has_what_the_page_promises() -> None:
    plan = layer_puzzle.plan()
    for chip, on_rtl in (("lp9", 8), ("lp25", 2)):
        for size in ("small", "medium", "large"):
            requests = plan[f"{chip}-{size}"]
            assert len(requests) == len(set(requests)) == 50
        rtl = plan[f"{chip}-rtl"]
        assert len({one.workload for one in rtl}) >= on_rtl
        assert all(one.rtl for one in rtl)
    every = [name for name in ("small3", "small7") if sum(one.workload == name for one in plan["lp9-rtl"]) == 5]
    assert every == ["small3", "small7"]
    assert set(layer_puzzle.PARTS) == {*plan, "cases", "kept"}


def test_unknown_parts_measure_nothing() -> None:
    with pytest.raises(BenchmarkError, match="no part tiny; there are lp9-small"):
        layer_puzzle.run(lambda event: None, ["kept", "tiny"])


def test_means_are_of_workloads_that_all_have_served(world: Path) -> None:
    """One that a scheduler lacks counts for nobody; what is missing is said."""
    base = serve(ONE["small0"], CHIP, "prema", device=None).results

    def results(antt: float, sla: float) -> ScenarioResults:
        model = base.scenario.model.model_copy(update={"antt": antt, "sla_violations": sla})
        return base.model_copy(update={"scenario": base.scenario.model_copy(update={"model": model})})

    names = layer_puzzle_sheets.SCHEDULERS
    scenario_results = {Asked("lp9", "small0", name): results(2.0 + index, 0.5) for index, name in enumerate(names)}
    scenario_results[Asked("lp9", "small1", "prema")] = results(100.0, 1.0)
    failures: list[str] = []
    sheet = layer_puzzle_sheets.means(scenario_results, failures)
    assert [(row[1], row[2], row[3]) for row in sheet.rows] == [
        ("1", "prema", "2.000"),
        ("1", "planaria", "3.000"),
        ("1", "veltair", "4.000"),
        ("1", "layer_puzzle", "5.000"),
        ("1", "lookahead", "6.000"),
    ]
    assert sheet.rows[0][7] == "0.40 / 1.61"
    assert failures == [
        "lookahead on lp9: ANTT 6.000 and 50.0 % SLA violations; the best of the four have 2.000 and 50.0 %"
    ]
    (row,) = layer_puzzle_sheets.by_size(scenario_results).rows
    assert row == ("lp9", "small", "1", "2.000", "3.000", "4.000", "5.000", "6.000")
    scenario_results[Asked("lp9", "small0", "lookahead")] = results(1.9, 0.5)
    failures.clear()
    layer_puzzle_sheets.means(scenario_results, failures)
    assert failures == []
    del scenario_results[Asked("lp9", "small0", "lookahead")]
    assert len(layer_puzzle_sheets.means(scenario_results, failures).rows) == 4
    assert layer_puzzle_sheets.by_size(scenario_results).rows[0][-1] == "-"


def test_tables_of_decisions_and_parallelisations(world: Path) -> None:
    base = serve(ONE["small0"], CHIP, "prema", device=None).results
    names = layer_puzzle_sheets.SCHEDULERS[:4]
    results = {Asked("lp9", "small0", name): base for name in names}
    results |= {Asked("lp9", "small0", f"{name}:schemes=fmap"): base for name in names}
    rows = layer_puzzle_sheets.held(results, names, ("fmap", "output")).rows
    assert [row[1] for row in rows] == ["all"] * 4 + ["fmap"] * 4
    results[Asked("lp9", "small3", "prema", wait=7000)] = base
    cost, took = layer_puzzle_sheets.decisions(results, ("small3",), (None, 7000))
    assert cost.columns == ("workload", "scheduler", "320 cycles>", "7,000 cycles>")
    assert [row[:3] for row in cost.rows] == [("small3", "prema", "-")]
    mean = base.scenario.decision_seconds[0]
    assert [row[1] for row in took.rows] == [f"{1e6 * mean:.0f}"]


def test_who_waits_is_reckoned_from_turnarounds_and_programs(world: Path) -> None:
    """A successor counts from the end of the layer before it, and the readings of workloads that all of them have."""
    base = serve(ONE["small0"], CHIP, "prema", device=None).results
    row, (first, second) = (
        base.instances[0].model_copy(update={"network": "ncf", "isolated": 100, "end": 1000}),
        [
            base.programs[0].model_copy(update={"launched": launched, "model_end": end, "cores": cores})
            for launched, end, cores in ((100, 400, (1, 2)), (200, 500, (1, 2, 3, 4, 5, 6)))
        ],
    )
    base = base.model_copy(update={"instances": (row,), "programs": (first, second)})
    results = {Asked("lp9", "small0", name): base for name in layer_puzzle_sheets.SCHEDULERS}
    rows = layer_puzzle_waits.waits(results).rows
    assert len(rows) == 5
    assert rows[0] == ("lp9", "1", "prema", "-", "-", "-", "10.00", "-", "10.0, ncf", "60", "3.0")
    assert layer_puzzle_waits.readings(results, ("small",)).rows == []  # nothing to compare it with
    results |= {Asked("lp9", name, "layer_puzzle:order=ahead"): base for name in ("small0", "small1")}
    readings = layer_puzzle_waits.readings(results, ("small",)).rows
    assert [(one[0], one[2], one[-1]) for one in readings] == [
        ("layer_puzzle", "1", "10.0"),
        ("layer_puzzle:order=ahead", "1", "10.0"),
    ]


def test_one_that_cannot_be_served_holds_nobody_up(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def starving(scenario: Scenario, chip: ChipConfig, scheduler: str, **options: Any) -> Served:
        if scheduler == "prema":
            raise ServingError("starves 0:ds_cnn")
        return serve(scenario, chip, scheduler, **options)

    monkeypatch.setattr(served, "serve", starving)
    pair = (PREMA, Asked("lp4", "small0", "planaria"))
    compiled = served.compile_all(pair, _Here(), lambda event: None)
    failures = served.serve_all(pair, compiled, _Here(), lambda event: None)
    assert failures == ["small0 on lp4 by prema: starves 0:ds_cnn"]
    assert [stored(one) is None for one in pair] == [True, False]


def test_what_is_missing_is_named(world: Path) -> None:
    base = serve(ONE["small0"], CHIP, "prema", device=None).results
    planned = {"a": (PREMA, Asked("lp4", "small0", "prema:schemes=fmap")), "b": (PREMA,)}
    assert layer_puzzle.missing(planned, {PREMA: base}).rows == [("a", "1", "2", "1 by prema")]
    assert len(layer_puzzle.missing(planned, {}).rows) == 2
