"""The loop that serves scenarios, the fluid model that runs them, and what is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.schedulers.online.choosing import together
from meshloom.sched.schedulers.online.congestion import shares
from meshloom.sched.schedulers.online.decisions import first_difference
from meshloom.sched.schedulers.online.drive import Drive, Run
from meshloom.sched.schedulers.online.interface import Decision, Instance, OnlineScheduler, Platform, ServingError, View
from meshloom.sched.schedulers.online.metrics import cores_over_time, measure

from ...fluid import EXPOSED, LATENCY, Fluid, alone
from ...serving_world import PLATFORM, InTurn, instances, layer, network, serve


def test_a_platform_is_read_from_a_chip() -> None:
    chip = load("nine8")
    result = Platform.of(chip)
    assert result.cores == chip.cores
    assert result.bandwidth == len(chip.drams) * chip.dram.bytes_per_cycle / chip.lanes


def test_shares_are_max_min_fair() -> None:
    assert shares([1.0, 4.0, 4.0], 6.0) == [1.0, 2.5, 2.5]
    assert shares([1.0, 2.0], 6.0) == [1.0, 2.0]
    assert shares([], 6.0) == []


def test_a_layer_alone_takes_what_its_version_says() -> None:
    for work, words in ((4000, 0), (4000, 900), (100, 5000)):
        run = serve(InTurn(), instances(network("a", work, words=words)))
        (ran,) = run.ran
        assert ran.end - ran.placement.start == ran.placement.version.cycles


def test_layers_that_share_the_bandwidth_are_slower() -> None:
    memory = network("m", 100, words=8000)  # asks for a word a cycle
    run = serve(InTurn(), instances(memory, memory, memory, memory))
    whole = LATENCY + 4 * 8000 / PLATFORM.bandwidth
    assert all(abs(ran.end - ran.placement.start - whole) <= 2 for ran in run.ran)
    busy = network("c", 20000)
    run = serve(InTurn(), instances(busy, memory))
    assert all(ran.end - ran.placement.start == ran.placement.version.cycles for ran in run.ran)


def test_exposed_words_delay_a_layer_whose_arrays_are_busy() -> None:
    assert alone(PLATFORM, 1, 10_000, 1000) == LATENCY + EXPOSED * 1000 + 10_000


def test_layers_of_a_network_run_one_after_the_other() -> None:
    run = serve(InTurn(), instances(network("a", 100, 200, 300), network("b", 50, 60)))
    for number in (0, 1):
        own = [ran for ran in run.ran if ran.placement.instance == number]
        assert [ran.placement.layer for ran in own] == list(range(len(own)))
        assert all(a.end < b.placement.start for a, b in zip(own, own[1:], strict=False))
    assert [served.end for served in run.served] == [run.ran[-1].end, run.ran[-2].end] or run.served[0].end == run.end


def test_decisions_cost_cycles() -> None:
    request = instances(network("a", 100, 200))
    free, dear = serve(InTurn(), request), serve(InTurn(), request, decision_cycles=500)
    assert dear.end - free.end == 2 * 499  # two decisions; a launch takes a cycle anyway
    assert [one.cycle - one.seen for one in dear.log] == [500, 500]


def test_an_event_during_a_decision_is_seen_by_the_next() -> None:
    first, second = instances(network("a", 3000), network("b", 100))
    late = replace(second, arrival=200)
    run = serve(InTurn(), [first, late], decision_cycles=1000)
    assert [(one.instance, one.seen, one.cycle) for one in run.log] == [(0, 0, 1000), (1, 200, 1200)]


def test_an_arrival_waits_while_all_cores_are_busy() -> None:
    request = [*instances(*(network("a", 5000) for _ in range(4))), Instance(4, network("b", 100), 10, None)]
    run = serve(InTurn(), request)
    ends = sorted(ran.end for ran in run.ran if ran.placement.instance < 4)
    assert run.served[4].start == ends[0] + 1
    assert run.served[4].waited == ends[0] + 1 - 10


def test_a_fault_ends_one_network_only() -> None:
    request = instances(network("a", 100, 200), network("b", 100, 200))
    run = Drive(Fluid(PLATFORM, faults=frozenset({(0, 1)})), InTurn()).run(request)
    assert run.served[0].lost is not None
    assert run.served[0].end is None
    assert run.served[1].lost is None
    assert run.served[1].end is not None
    result = measure(run)
    assert result.turnarounds[0].slowdown is None
    assert result.antt == result.turnarounds[1].slowdown


class _Chain:
    """Every network in turn on one core, each layer launched while the one before it runs, the next one on two."""

    name, ahead = "chain", True

    def __init__(self) -> None:
        self.views: list[View] = []

    def decide(self, view: View) -> list[Decision]:
        self.views.append(view)
        result: list[Decision] = []
        for one in InTurn().decide(view):
            result.append(one)
            (after,) = (each.following for each in view.pending if each.number == one.instance)
            if after is not None:
                result.append(replace(one, version=after.versions[0]))
        free = [core for core in view.free if core not in {core for one in result for core in one.cores}]
        for instance in view.open:
            (own,) = (one.cores for one in view.running if one.instance == instance.number)
            after = instance.following
            assert after is not None
            if len(own) == 1 and free:
                result.append(Decision(instance.number, after.versions[1], (own[0], free.pop(0)), "a free one too"))
            else:
                result.append(Decision(instance.number, after.versions[0], own[:1], "its own"))
        return result


def test_a_successor_begins_in_the_cycle_of_the_end() -> None:
    scheduler = _Chain()
    run = serve(scheduler, instances(network("a", *[4000] * 6), network("b", *[3000] * 5)), decision_cycles=200)
    for number, layers in ((0, 6), (1, 5)):
        own = [ran for ran in run.ran if ran.placement.instance == number]
        assert [ran.placement.layer for ran in own] == list(range(layers))
        gaps = [b.placement.start - a.end for a, b in zip(own, own[1:], strict=False)]
        assert gaps == [0] * (layers - 1)
    for view in scheduler.views:
        kept = {core for one in (*view.running, *view.successors) for core in one.cores}
        assert not kept & set(view.free)
        assert {one.instance for one in view.successors} <= {one.instance for one in view.running}
    assert any(view.successors for view in scheduler.views)
    assert [one.cycle - one.seen for one in run.log] == [200] * 11


def test_nothing_follows_a_layer_that_a_fault_stops() -> None:
    request = instances(network("a", *[4000] * 4), network("b", *[4000] * 4))
    run = serve_with_faults(_Chain(), request, {(0, 1)})
    assert [ran.placement.layer for ran in run.ran if ran.placement.instance == 0] == [0, 1]
    assert run.served[0].lost is not None
    assert run.served[1].end is not None


def serve_with_faults(scheduler: OnlineScheduler, asked: list[Instance], faults: set[tuple[int, int]]) -> Run:
    return Drive(Fluid(PLATFORM, faults=frozenset(faults)), scheduler, 10).run(asked)


@dataclass
class _WrongAfter:
    """Launches the first layer of a network, and something wrong after it."""

    cores: tuple[int, ...]
    twice: bool = False
    name: str = "wrong"

    def decide(self, view: View) -> list[Decision]:
        (first,) = InTurn().decide(view)[:1]
        after = Decision(0, view.pending[0].network.layers[-1].versions[0], self.cores, "why not")
        return [first, after, after] if self.twice else [first, after]


@pytest.mark.parametrize(
    ("works", "scheduler", "message"),
    [
        ((100, 100), _WrongAfter((99,)), r"cores that are not free: \[99\]"),
        ((100, 100), _WrongAfter((17, 18)), r"takes 1 cores, not \[17, 18\]"),
        ((100, 100), _WrongAfter((17,), twice=True), "a0 of 0:a has a successor already"),
        ((100,), _WrongAfter((17,)), "no layer after a0, which runs"),
        ((100, 900), _WrongAfter((17,)), ""),
    ],
)
def test_successors_that_cannot_be_are_refused(works: tuple[int, ...], scheduler: _WrongAfter, message: str) -> None:
    request = instances(network("a", *works))
    if message:
        with pytest.raises(ServingError, match=f"scheduler wrong, decision in cycle 0: .*{message}"):
            serve(scheduler, request)
    else:
        assert len(serve(scheduler, request).ran) == 2


@dataclass
class _Wrong:
    """Decides something wrong about the first network."""

    cores: tuple[int, ...]
    instance: int = 0
    foreign: bool = False
    name: str = "wrong"

    def decide(self, view: View) -> list[Decision]:
        version = view.pending[0].layer.versions[0]
        version = replace(version, scheme="mine") if self.foreign else version
        return [Decision(self.instance, version, self.cores, "why not")]


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (_Wrong((99,)), r"cores that are not free: \[99\]"),
        (_Wrong((17, 18)), r"takes 1 cores, not \[17, 18\]"),
        (_Wrong((17,), instance=7), "instance 7 is not waiting"),
        (_Wrong((17,), foreign=True), "no such version of a0"),
    ],
)
def test_decisions_that_cannot_be_are_refused(scheduler: _Wrong, message: str) -> None:
    with pytest.raises(ServingError, match=f"scheduler wrong, decision in cycle 0: .*{message}"):
        serve(scheduler, instances(network("a", 100)))


@pytest.mark.parametrize("programs", [1, 2, 3])
def test_as_many_programs_run_as_there_are_slots(programs: int) -> None:
    """All slots may be taken by one decision; one more is refused, though cores are free."""

    class Greedy:
        name = "greedy"

        def __init__(self, most: int) -> None:
            self.most = most

        def decide(self, view: View) -> list[Decision]:
            decisions = InTurn().decide(view)[: self.most]
            started = len(view.running)
            return decisions[: max(0, self.most - started)]

    platform = replace(PLATFORM, programs=programs)
    asked = instances(*(network(name, 100) for name in "abcd"))
    run = Drive(Fluid(platform), Greedy(programs)).run(asked)
    assert len(run.ran) == 4
    assert sum(ran.placement.start == 1 for ran in run.ran) == programs
    message = (
        f"scheduler greedy, decision in cycle 0: {programs}:{'abcd'[programs]}: {programs} programs run, and no more"
    )
    with pytest.raises(ServingError, match=message):
        Drive(Fluid(platform), Greedy(programs + 1)).run(asked)


class _Never:
    name = "never"

    def decide(self, view: View) -> list[Decision]:
        return InTurn().decide(view)[1:]


def test_starvation_is_found() -> None:
    request = instances(network("a", 100), network("b", *[50] * 30))
    with pytest.raises(ServingError, match="scheduler never starves 0:a: all cores are free"):
        serve(_Never(), request[:1])
    with pytest.raises(ServingError, match=r"starves 0:a: 6 decisions since cycle 0"):
        serve(_Never(), request, patience=5)


def test_a_network_that_needs_more_cores_than_there_are_is_refused() -> None:
    wide = replace(network("w", 100), layers=(layer("w", 100, cores=(8,)),))
    with pytest.raises(ServingError, match="no version below 8 cores, four has 4"):
        serve(InTurn(), instances(wide))


@dataclass
class _Full(Fluid):
    """Memory for one network at a time, and for none called big."""

    inside: int = 0

    def admit(self, instance: Instance) -> bool:
        if self.inside or instance.network.name == "big":
            return False
        self.inside += 1
        return True

    def release(self, instance: Instance) -> None:
        self.inside -= 1


def test_networks_wait_for_memory() -> None:
    request = instances(network("a", 100, 100), network("b", 100))
    run = Drive(_Full(PLATFORM), InTurn()).run(request)
    assert (run.served[1].start or 0) > (run.served[0].end or 0)
    with pytest.raises(ServingError, match="1:big does not fit into the memory of four"):
        Drive(_Full(PLATFORM), InTurn()).run(instances(network("a", 100), network("big", 100)))


def test_metrics_by_hand() -> None:
    request = instances(network("a", 4000), network("b", 4000))
    request = [replace(request[0], deadline=4401), replace(request[1], deadline=4400)]
    result = measure(serve(InTurn(), request), {0: 2200, 1: 1100})
    assert [one.cycles for one in result.turnarounds] == [4401, 4401]  # launched in cycle 1
    assert result.antt == pytest.approx((4401 / 2200 + 4401 / 1100) / 2)
    assert result.stp == pytest.approx((2200 + 1100) / 4401)
    assert result.sla == 0.5
    assert result.utilisation == pytest.approx(2 * 4000 / (4 * 4401))
    assert result.busy == pytest.approx(2 * 4400 / (4 * 4401))


def test_cores_over_time() -> None:
    run = serve(InTurn(), instances(network("a", 100, 100)))
    assert cores_over_time(run) == {0: [(1, 1), (501, 0), (502, 1), (1002, 0)]}


class _Last(InTurn):
    """Begins to prefer the last core when a network has come to its second layer."""

    def decide(self, view: View) -> list[Decision]:
        result = super().decide(view)
        if view.pending[0].next:
            return [replace(one, cores=(view.free[-1],), reason="the last core") for one in result]
        return result


def test_the_first_decision_that_differs_is_shown_with_both_reasons() -> None:
    request = instances(network("a", 100, 100))
    one, other = serve(InTurn(), request), serve(_Last(), request)
    assert first_difference(one.log, one.log) is None
    result = first_difference(one.log, other.log)
    assert result is not None
    assert result.position == 1
    text = result.text("rtl", "model")
    assert "its turn" in text
    assert "the last core" in text
    short = first_difference(one.log, one.log[:1])
    assert short is not None
    assert "decided nothing more" in short.text("rtl", "model")


def test_cores_lie_together() -> None:
    free = [17, 20, 33, 34, 52]
    assert set(together(free, 3)) == {17, 33, 34}
    with pytest.raises(ValueError, match="6 cores of 5"):
        together(free, 6)
