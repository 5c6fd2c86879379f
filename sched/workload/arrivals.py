"""When networks are asked for: cycles written down, a Poisson process with a seed, or a trace file."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, ValidationError

from meshloom.hw.spec.config import Exact, mistakes, near
from meshloom.hw.spec.registers import WIDTH

from ..support.text import whole_number
from .layers import WorkloadError

#: Columns of a trace file.
COLUMNS = ("cycle", "network")
_SYNTAX = "a cycle, a list of cycles, { poisson = RATE, number = N, seed = S } or { trace = FILE.csv }"
#: Cycles that the rate of a Poisson process counts in.
MILLION = 1_000_000
#: The last cycle in which a network may arrive: the chip counts its cycles in a register.
LAST = (1 << WIDTH) - 1


class ScenarioError(WorkloadError):
    """A scenario that cannot be; the message names the file, the network and the field, and what would be right."""


class _Model(Exact):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Poisson(_Model):
    """`number` arrivals, `poisson` of them in a million cycles on average, drawn with `seed`, from cycle `start` on."""

    poisson: Annotated[float, Field(ge=0.001, le=MILLION)]
    number: Annotated[int, Field(ge=1, le=100_000)]
    seed: Annotated[int, Field(ge=0)]
    start: Annotated[int, Field(ge=0, le=LAST)] = 0

    def cycles(self) -> tuple[int, ...]:
        """The same on every machine: differences are -ln(1 - u) / rate of raw 53-bit draws u of PCG64."""
        raw = np.random.PCG64(self.seed).random_raw(self.number)
        at, times = float(self.start), list[int]()
        for draw in np.atleast_1d(np.asarray(raw)).tolist():
            at -= math.log1p(-((int(draw) >> 11) / 2**53)) * MILLION / self.poisson
            times.append(round(at))
        return tuple(times)


class Trace(_Model):
    """The rows of a CSV file with columns cycle and network; a network takes those with its name."""

    trace: Annotated[str, Field(min_length=1)]


Kind = Literal["cycles", "poisson", "trace"]


def cycles_of(value: Any, network: str, folder: Path) -> tuple[int, ...]:
    """The cycles in which a network arrives, as `arrival` of a scenario says it, in order.

    `folder`: where the names of trace files begin. Raises ScenarioError that names the field.
    """
    if isinstance(value, Mapping):
        return _table(dict(value), network, folder)  # pyright: ignore[reportUnknownArgumentType]  (TOML: text keys)
    cycles: list[Any] = list(value) if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownArgumentType]  (TOML)
    if not cycles or not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in cycles):
        raise ScenarioError(f"arrival = {value!r} must be {_SYNTAX}; cycles are whole numbers from 0")
    return _counted(sorted(cycles))


def _counted(cycles: Sequence[int]) -> tuple[int, ...]:
    """Cycles, in order. Raises ScenarioError if the chip cannot count to the last one."""
    if cycles[-1] > LAST:
        raise ScenarioError(f"arrival: cycle {cycles[-1]} is beyond {LAST}, the last one that the chip counts")
    return tuple(cycles)


def _table(value: dict[str, Any], network: str, folder: Path) -> tuple[int, ...]:
    model = Trace if "trace" in value else Poisson if "poisson" in value else None
    if model is None:
        raise ScenarioError(f"arrival has {', '.join(value) or 'nothing'}; it must be {_SYNTAX}")
    try:
        form = model.model_validate(value)
    except ValidationError as error:
        raise ScenarioError(f"arrival: {mistakes(error, value, model)}") from None
    if isinstance(form, Poisson):
        return _counted(form.cycles())
    rows = read_trace(folder / form.trace)
    cycles = [cycle for cycle, name in rows if name == network]
    if not cycles:
        names = sorted({name for _, name in rows})
        hint = near(network, names) or f"it names {', '.join(names) or 'nothing'}"
        raise ScenarioError(f"arrival: {folder / form.trace} never names {network}; {hint}")
    return _counted(cycles)


def read_trace(path: Path) -> list[tuple[int, str]]:
    """The rows of a trace file, by cycle. Raises ScenarioError with the line that is wrong."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"{path}: is no CSV file: {error}") from error
    if not rows or tuple(cell.strip() for cell in rows[0]) != COLUMNS:
        raise ScenarioError(f"{path}, line 1: must be the heads of the columns: {','.join(COLUMNS)}")
    arrivals: list[tuple[int, str]] = []
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) != len(COLUMNS) or (cycle := whole_number(cells[0])) is None or not cells[1]:
            raise ScenarioError(
                f"{path}, line {number}: {','.join(row)!r} is not a cycle and a network: 125000,resnet50"
            )
        arrivals.append((cycle, cells[1]))
    return sorted(arrivals)
