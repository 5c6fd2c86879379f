"""Names of classes: which outputs have as many classes as there are names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper

from meshloom.sched.workload import zoo
from meshloom.sched.workload.layers import WorkloadError
from meshloom.tb.inputs import class_names

from ..sched.float_models import FloatModel

NAMES = ("cat", "dog", "fox")
WRONG = (
    r"names.txt: has 3 lines, (network resnet8 has scores for [124] c|output .* of network resnet8 is).*; give one l"
)
MODEL: Any = SimpleNamespace()


def detector(classes: int, background: int = 0) -> Any:
    """Something that makes boxes of so many classes."""
    return SimpleNamespace(detector=SimpleNamespace(classes=classes, background=background)), {}


def floats(*shape: int, kind: type = np.float32) -> Any:
    """No detector, and an output of the float model."""
    return None, {"y": np.zeros(shape, kind)}


@pytest.mark.parametrize(
    ("pairs", "named"),
    [
        ([detector(3)], True),
        ([detector(2, 1)], True),
        ([detector(3, 1)], True),
        ([detector(0)], True),
        ([detector(4)], False),
        ([detector(2)], False),
        ([floats(1, 3)], True),
        ([floats(3, 1)], True),
        ([floats(1, 3, kind=np.int64)], True),
        ([floats(1, 4, kind=np.int64)], False),
        ([floats(1, kind=np.int64)], True),
        ([floats(1)], False),
        ([floats(2, 3)], False),
        ([(None, {})], False),
        ([floats(2, 3), floats(1, 3)], True),
    ],
)
def test_names_are_kept_where_there_are_as_many_classes(
    pairs: Any, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_names, "classes", lambda graph: 0)
    graph = replace(zoo.load("resnet8"), labels=NAMES)
    kept: Any = SimpleNamespace(finish=lambda values: values)
    assert class_names.named(None, graph, MODEL, kept, pairs).labels == (NAMES if named else ())
    if named:
        assert class_names.named(Path("names.txt"), graph, MODEL, kept, pairs).labels == NAMES
    else:
        with pytest.raises(WorkloadError, match=WRONG):
            class_names.named(Path("names.txt"), graph, MODEL, kept, pairs)


def test_a_network_with_scores_has_its_own_names() -> None:
    graph = replace(zoo.load("resnet8"), labels=NAMES)
    assert class_names.named(None, graph, MODEL, MODEL, [detector(9)]) is graph
    assert [class_names.label_of(graph, index) for index in (-1, 0, 2, 3)] == ["", "cat", "fox", "class 3"]


def test_classes_are_channels_of_a_single_pixel() -> None:
    graph = zoo.load("resnet8")
    assert class_names.classes(graph) == 10
    assert class_names.classes(replace(graph, outputs=(graph.layers[0].output,))) == 0


@pytest.mark.parametrize(
    ("scores", "right", "says"),
    [
        (0, {4, 7}, "has 3 lines, network resnet8 has scores for 4 or 7 classes; give one label for each"),
        (0, {0}, "has 3 lines, output .* of network resnet8 is .*; give one label for each class"),
        (10, {10}, "has 3 lines, output .* of network resnet8 is .*; give one label for each class"),
    ],
)
def test_a_file_of_too_few_names_has_an_error_that_says_how_many_there_are(
    scores: int, right: set[int], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_names, "classes", lambda graph: scores)
    with pytest.raises(WorkloadError, match=says):
        class_names.check_names(Path("names.txt"), 3, zoo.load("resnet8"), right)


def test_what_of_a_model_may_be_scores() -> None:
    m = FloatModel((1, 8))
    m.nodes.append(helper.make_node("TopK", ["x", m.integers(3)], ["best", "places"]))
    model = m.build("places", m.node("Softmax", "best", "ordered"), m.node("Tanh", "x", "y"))
    assert class_names.scores_of(model) == ("y",)


def test_the_class_that_a_float_model_names() -> None:
    arrays = {"map": np.ones((1, 2, 3)), "y": np.array([[0, 2, 1]]) / 2, "number": np.array([4]), "some": np.arange(3)}
    for scores, right in ((("map", "y"), 1), (("number", "y"), 4), (("some", "absent"), -1), ((), -1)):
        assert class_names.best_of(arrays, scores) == right
