"""Rotary positions: by how much each pair of numbers of a head turns from token to token, and how configurations
stretch that for texts longer than those of the training."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log, pi, sqrt
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, Field, model_validator

from meshloom.hw.spec.exact import Exact

#: The slowest pair turns by about 1 / this from token to token; and what other numbers there are.
Base = Annotated[float, Field(gt=1, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=1e-6, le=1e6)]
Reals64 = NDArray[np.float64]


@dataclass(frozen=True)
class Rotary:
    """Number i of a head and number i + half of it turn by `frequencies[i]` times the position (Su et al., "RoFormer",
    2021, equation 15); half: how many frequencies there are. Numbers behind both halves stay. `factor`: of what has
    turned."""

    frequencies: tuple[float, ...]
    factor: float = 1.0

    @property
    def turned(self) -> int:
        """Numbers of a head that turn."""
        return 2 * len(self.frequencies)

    @property
    def largest(self) -> float:
        """Of its cosines and sines, and of the 1 of what stays."""
        return max(1.0, self.factor)


#: What each kind of stretching must say.
_NEEDS: dict[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "longrope": ("short_factor",),
}


class RotaryTable(Exact):
    """`rope_parameters` of a configuration, or `rope_scaling`, as older files call it, `rope_type` then `type`; or one
    of these for each kind of layer."""

    rope_type: Literal["default", "linear", "dynamic", "llama3", "yarn", "longrope", "su"] = Field(
        default="default", validation_alias=AliasChoices("rope_type", "type")
    )
    rope_theta: Base | None = None
    partial_rotary_factor: Annotated[float, Field(gt=0, le=1)] | None = None
    factor: Annotated[float, Field(ge=1, le=1e6)] | None = None
    original_max_position_embeddings: Annotated[int, Field(ge=2)] | None = None
    low_freq_factor: Factor | None = None
    high_freq_factor: Factor | None = None
    attention_factor: Factor | None = None
    beta_fast: Factor | None = None
    beta_slow: Factor | None = None
    mscale: Factor | None = None
    mscale_all_dim: Factor | None = None
    truncate: bool = True
    short_factor: tuple[Factor, ...] | None = None
    full_attention: RotaryTable | None = None
    sliding_attention: RotaryTable | None = None

    @model_validator(mode="after")
    def _whole(self) -> RotaryTable:
        missing = [name for name in _NEEDS.get(self.kind, ()) if getattr(self, name) is None]
        if missing:
            raise ValueError(f"positions scaled as {self.kind!r} need {', '.join(missing)}")
        if self.kind == "default" and self.factor not in (None, 1):
            raise ValueError(f"a factor of {self.factor} without a rope_type that says what it is for")
        if self.kind == "llama3" and (self.low_freq_factor or 0) >= (self.high_freq_factor or 0):
            raise ValueError(
                f"low_freq_factor = {self.low_freq_factor} must be below high_freq_factor, "
                f"which is {self.high_freq_factor}"
            )
        return self

    @property
    def kind(self) -> str:
        """How positions are stretched."""
        return "longrope" if self.rope_type == "su" else self.rope_type

    def of(self, kind: str) -> RotaryTable:
        """Of layers of that kind."""
        return {"full_attention": self.full_attention, "sliding_attention": self.sliding_attention}.get(kind) or self

    def rotary(self, base: float, turned: int, longest: int, trained: int) -> Rotary:
        """`base`, where it has none of its own. `turned`: numbers of a head that turn; `longest`: tokens that the model
        can look at; `trained`: those of a text of its training, where it does not say so itself. Raises ValueError for
        factors that are not one for each pair."""
        base, trained = self.rope_theta or base, self.original_max_position_embeddings or trained
        plain = np.power(base, -np.arange(turned // 2) / (turned // 2))
        factor = self.factor or longest / trained
        if self.kind == "linear":
            return _rotary(plain / factor)
        if self.kind == "llama3":
            return _rotary(self._by_wavelength(plain, factor, trained))
        if self.kind == "yarn":
            return self._yarn(plain, factor, base, trained)
        if self.kind == "longrope":  # the long factors are for texts longer than those of the training
            short = self.short_factor or ()
            if len(short) != len(plain):
                raise ValueError(f"short_factor has {len(short)} numbers for {len(plain)} pairs of each head")
            grown = sqrt(1 + log(factor) / log(max(trained, 2))) if factor > 1 else 1.0
            return _rotary(plain / np.array(short), self.attention_factor or grown)
        return _rotary(plain)  # dynamic: other ones beyond `longest` only

    def _by_wavelength(self, plain: Reals64, factor: float, trained: int) -> Reals64:
        """As Llama 3.1 does: slow turns are slowed down by the factor, quick ones stay, between both is a ramp over the
        turns in a text of the training."""
        low, high = self.low_freq_factor or 0.0, self.high_freq_factor or 0.0
        kept = np.clip((trained * plain / (2 * pi) - low) / (high - low), 0, 1)
        return plain * (kept + (1 - kept) / factor)

    def _yarn(self, plain: Reals64, factor: float, base: float, trained: int) -> Rotary:
        """Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023, section 3.2: a ramp
        over the pairs, between those that turn `beta_fast` and `beta_slow` times in a text of the training."""
        pairs = len(plain)
        first, last = (
            pairs * log(trained / (turns * 2 * pi)) / log(base) for turns in (self.beta_fast or 32, self.beta_slow or 1)
        )
        if self.truncate:
            first, last = floor(first), ceil(last)
        first, last = max(first, 0), min(last, 2 * pairs - 1)
        slowed = np.clip((np.arange(pairs) - first) / ((last - first) or 1e-3), 0, 1)

        def grown(weight: float) -> float:
            return 0.1 * weight * log(factor) + 1 if factor > 1 else 1.0

        own = grown(self.mscale) / grown(self.mscale_all_dim) if self.mscale and self.mscale_all_dim else grown(1)
        return _rotary(plain * (1 - slowed + slowed / factor), self.attention_factor or own)


def _rotary(frequencies: NDArray[Any], factor: float = 1.0) -> Rotary:
    return Rotary(tuple(frequencies.tolist()), factor)
