"""Integer ONNX models: networks survive writing and reading, other models are read if they keep the rules."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from meshloom.sched.support.files import WriteError
from meshloom.sched.workload.graph import Graph, Layer, Value, Window
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.onnx.errors import OnnxError, UnsupportedError
from meshloom.sched.workload.onnx.reader import as_it_is, from_onnx, read
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.sched.workload.onnx.writer import flip, save, to_onnx, unflip

from ...integer_models import IntegerModel
from ...network_graphs import placed
from ...random_graphs import random_graph, random_inputs


def same(a: Graph, b: Graph) -> None:
    """All fields of both, arrays by their contents."""
    for item in fields(Graph):
        if item.name not in ("layers", "picture"):
            assert getattr(a, item.name) == getattr(b, item.name), item.name
    assert (a.picture is None) == (b.picture is None)
    if a.picture and b.picture:
        assert [getattr(a.picture, item.name) for item in fields(a.picture)] == [
            getattr(b.picture, item.name) for item in fields(b.picture)
        ]
    for one, other in zip(a.layers, b.layers, strict=True):
        for item in fields(Layer):
            left, right = getattr(one, item.name), getattr(other, item.name)
            if isinstance(left, np.ndarray):
                assert left.dtype == right.dtype
                np.testing.assert_array_equal(left, right)
            else:
                assert left == right, (one.output, item.name)


@given(seed=st.integers(0, 1 << 32))
@settings(deadline=None, max_examples=60)
def test_written_and_read_it_is_the_same(seed):
    graph = random_graph(seed)
    model = to_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    # concat and slice have neither relu nor clamp
    same(from_onnx(model, "model"), graph)


def test_maps_put_together_from_others():
    same(from_onnx(to_onnx(placed()), "model"), placed())


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (np.arange(25)[::-1].reshape(5, 5), "do not keep their rows and columns"),
        (np.arange(25).reshape(5, 5).T, "do not keep their rows and columns"),
        (np.arange(25), "only of rows of pixels, into rows and columns"),
    ],
)
def test_pixels_that_go_elsewhere(indices, message):
    model = IntegerModel()
    model.node("Reshape", [model.conv("x", "a", WEIGHTS), model.array("row", np.array([1, 3, -1]))], "b")
    model.node("Gather", ["b", model.array("indices", indices)], "y", axis=2)
    with pytest.raises(UnsupportedError, match=message):
        from_onnx(model.build("y"), "m")


def test_files(tmp_path):
    graph = random_graph(3)
    save(graph, tmp_path / "a.onnx")
    save(graph, tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert as_it_is(onnx.load(tmp_path / "a.onnx"), "a") is not None
    same(read(tmp_path / "a.onnx"), graph)
    with pytest.raises(WriteError, match="cannot be written"):
        save(graph, tmp_path / "a.onnx" / "b.onnx")


def test_names_that_collide():
    """Tensors may be called as the writer would call its own."""
    w, bias = np.ones((1, 1, 1, 1), np.int8), np.zeros(1, np.int32)
    layers = [
        Layer("conv", name, (source,), relu=True, scale=1 << 15, w=w, bias=bias)
        for source, name in (("zero_point", "a"), ("a", "a/full"), ("a/full", "a/w"), ("a/w", "one"), ("one", "at_128"))
    ]
    graph = Graph("names", (Value("zero_point", 1, 1, 1),), tuple(layers), ("at_128",))
    same(from_onnx(to_onnx(graph), "model"), graph)


# -- models that others wrote -------------------------------------------------------------------------------------


WEIGHTS = np.random.default_rng(0).integers(-128, 128, (3, 2, 3, 3)).astype(np.int8)


@pytest.mark.parametrize("element", [TensorProto.UINT8, TensorProto.INT8])
def test_a_model_of_another_kind(element):
    """SAME padding, no bias, steps of powers of two, QLinearAdd, a clip that others see through, both 8-bit types."""
    model = IntegerModel(element, ("batch", 2, 5, 5))
    a = model.conv("x", "a", WEIGHTS, (0.5, 2.0**-7, 0.25), auto_pad="SAME_UPPER", strides=[2, 2])
    b = model.node("MaxPool", [a], "b", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    step = model.scale("step", 0.25)
    c = model.node("QLinearAdd", [a, step, "zero", b, step, "zero", step, "zero"], "c", domain="com.microsoft")
    low = model.array("low", np.array(128 if element == TensorProto.UINT8 else 0, model.dtype))
    d = model.node("Clip", [c, low], "d")
    e = model.node("Identity", [model.node("Concat", [c, d], "cat", axis=-3)], "e")
    built = model.build(e)
    graph = from_onnx(built, "folder/other.onnx")
    assert graph.name == "other"
    assert [(layer.kind, layer.output, layer.relu) for layer in graph.layers] == [
        ("conv", "a", False),
        ("max_pool", "b", False),
        ("add", "c", False),
        ("max_pool", "d", True),
        ("concat", "cat", False),
    ]
    conv = graph.layers[0]
    assert conv.scale == 1 << 11
    assert conv.window == Window(3, 3, 2, 2, 1, 1, 1, 1)
    assert (graph.inputs[0].step, graph.steps["a"], graph.steps["c"]) == (0.5, 0.25, 0.25)
    assert graph.outputs == ("cat",)
    inputs = random_inputs(graph, 1)
    ours = unflip(run(session(to_onnx(graph), "ours"), {"x": flip(inputs["x"])})["cat"])
    x = flip(inputs["x"]) if element == TensorProto.UINT8 else inputs["x"]
    theirs = run(session(built, "theirs"), {"x": x})["e"]
    np.testing.assert_array_equal(ours, unflip(theirs) if element == TensorProto.UINT8 else theirs)


def test_float_ends():
    model = IntegerModel()
    half = model.scale("half", 0.5)
    q = model.node("QuantizeLinear", ["x", half, "zero"], "q")
    a = model.conv(q, "a", WEIGHTS)
    model.node("DequantizeLinear", [a, half, "zero"], "y")
    graph = from_onnx(model.build("y", element=TensorProto.FLOAT), "m")
    assert [value.name for value in graph.inputs] == ["q"]
    assert graph.outputs == ("a",)


@pytest.mark.parametrize(("shape", "size"), [((1, 4), (4, 1, 1)), ((1, 4, 3), (4, 3, 1))])
def test_an_input_without_rows_and_columns(shape: tuple[int, ...], size: tuple[int, int, int]):
    model = IntegerModel(shape=shape)
    operands = ["x", model.scale("step", 0.25), "zero"]
    model.node("QLinearAdd", [*operands, *operands, "step", "zero"], "y", domain="com.microsoft")
    graph = from_onnx(model.build("y"), "m")
    assert [(value.channels, value.height, value.width) for value in graph.inputs] == [size]


@pytest.mark.parametrize("kernel", [6, 7])
def test_a_window_larger_than_its_input_is_refused(kernel: int):
    model = IntegerModel()
    model.node("MaxPool", [model.conv("x", "a", WEIGHTS, pads=[1, 1, 1, 1])], "y", kernel_shape=[kernel, 1])
    with pytest.raises(UnsupportedError, match=r"n_y \(MaxPool\): its window does not fit its input"):
        from_onnx(model.build("y"), "m")


def test_what_stands_at_the_end_need_not_run():
    """Real numbers, probabilities, other shapes; the metadata's notes come first."""
    model = IntegerModel(shape=(1, 2, 3, 3))
    a = model.conv("x", "a", WEIGHTS)
    flat = model.node("Flatten", [a], "flat")
    real = model.node("DequantizeLinear", [flat, model.scale("half", 0.5), "zero"], "real")
    last = model.node("Identity", [model.node("Softmax", [real], "prob", axis=1)], "y")
    built = model.build(last)
    built.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    graph = from_onnx(built, "m")
    assert [layer.output for layer in graph.layers] == list(graph.outputs) == ["a"]
    note = (
        "Flatten flat, DequantizeLinear real, Softmax prob, Identity y at the end are left out: they do not change the "
        "order of classes."
    )
    assert graph.notes == (note,)
    onnx.helper.set_model_props(built, {"meshloom": metadata(notes=["mine"])})
    assert from_onnx(built, "m").notes == ("mine", note)
    model.node("Relu", ["prob"], "z")
    with pytest.raises(UnsupportedError, match=r"n_flat \(Flatten\): no layer does that"):
        from_onnx(model.build("y", "z"), "m")


def test_a_softmax_inside_of_a_network_of_integers_is_refused():
    model = IntegerModel(shape=(1, 2, 3, 3))
    half = model.scale("half", 0.5)
    real = model.node("DequantizeLinear", [model.conv("x", "a", WEIGHTS), half, "zero"], "real")
    model.node("QuantizeLinear", [model.node("Softmax", [real], "prob", axis=1), half, "zero"], "q")
    model.conv("q", "y", WEIGHTS)
    with pytest.raises(UnsupportedError, match=r"Softmax\): inside the network; only one at its end can be left out"):
        from_onnx(model.build("y"), "m")


@pytest.mark.parametrize("real", [False, True])
def test_whole_numbers_at_the_end(real):
    """Bytes that have more bits then are the same; real numbers are not."""
    model = IntegerModel()
    last = model.conv("x", "a", WEIGHTS)
    if real:
        last = model.node("DequantizeLinear", [last, model.scale("half", 0.5), "zero"], "real")
    built = model.build(model.node("Cast", [last], "y", to=TensorProto.INT64))
    built.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    if real:
        with pytest.raises(UnsupportedError, match=r"n_y \(Cast\): tensors can be cast only to int32"):
            from_onnx(built, "m")
    else:
        assert from_onnx(built, "m").notes == ("Cast y at the end is left out: it does not change values.",)


def test_every_input_that_cannot_be_is_listed():
    model = IntegerModel()
    built = model.build(model.conv("x", "a", WEIGHTS))
    for name, shape in (("first", [1, 2, 3, 4, 5]), ("second", [1])):
        built.graph.input.insert(0, onnx.helper.make_tensor_value_info(name, TensorProto.UINT8, shape))
    with pytest.raises(UnsupportedError) as caught:
        from_onnx(built, "m")
    assert [(problem.node, problem.why.partition(";")[0]) for problem in caught.value.problems] == [
        ("second", "has 1 dimensions, [1]"), ("first", "has 5 dimensions, [1, 2, 3, 4, 5]"),
    ]  # fmt: skip


def metadata(**changes: object) -> str:
    """That of a network without anything."""
    nothing = {"version": 1, "name": "m", "real": True, "steps": {}, "labels": [], "notes": [], "picture": None}
    return json.dumps(nothing | changes)


def test_everything_unsupported_is_listed_at_once():
    model = IntegerModel()
    a = model.conv("x", "a", WEIGHTS, (1.0, 0.3, 1.0))
    b = model.conv(a, "b", WEIGHTS[:, :1].repeat(3, 1), (1.0, 1.0, 1.0))
    c = model.node("Transpose", [b], "c", perm=[0, 2, 3, 1])
    d = model.node("MaxPool", [c], "d", kernel_shape=[2, 2], strides=[9, 1])
    model.node("NonMax", [d], "", domain="com.example")
    model.nodes[-1].output[:] = ["e"]
    model.nodes[-1].name = ""
    wide = model.scale("w3", 0.5)
    ones = model.scale("one", 1.0)
    model.node("QLinearAdd", [a, ones, "zero", a, wide, "zero", ones, "zero"], "f", domain="com.microsoft")
    zero = model.array("zero3", np.array(3, np.uint8))
    model.node("QLinearConv", [a, ones, zero, "a_w", "a_s1", "zero", ones, "zero"], "g")
    model.node("Slice", [a, model.array("s", np.array([1])), model.array("t", np.array([2])), "s"], "h")
    model.node("Clip", [a, model.array("l", np.array(100, np.uint8))], "i")
    with pytest.raises(UnsupportedError) as caught:
        from_onnx(model.build("e", "f", "g", "h", "i"), "m.onnx")
    text = str(caught.value)
    assert text.startswith("m.onnx: 9 nodes cannot run on the chip")
    for part in (
        "n_a (QLinearConv): scale m = sx * sw / sy * 2^17 = 39321.6 must be a whole number of 1..65535",
        "n_b (QLinearConv): scale m = sx * sw / sy * 2^17 = 131072 must be",
        "n_c (Transpose): no layer does that",
        "n_d (MaxPool): stride_h = 9, a VEC instruction holds at most 7",
        "-> e (com.example.NonMax): no layer does that",
        "n_f (com.microsoft.QLinearAdd): scales 1, 0.5 and 1 must be equal",
        "n_g (QLinearConv): zero point 3 of a uint8 must be 128",
        "n_h (Slice): only rows and columns can be sliced",
        "n_i (Clip): clips at -28 and 127",
    ):
        assert part in text
    assert [problem.node for problem in caught.value.problems][4] == "-> e"


def int32_chain(*nodes: tuple, output: str = "y") -> onnx.ModelProto:
    """Cast of x to int32 as `a`, then nodes (operator, inputs, output, attributes)."""
    model = IntegerModel()
    model.node("Cast", ["x"], "a", to=TensorProto.INT32)
    for number in (128, 127, 0, 255, 256):
        model.array(f"c{number}", np.array(number, np.int32))
    for operator, inputs, name, *attributes in nodes:
        model.node(operator, inputs, name, **(attributes[0] if attributes else {}))
    return model.build(output)


BACK = {"to": TensorProto.UINT8}


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            (("Add", ["a", "a"], "s"), ("Cast", ["s"], "y", BACK)),
            "a sum with zero point 256; it must be cast to uint8 at 128",
        ),
        ((("Add", ["a", "a"], "s"), ("Sub", ["s", "c128"], "t"), ("Cast", ["t"], "y", BACK)), "would wrap"),
        ((("Cast", ["a"], "y", {"to": TensorProto.INT8}),), "must be cast to uint8 at 128 or to int8 at 0"),
        (
            (("Clip", ["a", "c0", "c255"], "s"), ("Add", ["s", "a"], "t"), ("Cast", ["t"], "y", BACK)),
            "a sum is clipped once",
        ),
        (
            (
                ("Add", ["a", "a"], "s"),
                ("Add", ["s", "a"], "t"),
                ("Sub", ["t", "c256"], "u"),
                ("Clip", ["u", "c0", "c255"], "v"),
                ("Cast", ["v"], "y", BACK),
            ),
            "adds 3 tensors",
        ),
        ((("Add", ["x", "x"], "y"),), "8-bit tensors are added by QLinearAdd"),
        (
            (("Cast", ["x"], "b", {"to": TensorProto.FLOAT}), ("Floor", ["b"], "y")),
            "can be cast only to int32, for additions",
        ),
    ],
)
def test_additions_that_are_none(nodes, message):
    with pytest.raises(UnsupportedError, match=message):
        from_onnx(int32_chain(*nodes), "m")


def test_a_network_has_layers():
    with pytest.raises(OnnxError, match="m: nothing is left to compute"):
        from_onnx(int32_chain(("Cast", ["x"], "y", {"to": TensorProto.FLOAT})), "m")


def test_a_sum_is_no_output():
    with pytest.raises(OnnxError, match="output 's' is not 8-bit"):
        from_onnx(int32_chain(("Add", ["a", "a"], "s"), output="s"), "m")


# -- files and models at fault ------------------------------------------------------------------------------------


def test_damaged_files(tmp_path):
    path = tmp_path / "a.onnx"
    with pytest.raises(OnnxError, match=r"a.onnx: cannot be read: No such file"):
        read(path)
    for content in (b"", b"no model at all", b"\x89PNG\r\n\x1a\n"):
        path.write_bytes(content)
        with pytest.raises(OnnxError, match=r"a.onnx: is (damaged or )?not an ONNX (file|model)"):
            read(path)
    save(random_graph(1), path)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(OnnxError, match=r"a.onnx: "):
        read(path)


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits(tmp_path, seed):
    """A damaged file is a network still, or a clear error."""
    random, path = np.random.default_rng(seed), tmp_path / "a.onnx"
    whole = to_onnx(random_graph(seed)).SerializeToString()
    refused = 0
    for _ in range(25):
        content = bytearray(whole)
        for at in random.integers(len(content), size=3):
            content[at] ^= 1 << random.integers(8)
        path.write_bytes(content)
        try:
            read(path)
        except WorkloadError:
            refused += 1
    assert refused


def test_weights_in_a_missing_file(tmp_path):
    model = IntegerModel()
    model.conv("x", "y", WEIGHTS)
    built = model.build("y")
    onnx.save(built, tmp_path / "a.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert read(tmp_path / "a.onnx").layers[0].w is not None
    (tmp_path / "w.bin").unlink()
    with pytest.raises(
        OnnxError, match=r"its weights 'zero' lie in 'w.bin', which is no file; copy it beside the model"
    ):
        read(tmp_path / "a.onnx")


@pytest.mark.parametrize("place", ["../w.bin", "{folder}/w.bin", "link", "beside/../../w.bin"])
def test_weights_outside_of_its_folder_are_not_read(tmp_path, place):
    folder = tmp_path / "model"
    folder.mkdir()
    model = IntegerModel()
    model.conv("x", "y", WEIGHTS)
    built = model.build("y")
    onnx.save(built, folder / "a.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (folder / "w.bin").rename(tmp_path / "w.bin")
    (folder / "beside").mkdir()
    (folder / "link").symlink_to(tmp_path / "w.bin")
    built = onnx.load(folder / "a.onnx", load_external_data=False)
    for tensor in built.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = place.format(folder=tmp_path)
    (folder / "a.onnx").write_bytes(built.SerializeToString())
    with pytest.raises(OnnxError, match=r"lie in another file that cannot be read: .*(outside|absolute|link)"):
        read(folder / "a.onnx")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 2, "height", 5), r"dimension 2 of input 'x' is not fixed \(height\); give it a size \(--bind height=N\)"),
        ((1, 2, None, 5), r"dimension 2 of input 'x' is not fixed \(unknown\)"),
        ((4, 2, 5, 5), "has a batch of 4; bind it"),
        ((1, 2, 5, 1, 1), "has 5 dimensions"),
    ],
)
def test_sizes_that_cannot_be(shape, message):
    model = IntegerModel(shape=shape)
    model.node(
        "MaxPool" if len(shape) == 4 else "Identity",
        ["x"],
        "y",
        **({"kernel_shape": [1, 1]} if len(shape) == 4 else {}),
    )
    with pytest.raises(OnnxError, match=message):
        from_onnx(model.build("y"), "m")


def test_opsets():
    model = IntegerModel()
    model.conv("x", "y", WEIGHTS)
    for opset in (6, 99):
        with pytest.raises(OnnxError, match=f"opset {opset} must be one of 7.."):
            from_onnx(model.build("y", opset=opset), "m")
    assert from_onnx(model.build("y", opset=21), "m").layers


def test_invalid_models(tmp_path):
    model = IntegerModel()
    model.node("MaxPool", ["nothing"], "y", kernel_shape=[1, 1])
    with pytest.raises(OnnxError, match="is not a valid ONNX model"):
        from_onnx(model.build("y"), "m")
    model = IntegerModel()
    model.node("MaxPool", ["x"], "y")  # no kernel
    with pytest.raises(OnnxError, match="is not a valid ONNX model"):
        from_onnx(model.build("y"), "m")
    model = IntegerModel()
    model.conv("x", "y", WEIGHTS[:, :1])
    with pytest.raises(WorkloadError, match="y"):
        from_onnx(model.build("y"), "m")


def test_float_models_are_told_apart(tmp_path):
    model = IntegerModel(TensorProto.FLOAT)
    model.node("Relu", ["x"], "y")
    onnx.save(model.build("y"), tmp_path / "f.onnx")
    assert as_it_is(onnx.load(tmp_path / "f.onnx"), "f") is None
    with pytest.raises(OnnxError, match="is a float model; quantise it first"):
        read(tmp_path / "f.onnx")


def test_inputs_of_other_types():
    model = IntegerModel()
    model.node("Identity", ["x"], "y")
    with pytest.raises(UnsupportedError, match="operand 'x' is not of 8 bits; put a QuantizeLinear after the input"):
        from_onnx(model.build("y", element=TensorProto.INT32), "m")


def test_unknown_operators_are_listed_though_the_model_is_invalid():
    """Those of which ONNX knows nothing: the others' faults are not known yet."""
    model = IntegerModel()
    model.node("Strange", [model.node("Exp", ["x"], "e")], "y")
    with pytest.raises(UnsupportedError) as caught:
        from_onnx(model.build("y"), "m")
    assert [(problem.node, problem.operator) for problem in caught.value.problems] == [("n_y", "Strange")]
    assert "no operator of ONNX is called so in opset 13: it is the exporter's own" in str(caught.value)
    other = IntegerModel()
    other.node("Strange", ["x"], "y", domain="some.where")
    with pytest.raises(UnsupportedError, match=r"some.where.Strange\): no layer does that"):
        from_onnx(other.build("y"), "m")


def test_metadata_is_checked():
    model = to_onnx(random_graph(5))
    entry = model.metadata_props[0]
    right = json.loads(entry.value)
    assert right["notes"] == ["from nowhere"]
    for change, message in (
        ({"version": 2}, "version"),
        ({"steps": {"in0": -1}}, "steps.in0"),
        ({"picture": {"mode": "RGB", "mean": [1], "std": [1]}}, "picture: 1 means and 1 deviations for mode RGB"),
        ({"more": 1}, "more"),
    ):
        entry.value = json.dumps(right | change)
        with pytest.raises(OnnxError, match=f"m: metadata 'meshloom': {message}"):
            from_onnx(model, "m")
    entry.value = "{"
    with pytest.raises(OnnxError, match="m: metadata 'meshloom'"):
        from_onnx(model, "m")
    graph = random_graph(5)
    with pytest.raises(OnnxError, match=r"network random5: steps\.l0"):
        to_onnx(replace(graph, steps={"l0": float("inf")}))


@pytest.mark.parametrize("m", [1341, 1342, 7579])
@pytest.mark.parametrize("relu", [False, True])
def test_products_near_the_middle_of_two_numbers_are_rounded_as_they_are(m: int, relu: bool) -> None:
    """All products of two bytes: QLinearMul adds the zero point first, and loses the last bit of some."""
    sides = Value("a", 1, 256, 256, 1.0), Value("b", 1, 256, 256, 1.0)
    graph = Graph("products", sides, (Layer("mul", "y", ("a", "b"), scale=m, relu=relu),), ("y",))
    model = to_onnx(graph)
    (layer,) = from_onnx(model, "products").layers
    assert (layer.kind, layer.inputs, layer.scale, layer.relu) == ("mul", ("a", "b"), m, relu)
    a, b = np.meshgrid(*[np.arange(-128, 128, dtype=np.int8)] * 2)
    (result,) = run(session(model, "products"), {"a": flip(a[None, None]), "b": flip(b[None, None])}).values()
    exact = np.clip(np.rint(a.astype(np.int64) * b * m / 2**17), 0 if relu else -128, 127)
    np.testing.assert_array_equal(unflip(result)[0, 0], exact)


def test_functions_of_products_that_no_chip_has() -> None:
    sides = Value("a", 1, 2, 2, 1.0), Value("b", 1, 2, 2, 1.0)
    model = to_onnx(Graph("products", sides, (Layer("mul", "y", ("a", "b"), scale=1341),), ("y",)))
    (scale,) = (item for item in model.graph.initializer if item.name == "y/scale")
    scale.CopyFrom(onnx.numpy_helper.from_array(np.array(0.3 / 2**17), "y/scale"))
    with pytest.raises(UnsupportedError, match=r"scale 0.3 / 2\^17 must be m / 2\^17, m a whole number"):
        from_onnx(model, "products")


def test_a_model_that_onnx_runtime_stumbles_over_is_one_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The name of an operator is no text."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    damaged = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)]).SerializeToString()
    model = onnx.ModelProto.FromString(damaged.replace(b"Relu", b"R\xff\xfeu"))
    with pytest.raises(OnnxError, match="m: ONNX Runtime refuses it"):
        session(model, "m")
    assert not capsys.readouterr().out
