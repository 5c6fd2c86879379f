"""Tiny decoders as transformers saves them, with what transformers computes of them, for the tests.

    python -m venv decoders && decoders/bin/pip install torch==2.13.0 transformers==5.24.0
    decoders/bin/python scripts/tiny_decoders.py tests/sched/workload/decoders

writes a folder for one or two models of each family that `meshloom generate` reads: random weights of 16 bits, two
layers of width 16, the configuration, and `expected.npz` with tokens and the logits behind the last of them.
`tokenizer.json`, a byte pair encoding with 300 tokens, is the same for all and lies beside the folders; `rotary.json`
has frequencies of stretched rotary positions. Nothing of Meshloom is used.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

TEXT = "ROMEO: But, soft! what light through yonder window breaks? It is the east, and Juliet is the sun."
TOKENS, WIDTH, HEADS, LAYERS, CONTEXT = 300, 16, 4, 2, 48
#: What the logits are of, and behind how many of its last tokens they are kept.
PROMPT, KEPT = "what light is the sun?", 3


def tokenizer() -> Tokenizer:
    """A byte pair encoding, trained with `TEXT`."""
    result = Tokenizer(models.BPE())
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    result.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    result.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=TOKENS, initial_alphabet=alphabet))
    return result


COMMON = {"vocab_size": TOKENS, "hidden_size": WIDTH, "max_position_embeddings": CONTEXT}
LEARNED = {"vocab_size": TOKENS, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": CONTEXT}
NAMED = COMMON | {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
GROUPS = NAMED | {"num_key_value_heads": 2}
GATED = GROUPS | {"intermediate_size": 24}
WIDE = GATED | {"head_dim": 8}
TIED = {"tie_word_embeddings": True}
KINDS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 32}
LLAMA_3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
LONG = {
    "rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0],
    "original_max_position_embeddings": 32,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 32}

#: A class of transformers', and what its configuration says, by the name of the folder.
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", GATED | TIED),
    "qwen2": ("Qwen2", GATED),
    "gpt2": ("GPT2", LEARNED),
    "gpt_neo": ("GPTNeo", COMMON | {
        "num_layers": LAYERS, "num_heads": HEADS, "attention_types": [[["global", "local"], LAYERS // 2]],
        "window_size": 32,
    }),
    "gpt_neox": ("GPTNeoX", COMMON | {
        "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": 40, "rotary_pct": 0.5,
    }),
    "llama3": ("Llama", GATED | TIED | {"rope_parameters": LLAMA_3, "attention_bias": True, "mlp_bias": True}),
    "qwen3": ("Qwen3", WIDE | TIED),
    "gemma": ("Gemma", WIDE),
    "gemma2": ("Gemma2", WIDE | KINDS | {
        "query_pre_attn_scalar": 6, "attn_logit_softcapping": 0.5, "final_logit_softcapping": 2.0,
    }),
    "gemma3": ("Gemma3", WIDE | KINDS | {"query_pre_attn_scalar": 6}),
    "phi3": ("Phi3", GATED | TIED | {
        "rope_parameters": LONG, "pad_token_id": 0, "original_max_position_embeddings": 32,
    }),
    "olmo2": ("Olmo2", GATED | TIED | {"rope_parameters": YARN}),
    "granite": ("Granite", GATED | TIED | {
        "embedding_multiplier": 3.0, "attention_multiplier": 0.7, "residual_multiplier": 0.5, "logits_scaling": 2.0,
    }),
    "smollm3": ("SmolLM3", GATED | {"no_rope_layers": [1, 0], "pad_token_id": 0}),
    "gptj": ("GPTJ", LEARNED | TIED | {"rotary_dim": 2}),
    "phi": ("Phi", GROUPS | TIED | {"intermediate_size": 24}),
    "stablelm": ("StableLm", GATED | TIED | {"use_qkv_bias": True, "partial_rotary_factor": 0.5}),
    "olmo": ("Olmo", GATED | TIED),
    "starcoder2": ("Starcoder2", GROUPS | {"intermediate_size": 24}),
    "cohere": ("Cohere", GATED | {"pad_token_id": 0}),
    "falcon": ("Falcon", NAMED | {"num_kv_heads": 2, "new_decoder_architecture": True}),
    "gpt_bigcode": ("GPTBigCode", LEARNED),
    "opt": ("OPT", NAMED | {"ffn_dim": 24, "word_embed_proj_dim": WIDTH, "pad_token_id": 1}),
    "bloom": ("Bloom", {
        "vocab_size": TOKENS, "hidden_size": 12, "n_layer": LAYERS, "n_head": 6, "seq_length": CONTEXT,
    }),
    "mpt": ("Mpt", {
        "vocab_size": TOKENS, "d_model": 12, "n_layers": LAYERS, "n_heads": 6, "max_seq_len": CONTEXT,
    }),
    "falcon_alibi": ("Falcon", NAMED | {"alibi": True, "bias": True}),
}  # fmt: skip


def decoder(family: str) -> torch.nn.Module:
    """A model of a family."""
    name, values = DECODERS[family]
    config = f"{name}TextConfig" if family == "gemma3" else f"{name}Config"
    head = "LMHeadModel" if family == "gpt2" else "ForCausalLM"
    tokens = {"bos_token_id": None, "eos_token_id": None}
    return getattr(transformers, name + head)(getattr(transformers, config)(**(tokens | values)))


def frequencies() -> list[dict[str, Any]]:
    """Rotary positions of heads of 16 numbers, stretched in each way."""
    trained = {"original_max_position_embeddings": 64}
    tables: list[dict[str, Any]] = [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 4.0},
        LLAMA_3 | trained | {"rope_theta": 10_000.0},
        YARN | trained,
        YARN | trained | {"beta_fast": 8.0, "beta_slow": 2.0, "mscale": 0.7, "mscale_all_dim": 1.0, "truncate": False},
        YARN | trained | {"attention_factor": 1.5, "rope_theta": 10.0},
        LONG | trained | {name: [1.0 + pair / 4 for pair in range(8)] for name in ("short_factor", "long_factor")},
        LONG | trained | {name: [2.0] * 8 for name in ("short_factor", "long_factor")} | {"factor": 32.0},
    ]
    result: list[dict[str, Any]] = []
    for table in tables:
        whole = {"rope_theta": 500.0} | table
        config = transformers.LlamaConfig(
            hidden_size=32, num_attention_heads=2, max_position_embeddings=256, rope_parameters=dict(whole)
        )
        turns, factor = ROPE_INIT_FUNCTIONS[whole["rope_type"]](config, "cpu")
        result.append({"table": whole, "frequencies": turns.tolist(), "factor": factor})
    return result


def main() -> None:
    """Writes the folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    own = tokenizer()
    own.save(str(out / "tokenizer.json"))
    (out / "rotary.json").write_text(json.dumps(frequencies(), indent=1) + "\n")
    tokens = torch.tensor([own.encode(PROMPT).ids])
    torch.manual_seed(0)
    for family in DECODERS:
        model = decoder(family)
        with torch.no_grad():
            for weights in model.parameters():  # gains and biases, too, which begin as ones and zeros
                weights.add_(0.1 * torch.randn_like(weights))
                weights.copy_(weights.half())
            logits = model.eval()(tokens).logits[0, -KEPT:]
        model.half().save_pretrained(out / family)
        (out / family / "generation_config.json").unlink(missing_ok=True)
        np.savez(out / family / "expected.npz", tokens=tokens[0].numpy(), logits=logits.numpy())


if __name__ == "__main__":
    main()
