"""Whole networks: built-in ones and ONNX files, with what they are fed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from meshloom.sched.ir.schedule import Schedule, ScheduleError
from meshloom.sched.lowering.predict import prediction
from meshloom.sched.lowering.programs import Planned
from meshloom.sched.mapping.emit.fields import units_lacking
from meshloom.sched.model.timeline import Timeline
from meshloom.sched.program.program import Program
from meshloom.sched.schedulers.registry import Chosen, scales_by_channel
from meshloom.sched.workload import layer_chain, zoo
from meshloom.sched.workload.graph import Graph

from ...inputs.pictures import inputs_in
from ...inputs.sources import Feed, NetworkSource, check_files, load, model_settings, ready
from .. import network
from .interface import MARGIN, PATIENCE, Listener, PlanHolder, WorkloadKind

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig

    from ...devices.interface import Job, Run
    from ...results.schema import Row
    from ..outputs import OutputWords


#: What to do about a schedule that is of a network of another kind, if that was quantised.
_CALIBRATED = (
    "Layers and their scales follow from the files that a float model is quantised with: save the schedule again, with "
    "`meshloom schedule {model} {files} --out FILE`"
)


@dataclass(frozen=True, eq=False)
class NetworkRun:
    """A network ready to run on one input. `tensors`: folder for outputs that are not vectors (None: not saved)."""

    prepared: network.PreparedNetwork
    title: str
    feed: Feed
    tensors: Path | None = None
    origin: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        return self.title

    @property
    def macs(self) -> int:
        return self.prepared.graph.total_macs

    @property
    def program(self) -> Program:
        return self.prepared.program

    @property
    def schedule(self) -> Schedule:
        return self.prepared.network_schedule.schedule

    @property
    def timeline(self) -> Timeline:
        return self.prepared.timeline

    def job(self, chip: ChipConfig) -> Job:
        return network.job(self.prepared, self.feed.arrays, chip, PATIENCE, MARGIN)

    def outputs(self, chip: ChipConfig) -> Sequence[OutputWords]:
        return network.output_words(self.prepared, self.feed.arrays, chip)

    def row(self, run: Run, chip: ChipConfig, detailed: bool = True) -> Row:
        return network.row(self.prepared, self.title, self.feed, run, chip, self.tensors, detailed)

    def settings(self) -> dict[str, Any]:
        from ..single import digest

        return {**self.origin, "input": self.feed.name, "input_digest": digest(self.feed.arrays)}


@dataclass(frozen=True)
class PlannedNetwork(PlanHolder):
    """A network that is scheduled, checked and predicted."""

    name: str
    macs: int
    planned: Planned
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class NetworkRequest:
    """A network to be scheduled as a whole, and run once for each of its inputs."""

    source: NetworkSource
    scheduled_as = "networks"
    first_stage = "reading"
    activity = "scheduling the network"
    macs = None

    @property
    def name(self) -> str:
        return self.source.title

    @property
    def reference(self) -> str:
        return self.source.name

    @property
    def runs(self) -> int:
        return max(1, sum(map(inputs_in, self.source.inputs)))

    def check(self, chip: ChipConfig) -> None:
        """Raises WorkloadError for the first file that cannot be read."""
        check_files(self.source)

    def feed_with(self, source: NetworkSource) -> NetworkRequest:
        return NetworkRequest(replace(source, name=self.source.name))

    def expected(self) -> None:
        return None

    def plan(self, chip: ChipConfig, scheduler: str | Chosen, progress: Listener) -> PlannedNetwork:
        """Raises WorkloadError (OnnxError), DoesNotFit and what the scheduler raises."""
        self.check(chip)
        graph = load(self._on(chip, scheduler), progress.step)
        prepared_network = self._scheduled(graph, chip, scheduler, progress)
        schedule = prepared_network.network_schedule.schedule
        schedule = schedule.model_copy(
            update={"predicted": prediction(schedule, prepared_network.program, prepared_network.timeline)}
        )
        planned = Planned(schedule, prepared_network.program, prepared_network.timeline)
        return PlannedNetwork(self.name, prepared_network.graph.total_macs, planned, graph.notes)

    def prepare(self, chip: ChipConfig, scheduler: str | Chosen, progress: Listener) -> Sequence[NetworkRun]:
        source = self._on(chip, scheduler)
        graph, feeds = ready(source, progress.step)  # files are read first: a wrong one is reported early
        settings = model_settings(source)
        prepared_network = self._scheduled(graph, chip, scheduler, progress)
        return [NetworkRun(prepared_network, self.name, feed, source.tensors, settings) for feed in feeds]

    def restored(
        self, planned: Planned, chip: ChipConfig, title: str, origin: Mapping[str, Any]
    ) -> Sequence[NetworkRun]:
        """It, ready to run as a file's schedule says, which need not describe its layers. `title`: the file's. Raises
        ScheduleError for a schedule of another network."""
        from meshloom.sched.schedulers.network.restored import restored

        graph, feeds = ready(self.source)
        try:
            schedule = restored(graph, planned.schedule, chip)
        except ScheduleError as error:
            if "calibration" not in origin:
                raise
            files = self.source.calibration or self.source.inputs
            given = " ".join(f"--calibrate {quote(str(path))}" for path in files)
            raise ScheduleError(f"{error}. {_CALIBRATED.format(model=quote(self.source.name), files=given)}") from error
        prepared = network.PreparedNetwork(schedule, planned.program, planned.timeline, described=False)
        return [NetworkRun(prepared, title, feed, self.source.tensors, origin) for feed in feeds]

    def _on(self, chip: ChipConfig, scheduler: str | Chosen) -> NetworkSource:
        return replace(self.source, by_channel=scales_by_channel(scheduler, chip), lacks=units_lacking(chip))

    def _scheduled(
        self, graph: Graph, chip: ChipConfig, scheduler: str | Chosen, progress: Listener
    ) -> network.PreparedNetwork:
        progress.step("scheduling")
        return network.prepare(graph, chip, progress.step, scheduler, progress.search)


def _find(name: str, chip: ChipConfig | None) -> Sequence[NetworkRequest]:
    return [NetworkRequest(NetworkSource(name))]


def _syntax() -> str:
    return (
        f"networks: {', '.join(zoo.names())}, an .onnx file, regression (what `make sim` runs)\n  {layer_chain.SYNTAX}"
    )


KIND = WorkloadKind(_find, _syntax)
