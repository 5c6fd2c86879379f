"""Families whose scores depend on how far keys are away."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from meshloom.hw.spec.exact import Exact

from .distance import slopes
from .families_layer import NEO_X
from .family import ALL, Activation, Epsilon, Family, Layers, Size, Width
from .form import DecoderForm
from .layout import TensorLayout
from .rotary import Factor


class Bloom(Family):
    """BLOOM: embeddings are normalised; queries, keys and values of a head are side by side."""

    layout = replace(
        NEO_X, prefix="transformer.", layer="h.{}.", embedding="word_embeddings", embedded="word_embeddings_layernorm",
        last="ln_f", **dict.fromkeys("qkv", "self_attention.query_key_value"), o="self_attention.dense",
    )  # fmt: skip
    centred = True

    hidden_size: Width = Field(validation_alias=AliasChoices("hidden_size", "n_embed"))
    num_hidden_layers: Layers = Field(validation_alias=AliasChoices("n_layer", "num_hidden_layers"))
    num_attention_heads: Width = Field(validation_alias=AliasChoices("n_head", "num_attention_heads"))
    max_position_embeddings: Size = Field(2048, validation_alias="seq_length")
    hidden_act: Activation = "gelu_new"
    epsilon: Epsilon = Field(1e-5, validation_alias="layer_norm_epsilon")
    tie_word_embeddings: bool = True
    apply_residual_connection_post_layernorm: Literal[False] | None = None

    @property
    def biased(self) -> frozenset[str]:
        return ALL

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, slopes=slopes(self.num_attention_heads))


class MptAttention(Exact):
    """How an MPT attends."""

    alibi: Literal[True] = True
    alibi_bias_max: Annotated[float, Field(ge=1, le=64)] = 8
    clip_qkv: None = None
    qk_ln: Literal[False] | None = None
    softmax_scale: Factor | None = None


class Mpt(Family):
    """MPT: no biases."""

    layout = TensorLayout(
        "transformer.", "blocks.{}.", embedding="wte", last="norm_f", attend="norm_1", feed="norm_2",
        q="attn.Wqkv", k="attn.Wqkv", v="attn.Wqkv", o="attn.out_proj", up="ffn.up_proj", down="ffn.down_proj",
    )  # fmt: skip
    centred = True

    hidden_size: Width = Field(validation_alias="d_model")
    num_hidden_layers: Layers = Field(validation_alias="n_layers")
    num_attention_heads: Width = Field(validation_alias="n_heads")
    max_position_embeddings: Size = Field(validation_alias="max_seq_len")
    hidden_act: Activation = "gelu"
    epsilon: Epsilon = Field(1e-5, validation_alias="layer_norm_epsilon")
    tie_word_embeddings: bool = True
    attn_config: MptAttention = MptAttention()

    @property
    def decoder(self) -> DecoderForm:
        heads, attention = self.num_attention_heads, self.attn_config
        near = 1 << (heads - 1).bit_length()
        own = slopes(near, attention.alibi_bias_max)
        every = own if near == heads else (*own[1::2], *own[::2])[:heads]
        return replace(super().decoder, slopes=every, gain=attention.softmax_scale or 0.0)
