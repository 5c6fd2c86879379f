"""Rows and figures as benchmarks get them, made up."""

from __future__ import annotations

from typing import Any

from meshloom.tb.benchmarks import layers, scale_sim
from meshloom.tb.results.schema import Row


def row(**changes: Any) -> Row:
    good = {"workload": "gemm:8x8x8", "chip": "quad16", "scheduler": "loop_order", "simulator": "verilator"}
    numbers = {"rtl_cycles": 1000, "model_cycles": 1001, "utilisation": 0.5, "bytes_checked": 64, "cpu_seconds": 0.001}
    return Row.model_validate(good | numbers | changes)


def ran(array_cycles: int = 900, **changes: Any) -> layers.Ran:
    return layers.Ran(row(**changes), 0.5, 0.1, array_cycles)


def theirs(cycles: int = 1000, cpu_seconds: float = 0.1) -> scale_sim.Theirs:
    return scale_sim.Theirs("gemm:8x8x8", cycles, 0, 0.5, cpu_seconds)
