"""Tiny GGUF files of the tiny decoders, with what llama.cpp computes of them, for the tests.

    python -m venv ggufs && ggufs/bin/pip install gguf==0.19.0 llama-cpp-python safetensors sentencepiece
    ggufs/bin/python scripts/tiny_ggufs.py tests/sched/workload/decoders tests/sched/workload/ggufs

turns the folders that `tiny_decoders.py` has written into GGUF files, as llama.cpp's own conversion does: one for each
architecture that `meshloom generate` reads, with weights of 16 bits, and one more of Llama's, whose tokens are pieces
with scores. `expected.npz` has tokens and the logits behind the last of them, both by llama.cpp. Nothing of Meshloom is
used.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import sentencepiece
from safetensors.numpy import load_file

TEXT = "ROMEO: But, soft! what light through yonder window breaks? It is the east, and Juliet is the sun."
PROMPT, KEPT = "what light is the sun?", 3
#: What is cut otherwise by each kind of tokenizer, and the kinds that are not GPT-2's.
ODD = "It's 2026:  12345 tokens,\n\n\tna\u00efve \u00bd \u65e5\u672c \U0001f642 they'LL  go!\r\n <end> "
CUTS = {
    "bloom": "bloom",
    "mpt": "mpt",
    "llama": "llama-bpe",
    "qwen2": "qwen2",
    "qwen3": "qwen2",
    "smollm3": "smollm",
    "starcoder2": "starcoder",
}
#: The shortest context of llama.cpp: for texts no longer than those of the training positions turn by other factors.
SHORTEST = 256
#: Architectures, and folders of their models.
ARCHITECTURES = (
    "bloom", "gemma", "gemma2", "gemma3", "gpt2", "llama", "mpt", "phi3", "qwen2", "qwen3", "smollm3", "starcoder2",
)  # fmt: skip
Tensor = np.ndarray[Any, Any]


def side_by_side(weights: Tensor, heads: int) -> Tensor:
    """Rows of each head, so that what turns together is side by side."""
    return weights.reshape(heads, 2, -1, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


def stored(architecture: str, name: str, weights: Tensor, config: dict[str, Any]) -> Tensor:
    """A tensor as llama.cpp has it."""
    heads = config.get("num_attention_heads", 0)
    if architecture in ("llama", "smollm3") and ("q_proj" in name or "k_proj" in name):
        return side_by_side(weights, config["num_key_value_heads"] if "k_proj" in name else heads)
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
        return weights + 1
    if architecture == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
        return weights.T
    if architecture == "bloom" and "query_key_value" in name:
        by_head = weights.reshape(config["n_head"], 3, -1, *weights.shape[1:])
        return by_head.swapaxes(0, 1).reshape(weights.shape)
    return weights


def name_of(architecture: str, name: str) -> str:
    """What the library knows a tensor by."""
    return name.removeprefix("transformer.") if architecture == "bloom" else name


def add_sizes(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """What the configuration says."""
    read: dict[str, tuple[Callable[[Any], None], tuple[str, ...]]] = {
        "context": (writer.add_context_length, ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")),
        "width": (writer.add_embedding_length, ("hidden_size", "n_embd", "d_model")),
        "layers": (writer.add_block_count, ("num_hidden_layers", "n_layer", "n_layers")),
        "heads": (writer.add_head_count, ("num_attention_heads", "n_head", "n_heads")),
        "hidden": (writer.add_feed_forward_length, ("intermediate_size",)),
        "groups": (writer.add_head_count_kv, ("num_key_value_heads",)),
        "head": (writer.add_key_length, ("head_dim",)),
        "value": (writer.add_value_length, ("head_dim",)),
        "rms": (writer.add_layer_norm_rms_eps, ("rms_norm_eps",)),
        "norm": (writer.add_layer_norm_eps, ("layer_norm_epsilon", "norm_epsilon")),
        "window": (writer.add_sliding_window, ("sliding_window",)),
        "cap": (writer.add_attn_logit_softcapping, ("attn_logit_softcapping",)),
        "last": (writer.add_final_logit_softcapping, ("final_logit_softcapping",)),
    }
    for add, names in read.values():
        value = next((config[name] for name in names if config.get(name) is not None), None)
        if value is not None:
            add(value)
    if config["model_type"] in ("bloom", "gpt2", "mpt"):
        writer.add_feed_forward_length(
            4 * next(config[name] for name in ("n_embd", "hidden_size", "d_model") if name in config)
        )
    if "attn_config" in config:
        writer.add_max_alibi_bias(config["attn_config"]["alibi_bias_max"])
    rotary = config.get("rope_parameters") or {}
    rotary = rotary.get("full_attention", rotary)
    if rotary:
        writer.add_rope_freq_base(rotary["rope_theta"])
        writer.add_rope_dimension_count(
            config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        )
    if rotary.get("rope_type") == "longrope":
        trained, longest = SHORTEST, 2 * SHORTEST
        writer.add_rope_scaling_orig_ctx_len(trained)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(longest / trained) / np.log(trained))))
        for name in ("long", "short"):
            writer.add_tensor(f"rope_factors_{name}.weight", np.array(rotary[f"{name}_factor"], np.float32))


def add_bytes(writer: gguf.GGUFWriter, folder: Path, cut: str) -> None:
    """The tokenizer of the folder: pairs of bytes."""
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cut)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]])
    writer.add_add_bos_token(False)
    writer.add_eos_token_id(5)


def add_pieces(writer: gguf.GGUFWriter, folder: Path) -> None:
    """Pieces of SentencePiece, trained with `TEXT`, and the 256 bytes."""
    prefix = folder / "pieces"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([TEXT] * 4), model_prefix=str(prefix), vocab_size=300, model_type="bpe",
        byte_fallback=True, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    count = pieces.get_piece_size()
    kinds = [
        gguf.TokenType.UNKNOWN if pieces.is_unknown(token)
        else gguf.TokenType.CONTROL if pieces.is_control(token)
        else gguf.TokenType.BYTE if pieces.is_byte(token)
        else gguf.TokenType.NORMAL
        for token in range(count)
    ]  # fmt: skip
    writer.add_tokenizer_model("llama")
    writer.add_token_list([pieces.id_to_piece(token) for token in range(count)] + [f"[{n}]" for n in range(count, 300)])
    writer.add_token_scores([pieces.get_score(token) for token in range(count)] + [-1000.0] * (300 - count))
    writer.add_token_types([*kinds, *[gguf.TokenType.UNUSED] * (300 - count)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for path in folder.glob("pieces.*"):
        path.unlink()


def convert(path: Path, folder: Path, architecture: str, kind: gguf.GGMLQuantizationType, pieces: bool) -> Path:
    """Writes a file of the folder's model. `kind`: of matrices."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, architecture)
    add_sizes(writer, config)
    if pieces:
        add_pieces(writer, path.parent)
    else:
        add_bytes(writer, folder.parent, CUTS.get(architecture, "gpt-2"))
    number = next(each for each, own in gguf.MODEL_ARCH_NAMES.items() if own == architecture)
    layers = next(config[name] for name in ("num_hidden_layers", "n_layer", "n_layers") if name in config)
    names = gguf.get_tensor_name_map(number, layers)
    for each, tensor in load_file(folder / "model.safetensors").items():
        weights = np.ascontiguousarray(stored(architecture, each, tensor.astype(np.float32), config))
        own = gguf.GGMLQuantizationType.F32 if weights.ndim == 1 else kind
        writer.add_tensor(
            names.get_name(name_of(architecture, each), try_suffixes=(".weight", ".bias")),
            gguf.quantize(weights, own),
            raw_dtype=own,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def spoken(path: Path) -> dict[str, Tensor]:
    """Tokens of the prompt, and the logits behind the last of them, by llama.cpp."""
    model = llama_cpp.Llama(str(path), n_ctx=32, logits_all=True, verbose=False, n_threads=1, type_k=0, type_v=0)
    tokens = model.tokenize(PROMPT.encode())
    model.eval(tokens)
    return {
        f"{path.stem}/tokens": np.array(tokens, np.int64),
        f"{path.stem}/odd": np.array(model.tokenize(ODD.encode()), np.int64),
        f"{path.stem}/logits": np.array(model.scores[: len(tokens)][-KEPT:], np.float32),
    }


def main() -> None:
    """Writes the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("decoders", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    decoders, out = options.decoders, options.out
    out.mkdir(parents=True, exist_ok=True)
    expected: dict[str, Tensor] = {}
    for name in (*ARCHITECTURES, "llama_pieces"):
        architecture, pieces = name.removesuffix("_pieces"), name.endswith("_pieces")
        path = out / f"{name}.gguf"
        # with weights of 16 bits llama.cpp rounds what they are multiplied by, too
        convert(path, decoders / architecture, architecture, gguf.GGMLQuantizationType.F32, pieces)
        expected |= spoken(path)
        convert(path, decoders / architecture, architecture, gguf.GGMLQuantizationType.F16, pieces)
    np.savez_compressed(out / "expected.npz", **expected)


if __name__ == "__main__":
    main()
