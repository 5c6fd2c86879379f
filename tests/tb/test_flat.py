"""Rows as one table: the same columns for every run, the same values as in the JSON file."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from meshloom.tb.cli.main import app
from meshloom.tb.devices.simulated import VERILATOR
from meshloom.tb.report.registry import PARQUET
from meshloom.tb.results import flat
from meshloom.tb.results.recorder import Recorder
from meshloom.tb.results.schema import Results, Row

DIVERGENCE = {
    "tile": 1, "unit": "mover", "tag": 3, "predicted_start": 1, "predicted_end": 2, "measured_start": 3,
    "measured_end": 4,
}  # fmt: skip


def row(workload: str = 'conv:5x5x3-4,"odd"', **changes: Any) -> Row:
    values = {"chip": "tiny", "scheduler": "loop_order", "simulator": "verilator", "cpu_seconds": 0.5}
    numbers = {"rtl_cycles": 1000, "model_cycles": 1001, "utilisation": 0.5, "bytes_checked": 64}
    return Row.model_validate({"workload": workload} | values | numbers | changes)


@pytest.fixture
def results() -> Results:
    recorder = Recorder("test", VERILATOR.tools())
    links = [{"tile": 1, "port": "east", "busy": 3, "blocked": 1, "cycles": 10}]
    error = {"kind": "DoesNotFit", "stage": "scheduling", "message": "too big\nby far"}
    recorder.rows += [row(first_divergence=DIVERGENCE, links=links), row("b", error=error)]
    return recorder.results(complete=True)


def looked_up(values: Any, name: str) -> Any:
    for part in name.split("."):
        values = None if values is None else values[part]
    return values


def test_every_field_of_a_row_is_in_a_column(results: Results) -> None:
    names = set(flat.columns())
    for name in json.loads(results.text)["rows"][0]:
        assert name in names or any(other.startswith(f"{name}.") for other in names), name
    assert {"status", "error_percent", "first_divergence.label", "error.kind", "settings.code", "network.macs"} <= names


def test_csv_and_parquet_say_what_json_says(results: Results, tmp_path: Path) -> None:
    PARQUET.save(results, tmp_path / "rows.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "rows.parquet")
    read = list(csv.DictReader(io.StringIO(flat.text(results))))
    stated = json.loads(results.text)["rows"]
    assert table.column_names == list(flat.columns()) == list(read[0])
    assert len(read) == table.num_rows == len(stated) == 2
    for name, kind in flat.columns().items():
        for number, values in enumerate(stated):
            right = looked_up(values, name)
            typed = table[name][number].as_py()
            assert (json.loads(typed) if kind is object and typed is not None else typed) == right, name
            shown = read[number][name]
            if right is None:
                assert shown == ""
            elif kind is object:
                assert json.loads(shown) == right
            else:
                assert shown == str(right)


def test_columns_are_the_same_for_every_run(results: Results) -> None:
    empty = Recorder("test", VERILATOR.tools()).results(complete=True)
    assert flat.text(empty).splitlines() == flat.text(results).splitlines()[:1]


@pytest.mark.parametrize(("incomplete", "offered"), [("ahead", ["ahead16", "ahead8"]), ("nothing", [])])
def test_completion_of_chips(incomplete: str, offered: list[str]) -> None:
    words = f"meshloom run --chip {incomplete}"
    env = {"_MESHLOOM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    shown = CliRunner().invoke(app, [], env=env, prog_name="meshloom")
    assert shown.stdout.split() == offered


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("meshloom run --scheduler loop", {"loop_order"}),
        ("meshloom run resnet8/conv1", {"resnet8/conv1"}),
        ("meshloom schedule squ", {"squeezenet"}),
        ("meshloom bench gem", {"gemm"}),
        ("meshloom workloads reg", {"regression"}),
        ("meshloom chips quad3", {"quad32"}),
    ],
)
def test_completion(words: str, offered: set[str]) -> None:
    count = str(len(words.split()) - 1)
    env = {"_MESHLOOM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
    shown = CliRunner().invoke(app, [], env=env, prog_name="meshloom")
    assert offered <= set(shown.stdout.split())
    assert all(name.startswith(words.split()[-1]) for name in shown.stdout.split())
