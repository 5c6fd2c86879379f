"""The schemas that editors use: current, and of one opinion with the models about what is right."""

from __future__ import annotations

import json
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from meshloom.hw.spec.config import CHIP_FOLDER
from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.schedulers.registry import find
from meshloom.sched.workload.scenario import Request, Scenario, ScenarioError
from meshloom.sched.workload.scenario import load as load_scenario
from meshloom.sched.workload.shapes import parse
from meshloom.sched.workload.texts import load as load_texts
from meshloom.tb.cli.main import app
from meshloom.tb.results import json_schemas
from meshloom.tb.results.arena import ArenaBoard, ArenaChip, Heat, Score, standings_of
from meshloom.tb.results.health import Check, Health
from meshloom.tb.results.noc import NocFlow, NocLink, NocReplay
from meshloom.tb.results.tokens import TokenResults
from meshloom.tb.runs.language.generation import Generation, generate
from meshloom.tb.runs.online.serve import serve
from meshloom.tb.runs.tokens.serve import serve as serve_texts
from meshloom.tb.runs.training.run import Training, train

from ..sched.language_models import entries, random_model
from ..tiers import slow_but
from .served_chip import CHIP
from .test_results import ERROR, LINKS, SETTINGS, recorded, row

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
TEXTS = sorted((ROOT / "examples" / "texts").glob("*.toml"))
SCENARIOS = sorted((ROOT / "examples" / "scenarios").glob("*.toml"))
CHIPS = sorted(CHIP_FOLDER.glob("*.toml"))


@pytest.fixture(scope="module")
def schemas() -> dict[str, Draft202012Validator]:
    from jsonschema import Draft202012Validator

    return {name: Draft202012Validator(json.loads(json_schemas.text(name))) for name in json_schemas.SCHEMAS}


def fits(schema: Draft202012Validator, value: Any) -> bool:
    return schema.is_valid(value)


@pytest.mark.parametrize("name", json_schemas.SCHEMAS)
def test_the_committed_ones_are_current(name: str) -> None:
    path = ROOT / "docs" / "schemas" / f"{name}.schema.json"
    assert path.read_text(encoding="utf-8") == json_schemas.text(name), "run `meshloom schemas --out docs/schemas`"


@pytest.mark.parametrize("name", json_schemas.SCHEMAS)
def test_they_are_schemas(name: str, schemas: dict[str, Draft202012Validator]) -> None:
    schemas[name].check_schema(schemas[name].schema)


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
    schedule = find("loop_order")(parse("gemm:16x16x16"), load_chip("tiny"))
    schedule.save(tmp_path / "made.json")
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


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenarios_of_the_examples_fit(path: Path, schemas: dict[str, Draft202012Validator]) -> None:
    assert fits(schemas["scenario"], tomllib.loads(path.read_text()))


@pytest.mark.parametrize(
    ("change", "right"),
    [
        ({"batch": 4, "deadline": 9}, True),
        ({"deadline_factor": 0}, True),
        ({"arrival": [3, 1]}, True),
        ({"arrival": {"poisson": 2.5, "number": 9, "seed": 1}}, True),
        ({"arrival": {"trace": "requests.csv"}}, True),
        ({"arrival": -1}, False),
        ({"arrival": []}, False),
        ({"arrival": 1 << 32}, False),
        ({"arrival": "soon"}, False),
        ({"arrival": {"poisson": 2.5, "number": 9}}, False),
        ({"arrival": {"trace": "requests.csv", "seed": 1}}, False),
        ({"batch": 0}, False),
        ({"batch": 257}, False),
        ({"deadline": 0}, False),
        ({"deadline_factor": -1}, False),
        ({"bach": 1}, False),
        ({"name": ""}, False),
    ],
)
def test_schema_and_reader_agree_on_scenarios(
    tmp_path: Path, change: dict[str, Any], right: bool, schemas: dict[str, Draft202012Validator]
) -> None:
    (tmp_path / "requests.csv").write_text("cycle,network\n5,vww\n")
    entry = {"name": "vww"} | change
    assert fits(schemas["scenario"], {"name": "s", "network": [entry]}) == right
    lines = "".join(f"{key} = {_toml(value)}\n" for key, value in entry.items())
    path = tmp_path / "s.toml"
    path.write_text(f'name = "s"\n[[network]]\n{lines}')
    try:
        load_scenario(path)
    except ScenarioError:
        assert not right
    else:
        assert right


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


@pytest.mark.parametrize("change", [{"name": "no name"}, {"network": []}, {"network": None}, {"networks": []}])
def test_wrong_scenarios_do_not_fit(change: dict[str, Any], schemas: dict[str, Draft202012Validator]) -> None:
    right = {"name": "s", "deadline_factor": 0.5, "network": [{"name": "vww"}]}
    assert fits(schemas["scenario"], right)
    assert not fits(schemas["scenario"], right | change)


def test_results_of_training_fit(tmp_path: Path, schemas: dict[str, Draft202012Validator]) -> None:
    results = train(Training("digits", load_chip("quad16"), 1, tmp_path / "checkpoint.npz", device=None))
    results.save(tmp_path / "out.json")
    text = json.loads((tmp_path / "out.json").read_text())
    assert fits(schemas["training_results"], text)
    assert not fits(schemas["training_results"], text | {"accuracy": 1.5})


def test_results_of_generating_fit(tmp_path: Path, schemas: dict[str, Draft202012Validator]) -> None:
    text = Generation(random_model(), "abc", 1, load_chip("tiny"), tmp_path / "checkpoint.npz", device=None)
    generate(text).save(tmp_path / "out.json")
    results = json.loads((tmp_path / "out.json").read_text())
    assert fits(schemas["language_results"], results)
    assert not fits(schemas["language_results"], results | {"agreement": 1.5})


@pytest.mark.parametrize("device", slow_but(["none", "verilator"], "none"))
def test_results_of_serving_fit(tmp_path: Path, device: str, schemas: dict[str, Draft202012Validator]) -> None:
    """Those of a real scenario, with deadlines, and computed fields."""
    scenario = Scenario("two", (Request("resnet8", 1, 0, 30_000), Request("resnet8", 2, 500)))
    served = serve(scenario, CHIP, "prema", device=None if device == "none" else device)
    served.results.save(tmp_path / "out.json")
    text = json.loads((tmp_path / "out.json").read_text())
    assert fits(schemas["scenario_results"], text)
    assert not fits(schemas["scenario_results"], text | {"ok": "yes"})
    text["programs"][0]["launched"] = -1
    assert not fits(schemas["scenario_results"], text)


def test_boards_of_an_arena_fit(schemas: dict[str, Draft202012Validator]) -> None:
    scores = Score(entry="a", status="passed", cycles=9, seconds=0.5), Score(entry="b", status="failed", reason="died")
    heats = (Heat(workload="gemm:8x8x8", chip="tiny", floor_cycles=8, scores=scores),)
    chips = (ArenaChip(name="tiny", digest="0"),)
    board = ArenaBoard(measure="model", command="c", code="c", chips=chips, heats=heats, standings=standings_of(heats))
    text = json.loads(board.model_dump_json())
    assert fits(schemas["arena"], text)
    assert not fits(schemas["arena"], text | {"heats": [{"workload": "gemm:8x8x8"}]})
    text["heats"][0]["scores"][0]["cycles"] = -1
    assert not fits(schemas["arena"], text)


def test_replayed_traffic_fits(schemas: dict[str, Draft202012Validator]) -> None:
    flow = NocFlow(source=(0, 0), target=(1, 0), bytes=64, packets=2, begin=0, end=9)
    link = NocLink(x=0, y=0, port="east", busy=6, blocked=0)
    replay = NocReplay(
        file="w.json", mesh="m", code="c", cycles=9, flits=6, bytes=64, mean_latency=7.5, worst_latency=8,
        claimed_cycles=8, flows=(flow,), links=(link,),
    )  # fmt: skip
    text = json.loads(replay.model_dump_json())
    assert fits(schemas["noc_replay"], text)
    assert not fits(schemas["noc_replay"], text | {"links": None})
    assert not fits(schemas["noc_replay"], text | {"cycles": "9"})


def test_what_the_doctor_says_fits(schemas: dict[str, Draft202012Validator]) -> None:
    text = json.loads(Health(checks=(Check(name="python", state="ok", what="3.11"),)).model_dump_json())
    assert fits(schemas["health"], text)
    assert not fits(schemas["health"], text | {"checks": [{"name": "python"}]})


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_texts_of_the_examples_fit(path: Path, schemas: dict[str, Draft202012Validator]) -> None:
    right = tomllib.loads(path.read_text())
    assert fits(schemas["texts"], right)
    load_texts(path)
    for change in ({"name": "no name"}, {"request": []}, {"seats": 0}, {"ttft_limit": None}, {"network": []}):
        assert not fits(schemas["texts"], right | change)
    bare = {name: value for name, value in right.items() if name not in ("request", "trace")}
    assert not fits(schemas["texts"], bare)


def test_results_of_serving_texts_fit(tmp_path: Path, schemas: dict[str, Draft202012Validator]) -> None:
    np.savez(tmp_path / "small.npz", allow_pickle=False, **entries())
    head = 'name = "a"\nmodel = "small.npz"\nchunk = 2\nttft_limit = 1\n'
    (tmp_path / "a.toml").write_text(head + '[[request]]\nprompt = "a"\noutput = 1\n')
    runs = serve_texts([load_texts(tmp_path / "a.toml")], load_chip("tiny"), ["fcfs"], device=None)
    TokenResults(started=datetime.now(UTC), environment={}, code="", runs=runs).save(tmp_path / "out.json")
    results = json.loads((tmp_path / "out.json").read_text())
    assert fits(schemas["token_results"], results)
    assert not fits(schemas["token_results"], results | {"ok": "yes"})
    assert results["runs"][0]["texts"][0]["met"] is False


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
    assert shown.exit_code == 5
    assert re.search(r"^error: \S*file/\S+: cannot be written: Not a directory; name another place$", shown.stderr)
    assert (tmp_path / "file").read_text() == "here\n"
