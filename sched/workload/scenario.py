"""Scenarios: which networks are asked for, when, and until when. One TOML file each:

    name = "mixed"
    deadline_factor = 0.4                # of all networks that say nothing else

    [[network]]
    name = "googlenet"                   # a built-in network or an .onnx file
    calibrate = ["cat.png"]              # of a float .onnx file: what it is quantised with; see `--calibrate`
    bind = { length = 32 }               # sizes that an .onnx file leaves open; see `--bind`
    batch = 4
    arrival = [0, 250000]                # see `arrivals`; 0 if left out
    deadline = 900000                    # cycles after each arrival, instead of a factor

The deadline of a request is its arrival plus `deadline`, or plus `deadline_factor` times what the network takes alone
on one core (Layer-Puzzle, section IV-A). A factor of 0 means none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, field_validator

from meshloom.hw.spec.config import Exact, near_or_all

from .arrivals import LAST, Poisson, ScenarioError, Trace, cycles_of
from .scenario_files import read_scenario, valid

Cycle = Annotated[int, Field(ge=0, le=LAST)]
Factor = Annotated[float, Field(ge=0, le=1000)]


@dataclass(frozen=True)
class Request:
    """One network that is asked for. `arrival`: cycle. `deadline`: cycles after it. `factor`: of the isolated time on
    one core. At most one of the two is not None."""

    network: str
    batch: int = 1
    arrival: int = 0
    deadline: int | None = None
    factor: float | None = None


@dataclass(frozen=True)
class FileReading:
    """How an .onnx file is read. `calibration`: what a float model is quantised with; `bind`: sizes that it leaves
    open, by name."""

    calibration: tuple[Path, ...] = ()
    bind: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Scenario:
    """`requests` in order of arrival; of equal ones, as they are written. `readings`: of .onnx files of which something
    is said, by network."""

    name: str
    requests: tuple[Request, ...]
    readings: Mapping[str, FileReading] = field(default_factory=dict[str, "FileReading"])

    @property
    def networks(self) -> tuple[tuple[str, int], ...]:
        """Each network and batch size once, in order of first arrival."""
        return tuple(dict.fromkeys((request.network, request.batch) for request in self.requests))


class _Model(Exact):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Entry(_Model):
    """A network that is asked for, once or several times. Its deadline is `deadline` cycles after each arrival, or
    `deadline_factor` times what it takes alone on one core; not both."""

    name: Annotated[str, Field(min_length=1, description="a built-in network, or an .onnx file beside the scenario")]
    batch: Annotated[int, Field(ge=1, le=256, description="images of one request")] = 1
    calibrate: Annotated[
        list[str], Field(description="pictures or arrays beside the scenario that a float .onnx file is quantised with")
    ] = []
    bind: Annotated[
        dict[str, Annotated[int, Field(ge=1)]], Field(description="sizes that an .onnx file leaves open, by name")
    ] = {}
    arrival: Any = 0
    deadline: Annotated[int, Field(ge=1, le=LAST, description="cycles after each arrival")] | None = None
    deadline_factor: Factor | None = None

    @field_validator("deadline", mode="before")
    @classmethod
    def _some_time(cls, value: Any) -> Any:
        if type(value) is int and value == 0:
            raise ValueError("0 cycles are met by nobody; give more, or leave it out for no deadline")
        return value


class _File(_Model):
    """A scenario: which networks are asked for, when, and until when. What stands in front of the networks holds for
    all that say nothing else; a factor of 0 means no deadline."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=40)]
    deadline_factor: Factor = 0.0
    network: Any = None


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario's file, with what `cycles_of` and `load` read themselves."""
    arrival = TypeAdapter(Cycle | Annotated[list[Cycle], Field(min_length=1)] | Poisson | Trace).json_schema()
    schema, network = _File.model_json_schema(), _Entry.model_json_schema()
    network["properties"]["arrival"] = {"$ref": "#/$defs/Arrival", "default": 0}
    for name in ("deadline", "deadline_factor"):  # TOML has no null: they are left out
        form = network["properties"][name]
        network["properties"][name] = form["anyOf"][0] | {"title": form["title"]}
    schema["properties"]["network"] = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Network"}}
    schema["required"].append("network")
    schema["title"], network["title"] = "Scenario", "Network"
    schema["$defs"] = arrival.pop("$defs") | {"Arrival": arrival, "Network": network}
    return schema


def load(path: Path, names: Collection[str] | None = None) -> Scenario:
    """Reads a scenario. `names`: names of networks that there are; None: any name will do.

    Raises ScenarioError with the file, the network and the field that is wrong, and what would be right.
    """
    return read_scenario(path, lambda values: _scenario(values, path.parent, names))


def _scenario(values: dict[str, Any], folder: Path, names: Collection[str] | None) -> Scenario:
    if "model" in values:
        raise ScenarioError("asks for texts of a language model; `meshloom serve-tokens` serves them")
    head = valid(_File, values, "")
    networks: Any = head.network
    if not isinstance(networks, list) or not networks:
        raise ScenarioError("there is no [[network]]; a scenario asks for at least one")
    requests: list[Request] = []
    readings: dict[str, FileReading] = {}
    for number, item in enumerate(networks, start=1):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  (TOML)
        if not isinstance(item, Mapping):
            raise ScenarioError(f"network {number} must be a table: [[network]]")
        entry: dict[str, Any] = dict(item)  # pyright: ignore[reportUnknownArgumentType]  (TOML: text keys)
        where = f"network {number} ({entry.get('name', 'without a name')})"
        some, reading = _requests(entry, where, head, folder, names)
        requests += some
        if reading != FileReading() and readings.setdefault(some[0].network, reading) != reading:
            raise ScenarioError(
                f"{where}: calibrate and bind are not those of another [[network]] of this file; give all the same"
            )
    return Scenario(head.name, tuple(sorted(requests, key=lambda request: request.arrival)), readings)


def _requests(
    values: dict[str, Any], where: str, head: _File, folder: Path, names: Collection[str] | None
) -> tuple[list[Request], FileReading]:
    """A request for each arrival of a [[network]], and how its file is read; `where` begins what is said of it."""
    entry = valid(_Entry, values, where + ": ")
    if entry.deadline is not None and entry.deadline_factor is not None:
        raise ScenarioError(f"{where}: deadline and deadline_factor are given; leave one out")
    name = entry.name
    if name.endswith(".onnx"):
        name = str(folder / name)
        if not Path(name).is_file():
            raise ScenarioError(f"{where}: name: there is no file {name}")
    elif names is not None and name not in names:
        raise ScenarioError(f"{where}: name: unknown network {name!r}; {near_or_all(name, names)}")
    files = tuple(folder / each for each in entry.calibrate)
    if (files or entry.bind) and not name.endswith(".onnx"):
        raise ScenarioError(f"{where}: calibrate and bind are for .onnx files; {name} has its own numbers and sizes")
    if missing := next((path for path in files if not path.is_file()), None):
        raise ScenarioError(f"{where}: calibrate: there is no file {missing}")
    try:
        cycles = cycles_of(entry.arrival, entry.name, folder)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    reading = FileReading(files, tuple(entry.bind.items()))
    factor = head.deadline_factor if entry.deadline_factor is None else entry.deadline_factor
    if entry.deadline is not None or not factor:
        return [Request(name, entry.batch, cycle, entry.deadline) for cycle in cycles], reading
    return [Request(name, entry.batch, cycle, None, factor) for cycle in cycles], reading
