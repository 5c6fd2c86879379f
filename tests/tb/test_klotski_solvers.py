"""The comparison of solvers on small cases, and the graphs that it uses."""

from __future__ import annotations

import re

import pytest

from meshloom.sched.papers.klotski.dag import Dag
from meshloom.tb.benchmarks import klotski_solvers
from meshloom.tb.benchmarks.klotski_graphs import layered
from meshloom.tb.results.events import OnEvent


def test_graphs_have_layers_and_are_the_same_every_time() -> None:
    graph, again = layered(300, 4), layered(300, 4)
    assert (graph.edges == again.edges).all()
    assert (graph.cycles == again.cycles).all()
    assert len(graph) == 300
    assert all(producer < consumer for producer, consumer in graph.pairs)
    assert len(layered(300, 4, barriers=1).edges) > len(graph.edges) > len(layered(300, 4, barriers=0).edges)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SIZES": (12,), "SIDES": (2,), "TRIES": 50, "WORK": 0.5, "PROGRAMS": ((6, 1),), "MAPPED": ((8, 2, 2),),
        "MOVES": 2000,
    }.items():  # fmt: skip
        monkeypatch.setattr(klotski_solvers, name, value)


def ignored(*_: object) -> None: ...


def test_methods_agree_where_they_must(quick: None) -> None:
    on_progress: OnEvent = ignored
    schedules, programs, mappings = klotski_solvers.run(on_progress).sheets
    shares = dict(zip(schedules.columns, schedules.rows[0], strict=True))
    assert 1 <= float(shares["segments>"]) <= float(shares["list>"])
    assert float(shares["chain>"]) <= float(shares["sets>"]) <= float(shares["intervals>"]) <= 1
    _, best, eq18, played, eq19, *_ = programs.rows[0]
    assert best == eq18 == played
    assert int(re.findall(r"\d+", eq19)[0]) <= int(best)
    *_, annealing, by_cp, proven, mended, printed = map(float, mappings.rows[0][3:])
    assert proven == by_cp == mended <= min(annealing, printed)


def test_networks_are_measured_beside_random_graphs(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []

    def make(cores: int) -> Dag:
        numbers.append(cores)
        return layered(20, 1)

    monkeypatch.setitem(klotski_solvers.NETWORKS, "net", make)
    rows = klotski_solvers.run(ignored).sheets[0].rows
    assert [row[0] for row in rows] == ["layers, 12", "net"]
    assert numbers == [4]
