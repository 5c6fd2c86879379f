"""Quantised models of a few nodes that `make graphs` has drawn and that were once read wrongly, or not at all."""

from __future__ import annotations

import numpy as np
import pytest

from meshloom.sched.workload.onnx.calibrate import measure
from meshloom.sched.workload.onnx.dequantised import dequantised
from meshloom.sched.workload.onnx.dequantising.pairs import with_ends_of_relus
from meshloom.sched.workload.onnx.float_reader import fold
from meshloom.sched.workload.onnx.nodes import attributes
from meshloom.sched.workload.onnx.pins import Pin, cut_off
from meshloom.sched.workload.onnx.quantise import quantise_with_report
from meshloom.sched.workload.onnx.runtime import run, session

from ...float_models import decibels, integer_outputs
from .test_drawn import model_of, near

#: x with steps of 1/32; weights and biases of three channels that become two.
BYTES = """float s = {0.03125}, int8 z = {0}, float w_s = {0.0625}, float y_s = {0.05}, uint8 y_z = {0}, int8 t_z = {0},
           int8[2,3,1,1] w = {9, -20, 31, 16, 16, -16}, int32[2] b = {400, 100}"""


def test_a_range_that_cuts_off() -> None:
    """A ReLU6 that the quantiser has made a scale: what is larger than 255 steps is 255 steps."""
    constants = BYTES.replace("{0.05}", "{0.004}")
    body = """q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) v = DequantizeLinear(w, w_s, z)
              c = DequantizeLinear(b, w_s) d = Conv(a, v, c) e = QuantizeLinear(d, y_s, y_z)
              y = DequantizeLinear(e, y_s, y_z)"""
    report = near(model_of("1,3,4,4", "y:1,2,4,4", body, constants), least=25)
    assert report.snr_db > 25, "the report compares with what the file cuts off"
    (layer,) = report.graph.layers
    assert layer.relu


@pytest.mark.parametrize("body", ["y = Atan(x)", "y = Neg(x)"])
def test_who_reads_an_input_before_the_file_rounds_it(body: str) -> None:
    rounded = """q = QuantizeLinear(x, s, z) r = QLinearConv(q, s, z, w, w_s, z, y_s, t_z, b)
                 v = DequantizeLinear(r, y_s, t_z)"""
    near(model_of("1,3,4,4", "y:1,3,4,4 v:1,2,4,4", f"{rounded} {body}", BYTES))


def test_a_part_that_the_file_rounds_by_itself() -> None:
    constants = f"{BYTES}, int64[1] from = {{1}}, int64[1] to = {{3}}, int64[1] axis = {{3}}"
    body = """a = Slice(x, from, to, axis) q = QuantizeLinear(a, s, z)
              r = QLinearConv(q, s, z, w, w_s, z, y_s, t_z, b) y = DequantizeLinear(r, y_s, t_z)"""
    near(model_of("1,3,4,4", "y:1,2,4,2", body, constants))


def test_zeros_around_what_the_file_rounds_behind_them() -> None:
    constants = f"{BYTES}, int64[8] p = {{0,0,1,0,0,0,0,1}}"
    body = """a = Pad(x, p) q = QuantizeLinear(a, s, z)
              r = QLinearConv(q, s, z, w, w_s, z, y_s, t_z, b) y = DequantizeLinear(r, y_s, t_z)"""
    near(model_of("1,3,4,4", "y:1,2,5,5", body, constants))


def test_functions_of_what_the_file_rounds() -> None:
    """The network may compute a layer and what follows at once."""
    constants = BYTES.replace("{0.05}", "{0.1}") + ", float half = {0.5}"
    body = """q = QuantizeLinear(x, s, z) r = com.microsoft.QLinearMul(q, s, z, q, s, z, y_s, t_z)
              v = DequantizeLinear(r, y_s, t_z) a = Abs(v) y = Sub(a, half) e = Exp(v)"""
    near(model_of("1,3,4,4", "y:1,3,4,4 e:1,3,4,4", body, constants), least=15)


def test_an_einsum_that_moves_what_the_file_rounds() -> None:
    body = """q = QuantizeLinear(x, s, z) r = QLinearConv(q, s, z, w, w_s, z, y_s, t_z, b)
              a = DequantizeLinear(r, y_s, t_z) y = Einsum<equation = "bchw->bhwc">(a)"""
    near(model_of("1,3,4,5", "y:1,4,5,2", body, BYTES))


def test_gains_by_einsum_between_what_the_file_rounds() -> None:
    """The product has its axes in another order, and is then put in that of the result."""
    constants = f"{BYTES}, float[2] g = {{0.5, -1.5}}"
    body = """q = QuantizeLinear(x, s, z) r = QLinearConv(q, s, z, w, w_s, z, y_s, t_z, b)
              a = DequantizeLinear(r, y_s, t_z) c = Einsum<equation = "bchw,c->bchw">(a, g)
              d = QuantizeLinear(c, y_s, t_z) y = DequantizeLinear(d, y_s, t_z)"""
    near(model_of("1,3,4,5", "y:1,2,4,5", body, constants))


@pytest.mark.parametrize(("zero", "kinds"), [(40, ["table", "conv"]), (128, ["conv"])])
@pytest.mark.parametrize("tables", [True, False])
def test_an_input_beyond_the_files_range(zero: int, kinds: list[str], tables: bool) -> None:
    """The chip's, which is even around 0, has more where the file's is not: a table cuts that off, if cores have one.
    The report compares with what the file cuts off."""
    constants = f"float s = {{0.01}}, uint8 z = {{{zero}}}, float[2,3,1,1] w = {{1.0, -2.0, 0.5, 1.5, 0.5, -1.0}}"
    body = "q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) y = Conv(a, w)"
    model = model_of("1,3,4,4", "y:1,2,4,4", body, constants)
    data = [{"x": np.random.default_rng(seed).normal(0, 1, (1, 3, 4, 4)).astype(np.float32)} for seed in range(3)]
    report = quantise_with_report(model, data, lacks=() if tables else ("core.vec_table",))
    exact = [run(session(model, "float"), dict(item))["y"] for item in data]
    results = [integer_outputs(report.graph, item["x"])["y"] for item in data]
    assert report.snr_db == pytest.approx(decibels(np.stack(exact), np.stack(results)), abs=0.01)
    assert (report.snr_db > 35) == (tables or kinds == ["conv"])
    assert [layer.kind for layer in report.graph.layers] == (kinds if tables else ["conv"])


@pytest.mark.parametrize(
    "end",
    [
        "y = Relu(v)",
        "y = Relu(v) u = Neg(v)",
        "k = Relu(v) j = QuantizeLinear(k, wide, t_z) y = DequantizeLinear(j, wide, t_z)",
        "k = Relu(v) j = QuantizeLinear(k, wide, y_z) y = DequantizeLinear(j, wide, y_z)",
    ],
)
@pytest.mark.parametrize(
    "layer",
    [
        "r = QLinearConv(q, s, z, w, w_s, t_z, y_s, t_z, b) v = DequantizeLinear(r, y_s, t_z)",
        """p = DequantizeLinear(q, s, z) f = DequantizeLinear(w, w_s, t_z) c = DequantizeLinear(b, b_s)
           n = Conv(p, f, c) m = QuantizeLinear(n, y_s, t_z) v = DequantizeLinear(m, y_s, t_z)""",
    ],
)
def test_a_relu_behind_what_the_file_cuts_off(layer: str, end: str) -> None:
    """The network has both as one layer."""
    constants = BYTES.replace("{0.05}", "{0.004}") + ", float b_s = {0.001953125}, float wide = {0.01}"
    outputs = "y:1,2,4,4 u:1,2,4,4" if "u =" in end else "y:1,2,4,4"
    near(model_of("1,3,4,4", outputs, f"q = QuantizeLinear(x, s, z) {layer} {end}", constants), least=30)


def test_a_part_of_which_the_file_cuts_off_most() -> None:
    """Its readers' results have nothing in common with those of the whole."""
    constants = f"{BYTES.replace('{0.03125}', '{0.0015}')}, int64[1] a = {{1}}, int64[1] b = {{4}}, int64[1] c = {{3}}"
    body = """p = Slice(x, a, b, c) q = QuantizeLinear(p, s, z) r = QLinearConv(q, s, z, w, w_s, z, y_s, t_z, b_0)
              y = DequantizeLinear(r, y_s, t_z) m = MaxPool<kernel_shape = [1, 2]>(x)"""
    constants = constants.replace("int32[2] b = {400, 100}", "int32[2] b_0 = {400, 100}").replace("{0.05}", "{0.002}")
    near(model_of("1,3,4,5", "y:1,2,4,3 m:1,3,4,4", body, constants), least=20)


@pytest.mark.parametrize("end", ["y = Div(v, half)", "y = Mul(half, v)", "u = Mul(v, half) y = Sub(u, half)"])
def test_a_factor_behind_a_sum_that_the_file_rounds(end: str) -> None:
    """The network multiplies and adds at once."""
    constants = f"{BYTES}, int8[1,3,1,1] g = {{20, -30, 9}}, float half = {{0.4}}"
    body = f"""p = Sin(x) q = QuantizeLinear(p, s, z) r = com.microsoft.QLinearAdd(q, s, z, g, s, z, y_s, t_z)
               v = DequantizeLinear(r, y_s, t_z) {end}"""
    near(model_of("1,3,4,4", "y:1,3,4,4", body, constants), least=25)


@pytest.mark.parametrize("body", ["b = Conv(a, w) y = Add(a, b)", "y = Softmax<axis = 1>(a) v = Neg(a)"])
def test_what_the_file_does_not_round_is_not_cut_off(body: str) -> None:
    constants = "float s = {0.03}, int8 z = {0}, float[3,3,1,1] w = {9.0, -8.0, 0.5, 1.5, 7.5, -1.0, 3.0, 2.0, -9.0}"
    outputs = "y:1,3,4,4 v:1,3,4,4" if "v =" in body else "y:1,3,4,4"
    near(model_of("1,3,4,4", outputs, f"q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) {body}", constants))


def test_other_scales_than_the_files_but_where_it_saturates() -> None:
    """The result is cut off on both sides, by the least and the largest number of its tensor."""
    constants = """float s = {0.03125}, uint8 z = {100}, uint8[1,3,1,1] g = {20, 200, 140}, float g_s = {0.011},
        uint8 g_z = {90}, float p_s = {0.05}, uint8 p_z = {111}, int8[2,3,1,1] w = {9, -20, 31, 16, 16, -16},
        float w_s = {0.0625}, int8 w_z = {0}, float y_s = {0.008}, uint8 y_z = {128}"""
    body = """q = QuantizeLinear(x, s, z) p = com.microsoft.QLinearMul(q, s, z, g, g_s, g_z, p_s, p_z)
        r = QLinearConv(p, p_s, p_z, w, w_s, w_z, y_s, y_z) y = DequantizeLinear(r, y_s, y_z)"""
    report = near(model_of("1,3,4,4", "y:1,2,4,4", body, constants), least=30)
    assert any("but where it saturates" in note for note in report.graph.notes)


QUOTIENT = "h = Div(a, g) k = QuantizeLinear(h, e_s, t_z) y = DequantizeLinear(k, e_s, t_z)"
INTEGERS = "r = QLinearConv(q, s, z, w, w_s, t_z, y_s, t_z, b) a = DequantizeLinear(r, y_s, t_z)"
PAIRS = """v = DequantizeLinear(w, w_s, t_z) n = Conv(p, v) m = QuantizeLinear(n, y_s, t_z)
           a = DequantizeLinear(m, y_s, t_z)"""


@pytest.mark.parametrize(
    "end", ["y = Div(a, g)", "h = Div(g, a_half) y = Mul(h, a)", "h = Relu(g) y = Mul(h, a)", QUOTIENT]
)
@pytest.mark.parametrize("layer", [INTEGERS, PAIRS])
def test_functions_of_what_the_file_cuts_off(layer: str, end: str) -> None:
    """A table of several nodes, between which the file rounds numbers of 3 to 4 to 1.275."""
    constants = BYTES.replace("{0.05}", "{0.1}") + ", float a_half = {0.5}, float big = {3.0}, float e_s = {0.005}"
    body = f"""q = QuantizeLinear(x, s, z) p = DequantizeLinear(q, s, z) {layer} c = Sigmoid(a) d = Add(c, big)
               e = QuantizeLinear(d, e_s, y_z) g = DequantizeLinear(e, e_s, y_z) {end}"""
    report = near(model_of("1,3,4,4", "y:1,2,4,4", body, constants), least=25)
    assert [each.kind for each in report.graph.layers] == ["conv", "table"]


def test_an_average_of_what_the_file_rounds_in_another_shape() -> None:
    constants = (
        """int64[5] d = {1,3,1,6,4}, int64[4] e = {1,3,4,3}, float s = {0.1}, float a_s = {0.02}, uint8 z = {128}"""
    )
    body = """c = Neg(x) r = Reshape(c, d) q = QuantizeLinear(r, s, z)
              p = com.microsoft.QLinearAveragePool<kernel_shape = [1, 3, 2]>(q, s, z, a_s, z)
              f = Reshape(p, e) y = DequantizeLinear(f, a_s, z)"""
    near(model_of("1,3,6,4", "y:1,3,4,3", body, constants), least=15)


def test_weights_that_only_the_runtimes_optimiser_rounds() -> None:
    """Between numbers of 8 bits it rounds weights that the file leaves in floating point."""
    w = "float[3,1,4,3] k = {" + ",".join(f"{n % 7 / 5 - 0.61}" for n in range(36)) + "}"
    body = """q = QuantizeLinear(x, s, z) r = QLinearConv(q, s, z, u, w_s, z, y_s, t_z)
              a = DequantizeLinear(r, y_s, t_z)
              c = ConvTranspose<group = 3>(a, k) e = QuantizeLinear(c, o_s, t_z) y = DequantizeLinear(e, o_s, t_z)"""
    constants = f"{BYTES}, {w}, float o_s = {{0.1}}, int8[3,3,1,1] u = {{9, -20, 31, 16, 16, -16, 5, 6, 7}}"
    near(model_of("1,3,4,4", "y:1,3,7,6", body, constants, opset=21))


#: A number of 0.75 at most.
LITTLE = "float s = {0.02}, uint8 z = {128}, float c_s = {0.01}, uint8 c_z = {180}, int64[1] axis = {1}"


def test_parts_of_a_constants_sum_that_the_file_cuts_off() -> None:
    body = """q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) b, c = Split<axis = 1>(a, parts)
              d = QuantizeLinear(b, s, z) y = DequantizeLinear(d, s, z) e = QuantizeLinear(c, s, z)
              f = DequantizeLinear(e, s, z) g = Add(f, half) h = QuantizeLinear(g, c_s, c_z)
              u = DequantizeLinear(h, c_s, c_z)"""
    constants = f"{LITTLE}, int64[2] parts = {{1,6}}, float half = {{0.5}}"
    near(model_of("1,7", "y:1,1 u:1,6", body, constants, opset=17), least=15)


def test_a_layer_that_takes_in_what_is_cut_off_before_it_does() -> None:
    """A gain and an offset are one layer, which knows of no end between them."""
    body = """q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) b = InstanceNormalization(a, one, none)
              c = Mul(b, half) d = QuantizeLinear(c, c_s, z) e = DequantizeLinear(d, c_s, z) f = Add(e, half)
              g = QuantizeLinear(f, s, z) y = DequantizeLinear(g, s, z)"""
    constants = f"{LITTLE}, float half = {{0.5}}, float[1] one = {{1.0}}, float[1] none = {{0.0}}"
    near(model_of("1,1,7,3", "y:1,1,7,3", body, constants, opset=17), least=15)


def test_what_the_file_cuts_off_and_reads_before() -> None:
    body = """q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) b = HardSwish(a) c = Squeeze(b, axis)
              d = QuantizeLinear(c, c_s, c_z) e = DequantizeLinear(d, c_s, c_z) f, g = Split<axis = 1>(e, parts)
              h = QuantizeLinear(f, c_s, c_z) y = DequantizeLinear(h, c_s, c_z) i = QuantizeLinear(g, c_s, c_z)
              u = DequantizeLinear(i, c_s, c_z)"""
    near(model_of("1,1,2,4", "y:1,1,4 u:1,1,4", body, f"{LITTLE}, int64[2] parts = {{1,1}}", opset=17), least=15)


def test_products_of_a_part_that_the_file_cuts_off_twice() -> None:
    """The sums are those of what is cut off, though the part before that is what the network's value is compared
    with."""
    body = """q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) b = HardSwish(a) c = Squeeze(b, axis)
              d = QuantizeLinear(c, c_s, c_z) e = DequantizeLinear(d, c_s, c_z) f, g = Split<axis = 1>(e, parts)
              h = QuantizeLinear(f, c_s, c_z) y = DequantizeLinear(h, c_s, c_z) i = QuantizeLinear(g, c_s, c_z)
              j = DequantizeLinear(i, c_s, c_z) v = Tanh(j) m = MatMul(j, w) n = QuantizeLinear(m, m_s, z)
              u = DequantizeLinear(n, m_s, z)"""
    more = "float m_s = {0.05}, int64[2] parts = {1,1}, float[4,1] w = {3,-2,1,5}"
    near(model_of("1,1,2,4", "y:1,1,4 u:1,1,1 v:1,1,4", body, f"{LITTLE}, {more}", opset=17), least=15)


def test_a_function_that_is_read_before_and_behind_what_cuts_it_off() -> None:
    """Only who reads it behind has no more than the file's 0.75."""
    body = """q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) b = HardSwish(a) c = Identity(b)
              d = QuantizeLinear(c, c_s, c_z) e = DequantizeLinear(d, c_s, c_z) y = Sigmoid(b)
              v = Tanh(e)"""
    near(model_of("1,1,2,4", "y:1,1,2,4 v:1,1,2,4", body, LITTLE, opset=17), least=20)


def test_a_product_of_two_tensors_that_the_file_rounds_under_other_names() -> None:
    body = """a = MaxPool<kernel_shape = [1, 1]>(x) q = QuantizeLinear(x, s, z) r = QuantizeLinear(a, s, z)
              p = QLinearMatMul(q, s, z, r, s, z, y_s, z) y = DequantizeLinear(p, y_s, z)"""
    near(
        model_of("1,5,4,4", "y:1,5,4,4", body, "float s = {0.04}, uint8 z = {128}, float y_s = {0.08}", opset=21),
        least=15,
    )


def test_a_fully_connected_layer_of_two_tensors() -> None:
    body = """q = QuantizeLinear(x, s, z) a = Reshape(q, n) b = Transpose<perm = [1, 0]>(a)
              p = com.microsoft.QGemm(a, s, z, b, s, z, , y_s, z) y = DequantizeLinear(p, y_s, z)"""
    constants = "float s = {0.04}, uint8 z = {128}, float y_s = {0.08}, int64[2] n = {4, 4}"
    near(model_of("1,4,4", "y:4,4", body, constants, opset=21), least=15)


def test_two_changes_of_layout_of_what_the_file_rounds() -> None:
    body = """a = Softmax<axis = 1>(x) q = QuantizeLinear(a, s, z) m = QLinearMatMul(q, s, z, w, w_s, w_z, m_s, c)
              y = DequantizeLinear(m, m_s, c)
              p = com.microsoft.QLinearAveragePool<kernel_shape = [3, 4]>(q, s, z, p_s, z)
              u = DequantizeLinear(p, p_s, z)"""
    w = ",".join(str(60 + n * 37 % 140) for n in range(48))
    constants = f"""float s = {{0.003}}, uint8 z = {{0}}, float m_s = {{0.0014}}, float p_s = {{0.0003}},
                    uint8 c = {{129}}, uint8 w_z = {{128}}, float w_s = {{0.0088}}, uint8[6,8] w = {{{w}}}"""
    near(model_of("1,2,4,6", "y:1,2,4,8 u:1,2,2,3", body, constants, opset=12), least=10)


def test_a_square_that_is_turned_before_the_file_rounds_it() -> None:
    """The rounded numbers have the shape of the network's value, and another order."""
    body = """a = Tanh(x) t = Transpose<perm = [0, 2, 1]>(a) q = QuantizeLinear(t, s, z)
              m = QLinearMatMul(q, s, z, w, w_s, w_z, m_s, z) y = DequantizeLinear(m, m_s, z)"""
    more = "float w_s = {0.1}, int8 w_z = {0}, float m_s = {0.02}, int8[3,2] w = {9,-7,8,9,-7,9}"
    near(model_of("1,3,3", "y:1,3,2", body, f"float s = {{0.1}}, uint8 z = {{128}}, {more}", opset=17), least=10)


def test_a_relu_in_a_file_whose_clips_have_attributes() -> None:
    constants = BYTES.replace("{0.05}", "{0.004}") + ", float wide = {0.01}"
    body = """q = QuantizeLinear(x, s, z) r = QLinearConv(q, s, z, w, w_s, t_z, y_s, t_z, b)
              v = DequantizeLinear(r, y_s, t_z) k = Relu(v)
              j = QuantizeLinear(k, wide, t_z) y = DequantizeLinear(j, wide, t_z)"""
    model = model_of("1,3,4,4", "y:1,2,4,4", body, constants)
    model.opset_import[0].version = 10
    clip = next(node for node in with_ends_of_relus(model).graph.node if node.op_type == "Clip")
    assert list(clip.input) == ["v"]
    assert attributes(clip) == pytest.approx({"min": 0.0, "max": 127 * 0.004})
    same = model_of("1,3,4,4", "y:1,2,4,4", body.replace("wide", "y_s"), constants)
    assert with_ends_of_relus(same) is same


#: x in steps of 1/250: half of what is drawn is beyond the range.
NARROW = f"{BYTES.replace('{0.03125}', '{0.004}')}, int64[8] p = {{0,0,1,1,0,0,1,1}}, float[4] g = {{1,1,1,1}}"
PAIR = "q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) f = DequantizeLinear(w, w_s, z)"


@pytest.mark.parametrize(
    ("outputs", "body"),
    [
        ("y:1,2,4,4 n:1,3,4,4", f"{PAIR} y = Conv(a, f) n = Neg(x)"),
        ("y:1,2,4,4 n:1,2,4,4", f"{PAIR} y = Conv(a, f) n = Conv(x, f)"),
        ("y:1,3,4,4", f"{PAIR} e = Sigmoid(a) y = Mul(e, x)"),
        ("y:1,3,4,4 m:1,3,4,4", f"{PAIR} y = LayerNormalization(a, g) m = Relu(x)"),
        ("y:1,3,6,6 m:1,3,4,4", f"k = Pad(x, p) {PAIR.replace('(x', '(k')} y = Tanh(a) m = Abs(x)"),
    ],
)
def test_what_is_read_as_it_is_and_as_the_file_cuts_it_off(outputs: str, body: str) -> None:
    """Cutting off is then a layer of its own, before who reads that."""
    report = near(model_of("1,3,4,4", outputs, body, NARROW, opset=17), least=30)
    assert report.snr_db > 30


def test_parts_that_a_file_of_integers_cuts_off_differently() -> None:
    constants = f"{NARROW}, int64[1] from = {{1}}, int64[1] to = {{3}}, int64[1] axis = {{3}}, float u = {{0.002}}"
    body = """a = Slice(x, from, to, axis) q = QuantizeLinear(a, u, z) r = QLinearConv(q, u, z, w, w_s, z, y_s, t_z)
              y = DequantizeLinear(r, y_s, t_z) k = Reshape(x, p) i = QuantizeLinear(k, s, z)
              m = QLinearConv<kernel_shape = [1, 1]>(i, s, z, w, w_s, z, y_s, t_z) n = DequantizeLinear(m, y_s, t_z)"""
    constants = constants.replace("int64[8] p = {0,0,1,1,0,0,1,1}", "int64[4] p = {1,3,2,8}")
    near(model_of("1,3,4,4", "y:1,2,4,2 n:1,2,2,8", body, constants.replace("{0.05}", "{0.01}")), least=25)


def test_what_follows_what_the_file_rounds_is_as_far_off() -> None:
    """Zeros and other numbers around bytes, and a Dropout of what is dequantised."""
    constants = f"{BYTES.replace('{0.05}', '{0.8}')}, int64[8] p = {{0,0,1,1,0,0,1,1}}, int8 c = {{3}}"
    body = """q = QuantizeLinear(x, s, z) r = QLinearConv(q, s, z, w, w_s, z, y_s, t_z, b)
              v = DequantizeLinear(r, y_s, t_z) y = Dropout(v) k = Pad(r, p, c) n = DequantizeLinear(k, y_s, t_z)"""
    model = model_of("1,3,4,4", "y:1,2,4,4 n:1,2,6,6", body, constants)
    assert [dequantised(model, "m").rounding.tensors[name].off for name in "ykn"] == pytest.approx([0.4] * 3)


def test_a_chip_without_tables_says_what_it_does_not_cut_off() -> None:
    constants = f"{BYTES.replace('int8 z = {0}', 'int8 z = {-90}').replace('{0.03125}', '{0.01}')}, int8 o = {{0}}"
    body = PAIR.replace("w_s, z", "w_s, o") + " y = Conv(a, f)"
    model = model_of("1,3,4,4", "y:1,2,4,4", body, constants)
    data = [{"x": np.random.default_rng(seed).normal(0, 1, (1, 3, 4, 4)).astype(np.float32)} for seed in range(3)]
    report = quantise_with_report(model, data, lacks=("core.vec_table",))
    assert [layer.kind for layer in report.graph.layers] == ["conv"]
    assert any("that takes tables, which the chip's cores lack" in note for note in report.graph.notes)


def test_a_table_that_cuts_off_does_so_once() -> None:
    """Steps are tried again where the file's are worse, and each time what saturates is cut off."""
    model = model_of("1,3,4,4", "y:1,2,4,4", "y = Conv(x, w)", "float[2,3,1,1] w = {1.0, -2.0, 0.5, 1.5, 0.5, -1.0}")
    net = fold(model, "m", normalised=False)
    x = np.random.default_rng(3).normal(0, 1, (1, 3, 4, 4)).astype(np.float32)
    statistics, pins = measure(net, [{"x": x}]), {"y": Pin(0.01, -100, -128)}
    for _ in range(2):
        cut_off(net, statistics, pins, lambda name: 0.02)
    assert [(layer.kind, layer.output) for layer in net.layers] == [("conv", "y//uncut"), ("table", "y")]
