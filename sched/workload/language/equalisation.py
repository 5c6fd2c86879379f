"""Channels much larger than their neighbours, made alike before a model becomes integers.

A tensor has one step, so a channel that reaches a hundred times as far as the others leaves these few integers. Where
nothing but products follows, a channel can be made smaller and its weights in the next product larger by as much: in
floating point that says the same (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
Correction", 2019, section 4.1). Each channel here reaches as far, over the calibration text, as the largest of the
weights that read it; of queries, as the keys that they meet. Heads that share keys and values share their factors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import reference
from .model import LanguageModel, Reals, check_reach

#: Part of the largest channel's reach that each is taken to have at least: one that was never used may be later.
_LEAST = 1e-3


def equalised(model: LanguageModel) -> LanguageModel:
    """A model without experts that says the same. Its arrays are taken over: those of `model` are no longer its own.
    Raises LanguageError for one whose numbers grow beyond floats."""
    reach = _reach(model)
    with np.errstate(all="ignore"):  # what overflows is refused below
        _equalise(model, reach, model.arrays)
    for name, array in model.arrays.items():
        check_reach(f"model {model.name}", name, array)
    return model


def _equalise(model: LanguageModel, reach: dict[str, Reals], arrays: dict[str, NDArray[Any]]) -> None:
    """Multiplies what is in `arrays`."""
    for layer in range(model.layers):
        q, k = (_of_pairs(model, layer, reach[f"{layer}/{name}"]) for name in "qk")
        by_head = (model.groups, model.sharing, model.head_width)
        by = _factors(q.reshape(by_head).max(axis=1).reshape(-1), k)
        _multiply(arrays, f"{layer}/q", by.reshape(model.groups, -1).repeat(model.sharing, axis=0).reshape(-1))
        _multiply(arrays, f"{layer}/k", np.reciprocal(by))
        pairs = [("v", "v", "o", model.sharing)]
        if model.gated or model.activation == "relu":  # which keep a positive factor
            pairs.append(("hidden", "up", "down", 1))
        for tensor, first, second, readers in pairs:
            weights = arrays[f"{layer}/{second}.weight"]
            by = _factors(reach[f"{layer}/{tensor}"], np.abs(weights).max(axis=0).reshape(readers, -1).max(axis=0))
            _multiply(arrays, f"{layer}/{first}", by)
            weights /= np.tile(by, readers)


def _reach(model: LanguageModel) -> dict[str, Reals]:
    """The largest value of each channel over the calibration text, by tensor."""
    largest: dict[str, Reals] = {}

    def watch(name: str, value: Reals) -> None:
        if name.partition("/")[2] in ("q", "k", "v", "hidden"):
            most = np.abs(value).max(axis=0)
            largest[name] = np.maximum(largest[name], most) if name in largest else most

    tokens = model.tokens(model.calibration)
    for first in range(0, len(tokens), model.context):
        reference.scores(model, tokens[first : first + model.context], watch)
    return largest


def _of_pairs(model: LanguageModel, layer: int, reach: Reals) -> Reals:
    """The larger of both numbers that a rotary position turns into each other."""
    if (rotary := model.turn(layer)) is None:
        return reach
    heads, half = reach.reshape(-1, model.head_width).copy(), rotary.turned // 2
    larger = np.maximum(heads[:, :half], heads[:, half : 2 * half])
    heads[:, : 2 * half] = np.tile(larger, (1, 2))
    return heads.reshape(-1)


def _factors(reach: Reals, met: Reals) -> Reals:
    """What channels are multiplied by, 1 in the geometric mean, so that they reach as far as what they meet."""
    logs = np.log([np.maximum(each, max(_LEAST * each.max(), np.finfo(np.float32).tiny)) for each in (met, reach)])
    each = (logs[0] - logs[1]) / 2
    return np.exp(each - each.mean()).astype(np.float32)


def _multiply(arrays: dict[str, NDArray[Any]], name: str, by: Reals) -> None:
    """Multiplies the results of a product, behind its normalisation if it has one."""
    if f"{name}.gain" in arrays:
        arrays[f"{name}.gain"] *= by
        return
    arrays[f"{name}.weight"] *= by[:, None]
    if f"{name}.bias" in arrays:
        arrays[f"{name}.bias"] *= by
