"""Online schedulers: the rules of each on small cases, and all of them on the fluid model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.papers.layer_puzzle.launching import Launching
from meshloom.sched.papers.layer_puzzle.layer_puzzle import LayerPuzzle, priority
from meshloom.sched.papers.layer_puzzle.planaria import divide, needed
from meshloom.sched.papers.layer_puzzle.prema import Prema
from meshloom.sched.papers.layer_puzzle.veltair import block
from meshloom.sched.schedulers.online.congestion import NoCongestion
from meshloom.sched.schedulers.online.drive import Drive
from meshloom.sched.schedulers.online.instances import instances_of
from meshloom.sched.schedulers.online.interface import (
    Instance,
    Layer,
    Network,
    OnlineScheduler,
    Placement,
    Platform,
    ServingError,
    Version,
    View,
)
from meshloom.sched.schedulers.online.lookahead import Lookahead, Parts
from meshloom.sched.schedulers.online.metrics import measure
from meshloom.sched.schedulers.online.registry import ONLINE, online_scheduler
from meshloom.sched.schedulers.online.versions import predicted
from meshloom.sched.schedulers.registry import SchedulerError
from meshloom.sched.workload import zoo
from meshloom.sched.workload.workload_sets import workload_sets

from ...fluid import Fluid
from ...serving_world import PLATFORM, instances, layer, network, serve, version

CHIP = load("lp9")
NINE = Platform.of(CHIP)
#: Each scheduler, with an estimator that needs no training.
NAMES = (
    "prema",
    "planaria",
    "veltair:estimator=fair",
    "layer_puzzle:estimator=fair",
    "layer_puzzle:estimator=fair,order=ahead,skips=every",
    "layer_puzzle:estimator=fair,literal=yes",
    "lookahead",
    "lookahead:ahead=no,beside=no",
    "lookahead:reserve=no,queues=no,pace=no,deadlines=no,weights=no",
)


@cache
def compiled(name: str, batch: int) -> Network:
    """A network with versions that are predicted, on lp9."""
    return predicted(ServedNetwork(zoo.load(name), CHIP, batch))


def view(*asked: Instance, free: tuple[int, ...] = PLATFORM.cores, now: int = 0) -> View:
    return View(now, PLATFORM, free, 4, asked, ())


def test_the_fastest_version_that_fits_and_of_equal_ones_that_with_fewer_cores() -> None:
    def one(cores: int, cycles: int) -> Version:
        return Version(cores, f"of{cores}", cycles, cycles, 0, 0, 0.5)

    versions = (one(1, 900), one(2, 500), one(3, 500), one(4, 700), one(6, 400))
    fastest = [Layer("a", 1, versions).fastest(cores) for cores in range(8)]
    assert [version and version.cores for version in fastest] == [None, 1, 2, 2, 2, 2, 6, 6]
    same = (one(2, 500), replace(one(2, 500), scheme="second"))
    assert Layer("a", 1, same).fastest(2) is same[0]
    with pytest.raises(ServingError, match="layer a has no version"):
        Layer("a", 1, ())
    with pytest.raises(ServingError, match="layer a: versions must be in order of their cores"):
        Layer("a", 1, versions[::-1])


@pytest.mark.parametrize("name", NAMES)
def test_every_scheduler_serves_a_workload_twice_in_the_same_way(name: str) -> None:
    scenario = workload_sets(9, rate=5.0)[3]
    request = instances_of(scenario, {one: compiled(*one) for one in scenario.networks})
    runs = [Drive(Fluid(NINE), online_scheduler(name, NINE)).run(request) for _ in range(2)]
    assert runs[0] == runs[1]
    assert isinstance(online_scheduler(name, NINE), OnlineScheduler)
    result = measure(runs[0])
    assert all(one.end is not None for one in result.turnarounds)
    assert len(runs[0].ran) == sum(len(one.network.layers) for one in request)
    assert result.antt >= 1
    assert all(one.reason for one in runs[0].log)


@pytest.mark.parametrize("name", NAMES)
def test_every_scheduler_copes_with_deadlines_that_cannot_be_met_and_one_core(name: str) -> None:
    one = replace(PLATFORM, cores=PLATFORM.cores[:1])
    request = [
        replace(each, deadline=1) for each in instances(network("a", 100, 900), network("b", 300), network("c", 50))
    ]
    run = Drive(Fluid(one), online_scheduler(name, one)).run(request)
    assert measure(run).sla == 1
    assert all(served.end is not None for served in run.served)


@pytest.mark.parametrize("name", NAMES)
def test_no_scheduler_launches_more_programs_than_there_are_slots(name: str) -> None:
    two = replace(PLATFORM, programs=2)
    request = instances(*(network(letter, 100, 200, words=300) for letter in "abcde"))
    run = Drive(Fluid(two), online_scheduler(name, two)).run(request)
    assert all(served.end is not None for served in run.served)


def test_names_and_options_that_are_wrong_are_explained() -> None:
    assert set(ONLINE.names()) == {"prema", "planaria", "veltair", "layer_puzzle", "lookahead"}
    with pytest.raises(SchedulerError, match=r"unknown online scheduler 'pream'.*did you mean prema"):
        online_scheduler("pream", PLATFORM)
    with pytest.raises(SchedulerError, match="starvation = '0' must be at least 1"):
        online_scheduler("layer_puzzle:starvation=0", PLATFORM)
    with pytest.raises(SchedulerError, match=r"no option 'orde'.*did you mean order"):
        online_scheduler("layer_puzzle:orde=behind", PLATFORM)


def test_prema_gives_the_whole_chip_to_the_shortest_and_lets_nobody_wait_for_ever() -> None:
    long, short = network("long", *[4000] * 20), network("short", 4000)
    run = serve(Prema(), instances(long, short))
    assert run.log[0].instance == 1
    assert all(len(one.cores) == 4 for one in run.log)
    assert all(a.end < b.placement.start for a, b in zip(run.ran, run.ran[1:], strict=False))
    # short ones keep coming; by and by the long one has tokens of a higher level
    stream = [Instance(0, long, 0, None), *(Instance(1 + i, short, 1400 * i, None) for i in range(60))]
    run = serve(Prema(period=1000), stream)
    first = next(position for position, one in enumerate(run.log) if one.instance == 0)
    assert first < 60


def test_planaria_divides_by_need_and_score() -> None:
    easy, hard = instances(network("a", 4000), network("b", 4000))
    easy, hard = replace(easy, deadline=100_000), replace(hard, deadline=2500)
    assert needed(easy, 0, 4) == 1
    assert needed(hard, 0, 4) == 2
    assert divide(view(easy, hard)) == {0: 1, 1: 3}
    tight = [replace(hard, number=number) for number in range(3)]
    assert divide(view(*tight)) == {0: 2, 1: 2, 2: 0}
    # cores are short: who has less time for what it needs comes first
    later, sooner = tight[0], replace(tight[1], deadline=1100)
    assert [needed(one, 0, 4) for one in (later, sooner)] == [2, 4]
    assert divide(view(later, sooner)) == {0: 0, 1: 4}


def test_veltair_ends_blocks_before_layers_that_need_more_than_the_threshold() -> None:
    wide = layer("wide", 8000)
    # the layer in the middle gains nothing from cores, so it would need all of them
    stiff = replace(layer("stiff", 4000), versions=(version(1, 4000), version(2, 3999)))
    chain = replace(network("n", 1), layers=(wide, wide, stiff, wide))
    one = Instance(0, chain, 0, deadline=chain.isolated(1) * 3 // 4)
    result = block(one, view(one), 2)
    assert result.end == 2
    assert result.cores == 2


def test_layer_puzzle_puts_first_whose_work_is_behind_the_time() -> None:
    a, b = instances(network("a", 1000, 1000), network("b", 1000, 1000), deadline=10_000)
    a = replace(a, next=1)
    now = view(a, b, now=2000)
    assert priority(a, now) == pytest.approx(0.2 - 0.5)
    assert priority(b, now) == pytest.approx(0.2 - 0)
    assert [one.instance for one in LayerPuzzle(NoCongestion()).decide(now)] == [1]
    assert [one.instance for one in LayerPuzzle(NoCongestion(), "ahead").decide(now)] == [0]


def test_literal_layer_puzzle_wastes_the_cores_of_versions_that_it_appended() -> None:
    a, b = instances(network("a", 4000), network("b", 4000))
    (one,) = LayerPuzzle(NoCongestion()).decide(view(a, b))
    assert one.version.cores == 4
    first, second = LayerPuzzle(NoCongestion(), literal=True).decide(view(a, b))
    assert (first.version.cores, second.version.cores) == (2, 1)  # 1 and 2 fit and are taken away; 4 does not


def test_layer_puzzle_lets_a_starving_network_wait_for_its_cores() -> None:
    wide = replace(network("wide", 1), layers=(layer("wide", 4000, cores=(4,)),))
    narrow = replace(network("narrow", 1), layers=(layer("narrow", 500, cores=(1,)),) * 12)
    request = instances(wide, narrow, narrow, deadline=20_000)
    scheduler = LayerPuzzle(NoCongestion(), starvation=3)
    for _ in range(3):
        assert {one.instance for one in scheduler.decide(view(*request, free=PLATFORM.cores[:2]))} <= {1, 2}
    assert scheduler.decide(view(*request, free=PLATFORM.cores[:2])) == []
    assert [one.instance for one in scheduler.decide(view(*request))] == [0]


def test_a_network_is_skipped_when_one_of_lower_priority_is_launched_or_by_every_decision_without_it() -> None:
    late, early = instances(network("late", 4000, 4000), network("early", 4000, 4000), deadline=10_000)
    early = replace(early, next=1)
    both, alone = view(late, early, free=PLATFORM.cores[:1]), view(early, free=())
    overtaken, counted = LayerPuzzle(NoCongestion()), LayerPuzzle(NoCongestion(), skips="every")
    for scheduler in (overtaken, counted):
        for _ in range(3):
            assert scheduler.decide(alone) == []
    assert [one.instance for one in overtaken.decide(both)] == [0]  # there was no core for anybody
    assert [one.instance for one in counted.decide(both)] == [1]


def test_lookahead_runs_the_cheapest_to_delay_last_and_meets_deadlines_that_it_can() -> None:
    long, short = network("long", 40_000), network("short", 4000)
    run = serve(Lookahead(), instances(long, short))
    assert run.log[0].instance == 1
    request = instances(long, short)
    request[0] = replace(request[0], deadline=long.isolated(4) + 10)
    run = serve(Lookahead(penalty=100.0), request)
    assert measure(run).sla == 0


def test_lookahead_waits_for_a_layer_that_ends_soon() -> None:
    big, small = instances(network("big", 40_000), network("small", 100))
    running = Placement(1, 0, small.layer.versions[0], (17,), 0)
    now = View(400, PLATFORM, PLATFORM.cores[1:], 3, (big, replace(small, running=True)), (running,))
    assert Lookahead().decide(now) == []  # two cores now take 20,000 cycles, four in 100 cycles take 10,000
    (at_once,) = Lookahead(parts=Parts(reserve=False)).decide(now)
    assert at_once.version.cores == 2


def test_lookahead_launches_the_layer_after_the_one_that_runs() -> None:
    (one,) = instances(network("one", 4000, 8000, 100))
    first, then = Lookahead().decide(view(one))
    assert (first.version, then.version) == (one.layer.fastest(4), one.network.layers[1].fastest(4))
    running = Placement(0, 0, first.version, first.cores, 1)
    now = View(400, PLATFORM, (), 3, (replace(one, running=True),), (running,))
    assert [each.version for each in Lookahead().decide(now)] == [then.version]
    assert Lookahead(parts=Parts(ahead=False)).decide(now) == []
    follower = Placement(0, 1, then.version, then.cores, 401)
    assert Lookahead().decide(replace(now, successors=(follower,))) == []


def test_successors_leave_no_time_between_layers() -> None:
    request = instances(network("a", 4000, 8000, 6000, 4000), network("b", 4000, 4000))
    usual = serve(Lookahead(parts=Parts(ahead=False, beside=False)), request, decision_cycles=300)
    ahead = serve(Lookahead(parts=Parts(beside=False)), request, decision_cycles=300)
    assert usual.end - ahead.end == 300 * 4  # but for the first layer of each
    for number in (0, 1):
        ran = [one for one in ahead.ran if one.placement.instance == number]
        assert [one.placement.layer for one in ran] == list(range(len(request[number].network.layers)))
        assert all(a.end == b.placement.start for a, b in zip(ran, ran[1:], strict=False))


def test_lookahead_runs_others_beside_only_where_that_pays() -> None:
    stiff = [replace(layer("stiff", 4000), versions=(version(1, 4000), version(2, 3990), version(4, 3980)))] * 3
    a, b = instances(*(replace(network(name, 1), layers=tuple(stiff)) for name in "ab"))
    assert {one.instance for one in Lookahead().decide(view(a, b))} == {0, 1}
    assert {one.instance for one in Lookahead(parts=Parts(beside=False)).decide(view(a, b))} == {0}
    # layers that gain as much from all cores as others would
    wide = instances(network("a", 4000, 4000), network("b", 4000, 4000))
    assert {one.instance for one in Lookahead().decide(view(*wide))} == {0}
    # each with so many words that one would wait for the other
    many = [replace(layer("many", 4000), versions=tuple(replace(one, read=7900) for one in stiff[0].versions))] * 3
    a, b = (replace(one, network=replace(one.network, layers=tuple(many))) for one in (a, b))
    assert len({one.instance for one in Lookahead().decide(view(a, b))}) == 1
    assert len({one.instance for one in Lookahead(parts=Parts(queues=False)).decide(view(a, b))}) == 2


def test_launching_counts_cores_and_slots() -> None:
    a, b = instances(network("a", 100), network("b", 100))
    launching = Launching(replace(view(a, b), slots=1))
    launching.launch(a, a.layer.versions[1], "first")
    assert len(launching.free) == 2
    assert launching.room == 0


def test_predicted_versions_carry_what_their_scheme_makes_them_carry() -> None:
    layer = compiled("resnet50", 1).layers[10]
    assert [one.cores for one in layer.versions] == sorted(one.cores for one in layer.versions)
    single, most = layer.versions[0], layer.versions[-1]
    assert single.cores == 1
    assert most.cycles < single.cycles
    assert most.read > single.read  # cores share words of input or weights, and each reads them
    assert all(0 < one.utilisation <= 1 for one in layer.versions)
