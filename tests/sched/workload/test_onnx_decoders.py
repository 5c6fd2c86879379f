"""Decoders as ONNX files beside a configuration: their weights are those of the folder that they were made of, whatever
the exporter calls them; what cannot be read, or computes something else, is one error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from meshloom.sched.workload.language import onnx_file, onnx_model, pretrained
from meshloom.sched.workload.language.model import LanguageError, LanguageModel

from ..language_models import decoder
from ..onnx_decoders import drawn, exported, genai, gpt2

FILES = Path(__file__).parent / "onnx_decoders"


def read(folder: Path, file: Path | None = None) -> tuple[LanguageModel, LanguageModel]:
    """The model of a folder's safetensors, and that of its ONNX file when these are gone."""
    whole = pretrained.load(str(folder))
    (folder / "model.safetensors").unlink()
    return whole, pretrained.load(str(file or folder))


def differs(one: LanguageModel, other: LanguageModel) -> float:
    """The largest difference of their weights, of each tensor in parts of its largest number."""
    assert one.arrays.keys() == other.arrays.keys()
    return max(
        float(np.abs(one.arrays[name] - other.arrays[name]).max() / np.abs(one.arrays[name]).max())
        for name in one.arrays
    )


@pytest.mark.parametrize(
    ("family", "options"),
    [("llama", {}), ("qwen2", {}), ("llama", {"named": False}), ("gemma", {"folded": 1.0})],
)
def test_what_optimum_exports(family: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Weights of products are turned round, and called by numbers: their nodes say whose they are, or their order.
    Gains to which Gemma adds 1 have it already."""
    folder = decoder(family, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    more = {"embedded": config["hidden_size"] ** 0.5, "hidden_act": "gelu_pytorch_tanh"} if family == "gemma" else {}
    (folder / "config.json").write_text(json.dumps(config | more))
    exported(folder, folder / "onnx" / "model.onnx", **options)
    (folder / "config.json").write_text(json.dumps(config))
    whole, model = read(folder)
    assert differs(whole, model) == 0
    assert (model.name, model.ends) == (whole.name, whole.ends)


def test_a_scale_stands_where_its_product_does(tmp_path: Path) -> None:
    folder = decoder("llama", tmp_path)
    path = folder / "model.onnx"
    exported(folder, path)
    model = onnx.load(path)
    nodes = model.graph.node
    at, product = next(
        (at, node) for at, node in enumerate(nodes) if node.name.startswith("/model/layers.0/self_attn/q_proj/MatMul")
    )
    scale = numpy_helper.from_array(
        np.ones(json.loads((folder / "config.json").read_text())["hidden_size"], np.float32), "onnx::Mul_0"
    )
    model.graph.initializer.append(scale)
    nodes.insert(
        at, helper.make_node("Mul", [product.input[0], scale.name], ["scaled"], product.name.replace("MatMul", "Mul"))
    )
    product.input[0] = "scaled"
    onnx.save(model, path)
    assert differs(*read(folder)) == 0


def test_weights_that_are_no_other_way_round(tmp_path: Path) -> None:
    """Those of GPT-2, [inputs, outputs], with their own names; without a cache, by the name of the file."""
    folder = decoder("gpt2", tmp_path)
    gpt2(folder, folder / "decoder_model.onnx")
    assert differs(*read(folder, folder / "decoder_model.onnx")) < 1e-6


@pytest.mark.parametrize("path", sorted(FILES.iterdir()), ids=lambda path: path.stem)
def test_files_of_exporters(path: Path, tmp_path: Path) -> None:
    """As PyTorch's exporters write them (`scripts/tiny_onnx_decoders.py`), also in integers: the newer one names
    neither nodes nor what it has turned round or added to, and the embedding like the product that it is tied to."""
    folder = decoder(path.stem.partition("_")[0], tmp_path)
    shutil.copy(path, folder / "model.onnx")
    quantize_dynamic(path, folder / "model_uint8.onnx", weight_type=QuantType.QUInt8, per_channel=True)
    whole, model = read(folder)
    assert differs(whole, model) < 1e-6
    assert differs(whole, pretrained.load(str(folder / "model_uint8.onnx"))) < 0.02


@pytest.mark.parametrize("options", [{}, {"packed": False}, {"bias": True}, {"bits": 4}, {"bits": 8}])
def test_what_genai_writes(options: dict[str, Any], tmp_path: Path) -> None:
    """Queries, keys and values are one product or three, weights may have four or eight bits in blocks."""
    folder = drawn(tmp_path / "mine", heads=6, groups=3, bias=options.pop("bias", False))
    genai(folder, folder / "decoder.onnx", **options)
    (folder / "other.onnx").write_bytes(b"none")
    (folder / "genai_config.json").write_text('{"model": {"decoder": {"filename": "decoder.onnx"}}}')
    assert differs(*read(folder)) <= {4: 0.5, 8: 0.03}.get(options.get("bits", 0), 0)


def test_genai_without_a_configuration_of_transformers(tmp_path: Path) -> None:
    """Its own has sizes; rotary positions and epsilons are in the file."""
    folder = drawn(tmp_path / "mine", heads=6, groups=3)
    genai(folder, folder / "model.onnx")
    whole = pretrained.load(str(folder))
    for name in ("model.safetensors", "config.json"):
        (folder / name).unlink()
    sizes = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3}
    decoder = sizes | {"head_size": 16, "filename": "model.onnx"}
    table = {"type": "llama", "context_length": 48, "eos_token_id": [7, 8], "decoder": decoder}
    (folder / "genai_config.json").write_text(json.dumps({"model": table}))
    model = pretrained.load(str(folder))
    assert differs(whole, model) < 1e-5
    assert (model.ends, model.context, model.epsilon) == ((7, 8), 48, pytest.approx(1e-5))
    assert model.rotary[0] is not None
    assert model.rotary == whole.rotary
    (folder / "genai_config.json").write_text(json.dumps({"model": table | {"eos_token_id": "end"}}))
    with pytest.raises(LanguageError, match=r"genai_config.json: eos_token_id is 'end'"):
        pretrained.load(str(folder))


@pytest.mark.parametrize("packed", [True, False])
def test_products_that_are_one_in_the_model(packed: bool, tmp_path: Path) -> None:
    """Phi 3's queries, keys and values, and gates, as GenAI has them: together or apart."""
    folder = drawn(tmp_path / "mine", heads=4, groups=2)
    genai(folder, folder / "model.onnx", packed=packed)
    whole = pretrained.load(str(folder))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "phi3"}))
    assert differs(whole, pretrained.load(str(folder / "model.onnx"))) == 0


def _outside(source: Path, path: Path) -> None:
    onnx.save(onnx.load(source), str(path), save_as_external_data=True, location="weights", size_threshold=100)


def _half(source: Path, path: Path) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source)), str(path))


def _optimised(source: Path, path: Path) -> None:
    import onnxruntime

    runtime: Any = onnxruntime
    options = runtime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 4
    runtime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def _in_choices(source: Path, path: Path) -> None:
    """With a cache or without, as in decoder_model_merged.onnx."""
    model = onnx.load(source)
    graph = model.graph
    made = [helper.make_tensor_value_info(value.name, 0, None) for value in graph.output]
    bodies = [helper.make_graph(list(graph.node), name, [], list(graph.output)) for name in ("with", "without")]
    for body in bodies:
        for node in body.node:
            for names in (node.input, node.output):
                for at, name in enumerate(names):
                    if name in {value.name for value in graph.output} or "/" in name:
                        names[at] = f"{body.name}:{name}"
        for value in body.output:
            value.name = f"{body.name}:{value.name}"
    choice = helper.make_node("If", ["use_cache_branch"], [value.name for value in made], "optimum::if")
    choice.attribute.extend(
        helper.make_attribute(name, body) for name, body in zip(("then_branch", "else_branch"), bodies, strict=True)
    )
    choice.input[:] = ["use"]
    del graph.node[:]
    flag = helper.make_node("Squeeze", ["use_cache_branch"], ["use"])
    graph.node.extend([flag, choice])
    graph.input.append(helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1]))
    onnx.save(model, str(path))


@pytest.mark.parametrize(
    ("name", "make", "far"),
    [
        ("model_quantized", lambda a, b: quantize_dynamic(a, b, weight_type=QuantType.QInt8), 0.02),
        ("model_uint8", lambda a, b: quantize_dynamic(a, b, weight_type=QuantType.QUInt8, per_channel=True), 0.02),
        ("model_fp16", _half, 1e-3),
        ("mine", _outside, 0),
        ("optimised", _optimised, 1e-6),
        ("decoder_model_merged", _in_choices, 0),
    ],
)
def test_variants(name: str, make: Any, far: float, tmp_path: Path) -> None:
    """As ONNX Runtime's quantisers, converters and optimiser write them; one way of two in a merged file."""
    folder = decoder("llama", tmp_path)
    exported(folder, tmp_path / "whole" / "model.onnx")
    (folder / "onnx").mkdir()
    make(tmp_path / "whole" / "model.onnx", folder / "onnx" / f"{name}.onnx")
    assert differs(*read(folder)) <= far


def test_which_file_of_a_folder_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    (folder / "onnx").mkdir(parents=True)
    assert onnx_model.file_of(folder) is None
    for name in ("model_q4", "model_fp16", "model", "extra"):
        (folder / "onnx" / f"{name}.onnx").write_bytes(b"")
    assert onnx_model.file_of(folder) == folder / "onnx" / "model.onnx"
    assert onnx_model.file_of(folder / "onnx" / "extra.onnx") == folder / "onnx" / "extra.onnx"
    (folder / "onnx" / "model.onnx").unlink()
    assert onnx_model.file_of(folder) == folder / "onnx" / "model_fp16.onnx"
    (folder / "model.safetensors").write_bytes(b"")
    assert onnx_model.file_of(folder) is None, "weights as they were trained come first"


def test_what_cannot_be_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = drawn(tmp_path / "mine", layers=1)
    file = folder / "model.onnx"
    exported(folder, file)
    (folder / "model.safetensors").rename(tmp_path / "kept")
    whole, config = file.read_bytes(), json.loads((folder / "config.json").read_text())

    def refused(text: str, path: Path = folder) -> None:
        with pytest.raises(LanguageError, match=text):
            pretrained.load(str(path))

    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}))
    refused(r"model.onnx: ONNX Runtime's scores of 12 tokens are .* the file does not compute what .*config.json says")
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    refused("its weights have no 'model.layers.1.* take the file that optimum exports")
    (folder / "config.json").unlink()
    refused("has no config.json beside it, which says what the model computes")
    (folder / "config.json").write_text(json.dumps(config))
    file.write_bytes(whole[:1000])
    refused("model.onnx: is no whole ONNX file .*; fetch or export it again")
    file.write_bytes(b"")
    refused(r"is no whole ONNX file \(it has no nodes\)")
    refused("none.onnx: cannot be read", folder / "none.onnx")
    changed = onnx.load_from_string(whole)
    changed.graph.output[0].name = changed.graph.node[-1].output[0] = "scores"
    onnx.save(changed, file)
    refused("has no output 'logits'; export it as a language model")
    changed = onnx.load_from_string(whole)
    changed.graph.input.append(helper.make_tensor_value_info("pixel_values", 1, [1, 3, 8, 8]))
    onnx.save(changed, file)
    refused("has an input 'pixel_values', which is not known here")
    changed = onnx.load_from_string(whole)
    changed.graph.node[3].op_type = "Nothing"
    onnx.save(changed, file)
    refused("ONNX Runtime cannot run it .*; take another of its variants")
    monkeypatch.setattr(onnx_file, "_MOST_BYTES", 100)
    refused("has more than 0 MiB; take a smaller model")
    monkeypatch.undo()
    _outside_of(whole, file)
    monkeypatch.setattr(onnx_file, "_MOST_BYTES", file.stat().st_size)
    refused("has weights of more than 0 MiB; take a smaller model")
    monkeypatch.undo()
    shutil.copy(file, folder / "one.onnx")
    file.rename(folder / "two.onnx")
    refused("has one.onnx, two.onnx; name the one that is the language model")
    (folder / "encoder_model.onnx").write_bytes(b"")
    refused("is an encoder with a decoder, and a step of a text reads what it has written alone")


def _outside_of(whole: bytes, file: Path) -> None:
    model = onnx.load_from_string(whole)
    onnx.save(model, str(file), save_as_external_data=True, location="weights", size_threshold=100)


def test_integers_without_a_scale(tmp_path: Path) -> None:
    folder = decoder("llama", tmp_path)
    exported(folder, tmp_path / "whole" / "model.onnx")
    quantize_dynamic(tmp_path / "whole" / "model.onnx", folder / "model.onnx")
    (folder / "model.safetensors").unlink()
    model = onnx.load(folder / "model.onnx")
    for node in model.graph.node:
        for at, name in enumerate(node.input):
            node.input[at] = name.replace("_scale", "_steps")
    for item in model.graph.initializer:
        item.name = item.name.replace("_scale", "_steps")
    onnx.save(model, folder / "model.onnx")
    with pytest.raises(
        LanguageError, match=r"MatMulInteger .*: the scale of its weights .* is not found; take the file in"
    ):
        pretrained.load(str(folder))
