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

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph import Graph, Picture
from ..layers import WorkloadError
from .calibrate import BEST, RAREST, Feeds
from .calibrate import ranges as ranges_of
from .calibration_data import Calibration, Inputs, as_values, checked_data, has_bytes_alone, may_be_picture, picture_of
from .choice import Choice
from .dequantised import in_real_numbers
from .dequantising.pairs import cut_between, ranges_of_pairs, read_rounded, with_cuts_in_front
from .dequantising.wide import note_of_wide, without_wide_pairs
from .errors import OnnxError
from .floats import FloatNet, unit_of
from .host import HostPart, fold_for_units
from .load import bound, load_model
from .original import Original, check_float
from .outcome import Quantised, ends_of
from .pins import NOTHING
from .start import Start, looks_up

if TYPE_CHECKING:
    from onnx import ModelProto

#: Decibels at the outputs below which a file that cuts values off is also tried with that as layers of their own.
_POOR = 25.0


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
    terms = _Terms(
        name=name, picture=picture, labels=labels, notes=notes, real=real, ranges=ranges, by_channel=by_channel,
        lacks=lacks, progress=progress,
    )  # fmt: skip
    data = checked_data(model, name, calibration)
    model = bound(model, {key: array.shape for key, array in data[0].items()}, {}, name)
    return _Attempt(model, data, terms).result()


@dataclass(frozen=True, kw_only=True)
class _Terms:
    """What is asked for, as `quantise_with_report` is told it."""

    name: str
    picture: Picture | None
    labels: Sequence[str]
    notes: Sequence[str]
    real: bool
    ranges: str
    by_channel: bool
    lacks: Collection[str]
    progress: Callable[[int, int], None] | None


class _Attempt:
    """One attempt to quantise a model: what is read of it, what that is compared with, and what is chosen for it. A
    file that cuts values off in 8 bits is attempted a second time, with that as layers of their own, where the first
    attempt misses its numbers.

    `file`: the model, whose inputs have sizes; `given`: inputs that it is calibrated with."""

    def __init__(self, file: ModelProto, given: Sequence[Inputs], terms: _Terms) -> None:
        self._file, self._given, self._terms, self._name = file, given, terms, terms.name
        self._ranges = ranges_of(terms.ranges)
        self._own_file, self._wide = without_wide_pairs(file)
        self._model, self._pins, self._own = in_real_numbers(self._own_file, self._name)
        self._start = Start(self._model, self._name, given) if looks_up(self._model) else None
        data = given
        if self._start is not None:
            self._model, data = self._start.rest, [self._start.run(item) for item in given]
        self._net = self._fold()
        self._picture = picture_of(self._net, terms.picture)
        self._data = as_values(self._net, data)
        self._feeds: list[Feeds] = [
            {key: self._net.feed(key, array) for key, array in item.items()} for item in self._data
        ]

    def result(self) -> Quantised:
        """The network. Raises what `quantise` raises."""
        if self._beyond.intersection(self._wide) and _runs((other := self._cut_apart()).graph, self._terms.lacks):
            return other
        try:
            self._check()
        except OnnxError:
            if not self._beyond:
                raise
            return self._cut_apart()
        best = self._choose()
        if self._beyond and best.snr_db < _POOR:
            if (other := self._better_cut_apart(best)) is not None:
                return other
            best = self._with_values_that_stay(best)
        return self._completed(best)

    # -- what is read -------------------------------------------------------------------------------------------

    def _fold(self) -> FloatNet:
        """The model's network, which is normalised only where its input may be a picture."""
        cuts = self._pins if self._own is not None else read_rounded(self._own_file, self._pins)
        normalised = self._terms.picture is not None or has_bytes_alone(self._given)
        net = fold_for_units(self._model, self._name, normalised=normalised, cuts=cuts, lacks=self._terms.lacks)
        if self._terms.picture is None and net.normalise and not may_be_picture(net):
            net = fold_for_units(self._model, self._name, normalised=False, cuts=cuts, lacks=self._terms.lacks)
        return net

    @property
    def _reference(self) -> ModelProto | None:
        """The model whose results the network's are compared with; None if that is the one that was given."""
        if self._start is not None:
            return self._start.rest
        if self._own is not None:
            return self._own.reference
        return None if self._pins or self._own_file is self._file else self._model

    @property
    def _notes(self) -> list[str]:
        """What was done to the file, in sentences for people."""
        notes = list(self._terms.notes)
        if self._wide:
            notes.append(note_of_wide(len(self._wide)))
        if self._own is None and self._pins:
            many = len(self._pins) > 1
            pairs = f"{len(self._pins)} pairs" if many else "1 pair"
            around = f"around {'activations are' if many else 'an activation is'} taken out."
            notes.append(f"{pairs} of QuantizeLinear and DequantizeLinear {around}")
        if self._start is not None and self._start.note:
            notes.append(self._start.note)
        return [*notes, *self._net.notes]

    def _check(self) -> None:
        """Compares every layer with what ONNX Runtime computes of the file, as far as that has real numbers. Raises
        OnnxError."""
        model, rounding = self._model, NOTHING
        if self._start is None and self._own is None and not self._pins:
            model = self._own_file
        elif self._start is None and self._own is not None and not self._own.dynamic:
            model, rounding = self._own.reference, self._own.rounding
        if self._net.cuts and model is self._model:
            model, rounding = cut_between(model, self._net)
        check_float(model, self._net, self._data, self._feeds, rounding)

    # -- what is chosen -----------------------------------------------------------------------------------------

    def _choose(self) -> Quantised:
        terms, reference = self._terms, self._reference
        ends = ends_of(self._own_file if reference is None else reference, self._net, self._data)
        about: dict[str, Any] = {
            "labels": tuple(terms.labels), "real": terms.real, "notes": tuple(self._notes), "picture": self._picture,
        }  # fmt: skip
        choice = Choice(
            self._net, self._feeds, ends, self._picture, self._pins, about, terms.by_channel, self._has_tables
        )
        ranges = self._ranges
        if terms.ranges == BEST and any(layer.by == "mean" for layer in self._net.layers):
            ranges = (*ranges, RAREST)
        return choice.best(ranges, terms.progress or (lambda way, ways: None))

    @property
    def _has_tables(self) -> bool:
        return "core.vec_table" not in self._terms.lacks

    def _completed(self, best: Quantised) -> Quantised:
        """With what runs on the host, and how the model's inputs become the network's."""
        host = HostPart(self._model, self._net.origins, self._name)
        graph = best.graph
        if self._terms.real and (loss := best.loss):
            graph = replace(graph, notes=(*graph.notes, loss))
        numbers = {} if self._own is None else self._own.inputs
        return replace(
            best, graph=graph, sources=self._net.inputs, host=host if host.outputs else None, start=self._start,
            reference=self._reference, numbers=numbers, normalise=self._net.normalise,
        )  # fmt: skip

    # -- values beyond a file's ranges --------------------------------------------------------------------------

    @cached_property
    def _beyond(self) -> set[str]:
        """What the file's QuantizeLinears make of activations that have values beyond its range, by what 8 bits
        tell."""
        ranges = ranges_of_pairs(self._file) if self._start is None else {}
        if not ranges:
            return set()
        original = Original(self._file, self._name, [x for x, *_ in ranges.values()], self._net.inputs)
        seen = [{**item, **original.run(item)} for item in self._data]
        beyond: set[str] = set()
        for name, (x, low, high) in ranges.items():
            least, most = (end([end(item[x]) for item in seen if x in item]) for end in (np.min, np.max))
            if max(low - least, most - high) > (high - low) / 512:
                beyond.add(name)
        return beyond

    def _cut_apart(self) -> Quantised:
        """The second attempt: what the file cuts off are layers of their own."""
        return _Attempt(with_cuts_in_front(self._file, self._beyond), self._given, self._terms).result()

    def _better_cut_apart(self, best: Quantised) -> Quantised | None:
        with suppress(WorkloadError):
            if (other := self._cut_apart()).snr_db > best.snr_db and _runs(other.graph, self._terms.lacks):
                return other
        return None

    def _with_values_that_stay(self, best: Quantised) -> Quantised:
        """Says so of a chip that cannot cut values off."""
        if self._has_tables:
            return best
        stay = (
            f"The file cuts off values of {len(self._beyond)} tensors beyond their ranges; that takes tables, which "
            "the chip's cores lack (core.vec_table), so these values stay."
        )
        return replace(best, graph=replace(best.graph, notes=(*best.graph.notes, stay)))


def _runs(graph: Graph, lacks: Collection[str]) -> bool:
    """Whether no layer needs a unit that cores lack."""
    return all(unit_of(layer) not in lacks for layer in graph.layers)
