"""Pairs of gradients in every order, as the tables of `gradient` need them: in the model, and on the RTL.

Each result is kept under all that decides it, so whoever is interrupted goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter

from meshloom.hw.config import ChipConfig, load
from meshloom.sched.mapping.problem import DoesNotFit
from meshloom.sched.schedulers.gradient.orders import Order
from meshloom.sched.schedulers.gradient.scheduler import schedule
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.training import TrainingLayer, find, setting_of

from ..build.builder import ingredients
from ..results.events import OnEvent, Stage
from ..results.schema import Status
from ..runs.runner import run as run_workloads

CHIP, DEVICE = "edge45", "verilator"
_MADE_BY = ("sched.schedulers.gradient.entry", "sched.lowering.programs", "sched.model.timeline")


@dataclass(frozen=True)
class Taken:
    """What a layer's pair takes in one order: predicted `cycles`; bytes to and from DRAM, those of partial sums among
    them. `trouble`: why there is none."""

    cycles: int = 0
    dram_bytes: int = 0
    spilled_bytes: int = 0
    trouble: str = ""


@dataclass(frozen=True)
class Ran:
    """The best order of a pair on the RTL: cycles there and in the model, bytes compared and wrong."""

    order: str
    rtl_cycles: int
    model_cycles: int
    compared: int
    wrong: int
    trouble: str = ""


_TAKEN, _RAN = TypeAdapter(dict[str, Taken]), TypeAdapter(Ran)


def chip(bytes_per_cycle: int | None = None) -> ChipConfig:
    """The edge chip, or the same with other bytes of DRAM a cycle."""
    config = load(CHIP)
    if bytes_per_cycle is None:
        return config
    values = config.model_dump()
    values["dram"]["bytes_per_cycle"] = bytes_per_cycle
    return ChipConfig.model_validate(values)


def layers(network: str, batch: int | None = None) -> tuple[TrainingLayer, ...]:
    """The layers of a network that a benchmark trains. `batch`: None for the chip's."""
    return find(f"gradient:{network}" + (f",b{batch}" if batch else ""), setting_of(load(CHIP)))


def taken(layer: TrainingLayer, config: ChipConfig) -> dict[Order, Taken] | None:
    """What is kept of a layer: by order, of a first layer `sequential` alone."""
    found = _memory(config).get(layer.name, _TAKEN)
    return None if found is None else {Order(name): one for name, one in found.items()}


def _memory(config: ChipConfig) -> SearchCache:
    return SearchCache(SCHEDULES.folder(), config, "gradients", *_MADE_BY)


def measure(layer: TrainingLayer, config: ChipConfig, on_progress: OnEvent) -> dict[Order, Taken]:
    """What a layer takes in each order, in the model; searched unless it is kept."""
    known = taken(layer, config)
    if known is not None:
        return known
    found: dict[Order, Taken] = {}
    for order in (Order.SEQUENTIAL,) if layer.first else tuple(Order):
        on_progress(Stage(workload=layer.name, what=f"{config.dram.bytes_per_cycle} bytes a cycle, {order}"))
        try:
            made = schedule(layer, config, (order,))
        except DoesNotFit as error:
            found[order] = Taken(trouble=str(error))
        else:
            found[order] = Taken(made.predicted[order], made.dram_bytes, made.spilled_bytes)
    _memory(config).put(layer.name, _TAKEN, {order.value: one for order, one in found.items()})
    return found


def ran(layer: TrainingLayer) -> Ran | None:
    """What is kept of a layer's run on the RTL."""
    return _rtl_memory().get(layer.name, _RAN)


def _rtl_memory() -> SearchCache:
    config = load(CHIP)
    said = ", ".join(f"{name} {value}" for name, value in sorted(ingredients(config, DEVICE, waves=False).items()))
    return SearchCache(SCHEDULES.folder(), config, f"gradients on {said}", *_MADE_BY)


def run_on_rtl(some: list[TrainingLayer], on_progress: OnEvent) -> None:
    """Runs the best order of each layer on the RTL, those that are not kept, one by one."""
    for layer in some:
        if ran(layer) is not None:
            continue
        (row,) = run_workloads([layer.name], CHIP, "gradient", on_progress)
        trouble = "" if row.status is Status.PASSED else f"{row.status}: {row.reason}"
        order = row.gradient.order if row.gradient else ""
        one = Ran(order, row.rtl_cycles, row.model_cycles, row.bytes_checked, row.mismatches, trouble)
        _rtl_memory().put(layer.name, _RAN, one)
