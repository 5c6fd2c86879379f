"""What a run leaves for viewers: tables that say what the chip and the model did, whole or not at all."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from meshloom.hw.spec.config import load as load_chip
from meshloom.hw.spec.isa import Opcode
from meshloom.tb.results import artefacts
from meshloom.tb.results.artefacts import TABLES, Artefacts, ArtefactsError, folder_name, load
from meshloom.tb.results.events import Event, Unwritten
from meshloom.tb.results.schema import Row
from meshloom.tb.results.shelf import Shelf
from meshloom.tb.runs import runner
from meshloom.tb.runs.options import RunOptions

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "formats.md"
LAYER = "gemm:5x6x7"


def run(keep: Path | None, events: list[Event], *names: str) -> list[Row]:
    return runner.run(names or [LAYER], "tiny", "loop_order", events.append, RunOptions(artefacts=keep and Shelf(keep)))


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one workload's artefacts."""
    keep = tmp_path_factory.mktemp("results") / "run"
    rows = run(keep, [], LAYER, LAYER)
    assert [row.status for row in rows] == ["passed", "passed"]
    assert {Path(row.artefacts or "").name for row in rows} == {"gemm_5x6x7", "gemm_5x6x7-2"}
    assert sorted(path.name for path in keep.iterdir()) == ["gemm_5x6x7", "gemm_5x6x7-2"]
    return keep / "gemm_5x6x7"


@pytest.fixture(scope="module")
def run_artefacts(run_folder: Path) -> Artefacts:
    return load(run_folder)


def test_every_instruction_is_there_measured_and_predicted(run_artefacts: Artefacts) -> None:
    rows = run_artefacts.tables["instructions"].to_pylist()
    assert len(rows) == run_artefacts.row.records_expected
    assert all((row["start"], row["end"]) == (row["predicted_start"], row["predicted_end"]) for row in rows)
    assert [row["start"] for row in rows] == sorted(row["start"] for row in rows)
    assert max(row["end"] for row in rows) <= run_artefacts.row.rtl_cycles
    streams = {(s.tile, s.unit.name.lower()): s for s in (*run_artefacts.program.streams, run_artefacts.program.boot)}
    for row in rows:
        instruction = streams[row["stream_tile"], row["stream_unit"]].instructions[row["position"]]
        assert (instruction.opcode.name, instruction.fields["tag"]) == (row["opcode"], row["tag"])


def test_operations_and_bytes_are_those_of_the_schedule(run_artefacts: Artefacts) -> None:
    rows = run_artefacts.tables["instructions"].to_pylist()
    operations = run_artefacts.schedule.operations
    moved = {row["operation"]: row for row in rows if row["words"] is not None and row["operation"] is not None}
    moves = {number: op for number, op in enumerate(operations) if op.kind == "move"}
    assert moved.keys() == moves.keys()  # each once: requests move nothing
    for number, op in moves.items():
        row = moved[number]
        assert (row["words"], row["bytes"]) == (op.words, op.words * run_artefacts.chip.lanes)
        assert (row["src_tile"], row["src"], row["dst_tile"], row["dst"]) == (
            op.src.tile,
            op.src.address,
            op.dst.tile,
            op.dst.address,
        )
        (x0, y0), (x1, y1) = (divmod(tile, 16)[::-1] for tile in (op.src.tile, op.dst.tile))
        assert row["hops"] == abs(x0 - x1) + abs(y0 - y1)
    assert {row["operation"] for row in rows} - {None} == set(range(len(operations)))
    assert Counter(row["opcode"] for row in rows)["GEMM"] == sum(op.kind == "gemm" for op in operations)


def test_identity_counters_and_links(run_artefacts: Artefacts, run_folder: Path) -> None:
    assert run_artefacts.chip == load_chip("tiny")
    assert (
        run_artefacts.row.chip_digest
        == run_artefacts.chip.digest
        == run_artefacts.program.chip_digest
        == run_artefacts.schedule.chip_digest
    )
    assert run_artefacts.row.settings is not None
    assert run_artefacts.row.settings.code
    assert run_artefacts.row.artefacts is not None
    assert Path(run_artefacts.row.artefacts).resolve() == run_folder.resolve()
    counted = {(row["tile"], row["counter"]): row["value"] for row in run_artefacts.tables["counters"].to_pylist()}
    counts = Counter(run_artefacts.tables["instructions"]["tile"].to_pylist())
    assert {tile: counted[tile, "records"] for tile in counts} == counts
    for link in run_artefacts.tables["links"].to_pylist():
        assert link["busy"] == counted[link["tile"], f"busy_{link['port']}"]
        assert link["cycles"] == run_artefacts.row.rtl_cycles
    assert any(link["busy"] for link in run_artefacts.tables["links"].to_pylist())


def test_nothing_is_kept_unasked(tmp_path: Path) -> None:
    (row,) = run(None, [])
    assert row.artefacts is None
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_told_and_the_row_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pyarrow.parquet, "write_table", full)
    events: list[Event] = []
    (row,) = run(tmp_path, events)
    assert (row.status, row.artefacts) == ("passed", None)
    (loss,) = [event for event in events if isinstance(event, Unwritten)]
    assert "No space left on device" in loss.why
    assert str(tmp_path) in loss.why
    assert not list(tmp_path.iterdir())


def test_documentation_and_tables_say_the_same() -> None:
    text = DOCUMENTATION.read_text()
    for name, columns in TABLES.items():
        section = text.split(f"\n### {name}\n")[1].split("\n#")[0]
        documented = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \| (\w*) ?\|", section, re.MULTILINE)
        assert documented == [(column.name, column.type + ", null" * column.null, column.unit) for column in columns], (
            name
        )
    assert f"`version` ({artefacts.VERSION})" in text


def test_columns_know_their_units(run_folder: Path) -> None:
    for name, columns in TABLES.items():
        schema = pyarrow.parquet.read_schema(run_folder / f"{name}.parquet")
        for column in columns:
            unit = (schema.field(column.name).metadata or {}).get(b"unit", b"").decode()
            assert unit == column.unit, column.name


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _other_version(path: Path) -> None:
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.replace_schema_metadata({"meshloom.artefacts": "2"}), path)


def _other_columns(path: Path) -> None:
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.drop_columns(["tag"]).replace_schema_metadata(table.schema.metadata), path)


def _newer(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 2}))


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("instructions.parquet", Path.unlink, "No such file"),
        ("instructions.parquet", _cut, "cannot be read"),
        ("packets.parquet", _other_version, "columns are not those of version 1"),
        ("packets.parquet", _other_columns, "columns are not those of version 1"),
        ("artefacts.json", _newer, "version"),
        ("artefacts.json", _cut, "JSON"),
        ("artefacts.json", Path.unlink, "give a folder that"),
        ("schedule.json", _cut, "run the workload again"),
        ("program.bin", _cut, "truncated"),
    ],
)
def test_damage_is_named(run_folder: Path, tmp_path: Path, file: str, damage: Any, message: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(run_folder, folder)
    damage(folder / file)
    with pytest.raises(ArtefactsError, match=re.escape(file)) as raised:
        load(folder)
    assert message in str(raised.value)


def test_names_of_folders() -> None:
    assert folder_name("resnet8/conv1") == "resnet8_conv1"
    assert folder_name("../..") == "_.."
    assert folder_name("...") == "_"
    assert len(folder_name("x" * 1000)) == 100


def test_the_program_that_is_kept_is_the_one_that_ran(run_artefacts: Artefacts) -> None:
    count = sum(one.opcode is not Opcode.END for s in run_artefacts.program.streams for one in s.instructions)
    assert count == run_artefacts.row.instructions
