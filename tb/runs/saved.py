"""Schedules and programs from files, whatever made them: run and judged as if a scheduler had just made them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Unit
from meshloom.sched.ir.schedule import Move, Schedule, ScheduleError, intervals
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.predict import prediction
from meshloom.sched.lowering.programs import Planned, check_program, unchecked
from meshloom.sched.mapping.emit.fields import units_lacking
from meshloom.sched.model.timeline import Timeline, play
from meshloom.sched.program.program import Program
from meshloom.sched.schedulers.registry import Chosen
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.layout import BiasLayout

from ..compare import records
from ..compare.arrivals import arrivals
from ..compare.completeness import completeness
from ..devices.interface import Job, Run
from ..inputs.sources import NetworkSource, model_settings
from ..results.saved import of_chip, read_to_run
from ..results.schema import Row
from .kinds import table
from .kinds.interface import (
    MARGIN,
    PATIENCE,
    Expected,
    Listener,
    PlanHolder,
    PreparedRun,
    WorkloadKind,
    WorkloadRequest,
)
from .kinds.networks import NetworkRequest
from .outputs import OutputWords


@dataclass(frozen=True)
class SavedSource:
    """A file with a schedule or a program, or (`unsaved`) a schedule that is in no file, called `path`.

    `workload`: what it computes, if the file does not name it, or another name for it (an .onnx file); "" if its bytes
    are not to be checked. `fed`: what a network is fed, except its name.
    """

    path: Path
    workload: str | None = None
    fed: NetworkSource = field(default_factory=lambda: NetworkSource(""))
    unsaved: Schedule | None = None

    scheduled_as = None
    first_stage = "reading"
    activity = "checking the program"
    macs = None

    @property
    def name(self) -> str:
        """Its name in tables."""
        return self.path.name

    @property
    def reference(self) -> str:
        return str(self.path)

    @property
    def runs(self) -> int:
        return NetworkRequest(self.fed).runs

    def read(self, chip: ChipConfig) -> tuple[Schedule, Program | None]:
        """See `read_to_run`, which says what is raised."""
        return read_to_run(self.path, chip) if self.unsaved is None else (of_chip(self.unsaved, self.path, chip), None)

    @property
    def digest(self) -> str:
        """SHA-256 of the file, or of the schedule as JSON."""
        data = self.path.read_bytes() if self.unsaved is None else self.unsaved.model_dump_json().encode()
        return hashlib.sha256(data).hexdigest()

    def check(self, chip: ChipConfig) -> None:
        """Raises the errors of the file, its chip, its workload, its tensors."""
        schedule, _ = self.read(chip)
        means = meaning(self, schedule, chip)
        if means is None:
            return
        if not schedule.tensors:
            raise ScheduleError(
                f"{self.path}: does not say where its tensors are, so its bytes cannot be checked; add them to the "
                'file (`meshloom schedule --program` does), or run it unchecked with --workload ""'
            )
        means.check(chip)
        if (expected := means.expected()) is not None:
            _check_tensors(self.path, schedule, expected)

    def plan(self, chip: ChipConfig, scheduler: str | Chosen, progress: Listener) -> PreparedRun:
        """Raises WorkloadError: nothing is left to be scheduled."""
        raise WorkloadError(f"workload {self.name}: is a schedule or a program already; run it")

    def prepare(self, chip: ChipConfig, scheduler: str | Chosen, progress: Listener) -> Sequence[PreparedRun]:
        saved = planned(self, chip, progress.step)
        means, origin = meaning(self, saved.schedule, chip), settings_of(self, saved.schedule)
        if means is None:
            return [UncheckedRun(self.name, saved, origin)]
        return means.restored(saved, chip, self.name, origin)

    def feed_with(self, source: NetworkSource) -> SavedSource:
        """Raises WorkloadError: a file computes a layer or a network, no other file."""
        raise WorkloadError(f"computes a layer or a network, not {self.name}, which is a schedule or a program itself")

    def expected(self) -> None:
        return None

    def restored(
        self, planned: Planned, chip: ChipConfig, title: str, origin: Mapping[str, Any]
    ) -> Sequence[PreparedRun]:
        """Raises WorkloadError, as `feed_with` does."""
        raise WorkloadError(f"computes a layer or a network, not {self.name}, which is a schedule or a program itself")


def meaning(source: SavedSource, schedule: Schedule, chip: ChipConfig) -> WorkloadRequest | None:
    """What a file computes on a chip; None if that is unknown. Raises WorkloadError for an unknown name, or several
    layers."""
    name = schedule.workload if source.workload is None else source.workload
    if not name:
        return None
    try:
        requests = table.find(name, chip)
    except WorkloadError as error:
        why = str(error)
        if source.workload is None:  # the file's own word, not the user's
            why = f"computes {name!r}, which is no built-in workload"
        raise WorkloadError(
            f"{source.path}: {why}; name what it computes with --workload (your .onnx file, say, and its --input), or "
            'run it unchecked with --workload ""'
        ) from error
    if len(requests) != 1:
        raise WorkloadError(f"{source.path}: workload {name!r} is {len(requests)} layers; name one with --workload")
    try:
        fed = replace(source.fed, by_channel=_by_channel(schedule), lacks=units_lacking(chip))
        return requests[0].feed_with(fed)
    except WorkloadError as error:
        raise WorkloadError(f"{source.path}: {error}") from error


def _by_channel(schedule: Schedule) -> bool:
    """Whether a schedule's layers have multipliers beside their biases."""
    return any(isinstance(tensor.layout, BiasLayout) and tensor.layout.scaled for tensor in schedule.tensors)


def _check_tensors(path: Path, schedule: Schedule, expected: Expected) -> None:
    """Raises ScheduleError if the tensors are not those of the workload, or one that it needs is not there."""
    what = expected.what
    for tensor in schedule.tensors:
        if tensor.name not in expected.tensors:
            raise ScheduleError(f"{path}: {what} has no tensor {tensor.name!r}; it has {', '.join(expected.tensors)}")
        role, kind, size = expected.tensors[tensor.name]
        writes = tensor.role == "output"
        if writes != (role == "output") or not isinstance(tensor.layout, kind) or tensor.layout.shape != size:
            raise ScheduleError(
                f"{path}: tensor {tensor.name!r} is {tensor.role} {list(tensor.layout.shape)} ({tensor.layout.kind}); "
                f"of {what} it is {role} {list(size)}"
            )
    names = {tensor.name for tensor in schedule.tensors}
    if missing := [name for name in expected.needed if name not in names]:
        raise ScheduleError(f"{path}: has no tensor {missing[0]!r}, which {what} needs; add where it lies")


def planned(source: SavedSource, chip: ChipConfig, step: Callable[[str], None]) -> Planned:
    """The schedule and the program of a file: checked and predicted. Raises what reading and checking raise."""
    schedule, program = source.read(chip)
    own = None if program is not None else schedule
    if program is None:
        program = unchecked(schedule, chip, step)
    else:
        validate(schedule, chip)
    step("checking")
    check_program(program, chip, own)
    step("predicting")
    timeline = play(program, chip)
    if program.operation_of_tag:
        schedule = schedule.model_copy(update={"predicted": prediction(schedule, program, timeline)})
    else:
        schedule = _in_time(schedule, program, timeline)
    return Planned(schedule, program, timeline)


def _in_time(schedule: Schedule, program: Program, timeline: Timeline) -> Schedule:
    """Sorts the operations of an image that does not number them by their start in the model; each stream keeps its
    order. So the last operation that wrote a word is the one that made it."""
    begin = {place: entry.start for place, entry in records.locate(timeline.executed, program).items()}
    keys: dict[int, int] = {}
    latest: dict[tuple[int, Unit], int] = {}
    for (tile, unit, index), number in records.operations(program, schedule).items():
        own = [begin.get(records.InstructionPlace(tile, unit, index, remote), 0) for remote in (False, True)]
        keys[number] = latest[tile, unit] = max(latest.get((tile, unit), 0), *own)
    order = sorted(range(len(schedule.operations)), key=keys.__getitem__)
    return schedule.model_copy(update={"operations": tuple(schedule.operations[number] for number in order)})


def settings_of(source: SavedSource, schedule: Schedule) -> dict[str, Any]:
    """Fields of `Settings`: the scheduler as named in the file, and the file's digest."""
    named = "" if source.unsaved else source.path.name
    fields = {"scheduler": schedule.scheduler, "file": named, "file_digest": source.digest}
    name = source.workload if source.workload is not None else schedule.workload
    fed = replace(source.fed, name=name, by_channel=_by_channel(schedule))
    return fields | (model_settings(fed) if name and table.is_network(name) else {})


@dataclass(frozen=True)
class UncheckedRun(PlanHolder):
    """A program that computes something unknown: it runs, and its cycles are compared."""

    name: str
    planned: Planned
    origin: Mapping[str, Any]
    macs = None

    def job(self, chip: ChipConfig) -> Job:
        # traces are stored after all DRAM ranges that are read back, that is, after everything that the program writes
        return Job(self.program, [], self._written(chip), PATIENCE * self.timeline.cycles + MARGIN)

    def _written(self, chip: ChipConfig) -> list[tuple[int, int, int]]:
        """The words that the program moves to DRAM: tile, first word, words."""
        return [
            (op.dst.tile, start, stop - start)
            for op in self.schedule.operations
            if isinstance(op, Move) and op.dst.tile in chip.drams
            for start, stop in intervals(op.dst, op.words)
        ]

    def outputs(self, chip: ChipConfig) -> Sequence[OutputWords]:
        raise WorkloadError(f"{self.name}: nobody knows what it computes; export the workload itself, by its name")

    def row(self, run: Run, chip: ChipConfig, detailed: bool = True) -> Row:
        schedule, program = self.schedule, self.program
        match = records.match(run.records, self.timeline.executed, program)
        faults = records.fault_reports(run, program, schedule, chip)
        numbered = None if program.ahead else program
        return Row(
            workload=self.name,
            chip=chip.name,
            scheduler=schedule.scheduler,
            simulator=run.simulator,
            rtl_cycles=run.cycles,
            model_cycles=self.timeline.cycles,
            unchecked=f"{self.name} does not say what it computes; name it with --workload, and give it its tensors",
            faults=len(faults),
            fault_reports=faults,
            instructions=program.instructions,
            cpu_seconds=run.cpu_seconds,
            **completeness(match, run, program, schedule, chip),
            **arrivals(program, run, chip),
            first_divergence=records.first_divergence(match.pairs, schedule, program.operation_of_tag, numbered),
        )

    def settings(self) -> dict[str, Any]:
        return dict(self.origin)


def _find(name: str, chip: ChipConfig | None) -> Sequence[SavedSource]:
    return [SavedSource(Path(name))]


def _syntax() -> str:
    return ""  # what `meshloom schedule` writes is no built-in workload


KIND = WorkloadKind(_find, _syntax)
