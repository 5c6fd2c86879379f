"""Tiny decoders as ONNX files, in the forms of the exporters that people use: weights of `language_models.decoder`, and
nodes and names as PyTorch's exporter (optimum) and ONNX Runtime GenAI write them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save_file

from .language_models import DECODERS_FOLDER

Reals = NDArray[Any]


def drawn(folder: Path, heads: int = 2, groups: int = 1, layers: int = 2, bias: bool = False) -> Path:
    """A folder with a Llama (with biases a Qwen 2) of random weights, whose heads have 16 numbers."""
    width, hidden, rng = 16 * heads, 24, np.random.default_rng(5)
    config = {
        "model_type": "qwen2" if bias else "llama", "hidden_size": width, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": groups, "intermediate_size": hidden, "vocab_size": 300,
        "max_position_embeddings": 48, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
    }  # fmt: skip
    sizes = {"model.embed_tokens.weight": (300, width), "model.norm.weight": (width,)}
    for layer in range(layers):
        own = f"model.layers.{layer}."
        sizes |= {f"{own}{name}_layernorm.weight": (width,) for name in ("input", "post_attention")}
        sizes |= {f"{own}self_attn.{name}_proj.weight": (16 * groups, width) for name in "kv"}
        sizes |= {f"{own}self_attn.{name}_proj.weight": (width, width) for name in "qo"}
        sizes |= {f"{own}mlp.{name}_proj.weight": (hidden, width) for name in ("gate", "up")}
        sizes |= {f"{own}mlp.down_proj.weight": (width, hidden)}
        if bias:
            sizes |= {f"{own}self_attn.{name}_proj.bias": (16 * (groups if name in "kv" else heads),) for name in "qkv"}
    weights = {
        name: (rng.normal(size=size) * 0.3 + (len(size) == 1)).astype(np.float32) for name, size in sizes.items()
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors")
    shutil.copy(DECODERS_FOLDER / "tokenizer.json", folder)
    return folder


class Graph:
    """Nodes named by their modules, with results named after them."""

    def __init__(self, config: dict[str, Any], weights: dict[str, Reals], named: bool = True) -> None:
        self.config, self.weights, self.named = config, weights, named
        self.nodes: list[Any] = []
        self.tensors: dict[str, Reals] = {}
        self.count = 0
        self.heads, self.width = config["num_attention_heads"], config["hidden_size"]
        self.groups = config.get("num_key_value_heads") or self.heads
        self.each = config.get("head_dim") or self.width // self.heads
        self.layers = config["num_hidden_layers"]

    def op(self, kind: str, place: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        self.count += 1
        name = f"/{place.replace('.layers.', '/layers.').replace('.', '/')}/{kind}_{self.count}" if self.named else ""
        name = name.replace("/layers/", "/layers.")
        results = [f"{name or 'value'}_{self.count}_output_{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, results, name, **attributes))
        return results[0]

    def constant(self, array: Any, name: str = "") -> str:
        name = name or f"onnx::Constant_{len(self.tensors)}"
        self.tensors[name] = np.asarray(array)
        return name

    def linear(self, place: str, x: str) -> str:
        """As the exporter has it: weights turned round, under a number."""
        y = self.op("MatMul", place, x, self.constant(self.weights[f"{place}.weight"].T, f"onnx::MatMul_{self.count}"))
        bias = f"{place}.bias"
        return self.op("Add", place, self.constant(self.weights[bias], bias), y) if bias in self.weights else y

    def save(self, path: Path, inputs: list[Any], outputs: list[Any], **options: Any) -> None:
        tensors = [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in self.tensors.items()]
        graph = helper.make_graph(self.nodes, "main_graph", inputs, outputs, tensors)
        sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=sets, ir_version=9)
        path.parent.mkdir(exist_ok=True)
        onnx.save(model, str(path), **options)


def exported(folder: Path, path: Path, *, named: bool = True, folded: float = 0.0, **options: Any) -> None:
    """A decoder like Llama's, of the weights and the configuration of a folder, with a cache. `named`: nodes say whose
    they are; `folded`: what gains have in the file's place, under a number."""
    config = json.loads((folder / "config.json").read_text())
    g = Graph(config, load_file(folder / "model.safetensors"), named)
    ids, where = "input_ids", "position_ids"
    table = g.constant(g.weights["model.embed_tokens.weight"].astype(np.float32), "model.embed_tokens.weight")
    x = g.op("Gather", "model.embed_tokens", table, ids)
    if factor := config.get("embedded"):
        x = g.op("Mul", "model", x, g.constant(np.float32(factor)))
    theta = (config.get("rope_parameters") or config).get("rope_theta", 10000.0)
    turns = theta ** (-np.arange(0, g.each, 2, dtype=np.float64) / g.each)
    at = g.op("Unsqueeze", "model.rotary_emb", g.op("Cast", "model.rotary_emb", where, to=1), g.constant(np.array([2])))
    angles = g.op("Mul", "model.rotary_emb", at, g.constant(turns.astype(np.float32)))
    angles = g.op(
        "Unsqueeze", "model.rotary_emb", g.op("Concat", "m", angles, angles, axis=-1), g.constant(np.array([1]))
    )
    cos, sin = g.op("Cos", "model.rotary_emb", angles), g.op("Sin", "model.rotary_emb", angles)
    total = g.op("Gather", "model", g.op("Shape", "model", "attention_mask"), g.constant(np.array(1)), axis=0)
    keys = g.op("Range", "model", g.constant(np.array(0)), total, g.constant(np.array(1)))
    later = g.op(
        "Greater",
        "model",
        g.op("Unsqueeze", "m", keys, g.constant(np.array([0]))),
        g.op("Unsqueeze", "m", where, g.constant(np.array([2]))),
    )
    mask = g.op("Where", "model", later, g.constant(np.float32(-1e30)), g.constant(np.float32(0)))
    mask = g.op("Unsqueeze", "model", mask, g.constant(np.array([1])))
    epsilon = config.get("rms_norm_eps", 1e-6)
    present: list[str] = []

    def norm(place: str, x: str) -> str:
        square = g.op("Pow", place, x, g.constant(np.float32(2)))
        mean = g.op("ReduceMean", place, square, axes=[-1])
        root = g.op("Sqrt", place, g.op("Add", place, mean, g.constant(np.float32(epsilon))))
        gains = g.weights[f"{place}.weight"].astype(np.float32)
        name = f"onnx::Mul_{g.count}" if folded else f"{place}.weight"
        return g.op("Mul", place, g.constant(gains + np.float32(folded), name), g.op("Div", place, x, root))

    def turned(place: str, x: str) -> str:
        half = g.each // 2
        low = g.op("Slice", place, x, *(g.constant(np.array([v])) for v in (0, half, -1)))
        high = g.op("Slice", place, x, *(g.constant(np.array([v])) for v in (half, 1 << 30, -1)))
        swapped = g.op("Concat", place, g.op("Neg", place, high), low, axis=-1)
        return g.op("Add", place, g.op("Mul", place, x, cos), g.op("Mul", place, swapped, sin))

    for layer in range(g.layers):
        place = f"model.layers.{layer}"
        attn, read = f"{place}.self_attn", norm(f"{place}.input_layernorm", x)
        parts: dict[str, str] = {}
        for name, count in (("q", g.heads), ("k", g.groups), ("v", g.groups)):
            part = g.op(
                "Reshape", attn, g.linear(f"{attn}.{name}_proj", read), g.constant(np.array([0, 0, count, g.each]))
            )
            part = g.op("Transpose", attn, part, perm=[0, 2, 1, 3])
            parts[name] = part if name == "v" else turned(attn, part)
        for name, kind in (("k", "key"), ("v", "value")):
            whole = g.op("Concat", attn, f"past_key_values.{layer}.{kind}", parts[name], axis=2)
            g.nodes.append(helper.make_node("Identity", [whole], [f"present.{layer}.{kind}"]))
            present.append(f"present.{layer}.{kind}")
            wide = g.op("Unsqueeze", attn, whole, g.constant(np.array([2])))
            wide = g.op("Tile", attn, wide, g.constant(np.array([1, 1, g.heads // g.groups, 1, 1])))
            parts[name] = g.op("Reshape", attn, wide, g.constant(np.array([0, g.heads, -1, g.each])))
        scores = g.op("MatMul", attn, parts["q"], g.op("Transpose", attn, parts["k"], perm=[0, 1, 3, 2]))
        scores = g.op("Mul", attn, scores, g.constant(np.float32(g.each**-0.5)))
        shares = g.op("Softmax", attn, g.op("Add", attn, scores, mask), axis=-1)
        mixed = g.op("Transpose", attn, g.op("MatMul", attn, shares, parts["v"]), perm=[0, 2, 1, 3])
        mixed = g.op("Reshape", attn, mixed, g.constant(np.array([0, 0, g.heads * g.each])))
        x = g.op("Add", place, x, g.linear(f"{attn}.o_proj", mixed))
        read = norm(f"{place}.post_attention_layernorm", x)
        gate = g.linear(f"{place}.mlp.gate_proj", read)
        if "gelu" in config.get("hidden_act", "silu"):
            act = _gelu(g, f"{place}.mlp.act_fn", gate)
        else:
            act = g.op("Mul", f"{place}.mlp.act_fn", gate, g.op("Sigmoid", f"{place}.mlp.act_fn", gate))
        hidden = g.op("Mul", f"{place}.mlp", act, g.linear(f"{place}.mlp.up_proj", read))
        x = g.op("Add", place, x, g.linear(f"{place}.mlp.down_proj", hidden))
    x = norm("model.norm", x)
    head = g.weights.get("lm_head.weight", g.weights["model.embed_tokens.weight"])
    logits = g.op("MatMul", "lm_head", x, g.constant(head.astype(np.float32).T, f"onnx::MatMul_{g.count}"))
    g.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
    g.tensors = {name: _single(array) for name, array in g.tensors.items()}
    g.save(path, *_ends(g, present), **options)


def gpt2(folder: Path, path: Path, **options: Any) -> None:
    """A GPT-2 without a cache: its layers' weights are [inputs, outputs] and keep their names."""
    config = json.loads((folder / "config.json").read_text())
    names = {"num_attention_heads": "n_head", "hidden_size": "n_embd", "num_hidden_layers": "n_layer"}
    weights = {
        name.removeprefix("transformer."): array for name, array in load_file(folder / "model.safetensors").items()
    }
    g = Graph({own: config[name] for own, name in names.items()}, weights)

    def own(name: str) -> str:
        return g.constant(g.weights[name].astype(np.float32), f"transformer.{name}")

    def norm(place: str, x: str) -> str:
        return g.op(
            "LayerNormalization", f"transformer.{place}", x, own(f"{place}.weight"), own(f"{place}.bias"), axis=-1
        )

    def gemm(place: str, x: str) -> str:
        size = g.weights[f"{place}.bias"].shape[0]
        flat = g.op(
            "Reshape", f"transformer.{place}", x, g.constant(np.array([-1, g.weights[f"{place}.weight"].shape[0]]))
        )
        y = g.op("Gemm", f"transformer.{place}", flat, own(f"{place}.weight"), own(f"{place}.bias"))
        return g.op("Reshape", f"transformer.{place}", y, g.constant(np.array([1, -1, size])))

    x = g.op("Add", "transformer", g.op("Gather", "transformer.wte", own("wte.weight"), "input_ids"),
             g.op("Gather", "transformer.wpe", own("wpe.weight"), "position_ids"))  # fmt: skip
    keys = g.op("Unsqueeze", "t", "position_ids", g.constant(np.array([1])))
    later = g.op("Greater", "t", keys, g.op("Unsqueeze", "t", "position_ids", g.constant(np.array([2]))))
    mask = g.op("Where", "t", later, g.constant(np.float32(-1e30)), g.constant(np.float32(0)))
    for layer in range(g.layers):
        place = f"h.{layer}"
        fused = gemm(f"{place}.attn.c_attn", norm(f"{place}.ln_1", x))
        fused = g.op("Reshape", place, fused, g.constant(np.array([0, 0, 3 * g.heads, g.each])))
        fused = g.op("Transpose", place, fused, perm=[0, 2, 1, 3])
        q, k, v = (
            g.op("Slice", place, fused, *(g.constant(np.array([n])) for n in (at * g.heads, (at + 1) * g.heads, 1)))
            for at in range(3)
        )
        scores = g.op("MatMul", place, q, g.op("Transpose", place, k, perm=[0, 1, 3, 2]))
        scores = g.op("Add", place, g.op("Mul", place, scores, g.constant(np.float32(g.each**-0.5))), mask)
        mixed = g.op("MatMul", place, g.op("Softmax", place, scores, axis=-1), v)
        mixed = g.op(
            "Reshape", place, g.op("Transpose", place, mixed, perm=[0, 2, 1, 3]), g.constant(np.array([0, 0, -1]))
        )
        x = g.op("Add", place, x, gemm(f"{place}.attn.c_proj", mixed))
        hidden = _gelu(g, f"transformer.{place}.mlp.act", gemm(f"{place}.mlp.c_fc", norm(f"{place}.ln_2", x)))
        x = g.op("Add", place, x, gemm(f"{place}.mlp.c_proj", hidden))
    head = g.constant(g.weights["wte.weight"].astype(np.float32).T, "onnx::MatMul_999")
    logits = g.op("MatMul", "lm_head", norm("ln_f", x), head)
    g.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
    g.tensors = {name: _single(array) for name, array in g.tensors.items()}
    inputs, outputs = _ends(g, [])
    g.save(path, [each for each in inputs if each.name in ("input_ids", "position_ids")], outputs, **options)


def genai(folder: Path, path: Path, *, packed: bool = True, bits: int = 0, more: float = 0.0, **options: Any) -> None:
    """The same by ONNX Runtime's own operators, as ONNX Runtime GenAI has it. `packed`: queries, keys and values are
    one product; `bits`: of weights in blocks, 0 for floats; `more`: what gains in the file are more."""
    config = json.loads((folder / "config.json").read_text())
    g = Graph(config, load_file(folder / "model.safetensors"))
    layers, present = g.layers, list[str]()

    def node(kind: str, place: str, name: str, *inputs: str, outputs: tuple[str, ...] = (), **attributes: Any) -> str:
        full = f"/{place.replace('.layers.', '/layers/').replace('.', '/').replace('layers/', 'layers.')}/{name}"
        results = outputs or (f"{full}/output_0",)
        domain = (
            ""
            if kind in ("MatMul", "Mul", "Sigmoid", "Gather", "Add", "SimplifiedLayerNormalization")
            else "com.microsoft"
        )
        g.nodes.append(helper.make_node(kind, inputs, results, full, domain=domain, **attributes))
        return next(result for result in reversed(results) if result) if kind.startswith("Skip") else results[0]

    def linear(place: str, x: str, *sources: str) -> str:
        w = np.concatenate([g.weights[f"{source}.weight"] for source in sources]).astype(np.float32)
        if bits:
            y = node("MatMulNBits", place, f"MatMul_Q{bits}", x, *_blocks(g, place, w, bits),
                     K=w.shape[1], N=len(w), bits=bits, block_size=16)  # fmt: skip
        else:
            y = node("MatMul", place, "MatMul", x, g.constant(w.T, f"{place}.MatMul.weight"))
        if f"{sources[0]}.bias" not in g.weights:
            return y
        bias = np.concatenate([g.weights[f"{source}.bias"] for source in sources]).astype(np.float32)
        return node("Add", place, "Add", y, g.constant(bias, f"{place}.Add.bias"))

    def gains(source: str, name: str) -> str:
        return g.constant(g.weights[source].astype(np.float32) + np.float32(more), name)

    for name, number in (("one", 1), ("axis", [1])):
        g.constant(np.array(number), name)
    lengths = [
        helper.make_node(
            "ReduceSum", ["attention_mask", "axis"], ["sums"], "/model/attn_mask_reformat/ReduceSum", keepdims=0
        ),
        helper.make_node("Sub", ["sums", "one"], ["less"], "/model/attn_mask_reformat/Sub"),
        helper.make_node("Cast", ["less"], ["seqlens_k"], "/model/attn_mask_reformat/Cast", to=6),
        helper.make_node("Shape", ["attention_mask"], ["shape"], "/model/attn_mask_reformat/Shape"),
        helper.make_node("Gather", ["shape", "one"], ["total_64"], "/model/attn_mask_reformat/Gather"),
        helper.make_node("Cast", ["total_64"], ["total"], "/model/attn_mask_reformat/Cast_1", to=6),
    ]
    g.nodes += lengths
    theta = (config.get("rope_parameters") or config).get("rope_theta", 10000.0)
    turns = np.outer(np.arange(64), theta ** (-np.arange(0, g.each, 2, dtype=np.float64) / g.each))
    cos, sin = (
        g.constant(f(turns).astype(np.float32), name) for f, name in ((np.cos, "cos_cache"), (np.sin, "sin_cache"))
    )
    epsilon = config.get("rms_norm_eps", 1e-6)
    table = g.constant(g.weights["model.embed_tokens.weight"].astype(np.float32), "model.embed_tokens.weight")
    root = node("Gather", "model.embed_tokens", "Gather", table, "input_ids")
    if factor := config.get("embedded"):
        root = node("Mul", "model.embed_tokens", "Mul", root, g.constant(np.float32(factor)))
    place = "model.layers.0.input_layernorm"
    read = node("SimplifiedLayerNormalization", place, "LayerNorm", root, gains(f"{place}.weight", f"{place}.weight"),
                axis=-1, epsilon=epsilon)  # fmt: skip
    for layer in range(layers):
        place, own = f"model.layers.{layer}", f"model.layers.{layer}.self_attn"
        if packed:
            parts = (linear(f"{place}.attn.qkv_proj", read, *(f"{own}.{name}_proj" for name in "qkv")), "", "")
        else:
            parts = tuple(linear(f"{place}.attn.{name}_proj", read, f"{own}.{name}_proj") for name in "qkv")
        ends = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        present += ends
        mixed = node(
            "GroupQueryAttention", f"{place}.attn", "GroupQueryAttention", *parts,
            *(f"past_key_values.{layer}.{kind}" for kind in ("key", "value")), "seqlens_k", "total", cos, sin,
            outputs=(f"/{place}/attn/output_0", *ends), num_heads=g.heads, kv_num_heads=g.groups, do_rotary=1,
            scale=g.each**-0.5,
        )  # fmt: skip
        added = linear(f"{place}.attn.o_proj", mixed, f"{own}.o_proj")
        for step in range(2):
            last = step and layer == layers - 1
            name = "post_attention_layernorm" if not step else "input_layernorm"
            name = f"model.layers.{layer + step}.{'final_norm_layernorm' if last else name}"
            read, following = f"/{name}/output_0", f"/{name}/output_3"
            source = "model.norm.weight" if last else f"{name}.weight"
            node("SkipSimplifiedLayerNormalization", name, "SkipLayerNorm", root, added,
                 gains(source, f"{name}.weight"), outputs=(read, "", "", following), epsilon=epsilon)  # fmt: skip
            root = following
            if not step:
                mlp = f"{place}.mlp"
                gate = linear(f"{mlp}.gate_proj", read, f"{mlp}.gate_proj")
                up = linear(f"{mlp}.up_proj", read, f"{mlp}.up_proj")
                act = node("Mul", f"{mlp}.act_fn", "Mul", gate, node("Sigmoid", f"{mlp}.act_fn", "Sigmoid", gate))
                added = linear(f"{mlp}.down_proj", node("Mul", mlp, "Mul", act, up), f"{mlp}.down_proj")
    head = "lm_head.weight" if "lm_head.weight" in g.weights else "model.embed_tokens.weight"
    w = g.constant(g.weights[head].astype(np.float32).T, "lm_head.MatMul.weight")
    node("MatMul", "lm_head", "MatMul", read, w, outputs=("logits",))
    g.tensors = {name: _single(array) for name, array in g.tensors.items()}
    inputs, outputs = _ends(g, present)
    g.save(path, [each for each in inputs if each.name != "position_ids"], outputs, **options)


def _blocks(g: Graph, place: str, w: Reals, bits: int) -> list[str]:
    """Weights [N, K] in blocks of 16 with a scale each, and how far they are from the file's."""
    count, depth = w.shape
    blocks = -(-depth // 16)
    wide = np.pad(w, ((0, 0), (0, blocks * 16 - depth))).reshape(count, blocks, 16)
    scales = np.abs(wide).max(axis=2) / (2 ** (bits - 1) - 1)
    numbers = (np.rint(wide / np.maximum(scales, 1e-9)[..., None]) + 2 ** (bits - 1)).astype(np.uint8)
    packed = numbers if bits == 8 else numbers[..., ::2] | numbers[..., 1::2] << 4
    return [
        g.constant(packed, f"{place}.MatMul.weight_Q{bits}"),
        g.constant(scales.astype(np.float32).reshape(-1), f"{place}.MatMul.weight_scales"),
    ]


def _gelu(g: Graph, place: str, x: str) -> str:
    cubed = g.op("Mul", place, g.op("Pow", place, x, g.constant(np.float32(3))), g.constant(np.float32(0.044715)))
    inner = g.op("Mul", place, g.op("Add", place, x, cubed), g.constant(np.float32(np.sqrt(2 / np.pi))))
    more = g.op("Add", place, g.op("Tanh", place, inner), g.constant(np.float32(1)))
    return g.op("Mul", place, g.op("Mul", place, x, g.constant(np.float32(0.5))), more)


def _single(array: Reals) -> Reals:
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _ends(g: Graph, present: list[str]) -> tuple[list[Any], list[Any]]:
    numbers = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch_size", size])
        for name, size in (
            ("input_ids", "sequence_length"),
            ("attention_mask", "total"),
            ("position_ids", "sequence_length"),
        )
    ]
    sizes = ["batch_size", g.groups, "past_sequence_length", g.each]
    past = [
        helper.make_tensor_value_info(f"past_key_values.{layer}.{kind}", TensorProto.FLOAT, sizes)
        for layer in range(g.layers)
        for kind in ("key", "value")
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", "sequence_length", None])]
    more = ["batch_size", g.groups, "total", g.each]
    return [*numbers, *past], [
        *outputs,
        *(helper.make_tensor_value_info(name, TensorProto.FLOAT, more) for name in present),
    ]
