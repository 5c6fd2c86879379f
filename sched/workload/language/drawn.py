"""Language models of any size with weights drawn at random: for what depends on a model's shape alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .model import LanguageModel, model_of

VOCABULARY = "abcdefgh"
#: Characters of each of its texts, which are drawn too.
_TEXT = 64


def entries(
    width: int = 16, heads: int = 2, context: int = 16, layers: int = 1, hidden: int = 2, experts: int = 0, top: int = 0
) -> dict[str, NDArray[Any]]:
    """The entries of a file of such a model, of 8 characters and with `hidden` times its width between the two products
    of a layer, or of each of its `experts`. The same sizes give the same numbers."""
    draw = np.random.RandomState(0)

    def weights(*shape: int, gain: float = 1.0) -> NDArray[Any]:
        return (draw.standard_normal(shape) * gain / np.sqrt(shape[-1])).astype(np.float16)

    text = "".join(draw.choice(list(VOCABULARY), _TEXT))
    arrays: dict[str, NDArray[Any]] = {
        "embedding": weights(len(VOCABULARY), width, gain=3), "output": weights(len(VOCABULARY), width, gain=3),
        "position": weights(context, width), "vocabulary": np.array(VOCABULARY),
        "heads": np.array(heads), "calibration": np.array(text), "held_out": np.array(text[::-1]),
    }  # fmt: skip
    for layer in range(layers):
        arrays |= {f"{layer}/{name}.weight": weights(width, width, gain=2) for name in "qkvo"}
        if experts:
            arrays[f"{layer}/router.weight"] = weights(experts, width)
            arrays[f"{layer}/up.weight"] = weights(experts, hidden * width, width)
            arrays[f"{layer}/down.weight"] = weights(experts, width, hidden * width)
            arrays["top"] = np.array(top)
            continue
        arrays |= {f"{layer}/up.weight": weights(hidden * width, width)}
        arrays[f"{layer}/up.bias"] = weights(hidden * width)
        arrays |= {f"{layer}/down.weight": weights(width, hidden * width), f"{layer}/down.bias": weights(width)}
    return arrays


def drawn_model(
    width: int, heads: int, context: int, layers: int, hidden: int, experts: int = 0, top: int = 0
) -> LanguageModel:
    """A model of this shape. Raises LanguageError for one that is none."""
    arrays = entries(width, heads, context, layers, hidden, experts, top)
    return model_of(f"random{width}", arrays, f"a drawn model of width {width}")
