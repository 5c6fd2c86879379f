"""What a sweep's file says (TOML), and the row that each of its points leaves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import ConfigDict, Field, ValidationError, field_validator

from meshloom.hw.spec.config import Exact, mistakes
from meshloom.sched.support.reading import read_toml

#: A value of a parameter or of a field of a chip.
Scalar = bool | int | float | str


#: Values that one name may have.
MOST_VALUES = 1_000_000


class SweepError(ValueError):
    """A sweep that cannot be made; the message names the file, the field and the fix."""


class _Model(Exact):
    model_config = ConfigDict(frozen=True, extra="forbid")


#: How far from 0 a range may go: numbers that an int64 holds.
_BIGGEST = (1 << 63) - 1


class Range(_Model):
    """Whole numbers from `low` to `high`, both included, `step` apart."""

    low: Annotated[int, Field(ge=-_BIGGEST, le=_BIGGEST)]
    high: Annotated[int, Field(ge=-_BIGGEST, le=_BIGGEST)]
    step: Annotated[int, Field(ge=1)] = 1


def _listed(name: str, result: object) -> list[Scalar]:
    """Each of the values that a file gives for a name. Raises ValueError with what they must be."""
    if isinstance(result, Mapping):
        values = dict(cast(Mapping[str, Any], result))
        try:
            outcome = Range.model_validate(values, strict=True)
        except ValidationError as error:
            raise ValueError(f"{name}: {mistakes(error, values, Range)}") from None
        if outcome.high < outcome.low:
            raise ValueError(f"{name}: high = {outcome.high} is below low = {outcome.low}")
        count = (outcome.high - outcome.low) // outcome.step + 1
        if count > MOST_VALUES:
            what = f"low = {outcome.low} to high = {outcome.high} are {count:,} values"
            raise ValueError(f"{name}: {what}, {MOST_VALUES:,} are possible; take a larger step")
        return list(range(outcome.low, outcome.high + 1, outcome.step))
    listed = cast(list[Any], result) if isinstance(result, list) else []
    kinds: set[type[object]] = {float if type(value) is int else type(value) for value in listed}
    if len(kinds) != 1 or not kinds <= {str, bool, float}:
        raise ValueError(
            f"{name}: values must be a list of texts, of numbers, or of true and false, or {{low, high, step}}"
        )
    return listed


class SweepFile(_Model):
    """A sweep: every chip with every scheduler on every workload, with every value of what stands in braces.

    `{name}` in `schedulers` and `workloads` takes each value of `[parameters]`, `[chip]` has values of fields of the
    chips, named as in a chip's file. Conditions of `where` are SQL on the columns `chip`, `scheduler`, `workload`,
    `macs` (null for whole networks), `cores`, `lanes`, `rows`, `cols`, and on parameters and fields by their names.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=40)]
    measure: Annotated[Literal["model", "rtl"], Field(description="predicted cycles alone, or measured on the RTL")] = (
        "model"
    )
    device: Annotated[str, Field(description="what runs the programs of measure = rtl; see meshloom run --device")] = (
        "verilator"
    )
    chips: Annotated[tuple[str, ...], Field(min_length=1, description="built-in names, or TOML files beside this one")]
    schedulers: Annotated[
        tuple[str, ...], Field(min_length=1, description="as meshloom run takes them, with options after a colon")
    ] = ("loop_order",)
    workloads: Annotated[
        tuple[str, ...], Field(min_length=1, description="networks, layers, NETWORK/*, shapes, .onnx or .csv files")
    ]
    chip: Annotated[dict[str, list[Any]], Field(description="fields of the chips, and their values")] = {}
    parameters: Annotated[dict[str, list[Any]], Field(description="names in braces, and their values")] = {}
    where: Annotated[tuple[str, ...], Field(description="conditions that every point must meet")] = ()
    sample: (
        Annotated[int, Field(ge=1, description="so many of all points, chosen at random; all if left out")] | None
    ) = None
    seed: Annotated[int, Field(description="of the choice; a larger sample of the same seed keeps the smaller")] = 0

    @field_validator("chip", "parameters", mode="before")
    @classmethod
    def _values(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        tables = cast(Mapping[str, object], value)
        return {name: _listed(name, values) for name, values in tables.items()}


def read(path: Path) -> SweepFile:
    """Reads a sweep's file. Raises SweepError with the file, the field and what it must be."""
    values = read_toml(path, SweepError)
    try:
        return SweepFile.model_validate(values)
    except ValidationError as error:
        raise SweepError(f"{path}: {mistakes(error, values, SweepFile)}") from error


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a sweep's file."""
    values = SweepFile.model_json_schema()
    value = values["properties"]["sample"]  # TOML has no null: it is left out
    values["properties"]["sample"] = value["anyOf"][0] | {"title": value["title"]}
    single: list[dict[str, str]] = [{"type": kind} for kind in ("boolean", "number", "string")]
    several = {"anyOf": [{"type": "array", "minItems": 1, "items": each} for each in single]}
    for name in ("chip", "parameters"):
        values["properties"][name]["additionalProperties"] = {"anyOf": [*several["anyOf"], {"$ref": "#/$defs/Range"}]}
    values["$defs"] = {"Range": Range.model_json_schema()}
    values["title"] = "Sweep"
    return values


class PointRow(_Model):
    """One point of a sweep, predicted or measured, or why it could not be.

    `key`: SHA-256 of all that decides the point; two rows with the same key are the same but for their `seconds`.
    `parameters`: JSON of the values that are its own. `cycles`: measured ones if there are, else predicted.
    `utilisation`: useful multiply-accumulates / (processing elements x cycles). `dram_bytes`: read and written, with
    the program. `seconds`: wall clock of making schedule, program and prediction; `simulation_seconds`: CPU time of the
    simulator. `error`: one sentence; `error_kind`, `error_stage`: as in `RowError`.
    """

    key: str
    chip: str
    chip_digest: str = ""
    scheduler: str
    workload: str
    measure: str
    parameters: str = "{}"
    status: str
    cycles: int | None = None
    model_cycles: int | None = None
    rtl_cycles: int | None = None
    error_percent: float | None = None
    macs: int | None = None
    utilisation: float | None = None
    dram_bytes: int | None = None
    instructions: int | None = None
    bytes_checked: int | None = None
    mismatches: int | None = None
    seconds: float | None = None
    simulation_seconds: float | None = None
    error: str | None = None
    error_kind: str | None = None
    error_stage: str | None = None
    code: str = ""


#: Status of a point that was predicted and not measured, and of one that could not be; others are those of `Status`.
PREDICTED, FAILED = "predicted", "failed"
