"""Names of a network's classes: from a file of the user's or the model's metadata, as many as it has scores for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.layers import WorkloadError

if TYPE_CHECKING:
    from onnx import ModelProto

    from meshloom.sched.workload.onnx.quantise import Quantised

    from .detecting import Arrays, Detecting


def classes(graph: Graph) -> int:
    """How many classes the first output has scores for; 0 if it is not a vector."""
    value = graph.value(graph.outputs[0])
    return value.channels if value.height == value.width == 1 else 0


def is_line(shape: Sequence[int]) -> bool:
    """Whether a tensor of that shape may be scores of classes: all its elements lie along one axis."""
    return prod(shape) == max(shape, default=0)


def read_names(path: Path) -> tuple[str, ...]:
    """The lines of a file of labels. Raises WorkloadError."""
    try:
        return tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise WorkloadError(f"{path}: cannot be read: {why}; give a text file with one label on each line") from error


def check_names(path: Path, count: int, graph: Graph, right: Collection[int]) -> None:
    """Raises WorkloadError unless there are as many labels as one of `right`; 0 stands for no classes."""
    if count in right:
        return
    text = " or ".join(str(number) for number in sorted(right) if number)
    if text and not classes(graph):
        raise WorkloadError(
            f"{path}: has {count} lines, network {graph.name} has scores for {text} classes; give one label for each"
        )
    output = graph.value(graph.outputs[0])
    raise WorkloadError(
        f"{path}: has {count} lines, output {output.name} of network {graph.name} is {list(output.shape)}; "
        "give one label for each class"
    )


def named(
    path: Path | None,
    graph: Graph,
    model: ModelProto,
    quantisation: Quantised,
    pairs: Sequence[tuple[Detecting | None, Arrays]],
) -> Graph:
    """The network with labels, its own or those of the file `path`, where what the host makes of its outputs has
    classes. `pairs`: for inputs, a detector and what the float model makes of them. Raises WorkloadError if the file's
    labels are not as many as the classes."""
    from meshloom.sched.workload.onnx.labels import labels_in

    if classes(graph) or not (names := graph.labels or labels_in(model)):
        return graph
    right: set[int] = set()
    for detecting, floats in pairs:
        if detecting is not None:
            detector = detecting.detector
            right |= {detector.classes or len(names), detector.classes + detector.background}
        elif floats:
            for array in quantisation.finish(floats).values():
                number = array.size == 1 and array.dtype.kind in "iu"  # of the best class
                right |= {len(names)} if number else {array.size} if array.size == max(array.shape, default=0) else {0}
    if path is not None:
        check_names(path, len(names), graph, right)
    return replace(graph, labels=names if len(names) in right else ())


def scores_of(model: ModelProto) -> tuple[str, ...]:
    """The outputs of a model that may be scores of classes: not those that it has put in order, of which the first is
    always the best."""
    ordered: set[str] = set()
    for node in model.graph.node:
        if node.op_type == "TopK" or ordered.intersection(node.input[:1]):
            ordered.update(node.output)
    return tuple(value.name for value in model.graph.output if value.name not in ordered)


def best_of(arrays: Arrays, scores: Sequence[str]) -> int:
    """The class that the first of a model's outputs with scores names; -1 if none does."""
    for name in scores:
        array = arrays.get(name)
        if array is None:
            continue
        whole = array.dtype.kind in "iu" and array.dtype.itemsize > 1
        if array.size > 1 and max(array.shape) == array.size and not whole:
            return int(array.argmax())
        if array.size == 1 and array.dtype.kind in "iu":
            return int(array.ravel()[0])
    return -1


def label_of(graph: Graph, index: int) -> str:
    """The name of a class, or `class` and its number; empty for -1."""
    if index < 0:
        return ""
    return graph.labels[index] if index < len(graph.labels) else f"class {index}"
