"""The road from names to rows of the table: schedule, lower, check, predict, simulate, compare.

Schedules are made in worker processes while the simulator is built; programs then run in as many simulator processes as
there are jobs, the longest first, and rows come out as they finish.
"""

from __future__ import annotations

import heapq
import os
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from ..hw.config import OFFSET_BITS, ChipConfig, load
from ..sched import networks
from ..sched.model.predict import prediction
from ..sched.model.timeline import Timeline, play
from ..sched.program.program import Program
from ..sched.programs import program_of
from ..sched.room import check_room
from ..sched.schedule import Schedule
from ..sched.scheduler import find as find_scheduler
from ..sched.workload.catalog import Workload, find, regression
from ..sched.workload.layers import LayerData
from . import compare, network
from .ahead.arrivals import arrivals
from .build import OUTPUT, build
from .device import Job, Run, SimulatedDevice
from .links import figures as link_figures
from .results import Event, Plan, Row, Stage
from .sources import Feed, NetworkSource, is_network, ready, regression_networks
from .workers import tell, tell_search, workers

#: A run is stopped as hung when it takes this much longer than the model says.
_PATIENCE = 4
_MARGIN = 20_000
#: Icarus simulates a few hundred cycles a second of a four-core chip; its regression is of layers up to this size.
ICARUS_MACS = 500_000


class Item(Protocol):
    """Something ready to run once: a layer, or a network with its inputs."""

    @property
    def name(self) -> str: ...

    @property
    def cycles(self) -> int:
        """What the model expects."""
        ...

    @property
    def program(self) -> Program:
        """What runs."""
        ...

    def job(self, chip: ChipConfig) -> Job:
        """What the device needs."""
        ...

    def row(self, run: Run, chip: ChipConfig) -> Row:
        """What came of it, compared with golden model and timeline."""
        ...


@dataclass(frozen=True)
class Prepared:
    """A layer ready to run: everything about it but the run."""

    workload: Workload
    schedule: Schedule
    program: Program
    timeline: Timeline

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def cycles(self) -> int:
        return self.timeline.cycles

    def job(self, chip: ChipConfig) -> Job:
        return _job(self, chip.lanes)

    def row(self, run: Run, chip: ChipConfig) -> Row:
        return _row(self, run, chip)


@dataclass(frozen=True, eq=False)
class NetworkItem:
    """A network ready to run on one input."""

    prepared: network.PreparedNetwork
    title: str
    feed: Feed
    tensors: Path | None = None

    @property
    def name(self) -> str:
        return self.title

    @property
    def cycles(self) -> int:
        return self.prepared.timeline.cycles

    @property
    def program(self) -> Program:
        return self.prepared.program

    def job(self, chip: ChipConfig) -> Job:
        return network.job(self.prepared, self.feed.arrays, chip, _PATIENCE, _MARGIN)

    def row(self, run: Run, chip: ChipConfig) -> Row:
        return network.row(self.prepared, self.title, self.feed, run, chip, self.tensors)


def prepare(workload: Workload, chip: ChipConfig, scheduler: str) -> Prepared:
    """Schedules, lowers, checks and predicts one workload. Raises what those raise on bad input."""
    make = find_scheduler(scheduler, OUTPUT / "schedules", tell=tell_search)
    check_room(workload.shape, chip)
    made = make(workload.shape, chip, workload.scale)
    program = program_of(made, chip)
    timeline = play(program, chip)
    made = made.model_copy(update={"predicted": prediction(made, program, timeline)})
    return Prepared(workload, made, program, timeline)


def _prepare_named(name: str, chip: ChipConfig, scheduler: str) -> tuple[Schedule, Program, Timeline]:
    """`prepare` in a worker process, to which a workload travels by its name."""
    ready = prepare(find(name)[0], chip, scheduler)
    return ready.schedule, ready.program, ready.timeline


def prepare_all(names: Sequence[str], chip: ChipConfig, scheduler: str, jobs: int) -> list[Prepared]:
    """`prepare` for layers by name, in `jobs` worker processes; in the order given."""
    with workers(jobs) as pool:
        futures = [pool.submit(_prepare_named, name, chip, scheduler) for name in names]
        return [Prepared(find(name)[0], *future.result()) for name, future in zip(names, futures, strict=True)]


def _prepare_network(
    source: NetworkSource, chip: ChipConfig, scheduler: str
) -> tuple[network.PreparedNetwork, list[Feed]]:
    """A network and its feeds, made in a worker process. Files are read first: a wrong one is told at once."""
    graph, found = ready(source)
    return network.prepare(graph, chip, lambda what: tell(source.title, what), scheduler, tell_search), found


def run(
    workloads: Sequence[str | NetworkSource],
    chip: str | Path,
    scheduler: str,
    simulator: str,
    waves: bool,
    jobs: int,
    on_event: Callable[[Event], None],
    links: bool = False,
) -> list[Row]:
    """Runs workloads by name ("regression" = those of `make sim`) and returns their rows in the order given.

    `links`: rows also tell of the data plane's links and the congestion (`links`, `congestion`). Every row is also
    handed to `on_event` as soon as it is there. Raises the errors of bad input before anything runs.
    """
    config = load(chip)
    asked: list[Workload | NetworkSource] = []
    for each in workloads:
        if isinstance(each, NetworkSource):
            asked.append(each)
        elif is_network(each):
            asked.append(NetworkSource(each))
        elif each == "regression":
            asked += _regression(simulator, on_event)
        else:
            asked += find(each)
    # A wrong name is told before anything is built.
    if any(isinstance(each, NetworkSource) for each in asked):
        networks.find(scheduler)
    if any(isinstance(each, Workload) for each in asked):
        find_scheduler(scheduler)
    on_event(Plan(rows=sum(_runs(each) for each in asked)))
    with workers(jobs) as pool:
        futures = [
            (each, pool.submit(_prepare_network, each, config, scheduler))
            if isinstance(each, NetworkSource)
            else (each, pool.submit(_prepare_named, each.name, config, scheduler))
            for each in asked
        ]
        # Networks are long to prepare, and easily given a wrong file: what is wrong is told before the build.
        for each, future in futures:
            if isinstance(each, NetworkSource):
                on_event(Stage(workload=each.title, what="scheduling the network"))
                pool.result(future, on_event)
        on_event(Stage(workload=config.name, what=f"building the simulator ({simulator}), unless it is cached"))
        built = build(config, simulator, waves)
        items: list[Item] = []
        for each, future in futures:
            if isinstance(each, Workload):
                on_event(Stage(workload=each.name, what="scheduling"))
            items += _items(each, pool.result(future, on_event))
    for item in items:
        on_event(Stage(workload=item.name, what="simulating"))
    return simulate(items, SimulatedDevice(built, keep=waves), scheduler, jobs, on_event, links)


def _items(
    asked: Workload | NetworkSource,
    made: tuple[Schedule, Program, Timeline] | tuple[network.PreparedNetwork, list[Feed]],
) -> Sequence[Item]:
    """What came back from a worker, ready to run: of a network, once for each of its inputs."""
    match asked, made:
        case NetworkSource(), (prepared, found):
            return [NetworkItem(prepared, asked.title, feed, asked.tensors) for feed in found]
        case Workload(), (schedule, program, timeline):
            return [Prepared(asked, schedule, program, timeline)]
        case _:
            raise AssertionError(f"{asked} came back as something else")


def _runs(asked: Workload | NetworkSource) -> int:
    return max(1, len(asked.inputs)) if isinstance(asked, NetworkSource) else 1


def simulate(
    items: Sequence[Item],
    device: SimulatedDevice,
    scheduler: str,
    jobs: int,
    on_event: Callable[[Event], None],
    links: bool = False,
) -> list[Row]:
    """Runs what is ready in `jobs` simulator processes; rows in the order of the items."""
    config = device.build.config
    rows: list[Row | None] = [None] * len(items)
    found: queue.Queue[tuple[int, Row] | BaseException | None] = queue.Queue()
    stop = threading.Event()

    def work(share: Sequence[int]) -> None:
        try:
            own = replace(device)
            batch = [items[index].job(config) for index in share]
            for index, result in zip(share, own.run(batch), strict=True):
                row = items[index].row(result, config)
                update: dict[str, object] = {} if row.network else {"scheduler": scheduler}
                if links:
                    update |= link_figures(result, items[index].program, config)
                if own.build.waves and own.last_folder is not None:
                    update["waves"] = os.path.relpath(own.last_folder / "waves.fst")
                found.put((index, row.model_copy(update=update)))
                if stop.is_set():
                    break
        except BaseException as error:  # handed to the thread that reports it
            found.put(error)
        finally:
            found.put(None)

    shares = _shares([item.cycles for item in items], jobs)
    threads = [threading.Thread(target=work, args=(share,), daemon=True) for share in shares]
    for thread in threads:
        thread.start()
    open_ends = len(threads)
    try:
        while open_ends:
            item = found.get()
            if item is None:
                open_ends -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                rows[item[0]] = item[1]
                on_event(item[1])
    finally:
        stop.set()
    return [row for row in rows if row is not None]


def _regression(simulator: str, on_event: Callable[[Event], None]) -> list[Workload | NetworkSource]:
    """Networks and layers of `make sim`; for the slow simulator, the layers that it can run in minutes."""
    layers = list(regression())
    if simulator != "icarus":
        return [*map(NetworkSource, regression_networks()), *layers]
    small = [layer for layer in layers if layer.shape.macs <= ICARUS_MACS]
    what = f"{simulator} is slow: {len(small)} of {len(layers)} layers, up to {ICARUS_MACS:,} MACs; others by name"
    on_event(Stage(workload="regression", what=what))
    return list(small)


def _shares(costs: Sequence[int], count: int) -> list[list[int]]:
    """Indices for `count` processes, the longest first, each to the one with the least to do."""
    heap = [(0, number) for number in range(min(count, len(costs)))]
    shares: list[list[int]] = [[] for _ in heap]
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        load, number = heapq.heappop(heap)
        shares[number].append(index)
        heapq.heappush(heap, (load + costs[index] + 2000, number))
    return shares


def arrays(data: LayerData) -> dict[str, np.ndarray]:
    """The arrays of a single layer by the names that its tensors have."""
    return {"x": data.x, "w": data.w, "bias": data.bias}


def _job(prepared: Prepared, lanes: int) -> Job:
    """What the device needs: packed tensors, where outputs are, and when to give up."""
    given = arrays(prepared.workload.data())
    memory, outputs = [], []
    for tensor in prepared.schedule.tensors:
        packed = None if tensor.role == "output" else tensor.layout.pack(given[tensor.name], lanes)
        for piece in tensor.pieces:
            offset = piece.address & ((1 << OFFSET_BITS) - 1)
            if packed is None:
                outputs.append((piece.tile, offset, piece.words))
            else:
                memory.append((piece.tile, offset, packed[piece.first : piece.first + piece.words]))
    return Job(prepared.program, memory, outputs, _PATIENCE * prepared.timeline.cycles + _MARGIN)


def _row(prepared: Prepared, run: Run, chip: ChipConfig) -> Row:
    """Compares a run with the golden model, byte by byte, and with the timeline, instruction by instruction."""
    from .golden import golden

    workload, schedule, program = prepared.workload, prepared.schedule, prepared.program
    shape = workload.shape
    pairs = compare.pair(run.records, prepared.timeline.executed, program)
    checked = wrong = 0
    if run.fault is None:
        tensor = schedule.tensor("y")
        # whole words are compared: the lanes that hold no channel must be zero
        expected = tensor.layout.pack(golden(workload.data()), chip.lanes)
        got = np.concatenate(run.memory)
        checked, wrong = int(expected.size), int(np.count_nonzero(expected != got))
    faults = compare.fault_reports(run, program, schedule, chip)
    peak = chip.rows * chip.cols * len(chip.cores) * max(1, run.cycles)
    return Row(
        workload=workload.name,
        chip=chip.name,
        scheduler=schedule.scheduler,
        simulator=run.simulator,
        rtl_cycles=run.cycles,
        model_cycles=prepared.timeline.cycles,
        utilisation=min(1.0, shape.macs / peak),
        bytes_checked=checked,
        mismatches=wrong,
        faults=len(faults),
        fault_reports=faults,
        instructions=program.instructions,
        cpu_seconds=run.cpu_seconds,
        **arrivals(program, run, chip),
        first_divergence=compare.first_divergence(pairs, schedule, program.operation_of_tag, program),
    )
