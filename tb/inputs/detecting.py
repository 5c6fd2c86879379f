"""What a run does with a detector: its form, found on what the float model says, its picture, and what is decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.graph import Value
from meshloom.sched.workload.onnx.detections import Detected, Detector

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Detecting:
    """A detector and one picture. `outputs`: the file's outputs by name for real outputs of the graph, [1, C, H, W];
    `picture`: bytes [rows, columns, 3]; `exact`: what the float model detects; for the others see `Detector.detect`."""

    detector: Detector
    outputs: Callable[[Arrays], Arrays]
    picture: NDArray[np.uint8]
    min_score: float
    max_iou: float
    exact: Detected

    def detect(self, values: Arrays) -> Detected:
        """The detections for real outputs of the graph."""
        return self.detector.detect(self.outputs(values), self.min_score, self.max_iou)


def is_picture(value: Value) -> bool:
    """Whether an input of a network may be a picture."""
    return value.channels in (1, 3) and min(value.height, value.width) > 1


def shown(array: NDArray[Any], *, as_it_is: bool) -> NDArray[np.uint8]:
    """An input [1, 1 or 3, rows, columns] as a picture, [rows, columns, 3]: bytes, or else its least and its greatest
    number become black and white."""
    planes = array[0].astype(np.float64)
    if not as_it_is:
        low, high = float(planes.min()), float(planes.max())
        planes = (planes - low) * (255 / (high - low) if high > low else 0)
    return np.repeat(np.clip(np.rint(planes), 0, 255).astype(np.uint8).transpose(1, 2, 0), 3 // len(planes), axis=2)
