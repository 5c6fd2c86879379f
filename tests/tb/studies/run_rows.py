"""Rows as benchmarks and studies get them, made up."""

from __future__ import annotations

from typing import Any

from meshloom.tb.results.schema import Row


def row(**changes: Any) -> Row:
    good = {"workload": "gemm:8x8x8", "chip": "quad16", "scheduler": "loop_order", "simulator": "verilator"}
    numbers = {"rtl_cycles": 1000, "model_cycles": 1001, "utilisation": 0.5, "bytes_checked": 64, "cpu_seconds": 0.001}
    return Row.model_validate(good | numbers | changes)
