"""A scenario served: in the timeline model, then by the same scheduler on the RTL, and both compared.

scenario --> instances --> Drive (sched.schedulers.online.drive) --> SessionExecutor --> ModelSession
                           decides, logs                   places, checks      RtlSession
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import cast

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.registers import Counted
from meshloom.sched.model.busy import Snapshot
from meshloom.sched.model.modelled import ModelSession
from meshloom.sched.schedulers.online.decisions import first_difference
from meshloom.sched.schedulers.online.drive import Drive, Run
from meshloom.sched.schedulers.online.elsewhere import Elsewhere
from meshloom.sched.schedulers.online.instances import instances_of
from meshloom.sched.schedulers.online.interface import Decision, Instance, OnlineScheduler, Platform, ServingError, View
from meshloom.sched.schedulers.online.metrics import cores_over_time, measure
from meshloom.sched.schedulers.online.registry import chosen, online_scheduler
from meshloom.sched.workload.arrivals import LAST
from meshloom.sched.workload.scenario import Scenario

from ...build.builder import build
from ...devices.serving import ServedChip
from ...inputs.sources import NetworkSource, model_settings
from ...results.busy import counters_of
from ...results.recorder import environment
from ...results.scenario import CoresRow, InstanceRow, Metrics, ProgramRow, ScenarioFigures, ScenarioResults
from .executor import SessionExecutor, described
from .networks import Compiled, compile_networks
from .recorded import DiffersError, FollowingSession, RecordingSession, Records
from .rtl_session import RtlSession

OnProgress = Callable[[str], None]
#: (where: "model" or "RTL", cycle, instance, what) of each launch and each end.
OnEvent = Callable[[str, int, Instance, str], None]


def least_decision_cycles(chip: ChipConfig) -> int:
    """Cycles from an event to the launch of what is decided on it, if deciding takes none: what the host needs to read
    completions and to write launches, a register every three cycles or so, should all cores end at the same time."""
    return 128 + 48 * len(chip.cores)


@dataclass
class _Timed:
    """A scheduler, and what its decisions cost here."""

    scheduler: OnlineScheduler
    seconds: list[float] = field(default_factory=list[float])

    @property
    def name(self) -> str:
        return self.scheduler.name

    @property
    def ahead(self) -> bool:
        return getattr(self.scheduler, "ahead", False)

    def decide(self, view: View) -> Sequence[Decision]:
        before = time.thread_time()
        decisions = self.scheduler.decide(view)
        spent = time.thread_time() - before
        self.seconds.append(self.scheduler.seconds if isinstance(self.scheduler, Elsewhere) else spent)
        return decisions


@dataclass(frozen=True, eq=False)
class _Part:
    """What the model or the RTL has served. `counters`: after the last end; none of a chip without."""

    executor: SessionExecutor
    run: Run
    judge: _Timed
    counters: Mapping[Counted, Snapshot]

    @property
    def snapshots(self) -> dict[Counted, Snapshot]:
        """`counters` of the run alone: they were read later, and no part is busy after the last end."""
        return {counted: Snapshot(self.run.end, read.counts) for counted, read in self.counters.items()}


@dataclass(frozen=True, eq=False)
class Served:
    """A scenario that has been served. `rtl` is None if it only ran in the model."""

    results: ScenarioResults
    model: Run
    rtl: Run | None


class Interrupted(KeyboardInterrupt):
    """An interrupt while a scenario was being served; the message says in which part, and what is kept."""


#: The parts of serving a scenario, and what is kept of them and of those before when one is interrupted.
PARTS = {
    "compiling networks": "the layers that have been compiled",
    "serving in the model": "compiled networks",
    "building the simulator": "compiled networks, the model's part, blocks of the simulator that have been built",
    "serving on the RTL": "compiled networks, the model's part and the simulator; the RTL's part begins anew",
}


def serve(
    scenario: Scenario,
    chip: ChipConfig,
    scheduler: str,
    *,
    device: str | None = "verilator",
    decision_cycles: int = 0,
    wait: int | None = None,
    on_progress: OnProgress = lambda what: None,
    on_event: OnEvent = lambda where, cycle, instance, what: None,
) -> Served:
    """Serves a scenario. `device`: simulator of the RTL; None: the timeline model alone. `decision_cycles`: what a
    decision takes, besides `least_decision_cycles`; `wait`: both together, if the model alone is to do with less.

    What is deterministic is kept in the store: compiled networks, what the model has said (`recorded`), the simulator.
    A simulation cannot be kept half way: the RTL's part always begins with cycle 0.

    Raises SchedulerError, WorkloadError, WindowError and the like for what cannot be served, ServingError for a
    scheduler that decides what cannot be, BuildError and DeviceError for tools that fail, and Interrupted.
    """
    if not chip.programs:
        raise ServingError(
            f"chip {chip.name} runs one program at a time; set programs = {min(31, len(chip.cores))} in its "
            "description, or take lp9"
        )
    if wait is None:
        wait = decision_cycles + least_decision_cycles(chip)
    elif device is not None and wait < least_decision_cycles(chip):
        raise ServingError(
            f"wait = {wait} cycles: reading and writing registers takes {least_decision_cycles(chip)} on {chip.name}; "
            "only the model can do with less"
        )
    run = _Serving(scenario, chip, scheduler, device, wait, on_progress)
    try:
        return run.served(on_event)
    except KeyboardInterrupt:
        raise Interrupted(f"while {run.part}; kept: {PARTS[run.part]}. Run it again to go on") from None


@dataclass
class _Serving:
    """A scenario that is being served. `wait`: cycles from an event to the launch of what is decided on it; `part`: of
    `PARTS`, what is being done; `files`: its networks that are files of the user's."""

    scenario: Scenario
    chip: ChipConfig
    scheduler: str
    device: str | None
    wait: int
    on_progress: OnProgress
    part: str = "compiling networks"
    files: tuple[Compiled, ...] = ()

    def served(self, on_event: OnEvent) -> Served:
        started = datetime.now().astimezone()
        scenario, chip, scheduler, device = self.scenario, self.chip, self.scheduler, self.device
        compilations, instances, isolated = _compiled(scenario, chip, scheduler, self.on_progress)
        self.files = tuple(each for each in compilations.values() if each.source.name.endswith(".onnx"))
        self.part = "serving in the model"
        model = self._model(compilations, instances, partial(on_event, "model"))
        if device is None:
            return Served(self._results(started, isolated, model), model.run, None)
        if model.run.end > LAST:
            raise ServingError(
                f"scenario {scenario.name} ends in cycle {model.run.end} of the model, and {chip.name} counts to "
                f"{LAST}; serve it in the model alone, or let its networks arrive earlier"
            )
        self.part = "building the simulator"
        self.on_progress(f"building the simulator ({device}), unless it is cached")
        built = build(chip, device, False, self.on_progress)
        self.part = "serving on the RTL"
        again = _Timed(online_scheduler(scheduler, Platform.of(chip)))
        self.on_progress("serving on the RTL")
        with ServedChip(built) as served:
            session = RtlSession(served)
            on_rtl = SessionExecutor(
                session,
                compilations,
                session,
                lambda number: self.on_progress(f"comparing what instance {number} has left"),
            )
            run = Drive(on_rtl, again, self.wait, on_event=partial(on_event, "RTL")).run(instances)
            rtl = _Part(on_rtl, run, again, session.counters() if chip.counters else {})
            spent = served.cpu_seconds
        results = self._results(started, isolated, model, rtl, spent)
        strays = tuple(described(fault) for fault in session.strays)
        return Served(results.model_copy(update={"strays": strays}), model.run, rtl.run)

    def _model(
        self,
        compilations: Mapping[tuple[str, int], Compiled],
        instances: Sequence[Instance],
        on_event: Callable[[int, Instance, str], None],
    ) -> _Part:
        """The model's part: as it was recorded, or else from the model, and recorded."""
        records = Records(self.scenario, self.chip, self.scheduler, self.wait)

        def run(session: RecordingSession | FollowingSession) -> _Part:
            self.on_progress(f"making {self.scheduler}")
            judge = _Timed(online_scheduler(self.scheduler, Platform.of(self.chip)))
            self.on_progress("serving in the model")
            executor = SessionExecutor(session, compilations)
            result = Drive(executor, judge, self.wait, on_event=on_event).run(instances)
            counters = {counted: session.busy(counted) for counted in Counted} if self.chip.counters else {}
            return _Part(executor, result, judge, counters)

        if (steps := records.get()) is not None:
            with suppress(DiffersError):
                return run(FollowingSession(self.chip, steps))
        recording = RecordingSession(ModelSession(self.chip))
        part = run(recording)
        records.put(recording.steps)
        return part

    def _results(
        self,
        started: datetime,
        isolated: Mapping[int, int],
        model: _Part,
        rtl: _Part | None = None,
        spent: float = 0.0,
    ) -> ScenarioResults:
        """Of both parts. `isolated`: see `measure`; `spent`: CPU seconds of the simulator."""
        part, chip = rtl or model, self.chip
        run, metrics = part.run, measure(part.run, isolated)
        instances: list[InstanceRow] = []
        for served, times in zip(run.served, metrics.turnarounds, strict=True):
            left = part.executor.outcomes.get(times.number)
            instances.append(
                InstanceRow(
                    number=times.number, network=served.instance.network.name, batch=served.instance.network.batch,
                    arrival=times.arrival, deadline=times.deadline, end=times.end, isolated=times.isolated,
                    met=times.met, lost=served.lost, bytes_checked=left.checked if left else 0,
                    mismatches=left.wrong if left else 0, first_mismatch=left.first if left else "",
                )
            )  # fmt: skip
        programs = _programs(model, rtl)
        differ = first_difference(run.log, model.run.log)
        seconds = part.judge.seconds or [0.0]
        figures = ScenarioFigures(
            name=self.scenario.name,
            chip=chip.name,
            chip_digest=chip.digest,
            clock_mhz=chip.clock_mhz,
            scheduler=self.scheduler,
            simulator=self.device or "",
            decision_cycles=self.wait,
            rtl_cycles=rtl.run.end if rtl else None,
            model_cycles=model.run.end,
            model=_metrics(model.run, isolated),
            **_metrics(run, isolated).model_dump(),
            mismatches=sum(row.mismatches for row in instances),
            bytes_checked=sum(row.bytes_checked for row in instances),
            faults=sum(row.fault is not None for row in programs),
            decisions=len(run.log),
            decisions_differ=max(len(run.log), len(model.run.log)) - differ.position if differ else 0,
            first_difference=differ.text("RTL", "model") if differ else "",
            decision_seconds=(sum(seconds) / len(seconds), max(seconds)),
            cpu_seconds=spent,
        )
        return ScenarioResults(
            started=started,
            environment=environment({}),
            scenario=figures,
            instances=tuple(instances),
            programs=programs,
            cores=_cores(run),
            busy=counters_of(chip, part.snapshots, model.snapshots if rtl else None) if chip.counters else (),
            notes=_notes(self.files),
            models={each.source.title: _settings(each.source) for each in self.files},
        )


def _compiled(
    scenario: Scenario, chip: ChipConfig, scheduler: str, on_progress: OnProgress
) -> tuple[dict[tuple[str, int], Compiled], tuple[Instance, ...], dict[int, int]]:
    """The networks, the instances, and the isolated time of each.

    A scheduler whose option `schemes` is not "all" is shown versions of that parallelisation only; deadlines and
    isolated times stay those of all versions, so that its metrics compare with others.
    """
    compilations = compile_networks(scenario, chip, on_progress)
    instances = instances_of(scenario, {key: one.network for key, one in compilations.items()})
    isolated = {one.number: one.network.isolated(len(chip.cores)) for one in instances}
    if (schemes := getattr(chosen(scheduler)[1], "schemes", "all")) != "all":
        held = compile_networks(scenario, chip, on_progress, schemes)
        by_network = {id(compilations[key].network): held[key].network for key in compilations}
        compilations = held
        instances = tuple(replace(one, network=by_network[id(one.network)]) for one in instances)
    return compilations, instances, isolated


def _notes(files: Iterable[Compiled]) -> tuple[str, ...]:
    """What is to be said of how they were read, each sentence once."""
    return tuple(dict.fromkeys(f"{each.source.title}: {note}" for each in files for note in each.served.graph.notes))


def _settings(source: NetworkSource) -> dict[str, tuple[str, ...]]:
    """What decided what was read of a file, as text."""
    settings: dict[str, tuple[str, ...]] = {}
    for name, value in model_settings(source).items():
        several = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
        settings[name] = tuple(map(str, several))
    return settings


def _metrics(run: Run, isolated: Mapping[int, int]) -> Metrics:
    metrics = measure(run, isolated)
    return Metrics(
        antt=metrics.antt,
        stp=metrics.stp,
        sla_violations=metrics.sla,
        utilisation=metrics.utilisation,
        busy=metrics.busy,
    )


def _programs(model: _Part, rtl: _Part | None) -> tuple[ProgramRow, ...]:
    """Rows of what was launched on the RTL, or else in the model, with its ends in both."""
    expected = {(one.row.instance, one.row.layer, one.row.launched): one.end for one in model.executor.programs}
    return tuple(
        one.row.model_copy(
            update={
                "rtl_end": one.end if rtl else None,
                "model_end": expected.get((one.row.instance, one.row.layer, one.row.launched)),
                "fault": one.fault,
            }
        )
        for one in (rtl or model).executor.programs
    )


def _cores(run: Run) -> tuple[CoresRow, ...]:
    labels = {served.instance.number: served.instance.network.label for served in run.served}
    return tuple(
        CoresRow(instance=number, network=labels[number], cycle=cycle, cores=cores)
        for number, points in cores_over_time(run).items()
        for cycle, cores in points
    )
