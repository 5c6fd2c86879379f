"""What goes from step to step of a text, and its checkpoints: NumPy archives without pickles, replaced whole."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.support.archives import DAMAGE, read_archive
from meshloom.sched.support.files import write_atomically
from meshloom.sched.workload.language.model import LanguageModel

#: Version of the saved form.
VERSION = 4


class TextStateError(ValueError):
    """A checkpoint from which no text can go on; the message names file and mend."""


@dataclass
class PhaseTotals:
    """Sums over the steps of a phase, prefill or decode: how many, their tokens, cycles, bytes of DRAM, the cycles
    that no schedule can be below, the bytes that the host wrote to DRAM, and an estimate of the energy; of models with
    experts cycles of their programs, bytes of their weights that were read, and how often the host chose some."""

    steps: int = 0
    tokens: int = 0
    rtl_cycles: int = 0
    model_cycles: int = 0
    dram_bytes: int = 0
    least_cycles: int = 0
    host_bytes: int = 0
    picojoules: int = 0
    expert_cycles: int = 0
    expert_bytes: int = 0
    round_trips: int = 0


@dataclass
class Checked:
    """Sums over all steps: bytes compared and wrong ones, instructions whose cycles are not the model's."""

    bytes_checked: int = 0
    mismatches: int = 0
    divergences: int = 0


@dataclass
class Guesses:
    """Sums over all steps: tokens that were guessed, and those of them that the model has taken."""

    tokens_guessed: int = 0
    tokens_accepted: int = 0


@dataclass
class TextState:
    """`tokens`: those of the prompt and those generated; `caches`: of all that the network has read, int8 [W, tokens]
    by name; `choices`, `fetched`: by layer with experts, tokens that took each of them, and programs that read its
    weights (`step.Routing`), int64 [mixtures, E]; `cpu_seconds`: of simulating."""

    tokens: list[int]
    caches: dict[str, NDArray[np.int8]]
    choices: NDArray[np.int64]
    fetched: NDArray[np.int64]
    prefill: PhaseTotals = field(default_factory=PhaseTotals)
    decode: PhaseTotals = field(default_factory=PhaseTotals)
    checked: Checked = field(default_factory=Checked)
    guesses: Guesses = field(default_factory=Guesses)
    cpu_seconds: float = 0.0

    @property
    def read(self) -> int:
        """Tokens that the network has read."""
        return next(iter(self.caches.values())).shape[1]


def first_state(model: LanguageModel, prompt: str) -> TextState:
    """Before the first step. Raises LanguageError for a character without a token."""
    empty = np.zeros((model.key_width, 0), np.int8)
    caches = {f"{layer}/{name}": empty for layer in range(model.layers) for name in "kv"}
    none = np.zeros((len(model.mixtures), max(map(model.experts, model.mixtures), default=0)), np.int64)
    return TextState(model.tokens(prompt).tolist(), caches, none, none.copy())


def save(state: TextState, path: Path, setting: Mapping[str, str | int]) -> None:
    """Writes a checkpoint with the `setting` under which it was made. Raises OSError; nothing half-written is left."""
    arrays: dict[str, Any] = {"version": VERSION, "tokens": np.array(state.tokens, np.int64)}
    arrays |= {f"setting/{name}": np.array(value) for name, value in setting.items()}
    arrays |= {f"cache/{name}": array for name, array in state.caches.items()}
    for name, totals in _totals(state).items():
        arrays |= {f"{name}/{each}": number for each, number in vars(totals).items()}
    arrays |= {"choices": state.choices, "fetched": state.fetched, "cpu_seconds": state.cpu_seconds}
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_atomically(path, content.getvalue())


def load(path: Path, model: LanguageModel, setting: Mapping[str, str | int]) -> TextState:
    """Reads a checkpoint of the same model under the same setting. Raises TextStateError, OSError."""
    try:
        values = read_archive(path)
        if int(values["version"]) != VERSION:
            raise KeyError(f"version {int(values['version'])}, this code reads {VERSION}")
        other = {name: values[f"setting/{name}"].item() for name in setting}
        state = first_state(model, "")
        state.tokens = [int(token) for token in values["tokens"]]
        state.caches = {name: values[f"cache/{name}"] for name in state.caches}
        state.cpu_seconds = float(values["cpu_seconds"])
        routed = [values[name] for name in ("choices", "fetched")]
        if any(array.shape != state.choices.shape or array.dtype != np.int64 or np.any(array < 0) for array in routed):
            raise KeyError("what its experts did is of another shape")
        state.choices, state.fetched = routed
        for name, totals in _totals(state).items():
            for each in vars(totals):
                setattr(totals, each, int(values[f"{name}/{each}"]))
    except DAMAGE as error:
        raise TextStateError(f"{path}: is no checkpoint of a text ({error}); delete it to begin anew") from error
    for name, value in setting.items():
        if other[name] != value:
            raise TextStateError(
                f"{path}: was made with {name} = {other[name]!r}, now it is {value!r}; name another checkpoint, or "
                "delete it to begin anew"
            )
    shapes = {array.shape for array in state.caches.values()}
    types = {array.dtype for array in state.caches.values()}
    wrong = len(shapes) != 1 or types != {np.dtype(np.int8)} or len(next(iter(shapes))) != 2
    if wrong or next(iter(shapes))[0] != model.key_width or not state.read <= len(state.tokens) <= model.context + 1:
        raise TextStateError(f"{path}: its cache is none of {model.name}; delete it to begin anew")
    if state.tokens and not 0 <= min(state.tokens) <= max(state.tokens) < len(model.arrays["embedding"]):
        raise TextStateError(f"{path}: has tokens that {model.name} has not; delete it to begin anew")
    return state


def _totals(state: TextState) -> dict[str, PhaseTotals | Checked | Guesses]:
    return {"prefill": state.prefill, "decode": state.decode, "checked": state.checked, "guesses": state.guesses}
