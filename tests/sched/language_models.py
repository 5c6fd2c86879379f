"""Small language models with random weights, as entries of a file and as what is read of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from meshloom.sched.workload.language.drawn import entries
from meshloom.sched.workload.language.model import LanguageModel, model_of

__all__ = ["DECODERS", "DECODERS_FOLDER", "GGUFS", "decoder", "entries", "model_with_experts", "random_model"]
DECODERS_FOLDER = Path(__file__).parent / "workload" / "decoders"
#: GGUF files of such models, with what llama.cpp computes of them (`scripts/tiny_ggufs.py` has written them).
GGUFS = DECODERS_FOLDER.parent / "ggufs"
#: Transformers' models that are read (`scripts/tiny_decoders.py` has written one or two of each family).
DECODERS = tuple(sorted(path.name for path in DECODERS_FOLDER.iterdir() if path.is_dir()))


def random_model() -> LanguageModel:
    return model_of("random", entries(), "random.npz")


def model_with_experts(**changes: Any) -> LanguageModel:
    """Two layers with four experts each, of which a token takes two."""
    return model_of("mixed", entries(layers=2, experts=4, top=2) | changes, "mixed.npz")


def decoder(family: str, folder: Path) -> Path:
    """A copy of a tiny one below a folder, as `save_pretrained` leaves it; its tokens and logits are in
    `expected.npz`."""
    place = folder / family
    shutil.copytree(DECODERS_FOLDER / family, place)
    shutil.copy(DECODERS_FOLDER / "tokenizer.json", place)
    return place
