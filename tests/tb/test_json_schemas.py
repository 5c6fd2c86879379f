"""The schemas that editors use: current, and of one opinion with the models about what is right."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from meshloom.hw.config import CHIP_FOLDER
from meshloom.hw.config import load as load_chip
from meshloom.sched.schedulers.registry import find
from meshloom.sched.workload.shapes import parse
from meshloom.tb.cli.main import app
from meshloom.tb.results import json_schemas

from .test_results import ERROR, LINKS, SETTINGS, recorded, row

ROOT = Path(__file__).parents[2]
CHIPS = sorted(CHIP_FOLDER.glob("*.toml"))


@pytest.fixture(scope="module")
def schemas() -> dict[str, Draft202012Validator]:
    return {name: Draft202012Validator(json.loads(json_schemas.text(name))) for name in json_schemas.SCHEMAS}


def fits(schema: Draft202012Validator, value: Any) -> bool:
    return schema.is_valid(value)


@pytest.mark.parametrize("name", json_schemas.SCHEMAS)
def test_the_committed_ones_are_current(name: str) -> None:
    path = ROOT / "docs" / "schemas" / f"{name}.schema.json"
    assert path.read_text(encoding="utf-8") == json_schemas.text(name), "run `meshloom schemas --out docs/schemas`"


@pytest.mark.parametrize("name", json_schemas.SCHEMAS)
def test_they_are_schemas(name: str, schemas: dict[str, Draft202012Validator]) -> None:
    Draft202012Validator.check_schema(schemas[name].schema)


@pytest.mark.parametrize("path", CHIPS, ids=lambda path: path.stem)
def test_built_in_chips_fit(path: Path, schemas: dict[str, Draft202012Validator]) -> None:
    assert fits(schemas["chip"], tomllib.loads(path.read_text()))


@pytest.mark.parametrize(
    "change",
    [
        {"lanes": "sixteen"},
        {"lanes": 2},
        {"lane": 16},
        {"rows": 0},
        {"floorplan": "dram core host"},
        {"floorplan": ["dram cor host"]},
        {"floorplan": []},
        {"core": {"a_word": 1}},
        {"noc": {"data_routing": "zigzag"}},
    ],
)
def test_wrong_chips_do_not_fit(change: dict[str, Any], schemas: dict[str, Draft202012Validator]) -> None:
    right = tomllib.loads((CHIP_FOLDER / "tiny.toml").read_text())
    assert fits(schemas["chip"], right)
    assert not fits(schemas["chip"], right | change)


def test_a_schedule_fits_and_a_damaged_one_does_not(tmp_path: Path, schemas: dict[str, Draft202012Validator]) -> None:
    made = find("loop_order")(parse("gemm:16x16x16"), load_chip("tiny"))
    made.save(tmp_path / "made.json")
    text = json.loads((tmp_path / "made.json").read_text())
    assert fits(schemas["schedule"], text)
    for change in ({"version": 2}, {"execution": "soon"}, {"more": 1}, {"operations": [{"kind": "JUMP"}]}):
        assert not fits(schemas["schedule"], text | change)


def test_results_fit(tmp_path: Path, schemas: dict[str, Draft202012Validator]) -> None:
    rows = row(links=LINKS, settings=SETTINGS), row(workload="big", rtl_cycles=0, error=ERROR)
    results, _ = recorded(tmp_path, *rows)
    text = json.loads(results.text)
    assert fits(schemas["results"], text)
    text["rows"][0]["status"] = "splendid"
    assert not fits(schemas["results"], text)


def test_the_command_writes_them_all(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["schemas", "--out", str(tmp_path / "new")])
    assert shown.exit_code == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        f"{name}.schema.json" for name in json_schemas.SCHEMAS
    }
    assert set(shown.output.split()) == {str(path) for path in (tmp_path / "new").iterdir()}


def test_a_place_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here\n")
    shown = CliRunner().invoke(app, ["schemas", "--out", str(tmp_path / "file")])
    assert shown.exit_code == 2
    assert "file: cannot be written" in " ".join(shown.output.split())
    assert (tmp_path / "file").read_text() == "here\n"
