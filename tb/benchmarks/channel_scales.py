"""What a scale for each channel of the weights is worth, in trained files with weights of 8 bits, and take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.workload.onnx.calibrate import Statistics, measure, run_all
from meshloom.sched.workload.onnx.equalise import equalised
from meshloom.sched.workload.onnx.floats import FloatLayer, FloatNet
from meshloom.sched.workload.onnx.host import fold_to_end

from ..build.synthesis import Area
from ..report.console import percent
from ..results.events import OnEvent, Stage
from ..studies.networks.file_cases import FILES, ModelFile
from .area import component_area
from .results import Result, Sheet
from .scale_stage import SHIFT_BITS, By, ScaleStage

#: Channels of a word on quad16, which one instruction computes with one multiplier.
WORD = 16
#: Filters of a depthwise layer with a power of two of their own, beside all with one step or each with one.
SHIFTED = "shifted"
#: The chip whose units are synthesised: those of larger ones take long.
UNITS_OF = "tiny"
#: Of a model that begins on the host, and one that takes minutes.
_LEFT_OUT = {"sentence_embedding", "letter_boxes"}
#: Shares of the largest weight at which clipping is tried, as the quantiser does.
_CLIPS = np.linspace(0.5, 1, 48)

Tensors = Sequence[Mapping[str, NDArray[np.float32]]]


def rounded(w: NDArray[np.float64], weight: NDArray[np.float64], together: int) -> NDArray[np.float64]:
    """Weights [O, ...] with 8 bits: one step for each `together` filters, those of like range, the one with the least
    squared error, weighted with `weight` (that broadcasts to them)."""
    found = np.zeros_like(w)
    power = np.broadcast_to(weight, w.shape)
    order = np.argsort(np.abs(w).reshape(len(w), -1).max(axis=1), kind="stable")
    for first in range(0, len(w), together):
        some = order[first : first + together]
        part, full = w[some], float(np.abs(w[some]).max()) / 127
        best = np.inf
        for share in _CLIPS if full else ():
            tried = np.clip(np.rint(part / (full * share)), -127, 127) * (full * share)
            error = float((power[some] * (tried - part) ** 2).sum())
            if error < best:
                best, found[some] = error, tried
    return found


def shifted(w: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """As `rounded` with one step for all filters, each of which is multiplied by a power of two before, as far as it
    fits, and divided by it behind."""
    ranges = np.abs(w).reshape(len(w), -1).max(axis=1)
    free = np.floor(np.log2(np.divide(ranges.max(), ranges, out=np.ones_like(ranges), where=ranges > 0)))
    factor = (2.0 ** np.clip(free, 0, 2**SHIFT_BITS - 1))[:, None, None, None]
    return rounded(w * factor, np.broadcast_to(weight, w.shape) / factor**2, len(w)) / factor


def with_rounded_weights(net: FloatNet, statistics: Mapping[str, Statistics], together: int | str) -> FloatNet:
    """The network with weights of 8 bits, everything else as it is. `together`: channels with one step; 0: all;
    `SHIFTED`: all, and filters of depthwise layers are `shifted`."""

    def layer_of(layer: FloatLayer) -> FloatLayer:
        if layer.w is None or layer.bias is None or layer.moves:
            return layer
        x = statistics[layer.inputs[0]]
        depthwise = layer.kind == "depthwise"
        weight = x.square[:, None, None, None] if depthwise else x.square[None, :, None, None]
        if together == SHIFTED and depthwise:
            w = shifted(layer.w, weight)
        else:
            w = rounded(layer.w, weight, (together if isinstance(together, int) else 0) or len(layer.w))
        lost = (layer.w - w).sum(axis=(2, 3))  # bias correction, as in `rounding`
        shift = lost[:, 0] * x.mean if depthwise else lost @ x.mean
        return replace(layer, w=w, bias=layer.bias + shift)

    return replace(net, layers=[layer_of(layer) for layer in net.layers])


def noise(net: FloatNet, truth: Tensors, found: Tensors) -> float:
    """The worst signal-to-noise ratio of an output, in dB."""
    ratios: list[float] = []
    for output in dict.fromkeys(net.outputs):
        exact = np.stack([one[output].astype(np.float64) for one in truth])
        off = np.stack([one[output].astype(np.float64) for one in found]) - exact
        ratios.append(float(10 * np.log10((exact**2).sum() / max(float((off**2).sum()), 1e-30))))
    return min(ratios)


def measured(case: ModelFile) -> tuple[str, ...]:
    """A row. Raises PackageError."""
    net = fold_to_end(case.model(), case.name, normalised=False)
    ((name, source),) = net.inputs.items()
    arrays = [array for array, _ in case.inputs(case.tests, case.calibration) if isinstance(array, np.ndarray)]
    feeds = [{name: net.feed(name, source.value(array))} for array in arrays]
    truth, statistics = run_all(net, feeds), measure(net, feeds)
    found = {each: noise(net, truth, _run(net, statistics, each, feeds)) for each in (0, WORD, SHIFTED, 1)}
    best = found[0]
    for strength in (0.5, 1.0):
        trial = equalised(net, statistics, strength)
        own = run_all(trial, feeds)
        best = max(best, noise(trial, own, _run(trial, measure(trial, feeds), 0, feeds)))
    numbers = (found[0], best, found[WORD], found[SHIFTED], found[1])
    return case.name, *(f"{number:.1f} dB" for number in numbers)


def _run(net: FloatNet, statistics: Mapping[str, Statistics], together: int | str, feeds: Tensors) -> Tensors:
    return run_all(with_rounded_weights(net, statistics, together), feeds)


def _areas(on_progress: OnEvent) -> Sheet:
    """What the last stage of the vector unit, and of the drain, takes."""
    names: Mapping[By, str] = {
        "instruction": "one multiplier for all lanes",
        "shift": f"and a power of two of {SHIFT_BITS} bits for each lane, in its bias",
        "lane": "a multiplier for each lane, in a word of its own",
    }
    rows: list[tuple[str, ...]] = []
    first = 0
    for by, name in names.items():
        on_progress(Stage(workload="a lane", what=f"synthesising {name}"))
        found = component_area(f"scale-{by}", ScaleStage(1, by))
        first = first or found.cells
        more = percent(100 * (found.cells - first) / first, sign="+", digits=1) if rows else ""
        rows.append((name, f"{found.cells:,}", f"{found.flip_flops:,}", more))
    columns = ("lanes have", "cells>", "of them flip-flops>", "more>")
    return Sheet("A lane of the stage that scales and rounds (Yosys `synth`, generic cells)", columns, rows)


def _built(on_progress: OnEvent) -> Sheet:
    """What chips with multipliers by channel pay."""
    from meshloom.hw.core.drain import Drain
    from meshloom.hw.core.vector import VectorUnit

    plain = load(UNITS_OF)
    units = {
        "drain": (f"drain path, {plain.cols} columns", Drain),
        "vector": (f"vector unit, {plain.lanes} lanes", VectorUnit),
    }
    rows: list[tuple[str, ...]] = []
    for unit, (name, design) in units.items():
        areas: list[Area] = []
        for each, said in ((False, "off"), (True, "on")):
            on_progress(Stage(workload=name, what=f"synthesising with channel_scales {said}"))
            core = plain.core.model_dump() | {"channel_scales": each}
            chip = ChipConfig.model_validate(plain.model_dump() | {"core": core})
            areas.append(component_area(f"{unit}-{plain.name}-{said}", design(chip)))
        one, own = areas
        more = percent(100 * (own.cells - one.cells) / one.cells, sign="+", digits=1)
        flip_flops = f"{own.flip_flops - one.flip_flops:+,}"
        rows.append((name, f"{one.cells:,}", f"{own.cells:,}", more, flip_flops))
    columns = ("unit", "cells with one multiplier>", "with one for each>", "more>", "flip-flops more>")
    return Sheet(f"As built (Yosys `synth`, generic cells; units of {UNITS_OF}, without memories)", columns, rows)


def run(on_progress: OnEvent) -> Result:
    """All files, one after the other."""
    rows: list[tuple[str, ...]] = []
    for case in FILES:
        if case.name not in _LEFT_OUT:
            on_progress(Stage(workload=case.name, what="rounding weights"))
            rows.append(measured(case))
    columns = (
        "file", "a step for a layer>", "equalised>", f"a step for {WORD} channels>", "depthwise, shifted>",
        "a step for a channel>",
    )  # fmt: skip
    return Result(
        "channel_scales",
        "Weights with a scale for each channel",
        "Trained files of `meshloom bench files`: the worst output's signal-to-noise ratio over the calibration data, "
        "if nothing but the weights is rounded to 8 bits (with activations rounded, too, and on the RTL: "
        "`meshloom bench files`). Where an instruction has one multiplier for all channels that it computes, the "
        "quantiser has one step for a layer, and makes channels alike before (equalised: the best of three strengths). "
        f"A step for {WORD} channels, those of like range, is what a multiplier for each word would allow; a step for "
        "each channel needs one for each lane, which chips with `core.channel_scales` read from ACC beside the bias. "
        f"Shifted (not built): the highest {SHIFT_BITS} bits of a depthwise filter's bias say by which power of "
        "two its sum is multiplied before the one multiplier, so that filters of small range have finer steps, without "
        "a word more. What either takes: the stage that scales and rounds, of which the vector unit and the drain have "
        "one each; then both as they are built, with biases that are kept while multipliers are read.",
        (Sheet("Noise of rounded weights", columns, rows), _areas(on_progress), _built(on_progress)),
    )
