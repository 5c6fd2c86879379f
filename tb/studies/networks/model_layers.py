"""Random layers of the study `models`: drawn, scheduled, counted by every form, played by the timeline model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.lowering.programs import planned
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.schedulers.loop_order.scheduler import search
from meshloom.sched.workload.catalog import find

from ...compare.attribution import spent_by_layer
from ...compare.causes import Causes
from ...compare.records import locate, operations
from ...results.legend import CycleCause
from .closed_forms import FORMS, CountedCase, roofline

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


def counted(chip: ChipConfig, number: int) -> tuple[Layer, ...]:
    """A chunk, by every form and in the timeline model; layers that do not fit the chip are left out."""
    layers: list[Layer] = []
    for name in names(chip, number):
        try:
            layers.append(count(name, chip))
        except DoesNotFit:
            continue
    return tuple(layers)


def count(name: str, chip: ChipConfig) -> Layer:
    """A layer by every form and in the model. Raises DoesNotFit."""
    workload = find(name)[0]
    best = search(workload.shape, chip, workload.scale, effort=EFFORT).ranked[0]
    assert best.schedule is not None
    plan = planned(best.schedule, chip)
    case = CountedCase(workload.shape, chip, plan.schedule, best.closed_form)
    causes = Causes(plan.program, locate(plan.timeline.executed, plan.program), chip)
    number = operations(plan.program, plan.schedule)
    cycles, macs = plan.timeline.cycles, {name: workload.shape.macs}
    spent = spent_by_layer(causes, lambda place: number[place[:3]], plan.schedule, cycles, lambda _: name, macs)[name]
    pes = chip.rows * chip.cols * len(chip.cores)
    groups = {group: sum(spent[cause] for cause in those) / pes for group, those in GROUPS.items()}
    return Layer(name, cycles, {form.name: form.count(case) for form in FORMS}, groups)
