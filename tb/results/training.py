"""The results of training on a chip, as data."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, computed_field

from meshloom.sched.support.files import write_atomically

from . import paths
from .record import Count, Record

#: Points of accuracy that integer training may stay below training in floating point.
ACCURACY_POINTS = 2.0

Part = Annotated[float, Field(ge=0, le=1)]


class TrainingResults(Record):
    """What `meshloom train` writes.

    `steps`: done; `losses`: of each, the mean cross-entropy over its batch. `accuracy`: part of the test examples to
    whose class the int8 network on the chip gives the highest score; `float_accuracy`: the same of the same training in
    floating point. Cycles: of all programs of all steps, those of the test included; `rtl_cycles` is null where no RTL
    ran, `simulator` is empty then. `bytes_checked`: of every tensor of every step; `mismatches`: of these, wrong ones.
    `across`: what steps did across layers (`--across`), `update`: who kept the weights.
    `divergences`: instructions whose cycles are not those of the model. `step_cycles`: predicted, of one step.
    `cpu_seconds`: of simulating, reading back left out. `clock_mhz`: of the chip, null if nobody says.
    """

    schema_version: Literal[1] = 1
    started: datetime
    environment: dict[str, str]
    code: str
    network: str
    chip: str
    chip_digest: str
    order: str
    across: str = "none"
    update: str = "double"
    simulator: str
    batch: Count
    seed: Count
    learning_rate: float
    momentum: float
    complete: bool
    steps: Count
    losses: tuple[float, ...]
    accuracy: Part | None = None
    float_accuracy: Part | None = None
    step_cycles: Count
    rtl_cycles: Count | None = None
    model_cycles: Count
    bytes_checked: Count
    mismatches: Count
    first_mismatch: str = ""
    divergences: Count
    first_divergence: str = ""
    cpu_seconds: float
    clock_mhz: float | None = None
    checkpoint: str
    picture: str = ""

    @computed_field
    @property
    def loss_first(self) -> float | None:
        """The loss of the first step."""
        return self.losses[0] if self.losses else None

    @computed_field
    @property
    def loss_last(self) -> float | None:
        """The loss of the last step."""
        return self.losses[-1] if self.losses else None

    @computed_field
    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not `ok`, in words."""
        sentences: list[str] = []
        if self.mismatches:
            sentences.append(f"{self.mismatches:,} of {self.bytes_checked:,} bytes are wrong: {self.first_mismatch}")
        if self.divergences:
            sentences.append(f"{self.divergences:,} cycles are not those of the model: {self.first_divergence}")
        return tuple(sentences)

    @computed_field
    @property
    def ok(self) -> bool:
        """Whether every byte is right and every instruction ran in the cycles that the model says."""
        return not self.reasons

    def save(self, path: Path) -> None:
        """Writes the JSON file, with its paths (see `paths`). Raises WriteError."""
        changed = {name: paths.for_file(getattr(self, name), path) for name in ("checkpoint", "picture")}
        write_atomically(path, self.model_copy(update=changed).model_dump_json(indent=1) + "\n")
