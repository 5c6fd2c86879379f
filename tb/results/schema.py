"""The results of co-simulation, as data: the rows of the table, their file format, and the verdict on a run.

The JSON format is documented field by field in `docs/formats.md`; `SCHEMA_VERSION` names it. Everything that
can be computed from other fields (error, speed, status) is computed, is written out for readers in other languages,
and is checked against the other fields when a file is loaded, so that no file can contradict itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, ValidationError, computed_field, model_validator

from meshloom.sched.ir.schedule import ToolClaim
from meshloom.sched.support.files import write_atomically
from meshloom.sched.support.reading import parse_json

from . import paths
from .area import AreaTotals
from .clock import ClockFigures
from .energy import EnergyFigures
from .figures import (
    ArrayFigures,
    Congestion,
    Divergence,
    FaultReport,
    GradientFigures,
    LinkFigures,
    NetworkFigures,
    WrongByte,
)
from .record import Count, Record, ResultsError

SCHEMA_VERSION = 1
#: Bounds of the model's error |model - RTL| / RTL, in percent: the mean over a run's rows, and each row.
MEAN_ERROR_PERCENT = 2.0
WORST_ERROR_PERCENT = 5.0


class Status(StrEnum):
    """The status of a row, worst first; `planned` is of no row that a run has left."""

    FAILED = "failed"  #: it did not run to a comparison; `failure` gives the reason
    FAULT = "fault"  #: the chip raised a fault
    MISMATCH = "mismatch"  #: a byte differs from the golden model
    UNCHECKED = "unchecked"  #: it ran, but its expected bytes are unknown
    INCOMPLETE = "incomplete"  #: all bytes are right, but not every instruction was compared with the model
    MODEL = "model"  #: all bytes are right, but predicted cycles or planned arrivals are not
    PASSED = "passed"
    PLANNED = "planned"  #: it has not run, and was not to: what is known is the timeline model's plan


class RowError(Record):
    """Why a workload did not run to its end. `stage`: the step that failed: reading, scheduling, lowering, checking,
    timing, proving, predicting, simulating or comparing. `traceback`: the file with that of an unexpected error."""

    kind: str
    stage: str
    message: str
    traceback: str | None = None

    @property
    def words(self) -> str:
        """One sentence."""
        if self.traceback is None:
            return f"{self.stage}: {self.message}"
        return f"{self.stage}: {self.kind}: {self.message}; its traceback is in {self.traceback}"


class Settings(Record):
    """Everything that determines a row besides the chip: two rows with equal settings and `chip_digest` are the same.

    `code`: version, commit and digest of the sources. `scheduler`: as requested, with all its options. `input`: what it
    was fed, and `input_digest` the SHA-256 of those arrays. `model_digest`: SHA-256 of an ONNX file; built-in networks
    and layers are determined by `code`, and random data is seeded by the workload's name. A float model was quantised
    with the files `calibration` (name and SHA-256 of each) and `mean`, `std`; `bind`: sizes that its file leaves open;
    `seed`: of the weights that its file has no numbers for (None: it has them all).
    """

    code: str
    scheduler: str
    simulator_version: str
    input: str = ""
    input_digest: str = ""
    model_digest: str = ""
    file: str = ""  #: saved schedule or program that was run
    file_digest: str = ""  #: its SHA-256
    calibration: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    bind: tuple[str, ...] = ()
    seed: int | None = None


class Row(Record):
    """One workload on one chip under one scheduler, run once on one simulator.

    `utilisation` is useful multiply-accumulates / (processing elements x RTL cycles), 0..1. `cpu_seconds` is the
    simulator process's CPU time for this program, without building and comparing. Paths: see `paths`.
    """

    workload: str
    chip: str
    chip_digest: str = ""  #: of the chip's whole description: names may be equal
    scheduler: str
    simulator: str
    settings: Settings | None = None
    rtl_cycles: Count = 0
    model_cycles: Count = 0
    utilisation: Annotated[float, Field(ge=0, le=1)] = 0.0
    bytes_checked: Count = 0
    mismatches: Count = 0
    first_mismatch: str = ""
    wrong_byte: WrongByte | None = None  #: of the output in DRAM
    planned_arrivals: Count = 0  #: MOVEs of an ahead-of-time program
    arrival_mismatches: Count = 0  #: those whose last word was delivered in another cycle than planned
    first_arrival_mismatch: str = ""
    faults: Count = 0
    fault_reports: tuple[FaultReport, ...] = ()
    instructions: Count = 0
    records_expected: Count = 0  #: trace records that the program must make
    records_compared: Count = 0  #: those that were compared with their prediction
    record_problem: str = ""  #: why some are missing or wrong, and the fix
    corrected_words: Count = 0  #: words with one wrong bit that the code of a chip with `ecc` corrected
    untraced: str = ""  #: why no instruction was compared with the model, if the chip keeps no trace records
    cpu_seconds: Annotated[float, Field(ge=0)] = 0.0
    first_divergence: Divergence | None = None
    network: NetworkFigures | None = None
    gradient: GradientFigures | None = None
    arrays: ArrayFigures | None = None  #: of a single layer, if all of its records are there
    links: tuple[LinkFigures, ...] = ()  #: of the data plane, if requested; like `congestion`
    congestion: Congestion | None = None
    unchecked: str = ""  #: why no byte was compared, if it is unknown what the program computes
    failure: str | None = None  #: why the comparison is void
    error: RowError | None = None  #: the error that ended the run before the comparison
    energy: EnergyFigures | None = None  #: an estimate, by the table that it names; null if it did not run to its end
    claim: ToolClaim | None = None  #: of a layer by another tool's mapping: what that says of it
    time: ClockFigures | None = (
        None  #: its cycles as time; null if the chip says no clock, or it did not run to its end
    )
    area: AreaTotals | None = None  #: an estimate for the chip; null if it has not been measured yet
    waves: str | None = None  #: waveform file
    artefacts: str | None = None  #: folder of `results.artefacts`

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mismatches > self.bytes_checked:
            raise ValueError(f"mismatches = {self.mismatches} exceed bytes_checked = {self.bytes_checked}")
        if self.records_compared > self.records_expected:
            raise ValueError(
                f"records_compared = {self.records_compared} exceed records_expected = {self.records_expected}"
            )
        if len(self.fault_reports) > self.faults:
            raise ValueError(f"{len(self.fault_reports)} fault_reports, but faults = {self.faults}")
        return self

    @computed_field
    @property
    def error_percent(self) -> float | None:
        """Signed error of the model, 100 * (model - RTL) / RTL; None when there is no RTL run."""
        return 100.0 * (self.model_cycles - self.rtl_cycles) / self.rtl_cycles if self.rtl_cycles else None

    @computed_field
    @property
    def claimed_cycles(self) -> int | None:
        """What the tool that made the layer's mapping says that it takes; None if none does."""
        return self.claim.cycles if self.claim else None

    @computed_field
    @property
    def beyond_claim_percent(self) -> float | None:
        """How far the RTL is beyond that, 100 * (RTL - claimed) / claimed; None without a claim or an RTL run."""
        claimed = self.claimed_cycles
        return 100.0 * (self.rtl_cycles - claimed) / claimed if claimed and self.rtl_cycles else None

    @computed_field
    @property
    def cycles_per_second(self) -> float:
        """Simulated cycles per CPU-second; 0 when nothing ran."""
        return self.rtl_cycles / self.cpu_seconds if self.cpu_seconds else 0.0

    @computed_field
    @property
    def status(self) -> Status:
        """The worst finding. A row that compared no byte has failed, whatever its other fields."""
        if self.error is not None or self.failure is not None:
            return Status.FAILED
        if not self.simulator:
            return Status.PLANNED
        if self.faults:
            return Status.FAULT
        if self.mismatches:
            return Status.MISMATCH
        if self.error_percent is None or not (self.bytes_checked or self.unchecked):
            return Status.FAILED
        if self.unchecked:
            return Status.UNCHECKED
        if self.record_problem or self.records_compared < self.records_expected:
            return Status.INCOMPLETE
        if self.arrival_mismatches:
            return Status.MODEL
        return Status.MODEL if abs(self.error_percent) > WORST_ERROR_PERCENT else Status.PASSED

    def with_paths(self, change: Callable[[str], str]) -> Row:
        """The row with every path changed."""
        update: dict[str, Any] = {"waves": self.waves and change(self.waves)}
        update["artefacts"] = self.artefacts and change(self.artefacts)
        if self.error is not None and self.error.traceback:
            update["error"] = self.error.model_copy(update={"traceback": change(self.error.traceback)})
        if self.network is not None:
            update["network"] = self.network.with_paths(change)
        return self.model_copy(update=update)

    @property
    def reason(self) -> str:
        """One sentence on why the row did not pass; empty when it did."""
        match self.status:
            case Status.PASSED:
                return ""
            case Status.PLANNED:
                return "it has not run: its cycles are planned by the timeline model"
            case Status.FAILED if self.error is not None:
                return self.error.words
            case Status.FAILED:
                return self.failure or "no output byte was compared"
            case Status.FAULT if self.fault_reports:
                fault = self.fault_reports[0]
                at = f"tile {fault.tile}, {fault.unit}, tag {fault.tag}" + f" ({fault.label})" * bool(fault.label)
                why = f"; {fault.explanation}" if fault.explanation else ""
                return f"fault {fault.cause} at {at}, value {fault.value:#x}{why}"
            case Status.FAULT:
                return f"{self.faults} faults"
            case Status.MISMATCH:
                where = f", first in {self.first_mismatch}" if self.first_mismatch else ""
                return f"{self.mismatches} of {self.bytes_checked} bytes differ from the golden model{where}"
            case Status.UNCHECKED:
                return f"it ran, and no output byte was checked: {self.unchecked}"
            case Status.INCOMPLETE:
                why = f": {self.record_problem}" * bool(self.record_problem)
                counts = f"{self.records_compared:,} of {self.records_expected:,} trace records"
                return f"the comparison with the model is incomplete, {counts} were compared{why}"
            case Status.MODEL:
                return f"{' and '.join(self._off())}{self._divergence()}"

    def _off(self) -> list[str]:
        """The findings that differ from the prediction."""
        texts: list[str] = []
        if self.arrival_mismatches:
            first = f" ({self.first_arrival_mismatch})" if self.first_arrival_mismatch else ""
            texts.append(f"{self.arrival_mismatches} of {self.planned_arrivals} planned arrivals are off{first}")
        if self.error_percent is not None and abs(self.error_percent) > WORST_ERROR_PERCENT:
            texts.append(f"model error {self.error_percent:+.2f} % exceeds {WORST_ERROR_PERCENT:g} %")
        return texts

    def _divergence(self) -> str:
        first = self.first_divergence
        if first is None:
            return f"; {self.untraced}" * bool(self.untraced)
        label = f" ({first.label})" if first.label else ""
        return (
            f"; first divergence at tile {first.tile}, {first.unit}, tag {first.tag}{label}: predicted "
            f"{first.predicted_start}..{first.predicted_end}, measured {first.measured_start}..{first.measured_end}"
        )


class Summary(Record):
    """Totals over the rows, and the problems of the run as a whole (`reasons`; empty = none)."""

    rows: Count
    passed: Count
    mean_error_percent: float | None
    worst_error_percent: float | None
    ok: bool
    reasons: tuple[str, ...]


def summarise(rows: Sequence[Row], complete: bool = True) -> Summary:
    """Judges a run: every row passed, and the mean |error| of a run of several rows is within its bound."""
    errors = [abs(row.error_percent) for row in rows if row.error_percent is not None]
    mean = sum(errors) / len(errors) if errors else None
    reasons = [f"{row.workload}: {row.reason}" for row in rows if row.status is not Status.PASSED]
    if len(errors) > 1 and mean is not None and mean > MEAN_ERROR_PERCENT:
        reasons.append(f"mean model error {mean:.2f} % exceeds {MEAN_ERROR_PERCENT:g} %")
    if not complete:
        reasons.append("the run did not come to its end")
    elif not rows:
        reasons.append("no workload ran")
    return Summary(
        rows=len(rows),
        passed=sum(row.status is Status.PASSED for row in rows),
        mean_error_percent=mean,
        worst_error_percent=max(errors, default=None),
        ok=not reasons,
        reasons=tuple(reasons),
    )


class Results(Record):
    """One run: its rows, the request, and the versions with which it was made."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run: str
    started: datetime
    wall_seconds: Annotated[float, Field(ge=0)]
    complete: bool
    environment: dict[str, str]
    rows: tuple[Row, ...]

    @computed_field
    @property
    def summary(self) -> Summary:
        """The verdict; see `summarise`."""
        return summarise(self.rows, self.complete)

    @model_validator(mode="before")
    @classmethod
    def _known_version(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        values = cast(dict[Any, Any], value)
        result = values.get("schema_version", SCHEMA_VERSION)
        if result != SCHEMA_VERSION:
            raise ValueError(f"schema_version {result!r} is not {SCHEMA_VERSION}: rerun to rewrite it")
        return values

    def save(self, path: Path) -> None:
        """Writes the JSON file. Raises WriteError."""
        write_atomically(path, self.for_file(path).text)

    def for_file(self, path: Path) -> Results:
        """The same as the file of that path has it: see `paths`."""
        return self.with_paths(lambda each: paths.for_file(each, path))

    def with_paths(self, change: Callable[[str], str]) -> Results:
        """The same with every path of its rows changed."""
        return self.model_copy(update={"rows": tuple(row.with_paths(change) for row in self.rows)})

    @property
    def text(self) -> str:
        """The text that `save` writes."""
        return self.model_dump_json(indent=2) + "\n"


def load(path: Path) -> Results:
    """Reads a results file; its paths are then relative to the working directory. Raises ResultsError with file and
    field; OSError if it cannot be read."""
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ResultsError(f"{path}: is not JSON: it is not UTF-8 text") from error
    except ValueError as error:
        raise ResultsError(f"{path}: {error}") from error
    try:
        results = Results.model_validate(values)
        return results.with_paths(lambda each: paths.from_file(each, path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        why = first["msg"].removeprefix("Value error, ")
        mend = {
            "missing": "; is it a results file of `meshloom run`?",
            "model_type": "; is it a results file of `meshloom run`?",
            "extra_forbidden": ": this version of Meshloom does not know it; a later one wrote the file, run it again",
        }
        raise ResultsError(f"{path}: {where + ': ' if where else ''}{why}{mend.get(first['type'], '')}") from error
