"""Trainings of a small network with int8 passes, on the RTL or by the functional executor."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.ir.schedule import Move
from meshloom.sched.schedulers.training.across import Across, named
from meshloom.sched.schedulers.training.orders import Order
from meshloom.sched.schedulers.training.step import training_step
from meshloom.sched.workload import trainable

from ...runs.training.numbers import Update
from ...runs.training.run import Training, train
from ...runs.training.trainer import Rates
from ..engine.point import Inputs, Point, Report
from ..points.runs import DEVICE, gateware

#: What is trained, and where.
NETWORK, CHIP, BATCH = "digits", "quad16", 64
#: Bars: the last loss of the first; points of accuracy below floating point.
FALLS_TO, MOST_POINTS = 1 / 5, 2.0


@dataclass(frozen=True)
class TrainingRow:
    """What a training comes to, as in `TrainingResults`. `dram_bytes`: that a step moves; `reasons`: what is wrong."""

    steps: int
    losses: tuple[float, ...]
    accuracy: float | None
    float_accuracy: float | None
    step_cycles: int
    rtl_cycles: int | None
    model_cycles: int
    compared: int
    wrong: int
    seconds: float
    dram_bytes: int
    reasons: tuple[str, ...] = ()

    @property
    def step_seconds(self) -> float:
        """CPU-seconds of simulating a step."""
        return self.seconds / max(1, self.steps)


@dataclass(frozen=True)
class TrainingPoint(Point):
    """So many steps and the test. `rtl`: by the functional executor otherwise; `weights`: who keeps them."""

    steps: int
    rtl: bool
    seed: int = 0
    order: Order = Order.SEQUENTIAL
    across: tuple[Across, ...] = ()
    weights: Update = Update.DOUBLE
    rate: float = 0.05
    momentum: float = 0.9
    row: ClassVar[Any] = TrainingRow

    @property
    def words(self) -> tuple[str, str, str]:
        """Order, what is done across layers, who keeps the weights."""
        return self.order.value, named(frozenset(self.across)), self.weights.value

    @property
    def name(self) -> str:
        return f"{self.steps} steps of {', '.join(self.words)}, seed {self.seed}, rate {self.rate:g}"

    @property
    def work(self) -> float:
        return 10 + self.steps / 4

    def inputs(self) -> Inputs:
        more = (("gateware", gateware()),) * self.rtl
        modules = "tb.runs.training.run", "sched.lowering.programs", "sched.model.timeline"
        return Inputs(modules, (("chip", load(CHIP).digest), *more))

    def measure(self, report: Report) -> TrainingRow:
        chip, rates = load(CHIP), Rates(self.rate, self.momentum, self.weights)
        with tempfile.TemporaryDirectory() as folder:
            training = Training(
                NETWORK, chip, self.steps, Path(folder) / "checkpoint.npz", BATCH, self.order, frozenset(self.across),
                DEVICE if self.rtl else None, rates, self.seed,
            )  # fmt: skip
            results = train(training, report)
        return TrainingRow(
            results.steps, results.losses, results.accuracy, results.float_accuracy, results.step_cycles,
            results.rtl_cycles, results.model_cycles, results.bytes_checked, results.mismatches, results.cpu_seconds,
            self._step_bytes(chip), results.reasons,
        )  # fmt: skip

    def _step_bytes(self, chip: ChipConfig) -> int:
        """Bytes of DRAM that a step moves."""
        net, updates = trainable.load(NETWORK)[0], self.weights is Update.CHIP
        step = training_step(net, chip, BATCH, self.order, across=frozenset(self.across), update=updates)
        drams = set(chip.drams)
        operations = [one for half in (step.forward, step.backward) for one in half.schedule.operations]
        moved = (one for one in operations if isinstance(one, Move) and {one.src.tile, one.dst.tile} & drams)
        return sum(one.words for one in moved) * chip.lanes


def not_learned(name: str, row: TrainingRow, steps: int) -> list[str]:
    """The bars of learning that a training missed."""
    texts: list[str] = []
    if row.steps != steps or not row.losses or row.losses[-1] > row.losses[0] * FALLS_TO:
        first, last = (row.losses[0], row.losses[-1]) if row.losses else (None, None)
        texts.append(f"{name}: the loss goes from {first} to {last}")
    if row.accuracy is None or row.float_accuracy is None:
        texts.append(f"{name}: was not tested")
    elif 100 * (row.float_accuracy - row.accuracy) > MOST_POINTS:
        texts.append(f"{name}: {row.accuracy:.1%} of the test, in floating point {row.float_accuracy:.1%}")
    return texts


def same_losses(rows: Sequence[TrainingRow]) -> bool:
    """Whether all come to the same bits."""
    return len({row.losses for row in rows}) <= 1
