"""Several chips and schedulers in one command, several runs in one comparison."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.tb.compare.compared import CompareRunsError, compare
from meshloom.tb.compare.ranked import ranked, targets
from meshloom.tb.results.named import NamedRun, find
from meshloom.tb.results.ranking import Rankings
from meshloom.tb.results.schema import Row, Settings
from meshloom.tb.results.schema import load as load_results

from .command_line import invoke, results_in, row
from .kept_runs import keep, results_file

TINY = load("tiny")
SLOW = ChipConfig.model_validate(TINY.model_dump() | {"name": "slow", "dram": {"latency": 200, "bytes_per_cycle": 1}})
SHAPE = "gemm:17x33x9"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Results of a layer: by two schedulers, and on a slower chip."""
    root = tmp_path_factory.mktemp("several")
    folders = [
        keep(root / "a", SHAPE, TINY),
        keep(root / "b", SHAPE, TINY, "zigzag"),
        keep(root / "c", SHAPE, SLOW),
    ]
    return [results_file(root / f"{name}.json", folder) for name, folder in zip("abc", folders, strict=True)]


def text_of(output: str) -> str:
    return " ".join(output.replace("│", " ").split())


def settings(scheduler: str, **more: Any) -> Settings:
    return Settings(code="1", scheduler=scheduler, simulator_version="5", **more)


def test_a_row_for_each_scheduler_and_a_comparison(folder: Path, engine: Any) -> None:
    calls = engine(row())
    shown = invoke("run", "gemm:8x8x8", "--chip", "tiny", "--scheduler", "loop_order", "--scheduler", "zigzag")
    assert shown.exit_code == 0, shown.output
    assert [(call[1], call[2]) for call in calls] == [("tiny", "loop_order"), ("tiny", "zigzag")]
    results = load_results(results_in(folder) / "latest.json")
    assert len(results.rows) == 2
    assert results.run.endswith("-tiny-loop_order+zigzag-verilator")
    assert "[1/2] gemm:8x8x8 on tiny by loop_order: passed" in shown.output


def test_rows_are_listed_in_the_order_of_the_command_however_they_came(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs beside each other finish as they like."""
    layers = ["gemm:8x8x8", "gemm:4x4x4", "gemm:2x2x2"]

    def run(workloads: Any, targets: Any, on_event: Any, options: Any) -> list[Row]:
        rows = [row(workload) for workload in workloads]
        for each in rows[::-1]:
            on_event(each)
        return rows

    monkeypatch.setattr("meshloom.tb.runs.several.run", run)
    assert invoke("run", *layers, "--chip", "tiny").exit_code == 0
    assert [each.workload for each in load_results(results_in(folder) / "latest.json").rows] == layers


def test_every_chip_by_every_scheduler(folder: Path, engine: Any) -> None:
    calls = engine(row())
    words = ["--chip", "tiny", "--chip", "quad8", "--scheduler", "loop_order", "--scheduler", "zigzag"]
    assert invoke("run", "gemm:8x8x8", *words).exit_code == 0
    pairs = [(call[1], call[2]) for call in calls]
    assert pairs == [("tiny", "loop_order"), ("tiny", "zigzag"), ("quad8", "loop_order"), ("quad8", "zigzag")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--chip", "tiny", "--chip", "tiny"], "tiny is given 2 times; give each once"),
        (["--scheduler", "zigzag", "--scheduler", "zigzag"], "zigzag is given 2 times; give each once"),
        (["--chip", "tiny", "--chip", "nochip"], "unknown chip 'nochip'"),
        (["--chip", "tiny", "--scheduler", "loop_order", "--scheduler", "loop_ordr"], "loop_order"),
    ],
)
@pytest.mark.parametrize("command", ["run", "schedule"])
def test_bad_ones_are_refused_before_anything_runs(command: str, words: list[str], message: str, folder: Path) -> None:
    shown = invoke(command, "gemm:8x8x8", *words)
    assert shown.exit_code == 2
    assert message in text_of(shown.stderr)
    assert not list(folder.iterdir())


def test_a_saved_schedule_has_its_scheduler(folder: Path) -> None:
    (folder / "s.json").write_text('{"operations": []}')
    shown = invoke("run", "s.json", "--chip", "tiny", "--scheduler", "zigzag", "--scheduler", "loop_order")
    assert shown.exit_code == 2
    assert "is a schedule or a program already" in text_of(shown.stderr)


def test_schedules_are_compared_cause_by_cause(folder: Path) -> None:
    words = ["--chip", "tiny", "--scheduler", "loop_order", "--scheduler", "zigzag", "--out", "plans"]
    shown = invoke("schedule", "gemm:16x32x16", *words)
    assert shown.exit_code == 0, shown.output
    files = {name: folder / "plans" / f"tiny-{name}" / "gemm_16x32x16.json" for name in ("loop_order", "zigzag")}
    cycles = {name: json.loads(file.read_text())["predicted"]["cycles"] for name, file in files.items()}
    ratio = cycles["zigzag"] / cycles["loop_order"]
    assert re.search(rf"zigzag +{cycles['zigzag']:,} +{ratio:.3f} +\w+", shown.output)
    best, other = sorted(cycles, key=cycles.__getitem__)
    times = cycles[other] / cycles[best]
    assert f"gemm:16x32x16: {best} is {times:.2f} times as fast as {other}, mostly by" in shown.output


def test_three_runs_side_by_side(files: list[Path], tmp_path: Path) -> None:
    place = tmp_path / "ranks.json"
    shown = invoke("compare", *files, "--json", place)
    assert shown.exit_code == 0, shown.output
    rankings = Rankings.model_validate_json(place.read_text())
    (ranking,) = rankings.workloads
    assert [run.run for run in ranking.runs] == [str(file) for file in files]
    assert ranking.runs[0].ratio == 1
    for run in ranking.runs[1:]:
        assert run.side.cycles is not None
        assert ranking.runs[0].side.cycles is not None
        assert sum(run.causes.values()) == pytest.approx(run.side.cycles - ranking.runs[0].side.cycles)
        assert run.ratio == pytest.approx(run.side.cycles / ranking.runs[0].side.cycles)
    fastest = min(ranking.runs, key=lambda run: run.side.cycles or 0)
    assert ranking.fastest == fastest.run
    assert f"{SHAPE}: {fastest.run} is " in shown.output


def test_a_run_that_is_slower_than_the_first_is_a_regression(files: list[Path]) -> None:
    shown = invoke("compare", *files, "--max-regression", "10%")
    assert shown.exit_code == 1
    assert f"worse: {SHAPE} in {files[2]}: +" in shown.output
    assert invoke("compare", *files, "--max-regression", "1000%").exit_code == 0


def test_a_run_of_several_schedulers_is_compared_by_itself(files: list[Path], tmp_path: Path) -> None:
    rows = [row for file in files[:2] for row in load_results(file).rows]
    both = tmp_path / "both.json"
    load_results(files[0]).model_copy(update={"rows": tuple(rows)}).save(both)
    shown = invoke("compare", both)
    assert shown.exit_code == 0, shown.output
    assert "scheduler: loop_order -> zigzag" in shown.output
    assert list(targets(find(str(both)))) == ["loop_order", "zigzag"]


def named(one: Row) -> list[NamedRun]:
    return [NamedRun(one, None)]


def test_what_does_other_work_is_not_compared() -> None:
    """Two files of one name, and two sizes of one file."""
    first = row("net", settings=settings("loop_order", model_digest="a" * 64))
    other = row("net", settings=settings("zigzag", model_digest="b" * 64))
    sized = row("net", settings=settings("zigzag", model_digest="a" * 64, bind=("batch=2",)))
    stranger = row("other", settings=settings("zigzag", model_digest="b" * 64))
    with pytest.raises(CompareRunsError, match=r"net: other is another network; compare runs of one$"):
        compare(named(first), named(stranger))
    with pytest.raises(CompareRunsError, match="two models have this name, with the digests aaaaaaaa and bbbbbbbb"):
        compare(named(first), named(other))
    rankings = ranked({"one": named(first), "two": named(other), "three": named(sized)})
    refused = {run.run: run.refused for run in rankings.workloads[0].runs if run.refused}
    assert set(refused) == {"two", "three"}
    assert "its open sizes differ: none and batch=2" in refused["three"]


def test_runs_without_a_common_workload_are_refused() -> None:
    with pytest.raises(CompareRunsError, match=r"no two of the runs .* in common; one: x; two: y; three: z"):
        ranked({"one": named(row("x")), "two": named(row("y")), "three": named(row("z"))})


def test_what_only_one_run_has_is_named() -> None:
    rankings = ranked({"one": [*named(row("x")), *named(row("y"))], "two": named(row("x")), "three": named(row("x"))})
    assert rankings.alone == {"y": "one"}


def test_a_row_that_failed_has_no_ratio() -> None:
    failed = row("x", failure="it broke", rtl_cycles=0)
    rankings = ranked({"one": named(row("x")), "two": named(failed), "three": named(row("x", rtl_cycles=500))})
    first, second, third = rankings.workloads[0].runs
    assert (first.ratio, second.ratio, third.ratio) == (1.0, None, 0.5)
    assert rankings.workloads[0].fastest == "three"
