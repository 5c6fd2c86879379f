"""Channels that lie apart are brought together by a convolution that changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.checker.check import check
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.schedulers import registry
from meshloom.sched.workload import words
from meshloom.sched.workload.graph import Graph, Layer, Value, Window
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.stages import LanesError
from meshloom.sched.workload.words import in_words

from ..network_graphs import Grower, inputs_of, perform
from ..random_graphs import defined_values


def ghost() -> Graph:
    """Eight channels and eight cheap ones made of them, and a shortcut: a block of GhostNet."""
    g = Grower(3, Value("x", 3, 6, 6))
    g.concat("both", g.conv("some", "x", 8), g.depthwise("cheap", "some", Window(3, 3, 1, 1, 1, 1, 1, 1)))
    g.add("sum", "both", g.conv("short", "x", 16))
    g.conv("y", "sum", 5)
    return g.graph("ghost", "y", "sum", "both")


def input_and_convolution() -> Graph:
    """Of cores with fewer columns than lanes, convolutions fill other words than an input does."""
    g = Grower(4, Value("x", 20, 3, 3))
    g.add("y", g.conv("c", "x", 20), "x")
    return g.graph("beside", "y")


def heads() -> Graph:
    """Two heads of six channels, of which no convolution knows anything."""
    g = Grower(5, Value("x", 4, 3, 3))
    g.concat("c", g.conv("a", "x", 5), g.conv("b", "x", 7))
    g.take(Layer("product", "y", ("c", "c"), scale=9, groups=2))
    return g.graph("heads", "y")


@pytest.mark.parametrize(
    ("make", "name", "copies"),
    [
        (ghost, "quad8", []),
        (ghost, "quad16", ["sum/both/words"]),
        (ghost, "pe12x14", ["sum/both/words"]),
        (input_and_convolution, "pe12x14", ["y/x/words"]),
        (heads, "tiny", ["y/c/words"]),
    ],
)
def test_where_words_differ_a_convolution_comes_between(
    make: Callable[[], Graph], name: str, copies: list[str]
) -> None:
    graph, chip = make(), load(name)
    made = registry.find_network("loop_order")(graph, chip, None)
    assert [layer.output for layer in made.graph.layers if layer not in graph.layers and layer.w is not None] == copies
    inputs = inputs_of(graph, 7)
    golden = defined_values(graph, inputs)
    outputs, _ = perform(made, chip, inputs)
    assert outputs.keys() == set(graph.outputs)
    for output, result in outputs.items():
        np.testing.assert_array_equal(result, golden[output], output)
    check(lower(made.schedule, chip), chip, made.schedule)


def test_a_network_whose_words_fit_stays_itself() -> None:
    graph = ghost()
    assert in_words(graph, load("quad8")) is graph


def test_names_and_steps() -> None:
    graph = replace(ghost(), steps={"both": 0.25})
    layers = tuple(
        replace(layer, output="sum/both/words") if layer.output == "some" else layer for layer in graph.layers
    )
    layers = tuple(
        replace(layer, inputs=tuple("sum/both/words" if name == "some" else name for name in layer.inputs))
        for layer in layers
    )
    made = in_words(replace(graph, layers=layers), load("quad16"))
    assert made.steps == {"both": 0.25, "sum/both/words_": 0.25}


def test_what_a_convolution_does_not_mend_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes between once; the error is the one of before, and passes from one process to another."""

    def lanes(graph: Graph, chip: ChipConfig) -> None:
        raise LanesError("apart all the same", "sum", [graph.layers[-2].inputs[0]])  # of the sum

    monkeypatch.setattr(words, "all_lanes", lanes)
    with pytest.raises(WorkloadError, match="apart all the same") as raised:
        in_words(ghost(), load("quad16"))
    assert isinstance(raised.value, LanesError)
    again = copy(raised.value)
    assert (str(again), again.layer, again.names) == ("apart all the same", "sum", ("sum/both/words",))
