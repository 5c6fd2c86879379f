"""Scenarios unlike the example's, on chips unlike lp9: each ends right, on the RTL where that is cheap.

"Right" is what results say of themselves: every byte compared and equal, RTL and model of one mind to the cycle.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.model.modelled import ModelSession
from meshloom.sched.schedulers.online.drive import Drive
from meshloom.sched.schedulers.online.instances import instances_of
from meshloom.sched.schedulers.online.interface import Decision, View
from meshloom.sched.schedulers.online.metrics import cores_over_time
from meshloom.sched.schedulers.online.registry import ONLINE
from meshloom.sched.workload.scenario import Request, Scenario, load
from meshloom.tb.report.scenario import print_scenario
from meshloom.tb.results.scenario import ScenarioResults
from meshloom.tb.runs.online.executor import SessionExecutor
from meshloom.tb.runs.online.networks import compile_networks
from meshloom.tb.runs.online.serve import serve

from ..tiers import slow_but
from .served_chip import CHIP, chip_with

DRAM = CHIP.dram.model_dump()
#: One core and DRAM that is slow in both ways; two virtual channels and more programs than cores.
CHIPS = {
    chip.name: chip
    for chip in (
        chip_with("lp1", floorplan=["dram core dram", ". host ."], dram=DRAM | {"bytes_per_cycle": 1, "latency": 200}),
        chip_with(
            "lp2", floorplan=["dram core .", "host core dram"], programs=4, noc=CHIP.noc.model_dump() | {"data_vcs": 2}
        ),
    )
}
#: A second and a third request come while all cores are busy.
BUSY = Scenario("busy", (Request("resnet8"), Request("ds_cnn", 1, 900), Request("resnet8", 1, 1000, 20_000)))


def right(results: ScenarioResults) -> None:
    assert results.ok, results.reasons
    figures = results.scenario
    assert all(row.end is not None for row in results.instances)
    if figures.rtl_cycles is not None:
        assert figures.rtl_cycles == figures.model_cycles
        assert all(row.bytes_checked > 1000 for row in results.instances)
        assert all(row.error_percent == 0 for row in results.programs)


@pytest.mark.parametrize("chip", slow_but(CHIPS.values()), ids=lambda chip: chip.name)
def test_odd_chips(chip: ChipConfig) -> None:
    results = serve(BUSY, chip, "lookahead").results
    right(results)
    assert results.scenario.decisions == 3 * 11
    first, *others = results.instances
    assert all(row.arrival < (first.end or 0) for row in others)


def test_a_network_that_comes_while_all_cores_are_busy_waits_for_the_next_end() -> None:
    results = serve(BUSY, CHIPS["lp1"], "prema", device=None).results
    right(results)
    rows = sorted(results.programs, key=lambda row: row.launched)
    late = next(row for row in rows if row.instance == 1)
    ends = [row.model_end for row in rows if row.instance == 0 and row.launched < late.launched]
    assert late.launched > 900 + results.scenario.decision_cycles
    assert late.launched == max(end for end in ends if end is not None) + results.scenario.decision_cycles


@pytest.mark.parametrize("scheduler", slow_but(ONLINE.names(), "lookahead", "prema"))
def test_deadlines_that_nobody_can_meet(scheduler: str) -> None:
    """All are missed, and the run is right."""
    options = ":estimator=fair" if scheduler in ("veltair", "layer_puzzle") else ""
    scenario = Scenario("hopeless", tuple(Request("resnet8", 1, 10 * n, 1) for n in range(3)))
    results = serve(scenario, CHIP, scheduler + options, device=None).results
    right(results)
    assert results.scenario.sla_violations == 1
    assert [row.met for row in results.instances] == [False] * 3
    out = io.StringIO()
    print_scenario(results, Console(file=out, width=200))
    alone = results.instances[0].isolated
    text = f"3 of 3 deadlines are hopeless: 0: resnet8 is given 1 of the {alone:,} cycles that it takes alone"
    assert text in out.getvalue()


def test_a_deadline_that_was_only_missed_is_not_called_hopeless() -> None:
    results = serve(
        Scenario("late", (Request("resnet8"), Request("resnet8", 1, 0, None, 0.5))), CHIP, "prema", device=None
    ).results
    alone = results.instances[0].isolated
    late = results.instances[1].model_copy(update={"deadline": alone, "met": False})
    assert not late.hopeless
    assert late.model_copy(update={"deadline": alone - 1}).hopeless
    assert not late.model_copy(update={"deadline": alone - 1, "met": True}).hopeless


def test_hopeless_deadlines_on_the_rtl() -> None:
    scenario = Scenario("hopeless", (Request("resnet8", 1, 0, 1), Request("ds_cnn", 1, 0, None, 0.0001)))
    results = serve(scenario, CHIP, "lookahead").results
    right(results)
    assert [row.met for row in results.instances] == [False, False]


class _OneCoreEach:
    """Gives each network a core of its own, and each layer its successor at once."""

    name = "one core each"
    ahead = True

    def decide(self, view: View) -> list[Decision]:
        free = list(view.free)
        decisions = [
            Decision(one.number, one.layer.versions[0], (free.pop(),), "its core") for one in view.pending if free
        ]
        cores = {one.instance: one.cores for one in view.running} | {one.instance: one.cores for one in decisions}
        return [
            *decisions,
            *(
                Decision(one.number, after.versions[0], cores[one.number], "the same core")
                for one in view.instances
                if one in view.open or (one.number in cores and not one.running)
                if (after := one.following) is not None
            ),
        ]


def test_a_network_that_comes_when_all_others_have_successors_runs_beside_them() -> None:
    scenario = Scenario("beside", (Request("ds_cnn"), Request("ds_cnn"), Request("ds_cnn", 1, 5000)))
    compilations = compile_networks(scenario, CHIP, lambda what: None)
    instances = instances_of(scenario, {key: one.network for key, one in compilations.items()})
    run = Drive(SessionExecutor(ModelSession(CHIP), compilations), _OneCoreEach(), 320).run(instances)
    first, second, third = run.served
    assert len(run.ran) == 3 * 11
    assert (third.start or 0) < min(first.end or 0, second.end or 0)
    steps = cores_over_time(run)
    assert steps == {one.instance.number: [(one.start, 1), (one.end, 0)] for one in run.served}


def test_one_arrives_after_all_else_has_ended() -> None:
    """On an idle chip it takes as long as the first did."""
    scenario = Scenario("late", (Request("resnet8"), Request("resnet8", 1, 2_000_000, 40_000)))
    results = serve(scenario, CHIP, "lookahead").results
    right(results)
    first, last = results.instances
    assert first.end is not None
    assert first.end < 100_000
    assert last.turnaround is not None
    assert abs(last.turnaround - (first.turnaround or 0)) < 100


@pytest.mark.slow
def test_a_hundred_requests_for_one_network() -> None:
    """More than fit into memory at once: some wait for room, all end, none for ever."""
    small = chip_with("lp4full", dram=DRAM | {"words": 1 << 15})
    scenario = Scenario("many", tuple(Request("ds_cnn", 1, 100 * number) for number in range(100)))
    results = serve(scenario, small, "lookahead", device=None).results
    right(results)
    assert len(results.programs) == 100 * 11
    assert results.scenario.busy > 0.8
    pages = {row.instance for row in results.programs if row.launched < 5000}
    assert len(pages) < 50


def test_one_network_larger_than_memory_among_others() -> None:
    """One error, before anything runs, that says which."""
    small = chip_with("lp4poor", dram=DRAM | {"words": 1 << 14})
    scenario = Scenario("large", (Request("ds_cnn"), Request("vww", 8)))
    with pytest.raises(DoesNotFit, match="network vww, batch 8: each DRAM tile of lp4poor is too small"):
        serve(scenario, small, "lookahead", device=None)


@pytest.mark.parametrize("device", [None, "verilator"], ids=["model", "RTL"])
def test_random_and_recorded_arrivals_and_no_deadlines(tmp_path: Path, device: str | None) -> None:
    (tmp_path / "t.csv").write_text("cycle,network\n7000,ds_cnn\n100,ds_cnn\n300,somebody_elses\n")
    (tmp_path / "s.toml").write_text(
        'name = "arrivals"\ndeadline_factor = 0\n[[network]]\nname = "ds_cnn"\narrival = { trace = "t.csv" }\n'
        '[[network]]\nname = "resnet8"\narrival = { poisson = 60.0, number = 2, seed = 4 }\n'
    )
    results = serve(load(tmp_path / "s.toml"), CHIP, "planaria", device=device).results
    right(results)
    assert sorted(row.arrival for row in results.instances if row.network == "ds_cnn") == [100, 7000]
    assert {(row.deadline, row.met) for row in results.instances} == {(None, None)}
    assert results.scenario.sla_violations == 0
