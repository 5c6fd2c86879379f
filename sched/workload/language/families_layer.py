"""Families with layer normalisation and rotary positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from .distance import slopes
from .family import ALL, LLAMA, Activation, Epsilon, Layers, RotaryFamily, Share, Size, Width
from .form import DecoderForm
from .layout import TensorLayout
from .rotary import Base, Factor

NEO_X = TensorLayout(
    "gpt_neox.", "layers.{}.", embedding="embed_in", last="final_layer_norm",
    attend="input_layernorm", feed="post_attention_layernorm",
    q="attention.query_key_value", k="attention.query_key_value", v="attention.query_key_value", by_group=True,
    o="attention.dense", up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h",
)  # fmt: skip


class GptNeoX(RotaryFamily):
    """GPT-NeoX (Pythia): biases, positions turn a part of each head, a layer's products read what its attention
    reads."""

    layout, centred, share, partial = NEO_X, True, 0.25, True

    hidden_act: Activation = "gelu"
    epsilon: Epsilon = Field(1e-5, validation_alias="layer_norm_eps")
    partial_rotary_factor: Share | None = Field(None, validation_alias="rotary_pct")
    rope_theta: Base = Field(10_000.0, validation_alias=AliasChoices("rotary_emb_base", "rope_theta"))
    use_parallel_residual: bool = True
    attention_bias: bool | None = True

    @property
    def biased(self) -> frozenset[str]:
        return ALL if self.attention_bias else frozenset({"up", "down"})

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, parallel=self.use_parallel_residual)


class GptJ(RotaryFamily):
    """GPT-J: positions turn neighbours; one normalisation for both halves of a layer."""

    layout = TensorLayout(
        "transformer.", "h.{}.", embedding="wte", last="ln_f", attend="ln_1", feed="ln_1",
        q="attn.q_proj", k="attn.k_proj", v="attn.v_proj", o="attn.out_proj", up="mlp.fc_in", down="mlp.fc_out",
    )  # fmt: skip
    centred, pairs = True, True

    hidden_size: Width = Field(validation_alias="n_embd")
    num_attention_heads: Width = Field(validation_alias="n_head")
    num_hidden_layers: Layers = Field(validation_alias="n_layer")
    max_position_embeddings: Size = Field(validation_alias="n_positions")
    hidden_act: Activation = Field("gelu_new", validation_alias="activation_function")
    epsilon: Epsilon = Field(1e-5, validation_alias="layer_norm_epsilon")
    rotary_dim: Width | None = None

    @property
    def turned(self) -> int:
        return self.rotary_dim or self.each

    @property
    def biased(self) -> frozenset[str]:
        return frozenset({"up", "down"})

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, parallel=True)


class Phi(RotaryFamily):
    """Phi 1 to 2: one normalisation for both halves of a layer, positions turn a part of each head, biases."""

    layout = replace(
        LLAMA, last="final_layernorm", feed="input_layernorm", o="self_attn.dense", gate="", up="mlp.fc1",
        down="mlp.fc2",
    )  # fmt: skip
    centred, share, partial = True, 0.5, True

    hidden_act: Activation = "gelu_new"
    epsilon: Epsilon = Field(1e-5, validation_alias="layer_norm_eps")
    qk_layernorm: Literal[False] | None = None

    @property
    def biased(self) -> frozenset[str]:
        return ALL

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, parallel=True)


class StableLm(RotaryFamily):
    """StableLM: gates, positions turn a part of each head."""

    layout, centred, share, partial = LLAMA, True, 0.25, True

    epsilon: Epsilon = Field(1e-5, validation_alias="layer_norm_eps")
    attention_bias: bool | None = Field(None, validation_alias="use_qkv_bias")
    use_parallel_residual: bool = False
    qk_layernorm: Literal[False] | None = None

    @property
    def names(self) -> TensorLayout:
        return replace(self.layout, feed="input_layernorm") if self.use_parallel_residual else self.layout

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, parallel=self.use_parallel_residual)


class Olmo(RotaryFamily):
    """OLMo: normalisations without gains."""

    layout, centred = replace(LLAMA, last="", attend="", feed=""), True

    epsilon: Annotated[float, Field(ge=1e-5, le=1e-5)] = 1e-5
    clip_qkv: None = None


class StarCoder2(RotaryFamily):
    """StarCoder2: keys and values for groups of heads, biases."""

    layout = replace(LLAMA, gate="", up="mlp.c_fc", down="mlp.c_proj")
    centred = True

    hidden_act: Activation = "gelu_pytorch_tanh"
    epsilon: Epsilon = Field(1e-5, validation_alias="norm_epsilon")
    tie_word_embeddings: bool = True
    use_bias: bool = True

    @property
    def biased(self) -> frozenset[str]:
        return ALL if self.use_bias else frozenset()


class Cohere(RotaryFamily):
    """Command R: one normalisation for both halves of a layer, positions turn neighbours, gates."""

    layout = replace(LLAMA, feed="input_layernorm")
    centred, pairs = True, True

    epsilon: Epsilon = Field(1e-5, validation_alias="layer_norm_eps")
    tie_word_embeddings: bool = True
    logit_scale: Factor = 0.0625
    use_qk_norm: Literal[False] | None = None

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, parallel=True, scored=self.logit_scale)


class Falcon(RotaryFamily):
    """Falcon: queries, keys and values of a group of heads are side by side."""

    layout = replace(
        NEO_X, prefix="transformer.", layer="h.{}.", embedding="word_embeddings", last="ln_f",
        **dict.fromkeys("qkv", "self_attention.query_key_value"), o="self_attention.dense",
    )  # fmt: skip
    centred = True

    num_hidden_layers: Layers = Field(validation_alias=AliasChoices("num_hidden_layers", "n_layer"))
    num_attention_heads: Width = Field(validation_alias=AliasChoices("num_attention_heads", "n_head"))
    num_key_value_heads: Width | None = Field(None, validation_alias=AliasChoices("num_kv_heads", "n_head_kv"))
    max_position_embeddings: Size = 2048
    hidden_act: Activation = Field("gelu", validation_alias="activation")
    epsilon: Epsilon = Field(1e-5, validation_alias="layer_norm_epsilon")
    tie_word_embeddings: bool = True
    bias: bool = False
    alibi: bool = False
    multi_query: bool = True
    parallel_attn: bool = True
    new_decoder_architecture: bool = False
    num_ln_in_parallel_attn: Literal[1, 2] | None = None

    @property
    def groups(self) -> int:
        if self.new_decoder_architecture:
            return super().groups
        return 1 if self.multi_query else self.num_attention_heads

    @property
    def biased(self) -> frozenset[str]:
        return ALL if self.bias else frozenset()

    @property
    def names(self) -> TensorLayout:
        if self.new_decoder_architecture and self.num_ln_in_parallel_attn != 1:
            return replace(self.layout, attend="ln_attn", feed="ln_mlp")
        return replace(self.layout, feed="input_layernorm") if self._parallel else self.layout

    @property
    def _parallel(self) -> bool:
        return self.parallel_attn or self.new_decoder_architecture

    @property
    def decoder(self) -> DecoderForm:
        decoder = replace(super().decoder, parallel=self._parallel)
        if not self.alibi:
            return decoder
        own = tuple(slope * self.each**-0.5 for slope in slopes(self.num_attention_heads))
        return replace(decoder, rotary=(), slopes=own)
