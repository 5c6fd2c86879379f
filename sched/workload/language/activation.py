"""What is between the two products of a layer, of one number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]


def _relu(x: Numbers) -> Numbers:
    return np.maximum(x, 0)


def _silu(x: Numbers) -> Numbers:
    return x / (1 + np.exp(-np.clip(x, -80, 80)))


def _gelu(x: Numbers) -> Numbers:
    from scipy.special import erf

    return x * (1 + erf(x / np.sqrt(2))) / 2


def _gelu_tanh(x: Numbers) -> Numbers:
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


#: By name, as configurations of transformers have it.
ACTIVATIONS: Mapping[str, Callable[[Numbers], Numbers]] = {
    "relu": _relu,
    "silu": _silu,
    "swish": _silu,
    "gelu": _gelu,
    "gelu_new": _gelu_tanh,
    "gelu_fast": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
}
