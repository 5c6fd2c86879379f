"""The architectures of llama.cpp whose GGUF files are read: where their metadata have what a configuration of
transformers' says, and which tensors its conversion turns round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .model import Reals

#: Makes a tensor of the file that which transformers has, by the number of its heads.
Turn = Callable[[Reals, int], Reals]


def same(array: Reals, heads: int) -> Reals:
    """As it is."""
    return array


def transposed(array: Reals, heads: int) -> Reals:
    """[inputs, outputs]."""
    return array.T


def _neighbours_apart(array: Reals, heads: int) -> Reals:
    """Rows of each head: what turns together lies side by side in the file, half a head apart here."""
    return array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def _by_head(array: Reals, heads: int) -> Reals:
    """Rows of queries, keys and values of one head, then of the next; in the file all queries come first."""
    return array.reshape(3, heads, -1, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)


def _one_less(array: Reals, heads: int) -> Reals:
    """Gains, which are 1 more in the file."""
    return array - 1


@dataclass(frozen=True)
class Architecture:
    """`kind`: `model_type`; `keys`: of the metadata behind the architecture's name, by the names of transformers'
    fields (`table.field` of one in a table); `turns`: by the end of a tensor's name; `partial`: a part of each head may
    turn by its position; `bare`: names of tensors are those of transformers without what all of them begin with."""

    kind: str
    keys: Mapping[str, str]
    turns: Mapping[str, Turn] = field(default_factory=dict[str, Turn])
    partial: bool = False
    bare: bool = False

    def turn(self, name: str) -> Turn:
        """What to do with a tensor."""
        return next((turn for end, turn in self.turns.items() if name.endswith(end)), same)


_SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
    "rope_theta": "rope.freq_base",
}
_LLAMA = _SIZES | {"head_dim": "attention.key_length", "rms_norm_eps": "attention.layer_norm_rms_epsilon"}
_CAPPED = _LLAMA | {
    "query_pre_attn_scalar": "attention.key_length",  # which llama.cpp takes for it
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
_GPT2 = {
    "n_embd": "embedding_length",
    "n_layer": "block_count",
    "n_head": "attention.head_count",
    "n_positions": "context_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
}
_BLOOM = {
    "hidden_size": "embedding_length",
    "n_layer": "block_count",
    "n_head": "attention.head_count",
    "seq_length": "context_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
}
_MPT = {
    "d_model": "embedding_length",
    "n_layers": "block_count",
    "n_heads": "attention.head_count",
    "max_seq_len": "context_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "attn_config.alibi_bias_max": "attention.max_alibi_bias",
    "attn_config.clip_qkv": "attention.clamp_kqv",
}
_APART = {f"{name}_proj.{part}": _neighbours_apart for name in "qk" for part in ("weight", "bias")}
_GAINS = {"norm.weight": _one_less}

#: By name.
ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("llama", _LLAMA, turns=_APART),
    "smollm3": Architecture("smollm3", _LLAMA, turns=_APART),
    "qwen2": Architecture("qwen2", _LLAMA),
    "qwen3": Architecture("qwen3", _LLAMA),
    "phi3": Architecture("phi3", _LLAMA, partial=True),
    "gemma": Architecture("gemma", _LLAMA, turns=_GAINS),
    "gemma2": Architecture("gemma2", _CAPPED, turns=_GAINS),
    "gemma3": Architecture("gemma3_text", _CAPPED, turns=_GAINS),
    "starcoder2": Architecture("starcoder2", _SIZES | {"norm_epsilon": "attention.layer_norm_epsilon"}),
    "gpt2": Architecture(
        "gpt2", _GPT2, turns=dict.fromkeys(("c_attn.weight", "c_proj.weight", "c_fc.weight"), transposed)
    ),
    "bloom": Architecture(
        "bloom", _BLOOM, turns=dict.fromkeys(("query_key_value.weight", "query_key_value.bias"), _by_head), bare=True
    ),
    "mpt": Architecture("mpt", _MPT),
}
