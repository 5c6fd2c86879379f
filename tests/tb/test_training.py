"""Training: right bytes on every chip, the same weights with every order, checkpoints, and the host's arithmetic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.schedulers.training.across import Across
from meshloom.sched.schedulers.training.orders import Order
from meshloom.sched.schedulers.training.step import Half, training_step
from meshloom.sched.workload import trainable
from meshloom.sched.workload.graph import Graph, Layer, Value, Window
from meshloom.sched.workload.training_examples import Examples
from meshloom.sched.workload.training_net import TrainingNet, training_net
from meshloom.tb.build.builder import build
from meshloom.tb.cli.main import app
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.inputs.golden import training as golden
from meshloom.tb.results.training import TrainingResults
from meshloom.tb.runs.training import numbers
from meshloom.tb.runs.training.machine import Functional, Machine, Outcome, on_device
from meshloom.tb.runs.training.run import Training, train
from meshloom.tb.runs.training.state import CheckpointError, State, begun
from meshloom.tb.runs.training.state import load as load_state
from meshloom.tb.runs.training.state import save as save_state
from meshloom.tb.runs.training.trainer import Rates, Trainer

from ..tiers import slow_but

SETTING: dict[str, str | int | float] = {"batch": 6}


def _trainer(
    chip: str, batch: int, order: Order = Order.SEQUENTIAL, machine: Machine | None = None,
    of: tuple[TrainingNet, Examples] | None = None, state: State | None = None,
    across: frozenset[Across] = frozenset(), rates: Rates | None = None,
) -> Trainer:  # fmt: skip
    net, examples = of or trainable.load("digits")
    config = load(chip)
    update = rates is not None and rates.update is numbers.Update.CHIP
    step = training_step(net, config, batch, order, across=across, update=update)
    return Trainer(step, examples, machine or Functional(config), state or begun(net, 3), rates or Rates(), seed=1)


def _train(trainer: Trainer, steps: int) -> State:
    trainer.train(steps, lambda state: None)
    return trainer.state


def _equal(left: State, right: State) -> bool:
    return all(
        np.array_equal(one[name], other[name])
        for one, other in ((left.weights, right.weights), (left.velocity, right.velocity))
        for name in one
    ) and (left.losses, left.exponents, left.step) == (right.losses, right.exponents, right.step)


def _deep() -> tuple[TrainingNet, Examples]:
    """A stride and an odd padding in the first layer, a layer without a pool, a pool of 3, a hidden fully connected
    layer with more channels than a word."""
    rng = np.random.default_rng(0)

    def conv(output: str, source: str, shape: tuple[int, ...], window: Window, relu: bool = True) -> Layer:
        w, bias = np.zeros(shape, np.int8), np.zeros(shape[0], np.int32)
        return Layer("conv", output, (source,), window, relu=relu, scale=1, w=w, bias=bias)

    layers = (
        conv("a", "x", (5, 3, 3, 3), Window(3, 3, 2, 2, 1, 0, 0, 1)),
        conv("b", "a", (9, 5, 2, 2), Window(2, 2, 1, 1, 1, 0, 0, 1)),
        Layer("max_pool", "c", ("b",), Window(3, 3, 3, 3)),
        conv("d", "c", (19, 9, 2, 2), Window(2, 2)),
        conv("e", "d", (4, 19, 1, 1), Window(), relu=False),
    )
    net = training_net(Graph("deep", (Value("x", 3, 12, 12, 1 / 64),), layers, ("e",)))
    x = rng.integers(-60, 61, (30, 3, 12, 12)).astype(np.int8)
    labels = rng.integers(0, 4, 30)
    return net, Examples(x, labels, x[:7], labels[:7], 1 / 64)


@pytest.mark.parametrize("chip", slow_but(("quad16", "mono16", "edge45", "arch5"), "quad16"))
def test_every_byte_of_two_steps_is_right(chip: str) -> None:
    state = _train(_trainer(chip, 6), 2)
    assert state.totals.bytes_checked > 100_000
    assert (state.totals.mismatches, state.step) == (0, 2)


@pytest.mark.parametrize("order", slow_but(Order, Order.PLAIN))
def test_every_order_gives_the_same_weights(order: Order) -> None:
    usual, other = _trainer("quad8", 5, of=_deep()), _trainer("quad8", 5, order, of=_deep())
    assert _equal(_train(usual, 2), _train(other, 2))
    assert other.state.totals.mismatches == 0
    assert usual.step.backward.schedule.operations != other.step.backward.schedule.operations or (
        order is Order.SEQUENTIAL
    )


@pytest.mark.parametrize(
    "across", slow_but([*map(frozenset, combinations(Across, 1)), frozenset(Across)], frozenset(Across))
)
def test_what_is_done_across_layers_changes_no_weight(across: frozenset[Across]) -> None:
    usual, other = _trainer("quad8", 5, of=_deep()), _trainer("quad8", 5, of=_deep(), across=across)
    assert _equal(_train(usual, 2), _train(other, 2))
    assert other.state.totals.mismatches == 0
    assert other.step.cycles < usual.step.cycles
    stored = {tensor.name for tensor in other.step.backward.schedule.tensors if tensor.name.startswith("g:")}
    assert not stored if Across.KEEP in across else stored


@pytest.mark.parametrize(("chip", "batch"), [("quad8", 19), pytest.param("mono16", 12, marks=pytest.mark.slow)])
def test_the_chip_updates_as_the_host_would(chip: str, batch: int) -> None:
    rates = Rates(0.5, 0.0, numbers.Update.CHIP)
    on_chip = _trainer(chip, batch, of=_deep(), across=frozenset(Across), rates=rates)
    assert not any(tensor.name.startswith("dw:") for tensor in on_chip.step.backward.schedule.tensors)
    host = _trainer(chip, batch, of=_deep(), rates=replace(rates, update=numbers.Update.INT8))
    before = {name: w.copy() for name, w in host.state.weights.items()}
    assert _equal(_train(host, 2), _train(on_chip, 2))
    assert on_chip.state.totals.mismatches == 0
    assert all((w != before[name]).any() for name, w in on_chip.state.weights.items())


def test_a_batch_that_one_core_cannot_add_up_is_refused() -> None:
    """Where the chip updates, a gradient is added up over the whole batch before it leaves the core."""
    with pytest.raises(DoesNotFit, match=r"^a batch of 19 of deep does not fit mono16: A of .* take a smaller batch"):
        _trainer("mono16", 19, of=_deep(), rates=Rates(0.5, 0.0, numbers.Update.CHIP))


def test_weights_in_int8_are_those_of_the_chip_and_go_on_to_the_same_bits(tmp_path: Path) -> None:
    rates, path = Rates(0.5, 0.9, numbers.Update.CHIP), tmp_path / "c.npz"
    whole = _train(_trainer("quad16", 6, rates=rates, across=frozenset(Across)), 3)
    for w in whole.weights.values():
        assert np.unique(np.ldexp(w, -numbers.exponent_of(w)) % 1).tolist() == [0.0]
    first = _train(_trainer("quad16", 6, rates=rates), 1)
    save_state(first, path, SETTING)
    there = load_state(path, trainable.load("digits")[0], SETTING)
    assert _equal(whole, _train(_trainer("quad16", 6, rates=rates, state=there), 3))


@pytest.mark.parametrize("order", [Order.SEQUENTIAL, pytest.param(Order.INTERLEAVED, marks=pytest.mark.slow)])
def test_more_images_than_lanes_add_up_in_the_accumulators(order: Order) -> None:
    trainer = _trainer("mono16", 19, order)
    assert trainer.step.shares == ((0, 19),)
    assert _train(trainer, 1).totals.mismatches == 0


@dataclass
class _Broken:
    """Flips a bit of one tensor, or is interrupted, in a later program."""

    inner: Functional
    tensor: str = ""
    stop_at: int = -1
    cpu_seconds: float = 0.0
    runs: int = 0

    def run(self, half: Half, arrays: Mapping[str, NDArray[Any]], multipliers: Mapping[str, int]) -> Outcome:
        self.runs += 1
        if self.runs == self.stop_at:
            raise KeyboardInterrupt
        outcome = self.inner.run(half, arrays, multipliers)
        if self.tensor in outcome.words:
            words = {name: array.copy() for name, array in outcome.words.items()}
            words[self.tensor][2, 1] ^= 1
            return replace(outcome, words=words)
        return outcome


@pytest.mark.parametrize("tensor", ["y:conv1@0", "sums@1", "dx:conv2@0", "g:conv1@1", "dw:fc@0"])
def test_a_wrong_byte_ends_training_and_is_named(tensor: str) -> None:
    trainer = _trainer("quad16", 2, machine=_Broken(Functional(load("quad16")), tensor))
    state = _train(trainer, 3)
    assert state.step == 1
    assert state.totals.mismatches >= 1
    assert f"step 0, digits {'backward' if tensor[0] in 'dg' else 'forward'}, {tensor}: 1 of" in trainer.first_mismatch
    assert "first in word 2, lane 1: is " in trainer.first_mismatch


def test_an_interrupted_training_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """Interrupted in the middle of the third step, gone on with from the checkpoint of the second."""
    path, net = tmp_path / "c.npz", trainable.load("digits")[0]
    whole = _train(_trainer("quad16", 6), 4)
    machine = _Broken(Functional(load("quad16")), stop_at=6)
    with pytest.raises(KeyboardInterrupt):
        _trainer("quad16", 6, machine=machine).train(4, lambda state: save_state(state, path, SETTING))
    there = load_state(path, net, SETTING)
    assert there.step == 2
    again = _train(_trainer("quad16", 6, state=there), 4)
    assert _equal(whole, again)
    assert whole.totals == again.totals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights/fc": np.full((10, 32, 2, 2), np.nan)}, "weights/fc has 1280 values that are no numbers"),
        ({"velocity/conv1": np.full((16, 1, 3, 3), np.inf)}, "velocity/conv1 has 144 values that are no numbers"),
        ({"weights/fc": np.zeros(3)}, r"weights/fc is float64\[3\], must be float64\[10, 32, 2, 2\]"),
        ({"setting/batch": np.array(7)}, "was made with batch = 7, now it is 6"),
        ({"version": np.array(0)}, "version 0, this code reads 2"),
        ({"step": np.array(4)}, "4 steps and 0 losses"),
        ({"losses": np.array([object()])}, "is no checkpoint"),
    ],
)
def test_a_checkpoint_that_cannot_be_gone_on_from_is_refused(
    change: dict[str, NDArray[Any]], message: str, tmp_path: Path
) -> None:
    path, net = tmp_path / "c.npz", trainable.load("digits")[0]
    save_state(begun(net, 0), path, SETTING)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(path, **(arrays | change))  # pyright: ignore[reportArgumentType]  (names are free)
    with pytest.raises(CheckpointError, match=message):
        load_state(path, net, SETTING)


def test_a_checkpoint_of_before_the_first_step_is_gone_on_from(tmp_path: Path) -> None:
    path, net = tmp_path / "c.npz", trainable.load("digits")[0]
    save_state(begun(net, 0), path, SETTING)
    state = load_state(path, net, SETTING)
    assert (state.step, list(state.losses)) == (0, [])


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    path, net = tmp_path / "c.npz", trainable.load("digits")[0]
    save_state(begun(net, 0), path, SETTING)
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(CheckpointError, match=r"c\.npz: is no checkpoint .* delete it to begin anew"):
        load_state(path, net, SETTING)


def test_the_rtl_trains_in_the_cycles_of_the_model() -> None:
    config = load("quad16")
    device = SimulatedDevice(build(config, "verilator"))
    with on_device(device) as machine:
        trainer = _trainer("quad16", 4, machine=machine)
        state = _train(trainer, 2)
    totals = state.totals
    assert (totals.mismatches, totals.divergences, state.step) == (0, 0, 2)
    assert totals.rtl_cycles == totals.model_cycles == 2 * trainer.step.cycles
    assert _equal(state, _train(_trainer("quad16", 4), 2))
    assert state.cpu_seconds > 0


@pytest.mark.slow
def test_integers_learn_as_well_as_floating_point(tmp_path: Path) -> None:
    """The bar of docs/results/training.md, in the functional executor: it gives the bytes of the RTL."""
    results = train(Training("digits", load("quad16"), 120, tmp_path / "c.npz", device=None))
    assert results.ok
    assert results.loss_first is not None
    assert results.loss_last is not None
    assert results.loss_last < results.loss_first / 4
    assert results.accuracy is not None
    assert results.float_accuracy is not None
    assert results.accuracy > 0.9
    assert abs(results.accuracy - results.float_accuracy) <= 0.02


def test_the_command_trains_goes_on_and_writes_json_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["train", "digits", "--model", "--json", "out.json", "--steps"]
    for steps in (1, 2):
        result = CliRunner().invoke(app, [*common, str(steps)])
        assert result.exit_code == 0, result.output
    value = json.loads(Path("out.json").read_text())
    assert (value["steps"], value["mismatches"], value["rtl_cycles"], value["ok"]) == (2, 0, None, True)
    assert value["loss_first"] == value["losses"][0] > 0
    assert Path(value["checkpoint"]).exists()
    assert Path(value["picture"]).read_text().startswith("<?xml")
    assert "2 steps, 1 are there" in result.output
    assert (value["clock_mhz"], "examples/s" in result.output) == (None, False)
    # the clock is no part of what is gone on from
    result = CliRunner().invoke(app, [*common, "2", "--clock", "250"])
    step = value["step_cycles"] / 250e3
    assert f"{step:,.4g} ms a step at 250 MHz, {64e3 / step:,.4g} examples/s" in result.output
    assert json.loads(Path("out.json").read_text())["clock_mhz"] == 250


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["resnet8"], "cannot be trained: it has a forward pass only; gradients are there for conv, max_pool and relu"),
        (["digits", "--across", "kep"], "did you mean keep"),
        (["digits", "--update", "int4"], "did you mean int8"),
        (["digits", "--update", "int8", "--rate", "0"], "must be above 0"),
        (["digits", "--batch", "400", "--model"], "a batch of 400 of digits does not fit quad16"),
    ],
)
def test_the_command_says_in_one_sentence_what_cannot_be_trained(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["train", *arguments], env={"COLUMNS": "300"})
    assert result.exit_code != 0
    assert said in (result.output if isinstance(result.exception, SystemExit) else str(result.exception))


# -- the host's arithmetic --------------------------------------------------------------------------------------------


def test_exponents_are_the_smallest_that_hold_the_largest_value() -> None:
    for largest, number in ((127.0, 0), (127.001, 1), (63.5, -1), (1e-9, -36), (0.0, 0)):
        values = np.array([0.0, -largest])
        result = numbers.exponent_of(values)
        assert result == number
        assert np.abs(numbers.quantised(values, result).astype(int)).max() <= 127


def test_an_update_below_half_a_step_leaves_no_trace() -> None:
    m = numbers.rate_multiplier(-20, 0.45, -8)  # the nearest power of two is a half
    assert m == 1 << 4
    w, half = np.array([5, 5, 5, -128, 127], np.int8), 1 << 12  # sums that are half a step, to even
    sums = np.array([half, half + 1, 3 * half, 1 << 30, -(1 << 30)])
    assert golden.updated(w, sums, m).tolist() == [5, 4, 3, -128, 127]
    assert (numbers.rate_multiplier(-60, 1.0, -8), numbers.rate_multiplier(0, 1.0, -30)) == (1, 1 << 15)


def test_multipliers_are_powers_of_two_that_the_chip_has() -> None:
    assert numbers.multiplier(-10, -3) == (1 << 10, -3)
    assert numbers.multiplier(-10, -20) == (1 << 15, -8)  # no finer step than a quarter of the sum
    assert numbers.multiplier(0, 30) == (1, 17)


def test_steps_follow_the_largest_value() -> None:
    for largest, number in ((127, 6), (-128, 6), (126, 5), (48, 5), (47, 4), (0, 4)):
        assert numbers.adapted(5, np.array([0, largest], np.int8)) == number


def test_the_exponential_is_right_to_the_last_places() -> None:
    x = -np.concatenate([np.linspace(0, 50, 20_001), [699.0, 2000.0]])
    np.testing.assert_allclose(numbers.exponential(x)[:-1], np.exp(x)[:-1], rtol=2e-15)
    assert numbers.exponential(x)[0] == 1.0


def test_the_gradient_of_the_loss_is_its_slope() -> None:
    rng = np.random.default_rng(1)
    scores, labels = rng.normal(size=(5, 4)), np.array([0, 1, 3, 3, 2])
    loss, gradient = numbers.loss_and_gradient(scores, labels)
    moved = scores.copy()
    moved[2, 1] += 1e-6
    assert numbers.loss_and_gradient(moved, labels)[0] - loss == pytest.approx(1e-6 * gradient[2, 1], rel=1e-3)
    assert np.abs(gradient.sum(axis=1)).max() < 1e-15


def test_wrong_bytes_and_cycles_are_reasons() -> None:
    good = TrainingResults(
        started=datetime(2026, 1, 1, tzinfo=UTC), environment={}, code="", network="digits", chip="quad16",
        chip_digest="", order="plain", simulator="", batch=64, seed=0, learning_rate=0.05, momentum=0.9, complete=True,
        steps=2, losses=(4.0, 0.5), accuracy=0.95, float_accuracy=0.96, step_cycles=1, model_cycles=2, bytes_checked=1,
        mismatches=0, divergences=0, cpu_seconds=0.0, checkpoint="",
    )  # fmt: skip
    assert good.ok
    changes = {"mismatches": 3, "first_mismatch": "step 1, y", "divergences": 2, "first_divergence": "step 2"}
    wrong = good.model_copy(update=changes)
    assert wrong.reasons == ("3 of 1 bytes are wrong: step 1, y", "2 cycles are not those of the model: step 2")
