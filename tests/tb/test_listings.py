"""Commands that list things: as tables, and as JSON of one style."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from meshloom.hw.spec.config import built_in_chips, load
from meshloom.sched.schedulers.online.registry import ONLINE
from meshloom.sched.schedulers.registry import REGISTRY
from meshloom.sched.schedulers.tokens.registry import TOKENS
from meshloom.sched.workload import zoo
from meshloom.tb.api.completion import complete_runs
from meshloom.tb.devices.registry import REGISTRY as DEVICES
from meshloom.tb.results import json_schemas
from meshloom.tb.results.past import names
from meshloom.tb.results.schema import Results
from meshloom.tb.studies.registry import REGISTRY as STUDIES

from .command_line import invoke, results_in, row

LISTS = {
    "chips": built_in_chips(),
    "schedulers": (*REGISTRY.names(), *ONLINE.names(), *TOKENS.names()),
    "workloads": zoo.names(),
    "devices": DEVICES.names(),
    "studies": STUDIES.names(),
}


@pytest.mark.parametrize("command", LISTS)
def test_a_list_as_json_is_one_object_with_a_list_of_names(command: str, folder: Path) -> None:
    from jsonschema import Draft202012Validator

    shown = invoke(command, "--json", "-")
    assert shown.exit_code == 0, shown.output
    values = json.loads(shown.stdout)
    assert [each["name"] for each in values[command]] == list(LISTS[command])
    assert LISTS[command][0] in shown.stderr, "the table goes to stderr then"
    Draft202012Validator(json_schemas.listings()).validate(values)
    assert invoke(command, "--json", "list.json").exit_code == 0
    assert json.loads((folder / "list.json").read_text()) == values


def test_a_chip_as_json_says_how_much_it_has() -> None:
    (nine,) = (each for each in json.loads(invoke("chips", "--json", "-").stdout)["chips"] if each["name"] == "nine8")
    names = ("cores", "rows", "cols", "lanes", "pes", "scratchpad_bytes", "channels", "dram_bytes_per_cycle")
    assert [nine[name] for name in names] == [9, 8, 8, 8, 9 * 64, 3 << 17, 3, 8]


MINE = """
from enum import Enum
from meshloom.sched.schedulers.interface import Options
class Turn(Enum):
    FIRST = "first"
    LAST = "last"
class Mine(Options):
    turn: Turn = Turn.LAST
    parts: list[int] | None = None
    size: tuple[int, float] = (1, 2)
def schedule(task, options: Mine): ...
"""


def test_options_are_listed_as_they_are_written(folder: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    (one,) = json.loads(invoke("schedulers", "./mine.py:schedule", "--json", "-").stdout)["schedulers"]
    assert [(each["values"], each["default"]) for each in one["options"]["layers"]] == [
        ("first, last", "last"),
        ("[a whole number, ...] or none", None),
        ("[a whole number, a number]", "[1,2]"),
    ]


def test_options_of_one_scheduler_and_layers_of_one_network() -> None:
    (one,) = json.loads(invoke("schedulers", "flexer", "--json", "-").stdout)["schedulers"]
    (budget,) = [option for option in one["options"]["layers"] if option["name"] == "budget"]
    assert not budget["required"]
    layers = json.loads(invoke("workloads", "resnet8", "--json", "-").stdout)["workloads"]
    assert layers[0]["name"] == "resnet8/conv1"
    assert layers[0]["macs"] == 442_368
    assert (layers[0]["input"], layers[0]["output"]) == ([1, 3, 32, 32], [1, 16, 32, 32])


def test_an_entry_point_that_a_built_in_one_hides_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY._installed, "loop_order", EntryPoint("loop_order", "mine.own:THING", REGISTRY.group))
    (hidden,) = json.loads(invoke("schedulers", "--json", "-").stdout)["broken"]
    assert hidden.startswith("scheduler loop_order of mine.own is not used: loop_order ships with Meshloom; give its")


def save(folder: Path, second: int, complete: bool = True, **changes: Any) -> str:
    name = f"20260102T0304{second:02}.000001Z-tiny-loop_order-verilator"
    Results(
        run=name,
        started=datetime(2026, 1, 2, 3, 4, second, tzinfo=UTC),
        wall_seconds=1.5,
        complete=complete,
        environment={},
        rows=(row(**changes), row("resnet8/fc")),
    ).save(results_in(folder) / f"{name}.json")
    return name


def test_the_last_runs_newest_first_and_how_they_ended(folder: Path) -> None:
    good = save(folder, 1)
    wrong = save(folder, 2, mismatches=3)
    stopped = save(folder, 3, complete=False)
    broken = results_in(folder) / "20260102T030404.000001Z-tiny-x-verilator.json"
    broken.write_text("{")
    (results_in(folder) / "latest.json").write_text((results_in(folder) / f"{good}.json").read_text())
    shown = invoke("runs", "--json", "-")
    assert shown.exit_code == 0, shown.output
    runs = json.loads(shown.stdout)["runs"]
    assert [each["run"] for each in runs] == [broken.stem, stopped, wrong, good]
    assert [each["ok"] for each in runs] == [False, False, False, True]
    assert [each["ended"] for each in runs[1:]] == ["interrupted, 2 of 2 rows passed", "1 of 2 passed", "passed"]
    assert runs[0]["ended"].startswith("cannot be read: is not JSON")
    assert runs[3] | {} == runs[3] | {
        "kind": "run",
        "workloads": ["gemm:8x8x8", "resnet8/fc"],
        "chips": ["tiny"],
        "schedulers": ["loop_order"],
        "device": "verilator",
        "cycles": 2000,
        "seconds": 1.5,
    }
    table = invoke("runs", "--last", "2").output
    assert stopped in table
    assert good not in table


def test_no_run_is_no_error(folder: Path) -> None:
    shown = invoke("runs")
    assert shown.exit_code == 0
    assert "nothing has been run here" in shown.output
    assert json.loads(invoke("runs", "--json", "-").stdout) == {"runs": []}


def test_runs_are_completed(folder: Path) -> None:
    assert complete_runs("") == []
    first, second = save(folder, 1), save(folder, 2)
    assert names() == [second, first]
    assert complete_runs("") == ["latest", second, first]
    assert complete_runs("l") == ["latest"]


def test_a_chip_is_what_its_file_says() -> None:
    (one,) = json.loads(invoke("chips", "quad16", "--json", "-").stdout)["chips"]
    chip = load("quad16")
    assert (one["digest"], one["pes"], one["channels"]) == (chip.digest, 1024, len(chip.drams))
    assert one["floorplan"][0].split() == [str(kind) for kind in chip.floorplan[0]]
