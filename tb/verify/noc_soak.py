"""Random traffic through many meshes, every flit checked: `python -m meshloom.tb.verify.noc_soak`, which is `make
soak`.

What has been done is kept, so an interrupted soak goes on where it was. Exit status: 0 all is well, 1 something was
lost, duplicated, corrupted, reordered or stuck, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter

from meshloom.sched.store.store import key

from ..build.builder import BuildError
from ..devices.noc.build import Mesh, ingredients
from ..devices.noc.traffic import Counters, TrafficError, soak
from .record import SoakRecord

#: Flits that a whole soak sends at least.
FLITS = 10_000_000
#: Every number of channels, both depths, dimension orders and allocations, lines and other shapes, with and without
#: source routes and clock gates; cheap ones to build first, so that a fault shows soon.
MESHES = (
    Mesh(2, 2, 1, 2),
    Mesh(2, 2, 2, 4, "yx", "free"),
    Mesh(2, 2, 3, 2, gated=True),
    Mesh(2, 2, 4, 4, routed=True),
    Mesh(1, 6, 3, 4, "yx"),
    Mesh(6, 1, 4, 2, "xy", "free"),
    Mesh(3, 2, 2, 4, routed=True, mutable=True),
    Mesh(2, 3, 4, 2, "yx", routed=True),
    Mesh(3, 5, 1, 4, "yx", routed=True),
    Mesh(3, 3, 3, 4, "xy", "free", bits=128, routed=True),
    Mesh(4, 3, 2, 2, "yx", gated=True),
    Mesh(6, 4, 1, 2, gated=True),
    Mesh(4, 4, 4, 4),
    Mesh(4, 4, 4, 4, allocate="free"),
    Mesh(6, 6, 1, 4, routed=True, gated=True),
    Mesh(5, 5, 2, 2, "yx", "free", routed=True),
    Mesh(6, 6, 2, 4, "yx", routed=True),
    Mesh(6, 6, 4, 2, routed=True, gated=True),
)


@dataclass(frozen=True)
class Dose:
    """One run: at least `flits` flits through `mesh`, `routed` of 256 packets with a source route."""

    mesh: Mesh
    flits: int
    seed: int
    routed: int = 0
    stalls: bool = True

    @property
    def name(self) -> str:
        """Says everything, for people and for the record of what has been done."""
        flags = (f" routed {self.routed}/256" if self.routed else "") + ("" if self.stalls else " no stalls")
        return f"{self.mesh.name} seed {self.seed} {self.flits:,} flits{flags}"


def doses(meshes: Sequence[Mesh], flits: int, seed: int) -> list[Dose]:
    """Three runs for each mesh: sinks that never stall, that do, and source routes if there are any.

    `flits` in all, in proportion to the tiles of a mesh.
    """
    tiles = sum(mesh.width * mesh.height for mesh in meshes)
    result: list[Dose] = []
    for mesh in meshes:
        each = -(-flits * mesh.width * mesh.height // (3 * tiles))
        result += [
            Dose(mesh, each, 3 * seed, stalls=False),
            Dose(mesh, each, 3 * seed + 1),
            Dose(mesh, each, 3 * seed + 2, routed=160 if mesh.routed else 0),
        ]
    return result


def take(dose: Dose) -> Counters:
    """Runs one dose. Raises TrafficError, BuildError."""
    return soak(dose.mesh, dose.flits, dose.seed, dose.routed, dose.stalls)


def left_out(plan: Sequence[Dose], done: Mapping[str, Counters]) -> list[str]:
    """Meshes none of whose runs had packets between all pairs of tiles, in words."""
    words: list[str] = []
    for mesh in dict.fromkeys(dose.mesh for dose in plan):
        every = (mesh.width * mesh.height) ** 2
        numbers = [done[dose.name].pairs for dose in plan if dose.mesh == mesh and dose.name in done]
        if numbers and max(numbers) < every:
            words.append(f"{mesh.name}: packets between {max(numbers)} of {every} pairs of tiles; send more flits")
    return words


def record_of(plan: Sequence[Dose], folder: Path | None = None) -> SoakRecord[Counters]:
    """What has been done of a plan, with the same gateware, bench and tools; below `folder`, or in the cache."""
    builds = {mesh: ingredients(mesh) for mesh in {dose.mesh for dose in plan}}
    keys = {dose.name: key(f"noc-{dose.mesh.name}", dose=dose.name, **builds[dose.mesh]) for dose in plan}
    return SoakRecord(keys, TypeAdapter(Counters), folder)


def run(plan: Sequence[Dose], record: SoakRecord[Counters], jobs: int, on_progress: Callable[[str], None]) -> list[str]:
    """Runs what is left of the plan, `jobs` meshes at a time; returns what went wrong, in words."""
    left = [dose for dose in plan if dose.name not in record.done]
    meshes = dict.fromkeys(dose.mesh for dose in left)
    wrong: list[str] = []
    sent = sum(counters.taken for counters in record.done.values())
    if record.done:
        on_progress(f"continuing: {len(record.done)} of {len(plan)} runs are done, {sent:,} flits")

    def work(mesh: Mesh) -> Iterator[tuple[Dose, Counters | Exception]]:
        for dose in left:
            if dose.mesh == mesh:
                try:
                    yield dose, take(dose)
                except (TrafficError, BuildError) as error:
                    yield dose, error

    def all_of(mesh: Mesh) -> list[tuple[Dose, Counters | Exception]]:
        return list(work(mesh))

    pool = ThreadPoolExecutor(jobs)
    futures = [pool.submit(all_of, mesh) for mesh in meshes]
    try:
        for future in as_completed(futures):
            for dose, result in future.result():
                if isinstance(result, Exception):
                    wrong.append(f"{dose.name}: {result}")
                    on_progress(f"FAILED {wrong[-1]}")
                    continue
                record.add(dose.name, result)
                sent += result.taken
                on_progress(
                    f"[{len(record.done)}/{len(plan)}] {dose.name}: {result.packets:,} packets in {result.cycles:,} "
                    f"cycles, {result.cpu_seconds:.1f} CPU-s; {sent:,} flits so far"
                )
    finally:
        pool.shutdown(cancel_futures=True)
    return wrong + left_out(plan, record.done)


def main(
    flits: Annotated[int, typer.Option(min=1, help="Total number of flits.")] = FLITS,
    seed: Annotated[int, typer.Option(min=1, help="A different seed gives different traffic.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Meshes to build and run at a time.")] = len(os.sched_getaffinity(0)),
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard the progress of an interrupted soak.")] = False,
) -> None:
    """Random traffic through many meshes, every flit checked. Goes on where it was interrupted."""
    from ..report.console import console

    screen = console()

    def on_progress(words: str) -> None:
        screen.print(words, markup=False, soft_wrap=True)

    plan = doses(MESHES, flits, seed)
    record = record_of(plan)
    if fresh:
        record.forget()
    try:
        wrong = run(plan, record, jobs, on_progress)
    except KeyboardInterrupt:
        on_progress(f"interrupted with {len(record.done)} of {len(plan)} runs done; run the same command to continue")
        raise typer.Exit(130) from None
    total = sum(counters.taken for counters in record.done.values())
    for words in wrong:
        screen.print(f"not good: {words}", style="red", markup=False, soft_wrap=True)
    if wrong:
        raise typer.Exit(1)
    record.forget()
    routed = sum(counters.routed for counters in record.done.values())
    seconds = sum(counters.cpu_seconds for counters in record.done.values())
    screen.print(
        f"soak: {total:,} flits through {len(MESHES)} meshes, {routed:,} packets with source routes, {seconds:.0f} "
        "CPU-s of simulation: nothing lost, duplicated, corrupted or reordered",
        style="green",
        markup=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    typer.run(main)
