"""Families whose normalisations divide by the root mean square: Llama's, and what others change of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import AliasChoices, Field

from .family import LLAMA, Activation, RotaryFamily, Size, Width
from .form import DecoderForm
from .rotary import Base, Factor, Rotary

_HEADS = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
_ADDED = {"o_norm": "post_attention_layernorm", "down_norm": "post_feedforward_layernorm"}


class Llama(RotaryFamily):
    """Llama, Mistral, Qwen2: gates, rotary positions, keys and values for groups of heads."""

    layout = LLAMA


class Qwen3(Llama):
    """Each head's queries and keys are normalised."""

    layout = replace(LLAMA, **_HEADS)

    head_dim: Width | None = 128

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, normed=self.num_attention_heads)


class Gemma(Llama):
    """Gains are 1 more than in the file, embeddings as large as the width's root."""

    head_dim: Width | None = 256
    hidden_act: Activation = "gelu_pytorch_tanh"
    tie_word_embeddings: bool = True
    use_bidirectional_attention: Literal[False] | None = None

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, more=1.0, embedded=self.hidden_size**0.5)


class Gemma2(Gemma):
    """What a layer adds is normalised, too, and scores have soft caps; some layers look no farther than a window."""

    layout = replace(LLAMA, feed="pre_feedforward_layernorm", **_ADDED)

    hidden_act: Activation = Field("gelu_pytorch_tanh", validation_alias="hidden_activation")
    query_pre_attn_scalar: Factor = 256
    attn_logit_softcapping: Factor | None = None
    final_logit_softcapping: Factor | None = None

    @property
    def decoder(self) -> DecoderForm:
        return replace(
            super().decoder,
            gain=self.query_pre_attn_scalar**-0.5,
            score_cap=self.attn_logit_softcapping or 0.0,
            output_cap=self.final_logit_softcapping or 0.0,
        )


class Gemma3(Gemma2):
    """The text model: heads are normalised, and layers with a window have rotary positions of their own."""

    layout = replace(LLAMA, feed="pre_feedforward_layernorm", **_ADDED, **_HEADS)

    rope_theta: Base = 1_000_000.0
    rope_local_base_freq: Base = 10_000.0
    sliding_window_pattern: Size = Field(
        6, validation_alias=AliasChoices("sliding_window_pattern", "_sliding_window_pattern")
    )

    @property
    def kinds(self) -> tuple[str, ...]:
        each = range(1, self.num_hidden_layers + 1)
        own = ("sliding_attention" if layer % self.sliding_window_pattern else "full_attention" for layer in each)
        return super().kinds or tuple(own)

    @property
    def rotary(self) -> tuple[Rotary | None, ...]:
        table, nearest = self.table, self.table.sliding_attention or type(self.table)()
        turns = {
            "full_attention": self.turning(table.of("full_attention"), self.rope_theta),
            "sliding_attention": self.turning(nearest, self.rope_local_base_freq),
        }
        return tuple(turns[kind] for kind in self.kinds)

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, normed=self.num_attention_heads)


class Phi3(Llama):
    """Queries, keys and values are rows of one matrix, and so are what a gate has."""

    layout = replace(
        LLAMA, **dict.fromkeys("qkv", "self_attn.qkv_proj"), gate="mlp.gate_up_proj", up="mlp.gate_up_proj"
    )
    partial = True


class Olmo2(Llama):
    """OLMo 2 and 3: products read the residual as it is, and what they add is normalised; queries and keys are, too, of
    all heads together."""

    layout = replace(LLAMA, attend="", feed="", **_ADDED, **_HEADS)

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, bare=True, normed=1)


class Granite(Llama):
    """Factors of embeddings, of what layers add, and of scores."""

    embedding_multiplier: Factor = 1.0
    attention_multiplier: Factor = 1.0
    residual_multiplier: Factor = 1.0
    logits_scaling: Factor = 1.0

    @property
    def decoder(self) -> DecoderForm:
        return replace(
            super().decoder,
            embedded=self.embedding_multiplier,
            gain=self.attention_multiplier,
            added=self.residual_multiplier,
            scored=1 / self.logits_scaling,
        )


class SmolLm3(Llama):
    """Positions turn nothing in some layers."""

    tie_word_embeddings: bool = True
    no_rope_layers: tuple[Literal[0, 1], ...] | None = None  #: 1 where they turn
    no_rope_layer_interval: Size = 4

    @property
    def rotary(self) -> tuple[Rotary | None, ...]:
        layers = range(1, self.num_hidden_layers + 1)
        if self.no_rope_layers and len(self.no_rope_layers) != len(layers):
            raise ValueError(f"no_rope_layers names {len(self.no_rope_layers)} of {len(layers)} layers")
        turns = self.no_rope_layers or tuple(layer % self.no_rope_layer_interval for layer in layers)
        return tuple(own if turn else None for own, turn in zip(super().rotary, turns, strict=True))
