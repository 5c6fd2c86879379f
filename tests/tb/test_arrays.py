"""Arrays of files as the inputs that a network's file declares: types, ranks, names and several samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.tb.inputs import arrays
from meshloom.tb.inputs.arrays import Declared, InputError, declared, files_of, read_samples
from meshloom.tb.inputs.golden.graph import golden_values
from meshloom.tb.inputs.numbers import read_numbers
from meshloom.tb.inputs.sources import NetworkSource, load, ready
from meshloom.tb.report.answers import outputs

from ..sched.float_models import FloatModel, decibels, run_float
from ..sched.integer_models import IntegerModel
from ..sched.workload.onnx.test_dequantised import product


def one(kind: type, *shape: int) -> tuple[Declared, ...]:
    return (Declared("x", np.dtype(kind), shape, "net", ((1, 4, 1, 6), (1, 6, 1, 4)) if shape == (1, 4, 6) else ()),)


def stored(folder: Path, array: np.ndarray) -> Path:
    np.save(folder / "a.npy", array)
    return folder / "a.npy"


@pytest.mark.parametrize(
    ("shape", "given", "count"),
    [
        ((1, 4, 6), (1, 4, 6), 1),
        ((1, 4, 6), (4, 6), 1),
        ((1, 4, 6), (5, 4, 6), 5),
        ((1, 4, 6), (5, 1, 4, 6), 5),
        ((1, 4, 6), (1, 4, 1, 6), 1),
        ((1, 4, 6), (1, 6, 1, 4), 1),
        ((0, 4, 0), (1, 4, 9), 1),
        ((12,), (12,), 1),
        ((12,), (3, 12), 3),
        ((1,), (), 1),
        ((1,), (1,), 1),
        ((1,), (3,), 3),
        ((1, 12), (12,), 1),
        ((1, 12), (3, 12), 3),
        ((7, 12), (7, 12), 1),
        ((7, 12), (2, 7, 12), 2),
        ((1, 2, 3, 4, 5), (1, 2, 3, 4, 5), 1),
        ((1, 2, 3, 4, 5), (2, 2, 3, 4, 5), 2),
    ],
)
def test_samples_with_a_batch_without_and_several(
    shape: tuple[int, ...], given: tuple[int, ...], count: int, tmp_path: Path
) -> None:
    array = np.random.default_rng(0).normal(0, 1, given).astype(np.float32)
    result = read_samples(stored(tmp_path, array), one(np.float32, *shape))
    assert len(result) == count
    np.testing.assert_array_equal(np.concatenate([each["x"].ravel() for each in result]), array.ravel())
    assert {each["x"].ndim for each in result} <= {len(shape), 4}


def test_shapes_that_the_networks_own_tensor_may_have() -> None:
    assert arrays._values((3,)) == arrays._values((1, 3)) == ((1, 3, 1, 1),)
    assert arrays._values((5, 3)) == ((1, 3, 1, 5),)
    assert arrays._values((1, 4, 6)) == ((1, 4, 1, 6), (1, 6, 1, 4), (1, 4, 6, 1))
    assert arrays._values((1, 4, 6, 3)) == ((1, 3, 4, 6),)
    assert arrays._values(()) == arrays._values((1, 2, 3, 4, 5)) == ()


@pytest.mark.parametrize("given", [(), (1,), (4, 5), (1, 4, 7), (2, 1, 6), (0, 4, 6), (1, 1, 4, 5), (1, 4, 0)])
def test_shapes_that_are_refused(given: tuple[int, ...], tmp_path: Path) -> None:
    path = stored(tmp_path, np.zeros(given, np.float32))
    with pytest.raises(InputError, match=r"a.npy: holds .*; input x of network net is int8 or float32 \[1, 4, 6\]"):
        read_samples(path, one(np.float32, 1, 4, 6))


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        (np.uint8, np.array([0, 250], np.uint8)),
        (np.uint8, np.array([0, 250], np.int64)),
        (np.uint8, np.array([0, 250], np.float32)),
        (np.int8, np.array([-128, 127], np.int8)),
        (np.int32, np.array([-(1 << 31), 5], np.int64)),
        (np.int64, np.array([0, 250], np.uint8)),
        (np.float32, np.array([0.5, np.inf], np.float64)),
        (np.float32, np.array([0.5, 2], ">f4")),
        (np.float16, np.array([0.5, 2], np.float32)),
        (np.float64, np.array([0.1, 2], np.float32)),
        (np.bool_, np.array([0, 1], np.int64)),
    ],
)
def test_numbers_that_the_declared_type_has(kind: type, array: np.ndarray, tmp_path: Path) -> None:
    ((result),) = read_samples(stored(tmp_path, array[None]), one(kind, 1, 2))
    assert result["x"].dtype == kind
    assert result["x"].astype(np.float64).tolist() == [array.astype(np.float64).tolist()]


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        (np.uint8, np.array([0, -1], np.int8)),
        (np.uint8, np.array([0, 256])),
        (np.uint8, np.array([0, 0.5])),
        (np.uint8, np.array([0, np.nan])),
        (np.int8, np.array([0, 200], np.uint8)),
        (np.int32, np.array([0, 1 << 31])),
        (np.float32, np.array([0.1, 1])),
        (np.float32, np.array([0, (1 << 24) + 1])),
        (np.float16, np.array([0, 1e6], np.float32)),
        (np.float32, np.array(["a", "b"])),
        (np.float32, np.array([0, 1j])),
        (np.bool_, np.array([0, 2])),
    ],
)
def test_numbers_that_it_has_not(kind: type, array: np.ndarray, tmp_path: Path) -> None:
    """One error with what is declared and what came."""
    name, came = np.dtype(kind).name, array.dtype
    with pytest.raises(InputError) as raised:
        read_samples(stored(tmp_path, array[None]), one(kind, 1, 2))
    what = "int8 or float32" if kind is np.float32 else name
    assert str(raised.value) == (
        f"{tmp_path / 'a.npy'}: holds {came}[1, 2], not all of which are numbers of {name}; input x of network net is "
        f"{what} [1, 2]: save it as that"
    )


def test_archives_by_name_and_in_order(tmp_path: Path) -> None:
    inputs = (*one(np.float32, 1, 2), Declared("y", np.dtype(np.int64), (1, 3), "net"))
    x, y = np.ones((4, 2), np.float32), np.arange(12).reshape(4, 3)
    np.savez(tmp_path / "named.npz", y=y, x=x)
    np.savez(tmp_path / "order.npz", x, y)
    for name in ("named.npz", "order.npz"):
        result = read_samples(tmp_path / name, inputs)
        assert [list(each) for each in result] == [["x", "y"]] * 4
        assert [each["y"].tolist() for each in result] == [[row] for row in y.tolist()]
    np.savez(tmp_path / "single.npz", whatever=x)
    assert len(read_samples(tmp_path / "single.npz", inputs[:1])) == 4


def test_arrays_of_unused_inputs_are_left_alone(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.ones((1, 2), np.int64), more=np.ones(3))
    (sample,) = read_samples(tmp_path / "all.npz", one(np.float32, 1, 2), ["more"])
    assert list(sample) == list(read_numbers(tmp_path / "all.npz", ["x"], unused=["more"])) == ["x"]


def test_archives_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = (*one(np.float32, 1, 2), Declared("y", np.dtype(np.int64), (1, 3), "net"))
    x, y = np.ones((4, 2), np.float32), np.arange(12).reshape(4, 3)
    np.savez(tmp_path / "other.npz", x=x, z=y)
    np.savez(tmp_path / "counts.npz", x=x, y=y[:3])
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object), y=y)
    np.savez(tmp_path / "large.npz", x=x, y=y)
    np.savez(tmp_path / "gaps.npz", x=x * np.float32(np.nan), y=y)
    (tmp_path / "broken.npz").write_bytes(b"PK\3\4 no archive")
    stored(tmp_path, x)
    np.savez_compressed(tmp_path / "damaged.npz", x=x, y=y)
    content = bytearray((tmp_path / "damaged.npz").read_bytes())
    content[60:80] = bytes(20)
    (tmp_path / "damaged.npz").write_bytes(content)
    for name, message in (
        ("other.npz", "has arrays x, z; network net has inputs x, y: save an array for each, by name"),
        ("counts.npz", "holds other numbers of samples: 4 of x, 3 of y; save as many of each"),
        ("gaps.npz", r"2 of 2 numbers of x are not a number \(NaN\), first at \[0, 0\]; replace them, with"),
        ("objects.npz", "cannot be read as an .npz file"),
        ("broken.npz", "cannot be read as an .npz file"),
        ("damaged.npz", "cannot be read as an .npz file"),
        ("absent.npz", r"cannot be read as an .npz file \(No such file or directory\)"),
        ("a.npy", "is one array, network net has inputs x, y; give an .npz file with an array for each, by name"),
    ):
        with pytest.raises(InputError, match=message) as raised:
            read_samples(tmp_path / name, inputs)
        assert "\n" not in str(raised.value)
    monkeypatch.setattr(arrays, "MOST_BYTES", 100)
    with pytest.raises(InputError, match=r"holds \d+ bytes unpacked, more than 100; save fewer samples in each file"):
        read_samples(tmp_path / "large.npz", inputs)


@pytest.mark.parametrize(
    "header", [b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 99999999999999), }", b"\xff\xfe(", b"{" * 90]
)
def test_headers_that_lie(header: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header + b"\n").to_bytes(2, "little") + header + b"\n")
    with pytest.raises(InputError, match=r"a.npy: cannot be read as an .npy file"):
        read_samples(tmp_path / "a.npy", one(np.float32, 1, 2))


# -- networks -----------------------------------------------------------------------------------------------------


def uint8_file(folder: Path) -> Path:
    """Computed to the last bit."""
    m = IntegerModel(shape=(1, 3, 6, 6))
    w = np.random.default_rng(1).integers(-128, 128, (4, 3, 3, 3)).astype(np.int8)
    onnx.save(m.build(m.conv("x", "a", w)), folder / "u8.onnx")
    return folder / "u8.onnx"


def test_bytes_of_a_file_are_what_they_are(tmp_path: Path) -> None:
    """uint8 and whole numbers of any other type; ONNX Runtime makes the same of them."""
    path, raw = uint8_file(tmp_path), np.random.default_rng(2).integers(0, 256, (2, 3, 6, 6))
    for kind in (np.uint8, np.int64, np.float32):
        np.save(tmp_path / "x.npy", raw.astype(kind))
        graph, feeds = ready(NetworkSource(str(path), (tmp_path / "x.npy",)))
        assert [feed.name for feed in feeds] == ["x.npy[0]", "x.npy[1]"]
        np.testing.assert_array_equal(np.concatenate([feed.arrays["x"] for feed in feeds]), raw - 128)
        assert golden_values(graph, feeds[0].arrays)["a"].shape == (1, 4, 4, 4)
    np.save(tmp_path / "x.npy", raw.astype(np.uint8).view(np.int8))
    with pytest.raises(InputError, match=r"x.npy: holds int8\[1, 3, 6, 6\], not all .*; input x of .* u8 is uint8"):
        ready(NetworkSource(str(path), (tmp_path / "x.npy",)))


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_bytes_with_any_zero_point(kind: type, tmp_path: Path) -> None:
    """The real numbers that they stand for are the network's, and the file says the same of them."""
    zero = 7
    model = product((0.02, zero), (0.011, 0), (0.3, 3), kind)
    onnx.save(model, tmp_path / "q.onnx")
    raw = np.random.default_rng(5).integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (1, 3, 6, 6)).astype(kind)
    np.save(tmp_path / "x.npy", raw)
    graph, (feed,) = ready(NetworkSource(str(tmp_path / "q.onnx"), (tmp_path / "x.npy",)))
    real = (raw.astype(np.float64) - zero) * 0.02
    np.testing.assert_allclose(feed.arrays["x"] * graph.inputs[0].step, real, atol=graph.inputs[0].step)
    array = golden_values(graph, feed.arrays)["y"] * graph.value("y").step
    assert decibels(feed.floats["y"], array) > 25


def two_inputs(folder: Path) -> Path:
    m = FloatModel((1, 3, 8, 8))
    w, b = m.normal(4, 3, 3, 3), m.normal(4)
    c, d = m.node("Conv", ["x", w, b], "c"), m.node("Conv", ["z", w, b], "d")
    model = m.build(m.node("Add", [c, d], "y"))
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, (1, 3, 8, 8)))
    onnx.save(model, folder / "two.onnx")
    return folder / "two.onnx"


def test_a_float_model_with_two_inputs(tmp_path: Path) -> None:
    """Calibrated and run from archives, several samples and several files."""
    path, random = two_inputs(tmp_path), np.random.default_rng(0)
    x, z = random.normal(0, 1, (2, 3, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "some.npz", x=x, z=z)
    np.savez(tmp_path / "one.npz", z=z[0], x=x[0])
    graph, feeds = ready(NetworkSource(str(path), (tmp_path / "some.npz", tmp_path / "one.npz")))
    assert [feed.name for feed in feeds] == ["some.npz[0]", "some.npz[1]", "some.npz[2]", "one.npz"]
    model = onnx.load(path)
    for feed, a, b in zip(feeds, (*x, x[0]), (*z, z[0]), strict=True):
        exact = run(session(model, "two"), {"x": a[None], "z": b[None]})["y"]
        np.testing.assert_allclose(feed.floats["y"], exact, rtol=1e-5)
        assert decibels(exact, golden_values(graph, feed.arrays)["y"] * graph.value("y").step) > 25
    calibrated = load(NetworkSource(str(path), (), (tmp_path / "some.npz",)))
    assert [value.step for value in calibrated.inputs] == [value.step for value in graph.inputs]


@pytest.mark.parametrize(
    ("shape", "w"), [((1, 5, 16), (4, 5, 3)), ((1, 12), (12, 5)), ((7, 12), (12, 5)), ((1, 7, 12), (12, 5))]
)
def test_arrays_have_the_rank_of_the_file(shape: tuple[int, ...], w: tuple[int, ...], tmp_path: Path) -> None:
    m = FloatModel(shape)
    y = m.node("Conv" if len(w) == 3 else "MatMul", ["x", m.normal(*w)], "y")
    model = m.build(y)
    onnx.save(model, tmp_path / "m.onnx")
    (x,) = m.data(1)
    np.save(tmp_path / "x.npy", x)
    graph, (feed,) = ready(NetworkSource(str(tmp_path / "m.onnx"), (tmp_path / "x.npy",)))
    exact = run_float(model, x)["y"]
    array = golden_values(graph, feed.arrays)["y"] * graph.value("y").step
    assert sorted(np.abs(feed.floats["y"]).ravel()) == pytest.approx(sorted(np.abs(exact).ravel()), rel=1e-5)
    assert decibels(feed.floats["y"], array) > 25


def test_bytes_that_a_model_of_many_channels_normalises_itself(tmp_path: Path) -> None:
    """Whole numbers of 0..255 need not be a picture."""
    m = FloatModel((1, 5, 6, 6))
    centred = m.node("Sub", ["x", m.constant(127.5)], "centred")
    model = m.build(m.conv(m.node("Mul", [centred, m.constant(0.01)], "scaled"), "y", (4, 5, 3, 3)))
    onnx.save(model, tmp_path / "m.onnx")
    x = np.random.default_rng(0).integers(0, 256, (1, 5, 6, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    graph, (feed,) = ready(NetworkSource(str(tmp_path / "m.onnx"), (tmp_path / "x.npy",)))
    array = golden_values(graph, feed.arrays)["y"] * graph.value("y").step
    assert decibels(run_float(model, x)["y"], array) > 20


def test_bytes_of_a_picture_that_a_model_normalises_itself(tmp_path: Path) -> None:
    """What the model does with its input first is done when the input is made, of arrays too."""
    m = FloatModel((1, 3, 6, 6))
    centred = m.node("Sub", ["x", m.constant(127.5)], "centred")
    model = m.build(m.conv(m.node("Mul", [centred, m.constant(0.01)], "scaled"), "y", (4, 3, 3, 3)))
    onnx.save(model, tmp_path / "m.onnx")
    x = np.random.default_rng(0).integers(0, 256, (1, 3, 6, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    graph, (feed,) = ready(NetworkSource(str(tmp_path / "m.onnx"), (tmp_path / "x.npy",)))
    array = golden_values(graph, feed.arrays)["y"] * graph.value("y").step
    assert decibels(run_float(model, x)["y"], array) > 25


def test_pictures_are_for_one_input(tmp_path: Path) -> None:
    path: Any = two_inputs(tmp_path)
    with pytest.raises(WorkloadError, match="network two has inputs x, z; a picture can be the input of one"):
        load(NetworkSource(str(path), (tmp_path / "p.png",)))


def test_what_files_declare(tmp_path: Path) -> None:
    w = numpy_helper.from_array(np.ones(3, np.float32), "w")
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.BFLOAT16, (1, "n")),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, (3,)),
        helper.make_tensor_value_info("b", TensorProto.DOUBLE, (1, 40, 64)),
    ]
    graph = helper.make_graph([helper.make_node("Relu", ["a"], ["y"])], "g", inputs, [], [w])
    a, b = declared(helper.make_model(graph), "net")
    assert (a.type, a.shape, str(a)) == (np.float32, (1, 0), "input a of network net is int8 or float32 [1, ?]")
    assert (b.type, b.shape, b.shapes[0]) == (np.float64, (1, 40, 64), (1, 40, 1, 64))


def test_a_file_that_is_no_array_says_how_to_save_one(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"1, 2, 3")
    with pytest.raises(InputError, match=r"cannot be read as an \.npy file \(.*\); save it with numpy\.save$"):
        read_samples(tmp_path / "a.npy", one(np.int8, 4, 6))


def test_an_array_of_no_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.npy: holds no sample, int8\[0, 1, 4, 6\]; "):
        read_samples(stored(tmp_path, np.zeros((0, 1, 4, 6), np.int8)), one(np.int8, 1, 4, 6))


def _signal() -> onnx.ModelProto:
    """A Conv1d, [1, 4, 12] to [1, 8, 12]."""
    m = FloatModel((1, 4, 12))
    return m.build(m.node("Conv", ["x", m.normal(8, 4, 3), m.normal(8)], "y", pads=[1, 1]))


def _last() -> onnx.ModelProto:
    """A picture to [1, 4, 4, 8], channels last."""
    m = FloatModel((1, 3, 4, 4))
    return m.build(m.node("Transpose", m.conv("x", "c", (8, 3, 1, 1)), "y", perm=[0, 2, 3, 1]))


@pytest.mark.parametrize(("model", "shape"), [(_signal(), (1, 8, 12)), (_last(), (1, 4, 4, 8))], ids=["conv1d", "last"])
def test_a_result_has_the_shape_of_the_file(model: onnx.ModelProto, shape: tuple[int, ...], tmp_path: Path) -> None:
    onnx.save(model, tmp_path / "m.onnx")
    size = tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim)
    x = np.random.default_rng(2).normal(0, 1, (4, *size[1:])).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    graph, feeds = ready(NetworkSource(str(tmp_path / "m.onnx"), (tmp_path / "x.npy",)))
    (figures,) = outputs(graph, golden_values(graph, feeds[0].arrays), feeds[0], "m", tmp_path)
    exact = run(session(model, "m"), {"x": x[:1]})["y"]
    saved = np.load(figures.file or "")
    assert saved.shape == figures.shape == exact.shape == shape
    assert decibels(exact, saved) > 25


def test_a_folder_stands_for_its_pictures_and_arrays(tmp_path: Path) -> None:
    """By name; neither what is hidden nor what else lies there."""
    for name in ("b.JPG", "a.png", "c.npy", "._a.png", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "d.png").mkdir()
    single = tmp_path / "notes.txt"
    assert files_of([single, tmp_path]) == (single, *(tmp_path / name for name in ("a.png", "b.JPG", "c.npy")))
    with pytest.raises(InputError, match=r"d.png: is a folder without pictures or arrays \(.bmp, .*npz\); give one"):
        files_of([tmp_path / "d.png"])
    assert files_of(()) == ()
