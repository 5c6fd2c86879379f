"""Detections: boxes with scores and classes, of those that overlap the best, on the host.

Suppression is ONNX's operator NonMaxSuppression, run by ONNX Runtime, for each class by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .runtime import run, session

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Arrays = Mapping[str, NDArray[Any]]
Real = NDArray[np.float64]
#: Boxes [N, 4] as left, top, right, bottom in pixels, and their scores [N, classes].
Scored = tuple[Real, Real]
#: What is usual: the least score, and how much boxes of a class may overlap (intersection over union).
MIN_SCORE, MAX_IOU = 0.25, 0.45
#: No more detections of a picture are kept, and of one class before.
MOST = 300


@dataclass(frozen=True, eq=False)
class Detected:
    """Detections, best first: boxes [N, 4] as left, top, right, bottom in pixels, scores [N], classes int [N]."""

    boxes: Real
    scores: Real
    classes: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Detector(ABC):
    """How a model says what it detects. `form`: in words; `size`: rows and columns of the picture."""

    form: str
    size: tuple[int, int]

    @property
    def classes(self) -> int:
        """How many classes it has scores for, without the background; 0: it does not say."""
        return 0

    @property
    def background(self) -> bool:
        """Whether the file has a class more, before the others, for what is none of them."""
        return False

    @property
    def suppressed(self) -> bool:
        """Whether the file itself has suppressed boxes."""
        return True

    @abstractmethod
    def read(self, outputs: Arrays) -> Scored:
        """What is said by outputs, real numbers by name in the shapes that they have in the file."""

    def detect(self, outputs: Arrays, min_score: float, max_iou: float) -> Detected:
        """What is found with a score of at least `min_score`; of two boxes of a class that overlap by more than
        `max_iou` (intersection over union) the better one, unless the file has suppressed by itself."""
        boxes, scores = self.read(outputs)
        if self.suppressed:
            place, kind = np.nonzero((scores >= min_score) & (scores > 0))
        else:
            place, kind = _suppress(boxes, scores, min_score, max_iou)
        order = np.argsort(-scores[place, kind], kind="stable")[:MOST]
        place, kind = place[order], kind[order]
        return Detected(boxes[place], scores[place, kind], kind.astype(np.int64))


def overlap(boxes: Real, others: Real) -> Real:
    """Intersection over union of boxes [N, 4] with others [M, 4], [N, M]."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    inside = np.maximum(high - low, 0).prod(axis=-1)
    areas = [np.maximum(some[:, 2:] - some[:, :2], 0).prod(axis=-1) for some in (boxes, others)]
    whole = areas[0][:, None] + areas[1][None] - inside
    return np.divide(inside, whole, out=np.zeros_like(inside), where=whole > 0)


@cache
def _operator() -> InferenceSession:
    from onnx import TensorProto, helper

    names = {
        "boxes": (TensorProto.FLOAT, [1, "n", 4]), "scores": (TensorProto.FLOAT, [1, "c", "n"]),
        "most": (TensorProto.INT64, [1]), "iou": (TensorProto.FLOAT, [1]), "score": (TensorProto.FLOAT, [1]),
    }  # fmt: skip
    inputs = [helper.make_tensor_value_info(name, *about) for name, about in names.items()]
    output = helper.make_tensor_value_info("selected", TensorProto.INT64, ["k", 3])
    node = helper.make_node("NonMaxSuppression", list(names), ["selected"])
    graph = helper.make_graph([node], "suppression", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    return session(model, "suppression of boxes")


def _suppress(
    boxes: Real, scores: Real, min_score: float, max_iou: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which boxes are kept, for which class."""
    some = np.flatnonzero((scores >= min_score).any(axis=1))
    if not len(some):
        return some, some
    feeds = {
        "boxes": boxes[some][None].astype(np.float32), "scores": scores[some].T[None].astype(np.float32),
        "most": np.array([MOST]), "iou": np.array([max_iou], np.float32),
        "score": np.array([np.nextafter(np.float32(min_score), np.float32(-1))]),  # the operator wants more than it
    }  # fmt: skip
    selected = run(_operator(), feeds)["selected"]
    return some[selected[:, 2]], selected[:, 1]
