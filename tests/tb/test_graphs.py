"""Random ONNX models: what is drawn, what is judged, and how a campaign goes on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from meshloom.sched.program.program import ProgramError
from meshloom.sched.workload.onnx.errors import OnnxError, UnsupportedError
from meshloom.sched.workload.onnx.quantise import Quantised
from meshloom.tb.verify.graphs import __main__ as command
from meshloom.tb.verify.graphs import campaign
from meshloom.tb.verify.graphs.campaign import (
    GraphBatch,
    GraphFinding,
    GraphResult,
    GraphVerdict,
    batches_of,
    judge,
    record_of,
    run_all,
    run_batch,
    smallest,
)
from meshloom.tb.verify.graphs.drawing import draw
from meshloom.tb.verify.graphs.quantising import ModelForm, UnquantisedError, form_of, quantised

from ..tiers import slow_but

#: Of models of four nodes: one that is scheduled, and one that is served.
SEED, SERVED_SEED = 145, 32


def test_a_model_is_decided_by_its_seed_and_begins_alike_in_each_size() -> None:
    one, data = draw(5, 6)
    again, same = draw(5, 6)
    assert one.SerializeToString() == again.SerializeToString()
    assert all(np.array_equal(a[name], b[name]) for a, b in zip(data, same, strict=True) for name in a)
    shorter, _ = draw(5, 3)
    assert list(shorter.graph.node) == list(one.graph.node)[: len(shorter.graph.node)]


def test_models_have_all_opsets_and_most_operators() -> None:
    opsets, operators, ranks = Counter[int](), Counter[str](), Counter[int]()
    for seed in range(150):
        model, _ = draw(seed, 6)
        onnx.checker.check_model(model)
        opsets[model.opset_import[0].version] += 1
        operators.update(node.op_type for node in model.graph.node)
        ranks.update(len(value.type.tensor_type.shape.dim) for value in model.graph.input)
    assert len(opsets) == 9
    assert len(operators) > 50
    assert set(ranks) == {2, 3, 4}


@pytest.mark.parametrize("number", slow_but(range(4), 0))
def test_models_are_read_rightly_or_refused(number: int) -> None:
    result = run_batch(GraphBatch(11, number, 8 if number == 0 else 50))
    assert result.findings == ()
    assert result.verdicts[GraphVerdict.RIGHT] > 0.5 * sum(result.verdicts.values())
    assert sum(result.refusals.values()) == result.verdicts.get(GraphVerdict.REFUSED, 0)


def refusing(error: Exception) -> Any:
    def quantise(*_: Any, **__: Any) -> Quantised:
        raise error

    return quantise


@pytest.mark.parametrize(
    ("error", "verdict", "words"),
    [
        (UnsupportedError("m", []), None, ""),
        (OnnxError("m: node n0 (Pad): misread: ...; report it with the file"), GraphVerdict.WRONG, "misread"),
        (OnnxError("m: ONNX Runtime refuses it: ..."), GraphVerdict.WRONG, "refuses it"),
        (OnnxError("m: nothing is left to compute"), GraphVerdict.REFUSED, "as a whole"),
        (KeyError("t3"), GraphVerdict.WRONG, "KeyError: 't3' (test_graphs.py:"),
    ],
)
def test_an_error_is_a_refusal_or_a_finding(
    monkeypatch: pytest.MonkeyPatch, error: Exception, verdict: GraphVerdict | None, words: str
) -> None:
    monkeypatch.setattr(campaign, "quantise_with_report", refusing(error))
    said = judge(SEED, 4)
    assert said[0] is (verdict or GraphVerdict.WRONG)  # a refusal that names no node is none
    assert words in said[1]


def test_wrong_bytes_are_a_finding_as_small_as_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge(SEED, 4) == (GraphVerdict.RIGHT, "")
    monkeypatch.setattr(campaign, "unflip", lambda array: np.roll(array, 1).view(np.int8) + 1)
    verdict, words = judge(SEED, 4)
    assert verdict is GraphVerdict.WRONG
    assert " differ, by " in words
    least = smallest(GraphFinding(SEED, 4, words))
    assert least.size < 4
    assert judge(least.seed, least.size)[0] is GraphVerdict.WRONG


def test_wrong_bytes_of_what_is_served_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge(SERVED_SEED, 4) == (GraphVerdict.RIGHT, "")
    monkeypatch.setattr(campaign, "unflip", lambda array: np.roll(array, 1).view(np.int8) + 1)
    monkeypatch.setattr(campaign, "_differs", lambda *results: "")  # else it is seen before
    verdict, words = judge(SERVED_SEED, 4)
    assert verdict is GraphVerdict.WRONG
    assert " differ, served in a batch of " in words


def test_a_program_without_room_for_its_code_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_long(*_: Any) -> None:
        raise ProgramError("9 words of code for tile 0x01 do not fit after the tensors")

    monkeypatch.setattr(campaign, "lower", too_long)
    assert judge(SEED, 4) == (GraphVerdict.READ, "")


def test_an_output_that_is_absent_or_of_another_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Quantised.said
    monkeypatch.setattr(Quantised, "said", lambda self, values: {})
    assert judge(SEED, 4)[1].endswith(" is absent")
    monkeypatch.setattr(
        Quantised, "said", lambda self, values: {name: array[None] for name, array in said(self, values).items()}
    )
    assert " has shape [1, " in judge(SEED, 4)[1]


def test_an_output_that_is_far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose range cut off what the network does not: near in its own report, far from ONNX Runtime."""
    said = Quantised.said
    monkeypatch.setattr(
        Quantised, "said", lambda self, values: {name: 3 * array for name, array in said(self, values).items()}
    )
    verdict, words = judge(37, 4)
    assert verdict is GraphVerdict.WRONG
    assert "although the import promises little noise" in words
    monkeypatch.setattr(campaign, "TRUSTED", np.inf)  # a report that promises nothing
    assert judge(37, 4)[0] is GraphVerdict.RIGHT


def test_a_campaign_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    batches = [GraphBatch(3, number, 2) for number in range(2)]
    lines: list[str] = []
    assert run_all(batches[:1], record_of(batches, tmp_path), 1, lines.append) == []
    record = record_of(batches, tmp_path)
    assert len(record.done) == 1
    assert run_all(batches, record, 1, lines.append) == []
    assert "continuing: 1 of 2 batches are done" in lines
    assert command.summary(record.done.values()).startswith("graphs: 4 models: ")
    assert [batch.samples for batch in batches_of(120, 1)] == [50, 50, 20]


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(command.main)
    monkeypatch.setattr(command, "OUTPUT", tmp_path)
    runner = CliRunner()
    result = runner.invoke(app, ["--replay", f"{SEED}:4"])
    assert (result.exit_code, result.output.strip()) == (0, f"{SEED}:4: right")
    result = runner.invoke(app, ["--replay", "two"])
    assert result.exit_code == 1
    assert "--replay two: give it as SEED:NODES, as a finding says it" in result.output
    monkeypatch.setattr(command, "record_of", lambda batches: record_of(batches, tmp_path))
    monkeypatch.setattr(command, "run_all", lambda *_: [GraphFinding(SEED, 2, "wrong in some way")])
    result = runner.invoke(app, ["--models", "50"])
    assert result.exit_code == 1
    assert f"--replay {SEED}:2" in result.output
    onnx.checker.check_model(onnx.load(tmp_path / "graphs" / f"{SEED}-2.onnx"))
    monkeypatch.setattr(command, "judge", lambda seed, size: (GraphVerdict.WRONG, "still"))
    assert runner.invoke(app, ["--replay", "1:1"]).exit_code == 1


@pytest.mark.parametrize("form", [ModelForm.PAIRS, ModelForm.INTEGERS])
def test_models_of_8_bits(form: ModelForm) -> None:
    model, data = draw(SEED, 4)
    made = quantised(model, data, form, 0)
    onnx.checker.check_model(made, full_check=True)
    assert made.SerializeToString() == quantised(model, data, form, 0).SerializeToString()
    operators = {node.op_type for node in made.graph.node}
    assert "QuantizeLinear" in operators
    assert any(operator.startswith("QLinear") for operator in operators) == (form is ModelForm.INTEGERS)


def test_what_the_quantiser_does_not_take_is_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "form_of", lambda seed: ModelForm.PAIRS)
    node = onnx.helper.make_node("Reciprocal", ["x"], ["y"], name="n")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "m", [value("x", 1, [1, 2])], [value("y", 1, [1, 2])])
    monkeypatch.setattr(campaign, "draw", lambda seed, size: (onnx.helper.make_model(graph), []))
    assert judge(1, 1) == (GraphVerdict.INVALID, "")
    with pytest.raises(UnquantisedError, match="Reciprocal has no range"):
        quantised(onnx.helper.make_model(graph), [], ModelForm.PAIRS, 1)
    model, data = draw(SEED, 4)
    model.graph.node[0].op_type = "Nothing"
    with pytest.raises(UnquantisedError):
        quantised(model, data, ModelForm.PAIRS, SEED)


def test_all_forms_are_drawn() -> None:
    assert Counter(form_of(seed) for seed in range(90)).keys() == set(ModelForm)


def test_a_summary_counts() -> None:
    results = [GraphResult({"right": 3, "refused": 2}, {"Sign": 2}), GraphResult({"invalid": 1}, {})]
    assert command.summary(results) == (
        "graphs: 6 models: 3 read and scheduled, every byte right; 0 read, that the chip drawn for them does not hold; "
        "2 refused (2 Sign); 1 that ONNX Runtime refuses or that have no finite results"
    )
