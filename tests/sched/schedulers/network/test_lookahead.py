"""Schedules that are judged before their turn: the result is the same, whatever becomes of the helpers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshloom.hw.spec.config import load
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
    result = watched.search(tmp_path)
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
    search = SharingSearch(bottleneck(), CHIP, None, None, ComparisonBudget(9), {})
    early = Standing(1050, 7, cycles=10, worst=("stem",), roomless=(("pw0", FusionDepth.PAIR),))
    assert search.now(early) is early
    search.standing = Standing(1000, 7, cycles=500, worst=())
    assert search.now(early) == Standing(1050, 7, roomless=(("pw0", FusionDepth.PAIR),))
    assert search.now(Standing(1020, 7)) is None, "nobody has played it"
    assert search.now(Standing(1020, 7, cycles=400)) is None, "better, and nobody has looked what to change"
    slower = Standing(1020, 7, cycles=600)
    assert search.now(slower) is slower


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


@pytest.mark.parametrize(("least", "few"), [pytest.param(1 << 30, 1, marks=pytest.mark.slow), (0, MOST + 1)])
def test_small_searches_have_no_helpers(least: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, 2)
    monkeypatch.setattr(lookahead, "LEAST", least)
    monkeypatch.setattr(lookahead, "FEW", few)
    watched.search()
    assert not watched.helpers


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
