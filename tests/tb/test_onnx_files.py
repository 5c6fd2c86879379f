"""Files as people have them: no numbers for weights, open sizes, outputs that are inputs, sums that overflow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.schedulers.registry import find_network
from meshloom.sched.workload.onnx import missing_weights
from meshloom.sched.workload.onnx.errors import OnnxError
from meshloom.sched.workload.onnx.missing_weights import with_weights
from meshloom.tb.inputs.chips import changed
from meshloom.tb.inputs.golden.graph import golden_values
from meshloom.tb.inputs.sources import NetworkSource, described, load, model_settings, ready

from ..sched.float_models import FloatModel, decibels, run_float
from ..sched.workload.onnx.test_dequantised import product


def shapes_only(folder: Path, element: int = TensorProto.INT8, first: tuple[int, ...] = (4, 3, 3, 3)) -> Path:
    weights = [helper.make_tensor_value_info("x", element, (1, 3, 8, 8))]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w1"], ["a"]), helper.make_node("Conv", ["a", "w2"], ["y"])],
        "g",
        weights,
        [helper.make_tensor_value_info("y", element, (1, 5, 6, 6))],
        [TensorProto(name=name, data_type=element, dims=dims) for name, dims in (("w1", first), ("w2", (5, 4, 1, 1)))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=14)
    onnx.save(model, folder / "shapes.onnx")
    return folder / "shapes.onnx"


@pytest.mark.parametrize("element", [TensorProto.INT8, TensorProto.FLOAT, TensorProto.BFLOAT16])
def test_weights_that_are_not_there_are_drawn(element: int, tmp_path: Path) -> None:
    """The same from one seed, others from another; notes, names and settings of a run say which."""
    path = shapes_only(tmp_path, element)
    value = "The file has no numbers for w1, w2: they are drawn with seed 0."
    assert value in described(path, {})
    source = NetworkSource(str(path))
    graph, (feed,) = ready(source)
    assert value in feed.notes
    assert feed.name == "input and weights of seed 0"
    assert model_settings(source)["seed"] == 0
    array = golden_values(graph, feed.arrays)["y"] * graph.value("y").step
    assert decibels(feed.floats["y"], array) > 20
    again, other = load(source), load(NetworkSource(str(path), seed=1))
    weights = [np.asarray(each.layers[0].w) for each in (graph, again, other)]
    np.testing.assert_array_equal(weights[1], weights[0])
    assert not np.array_equal(weights[2], weights[0])
    np.save(tmp_path / "x.npy", np.ones((1, 3, 8, 8), np.int8 if element == TensorProto.INT8 else np.float32))
    _, (feed,) = ready(NetworkSource(str(path), (tmp_path / "x.npy",), seed=7))
    assert feed.name == "x.npy, weights of seed 7"


def test_a_file_with_its_weights_is_left_alone(tmp_path: Path) -> None:
    m = FloatModel()
    model = m.build(m.conv("x", "y", (4, 3, 1, 1)))
    same, notes = with_weights(model, "m", 0)
    assert (same is model, notes) == (True, ())
    onnx.save(model, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", m.data(1)[0])
    assert model_settings(NetworkSource(str(tmp_path / "m.onnx"), seed=4))["seed"] == 4  # of its input
    assert "seed" not in model_settings(NetworkSource(str(tmp_path / "m.onnx"), (tmp_path / "x.npy",)))


def test_weights_that_are_there_as_whole_numbers_become_real_ones() -> None:
    """ONNX has no convolution of them."""
    m = FloatModel()
    model = m.build(m.conv("x", "y", (4, 3, 1, 1)))
    (weights,) = (item for item in model.graph.initializer if len(item.dims) == 4)
    numbers = np.arange(-6, 6, dtype=np.int8).reshape(4, 3, 1, 1)
    weights.CopyFrom(numpy_helper.from_array(numbers, weights.name))
    real, notes = with_weights(model, "m", 0)
    assert notes == ("Conv and others of INT8 are computed in real numbers.",)
    (own,) = (numpy_helper.to_array(item) for item in real.graph.initializer if item.name == weights.name)
    assert own.dtype == np.float32
    np.testing.assert_array_equal(own, numbers)


def test_gains_and_variances_are_drawn_around_1() -> None:
    m, names = FloatModel(), ["gain", "bias", "mean", "variance"]
    m.initialisers += [TensorProto(name=name, data_type=TensorProto.FLOAT, dims=(64,)) for name in names]
    model = m.build(m.node("BatchNormalization", [m.conv("x", "c", (64, 3, 1, 1)), *names], "y"))
    whole, _ = with_weights(model, "m", 0)
    arrays = {item.name: numpy_helper.to_array(item) for item in whole.graph.initializer}
    assert all(0.5 <= arrays[name].min() < arrays[name].max() <= 1.5 for name in ("gain", "variance"))


def test_what_is_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    m = FloatModel()
    m.initialisers.append(TensorProto(name="shape", data_type=TensorProto.INT64, dims=(2,)))
    model = m.build(m.node("Reshape", [m.conv("x", "c", (4, 3, 1, 1)), "shape"], "y"))
    with pytest.raises(
        OnnxError, match=r"m: constant 'shape' \(INT64 \[2\]\) has no numbers, and is none of the weights"
    ):
        with_weights(model, "m", 0)
    monkeypatch.setattr(missing_weights, "MOST_NUMBERS", 127)
    with pytest.raises(OnnxError, match="has no numbers for 128 weights; 127 at most are drawn"):
        described(shapes_only(tmp_path), {})


def test_sizes_without_names(tmp_path: Path) -> None:
    """What the error says works; an array says them, too."""
    m = FloatModel((1, 3, 1, 8))
    model = m.build(m.conv("x", "y", (4, 3, 1, 3)))
    model.graph.input[0].type.tensor_type.shape.dim[2].ClearField("dim_value")
    path = tmp_path / "open.onnx"
    onnx.save(model, path)
    value = r"dimension 2 of input 'x' is not fixed \(unknown\); give it a size \(--bind x:2=N\), or a picture or an"
    with pytest.raises(OnnxError, match=value):
        described(path, {})
    assert "input x [1, 3, 5, 8]" in described(path, {"x:2": 5})[0]
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(0, 1, (1, 3, 6, 8)).astype(np.float32))
    graph, (feed,) = ready(NetworkSource(str(path), (tmp_path / "x.npy",)))
    assert graph.inputs[0].shape == (1, 3, 6, 8)
    assert feed.floats["y"].shape == (1, 4, 6, 6)


def test_too_many_dimensions(tmp_path: Path) -> None:
    m = FloatModel((1, 2, 2, 2, 2, 2))
    onnx.save(m.build(m.node("Relu", "x", "y")), tmp_path / "m.onnx")
    with pytest.raises(OnnxError, match="input 'x' has 6 dimensions; it may have 1 to 5"):
        described(tmp_path / "m.onnx", {})


@pytest.mark.parametrize("shape", [(1, 1, 3, 6, 6), (1, 3, 2, 3, 6)])
def test_five_dimensions(shape: tuple[int, ...], tmp_path: Path) -> None:
    m = FloatModel(shape)
    y = m.node("Relu", "x", "y")
    if shape[1] == 1:
        y = m.conv(m.node("Reshape", ["x", m.integers(1, 3, 6, 6)], "flat"), "z", (4, 3, 3, 3))
    model = m.build(y)
    onnx.save(model, tmp_path / "m.onnx")
    (x,) = m.data(1)
    np.save(tmp_path / "x.npy", x)
    graph, (feed,) = ready(NetworkSource(str(tmp_path / "m.onnx"), (tmp_path / "x.npy",)))
    array = golden_values(graph, feed.arrays)[y] * graph.value(y).step
    assert decibels(run_float(model, x)[y], array) > 25


def test_a_chip_without_a_unit_that_a_file_needs(tmp_path: Path) -> None:
    m = FloatModel()
    gate = m.node("Sigmoid", m.conv("x", "a", (4, 3, 3, 3)), "b")
    onnx.save(m.build(m.node("InstanceNormalization", [gate, m.normal(4), m.normal(4)], "y")), tmp_path / "m.onnx")
    chip = load_chip("quad8")
    both = (
        r"layer b needs a table, and cores of quad8 have none; layer .* normalises maps, and cores of quad8 cannot; "
        r"take another chip, or set core\.vec_table = true and core\.vec_whole = true in its file \(or with --set "
        r"core\.vec_table=true --set core\.vec_whole=true\)"
    )
    with pytest.raises(DoesNotFit, match=both):
        described(tmp_path / "m.onnx", {}, chip=chip)
    table = changed(chip, {"core.vec_table": True})
    with pytest.raises(DoesNotFit, match=r"normalises maps, and cores of quad8 cannot; .*core.vec_whole=true"):
        described(tmp_path / "m.onnx", {}, chip=table)
    with pytest.raises(DoesNotFit, match=both):
        find_network("loop_order")(load(NetworkSource(str(tmp_path / "m.onnx"))), chip, None)
    whole = changed(table, {"core.vec_whole": True})
    assert described(tmp_path / "m.onnx", {}, chip=whole) == described(tmp_path / "m.onnx", {})
    small = changed(whole, {"core.vec_words": 35})
    with pytest.raises(
        DoesNotFit, match=r"normalises maps of 6x6 pixels; a core of \S+ has room for 35 words; give it larger A"
    ):
        described(tmp_path / "m.onnx", {}, chip=small)


@pytest.mark.parametrize("renamed", [False, True])
def test_an_output_that_is_an_input_is_copied(renamed: bool, tmp_path: Path) -> None:
    m = FloatModel()
    same = m.node("Identity", "x", "same") if renamed else "x"
    onnx.save(m.build(m.conv("x", "y", (4, 3, 3, 3)), same, "y"), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", m.data(1)[0])
    assert "2 layers" in described(tmp_path / "m.onnx", {})[0]
    graph, (feed,) = ready(NetworkSource(str(tmp_path / "m.onnx"), (tmp_path / "x.npy",)))
    assert graph.outputs == ("y", "x//copy")
    np.testing.assert_array_equal(golden_values(graph, feed.arrays)["x//copy"], feed.arrays["x"])


@pytest.mark.parametrize(("step", "zero"), [(1.0, 128), (3e5, 101)])
@pytest.mark.parametrize("bias", [(1 << 31) - 1, -(1 << 31)])
def test_sums_that_overflow_are_the_files_own(step: float, zero: int, bias: int, tmp_path: Path) -> None:
    """`check` and `run` say the same, whether the chip has the file's scales or not."""
    model = product((1.0, zero), (2.0**-8, 0), (step, 128))
    for item in model.graph.initializer:
        if item.name == "b":
            item.CopyFrom(onnx.numpy_helper.from_array(np.array([5, bias, 0, 0], np.int32), "b"))
    onnx.save(model, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 6, 6), np.uint8))
    text = rf"conv \(QLinearConv\): its sums may reach -?214.* in channel 1 \(bias {bias}\), past the 32 bits"
    with pytest.raises(OnnxError, match=text):
        described(tmp_path / "m.onnx", {})
    with pytest.raises(OnnxError, match=text):
        ready(NetworkSource(str(tmp_path / "m.onnx"), (tmp_path / "x.npy",)))


@pytest.mark.parametrize("bias", [1e12, 1e30, 3e38])
def test_a_bias_much_larger_than_all_products(bias: float, tmp_path: Path) -> None:
    """It is quantised, without a warning (of which each is an error here)."""
    m = FloatModel()
    numbers = m.constant(np.array([0.1, bias, 0, 0]))
    onnx.save(m.build(m.node("Conv", ["x", m.normal(4, 3, 3, 3), numbers], "y")), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", m.data(1)[0])
    graph, (feed,) = ready(NetworkSource(str(tmp_path / "m.onnx"), (tmp_path / "x.npy",)))
    array = golden_values(graph, feed.arrays)["y"] * graph.value("y").step
    assert array[0, 1] == pytest.approx(bias, rel=0.01)


def test_a_type_that_onnx_runtime_does_not_compute(tmp_path: Path) -> None:
    """Said by `check` as well."""
    m = FloatModel()
    x = m.node("Cast", "x", "wide", to=TensorProto.DOUBLE)
    wide = m.node("Conv", [x, m.constant(np.ones((1, 3, 1, 1)), np.float64)], "w")
    onnx.save(m.build(m.node("Cast", wide, "y", to=TensorProto.FLOAT)), tmp_path / "m.onnx")
    with pytest.raises(OnnxError, match="ONNX Runtime refuses it"):
        described(tmp_path / "m.onnx", {})


def test_what_calibrates(tmp_path: Path) -> None:
    for shape, text in (
        ((1, 3, 8, 8), "with pictures or .npy files ("),
        ((1, 5, 8, 8), r"with .npy files [1, 5, 8, 8] ("),
    ):
        m = FloatModel(shape)
        onnx.save(m.build(m.node("Relu", "x", "y")), tmp_path / "m.onnx")
        assert text in described(tmp_path / "m.onnx", {})[0]


@pytest.mark.parametrize(
    ("kind", "zero", "cut"), [(np.int16, 0, True), (np.uint16, 0, True), (np.uint16, 40_000, False)]
)
@pytest.mark.parametrize("opset", [13, 21])
def test_activations_of_16_bits(kind: type, zero: int, cut: bool, opset: int, tmp_path: Path) -> None:
    """What rounds to them is taken out; what lies below the least of them is still cut off, as a Relu was that the file
    no longer has."""
    rng, domain = np.random.default_rng(4), "" if opset > 20 else "com.microsoft"
    m = FloatModel((1, 3, 6, 6), opset=opset)
    numbers = [m.constant(1e-4), m.constant(zero, kind)]

    def pair(name: str) -> str:
        q = m.node("QuantizeLinear", [name, *numbers], f"{name}_q", domain=domain)
        return m.node("DequantizeLinear", [q, *numbers], f"{name}_d", domain=domain)

    x = m.node("Identity", "x", "x0")
    c = m.node("Relu" if kind is np.int16 else "Identity", m.conv(pair(x) if zero else x, "c", (4, 3, 3, 3)), "d")
    model = m.build(pair(c))
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    else:
        model.ir_version = 10
    onnx.save(model, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", rng.normal(0, 9, (1, 3, 6, 6)).astype(np.float32))  # beyond what the file holds
    source = NetworkSource(str(tmp_path / "m.onnx"), (tmp_path / "x.npy",))
    graph, (feed,) = ready(source)
    pairs = "2 pairs" if zero else "1 pair"
    assert f"{pairs} of QuantizeLinear and DequantizeLinear with 16 bits around activations are" in " ".join(
        graph.notes
    )
    result = golden_values(graph, feed.arrays)[graph.outputs[0]] * graph.value(graph.outputs[0]).step
    assert decibels(feed.floats[graph.outputs[0]], result) > 20
    assert (result.min() >= 0) == cut


def test_multiply_accumulates_are_those_of_the_file(tmp_path: Path) -> None:
    """Not what stands for groups, for rows that a transposed convolution leaves out, and for channels that move."""
    m = FloatModel((1, 8, 6, 6))
    c = m.node("Conv", ["x", m.normal(8, 2, 3, 3), m.normal(8)], "c", group=4)  # [4, 4]
    s = m.node("Reshape", [c, m.integers(1, 4, 2, 4, 4)], "s")
    t = m.node("Reshape", [m.node("Transpose", s, "t0", perm=[0, 2, 1, 3, 4]), m.integers(1, 8, 4, 4)], "t")
    u = m.node("ConvTranspose", [t, m.normal(8, 4, 2, 2), m.normal(4)], "u", strides=[2, 2])  # [8, 8]
    d = m.node("SpaceToDepth", u, "d", blocksize=2)  # [16, 4, 4]
    m.node("Conv", [d, m.normal(3, 16, 1, 1), m.normal(3)], "y")
    onnx.save(m.build("y"), tmp_path / "m.onnx")
    graph = load(NetworkSource(str(tmp_path / "m.onnx")))
    assert graph.total_macs == 8 * 2 * 9 * 16 + 8 * 4 * 64 + 3 * 16 * 16
    dense = sum(layer.w.size * graph.value(layer.output).height * graph.value(layer.output).width
                for layer in graph.layers if layer.w is not None)  # fmt: skip
    assert dense > graph.total_macs, "the array does more"
