"""A small network trained with int8 passes on the RTL, beside the same training in floating point."""

from __future__ import annotations

from collections.abc import Callable

from meshloom.sched.schedulers.training.orders import Order

from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import DASH, Table, count, table
from .trainings import TrainingPoint, TrainingRow, not_learned, same_losses

STEPS = 200
#: Seeds of the first weights and of the order of examples; the first runs on the RTL.
SEEDS = (0, 1, 2, 3)
#: Steps of each order on the RTL.
ORDERED = 3
#: CPU seconds of simulating a step, at most.
MOST_SECONDS = 2.0
#: The loss is shown of every so many steps.
EVERY = 20

WHOLE = TrainingPoint(STEPS, True, SEEDS[0])
_SEEDS = tuple(TrainingPoint(STEPS, False, seed) for seed in SEEDS[1:])
_ORDERS = tuple(TrainingPoint(ORDERED, True, order=order) for order in Order)


def points(full: bool) -> list[TrainingPoint]:
    """A whole training on the RTL, a few steps with each order, and more seeds in the functional executor."""
    return [WHOLE, *_ORDERS, *(_SEEDS if full else ())]


Trained = tuple[TrainingPoint, TrainingRow]


def _some(rows: Rows, points: tuple[TrainingPoint, ...]) -> list[Trained]:
    return [(point, rows[point]) for point in points if point in rows]


def _share(value: float | None) -> str:
    return f"{value or 0:.1%}"


def accuracy(rows: Rows) -> Table:
    """Accuracy by seed."""
    columns: dict[str, Callable[[Trained], str]] = {
        "seed>": lambda each: f"{each[0].seed}",
        "computed by": lambda each: "RTL" if each[0].rtl else "functional",
        "steps>": lambda each: f"{each[1].steps}",
        "first loss>": lambda each: f"{each[1].losses[0]:.4f}",
        "last loss>": lambda each: f"{each[1].losses[-1]:.4f}",
        "test>": lambda each: _share(each[1].accuracy),
        "float test>": lambda each: _share(each[1].float_accuracy),
        "RTL cycles>": lambda each: count(each[1].rtl_cycles),
        "model cycles>": lambda each: count(each[1].model_cycles),
        "bytes compared>": lambda each: count(each[1].compared),
        "wrong>": lambda each: count(each[1].wrong),
        "CPU s a step>": lambda each: f"{each[1].step_seconds:.2f}" if each[0].rtl else DASH,
    }
    return table("Accuracy on 360 pictures that were not trained with", columns, _some(rows, (WHOLE, *_SEEDS)))


def curve(rows: Rows) -> Table:
    """The loss on the RTL."""
    losses: tuple[float, ...] = rows[WHOLE].losses if WHOLE in rows else ()
    columns: dict[str, Callable[[int], str]] = {"step>": str, "loss>": lambda step: f"{losses[step - 1]:.4f}"}
    steps = sorted({1, *range(EVERY, len(losses) + 1, EVERY), len(losses)}) if losses else []
    return table("Loss on the RTL: mean cross-entropy of a batch", columns, steps)


def orders(rows: Rows) -> Table:
    """Every order of dX and dW."""
    columns: dict[str, Callable[[Trained], str]] = {
        "order": lambda each: each[0].order.value,
        "cycles of a step>": lambda each: count(each[1].step_cycles),
        "RTL cycles>": lambda each: count(each[1].rtl_cycles),
        "model cycles>": lambda each: count(each[1].model_cycles),
        "wrong bytes>": lambda each: count(each[1].wrong),
        "last loss>": lambda each: f"{each[1].losses[-1]:.6f}",
    }
    return table(f"Orders of dX and dW: {ORDERED} steps and the test, on the RTL", columns, _some(rows, _ORDERS))


def wrong(rows: Rows) -> list[str]:
    """Wrong bytes and cycles, trainings that do not learn, orders that differ."""
    on_rtl = [("RTL", row) for _, row in _some(rows, (WHOLE,))]
    on_rtl += [(point.order.value, row) for point, row in _some(rows, _ORDERS)]
    texts = [f"{name}: {why}" for name, row in on_rtl for why in row.reasons]
    for point, row in _some(rows, (WHOLE, *_SEEDS)):
        texts += not_learned("on the RTL" if point.rtl else f"seed {point.seed}", row, STEPS)
    if not same_losses([row for _, row in _some(rows, _ORDERS)]):
        texts.append("orders do not come to the same losses")
    return texts


def _of(value: Callable[[TrainingRow], float | None]) -> Callable[[Rows], float | None]:
    return lambda rows: value(rows[WHOLE]) if WHOLE in rows else None


def _percent(part: float | None) -> float | None:
    return None if part is None else 100 * part


STUDY = Study(
    name="training",
    title="Training on the RTL",
    question="Does a network learn with int8 passes on the chip as in floating point?",
    answer="After 200 steps on the RTL it has {{ test }} of the test right, in floating point {{ float_test }}.",
    about=prose(__file__),
    points=points,
    tables=(accuracy, curve, orders),
    figures=(
        Figure("test", "test, int8 on the RTL", _of(lambda row: _percent(row.accuracy)), "{:.1f} %"),
        Figure("float_test", "test, floating point", _of(lambda row: _percent(row.float_accuracy)), "{:.1f} %"),
        Figure("compared", "bytes compared on the RTL", _of(lambda row: row.compared), "{:,.0f}"),
        Figure("wrong", "wrong bytes on the RTL", _of(lambda row: row.wrong), "{:,.0f}", Bar("exactly", 0)),
        Figure(
            "seconds",
            "CPU-seconds of simulating a step",
            _of(lambda row: row.step_seconds),
            "{:.2f}",
            Bar("at most", MOST_SECONDS),
        ),
    ),
    checks=wrong,
    paper="gradient",
)
