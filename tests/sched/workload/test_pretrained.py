"""Folders of transformers' models: what they say is what transformers says, what is not read is refused by name."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from meshloom.sched.workload.language import checkpoint, pretrained, reference
from meshloom.sched.workload.language.activation import ACTIVATIONS
from meshloom.sched.workload.language.graph import step_graph
from meshloom.sched.workload.language.integers import integers
from meshloom.sched.workload.language.model import LanguageError, LanguageModel
from meshloom.sched.workload.language.tokenizer import Pieces

from ..language_models import DECODERS, decoder
from .test_language import run


def tensors(folder: Path) -> dict[str, Any]:
    return dict(checkpoint._tensors(folder / checkpoint.WEIGHTS))


def save(folder: Path, some: dict[str, Any], name: str = checkpoint.WEIGHTS) -> None:
    """As the format says: the size of a table, the table, the bytes."""
    table, data = dict[str, Any](), b""
    for each, tensor in some.items():
        ends = [len(data), len(data) + len(tensor["data"])]
        table[each] = {"dtype": tensor["dtype"], "shape": tensor["shape"], "data_offsets": ends}
        data += bytes(tensor["data"])
    header = json.dumps(table).encode()
    (folder / name).write_bytes(struct.pack("<Q", len(header)) + header + data)


def configured(folder: Path, **changes: Any) -> str:
    path = folder / checkpoint.CONFIG
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in values.items() if value is not ...}))
    return str(folder)


@pytest.mark.parametrize("family", DECODERS)
def test_it_says_what_transformers_says(family: str, tmp_path: Path) -> None:
    folder = decoder(family, tmp_path)
    model = pretrained.load(str(folder))
    with np.load(folder / "expected.npz") as expected:
        tokens, logits = expected["tokens"], expected["logits"]
    np.testing.assert_array_equal(model.tokens("what light is the sun?"), tokens)
    np.testing.assert_allclose(reference.scores(model, tokens)[-len(logits) :], logits, atol=2e-5)
    assert model.text(tokens.tolist()) == "what light is the sun?"
    assert model.context == (32 if family == "gpt_neo" else 48), "what its layers can look at"
    assert pretrained.load(str(folder / "config.json"), context=20).context == 20


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
def test_its_integers_are_near_and_the_same_however_a_prompt_is_cut(family: str, tmp_path: Path) -> None:
    model = pretrained.load(str(decoder(family, tmp_path)), context=24)
    numbers, tokens = integers(model), model.tokens(model.held_out)[:12]
    found: list[Any] = []
    for count in (1, 4, 12):
        graph = step_graph(numbers, count)
        caches: dict[str, Any] = {cache.new: np.zeros((16, 0), np.int8) for cache in graph.caches}
        rows: list[Any] = []
        for first in range(0, len(tokens), count):
            scores, caches = run(graph, model, tokens[first : first + count], caches)
            rows += list(scores)
        found.append(np.array(rows))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    real = reference.scores(model, tokens)
    near = found[0] * numbers.steps["scores"]
    assert 10 * np.log10(np.square(real).sum() / np.square(near - real).sum()) > 20  # dB


def _noise(model: LanguageModel) -> float:
    """Decibels between the scores and what integers make of them."""
    numbers, tokens = integers(model), model.tokens(model.held_out)[:12]
    graph, real = step_graph(numbers, 12), reference.scores(model, tokens)
    scores, _ = run(graph, model, tokens, {cache.new: np.zeros((16, 0), np.int8) for cache in graph.caches})
    near = scores * numbers.steps["scores"]
    return float(10 * np.log10(np.square(real).sum() / np.square(near - real).sum()))


def test_channels_much_larger_than_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel between two products is a hundred times as large, and its weights in the second a hundredth: the model
    says the same, and its integers are as near as before."""
    folder = decoder("llama", tmp_path)
    some = tensors(folder)
    for name, axis, factor in (
        ("mlp.up_proj", 0, 100),
        ("mlp.down_proj", 1, 0.01),
        ("self_attn.v_proj", 0, 100),
        ("self_attn.o_proj", 1, 0.01),
    ):
        tensor = some[f"model.layers.1.{name}.weight"]
        array = np.frombuffer(tensor["data"], np.float16).astype(np.float32).reshape(tensor["shape"])
        np.moveaxis(array, axis, 0)[3] *= factor
        if "o_proj" in name:
            array[:, 7] *= factor  # of the other head that reads the same values
        tensor |= {"dtype": "F32", "data": array.tobytes()}
    save(folder, some)
    with np.load(folder / "expected.npz") as expected:
        tokens, logits = expected["tokens"], expected["logits"]
    model = pretrained.load(str(folder), context=24)
    np.testing.assert_allclose(reference.scores(model, tokens)[-len(logits) :], logits, atol=2e-5)
    even = _noise(model)
    monkeypatch.setattr(pretrained, "equalised", lambda model: model)
    assert even > _noise(pretrained.load(str(folder), context=24)) + 3


def test_weights_of_other_types_and_in_several_files(tmp_path: Path) -> None:
    folder = decoder("llama", tmp_path)
    before = pretrained.load(str(folder)).arrays
    some = tensors(folder)
    for name, tensor in some.items():
        array = np.frombuffer(tensor["data"], np.float16)
        if "proj" in name:
            tensor |= {"dtype": "F64", "data": array.astype(np.float64).tobytes()}
        if "norm" in name:
            tensor |= {"dtype": "BF16", "data": array.astype(bfloat16).tobytes()}
    names = sorted(some)
    files = {name: f"part{index % 2}.safetensors" for index, name in enumerate(names)}
    for file in set(files.values()):
        save(folder, {name: some[name] for name in names if files[name] == file}, file)
    (folder / checkpoint.WEIGHTS).unlink()
    (folder / checkpoint.INDEX).write_text(json.dumps({"weight_map": files}))
    after = pretrained.load(str(folder)).arrays
    assert after.keys() == before.keys()
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, rtol=1e-2, atol=1e-6)


def test_scores_of_their_own(tmp_path: Path) -> None:
    """A model whose last product is not the embedding."""
    folder = decoder("gpt2", tmp_path)
    some = tensors(folder)
    own = dict(some["transformer.wte.weight"])
    save(folder, some | {"lm_head.weight": own | {"data": bytes(len(own["data"]))}})
    model = pretrained.load(str(folder))
    assert not model.arrays["output"].any()
    assert not model.arrays["output.bias"].any()
    assert model.arrays["embedding"].any()


@pytest.mark.parametrize(
    ("family", "prefix"), [("llama", "model."), ("gpt_neox", "gpt_neox."), ("gpt2", "transformer.")]
)
def test_scores_that_are_of_the_embedding(family: str, prefix: str, tmp_path: Path) -> None:
    """A model that was saved without what makes scores of its last layer has them if they are the embedding's."""
    folder = decoder(family, tmp_path)
    some = {name.removeprefix(prefix): tensor for name, tensor in tensors(folder).items() if name.startswith(prefix)}
    save(folder, some)
    configured(folder, tie_word_embeddings=True)
    model = pretrained.load(str(folder))
    assert model.arrays["output"].shape == model.arrays["embedding"].shape
    configured(folder, tie_word_embeddings=False)
    with pytest.raises(
        LanguageError, match=r"have no 'lm_head.weight', by which tokens get their scores, and its conf"
    ):
        pretrained.load(str(folder))


def test_a_text_of_ones_own(tmp_path: Path) -> None:
    folder, text = decoder("llama", tmp_path), tmp_path / "own.txt"
    text.write_text("the sun is the east " * 10)
    model = pretrained.load(str(folder), text)
    assert (model.calibration + model.held_out) == text.read_text()
    text.write_text("a")
    with pytest.raises(LanguageError, match="has fewer than two tokens; name a longer --calibrate"):
        pretrained.load(str(folder), text)
    with pytest.raises(LanguageError, match="its own file; leave --calibrate and --context out"):
        pretrained.load("shakespeare", text)
    assert isinstance(pretrained.load("shakespeare"), LanguageModel)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"model_type": "mamba"}, r"config.json: model_type is 'mamba'; those that are read are gpt2, gpt_neo, "),
    ("llama", {"hidden_size": ...}, "config.json: hidden_size: Field required; take another model"),
    (
        "llama",
        {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        r"its weights are quantised already \(gptq\); take the model in floating point",
    ),
    ("llama", {"hidden_size": 15}, "config.json: 4 heads, 2 for keys, and a width of 15: heads must divide the width"),
    ("llama", {"head_dim": 8}, "head_dim = 8 with 4 heads: must be 4, their width"),
    ("llama", {"rope_parameters": {"rope_type": "llama3"}}, "rope_parameters.rope_type is 'llama3': Input should be"),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0}}, "'linear': Input should be 'default'"),
    ("llama", {"hidden_act": "xielu"}, "hidden_act is 'xielu': the chip computes relu, silu"),
    (
        "llama",
        {"intermediate_size": 25},
        r"'model.layers.0.mlp.gate_proj.weight' is \[24, 16\], must be \[25, 16\] by its",
    ),
    ("llama", {"num_hidden_layers": 3}, "its weights have no 'model.layers.2.input_layernorm.weight'; save the whole"),
    ("qwen2", {"use_sliding_window": True}, "use_sliding_window is True: Input should be False"),
    ("gpt2", {"n_head": 3}, "3 heads do not divide a width of 16"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
    (
        "gpt_neox",
        {"num_attention_heads": 3},
        "3 heads with a width of 16, of which 2 numbers each turn: heads must divide",
    ),
    (
        "llama",
        {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 8.0}},
        "rope_scaling.type is 'linear'",
    ),
    ("llama", {"rope_scaling": {"rope_type": "default", "factor": 8.0}}, "rope_scaling.factor is 8.0: Input should be"),
    ("llama", {"tie_word_embeddings": False}, "its weights have no 'lm_head.weight', by which tokens get their scores"),
    ("llama", {"attention_bias": True}, "its weights have no 'model.layers.0.self_attn.q_proj.bias'"),
    ("llama", {"max_position_embeddings": 1}, "the model looks at one token, and a step at two; take another model"),
    ("gpt2", {"n_positions": 4000}, r"'transformer.wpe.weight' is \[48, 16\], must be \[4000, 16\]"),
    ("gpt_neo", {"attention_layers": ...}, "attention_layers: Field required"),
    ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "a part of each head turns by its position"),
]


@pytest.mark.parametrize(("family", "changes", "text"), WRONG)
def test_what_a_configuration_must_not_be(family: str, changes: dict[str, Any], text: str, tmp_path: Path) -> None:
    folder = configured(decoder(family, tmp_path), **changes)
    with pytest.raises(LanguageError, match=text):
        pretrained.load(folder)


def test_files_that_are_missing_or_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = decoder("llama", tmp_path)

    def refused(text: str) -> None:
        with pytest.raises(LanguageError, match=text):
            pretrained.load(str(folder))

    config, tokenizer, weights = (
        folder / name for name in (checkpoint.CONFIG, checkpoint.TOKENIZER, checkpoint.WEIGHTS)
    )
    whole = weights.read_bytes()
    (folder / checkpoint.INDEX).write_text(json.dumps({"weight_map": {"a": "../a.safetensors"}}))
    refused("names no files beside it; save the model again")
    (folder / checkpoint.INDEX).unlink()
    weights.write_bytes(whole[:100])
    refused("is no file of safetensors")
    some = tensors(decoder("llama", tmp_path / "other"))
    save(folder, some | {"model.norm.weight": {"dtype": "I8", "shape": [16], "data": bytes(16)}})
    refused("'model.norm.weight' has numbers of type I8; save it in floating point")
    save(folder, some | {"model.norm.weight": {"dtype": "F16", "shape": [16], "data": b"\xff" * 32}})
    refused("'model.norm.weight' holds other things than finite numbers")
    weights.rename(folder / "pytorch_model.bin")
    refused("only pytorch_model.bin, a pickle, which may run code; save the weights as safetensors")
    weights.write_bytes(whole)
    monkeypatch.setattr(pretrained, "LONGEST_ROW", 15)
    refused("a token has 16 numbers between layers, of which a chip divides 15 at most")
    monkeypatch.undo()
    monkeypatch.setattr(pretrained, "MOST_WEIGHTS", 100)
    refused("weights, more than 100; take a smaller model, or fewer layers of it")
    monkeypatch.setattr(checkpoint, "_MOST_BYTES", 1 << 10)
    refused("has weights of more than 0 MiB; take a smaller model")
    monkeypatch.setattr(checkpoint, "_MOST_BYTES", 1 << 30)
    monkeypatch.setattr(checkpoint, "_MOST_TABLE", 1 << 10)
    refused("tokenizer.json: has more than 0 MiB; save the model again")
    monkeypatch.undo()
    tokenizer.write_text("{}")
    refused("is no tokenizer .*; save it again")
    tokenizer.unlink()
    refused("save the fast tokenizer beside the model: AutoTokenizer")
    for content, text in ((b"[]", "is no table"), (b"{", "cannot be read"), (b"\xff", "cannot be read")):
        config.write_bytes(content)
        refused(text)
    config.unlink()
    refused("is missing; name the folder in which transformers' `save_pretrained` has put a model")
    (folder / "adapter_config.json").write_text("{}")
    refused(r"the folder has an adapter \(LoRA\) alone; save it merged into its model")


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    folder = decoder("llama", tmp_path)
    some = tensors(folder)
    rows = some["model.embed_tokens.weight"]
    rows |= {"shape": [40, 16], "data": rows["data"][: 40 * 16 * 2]}
    save(folder, some)
    with pytest.raises(
        LanguageError, match=r"has no embedding for token .* of its tokenizer; take the tokenizer that it"
    ):
        pretrained.load(str(folder))


def test_pieces(tmp_path: Path) -> None:
    pieces = Pieces(decoder("llama", tmp_path) / checkpoint.TOKENIZER)
    assert pieces.size == 300
    for text in ("", "the sun", "caf\N{LATIN SMALL LETTER E WITH ACUTE}\n\N{SNOWMAN}"):
        assert pieces.text(pieces.tokens(text)) == text
    assert len(pieces.tokens("the sun is the east")) < 12, "several characters in a token"


def test_words_that_a_tokenizer_does_not_have(tmp_path: Path) -> None:
    words = Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="?"))
    words.save(str(tmp_path / "words.json"))
    pieces = Pieces(tmp_path / "words.json")
    assert pieces.tokens("a") == [0]
    with pytest.raises(ValueError, match="has no tokens for 'c': WordLevel error"):
        pieces.tokens("c")
    folder = decoder("llama", tmp_path)
    (tmp_path / "words.json").rename(folder / checkpoint.TOKENIZER)
    with pytest.raises(LanguageError, match="name a --calibrate, a text like those that it was trained with"):
        pretrained.load(str(folder))


def test_tokens_that_end_a_text(tmp_path: Path) -> None:
    folder = decoder("llama", tmp_path)
    assert pretrained.load(str(folder)).ends == ()
    assert pretrained.load(configured(folder, eos_token_id=7)).ends == (7,)
    (folder / checkpoint.GENERATION).write_text('{"eos_token_id": [4, 7]}')
    model = pretrained.load(str(folder))
    assert model.ends == (4, 7)
    assert model.until_end([1, 7, 2, 4]) == [1, 7]
    assert model.until_end([1, 2]) == [1, 2]
    (folder / checkpoint.GENERATION).write_text('{"eos_token_id": "</s>"}')
    with pytest.raises(
        LanguageError, match=r"generation_config.json: eos_token_id is '</s>'; name the number of a tok"
    ):
        pretrained.load(str(folder))


def test_activations() -> None:
    x = np.linspace(-200, 200, 4001)
    for name, act in ACTIVATIONS.items():
        y = act(x)
        assert np.isfinite(y).all(), name
        np.testing.assert_allclose(y[x > 20], x[x > 20], err_msg=name)
        np.testing.assert_allclose(y[x < -40], 0, atol=1e-10, err_msg=name)
    one = np.array([1.0, -1.0])
    np.testing.assert_allclose(ACTIVATIONS["silu"](one), [0.7310586, -0.2689414], atol=1e-6)
    np.testing.assert_allclose(ACTIVATIONS["gelu"](one), [0.8413447, -0.1586553], atol=1e-6)
    np.testing.assert_allclose(ACTIVATIONS["gelu_new"](one), [0.8411920, -0.1588080], atol=1e-6)
