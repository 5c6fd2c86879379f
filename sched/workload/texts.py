"""Requests for text from a language model: when they arrive, how long prompt and answer are, how fast they must be.

    name = "chat"
    model = "shakespeare"
    context = 64            # of a folder or a GGUF file: tokens that it looks at
    calibrate = "own.txt"   # and a text like those that it will write, beside this file
    seats = 4               # texts whose keys and values are in memory at a time
    chunk = 16              # tokens of a prompt that a step reads
    ttft_limit = 500_000    # cycles from arrival to the first token
    tpot_limit = 120_000    # cycles for each token behind it, in the mean

    [[request]]
    prompt = "ROMEO:\\n"     # or a number of tokens, taken from the model's text
    output = 8              # tokens to write
    arrival = [0, 200_000]  # a cycle, a list of cycles, or a Poisson process as in `arrivals`

    [trace]                 # besides, or instead
    file = "azure.csv"      # columns TIMESTAMP, ContextTokens, GeneratedTokens
    cycles_per_second = 500_000

A trace is in the form of the public Azure LLM inference traces. Its first row by time arrives in cycle `start`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from meshloom.hw.spec.config import Exact

from ..support.text import shortened
from .arrivals import LAST, Poisson, ScenarioError, cycles_of
from .language.model import SHIPPED, LanguageModel
from .scenario_files import read_scenario, valid

#: Columns of a trace that count.
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
#: Most requests of a scenario, and tokens of a length.
MOST, LONGEST = 100_000, 1_000_000
Cycle = Annotated[int, Field(ge=0, le=LAST)]
Cycles = Annotated[int, Field(ge=1, le=LAST)]
Length = Annotated[int, Field(ge=1, le=LONGEST)]


@dataclass(frozen=True)
class TextLimits:
    """Until when tokens must be there, in cycles: the first one after arrival (`ttft`), each further one in the mean
    (`tpot`). None: whenever."""

    ttft: int | None = None
    tpot: int | None = None


NO_LIMITS = TextLimits()


@dataclass(frozen=True)
class TextRequest:
    """A text that is asked for. `prompt`, `output`: tokens to read and to write; `text`: the prompt, "" for one of the
    model's own; `where`: what it is called in errors."""

    arrival: int
    prompt: int
    output: int
    limits: TextLimits = NO_LIMITS
    text: str = ""
    where: str = ""


@dataclass(frozen=True)
class TextScenario:
    """`requests` in order of arrival; of equal ones, as they are written. `seats`: texts whose keys and values are in
    memory at a time, and so most of a step; `chunk`: tokens of a prompt that a step reads. `calibrate`, `context`: of
    the model, see `pretrained.load`."""

    name: str
    model: str
    seats: int
    chunk: int
    requests: tuple[TextRequest, ...]
    calibrate: Path | None = None
    context: int = 0

    @property
    def source(self) -> tuple[str, Path | None, int]:
        """The model and how it is read, as `pretrained.load` takes them."""
        return self.model, self.calibrate, self.context

    def read_by(self, model: LanguageModel) -> TextScenario:
        """The same, with prompts as long as the model's tokens of them. Raises LanguageError for a character without a
        token."""
        requests = [
            replace(request, prompt=len(model.tokens(request.text))) if request.text else request
            for request in self.requests
        ]
        return replace(self, requests=tuple(requests))

    def check(self, model: LanguageModel) -> None:
        """Raises ScenarioError for a request that the model's context has no room for, and for a chunk that is as
        large; LanguageError for a character without a token."""
        if self.chunk >= model.context:
            raise ScenarioError(
                f"chunk = {self.chunk}: model {model.name} looks at {model.context} tokens; take at most "
                f"{model.context - 1}"
            )
        longer = f", or take a larger context, up to {model.reach}" if model.reach > model.context else ""
        for request in self.requests:
            model.tokens(request.text)
            if request.prompt > model.context:
                raise ScenarioError(
                    f"{request.where}: a prompt of {request.prompt} tokens is longer than the context of model "
                    f"{model.name}, {model.context}; shorten it, or have a trace divided by `shrink`{longer}"
                )
            if (tokens := request.prompt + request.output - 1) > model.context:
                raise ScenarioError(
                    f"{request.where}: a prompt of {request.prompt} tokens and an output of {request.output} are "
                    f"{tokens} tokens to look at, model {model.name} looks at {model.context}; shorten one of "
                    f"them{longer}"
                )


class _Model(Exact):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Entry(_Model):
    """A text that is asked for, once or several times."""

    prompt: Annotated[str, Field(min_length=1)] | Length
    output: Annotated[Length, Field(description="tokens to write")]
    arrival: Any = 0
    ttft_limit: Annotated[Cycles, Field(description="cycles from arrival to the first token")] | None = None
    tpot_limit: Annotated[Cycles, Field(description="cycles for each token behind it, in the mean")] | None = None


class TextTrace(_Model):
    """Requests of a CSV file with the columns TIMESTAMP, ContextTokens and GeneratedTokens."""

    file: Annotated[str, Field(min_length=1, description="beside the scenario")]
    cycles_per_second: Annotated[float, Field(gt=0, le=1e12, description="of the trace's own time")]
    rows: Annotated[int, Field(ge=1, le=MOST, description="only so many, the first by time")] = MOST
    shrink: Annotated[int, Field(ge=1, le=LONGEST, description="what lengths are divided by, rounded up")] = 1
    start: Annotated[Cycle, Field(description="the cycle in which the first row arrives")] = 0


class _File(_Model):
    """Texts that are asked for from one language model. Limits hold for all requests that have none of their own."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=40)]
    model: Annotated[
        str, Field(min_length=1, description="a model that ships, or beside the scenario an .npz file or a folder")
    ]
    context: (
        Annotated[int, Field(ge=2, le=LONGEST, description="tokens that a model of a folder or a GGUF file looks at")]
        | None
    ) = None
    calibrate: (
        Annotated[
            str, Field(min_length=1, description="beside the scenario: a text for the steps of such a model's int8")
        ]
        | None
    ) = None
    seats: Annotated[int, Field(ge=1, le=64, description="texts whose keys and values are in memory at a time")] = 4
    chunk: Annotated[int, Field(ge=2, le=4096, description="tokens of a prompt that a step reads")] = 16
    ttft_limit: Cycles | None = None
    tpot_limit: Cycles | None = None
    request: Any = None
    trace: TextTrace | None = None


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario's file, with what `load` reads itself."""
    arrival = TypeAdapter(Cycle | Annotated[list[Cycle], Field(min_length=1)] | Poisson).json_schema()
    schema, entry = _File.model_json_schema(), _Entry.model_json_schema()
    for form in (schema, entry, schema["$defs"]["TextTrace"]):
        for name, field in form["properties"].items():
            if "anyOf" in field and {"type": "null"} in field["anyOf"]:  # TOML has no null: they are left out
                form["properties"][name] = field["anyOf"][0] | {k: v for k, v in field.items() if k == "title"}
    entry["properties"]["arrival"] = {"$ref": "#/$defs/Arrival", "default": 0}
    schema["properties"]["request"] = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Request"}}
    schema["anyOf"] = [{"required": ["request"]}, {"required": ["trace"]}]
    schema["title"], entry["title"] = "Texts", "Request"
    schema["$defs"] |= arrival.pop("$defs") | {"Arrival": arrival, "Request": entry}
    return schema


def load(path: Path) -> TextScenario:
    """Reads a scenario. Raises ScenarioError with the file, the request and the field that is wrong, and what would be
    right."""
    return read_scenario(path, lambda values: _scenario(values, path.parent))


def _scenario(values: dict[str, Any], folder: Path) -> TextScenario:
    if "network" in values:
        raise ScenarioError("asks for networks; `meshloom serve` serves them")
    head = valid(_File, values, "")
    limits = TextLimits(head.ttft_limit, head.tpot_limit)
    items: Any = [] if head.request is None else head.request
    if not isinstance(items, list) or not (items or head.trace):
        raise ScenarioError("there is no [[request]] and no [trace]; a scenario asks for one text at least")
    requests: list[TextRequest] = []
    for number, item in enumerate(items, start=1):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  (TOML)
        if not isinstance(item, Mapping):
            raise ScenarioError(f"request {number} must be a table: [[request]]")
        entry: dict[str, Any] = dict(item)  # pyright: ignore[reportUnknownArgumentType]  (TOML: text keys)
        requests += _requests(entry, f"request {number}", limits, folder)
    if head.trace is not None:
        requests += _traced(head.trace, limits, folder)
    if len(requests) > MOST:
        raise ScenarioError(f"asks for {len(requests)} texts; take at most {MOST}")
    beside = folder / head.model
    own = head.model not in SHIPPED and (head.model.endswith(".npz") or beside.exists())
    model = str(beside) if own else head.model
    requests.sort(key=lambda request: request.arrival)
    text = folder / head.calibrate if head.calibrate else None
    return TextScenario(head.name, model, head.seats, head.chunk, tuple(requests), text, head.context or 0)


def _requests(values: dict[str, Any], where: str, limits: TextLimits, folder: Path) -> list[TextRequest]:
    """A request for each arrival of a [[request]]."""
    if "prompt" in values and not _is_prompt(values["prompt"]):
        raise ScenarioError(
            f"{where}: prompt = {shortened(repr(values['prompt']))} must be text, at least one character, or a number "
            f"of tokens from 1 to {LONGEST}"
        )
    entry = valid(_Entry, values, where + ": ")
    if _is_trace(entry.arrival):
        raise ScenarioError(f"{where}: arrival: a trace of texts has a table of its own, [trace], with their lengths")
    try:
        cycles = cycles_of(entry.arrival, where, folder)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    text = entry.prompt if isinstance(entry.prompt, str) else ""
    length = len(text) or int(entry.prompt)
    own = TextLimits(entry.ttft_limit or limits.ttft, entry.tpot_limit or limits.tpot)
    return [TextRequest(cycle, length, entry.output, own, text, where) for cycle in cycles]


def _is_prompt(value: object) -> bool:
    return value != "" if isinstance(value, str) else type(value) is int and 1 <= value <= LONGEST


def _is_trace(arrival: object) -> bool:
    return isinstance(arrival, Mapping) and "trace" in arrival


def _traced(trace: TextTrace, limits: TextLimits, folder: Path) -> list[TextRequest]:
    """The requests of a trace."""
    path = folder / trace.file
    rows = read_trace(path)[: trace.rows]
    requests: list[TextRequest] = []
    for row in rows:
        arrival = trace.start + round((row.at - rows[0].at).total_seconds() * trace.cycles_per_second)
        if arrival > LAST:
            raise ScenarioError(
                f"{path}, line {row.line}: arrives in cycle {arrival}, beyond {LAST}; take fewer rows, or fewer "
                "cycles_per_second"
            )
        prompt, output = (-(-length // trace.shrink) for length in (row.context, row.generated))
        requests.append(TextRequest(arrival, prompt, output, limits, "", f"{path}, line {row.line}"))
    return requests


@dataclass(frozen=True)
class TraceRow:
    """A row of a trace: when it was asked for, tokens that were read and written, and its line in the file."""

    at: datetime
    context: int
    generated: int
    line: int


def read_trace(path: Path) -> list[TraceRow]:
    """The rows of a trace of texts by time; other columns than `COLUMNS` do not count. Raises ScenarioError with the
    line that is wrong."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, row) for row in reader if row]
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"{path}: is no CSV file: {error}") from error
    heads = [cell.strip() for cell in lines[0][1]] if lines else []
    for column in COLUMNS:
        if heads.count(column) != 1:
            have = ", ".join(heads) or "nothing"
            raise ScenarioError(f"{path}, line 1: column {column} is missing or there twice; it names {have}")
    if len(lines) == 1:
        raise ScenarioError(f"{path}: the trace is empty; it has a line for the heads of its columns alone")
    places = [heads.index(column) for column in COLUMNS]
    return sorted((_row(path, line, row, places) for line, row in lines[1:]), key=lambda row: row.at)


def _row(path: Path, line: int, row: Sequence[str], places: Sequence[int]) -> TraceRow:
    """A row. Raises ScenarioError that names the column."""
    if len(row) <= max(places):
        raise ScenarioError(f"{path}, line {line}: {','.join(row)!r} has fewer cells than line 1 has columns")
    moment, *lengths = (row[place].strip() for place in places)
    try:
        at = datetime.fromisoformat(moment)
    except ValueError:
        raise ScenarioError(
            f"{path}, line {line}: TIMESTAMP {moment!r} is no time like 2023-11-16 18:15:46.6805900"
        ) from None
    for column, cell in zip(COLUMNS[1:], lengths, strict=True):
        if not (cell.isascii() and cell.isdecimal()) or not 1 <= int(cell[:9]) <= LONGEST or len(cell) > 9:
            raise ScenarioError(
                f"{path}, line {line}: {column} {cell!r} must be a whole number of tokens from 1 to {LONGEST}"
            )
    return TraceRow(at if at.tzinfo else at.replace(tzinfo=UTC), int(lengths[0]), int(lengths[1]), line)
