"""What ONNX Runtime says of tokens by a decoder's file itself, whatever is read of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..onnx.runtime import on_one_thread
from ..onnx.validity import one_line
from .model import LanguageError, Reals

_TYPES = {
    "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32, "tensor(float16)": np.float16,
    "tensor(bool)": np.bool_,
}  # fmt: skip
_SCORES = "logits"


def scores(path: Path, tokens: NDArray[np.int64]) -> Reals:
    """Scores [tokens, V] of a text from its beginning on, or of its last tokens alone. Raises LanguageError."""
    try:
        session: Any = on_one_thread(path)
        given = {value.name: value for value in session.get_inputs()}
        unknown = [name for name, value in given.items() if _feed(name, value, tokens) is None]
        if unknown or _SCORES not in (value.name for value in session.get_outputs()):
            what = f"an input {unknown[0]!r}, which is not known here" if unknown else f"no output {_SCORES!r}"
            raise LanguageError(
                f"{path}: has {what}; export it as a language model (optimum-cli export onnx --task "
                "text-generation-with-past)"
            )
        feeds = {name: _feed(name, value, tokens) for name, value in given.items()}
        (result,) = session.run([_SCORES], feeds)
    except LanguageError:
        raise
    except Exception as error:  # its exceptions have no base of their own
        raise LanguageError(
            f"{path}: ONNX Runtime cannot run it ({one_line(error)}); take another of its variants, best model.onnx in "
            "floating point"
        ) from error
    return np.asarray(result, np.float32).reshape(-1, result.shape[-1])


def _feed(name: str, value: Any, tokens: NDArray[np.int64]) -> NDArray[Any] | None:
    """An input of a text with nothing before it; None of one that is not known."""
    count, kind = len(tokens), _TYPES.get(value.type)
    if kind is None:
        return None
    if name == "input_ids":
        return tokens[None].astype(kind)
    if name == "attention_mask":
        return np.ones((1, count), kind)
    if name in ("position_ids", "cache_position"):
        return np.arange(count, dtype=kind).reshape((1,) * (len(value.shape) - 1) + (count,))
    if name == "token_type_ids":
        return np.zeros((1, count), kind)
    if name == "use_cache_branch":
        return np.zeros(1, kind)
    if name == "num_logits_to_keep":
        return np.zeros((1,) * len(value.shape), kind)
    if "past" not in name and "cache" not in name:
        return None
    sizes = [size if isinstance(size, int) else int(axis == 0) for axis, size in enumerate(value.shape)]
    return np.zeros(sizes, kind)
