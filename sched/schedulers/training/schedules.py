"""What schedulers of layers in training make."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.schedule import Schedule
from ...workload.training import TrainingLayer
from ...workload.training_chain import Chain
from .orders import Order


@dataclass(frozen=True)
class GradientSchedule:
    """The schedule of a pair and what is known of it: the `order` that it took, its `nest` in words, bytes to and from
    DRAM (`spilled_bytes`: of partial sums among them), cycles in which array and vector unit of the core with the
    largest part are busy, and the `predicted` cycles of the best schedule of every order that was tried."""

    layer: TrainingLayer
    schedule: Schedule
    order: Order
    nest: str
    dram_bytes: int
    spilled_bytes: int
    array_cycles: int
    vector_cycles: int
    predicted: dict[Order, int]


@dataclass(frozen=True)
class ChainSchedule:
    """The schedule of a chain and what is known of it: its tiles in words (`nest`), bytes to and from DRAM, cycles for
    which array and vector unit of the busiest core have work."""

    chain: Chain
    schedule: Schedule
    nest: str
    dram_bytes: int
    array_cycles: int
    vector_cycles: int
