"""The search for the quickest of a few schedules: what is taken, when it stops, and what it need not do again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.papers.klotski import trying
from meshloom.sched.papers.klotski.trying import Try, Trying, outcomes
from meshloom.sched.schedulers.budget import Budget
from meshloom.sched.schedulers.network.form import form
from meshloom.sched.schedulers.network.scheduler import MicroOps, NetworkSchedule
from meshloom.sched.schedulers.registry import find_network
from meshloom.sched.workload.graph import Graph, Value, Window

from ...network_graphs import Grower

CHIP = load("tiny")


def _graph() -> Graph:
    grower = Grower(1, Value("x", 10, 6, 6))
    grower.conv("a", "x", 12, Window(1, 1))
    return grower.graph("small", "a")


class Made:
    """Tries whose cycles are known: by number, None if one does not fit. `log`: what was made, and what was played."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *cycles: int | None, loops: int | None = None) -> None:
        self.log: list[str] = []
        self.cycles = dict[str, int]()
        plain = find_network("zigzag")(_graph(), CHIP, None)
        names = [f"{number}" for number, _ in enumerate(cycles)]
        self.tries = [self._try(name, each, plain, 100) for name, each in zip(names, cycles, strict=True)]
        if loops is not None:
            self.tries.append(self._try("loops", loops, plain, 0))

        def played(made: NetworkSchedule, _: object) -> int:
            self.log.append(f"played {made.schedule.scheduler}")
            return self.cycles[made.schedule.scheduler]

        monkeypatch.setattr(trying, "_cycles", played)

    def _try(self, name: str, cycles: int | None, plain: NetworkSchedule, count: int) -> Try:
        def make() -> NetworkSchedule:
            self.log.append(f"made {name}")
            if cycles is None:
                raise DoesNotFit(f"{name} is too large")
            self.cycles[name] = cycles
            figures = MicroOps(count, cycles - 1, cycles - 2, 0, 0) if count else None
            return replace(plain, schedule=plain.schedule.model_copy(update={"scheduler": name}), micro_ops=figures)

        return Try("micro-ops" if count else "loop_order", name, name, make)

    def take(
        self, budget: str = "", folder: Path | None = None, tell: Callable[[str, int, int], None] | None = None
    ) -> NetworkSchedule:
        """The quickest, and nothing else in the log than what that took."""
        self.log.clear()
        allowed = Budget.parse(budget) if budget else None
        return Trying(_graph(), CHIP, allowed, outcomes(folder, CHIP), tell).quickest(self.tries)


def test_the_first_of_the_quickest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made twice; progress says how far the best is."""
    message: list[tuple[str, int, int]] = []
    result = Made(monkeypatch, 3000, 2000, 2000)
    assert result.take(tell=lambda *each: message.append(each)).schedule.scheduler == "1"
    assert result.log == ["made 0", "played 0", "made 1", "played 1", "made 2", "played 2"]
    assert message == [("0", 0, 3), ("1, best 3,000 cycles", 1, 3), ("2, best 2,000 cycles", 2, 3)]


def test_a_budget_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 100 micro-ops each; the first is made at any price, and not played if it stays alone."""
    result = Made(monkeypatch, 3000, 2000, 1000)
    assert result.take("0.001k").schedule.scheduler == "0"
    assert result.log == ["made 0"]
    assert result.take("0.2k").schedule.scheduler == "1"
    assert result.take("0.201k").schedule.scheduler == "2"
    assert result.take("100000s").schedule.scheduler == "2"


def test_an_interrupted_search_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was played is not played again, and the quickest alone is made anew."""
    result = Made(monkeypatch, 1000, 2000, 3000)
    result.take("0.2k", tmp_path)
    assert result.take(folder=tmp_path).schedule.scheduler == "0"
    assert result.log == ["made 2", "played 2", "made 0"]
    result.take(folder=tmp_path)
    assert result.log == ["made 0"]


def test_loop_nests_say_what_micro_ops_there_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Made(monkeypatch, 3000, 2000, loops=1000).take()
    assert taken.schedule.scheduler == "loops"
    assert taken.micro_ops == MicroOps(100, 1999, 1998, 0, 0, taken="loop_order")


def test_what_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless nothing fits; loop nests without micro-ops beside them have no figures of any."""
    assert Made(monkeypatch, None, 2000).take().schedule.scheduler == "1"
    taken = Made(monkeypatch, None, loops=1000).take()
    assert (taken.schedule.scheduler, taken.micro_ops) == ("loops", None)
    with pytest.raises(DoesNotFit, match="0 is too large"):
        Made(monkeypatch, None, None).take()


def test_numbers_of_weights_decide_nothing() -> None:
    """Everything else of a network does."""
    graph = _graph()
    (layer,) = graph.layers
    assert layer.w is not None
    other = replace(graph, layers=(replace(layer, w=-layer.w),))
    assert form(graph) == form(other)
    assert form(graph) != form(replace(graph, layers=(replace(layer, relu=not layer.relu),)))


def test_a_budget_on_the_command_line() -> None:
    """One of steps decides nothing that the name has to say; one of seconds does."""
    result = find_network("klotski:budget=0.001k")(_graph(), CHIP, None)
    assert result.schedule.scheduler == "klotski"
    assert find_network("klotski:budget=100s,fineness=1")(_graph(), CHIP, None).schedule.scheduler == (
        "klotski:fineness=1.0,budget=100s"
    )
