"""What a detector's outputs mean: forms of boxes, scores and classes, recognised and read.

Files do not say it. A form is recognised by names, shapes and the values that the float model gives for a picture, and
is then read in the chip's outputs too:

- boxes, classes and scores of each as outputs of their own (torchvision; `detection_boxes` of TensorFlow's API are
  top, left, bottom, right);
- rows of 6 (left, top, right, bottom, score, class) or 7 numbers (image, box, class, score; or image, class, score,
  box): the file has suppressed by itself;
- rows or columns for each cell of grids of 8, 16, 32... pixels, once or with three anchors: centre, extent, in rows one
  score for any object (YOLOv5 to v7, YOLOX), and one for each class. Centres and extents may be pixels, shares of the
  picture, or, without anchors, relative to the cell (Ge et al., "YOLOX: Exceeding YOLO Series in 2021", section 2.1):
  whichever puts the centres nearest to their cells. Of each cell the best class counts;
- what NonMaxSuppression reads and selects, whatever follows it;
- corners of boxes with scores of all classes (as SSD's); the first class is the background if the scores of a box add
  up to 1, or are no probabilities yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .detections import Arrays, Detector, Real, Scored

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

#: Sizes of cells in pixels, as networks have them side by side.
_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32), (16, 32), (8, 16))
#: Boxes' centres are this near to their cells, in cells, in the median.
_NEAR = 4.0
#: Corners up to this are shares of the picture.
_SHARE = 2.0


@dataclass(frozen=True)
class Suppression:
    """A node NonMaxSuppression: the tensors that it reads and makes. `centred`: boxes are centre and extent; else
    corners, `across`: left before top."""

    boxes: str
    scores: str
    selected: str
    centred: bool
    across: bool


def suppressions(model: ModelProto, nodes: Sequence[NodeProto]) -> list[Suppression]:
    """The nodes NonMaxSuppression among `nodes`. The operator has corners as top, left, bottom, right; PyTorch writes
    them as left, top, right, bottom, which makes no difference to what it selects."""
    across = model.producer_name == "pytorch"
    result: list[Suppression] = []
    for node in nodes:
        if node.op_type == "NonMaxSuppression":
            centred = any(item.name == "center_point_box" and item.i == 1 for item in node.attribute)
            result.append(Suppression(node.input[0], node.input[1], node.output[0], centred, across))
    return result


def recognised(
    outputs: Arrays,
    size: tuple[int, int],
    classes: int = 0,
    by: Sequence[Suppression] = (),
    inside: Arrays | None = None,
) -> Detector | None:
    """The form of a detector's outputs, in real numbers by name; None if it is none.

    `size`: rows and columns of the picture; `classes`: how many the file names, if it does; `by`: its `suppressions`,
    whose tensors are among `inside`.
    """
    inside = inside or outputs
    if (form := _separate(outputs, size) or _rows(outputs, size)) is not None:
        return form
    for each in by:  # before what its operands, as outputs, look like
        if {each.boxes, each.scores, each.selected} <= inside.keys():
            text = f"what NonMaxSuppression {each.selected} selects"
            return Selected(text, size, each, inside[each.scores].shape[1])
    return _in_cells(outputs, size, classes) or _corners_and_scores(outputs, size)


# -- what they have in common ------------------------------------------------------------------------------------


def _flat(array: NDArray[Any], columns: int) -> Real:
    return array.astype(np.float64).reshape(-1, columns)


def _pixels(boxes: Real, size: tuple[int, int]) -> Real:
    """Corners in pixels, whether they are that or shares of the picture."""
    if not boxes.size or np.abs(boxes).max() > _SHARE:
        return boxes
    height, width = size
    return boxes * np.array([width, height, width, height])


def _are_corners(boxes: Real, share: float = 1.0) -> bool:
    """Whether right is not left of left, nor bottom above top, in a share of all boxes at least."""
    return bool(np.isfinite(boxes).all()) and (
        not len(boxes) or float((boxes[:, 2:] >= boxes[:, :2]).all(axis=1).mean()) >= share
    )


def _corners(boxes: Real) -> Real:
    """Of centres and extents."""
    return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)


def _are_scores(array: NDArray[Any]) -> bool:
    return not array.size or bool(array.min() >= 0 and array.max() <= 1)


def _are_numbers(array: NDArray[Any]) -> bool:
    return bool((array >= 0).all() and (array == np.rint(array)).all())


def _sigmoid(array: Real) -> Real:
    return 1 / (1 + np.exp(-np.clip(array, -60, 60)))


def _one_each(scores: Real, classes: Real) -> Real:
    """Scores [N, classes] of boxes that have one."""
    table = np.zeros((len(scores), int(classes.max()) + 1 if len(classes) else 1))
    table[np.arange(len(scores)), classes.astype(np.int64)] = scores
    return table


# -- detections of the file ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Separate(Detector):
    """Outputs `boxes`, `kinds`, `scores`; `down`: top before left."""

    boxes: str
    kinds: str
    scores: str
    down: bool

    def read(self, outputs: Arrays) -> Scored:
        boxes = _flat(outputs[self.boxes], 4)
        boxes = boxes[:, [1, 0, 3, 2]] if self.down else boxes
        scores, kinds = (_flat(outputs[name], 1)[:, 0] for name in (self.scores, self.kinds))
        return _pixels(boxes, self.size), _one_each(scores, kinds)


def _vectors(outputs: Arrays, count: int) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, array in outputs.items():
        if array.size == count and array.ndim and array.shape[-1] == count and array.ndim <= 2:
            yield name, array


def _separate(outputs: Arrays, size: tuple[int, int]) -> Detector | None:
    for name, array in outputs.items():
        if array.ndim not in (2, 3) or array.shape[-1] != 4 or array.size != array.shape[-2] * 4:
            continue
        for (kinds, first), (scores, second) in permutations(_vectors(outputs, array.shape[-2]), 2):
            named = first.dtype.kind in "iu" or any(word in kinds.lower() for word in ("class", "label"))
            if named and _are_numbers(first) and second.dtype.kind == "f" and _are_scores(second):
                text = f"boxes {name}, their classes {kinds} and scores {scores}"
                form = Separate(text, size, name, kinds, scores, "detection_boxes" in name.lower())
                if _are_corners(form.read(outputs)[0]):
                    return form
    return None


@dataclass(frozen=True, eq=False)
class Rows(Detector):
    """Rows of `width` numbers, with box, score and class in these columns; where the score is 0 they only fill up."""

    output: str
    width: int
    box: int
    score: int
    kind: int

    def read(self, outputs: Arrays) -> Scored:
        rows = _flat(outputs[self.output], self.width)
        rows = rows[rows[:, self.score] > 0]
        boxes = _pixels(rows[:, self.box : self.box + 4], self.size)
        return boxes, _one_each(rows[:, self.score], np.maximum(np.rint(rows[:, self.kind]), 0))

    def fits(self, outputs: Arrays) -> bool:
        rows = _flat(outputs[self.output], self.width)
        real = rows[rows[:, self.score] > 0]
        return (
            _are_scores(rows[:, self.score])
            and _are_numbers(real[:, self.kind])
            and _are_corners(real[:, self.box : self.box + 4])
            and (len(real) > 0 or not len(rows))
        )


#: What rows of so many numbers are, and the columns of box, score and class.
_ROWS: Mapping[int, Sequence[tuple[str, int, int, int]]] = {
    6: [("box, score, class", 0, 4, 5)],
    7: [("image, box, class, score", 1, 6, 5), ("image, class, score, box", 3, 2, 1)],
}


def _rows(outputs: Arrays, size: tuple[int, int]) -> Detector | None:
    for name, array in outputs.items():
        if array.ndim < 2 or array.shape[-1] not in _ROWS or array.size != array.shape[-2] * array.shape[-1]:
            continue
        if array.shape[-2] and _cells(array.shape[-2], size) is not None:
            continue  # a row for each cell
        for words, *columns in _ROWS[array.shape[-1]]:
            form = Rows(f"rows of {words} in {name}", size, name, array.shape[-1], *columns)
            if form.fits(outputs):
                return form
    return None


@dataclass(frozen=True, eq=False)
class Selected(Detector):
    """What a NonMaxSuppression selects of what it reads."""

    by: Suppression
    count: int

    @property
    def classes(self) -> int:
        return self.count

    def read(self, outputs: Arrays) -> Scored:
        boxes, scores = (outputs[name][0].astype(np.float64) for name in (self.by.boxes, self.by.scores))
        if self.by.centred:
            boxes = _corners(boxes)
        elif not self.by.across:
            boxes = boxes[:, [1, 0, 3, 2]]
        boxes = np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)
        _, kinds, places = outputs[self.by.selected].reshape(-1, 3).astype(np.int64).T
        table = np.zeros((len(places), len(scores)))
        table[np.arange(len(places)), kinds] = scores[kinds, places]
        return _pixels(boxes, self.size)[places], table


# -- boxes to be suppressed ---------------------------------------------------------------------------------------

#: Centres and extents [N, 2] in pixels, of what is said: with columns of a cell left, top, stride; and the picture's
#: width and height.
_SAID: Mapping[str, Callable[[Real, Real, Real, Real], tuple[Real, Real]]] = {
    "in pixels": lambda centre, extent, cell, picture: (centre, extent),
    "as shares of the picture": lambda centre, extent, cell, picture: (centre * picture, extent * picture),
    "relative to their cells": lambda centre, extent, cell, picture: (
        centre * cell[:, 2:] + cell[:, :2], np.exp(extent) * cell[:, 2:],
    ),
}  # fmt: skip


def _cells(count: int, size: tuple[int, int]) -> tuple[Real, int] | None:
    """Left, top and stride of the cell of each of `count` boxes, [N, 3], and the anchors of a cell; None if there are
    no cells for so many."""
    height, width = size
    for strides in _STRIDES:
        if strides[-1] > min(size):
            continue
        levels: list[Real] = []
        for stride in strides:
            y, x = np.mgrid[: -(-height // stride), : -(-width // stride)].reshape(2, -1) * stride
            levels.append(np.stack([x, y, np.full_like(x, stride)], axis=1).astype(np.float64))
        for anchors in (1, 3):
            if sum(len(level) for level in levels) * anchors == count:
                return np.concatenate([np.tile(level, (anchors, 1)) for level in levels]), anchors
    return None


@dataclass(frozen=True, eq=False)
class InCells(Detector):
    """A row of an output for each cell, or (`across`: columns) one behind the other. `about`: how a box is said;
    `first`: where scores of classes begin, 5 if one of any object is before them; `logits`: they are no probabilities.
    """

    output: str
    cells: Real
    across: bool
    count: int
    logits: bool
    about: str

    @property
    def classes(self) -> int:
        return self.count

    @property
    def suppressed(self) -> bool:
        return False

    def read(self, outputs: Arrays) -> Scored:
        rows = outputs[self.output][0].astype(np.float64)
        rows = rows.T if self.across else rows
        picture = np.array(self.size[::-1], np.float64)
        centre, extent = _SAID[self.about](rows[:, :2], rows[:, 2:4], self.cells, picture)
        first = 4 if self.across else 5
        scores = rows[:, 4 : first + self.count]
        scores = _sigmoid(scores) if self.logits else scores
        scores = scores if self.across else scores[:, :1] * scores[:, 1:]
        best = scores.argmax(axis=1)[:, None]
        only = np.where(np.arange(self.count) == best, scores, 0)
        return _corners(np.concatenate([centre, extent], axis=1)), only


def _in_cells(outputs: Arrays, size: tuple[int, int], classes: int) -> Detector | None:
    for name, array in outputs.items():
        if array.ndim != 3 or array.shape[0] != 1:
            continue
        for across in (False, True):
            rows = (array[0].T if across else array[0]).astype(np.float64)
            room, place = rows.shape[1] - (4 if across else 5), _cells(len(rows), size)
            if place is None or room < 1:
                continue
            cells, anchors = place
            about = _about(rows, cells, size, list(_SAID)[: 3 if anchors == 1 else 2])
            if about is None:
                continue
            count = classes if 0 < classes <= room else room
            strides = ", ".join(f"{stride:g}" for stride in np.unique(cells[:, 2]))
            text = f"{name}: boxes {about}, for cells of {strides} pixels" + ", three anchors" * (anchors > 1)
            text += ", and scores of classes" if across else ", scores of an object and of its class"
            logits = not _are_scores(rows[:, 4 : rows.shape[1] - room + count])
            return InCells(text, size, name, cells, across, count, logits, about)
    return None


def _about(rows: Real, cells: Real, size: tuple[int, int], hows: Sequence[str]) -> str | None:
    """How boxes are said: what puts them nearest to their cells."""
    picture, middle = np.array(size[::-1], np.float64), cells[:, :2] + cells[:, 2:] / 2
    far: dict[str, float] = {}
    for how in hows:
        with np.errstate(over="ignore"):
            centre, extent = _SAID[how](rows[:, :2], rows[:, 2:4], cells, picture)
        if np.isfinite(extent).all() and (extent >= 0).all():
            far[how] = float(np.median(np.abs(centre - middle) / cells[:, 2:]))
    best = min(far, key=lambda how: far[how], default=None)
    return best if best is not None and far[best] <= _NEAR else None


@dataclass(frozen=True, eq=False)
class CornersAndScores(Detector):
    """Outputs `boxes` and `scores`, of `count` classes, with the background if `none_first`; `logits`: scores are no
    probabilities."""

    boxes: str
    scores: str
    count: int
    none_first: bool
    logits: bool

    @property
    def classes(self) -> int:
        return self.count - self.none_first

    @property
    def background(self) -> bool:
        return self.none_first

    @property
    def suppressed(self) -> bool:
        return False

    def read(self, outputs: Arrays) -> Scored:
        scores = _flat(outputs[self.scores], self.count)
        if self.logits and self.none_first:
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            scores /= scores.sum(axis=1, keepdims=True)
        elif self.logits:
            scores = _sigmoid(scores)
        return _pixels(_flat(outputs[self.boxes], 4), self.size), scores[:, 1:] if self.none_first else scores


def _corners_and_scores(outputs: Arrays, size: tuple[int, int]) -> Detector | None:
    for boxes, scores in permutations(outputs, 2):
        first, second = outputs[boxes], outputs[scores]
        if second.ndim != 3 or first.shape != (1, second.shape[1], 4) or second.shape[0] != 1:
            continue
        values = second[0].astype(np.float64)
        if not _are_corners(_flat(first, 4), 0.99) or not np.isfinite(values).all():
            continue
        logits, count = not _are_scores(values), values.shape[1]
        background = count > 1 and (logits or bool(np.abs(values.sum(axis=1) - 1).max() < 0.05))
        text = f"corners {boxes} and scores {scores} of classes" + ", the first of them the background" * background
        return CornersAndScores(text, size, boxes, scores, count, background, logits)
    return None
