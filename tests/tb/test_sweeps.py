"""Sweeps: the points that a file means, their rows on disk, questions to them, and workers that die."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from distributed.scheduler import KilledWorker

import meshloom
from meshloom.hw.spec.config import ConfigError, load
from meshloom.sched.schedulers.registry import SchedulerError
from meshloom.sched.support.limits import guard_of, guarded
from meshloom.sched.workload.layers import WorkloadError
from meshloom.tb.results.identity import sources
from meshloom.tb.results.recorder import RESULTS_FOLDER
from meshloom.tb.results.schema import Results, Status
from meshloom.tb.results.sweep import PointRow, SweepError, SweepFile, read
from meshloom.tb.runs.failures import Failure
from meshloom.tb.runs.sweeps import cluster, grid, query, store
from meshloom.tb.runs.sweeps import sweep as sweeps
from meshloom.tb.runs.sweeps.evaluate import Batch, Done, OtherSourcesError, Task, evaluate

from .command_line import invoke
from .command_line import row as run_row

if TYPE_CHECKING:
    import polars

TEXT = """
name = "trial"
chips = ["tiny"]
schedulers = ["loop_order:effort={effort}"]
workloads = ["gemm:{m}x8x8"]
[chip]
"core.a_words" = [512, 1024]
[parameters]
m = {low = 4, high = 16, step = 4}
effort = [0.01, 0.02]
"""


def sweep_of(text: str, folder: Path) -> SweepFile:
    (folder / "trial.toml").write_text(text)
    return read(folder / "trial.toml")


def row(key: str, **values: Any) -> PointRow:
    plain = {"key": key, "chip": "tiny", "scheduler": "s", "workload": key, "measure": "model", "status": "predicted"}
    return PointRow.model_validate(plain | values)


def without_seconds(frame: polars.DataFrame) -> list[dict[str, Any]]:
    return frame.drop("seconds", "simulation_seconds").to_dicts()


# -- files and their points -------------------------------------------------------------------------------------------


def test_points_are_all_combinations_of_what_each_name_takes(tmp_path: Path) -> None:
    sweep = sweep_of(TEXT.replace('["loop', '["loop_order:effort=0.5", "loop'), tmp_path)
    points = grid.points(sweep, tmp_path)
    assert len(points) == 2 * 4 * (1 + 2)
    assert {point.chip.core.a_words for point in points if point.chip} == {512, 1024}
    last = points[-1]
    assert (last.scheduler, last.workload) == ("loop_order:effort=0.02", "gemm:16x8x8")
    assert last.parameters == {"core.a_words": 1024, "m": 16, "effort": 0.02}
    assert last.macs == 16 * 8 * 8


def test_names_stand_for_layers_and_the_same_point_counts_once(tmp_path: Path) -> None:
    text = 'name = "x"\nchips = ["tiny"]\nworkloads = ["resnet8/*", "resnet8/conv1", "resnet8", "conv:4x4x4-4,k1"]\n'
    points = grid.points(sweep_of(text, tmp_path), tmp_path)
    assert [point.workload for point in points][:1] == ["resnet8/conv1"]
    assert [point.workload for point in points][-2:] == ["resnet8", "conv:4x4x4-4"]
    assert len(points) == 10 + 1 + 1
    assert points[-2].macs is None


def test_conditions_are_sql(tmp_path: Path) -> None:
    head = 'where = ["macs > 600", "\\"core.a_words\\" = 512 or m = 12"]\n'
    points = grid.points(sweep_of(head + TEXT, tmp_path), tmp_path)
    assert {(point.parameters["m"], point.parameters["core.a_words"]) for point in points} == {
        (12, 512),
        (12, 1024),
        (16, 512),
    }
    with pytest.raises(SweepError, match=r"where 'macs >> 3': .*columns are chip, scheduler, workload, macs"):
        grid.points(sweep_of('where = ["macs >> 3"]\n' + TEXT, tmp_path), tmp_path)
    with pytest.raises(SweepError, match=r'measure = "rtx" must be "model" or "rtl"'):
        sweep_of('measure = "rtx"\n' + TEXT, tmp_path)
    with pytest.raises(SweepError, match="no point meets its conditions"):
        grid.points(sweep_of('where = ["macs < 0"]\n' + TEXT, tmp_path), tmp_path)


def test_a_larger_sample_keeps_the_smaller_and_another_seed_is_another(tmp_path: Path) -> None:
    def sample(count: int, seed: int) -> list[str]:
        points = grid.points(sweep_of(f"sample = {count}\nseed = {seed}\n" + TEXT, tmp_path), tmp_path)
        return [grid.digest(point.content) for point in points]

    assert len(sample(5, 1)) == 5
    assert set(sample(5, 1)) < set(sample(9, 1))
    assert sample(5, 1) != sample(5, 2)
    assert len(sample(100, 1)) == 16


def test_a_chip_that_cannot_be_is_a_point_that_fails(tmp_path: Path) -> None:
    text = TEXT.replace('"core.a_words" = [512, 1024]', "rows = [4, 8]")
    points = grid.points(sweep_of(text, tmp_path), tmp_path)
    assert [point.problem for point in points if point.chip is None] == [
        "chip tiny with other fields: rows = 8 exceeds lanes = 4"
    ] * 8


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ('name = "trial"', 'nam = "trial"', SweepError, "trial.toml: name: is missing; .*nam: there is no such field"),
        ("[parameters]", "[parameters]\nk = [2]", SweepError, "parameter k stands in no scheduler or workload"),
        ("m = {", "n = {", SweepError, "{m} has no values; give it some in"),
        ("[0.01, 0.02]", '[0.01, "a"]', SweepError, "effort: values must be a list of texts, of numbers"),
        ("high = 16", "high = 1", SweepError, "m: high = 1 is below low = 4"),
        ("high = 16", "high = 16000000", SweepError, "4,000,000 values, 1,000,000 are possible"),
        ("high = 16", "high = 200000", SweepError, "has 200,000 points or more, 100,000 are possible"),
        ('"tiny"', '"tyni"', ConfigError, "unknown chip 'tyni'.*tiny"),
        ('"core.a_words"', '"core.a_word"', ConfigError, r"core\.a_word: there is no such field"),
        ('"core.a_words"', "m", SweepError, "m is a parameter and a field of the chip"),
        ("effort={", "effrt={", SchedulerError, "no option 'effrt'"),
        ("gemm:{m}", "gem:{m}", WorkloadError, "unknown workload 'gem:4x8x8'"),
        ('"gemm:{m}x8x8"', '"{m}.json"', SweepError, "is made already; a sweep makes schedules"),
        ('"tiny"]', '"tiny"', SweepError, "trial.toml: malformed TOML"),
    ],
)
def test_mistakes_are_one_sentence(old: str, new: str, error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        grid.points(sweep_of(TEXT.replace(old, new), tmp_path), tmp_path)


def test_files_are_found_beside_the_sweep_and_decide_the_key(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\nlanes = 4\nfloorplan = ["dram core", "host spm"]\n')
    (tmp_path / "mine.py").write_text("def schedule(task): pass\n")
    text = 'name = "x"\nchips = ["mine.toml"]\nschedulers = ["mine.py:schedule"]\nworkloads = ["gemm:4x4x4"]\n'
    (planned,) = sweeps.plan(sweep_of(text, tmp_path), tmp_path)
    assert planned.point.chip is not None
    assert planned.point.chip.name == "mine"
    assert planned.point.scheduler == f"{tmp_path}/mine.py:schedule"
    (again,) = sweeps.plan(sweep_of(text, tmp_path), tmp_path)
    assert again.key == planned.key
    keys = {planned.key}
    (tmp_path / "mine.py").write_text("import helper\ndef schedule(task): pass\n")
    for texts in (
        ("import deeper\n", "N = 1\n"),
        ("import deeper  # a line\nN = 2\n", "N = 1\n"),
        ("import deeper\n", ""),
    ):
        for name, own in zip(("helper.py", "deeper.py"), texts, strict=True):
            (tmp_path / name).write_text(own)
        (again,) = sweeps.plan(sweep_of(text, tmp_path), tmp_path)
        keys.add(again.key)
    assert len(keys) == 4, "what a file imports from beside it decides, too"
    (rtl,) = sweeps.plan(sweep_of('measure = "rtl"\n' + text, tmp_path), tmp_path)
    assert rtl.key != planned.key


# -- batches ----------------------------------------------------------------------------------------------------------


def batch(*workloads: str, **changes: Any) -> Batch:
    tasks = [
        Task(key=name, scheduler="loop_order:effort=0.01", workload=name, parameters="{}", code="c")
        for name in workloads
    ]
    return Batch(**({"sources": sources(), "chip": load("tiny"), "device": None, "tasks": tuple(tasks)} | changes))


def test_a_batch_has_a_row_for_each_point_and_some_say_why_not(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def schedule(task): raise LookupError('on purpose')\n")
    result = batch("gemm:4x4x4", "gemm:4x4", "gemm:8x8x8", "resnet8/*", "gemm:5x6x7")
    bad = result.tasks[2].model_copy(update={"scheduler": f"{tmp_path}/bad.py:schedule"})
    result = result.model_copy(update={"tasks": (*result.tasks[:2], bad, *result.tasks[3:])})
    rows = Done.model_validate_json(evaluate(result.model_dump_json())).rows
    assert [point_row.key for point_row in rows] == [task.key for task in result.tasks]
    assert [point_row.error_stage for point_row in rows] == [None, "reading", "scheduling", "reading", None]
    assert rows[2].error_kind == "LookupError"
    good = rows[0]
    assert good.status == "predicted"
    assert good.cycles == good.model_cycles
    assert good.cycles
    assert (good.macs, good.rtl_cycles) == (64, None)
    assert good.utilisation == pytest.approx(64 / 16 / good.cycles)


def test_other_sources_are_refused() -> None:
    with pytest.raises(OtherSourcesError, match="a worker has Meshloom with sources"):
        evaluate(batch("gemm:4x4x4", sources="others").model_dump_json())


@pytest.mark.slow
def test_points_of_several_schedulers_share_a_simulator() -> None:
    result = batch("gemm:4x4x4", "gemm:8x8", "gemm:5x6x7", device="verilator")
    other = result.tasks[0].model_copy(update={"scheduler": "loop_order:effort=0.02", "key": "other"})
    done = Done.model_validate_json(
        evaluate(result.model_copy(update={"tasks": (*result.tasks, other)}).model_dump_json())
    )
    assert [point_row.status for point_row in done.rows] == ["passed", "failed", "passed", "passed"]
    assert done.rows[3].scheduler == other.scheduler
    assert all(
        point_row.rtl_cycles == point_row.cycles == point_row.model_cycles
        for point_row in done.rows
        if point_row.error is None
    )


class FakeFuture:
    """What a batch has become."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def exception(self) -> BaseException:
        return self.error


def test_a_batch_that_loses_its_workers_is_taken_apart_until_the_point_is_known() -> None:
    from distributed.scheduler import KilledWorker

    dead: Any = FakeFuture(KilledWorker("x", None, 1))
    rows: list[PointRow] = []
    parts = cluster._finished(dead, batch("gemm:4x4x4", "gemm:5x6x7"), lambda done: rows.extend(done.rows))
    assert [[task.key for task in part.tasks] for part in parts] == [["gemm:4x4x4"], ["gemm:5x6x7"]]
    assert cluster._finished(dead, parts[0], lambda done: rows.extend(done.rows)) == []
    assert [(one.key, one.error_kind) for one in rows] == [("gemm:4x4x4", "KilledWorker")]
    lacking: Any = FakeFuture(ModuleNotFoundError("No module"))
    with pytest.raises(cluster.ClusterError, match="workers cannot do a batch: ModuleNotFoundError: No module"):
        cluster._finished(lacking, parts[0], lambda done: None)


def test_batches_are_of_about_equal_work_and_the_most_of_it_comes_first(tmp_path: Path) -> None:
    text = TEXT.replace("gemm:{m}x8x8", 'resnet8", "gemm:64x{m}x64').replace(":effort={effort}", "")
    text = text.replace("effort = [0.01, 0.02]", "")
    planned = sweeps.plan(sweep_of('measure = "rtl"\n' + text, tmp_path), tmp_path)
    batches = sweeps.batches(planned, "verilator", 2)
    work = {each.key: sweeps._work(each.point, "verilator") for each in planned}
    spent = [sum(work[task.key] for task in each.tasks) for each in batches]
    steps = [one // sweeps.START for one in spent]
    assert steps == sorted(steps, reverse=True)
    assert len(set(steps)) > 1
    assert batches[0].tasks[0].workload == "resnet8"
    assert sorted(task.key for each in batches for task in each.tasks) == sorted(work)
    share = sum(work.values()) / (2 * sweeps.EACH)
    assert all(one <= share or len(each.tasks) == 1 for one, each in zip(spent, batches, strict=True))


def test_batches_are_of_one_chip_each_and_small_enough_for_all_workers(tmp_path: Path) -> None:
    planned = sweeps.plan(sweep_of(TEXT, tmp_path), tmp_path)
    batches = sweeps.batches(planned, None, 1)
    assert [len(each.tasks) for each in batches] == [4] * 4
    assert [task.key for each in batches for task in each.tasks] == [each.key for each in planned]
    assert [each.chip.core.a_words for each in batches] == [512, 512, 1024, 1024]
    assert {len(each.tasks) for each in sweeps.batches(planned, None, 16)} == {1}


def test_no_simulator_is_started_twice_for_batches_of_little_work(tmp_path: Path) -> None:
    """On each chip some batches with more points and one with fewer."""
    text = 'measure = "rtl"\n' + TEXT.replace("step = 4", "step = 1")
    planned = sweeps.plan(sweep_of(text, tmp_path), tmp_path)
    batches = sweeps.batches(planned, "verilator", 1)
    assert len({len(each.tasks) for each in batches}) > 1
    chips = [each.chip.core.a_words for each in batches]
    assert chips == sorted(chips)
    assert sum(len(each.tasks) for each in batches) == len(planned)


# -- rows on disk -----------------------------------------------------------------------------------------------------


def test_what_failed_at_a_limit_is_made_again_with_another(tmp_path: Path) -> None:
    texts = {
        "TimeLimit": "scheduler s failed on x: no result within 3 seconds (--time-limit) (line 3 of s.py)",
        "MemoryLimit": "scheduler s failed on x: it needs more memory than 64 MB (--memory-limit)",
        "NetworkLimit": "scheduler s failed on x: it has no network (--network)",
        "KeyError": "no result within 3 seconds (--time-limit)",
    }
    with store.Store(tmp_path) as result:
        result.add([row(kind, status="failed", error=text, error_kind=kind, error_stage="scheduling")
                    for kind, text in texts.items()])  # fmt: skip
        result.add([row("wrong", status="mismatch", error="1 byte differs")])
        for guard, others in (
            (guard_of(3, 64), set[str]()),
            (guard_of(30, 64), {"TimeLimit"}),
            (guard_of(0, 640), {"TimeLimit", "MemoryLimit"}),
            (guard_of(3, 64, network=True), {"NetworkLimit"}),
        ):
            with guarded(guard):
                assert {*texts} - result.done(failed_too=True).keys() == others
        assert result.done(failed_too=False) == {"wrong": Status.MISMATCH}


def test_rows_are_kept_once_and_the_good_one_wins(tmp_path: Path) -> None:
    failed = row("a", status="failed", error="no", error_kind="E", error_stage="scheduling")
    with store.Store(tmp_path) as result:
        result.add([failed, row("b", cycles=3, parameters='{"m": 3}')])
        assert result.done(failed_too=True) == {"a": Status.FAILED, "b": Status.PASSED}
        assert result.done(failed_too=False).keys() == {"b"}
        result.add([row("a", cycles=5, parameters='{"m": 4, "chip": "x"}')])
        (tmp_path / ".batch-x.parquet.tmp").write_text("half")
    with store.Store(tmp_path) as result:
        assert not (tmp_path / ".batch-x.parquet.tmp").exists()
        assert result.done(failed_too=False).keys() == {"a", "b"}
    frame = store.with_parameters(store.read(tmp_path))
    assert frame.select("key", "cycles", "m", "chip_").rows() == [("a", 5, 4, "x"), ("b", 3, 3, None)]


def test_many_files_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MERGED_AT", 3)
    with store.Store(tmp_path) as result:
        for key in "abcd":
            result.add([row(key)])
    assert sorted(path.name.partition("-")[0] for path in tmp_path.glob("*.parquet")) == ["batch", "many"]
    assert store.read(tmp_path)["key"].to_list() == list("abcd")


def test_a_folder_is_for_one_client_and_damage_is_named(tmp_path: Path) -> None:
    import polars

    with store.Store(tmp_path), pytest.raises(SweepError, match="another sweep is adding rows"), store.Store(tmp_path):
        pass
    (tmp_path / "batch-0.parquet").write_text("half a file")
    with pytest.raises(SweepError, match=r"batch-0.parquet: cannot be read: .*delete it, and its points are made"):
        store.read(tmp_path)
    polars.DataFrame({"key": ["a"]}).write_parquet(tmp_path / "batch-0.parquet")
    with pytest.raises(SweepError, match="has other columns than this version"):
        store.read(tmp_path)


# -- questions --------------------------------------------------------------------------------------------------------


def test_sql_and_fronts(tmp_path: Path) -> None:
    import polars

    frame = polars.DataFrame({"n": [1, 2, 3, 4, 5], "x": [3, 1, 2, 3, None], "y": [1.0, 5.0, 5.0, 1.0, 0.0]})
    assert query.select(frame, "select n from points where x > 2").rows() == [(1,), (4,)]
    assert query.pareto(frame, ["x", "y"])["n"].to_list() == [2, 1, 4]
    assert query.pareto(frame, ["x", "-y"])["n"].to_list() == [2]
    assert query.pareto(frame, ["-n"])["n"].to_list() == [5]
    with pytest.raises(query.QueryError, match="the table is points, its columns are n, x, y"):
        query.select(frame, "select z from points")
    with pytest.raises(query.QueryError, match="there is no column z"):
        query.pareto(frame, ["z"])
    with pytest.raises(query.QueryError, match="column chip has no numbers"):
        query.pareto(polars.DataFrame({"chip": ["a"]}), ["chip"])


def test_a_picture_is_the_same_every_time(tmp_path: Path) -> None:
    import polars

    frame = polars.DataFrame({"chip": ["a", "b", "b"], "x": [1, 2, 3], "y": [3, 2, 2]})
    first, second = tmp_path / "1.svg", tmp_path / "2.svg"
    query.draw(frame, ["x", "y"], first)
    query.draw(frame, ["x", "y"], second)
    assert first.read_bytes() == second.read_bytes()
    assert b"Pareto front" in first.read_bytes()
    with pytest.raises(query.QueryError, match=r"take .svg or .png"):
        query.draw(frame, ["x", "y"], tmp_path / "3.xyz")
    with pytest.raises(query.QueryError, match="a picture needs two columns"):
        query.draw(frame, ["x"], first)


def test_rows_of_anything_that_has_some(tmp_path: Path) -> None:
    with store.Store(tmp_path / "s") as result:
        result.add([row("a", cycles=5)])
    frame = query.rows(tmp_path / "s")
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        assert query.rows(tmp_path / name)["cycles"].to_list() == [5]
    (tmp_path / "empty").mkdir()
    for name, why in (("empty", "has no rows"), ("no.csv", "cannot be read"), ("x.txt", "is neither a sweep, a run")):
        with pytest.raises(query.QueryError, match=why):
            query.rows(tmp_path / name)


def test_rows_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with store.Store(store.SWEEPS_FOLDER / "mine") as result:
        result.add([row("a", cycles=5)])
    saved = {"run": "latest", "started": datetime.now(UTC), "wall_seconds": 1.0, "complete": True, "environment": {}}
    Results(**saved, rows=(run_row(),)).save(RESULTS_FOLDER / "latest.json")
    assert query.rows(Path("mine"))["cycles"].to_list() == [5]
    assert query.rows(Path("latest")).height == 1
    Path("mine").mkdir()
    with pytest.raises(query.QueryError, match="mine: has no rows of a sweep"):
        query.rows(Path("mine"))


# -- the commands -----------------------------------------------------------------------------------------------------


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are done in this process, without a cluster."""

    def run(client: object, batches: Sequence[Batch], on_done: Callable[[Done], None]) -> None:
        for each in batches:
            on_done(Done.model_validate_json(evaluate(each.model_dump_json())))

    monkeypatch.setattr(cluster, "begin", lambda more: None)
    monkeypatch.setattr(cluster, "opened", lambda jobs, address: nullcontext())
    monkeypatch.setattr(cluster, "workers", lambda client: 1)
    monkeypatch.setattr(cluster, "run", run)


def test_the_command_makes_what_is_not_there_and_says_what_failed(here: None, tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "trial.toml"
    sweep_of(TEXT.replace('"core.a_words" = [512, 1024]', "rows = [4, 8]"), tmp_path)
    planned = invoke("sweep", file, "--out", out, "--plan")
    assert "trial: 16 points, 0 of them in" in planned.stdout
    assert not out.exists()
    first = invoke("sweep", file, "--out", out)
    assert first.exit_code == 3, first.output
    assert "16 of 16 points made, 8 of them failed, 0 were there" in first.stdout
    assert "gemm:4x8x8 on tiny by loop_order:effort=0.01: chip tiny with other fields: rows = 8" in first.stdout
    again = invoke("sweep", file, "--out", out)
    assert again.exit_code == 3, "what failed before has not passed since"
    assert "0 of 16 points made, 16 were there, 8 of them failed (--retry)" in again.stdout
    retried = invoke("sweep", file, "--out", out, "--retry")
    assert "8 of 16 points made, 8 of them failed, 8 were there" in retried.stdout
    result = invoke("query", out, "select m, min(cycles) as best from points where error is null group by m order by m")
    assert result.exit_code == 0
    assert result.stdout.count("│") == 4 * 3
    table = invoke("query", out, "select m, cycles from points", "--pareto", "cycles,-m", "--out", "-")
    assert table.stdout.splitlines()[0] == "m,cycles"
    assert invoke("query", out, "--pareto", "cycles,dram_bytes", "--out", tmp_path / "p.svg").exit_code == 0
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")
    assert invoke("query", out, "--out", tmp_path / "rows.parquet").exit_code == 0
    assert invoke("query", tmp_path / "rows.parquet", "select count(*) as n from points").exit_code == 0


def test_the_end_of_a_sweep_as_a_picture(here: None, tmp_path: Path) -> None:
    sweep_of(TEXT, tmp_path)
    shown = invoke("sweep", tmp_path / "trial.toml", "--out", tmp_path / "out", "--plot", tmp_path / "front.svg")
    assert shown.exit_code == 0, shown.output
    assert "Pareto front" in (tmp_path / "front.svg").read_text()


def test_a_sweep_from_python(here: None, tmp_path: Path) -> None:
    values = {"name": "t", "chips": ["tiny"], "schedulers": ["loop_order:effort=0.01"], "workloads": ["gemm:{m}x8x8"],
             "parameters": {"m": [4, 8]}}  # fmt: skip
    swept = meshloom.sweep(values, tmp_path / "out", jobs=1)
    assert (swept.points, swept.kept, len(swept.rows), swept.failed) == (2, 0, 2, ())
    assert swept.frame()["m"].to_list() == [4, 8]
    assert swept.pareto("cycles").height >= 1
    assert meshloom.sweep(values, tmp_path / "out", jobs=1).kept == 2
    with pytest.raises(SweepError, match="workload"):
        meshloom.sweep({**values, "workload": []})


def test_a_wrong_file_runs_nothing(here: None, tmp_path: Path) -> None:
    sweep_of(TEXT, tmp_path)
    (tmp_path / "trial.toml").write_text("name = 3\n")
    wrong = invoke("sweep", tmp_path / "trial.toml", "--out", tmp_path / "out")
    assert wrong.exit_code == 2
    assert not (tmp_path / "out").exists()
    assert invoke("query", tmp_path / "nowhere", "select 1").exit_code == 2


# -- processes that die -----------------------------------------------------------------------------------------------

SCRIPT = "import sys; from meshloom.tb.cli.main import app; sys.exit(app(sys.argv[1:]))"

# One that stands still after its first batch of rows, until it is ended.
STANDS = (
    """
import sys
from meshloom.tb.report.progress import Counted

def advance(*_):
    print("stands", flush=True)
    sys.stdin.read()

Counted.advance = advance
"""
    + SCRIPT
)


def batches_of(folder: Path) -> int:
    return len(list(folder.glob("batch-*.parquet")))


def test_workers_here_are_processes_that_hear_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("distributed.LocalCluster", lambda **options: given.update(options) or nullcontext("cluster"))
    monkeypatch.setattr("distributed.Client", lambda place, security: nullcontext((place, security)))
    monkeypatch.setattr(cluster, "begin", lambda: None)
    with cluster.opened(3, None) as client:
        assert client == ("cluster", given["security"])
    assert (given["n_workers"], given["threads_per_worker"], given["processes"]) == (3, 1, True)
    assert (given["protocol"], given["security"].require_encryption) == ("tls://", True)
    assert (given["scheduler_kwargs"], given["worker_dashboard_address"]) == ({"dashboard": False}, "127.0.0.1:0")
    assert given["memory_limit"] == 0, "memory is nothing that a worker is ended for"


class PlayedCluster:
    """Does jobs one after the other when it is waited for; those with a `x` kill its two workers."""

    def __init__(self) -> None:
        self.going, self.most = list[SimpleNamespace](), 0

    def nthreads(self) -> dict[str, int]:
        return {"one": 1, "two": 1}

    def submit(self, perform: Callable[[str], str], text: str, pure: bool) -> SimpleNamespace:
        error = KilledWorker(text, "two", 2) if "x" in text else None
        return SimpleNamespace(key=text, exception=lambda: error, result=lambda: perform(text))

    def add(self, future: SimpleNamespace) -> None:
        self.going.append(future)
        self.most = max(self.most, len(self.going))

    def __iter__(self) -> Iterator[SimpleNamespace]:
        while self.going:
            yield self.going.pop(0)


class PlayedJob:
    def __init__(self, text: str) -> None:
        self.text = text

    def model_dump_json(self) -> str:
        return self.text

    @staticmethod
    def perform(text: str) -> str:
        return text.upper()

    def apart(self) -> list[PlayedJob]:
        return list(map(PlayedJob, self.text))

    def outcome(self, text: str) -> str:
        return text

    def lost(self, why: Failure) -> str:
        return f"{self.text}: {why.message.partition(' died')[0]}"


def test_jobs_are_sent_a_few_ahead_and_apart_if_they_kill_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    client, done = PlayedCluster(), list[str]()
    monkeypatch.setattr("distributed.as_completed", lambda: client)
    cluster.run(cast("Any", client), list(map(PlayedJob, ["ab", "cxd", *"efghij"])), done.append)
    assert done[0] == "AB"
    assert sorted(done) == [*["AB", "C", "D", "E", "F", "G", "H", "I", "J"], "x: 2 workers"]
    assert client.most == 2 * (1 + cluster.AHEAD) + 2, "and those that were apart"
    cluster.run(cast("Any", client), [], done.append)


@pytest.mark.slow
def test_a_killed_client_and_an_interrupted_one_lose_nothing(here: None, tmp_path: Path) -> None:
    sweep_of(TEXT, tmp_path)
    out = tmp_path / "out"
    command = [sys.executable, "-c", STANDS, "sweep", str(tmp_path / "trial.toml"), "--out", str(out), "--jobs", "1"]
    for stop, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
        before = batches_of(out)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            assert "stands\n" in client.stdout, "however slow this process is, the client goes no further"
            client.send_signal(stop)
            client.communicate()
        assert client.returncode == status
        assert batches_of(out) == before + 1
        values = store.read(out)["key"].to_list()
        assert len(values) == len(set(values)) > 0
    assert (
        f"{16 - len(values)} of 16 points made, {len(values)} were there"
        in invoke("sweep", command[4], "--out", out).stdout
    )


@pytest.mark.slow
def test_a_killed_worker_changes_no_row(here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_of(TEXT, tmp_path)
    sweeps.run(sweep, tmp_path, tmp_path / "serial", jobs=1)
    monkeypatch.undo()
    killed: list[int] = []

    def on_rows(rows: Sequence[PointRow]) -> None:
        children = [child.pid for child in multiprocessing.active_children() if child.pid]
        if not killed:
            killed.append(children[0])
            os.kill(children[0], signal.SIGKILL)

    outcome = sweeps.run(sweep, tmp_path, tmp_path / "parallel", jobs=2, on_rows=on_rows)
    assert killed
    assert (outcome.points, outcome.existing, len(outcome.rows)) == (16, 0, 16)
    assert sum(len(done.rows) for done in outcome.batches) == 16
    assert without_seconds(store.read(tmp_path / "serial")) == without_seconds(store.read(tmp_path / "parallel"))
    assert json.loads(outcome.rows[0].parameters).keys() == {"core.a_words", "m", "effort"}


@pytest.mark.slow
def test_a_cluster_that_somebody_else_started_makes_the_same_rows(here: None, tmp_path: Path) -> None:
    sweep = sweep_of(TEXT, tmp_path)
    sweeps.run(sweep, tmp_path, tmp_path / "serial", jobs=1)
    about, started = tmp_path / "scheduler.json", list[subprocess.Popen[bytes]]()
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(about), "--nthreads", "1"]
    try:
        for command in ([*dask, "--no-dashboard", "--scheduler-file", str(about)], [*worker, "--no-dashboard"]):
            started.append(subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL))
        while not about.exists():
            assert started[0].poll() is None
            time.sleep(0.05)
        address = json.loads(about.read_text())["address"]
        command = [sys.executable, "-c", SCRIPT, "sweep", str(tmp_path / "trial.toml"), "--cluster", address]
        done = subprocess.run([*command, "--out", str(tmp_path / "away")], capture_output=True, text=True, check=False)
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 of 16 points made, 0 were there" in done.stdout
    assert without_seconds(store.read(tmp_path / "serial")) == without_seconds(store.read(tmp_path / "away"))


def test_ranges_are_counted_before_they_are_listed(tmp_path: Path) -> None:
    wide = 'name = "s"\nchips = ["tiny"]\nworkloads = ["gemm:{m}x8x8"]\n[parameters]\n'
    tracemalloc.start()
    for high, why in ((10**12, "are 1,000,000,000,000 values, 1,000,000 are possible"), (10**30, "must be at most")):
        with pytest.raises(SweepError, match=why):
            sweep_of(wide + f"m = {{ low = 1, high = {high} }}\n", tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
    many = sweep_of(wide + "m = { low = 1, high = 1000000 }\n", tmp_path)
    assert len(many.parameters["m"]) == 1_000_000
    with pytest.raises(SweepError, match="are 1,000,001 values"):
        sweep_of(wide + "m = { low = 1, high = 1000001 }\n", tmp_path)
    assert sweep_of(wide + "m = { low = 1, high = 1000002, step = 1000001 }\n", tmp_path).parameters["m"] == [
        1,
        1000002,
    ]


def test_what_is_named_twice_is_looked_at_once(tmp_path: Path) -> None:
    names = ", ".join(['"gemm:8x8x8"'] * 3000)
    chips = ", ".join(['"tiny"'] * 3000)
    sweep = sweep_of(f'name = "s"\nchips = [{chips}]\nworkloads = [{names}]\n', tmp_path)
    assert len(grid.points(sweep, tmp_path)) == 1
