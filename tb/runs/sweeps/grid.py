"""The points of a sweep: every combination, those that meet its conditions, and a sample of them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from meshloom.hw.spec.config import ChipConfig, ConfigError, load
from meshloom.sched.schedulers.registry import check_scheduler
from meshloom.sched.store import provenance
from meshloom.sched.support.text import shortened
from meshloom.sched.workload import topology

from ...inputs.chips import UnknownFieldError, changed
from ...results.sweep import Scalar, SweepError, SweepFile
from ..kinds import table
from .sql import SqlError, check_condition, run

#: Points that a sweep may have before conditions and sample. They are all looked at.
MOST = 100_000
_NAME = re.compile(r"\{(\w+)\}")
#: Files that may stand in a sweep, relative to it.
_FILES = (".toml", ".onnx", ".csv", ".py")


@dataclass(frozen=True)
class Point:
    """A workload on a chip by a scheduler. `chip`: None if its fields contradict each other; `problem` says how.
    `chip_key`: its digest, or base and problem. `parameters`: values of what was in braces, and of fields of the chip.
    """

    base: str
    chip: ChipConfig | None
    chip_key: str
    problem: str
    scheduler: str
    workload: str
    macs: int | None
    parameters: Mapping[str, Scalar]

    @property
    def content(self) -> dict[str, Any]:
        """What the point is, whatever code and device it meets."""
        file = _file(self.workload) if _may_name_file(self.workload) else ""
        return {"chip": self.chip_key, "scheduler": self.scheduler, "workload": self.workload, "file": file}


def points(sweep: SweepFile, folder: Path) -> list[Point]:
    """The points of a sweep whose file is in `folder`, each once, chip by chip.

    Raises SweepError for what contradicts itself, a condition that cannot be understood, or too many points; the errors
    of names that mean no chip, scheduler or workload.
    """
    for read in (_check_scheduler, _file):  # files may have changed since the last sweep of this process
        read.cache_clear()
    _check_names(sweep)
    result: dict[str, Point] = {}
    for number, point in enumerate(_all(sweep, folder), 1):
        result.setdefault(digest(point.content), point)
        if number > MOST:
            raise SweepError(f"sweep {sweep.name}: has more than {MOST:,} points; give fewer values or larger steps")
    chosen = list(result.items())
    if sweep.where:
        numbers = _where(sweep, [point for _, point in chosen])
        chosen = [chosen[index] for index in numbers]
    if sweep.sample is not None and sweep.sample < len(chosen):
        # the points whose digest with the seed is smallest: one that is added to the grid moves no other
        order = sorted(range(len(chosen)), key=lambda index: digest([sweep.seed, chosen[index][0]]))
        chosen = [chosen[index] for index in sorted(order[: sweep.sample])]
    if not chosen:
        raise SweepError(f"sweep {sweep.name}: no point meets its conditions")
    return [point for _, point in chosen]


def digest(content: object) -> str:
    """SHA-256 of what JSON can say."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _check_names(sweep: SweepFile) -> None:
    used = {name for text in (*sweep.schedulers, *sweep.workloads) for name in _NAME.findall(text)}
    if unknown := sorted(used - sweep.parameters.keys()):
        raise SweepError(f"sweep {sweep.name}: {{{unknown[0]}}} has no values; give it some in [parameters]")
    if idle := sorted(sweep.parameters.keys() - used):
        raise SweepError(f"sweep {sweep.name}: parameter {idle[0]} stands in no scheduler or workload: {{{idle[0]}}}")
    if both := sorted(sweep.parameters.keys() & sweep.chip.keys()):
        raise SweepError(f"sweep {sweep.name}: {both[0]} is a parameter and a field of the chip; rename the parameter")


def _all(sweep: SweepFile, folder: Path) -> Iterator[Point]:
    pairs = list(product(dict.fromkeys(sweep.workloads), dict.fromkeys(sweep.schedulers)))
    per_chip = sum(prod(len(values) for values in _values(sweep.parameters, pair).values()) for pair in pairs)
    names = dict.fromkeys(sweep.chips)
    chips = len(names) * prod(len(values) for values in sweep.chip.values())
    if chips * per_chip > MOST:
        raise SweepError(
            f"sweep {sweep.name}: has {chips * per_chip:,} points or more, {MOST:,} are possible; give fewer values or "
            "larger steps"
        )
    for base in (load(_placed(each, folder)) for each in names):
        for values in product(*sweep.chip.values()):
            fields = dict(zip(sweep.chip, values, strict=True))
            chip, problem = _changed(base, fields)
            key = chip.digest if chip else f"{base.name}: {problem}"
            requests: dict[str, tuple[_PointWorkload, ...]] = {}  # a name can mean other workloads on another chip
            for workload, scheduler in pairs:
                for own in _combinations(_values(sweep.parameters, (workload, scheduler))):
                    made_by = _placed(_filled(scheduler, own), folder)
                    name = _placed(_filled(workload, own), folder)
                    if name not in requests:
                        requests[name] = _requests(name, chip or base)
                    for each in requests[name]:
                        _check_scheduler(made_by, each.way)
                        yield Point(base.name, chip, key, problem, made_by, each.name, each.macs, fields | own)


def _values(parameters: Mapping[str, list[Any]], texts: Iterable[str]) -> dict[str, list[Scalar]]:
    """Of the parameters in some texts, their values."""
    used = {name for text in texts for name in _NAME.findall(text)}
    return {name: list(values) for name, values in parameters.items() if name in used}


def _combinations(values: Mapping[str, Sequence[Scalar]]) -> Iterator[dict[str, Scalar]]:
    for each in product(*values.values()):
        yield dict(zip(values, each, strict=True))


def _filled(text: str, own: Mapping[str, Scalar]) -> str:
    return _NAME.sub(lambda match: _word(own[match[1]]), text)


def _word(value: Scalar) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _may_name_file(text: str) -> bool:
    return any(suffix in text for suffix in _FILES)


def _placed(text: str, folder: Path) -> str:
    """A file that a sweep names, relative to where the sweep lies; other names as they are."""
    if not _may_name_file(text):
        return text
    first, _, rest = text.partition(":")
    path, tail = topology.split(first) or (Path(first), "")
    if path.suffix in _FILES and not path.is_absolute() and (folder / path).exists():
        placed = (folder / path).as_posix()
        return placed + (f"/{tail}" if tail else "") + (f":{rest}" if rest else "")
    return text


def _changed(base: ChipConfig, fields: Mapping[str, Scalar]) -> tuple[ChipConfig | None, str]:
    if not fields:
        return base, ""
    try:
        return changed(base, fields), ""
    except UnknownFieldError:  # no combination is possible
        raise
    except ConfigError as error:
        return None, str(error)


@cache
def _check_scheduler(name: str, way: str) -> None:
    """Raises SchedulerError for a name or an option that it does not have, or a kind that it does not schedule."""
    check_scheduler(name, way)


class _PointWorkload(NamedTuple):
    """A workload of a point: the name that means just it on every chip, its multiply-accumulates if they are known, and
    what schedules it."""

    name: str
    macs: int | None
    way: str


def _requests(name: str, chip: ChipConfig) -> tuple[_PointWorkload, ...]:
    """The workloads that a name means on a chip. Raises WorkloadError, and SweepError for what has its schedule."""
    requests: list[_PointWorkload] = []
    for request in table.find(name, chip):
        if request.scheduled_as is None:
            raise SweepError(
                f"workload {name}: is made already; a sweep makes schedules, `meshloom run` takes this one"
            )
        requests.append(_PointWorkload(request.reference, request.macs, request.scheduled_as))
    return tuple(requests)


@cache
def _file(workload: str) -> str:
    """SHA-256 of the file that a workload is from; empty if it is from none. Raises SweepError."""
    path, _ = topology.split(workload) or (Path(workload), "")
    if (first := workload.partition(":")[0]).endswith(".py"):  # a kind of workload that is in a file
        path = Path(first)
    elif path.suffix not in (".onnx", topology.SUFFIX):
        return ""
    try:
        return provenance.of_file(path) if path.suffix == ".py" else hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise SweepError(f"{path}: cannot be read: {error.strerror}") from error


def _where(sweep: SweepFile, result: Sequence[Point]) -> list[int]:
    """Indices of the points that meet all conditions."""
    import polars

    names = dict.fromkeys(name for point in result for name in point.parameters)
    columns: dict[str, list[Any]] = {
        "chip": [point.base for point in result],
        "scheduler": [point.scheduler for point in result],
        "workload": [point.workload for point in result],
        "macs": [point.macs for point in result],
        "cores": [len(point.chip.cores) if point.chip else None for point in result],
    }
    for field in ("lanes", "rows", "cols"):
        columns[field] = [getattr(point.chip, field, None) for point in result]
    columns |= {name: [point.parameters.get(name) for point in result] for name in names}
    frame = polars.DataFrame(columns, strict=False).with_row_index("index of the point")
    for condition in sweep.where:
        try:
            check_condition(condition)
            frame = run(frame, "self", f"SELECT * FROM self WHERE ({condition}\n)")
        except SqlError as error:
            why = f"where {shortened(condition)!r}: {error}; columns are {', '.join(columns)}"
            raise SweepError(f"sweep {sweep.name}: {why}") from None
    return frame["index of the point"].to_list()
