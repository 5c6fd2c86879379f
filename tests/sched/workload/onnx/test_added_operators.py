"""Operators of installed packages: one file, and its entry point."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from meshloom.sched.support.plugins import Registry
from meshloom.sched.workload.onnx.errors import OnnxError, UnsupportedError
from meshloom.sched.workload.onnx.float_reader import fold
from meshloom.sched.workload.onnx.operators import table
from meshloom.sched.workload.onnx.quantise import quantise

from ...float_models import FloatModel
from .test_attention import keeps_its_meaning

CUMULATIVE = """
import numpy as np
from meshloom.sched.workload.onnx.building.layers import emit_fully_connected
from meshloom.sched.workload.onnx.building.pictures import settle
from meshloom.sched.workload.onnx.errors import Refused

def cumulative_sum(context, node, attributes):
    '''Sums up to each element of the last axis: a product with a triangle of ones.'''
    view = settle(context, node.input[0])
    axis = int(context.number(node, 1, "axis")) % len(view.shape)
    if axis != len(view.shape) - 1:
        raise Refused(f"along axis {axis}; must be the last, transpose before")
    context.notes.append(f"{node.output[0]} is summed up by a package.")
    ones = np.tril(np.ones((view.shape[-1],) * 2), -1 if attributes.get("exclusive") else 0)
    emit_fully_connected(context, node, ones.T if attributes.get("reverse") else ones, None)
"""


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    """Installs a package of one file whose entry points are operators: lines `operator = module:function`."""

    def write(text: str, points: str) -> None:
        (tmp_path / "added_operators.py").write_text(text)
        package = tmp_path / "added_operators-1.0.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: added-operators\nVersion: 1.0\n")
        (package / "entry_points.txt").write_text(f"[{table.GROUP}]\n{points}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "added_operators", raising=False)
        added = table.ADDED
        monkeypatch.setattr(table, "ADDED", Registry(added.what, added.group, {}, added.accept, added.error))

    return write


def summed(axis: int = 2, **attributes: int) -> FloatModel:
    m = FloatModel((1, 5, 8))
    m.node("MatMul", ["x", m.normal(8, 8)], "a")
    m.node("CumSum", ["a", m.integers(axis)], "sums", **attributes)
    m.node("MatMul", ["sums", m.normal(8, 4)], "y")
    return m


@pytest.mark.parametrize("attributes", [{}, {"reverse": 1}, {"exclusive": 1}])
def test_an_operator_of_a_package(attributes: dict[str, int], install: Callable[[str, str], None]) -> None:
    """In the place of what defines the operator here; it computes what ONNX Runtime does."""
    m = summed(**attributes)
    model = m.build("y")
    assert not quantise(model, m.data()).notes
    install(CUMULATIVE, "CumSum = added_operators:cumulative_sum")
    assert quantise(model, m.data()).notes == ("sums is summed up by a package.",)
    keeps_its_meaning(m, "y", least=30)


def test_refusals_of_added_operators_come_with_all_others(install: Callable[[str, str], None]) -> None:
    install(CUMULATIVE, "CumSum = added_operators:cumulative_sum")
    m = summed(axis=1)
    m.node("MatMul", [m.node("Floor", "y", "whole"), m.normal(4, 4)], "z")
    with pytest.raises(UnsupportedError) as caught:
        fold(m.build("z"), "net", normalised=False)
    sums, whole = map(str, caught.value.problems)
    assert sums == "n_sums (CumSum): along axis 1; must be the last, transpose before"
    assert whole.startswith("n_whole (Floor): it jumps: where 8 bits move what it reads past a jump, the result")


def test_packages_replace_nothing_and_are_loaded_when_they_are_needed(install: Callable[[str, str], None]) -> None:
    install("number = 1\n1 / 0", "Relu = added_operators:number\nHardmax = added_operators:number")
    m = FloatModel()
    assert fold(m.build(m.node("Relu", m.conv("x", "a", (4, 3, 1, 1)), "y")), "net", normalised=False).layers[0].relu
    with pytest.raises(OnnxError, match=r"operator Hardmax cannot be loaded: ZeroDivisionError: division by zero"):
        fold(m.build(m.node("Hardmax", "y", "z")), "net", normalised=False)


def test_what_is_no_function(install: Callable[[str, str], None]) -> None:
    install("number = 1", "Hardmax = added_operators:number")
    m = FloatModel()
    with pytest.raises(
        OnnxError, match="operator Hardmax: number of added_operators is of type int; it must be a func"
    ):
        fold(m.build(m.node("Hardmax", "x", "y")), "net", normalised=False)
