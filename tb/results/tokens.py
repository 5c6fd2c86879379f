"""The results of serving texts, as data: figures of each run, its texts, and a row for each step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, computed_field

from meshloom.sched.support.files import write_atomically

from .record import Count, Record

Share = Annotated[float, Field(ge=0, le=1)]
MILLION = 1_000_000


class ExpertStepRow(Record):
    """What experts of a step cost: those whose weights were read from DRAM, in all layers together (`fetched`,
    `expert_bytes`), cycles of their programs, how often the host chose between two programs (`round_trips`), and the
    `host_cycles` of that, which are counted, not simulated."""

    fetched: Count
    expert_bytes: Count
    expert_cycles: Count
    round_trips: Count
    host_cycles: Count


class TokenStepRow(Record):
    """A step: decided in cycle `seen`, launched in cycle `start`, over in cycle `end`. `chunk`: the text whose prompt
    it read, null if none, and `chunk_tokens` of it; `decodes`: the texts of which it read the last token. `texts`: that
    were there. `rtl_cycles` is null without a device. `dram_bytes`: read and written, the program included.
    `host_bytes`: what the host wrote to DRAM before it, null without a device. `experts`: null of a model without."""

    seen: Count
    start: Count
    end: Count
    chunk: Count | None
    chunk_tokens: Count
    decodes: tuple[Count, ...]
    texts: Count
    rtl_cycles: Count | None
    model_cycles: Count
    dram_bytes: Count
    host_bytes: Count | None = None
    experts: ExpertStepRow | None = None
    reason: str


class TextRow(Record):
    """A text. `prompt`, `output`: tokens read and written; `ttft`: cycles from `arrival` to its first token; `tpot`:
    for each further one in the mean, null of a single token; `met`: all its limits, null without one. `text`: what was
    written, "" if the model alone ran."""

    number: Count
    arrival: Count
    prompt: Count
    output: Count
    ttft: Count
    tpot: float | None
    end: Count
    ttft_limit: Count | None
    tpot_limit: Count | None
    met: bool | None
    text: str = ""


class SpreadFigures(Record):
    """Of several numbers: mean, median, 99 % quantile (nearest rank), largest."""

    mean: float
    median: float
    p99: float
    worst: float


class TokenFigures(Record):
    """Figures of a run, in cycles: `ttft`, `tpot`: of all texts; `tokens`: written, `good_tokens`: of texts that met
    their limits, `met` of them; `cycles`: from the first arrival to the end; `batch`: texts of a decode step in the
    mean."""

    ttft: SpreadFigures
    tpot: SpreadFigures
    texts: Count
    met: Count
    tokens: Count
    good_tokens: Count
    cycles: Count
    batch: float

    @computed_field
    @property
    def tokens_per_megacycle(self) -> float:
        """Tokens written in a million cycles."""
        return MILLION * self.tokens / max(1, self.cycles)

    @computed_field
    @property
    def goodput(self) -> float:
        """The same of texts that met their limits."""
        return MILLION * self.good_tokens / max(1, self.cycles)


class TokenRun(Record):
    """A scenario served by one token scheduler. `weight_bits`: 8, or 4 with a scale for each group; `seats`, `chunk`:
    of the scenario; `context`: tokens that the model looks at; `wait`: cycles from the end of a step to the launch of
    the next. `simulator`: "" if the timeline model alone ran. `bytes_checked`: of every tensor of every step;
    `mismatches`: of these, wrong ones; `divergences`: instructions whose cycles are not the model's; `kept_steps`: of
    the steps, those that a run which was interrupted had done."""

    scenario: str
    model: str
    chip: str
    chip_digest: str
    clock_mhz: float | None
    scheduler: str
    steps_scheduler: str
    simulator: str
    weight_bits: Annotated[int, Field(ge=4, le=8)] = 8
    seats: Count
    chunk: Count
    context: Count = 0
    wait: Count
    figures: TokenFigures
    texts: tuple[TextRow, ...]
    steps: tuple[TokenStepRow, ...]
    bytes_checked: Count = 0
    mismatches: Count = 0
    first_mismatch: str = ""
    divergences: Count = 0
    first_divergence: str = ""
    cpu_seconds: float = 0.0
    kept_steps: Count = 0

    @computed_field
    @property
    def dated(self) -> bool:
        """Whether some text has a limit."""
        return any(text.met is not None for text in self.texts)

    @computed_field
    @property
    def dram_bytes_per_token(self) -> float:
        """Bytes that DRAM reads and writes for each token written, prompts and programs included."""
        return sum(step.dram_bytes for step in self.steps) / max(1, self.figures.tokens)

    @computed_field
    @property
    def host_bytes(self) -> int | None:
        """Bytes that the host wrote to DRAM before all steps; null without a device."""
        bytes_written = [step.host_bytes for step in self.steps if step.host_bytes is not None]
        return sum(bytes_written) if bytes_written else None

    @computed_field
    @property
    def experts(self) -> ExpertStepRow | None:
        """What experts cost in all steps together; null of a model without."""
        rows = [step.experts for step in self.steps if step.experts is not None]
        if not rows:
            return None
        return ExpertStepRow(**{name: sum(getattr(row, name) for row in rows) for name in ExpertStepRow.model_fields})

    @computed_field
    @property
    def tokens_per_second(self) -> float | None:
        """Tokens written in a second; null without a clock."""
        return None if self.clock_mhz is None else self.figures.tokens_per_megacycle * self.clock_mhz

    @computed_field
    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not well, in words."""
        who, sentences = f"{self.scenario} by {self.scheduler}", list[str]()
        if self.mismatches:
            sentences.append(
                f"{who}: {self.mismatches:,} of {self.bytes_checked:,} bytes are wrong: {self.first_mismatch}"
            )
        if self.divergences:
            sentences.append(f"{who}: {self.divergences:,} cycles are not those of the model: {self.first_divergence}")
        return tuple(sentences)


class TokenResults(Record):
    """What `meshloom serve-tokens` writes: a run for each scenario and scheduler."""

    schema_version: Literal[1] = 1
    started: datetime
    environment: dict[str, str]
    code: str
    runs: tuple[TokenRun, ...]

    @computed_field
    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not `ok`, in words."""
        return tuple(reason for run in self.runs for reason in run.reasons)

    @computed_field
    @property
    def ok(self) -> bool:
        """Whether every byte is right and every instruction ran in the cycles that the model says."""
        return not self.reasons

    def save(self, path: Path) -> None:
        """Writes the JSON file. Raises WriteError."""
        write_atomically(path, self.model_dump_json(indent=1) + "\n")


def name_of(runs: Sequence[str]) -> str:
    """The part of a file's name that says which scenarios were served."""
    return runs[0] if len(set(runs)) == 1 else f"{len(set(runs))}-scenarios"
