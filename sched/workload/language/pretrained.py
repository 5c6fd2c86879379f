"""A language model of others: a folder that transformers' `save_pretrained` has written, a GGUF file, or an ONNX file
beside a configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode

from . import onnx_model
from .equalisation import equalised
from .families import FAMILIES, REFUSED
from .family import Family
from .form import DecoderWeights
from .gguf_file import SUFFIX, GgufFile
from .gguf_model import GgufModel
from .model import SHIPPED, LanguageError, LanguageModel, TokenError, check_reach
from .model import load as load_archive
from .stored import ModelFolder, StoredModel

#: Tokens that a model looks at if it could look at more and nothing else is asked for: caches and masks grow with them.
CONTEXT = 128
#: Weights of all products, at most: with as many Python takes some 4 GB.
MOST_WEIGHTS = 160_000_000
#: Keys of a token, and numbers of one between layers, that the vector unit takes as a row, at most.
LONGEST_ROW = INSTRUCTIONS[Opcode.GEMM].most("in_w")
#: Characters of a text that set the steps of integers, and of what follows that are for the perplexity, at most.
_CALIBRATION, _HELD_OUT = 4_096, 4_096


Accept = Callable[[LanguageModel], None]


def is_stored(name: str) -> bool:
    """Whether this names a model of others: a folder, or a file in it, a GGUF file or an ONNX file."""
    return ModelFolder.has(Path(name)) or Path(name).suffix.lower() in (SUFFIX, onnx_model.SUFFIX)


def _stored(path: Path) -> StoredModel:
    """Raises LanguageError."""
    if path.suffix.lower() == SUFFIX and not path.is_dir():
        return GgufModel(GgufFile(path))
    file = onnx_model.file_of(path)
    return onnx_model.OnnxModel(file) if file else ModelFolder(path)


def load(name: str, text: Path | None = None, context: int = 0, accept: Accept = lambda model: None) -> LanguageModel:
    """A model that ships, one in an archive (`model.load`), or one of others (`stored`).

    `text`: a file whose beginning sets the steps of such a model's integers, and whose rest is for its perplexity
    (None: the text of the model that ships); `context`: tokens that it looks at (0: as many as it can, at most
    `CONTEXT`). `accept`: looks at the model before anything is computed with it. Raises LanguageError, and what
    `accept` does.
    """
    if name in SHIPPED or not is_stored(name):
        if text is not None or context:
            raise LanguageError(
                f"{name}: has its text and its context in its own file; leave `calibrate` and `context` out"
            )
        model = load_archive(name)
        accept(model)
        return model
    if text is None:
        shipped = load_archive(SHIPPED[0])
        return of_stored(_stored(Path(name)), shipped.calibration, shipped.held_out, context, accept)
    try:
        words = text.read_text(encoding="utf-8")
    except OSError as error:
        raise LanguageError(
            f"{text}: cannot be read ({error.strerror}); name another text to calibrate with"
        ) from error
    except ValueError as error:
        raise LanguageError(f"{text}: is no text in UTF-8 ({error}); name another to calibrate with") from error
    half = min(len(words) // 2, _CALIBRATION)
    return of_stored(_stored(Path(name)), words[:half], words[half : half + _HELD_OUT], context, accept)


def of_folder(path: Path, calibration: str, held_out: str, context: int = 0) -> LanguageModel:
    """The model of a folder, or of the folder of a file. `calibration`, `held_out`: texts, see `LanguageModel`. Raises
    LanguageError."""
    return of_stored(ModelFolder(path), calibration, held_out, context)


def of_stored(
    stored: StoredModel, calibration: str, held_out: str, context: int = 0, accept: Accept = lambda model: None
) -> LanguageModel:
    """A model however it is stored, otherwise as `of_folder`. Raises LanguageError, and what `accept` does."""
    family = _family(stored)
    longest = min(family.longest, LONGEST_ROW)
    if longest < 2:
        raise LanguageError(f"{stored.table}: the model looks at one token, and a step at two; take another model")
    if context > longest or context == 1:
        raise LanguageError(
            f"{stored.table}: the model looks at {family.longest} tokens, a chip at {LONGEST_ROW}; take a context "
            f"of 2 to {longest}, not {context}"
        )
    context = context or min(longest, CONTEXT)
    decoder = family.decoder
    with np.errstate(all="ignore"):
        arrays = DecoderWeights(decoder, family.names, stored.weights(family)).arrays(context)
    for name, array in arrays.items():
        check_reach(stored.place, name, array)
    model = LanguageModel(
        stored.name,
        arrays,
        decoder.shape.heads,
        stored.tokenizer(),
        calibration,
        held_out,
        activation=decoder.activation,
        rotary=decoder.rotary,
        parallel=decoder.parallel,
        bare=decoder.bare,
        normed=decoder.normed,
        longest=context,
        reach=longest,
        gain=decoder.gain,
        score_cap=decoder.score_cap,
        output_cap=decoder.output_cap,
        epsilon=decoder.epsilon,
        ends=stored.ends(),
        slopes=decoder.slopes,
    )
    if model.width > LONGEST_ROW:
        raise LanguageError(
            f"{stored.table}: a token has {model.width} numbers between layers, of which a chip divides "
            f"{LONGEST_ROW} at most by their root mean square; take a narrower model"
        )
    if model.weights > MOST_WEIGHTS:
        raise LanguageError(
            f"{stored.place}: its products have {model.weights:,} weights, more than {MOST_WEIGHTS:,}; take a smaller "
            "model, or fewer layers of it"
        )
    accept(model)
    for text in (calibration, held_out):
        try:
            count = len(model.tokens(text))
        except TokenError as error:
            raise LanguageError(f"{error}; calibrate with a text like those that it was trained with") from error
        if count < 2:
            raise LanguageError(
                f"model {model.name}: the text {text[:20]!r} has fewer than two tokens; calibrate with a longer one"
            )
    stored.check(model)
    return equalised(model)


def _family(stored: StoredModel) -> Family:
    """The configuration. Raises LanguageError."""
    where, values = stored.table, stored.configuration()
    kind: Any = values.get("model_type")
    if kind in REFUSED:
        raise LanguageError(f"{where}: model_type is {kind!r}: {REFUSED[kind]}; take another model")
    if kind not in FAMILIES:
        raise LanguageError(
            f"{where}: model_type is {kind!r}; those that are read are {', '.join(sorted(FAMILIES))}. Others may run "
            "as an ONNX file (`meshloom run`)"
        )
    try:
        return FAMILIES[kind].model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = stored.field(".".join(map(str, first["loc"]))) if first["loc"] else ""
        value = f" is {first['input']!r}" if first["type"] != "missing" else ""
        at = f"{where}: {place}{value}" if place else str(where)  # none: of several fields together
        raise LanguageError(
            f"{at}: {first['msg'].removeprefix('Value error, ')}; take another model, or run an ONNX file of it "
            "(`meshloom run`)"
        ) from error
