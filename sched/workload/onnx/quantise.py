"""Float ONNX models quantised: symmetric, with scales that the chip's requantiser expresses exactly.

1. The model is folded (`float_reader`), and every layer compared with the model in ONNX Runtime (`original`).
2. The steps of tensors come from their values over the calibration data (`calibrate`). Tensors that an add, a max_pool,
   a concat or a slice joins share one. A step grows where the m of a layer that makes the tensor would not fit
   otherwise (weights of hundreds after ReLU6, say), and the steps after it follow.
3. Weights: step = m * sy / (sx * 2**17), m a whole number of 1..65535, so that sx * sw / sy = m / 2**17 exactly; of the
   possible m the one with the least squared error, weighted with the mean square of the channel that a weight
   multiplies. An average pool's result gets the step that makes its m exact, if it need not share one.
4. Biases: round(b / (sx * sw)), with what rounding the weights shifts the mean of each channel by added (bias
   correction after Nagel et al. 2019, section 4.2, with the means of the calibration data).

Channels are equalised across layers before (`equalise`). How strongly, and which of several ways to choose ranges
(`calibrate`), is decided by how often a classifier then decides as in float, and by the signal-to-noise ratio at the
outputs, over the calibration data.

Weights of a layer have one step, as the multiplier is a field of the instruction (docs/isa.md), or on chips with
`core.channel_scales` one for each filter: whichever is better. Where nothing but ReLU lies between two layers,
equalisation does much of what steps by filter do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..graph import Graph, Picture
from ..layers import WorkloadError
from .calibrate import BEST, FILE, RAREST, Feeds, Range, measure, run_all
from .calibrate import ranges as ranges_of
from .dequantised import in_real_numbers
from .dequantising.pairs import cut_between, ranges_of_pairs, read_rounded, with_cuts_in_front
from .dequantising.wide import note_of_wide, without_wide_pairs
from .equalise import equalised
from .errors import OnnxError
from .floats import FloatNet, unit_of
from .host import HostPart, fold_for_units
from .load import bound, load_model
from .nearness import note_of
from .original import Original, check_float
from .outcome import Quantised, ends_of, report_of
from .pins import CUT, NOTHING, UNCUT, Pin, cut_off, saturating
from .rounding import Rounder
from .start import Start, looks_up
from .weight_errors import LayerWeights

if TYPE_CHECKING:
    from onnx import ModelProto

Calibration = Sequence[NDArray[np.floating] | Mapping[str, NDArray[np.floating]]]
#: Decibels at the outputs below which a file that cuts values off is also tried with that as layers of their own.
_POOR = 25.0
#: Exponents of the factors by which channels are equalised that are tried; 0 is not at all.
_STRENGTHS: Sequence[float] = (0.0, 0.5, 1.0)


def quantise(
    model: ModelProto | str | Path,
    calibration: Calibration,
    *,
    name: str = "",
    picture: Picture | None = None,
    labels: Sequence[str] = (),
    notes: Sequence[str] = (),
    real: bool = True,
    ranges: str = BEST,
    by_channel: bool = False,
) -> Graph:
    """The int8 network of a float ONNX model; layers have the names of the ONNX tensors that they make.

    `calibration`: float [1, C, H, W] (or [1, features]) inputs in the units that the model takes; mappings from input
    names if there are several inputs. `picture`: how bytes become the model's input, (byte - mean) / std; arithmetic
    with constants at the model's beginning is added to it. If `picture` is None, the model begins with such
    arithmetic and the calibration data are whole numbers of 0..255, the input is taken for a picture.

    `ranges`: how the ranges of tensors follow from their values, `max`, `mse`, `percentile:P` or the best of some
    (`calibrate.ranges`). `by_channel`: the chip has multipliers by channel, which are used where they are better.
    `real`: the weights are a network's; of those that are drawn no choice is better than the first, and no other one is
    tried.

    Raises UnsupportedError with all nodes that the chip cannot run; OnnxError when the file or the model is at fault,
    or the calibration data do not fit it; WorkloadError, naming the layer, when a scale, a bias or a sum does not fit.
    """
    arguments: dict[str, Any] = {"name": name, "picture": picture, "labels": labels, "notes": notes, "real": real}
    arguments |= {"ranges": ranges, "by_channel": by_channel}
    return quantise_with_report(model, calibration, **arguments).graph


def quantise_with_report(
    model: ModelProto | str | Path,
    calibration: Calibration,
    *,
    name: str = "",
    picture: Picture | None = None,
    labels: Sequence[str] = (),
    notes: Sequence[str] = (),
    real: bool = True,
    ranges: str = BEST,
    by_channel: bool = False,
    lacks: Collection[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Quantised:
    """As `quantise`, with how well it went. Sizes that the model leaves open are those of the calibration data.
    `lacks`: units that the chip's cores lack, which the host stands in for at the model's end (`host.fold_for_units`).
    `progress`: called before each of the ways that are compared, with its number and how many there are."""
    if isinstance(model, str | Path):
        name = name or Path(model).stem
        model = load_model(model)
    name = name or model.graph.name or "network"
    hows = ranges_of(ranges)
    data = _calibration(model, name, calibration)
    model = bound(model, {key: array.shape for key, array in data[0].items()}, {}, name)
    whole, said = model, notes
    model, wide = without_wide_pairs(whole)
    notes = (*said, note_of_wide(len(wide))) if wide else said
    own_file = model
    model, pins, own = in_real_numbers(model, name)
    picture_before = picture
    bytes_only = picture is not None or _bytes_only(data)
    file, rounding, reference = model, NOTHING, None
    if own is None and not pins:
        file, reference = own_file, None if model is whole else model
    if own is not None:
        reference = own.reference
        if not own.dynamic:
            file, rounding = own.reference, own.rounding
    elif pins:
        pairs = "1 pair of QuantizeLinear and DequantizeLinear around an activation is"
        if len(pins) > 1:
            pairs = f"{len(pins)} pairs of QuantizeLinear and DequantizeLinear around activations are"
        notes = (*notes, f"{pairs} taken out.")
    start = None
    if looks_up(model):
        start = Start(model, name, data)
        model = reference = start.rest
        data = [start.run(item) for item in data]
        file, rounding = model, NOTHING
        notes = (*notes, *filter(None, [start.note]))
    cuts = pins if own is not None else read_rounded(own_file, pins)
    net = fold_for_units(model, name, normalised=bytes_only, cuts=cuts, lacks=lacks)
    if picture is None and net.normalise and not _may_be_picture(net):
        net = fold_for_units(model, name, normalised=False, cuts=cuts, lacks=lacks)
    picture = _picture(net, picture)
    data = _as_values(net, data)
    beyond = _beyond(whole, net, data) if start is None else set[str]()

    def cut_apart() -> Quantised:
        return quantise_with_report(
            with_cuts_in_front(whole, beyond), calibration, name=name, picture=picture_before, labels=labels,
            notes=said, real=real, ranges=ranges, by_channel=by_channel, lacks=lacks, progress=progress,
        )  # fmt: skip

    if beyond.intersection(wide) and _runs((other := cut_apart()).graph, lacks):
        return other
    feeds: list[Feeds] = [{key: net.feed(key, array) for key, array in item.items()} for item in data]
    if net.cuts and file is model:
        file, rounding = cut_between(model, net)
    try:
        check_float(file, net, data, feeds, rounding)
    except OnnxError:
        if not beyond:
            raise
        return cut_apart()
    if ranges == BEST and any(layer.by == "mean" for layer in net.layers):
        hows = (*hows, RAREST)
    about = {"labels": tuple(labels), "real": real, "notes": (*notes, *net.notes), "picture": picture}
    ends = ends_of(own_file if reference is None else reference, net, data)
    tables = "core.vec_table" not in lacks
    best = _best(net, feeds, ends, hows, picture, pins, about, by_channel, tables, progress or (lambda way, ways: None))
    if beyond and best.snr_db < _POOR:
        with suppress(WorkloadError):
            if (other := cut_apart()).snr_db > best.snr_db and _runs(other.graph, lacks):
                return other
        if not tables:
            stay = (
                f"The file cuts off values of {len(beyond)} tensors beyond their ranges; that takes tables, which the "
                "chip's cores lack (core.vec_table), so these values stay."
            )
            best = replace(best, graph=replace(best.graph, notes=(*best.graph.notes, stay)))
    host = HostPart(model, net.origins, name)
    graph = best.graph
    if real and (loss := best.loss):
        graph = replace(graph, notes=(*graph.notes, loss))
    return replace(
        best, graph=graph, sources=net.inputs, host=host if host.outputs else None, start=start,
        reference=reference, numbers={} if own is None else own.inputs, normalise=net.normalise,
    )  # fmt: skip


def _best(
    net: FloatNet,
    feeds: list[Feeds],
    ends: Sequence[Feeds],
    hows: Sequence[Range],
    picture: Picture | None,
    pins: dict[str, Pin],
    about: Mapping[str, Any],
    by_channel: bool,
    tables: bool,
    progress: Callable[[int, int], None],
) -> Quantised:
    """The best of all choices; with the file's own scales, if it has any that the chip can have. Where it has one for
    each channel of some weights and the chip (not `by_channel`) has not, the better one of these and others.
    `ends`: the file's own results; `tables`: whether the chip has any."""
    best: Quantised | None = None
    refusal: WorkloadError | None = None
    truth = run_all(net, feeds)
    statistics = measure(net, feeds)
    saturated: dict[str, Pin] = {}
    if pins:
        saturated = saturating(net, statistics, pins)
        if saturated:
            cut_off(net, statistics, pins, Rounder(net, statistics, picture=picture, pins=pins).step, tables)
            truth, statistics = run_all(net, feeds), measure(net, feeds)
        try:
            rounder = Rounder(net, statistics, picture=picture, pins=pins, by_channel=by_channel)
            graph = replace(rounder.graph(), **about)
        except WorkloadError as error:
            refusal, own = error, f"do not fit the chip ({error})"
        else:
            graph = replace(graph, notes=(*graph.notes, note_of(net, rounder)))
            best = report_of(graph, rounder, truth, ends, 0.0, FILE)
            most = len if by_channel else _single
            if all(most(some[0].weights) for name, some in rounder.pins.items() if name in rounder.weight_steps):
                return best
            several = any(len(pin.weights) > 1 for pin in pins.values())
            own = f"are worse on the chip{', since some weights have one for each channel' if several else ''}"
        if saturated:  # with the file's scales still, or else they would not saturate
            saturated |= {name: pin for name, pin in pins.items() if name.endswith((UNCUT, CUT))}
            cut_off(net, statistics, pins, Rounder(net, statistics, picture=picture, pins=saturated).step, tables)
            truth, statistics = run_all(net, feeds), measure(net, feeds)
        but = ", but where it saturates" if saturated else ""
        about = {**about, "notes": (*about["notes"], f"Tensors have other scales than in the file{but}: those {own}.")}
    real = bool(about["real"])  # no choice is better for weights that are drawn
    ways = list(product(hows, (False, True) if by_channel else (False,))) if real else [(hows[0], by_channel)]
    strengths = _STRENGTHS if real else _STRENGTHS[:1]
    for turn, strength in enumerate(strengths):
        trial, trial_truth, trial_statistics = net, truth, statistics
        if strength:
            trial = equalised(net, statistics, strength)
            trial_truth, trial_statistics = run_all(trial, feeds), measure(trial, feeds)
        weights: dict[str, LayerWeights] = {}
        for way, (how, each) in enumerate(ways, turn * len(ways)):
            progress(way + 1, len(strengths) * len(ways))
            try:
                rounder = Rounder(
                    trial, trial_statistics, how, picture=picture, pins=saturated, by_channel=each, weights=weights
                )
                graph = replace(rounder.graph(), **about)
            except WorkloadError as error:  # another choice may do
                refusal = refusal or error
                continue
            report = report_of(graph, rounder, trial_truth, ends, strength, how)
            if best is None or _rank(report) > _rank(best):
                best = report
    if best is None:
        assert refusal is not None
        raise refusal
    return best


def _beyond(model: ModelProto, net: FloatNet, data: Sequence[Feeds]) -> set[str]:
    """What the file's QuantizeLinears make of activations that have values beyond its range, by what 8 bits tell."""
    ranges = ranges_of_pairs(model)
    if not ranges:
        return set()
    original = Original(model, net.name, [x for x, *_ in ranges.values()], net.inputs)
    seen: list[Mapping[str, NDArray[Any]]] = [{**item, **original.run(item)} for item in data]
    beyond: set[str] = set()
    for name, (x, low, high) in ranges.items():
        least, most = (end([end(item[x]) for item in seen if x in item]) for end in (np.min, np.max))
        if max(low - least, most - high) > (high - low) / 512:
            beyond.add(name)
    return beyond


def _runs(graph: Graph, lacks: Collection[str]) -> bool:
    """Whether no layer needs a unit that cores lack."""
    return all(unit_of(layer) not in lacks for layer in graph.layers)


def _single(scales: Sequence[float]) -> bool:
    return len(scales) == 1


# -- calibration data -------------------------------------------------------------------------------------------


def _calibration(model: ModelProto, name: str, items: Calibration) -> list[dict[str, NDArray[np.floating]]]:
    """The data as mappings. Raises OnnxError when there are none or they have other names or types."""
    initializers = {item.name for item in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in initializers]
    if not items:
        raise OnnxError(f"{name}: no calibration data; give at least one input")
    feeds: list[dict[str, NDArray[np.floating]]] = []
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            if len(inputs) != 1:
                raise OnnxError(f"{name}: has inputs {', '.join(inputs)}; calibration data must be mappings of them")
            item = {inputs[0]: item}
        if sorted(item) != sorted(inputs):
            raise OnnxError(f"{name}: calibration {index} has {', '.join(item)}, the model {', '.join(inputs)}")
        for key, array in item.items():
            is_array = isinstance(array, np.ndarray)  # pyright: ignore[reportUnnecessaryIsInstance]  (from outside)
            if not is_array or array.dtype.kind not in "fiub" or not np.all(np.isfinite(array)):
                raise OnnxError(f"{name}: calibration {index}: {key} must be an array of finite numbers")
        feeds.append(dict(item))
    return feeds


def _as_values(net: FloatNet, data: list[dict[str, NDArray[np.floating]]]) -> list[dict[str, NDArray[np.floating]]]:
    """The data as [1, C, H, W]; they may have the shape that the model's input has. Raises OnnxError for others."""
    arrays: list[dict[str, NDArray[np.floating]]] = []
    for index, item in enumerate(data):
        values: dict[str, NDArray[np.floating]] = {}
        for key, array in item.items():
            value = net.inputs[key].placed(array)
            if value is None:
                raise OnnxError(
                    f"{net.name}: calibration {index}: {key} has shape {list(array.shape)}, must be "
                    f"{list(net.inputs[key].shape)}"
                )
            values[key] = value
        arrays.append(values)
    return arrays


def _bytes_only(data: list[dict[str, NDArray[np.floating]]]) -> bool:
    return all(
        np.all((array >= 0) & (array <= 255) & (array == np.rint(array))) for item in data for array in item.values()
    )


def _may_be_picture(net: FloatNet) -> bool:
    return [source.size[0] in (1, 3) for source in net.inputs.values()] == [True]


def _picture(net: FloatNet, picture: Picture | None) -> Picture | None:
    """The given picture with the arithmetic at the model's beginning added to it."""
    if picture is None and not net.normalise:
        return None
    if len(net.inputs) != 1:
        raise OnnxError(f"{net.name}: has {len(net.inputs)} inputs; a picture can be the input of one")
    ((name, source),) = net.inputs.items()
    channels = source.size[0]
    if channels not in (1, 3):
        raise OnnxError(f"{net.name}: input {name!r} has {channels} channels; a picture has 3, or 1 if it is grey")
    if picture is None:
        picture = Picture("RGB" if channels == 3 else "L", (0.0,) * channels, (1.0,) * channels)
    if not len(picture.mean) == len(picture.std) == channels:
        raise OnnxError(f"{net.name}: input {name!r} has {channels} channels, the picture {len(picture.mean)}")
    if name not in net.normalise:
        return picture
    # gain * (byte - mean) / std + offset
    gain, offset = net.normalise[name]
    mean, std = np.array(picture.mean), np.array(picture.std)
    return replace(picture, mean=tuple((mean - offset * std / gain).tolist()), std=tuple((std / gain).tolist()))


def _rank(report: Quantised) -> tuple[float, float]:
    """What is sought: the float network's decisions, if it decides anything; then little noise."""
    first = report.graph.value(report.graph.outputs[0])
    decides = first.channels > 1 and first.height == first.width == 1
    return report.agreement if decides else 0.0, report.snr_db
