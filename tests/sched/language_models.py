"""Small language models with random weights, as entries of a file and as what is read of them."""

from __future__ import annotations

from typing import Any

from meshloom.sched.workload.language.drawn import entries
from meshloom.sched.workload.language.model import LanguageModel, model_of

__all__ = ["entries", "model_with_experts", "random_model"]


def random_model() -> LanguageModel:
    return model_of("random", entries(), "random.npz")


def model_with_experts(**changes: Any) -> LanguageModel:
    """Two layers with four experts each, of which a token takes two."""
    return model_of("mixed", entries(layers=2, experts=4, top=2) | changes, "mixed.npz")
