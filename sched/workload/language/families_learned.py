"""Families with layer normalisation and learned positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator

from .family import ALL, Activation, Epsilon, Family, Layers, Size, Width
from .form import DecoderForm
from .layout import TensorLayout

_GPT_2 = TensorLayout(
    "transformer.", "h.{}.", embedding="wte", position="wpe", last="ln_f", attend="ln_1", feed="ln_2",
    q="attn.c_attn", k="attn.c_attn", v="attn.c_attn", o="attn.c_proj", transposed=True,
    up="mlp.c_fc", down="mlp.c_proj",
)  # fmt: skip


class _Learned(Family):
    centred = True

    hidden_act: Activation = Field("gelu_new", validation_alias="activation_function")
    epsilon: Epsilon = Field(1e-5, validation_alias="layer_norm_epsilon")
    tie_word_embeddings: bool = True

    @property
    def biased(self) -> frozenset[str]:
        return ALL

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, positions=self.max_position_embeddings)


class Gpt2(_Learned):
    """GPT-2: weights of its layers are stored the other way round."""

    layout = _GPT_2

    hidden_size: Width = Field(validation_alias="n_embd")
    num_attention_heads: Width = Field(validation_alias="n_head")
    num_hidden_layers: Layers = Field(validation_alias="n_layer")
    max_position_embeddings: Size = Field(validation_alias="n_positions")
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    add_cross_attention: Literal[False] | None = None

    @property
    def decoder(self) -> DecoderForm:
        layers = range(self.num_hidden_layers) if self.scale_attn_by_inverse_layer_idx else ()
        return replace(
            super().decoder,
            gain=0.0 if self.scale_attn_weights else 1.0,
            query_gains=tuple(1 / (layer + 1) for layer in layers),
        )


class GptBigCode(Gpt2):
    """StarCoder 1: one key and value for all heads; weights as usual."""

    layout = replace(_GPT_2, transposed=False, by_group=True)

    hidden_act: Activation = Field("gelu_pytorch_tanh", validation_alias="activation_function")
    multi_query: bool = True

    @property
    def groups(self) -> int:
        return 1 if self.multi_query else self.num_attention_heads


class GptNeo(_Learned):
    """GPT-Neo (TinyStories): queries, keys and values have no biases, scores are not scaled, and some layers look no
    farther than their window."""

    layout = replace(
        _GPT_2, q="attn.attention.q_proj", k="attn.attention.k_proj", v="attn.attention.v_proj",
        o="attn.attention.out_proj", transposed=False,
    )  # fmt: skip

    num_attention_heads: Width = Field(validation_alias="num_heads")
    num_hidden_layers: Layers = Field(validation_alias="num_layers")
    sliding_window: Size | None = Field(256, validation_alias="window_size")
    attention_layers: tuple[Literal["global", "local"], ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple("sliding_attention" if kind == "local" else "full_attention" for kind in self.attention_layers)

    @property
    def biased(self) -> frozenset[str]:
        return ALL - set("qkv")

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, gain=1.0)


class Opt(_Learned):
    """OPT: positions begin with the third row."""

    layout = TensorLayout(
        "model.decoder.", "layers.{}.", embedding="embed_tokens", position="embed_positions", last="final_layer_norm",
        attend="self_attn_layer_norm", feed="final_layer_norm",
        q="self_attn.q_proj", k="self_attn.k_proj", v="self_attn.v_proj", o="self_attn.out_proj", up="fc1", down="fc2",
    )  # fmt: skip

    hidden_act: Activation = Field("relu", validation_alias="activation_function")
    epsilon: Epsilon = 1e-5
    intermediate_size: Size | None = Field(None, validation_alias="ffn_dim")
    word_embed_proj_dim: Size | None = None
    do_layer_norm_before: Literal[True] | None = None
    remove_final_layer_norm: Literal[False] | None = Field(None, validation_alias="_remove_final_layer_norm")
    enable_bias: bool = True
    layer_norm_elementwise_affine: bool = True

    @model_validator(mode="after")
    def _as_wide(self) -> Opt:
        if self.word_embed_proj_dim not in (None, self.hidden_size):
            raise ValueError(
                f"word_embed_proj_dim = {self.word_embed_proj_dim}: embeddings must be as wide as the rest, "
                f"{self.hidden_size}"
            )
        return self

    @property
    def biased(self) -> frozenset[str]:
        return ALL if self.enable_bias else frozenset()

    @property
    def names(self) -> TensorLayout:
        return self.layout if self.layer_norm_elementwise_affine else replace(self.layout, attend="", feed="", last="")

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, skipped=2)
