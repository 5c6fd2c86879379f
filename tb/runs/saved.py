"""Schedules and programs from files, whatever made them: run and judged as if a scheduler had just made them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from meshloom.hw.config import ChipConfig
from meshloom.hw.isa import Unit
from meshloom.sched.ir.schedule import Move, Schedule, ScheduleError, intervals
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.predict import prediction
from meshloom.sched.lowering.programs import check_program, unchecked
from meshloom.sched.model.timeline import Timeline, play
from meshloom.sched.program.program import Program
from meshloom.sched.schedulers.network.restored import restored
from meshloom.sched.workload.catalog import Workload, find
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.layout import ActivationLayout, BiasLayout, WeightLayout
from meshloom.sched.workload.training import TrainingLayer, is_training, setting_of
from meshloom.sched.workload.training import find as find_training
from meshloom.sched.workload.training_chain import Chain, is_chain
from meshloom.sched.workload.training_chain import find as find_rows

from ..compare import records
from ..compare.arrivals import arrivals
from ..compare.completeness import completeness
from ..devices.simulated import Job, Run
from ..inputs.sources import Feed, NetworkSource, check_files, is_network, model_settings, ready
from ..results.saved import of_chip, read_to_run
from ..results.schema import Row
from . import network
from .failures import At


@dataclass(frozen=True)
class SavedSource:
    """A file with a schedule or a program, or (`given`) a schedule that is in no file, called `path`.

    `workload`: what it computes, if the file does not name it, or another name for it (an .onnx file); "" if its bytes
    are not to be checked. `fed`: what a network is fed, except its name.
    """

    path: Path
    workload: str | None = None
    fed: NetworkSource = field(default_factory=lambda: NetworkSource(""))
    given: Schedule | None = None

    @property
    def title(self) -> str:
        """Its name in tables."""
        return self.path.name

    def read(self, chip: ChipConfig) -> tuple[Schedule, Program | None]:
        """See `read_to_run`, which says what is raised."""
        return read_to_run(self.path, chip) if self.given is None else (of_chip(self.given, self.path, chip), None)

    @property
    def digest(self) -> str:
        """SHA-256 of the file, or of the schedule as JSON."""
        data = self.path.read_bytes() if self.given is None else self.given.model_dump_json().encode()
        return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Saved:
    """A file's schedule, its program, and its predicted timeline."""

    schedule: Schedule
    program: Program
    timeline: Timeline


@dataclass(frozen=True)
class Meaning:
    """What a file computes: a layer, the gradients of one or of several in a row, or a network; nothing of these if
    that is unknown."""

    layer: Workload | None = None
    chain: Chain | None = None
    gradients: TrainingLayer | None = None
    network: NetworkSource | None = None


def meaning(source: SavedSource, schedule: Schedule, chip: ChipConfig) -> Meaning:
    """What a file computes on a chip. Raises WorkloadError for an unknown name, or several layers."""
    name = schedule.workload if source.workload is None else source.workload
    if not name:
        return Meaning()
    if is_network(name):
        return Meaning(network=replace(source.fed, name=name, by_channel=_by_channel(schedule)))
    try:
        found = (
            find_training(name, setting_of(chip)) if is_training(name)
            else find_rows(name, setting_of(chip)) if is_chain(name)
            else find(name)
        )  # fmt: skip
    except WorkloadError as error:
        raise WorkloadError(
            f'{source.path}: {error}; name what it computes with --workload, or --workload "" to run it unchecked'
        ) from error
    if len(found) != 1:
        raise WorkloadError(f"{source.path}: workload {name!r} is {len(found)} layers; name one with --workload")
    if source.fed.inputs:
        raise WorkloadError(f"{source.path}: computes layer {name}, which has its own input; --input is for networks")
    one = found[0]
    if isinstance(one, Chain):
        return Meaning(chain=one)
    return Meaning(gradients=one) if isinstance(one, TrainingLayer) else Meaning(layer=one)


def _by_channel(schedule: Schedule) -> bool:
    """Whether a schedule's layers have multipliers beside their biases."""
    return any(isinstance(tensor.layout, BiasLayout) and tensor.layout.scaled for tensor in schedule.tensors)


def check(source: SavedSource, chip: ChipConfig) -> Meaning:
    """Checks a file before anything runs. Raises the errors of the file, its chip, its workload, its tensors."""
    schedule, _ = source.read(chip)
    found = meaning(source, schedule, chip)
    if found != Meaning() and not schedule.tensors:
        raise ScheduleError(
            f"{source.path}: does not say where its tensors are, so its bytes cannot be checked; add them to the file "
            '(`meshloom schedule --program` does), or run it unchecked with --workload ""'
        )
    if found.layer is not None:
        _check_layer(source.path, schedule, found.layer)
    if found.gradients is not None:
        _check_gradients(source.path, schedule, found.gradients)
    if found.chain is not None:
        _check_chain(source.path, schedule, found.chain)
    if found.network is not None:
        check_files(found.network)
    return found


def _check_layer(path: Path, schedule: Schedule, workload: Workload) -> None:
    """Raises ScheduleError if its tensors are not those of the layer."""
    shape = workload.shape
    wanted: _Wanted = {
        "x": ("input", ActivationLayout, shape.x_shape),
        "w": ("constant", WeightLayout, shape.w_shape),
        "bias": ("constant", BiasLayout, (shape.out_channels,)),
        "y": ("output", ActivationLayout, shape.y_shape),
    }
    _check_tensors(path, schedule, f"layer {shape.name}", wanted, ("x", "w", "y"))


def _check_gradients(path: Path, schedule: Schedule, layer: TrainingLayer) -> None:
    """Raises ScheduleError if its tensors are not those of the layer's gradients."""
    m, k, n = layer.m, layer.k, layer.n
    sizes = {"x": ("input", k, m), "w": ("constant", k, n), "dy": ("input", n, m), "dw": ("output", k, n)}
    if not layer.first:
        sizes["dx"] = "output", k, m
    wanted: _Wanted = {
        name: (role, ActivationLayout, (1, channels, 1, pixels)) for name, (role, channels, pixels) in sizes.items()
    }
    _check_tensors(path, schedule, layer.name, wanted, tuple(wanted))


def _check_chain(path: Path, schedule: Schedule, chain: Chain) -> None:
    """Raises ScheduleError if its tensors are not those of the gradients of layers in a row."""
    m, last = chain.m, chain.layers[-1]
    sizes = {"dy": ("input", last.n, m), f"dx:{chain.tag(0)}": ("output", chain.layers[0].k, m)}
    for index, layer in enumerate(chain.layers):
        tag = chain.tag(index)
        sizes |= {f"x:{tag}": ("input", layer.k, m), f"w:{tag}": ("constant", layer.k, layer.n)}
        sizes |= {f"{name}:{tag}": ("output", layer.k, layer.n) for name in ("dw", "w'")}
        if index:
            sizes[f"dy:{chain.tag(index - 1)}"] = "output", layer.k, m
    wanted: _Wanted = {
        name: (role, ActivationLayout, (1, channels, 1, pixels)) for name, (role, channels, pixels) in sizes.items()
    }
    given = [name for name, (role, _, _) in sizes.items() if role != "output"]
    _check_tensors(path, schedule, chain.name, wanted, given)


#: Tensors by name: role, kind of layout, shape.
_Wanted = dict[str, tuple[str, type[ActivationLayout] | type[WeightLayout] | type[BiasLayout], tuple[int, ...]]]


def _check_tensors(path: Path, schedule: Schedule, what: str, wanted: _Wanted, needed: Sequence[str]) -> None:
    """Raises ScheduleError if the tensors are not those that are `wanted`, or one that is `needed` is not there."""
    for tensor in schedule.tensors:
        if tensor.name not in wanted:
            raise ScheduleError(f"{path}: {what} has no tensor {tensor.name!r}; it has {', '.join(wanted)}")
        role, kind, size = wanted[tensor.name]
        writes = tensor.role == "output"
        if writes != (role == "output") or not isinstance(tensor.layout, kind) or tensor.layout.shape != size:
            raise ScheduleError(
                f"{path}: tensor {tensor.name!r} is {tensor.role} {list(tensor.layout.shape)} ({tensor.layout.kind}); "
                f"of {what} it is {role} {list(size)}"
            )
    names = {tensor.name for tensor in schedule.tensors}
    if missing := [name for name in needed if name not in names]:
        raise ScheduleError(f"{path}: has no tensor {missing[0]!r}, which {what} needs; add where it lies")


def prepare(source: SavedSource, chip: ChipConfig, at: At) -> tuple[Saved, network.PreparedNetwork | None, list[Feed]]:
    """A file ready to run: program checked and predicted, and for a network also its arrays and inputs."""
    schedule, program = source.read(chip)
    found = meaning(source, schedule, chip)
    graph, fed = ready(found.network) if found.network is not None else (None, [])
    made = None if program is not None else schedule
    if program is None:
        program = unchecked(schedule, chip, at)
    else:
        validate(schedule, chip)
    at("checking")
    check_program(program, chip, made)
    at("predicting")
    timeline = play(program, chip)
    if program.operation_of_tag:
        schedule = schedule.model_copy(update={"predicted": prediction(schedule, program, timeline)})
    else:
        schedule = _in_time(schedule, program, timeline)
    saved = Saved(schedule, program, timeline)
    if graph is None:
        return saved, None, fed
    restore = restored(graph, schedule, chip)
    return saved, network.PreparedNetwork(restore, program, timeline, described=False), fed


def _in_time(schedule: Schedule, program: Program, timeline: Timeline) -> Schedule:
    """Sorts the operations of an image that does not number them by their start in the model; each stream keeps its
    order. So the last operation that wrote a word is the one that made it."""
    begin = {place: entry.start for place, entry in records.locate(timeline.executed, program).items()}
    keys: dict[int, int] = {}
    latest: dict[tuple[int, Unit], int] = {}
    for (tile, unit, index), number in records.operations(program, schedule).items():
        own = [begin.get(records.Place(tile, unit, index, remote), 0) for remote in (False, True)]
        keys[number] = latest[tile, unit] = max(latest.get((tile, unit), 0), *own)
    order = sorted(range(len(schedule.operations)), key=keys.__getitem__)
    return schedule.model_copy(update={"operations": tuple(schedule.operations[number] for number in order)})


def settings_of(source: SavedSource, schedule: Schedule) -> dict[str, Any]:
    """Fields of `Settings`: the scheduler as named in the file, and the file's digest."""
    named = "" if source.given else source.path.name
    found = {"scheduler": schedule.scheduler, "file": named, "file_digest": source.digest}
    name = source.workload if source.workload is not None else schedule.workload
    fed = replace(source.fed, name=name, by_channel=_by_channel(schedule))
    return found | (model_settings(fed) if name and is_network(name) else {})


@dataclass(frozen=True)
class UncheckedItem:
    """A program that computes something unknown: it runs, and its cycles are compared."""

    name: str
    saved: Saved
    made_of: dict[str, Any]

    @property
    def cycles(self) -> int:
        return self.saved.timeline.cycles

    @property
    def program(self) -> Program:
        return self.saved.program

    @property
    def schedule(self) -> Schedule:
        return self.saved.schedule

    @property
    def timeline(self) -> Timeline:
        return self.saved.timeline

    def job(self, chip: ChipConfig, patience: int = 4, margin: int = 20_000) -> Job:
        # traces are stored after all DRAM ranges that are read back, that is, after everything that the program writes
        return Job(self.program, [], self._written(chip), patience * self.cycles + margin)

    def _written(self, chip: ChipConfig) -> list[tuple[int, int, int]]:
        """The words that the program moves to DRAM: tile, first word, words."""
        return [
            (op.dst.tile, start, stop - start)
            for op in self.schedule.operations
            if isinstance(op, Move) and op.dst.tile in chip.drams
            for start, stop in intervals(op.dst, op.words)
        ]

    def row(self, run: Run, chip: ChipConfig) -> Row:
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
        return self.made_of
