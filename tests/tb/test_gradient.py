"""Gradients on the RTL: every byte against ONNX Runtime, every cycle against the model, and what the row tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshloom.hw.spec.config import load
from meshloom.sched.ir.schedule import ScheduleError
from meshloom.sched.schedulers.registry import SchedulerError
from meshloom.sched.workload.layers import WorkloadError
from meshloom.tb.cli.main import app
from meshloom.tb.results.exits import Exit
from meshloom.tb.results.schema import Row, Status
from meshloom.tb.runs.kinds.gradients import KIND, Gradients
from meshloom.tb.runs.runner import run
from meshloom.tb.runs.saved import SavedSource


def rows(names: list[str], scheduler: str, chip: str | Path = "tiny") -> list[Row]:
    return run(names, chip, scheduler, lambda event: None)


@pytest.mark.parametrize("order", ["sequential", "plain", "interleaved", "dx_major", "dw_major", "k_major"])
def test_both_gradients_on_the_rtl(order: str) -> None:
    (row,) = rows(["gradient:gemm:29x31x23"], f"gradient:order={order},effort=0.02")
    assert row.status is Status.PASSED, row.reason
    assert row.model_cycles == row.rtl_cycles
    assert row.bytes_checked == 4 * 6 * (29 + 31)  # six blocks of four columns
    assert row.gradient is not None
    assert row.gradient.order == order
    (request,) = KIND.find("gemm:29x31x23", load("tiny"))
    assert isinstance(request, Gradients)
    assert row.gradient.macs == request.macs == 2 * 29 * 31 * 23
    assert row.gradient.orders == {order: row.rtl_cycles}
    assert row.gradient.dram_bytes > row.bytes_checked


@pytest.mark.parametrize("options", ["", ":keep=no,defer=no,update=apart", ":update=fused"])
def test_layers_in_a_row_on_the_rtl(options: str) -> None:
    """Four cores; MASK and SUBTRACT, words that go from core to core."""
    (row,) = rows(["chain:ncf/mlp2..mlp3,b3"], f"chain{options}", "quad16")
    assert row.status is Status.PASSED, row.reason
    assert row.model_cycles == row.rtl_cycles
    assert row.gradient is not None
    assert row.gradient.order == f"chain{options}"
    assert row.gradient.dram_bytes > row.bytes_checked


@pytest.mark.slow
@pytest.mark.parametrize("split", ["m", "n", "k"])
@pytest.mark.parametrize("order", ["sequential", "interleaved", "k_major"])
def test_cores_that_share_a_layer_on_the_rtl(order: str, split: str) -> None:
    """Two channels that four cores ask for what they share, and into which they pass sums on."""
    for name, working in (("gemm:45x30x100", {"m": 3, "n": 2, "k": 4}), ("gemm:20x40x17", {"m": 2, "n": 3, "k": 2})):
        (row,) = rows([f"gradient:{name}"], f"gradient:order={order},effort=0.02,split={split}", "quad16")
        assert row.status is Status.PASSED, row.reason
        assert row.model_cycles == row.rtl_cycles
        assert row.gradient is not None
        assert row.gradient.nest.endswith(f" on {working[split]} cores" + ("" if split == "k" else f" by {split}"))


@pytest.mark.slow
def test_the_fastest_way_to_share_a_layer_is_chosen() -> None:
    (row,) = rows(["gradient:gemm:45x30x100"], "gradient:effort=0.02,leaders=1", "quad16")
    assert row.status is Status.PASSED, row.reason
    assert row.gradient is not None
    assert row.model_cycles == row.rtl_cycles == min(row.gradient.orders.values())


def test_a_layer_that_does_not_fit_is_a_row(tmp_path: Path) -> None:
    text = Path("hw/chips/edge6.toml").read_text().replace("words = 1048576", "words = 1024")
    chip = tmp_path / "small6.toml"
    chip.write_text(text.replace('name = "edge6"', 'name = "small6"'))
    (row,) = rows(["gradient:gemm:90x90x90"], "gradient", chip)
    assert row.status is Status.FAILED
    assert row.error is not None
    assert row.error.kind == "DoesNotFit"
    assert row.workload == "gradient:gemm:90x90x90"


def test_what_cannot_be_run_is_said_before_anything_runs() -> None:
    with pytest.raises(SchedulerError, match="does not schedule gradients; take one of gradient"):
        rows(["gradient:bert/qkv"], "loop_order")
    with pytest.raises(SchedulerError, match="gradient does not schedule layers"):
        rows(["gemm:8x8x8"], "gradient")
    with pytest.raises(WorkloadError, match="bert_tiny has qkv"):
        rows(["gradient:bert/kqv"], "gradient")
    with pytest.raises(SchedulerError, match="gradient does not schedule chains; take one of chain"):
        rows(["chain:ncf"], "gradient")


def test_the_edge_chip_is_the_papers() -> None:
    chip = load("edge45")
    core = chip.core
    words = core.a_words + core.b_words + 4 * core.acc_words + core.out_words + core.vec_words
    assert words * chip.lanes == 1 << 20
    assert (chip.rows, chip.cols, chip.dram.bytes_per_cycle, len(chip.cores)) == (45, 45, 22, 1)


@pytest.mark.parametrize("option", ["out", "program"])
def test_saved_gradients_run_again(option: str, tmp_path: Path) -> None:
    """`meshloom schedule` makes them; what is saved computes the same, and its tensors are held to the layer's."""
    file = tmp_path / ("g.json" if option == "out" else "g.bin")
    texts = ["schedule", "gradient:gemm:9x11x7", "--chip", "tiny", "--scheduler", "gradient:effort=0.02"]
    result = CliRunner().invoke(app, [*texts, f"--{option}", str(file)])
    assert result.exit_code == 0, result.output
    assert "gradient:gemm:9x11x7" in result.output
    (row,) = run([SavedSource(file)], "tiny", "loop_order", lambda event: None)
    assert row.status is Status.PASSED, row.reason
    assert row.model_cycles == row.rtl_cycles
    assert row.bytes_checked == 4 * 2 * (9 + 11)  # two blocks of four columns
    with pytest.raises(ScheduleError, match=r"tensor 'x' is input .* of gradient:gemm:9x11x8 it is input"):
        run([SavedSource(file, "gradient:gemm:9x11x8")], "tiny", "loop_order", lambda event: None)


def test_saved_layers_in_a_row_run_again(tmp_path: Path) -> None:
    file, name = tmp_path / "c.json", "chain:ncf/mlp3..mlp3,b2"
    texts = ["schedule", name, "--chip", "quad16", "--scheduler", "chain:update=apart", "--out", str(file)]
    result = CliRunner().invoke(app, texts)
    assert result.exit_code == 0, result.output
    (row,) = run([SavedSource(file)], "quad16", "loop_order", lambda event: None)
    assert row.status is Status.PASSED, row.reason
    assert row.model_cycles == row.rtl_cycles
    assert row.bytes_checked == 16 * 8 * (2 + 64 + 64)  # eight blocks of columns: dX, dW, W'
    with pytest.raises(ScheduleError, match=r"tensor 'dy' is input .* of chain:ncf/mlp3\.\.mlp3,b3 it is input"):
        run([SavedSource(file, "chain:ncf/mlp3..mlp3,b3")], "quad16", "loop_order", lambda event: None)


def test_schedule_refuses_what_makes_no_gradients() -> None:
    wrong = CliRunner().invoke(app, ["schedule", "gradient:gemm:9x11x7", "--chip", "tiny"])
    assert wrong.exit_code == Exit.BAD_INPUT
    assert "loop_order does not schedule gradients; take one of gradient" in wrong.output
