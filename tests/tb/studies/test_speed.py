"""The study of speed: bars, and what is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import Cause, Opcode, Unit
from meshloom.sched.schedulers.network.limits import RESOURCES
from meshloom.sched.workload.catalog import find
from meshloom.tb.build import builder
from meshloom.tb.devices.readout import Record
from meshloom.tb.devices.simulated import VERILATOR
from meshloom.tb.runs import runner
from meshloom.tb.runs.single import arrays_used
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.engine.rows import StudyError
from meshloom.tb.studies.tools import idle, layers, plain_loop, relocation, speed
from meshloom.tb.studies.tools.timeline import Played

from .made_rows import page_of


def sped(ratio: float, **change: Any) -> speed.LayerSpeed:
    """A row that reaches so much of the plain loop."""
    row = speed.LayerSpeed("gemm:8x8x8", 1000, 0.97, 64, 0, 1.0, 1000 / ratio)
    return replace(row, **change)


def slow(row: speed.LayerSpeed, chip: str = "quad16", clang: bool = True) -> list[str]:
    return speed.slow_layer(speed.ChipSpeed(chip, "native", ("gemm:8x8x8",)), row, clang)


def test_speed_bar_is_a_ratio_and_holds_for_busy_layers_with_clang() -> None:
    assert slow(sped(0.2)) == slow(sped(0.21)) == []
    assert slow(sped(0.19)) == ["quad16 (native), gemm:8x8x8: 0.190 of the plain loop, the bar is 0.2"]
    assert slow(sped(0.19), clang=False) == []
    assert slow(sped(0.19, utilisation=0.9)) == []
    assert slow(sped(0.25), "quad32")
    assert slow(sped(0.01), "mono16") == []


def test_speed_of_wrong_bytes_does_not_count() -> None:
    (text,) = slow(sped(0.5, wrong=3, reason="3 of 64 bytes differ"), "mono16", clang=False)
    assert "3 of 64 bytes differ" in text
    assert slow(sped(0.5, compared=0))


def test_a_chip_at_rest_has_a_bar_and_is_ended_by_its_watchdog() -> None:
    assert speed.slow_rest(speed.RestSpeed("quad16"), idle.Rest(5_000_000, 0.5)) == []
    assert speed.slow_rest(speed.RestSpeed("quad32"), idle.Rest(5_000_000, 1.25)) == [
        "quad32, idle: 4,000,000 cycles per CPU-second, the bar is 5,000,000"
    ]
    chip = load("tiny")
    (run,) = VERILATOR.open(chip, False, lambda what: None).run([idle.waiting(chip, 3000)], "idle")
    assert run.fault is not None
    assert (run.fault.cause, run.cycles) == (Cause.WATCHDOG, 3001)


def test_every_part_of_the_page_has_a_table() -> None:
    pure = Played(False, 1000, 10, "abc", 1.0)
    placed = relocation.PlacedTemplate("smallest", "ncf/a", "single", 1, 9, 352, 1.0, 2.0, 3.0)
    known: dict[Point, Any] = {
        speed.ChipSpeed("mono16", "native", ("gemm:8x8x8",)): (sped(0.4),),
        speed.RestSpeed("quad16"): idle.Rest(5_000_000, 0.5),
        speed.ThreadSpeed("quad32", "a"): speed.ThreadSeconds(900, 1.0, 0.5),
        speed.PlaySpeed("arch5", "a"): speed.Plays(pure, replace(pure, compiled=True, seconds=0.1)),
        speed.PlacingSpeed(("ncf",)): relocation.PlacedTemplates(7, (placed,)),
    }
    page = page_of(speed.STUDY, known)
    assert page.missed == []
    *measured, published = page.tables
    assert [table.rows[0][-1] for table in measured] == ["0.400", "10,000,000", "2.00", "yes", "3"]
    assert {row[-1][:9] for row in published.rows} == {"<https://"}
    assert page.texts["compiled"] == "10.0"


@pytest.mark.slow
def test_plain_loop_counts_work() -> None:
    """Sixteen times the elements take longer."""
    small, large = (plain_loop.speed(load(chip), "x86-64") for chip in ("tiny", "quad16"))
    assert small > 2 * large > 0
    with pytest.raises(StudyError, match="no-such-cpu"):
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
