"""The campaign against readers of files: what it plans, what it keeps, what it makes of a finding."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from meshloom.tb.verify.parsers import __main__ as campaign
from meshloom.tb.verify.parsers.readers import PARSERS

#: Instead of Atheris, which is installed for campaigns alone: good files, then one that breaks `maestro`.
ENGINE = """
import contextlib, pathlib, sys

@contextlib.contextmanager
def instrument_imports(include):
    yield

def Setup(arguments, one):
    global options, run
    options, run = arguments, one

def Fuzz():
    wanted = {each.partition("=")[0]: each.partition("=")[2] for each in options if each.startswith("-")}
    for path in pathlib.Path(options[-1]).iterdir():
        run(path.read_bytes())
    print("#5 NEW    cov: 12 ft: 40")
    if "maestro" in wanted["-artifact_prefix"]:
        pathlib.Path(wanted["-artifact_prefix"], "crash-1").write_bytes(b"bad")
        print(" === Uncaught Python exception: ===\\nKeyError: 'Dataflow'\\n\\n==12== ERROR: libFuzzer: it exited")
        sys.exit(77)
    print("stat::number_of_executed_units: " + wanted["-runs"])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, with something like Atheris in it."""
    monkeypatch.setattr(campaign, "OUTPUT", tmp_path)
    monkeypatch.setattr("meshloom.tb.verify.record.OUTPUT", tmp_path)
    tools = tmp_path / campaign.FOLDER / "tools"
    tools.mkdir(parents=True)
    (tools / "atheris.py").write_text(ENGINE)
    (tools / "stamp").write_text(campaign.TOOLS.read_text())
    return tmp_path


def run(*words: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(campaign.main)
    result = CliRunner().invoke(app, words)
    return result.exit_code, result.output


def test_all_parsers_have_as_many_inputs_round_after_round() -> None:
    plan = campaign.rounds(["a", "b"], 50_001, 3)
    assert [(one.parser, one.number) for one in plan[:4]] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert sum(one.inputs for one in plan if one.parser == "a") == 25_001
    assert max(one.inputs for one in plan) == campaign.ROUND
    assert len({one.name for one in plan}) == len(plan)


def test_a_parser_that_there_is_not(place: Path) -> None:
    code, text = run("labels", "maestr")
    assert code == 2
    assert "no parser is called 'maestr'; there are chip, sweep" in text.replace("\n", " ")


@pytest.mark.slow  # a process for each parser
def test_a_finding_is_kept_and_named_and_what_was_fine_is_not_done_again(place: Path) -> None:
    code, text = run("labels", "maestro", "--inputs", "60", "--jobs", "2")
    assert code == 1
    assert "labels, round 0 of seed 1: 30 inputs, 12 branches" in text
    assert "maestro: KeyError: 'Dataflow'" in text
    assert (place / campaign.FOLDER / "maestro" / "findings" / "crash-1").read_bytes() == b"bad"
    (place / campaign.FOLDER / "maestro" / "findings" / "crash-1").unlink()
    code, text = run("labels", "maestro", "--inputs", "60", "--jobs", "1")
    assert code == 1
    assert "labels, round" not in text, "it is done"
    assert "1 of them with a finding" in text


def test_every_parser_has_good_files() -> None:
    for name, parser in PARSERS.items():
        assert list(parser.seeds()), name
