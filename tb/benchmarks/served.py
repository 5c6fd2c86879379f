"""Scenarios that benchmarks serve. Each result is kept under all that decides it, so whoever is interrupted goes on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.checker.problems import CheckError
from meshloom.sched.schedulers.online.interface import ServingError
from meshloom.sched.schedulers.online.registry import chosen
from meshloom.sched.schedulers.online.windows import WindowError
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.scenario import Request, Scenario
from meshloom.sched.workload.workload_sets import workload_sets

from ..build.builder import ROOT, build, ingredients
from ..devices.interface import DeviceError
from ..results.events import OnEvent, Stage
from ..results.scenario import ScenarioResults
from ..runs.online.networks import compile_networks
from ..runs.online.serve import serve
from ..runs.workers import Workers, report_progress, workers

DEVICE = "verilator"
#: What decides what happens, besides programs, scheduler and chip; with what these import.
_DECIDE = (
    *(f"sched.schedulers.online.{name}" for name in ("drive", "instances", "metrics")),
    "sched.model.modelled",
)
#: The same, by themselves: they also import the compiler, of which only the programs count, and these are in the key.
_ALONE = (
    "sched/lowering/templates/relocate.py",
    "sched/lowering/templates/template.py",
    "tb/runs/online/executor.py",
    "tb/runs/online/serve.py",
)
#: What else decides on the RTL.
_ON_RTL = ("tb/runs/online/rtl_session.py", "tb/devices/serving.py", "tb/build/serve.py", "tb/inputs/golden/graph.py")
#: And for schedulers that ask the trained estimator.
_FOREST = ("sched/papers/layer_puzzle/congestion.npz",)
_RESULTS = TypeAdapter(ScenarioResults)


@dataclass(frozen=True)
class Asked:
    """One of the workload sets' scenarios, to be served. `scheduler`: with its options; `rtl`: on the RTL, too;
    `wait`: cycles from an event to the launch of what is decided on it, None for the least that registers take."""

    chip: str
    workload: str
    scheduler: str
    rtl: bool = False
    wait: int | None = None

    @property
    def scenario(self) -> Scenario:
        return _scenarios(len(_chip(self.chip).cores))[self.workload]

    @property
    def networks(self) -> tuple[Network, ...]:
        """What has to be compiled: for fixed parallelisations, all versions too, which give deadlines."""
        held = getattr(chosen(self.scheduler)[1], "schemes", "all")
        kinds = dict.fromkeys(("all", held))
        return tuple(Network(self.chip, *each, kind) for kind in kinds for each in self.scenario.networks)


@dataclass(frozen=True)
class Network:
    """A network for a chip and a batch size. `schemes`: "all", or the parallelisation that it is held to."""

    chip: str
    name: str
    batch: int
    schemes: str = "all"


@dataclass(frozen=True)
class Programs:
    """What a network was compiled to. `digest`: of all templates; `forms`: how many of them differ in more than
    addresses and scales; `code`: bytes of all; `pages`: of an instance's window; `macs`: multiply-accumulates of the
    batch."""

    digest: str
    layers: int
    templates: int
    forms: int
    instructions: int
    code: int
    pages: int
    macs: int


_PROGRAMS = TypeAdapter(Programs)


@cache
def _chip(name: str) -> ChipConfig:
    return load(name)


@cache
def _scenarios(cores: int) -> dict[str, Scenario]:
    return {each.name: each for each in workload_sets(cores)}


def _records(chip: str) -> SearchCache:
    return SearchCache(SCHEDULES.folder(), _chip(chip), "programs", "tb.runs.online.networks")


def _compiled(network: Network) -> Programs:
    """Compiles a network into the store: in a worker process."""
    chip = _chip(network.chip)
    title = f"{network.name} x{network.batch} on {network.chip}"
    asked = Scenario(network.name, (Request(network.name, network.batch),))
    (made,) = compile_networks(asked, chip, lambda what: report_progress(title, what), network.schemes).values()
    templates = [template for each in made.templates for template in each.values()]
    forms = [made.served.form(index) for index in range(len(made.templates))]
    found = hashlib.sha256()
    for template in templates:
        found.update(f"{template.scheme} {template.streams} {template.code_words} {template.measures}\n".encode())
        found.update(template.code)
    record = Programs(
        found.hexdigest(),
        len(made.templates),
        len(templates),
        len({(form, each.scheme) for form, of in zip(forms, made.templates, strict=True) for each in of.values()}),
        sum(len(template.words) for template in templates),
        sum(template.size for template in templates),
        made.pages,
        made.network.macs,
    )
    _records(network.chip).put(network, _PROGRAMS, record)
    return record


def known(asked: Iterable[Asked]) -> dict[Network, Programs]:
    """Those networks of what is asked for that have been compiled."""
    wanted = dict.fromkeys(network for each in asked for network in each.networks)
    found = ((network, _records(network.chip).get(network, _PROGRAMS)) for network in wanted)
    return {network: record for network, record in found if record is not None}


def compile_all(asked: Sequence[Asked], pool: Workers, on_progress: OnEvent) -> dict[Network, Programs]:
    """The networks of what is asked for, in worker processes, larger batches first."""
    found = known(asked)
    wanted = {network for each in asked for network in each.networks} - found.keys()
    order = sorted(wanted, key=lambda each: (-each.batch, each.name, each.chip, each.schemes))
    futures = {network: pool.submit(_compiled, network) for network in order}
    for number, (network, future) in enumerate(futures.items(), 1):
        what = f"compiling for {network.chip}, schemes {network.schemes} ({number} of {len(futures)})"
        on_progress(Stage(workload=f"{network.name} x{network.batch}", what=what))
        found[network] = pool.result(future, on_progress)
    return found


def result(asked: Asked, compiled: Mapping[Network, Programs]) -> ScenarioResults | None:
    """What is kept of a scenario; where none is on the RTL what was asked for, that of an RTL run will do."""
    if not all(network in compiled for network in asked.networks):
        return None
    for one in dict.fromkeys((asked, replace(asked, rtl=True))):
        if (found := _memory(one).get(_key(one, compiled), _RESULTS)) is not None:
            return found
    return None


def _key(asked: Asked, compiled: Mapping[Network, Programs]) -> str:
    """What a result is kept under, besides chip and code."""
    options = chosen(asked.scheduler)[1].model_dump()
    forest = options.get("estimator") == "forest"
    digests = [compiled[network].digest for network in asked.networks]
    gateware = _gateware(asked.chip) if asked.rtl else ""
    files = _ALONE + _ON_RTL * asked.rtl + _FOREST * forest
    return repr((asked.scenario, options, asked.rtl, asked.wait, digests, gateware, _sources(files)))


@cache
def _gateware(chip: str) -> str:
    """Sources of the simulator; who compiled it, and for which processor, changes no result."""
    return ingredients(_chip(chip), DEVICE, False)["sources"]


@cache
def _sources(files: tuple[str, ...]) -> str:
    found = hashlib.sha256()
    for name in files:
        found.update(name.encode() + b"\0" + Path(ROOT, name).read_bytes())
    return found.hexdigest()


def _memory(asked: Asked) -> SearchCache:
    scheduler = asked.scheduler.partition(":")[0]
    folder = "schedulers.online" if scheduler == "lookahead" else "papers.layer_puzzle"
    decide = [f"sched.{folder}.{scheduler}", "sched.papers.layer_puzzle.estimator"]
    return SearchCache(SCHEDULES.folder(), _chip(asked.chip), f"served-{scheduler}", *_DECIDE, *decide)


def _served(asked: Asked, key: str) -> None:
    """Serves a scenario and keeps the result: in a worker process."""
    title = f"{asked.workload} on {asked.chip} by {asked.scheduler}"
    found = serve(
        asked.scenario,
        _chip(asked.chip),
        asked.scheduler,
        device=DEVICE if asked.rtl else None,
        wait=asked.wait,
        on_progress=lambda what: report_progress(title, what),
        on_event=lambda where, cycle, instance, what: report_progress(title, f"{where}, cycle {cycle:,}"),
    )
    _memory(asked).put(key, _RESULTS, found.results)


def serve_all(
    asked: Sequence[Asked], compiled: dict[Network, Programs], pool: Workers, on_progress: OnEvent
) -> list[str]:
    """Serves what has not been served, in worker processes, the longest first; results are kept as they come. Returns
    why some could not be served, in words: they hold nobody else up."""
    failures: list[str] = []
    left = [one for one in dict.fromkeys(asked) if result(one, compiled) is None]
    for chip in dict.fromkeys(one.chip for one in left if one.rtl):
        build(
            _chip(chip),
            DEVICE,
            False,
            lambda what, chip=chip: on_progress(Stage(workload=chip, what=what, passing=True)),
        )

    def work(one: Asked) -> int:
        """Multiply-accumulates: a measure of time. The RTL takes some three times as long as the model."""
        macs = sum(compiled[Network(one.chip, each.network, each.batch)].macs for each in one.scenario.requests)
        return macs * (4 if one.rtl else 1)

    left.sort(key=work, reverse=True)
    whole, done = sum(map(work, left)), 0
    futures = [pool.submit(_served, one, _key(one, compiled)) for one in left]
    for number, (one, future) in enumerate(zip(left, futures, strict=True)):
        what = f"by {one.scheduler}" + " on the RTL" * one.rtl
        far = f"{number} of {len(left)} served, {100 * (whole - done) / whole:.0f} % of the work left"
        on_progress(Stage(workload=f"{one.workload} on {one.chip}", what=f"{what}; {far}"))
        try:
            pool.result(future, on_progress)
        except (ServingError, WindowError, CheckError, DeviceError) as error:
            failures.append(f"{one.workload} on {one.chip} by {one.scheduler}: {error}")
            on_progress(Stage(workload=f"{one.workload} on {one.chip}", what=f"{what}: failed: {error}"))
        done += work(one)
    return failures


def cpus() -> int:
    """Worker processes."""
    return len(os.sched_getaffinity(0))


def measure(asked: Sequence[Asked], on_progress: OnEvent) -> list[str]:
    """Compiles and serves what is asked for, but for what is kept. Returns why some could not be served."""
    with workers(cpus()) as pool:
        return serve_all(asked, compile_all(asked, pool, on_progress), pool, on_progress)
