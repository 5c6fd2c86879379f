"""Families of decoders, each brought to the form of `LanguageModel` without changing what it says.

What the chip does is a division by the root mean square, products, and a function of one number. So

- gains of a normalisation are in the weights behind it, and its biases in theirs;
- a layer normalisation takes the mean away first. Nothing else reads the residual, so whatever is added to it may have
  no mean: embeddings, positions, and what each layer adds have theirs taken away;
- keys and values that several heads share are made for each of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, AliasChoices, Field, model_validator

from meshloom.hw.spec.exact import Exact

from .activation import ACTIVATIONS
from .checkpoint import CONFIG, Weights
from .model import LanguageError, Reals

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class DecoderForm:
    """What of a model its family decides: see `LanguageModel`."""

    arrays: Arrays
    heads: int
    activation: str
    rotary: float = 0.0
    turned: int = 0
    parallel: bool = False
    gain: float = 0.0
    epsilon: float = 1e-6


class Family(Protocol):
    """The configuration of a model. `longest`: tokens that it can look at."""

    @property
    def longest(self) -> int: ...

    def decoder(self, weights: Weights, context: int) -> DecoderForm:
        """The model, with that context. Raises LanguageError."""
        ...


def _computed(name: str) -> str:
    if name not in ACTIVATIONS:
        raise ValueError(f"the chip computes {', '.join(ACTIVATIONS)}")
    return name


Activation = Annotated[str, AfterValidator(_computed)]
Size = Annotated[int, Field(ge=1, lt=1 << 31, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Config(Exact):
    """A `config.json`. What is no field here, and no tensor, is not looked at."""

    tie_word_embeddings: bool = False

    def head(self, weights: Weights, names: _Names, embedding: str, *shape: int) -> Reals:
        """The weights of the scores: the file's own, or those of the embedding. Raises LanguageError."""
        for name in ("lm_head.weight", "embed_out.weight"):
            if name in weights:
                return weights(name, *shape)
        if not self.tie_word_embeddings:
            raise LanguageError(
                f"{weights.folder}: its weights have no 'lm_head.weight', by which tokens get their scores, and its "
                f"{CONFIG} does not say that they are the embedding's; save the whole model (AutoModelForCausalLM)"
            )
        return names(embedding, *shape)


class _Rotary(Exact):
    """How positions turn, where they are not scaled; `type` is what older files call it."""

    rope_type: Literal["default"] = Field("default", validation_alias=AliasChoices("rope_type", "type"))
    factor: Annotated[float, Field(ge=1, le=1)] | None = None
    rope_theta: Positive | None = None
    partial_rotary_factor: Annotated[float, Field(gt=0, le=1)] | None = None


class Llama(_Config):
    """Llama, Mistral, Qwen2: gates, rotary positions, keys and values for groups of heads."""

    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    max_position_embeddings: Size
    hidden_act: Activation = "silu"
    rms_norm_eps: Positive = 1e-6
    rope_theta: Positive = 10_000.0
    rope_parameters: _Rotary | None = None
    rope_scaling: _Rotary | None = None
    mlp_bias: Literal[False] | None = None
    attention_bias: bool = False
    use_sliding_window: Literal[False] | None = None
    sliding_window: Size | None = None

    @model_validator(mode="after")
    def _fit(self) -> Llama:
        width, heads, groups = self.hidden_size, self.num_attention_heads, self.groups
        if width % heads or width // heads % 2 or heads % groups:
            raise ValueError(
                f"{heads} heads, {groups} for keys, and a width of {width}: heads must divide the width into even "
                "parts, those for keys the heads"
            )
        if self.rope_parameters and self.rope_parameters.partial_rotary_factor not in (None, 1):
            raise ValueError("a part of each head turns by its position, which other families have; all must")
        if self.head_dim not in (None, width // heads):
            raise ValueError(f"head_dim = {self.head_dim} with {heads} heads: must be {width // heads}, their width")
        return self

    @property
    def groups(self) -> int:
        """Heads for keys and values."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def longest(self) -> int:
        return min(self.max_position_embeddings, self.sliding_window or self.max_position_embeddings)

    def decoder(self, weights: Weights, context: int) -> DecoderForm:
        names, width, hidden = _Names(weights, "model."), self.hidden_size, self.intermediate_size
        arrays: Arrays = {"embedding": names("embed_tokens.weight", 0, width)}
        for layer in range(self.num_hidden_layers):
            at = f"layers.{layer}"
            arrays |= self._attention(names, layer, f"{at}.self_attn", names(f"{at}.input_layernorm.weight", width))
            gains = names(f"{at}.post_attention_layernorm.weight", width)
            for name in ("gate", "up"):
                arrays[f"{layer}/{name}.weight"] = names(f"{at}.mlp.{name}_proj.weight", hidden, width) * gains
            arrays[f"{layer}/down.weight"] = names(f"{at}.mlp.down_proj.weight", width, hidden)
        output = self.head(weights, names, "embed_tokens.weight", len(arrays["embedding"]), width)
        arrays["output"] = output * names("norm.weight", width)
        rotary = self.rope_parameters or self.rope_scaling
        base = rotary.rope_theta if rotary and rotary.rope_theta else self.rope_theta
        return DecoderForm(arrays, self.num_attention_heads, self.hidden_act, base, epsilon=self.rms_norm_eps)

    def _attention(self, names: _Names, layer: int, at: str, gains: Reals) -> Arrays:
        arrays: Arrays = {}
        for name in "qkv":
            product, width = f"{at}.{name}_proj", self.hidden_size
            rows = width if name == "q" else width // self.num_attention_heads * self.groups
            arrays[f"{layer}/{name}.weight"] = self._of_heads(names(f"{product}.weight", rows, width) * gains)
            if self.attention_bias or f"{product}.bias" in names:
                arrays[f"{layer}/{name}.bias"] = self._of_heads(names(f"{product}.bias", rows))
        arrays[f"{layer}/o.weight"] = names(f"{at}.o_proj.weight", self.hidden_size, self.hidden_size)
        if f"{at}.o_proj.bias" in names:
            arrays[f"{layer}/o.bias"] = names(f"{at}.o_proj.bias", self.hidden_size)
        return arrays

    def _of_heads(self, array: NDArray[Any]) -> NDArray[Any]:
        """Rows for each head, of which those of one group have the same."""
        each = self.hidden_size // self.num_attention_heads
        groups = array.reshape(-1, each, *array.shape[1:])
        return groups.repeat(self.num_attention_heads // len(groups), axis=0).reshape(-1, *array.shape[1:])


class _Learned(_Config):
    """Models with layer normalisation and learned positions: what they have in common."""

    tie_word_embeddings: bool = True
    activation_function: Activation = "gelu_new"
    layer_norm_epsilon: Positive = 1e-5

    def _model(
        self, weights: Weights, context: int, positions: int, width: int, heads: int, layers: list[_LayerProducts],
        gain: float = 0.0,
    ) -> DecoderForm:  # fmt: skip
        if width % heads:
            raise LanguageError(f"{weights.folder}: {heads} heads do not divide a width of {width}; save it again")
        names = _Names(weights, "transformer.")
        arrays: Arrays = {
            "embedding": _centred(names("wte.weight", 0, width)),
            "position": _centred(names("wpe.weight", positions, width)[:context]),
        }
        for layer, products in enumerate(layers):
            for name, (w, bias) in products.attention.items():
                arrays |= _behind(names, f"h.{layer}.ln_1", f"{layer}/{name}", w, bias)
            arrays |= _behind(names, f"h.{layer}.ln_2", f"{layer}/up", *products.up)
            for name, (w, bias) in (("o", products.o), ("down", products.down)):
                arrays |= {f"{layer}/{name}.weight": _centred(w, 0), f"{layer}/{name}.bias": _centred(bias)}
        output = self.head(weights, names, "wte.weight", 0, width)
        product = _behind(names, "ln_f", "output", output, np.zeros(len(output), np.float32))
        arrays |= {"output": product["output.weight"], "output.bias": product["output.bias"]}
        return DecoderForm(arrays, heads, self.activation_function, gain=gain, epsilon=self.layer_norm_epsilon)


@dataclass(frozen=True)
class _LayerProducts:
    """Products of a layer, each [outputs, inputs] with its bias: those of `attention` by name."""

    attention: Mapping[str, tuple[Reals, Reals]]
    o: tuple[Reals, Reals]
    up: tuple[Reals, Reals]
    down: tuple[Reals, Reals]


class Gpt2(_Learned):
    """GPT-2: weights of its layers are stored the other way round."""

    n_embd: Size
    n_head: Size
    n_layer: Size
    n_positions: Size
    scale_attn_weights: Literal[True] | None = None
    scale_attn_by_inverse_layer_idx: Literal[False] | None = None
    add_cross_attention: Literal[False] | None = None

    @property
    def longest(self) -> int:
        return self.n_positions

    def decoder(self, weights: Weights, context: int) -> DecoderForm:
        names, width = _Names(weights, "transformer."), self.n_embd
        layers: list[_LayerProducts] = []
        for layer in range(self.n_layer):
            at = f"h.{layer}"
            w, bias = names(f"{at}.attn.c_attn.weight", width, 3 * width).T, names(f"{at}.attn.c_attn.bias", 3 * width)
            attention = dict(zip("qkv", zip(np.split(w, 3), np.split(bias, 3), strict=True), strict=True))
            up = names(f"{at}.mlp.c_fc.weight", width, 0).T
            layers.append(
                _LayerProducts(
                    attention,
                    (names(f"{at}.attn.c_proj.weight", width, width).T, names(f"{at}.attn.c_proj.bias", width)),
                    (up, names(f"{at}.mlp.c_fc.bias", len(up))),
                    (names(f"{at}.mlp.c_proj.weight", len(up), width).T, names(f"{at}.mlp.c_proj.bias", width)),
                )
            )
        return self._model(weights, context, self.n_positions, width, self.n_head, layers)


class GptNeo(_Learned):
    """GPT-Neo (TinyStories): queries, keys and values have no biases, scores are not scaled, and some layers look no
    farther than their window."""

    hidden_size: Size
    num_heads: Size
    num_layers: Size
    max_position_embeddings: Size
    window_size: Size = 256
    attention_layers: tuple[Literal["global", "local"], ...]

    @property
    def longest(self) -> int:
        positions = self.max_position_embeddings
        return min(positions, self.window_size) if "local" in self.attention_layers else positions

    def decoder(self, weights: Weights, context: int) -> DecoderForm:
        names, width = _Names(weights, "transformer."), self.hidden_size
        layers: list[_LayerProducts] = []
        for layer in range(self.num_layers):
            at, none = f"h.{layer}", np.zeros(width, np.float32)
            own = f"{at}.attn.attention"
            up = names(f"{at}.mlp.c_fc.weight", 0, width)
            layers.append(
                _LayerProducts(
                    {name: (names(f"{own}.{name}_proj.weight", width, width), none) for name in "qkv"},
                    (names(f"{own}.out_proj.weight", width, width), names(f"{own}.out_proj.bias", width)),
                    (up, names(f"{at}.mlp.c_fc.bias", len(up))),
                    (names(f"{at}.mlp.c_proj.weight", width, len(up)), names(f"{at}.mlp.c_proj.bias", width)),
                )
            )
        return self._model(weights, context, self.max_position_embeddings, width, self.num_heads, layers, gain=1.0)


class GptNeoX(_Config):
    """GPT-NeoX (Pythia): layer normalisation and biases, rotary positions for a part of each head; a layer's products
    read what its attention reads."""

    hidden_size: Size
    num_attention_heads: Size
    num_hidden_layers: Size
    max_position_embeddings: Size
    hidden_act: Activation = "gelu"
    layer_norm_eps: Positive = 1e-5
    rotary_pct: Annotated[float, Field(gt=0, le=1)] = 0.25
    rotary_emb_base: Positive = 10_000.0
    rope_parameters: _Rotary | None = None
    rope_scaling: _Rotary | None = None
    use_parallel_residual: bool = True
    attention_bias: Literal[True] | None = None

    @model_validator(mode="after")
    def _fit(self) -> GptNeoX:
        if self.hidden_size % self.num_attention_heads or self._turned % 2:
            raise ValueError(
                f"{self.num_attention_heads} heads with a width of {self.hidden_size}, of which {self._turned} numbers "
                "each turn: heads must divide the width, and what turns must be pairs"
            )
        return self

    @property
    def _turned(self) -> int:
        table = self.rope_parameters or self.rope_scaling
        share = table.partial_rotary_factor if table and table.partial_rotary_factor else self.rotary_pct
        return int(self.hidden_size // self.num_attention_heads * share)

    @property
    def longest(self) -> int:
        return self.max_position_embeddings

    def decoder(self, weights: Weights, context: int) -> DecoderForm:
        names, width, heads = _Names(weights, "gpt_neox."), self.hidden_size, self.num_attention_heads
        arrays: Arrays = {"embedding": _centred(names("embed_in.weight", 0, width))}
        for layer in range(self.num_hidden_layers):
            at = f"layers.{layer}"
            w = names(f"{at}.attention.query_key_value.weight", 3 * width, width).reshape(heads, 3, -1, width)
            bias = names(f"{at}.attention.query_key_value.bias", 3 * width).reshape(heads, 3, -1)
            for index, name in enumerate("qkv"):
                own = w[:, index].reshape(width, width), bias[:, index].reshape(width)
                arrays |= _behind(names, f"{at}.input_layernorm", f"{layer}/{name}", *own)
            up = names(f"{at}.mlp.dense_h_to_4h.weight", 0, width), names(f"{at}.mlp.dense_h_to_4h.bias", 0)
            arrays |= _behind(names, f"{at}.post_attention_layernorm", f"{layer}/up", *up)
            for name, product, inputs in (
                ("o", "attention.dense", width),
                ("down", "mlp.dense_4h_to_h", len(up[0])),
            ):
                arrays[f"{layer}/{name}.weight"] = _centred(names(f"{at}.{product}.weight", width, inputs), 0)
                arrays[f"{layer}/{name}.bias"] = _centred(names(f"{at}.{product}.bias", width))
        output = self.head(weights, names, "embed_in.weight", 0, width)
        product = _behind(names, "final_layer_norm", "output", output, np.zeros(len(output), np.float32))
        arrays |= {"output": product["output.weight"], "output.bias": product["output.bias"]}
        table = self.rope_parameters or self.rope_scaling
        base = table.rope_theta if table and table.rope_theta else self.rotary_emb_base
        return DecoderForm(
            arrays, heads, self.hidden_act, base, self._turned, self.use_parallel_residual, epsilon=self.layer_norm_eps
        )


class _Names:
    """Tensors whose names begin with a prefix, or have lost that."""

    def __init__(self, weights: Weights, prefix: str) -> None:
        self._weights = weights
        self._prefix = prefix if weights.has_prefix(prefix) else ""

    def __contains__(self, name: str) -> bool:
        return self._prefix + name in self._weights

    def __call__(self, name: str, *shape: int) -> Reals:
        return self._weights(self._prefix + name, *shape)


def _centred(array: NDArray[Any], axis: int = -1) -> NDArray[Any]:
    """What is added to the residual, without its mean."""
    return array - array.mean(axis=axis, keepdims=True)


def _behind(names: _Names, norm: str, name: str, w: Reals, bias: Reals) -> Arrays:
    """A product behind a layer normalisation, with the gains and biases of that."""
    width = w.shape[1]
    gains, shift = names(f"{norm}.weight", width), names(f"{norm}.bias", width)
    return {f"{name}.weight": w * gains, f"{name}.bias": bias + w @ shift}


#: By `model_type`.
FAMILIES: Mapping[str, type[Llama | Gpt2 | GptNeo | GptNeoX]] = {
    "llama": Llama,
    "mistral": Llama,
    "qwen2": Llama,
    "gpt2": Gpt2,
    "gpt_neo": GptNeo,
    "gpt_neox": GptNeoX,
}
