"""Forms of detectors' outputs: recognised by what they say, read to the pixel, and suppressed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from meshloom.sched.workload.onnx.detections import Detected, overlap
from meshloom.sched.workload.onnx.detector_forms import recognised, suppressions
from meshloom.sched.workload.onnx.quantise import quantise_with_report

from ...float_models import FloatModel, run_float

#: Rows and columns of the picture, with 84 cells of 8, 16 and 32 pixels.
SIZE = (64, 64)
#: Of two things, left, top, right, bottom; class and score.
BOXES = np.array([[4.0, 8.0, 20.0, 40.0], [30.0, 30.0, 62.0, 50.0]])
CLASSES, SCORES = np.array([2, 0]), np.array([0.5, 0.9])


def found(outputs: dict[str, NDArray[Any]], classes: int = 0, **more: Any) -> Detected:
    detector = recognised(outputs, SIZE, classes, **more)
    assert detector is not None
    return detector.detect(outputs, 0.25, 0.45)


def is_right(some: Detected) -> None:
    np.testing.assert_allclose(some.boxes, BOXES[::-1], atol=1e-4)
    assert some.classes.tolist() == [0, 2], "the best first"
    np.testing.assert_allclose(some.scores, SCORES[::-1], atol=1e-6)


def cells() -> NDArray[np.float64]:
    """Left, top and stride of each."""
    levels = [(x * s, y * s, s) for s in (8, 16, 32) for y in range(64 // s) for x in range(64 // s)]
    return np.array(levels, np.float64)


def in_cells(*, anchors: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Centres and extents in pixels of all cells [N, 4], their cells, and which have the two boxes in them; each has a
    worse copy in the cell beside it."""
    where = np.concatenate([np.tile(cells()[some], (anchors, 1)) for some in (slice(64), slice(64, 80), slice(80, 84))])
    rows = np.concatenate([where[:, :2] + where[:, 2:] / 2, where[:, 2:], where[:, 2:]], axis=1)
    sides = np.concatenate([(BOXES[:, :2] + BOXES[:, 2:]) / 2, BOXES[:, 2:] - BOXES[:, :2]], axis=1)
    places = np.array([25, 66])
    rows[places], rows[places + 1] = sides, sides + [1, 0, 0, 0]
    return rows, where, places


def scored(count: int, places: NDArray[np.intp]) -> NDArray[np.float64]:
    """Scores of three classes in `count` cells."""
    scores = np.full((count, 3), 0.01)
    scores[places, CLASSES], scores[places + 1, CLASSES] = SCORES, SCORES - 0.1
    return scores


@pytest.mark.parametrize("said", ["pixels", "shares", "cells"])
def test_a_row_for_each_cell(said: str) -> None:
    """As YOLOv5, TensorFlow's exports and YOLOX say it."""
    rows, where, places = in_cells()
    if said == "shares":
        rows /= 64
    if said == "cells":
        rows[:, :2], rows[:, 2:] = (rows[:, :2] - where[:, :2]) / where[:, 2:], np.log(rows[:, 2:] / where[:, 2:])
    scores = scored(84, places)
    some = np.sqrt(scores.max(axis=1, keepdims=True))
    is_right(found({"y": np.concatenate([rows, some, scores / some], axis=1)[None].astype(np.float32)}))


def test_three_anchors() -> None:
    rows, _, places = in_cells(anchors=3)
    scores = scored(252, places)
    is_right(found({"y": np.concatenate([rows, np.ones((252, 1)), scores], axis=1)[None]}))


@pytest.mark.parametrize("logits", [False, True])
def test_a_column_for_each_cell(logits: bool) -> None:
    """As YOLOv8 says it; what is behind the classes that the file names is something else."""
    rows, _, places = in_cells()
    scores = scored(84, places)
    scores = np.log(scores / (1 - scores)) if logits else scores
    columns = np.concatenate([rows, scores], axis=1).T
    is_right(found({"y": columns[None]}))
    masks = np.random.default_rng(0).normal(0, 3, (5, 84))
    is_right(found({"y": np.concatenate([columns, masks])[None]}, classes=3))


def test_rows_of_the_file() -> None:
    rows = np.concatenate([BOXES, SCORES[:, None], CLASSES[:, None]], axis=1)
    filled = np.concatenate([rows, np.zeros((3, 6))])
    is_right(found({"y": filled}))
    is_right(found({"y": filled[None].astype(np.float32)}))
    image = np.zeros((2, 1))
    is_right(found({"y": np.concatenate([image, BOXES, CLASSES[:, None], SCORES[:, None]], axis=1)}))
    is_right(found({"y": np.concatenate([image, CLASSES[:, None], SCORES[:, None], BOXES / 64], axis=1)[None, None]}))
    none = found({"y": np.zeros((0, 6), np.float32)})
    assert (none.boxes.shape, none.scores.shape) == ((0, 4), (0,))


def test_boxes_classes_and_scores() -> None:
    is_right(found({"boxes": BOXES, "labels": CLASSES, "scores": SCORES}))
    down = {"detection_boxes": BOXES[None][..., [1, 0, 3, 2]] / 64, "detection_classes": CLASSES[None] * 1.0}
    is_right(found(down | {"detection_scores": SCORES[None], "num_detections": np.array([2.0])}))


@pytest.mark.parametrize("kind", ["background", "logits", "no background"])
def test_corners_and_scores(kind: str) -> None:
    boxes, scores = np.concatenate([BOXES, BOXES + 1, BOXES * 0]), np.zeros((6, 3))
    scores[:2], scores[2:4] = scored(4, np.array([0, 2]))[[0, 2]], scored(4, np.array([0, 2]))[[0, 2]] * 0.8
    if kind != "no background":
        scores = np.concatenate([1 - scores.sum(axis=1, keepdims=True), scores], axis=1)
    if kind == "logits":
        scores = np.log(np.maximum(scores, 1e-9)) + 3
    is_right(found({"scores": scores[None], "boxes": boxes[None] / 64}))
    detector = recognised({"scores": scores[None], "boxes": boxes[None] / 64}, SIZE)
    assert detector is not None
    assert (detector.classes, detector.background) == (3, kind != "no background")


def test_what_a_suppression_selects() -> None:
    """Of a file that goes on behind it, with other outputs; its boxes are those that the operator reads."""
    m = FloatModel((1, 3, 8, 8))
    a = m.conv("x", "a", (6, 3, 3, 3))
    boxes = m.node("Transpose", m.node("Reshape", [m.node("Slice", [a, *map(m.integers, (0, 4, 1))], "p"),
                   m.integers(1, 4, 36)], "q"), "boxes", perm=[0, 2, 1])  # fmt: skip
    b = m.node("Slice", [a, *map(m.integers, (4, 6, 1))], "s")
    scores = m.node("Sigmoid", m.node("Reshape", [b, m.integers(1, 2, 36)], "t"), "scores")
    limits = m.integers(5), m.constant([0.5]), m.constant([0.4])
    m.node("NonMaxSuppression", [boxes, scores, *limits], "chosen", center_point_box=1)
    model, data = m.build(m.node("Cast", "chosen", "y", to=1)), m.data()
    report = quantise_with_report(model, data)
    assert report.host is not None
    values = run_float(m.build(*report.origins.values()), data[0])
    message = report.said({name: report.ends[name].value(values[origin]) for name, origin in report.origins.items()})
    assert next(iter(message)) == "y", "the file's outputs come first"
    assert set(report.finish({name: report.ends[name].value(values[o]) for name, o in report.origins.items()})) == {"y"}
    detector = recognised({"y": message["y"]}, (8, 8), 0, report.host.suppressions, message)
    assert detector is not None
    assert (detector.form, detector.classes) == ("what NonMaxSuppression chosen selects", 2)
    cells = {"boxes": np.zeros((1, 4, 4)), "scores": np.zeros((1, 84, 5))}  # which look like a grid's cells
    beside = recognised(message | cells | {"y": message["y"]}, (64, 64), 0, report.host.suppressions, message)
    assert beside is not None
    assert beside.form == detector.form
    some = detector.detect(message, 0.0, 0.45)
    chosen = message["chosen"]
    assert len(some.scores) == len(chosen) > 1
    scores_of, boxes_of = message["scores"][0], message["boxes"][0].astype(np.float64)
    best = max(chosen, key=lambda each: scores_of[each[1], each[2]])
    sides = boxes_of[best[2]]
    corners = np.sort([sides[:2] - sides[2:] / 2, sides[:2] + sides[2:] / 2], axis=0).ravel()
    np.testing.assert_allclose(some.boxes[0], corners * (8 if np.abs(corners).max() <= 2 else 1), rtol=0.3)
    assert some.classes[0] == best[1]


def test_corners_of_a_suppression_by_who_wrote_it() -> None:
    m = FloatModel()
    m.node("NonMaxSuppression", ["boxes", "scores"], "chosen")
    model = m.build("chosen")
    for producer, across in (("", False), ("pytorch", True)):
        model.producer_name = producer
        by = suppressions(model, list(model.graph.node))
        boxes = BOXES if across else BOXES[:, [1, 0, 3, 2]]
        scores = scored(4, np.array([0, 2]))[[0, 2]].T
        chosen = np.array([[0, 2, 0], [0, 0, 1]])
        is_right(found({"boxes": boxes[None], "scores": scores[None], "chosen": chosen}, by=by))


@pytest.mark.parametrize(
    "outputs",
    [
        {"y": np.random.default_rng(0).normal(0, 9, (1, 40, 97))},  # characters of a line
        {"y": np.random.default_rng(0).normal(0, 1, (5, 6))},  # rows of something else
        {"y": np.random.default_rng(0).normal(300, 90, (1, 84, 9))},  # no boxes in these cells
        {"y": np.random.default_rng(0).random((1, 9)), "z": np.random.default_rng(0).random((1, 4))},
        {"b": np.random.default_rng(0).normal(0, 1, (1, 50, 4)), "s": np.ones((1, 50, 2))},  # offsets from priors
        {"boxes": BOXES, "labels": CLASSES, "scores": SCORES[None, None]},  # of one class and all boxes
    ],
)
def test_others_are_no_detectors(outputs: dict[str, NDArray[Any]]) -> None:
    assert recognised(outputs, SIZE) is None


def test_overlaps() -> None:
    boxes = np.array([[0, 0, 2, 2], [1, 1, 3, 3], [5, 5, 5, 5.0]])
    np.testing.assert_allclose(overlap(boxes, boxes), [[1, 1 / 7, 0], [1 / 7, 1, 0], [0, 0, 0]])
