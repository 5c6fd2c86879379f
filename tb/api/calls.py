"""The functions of `import meshloom`: load a chip, schedule, run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from meshloom.hw.spec.config import ChipConfig, ConfigError, load
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.schedulers.authored import adapted
from meshloom.sched.schedulers.interface import Scheduler, written
from meshloom.sched.schedulers.registry import Chosen, SchedulerError, options_of
from meshloom.sched.workload.layers import WorkloadError

from ..devices.registry import find as find_device
from ..inputs.chips import changed
from ..results.events import Event
from ..results.recorder import Recorder
from ..runs import runner
from ..runs.kinds.interface import Listener
from ..runs.workers import report_search
from .request import RunRequest, jobs_of, limited, refuse_other_kind
from .result import Result
from .workload import Workload, plain

#: A scheduler: its name on the command line, a function of a `LayerTask`, or a `Scheduler`.
AnyScheduler = str | Callable[..., object] | Scheduler


def load_chip(chip: str | Path | ChipConfig, changes: Mapping[str, object] | None = None) -> ChipConfig:
    """A chip: a built-in name, a TOML file, or one already loaded; with other values in some fields, named as in the
    file: `{"spm_words": 8192, "core.a_words": 2048}`. Raises ConfigError that names the field and the fix."""
    config = chip if isinstance(chip, ChipConfig) else load(_chip_name(chip))
    if changes is None:
        return config
    if not _by_name(changes):
        raise ConfigError(f'changes of {config.name} must be values by name of field, as in {{"core.a_words": 2048}}')
    return changed(config, {name: plain(value) for name, value in changes.items()})


def _by_name(values: object) -> bool:
    """Whether these are values by name."""
    return isinstance(values, Mapping) and all(
        isinstance(name, str) for name in cast("Mapping[object, object]", values)
    )


def _chip_name(chip: object) -> str | Path:
    """A chip by name. Raises ConfigError for anything that is none."""
    if isinstance(chip, str | Path):
        return chip
    raise ConfigError(f"a {type(chip).__name__} is no chip; give one: a built-in name, a .toml file, or a ChipConfig")


def schedule(
    workload: Workload | str | Path,
    chip: str | Path | ChipConfig = "quad16",
    scheduler: AnyScheduler = "loop_order",
    options: Mapping[str, object] | None = None,
    *,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    network: bool = False,
    apart: bool = True,
) -> Schedule:
    """The schedule of a layer or of a whole network, proven to run on the chip; `predicted` has its cycles.

    `scheduler`: a name (`meshloom schedulers`), a function of a `LayerTask`, or a `Scheduler`. `options`: its options
    by name. A scheduler that does not ship with Meshloom runs in a process of its own, for at most `time_limit` seconds
    (600), with at most `memory_limit` megabytes (4096) of its own; 0: any number. It has no network unless `network`
    says so. What it prints goes to stderr. With `apart=False` a function is called in this process, without limits: for
    a debugger, or if it remembers something.

    Raises WorkloadError, SchedulerError, DoesNotFit, and what checking a program raises.
    """
    config, chosen = load_chip(chip), _chosen(scheduler, options)
    requests = Workload.of(workload).requests(config)
    if len(requests) != 1:
        raise WorkloadError(
            f"workload {workload}: is {len(requests)} layers; schedule each of Workload.of(...).layers()"
        )
    with limited(time_limit, memory_limit, network, apart):
        return requests[0].plan(config, chosen, Listener(search=report_search)).schedule


def run(
    workloads: Workload | str | Path | Schedule | Sequence[Workload | str | Path | Schedule],
    chip: str | Path | ChipConfig = "quad16",
    scheduler: AnyScheduler = "loop_order",
    options: Mapping[str, object] | None = None,
    *,
    computes: Workload | str | Path | None = None,
    device: str = "verilator",
    jobs: int | None = None,
    waves: bool = False,
    links: bool = False,
    artefacts: str | Path | bool = True,
    energy: str | Path | None = None,
    area: bool = False,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    network: bool = False,
    apart: bool = True,
    on_event: Callable[[Event], None] = lambda event: None,
) -> Result:  # the options of `meshloom run` (`RunRequest`), by name
    """Runs workloads on the chip's RTL and compares every byte with ONNX Runtime and every cycle with the model.

    `workloads`: one or several; a Schedule is run as it is, whoever made it. `scheduler`, `options`, `time_limit`,
    `memory_limit`, `network`, `apart`: as for `schedule`. `computes`: what schedules and programs compute that do not
    say so; "" leaves their bytes unchecked. `jobs`: devices at the same time (all CPUs). `artefacts`: a folder for
    schedule, program and every instruction's cycles; True: in the cache, as long as there is room; False: nowhere. With
    them `meshloom explain` knows the run by the file that `Result.save` writes. `energy`: a file with picojoules
    (TOML), by which `Row.energy` is estimated; a 45 nm process without it. `area`: synthesise the chip, unless that was
    done before, for `Row.area`. `on_event` is called with each row as soon as it is there, and with what is being done.

    A workload that cannot be run has a row with an `error`. Raises the errors of bad input before anything runs;
    BuildError, NoDeviceError, RunsError if nothing can run.
    """
    single = isinstance(workloads, Workload | str | Path | Schedule)
    sources = [Workload.of(each, computes).source for each in ([workloads] if single else workloads)]
    folder = None if isinstance(artefacts, bool) else Path(artefacts)
    request = RunRequest(
        device=device,
        jobs=jobs_of(jobs),
        waves=waves,
        links=links,
        artefacts=None if artefacts is True else folder is not None,
        energy=None if energy is None else Path(energy),
        area=area,
        time_limit=time_limit,
        memory_limit=memory_limit,
        network=network,
        apart=apart,
    )
    recorder = Recorder("api", find_device(device).tools())
    run_options = request.options(recorder, folder, on_event)
    with request.guarded():
        recorder.rows += runner.run(sources, load_chip(chip), _chosen(scheduler, options), on_event, run_options)
    return Result(recorder.results(complete=True))


def _chosen(scheduler: AnyScheduler, options: Mapping[str, object] | None) -> str | Chosen:
    """A scheduler with options, by name if it has one. Raises SchedulerError."""
    if options is not None and not _by_name(options):
        raise SchedulerError('options must be values by name, as in {"budget": "2M"}')
    values = {name: plain(value) for name, value in (options or {}).items()}
    if isinstance(scheduler, str):
        refuse_other_kind(scheduler)
        base, named = options_of(scheduler)
        if twice := sorted(named.keys() & values):
            raise SchedulerError(f"scheduler {scheduler!r}: {twice[0]} is given twice, in its name and in options")
        return written(base, named | values)
    thing: Any = scheduler
    name = scheduler.name if isinstance(scheduler, Scheduler) else getattr(thing, "__name__", type(thing).__name__)
    try:
        return Chosen(adapted(name, scheduler), values)
    except TypeError as error:
        raise SchedulerError(f"scheduler {name} {error}") from None
