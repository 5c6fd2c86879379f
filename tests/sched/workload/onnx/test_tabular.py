"""Operators for tables of numbers, as converters of scikit-learn write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from meshloom.sched.workload.onnx.contributed import without_contributed
from meshloom.sched.workload.onnx.errors import UnsupportedError
from meshloom.sched.workload.onnx.labels import labels_in
from meshloom.sched.workload.onnx.load import load_model
from meshloom.sched.workload.onnx.quantise import quantise_with_report
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.sched.workload.onnx.tabular import DOMAIN

COLUMNS = 5
WEIGHTS = np.random.default_rng(0).normal(0, 1, (3, COLUMNS)).astype(np.float32)


def model(nodes: list[onnx.NodeProto], *outputs: tuple[str, int], kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "table", [helper.make_tensor_value_info("x", kind, (1, COLUMNS))],
        [helper.make_tensor_value_info(name, its, None) for name, its in outputs],
    )  # fmt: skip
    # skl2onnx names the standard operators twice
    opsets = [helper.make_opsetid(DOMAIN, 1), helper.make_opsetid("", 17), helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def node(kind: str, outputs: list[str], source: str = "x", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, [source], outputs, kind, domain=DOMAIN, **attributes)


def classifier(post: str = "NONE", **changes: Any) -> onnx.NodeProto:
    options: dict[str, Any] = {"classlabels_ints": [7, 2, 4], "intercepts": [0.5, 0.0, -1.0]}
    options |= {"coefficients": WEIGHTS.ravel().tolist(), "post_transform": post} | changes
    options = {name: value for name, value in options.items() if value is not None}
    return node("LinearClassifier", ["label", "scores"], **options)


def same(whole: onnx.ModelProto, kind: type = np.float32) -> None:
    """The standard operators compute what these do."""
    plain = without_contributed(whole, "m")
    assert not any(each.domain == DOMAIN for each in plain.graph.node)
    for seed in range(4):
        x = (3 * np.random.default_rng(seed).normal(0, 1, (1, COLUMNS))).astype(kind)
        exact = run(session(whole, "whole"), {"x": x})
        for name, array in run(session(plain, "plain"), {"x": x}).items():
            np.testing.assert_allclose(array, exact[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.int64])
@pytest.mark.parametrize(
    "options", [{"offset": [1.0] * COLUMNS, "scale": [2.0] * COLUMNS}, {"offset": [0.5], "scale": [3.0]}]
)
def test_columns_are_scaled(options: dict[str, Any], kind: type) -> None:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    same(
        model(
            [helper.make_node("Scaler", ["x"], ["y"], domain=DOMAIN, **options)], ("y", TensorProto.FLOAT), kind=element
        ),
        kind,
    )


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_models(post: str) -> None:
    both = ("label", TensorProto.INT64), ("scores", TensorProto.FLOAT)
    for outputs in (both, both[:1], both[1:]):
        same(model([classifier(post)], *outputs))
    options: dict[str, Any] = {"coefficients": WEIGHTS.ravel().tolist(), "targets": 3}
    same(model([node("LinearRegressor", ["y"], intercepts=[0.5, 1, 2], **options)], ("y", TensorProto.FLOAT)))
    same(model([node("LinearRegressor", ["y"], **options)], ("y", TensorProto.FLOAT)))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"post_transform": "PROBIT"}, "post_transform PROBIT; must be one of NONE, LOGISTIC, SOFTMAX"),
        ({"classlabels_ints": [0, 1]}, "3 rows of coefficients for 2 classes; it must have one for each"),
        ({"coefficients": [1.0] * 16}, "16 coefficients and 3 intercepts for 3 results; export it again"),
    ],
)
def test_linear_models_that_are_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        without_contributed(model([classifier(**changes)], ("label", TensorProto.INT64), ("scores", 1)), "m")


@pytest.mark.parametrize("norm", ["L1", "L2", "MAX"])
def test_rows_of_one_length(norm: str) -> None:
    same(model([node("Normalizer", ["y"], norm=norm)], ("y", TensorProto.FLOAT)))


@pytest.mark.parametrize("options", [{}, {"threshold": 0.4}])
def test_which_are_above_a_threshold(options: dict[str, Any]) -> None:
    same(model([node("Binarizer", ["y"], **options)], ("y", TensorProto.FLOAT)))


def test_some_columns_and_those_that_lack() -> None:
    """Nothing lacks in what the chip takes."""
    columns = helper.make_node("Constant", [], ["columns"], value=numpy_helper.from_array(np.array([[3, 1, 3]])))
    taken = helper.make_node("ArrayFeatureExtractor", ["whole", "columns"], ["y"], "a", domain=DOMAIN)
    imputer = node("Imputer", ["whole"], imputed_value_floats=[2.0] * COLUMNS, replaced_value_float=float("nan"))
    same(model([columns, imputer, taken], ("y", TensorProto.FLOAT)))


@pytest.mark.parametrize(
    "options",
    [
        {"imputed_value_floats": [2.0] * COLUMNS, "replaced_value_float": 1.0},
        {"imputed_value_floats": [2.0] * COLUMNS},  # of 0, if nothing is said
        {"imputed_value_int64s": [2]},
    ],
)
def test_numbers_that_stand_for_others_are_refused(options: dict[str, Any]) -> None:
    imputer = node("Imputer", ["y"], **options)
    with pytest.raises(
        UnsupportedError, match=r"puts others in the place of numbers, of (1|0); must be of those that lack"
    ):
        without_contributed(model([imputer], ("y", TensorProto.FLOAT)), "m")


def test_polynomials_of_columns() -> None:
    """As scikit-learn writes them: a product over the columns of each term."""
    nodes: list[onnx.NodeProto] = []
    for at, columns in enumerate(([0], [1, 1], [0, 2, 4])):
        nodes += [
            helper.make_node("Constant", [], [f"c{at}"], value=numpy_helper.from_array(np.array(columns))),
            helper.make_node("ArrayFeatureExtractor", ["x", f"c{at}"], [f"t{at}"], f"e{at}", domain=DOMAIN),
            helper.make_node("ReduceProd", [f"t{at}"], [f"p{at}"], f"p{at}", axes=[1], keepdims=at % 2),
        ]
    end = [helper.make_node("Reshape", [f"p{at}", "row"], [f"r{at}"]) for at in range(3)]
    row = helper.make_node("Constant", [], ["row"], value=numpy_helper.from_array(np.array([1, 1])))
    whole = model(
        [
            *nodes,
            row,
            *end,
            helper.make_node("Concat", ["r0", "r1", "r2"], ["r"], axis=1),
            helper.make_node("Gemm", ["r", "w"], ["y"]),
        ],
        ("y", 1),
    )
    whole.graph.initializer.append(numpy_helper.from_array(WEIGHTS[:, :3], "w"))
    data = [np.random.default_rng(seed).normal(0, 1, (1, COLUMNS)).astype(np.float32) for seed in range(4)]
    report = quantise_with_report(without_contributed(whole, "m"), data)
    assert report.snr_db > 28
    assert report.host is None


def test_classes_that_are_texts() -> None:
    """The host takes the name of the best one, and the network has the names."""
    named = classifier(classlabels_ints=None, classlabels_strings=["ant", "bee", "cat"])
    whole = model([named], ("label", TensorProto.STRING), ("scores", 1))
    plain = without_contributed(whole, "m")
    assert labels_in(plain) == ("ant", "bee", "cat")
    x = {"x": np.ones((1, COLUMNS), np.float32)}
    assert run(session(plain, "plain"), x)["label"].tolist() == run(session(whole, "whole"), x)["label"].tolist()
    report = quantise_with_report(plain, [x["x"], 2 * x["x"]])
    values = {name: np.array([[[[-1.0]], [[2.0]], [[0.5]]]]) for name in report.graph.outputs}
    assert report.said(values)["label"].tolist() == ["bee"]


def test_several_lists_of_texts_name_no_classes() -> None:
    plain = without_contributed(model([classifier()], ("label", TensorProto.INT64)), "m")
    assert labels_in(plain) == ()
    for name in "ab":
        plain.graph.initializer.append(numpy_helper.from_array(np.array(["yes", "no"], object), name))
    plain.graph.node.append(helper.make_node("Gather", ["a", "label"], ["first"]))
    assert labels_in(plain) == ("yes", "no")
    plain.graph.node.append(helper.make_node("Gather", ["b", "label"], ["second"]))
    assert labels_in(plain) == ()


def test_probabilities_are_tensors_in_place_of_maps(tmp_path: Path) -> None:
    """A classifier as it is written unless it is told otherwise, with what it has scaled."""
    nodes = [
        node("Scaler", ["scaled"], offset=[0.5], scale=[2.0]),
        helper.make_node("LinearClassifier", ["scaled"], ["label", "scores"], "c", domain=DOMAIN,
                         **{each.name: helper.get_attribute_value(each) for each in classifier("SOFTMAX").attribute}),
        node("ZipMap", ["maps"], "scores", classlabels_int64s=[7, 2, 4]),
    ]  # fmt: skip
    whole = model(nodes, ("label", TensorProto.INT64))
    maps = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, ()))
    whole.graph.output.append(helper.make_value_info("maps", helper.make_sequence_type_proto(maps)))
    onnx.save(whole, tmp_path / "m.onnx")
    tensors = load_model(tmp_path / "m.onnx")
    assert [value.name for value in tensors.graph.output] == ["label", "scores"]
    data = [np.random.default_rng(seed).normal(0, 1, (1, COLUMNS)).astype(np.float32) for seed in range(4)]
    report = quantise_with_report(tensors, data)
    assert report.graph.notes[-1].endswith("Gather label at the end run on the host.")
    assert report.snr_db > 30


def test_trees_are_refused_with_what_they_are() -> None:
    trees = node(
        "TreeEnsembleRegressor", ["y"], n_targets=1, nodes_treeids=[0], nodes_nodeids=[0], nodes_featureids=[0],
        nodes_values=[0.0], nodes_modes=["LEAF"], nodes_truenodeids=[0], nodes_falsenodeids=[0], target_treeids=[0],
        target_nodeids=[0], target_ids=[0], target_weights=[1.0],
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="no network of layers: a chip computes products, pools and functions"):
        quantise_with_report(model([trees], ("y", TensorProto.FLOAT)), [np.zeros((1, COLUMNS), np.float32)])
