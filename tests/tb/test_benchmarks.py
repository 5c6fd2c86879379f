"""Benchmarks: who is run, what is judged, what is printed and written. No simulator is built or run here."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from meshloom.hw.spec.config import ChipConfig, TileKind, load
from meshloom.sched.support.plugins import PluginError
from meshloom.sched.workload.onnx.dequantising.operators import OPERATORS as INTEGER_OPERATORS
from meshloom.sched.workload.onnx.operators.table import OPERATORS as FLOAT_OPERATORS
from meshloom.tb.benchmarks import (
    area,
    builds,
    channel_scales,
    files,
    flexer,
    flexer_assumptions,
    flexer_optimum,
    flexer_policies,
    flexer_rtl,
    gemm,
    klotski,
    klotski_partition,
    klotski_solvers,
    layer_latency,
    layer_puzzle,
    models,
    networks,
    noc,
    online_ablation,
    operators,
    registry,
    regression,
    scale_sim,
    speed,
    sweep,
    vector,
)
from meshloom.tb.benchmarks.interface import BenchmarkError, all_ran
from meshloom.tb.benchmarks.registry import SHIPPED
from meshloom.tb.benchmarks.results import Result, Sheet, markdown, print_result, save_result
from meshloom.tb.report.console import console
from meshloom.tb.results.events import OnEvent
from meshloom.tb.results.schema import Row

from ..tiers import slow_but
from .benchmark_rows import row


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
    "scalesim": scale_sim,
    "flexer": flexer, "flexer_assumptions": flexer_assumptions, "flexer_policies": flexer_policies,
    "flexer_optimum": flexer_optimum,
    "flexer_rtl": flexer_rtl, "layer_latency": layer_latency, "models": models,
    "layer_puzzle": layer_puzzle, "online_ablation": online_ablation, "klotski_solvers": klotski_solvers,
    "klotski_partition": klotski_partition, "klotski": klotski, "area": area, "sweep": sweep,
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
    names = FLOAT_OPERATORS.keys() | INTEGER_OPERATORS.keys()
    assert operators.HOW.keys() == {name for name in names if "." not in name}
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
    outcome = operators.outcome(next(case for case in operators.cases() if case.name == name))
    assert outcome.wrong == ""
    if name == "test_reshape_one_dim":
        assert outcome.nothing
    else:
        assert outcome.refused == ""
        assert outcome.cycles
        assert outcome.snr_db > operators.LEAST_DB


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
    assert len({one.name for one in chips}) == len(chips)
    alike = [
        one.model_copy(update={"name": "", "core": one.core.model_copy(update={"vec_windows": 1})}) for one in chips
    ]
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
    screen = console()
    screen.width = 100
    print_result(RESULT, screen)
    shown = capsys.readouterr().out
    for word in ("A chip", "a|b [x]", "1,000", "A remark.", "missed: c: too slow", "speed: 1 bars missed"):
        assert word in shown


def test_a_sheet_refuses_a_row_of_another_width() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 2 columns"):
        Sheet("t", ("a", "b"), [("1",)])
