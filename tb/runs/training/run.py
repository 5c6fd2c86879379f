"""A training from its name to its results: compiled once, gone on with where it stopped, tested at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.schedulers.training.across import Across, named
from meshloom.sched.schedulers.training.orders import Order
from meshloom.sched.schedulers.training.step import TrainingStep, training_step
from meshloom.sched.workload import trainable
from meshloom.sched.workload.training_examples import Examples

from ...devices.registry import find as find_device
from ...results.identity import code
from ...results.recorder import environment
from ...results.training import TrainingResults
from . import reference
from .machine import Functional, Machine, on_device
from .numbers import Update
from .state import State, begun, load, save
from .trainer import Rates, Trainer

OnProgress = Callable[[str], None]


@dataclass(frozen=True)
class Training:
    """What is to be trained, and how. `device`: None for the timeline model and the functional executor; `keep`: the
    checkpoint, which is gone on from if it is there, unless `fresh`."""

    network: str
    chip: ChipConfig
    steps: int
    keep: Path
    batch: int = 64
    order: Order = Order.SEQUENTIAL
    across: frozenset[Across] = frozenset()
    device: str | None = "verilator"
    rates: Rates = field(default_factory=Rates)
    seed: int = 0
    fresh: bool = False

    def setting(self) -> dict[str, str | int | float]:
        """What decides the weights after a number of steps, and so belongs to a checkpoint; chips, orders
        and what is done across layers do not, but cycles and bytes are summed up for one of each, and one device."""
        return {
            "network": self.network, "chip": self.chip.name, "chip_digest": self.chip.digest, "order": self.order.value,
            "across": named(self.across), "device": self.device or "model", "batch": self.batch, "seed": self.seed,
            "learning_rate": self.rates.learning, "momentum": self.rates.momentum, "update": self.rates.update.value,
        }  # fmt: skip


def train(
    training: Training,
    on_progress: OnProgress = lambda what: None,
    on_begin: Callable[[State], None] = lambda state: None,
    on_step: Callable[[State], None] = lambda state: None,
) -> TrainingResults:
    """Trains and tests. `on_begin` is called with the state that training goes on from. After each step the checkpoint
    is written, then `on_step` called; an interrupted training goes on to the same bits.

    Raises WorkloadError, DoesNotFit, CheckpointError, OSError before anything runs; GoldenError, and what the device
    raises.
    """
    started = datetime.now(UTC)
    net, examples = trainable.load(training.network)
    examples.batch(0, training.batch, training.seed)  # a batch that is too large is reported at once
    there = training.keep.exists() and not training.fresh
    state = load(training.keep, net, training.setting()) if there else begun(net, training.seed)
    update = training.rates.update is Update.CHIP
    step = training_step(net, training.chip, training.batch, training.order, on_progress, training.across, update)
    kind = None if training.device is None else find_device(training.device)
    with contextlib.ExitStack() as stack:
        machine: Machine = Functional(training.chip)
        if kind is not None:
            machine = stack.enter_context(on_device(kind.open(training.chip, False, on_progress)))
        trainer = Trainer(step, examples, machine, state, training.rates, training.seed)

        def after_step(now: State) -> None:
            save(now, training.keep, training.setting())
            on_step(now)

        on_begin(state)
        trainer.train(training.steps, after_step)
        on_progress("testing")
        accuracy = trainer.accuracy() if not state.totals.mismatches else None
    on_progress("the same training in floating point")
    return TrainingResults(  # a field a line makes this function long
        started=started,
        environment=environment(kind.tools() if kind else {}),
        code=code(),
        network=net.name,
        chip=training.chip.name,
        chip_digest=training.chip.digest,
        order=training.order.value,
        across=named(training.across),
        update=training.rates.update.value,
        simulator=training.device or "",
        batch=training.batch,
        seed=training.seed,
        learning_rate=training.rates.learning,
        momentum=training.rates.momentum,
        complete=state.step >= training.steps,
        steps=state.step,
        losses=tuple(round(loss, 6) for loss in state.losses),
        accuracy=accuracy,
        float_accuracy=_float_accuracy(step, examples, training, state.step) if accuracy is not None else None,
        step_cycles=step.cycles,
        rtl_cycles=state.totals.rtl_cycles if kind else None,
        model_cycles=state.totals.model_cycles,
        bytes_checked=state.totals.bytes_checked,
        mismatches=state.totals.mismatches,
        first_mismatch=trainer.first_mismatch,
        divergences=state.totals.divergences,
        first_divergence=trainer.first_divergence,
        cpu_seconds=state.cpu_seconds,
        clock_mhz=training.chip.clock_mhz,
        checkpoint=training.keep.as_posix(),
    )


def _float_accuracy(step: TrainingStep, examples: Examples, training: Training, steps: int) -> float:
    """Of the same training in floating point."""

    def batch(number: int) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
        chosen = examples.batch(number, training.batch, training.seed)
        return examples.x[chosen], examples.labels[chosen]

    from threadpoolctl import threadpool_limits

    momentum = training.rates.momentum if training.rates.update is Update.DOUBLE else 0.0
    rates = training.rates.learning, momentum
    with threadpool_limits(1):
        weights = reference.trained(
            step.net, begun(step.net, training.seed).weights, batch, steps, rates, examples.step
        )
        return reference.accuracy(step.net, weights, examples)
