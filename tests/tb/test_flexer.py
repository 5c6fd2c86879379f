"""Out-of-order schedules on the RTL."""

from __future__ import annotations

import pytest

from meshloom.tb.results.schema import Status
from meshloom.tb.runs.options import RunOptions
from meshloom.tb.runs.runner import run

#: Layers whose tiles do not all stay in quad8's scratchpad, whose sums are spilled, and of odd sizes.
LAYERS = ("conv:10x10x40-40,k3,p1,relu", "conv:7x9x130-90,k3,p1", "gemm:40x70x300")


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["flexer:budget=10M", "paper_static:budget=10M", "hybrid:budget=10M"])
def test_schedules_run_as_predicted(scheduler: str) -> None:
    """Every byte of layers and of a network with trained weights; the model to a percent."""
    rows = run([*LAYERS, "resnet8"], "quad8", scheduler, lambda event: None, RunOptions(jobs=2))
    assert [row.status for row in rows] == [Status.PASSED] * 4
    assert all(row.bytes_checked for row in rows)
    assert all(abs(row.error_percent or 0.0) <= 1.0 for row in rows)
    network = rows[-1].network
    assert network is not None
    assert network.answer == network.expected
    assert rows[-1].scheduler == scheduler.partition(":")[0]
