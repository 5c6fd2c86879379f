"""Networks that only stream their weights: how much of B these get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.ir.schedule import Gemm
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.model.timeline import play
from meshloom.sched.schedulers.network.refine import Effort, with_effort
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule, schedule
from meshloom.sched.schedulers.network.sharing import SharingOptions
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.language.drawn import drawn_model
from meshloom.sched.workload.language.graph import step_graph
from meshloom.sched.workload.language.integers import integers
from meshloom.sched.workload.regions import ConstantPlace

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


def test_constants_lie_where_another_network_has_them() -> None:
    """However that has cut them: nothing else of the network lies there, and it computes the same."""

    def network(width: int) -> Graph:
        g = Grower(8, Value("x", 48, 1, width, 0.5))
        g.conv("a", "x", 80)
        g.conv("b", "a", 48)
        return g.graph("pixels", "b")

    first, plain = (schedule(network(width), CHIP) for width in (40, 1))
    cuts = {tensor.name: tensor.pieces for tensor in first.schedule.tensors if tensor.role == "constant"}
    assert any(tensor.pieces != cuts.get(tensor.name) for tensor in plain.schedule.tensors if "/w" in tensor.name)
    places = {name: tuple(ConstantPlace(*vars(piece).values()) for piece in pieces) for name, pieces in cuts.items()}
    begin = max(piece.address + piece.words for tensor in first.schedule.tensors for piece in tensor.pieces)
    second = schedule(replace(network(1), begin=begin, constants=places), CHIP)
    for tensor in second.schedule.tensors:
        if tensor.name in cuts:
            assert tensor.pieces == cuts[tensor.name]
        else:
            assert min(piece.address for piece in tensor.pieces) >= begin
    inputs = inputs_of(network(1))
    results = [perform(one, CHIP, inputs)[0]["b"] for one in (plain, second)]
    assert (results[0] == results[1]).all()


def test_networks_whose_maps_are_large_are_scheduled_once_for_a_quick_answer() -> None:
    """All of B for streamed weights changes nothing where they are few."""
    g = Grower(8, Value("x", 16, 12, 12, 0.5))
    g.conv("a", "x", 64, relu=True)
    g.conv("b", "a", 16)
    graph = g.graph("maps", "b")
    few, deep = (schedule(graph, CHIP, sharing=SharingOptions(whole=True, deep=deep)) for deep in (False, True))
    assert few.schedule.operations == deep.schedule.operations
