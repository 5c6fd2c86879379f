"""What names mean, what networks are fed, and what is said of files that do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.workload import zoo
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.onnx import windows
from meshloom.sched.workload.onnx.errors import OnnxError
from meshloom.sched.workload.onnx.labels import labels_in
from meshloom.sched.workload.onnx.original import check_integer
from meshloom.sched.workload.onnx.writer import to_onnx
from meshloom.tb.api.request import RunRequest
from meshloom.tb.inputs.class_names import label_of
from meshloom.tb.inputs.golden.graph import golden_values
from meshloom.tb.inputs.pictures import InputError
from meshloom.tb.inputs.sources import (
    DRAWN,
    UNFED,
    Feed,
    NetworkSource,
    check_files,
    described,
    feeds,
    is_network,
    load,
    model_settings,
    pictures,
    ready,
    regression_networks,
)
from meshloom.tb.report import answers
from meshloom.tb.runs import network, runner
from meshloom.tb.runs.failures import Failure
from meshloom.tb.runs.kinds.networks import NetworkRequest

from ..sched.float_models import FloatModel, decibels, run_float
from ..sched.integer_models import IntegerModel
from ..sched.network_graphs import every_kind
from ..sched.random_graphs import random_graph


def picture(path: Path, size: tuple[int, int] = (8, 8), mode: str = "RGB", seed: int = 0) -> Path:
    """A picture of noise; `size`: width, height."""
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)).save(path)
    return path


def float_file(folder: Path) -> Path:
    model = FloatModel()
    model.node("Relu", model.conv("x", "c", (6, 3, 3, 3), pads=[1, 1, 1, 1]), "r")
    model.node("GlobalAveragePool", "r", "pooled")
    path = folder / "small.onnx"
    onnx.save(model.build("pooled"), path)
    return path


def quantised_file(folder: Path) -> Path:
    """A network of bytes, with a quantiser before and behind it."""
    m = IntegerModel(TensorProto.INT8)
    x = m.node("QuantizeLinear", ["x", m.scale("in", 0.5), "zero"], "x8")
    w = np.random.default_rng(0).integers(-128, 128, (4, 2, 3, 3)).astype(np.int8)
    y = m.node("DequantizeLinear", [m.conv(x, "y8", w, (0.5, 2.0**-7, 0.25)), m.scale("out", 0.25), "zero"], "y")
    model = m.build(y, element=TensorProto.FLOAT)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    onnx.save(model, folder / "bytes.onnx")
    return folder / "bytes.onnx"


# -- names --------------------------------------------------------------------------------------------------------


def test_networks_are_told_from_layers_and_shapes() -> None:
    for name in (*zoo.names(), "cat.onnx", "folder/resnet8.onnx"):
        assert is_network(name)
    for name in ("resnet8/conv1", "resnet8/*", "conv:5x5x3-4", "regression", "resnet9", "onnx"):
        assert not is_network(name)


def test_titles() -> None:
    assert NetworkSource("resnet8").title == "resnet8"
    assert NetworkSource("/some/where/my.model.onnx").title == "my.model"


def test_networks_of_the_regression_have_labels() -> None:
    for name in regression_networks():
        assert feeds(NetworkSource(name), zoo.load(name))[0].label >= 0


def test_labels_have_names() -> None:
    graph = zoo.load("resnet8")
    assert label_of(graph, 3) == "cat"
    assert label_of(graph, -1) == ""
    assert label_of(graph, 99) == "class 99", "a class without a name"
    assert label_of(every_kind(10, 5), 2) == "class 2"


def scaling(graph: Graph) -> tuple[str, tuple[float, ...], tuple[float, ...]]:
    """How pictures become a network's input."""
    assert graph.picture is not None
    return graph.picture.mode, graph.picture.mean, graph.picture.std


# -- networks -----------------------------------------------------------------------------------------------------


def test_built_in_networks_and_integer_files_are_read_as_they_are(tmp_path: Path) -> None:
    assert load(NetworkSource("resnet8")) is zoo.load("resnet8")
    graph = random_graph(4)
    path = tmp_path / "mine.onnx"
    onnx.save(to_onnx(graph), path)
    result = load(NetworkSource(str(path)))
    assert [layer.output for layer in result.layers] == [layer.output for layer in graph.layers]
    inputs = {value.name: np.ones(value.shape, np.int8) for value in graph.inputs}
    expected = golden_values(graph, inputs)
    for name, array in golden_values(result, inputs).items():
        np.testing.assert_array_equal(array, expected[name])


def test_a_float_model_is_quantised_with_its_inputs(tmp_path: Path) -> None:
    """What the chip is given for a picture is that picture, normalised as was said."""
    path, shown = float_file(tmp_path), picture(tmp_path / "shown.png")
    source = NetworkSource(str(path), (shown,), mean=(127.5,), std=(64.0,))
    graph = load(source)
    assert scaling(graph) == ("RGB", (127.5,) * 3, (64.0,) * 3)
    (feed,) = feeds(source, graph)
    real = (np.asarray(Image.open(shown), np.float64).transpose(2, 0, 1)[None] - 127.5) / 64
    (value,) = graph.inputs
    assert value.step == pytest.approx(127.5 / 64 / 127), "all bytes fit, whatever pictures calibrate"
    np.testing.assert_array_equal(feed.arrays[value.name], np.clip(np.rint(real / value.step), -128, 127))
    assert (feed.name, feed.label, feed.float_label) == ("shown.png", -1, -1)


def test_calibration_may_have_files_of_its_own(tmp_path: Path) -> None:
    path, shown = float_file(tmp_path), picture(tmp_path / "shown.png")
    dark = tmp_path / "dark.png"
    Image.fromarray(np.full((8, 8, 3), 20, np.uint8)).save(dark)
    by_dark = load(NetworkSource(str(path), (shown,), (dark,)))
    by_shown = load(NetworkSource(str(path), (shown,)))
    assert by_dark.inputs[0].step == by_shown.inputs[0].step
    assert by_dark.value(by_dark.outputs[0]).step < by_shown.value(by_shown.outputs[0]).step


def test_arrays_calibrate_as_they_are(tmp_path: Path) -> None:
    path, array = float_file(tmp_path), np.random.default_rng(0).normal(0, 3, (1, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "real.npy", array)
    source = NetworkSource(str(path), (tmp_path / "real.npy",), mean=(99.0,))
    graph = load(source)
    assert graph.picture is None
    (feed,) = feeds(source, graph)
    (value,) = graph.inputs
    np.testing.assert_array_equal(feed.arrays[value.name], np.clip(np.rint(array / value.step), -128, 127))


def test_grey_pictures_have_one_channel(tmp_path: Path) -> None:
    model = FloatModel((1, 1, 8, 8))
    model.conv("x", "c", (4, 1, 3, 3))
    path = tmp_path / "grey.onnx"
    onnx.save(model.build("c"), path)
    source = NetworkSource(str(path), (picture(tmp_path / "grey.png", mode="L"),))
    graph = load(source)
    assert scaling(graph) == ("L", (0.0,), (255.0,))
    assert feeds(source, graph)[0].arrays["x"].shape == (1, 1, 8, 8)


# -- feeds --------------------------------------------------------------------------------------------------------


def only(source: NetworkSource) -> Feed:
    (feed,) = feeds(source, load(source))
    return feed


def test_by_default_the_first_stored_picture_is_shown() -> None:
    feed = only(NetworkSource("resnet8"))
    path, label = zoo.pictures("resnet8")[0]
    assert (feed.name, feed.label) == (path.name, label)
    assert feed.float_label == zoo.float_top1("resnet8")[0]


def test_stored_pictures_keep_their_labels_by_whatever_path(monkeypatch: pytest.MonkeyPatch) -> None:
    (path, label), *_ = zoo.pictures("resnet8")[3:]
    monkeypatch.chdir(path.parent)
    source = NetworkSource("resnet8", (Path(path.name), path.parent / ".." / path.parent.name / path.name))
    result = feeds(source, load(source))
    assert [(feed.name, feed.label) for feed in result] == [(path.name, label)] * 2
    one, other = (feed.arrays[load(source).inputs[0].name] for feed in result)
    np.testing.assert_array_equal(one, other)


def test_all_stored_pictures_can_be_asked_for() -> None:
    result = feeds(NetworkSource("ds_cnn", pictures("ds_cnn")), zoo.load("ds_cnn"))
    assert [feed.label for feed in result] == [label for _, label in zoo.pictures("ds_cnn")]
    assert len({feed.arrays[zoo.load("ds_cnn").inputs[0].name].tobytes() for feed in result}) == len(result)


def test_networks_without_pictures_are_fed_arrays() -> None:
    feed = only(NetworkSource("minilm_block"))
    assert feed.name == "stored arrays"
    assert {name: array.shape for name, array in feed.arrays.items()} == {
        value.name: value.shape for value in zoo.load("minilm_block").inputs
    }


# -- errors -------------------------------------------------------------------------------------------------------


def unsupported(folder: Path) -> Path:
    model = FloatModel()
    model.node("Hardmax", model.conv("x", "c", (4, 3, 1, 1)), "s")
    model.node("LpPool", "s", "p", kernel_shape=[2, 2], p=3)
    model.node("ArgMax", "p", "a", axis=2)
    model.node("Cast", "a", "e", to=1)
    path = folder / "odd.onnx"
    model.node("Conv", ["e", model.normal(2, 4, 1, 1)], "y")
    onnx.save(model.build("y"), path)
    return path


def test_all_unsupported_operators_are_listed_with_their_names(tmp_path: Path) -> None:
    path = unsupported(tmp_path)
    with pytest.raises(OnnxError) as raised:
        load(NetworkSource(str(path), (picture(tmp_path / "x.png"),)))
    for operator, node in (("Hardmax", "n_s"), ("LpPool", "n_p"), ("ArgMax", "n_a")):
        assert operator in str(raised.value)
        assert node in str(raised.value)
    assert "(Conv)" not in str(raised.value)


def test_a_model_runs_without_files(tmp_path: Path) -> None:
    """On an input that is drawn with a seed, which the settings and the notes say."""
    source = NetworkSource(str(float_file(tmp_path)))
    graph, (feed,) = ready(source)
    assert feed.name == "input of seed 0"
    assert graph.notes[-2:] == (UNFED, DRAWN)
    settings = model_settings(source)
    assert (settings["seed"], settings["calibration"]) == (0, ())
    _, (again,) = ready(source)
    _, (other,) = ready(replace(source, seed=1))
    ((x, same, different),) = zip(*(each.arrays.values() for each in (feed, again, other)), strict=True)
    np.testing.assert_array_equal(same, x)
    assert not np.array_equal(different, x)
    name = graph.outputs[0]
    assert decibels(feed.floats[name], golden_values(graph, feed.arrays)[name] * graph.value(name).step) > 20


def test_an_input_that_nothing_uses_is_no_error(tmp_path: Path) -> None:
    """Exporters leave some; nodes that only they feed go with them."""
    path = float_file(tmp_path)
    model = onnx.load(path)
    model.graph.input.append(helper.make_tensor_value_info("more", TensorProto.BOOL, (1, 5)))
    model.graph.node.append(helper.make_node("Not", ["more"], ["less"]))
    onnx.save(model, path)
    graph, (feed,) = ready(NetworkSource(str(path)))
    assert len(graph.inputs) == len(feed.arrays) == 1
    assert "Input more is not used." in graph.notes
    assert "Input more is not used." in described(path, {})


def test_a_model_of_bytes_runs_without_files(tmp_path: Path) -> None:
    """Its outputs have the names of the file."""
    source = NetworkSource(str(quantised_file(tmp_path)))
    graph, (feed,) = ready(source)
    assert (graph.outputs, feed.titles) == (("y8",), {"y8": "y"})
    assert graph.notes[-1] == DRAWN
    assert UNFED not in graph.notes
    assert model_settings(source)["seed"] == 0
    (figures,) = answers.outputs(graph, golden_values(graph, feed.arrays), feed, "bytes", None)
    assert figures.name == "y"


@pytest.mark.parametrize(("kind", "first"), [(TensorProto.UINT8, 0), (TensorProto.INT8, 128)])
def test_an_input_of_bytes_takes_those_of_a_picture(kind: Any, first: int, tmp_path: Path) -> None:
    m = FloatModel((1, 3, 8, 8), opset=17)
    m.element = kind
    x = m.node("Mul", [m.node("Cast", "x", "real", to=TensorProto.FLOAT), m.constant(0.01)], "scaled")
    path = tmp_path / "bytes.onnx"
    onnx.save(m.build(m.conv(x, "y", (4, 3, 3, 3))), path)
    shown = picture(tmp_path / "shown.png")
    for std in ((255.0,), (255.0,) * 3, (1.0,)):
        _, (feed,) = ready(NetworkSource(str(path), (shown,), std=std, mean=(float(first if std == (1.0,) else 0),)))
        bytes_ = np.asarray(Image.open(shown), np.int64).transpose(2, 0, 1)[None] - first
        exact = run_float(onnx.load(path), bytes_.astype(np.uint8 if first == 0 else np.int8))["y"]
        np.testing.assert_allclose(next(iter(feed.floats.values())), exact, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="takes bytes, which with --mean and --std would be no whole numbers"):
        ready(NetworkSource(str(path), (shown,), mean=(120.0,), std=(60.0,)))


def test_a_model_that_is_only_calibrated_runs_on_the_first_of_that(tmp_path: Path) -> None:
    path, files = float_file(tmp_path), tuple(picture(tmp_path / f"{name}.png") for name in "ab")
    graph, (feed,) = ready(NetworkSource(str(path), calibration=files))
    assert feed.name == "a.png"
    assert not {UNFED, DRAWN}.intersection(graph.notes)


@pytest.mark.parametrize(("mean", "std"), [((1.0, 2.0), (255.0,)), ((0.0,), (1.0, 1.0, 1.0, 1.0))])
def test_mean_and_std_are_for_all_channels_or_each(mean: Any, std: Any, tmp_path: Path) -> None:
    path = float_file(tmp_path)
    with pytest.raises(WorkloadError, match=r"--mean and --std take 1 or 3 numbers, not [24]"):
        load(NetworkSource(str(path), (picture(tmp_path / "x.png"),), mean=mean, std=std))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("broken.png", "is not a picture"),
        ("broken.npy", "cannot be read as a"),
        ("absent.png", "cannot be read"),
        ("absent.npy", "cannot be read as a"),
    ],
)
def test_unreadable_calibration_files_are_named(name: str, why: str, tmp_path: Path) -> None:
    path = float_file(tmp_path)
    if not name.startswith("absent"):
        (tmp_path / name).write_bytes(b"this is neither")
    with pytest.raises(WorkloadError, match=f"{name}: {why}"):
        load(NetworkSource(str(path), (tmp_path / name,)))


def test_a_picture_of_another_size_is_refused(tmp_path: Path) -> None:
    source = NetworkSource("resnet8", (picture(tmp_path / "large.png", (40, 32)),))
    with pytest.raises(InputError, match=r"large.png: is 40x32 pixels \(width x height\), network resnet8 takes 32x32"):
        feeds(source, load(source))


def test_calibration_pictures_of_another_size_are_refused(tmp_path: Path) -> None:
    source = NetworkSource(str(float_file(tmp_path)), (picture(tmp_path / "large.png", (9, 8)),))
    with pytest.raises(WorkloadError, match="8"):
        load(source)


def test_a_network_that_stores_nothing_must_be_given_something() -> None:
    graph: Graph = every_kind(10, 5)
    with pytest.raises(WorkloadError, match="network every: give it something to work on with --input"):
        feeds(NetworkSource("mine.onnx"), graph)


def test_a_file_can_feed_one_input_only(tmp_path: Path) -> None:
    source = NetworkSource("mine.onnx", (picture(tmp_path / "x.png"),))
    with pytest.raises(InputError, match="network every has inputs x, side, grey; a picture can be the input of one: "):
        feeds(source, every_kind(10, 5))


def test_unknown_and_missing_networks() -> None:
    with pytest.raises(WorkloadError, match=r"unknown network 'resnet9': did you mean resnet8"):
        load(NetworkSource("resnet9"))
    with pytest.raises(OnnxError, match=r"absent.onnx: cannot be read"):
        load(NetworkSource("absent.onnx"))


# -- the file is the reference ------------------------------------------------------------------------------------


def integer_file(folder: Path) -> Path:
    """Padding SAME_LOWER, a float input and probabilities: to be read with care."""
    model = IntegerModel(shape=(1, 3, 8, 8))
    w = np.random.default_rng(1).integers(-128, 128, (6, 3, 3, 3)).astype(np.int8)
    q = model.node("QuantizeLinear", ["x", model.scale("in", 2.0**-7), "zero"], "q")
    a = model.conv(q, "a", w, (2.0**-7, 2.0**-7, 2.0**-4), auto_pad="SAME_LOWER", strides=[2, 2])
    real = model.node("DequantizeLinear", [a, model.scale("out", 2.0**-4), "zero"], "real")
    built = model.build(model.node("Softmax", [real], "y", axis=1), element=onnx.TensorProto.FLOAT)
    built.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(built, folder / "integer.onnx")
    return folder / "integer.onnx"


def array(folder: Path, dtype: type = np.float32) -> Path:
    path = folder / f"{np.dtype(dtype).name}.npy"
    np.save(path, np.random.default_rng(2).normal(0, 60, (1, 3, 8, 8)).astype(np.int8).astype(dtype))
    return path


def test_an_integer_file_is_run_as_it_is(tmp_path: Path) -> None:
    source = NetworkSource(str(integer_file(tmp_path)), (array(tmp_path), array(tmp_path, np.int8)))
    graph, (first, second) = ready(source)
    assert graph.outputs == ("a",)
    assert first.notes == ("Softmax y at the end is left out: it does not change the order of classes.",)
    assert (first.floats, second.floats) == ({}, {})


def test_what_was_misread_in_an_integer_file_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding at the wrong end would be in the chip and in the golden model alike."""
    right = windows.sliding_window

    def wrong(attributes: dict[str, Any], *more: Any) -> Any:
        return right(attributes | {"auto_pad": "SAME_UPPER"}, *more)

    def never(*_: Any) -> None:
        raise AssertionError("nothing is to be scheduled")

    monkeypatch.setattr("meshloom.sched.workload.onnx.integers.arithmetic.sliding_window", wrong)
    monkeypatch.setattr(network, "prepare", never)
    source = NetworkSource(str(integer_file(tmp_path)), (array(tmp_path),))
    result = runner._attempt(NetworkRequest(source), load_chip("tiny"), "loop_order")
    assert isinstance(result, Failure)
    assert (result.kind, result.stage) == ("OnnxError", "reading")
    assert "integer.onnx: node n_a (QLinearConv): misread: tensor 'a' at [0, 0, " in result.message


@pytest.mark.parametrize("name", ["resnet8", "ds_cnn", "vww", "minilm_block"])
def test_built_in_files_are_read_right(name: str) -> None:
    """The trained networks' own files in ONNX Runtime, on their own inputs."""
    graph = zoo.load(name)
    (feed,) = feeds(NetworkSource(name), graph)
    check_integer(onnx.load(zoo.file(name)), graph, [(feed.arrays, golden_values(graph, feed.arrays))], name)


def test_feeds_of_a_float_file_know_what_it_says_itself(tmp_path: Path) -> None:
    """As ONNX Runtime computes it, before the softmax that is left out."""
    m = FloatModel()
    scores = m.node("GlobalAveragePool", m.conv("x", "c", (6, 3, 3, 3)), "scores")
    model = m.build(m.node("Softmax", scores, "y", axis=1))
    onnx.save(model, tmp_path / "float.onnx")
    shown = (picture(tmp_path / "a.png"), picture(tmp_path / "b.png", seed=1))
    graph, result = ready(NetworkSource(str(tmp_path / "float.onnx"), shown, mean=(127.5,), std=(64.0,)))
    for path, feed in zip(shown, result, strict=True):
        x = (np.asarray(Image.open(path), np.float32).transpose(2, 0, 1)[None] - 127.5) / 64
        exact = run_float(m.build("scores"), x.astype(np.float32))["scores"]
        np.testing.assert_allclose(feed.floats["scores"], exact, rtol=1e-5)
        assert feed.float_label == exact.argmax()
        assert (
            feed.notes == graph.notes == ("Softmax y at the end is left out: it does not change the order of classes.",)
        )
        (value,) = graph.inputs
        outcome = golden_values(graph, feed.arrays)["scores"] * graph.value("scores").step
        np.testing.assert_allclose(outcome, exact, atol=0.05)
        assert value.name == "x"


def test_what_the_host_ends_with_names_the_class(tmp_path: Path) -> None:
    """Not the vector from which the host makes the file's outputs."""
    m = FloatModel()
    vector = m.node("Flatten", m.node("GlobalAveragePool", m.conv("x", "c", (6, 3, 3, 3)), "p"), "v")
    onnx.save(m.build(m.node("ReduceL2", vector, "y", axes=[1])), tmp_path / "float.onnx")
    real = array(tmp_path)
    _, (feed,) = ready(NetworkSource(str(tmp_path / "float.onnx"), (real,)))
    assert (feed.scores, feed.float_label) == (("y",), -1)
    _, (feed, own) = ready(NetworkSource(str(tmp_path / "float.onnx"), (real, array(tmp_path, np.int8)), (real,)))
    assert (own.scores, own.float_label) == (("y",), -1)


def test_arrays_of_a_float_file(tmp_path: Path) -> None:
    """float32 is what the model takes; int8 is the quantised input, of which the model knows nothing."""
    m = FloatModel()
    onnx.save(m.build(m.conv("x", "c", (6, 3, 3, 3))), tmp_path / "float.onnx")
    real, bytes_ = array(tmp_path), array(tmp_path, np.int8)
    _, result = ready(NetworkSource(str(tmp_path / "float.onnx"), (real, bytes_), (real,)))
    assert result[0].floats["c"].shape == (1, 6, 6, 6)
    assert result[0].float_label == -1, "no vector"
    assert result[1].floats == {}


# -- labels -------------------------------------------------------------------------------------------------------


def labelled(folder: Path, key: str, text: str) -> NetworkSource:
    model = onnx.load(float_file(folder))
    onnx.helper.set_model_props(model, {key: text})
    onnx.save(model, folder / "small.onnx")
    return NetworkSource(str(folder / "small.onnx"), (picture(folder / "shown.png"),))


SIX = ("a b", "c", "d", "e", "ü", "g")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("names", "{0: 'a b', 1: 'c', 2: 'd', 3: 'e', 4: 'ü', 5: 'g'}"),
        ("labels", '["a b", "c", "d", "e", "ü", "g"]'),
        ("Classes", '{"1": "c", "0": "a b", "2": "d", "3": "e", "4": "ü", "5": "g"}'),
        ("class_names", "a b, c, d, e, ü, g"),
        ("labels", "a b\nc\nd\ne\nü\ng\n"),
    ],
)
def test_labels_in_the_metadata(key: str, text: str, tmp_path: Path) -> None:
    assert load(labelled(tmp_path, key, text)).labels == SIX


@pytest.mark.parametrize(
    "text",
    ["", "{0: 'a', 2: 'b'}", "{'x': 'y'}", "[1, 2]", "[[]]", "{", "__import__('os')", "17", "a,,b", "(" * 9999, "a, b"],
)
def test_metadata_that_are_no_labels(text: str, tmp_path: Path) -> None:
    """Nothing is run, nothing fails; labels for another number of classes are not these."""
    assert load(labelled(tmp_path, "labels", text)).labels == ()


def test_labels_of_a_file_go_first(tmp_path: Path) -> None:
    source = labelled(tmp_path, "labels", ",".join("uvwxyz"))
    (tmp_path / "labels.txt").write_text("\n".join(SIX) + "\n", encoding="utf-8")
    assert load(replace(source, labels=tmp_path / "labels.txt")).labels == SIX
    assert labels_in(onnx.load(source.name)) == tuple("uvwxyz")


def test_a_missing_file_of_labels_is_told_first(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"absent.txt: cannot be read: No such file"):
        check_files(NetworkSource("resnet8", labels=tmp_path / "absent.txt"))


def test_there_is_a_label_for_each_class(tmp_path: Path) -> None:
    source = replace(labelled(tmp_path, "x", ""), labels=tmp_path / "labels.txt")
    with pytest.raises(WorkloadError, match=r"labels.txt: cannot be read: No such file"):
        load(source)
    (tmp_path / "labels.txt").write_text("a\nb\n")
    message = r"labels.txt: has 2 lines, output pooled of network small is \[1, 6, 1, 1\]; give one label for each"
    with pytest.raises(WorkloadError, match=message):
        load(source)


# -- detectors ----------------------------------------------------------------------------------------------------


def detector_file(folder: Path, *, named: bool = False) -> Path:
    """Of pictures of 64 x 64, a row for each cell of 8, 16 and 32 pixels: box, an object's score, two classes'."""
    model = FloatModel((1, 3, 64, 64))
    half = model.node("AveragePool", "x", "x2", kernel_shape=[2, 2], strides=[2, 2])
    x = model.node("AveragePool", half, "x8", kernel_shape=[4, 4], strides=[4, 4])
    levels: list[str] = []
    for level in range(3):
        boxes = model.conv(x, f"boxes{level}", (4, 3, 1, 1))
        scores = model.node("Sigmoid", model.conv(x, f"logits{level}", (3, 3, 1, 1)), f"scores{level}")
        both = model.node("Concat", [boxes, scores], f"both{level}", axis=1)
        levels.append(model.node("Reshape", [both, model.integers(1, 7, -1)], f"flat{level}"))
        x = model.node("MaxPool", x, f"x{16 << level}", kernel_shape=[2, 2], strides=[2, 2])
    together = model.node("Concat", levels, "together", axis=2)
    built = model.build(model.node("Transpose", together, "y", perm=[0, 2, 1]))
    if named:
        onnx.helper.set_model_props(built, {"names": "{0: 'cat', 1: 'dog'}"})
    path = folder / "detector.onnx"
    onnx.save(built, path)
    return path


def test_a_detector_is_found_and_drawn(tmp_path: Path) -> None:
    """What the golden network says is decoded as the float file's is, and drawn into the picture."""
    seen = picture(tmp_path / "seen.png", (64, 64))
    source = NetworkSource(str(detector_file(tmp_path, named=True)), inputs=(seen,), min_score=0.05)
    graph, (feed,) = ready(source)
    assert graph.labels == ("cat", "dog")
    assert feed.detecting is not None
    np.testing.assert_array_equal(feed.detecting.picture, np.asarray(Image.open(seen)))
    assert "relative to their cells, for cells of 8, 16, 32 pixels" in feed.detecting.detector.form
    golden = golden_values(graph, feed.arrays)
    figures = answers.detector(
        graph, {name: golden[name] for name in graph.outputs}, feed, "detector", tmp_path / "run"
    )
    assert figures is not None
    assert figures.max_iou == 0.45
    assert figures.alike > len(figures.exact) * 0.8 > 5
    assert {one.label for one in figures.found} <= {"cat", "dog"}
    assert [one.score for one in figures.found] == sorted((one.score for one in figures.found), reverse=True)
    assert answers.counted(figures.found).partition(" ")[2]
    with Image.open(figures.picture or "") as drawn:
        assert (drawn.format, drawn.size) == ("PNG", (64, 64))
        assert np.any(np.asarray(drawn) != feed.detecting.picture)
    assert answers.detector(graph, {name: golden[name] for name in graph.outputs}, feed, "x", None).picture is None  # pyright: ignore[reportOptionalMemberAccess]


def test_labels_of_a_detector(tmp_path: Path) -> None:
    """They are as many as its classes; the file's own are overridden."""
    seen, labels = picture(tmp_path / "seen.png", (64, 64)), tmp_path / "labels.txt"
    source = NetworkSource(str(detector_file(tmp_path, named=True)), inputs=(seen,), labels=labels)
    labels.write_text("person\ncar\n")
    assert ready(source)[0].labels == ("person", "car")
    labels.write_text("person\ncar\nbus\n")
    with pytest.raises(
        WorkloadError, match=r"labels.txt: has 3 lines, network detector has scores for 2 classes; give"
    ):
        ready(source)


def test_arrays_are_shown_from_their_least_to_their_greatest(tmp_path: Path) -> None:
    path, array = tmp_path / "a.npy", np.random.default_rng(1).normal(0, 1, (1, 3, 64, 64)).astype(np.float32)
    np.save(path, array)
    (feed,) = ready(NetworkSource(str(detector_file(tmp_path)), inputs=(path,)))[1]
    assert feed.detecting is not None
    shown = feed.detecting.picture
    assert (shown.min(), shown.max()) == (0, 255)
    assert np.unravel_index(shown.argmin(), shown.shape) == np.unravel_index(
        array[0].transpose(1, 2, 0).argmin(), shown.shape
    )


def test_of_a_map_without_classes_no_labels_are_taken(tmp_path: Path) -> None:
    model = FloatModel()
    path, labels = tmp_path / "map.onnx", tmp_path / "labels.txt"
    onnx.save(model.build(model.conv("x", "y", (4, 3, 3, 3))), path)
    labels.write_text("a\nb\n")
    with pytest.raises(
        WorkloadError, match=r"labels.txt: has 2 lines, output y of network map is \[1, 4, 6, 6\]; give"
    ):
        ready(NetworkSource(str(path), inputs=(picture(tmp_path / "p.png"),), labels=labels))


def test_the_command_line_has_the_usual_thresholds() -> None:
    """It says them itself, for its help loads nothing."""
    usual = NetworkSource("")
    assert (RunRequest.min_score, RunRequest.max_iou) == (usual.min_score, usual.max_iou)
