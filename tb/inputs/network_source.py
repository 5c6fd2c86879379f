"""What a network is, on the command line and in Python, and what one run of it is fed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.onnx.detections import MAX_IOU, MIN_SCORE
from meshloom.sched.workload.onnx.floats import Source

from .detecting import Detecting


@dataclass(frozen=True)
class NetworkSource:
    """A network by built-in name or by the path of an ONNX file, with the files that it is fed, one run for each.

    A float model is quantised with `calibration` (if empty: with the inputs), the ranges of its tensors chosen as
    `ranges` says (`onnx.calibrate.ranges`). `mean`, `std`: how its pictures are
    normalised, (byte - mean) / std, one number for all channels or one for each. `labels`: a file with the name of a
    class on each line. `bind`: sizes that the file leaves open, by name. `tensors`: folder in which outputs are saved
    that are no vectors. `min_score`, `max_iou`: of what a detector finds (`onnx.detections.Detector.detect`).
    `by_channel`: layers may have a multiplier for each channel (`registry.scales_by_channel`). `seed`: of the weights
    of a file that has none, and of its input if there are no files. `lacks`: units that cores of the chip lack
    (`fields.units_lacking`), which the host stands in for at a model's end.
    """

    name: str
    inputs: tuple[Path, ...] = ()
    calibration: tuple[Path, ...] = ()
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (255.0,)
    labels: Path | None = None
    bind: tuple[tuple[str, int], ...] = ()
    tensors: Path | None = field(default=None, compare=False)
    ranges: str = "best"
    min_score: float = MIN_SCORE
    max_iou: float = MAX_IOU
    by_channel: bool = False
    seed: int = 0
    lacks: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name in tables."""
        return Path(self.name).stem if self.name.endswith(".onnx") else self.name


@dataclass(frozen=True, eq=False)
class Feed:
    """One run's inputs, where they are from, and the class that they show, if that is known (index, or -1).

    `floats`: what the float model that was quantised makes of them, float [1, C, H, W] by name of the network's output.
    `notes`: what the run is to say about the network's file. `finish`: what the host makes of the network's real
    outputs, [1, C, H, W] by name: those of the model that the chip leaves to it. `snr_db`: how far each layer's result
    is from the float model's over the calibration data, by name (inf: not at all). `detecting`: of a detector. `ends`:
    of outputs that have another shape in the file, which one, and how its elements lie in [1, C, H, W]. `titles`: of
    outputs that have another name in the file, that. `scores`: the file's outputs that may be scores of classes, in its
    order; None: all may.
    """

    name: str
    arrays: dict[str, NDArray[np.int8]]
    label: int = -1
    float_label: int = -1
    floats: dict[str, NDArray[np.float64]] = field(default_factory=dict[str, NDArray[np.float64]])
    notes: tuple[str, ...] = ()
    finish: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]] | None = None
    snr_db: Mapping[str, float] = field(default_factory=dict[str, float])
    detecting: Detecting | None = None
    ends: Mapping[str, Source] = field(default_factory=dict[str, Source])
    titles: Mapping[str, str] = field(default_factory=dict[str, str])
    scores: tuple[str, ...] | None = None
