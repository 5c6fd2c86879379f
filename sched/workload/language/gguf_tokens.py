"""The tokenizer in a GGUF file, as the library `tokenizers` has it.

llama.cpp knows two kinds of byte pair encodings that models of these families have: `gpt2`, of bytes, with a list of
what is merged; and `llama`, as SentencePiece has it (Kudo and Richardson, "SentencePiece", 2018), where each piece has
a score, and the two neighbours are merged whose piece has the highest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from .gguf_file import GgufFile
from .model import LanguageError
from .tokenizer import Pieces

#: Kinds of tokens.
_CONTROL, _OWN, _BYTE = 3, 4, 6
#: Tokens before and behind a text that are usual for a kind of tokenizer.
_USUAL = {("llama", "bos"): 1, ("llama", "eos"): 2, ("gpt2", "bos"): 11, ("gpt2", "eos"): 11}
#: What stands for a space in pieces of SentencePiece.
_SPACE = "\u2581"
#: How a text is cut before pairs are merged, by one expression after the other: words with the space before them,
#: numbers of so many digits, the rest.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_AS_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CUTS: Mapping[str, tuple[str, ...]] = {
    "llama-bpe": (_WORDS % r"\p{N}{1,3}",),
    "qwen2": (_WORDS % r"\p{N}",),
    **dict.fromkeys(("gpt-2", "mpt", "olmo"), (_AS_GPT2,)),
    **dict.fromkeys(("command-r", "refact", "smollm", "starcoder"), (r"\p{N}", _AS_GPT2)),
    "bloom": (r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _AS_GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
}


def tokenizer(file: GgufFile) -> Pieces:
    """Raises LanguageError."""
    kind, tokens = _value(file, "model"), _list(file, "tokens")
    if not tokens or not all(isinstance(token, str) for token in tokens):
        raise LanguageError(f"{file.where}: has no tokens (tokenizer.ggml.tokens); convert the model again")
    if kind not in _KINDS:
        raise LanguageError(
            f"{file.where}: tokenizer.ggml.model is {kind!r}; those that are read are {', '.join(_KINDS)}. Take the "
            "folder of transformers' that it was converted from"
        )
    vocabulary = {token: index for index, token in enumerate(tokens)}
    try:
        result = _KINDS[kind](file, vocabulary)
        _finish(file, result, tokens)
        return Pieces(result.to_str().encode(), file.where)
    except (LanguageError, OSError):
        raise
    except Exception as error:  # the library raises this type alone
        raise LanguageError(f"{file.where}: its tokenizer is not whole ({error}); convert the model again") from error


def _of_bytes(file: GgufFile, vocabulary: Mapping[str, int]) -> Any:
    """As GPT-2 has it."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    cut = _value(file, "pre") or "default"
    if cut not in _CUTS:
        raise LanguageError(
            f"{file.where}: tokenizer.ggml.pre is {cut!r}; those that are read are {', '.join(sorted(_CUTS))}. Take "
            "the folder of transformers' that it was converted from"
        )
    cuts = [pre_tokenizers.Split(Regex(each), "isolated") for each in _CUTS[cut]]
    merges = [tuple(pair.split(" ", 1)) for pair in _list(file, "merges")]
    result = Tokenizer(models.BPE(dict(vocabulary), cast("Any", merges), ignore_merges=cut == "llama-bpe"))
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    result.pre_tokenizer, result.decoder = pre_tokenizers.Sequence([*cuts, as_bytes]), decoders.ByteLevel()
    return result


def _of_pieces(file: GgufFile, vocabulary: Mapping[str, int]) -> Any:
    """As SentencePiece has it: where no piece is right, bytes are."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    kinds, scores = _list(file, "token_type"), _list(file, "scores")
    unknown = _value(file, "unknown_token_id") or 0
    if len(scores) != len(vocabulary):
        raise LanguageError(f"{file.where}: has {len(scores)} scores of {len(vocabulary)} tokens; convert it again")
    pieces = [
        token for token, index in vocabulary.items() if index >= len(kinds) or kinds[index] not in (_CONTROL, _BYTE)
    ]
    merges = sorted(
        (-scores[vocabulary[piece]], vocabulary[piece], piece[:at], piece[at:])
        for piece in pieces
        for at in range(1, len(piece))
        if piece[:at] in vocabulary and piece[at:] in vocabulary
    )
    name = next((token for token, index in vocabulary.items() if index == unknown), None)
    pairs: Any = [(first, second) for _, _, first, second in merges]
    result = Tokenizer(models.BPE(dict(vocabulary), pairs, unk_token=name, fuse_unk=True, byte_fallback=True))
    before = _value(file, "add_space_prefix") is not False
    steps = [normalizers.Replace(" ", _SPACE)]
    result.normalizer = normalizers.Sequence([*([normalizers.Prepend(_SPACE)] if before else []), *steps])
    stripped = [decoders.Strip(" ", 1, 0)] if before else []
    result.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *stripped]
    )
    return result


_KINDS: Mapping[str, Any] = {"gpt2": _of_bytes, "llama": _of_pieces}


def _finish(file: GgufFile, result: Any, tokens: list[str]) -> None:
    """Tokens that no text is cut at, and the one before each text."""
    from tokenizers import AddedToken, processors

    for token, kind in zip(tokens, _list(file, "token_type"), strict=False):
        if kind == _CONTROL:
            result.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif kind == _OWN:
            result.add_tokens([AddedToken(token, normalized=False)])
    first, begins = _special(file, "bos"), _value(file, "add_bos_token")
    if begins is None:
        begins = _value(file, "model") == "llama" or _value(file, "pre") == "llama-bpe"
    if begins and isinstance(first, int) and 0 <= first < len(tokens):
        name = tokens[first]
        result.post_processor = processors.TemplateProcessing(single=[name, "$A"], special_tokens=[(name, first)])


def ends(file: GgufFile) -> tuple[int, ...]:
    """The tokens behind which a text is over."""
    each = (_special(file, "eos"), _value(file, "eot_token_id"))
    return tuple(dict.fromkeys(token for token in each if isinstance(token, int)))


def _special(file: GgufFile, kind: str) -> int | None:
    """The token before or behind a text: where the file does not say, the kind of tokenizer does."""
    token = _value(file, f"{kind}_token_id")
    return _USUAL.get((_value(file, "model"), kind)) if token is None else token if isinstance(token, int) else None


def _value(file: GgufFile, key: str) -> Any:
    return file.values.get(f"tokenizer.ggml.{key}")


def _list(file: GgufFile, key: str) -> list[Any]:
    """A list, empty if there is none."""
    value = _value(file, key)
    return cast("list[Any]", value) if isinstance(value, list) else []
