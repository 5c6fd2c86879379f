"""What a network says, as the chip computed it: the best classes of a vector of scores, the boxes of a detector, other
tensors in files."""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.support.files import write_atomically
from meshloom.sched.workload.graph import Graph, Value
from meshloom.sched.workload.onnx.detections import Detected, overlap

from ..inputs.class_names import is_line
from ..inputs.sources import Feed
from ..results.figures import ClassScore, DetectionFigures, DetectorFigures, OutputFigures
from ..results.schema import Row
from .boxes import drawn

#: So many classes, and detections, are shown.
TOP, BOXES = 5, 20
#: Boxes that overlap so much are of the same thing.
_SAME = 0.5


def outputs(
    graph: Graph, computed: Mapping[str, NDArray[np.int8]], feed: Feed, title: str, folder: Path | None
) -> tuple[OutputFigures, ...]:
    """Each output of a network with real weights or labels; of a random one nothing.

    `computed`: the outputs, int8 [1, C, H, W]. Those that are no vectors are saved in `folder` (None: nowhere) in the
    shape that they have in the file, as float32, or as int8 where the step is not known; raises OSError when that
    cannot be.
    """
    figures: list[OutputFigures] = []
    for name in graph.outputs if graph.real or graph.labels else ():
        value, array, its = graph.value(name), computed[name], feed.titles.get(name, name)
        end = feed.ends.get(name)
        bytes_ = array if end is None else end.array(array)
        own = _real(value, bytes_)
        is_scores = _is_vector(value) and (end is None or is_line(end.shape))
        figures.append(
            OutputFigures(
                name=its,
                shape=own.shape,
                top=_best(graph, bytes_.ravel() * (value.step or 1.0), named=name == graph.outputs[0])
                if is_scores
                else (),
                file=None if is_scores or folder is None else _save_array(folder, [title, feed.name, its], own),
                snr_db=_snr_db(array * value.step, feed.floats.get(name)),
            )
        )
    if feed.finish is not None:
        exact: Mapping[str, NDArray[Any]] = feed.finish(feed.floats) if feed.floats else {}
        for name, whole in feed.finish(_reals(graph, computed)).items():
            array = np.asarray(whole)
            its = _finished(graph, name, array, title, feed, folder)
            is_real = np.issubdtype(array.dtype, np.floating)
            figures.append(its.model_copy(update={"snr_db": _snr_db(array, exact.get(name))}) if is_real else its)
    return tuple(figures)


def _finished(
    graph: Graph, name: str, array: NDArray[Any], title: str, feed: Feed, folder: Path | None
) -> OutputFigures:
    """An output that the host has made: scores if there is one for each label, or the number of a class, or its name.
    Several wide whole numbers are no scores, nor what the file has put in order: TopK's results, say."""
    if array.dtype.kind in "OU":  # texts
        array = array.astype(np.str_)
    flat, count = array.ravel(), len(graph.labels)
    top: tuple[ClassScore, ...] = ()
    numbers = array.dtype.kind in "iuU" and array.dtype.itemsize > 1
    other = numbers or (feed.scores is not None and name not in feed.scores)
    if flat.size > 1 and max(array.shape) == flat.size and count in (0, flat.size) and not other:
        top = _best(graph, flat, named=True)
    elif flat.size == 1 and array.dtype.kind in "iu":
        top = (ClassScore(index=int(flat[0]), label=graph.labels[int(flat[0])] if count > flat[0] else "", score=1.0),)
    elif flat.size == 1 and str(flat[0]) in graph.labels:
        top = (ClassScore(index=graph.labels.index(str(flat[0])), label=str(flat[0]), score=1.0),)
    file = None if top or folder is None else _save_array(folder, [title, feed.name, name], array)
    return OutputFigures(name=name, shape=array.shape, top=top, file=file, snr_db=None)


def detector(
    graph: Graph, computed: Mapping[str, NDArray[np.int8]], feed: Feed, title: str, folder: Path | None
) -> DetectorFigures | None:
    """What a detector has found, and its picture in `folder`; None if the network is none. As `outputs`."""
    if (ours := feed.detecting) is None:
        return None
    detected = ours.detect(_reals(graph, computed))
    shift = len(graph.labels) - ours.detector.classes if ours.detector.background else 0
    figures, exact = (_named(graph, some, max(0, shift)) for some in (detected, ours.exact))
    same = overlap(ours.exact.boxes, detected.boxes) >= _SAME
    same &= ours.exact.classes[:, None] == detected.classes[None]
    picture = None
    if folder is not None:
        png = drawn(ours.picture, figures)
        picture = _save(folder, [title, feed.name, "boxes"], ".png", lambda file: file.write(png))
    return DetectorFigures(
        form=ours.detector.form,
        min_score=ours.min_score,
        max_iou=None if ours.detector.suppressed else ours.max_iou,
        found=figures,
        exact=exact,
        alike=int(same.any(axis=1).sum()),
        picture=picture,
    )


def _named(graph: Graph, some: Detected, shift: int) -> tuple[DetectionFigures, ...]:
    """Detections with labels, which begin after `shift` others."""
    figures: list[DetectionFigures] = []
    indices: list[int] = some.classes.tolist()
    for box, score, index in zip(some.boxes.tolist(), some.scores.tolist(), indices, strict=True):
        label = graph.labels[index + shift] if index + shift < len(graph.labels) else ""
        left, top, right, bottom = (round(side, 2) for side in box)
        figures.append(DetectionFigures(index=index, label=label, score=score, box=(left, top, right, bottom)))
    return tuple(figures)


def counted(some: Sequence[DetectionFigures]) -> str:
    """How many of which class, the best first; `nothing` of none."""
    return ", ".join(f"{count} {name}" for name, count in Counter(one.name for one in some).items()) or "nothing"


def answer(graph: Graph, figures: tuple[OutputFigures, ...], scores: Sequence[str] | None = None) -> str:
    """The class that the first output with scores names, of those that may have `scores`; empty if none does."""
    if scores is not None:
        by_name = {each.name: each for each in figures}
        figures = tuple(by_name[name] for name in scores if name in by_name)
    best = next((each.top[0] for each in figures if each.top), None)
    return "" if best is None else best.label or f"class {best.index}"


def lines(row: Row) -> list[str]:
    """What a network said, and what is to be known of its file, in sentences."""
    if row.network is None:
        return []
    head = f"{row.workload}, {row.network.picture}: " if row.network.picture else f"{row.workload}: "
    texts: list[str] = []
    for output in row.network.outputs:
        noise = "" if output.snr_db is None else f"; SNR against the float model {output.snr_db:.1f} dB"
        if output.top:
            best = ", ".join(f"{each.label or f'class {each.index}'} {each.score:.4g}" for each in output.top)
            texts.append(f"{head}best of {output.name}: {best}{noise}")
        else:
            place = f" is in {output.file}" if output.file else " was not saved"
            texts.append(f"{head}output {output.name} {list(output.shape)}{place}{noise}")
    if row.network.detector is not None:
        texts += [f"{head}{line}" for line in _detector_lines(row.network.detector)]
    return texts + [f"{head}{note}" for note in row.network.notes]


def _detector_lines(figures: DetectorFigures) -> list[str]:
    """Of a detector, in sentences."""
    lines = [f"{one.name} {one.score:.2f} at {_place(one)}" for one in figures.found[:BOXES]]
    if len(figures.found) > BOXES:
        lines.append(f"{len(figures.found) - BOXES} more with lower scores, in the results")
    how = (
        "the file suppresses boxes itself"
        if figures.max_iou is None
        else f"suppressed at an IoU of {figures.max_iou:g}"
    )
    place = f"; drawn in {figures.picture}" if figures.picture else ""
    boxes = "1 box" if len(figures.found) == 1 else f"{len(figures.found)} boxes"
    return [
        f"{boxes} with scores of {figures.min_score:g} or more ({counted(figures.found)}){place}",
        *lines,
        f"{figures.alike} of the {len(figures.exact)} boxes that the float model finds are among them",
        f"the host has read {figures.form}; {how}.",
    ]


def _place(one: DetectionFigures) -> str:
    left, top, right, bottom = (round(side) for side in one.box)
    return f"columns {left}..{right}, rows {top}..{bottom}"


def _reals(graph: Graph, computed: Mapping[str, NDArray[np.int8]]) -> dict[str, NDArray[Any]]:
    return {name: _real(graph.value(name), computed[name]) for name in graph.outputs}


def _is_vector(value: Value) -> bool:
    return value.channels > 1 and value.height == value.width == 1


def _real(value: Value, array: NDArray[np.int8]) -> NDArray[np.int8] | NDArray[np.float32]:
    return (array * np.float64(value.step)).astype(np.float32) if value.step else array


def _best(graph: Graph, scores: NDArray[Any], *, named: bool) -> tuple[ClassScore, ...]:
    """The classes with the highest scores, of equal ones the first; labels are those of the first output."""
    best: list[int] = np.argsort(-scores.astype(np.float64), kind="stable")[:TOP].tolist()
    return tuple(
        ClassScore(
            index=index,
            label=graph.labels[index] if named and index < len(graph.labels) else "",
            score=float(scores[index]),
        )
        for index in best
    )


def _snr_db(array: NDArray[np.floating], exact: NDArray[np.floating] | None) -> float | None:
    """Power of the float model's output / power of the difference, in dB; None if one of them is 0, not finite or
    unknown, or if they have different shapes: as many boxes as were found, say."""
    if exact is None or exact.shape != array.shape:
        return None
    exact = exact.astype(np.float64)
    signal, noise = float((exact**2).sum()), float(((array - exact) ** 2).sum())
    return float(10 * np.log10(signal / noise)) if signal and noise and isfinite(signal + noise) else None


def _save_array(folder: Path, names: list[str], array: NDArray[Any]) -> str:
    return _save(folder, names, ".npy", lambda file: np.save(file, array, allow_pickle=False))


def _save(folder: Path, names: list[str], suffix: str, write: Callable[[IO[bytes]], object]) -> str:
    """Path of the file, relative to the working directory. Raises WriteError."""
    path = folder / ("-".join(re.sub(r"[^\w.]+", "_", name, flags=re.ASCII) for name in names) + suffix)
    content = io.BytesIO()
    write(content)
    write_atomically(path, content.getvalue())
    return os.path.relpath(path)
