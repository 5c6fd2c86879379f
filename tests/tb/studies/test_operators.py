"""The study of operators: node tests run or say why not; tables and bars."""

from __future__ import annotations

import pytest

from meshloom.sched.workload.onnx.contributed import OPERATORS as OF_OTHERS
from meshloom.sched.workload.onnx.dequantising.operators import OPERATORS as INTEGER_OPERATORS
from meshloom.sched.workload.onnx.operators.table import OPERATORS as FLOAT_OPERATORS
from meshloom.sched.workload.onnx.passes.definitions import DEFINITIONS
from meshloom.tb.studies.networks import operator_cases, operators
from meshloom.tb.studies.networks.operator_cases import Outcome
from meshloom.tb.studies.networks.operators import NodeTestPoint

from ...tiers import slow_but
from .made_rows import page_of, rows_of

#: Operators that are read by ONNX's own function bodies, or are constants.
BODIES = {"CastLike", "CenterCropPad", "Constant", "Shape"}


def test_operators_are_those_of_the_reader() -> None:
    """Each of ONNX's own that the float reader knows is described, and the package has cases of all but three."""
    names = FLOAT_OPERATORS.keys() | INTEGER_OPERATORS.keys() | OF_OTHERS.keys() | DEFINITIONS.keys() | BODIES
    assert operator_cases.HOW.keys() == {name for name in names if "." not in name}
    others = {"CastLike", "GlobalLpPool", "SimplifiedLayerNormalization"}
    assert operator_cases.HOW.keys() - {case.operator for case in operator_cases.cases()} == others


@pytest.mark.parametrize(
    "name",
    slow_but(
        [
            "test_reshape_one_dim",
            "test_convtranspose_pads",
            "test_resize_upsample_scales_nearest",
            "test_edge_pad",
            "test_averagepool_2d_precomputed_same_upper",
            "test_gemm_alpha",
            "test_split_variable_parts_2d_opset18",
            "test_qlinearconv",
            "test_qlinearmatmul_2D_int8_float32",
            "test_max_two_inputs",
            "test_prelu_broadcast",
            "test_sign",
        ],
        "test_reshape_one_dim",
        "test_qlinearconv",
    ),
)
def test_a_case_runs_or_says_why_not(name: str) -> None:
    outcome = operator_cases.outcome(next(case for case in operator_cases.cases() if case.name == name))
    assert outcome.wrong == ""
    if name == "test_reshape_one_dim":
        assert outcome.nothing
    else:
        assert outcome.refused == ""
        assert outcome.cycles
        assert outcome.snr_db is None or outcome.snr_db > operator_cases.LEAST_DB


def test_reasons_of_refusals_are_counted() -> None:
    some = {
        NodeTestPoint("Add", str(number)): Outcome(refused=f"n (Add): {why}")
        for number, why in enumerate(("no", "yes", "no"))
    }
    assert [cells[1:3] for cells in operators.refusals(rows_of(some)).rows] == [("no", "2"), ("yes", "1")]


def test_the_quick_study_has_each_operator_once() -> None:
    quick = operators.points(False)
    assert len({point.operator for point in quick}) == len(quick) == len(operator_cases.HOW) - 3
    assert set(quick) <= set(operators.points(True))
    assert operators.points(False) == quick


def test_bars() -> None:
    good = {NodeTestPoint("Add", "a"): Outcome(cycles=9, snr_db=30.0), NodeTestPoint("Add", "b"): Outcome(cycles=9)}
    page = page_of(operators.STUDY, good)
    assert page.missed == []
    assert ("Add", "2", "0", "0", "0", "30 dB") in [(row[0], *row[3:]) for row in page.tables[0].rows]
    bad = page_of(operators.STUDY, good | {NodeTestPoint("Mul", "c"): Outcome(wrong="a byte differs", cycles=9)})
    assert bad.missed == ["c: a byte differs", "wrong: 1, not exactly 0"]
