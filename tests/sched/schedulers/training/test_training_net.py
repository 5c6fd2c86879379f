"""Networks in training: what can be trained, and what the programs of a step refuse before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.schedulers.training.arrays import gradient, gradient_rows
from meshloom.sched.schedulers.training.geometry import geometry
from meshloom.sched.schedulers.training.step import shares_of, training_step
from meshloom.sched.workload import digits, trainable, zoo
from meshloom.sched.workload.graph import Graph, Layer, Value, Window
from meshloom.sched.workload.layers import WorkloadError, gemm_shape
from meshloom.sched.workload.training_net import TrainedLayer, TrainingNet, training_net


def test_digits_is_a_chain_of_three_layers_with_weights() -> None:
    net, examples = trainable.load("digits")
    assert [(layer.name, layer.pool, layer.flat) for layer in net.layers] == [
        ("conv1", 2, False), ("conv2", 2, False), ("fc", 1, True),
    ]  # fmt: skip
    assert net.x_shape == examples.x.shape[1:] == (1, 8, 8)
    assert len(examples.x) + len(examples.test_x) == 1797
    assert examples.x.max() * examples.step == 1


def test_every_epoch_has_each_example_once_in_an_order_of_its_own() -> None:
    _, examples = trainable.load("digits")
    per_epoch = len(examples.labels) // 64
    first = [examples.batch(step, 64, seed=0) for step in range(per_epoch)]
    assert len(set(np.concatenate(first))) == 64 * per_epoch
    assert not np.array_equal(examples.batch(per_epoch, 64, seed=0), first[0])
    assert not np.array_equal(examples.batch(0, 64, seed=1), first[0])


def _changed(at: int, **fields: Any) -> Graph:
    graph = digits.network()
    layers = list(graph.layers)
    layers[at] = replace(layers[at], **fields)
    return replace(graph, layers=tuple(layers))


def _strided() -> Graph:
    graph = digits.network()
    conv = replace(graph.layers[2], window=Window(3, 3, 2, 2, 1, 1, 1, 1))
    w = np.zeros((10, 32, 2, 2), np.int8)
    fc = replace(graph.layers[4], inputs=("conv2",), w=w)
    return replace(graph, layers=(*graph.layers[:2], conv, fc))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (lambda: zoo.load("resnet8"), r"layer \w+ \(\w+\) cannot be trained: it has a forward pass only"),
        (lambda: _changed(1, kind="average_pool", scale=1), r"pool1 \(average_pool\) cannot be trained: it has a forw"),
        (lambda: _changed(0, bias=np.ones(16, np.int32)), "conv1 .* has a bias"),
        (lambda: _changed(0, clamp=96), "clamp = 96"),
        (
            lambda: _changed(2, relu=False),
            "conv2 cannot be trained: it must have a relu|follow a convolution with relu",
        ),
        (lambda: _changed(4, relu=True), "must end with a fully connected layer without relu"),
        (lambda: _changed(1, window=Window(2, 2, 1, 1, 0, 0, 1, 1)), "windows must be square"),
        (_strided, "stride = 2x2; behind the first layer it must be 1"),
    ],
    ids=["add", "average", "bias", "clamp", "no relu", "scores with relu", "overlapping pool", "stride"],
)
def test_what_has_no_gradient_is_refused_by_name(graph: Callable[[], Graph], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        training_net(graph())


def test_a_network_without_examples_and_a_wrong_name_are_refused() -> None:
    with pytest.raises(WorkloadError, match="did you mean digits"):
        trainable.load("digit")
    with pytest.raises(WorkloadError, match="cannot be trained"):
        trainable.load("vgg16")
    _, examples = trainable.load("digits")
    with pytest.raises(WorkloadError, match="batch = 5000: there are 1437 examples"):
        examples.batch(0, 5000, 0)


def test_a_batch_that_does_not_fit_names_the_memory() -> None:
    net, _ = trainable.load("digits")
    with pytest.raises(DoesNotFit, match="a batch of 400 of digits does not fit quad16: A of a quad16 core is too sm"):
        training_step(net, load("quad16"), 400)


def test_sums_that_may_leave_int32_are_refused_before_anything_runs() -> None:
    shape = replace(gemm_shape("wide", 1, 10, 1), in_w=1)
    net = TrainingNet("wide", (TrainedLayer(shape),))
    with pytest.raises(DoesNotFit, match="wide dw: sums of 131,072 products of int8 may leave int32"):
        training_step(net, load("quad16"), 131_072)


def test_images_are_shared_evenly_and_cores_without_any_left_out() -> None:
    chip = load("quad16")
    assert shares_of(6, chip) == ((0, 1), (1, 3), (3, 4), (4, 6))
    assert shares_of(2, chip) == ((0, 1), (1, 2))


@pytest.mark.parametrize("chip", ["quad16", "edge45"])
def test_gradients_are_the_rows_that_hold_them(chip: str) -> None:
    net, _ = trainable.load("digits")
    for layer in net.layers:
        dw = np.random.default_rng(1).integers(-(2**31), 2**31, layer.shape.w_shape, np.int32)
        sizes = geometry(layer, load(chip))
        rows = gradient_rows(sizes, dw)
        assert rows.size == sizes.sums * sizes.cols
        np.testing.assert_array_equal(gradient(sizes, rows), dw)


def test_multipliers_are_put_into_the_finished_program() -> None:
    """The rest of the program, and so its cycles, stay."""
    net, _ = trainable.load("digits")
    half = training_step(net, load("quad16"), 4).forward
    program = half.program_with({"y:conv1": 1 << 9, "y:conv2": 1 << 3})
    result = {
        half.multipliers[index]: one.fields["scale"]
        for stream in program.streams
        for index, one in zip(program.operations_of(stream), stream.instructions, strict=True)
        if index in half.multipliers
    }
    assert result == {"y:conv1": 1 << 9, "y:conv2": 1 << 3}
    assert program.instructions == half.program.instructions


def test_a_network_must_be_a_chain() -> None:
    graph = digits.network()
    twice = Layer("max_pool", "again", ("conv1",), Window(2, 2, 2, 2))
    with pytest.raises(WorkloadError, match=r"again .* reads conv1, must read pool1: a network in training is a chain"):
        training_net(Graph("two", (Value("picture", 1, 8, 8),), (*graph.layers[:2], twice), ("again",)))
