"""What the configurations of all families of decoders have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, AliasChoices, Field, model_validator

from meshloom.hw.spec.exact import Exact

from .activation import ACTIVATIONS
from .form import DecoderForm
from .layout import Shape, TensorLayout
from .rotary import Base, Rotary, RotaryTable


def _computed(name: str) -> str:
    if name not in ACTIVATIONS:
        raise ValueError(f"the chip computes {', '.join(ACTIVATIONS)}")
    return name


Activation = Annotated[str, AfterValidator(_computed)]
Size = Annotated[int, Field(ge=1, lt=1 << 31, strict=True)]
#: What arrays are made for before any weight is read: more than any model has.
Width = Annotated[int, Field(ge=1, le=1 << 16)]
Layers = Annotated[int, Field(ge=1, le=1 << 12)]
Epsilon = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
LayerKind = Literal["full_attention", "sliding_attention"]
#: Where Llama's tensors are, and those of many others.
LLAMA = TensorLayout(
    "model.", "layers.{}.", embedding="embed_tokens", last="norm",
    attend="input_layernorm", feed="post_attention_layernorm",
    q="self_attn.q_proj", k="self_attn.k_proj", v="self_attn.v_proj", o="self_attn.o_proj",
    gate="mlp.gate_proj", up="mlp.up_proj", down="mlp.down_proj",
)  # fmt: skip
#: Products of a layer without a gate.
ALL = frozenset({"q", "k", "v", "o", "up", "down"})


class Family(Exact):
    """A `config.json`. What is no field here, and no tensor, is not looked at."""

    layout: ClassVar[TensorLayout]
    centred: ClassVar[bool] = False  #: its normalisations take the mean away

    hidden_size: Width
    num_hidden_layers: Layers
    num_attention_heads: Width
    num_key_value_heads: Width | None = None
    head_dim: Width | None = None
    intermediate_size: Size | None = None
    max_position_embeddings: Size
    hidden_act: Activation = "silu"
    epsilon: Epsilon = Field(
        1e-6, validation_alias=AliasChoices("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")
    )
    tie_word_embeddings: bool = False
    attention_bias: bool | None = None
    mlp_bias: bool | None = None
    use_sliding_window: bool | None = None
    sliding_window: Size | None = None
    layer_types: tuple[LayerKind, ...] | None = None

    @model_validator(mode="after")
    def _divided(self) -> Family:
        width, heads, groups = self.hidden_size, self.num_attention_heads, self.groups
        if heads % groups or (not self.head_dim and width % heads):
            raise ValueError(
                f"{heads} heads, {groups} for keys, and a width of {width}: heads must divide the width, those for "
                "keys the heads"
            )
        if self.layer_types and len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(f"layer_types names {len(self.layer_types)} of {self.num_hidden_layers} layers")
        return self

    @property
    def groups(self) -> int:
        """Heads for keys and values."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def each(self) -> int:
        """Numbers of a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def biased(self) -> frozenset[str]:
        """Products that must have a bias; others may."""
        some = {*"qkv"} if self.attention_bias else set[str]()
        return frozenset(some | (ALL - {*"qkvo"} if self.mlp_bias else set[str]()))

    @property
    def longest(self) -> int:
        """Tokens that it can look at: no more than its layers that look at the nearest ones only."""
        slides = self.use_sliding_window is not False and "sliding_attention" in (self.kinds or ("sliding_attention",))
        window = self.sliding_window if slides else None
        return min(self.max_position_embeddings, window or self.max_position_embeddings)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of layers, where they differ."""
        return self.layer_types or ()

    @property
    def names(self) -> TensorLayout:
        """Where its tensors are."""
        return self.layout

    @property
    def decoder(self) -> DecoderForm:
        """What it decides."""
        shape = Shape(
            self.hidden_size, self.num_hidden_layers, self.num_attention_heads, self.groups, self.each,
            self.intermediate_size or 0, self.biased,
        )  # fmt: skip
        return DecoderForm(shape, self.hidden_act, self.epsilon, self.tie_word_embeddings, self.centred)


class RotaryFamily(Family):
    """With rotary positions."""

    share: ClassVar[float] = 1.0  #: of the numbers of a head that turn, if the configuration does not say
    partial: ClassVar[bool] = False  #: whether a configuration may say so
    pairs: ClassVar[bool] = False  #: a number turns with its neighbour

    rope_theta: Base = 10_000.0
    rope_parameters: RotaryTable | None = None
    rope_scaling: RotaryTable | None = None
    partial_rotary_factor: Share | None = None
    original_max_position_embeddings: Size | None = None

    @model_validator(mode="after")
    def _turnable(self) -> RotaryFamily:
        if not self.partial and self._own_share not in (None, 1):
            raise ValueError("a part of each head turns by its position, which other families have; all must")
        if not 0 < self.turned <= self.each or self.turned % 2:
            raise ValueError(
                f"{self.num_attention_heads} heads of {self.each} numbers, of which {self.turned} turn by the "
                "position: what turns must be pairs"
            )
        _ = self.rotary  # which raises ValueError
        return self

    @property
    def table(self) -> RotaryTable:
        """How positions turn, by the newer or the older field."""
        return self.rope_parameters or self.rope_scaling or RotaryTable()

    @property
    def turned(self) -> int:
        """Numbers of a head that turn."""
        return int(self.each * (self._own_share or self.share))

    @property
    def _own_share(self) -> float | None:
        return self.table.partial_rotary_factor or self.partial_rotary_factor

    @property
    def longest(self) -> int:
        if self.table.kind != "longrope":
            return super().longest
        own = self.table.original_max_position_embeddings or self.original_max_position_embeddings
        return min(super().longest, own or self.max_position_embeddings)

    @property
    def rotary(self) -> tuple[Rotary | None, ...]:
        """Of each layer."""
        kinds = self.kinds or ("",) * self.num_hidden_layers
        turns = {kind: self.turning(self.table.of(kind), self.rope_theta) for kind in {*kinds}}
        return tuple(turns[kind] for kind in kinds)

    def turning(self, table: RotaryTable, base: float) -> Rotary:
        """That of layers with this table, or with this base if it has none."""
        longest = self.max_position_embeddings
        return table.rotary(base, self.turned, longest, self.original_max_position_embeddings or longest)

    @property
    def decoder(self) -> DecoderForm:
        return replace(super().decoder, rotary=self.rotary, pairs=self.pairs)
