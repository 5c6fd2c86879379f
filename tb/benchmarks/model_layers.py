"""Random layers for `bench models`: drawn, scheduled, counted by every form, played by the timeline model, and some of
them run on the RTL. What is known of a chunk of them is kept, so that an interrupted run goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.lowering.programs import planned
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.schedulers.loop_order.scheduler import search
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.catalog import find

from ..build.builder import ingredients
from ..compare.attribution import spent_by_layer
from ..compare.causes import Causes
from ..compare.records import locate, operations
from ..results.events import OnEvent, Stage
from ..results.legend import CycleCause
from ..runs.options import RunOptions
from ..runs.runner import run as run_workloads
from .closed_forms import FORMS, Case, roofline
from .interface import BenchmarkError

#: What the layers are drawn with, and how many belong to a chunk.
SEED, CHUNK = 18, 50
#: Of the scheduler, so that it takes a quarter of a second: which of its schedules runs is not what is judged here.
EFFORT = 0.1
#: Cycles of a layer by the roofline, at least and at most.
SHORTEST, LONGEST = 50, 12_000
#: Causes of the waterfall that are one to a closed form.
GROUPS: dict[str, tuple[CycleCause, ...]] = {
    "padding": (CycleCause.ROWS, CycleCause.CHANNELS),
    "pipeline": (CycleCause.PIPELINE, CycleCause.RESULTS, CycleCause.DEPENDENCE, CycleCause.VECTOR),
    "dram": (CycleCause.DRAM, CycleCause.DRAM_QUEUE),
    "network": (CycleCause.PORT, CycleCause.NOC),
    "program": (CycleCause.START, CycleCause.FETCH),
    "imbalance": (CycleCause.IMBALANCE,),
    "end": (CycleCause.END,),
}


@dataclass(frozen=True)
class Layer:
    """A layer and its cycles: of the timeline model, by each form, and of the model's by group of causes (the rest is
    useful)."""

    name: str
    cycles: int
    counted: dict[str, float]
    causes: dict[str, float]


_LAYERS, _CYCLES = TypeAdapter(list[Layer]), TypeAdapter(list[int])


def drawn(chip: ChipConfig) -> Iterator[str]:
    """Names of layers, none twice, without end: half of them matrix products, half convolutions, sizes with evenly
    distributed logarithms, of a length within the bounds."""
    random, seen = Random(f"{SEED} {chip.name}"), set[str]()

    def size(low: int, high: int) -> int:
        return round(low * (high / low) ** random.random())

    while True:
        if random.random() < 0.5:
            name = f"gemm:{size(1, 512)}x{size(4, 1024)}x{size(4, 512)}"
        else:
            kernel = random.choice((1, 3, 5))
            side, stride = size(max(4, kernel), 56), random.choice((1, 1, 2))
            padding = random.choice((0, kernel // 2))
            name = f"conv:{side}x{side}x{size(3, 256)}-{size(4, 256)},k{kernel},s{stride},p{padding}"
        layer = find(name)[0]
        if layer.name not in seen and SHORTEST <= roofline(layer.shape, chip) <= LONGEST:
            seen.add(layer.name)
            yield layer.name


def names(chip: ChipConfig, number: int) -> list[str]:
    """Those of a chunk."""
    return list(islice(drawn(chip), number * CHUNK, (number + 1) * CHUNK))


def _memory(chip: ChipConfig) -> SearchCache:
    """Where chunks are kept. Raises SettingError."""
    return SearchCache(SCHEDULES.folder(), chip, "models of layers", __name__.partition(".")[2])


def counted(chip_name: str, number: int) -> list[Layer]:
    """A chunk, by every form and in the timeline model; layers that do not fit the chip are left out. In a worker
    process."""
    chip = load(chip_name)
    memory, asked = _memory(chip), ("counted", number)
    if (kept := memory.get(asked, _LAYERS)) is not None:
        return kept
    found: list[Layer] = []
    for name in names(chip, number):
        try:
            found.append(_layer(name, chip))
        except DoesNotFit:
            continue
    memory.put(asked, _LAYERS, found)
    return found


def _layer(name: str, chip: ChipConfig) -> Layer:
    """Raises DoesNotFit."""
    workload = find(name)[0]
    best = search(workload.shape, chip, workload.scale, effort=EFFORT).ranked[0]
    assert best.schedule is not None
    made = planned(best.schedule, chip)
    case = Case(workload.shape, chip, made.schedule, best.closed_form)
    causes = Causes(made.program, locate(made.timeline.executed, made.program), chip)
    number = operations(made.program, made.schedule)
    cycles, macs = made.timeline.cycles, {name: workload.shape.macs}
    spent = spent_by_layer(causes, lambda place: number[place[:3]], made.schedule, cycles, lambda _: name, macs)[name]
    pes = chip.rows * chip.cols * len(chip.cores)
    groups = {group: sum(spent[cause] for cause in those) / pes for group, those in GROUPS.items()}
    return Layer(name, cycles, {form.name: form.count(case) for form in FORMS}, groups)


def on_rtl(chip_name: str, number: int, layers: Sequence[Layer], jobs: int, on_progress: OnEvent) -> list[int]:
    """Cycles of a chunk's layers on the RTL, every byte of which was right. Raises BenchmarkError if one was not."""
    chip = load(chip_name)
    gateware = ingredients(chip, "verilator", False)["sources"]
    memory, asked = _memory(chip), ("on the RTL", number, gateware)
    if (kept := memory.get(asked, _CYCLES)) is not None:
        return kept

    def told(event: object) -> None:
        if isinstance(event, Stage):
            on_progress(event)

    rows = run_workloads(
        [each.name for each in layers], chip, f"loop_order:effort={EFFORT}", told, RunOptions(jobs=jobs)
    )
    for row in rows:
        if not row.rtl_cycles or row.mismatches or not row.bytes_checked:
            raise BenchmarkError(f"{chip_name}: {row.workload}: {row.reason}")
    found = [row.rtl_cycles for row in rows]
    memory.put(asked, _CYCLES, found)
    return found
