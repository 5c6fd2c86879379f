"""Gradients on the RTL: every byte against ONNX Runtime, every cycle against the model, and what the row tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.hw.config import load
from meshloom.sched.schedulers.registry import SchedulerError
from meshloom.sched.workload.layers import WorkloadError
from meshloom.tb.results.schema import Row, Status
from meshloom.tb.runs.runner import run


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
    assert row.gradient.orders == {order: row.rtl_cycles}
    assert row.gradient.dram_bytes > row.bytes_checked


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sequential", "interleaved", "k_major"])
def test_cores_that_share_a_layer_on_the_rtl(order: str) -> None:
    """Two channels that four cores ask for what they share."""
    names = ["gradient:gemm:45x30x100", "gradient:gemm:20x40x17"]
    for row in rows(names, f"gradient:order={order},effort=0.02", "quad16"):
        assert row.status is Status.PASSED, row.reason
        assert row.model_cycles == row.rtl_cycles
        assert row.gradient is not None
        assert row.gradient.nest.endswith(f" on {4 if '100' in row.workload else 2} cores")


def test_a_layer_that_does_not_fit_is_a_row(tmp_path: Path) -> None:
    text = Path("hw/chips/edge6.toml").read_text().replace("words = 1048576", "words = 1024")
    chip = tmp_path / "edge6.toml"
    chip.write_text(text)
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


def test_the_edge_chip_is_the_papers() -> None:
    chip = load("edge45")
    core = chip.core
    words = core.a_words + core.b_words + 4 * core.acc_words + core.out_words + core.vec_words
    assert words * chip.lanes == 1 << 20
    assert (chip.rows, chip.cols, chip.dram.bytes_per_cycle, len(chip.cores)) == (45, 45, 22, 1)
