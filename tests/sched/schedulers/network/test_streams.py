"""Networks that only stream their weights: how much of B these get."""

from __future__ import annotations

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.ir.schedule import Gemm
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.model.timeline import play
from meshloom.sched.schedulers.network.refine import Effort, with_effort
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule, schedule
from meshloom.sched.schedulers.network.sharing import SharingOptions
from meshloom.sched.workload.language.drawn import drawn_model
from meshloom.sched.workload.language.graph import step_graph
from meshloom.sched.workload.language.integers import integers

from ...network_graphs import Grower, Value, inputs_of, perform

CHIP = load("quad16")


def cycles(outcome: NetworkSchedule) -> int:
    return play(lower(outcome.schedule, CHIP), CHIP).cycles


@pytest.mark.slow
def test_weights_that_are_streamed_may_have_all_of_b() -> None:
    """While the vector unit normalises a token, as many weights of the next product arrive as B holds."""
    graph = step_graph(integers(drawn_model(256, 4, 64, 1, 4)), 1)
    few, deep = (schedule(graph, CHIP, sharing=SharingOptions(whole=True, deep=deep)) for deep in (False, True))
    assert cycles(deep) < 0.97 * cycles(few)
    words = [max(op["b_base"] for op in one.schedule.operations if isinstance(op, Gemm)) for one in (few, deep)]
    assert words[1] < CHIP.core.b_words
    inputs = inputs_of(graph)
    results = [perform(one, CHIP, inputs)[0]["scores"] for one in (few, deep)]
    assert (results[0] == results[1]).all()
    assert cycles(with_effort(Effort.QUICK, graph, CHIP)) <= cycles(deep)


def test_networks_whose_maps_are_large_are_scheduled_once_for_a_quick_answer() -> None:
    """All of B for streamed weights changes nothing where they are few."""
    g = Grower(8, Value("x", 16, 12, 12, 0.5))
    g.conv("a", "x", 64, relu=True)
    g.conv("b", "a", 16)
    graph = g.graph("maps", "b")
    few, deep = (schedule(graph, CHIP, sharing=SharingOptions(whole=True, deep=deep)) for deep in (False, True))
    assert few.schedule.operations == deep.schedule.operations
