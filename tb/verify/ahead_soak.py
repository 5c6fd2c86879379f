"""Random workloads on random meshes, timed ahead: every MOVE has to land in the very cycle that was planned.

`python -m meshloom.tb.verify.ahead_soak`, a part of `make soak`. Goes on where it was interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.store import provenance
from meshloom.sched.store.store import key

from ..build.builder import ingredients
from ..devices.simulated import VERILATOR
from ..results.identity import code
from ..results.schema import Row, Settings, Status
from ..runs.batch import simulate
from ..runs.options import RunOptions
from ..runs.runner import prepare_all
from .record import SoakRecord

#: Programs in all.
PROGRAMS = 280
#: Floorplans that the built-in chip is changed to, the network of each, and whether a DRAM tile is for code only.
MESHES: dict[str, tuple[list[str], dict[str, object], bool]] = {
    "wide": (["dram core dtt core dram", "host spm core spm core"], {"data_routing": "xy"}, False),
    "tall": (["dram core", "core dtt", "spm dram", "core host", "spm core"], {"data_routing": "yx"}, True),
    "channels": (["core spm dram core", "host dtt core spm"], {"data_vcs": 2, "data_depth": 2}, False),
}
BASE = "ahead8"


def chips() -> tuple[ChipConfig, ...]:
    """The built-in chip, and others with other meshes, dimension orders, channels and a shorter controller's ring, one
    with a channel for code."""
    base = load(BASE)
    configs = [base]
    for name, (floorplan, noc, fetched) in MESHES.items():
        values = base.model_dump() | {"name": f"{BASE}_{name}", "floorplan": floorplan, "controller_instructions": 64}
        values["controller_channel"] = fetched
        values["lanes"] = values["rows"] = values["cols"] = 4
        values["dram"] = base.dram.model_dump() | {"bytes_per_cycle": 4}
        values["noc"] = base.noc.model_dump() | noc
        configs.append(ChipConfig.model_validate(values))
    return tuple(configs)


def workloads(seed: int, count: int) -> list[str]:
    """Names of random layers that simulate in a moment: matrix products, and convolutions of all kinds."""
    random = Random(seed)
    names: list[str] = []
    while len(names) < count:
        if random.random() < 0.4:
            name = f"gemm:{random.randint(1, 80)}x{random.randint(1, 90)}x{random.randint(1, 70)}"
        else:
            kernel, stride = random.choice((1, 1, 3, 3, 5)), random.choice((1, 1, 2))
            rows, columns = random.randint(kernel, 18), random.randint(kernel, 18)
            name = f"conv:{rows}x{columns}x{random.randint(1, 40)}-{random.randint(1, 40)}"
            name += f",k{kernel},s{stride},p{random.randint(0, kernel // 2)}" + random.choice(("", ",relu"))
        if name not in names:
            names.append(name)
    return names


#: The scheduler whose schedules are timed ahead.
NAME = "dtt"
#: Chips, and the workloads that each runs.
Plan = Sequence[tuple[ChipConfig, Sequence[str]]]


def record_of(plan: Plan, folder: Path | None = None) -> SoakRecord[list[int]]:
    """Arrivals and cycles of the good programs, made and run by the same sources; below `folder`, or in the cache."""
    code = provenance.digest("sched.papers.dtt.entry", "sched.lowering.programs")
    keys: dict[str, str] = {}
    for chip, names in plan:
        build = ingredients(chip, "verilator", False)
        for name in names:
            keys[f"{chip.name} {name}"] = key(f"ahead-{chip.name}", workload=name, code=code, **build)
    return SoakRecord(keys, TypeAdapter(list[int]), folder)


def wrong_with(row: Row) -> str:
    """What is wrong with a row, in words; empty if nothing is."""
    if row.status is not Status.PASSED:
        return row.reason
    if not row.planned_arrivals or row.rtl_cycles != row.model_cycles:
        return f"{row.planned_arrivals} planned arrivals, {row.rtl_cycles:,} cycles, {row.model_cycles:,} predicted"
    return ""


def run(plan: Plan, record: SoakRecord[list[int]], jobs: int, on_progress: Callable[[str], None]) -> list[str]:
    """Runs what is left of the plan; returns what went wrong, in words."""
    wrong: list[str] = []
    total = sum(len(names) for _, names in plan)
    if record.done:
        on_progress(f"continuing: {len(record.done)} of {total} programs are done")
    for chip, names in plan:
        left = [name for name in names if f"{chip.name} {name}" not in record.done]
        if not left:
            continue

        def heard(event: object, chip: ChipConfig = chip) -> None:
            if isinstance(event, Row):
                if words := wrong_with(event):
                    wrong.append(f"{chip.name}, {event.workload}: {words}")
                    on_progress(f"FAILED {wrong[-1]}")
                else:
                    record.add(f"{chip.name} {event.workload}", [event.planned_arrivals, event.rtl_cycles])
                    on_progress(
                        f"[{len(record.done)}/{total}] {chip.name}, {event.workload}: {event.planned_arrivals} "
                        f"arrivals, {event.rtl_cycles:,} cycles"
                    )

        on_progress(f"{chip.name}: planning {len(left)} programs, building the simulator unless it is cached")
        items = prepare_all(left, chip, NAME, jobs)
        settings = Settings(code=code(), scheduler=NAME, simulator_version=VERILATOR.version())
        simulate(items, VERILATOR.open(chip, False, on_progress), settings, heard, RunOptions(jobs=jobs))
    return wrong


def main(
    programs: Annotated[int, typer.Option(min=1, help="Total number of programs.")] = PROGRAMS,
    seed: Annotated[int, typer.Option(min=1, help="A different seed gives different workloads.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Simulations to run at a time.")] = len(os.sched_getaffinity(0)),
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard the progress of an interrupted soak.")] = False,
) -> None:
    """Random workloads on random meshes, timed ahead: every MOVE has to land when it was planned to."""
    from ..report.console import console

    screen = console()

    def on_progress(words: str) -> None:
        screen.print(words, markup=False, soft_wrap=True)

    configs = chips()
    plan = [(chip, workloads(seed + at, -(-programs // len(configs)))) for at, chip in enumerate(configs)]
    record = record_of(plan)
    if fresh:
        record.forget()
    try:
        wrong = run(plan, record, jobs, on_progress)
    except KeyboardInterrupt:
        on_progress(f"interrupted with {len(record.done)} programs done; run the same command to continue")
        raise typer.Exit(130) from None
    for words in wrong:
        screen.print(f"not good: {words}", style="red", markup=False, soft_wrap=True)
    if wrong:
        raise typer.Exit(1)
    count, arrivals = len(record.done), sum(numbers[0] for numbers in record.done.values())
    record.forget()
    screen.print(
        f"soak: {count} ahead-of-time programs on {len(plan)} chips, {arrivals:,} MOVEs, each delivered in the "
        "cycle planned for it; every output byte right",
        style="green",
        markup=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    typer.run(main)
