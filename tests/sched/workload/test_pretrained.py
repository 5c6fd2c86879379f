"""Folders of transformers' models: what they say is what transformers says, what is not read is refused by name."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from meshloom.sched.workload.language import checkpoint, equalisation, pretrained, reference
from meshloom.sched.workload.language.activation import ACTIVATIONS
from meshloom.sched.workload.language.families import FAMILIES
from meshloom.sched.workload.language.graph import step_graph
from meshloom.sched.workload.language.integers import integers
from meshloom.sched.workload.language.model import LanguageError, LanguageModel
from meshloom.sched.workload.language.rotary import RotaryTable
from meshloom.sched.workload.language.tokenizer import Pieces

from ...tiers import slow_but
from ..language_models import DECODERS, DECODERS_FOLDER, decoder
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


#: Some of their layers look at 32 tokens, or positions are those of a training with 32 ("phi3").
BOUNDED = ("gemma2", "gemma3", "gpt_neo", "phi3")


#: Those that between them have all that families differ in.
VARIED = ("bloom", "falcon", "gemma3", "gpt2", "gptj", "granite", "llama3", "olmo2", "opt", "phi3", "stablelm")


@pytest.mark.parametrize("family", slow_but(DECODERS, *VARIED))
def test_it_says_what_transformers_says(family: str, tmp_path: Path) -> None:
    folder = decoder(family, tmp_path)
    model = pretrained.load(str(folder))
    with np.load(folder / "expected.npz") as expected:
        tokens, logits = expected["tokens"], expected["logits"]
    np.testing.assert_array_equal(model.tokens("what light is the sun?"), tokens)
    np.testing.assert_allclose(reference.scores(model, tokens)[-len(logits) :], logits, atol=2e-5)
    assert model.text(tokens.tolist()) == "what light is the sun?"
    assert model.context == (32 if family in BOUNDED else 48), "what its layers can look at"
    assert pretrained.load(str(folder / "config.json"), context=20).context == 20


@pytest.mark.parametrize("family", slow_but(DECODERS, "gpt_bigcode", "mpt", "qwen3"))
def test_its_integers_are_near_and_the_same_however_a_prompt_is_cut(family: str, tmp_path: Path) -> None:
    model = pretrained.load(str(decoder(family, tmp_path)), context=24)
    numbers, tokens = integers(model), model.tokens(model.held_out)[:12]
    found: list[Any] = []
    for count in (1, 4, 12):
        graph = step_graph(numbers, count)
        none = np.zeros((model.key_width, 0), np.int8)
        caches: dict[str, Any] = {cache.new: none for cache in graph.caches}
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


@pytest.mark.parametrize("family", ["gpt_neox", "qwen3"])
def test_a_step_reads_each_weight_once(family: str, tmp_path: Path) -> None:
    """Also those of queries and keys that turn by their positions."""
    model = pretrained.load(str(decoder(family, tmp_path)), context=24)
    graph = step_graph(integers(model), 1)
    products = [layer.w.size for layer in graph.layers if layer.kind == "conv" and layer.w is not None]
    assert sum(products) == model.weights
    gains = sum(array.size for name, array in model.arrays.items() if name.endswith(".gain"))
    assert sum(layer.w.size for layer in graph.layers if layer.kind == "depthwise" and layer.w is not None) == gains


@pytest.mark.parametrize(("family", "groups"), [("gpt_bigcode", 1), ("llama", 2), ("olmo2", 2), ("gpt_neox", 2)])
def test_keys_and_values_that_heads_share_are_made_once(family: str, groups: int, tmp_path: Path) -> None:
    model = pretrained.load(str(decoder(family, tmp_path)), context=24)
    width = groups * model.head_width
    assert (model.groups, model.sharing * groups, model.key_width) == (groups, model.heads, width)
    graph = step_graph(integers(model), 3)
    assert {graph.value(cache.rows).channels for cache in graph.caches} == {width}
    assert {model.arrays[f"0/{name}.weight"].shape for name in "kv"} == {(width, model.width)}
    assert {layer.groups for layer in graph.layers if layer.kind == "product"} == {groups}
    assert graph.value("0/q").height == graph.value("0/attention/by_key").height == model.sharing


def _noise(model: LanguageModel) -> float:
    """Decibels between the scores and what integers make of them."""
    numbers, tokens = integers(model), model.tokens(model.held_out)[:12]
    graph, real = step_graph(numbers, 12), reference.scores(model, tokens)
    scores, _ = run(
        graph, model, tokens, {cache.new: np.zeros((model.key_width, 0), np.int8) for cache in graph.caches}
    )
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


def test_factors_of_channels_are_one_in_the_mean() -> None:
    reach, met = np.array([1, 400, 4, 9], np.float32), np.array([4, 100, 1, 0.5], np.float32)
    by = equalisation._factors(reach, met)
    np.testing.assert_allclose(np.log(by).mean(), 0, atol=1e-6)
    np.testing.assert_allclose(reach * by / (met / by), np.full(4, (reach * by / (met / by))[0]), rtol=1e-4)


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
    assert "output.bias" not in model.arrays
    assert model.arrays["embedding"].any()


@pytest.mark.parametrize(
    ("family", "prefix"),
    [("llama", "model."), ("gpt_neox", "gpt_neox."), ("gpt2", "transformer."), ("opt", "model.")],
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


@pytest.mark.parametrize(
    ("family", "usual"),
    [
        ("llama", {"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e4, "attention_bias": False}),
        ("qwen2", {"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e4, "tie_word_embeddings": False}),
        ("gpt2", {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}),
        ("gpt_neo", {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "window_size": 256}),
        ("gpt_neox", {"hidden_act": "gelu", "layer_norm_eps": 1e-5, "use_parallel_residual": True,
                      "rotary_pct": 0.25, "rotary_emb_base": 1e4, "tie_word_embeddings": False}),
    ],
)  # fmt: skip
def test_what_a_configuration_leaves_out_is_as_usual(family: str, usual: dict[str, Any], tmp_path: Path) -> None:
    """As transformers has it; what is said otherwise is another model."""
    folder = decoder(family, tmp_path)
    explicit = pretrained.load(configured(folder, rope_parameters=..., **usual))
    implicit = pretrained.load(configured(folder, **dict.fromkeys(usual, ...)))
    assert (implicit.decisive, implicit.context) == (explicit.decisive, explicit.context)
    assert all(np.array_equal(array, explicit.arrays[name]) for name, array in implicit.arrays.items())


def _varied(family: str, folder: Path, **changes: Any) -> NDArray[np.float32]:
    """The scores of the prompt, with another configuration."""
    model = pretrained.load(configured(decoder(family, folder), **changes))
    return reference.scores(model, model.tokens("what light is the sun?"))


def test_scores_of_gpt_2_that_are_not_scaled(tmp_path: Path) -> None:
    """Queries that are twice as large say the same, since heads have four numbers each."""
    plain = _varied("gpt2", tmp_path / "plain", scale_attn_weights=False)
    folder = decoder("gpt2", tmp_path)
    some = tensors(folder)
    for layer in range(2):
        for name, size in (("weight", 16), ("bias", 1)):
            tensor = some[f"transformer.h.{layer}.attn.c_attn.{name}"]
            array = np.frombuffer(tensor["data"], np.float16).astype(np.float32).reshape(size, 48).copy()
            array[:, :16] *= 2
            tensor |= {"dtype": "F32", "data": array.tobytes()}
    save(folder, some)
    model = pretrained.load(str(folder))
    np.testing.assert_allclose(reference.scores(model, model.tokens("what light is the sun?")), plain, atol=2e-5)


def test_scores_of_gpt_2_by_layer(tmp_path: Path) -> None:
    usual, by_layer = (
        pretrained.load(configured(decoder("gpt2", tmp_path / str(on)), scale_attn_by_inverse_layer_idx=on))
        for on in (False, True)
    )
    for layer in range(2):  # equalised: of queries times keys nothing else has changed
        products = [
            model.arrays[f"{layer}/q.weight"] * model.arrays[f"{layer}/k.weight"] for model in (usual, by_layer)
        ]
        assert np.linalg.norm(products[1]) == pytest.approx(np.linalg.norm(products[0]) / (layer + 1), rel=0.2)


@pytest.mark.parametrize(
    ("family", "changes", "longest"),
    [
        ("qwen2", {"use_sliding_window": True, "sliding_window": 20, "layer_types": None}, 20),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 20, "layer_types": None}, 48),
        ("llama", {"model_type": "mistral", "sliding_window": 20}, 20),
        ("gemma2", {"sliding_window": 20, "layer_types": ["full_attention"] * 2}, 48),
        ("gemma3", {"sliding_window": 20, "layer_types": None}, 20),
    ],
)
def test_windows_bound_the_context(family: str, changes: dict[str, Any], longest: int, tmp_path: Path) -> None:
    assert pretrained.load(configured(decoder(family, tmp_path), **changes)).context == longest


def test_layers_with_windows_as_older_files_say_them(tmp_path: Path) -> None:
    """Every second layer is not of that kind; and its positions turn as rope_theta says."""
    older = {
        "layer_types": None, "sliding_window_pattern": 2, "rope_parameters": None, "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
    }  # fmt: skip
    newer = {kind: {"rope_type": "default", "rope_theta": base} for kind, base in (
        ("sliding_attention", 1e4), ("full_attention", 1e6)
    )}  # fmt: skip
    expected = _varied("gemma3", tmp_path / "newer", rope_parameters=newer)
    np.testing.assert_array_equal(_varied("gemma3", tmp_path / "older", **older), expected)


OLDER: list[tuple[str, dict[str, Any]]] = [
    ("llama3", {"rope_theta": 500.0, "rope_scaling": {
        "type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }}),
    ("phi3", {"rope_theta": 500, "rope_scaling": {
        "type": "su", "short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0],
    }}),
    ("phi", {"rope_theta": 10_000.0, "partial_rotary_factor": 0.5, "num_key_value_heads": 2}),
    ("gpt_neox", {"rotary_pct": 0.5, "rotary_emb_base": 10_000, "attention_bias": ...}),
    ("stablelm", {"rope_theta": 10_000, "partial_rotary_factor": 0.5, "rope_scaling": None}),
    ("qwen2", {"rope_theta": 10_000.0, "layer_types": ..., "use_sliding_window": False, "sliding_window": 4}),
    ("falcon", {"n_layer": 2, "num_hidden_layers": ..., "num_attention_heads": ..., "n_head": 4}),
    ("gemma", {"rope_theta": 10_000.0, "hidden_activation": None, "tie_word_embeddings": ...}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "changes"), OLDER)
def test_older_configurations_say_the_same(family: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """As transformers 4 wrote them: positions are fields of their own, and what is usual may be left out."""
    scores = _varied(family, tmp_path, rope_parameters=..., **changes)
    with np.load(tmp_path / family / "expected.npz") as expected:
        np.testing.assert_allclose(scores[-3:], expected["logits"], atol=2e-5)


def test_stretched_positions_are_those_of_transformers() -> None:
    for each in json.loads((DECODERS_FOLDER / "rotary.json").read_text()):
        rotary = RotaryTable.model_validate(each["table"]).rotary(1.0, 16, 256, 256)
        np.testing.assert_allclose(rotary.frequencies, each["frequencies"], rtol=1e-5, err_msg=str(each["table"]))
        assert rotary.factor == pytest.approx(each["factor"]), each["table"]


def test_falcon_of_other_kinds(tmp_path: Path) -> None:
    """One key and value for all heads, or one for each, as its fused matrix has them."""
    for changes, groups, names in (
        ({"multi_query": True}, 1, ("input_layernorm", "input_layernorm")),
        ({"multi_query": False}, 4, ("input_layernorm", "input_layernorm")),
        ({"multi_query": False, "parallel_attn": False}, 4, ("input_layernorm", "post_attention_layernorm")),
    ):
        values = json.loads((DECODERS_FOLDER / "falcon" / "config.json").read_text())
        family = FAMILIES["falcon"].model_validate(values | {"new_decoder_architecture": False} | changes)
        assert (family.groups, family.names.attend, family.names.feed) == (groups, *names)
        assert family.decoder.parallel == changes.get("parallel_attn", True)


def test_a_text_of_ones_own(tmp_path: Path) -> None:
    folder, text = decoder("llama", tmp_path), tmp_path / "own.txt"
    text.write_text("the sun is the east " * 10)
    model = pretrained.load(str(folder), text)
    assert (model.calibration + model.held_out) == text.read_text()
    text.write_text("a")
    with pytest.raises(LanguageError, match="has fewer than two tokens; calibrate with a longer one"):
        pretrained.load(str(folder), text)
    with pytest.raises(LanguageError, match="its own file; leave `calibrate` and `context` out"):
        pretrained.load("shakespeare", text)
    assert isinstance(pretrained.load("shakespeare"), LanguageModel)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    (
        "llama",
        {"model_type": "mamba"},
        r"config.json: model_type is 'mamba'; those that are read are bloom, cohere, falcon, ",
    ),
    ("bloom", {"apply_residual_connection_post_layernorm": True}, "_post_layernorm is True: Input should be False"),
    ("llama", {"model_type": "mixtral"}, r"its layers have experts, which are read from an .npz file only"),
    ("gemma3", {"model_type": "gemma3"}, r"it reads pictures, too; save its text model alone"),
    ("mpt", {"attn_config": {"alibi": False}}, "mpt/config.json: attn_config.alibi is False: Input should be True"),
    ("mpt", {"attn_config": {"qk_ln": True}}, "attn_config.qk_ln is True: Input should be False"),
    ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before is False: Input should be True"),
    ("opt", {"word_embed_proj_dim": 8}, "word_embed_proj_dim = 8: embeddings must be as wide as the rest, 16"),
    ("cohere", {"use_qk_norm": True}, "use_qk_norm is True: Input should be False"),
    ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers names 1 of 2 layers"),
    ("gemma2", {"layer_types": ["full_attention"]}, "layer_types names 1 of 2 layers"),
    (
        "gemma2",
        {"layer_types": ["full_attention", "linear"]},
        "layer_types.1 is 'linear': Input should be 'full_attent",
    ),
    ("llama", {"hidden_size": ...}, "config.json: hidden_size: Field required; take another model"),
    (
        "llama",
        {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        r"its weights are quantised already \(gptq\); take the model in floating point",
    ),
    ("llama", {"num_key_value_heads": 3}, "4 heads, 3 for keys, and a width of 16: heads must divide the width, those"),
    ("llama", {"head_dim": 3}, "4 heads of 3 numbers, of which 3 turn by the position: what turns must be pairs"),
    ("llama", {"head_dim": 8}, r"q_proj.weight' is \[16, 16\], must be \[32, 16\] by its config"),
    (
        "llama",
        {"rope_parameters": {"rope_type": "llama3"}},
        "positions scaled as 'llama3' need factor, low_freq_factor",
    ),
    (
        "llama3",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "factor": 2.0,
                "low_freq_factor": 2.0,
                "high_freq_factor": 2.0,
                "original_max_position_embeddings": 32,
            }
        },
        "low_freq_factor = 2.0 must be below high_freq_factor, which is 2.0",
    ),
    (
        "phi3",
        {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}},
        "short_factor has 1 numbers for 2 pairs of each head",
    ),
    ("llama", {"rope_parameters": {"rope_type": "own"}}, "rope_parameters.rope_type is 'own': Input should be"),
    ("llama", {"hidden_act": "xielu"}, "hidden_act is 'xielu': the chip computes relu, silu"),
    (
        "llama",
        {"intermediate_size": 25},
        r"'model.layers.0.mlp.gate_proj.weight' is \[24, 16\], must be \[25, 16\] by its",
    ),
    (
        "llama",
        {"architectures": ["LlamaForSequenceClassification"]},
        "architectures says LlamaForSequenceClassification, which gives no scores of next tokens",
    ),
    ("llama", {"num_hidden_layers": 5000}, "num_hidden_layers is 5000: Input should be less than or equal to 4096"),
    ("llama", {"rms_norm_eps": 1e308}, "rms_norm_eps is 1e.308: Input should be less than or equal to 1"),
    ("llama", {"rope_parameters": ..., "rope_theta": 1}, "rope_theta is 1: Input should be greater than 1"),
    ("llama", {"num_hidden_layers": 3}, "its weights have no 'model.layers.2.self_attn.q_proj.weight'; save the model"),
    ("gpt2", {"n_head": 3}, "3 heads, 3 for keys, and a width of 16: heads must divide the width"),
    ("gpt_neox", {"num_attention_heads": 16}, "16 heads of 1 numbers, of which 0 turn by the position"),
    (
        "llama",
        {"rope_scaling": {"rope_type": "default", "factor": 8.0}},
        "a factor of 8.0 without a rope_type that says what it is for",
    ),
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


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"


def test_names_of_a_hub_and_files_of_others(tmp_path: Path) -> None:
    with pytest.raises(LanguageError, match="comes as a folder with `hf download NAME --local-dir FOLDER`"):
        pretrained.load("roneneldan/TinyStories-1M")
    folder = decoder("llama", tmp_path)
    assert pretrained.is_stored(str(folder / checkpoint.WEIGHTS))
    assert pretrained.is_stored(str(folder / checkpoint.CONFIG))
    (folder / "other.npz").touch()
    assert not pretrained.is_stored(str(folder / "other.npz"))
    assert not pretrained.is_stored(str(folder / "nothing.safetensors"))


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
    for norm, where in (("model.norm", "'output'"), ("model.layers.0.post_attention_layernorm", "'0/")):
        far = np.full(16, 1e14 if where == "'0/" else 1e30, np.float32).tobytes()
        save(folder, some | {f"{norm}.weight": {"dtype": "F32", "shape": [16], "data": far}})
        refused(f"its numbers reach beyond 1e.15 in {where}")
    weights.rename(folder / "pytorch_model.bin")
    refused("only pytorch_model.bin, a pickle, which may run code; save the weights as safetensors")
    (folder / "pytorch_model.bin").rename(folder / "own.safetensors")
    refused("has no model.safetensors; if own.safetensors has the weights, rename it")
    (folder / "own.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    refused("the weights are in several files; bring all of them, and model.safetensors.index.json")
    index = {"weight_map": {f"{part}": f"model-0000{part}-of-00002.safetensors" for part in (1, 2)}}
    (folder / checkpoint.INDEX).write_text(json.dumps(index))
    refused("has no model-00002-of-00002.safetensors; the weights are in several files")
    (folder / checkpoint.INDEX).unlink()
    (folder / "model-00001-of-00002.safetensors").rename(folder / "model.gguf")
    refused("has no model.safetensors; name the file itself: .*model.gguf")
    (folder / "model.gguf").unlink()
    weights.write_text(POINTER)
    refused("it only stands for a file .Git LFS.; `git lfs pull` brings that")
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
    tokenizer.write_text(POINTER)
    refused("tokenizer.json: it only stands for a file .Git LFS.; `git lfs pull` brings that")
    tokenizer.write_text("{}")
    refused("is no tokenizer .*; save it again")
    tokenizer.unlink()
    refused("save the fast tokenizer beside the model: AutoTokenizer.from_pretrained[(]...")
    (folder / "tokenizer.model").touch()
    refused('AutoTokenizer.from_pretrained[(]"llama"[)].save_pretrained[(]"llama"[)] makes it of tokenizer.model')
    for content, text in ((b"[]", "is no table"), (b"{", "cannot be read"), (b"\xff", "cannot be read")):
        config.write_bytes(content)
        refused(text)
    config.unlink()
    refused("is missing; name the folder in which transformers' `save_pretrained` has put a model")
    (folder / "some.gguf").touch()
    refused("is missing; name the file itself: .*some.gguf")
    (folder / "some.gguf").unlink()
    (folder / "adapter_config.json").write_text("{}")
    refused(r"the folder has an adapter \(LoRA\) alone; save it merged into its model")


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    folder = decoder("llama", tmp_path)
    some = tensors(folder)
    rows = some["model.embed_tokens.weight"]
    rows |= {"shape": [40, 16], "data": rows["data"][: 40 * 16 * 2]}
    save(folder, some)
    with pytest.raises(
        LanguageError,
        match=r"has no embedding for token .* of its tokenizer; take the tokenizer that it was trained with$",
    ):
        pretrained.load(str(folder))


def test_pieces(tmp_path: Path) -> None:
    pieces = Pieces((decoder("llama", tmp_path) / checkpoint.TOKENIZER).read_bytes(), "tokenizer.json")
    assert pieces.size == 300
    for text in ("", "the sun", "caf\N{LATIN SMALL LETTER E WITH ACUTE}\n\N{SNOWMAN}"):
        assert pieces.text(pieces.tokens(text)) == text
    assert len(pieces.tokens("the sun is the east")) < 12, "several characters in a token"


def test_words_that_a_tokenizer_does_not_have(tmp_path: Path) -> None:
    words = Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="?"))
    words.save(str(tmp_path / "words.json"))
    pieces = Pieces((tmp_path / "words.json").read_bytes(), "words.json")
    assert pieces.tokens("a") == [0]
    with pytest.raises(ValueError, match="has no tokens for 'c': WordLevel error"):
        pieces.tokens("c")
    folder = decoder("llama", tmp_path)
    (tmp_path / "words.json").rename(folder / checkpoint.TOKENIZER)
    with pytest.raises(LanguageError, match="calibrate with a text like those that it was trained with"):
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
