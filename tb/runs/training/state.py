"""What training carries from step to step, and its checkpoints: NumPy archives without pickles, replaced whole."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.sched.support.archives import DAMAGE, read_archive
from meshloom.sched.support.files import write_atomically
from meshloom.sched.workload.training_net import TrainingNet

from .numbers import Reals

#: Version of the saved form.
VERSION = 2
#: Kinds of entries.
_WEIGHTS, _SPEEDS, _EXPONENTS, _TOTALS = "weights/", "velocity/", "exponent/", "total/"


class CheckpointError(ValueError):
    """A checkpoint that training cannot go on from; the message names file, entry and mend."""


@dataclass
class Totals:
    """Sums over all steps: cycles, bytes compared and those that differ, instructions whose cycles differ."""

    rtl_cycles: int = 0
    model_cycles: int = 0
    bytes_checked: int = 0
    mismatches: int = 0
    divergences: int = 0


@dataclass
class State:
    """`step`: steps done. Of each layer by name its master weights and their velocity, double; of each int8 tensor the
    exponent of its step (`numbers`). `losses`: of each step; `cpu_seconds`: of simulating."""

    step: int
    weights: dict[str, Reals]
    velocity: dict[str, Reals]
    exponents: dict[str, int]
    losses: list[float] = field(default_factory=list[float])
    totals: Totals = field(default_factory=Totals)
    cpu_seconds: float = 0.0


def begun(net: TrainingNet, seed: int) -> State:
    """Before the first step: weights normally distributed (K. He et al., "Delving Deep into Rectifiers", 2015)."""
    # RandomState's streams never change (NumPy's NEP 19)
    draw = np.random.RandomState(seed)
    weights = {
        layer.name: draw.standard_normal(layer.shape.w_shape) * float(np.sqrt(2.0 / layer.shape.depth))
        for layer in net.layers
    }
    return State(0, weights, {name: np.zeros_like(w) for name, w in weights.items()}, {})


def save(state: State, path: Path, setting: Mapping[str, str | int | float]) -> None:
    """Writes a checkpoint with the `setting` under which it was made. Raises OSError; nothing half-written is left."""
    arrays: dict[str, Any] = {"version": VERSION, "step": state.step, "losses": np.array(state.losses, np.float64)}
    arrays |= {f"setting/{name}": np.array(value) for name, value in setting.items()}
    arrays |= {_WEIGHTS + name: w for name, w in state.weights.items()}
    arrays |= {_SPEEDS + name: v for name, v in state.velocity.items()}
    arrays |= {_EXPONENTS + name: e for name, e in state.exponents.items()}
    arrays |= {_TOTALS + name: n for name, n in vars(state.totals).items()}
    arrays["cpu_seconds"] = state.cpu_seconds
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_atomically(path, content.getvalue())


def load(path: Path, net: TrainingNet, setting: Mapping[str, str | int | float]) -> State:
    """Reads a checkpoint of the same network under the same setting. Raises CheckpointError, OSError."""
    try:
        values = read_archive(path)
        if int(values["version"]) != VERSION:
            raise KeyError(f"version {int(values['version'])}, this code reads {VERSION}")
        state = State(
            int(values["step"]),
            {layer.name: values[_WEIGHTS + layer.name] for layer in net.layers},
            {layer.name: values[_SPEEDS + layer.name] for layer in net.layers},
            {key.removeprefix(_EXPONENTS): int(value) for key, value in values.items() if key.startswith(_EXPONENTS)},
            [float(loss) for loss in values["losses"]],
            Totals(**{name: int(values[_TOTALS + name]) for name in vars(Totals())}),
            float(values["cpu_seconds"]),
        )
        other = {name: values[f"setting/{name}"].item() for name in setting}
    except DAMAGE as error:
        raise CheckpointError(f"{path}: is no checkpoint ({error}); delete it to begin anew") from error
    for name, value in setting.items():
        if other[name] != value:
            raise CheckpointError(
                f"{path}: was made with {name} = {other[name]}, now it is {value}; go on with {name} = {other[name]}, "
                "or name another checkpoint"
            )
    _check(state, path, net)
    return state


def _check(state: State, path: Path, net: TrainingNet) -> None:
    for kind, arrays in (("weights", state.weights), ("velocity", state.velocity)):
        for layer in net.layers:
            array = arrays[layer.name]
            if array.dtype != np.float64 or array.shape != layer.shape.w_shape:
                raise CheckpointError(
                    f"{path}: {kind}/{layer.name} is {array.dtype}{list(array.shape)}, must be "
                    f"float64{list(layer.shape.w_shape)}; delete the file to begin anew"
                )
            if bad := int(np.count_nonzero(~np.isfinite(array))):
                raise CheckpointError(
                    f"{path}: {kind}/{layer.name} has {bad} values that are no numbers (NaN or infinite); go on from "
                    "an earlier checkpoint, or delete it to begin anew"
                )
    if state.step < 0 or len(state.losses) != state.step:
        raise CheckpointError(f"{path}: {state.step} steps and {len(state.losses)} losses; delete it to begin anew")
