"""Small language models with random weights, as entries of a file and as what is read of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.language.model import LanguageModel, model_of

VOCABULARY = "abcdefgh"


def entries(width: int = 16, heads: int = 2, context: int = 16, layers: int = 1) -> dict[str, NDArray[Any]]:
    """The entries of a model of 8 characters; texts are random, too."""
    draw = np.random.RandomState(0)

    def weights(*shape: int, gain: float = 1.0) -> NDArray[Any]:
        return (draw.standard_normal(shape) * gain / np.sqrt(shape[-1])).astype(np.float16)

    text = "".join(draw.choice(list(VOCABULARY), 64))
    arrays: dict[str, NDArray[Any]] = {
        "embedding": weights(8, width, gain=3), "output": weights(8, width, gain=3),
        "position": weights(context, width), "vocabulary": np.array(VOCABULARY),
        "heads": np.array(heads), "calibration": np.array(text), "held_out": np.array(text[::-1]),
    }  # fmt: skip
    for layer in range(layers):
        arrays |= {f"{layer}/{name}.weight": weights(width, width, gain=2) for name in "qkvo"}
        arrays |= {f"{layer}/up.weight": weights(2 * width, width), f"{layer}/up.bias": weights(2 * width)}
        arrays |= {f"{layer}/down.weight": weights(width, 2 * width), f"{layer}/down.bias": weights(width)}
    return arrays


def random_model() -> LanguageModel:
    return model_of("random", entries(), "random.npz")
