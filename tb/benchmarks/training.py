"""A small network trained with int8 passes on the RTL, beside the same training in floating point."""

from __future__ import annotations

import tempfile
from pathlib import Path

from meshloom.hw.spec.config import load
from meshloom.sched.schedulers.training.orders import Order

from ..results.events import OnEvent, Stage
from ..results.training import TrainingResults
from ..runs.training.run import Training, train
from .results import Result, Sheet

NETWORK, CHIP, STEPS = "digits", "quad16", 200
#: Seeds of the first weights and of the order of examples.
SEEDS = (0, 1, 2, 3)
#: Steps of each order on the RTL.
ORDERED = 3
#: Bars: CPU seconds of simulating a step; points of accuracy below floating point.
MOST_SECONDS, MOST_POINTS = 2.0, 2.0
#: The loss is shown of every so many steps.
EVERY = 20


def run(on_progress: OnEvent) -> Result:
    """Trains on the RTL once, a few steps with each order, and with more seeds in the functional executor."""
    chip = load(CHIP)

    def trained(steps: int, device: str | None, **more: Order | int) -> TrainingResults:
        what = f"{'RTL' if device else 'model'}, {steps} steps, " + ", ".join(f"{k} {v}" for k, v in more.items())
        on_progress(Stage(workload=NETWORK, what=what))
        with tempfile.TemporaryDirectory() as folder:
            asked = Training(NETWORK, chip, steps, Path(folder) / "checkpoint.npz", device=device, **more)  # pyright: ignore[reportArgumentType]  (order or seed)
            return train(asked)

    whole = trained(STEPS, "verilator", seed=SEEDS[0])
    seeds = {seed: trained(STEPS, None, seed=seed) for seed in SEEDS[1:]}
    orders = {order: trained(ORDERED, "verilator", order=order) for order in Order}
    failures = [f"{name}: {why}" for name, found in (("RTL", whole), *orders.items()) for why in found.reasons]
    failures += _learning(whole, "on the RTL", STEPS)
    failures += [miss for seed, found in seeds.items() for miss in _learning(found, f"seed {seed}", STEPS)]
    seconds = whole.cpu_seconds / whole.steps
    if seconds > MOST_SECONDS:
        failures.append(f"a step takes {seconds:.2f} CPU-seconds, the bar is {MOST_SECONDS:g}")
    if len({found.losses for found in orders.values()}) != 1:
        failures.append("orders do not come to the same losses")
    return Result(
        "training",
        "Training on the RTL",
        f"Network {NETWORK} on {CHIP}, batches of {whole.batch}, stochastic gradient descent with momentum "
        f"{whole.momentum:g} and learning rate {whole.learning_rate:g}: both passes int8 on the chip, loss and update "
        "on the host in double. Every byte of every tensor of every step is compared with ONNX Runtime's integer "
        "products (gradients as unfolded products, which the chip does not compute that way), every instruction's "
        "cycles with the model's. Floating point: the same network, first weights, batches and rates. Bars: no wrong "
        f"byte or cycle, the loss falls to a fifth, test accuracy at most {MOST_POINTS:g} points below floating point, "
        f"{MOST_SECONDS:g} CPU-seconds of simulating a step.",
        (_accuracy({SEEDS[0]: whole} | seeds), _curve(whole), _orders(orders)),
        (
            "On a network as small as this one the loops over tiles have a trip or two each, so that the orders differ "
            "in little; [gradient layers of real networks](../architecture.md#gradients) are where they matter.",
        ),
        tuple(failures),
    )


def _learning(found: TrainingResults, name: str, steps: int) -> list[str]:
    """The bars that a training missed."""
    missed: list[str] = []
    if found.steps != steps or not found.losses or found.losses[-1] > found.losses[0] / 5:
        missed.append(f"{name}: the loss goes from {found.loss_first} to {found.loss_last}")
    if found.accuracy is None or found.float_accuracy is None:
        missed.append(f"{name}: was not tested")
    elif 100 * (found.float_accuracy - found.accuracy) > MOST_POINTS:
        missed.append(f"{name}: {found.accuracy:.1%} of the test, in floating point {found.float_accuracy:.1%}")
    return missed


def _accuracy(by_seed: dict[int, TrainingResults]) -> Sheet:
    rows = [
        (
            str(seed), "RTL" if found.rtl_cycles is not None else "functional", str(found.steps),
            f"{found.loss_first:.4f}", f"{found.loss_last:.4f}", f"{found.accuracy or 0:.1%}",
            f"{found.float_accuracy or 0:.1%}", _number(found.rtl_cycles), f"{found.model_cycles:,}",
            f"{found.bytes_checked:,}", str(found.mismatches),
            f"{found.cpu_seconds / found.steps:.2f}" if found.rtl_cycles is not None else "-",
        )
        for seed, found in by_seed.items()
    ]  # fmt: skip
    columns = (
        "seed>", "computed by", "steps>", "first loss>", "last loss>", "test>", "float test>", "RTL cycles>",
        "model cycles>", "bytes compared>", "wrong>", "CPU s a step>",
    )  # fmt: skip
    return Sheet("Accuracy on 360 pictures that were not trained with", columns, rows)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _curve(found: TrainingResults) -> Sheet:
    shown = sorted({1, *range(EVERY, found.steps + 1, EVERY), found.steps})
    rows = [(str(step), f"{found.losses[step - 1]:.4f}") for step in shown]
    return Sheet("Loss on the RTL: mean cross-entropy of a batch", ("step>", "loss>"), rows)


def _orders(found: dict[Order, TrainingResults]) -> Sheet:
    rows = [
        (order.value, f"{one.step_cycles:,}", _number(one.rtl_cycles), f"{one.model_cycles:,}", str(one.mismatches),
         f"{one.loss_last:.6f}")
        for order, one in found.items()
    ]  # fmt: skip
    columns = ("order", "cycles of a step>", "RTL cycles>", "model cycles>", "wrong bytes>", "last loss>")
    return Sheet(f"Orders of dX and dW: {ORDERED} steps and the test, on the RTL", columns, rows)
