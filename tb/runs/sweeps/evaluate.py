"""What a worker does: a batch of points in, their rows out, both as JSON."""

from __future__ import annotations

import gc
import hashlib
import inspect
import os
import sys
import time
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from meshloom.hw.spec.config import ChipConfig, Exact
from meshloom.sched.schedulers.interface import Scheduler
from meshloom.sched.schedulers.registry import scheduler_of
from meshloom.sched.store import provenance
from meshloom.sched.store.room import unwritten
from meshloom.sched.support.file_modules import is_of_file
from meshloom.sched.support.files import write_error
from meshloom.sched.support.limits import Guard, guarded

from ...devices.interface import Device
from ...devices.pool import Pool, pooled
from ...devices.registry import find as find_device
from ...results.identity import sources
from ...results.schema import Row, Settings
from ...results.sweep import FAILED, PREDICTED, PointRow
from .. import runner
from ..batch import simulate
from ..failures import Failure, failure
from ..kinds.interface import PreparedRun
from ..kinds.table import KINDS
from ..network import dram_bytes
from ..options import RunOptions
from . import entries

#: Simulators of a worker: the next batch on the same chip needs none started.
_POOL = Pool()
#: The device of the last batch, by its kind and the digest of its chip: to find a simulator in the cache all that it
#: is made of is read, and then the simulator itself.
_DEVICES: dict[tuple[str, str], Device] = {}


class _Model(Exact):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Task(_Model):
    """A point as a worker needs it, beside its chip. `scheduler`: or the mapping of another tool."""

    key: str
    scheduler: str
    workload: str
    parameters: str
    code: str


class Batch(_Model):
    """Points on one chip. `device`: None for predictions alone. `sources`: digest of the sources that sent it; `guard`:
    what schedulers are held to."""

    sources: str
    guard: Guard = Guard()
    chip: ChipConfig
    device: str | None
    tasks: tuple[Task, ...]

    @staticmethod
    def perform(text: str) -> str:
        """See `evaluate`."""
        done = evaluate(text)
        _settle()
        return done

    def apart(self) -> tuple[Batch, ...]:
        """Its points one by one."""
        return tuple(self.model_copy(update={"tasks": (task,)}) for task in self.tasks)

    def outcome(self, text: str) -> Done:
        """The rows that a worker has returned."""
        return Done.model_validate_json(text)

    def lost(self, why: Failure) -> Done:
        """Rows that say why there are none."""
        rows = tuple(failed_row(task, self, why) for task in self.tasks)
        return Done(rows=rows, worker=0, began=0.0, ended=0.0)


class Done(_Model):
    """The rows of a batch, in its order. `worker`: the process that made them; `began`, `ended`: seconds since the
    epoch, by its machine's clock."""

    rows: tuple[PointRow, ...]
    worker: int
    began: float
    ended: float


class OtherSourcesError(RuntimeError):
    """A worker whose Meshloom is not the one that sent the batch."""


@cache
def _settle() -> None:
    """What a worker has imported by now stays: no search for garbage looks at it again, which would take longer than a
    small point."""
    gc.freeze()


def evaluate(text: str) -> str:
    """Predicts, or runs on the RTL, each point of a `Batch`; returns its `Done`. A point that fails is a row that says
    why. Raises OtherSourcesError if the sources here are others; WriteError."""
    started = time.time()
    batch = Batch.model_validate_json(text)
    if batch.sources != sources():
        raise OtherSourcesError(
            f"a worker has Meshloom with sources {sources()}, the sweep was sent by {batch.sources}: install the same "
            "on all machines"
        )
    rows: dict[int, PointRow] = {}
    items: list[tuple[int, PreparedRun, float]] = []
    for index, task in enumerate(batch.tasks):
        began = time.perf_counter()
        with guarded(batch.guard):
            run = _prepared(task, batch.chip)
        seconds = time.perf_counter() - began
        if isinstance(run, Failure):
            rows[index] = failed_row(task, batch, run, seconds)
        elif batch.device is None:
            rows[index] = _row(task, batch, run, seconds)
        else:
            items.append((index, run, seconds))
    rows |= _measured(items, batch)
    ordered = tuple(rows[index] for index in range(len(batch.tasks)))
    return Done(rows=ordered, worker=os.getpid(), began=started, ended=time.time()).model_dump_json()


def _prepared(task: Task, chip: ChipConfig) -> PreparedRun | Failure:
    if (mapping := entries.mapping_of(task.scheduler)) is not None:
        runs = entries.prepared(mapping, task.workload, chip)
    else:
        runs = runner.prepared_here(task.workload, chip, task.scheduler)
    if isinstance(runs, Failure):
        return runs
    if len(runs) != 1:
        return Failure("WorkloadError", "reading", f"workload {task.workload} is {len(runs)} runs; name one of them")
    return runs[0]


def _measured(items: Sequence[tuple[int, PreparedRun, float]], batch: Batch) -> dict[int, PointRow]:
    """The rows of points that are ready to run, by their index: one device runs them all."""
    if not items or batch.device is None:
        return {}
    settings = Settings(code="", scheduler="", simulator_version="")  # rows without details have none
    try:
        opened = _device(batch.device, batch.chip)
        options = RunOptions(batch.device, detailed=False)
        ran = simulate([item for _, item, _ in items], opened, settings, lambda event: None, options)
    except Exception as error:  # no simulator of this chip: other chips may have one
        _DEVICES.clear()
        if (full := unwritten(error)) is not None:  # that is nothing that a row should keep
            raise write_error(full, str(full.filename)) from None  # a new one: in its own context it cannot be sent
        why = failure(error, "simulating")
        return {index: failed_row(batch.tasks[index], batch, why, spent) for index, _, spent in items}
    return {
        index: _row(batch.tasks[index], batch, item, spent, row)
        for (index, item, spent), row in zip(items, ran, strict=True)
    }


def _device(name: str, chip: ChipConfig) -> Device:
    """A device, ready to run; that of the batch before if it is the same. Raises BuildError, NoDeviceError."""
    key = name, chip.digest
    if key not in _DEVICES:
        _DEVICES.clear()
        with pooled(_POOL):
            _DEVICES[key] = find_device(name).open(chip, False, lambda what: None)
    return _DEVICES[key]


def _row(task: Task, batch: Batch, item: PreparedRun, seconds: float, ran: Row | None = None) -> PointRow:
    """The row of a point that was predicted, or that ran."""
    if ran is not None and ran.error is not None:
        why = Failure(ran.error.kind, ran.error.stage, ran.error.message)
        return failed_row(task, batch, why, seconds)
    chip, cycles = batch.chip, item.timeline.cycles if ran is None else ran.rtl_cycles
    macs = item.macs
    peak = chip.rows * chip.cols * len(chip.cores) * max(1, cycles)
    measured = {} if ran is None else _figures(ran)
    return PointRow(
        **_named(task, batch),
        status=PREDICTED if ran is None else ran.status.value,
        cycles=cycles,
        model_cycles=item.timeline.cycles,
        macs=macs,
        utilisation=None if macs is None else min(1.0, macs / peak),
        dram_bytes=dram_bytes(item.schedule, item.program, chip),
        instructions=item.program.instructions,
        seconds=seconds,
        **measured,
    )


def _figures(ran: Row) -> dict[str, Any]:
    values: dict[str, Any] = {
        "rtl_cycles": ran.rtl_cycles,
        "error_percent": ran.error_percent,
        "bytes_checked": ran.bytes_checked,
        "mismatches": ran.mismatches,
        "simulation_seconds": ran.cpu_seconds,
    }
    return values | ({"error": ran.reason} if ran.reason else {})


def failed_row(task: Task, batch: Batch, why: Failure, seconds: float | None = None) -> PointRow:
    """The row of a point that could not be."""
    return PointRow(
        **_named(task, batch),
        status=FAILED,
        seconds=seconds,
        error=why.message,
        error_kind=why.kind,
        error_stage=why.stage,
    )


def _named(task: Task, batch: Batch) -> dict[str, Any]:
    return {
        "key": task.key,
        "chip": batch.chip.name,
        "chip_digest": batch.chip.digest,
        "scheduler": task.scheduler,
        "workload": task.workload,
        "measure": batch.device or "model",
        "parameters": task.parameters,
        "code": task.code,
    }


def deciding_code(scheduler: str, device: str | None) -> str:
    """A digest of the code that decides a point: of this module and of the scheduler, with all that they import; on the
    RTL of all sources, and the version of the device.

    Of a scheduler outside of Meshloom it is its file, with what that imports from beside it or from its own package;
    not other packages, and not files that it reads itself.
    """
    digest = hashlib.sha256()
    # kinds of workload are imported by name, so nothing that is followed leads there
    modules = ["tb.runs.sweeps.evaluate", *(_module(place) for place in KINDS.shipped.values())]
    for module, path in modules_of(scheduler_of(scheduler)):
        if module.startswith("meshloom."):
            modules.append(module.removeprefix("meshloom."))
        elif path is not None:
            digest.update(outside(module, path).encode())
    digest.update(provenance.digest(*modules).encode())
    if device is not None:
        digest.update(f"{device} {find_device(device).version()} {sources()}".encode())
    return digest.hexdigest()[:16]


def outside(module: str, path: Path) -> str:
    """A digest of a module outside of Meshloom, with what that imports from beside it or from its own package. Raises
    OSError."""
    try:
        return provenance.of_file(path) if is_of_file(module) else provenance.of_module(module)
    except ValueError:  # one that was made by hand
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _module(place: str) -> str:
    """The module of `meshloom.module:thing`, as `provenance.digest` names it."""
    return place.partition(":")[0].removeprefix("meshloom.")


def modules_of(scheduler: Scheduler) -> list[tuple[str, Path | None]]:
    """The modules that make its schedules, with their files."""
    pairs: list[tuple[str, Path | None]] = []
    for kind in scheduler.kinds:
        maker = getattr(scheduler, kind)
        if isinstance(maker.function, str):
            module = maker.function.partition(":")[0]
            spec = find_spec(module)
            pairs.append((module, Path(spec.origin) if spec and spec.origin else None))
        else:
            place = inspect.getsourcefile(inspect.unwrap(maker.function))
            pairs.append((maker.function.__module__, Path(place) if place else None))
    if scheduler.source:
        loaded = [*sys.modules.items()]
        names = (name for name, module in loaded if getattr(module, "__file__", None) == scheduler.source)
        pairs.append((next(names, ""), Path(scheduler.source)))
    return pairs
