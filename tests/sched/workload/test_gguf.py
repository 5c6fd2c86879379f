"""GGUF files: what they say is what llama.cpp says, what is not read is refused by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from meshloom.sched.workload.language import gguf_file, pretrained, reference
from meshloom.sched.workload.language.gguf_file import GgufFile
from meshloom.sched.workload.language.gguf_tokens import tokenizer
from meshloom.sched.workload.language.model import LanguageError

from ..language_models import GGUFS

PROMPT = "what light is the sun?"
ODD = "It's 2026:  12345 tokens,\n\n\tna\u00efve \u00bd \u65e5\u672c \U0001f642 they'LL  go!\r\n <end> "
#: llama.cpp looks GELU up in a table of 16-bit numbers.
_TABLE, _EXACT = 1e-3, 2e-6
GELU = ("bloom", "gemma", "gemma2", "gemma3", "gpt2", "mpt", "starcoder2")


@pytest.mark.parametrize("path", sorted(GGUFS.glob("*.gguf")), ids=lambda path: path.stem)
def test_it_says_what_llama_cpp_says(path: Path) -> None:
    model = pretrained.load(str(path))
    with np.load(GGUFS / "expected.npz") as expected:
        tokens, odd, logits = (expected[f"{path.stem}/{name}"] for name in ("tokens", "odd", "logits"))
    np.testing.assert_array_equal(model.tokens(PROMPT), tokens)
    np.testing.assert_array_equal(model.tokens(ODD), odd)
    assert model.text(odd.tolist()) == ODD
    near = _TABLE if path.stem in GELU else _EXACT
    np.testing.assert_allclose(reference.scores(model, tokens)[-len(logits) :], logits, atol=near)
    assert model.ends == ((2,) if path.stem == "llama_pieces" else (5,))
    assert model.name == path.stem


def _written(path: Path, change: Callable[[gguf.GGUFWriter], None] = lambda writer: None, **fields: Any) -> Path:
    """A copy of the Llama's file with other fields (None: without), and what `change` adds."""
    reader = gguf.GGUFReader(GGUFS / "llama.gguf")
    architecture = fields.pop("architecture", "llama")
    writer = gguf.GGUFWriter(path, architecture)
    for key, field in reader.fields.items():
        own = key.replace("llama.", f"{architecture}.")
        if key.startswith(("GGUF.", "general.architecture")) or not {key.split(".")[-1], key[6:]}.isdisjoint(fields):
            continue
        main, *sub = field.types
        writer.add_key_value(own, field.contents(), main, sub[0] if sub else None)
    for key, value in fields.items():
        whole = f"tokenizer.ggml.{key}" if key in _TOKENS else f"{architecture}.{key}"
        whole = {"split": "split.count"}.get(key, whole)
        if value is not None:
            (writer.add_array if isinstance(value, list) else _ADD[type(value)](writer))(whole, value)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


_TOKENS = (
    "model",
    "pre",
    "tokens",
    "scores",
    "merges",
    "bos_token_id",
    "eos_token_id",
    "add_bos_token",
    "unknown_token_id",
)
_ADD: dict[type, Callable[[gguf.GGUFWriter], Callable[[str, Any], None]]] = {
    int: lambda writer: writer.add_uint32,
    str: lambda writer: writer.add_string,
    float: lambda writer: writer.add_float32,
    bool: lambda writer: writer.add_bool,
}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architecture": "mamba"}, "general.architecture is 'mamba'; those that are read are bloom, "),
        ({"expert_count": 8}, "its layers have experts, which are not read"),
        ({"attention.causal": False}, "its tokens look at those behind them; take a model that writes text"),
        ({"rope.dimension_count": 2}, "llama.rope.dimension_count is 2 of 4 numbers of a head, which models of this"),
        ({"rope.dimension_count": 2, "key_length": None}, "llama.rope.dimension_count is 2 of 4 numbers of a head"),
        (
            {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0, "rope.scaling.attn_factor": 3.0},
            "llama.rope.scaling.attn_factor is 3.0, which is read beside factors of frequencies alone",
        ),
        ({"split": 3}, "is one of 3 files; put them together first"),
        ({"embedding_length": None}, "llama.embedding_length: field required"),
        ({"embedding_length": 32}, "must be [any, 32] by its metadata; convert the model again"),
        ({"block_count": 3}, "its weights have no 'model.layers.2.self_attn.q_proj.weight'; convert the model again"),
        ({"block_count": 1 << 30}, "llama.block_count is 1073741824: input should be less than or equal to 4096"),
        ({"pre": "kimi"}, "tokenizer.ggml.pre is 'kimi'; those that are read are bloom, command-r, "),
        ({"model": "bert"}, "tokenizer.ggml.model is 'bert'; those that are read are gpt2, llama"),
        ({"tokens": None}, "has no tokens (tokenizer.ggml.tokens); convert the model again"),
        ({"model": "llama"}, "has 0 scores of 300 tokens; convert it again"),
        ({"merges": None, "pre": "gpt-2"}, None),
    ],
)
def test_what_is_not_read_is_refused_by_name(fields: dict[str, Any], message: str | None, tmp_path: Path) -> None:
    path = _written(tmp_path / "own.gguf", **fields)
    if message is None:
        assert len(pretrained.load(str(path)).tokens(PROMPT)) == len(PROMPT), "each byte is a token"
        return
    with pytest.raises(LanguageError) as error:
        pretrained.load(str(path))
    assert str(path) in str(error.value)
    assert message.lower() in str(error.value).lower()


def test_a_tensor_that_the_family_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    def own(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("blk.0.attn_q_norm.weight", np.ones(4, np.float32))

    path = _written(tmp_path / "own.gguf", own)
    with pytest.raises(LanguageError, match=r"a tensor 'blk.0.attn_q_norm.weight', which models of llama do not have"):
        pretrained.load(str(path))


def test_tokens_before_and_behind_a_text_are_the_usual_if_the_file_says_none(tmp_path: Path) -> None:
    none: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "add_bos_token": None}
    model = pretrained.load(str(_written(tmp_path / "own.gguf", **none)))
    assert model.tokens("the")[0] == 11, "Llama 3's tokenizers begin with one"
    assert model.ends == (11,)
    model = pretrained.load(str(_written(tmp_path / "own.gguf", **none, pre="gpt-2")))
    assert model.tokens("the")[0] != 11
    pieces = gguf.GGUFReader(GGUFS / "llama_pieces.gguf")
    some = {name: pieces.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "scores")}
    model = pretrained.load(str(_written(tmp_path / "own.gguf", **none, **some, model="llama", merges=None)))
    assert model.tokens("the")[0] == 1
    assert model.ends == (2,)


def test_what_has_neither_piece_nor_bytes_is_the_unknown_token(tmp_path: Path) -> None:
    tokens: dict[str, Any] = {"tokens": ["a", "<unk>", "\u2581"], "scores": [0.0] * 3, "unknown_token_id": 1}
    pieces = tokenizer(GgufFile(_written(tmp_path / "own.gguf", **tokens, model="llama", merges=None)))
    assert pieces.tokens("a b")[-4:] == [2, 0, 2, 1]


def test_a_folder_may_have_the_name_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.gguf").mkdir()
    with pytest.raises(LanguageError, match=r"own\.gguf/config\.json: is missing"):
        pretrained.load(str(tmp_path / "own.gguf"))


def test_merges_of_tokens_that_are_not_there_are_no_tokenizer(tmp_path: Path) -> None:
    path = _written(tmp_path / "own.gguf", merges=None, change=lambda w: w.add_token_merges(["one two"]))
    with pytest.raises(LanguageError, match="its tokenizer is not whole"):
        tokenizer(GgufFile(path))


def test_frequencies_that_are_scaled_turn_by_that(tmp_path: Path) -> None:
    factors = np.array([1.0, 4.0], np.float32)
    path = _written(tmp_path / "own.gguf", lambda writer: writer.add_tensor("rope_freqs.weight", factors))
    plain, scaled = (pretrained.load(str(each)).rotary[0] for each in (GGUFS / "llama.gguf", path))
    assert plain is not None
    assert scaled is not None
    np.testing.assert_allclose(scaled.frequencies, np.array(plain.frequencies) / factors)
    assert scaled.factor == 1
    path = _written(tmp_path / "own.gguf", **{"rope.scaling.type": "linear", "rope.scaling.factor": 2.0})
    scaled = pretrained.load(str(path)).rotary[0]
    assert scaled is not None
    np.testing.assert_allclose(scaled.frequencies, np.array(plain.frequencies) / 2)


@pytest.mark.parametrize("kind", ["F32", "BF16", "Q8_0", "Q4_0", "Q5_1"])
def test_weights_are_read_whatever_they_are_stored_as(kind: str, tmp_path: Path) -> None:
    weights = np.random.default_rng(1).normal(0, 1, (3, 64)).astype(np.float32)
    own = gguf.GGMLQuantizationType[kind]
    path = tmp_path / "one.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("token_embd.weight", gguf.quantize(weights, own), raw_dtype=own)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    near = {"F32": 0, "BF16": 0.01, "Q8_0": 0.02, "Q4_0": 0.4, "Q5_1": 0.2}[kind]
    np.testing.assert_allclose(GgufFile(path).tensor("token_embd.weight"), weights, atol=near)


def test_a_kind_of_numbers_that_the_library_does_not_read_is_named(tmp_path: Path) -> None:
    path, own = tmp_path / "one.gguf", gguf.GGMLQuantizationType.Q8_K
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("token_embd.weight", np.zeros((1, 292), np.uint8), raw_dtype=own)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    with pytest.raises(LanguageError, match="stored as Q8_K, which the library gguf does not read"):
        GgufFile(path).tensor("token_embd.weight")


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.01, 0.1, 0.2, 0.5, 0.99])
def test_a_file_that_ends_in_the_middle_is_no_whole_file(share: float, tmp_path: Path) -> None:
    content = (GGUFS / "llama.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(LanguageError, match=r"cut\.gguf: is no whole GGUF file"):
        pretrained.load(str(path))


def test_a_file_that_promises_more_than_it_has_ends_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytearray((GGUFS / "llama.gguf").read_bytes())
    content[16:24] = (1 << 60).to_bytes(8, "little")  # keys
    path = tmp_path / "many.gguf"
    path.write_bytes(content)
    with pytest.raises(LanguageError, match="is no whole GGUF file"):
        GgufFile(path)
    head = content[:24] + (1).to_bytes(8, "little") + b"k" + (9).to_bytes(4, "little")  # a list of bytes
    head[16:24] = (1).to_bytes(8, "little")
    path.write_bytes(head + bytes(4) + (1 << 40).to_bytes(8, "little") + bytes(1_000))
    with pytest.raises(LanguageError, match=r"a list has 1,099,511,627,776 numbers or strings, more than it can"):
        GgufFile(path)
    monkeypatch.setattr(gguf_file, "_MOST_ENTRIES", 400)
    with pytest.raises(LanguageError, match="its metadata have more than 400 entries"):
        GgufFile(GGUFS / "llama.gguf")
    monkeypatch.setattr(gguf_file, "_MOST_BYTES", 1 << 10)
    with pytest.raises(LanguageError, match=r"llama\.gguf: has more than 0 MiB; take a smaller model$"):
        GgufFile(GGUFS / "llama.gguf")
    with pytest.raises(LanguageError, match="cannot be read"):
        GgufFile(tmp_path / "none.gguf")


def test_the_file_in_a_folder_is_named(tmp_path: Path) -> None:
    shutil.copy(GGUFS / "llama.gguf", tmp_path)
    with pytest.raises(LanguageError, match=r"name the file itself: .*llama\.gguf"):
        pretrained.load(str(tmp_path))
