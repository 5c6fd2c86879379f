"""Benchmarks of speed and of the regression suite: bars, and what is counted. No simulator is built or run here."""

from __future__ import annotations

from typing import Any

import pytest

from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import Cause, Opcode, Unit
from meshloom.sched.schedulers.network.limits import RESOURCES
from meshloom.sched.workload.catalog import find
from meshloom.tb.benchmarks import idle, layers, plain_loop, speed
from meshloom.tb.benchmarks.interface import BenchmarkError
from meshloom.tb.build import builder
from meshloom.tb.devices.readout import Record
from meshloom.tb.devices.simulated import VERILATOR
from meshloom.tb.runs import runner
from meshloom.tb.runs.single import arrays_used

from .benchmark_rows import row


def sped(ratio: float, **change: Any) -> speed.Measured:
    """A row that reaches so much of the plain loop."""
    one = row(**{"utilisation": 0.97, "cpu_seconds": 1.0} | change)
    return speed.Measured(one, "native", one.cycles_per_second / ratio)


def test_speed_bar_is_a_ratio_and_holds_for_busy_layers_with_clang() -> None:
    assert speed.missed([sped(0.2)], clang=True) == []
    (text,) = speed.missed([sped(0.21), sped(0.19)], clang=True)
    assert text == "quad16 (native), gemm:8x8x8: 0.190 of the plain loop, the bar is 0.2"
    assert speed.missed([sped(0.19)], clang=False) == []
    assert speed.missed([sped(0.19, utilisation=0.9)], clang=True) == []
    assert speed.missed([sped(0.25, chip="quad32")], clang=True)
    assert speed.missed([sped(0.01, chip="mono16")], clang=True) == []


def test_speed_of_wrong_bytes_does_not_count() -> None:
    (text,) = speed.missed([sped(0.5, chip="mono16", mismatches=3)], clang=False)
    assert "3 of 64 bytes differ" in text
    assert speed.missed([sped(0.5, bytes_checked=0)], clang=True)


def test_a_chip_at_rest_has_a_bar_and_is_ended_by_its_watchdog() -> None:
    fast, slow = idle.Idle("quad16", 5_000_000, 0.5), idle.Idle("quad32", 5_000_000, 1.25)
    assert idle.missed([fast, slow]) == ["quad32, idle: 4,000,000 cycles per CPU-second, the bar is 5,000,000"]
    chip = load("tiny")
    (run,) = VERILATOR.open(chip, False, lambda what: None).run([idle.waiting(chip, 3000)], "idle")
    assert run.fault is not None
    assert (run.fault.cause, run.cycles) == (Cause.WATCHDOG, 3001)


@pytest.mark.slow
def test_plain_loop_counts_work() -> None:
    """Sixteen times the elements take longer."""
    small, large = (plain_loop.speed(load(chip), "x86-64") for chip in ("tiny", "quad16"))
    assert small > 2 * large > 0
    with pytest.raises(BenchmarkError, match="no-such-cpu"):
        plain_loop.speed(load("tiny"), "no-such-cpu")


def test_simulators_are_compiled_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is named decides the key, the machine at hand does not."""
    chip = load("tiny")
    native = builder.ingredients(chip, "verilator", False)
    monkeypatch.setenv(builder.TARGET, "x86-64-v2")
    named = builder.ingredients(chip, "verilator", False)
    assert "-march=x86-64-v2" in named["flags"]
    assert native["processor"]
    assert not named["processor"]
    monkeypatch.setenv(builder.TARGET, "x; rm")
    with pytest.raises(builder.BuildError, match="no processor"):
        builder.ingredients(chip, "verilator", False)


def test_how_a_layer_uses_arrays_is_counted_by_core() -> None:
    chip = load("quad8")
    run = runner.prepare(find("gemm:64x64x64")[0], chip, "loop_order")
    figures = arrays_used(run.schedule, [], run.macs, chip)
    assert figures is None, "no GEMM has run"
    figures = arrays_used(run.schedule, run.timeline.executed, run.macs, chip)
    assert figures is not None
    records = [each for each in run.timeline.executed if each.opcode is Opcode.GEMM]
    assert 0 < figures.fed_cycles < figures.span_cycles <= len(chip.cores) * run.timeline.cycles
    assert figures.span_cycles < sum(each.end for each in records)
    assert figures.fed_cycles * chip.rows * chip.cols * figures.edges == pytest.approx(run.macs)
    assert figures.within * figures.span_cycles == pytest.approx(figures.edges * figures.fed_cycles)
    assert set(figures.limit.split("+")) <= {*RESOURCES}


def test_array_span_is_that_of_gemms() -> None:
    def record(opcode: Opcode, start: int, end: int) -> Record:
        return Record(1, Unit.MATRIX, opcode, 1, 0, 0, start, end)

    records = [record(Opcode.MOVE, 0, 999), record(Opcode.GEMM, 300, 340), record(Opcode.GEMM, 100, 350)]
    assert layers.array_span(records) == 250
    assert layers.array_span(records[:1]) == 0
