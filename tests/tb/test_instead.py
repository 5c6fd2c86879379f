"""What is not meant says what to do instead."""

from __future__ import annotations

from pathlib import Path

import polars
import pytest

import meshloom
from meshloom.tb.results.named import RunNameError, find
from meshloom.tb.runs.sweeps.query import main_columns

from .command_line import invoke
from .test_listings import save


def text_of(output: str) -> str:
    return " ".join(output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("shape", "letter"), [("0x4x4", "M"), ("4x0x4", "N"), ("4x4x0", "K")], ids=lambda each: str(each)
)
def test_a_size_is_named_as_it_is_written(shape: str, letter: str) -> None:
    shown = invoke("schedule", f"gemm:{shape}", "--chip", "tiny")
    assert shown.exit_code == 2
    assert f"workload 'gemm:{shape}': {letter} = 0 must be at least 1" in shown.stderr


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        ("chip", "is a chip: `meshloom chips mine.toml` checks and shows it"),
        ("scenario", "is a scenario: `meshloom serve mine.toml --model` checks it"),
        ("sweep", "is a sweep: `meshloom sweep mine.toml --plan` checks it"),
    ],
)
def test_what_else_checks_a_file(kind: str, instead: str, folder: Path) -> None:
    invoke("init", kind, "mine")
    shown = invoke("check", "mine.toml")
    assert shown.exit_code == 2
    assert instead in text_of(shown.stderr)


def test_a_file_that_is_nothing(folder: Path) -> None:
    (folder / "x.toml").write_text("a = 1")
    assert "is neither a schedule, a program nor an ONNX file" in text_of(invoke("check", "x.toml").stderr)
    for command in ("check", "disasm"):
        shown = invoke(command, "resnet8/*")
        assert shown.exit_code == 2
        assert "there is no such file; schedules and programs are read from files" in text_of(shown.stderr)
        assert "`meshloom schedule 'resnet8/*' --out s.json`" in text_of(shown.stderr)
        (folder / "program").write_text("{}")
        assert "program: not a Meshloom program image" in text_of(invoke(command, "program").stderr)
        assert "gone.json: cannot be read: No such file" in text_of(invoke(command, "gone.json").stderr)
    (folder / "x.toml").write_text("a = ")
    assert "malformed TOML" in text_of(invoke("check", "x.toml").stderr)
    assert invoke("check", "gone.toml").exit_code == 2


@pytest.mark.parametrize("command", ["run", "schedule"])
def test_an_online_scheduler_serves(command: str, folder: Path) -> None:
    shown = invoke(command, "gemm:4x4x4", "--chip", "tiny", "--scheduler", "lookahead:deadlines=no")
    assert shown.exit_code == 2
    assert "`meshloom serve SCENARIO.toml --scheduler lookahead:deadlines=no`" in shown.stderr
    with pytest.raises(ValueError, match="scheduler lookahead is an online scheduler, which serves scenarios"):
        meshloom.schedule("gemm:4x4x4", "tiny", "lookahead")


def test_a_scheduler_of_layers_does_not_serve(folder: Path) -> None:
    invoke("init", "scenario", "rush")
    shown = invoke("serve", "rush.toml", "--model", "--scheduler", "zigzag")
    assert shown.exit_code == 2
    assert (
        "scheduler zigzag schedules layers and networks ahead: `meshloom run WORKLOAD --scheduler zigzag`"
        in shown.stderr
    )


def test_a_run_that_there_is_not(folder: Path) -> None:
    with pytest.raises(RunNameError, match=r"nothing has been run here; run something first, `meshloom run gemm:8x8x8"):
        find("latest")
    save(folder, 1, complete=False)
    with pytest.raises(
        RunNameError, match="no run has come to its end here; name one of those that `meshloom runs` lists"
    ):
        find("latest")
    with pytest.raises(RunNameError, match="give latest or a name that `meshloom runs` lists"):
        find("other")


@pytest.mark.parametrize("command", ["explain", "report --out page.html"])
def test_no_run_is_the_latest(command: str, folder: Path) -> None:
    assert "latest.json: nothing has been run here; run something first" in invoke(*command.split()).stderr


def test_a_query_without_sql_has_the_columns_that_one_wants(folder: Path) -> None:
    name = save(folder, 1)
    shown = invoke("query", f"sim_build/results/{name}.json")
    assert shown.exit_code == 0, shown.output
    for column in ("workload", "chip", "scheduler", "status", "rtl_cycles", "model_cycles", "utilisation"):
        assert column in shown.output
    assert "chip_digest" not in shown.output.partition(" more columns")[0]
    assert invoke("query", f"sim_build/results/{name}.json", "select * from points").output.count("chip_digest") == 1
    assert invoke("query", f"sim_build/results/{name}.json", "--out", "rows.csv").stdout == "rows: rows.csv\n"
    drawn = invoke("query", f"sim_build/results/{name}.json", "--pareto", "rtl_cycles,model_cycles", "--out", "p.svg")
    assert drawn.stdout == "picture: p.svg\n"
    other = invoke("query", f"sim_build/results/{name}.json", "--out", "p.xlsx")
    assert (other.exit_code, Path("p.xlsx").exists()) == (2, False)
    assert "p.xlsx: must end with .csv, .parquet, .svg or .png" in text_of(other.stderr)
    assert "chip_digest" in (folder / "rows.csv").read_text()


def test_main_columns_of_a_sweep_and_of_any_table() -> None:
    names = {"key": "k", "chip": "tiny", "scheduler": "s", "workload": "w", "status": "passed"}
    sweep = names | {"rtl_cycles": None, "cycles": 3, "m": 16}
    assert main_columns(polars.DataFrame([sweep])) == ["workload", "chip", "scheduler", "m", "status", "cycles"]
    assert main_columns(polars.DataFrame({f"c{number}": [1] for number in range(20)})) == [f"c{i}" for i in range(10)]
