"""The results of generating text on a chip, as data."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, computed_field

from meshloom.sched.support.files import write_atomically

from . import paths
from .record import Count, Record

Share = Annotated[float, Field(ge=0, le=1)]


class PhaseFigures(Record):
    """Prefill or decode: `steps`, the `tokens` that they read (without wrong guesses), and of all of them together
    cycles (`rtl_cycles` is null without a device), bytes from and to DRAM with the programs, and `least_cycles`:
    products over all PEs or bytes over all DRAM channels, whichever are more. `host_bytes`: what the host wrote to DRAM
    before the programs (null without a device); `microjoules`: an estimate by the usual table
    (`tb/results/energy_45nm.toml`). Of models with experts: `expert_cycles` of the programs of experts, `expert_bytes`
    of their weights that were read from DRAM, `round_trips` of the host, which chooses experts between programs."""

    steps: Count
    tokens: Count
    rtl_cycles: Count | None
    model_cycles: Count
    dram_bytes: Count
    least_cycles: Count
    host_bytes: Count | None = None
    microjoules: Annotated[float, Field(ge=0)] | None = None
    expert_cycles: Count = 0
    expert_bytes: Count = 0
    round_trips: Count = 0

    @computed_field
    @property
    def cycles_per_token(self) -> float | None:
        """Of the RTL, else of the model; null if nothing was read."""
        cycles = self.model_cycles if self.rtl_cycles is None else self.rtl_cycles
        return cycles / self.tokens if self.tokens else None


class ExpertFigures(Record):
    """What the experts of the `layers` that have some did, prefill and decode together: of each layer how many tokens
    took each expert (`choices`), of which a token takes `top`, and how many programs read its weights (`fetched`: a
    program reads those of an expert once for all tokens of a step). `weight_bytes`: of all experts in DRAM.
    `round_trip_cycles`: what a round trip of the host takes at least, reading and writing registers; counted, not
    simulated, and no part of the cycles of a phase."""

    layers: tuple[Count, ...]
    top: Count
    choices: tuple[tuple[Count, ...], ...]
    fetched: tuple[tuple[Count, ...], ...]
    weight_bytes: Count
    round_trip_cycles: Count

    @computed_field
    @property
    def busiest(self) -> tuple[float, ...]:
        """Of each layer the tokens of its busiest expert over those of an expert in the mean: 1 is balanced."""
        return tuple(max(some) * len(some) / sum(some) if sum(some) else 1.0 for some in self.choices)


class LanguageResults(Record):
    """What `meshloom generate` writes.

    `text`: what was generated behind `prompt`; `float_text`: what the float model says behind it; `agreement`: part of
    the generated tokens that the float model would have taken, too, behind the same text. Perplexities per token of a
    text that the model was not trained with, of which each window of the context is read anew; that of the integers as
    ONNX Runtime computes them. `complete`: whether all tokens are there, or the model has `ended` the text before
    with one that its folder names for that. `cache`: who keeps keys and values between steps. `bytes_checked`: of
    every tensor of every step; `mismatches`: of these, wrong ones; `divergences`: instructions whose cycles are not
    those of the model. `weight_bits`: 8, or 4 with a scale for each group (experts always have 8). `speculate`:
    tokens guessed before a step of decode, which verifies them; `tokens_guessed`: those of all steps;
    `tokens_accepted`: of these, those that the model has taken. `experts`: null for a model without. `clock_mhz`: of
    the chip, null if nobody says. `cpu_seconds`: of simulating.
    """

    schema_version: Literal[1] = 1
    started: datetime
    environment: dict[str, str]
    code: str
    model: str
    weights: Count
    chip: str
    chip_digest: str
    scheduler: str
    simulator: str
    chunk: Count
    speculate: Count = 0
    weight_bits: Annotated[int, Field(ge=4, le=8)] = 8
    tokens_guessed: Count = 0
    tokens_accepted: Count = 0
    context: Count
    cache: str
    cache_bytes: Count
    complete: bool
    ended: bool = False
    prompt: str
    text: str
    float_text: str
    agreement: Share | None
    perplexity: float
    float_perplexity: float
    prefill: PhaseFigures
    decode: PhaseFigures
    experts: ExpertFigures | None = None
    bytes_checked: Count
    mismatches: Count
    first_mismatch: str = ""
    divergences: Count
    first_divergence: str = ""
    cpu_seconds: float
    clock_mhz: float | None = None
    checkpoint: str

    @computed_field
    @property
    def decode_ms(self) -> float | None:
        """Milliseconds for a token of decode, null without a clock."""
        cycles = self.decode.cycles_per_token
        return None if self.clock_mhz is None or cycles is None else cycles / self.clock_mhz / 1e3

    @computed_field
    @property
    def prefill_ms(self) -> float | None:
        """Milliseconds of all of prefill, null without a clock."""
        cycles = self.prefill.cycles_per_token
        return None if self.clock_mhz is None or cycles is None else cycles * self.prefill.tokens / self.clock_mhz / 1e3

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
        changed = {"checkpoint": paths.for_file(self.checkpoint, path)}
        write_atomically(path, self.model_copy(update=changed).model_dump_json(indent=1) + "\n")
