"""Small language models with random weights, as entries of a file and as what is read of them."""

from __future__ import annotations

from meshloom.sched.workload.language.drawn import entries
from meshloom.sched.workload.language.model import LanguageModel, model_of

__all__ = ["entries", "random_model"]


def random_model() -> LanguageModel:
    return model_of("random", entries(), "random.npz")
