"""Benchmarks: who is run, what is judged, what is printed and written. No simulator is built or run here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from meshloom.hw.config import ChipConfig, TileKind, built_in_chips, load
from meshloom.hw.isa import Addend, Cause, Opcode, Unit
from meshloom.hw.timing import GemmShape, gemm_cycles, gemm_occupancy
from meshloom.sched.checker.check import check
from meshloom.sched.program.program import ProgramError
from meshloom.sched.schedulers.network.limits import TOTALS
from meshloom.sched.support.plugins import PluginError
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.onnx import float_reader, integer_operators
from meshloom.tb.benchmarks import (
    ahead,
    area,
    builds,
    channel_scales,
    dtt_holders,
    dtt_optimum,
    dtt_paper,
    dtt_routing,
    files,
    flexer,
    flexer_assumptions,
    flexer_networks,
    flexer_optimum,
    flexer_policies,
    flexer_rtl,
    gemm,
    gradient,
    gradient_chain,
    idle,
    klotski,
    klotski_partition,
    klotski_solvers,
    layer_latency,
    layer_puzzle,
    layers,
    models,
    networks,
    noc,
    online_ablation,
    operators,
    plain_loop,
    registry,
    regression,
    scale_sim,
    speed,
    sweep,
    training,
    vector,
    whole_packets,
)
from meshloom.tb.benchmarks import scale_sim_driver as driver
from meshloom.tb.benchmarks.interface import BenchmarkError, all_ran
from meshloom.tb.benchmarks.registry import SHIPPED
from meshloom.tb.benchmarks.results import Result, Sheet, markdown, print_result, save_result
from meshloom.tb.build import builder
from meshloom.tb.devices.readout import Record
from meshloom.tb.devices.simulated import VERILATOR
from meshloom.tb.report.console import CAUSES, console
from meshloom.tb.results.events import OnEvent, Plan
from meshloom.tb.results.files import write_atomically
from meshloom.tb.results.schema import Row
from meshloom.tb.runs import runner
from meshloom.tb.runs.items import arrays_used
from meshloom.tb.runs.options import RunOptions

from ..tiers import slow_but


def row(**changes: Any) -> Row:
    good = {"workload": "gemm:8x8x8", "chip": "quad16", "scheduler": "loop_order", "simulator": "verilator"}
    numbers = {"rtl_cycles": 1000, "model_cycles": 1001, "utilisation": 0.5, "bytes_checked": 64, "cpu_seconds": 0.001}
    return Row.model_validate(good | numbers | changes)


def ran(array_cycles: int = 900, **changes: Any) -> layers.Ran:
    return layers.Ran(row(**changes), 0.5, 0.1, array_cycles)


def theirs(cycles: int = 1000, cpu_seconds: float = 0.1) -> scale_sim.Theirs:
    return scale_sim.Theirs("gemm:8x8x8", cycles, 0, 0.5, cpu_seconds)


def test_figures_are_made_of_rows_that_have_run() -> None:
    """Others are refused, so that no gain is computed from cycles that are none."""
    failed = row(
        workload="big", error={"kind": "DoesNotFit", "stage": "scheduling", "message": "too big"}, rtl_cycles=0
    )
    assert all_ran([row(), row(mismatches=1)]) == [row(), row(mismatches=1)]
    with pytest.raises(BenchmarkError, match=r"^big: scheduling: too big$"):
        all_ran([row(), failed])


MODULES = {
    "gemm": gemm, "speed": speed, "regression": regression, "networks": networks, "noc": noc,
    "builds": builds, "vector": vector, "operators": operators, "files": files, "channel_scales": channel_scales,
    "dtt_routing": dtt_routing, "dtt_optimum": dtt_optimum,
    "dtt_holders": dtt_holders, "dtt_paper": dtt_paper,
    "ahead": ahead, "scalesim": scale_sim,
    "flexer": flexer, "flexer_assumptions": flexer_assumptions, "flexer_policies": flexer_policies,
    "flexer_optimum": flexer_optimum,
    "flexer_rtl": flexer_rtl, "flexer_networks": flexer_networks, "layer_latency": layer_latency, "models": models,
    "layer_puzzle": layer_puzzle, "online_ablation": online_ablation, "klotski_solvers": klotski_solvers,
    "klotski_partition": klotski_partition, "klotski": klotski, "area": area, "sweep": sweep,
    "gradient": gradient, "gradient_chain": gradient_chain, "training": training, "whole_packets": whole_packets,
}  # fmt: skip


# -- who runs ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Replaces every benchmark by one that finds at once; `bad` in its name's place fails. Returns who was run."""
    calls: list[str] = []
    for name, place in MODULES.items():

        def run(on_progress: OnEvent, parts: Sequence[str] = (), name: str = name) -> Result:
            calls.append(" ".join((name, *parts)))
            if name == "speed":
                raise BenchmarkError("no such tool")
            return Result(name, name, "", (), failures=("too slow",) if name == "regression" else ())

        module = ModuleType(name)
        monkeypatch.setattr(module, "run", run, raising=False)
        monkeypatch.setitem(sys.modules, place.__name__, module)
    monkeypatch.setattr("meshloom.tb.benchmarks.results.save_result", lambda result: save_result(result, tmp_path))
    return calls


def test_an_unknown_name_runs_nothing(engines: list[str]) -> None:
    with pytest.raises(PluginError, match=r"unknown benchmark 'scale'.*scalesim"):
        registry.run(["gemm", "scale"])
    assert engines == []


def test_named_ones_run_once_each_and_are_written(engines: list[str], tmp_path: Path) -> None:
    assert registry.run(["scalesim", "gemm", "gemm"])
    assert engines == ["scalesim", "gemm"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gemm.md", "scalesim.md"]


def test_parts_are_for_those_that_have_some(engines: list[str]) -> None:
    assert registry.run(["layer_puzzle"], ["lp9-small", "kept"])
    with pytest.raises(BenchmarkError, match=r"^gemm: no parts to choose from"):
        registry.run(["layer_puzzle", "gemm"], ["kept"])
    assert engines == ["layer_puzzle lp9-small kept"]


def test_all_run_even_if_one_cannot_and_the_verdict_says_so(
    engines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not registry.run([])
    assert engines == list(SHIPPED)
    assert "speed: did not run: no such tool" in capsys.readouterr().out
    assert not (tmp_path / "speed.md").exists()
    assert "too slow" in (tmp_path / "regression.md").read_text()


def test_a_missed_bar_alone_fails(engines: list[str]) -> None:
    assert not registry.run(["regression"])


def test_every_benchmark_that_ships_is_a_module_with_run() -> None:
    assert MODULES.keys() == SHIPPED.keys() == set(registry.REGISTRY.names())
    for name, module in MODULES.items():
        assert callable(module.run)
        assert registry.REGISTRY.get(name).summary


def test_one_from_a_file_runs(engines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from meshloom.tb.benchmarks.results import Result, Sheet\n"
        "def run(tell):\n"
        '    """How long nothing takes."""\n'
        '    return Result("nothing", "Nothing", "", (Sheet("It", ("took>",), [("0",)]),))\n'
    )
    assert registry.run([f"{file}:run"])
    assert "mine.py:run: How long nothing takes." in capsys.readouterr().out
    assert "Printed by `meshloom bench nothing`" in (tmp_path / "nothing.md").read_text()
    other = tmp_path / "other.py"
    other.write_text("run = 3\n")
    with pytest.raises(PluginError, match="is of type int; it must be a Benchmark or a function of `on_progress`"):
        registry.run(["gemm", f"{other}:run"])
    assert engines == []


# -- area of serving --------------------------------------------------------------------------------------------------


def test_all_tiles_are_those_of_the_floorplan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of a hundred cells, ten more with programs, a thousand more in cores with counters."""

    def cells(config: ChipConfig, kind: TileKind) -> area.Area:
        return area.Area(100 + 10 * bool(config.programs) + 1000 * (config.counters and kind is TileKind.CORE), 5)

    monkeypatch.setattr(area, "tile_area", cells)
    monkeypatch.setattr(area, "mover_area", cells)
    (sheet,) = area.run(lambda event: None).sheets
    rows = {(part, added): values for part, added, *values in sheet.rows}
    assert rows["mover of a core", "programs"] == ["110", "5", "+10.0 %"]
    assert rows["all tiles", ""] == ["1,600", "80", ""]
    assert rows["all tiles", "programs, counters"] == ["10,760", "80", "+572.5 %"]


# -- operators of ONNX files -----------------------------------------------------------------------------------------


def test_operators_are_those_of_the_reader() -> None:
    """Each of ONNX's own that the float reader knows is described, and the package has cases of all but one."""
    known = float_reader.OPERATORS.keys() | integer_operators.OPERATORS.keys()
    assert operators.HOW.keys() == {name for name in known if "." not in name}
    assert operators.HOW.keys() - {case.operator for case in operators.cases()} == {"Cast"}


@pytest.mark.parametrize(
    "name",
    slow_but(
        [
            "test_reshape_one_dim", "test_convtranspose_pads", "test_resize_upsample_scales_nearest", "test_edge_pad",
            "test_averagepool_2d_precomputed_same_upper", "test_gemm_alpha", "test_split_variable_parts_2d_opset18",
            "test_qlinearconv", "test_qlinearmatmul_2D_int8_float32", "test_max_two_inputs", "test_prelu_broadcast",
        ],
        "test_reshape_one_dim", "test_qlinearconv",
    ),
)  # fmt: skip
def test_a_case_runs_or_says_why_not(name: str) -> None:
    found = operators.outcome(next(case for case in operators.cases() if case.name == name))
    assert found.wrong == ""
    if name == "test_reshape_one_dim":
        assert found.nothing
    else:
        assert found.refused == ""
        assert found.cycles
        assert found.snr_db > operators.LEAST_DB


def test_reasons_of_refusals_are_counted() -> None:
    case = operators.cases()[0]
    some = [operators.Outcome(case, refused=f"n (Add): {why}") for why in ("no", "yes", "no")]
    assert [cells[1:3] for cells in operators.refusals(some)] == [("no", "2"), ("yes", "1")]


# -- the vector unit --------------------------------------------------------------------------------------------------


def test_more_windows_must_not_be_slower_or_wrong() -> None:
    def some(**changes: int) -> list[Row]:
        return [row(workload="vww", rtl_cycles=1000, model_cycles=1000), row(**{"model_cycles": 1000} | changes)]

    good = {1: some(), 3: some(rtl_cycles=900, model_cycles=900), 5: some()}
    assert vector.missed(good) == []
    assert vector.missed(good | {3: some(rtl_cycles=1001, model_cycles=1001)}) == [
        "gemm:8x8x8 with 3 windows: 1,001 cycles, 1,000 with 1"
    ]
    assert vector.missed(good | {5: some(rtl_cycles=999)}) == ["gemm:8x8x8 with 5 windows: model error +0.10 %"]
    assert "differ" in vector.missed(good | {5: some(mismatches=1)})[0]


def test_variants_of_a_chip_differ_in_windows_alone(tmp_path: Path) -> None:
    chips = [load(vector.variant(windows, tmp_path)) for windows in vector.WINDOWS]
    assert [one.core.vec_windows for one in chips] == list(vector.WINDOWS)
    alike = [one.model_copy(update={"core": one.core.model_copy(update={"vec_windows": 1})}) for one in chips]
    assert alike[0] == alike[1] == alike[2]


# -- builds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "rows"), [(3, 3), (5, 5)])
def test_chips_of_many_equal_cores(columns: int, rows: int) -> None:
    chip = builds.grid("many", columns, rows)
    assert len(chip.cores) == columns * rows
    assert (chip.rows, chip.cols, chip.noc.data_vcs) == (32, 32, 4)
    assert (chip.width, chip.height) == (columns + 2, rows)
    assert chip.core == load("quad32").core


def test_a_build_that_fails_ends_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHLOOM_MARCH", "no processor")
    with pytest.raises(BenchmarkError, match=r"tiny was not built: .*MESHLOOM_MARCH"):
        builds._build(load("tiny"), tmp_path)


# -- tables -----------------------------------------------------------------------------------------------------------


RESULT = Result(
    "speed",
    "Speed",
    "How fast.",
    (Sheet("A chip", ("layer", "cycles>"), [("a|b [x]", "1,000"), ("c", "2")], frozenset({1})),),
    ("A remark.",),
    ("c: too slow",),
    {"other": "1.2"},
)


def test_a_page_holds_tables_command_verdict_and_versions() -> None:
    page = markdown(RESULT)
    assert "# Speed" in page
    assert "`meshloom bench speed`" in page
    assert "| layer | cycles |\n|---|---:|\n| a\\|b [x] | 1,000 |\n| c | 2 |\n" in page
    assert "**Verdict: 1 bars missed.**" in page
    assert "- missed: c: too slow" in page
    assert re.search(r"^Versions: python \d.*verilator \d.*other 1\.2\.$", page, re.MULTILINE)


def test_a_page_names_no_machine_path_or_date(tmp_path: Path) -> None:
    page = save_result(RESULT, tmp_path / "new").read_text()
    assert page == markdown(RESULT)
    for word in (str(Path.home()), os.uname().nodename, str(Path.cwd())):
        assert word not in page
    assert not re.search(r"\b20\d\d-\d\d|\d:\d\d:\d\d", page)


def test_a_result_prints_its_cells_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(width=100)
    print_result(RESULT, console)
    shown = capsys.readouterr().out
    for word in ("A chip", "a|b [x]", "1,000", "A remark.", "missed: c: too slow", "speed: 1 bars missed"):
        assert word in shown


def test_a_sheet_refuses_a_row_of_another_width() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 2 columns"):
        Sheet("t", ("a", "b"), [("1",)])


# -- gemm -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", built_in_chips())
def test_random_gemms_fit_and_differ(name: str) -> None:
    chip = load(name)
    bodies = gemm.random_gemms(chip)
    assert len(bodies) == gemm.COUNT
    assert bodies == gemm.random_gemms(chip)
    assert bodies != gemm.random_gemms(chip, seed=1)
    for key in ("to_acc", "addend", "kernel_h", "stride_w", "dilation", "n_blocks", "k_blocks"):
        assert len({body[key] for body in bodies}) > 1
    assert {body["addend"] for body in bodies} == set(Addend)
    assert any(gemm_occupancy(chip, gemm.shape_of(body)) < 5 * chip.lanes for body in bodies)
    # code comes in time: no half ring runs out before the next has been fetched
    for first in range(0, gemm.COUNT - chip.fetch_chunk, chip.fetch_chunk):
        lasts = sum(gemm_occupancy(chip, gemm.shape_of(b)) for b in bodies[first : first + chip.fetch_chunk])
        assert lasts > 2 * chip.fetch_chunk * chip.instruction_words + 2 * chip.dram.latency


@pytest.mark.parametrize("name", ["tiny", "pe12x14", "mono32"])
def test_the_random_program_is_sound_but_for_its_undefined_operands(name: str) -> None:
    chip = load(name)
    bodies = gemm.random_gemms(chip, 60)
    made = gemm.program(bodies, chip)
    (stream,) = made.streams
    assert (stream.tile, stream.unit) == (chip.cores[0], Unit.MATRIX)
    assert [one.opcode for one in stream.instructions] == [Opcode.GEMM] * 60 + [Opcode.SYNC]
    with pytest.raises(ProgramError) as found:
        check(made, chip)
    problems = [line for line in str(found.value).splitlines() if "core@" in line]
    assert problems
    assert [line for line in problems if "which nothing has written" not in line] == []


def by_formula(bodies: list[dict[str, int]], name: str) -> list[tuple[int, int]]:
    """(start, end) as `hw/timing.py` has it in words: without a bubble, or four cycles after an end it waits for."""
    chip, measured = load(name), []
    start = 100
    for number, body in enumerate(bodies):
        shape = gemm.shape_of(body)
        if measured:
            start = measured[-1][1] + 4 if gemm.waits(number) else start
        measured.append((start, start + gemm_cycles(chip, shape)))
        start += gemm_occupancy(chip, shape)
    return measured


@pytest.mark.parametrize("name", ["tiny", "quad8", "mono16"])
def test_deviation_is_zero_by_formula_and_sees_a_cycle(name: str) -> None:
    chip = load(name)
    bodies = gemm.random_gemms(chip, 40)
    measured = by_formula(bodies, name)
    assert gemm.deviation(measured, bodies, chip) == gemm.Deviation(40, 0, 0)
    for number in (17, 21):  # one that follows, one that waits
        start, end = measured[number]
        late = [*measured[:number], (start + 1, end + 1), *measured[number + 1 :]]
        assert gemm.deviation(late, bodies, chip) == gemm.Deviation(40, 1, 0)
        longer = [*measured[:number], (start, end + 2), *measured[number + 1 :]]
        assert gemm.deviation(longer, bodies, chip).end == 2


def test_a_missing_record_is_an_error() -> None:
    bodies = gemm.random_gemms(load("tiny"), 5)
    with pytest.raises(BenchmarkError, match="tiny: 5 GEMMs left 4 trace records"):
        gemm.deviation(by_formula(bodies, "tiny")[:4], bodies, load("tiny"))


@pytest.mark.parametrize("name", built_in_chips())
def test_fold_rich_can_reach_the_bar(name: str) -> None:
    chip = load(name)
    body = gemm.fold_rich(chip)
    shape = gemm.shape_of(body)
    assert body["pixels"] % chip.rows == 0
    assert body["k_blocks"] * body["a_plane"] <= chip.core.a_words
    assert body["n_blocks"] * body["pixels"] <= chip.core.out_words
    lasts = gemm_cycles(chip, shape)
    assert gemm.utilisation([(5, 5 + lasts)], [body], chip) >= gemm.BAR
    assert gemm.utilisation([(5, 5 + 2 * lasts)], [body], chip) < 0.51


def test_utilisation_of_a_gemm_counts_multiply_accumulates() -> None:
    chip = load("tiny")  # 4x4 PEs, 4 lanes: 8 pixels x 4 columns x 3 words x 4 lanes = 384 products
    body = gemm.fold_rich(chip) | {"pixels": 8, "k_blocks": 3, "n_blocks": 1}
    assert gemm.shape_of(body) == GemmShape(8, 1, 3)
    assert gemm.utilisation([(0, 48)], [body], chip) == pytest.approx(384 / (16 * 48))


# -- speed, regression ------------------------------------------------------------------------------------------------


def sped(ratio: float, **change: Any) -> speed.Measured:
    """A row that reaches so much of the plain loop."""
    one = row(**{"utilisation": 0.97, "cpu_seconds": 1.0} | change)
    return speed.Measured(one, "native", one.cycles_per_second / ratio)


def test_speed_bar_is_a_ratio_and_holds_for_busy_layers_with_clang() -> None:
    assert speed.missed([sped(0.2)], clang=True) == []
    (found,) = speed.missed([sped(0.21), sped(0.19)], clang=True)
    assert found == "quad16 (native), gemm:8x8x8: 0.190 of the plain loop, the bar is 0.2"
    assert speed.missed([sped(0.19)], clang=False) == []
    assert speed.missed([sped(0.19, utilisation=0.9)], clang=True) == []
    assert speed.missed([sped(0.25, chip="quad32")], clang=True)
    assert speed.missed([sped(0.01, chip="mono16")], clang=True) == []


def test_speed_of_wrong_bytes_does_not_count() -> None:
    (found,) = speed.missed([sped(0.5, chip="mono16", mismatches=3)], clang=False)
    assert "3 of 64 bytes differ" in found
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


def test_regression_runs_small_layers_on_the_small_chip() -> None:
    every, small = regression.layers("quad16"), regression.layers("tiny")
    assert set(small) < set(every)
    assert len(small) >= 10
    assert max(find(name)[0].shape.macs for name in small) <= regression.SMALL_MACS


def test_regression_marks_rows_that_did_not_pass() -> None:
    found = regression.sheet("quad16", [row(), row(model_cycles=1100), row(mismatches=1)])
    assert found.failed == {1, 2}
    assert found.title == "quad16: 1 of 3 passed, mean error 3.40 %, worst 10.00 %"
    assert found.rows[1][:4] == ("gemm:8x8x8 [model]", "1,000", "1,100", "+10.00 %")
    assert found.rows[2][0] == "gemm:8x8x8 [mismatch]"


def test_layers_that_the_arrays_bound_have_bars() -> None:
    used = {"limit": "compute", "span_cycles": 4000, "fed_cycles": 3960, "within": 0.98, "edges": 0.99}
    sheet, missed = regression.bounded("quad16", [row(utilisation=0.95, arrays=used), row()])
    assert (len(sheet.rows), missed) == (1, [])
    assert sheet.rows[0] == ("gemm:8x8x8", "1,000", "98.0 %", "95.0 %", "99.0 %", "99.0 %")
    sheet, missed = regression.bounded("quad16", [row(utilisation=0.5, arrays=used | {"limit": "dram"})])
    assert (len(sheet.rows), missed) == (0, [])
    edges = used | {"within": 0.75, "edges": 0.765}
    sheet, missed = regression.bounded("quad16", [row(utilisation=0.95, arrays=used), row(arrays=edges)])
    assert sheet.failed == {1}
    leave = "its edges leave 76.5 % of the PEs"
    assert missed == [
        f"quad16: gemm:8x8x8, within its cores: 75.0 % of the PE cycles are useful, not 97 %: {leave}",
        f"quad16: gemm:8x8x8, end to end: 50.0 % of the PE cycles are useful, not 94 %: {leave}",
    ]
    (found,) = regression.bounded("quad16", [row(utilisation=0.9, arrays=used)])[1]
    assert found.endswith("end to end: 90.0 % of the PE cycles are useful, not 94 %")


def test_how_a_layer_uses_arrays_is_counted_by_core() -> None:
    chip = load("quad8")
    made = runner.prepare(find("gemm:64x64x64")[0], chip, "loop_order")
    found = arrays_used(made.schedule, [], made.macs, chip)
    assert found is None, "no GEMM has run"
    found = arrays_used(made.schedule, made.timeline.executed, made.macs, chip)
    assert found is not None
    records = [each for each in made.timeline.executed if each.opcode is Opcode.GEMM]
    assert 0 < found.fed_cycles < found.span_cycles <= len(chip.cores) * made.timeline.cycles
    assert found.span_cycles < sum(each.end for each in records)
    assert found.fed_cycles * chip.rows * chip.cols * found.edges == pytest.approx(made.macs)
    assert found.within * found.span_cycles == pytest.approx(found.edges * found.fed_cycles)
    assert found.limit in TOTALS


def test_array_span_is_that_of_gemms() -> None:
    def record(opcode: Opcode, start: int, end: int) -> Record:
        return Record(1, Unit.MATRIX, opcode, 1, 0, 0, start, end)

    records = [record(Opcode.MOVE, 0, 999), record(Opcode.GEMM, 300, 340), record(Opcode.GEMM, 100, 350)]
    assert layers.array_span(records) == 250
    assert layers.array_span(records[:1]) == 0


# -- networks ---------------------------------------------------------------------------------------------------------


def layer(**changes: Any) -> dict[str, Any]:
    good = {"name": "conv1", "kind": "conv", "macs": 800, "limit": "compute", "rtl_cycles": 1000, "model_cycles": 1000}
    shares = dict.fromkeys(CAUSES, 0.0) | {"compute": 90.0, "edges": 5.0, "idle": 5.0}
    return good | {"core_cycles": 100, "utilisation": 0.9, "shares": shares} | changes


def network_row(name: str = "resnet8", layers: Sequence[dict[str, Any]] = (), **changes: Any) -> Row:
    figures = {
        "picture": "a.png", "answer": "cat", "expected": "cat", "float_answer": "dog", "macs": 1_000_000,
        "tensors_checked": 3, "dram_bytes": 2_000_000, "layers": layers or [layer()],
        "shares": dict.fromkeys(CAUSES, 10.0), "busy": dict.fromkeys(networks.BUSY, 500), "in_turn_cycles": 700,
    }  # fmt: skip
    return row(**{"workload": name, "network": figures} | changes)


def settings_of(scheduler: str) -> dict[str, str]:
    return {"code": "1", "scheduler": scheduler, "simulator_version": "5"}


def test_what_searching_longer_must_reach() -> None:
    usual = network_row(utilisation=0.7)
    assert networks.too_idle(usual, 70) == []
    assert networks.too_idle(usual, 75) == ["resnet8 on quad16: 70.0 % of the PE cycles are useful, the bar is 75 %"]
    longer = network_row(utilisation=0.74, settings=settings_of("loop_order:refine=1000"))
    (found,) = networks.too_idle(longer, 75)
    assert found.startswith("resnet8 on quad16 with loop_order:refine=1000: 74.0 %")
    (found,) = networks.missed([network_row(settings=settings_of("loop_order:refine=80"), cpu_seconds=3.1)])
    assert found == "resnet8 on quad16 with loop_order:refine=80: 3.1 CPU-seconds, the bar is 3"
    sheet = networks.searched([(usual, 1000, 70), (longer, 1200, 75), (network_row(faults=1), 1, 10)])
    assert sheet.failed == {1, 2}
    assert sheet.rows[1] == (
        "resnet8", "loop_order:refine=1000", "1,000", "1,200", "74.0 %", "75 %", "0", "+0.10 %",
    )  # fmt: skip


def test_what_limits_a_network_is_its_busiest_resource() -> None:
    one = network_row()
    assert one.network is not None
    one.network.busy.update(receiving=800)
    sheet = networks.limited([one])
    found = dict(zip((name.rstrip(">") for name in sheet.columns), sheet.rows[0], strict=True))
    assert found["useful"] == f"{1_000_000 / 1024:,.0f}", "products over all PEs of quad16"
    assert (found["arrays"], found["into a core"], found["DRAM channel"]) == ("500", "800", "500")
    assert (found["limit"], found["bound"], found["in turn"]) == ("into a core", "800", "700")
    assert (found["RTL cycles"], found["RTL / bound"]) == ("1,000", "1.25")


def test_the_bars_of_networks() -> None:
    assert networks.missed([network_row()]) == []
    assert networks.missed([network_row(cpu_seconds=3.1)]) == ["resnet8 on quad16: 3.1 CPU-seconds, the bar is 3"]
    assert networks.missed([network_row("squeezenet", cpu_seconds=14.9), network_row("vgg16", cpu_seconds=999)]) == []
    (found,) = networks.missed([network_row(model_cycles=1021)])
    assert found == "resnet8 on quad16: model error end to end 2.10 %, the bar is 2 %"
    (found,) = networks.missed([network_row(layers=[layer(), layer(model_cycles=1050)])])
    assert found == "resnet8 on quad16: model error mean over layers 2.50 %, the bar is 2 %"
    (found,) = networks.missed([network_row(mismatches=3, first_mismatch="conv1: 3")])
    assert found == "resnet8 on quad16: 3 of 64 bytes differ from the golden model, first in conv1: 3"
    idle = layer(utilisation=0.5, shares=layer()["shares"] | {"compute": 50.0, "edges": 15.0})
    (found,) = networks.missed([network_row(layers=[layer(), idle])])
    assert found.startswith(
        "resnet8 on quad16: layers bounded by the arrays use 70.0 % of the PEs (80.0 % have operands)"
    )
    assert networks.missed([network_row(layers=[idle | {"limit": "dram"}])]) == []
    assert networks.missed([network_row(faults=1)])
    (found,) = networks.missed([network_row(records_expected=9, records_compared=8, layers=[])])
    assert "incomplete, 8 of 9 trace records were compared" in found
    assert networks.missed([row(workload="resnet8")]), "a row without figures is none of a network"
    same = network_row(cpu_seconds=9)
    assert len(networks.missed([same, same])) == 1


def test_the_line_of_a_network_weighs_its_compute_bound_layers() -> None:
    large = layer(name="conv2", core_cycles=300, utilisation=0.4, shares=layer()["shares"] | {"compute": 40.0})
    other = layer(name="fc", limit="dram", utilisation=0.0, core_cycles=9999)
    cells = networks._line(network_row(layers=[layer(), large, other]))
    assert len(cells) == len(networks._COLUMNS)
    found = dict(zip((name.rstrip(">") for name in networks._COLUMNS), cells, strict=True))
    assert (found["bound util."], found["bound fed"]) == ("52.5 %", "57.5 %")
    assert (found["MMAC"], found["DRAM MB"], found["tensors"], found["mismatches"]) == ("1.0", "2.00", "3", "0")


def test_the_networks_benchmark_runs_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str], int]] = []
    longer: list[tuple[str, str]] = []

    def run(sources: Any, chip: str, scheduler: str, on_event: OnEvent, options: RunOptions | None = None) -> list[Row]:
        names = [source.name for source in sources]
        if scheduler == networks.DEFAULT:
            asked.append((chip, names, (options or RunOptions()).jobs))
        else:
            assert chip == networks.SEARCHED_CHIP
            longer.extend((name, scheduler) for name in names)
        rows = [
            network_row(source.name, chip=chip, utilisation=0.9, settings=settings_of(scheduler))
            for source in sources
            for _ in source.inputs or (None,)
        ]
        for event in (Plan(99), *rows):
            on_event(event)
        return rows

    monkeypatch.setattr("meshloom.tb.runs.runner.run", run)
    told: list[Any] = []
    result = networks.run(told.append)
    assert [(chip, tuple(names)) for chip, names, _ in asked] == list(networks.RUNS)
    assert {jobs for *_, jobs in asked} == {1}, "CPU-seconds are measured one at a time"
    assert longer == [(name, scheduler) for name, scheduler, _ in networks.SEARCHED if scheduler != networks.DEFAULT]
    (plan,) = [event for event in told if isinstance(event, Plan)]
    assert plan.rows == sum(isinstance(event, Row) for event in told)
    assert result.passed
    (answers,) = [sheet for sheet in result.sheets if sheet.title.startswith("squeezenet: right on")]
    assert answers.title == "squeezenet: right on 20 of 20 pictures, the float network on 0"
    for chip, names in networks.RUNS:
        (sheet,) = [sheet for sheet in result.sheets if sheet.title == f"{chip}: whole networks"]
        assert [cells[0] for cells in sheet.rows] == list(names)


def test_sheets_of_networks_fit_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    one = network_row(
        "efficientnet_lite0", [layer(name="conv2_1_depthwise", rtl_cycles=12_345_678, core_cycles=12_345_678)],
        rtl_cycles=123_456_789, model_cycles=123_456_789, bytes_checked=123_456_789,
    )  # fmt: skip
    sheets = (Sheet("s", networks._COLUMNS, [networks._line(one)]), networks._layers(one))
    print_result(Result("networks", "t", "", sheets), console())
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "12,345,678" in shown


# -- scalesim ---------------------------------------------------------------------------------------------------------


def test_layers_are_those_that_scale_sim_is_given() -> None:
    shapes = [find(name)[0].shape for name in scale_sim.LAYERS]
    assert [scale_sim.topology(shape) for shape in shapes] == [
        [1, 64, 1, 1, 64, 64, 1],
        [1, 256, 1, 1, 256, 256, 1],
        [14, 14, 1, 1, 512, 512, 1],
        [28, 28, 1, 1, 256, 256, 1],
        [28, 28, 1, 1, 512, 128, 1],
        [30, 30, 3, 3, 128, 128, 1],
        [28, 28, 1, 1, 128, 512, 1],
    ]


def test_padding_is_folded_in_for_the_true_output_size() -> None:
    # 13 rows in, 1 + 13 + 1 with padding; 7 rows out at stride 2 need all 15
    assert scale_sim.topology(find("conv:13x12x5-33,k3,s2,p1")[0].shape) == [15, 13, 3, 3, 5, 33, 2]


@pytest.mark.parametrize("name", ["conv:8x8x4-4,b2", "conv:8x8x4-4,k3,d2,p2", "conv:8x8x4-4,s1x2"])
def test_what_scale_sim_cannot_express_is_an_error(name: str) -> None:
    with pytest.raises(BenchmarkError, match="SCALE-Sim has no layer like"):
        scale_sim.topology(find(name)[0].shape)


def test_both_bars_and_every_byte_are_judged() -> None:
    assert scale_sim.judge(ran(), theirs()) == []
    assert scale_sim.judge(ran(999, cpu_seconds=0.005), theirs()) == []
    (found,) = scale_sim.judge(ran(1000), theirs())
    assert found == "1,000 cycles are not fewer than its 1,000"
    (found,) = scale_sim.judge(ran(cpu_seconds=0.01), theirs())
    assert found == "0.010 CPU-s are not 20 times fewer than its 0.10 (10 times)"
    (found,) = scale_sim.judge(ran(mismatches=2), theirs())
    assert "2 of 64 bytes differ" in found
    assert len(scale_sim.judge(ran(0, bytes_checked=0, cpu_seconds=1.0), theirs())) == 3
    assert len(scale_sim.line(ran(), theirs(), [])) == len(scale_sim._COLUMNS)
    assert scale_sim.line(ran(), theirs(), ["x"])[-1] == "missed"


class FakeSimulator:
    """SCALE-Sim's interface as far as the driver uses it."""

    def __init__(self, **arguments: Any) -> None:
        assert arguments["save_disk_space"]
        assert not arguments["verbose"]
        lines = Path(arguments["topology"]).read_text().splitlines()
        self.numbers = [int(cell) for cell in lines[1].split(",")[1:-1]]
        assert "Dataflow = os" in Path(arguments["config"]).read_text()
        self.runner = self
        self.single_layer_sim_object_list = [self]

    def run_scale(self, top_path: str) -> None:
        sys.stdout.write("noise")

    def get_compute_report_items(self) -> list[float]:
        return [9999, sum(self.numbers), 0, 50.0, 100.0, 50.0]


def test_the_driver_speaks_json_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("scalesim.scale_sim")
    monkeypatch.setattr(module, "scalesim", FakeSimulator, raising=False)
    monkeypatch.setattr(driver, "import_module", lambda name: module)
    monkeypatch.setattr(driver.metadata, "version", lambda name: "9.9")
    write_atomically(tmp_path / "job", json.dumps({"rows": 4, "cols": 8, "layers": [["a", 1, 64, 1, 1, 64, 32, 1]]}))
    driver.main(str(tmp_path / "job"), str(tmp_path))
    versions, layer = map(json.loads, capsys.readouterr().out.splitlines())
    assert versions == {"versions": {"scalesim": "9.9", "numpy": "9.9"}}
    found = scale_sim.Theirs(**layer)
    assert (found.name, found.cycles, found.utilisation) == ("a", 164, 0.5)
    assert found.cpu_seconds >= 0
    assert "ArrayHeight = 4\nArrayWidth = 8\n" in (tmp_path / "chip.cfg").read_text()


def fake_python(folder: Path, text: str) -> Path:
    """A program that takes the place of SCALE-Sim's Python: whatever it is asked to run, it does `text`."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


def test_drive_yields_what_it_hears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_sim, "OUTPUT", tmp_path)
    shapes = [find("gemm:8x8x8")[0].shape]
    python = fake_python(tmp_path, 'print(\'{"versions": {}}\')\nprint(\'{"name": "x"}\')')
    assert list(scale_sim.drive(python, 4, 4, shapes)) == [{"versions": {}}, {"name": "x"}]
    assert [path.name for path in tmp_path.iterdir()] == ["python"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print('{\"versions\": {}}')", "after 0 of 1 layers: it printed nothing"),
        ("import sys; sys.exit('numpy has no attribute x')", "after 0 of 1 layers: numpy has no attribute x"),
    ],
)
def test_a_simulator_that_stops_early_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    monkeypatch.setattr(scale_sim, "OUTPUT", tmp_path)
    with pytest.raises(BenchmarkError, match=why):
        list(scale_sim.drive(fake_python(tmp_path, text), 4, 4, [find("gemm:8x8x8")[0].shape]))


def test_a_failed_installation_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "noise\nno network")

    monkeypatch.setattr(scale_sim, "OUTPUT", tmp_path)
    monkeypatch.setattr(scale_sim.subprocess, "run", run)
    with pytest.raises(
        BenchmarkError, match=r"could not be installed: no network \(it needs scalesim==3\.0\.0, numpy<2"
    ):
        scale_sim.install(lambda event: None)
    assert [path.suffix for path in (tmp_path / "tools").glob("[!.]*")] == [".log"]


def test_larger_chips_have_bars_of_cycles_and_of_planning() -> None:
    fed = ahead.Fed("gemm", 9, pulled=1000, shared=900, pushed=950, packets=10, seconds=59)
    assert ahead.behind(fed) == ""
    assert "pushed takes 1,000 cycles, pulled 1,000" in ahead.behind(replace(fed, pushed=1000))
    assert "planned in 61 s, the bar is 60 s" in ahead.behind(replace(fed, seconds=61))
    for grid in ahead.GRIDS:
        chip = ahead.fed_chip(grid)
        assert (len(chip.cores), len(chip.drams), len(chip.channels)) == (grid * grid, grid, grid + 1)
