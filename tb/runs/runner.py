"""From names to rows of the table: schedule, lower, check, predict, simulate, compare.

Worker processes make the programs before the device is opened (a simulator may have to be built), so that workloads
that cannot be run are known by then. The programs run on as many devices as there are jobs, the longest first, and rows
are reported as they finish. A workload that fails becomes a row with an `error`; the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshloom.hw.config import ChipConfig, load
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.lowering.programs import planned
from meshloom.sched.mapping.room import check_room
from meshloom.sched.model.timeline import Timeline
from meshloom.sched.program.program import Program
from meshloom.sched.schedulers.registry import (
    Chosen,
    find_chain,
    find_gradient,
    find_network,
    scales_by_channel,
    scheduler_of,
)
from meshloom.sched.schedulers.registry import find as find_scheduler
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.support.plugins import PluginError
from meshloom.sched.workload.catalog import Workload, find, regression
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.training import TrainingLayer, is_training, setting_of
from meshloom.sched.workload.training import find as find_training
from meshloom.sched.workload.training_chain import Chain, is_chain
from meshloom.sched.workload.training_chain import find as find_row

from ..devices.interface import DeviceKind
from ..devices.registry import find as find_device
from ..inputs.pictures import inputs_in
from ..inputs.sources import Feed, NetworkSource, check_files, is_network, model_settings, ready, regression_networks
from ..results.events import Event, Plan, Stage
from ..results.identity import code
from ..results.saved import SUFFIXES
from ..results.schema import Row, Settings
from . import network
from .batch import Item, failed_row, simulate
from .failures import At, Failure, attempt
from .items import ChainItem, GradientItem, NetworkItem, Prepared
from .options import RunOptions
from .saved import Saved, SavedSource, UncheckedItem, meaning, settings_of
from .saved import check as check_saved
from .saved import prepare as prepare_saved
from .workers import Workers, report_progress, report_search, workers


def prepare(workload: Workload, chip: ChipConfig, scheduler: str | Chosen, at: At = lambda stage: None) -> Prepared:
    """Schedules, lowers, checks and predicts one workload, and reports each step. Raises the errors of these steps on
    bad input."""
    at("scheduling")
    check_room(workload.shape, chip)
    make = find_scheduler(scheduler, SCHEDULES.folder(), report_search)
    made = planned(make(workload.shape, chip, workload.scale), chip, at)
    return Prepared(workload, made.schedule, made.program, made.timeline)


#: What a worker process returns for a layer, or for a network.
_Layer = tuple[Schedule, Program, Timeline]
_Network = tuple[network.PreparedNetwork, list[Feed], dict[str, Any]]
#: The same for a file, with its settings.
_File = tuple[Saved, network.PreparedNetwork | None, list[Feed], dict[str, Any]]
_Asked = Workload | TrainingLayer | Chain | NetworkSource | SavedSource
_Made = _Layer | GradientItem | ChainItem | _Network | _File | Failure


def _prepare_named(name: str, chip: ChipConfig, scheduler: str | Chosen, at: At = lambda stage: None) -> _Layer:
    """`prepare` in a worker process, to which a workload is sent by name."""
    made = prepare(find(name)[0], chip, scheduler, at)
    return made.schedule, made.program, made.timeline


def _attempt_named(name: str, chip: ChipConfig, scheduler: str | Chosen) -> _Layer | Failure:
    return attempt(lambda at: _prepare_named(name, chip, scheduler, at), "scheduling")


def prepare_all(names: Sequence[str], chip: ChipConfig, scheduler: str, jobs: int) -> list[Prepared]:
    """`prepare` for layers by name, in `jobs` worker processes; in the order given."""
    with workers(jobs) as pool:
        futures = [pool.submit(_prepare_named, name, chip, scheduler) for name in names]
        return [Prepared(find(name)[0], *future.result()) for name, future in zip(names, futures, strict=True)]


def _attempt_gradient(layer: TrainingLayer, chip: ChipConfig, scheduler: str | Chosen) -> GradientItem | Failure:
    """The two gradients of a layer, prepared in a worker process."""

    def make(at: At) -> GradientItem:
        made = find_gradient(scheduler, SCHEDULES.folder())(layer, chip)
        found = planned(made.schedule, chip, at)
        return GradientItem(layer, made, found.schedule, found.program, found.timeline)

    return attempt(make, "scheduling")


def _attempt_chain(chain: Chain, chip: ChipConfig, scheduler: str | Chosen) -> ChainItem | Failure:
    """The gradients of layers in a row, prepared in a worker process."""

    def make(at: At) -> ChainItem:
        made = find_chain(scheduler, SCHEDULES.folder())(chain, chip)
        found = planned(made.schedule, chip, at)
        return ChainItem(chain, made, found.schedule, found.program, found.timeline)

    return attempt(make, "scheduling")


def _attempt_network(source: NetworkSource, chip: ChipConfig, scheduler: str | Chosen) -> _Network | Failure:
    """A network and its feeds, made in a worker process. Files are read first: a wrong one is reported early."""

    def make(at: At) -> _Network:
        own = replace(source, by_channel=scales_by_channel(scheduler, chip))
        graph, found = ready(own)
        settings = model_settings(own)
        at("scheduling")

        def told(what: str) -> None:
            at(what)
            report_progress(source.title, what)

        return network.prepare(graph, chip, told, scheduler, report_search), found, settings

    return attempt(make, "reading")


def _attempt_saved(source: SavedSource, chip: ChipConfig) -> _File | Failure:
    """A schedule or program from a file, prepared in a worker process."""

    def make(at: At) -> _File:
        saved, made, found = prepare_saved(source, chip, at)
        return saved, made, found, settings_of(source, saved.schedule)

    return attempt(make, "reading")


def run(
    workloads: Sequence[str | NetworkSource | SavedSource],
    chip: str | Path | ChipConfig,
    scheduler: str | Chosen,
    on_event: Callable[[Event], None],
    options: RunOptions | None = None,
) -> list[Row]:
    """Runs workloads by name ("regression" = those of `make sim`) and returns their rows in the order given.

    Every row is also passed to `on_event` as soon as it is finished. A workload that cannot be run has one row, with an
    `error`. Raises the errors of bad input (names, files, chip, scheduler, device) before anything runs; BuildError,
    NoDeviceError, RunsError if nothing can run.
    """
    # Errors in the arguments are reported before anything is done.
    options = options or RunOptions()
    config = chip if isinstance(chip, ChipConfig) else load(chip)
    kind = find_device(options.device)
    if options.waves and not kind.waves:
        raise PluginError(f"device {kind.name} writes no waveforms; leave out --waves, or use a simulator of the RTL")
    options = replace(options, jobs=min(options.jobs, kind.most or options.jobs))
    asked: list[_Asked] = []
    for each in workloads:
        asked += _regression(kind, scheduler, on_event) if each == "regression" else _meant(each, config)
    for each in asked:
        if isinstance(each, NetworkSource):
            check_files(each)
        elif isinstance(each, SavedSource):
            check_saved(each, config)
    if any(isinstance(each, NetworkSource) for each in asked):
        find_network(scheduler)
    if any(isinstance(each, Workload) for each in asked):
        find_scheduler(scheduler)
    if any(isinstance(each, TrainingLayer) for each in asked):
        find_gradient(scheduler)
    if any(isinstance(each, Chain) for each in asked):
        find_chain(scheduler)
    on_event(Plan(rows=sum(_runs(each) for each in asked)))
    made = _prepared(asked, config, scheduler, options, on_event)
    settings = Settings(code=code(), scheduler=str(scheduler), simulator_version=kind.version())
    unread = [found.message for found in made if isinstance(found, Failure) and found.stage == "reading"]
    if unread and len(unread) == len(made):  # nothing of the request can even be read
        raise WorkloadError("\n".join(unread))
    rows: list[Row | None] = []
    items: list[Item] = []
    for each, found in zip(asked, made, strict=True):
        if isinstance(found, Failure):
            named = each.name if isinstance(each, Workload | TrainingLayer | Chain) else each.title
            row = failed_row(found, named, config, kind.name, settings, options.traces)
            rows.append(row)
            on_event(row)
        else:
            own = _items(each, found, config)
            rows += [None] * len(own)
            items += own
    if items:
        opened = kind.open(config, options.waves, lambda what: on_event(Stage(workload=config.name, what=what)))
        for item in items:
            on_event(Stage(workload=item.name, what="simulating"))
        ran = iter(simulate(items, opened, settings, on_event, options))
        rows = [next(ran) if row is None else row for row in rows]
    return [row for row in rows if row is not None]


def _meant(each: str | NetworkSource | SavedSource, chip: ChipConfig) -> Sequence[_Asked]:
    """What a workload is on this chip: a network, a file, or layers. Raises WorkloadError."""
    if isinstance(each, NetworkSource | SavedSource):
        return [each]
    if each.endswith(SUFFIXES):
        return [SavedSource(Path(each))]
    if is_training(each):
        return find_training(each, setting_of(chip))
    if is_chain(each):
        return find_row(each, setting_of(chip))
    return [NetworkSource(each)] if is_network(each) else find(each)


def prepared_here(name: str, chip: ChipConfig, scheduler: str) -> Sequence[Item] | Failure:
    """A workload by name, ready to run, prepared in this process; or why it is not. Several layers are none."""
    asked = attempt(lambda at: _meant(name, chip), "reading")
    if isinstance(asked, Failure):
        return asked
    if len(asked) != 1:
        return Failure("WorkloadError", "reading", f"workload {name} is {len(asked)} layers; name one of them")
    made = _prepared_here(asked[0], chip, scheduler, lambda event: None)
    return made if isinstance(made, Failure) else _items(asked[0], made, chip)


def _prepared(
    asked: Sequence[_Asked],
    chip: ChipConfig,
    scheduler: str | Chosen,
    options: RunOptions,
    on_event: Callable[[Event], None],
) -> list[_Made]:
    """Everything ready to run, or its failure; made in worker processes, to which only schedulers with names can be
    sent."""
    if options.here or isinstance(scheduler, Chosen):
        return [_prepared_here(each, chip, scheduler, on_event) for each in asked]

    def submit(pool: Workers, each: _Asked) -> Future[Any]:
        if isinstance(each, SavedSource):
            return pool.submit(_attempt_saved, each, chip)
        if isinstance(each, NetworkSource):
            return pool.submit(_attempt_network, each, chip, scheduler)
        if isinstance(each, TrainingLayer):
            return pool.submit(_attempt_gradient, each, chip, scheduler)
        if isinstance(each, Chain):
            return pool.submit(_attempt_chain, each, chip, scheduler)
        return pool.submit(_attempt_named, each.name, chip, scheduler)

    made: list[_Made | None] = []
    with workers(options.jobs) as pool:
        try:
            futures = [submit(pool, each) for each in asked]
        except BrokenProcessPool:
            futures = []
        for each, future in zip(asked, futures, strict=False):
            on_event(_first_stage(each))
            try:
                made.append(pool.result(future, on_event))
            except BrokenProcessPool:
                made.append(None)
    made += [None] * (len(asked) - len(made))
    # A process that is killed (usually for lack of memory) takes down the whole pool; run alone, the culprit is known.
    return [
        _alone(lambda pool, each=each: submit(pool, each), on_event) if found is None else found
        for each, found in zip(asked, made, strict=True)
    ]


def _prepared_here(each: _Asked, chip: ChipConfig, scheduler: str | Chosen, on_event: Callable[[Event], None]) -> _Made:
    on_event(_first_stage(each))
    if isinstance(each, SavedSource):
        return _attempt_saved(each, chip)
    if isinstance(each, NetworkSource):
        return _attempt_network(each, chip, scheduler)
    if isinstance(each, TrainingLayer):
        return _attempt_gradient(each, chip, scheduler)
    if isinstance(each, Chain):
        return _attempt_chain(each, chip, scheduler)
    return _attempt_named(each.name, chip, scheduler)


def _first_stage(each: _Asked) -> Stage:
    if isinstance(each, NetworkSource):
        return Stage(workload=each.title, what="scheduling the network")
    if isinstance(each, SavedSource):
        return Stage(workload=each.title, what="checking the program")
    return Stage(workload=each.name, what="scheduling")


def _alone(submit: Callable[[Workers], Future[Any]], on_event: Callable[[Event], None]) -> Any:
    try:
        with workers(1) as pool:
            return pool.result(submit(pool), on_event)
    except BrokenProcessPool:
        return Failure("BrokenProcessPool", "scheduling", "its process was killed; is there enough memory?")


def _items(
    asked: _Asked, made: _Layer | GradientItem | ChainItem | _Network | _File, chip: ChipConfig
) -> Sequence[Item]:
    """The result of a worker, ready to run: for a network, once for each of its inputs."""
    match asked, made:
        case SavedSource(), (Saved() as saved, prepared, found, settings):
            if prepared is not None:
                return [NetworkItem(prepared, asked.title, feed, asked.fed.tensors, settings) for feed in found]
            means, parts = meaning(asked, saved.schedule, chip), (saved.schedule, saved.program, saved.timeline)
            if means.gradients is not None:
                return [GradientItem(means.gradients, None, *parts, settings)]
            if means.chain is not None:
                return [ChainItem(means.chain, None, *parts, settings)]
            if means.layer is None:
                return [UncheckedItem(asked.title, saved, settings)]
            return [Prepared(means.layer, *parts, settings)]
        case NetworkSource(), (network.PreparedNetwork() as prepared, found, settings):
            return [NetworkItem(prepared, asked.title, feed, asked.tensors, settings) for feed in found]
        case (TrainingLayer(), GradientItem()) | (Chain(), ChainItem()):
            return [made]
        case Workload(), (Schedule() as schedule, program, timeline):
            return [Prepared(asked, schedule, program, timeline)]
        case _:
            raise AssertionError(f"{asked} came back as something else")


def _runs(asked: _Asked) -> int:
    fed = asked.fed if isinstance(asked, SavedSource) else asked
    return max(1, sum(map(inputs_in, fed.inputs))) if isinstance(fed, NetworkSource) else 1


def _regression(
    kind: DeviceKind, scheduler: str | Chosen, on_event: Callable[[Event], None]
) -> list[Workload | NetworkSource]:
    """Networks and layers of `make sim`: networks only if the scheduler supports them; for a slow device, the layers
    that it can run in minutes."""
    layers = list(regression())
    if kind.macs is None:
        known = scheduler_of(scheduler)
        if known.networks is not None:
            return [*map(NetworkSource, regression_networks()), *layers]
        on_event(
            Stage(workload="regression", what=f"scheduler {known.name} takes no networks: the {len(layers)} layers")
        )
        return list(layers)
    small = [layer for layer in layers if layer.shape.macs <= kind.macs]
    what = f"{kind.name} is slow: {len(small)} of {len(layers)} layers, up to {kind.macs:,} MACs; run others by name"
    on_event(Stage(workload="regression", what=what))
    return list(small)
