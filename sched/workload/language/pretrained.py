"""A language model from a folder that transformers' `save_pretrained` has written: `config.json`, weights as
safetensors, and `tokenizer.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode

from .checkpoint import CONFIG, GENERATION, INDEX, TOKENIZER, WEIGHTS, Weights, check_size, read_table
from .equalisation import equalised
from .families import FAMILIES, REFUSED
from .family import Family
from .form import Form
from .model import SHIPPED, LanguageError, LanguageModel
from .model import load as load_archive
from .tokenizer import Pieces

#: Tokens that a model looks at if it could look at more and nothing else is asked for: caches and masks grow with them.
CONTEXT = 128
#: Weights of all products, at most.
MOST_WEIGHTS = 1 << 25
#: Keys of a token, and numbers of one between layers, that the vector unit takes as a row, at most.
LONGEST_ROW = INSTRUCTIONS[Opcode.GEMM].most("in_w")
#: Characters of a text that set the steps of integers, and of what follows that are for the perplexity, at most.
_CALIBRATION, _HELD_OUT = 4_096, 4_096


def is_folder(name: str) -> bool:
    """Whether this names such a folder, or a file in it."""
    return Path(name).is_dir() or Path(name).name in (CONFIG, TOKENIZER, INDEX, WEIGHTS)


def load(name: str, text: Path | None = None, context: int = 0) -> LanguageModel:
    """A model that ships, one in an archive (`model.load`), or that of a folder, or of a file in it.

    `text`: a file whose beginning sets the steps of the folder's integers, and whose rest is for its perplexity (None:
    the text of the model that ships); `context`: tokens that it looks at (0: as many as it can, at most `CONTEXT`).
    Raises LanguageError.
    """
    if name in SHIPPED or not is_folder(name):
        if text is not None or context:
            raise LanguageError(
                f"{name}: has its text and its context in its own file; leave --calibrate and --context out"
            )
        return load_archive(name)
    if text is None:
        shipped = load_archive(SHIPPED[0])
        return of_folder(Path(name), shipped.calibration, shipped.held_out, context)
    try:
        words = text.read_text(encoding="utf-8")
    except OSError as error:
        raise LanguageError(f"{text}: cannot be read ({error.strerror}); name another --calibrate") from error
    except ValueError as error:
        raise LanguageError(f"{text}: is no text in UTF-8 ({error}); name another --calibrate") from error
    half = min(len(words) // 2, _CALIBRATION)
    return of_folder(Path(name), words[:half], words[half : half + _HELD_OUT], context)


def of_folder(path: Path, calibration: str, held_out: str, context: int = 0) -> LanguageModel:
    """The model of a folder, or of the folder of a file. `calibration`, `held_out`: texts, see `LanguageModel`. Raises
    LanguageError."""
    folder = path if path.is_dir() else path.parent
    family = _family(folder)
    longest = min(family.longest, LONGEST_ROW)
    if longest < 2:
        raise LanguageError(f"{folder / CONFIG}: the model looks at one token, and a step at two; take another model")
    if context > longest or context == 1:
        raise LanguageError(
            f"{folder / CONFIG}: the model looks at {family.longest} tokens, a chip at {LONGEST_ROW}; take a --context "
            f"of 2 to {longest}, not {context}"
        )
    context = context or min(longest, CONTEXT)
    decoder = family.decoder
    model = LanguageModel(
        folder.resolve().name,
        Form(decoder, family.names, Weights(folder)).arrays(context),
        decoder.shape.heads,
        _tokenizer(folder),
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
        ends=_ends(folder),
    )
    if model.width > LONGEST_ROW:
        raise LanguageError(
            f"{folder / CONFIG}: a token has {model.width} numbers between layers, of which a chip divides "
            f"{LONGEST_ROW} at most by their root mean square; take a narrower model"
        )
    if model.weights > MOST_WEIGHTS:
        raise LanguageError(
            f"{folder}: its products have {model.weights:,} weights, more than {MOST_WEIGHTS:,}; take a smaller model, "
            "or fewer layers of it"
        )
    for text in (calibration, held_out):
        try:
            count = len(model.tokens(text))
        except LanguageError as error:
            raise LanguageError(f"{error}; name a --calibrate, a text like those that it was trained with") from error
        if count < 2:
            raise LanguageError(
                f"model {model.name}: the text {text[:20]!r} has fewer than two tokens; name a longer --calibrate"
            )
    return equalised(model)


def _family(folder: Path) -> Family:
    """The configuration. Raises LanguageError."""
    where, values = folder / CONFIG, read_table(folder / CONFIG)
    kind: Any = values.get("model_type")
    if how := values.get("quantization_config"):
        method: Any = cast("dict[str, Any]", how).get("quant_method") if isinstance(how, dict) else how
        raise LanguageError(
            f"{where}: quantization_config: its weights are quantised already ({method}); take the model in floating "
            "point: its weights are rounded here, --weight-bits says how"
        )
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
        place = ".".join(map(str, first["loc"]))
        value = f" is {first['input']!r}" if first["type"] != "missing" else ""
        at = f"{where}: {place}{value}" if place else str(where)  # none: of several fields together
        raise LanguageError(
            f"{at}: {first['msg'].removeprefix('Value error, ')}; take another model, or run an ONNX file of it "
            "(`meshloom run`)"
        ) from error


def _ends(folder: Path) -> tuple[int, ...]:
    """The tokens behind which a text is over: those that transformers' `generate` ends at. Raises LanguageError."""
    where = folder / (GENERATION if (folder / GENERATION).is_file() else CONFIG)
    tokens: Any = read_table(where).get("eos_token_id")
    each = cast("list[Any]", tokens if isinstance(tokens, list) else [] if tokens is None else [tokens])
    if not all(isinstance(token, int) for token in each):
        raise LanguageError(f"{where}: eos_token_id is {tokens!r}; name the number of a token, or a list of some")
    return tuple(each)


def _tokenizer(folder: Path) -> Pieces:
    """Raises LanguageError."""
    if not (folder / TOKENIZER).is_file():
        raise LanguageError(
            f"{folder}: has no {TOKENIZER}; save the fast tokenizer beside the model: "
            f'AutoTokenizer.from_pretrained(...).save_pretrained("{folder.name}")'
        )
    try:
        check_size(folder / TOKENIZER)
        return Pieces(folder / TOKENIZER)
    except (OSError, ValueError) as error:
        raise LanguageError(str(error)) from error
