"""Quantisers of QONNX: what they make of numbers is what their definition says, and activations keep their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from meshloom.sched.workload.onnx.contributed import without_contributed
from meshloom.sched.workload.onnx.errors import UnsupportedError
from meshloom.sched.workload.onnx.quantise import quantise_with_report
from meshloom.sched.workload.onnx.runtime import run, session

from ...float_models import FloatModel, decibels, integer_outputs

DOMAIN = "qonnx.custom_op.general"


class QonnxModel(FloatModel):
    def quant(self, x: str, output: str, *numbers: Any, kind: str = "Quant", **attributes: Any) -> str:
        """`numbers`: scale, zero point and bits of a Quant, or names of tensors."""
        names = [number if isinstance(number, str) else self.constant(number) for number in numbers]
        self.node(kind, [x, *names], output, **attributes)
        self.nodes[-1].domain = DOMAIN
        return output

    def written(self, *outputs: str) -> onnx.ModelProto:
        model = self.build(*outputs)
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        return without_contributed(model, "m")


def integers(x: NDArray[Any], bits: int, signed: bool, narrow: bool) -> NDArray[Any]:
    """The whole numbers of so many bits that are nearest."""
    least, most = (-(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1 - narrow)
    return np.clip(np.rint(x), least, most)


@pytest.mark.parametrize(("bits", "signed", "narrow"), [(8, 1, 0), (4, 1, 1), (3, 0, 1), (2, 0, 0), (12, 1, 0)])
def test_activations(bits: int, signed: int, narrow: int) -> None:
    """Those of more than 8 bits are only cut off."""
    m = QonnxModel((1, 64))
    step = 6 / 2**bits
    model = m.written(m.quant("x", "y", step, 0.0, float(bits), signed=signed, narrow=narrow, rounding_mode="ROUND"))
    x = m.data(1)[0]
    right = step * integers(x / step, bits, bool(signed), bool(narrow))
    result = run(session(model, "m"), {"x": x})["y"]
    assert np.abs(result - right).max() <= (1e-6 if bits <= 8 else step / 2)


MODES = {
    "ROUND": [2, -1, 2, 0], "FLOOR": [1, -2, 2, -1], "CEIL": [2, -1, 3, 0], "DOWN": [1, -1, 2, 0],
    "UP": [2, -2, 3, -1], "HALF_UP": [2, -1, 3, 0], "HALF_DOWN": [2, -1, 2, 0],
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_constants_are_rounded_as_they_say(mode: str) -> None:
    m = QonnxModel((1, 4))
    w = m.quant(m.constant([[1.6, -1.4, 2.5, -0.2]]), "w", 1.0, 0.0, 8.0, rounding_mode=mode)
    result = run(session(m.written(m.node("Add", ["x", w], "y")), "m"), {"x": np.zeros((1, 4), np.float32)})["y"]
    assert result.ravel().tolist() == MODES[mode]


@pytest.mark.parametrize("opset", [12, 13])
@pytest.mark.parametrize(("kind", "bits"), [("BipolarQuant", ()), ("Quant", (0.0, 1.0)), ("Quant", (0.0, 4.0))])
def test_constants_with_a_scale_for_each_filter(kind: str, bits: tuple[float, ...], opset: int) -> None:
    m = QonnxModel((1, 3, 4, 4), opset=opset)
    scale, w = np.array([0.5, 0.25]).reshape(2, 1, 1, 1), m.normal(2, 3, 1, 1)
    model = m.written(m.node("Conv", ["x", m.quant(w, "w", scale, *bits, kind=kind, signed=1)], "y"))
    real = numpy_helper.to_array(m.initialisers[0]).astype(np.float64)
    right = integers(real / scale, 4, True, False) * scale if 4.0 in bits else np.where(real >= 0, scale, -scale)
    x = m.data(1)[0]
    exact = np.einsum("oi,bihw->bohw", right[:, :, 0, 0], x)
    np.testing.assert_allclose(run(session(model, "m"), {"x": x})["y"], exact, rtol=1e-5, atol=1e-6)


def test_a_network_keeps_the_numbers_of_its_quantisers() -> None:
    """Also those of a mean that is rounded coarser."""
    m = QonnxModel()
    x = m.quant("x", "x2", 0.02, 0.0, 8.0)
    first = m.quant(m.normal(8, 3, 3, 3), "w", 0.1, 0.0, 4.0, narrow=1)
    a = m.quant(m.node("Relu", m.node("Conv", [x, first], "a"), "a2"), "a3", 0.25, 0.0, 4.0, signed=0)
    mean = m.node("AveragePool", a, "mean", kernel_shape=[3, 3], strides=[3, 3])
    b = m.quant(mean, "b", 0.25 / 9, 0.0, 8.0, 0.25, 4.0, kind="Trunc", signed=0, rounding_mode="ROUND")
    second = m.quant(m.normal(5, 8, 2, 2), "w2", 0.1, 0.0, 4.0, narrow=1)
    model = m.written(m.node("Conv", [b, second], "y"))
    report = quantise_with_report(model, m.data())
    assert [report.graph.steps[layer.output] for layer in report.graph.layers[:2]] == pytest.approx([0.25, 0.25])
    assert any(note.startswith("3 of 3 tensors have the file's own scale;") for note in report.graph.notes)
    exact = run(session(model, "m"), {"x": m.data()[0]})["y"]
    assert decibels(exact, integer_outputs(report.graph, m.data()[0])["y"]) > 26


@pytest.mark.parametrize(
    ("why", "numbers", "attributes"),
    [
        ("scale is computed, must be a constant; export it again with constants folded", ("s", 0.0, 8.0), {}),
        ("number of bits has 3 numbers, must have one", (0.1, 0.0, [8.0, 8.0, 4.0]), {}),
        ("scale or a zero point for each channel; give it one for all", (np.ones((1, 3, 1, 1)), 0.0, 8.0), {}),
        ("rounding_mode NO must be one of ROUND", (0.1, 0.0, 8.0), {"rounding_mode": "NO"}),
        ("rounding_mode FLOOR of an activation; must be", (0.1, 0.0, 8.0), {"rounding_mode": "FLOOR"}),
        ("scale must be above 0, its number of bits 1 to 64", (0.0, 0.0, 8.0), {}),
        ("number of bits 1 to 64; it has 5000 bits", (0.1, 0.0, 5000.0), {}),
        ("number of bits 1 to 64; it has 3.5 bits", (0.1, 0.0, 3.5), {}),
        ("rounding_mode FLOOR of an activation; must be", (0.1, 0.0, 8.0, 0.2, 4.0), {"kind": "Trunc"}),
        ("it has one bit, so it jumps at 0", (0.1, 0.0, 1.0), {}),
        ("it has one bit, so it jumps at 0", (0.1,), {"kind": "BipolarQuant"}),
        ("its zero point is not 0", (0.1, 1.0, 8.0, 0.2, 4.0), {"kind": "Trunc"}),
        (
            "its result has no scale of its own; export it with QONNX 1.0 or newer",
            (0.1, 0.0, 8.0, 4.0),
            {"kind": "Trunc"},
        ),
    ],
)
def test_what_is_refused(why: str, numbers: tuple[Any, ...], attributes: dict[str, Any]) -> None:
    m = QonnxModel()
    m.node("ReduceMax", "x", "s", keepdims=0)
    m.quant("x", "y", *numbers, **attributes)
    with pytest.raises(UnsupportedError, match=why):
        m.written("y")
