"""A gate on what a search for the schedule of a network or a layer does, in work instead of seconds: a change that
makes it dearer says so here.

The counts are the same on every machine. A search that does less than nine tenths of what stands here has become
cheaper: the table is lowered with it, so that the gain stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.mapping.nodes import Node
from meshloom.sched.mapping.play.replay import replay
from meshloom.sched.schedulers.loop_order import scheduler
from meshloom.sched.schedulers.network import conv, refine, sharing_search
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule
from meshloom.sched.workload import zoo
from meshloom.sched.workload.catalog import find

from ....tiers import slow_but

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class SearchWork:
    """What a search did: whole schedules that were built and their operations, whole schedules that the timeline model
    played, candidates of single layers that were replayed and their operations."""

    built: int
    operations: int
    played: int
    replayed: int
    replayed_operations: int


#: Network and chip to the work of a default search with nothing in the cache; schedules that are the best once more
#: are built, and do not count among those that may be compared.
MOST = {
    ("resnet8", "quad16"): SearchWork(11, 8_679, 8, 102, 7_728),
    ("ds_cnn", "quad16"): SearchWork(39, 33_022, 20, 70, 9_262),
    ("resnet8", "pe12x14"): SearchWork(8, 7_332, 8, 75, 6_812),
}
#: Layer and chip to the candidates that its search judges, the schedules that it emits, and those that the timeline
#: model plays.
MOST_OF_LAYERS = {
    ("gemm:8x8x9", "quad16"): (500, 46, 14),
    ("gemm:16x16x16", "tiny"): (500, 51, 13),
    ("gemm:64x64x64", "quad16"): (267, 42, 11),
    ("resnet8/conv1", "pe12x14"): (439, 207, 54),
}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the work of searches from now on."""
    total: Counter[str] = Counter()

    def count_replay(nodes: Sequence[Node], chip: ChipConfig) -> int:
        total.update(replayed=1, replayed_operations=len(nodes))
        return replay(nodes, chip)

    def count_built(result: NetworkSchedule) -> None:
        total.update(built=1, operations=len(result.schedule.operations))

    monkeypatch.setattr(conv, "replay", count_replay)
    monkeypatch.setattr(sharing_search, "schedule", watched(sharing_search.schedule, count_built))
    monkeypatch.setattr(sharing_search, "lowered", watched(sharing_search.lowered, lambda _: total.update(played=1)))
    return total


def watched(function: Callable[P, R], tell: Callable[[R], None]) -> Callable[P, R]:
    """The same function, whose results are told."""

    def call(*arguments: P.args, **options: P.kwargs) -> R:
        result = function(*arguments, **options)
        tell(result)
        return result

    return call


@pytest.mark.parametrize("case", slow_but(MOST), ids="-".join)
def test_a_search_does_no_more_than_before(case: tuple[str, str], counts: Counter[str]) -> None:
    name, chip = case
    refine.refined(zoo.load(name), load(chip))
    work, most = SearchWork(**counts), MOST[case]
    for what, limit in vars(most).items():
        assert getattr(work, what) <= limit, f"{what}: the search has become dearer: {work}"
        assert getattr(work, what) >= 0.9 * limit, f"{what}: the search has become cheaper; lower the table: {work}"


@pytest.mark.parametrize("case", slow_but(MOST_OF_LAYERS, ("gemm:8x8x9", "quad16")), ids="-".join)
def test_a_layers_search_does_no_more_than_before(case: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    total, (name, chip) = Counter[str](), case
    monkeypatch.setattr(scheduler, "emit", watched(scheduler.emit, lambda _: total.update(emitted=1)))
    predict = watched(scheduler.timeline, lambda _: total.update(played=1))
    total["judged"] = scheduler.search(find(name)[0].shape, load(chip), predict=predict).replays
    for what, limit in zip(("judged", "emitted", "played"), MOST_OF_LAYERS[case], strict=True):
        assert 0.9 * limit <= total[what] <= limit, f"{what}: cheaper or dearer than before: {total}"
