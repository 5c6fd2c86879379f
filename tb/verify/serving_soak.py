"""Random scenarios served on the RTL, one after another in this process: every byte right, every program's cycles as
the model says, and no more memory at the end than after a while.

`python -m meshloom.tb.verify.serving_soak`, a part of `make soak`. Goes on where it was interrupted.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.schedulers.online.registry import ONLINE
from meshloom.sched.store import provenance
from meshloom.sched.store.store import key
from meshloom.sched.workload.scenario import Request, Scenario

from ..build.builder import BuildError, ingredients
from ..devices.interface import DeviceError
from ..results.scenario import ScenarioResults
from ..runs.online.serve import serve
from .record import SoakRecord

#: Cycles on the RTL: of `make soak`, and of a night.
CYCLES, NIGHT = 10_000_000, 1_000_000_000
#: What the built-in chip is changed to, so that it builds and runs in seconds.
BASE = "lp9"
SMALL: dict[str, object] = {
    "lanes": 8, "rows": 8, "cols": 8, "floorplan": ["dram core core dram", "host core core ."], "programs": 8,
    "dram": {"words": 1 << 18, "bytes_per_cycle": 7, "latency": 20},
}  # fmt: skip
#: The chips: one that shares DRAM by turns, one that has two channels for data.
CHIPS: dict[str, dict[str, object]] = {
    "lp4": {},
    "lp4turns": {"dram": {"words": 1 << 18, "bytes_per_cycle": 3, "latency": 60, "arbitration": "round_robin"}},
}
#: An estimator that needs no training.
_OPTIONS: dict[str, str] = dict.fromkeys(("veltair", "layer_puzzle"), ":estimator=fair")
NETWORKS = ("resnet8", "ds_cnn", "vww")
#: Requests of a scenario, at least and at most; cycles between two, at most.
REQUESTS, GAP = (2, 12), 60_000
#: Megabytes by which the largest this process has been may grow after the first scenarios (so many): compiled networks
#: and schedules are kept.
GROWTH, WARM = 300, 12


@dataclass(frozen=True)
class ServingDose:
    """Scenario `number` of a soak with this seed."""

    number: int
    seed: int

    @property
    def chip(self) -> ChipConfig:
        """The chip that serves it."""
        name = list(CHIPS)[self.number % len(CHIPS)]
        return ChipConfig.model_validate(load(BASE).model_dump() | SMALL | {"name": name} | CHIPS[name])

    @property
    def scheduler(self) -> str:
        """The online scheduler that places its layers."""
        name = self._random("scheduler").choice(ONLINE.names())
        return name + _OPTIONS.get(name, "")

    @property
    def scenario(self) -> Scenario:
        """Requests that come at random, some with a deadline."""
        random = self._random("scenario")
        arrival, requests = 0, list[Request]()
        for _ in range(random.randint(*REQUESTS)):
            factor = random.choice((None, 0.5, 2.0))
            requests.append(Request(random.choice(NETWORKS), random.choice((1, 1, 2)), arrival, None, factor))
            arrival += random.choice((0, random.randrange(GAP)))
        return Scenario(f"soak{self.number}", tuple(requests))

    @property
    def name(self) -> str:
        """Says everything, for people and for the record of what has been done."""
        return f"scenario {self.number} of seed {self.seed} on {self.chip.name}"

    def _random(self, what: str) -> Random:
        return Random(f"{what} {self.seed} {self.number}")


@dataclass(frozen=True)
class ServingCounts:
    """Of a scenario: requests, layers that ran, cycles on the RTL, bytes compared."""

    requests: int
    layers: int
    cycles: int
    bytes: int


def problem(results: ScenarioResults) -> str:
    """What is wrong with a scenario that was served, in words; empty if nothing."""
    figures = results.scenario
    if not results.ok:
        return "; ".join(results.reasons)
    if figures.rtl_cycles != figures.model_cycles:
        return f"{figures.rtl_cycles} cycles, {figures.model_cycles} predicted"
    late = [row for row in results.programs if row.error_percent]
    if late:
        return f"{len(late)} programs do not take the cycles that are predicted, the first {late[0].layer}"
    lost = [row.number for row in results.instances if row.end is None or not row.bytes_checked]
    return f"request {lost[0]} did not end" if lost else ""


def take(dose: ServingDose) -> ServingCounts:
    """Serves one. Raises SoakError if something is wrong; BuildError, DeviceError."""
    results = serve(dose.scenario, dose.chip, dose.scheduler).results
    if words := problem(results):
        raise SoakError(words)
    checked = sum(row.bytes_checked for row in results.instances)
    return ServingCounts(len(results.instances), len(results.programs), results.scenario.rtl_cycles or 0, checked)


class SoakError(RuntimeError):
    """A scenario that was served otherwise than it should be; the message says how."""


def megabytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def record_of(plan: Sequence[ServingDose], folder: Path | None = None) -> SoakRecord[ServingCounts]:
    """What has been done of a plan by this code; below `folder`, or in the cache."""
    code = provenance.digest(__name__.partition(".")[2])
    builds = {name: ingredients(ServingDose(at, 0).chip, "verilator", False) for at, name in enumerate(CHIPS)}
    keys = {
        dose.name: key(f"serving-{dose.chip.name}", dose=dose.name, python=code, **builds[dose.chip.name])
        for dose in plan
    }
    return SoakRecord(keys, TypeAdapter(ServingCounts), folder)


def run(cycles: int, seed: int, fresh: bool, say: Callable[[str], None]) -> list[str]:
    """Serves scenarios until their cycles are so many; returns what went wrong, in words."""
    wrong: list[str] = []
    total = number = served = first = 0
    while total < cycles:
        dose = ServingDose(number, seed)
        record = record_of([dose])
        if fresh:
            record.forget()
        counts = record.done.get(dose.name)
        if counts is None:
            try:
                counts = take(dose)
            except (SoakError, BuildError, DeviceError) as error:
                wrong.append(f"{dose.name} by {dose.scheduler}: {error}")
                say(f"FAILED {wrong[-1]}")
                return wrong
            record.add(dose.name, counts)
            served += 1
            first = megabytes() if served == WARM else first
            say(
                f"{dose.name} by {dose.scheduler}: {counts.requests} requests, {counts.cycles:,} cycles, "
                f"{counts.bytes:,} bytes; {total + counts.cycles:,} cycles so far, {megabytes():,} MB"
            )
        total += counts.cycles
        number += 1
    if served > WARM and megabytes() > first + GROWTH:
        wrong.append(f"memory: {megabytes():,} MB, {first:,} MB after {WARM} scenarios")
    return wrong


def main(
    cycles: Annotated[int, typer.Option(min=1, help=f"Cycles on the RTL; a night: {NIGHT}.")] = CYCLES,
    seed: Annotated[int, typer.Option(min=1, help="A different seed gives other scenarios.")] = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard the progress of an interrupted soak.")] = False,
) -> None:
    """Random scenarios served on the RTL. Goes on where it was interrupted."""
    from ..report.console import console

    screen = console()

    def say(words: str) -> None:
        screen.print(words, markup=False, highlight=False, soft_wrap=True)

    try:
        wrong = run(cycles, seed, fresh, say)
    except KeyboardInterrupt:
        say("interrupted; run the same command to continue")
        raise typer.Exit(130) from None
    for words in wrong:
        screen.print(f"not good: {words}", style="red", markup=False, soft_wrap=True)
    if wrong:
        raise typer.Exit(1)
    screen.print(
        f"soak: {cycles:,} cycles of scenarios and more, every byte and every program's cycles right, "
        f"{megabytes():,} MB at most",
        style="green", markup=False, soft_wrap=True,
    )  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
