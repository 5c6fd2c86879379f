"""Schedules that are judged before their turn: the result is the same, whatever becomes of the helpers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.schedulers.network import lookahead
from meshloom.sched.schedulers.network.fusing import FusionDepth
from meshloom.sched.schedulers.network.refine import refined
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule, search_cache
from meshloom.sched.schedulers.network.sharing import SharingOptions
from meshloom.sched.schedulers.network.sharing_search import ComparisonBudget, Judged, SharingSearch, Standing
from meshloom.sched.support import processes
from meshloom.sched.support.apart import Process, call
from meshloom.sched.support.limits import Limits
from meshloom.sched.workload.graph import Graph, Value

from ....tiers import slow_but
from ...network_graphs import Grower, square

CHIP = load("tiny")
MOST = 9


def bottleneck() -> Graph:
    grower = Grower(6, Value("x", 3, 8, 8))
    last = grower.conv("stem", "x", 8, square(3, 2, 1), relu=True)
    for index in range(2):
        last = grower.depthwise(f"dw{index}", last, square(3, 1, 1), relu=True)
        last = grower.conv(f"pw{index}", last, 16, relu=True)
    return grower.graph("bottleneck", last)


class Watched:
    """A search with so many processes. `steps`: what it reports; `here`: schedules judged by this process; `helpers`:
    those that it has begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.steps: list[tuple[str, int, int]] = []
        self.here: list[SharingOptions] = []
        self.helpers: list[Process] = []
        monkeypatch.setenv(processes.SEARCH_PROCESSES, str(count))
        monkeypatch.setattr(lookahead, "LEAST", 0)
        monkeypatch.setattr(lookahead, "FEW", MOST - 1)  # what is left behind the first one
        judged, own = SharingSearch.judged, os.getpid()

        def noted(search: SharingSearch, sharing: SharingOptions) -> Judged:
            if os.getpid() == own:
                self.here.append(sharing)
            return judged(search, sharing)

        def begun(*how: Any) -> Process:
            self.helpers.append(Process(*how))
            return self.helpers[-1]

        monkeypatch.setattr(SharingSearch, "judged", noted)
        monkeypatch.setattr(lookahead, "Process", begun)

    def search(self, folder: Path | None = None) -> NetworkSchedule:
        memory = None if folder is None else search_cache(folder, CHIP)
        return refined(bottleneck(), CHIP, lambda *step: self.steps.append(step), memory, most=MOST)

    def ended(self) -> bool:
        return all(not helper.close.alive for helper in self.helpers)


@pytest.fixture(scope="module", name="by_itself")
def _by_itself() -> tuple[NetworkSchedule, list[tuple[str, int, int]], int]:
    with pytest.MonkeyPatch.context() as patch:
        watched = Watched(patch, 1)
        return watched.search(), watched.steps, len(watched.here)


ByItself = tuple[NetworkSchedule, list[tuple[str, int, int]], int]


@pytest.mark.parametrize("count", slow_but((2, 3), 3))
def test_helpers_change_nothing_but_who_judges(
    count: int, by_itself: ByItself, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process leaves all but the first schedule to helpers, so that these have to judge what is asked for."""
    watched = Watched(monkeypatch, count)
    own, number = os.getpid(), lookahead._Lookahead._number
    monkeypatch.setattr(lookahead._Lookahead, "_number", lambda ahead: None if os.getpid() == own else number(ahead))
    files = len(list(Path("/proc/self/fd").iterdir()))
    result = watched.search(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) <= files, "a sweep has many searches"
    assert (result.schedule, result.lowered is not None) == (by_itself[0].schedule, True)
    assert watched.steps == by_itself[1]
    assert len(watched.helpers) == count - 1
    assert watched.ended()
    assert len(watched.here) < by_itself[2] / 2
    watched.here.clear()
    assert watched.search(tmp_path).schedule == result.schedule
    assert watched.here == [], "all is in the memory, as it would be without helpers"


@pytest.mark.slow
def test_this_process_judges_too(by_itself: ByItself, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, 2)
    assert watched.search().schedule == by_itself[0].schedule
    assert watched.ended()


def _killed(search: SharingSearch, sharing: SharingOptions) -> Judged:
    os._exit(9)


def _wrong(search: SharingSearch, sharing: SharingOptions) -> Judged:
    raise MemoryError


def _stuck(search: SharingSearch, sharing: SharingOptions) -> Judged:
    while True:
        time.sleep(1)


@pytest.mark.parametrize("fate", slow_but((_killed, _wrong, _stuck), _killed))
def test_what_becomes_of_helpers_does_not_matter(
    fate: Callable[..., Judged], by_itself: ByItself, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch, 3)
    monkeypatch.setattr(lookahead, "_PATIENCE", 0.05)
    own, judged = os.getpid(), SharingSearch.judged
    monkeypatch.setattr(SharingSearch, "judged", lambda *what: judged(*what) if os.getpid() == own else fate(*what))
    assert watched.search().schedule == by_itself[0].schedule
    assert watched.helpers
    assert watched.ended()


def test_a_machine_without_room_for_helpers(by_itself: ByItself, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*how: Any) -> Process:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    watched = Watched(monkeypatch, 3)
    monkeypatch.setattr(lookahead, "Process", refused)
    assert watched.search().schedule == by_itself[0].schedule


def test_what_was_judged_beside_an_older_best_is_judged_by_the_present_one() -> None:
    """As one process would: who is hopeless now is not played, however few cycles it takes."""
    search = nothing_judged()
    early = Standing(1050, 7, cycles=10, worst=("stem",), roomless=(("pw0", FusionDepth.PAIR),))
    assert search.now(early) is early
    search.standing = Standing(1000, 7, cycles=500, worst=())
    assert search.now(early) == Standing(1050, 7, roomless=(("pw0", FusionDepth.PAIR),))
    assert search.now(Standing(1020, 7)) is None, "nobody has played it"
    assert search.now(Standing(1020, 7, cycles=400)) is None, "better, and nobody has looked what to change"
    slower = Standing(1020, 7, cycles=600)
    assert search.now(slower) is slower


def nothing_judged() -> SharingSearch:
    return SharingSearch(bottleneck(), CHIP, None, None, ComparisonBudget(9), {})


def test_what_is_foreseen_is_what_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no room, has been compared, is in the memory or was judged early is not asked for again."""
    search, best = nothing_judged(), Standing(1000, 7, cycles=500, worst=())
    whole, first, compared, kept, early, *new = (SharingOptions(horizon=number) for number in range(8))

    def descent(search: SharingSearch) -> None:
        with suppress(DoesNotFit):
            search.try_(whole)
        search.try_all([lambda _, each=each: each for each in (first, compared, kept, early, *new)])

    def foreseen(most: int) -> list[SharingOptions]:
        judged = {early: (Standing(1001, 7, cycles=700), None)}
        return [sharing for sharing, _ in lookahead._Rehearsal(search, judged, most).foreseen(descent)]

    assert foreseen(9) == [], "before there is a first schedule"
    search.outcomes = {whole: DoesNotFit("no room"), first: best, compared: Standing(1002, 7, cycles=600)}
    monkeypatch.setattr(search, "recall", {kept: Standing(1003, 7, cycles=800)}.get)
    assert foreseen(9) == new
    assert foreseen(2) == new[:2]


def test_a_schedule_is_judged_beside_the_best_that_it_was_foreseen_for(monkeypatch: pytest.MonkeyPatch) -> None:
    search, schedule = nothing_judged(), Mock()
    best, older = (Standing(1000, 7, cycles=cycles, worst=()) for cycles in (500, 600))
    cycles = 550
    seen: list[tuple[Standing | None, float, object]] = []

    def judged(sharing: SharingOptions) -> Judged:
        seen.append((search.standing, search.hopeless, search.result))
        if not cycles:
            raise MemoryError
        return Standing(1000, 7, cycles=cycles), schedule

    monkeypatch.setattr(search, "judged", judged)
    search.standing, search.hopeless, search.result = best, 1.5, schedule
    present, past = (lookahead._Task(0, SharingOptions(), standing, 2.5, 1) for standing in (best, older))
    assert lookahead._judged(search, present)[1] is None, "no better than the best"
    assert lookahead._judged(search, past)[1] is schedule
    cycles = 0
    with pytest.raises(MemoryError):
        lookahead._judged(search, past)
    assert seen == [(best, 2.5, schedule), (older, 2.5, None), (older, 2.5, None)], "a result is that of its standing"
    assert (search.standing, search.hopeless) == (best, 1.5)


def test_when_something_was_better_only_what_has_begun_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    search, helper, connection = nothing_judged(), Mock(), Mock()
    begun, waiting, new = (SharingOptions(horizon=number) for number in range(3))
    best, better = (Standing(1000, 7, cycles=cycles, worst=()) for cycles in (600, 500))
    following: list[SharingOptions] = []
    monkeypatch.setattr(
        lookahead, "_Rehearsal", lambda *_: Mock(foreseen=lambda _: [(each, 1.5) for each in following])
    )
    ahead = lookahead._Lookahead(search, lambda search: None, 2)
    ahead._helpers[connection] = helper
    following += [begun, waiting]
    ahead._foresee(best)
    ahead._begun[connection] = begun
    assert ahead._number() == 0
    following.append(new)
    ahead._foresee(best)
    ahead._foresee(better)
    sent = [[(task.number, task.sharing, task.turn) for task in call.args[0]] for call in helper.send.call_args_list]
    assert sent == [[(0, begun, 1), (1, waiting, 1)], [(2, new, 1)], [(3, waiting, 2), (4, new, 2)]]
    monkeypatch.setattr(ahead, "_listen", lambda seconds: False)
    beside: list[Standing | None] = []
    monkeypatch.setattr(search, "judged", lambda sharing: (beside.append(search.standing) or best, None))
    ahead._wait_for(new)
    assert list(ahead._early) == [waiting, new]
    assert beside == [better, better], "numbers of before are left out"
    ahead.close()


def test_an_interrupted_search_leaves_no_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, 2)
    own, judged = os.getpid(), SharingSearch.judged

    def interrupted(search: SharingSearch, sharing: SharingOptions) -> Judged:
        if os.getpid() == own and watched.helpers:
            raise KeyboardInterrupt
        return judged(search, sharing)

    monkeypatch.setattr(SharingSearch, "judged", interrupted)
    with pytest.raises(KeyboardInterrupt):
        watched.search()
    assert watched.helpers
    assert watched.ended()


@pytest.mark.parametrize(("least", "few"), [pytest.param(1 << 30, 1, marks=pytest.mark.slow), (0, MOST)])
def test_small_searches_have_no_helpers(least: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, 2)
    monkeypatch.setattr(lookahead, "LEAST", least)
    monkeypatch.setattr(lookahead, "FEW", few)
    watched.search()
    assert not watched.helpers


@pytest.mark.parametrize(
    ("setting", "processors", "schedules", "count"),
    [
        ("", 8, 9, lookahead.MOST),
        ("0", 3, 9, 3),
        ("6", 1, 9, 6),
        ("6", 8, 2, 2),
        ("", 1, 9, 1),
        ("1", 8, 9, 1),
        ("", 2, lookahead.MANY - 1, 1),
        ("", 2, lookahead.MANY, 2),
        ("2", 2, 9, 2),
    ],
)
def test_how_many_processes_a_search_has(
    setting: str, processors: int, schedules: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as the user says, and otherwise as there are processors, up to `MOST`; no more than schedules. Of two
    processors one is left to others, unless many schedules are compared."""
    counts: list[int] = []
    monkeypatch.setenv(processes.SEARCH_PROCESSES, setting)
    monkeypatch.setattr(lookahead, "processors", lambda: processors)
    monkeypatch.setattr(lookahead, "_Lookahead", lambda search, descent, count: counts.append(count) or Mock())
    search = SharingSearch(bottleneck(), CHIP, None, None, ComparisonBudget(schedules), {})
    with lookahead.lookahead(search, lambda search: None):
        assert (search.judge == search.judged) == (count == 1)
    assert search.judge == search.judged
    assert counts == ([count] if count > 1 else [])


def test_processes_that_work_side_by_side_share_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(processes, "_sharers", 1)
    assert processes.processors() == 8
    processes.share(3)
    assert processes.processors() == 2
    processes.share(9)
    assert processes.processors() == 1
    foreign = call(lambda report: (processes.processors(), processes.is_single()), Limits(), lambda error: error)
    assert foreign == (1, True), "foreign code has one"
    assert not processes.is_single()
