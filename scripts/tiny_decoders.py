"""Tiny decoders as transformers saves them, with what transformers computes of them, for the tests.

    python -m venv decoders && decoders/bin/pip install torch==2.13.0 transformers==5.24.0
    decoders/bin/python scripts/tiny_decoders.py tests/sched/workload/decoders

writes a folder for each family of models that `meshloom generate` reads: random weights of 16 bits, two layers of width
16, the configuration, and `expected.npz` with tokens and the logits behind the last of them. `tokenizer.json`, a byte
pair encoding with 300 tokens, is the same for all and lies beside the folders. Nothing of Meshloom is used.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

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


def decoder(family: str) -> torch.nn.Module:
    """A model of a family."""
    common = {"vocab_size": TOKENS, "hidden_size": WIDTH, "max_position_embeddings": CONTEXT}
    groups = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 2}
    tokens = {"bos_token_id": None, "eos_token_id": None}
    if family == "llama":
        config = transformers.LlamaConfig(**common, **groups, **tokens, intermediate_size=24, tie_word_embeddings=True)
        return transformers.LlamaForCausalLM(config)
    if family == "qwen2":
        return transformers.Qwen2ForCausalLM(
            transformers.Qwen2Config(**common, **groups, **tokens, intermediate_size=24)
        )
    if family == "gpt2":
        sizes = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": CONTEXT}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=TOKENS, **sizes, **tokens))
    if family == "gpt_neox":
        sizes = {"num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": 40}
        config = transformers.GPTNeoXConfig(**common, **tokens, **sizes, rotary_pct=0.5)
        return transformers.GPTNeoXForCausalLM(config)
    layers = [[["global", "local"], LAYERS // 2]]
    config = transformers.GPTNeoConfig(
        **common, **tokens, num_layers=LAYERS, num_heads=HEADS, attention_types=layers, window_size=32
    )
    return transformers.GPTNeoForCausalLM(config)


def main() -> None:
    """Writes the folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    own = tokenizer()
    own.save(str(out / "tokenizer.json"))
    tokens = torch.tensor([own.encode(PROMPT).ids])
    torch.manual_seed(0)
    for family in ("llama", "qwen2", "gpt2", "gpt_neo", "gpt_neox"):
        model = decoder(family)
        with torch.no_grad():
            for weights in model.parameters():  # gains and biases, too, which begin as ones and zeros
                weights.add_(0.1 * torch.randn_like(weights))
        model = model.half()
        model.save_pretrained(out / family)
        (out / family / "generation_config.json").unlink(missing_ok=True)
        with torch.no_grad():
            logits = model.float().eval()(tokens).logits[0, -KEPT:]
        np.savez(out / family / "expected.npz", tokens=tokens[0].numpy(), logits=logits.numpy())


if __name__ == "__main__":
    main()
