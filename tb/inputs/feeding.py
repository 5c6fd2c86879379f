"""What each run of an ONNX file is fed, and what the file itself makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.layers import WorkloadError

from .class_names import classes, is_line
from .detecting import Detecting, is_picture, shown
from .network_source import Feed, NetworkSource
from .samples import fed_exactly, fed_quantised, real_input

if TYPE_CHECKING:
    from meshloom.sched.workload.graph import Graph
    from meshloom.sched.workload.onnx.detections import Detector
    from meshloom.sched.workload.onnx.quantise import Quantised
    from meshloom.sched.workload.onnx.start import Start

    from .onnx_files import OnnxFile


def fed_bytes(source: NetworkSource, file: OnnxFile, graph: Graph) -> list[Feed]:
    """Feeds of a network that computes its file to the last bit: compared with it. Raises InputError, OnnxError."""
    from meshloom.sched.workload.onnx.original import check_integer, quantised_inputs

    from .golden.graph import golden_values

    inside = quantised_inputs(file.model)
    feeds = [
        Feed(sample.name, fed_exactly(sample, graph, file.inputs, inside))
        for sample in file.fed(source.inputs, source.calibration)
    ]
    cases = ((feed.arrays, golden_values(graph, feed.arrays)) for feed in feeds)
    titles = check_integer(file.model, graph, cases, source.name)
    return [replace(feed, titles=titles) for feed in feeds]


def fed_numbers(source: NetworkSource, file: OnnxFile, quantisation: Quantised, start: Start) -> list[Feed]:
    """Feeds of a network whose model begins on the host: one for each sample; without files one of an example. Raises
    InputError."""
    from meshloom.sched.workload.onnx.original import Original
    from meshloom.sched.workload.onnx.start import examples

    from .numbers import numbers_in
    from .pictures import quantise_input

    original = Original(
        quantisation.reference or file.model, source.name, quantisation.origins.values(), quantisation.sources
    )
    values = {value.name: value for value in quantisation.graph.inputs}
    feeds: list[Feed] = []
    cases: list[tuple[str, Mapping[str, NDArray[Any]]]] = []
    for path in source.inputs:
        some = numbers_in(path, file.inputs, start.real, file.unused)
        cases += [(path.name if len(some) == 1 else f"{path.name}[{index}]", each) for index, each in enumerate(some)]
    if not cases and source.calibration:
        first = source.calibration[0]
        cases = [(first.name, numbers_in(first, file.inputs, start.real, file.unused)[0])]
    cases = cases or [("an example", examples(file.model))]
    for title, numbers in cases:
        begun = start.run(numbers)
        real = {name: quantisation.sources[name].value(array) for name, array in begun.items()}
        arrays = {name: quantise_input(array, values[name]) for name, array in real.items()}
        feed = Feed(title, arrays, ends=quantisation.ends, titles=quantisation.origins)
        feeds.append(replace(feed, **_floats(quantisation, original.run(real))))
    return feeds


def normalised(source: NetworkSource, array: NDArray[np.float32]) -> NDArray[np.float32]:
    """A picture as a float model takes it."""
    shape = (1, array.shape[1], 1, 1)
    mean, std = (
        np.reshape(per_channel(source, numbers, array.shape[1]), shape) for numbers in (source.mean, source.std)
    )
    return ((array - mean) / std).astype(np.float32)


def fed_real(source: NetworkSource, file: OnnxFile, quantisation: Quantised) -> list[Feed]:
    """Feeds of a network that was quantised, with what the float model makes of the same samples. It cannot take the
    network's own bytes."""
    from meshloom.sched.workload.onnx.original import Original

    original = Original(
        quantisation.reference or file.model, source.name, quantisation.origins.values(), quantisation.sources
    )
    feeds: list[Feed] = []
    detector: Detector | None = None
    for sample in file.fed(source.inputs, source.calibration):
        arrays = fed_quantised(sample, quantisation)
        feed = Feed(sample.name, arrays, ends=quantisation.ends, titles=quantisation.origins)
        if sample.own:
            feeds.append(feed)
            continue
        if sample.pixels is not None:
            real = {original.inputs[0]: normalised(source, sample.pixels)}
        else:
            real = {name: real_input(sample, quantisation, name) for name in sample.arrays}
        feed = replace(feed, **_floats(quantisation, original.run(real)))
        if is_picture(quantisation.graph.inputs[0]) and len(real) == 1:
            result = quantisation.said(feed.floats)
            detector = detector or _detector(quantisation, file, result)
            if detector is not None:
                thresholds = source.min_score, source.max_iou
                x = real[original.inputs[0]] if sample.pixels is None else sample.pixels
                picture, exact = shown(x, as_it_is=sample.pixels is not None), detector.detect(result, *thresholds)
                feed = replace(feed, detecting=Detecting(detector, quantisation.said, picture, *thresholds, exact))
        feeds.append(feed)
    return feeds


def _detector(quantisation: Quantised, file: OnnxFile, arrays: Mapping[str, NDArray[Any]]) -> Detector | None:
    """The form of a detector, by what the model says."""
    from meshloom.sched.workload.onnx.detector_forms import recognised
    from meshloom.sched.workload.onnx.labels import labels_in

    by = () if quantisation.host is None else quantisation.host.suppressions
    outputs = {value.name: arrays[value.name] for value in file.model.graph.output if value.name in arrays}
    return recognised(outputs, quantisation.graph.inputs[0].shape[2:], len(labels_in(file.model)), by, arrays)


def _floats(quantisation: Quantised, values: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """What a float model made, as fields of a feed."""
    graph = quantisation.graph
    floats = {
        name: quantisation.ends[name].value(values[origin].astype(np.float64))
        for name, origin in quantisation.origins.items()
    }
    first = graph.outputs[0]
    is_scores = classes(graph) > 1 and is_line(quantisation.ends[first].shape)
    best = int(quantisation.ends[first].array(floats[first]).argmax()) if is_scores else -1
    return {"floats": floats, "float_label": best}


def per_channel(source: NetworkSource, numbers: tuple[float, ...], channels: int) -> tuple[float, ...]:
    if len(numbers) not in (1, channels):
        raise WorkloadError(f"{source.name}: --mean and --std take 1 or {channels} numbers, not {len(numbers)}")
    return numbers * channels if len(numbers) == 1 else numbers
