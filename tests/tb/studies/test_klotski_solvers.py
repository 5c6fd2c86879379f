"""The comparison of solvers on small cases, and the graphs that it uses."""

from __future__ import annotations

import re

import pytest

from meshloom.sched.papers.klotski.dag import Dag
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.klotski import klotski_solvers
from meshloom.tb.studies.klotski.graphs import layered
from meshloom.tb.studies.klotski.klotski_solvers import STUDY, GraphPoint, MappingPoint, ProgramPoint, Solutions

from .made_rows import page_of


def test_graphs_have_layers_and_are_the_same_every_time() -> None:
    graph, again = layered(300, 4), layered(300, 4)
    assert (graph.edges == again.edges).all()
    assert (graph.cycles == again.cycles).all()
    assert len(graph) == 300
    assert all(producer < consumer for producer, consumer in graph.pairs)
    assert len(layered(300, 4, barriers=1).edges) > len(graph.edges) > len(layered(300, 4, barriers=0).edges)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TRIES": 50, "WORK": 0.5, "MOVES": 2000}.items():
        monkeypatch.setattr(klotski_solvers, name, value)


def silent(what: str) -> None:
    pass


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_methods_agree_where_they_must() -> None:
    points: list[Point] = [GraphPoint("layers", 12, 2), ProgramPoint(6, 1), MappingPoint(8, 2, 2)]
    schedules, programs, mappings = page_of(STUDY, {point: point.measure(silent) for point in points}).tables
    shares = dict(zip(schedules.columns, schedules.rows[0], strict=True))
    assert 1 <= float(shares["segments>"]) <= float(shares["list>"])
    assert float(shares["chain>"]) <= float(shares["sets>"]) <= float(shares["intervals>"]) <= 1
    _, best, eq18, played, eq19, *_ = programs.rows[0]
    assert best == eq18 == played
    assert int(re.findall(r"\d+", eq19)[0]) <= int(best)
    *_, annealing, by_cp, proven, mended, printed = map(float, mappings.rows[0][3:])
    assert proven == by_cp == mended <= min(annealing, printed)


@pytest.mark.usefixtures("quick")
def test_networks_are_measured_beside_random_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []

    def make(cores: int) -> Dag:
        numbers.append(cores)
        return layered(20, 1)

    monkeypatch.setitem(klotski_solvers.NETWORKS, "net", make)
    point = next(each for each in STUDY.points(False) if each.name == "net")
    assert point.measure(silent).ends[0] > 0
    assert numbers == [9]


def test_the_gap_has_a_bar() -> None:
    page = page_of(STUDY, {GraphPoint("layers", 12, 3): Solutions(100, 90, 80, 95, 100, (120, 104, 105), (1, 1, 2, 3))})
    assert page.missed == ["the best schedule above its bound, worst: 4.00 %, not at most 3.00 %"]
