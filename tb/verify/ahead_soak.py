"""Random workloads on random meshes, timed ahead: every MOVE has to land in the very cycle that was planned.

`python -m meshloom.tb.verify.ahead_soak`, a part of `make soak`. Goes on where it was interrupted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from meshloom.hw.config import ChipConfig, load
from meshloom.sched.schedulers.ahead.entry import NAME

from ..build.builder import OUTPUT, build, sources_digest
from ..devices.simulated import SimulatedDevice
from ..results.schema import Row, Status, write_atomically
from ..runs.runner import prepare_all, simulate

#: Programs in all.
PROGRAMS = 280
#: Floorplans that the built-in chip is changed to, and the network of each.
MESHES: dict[str, tuple[list[str], dict[str, object]]] = {
    "wide": (["dram core dtt core dram", "host spm core spm core"], {"data_routing": "xy"}),
    "tall": (["dram core", "core dtt", "spm dram", "core host", "spm core"], {"data_routing": "yx"}),
    "channels": (["core spm dram core", "host dtt core spm"], {"data_vcs": 2, "data_depth": 2}),
}
BASE = "ahead8"


def chips() -> tuple[ChipConfig, ...]:
    """The built-in chip, and others with other meshes, dimension orders, channels and a shorter controller's ring."""
    base = load(BASE)
    found = [base]
    for name, (floorplan, noc) in MESHES.items():
        values = base.model_dump() | {"name": f"{BASE}_{name}", "floorplan": floorplan, "controller_instructions": 64}
        values["lanes"] = values["rows"] = values["cols"] = 4
        values["dram"] = base.dram.model_dump() | {"bytes_per_cycle": 4}
        values["noc"] = base.noc.model_dump() | noc
        found.append(ChipConfig.model_validate(values))
    return tuple(found)


def workloads(seed: int, count: int) -> list[str]:
    """Names of random layers that simulate in a moment: matrix products, and convolutions of all kinds."""
    random = Random(seed)
    found: list[str] = []
    while len(found) < count:
        if random.random() < 0.4:
            name = f"gemm:{random.randint(1, 80)}x{random.randint(1, 90)}x{random.randint(1, 70)}"
        else:
            kernel, stride = random.choice((1, 1, 3, 3, 5)), random.choice((1, 1, 2))
            rows, columns = random.randint(kernel, 18), random.randint(kernel, 18)
            name = f"conv:{rows}x{columns}x{random.randint(1, 40)}-{random.randint(1, 40)}"
            name += f",k{kernel},s{stride},p{random.randint(0, kernel // 2)}" + random.choice(("", ",relu"))
        if name not in found:
            found.append(name)
    return found


class Record:
    """What has been done, in a file of its own for each plan and each state of the sources."""

    def __init__(self, plan: Sequence[tuple[ChipConfig, Sequence[str]]], folder: Path = OUTPUT / "soak") -> None:
        known = hashlib.sha256()
        for chip, names in plan:
            known.update(f"{sources_digest(chip, 'verilator', False)} {' '.join(names)}".encode())
        self.path = folder / f"ahead-{known.hexdigest()[:20]}.json"
        self.done: dict[str, list[int]] = {}
        if self.path.exists():
            self.done = json.loads(self.path.read_text())

    def add(self, chip: ChipConfig, row: Row) -> None:
        """Keeps a good row, on disk too: arrivals, cycles."""
        self.done[f"{chip.name} {row.workload}"] = [row.planned_arrivals, row.rtl_cycles]
        write_atomically(self.path, json.dumps(self.done, indent=1))

    def forget(self) -> None:
        """The next soak begins anew."""
        self.path.unlink(missing_ok=True)


def wrong_with(row: Row) -> str:
    """What is wrong with a row, in words; empty if nothing is."""
    if row.status is not Status.PASSED:
        return row.reason
    if not row.planned_arrivals or row.rtl_cycles != row.model_cycles:
        return f"{row.planned_arrivals} planned arrivals, {row.rtl_cycles:,} cycles, {row.model_cycles:,} predicted"
    return ""


def run(
    plan: Sequence[tuple[ChipConfig, Sequence[str]]], record: Record, jobs: int, tell: Callable[[str], None]
) -> list[str]:
    """Runs what is left of the plan; returns what went wrong, in words."""
    wrong: list[str] = []
    total = sum(len(names) for _, names in plan)
    if record.done:
        tell(f"going on: {len(record.done)} of {total} programs are done")
    for chip, names in plan:
        left = [name for name in names if f"{chip.name} {name}" not in record.done]
        if not left:
            continue

        def heard(event: object, chip: ChipConfig = chip) -> None:
            if isinstance(event, Row):
                if words := wrong_with(event):
                    wrong.append(f"{chip.name}, {event.workload}: {words}")
                    tell(f"FAILED {wrong[-1]}")
                else:
                    record.add(chip, event)
                    tell(
                        f"[{len(record.done)}/{total}] {chip.name}, {event.workload}: {event.planned_arrivals} "
                        f"arrivals, {event.rtl_cycles:,} cycles"
                    )

        tell(f"{chip.name}: planning {len(left)} programs, building the simulator unless it is cached")
        items = prepare_all(left, chip, NAME, jobs)
        simulate(items, SimulatedDevice(build(chip, "verilator")), NAME, jobs, heard)
    return wrong


def main(
    programs: Annotated[int, typer.Option(min=1, help="Programs in all.")] = PROGRAMS,
    seed: Annotated[int, typer.Option(min=1, help="Another seed is other workloads.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Simulations at a time.")] = len(os.sched_getaffinity(0)),
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what an interrupted soak has done.")] = False,
) -> None:
    """Random workloads on random meshes, timed ahead: every MOVE has to land when it was planned to."""
    from ..report.console import console

    screen = console()

    def tell(words: str) -> None:
        screen.print(words, markup=False, soft_wrap=True)

    made = chips()
    plan = [(chip, workloads(seed + at, -(-programs // len(made)))) for at, chip in enumerate(made)]
    record = Record(plan)
    if fresh:
        record.forget()
        record = Record(plan)
    try:
        wrong = run(plan, record, jobs, tell)
    except KeyboardInterrupt:
        tell(f"interrupted with {len(record.done)} programs done; the same command goes on from here")
        raise typer.Exit(130) from None
    for words in wrong:
        screen.print(f"not good: {words}", style="red", markup=False, soft_wrap=True)
    if wrong:
        raise typer.Exit(1)
    count, arrivals = len(record.done), sum(found[0] for found in record.done.values())
    record.forget()
    screen.print(
        f"soak: {count} ahead-of-time programs on {len(plan)} chips, {arrivals:,} MOVEs, each of which landed in the "
        "cycle planned for it; every output byte right",
        style="green",
        markup=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    typer.run(main)
