"""Options of all commands: one with a single value is given once, or refused, whichever command it is of."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import meshloom
from meshloom.tb.api.request import RunRequest
from meshloom.tb.cli.main import app
from meshloom.tb.cli.requests import filled, once

from .command_line import invoke


def options() -> Iterator[tuple[list[str], Any, Any]]:
    """Of each command its words, itself, and each of its options."""

    def within(command: Any, words: list[str]) -> Iterator[tuple[list[str], Any, Any]]:
        yield from ((words, command, each) for each in command.params if each.param_type_name == "option")
        for name, each in getattr(command, "commands", {}).items():
            yield from within(each, [*words, name])

    return within(get_command(app), [])


SINGLE = [
    pytest.param(command, option, id=" ".join([*words, option.opts[0]]))
    for words, command, option in options()
    if not option.multiple and not option.is_eager
]


@pytest.mark.parametrize(("command", "option"), SINGLE)
def test_an_option_with_one_value_is_given_once(command: Any, option: Any) -> None:
    """By any of its names, whatever the values."""
    names = [*option.opts, *option.secondary_opts]
    flag = [] if option.is_flag else ["3"]
    with pytest.raises(typer.BadParameter, match=r"^is given 2 times, but has one value; give it once$") as wrong:
        command.make_context(command.name, [names[0], *flag, names[-1], *flag])
    assert wrong.value.param_hint == option.opts[0]


def test_values_of_an_option_with_several_differ() -> None:
    assert once(["a", "b"], "--chip") == ["a", "b"]
    with pytest.raises(typer.BadParameter, match=r"^a is given 3 times; give each once$"):
        once(["a", "b", "a", "b", "a"], "--chip")


@pytest.mark.parametrize("words", [["run", "gemm:4x4x4"], ["cache"], ["cache", "clean"]])
def test_its_user_is_told(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    option = "--json" if "cache" in words else "--device"
    shown = invoke(*words, option, "tiny", option, "quad8")
    assert shown.exit_code == 2
    assert "is given 2 times, but has one value" in " ".join(shown.stderr.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_the_walk_finds_all_commands() -> None:
    values = {param.id for param in SINGLE}
    assert {"run --device", "explain --chip", "cache --json", "cache clean --older-than"} <= values
    assert len(values) > 60


def test_lists_are_given_as_often_as_one_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = invoke("run", "gemm:4x4x4", "--input", "a.png", "--input", "b.png", "--chip", "nochip")
    assert "nochip" in shown.stderr
    assert "times" not in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x.onnx", "--bind", "batch=1", "--bind", "batch=2"], "batch is given twice, 1 and 2"),
        (["gemm:4x4x4", "--json", "a", "--csv", "./a"], "two of --json, --csv and --report name the same file"),
    ],
)
def test_what_would_win_silently_is_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = invoke("run", *arguments)
    assert shown.exit_code == 2
    assert message in " ".join(shown.stderr.replace("│", " ").split())


@dataclass(frozen=True)
class LaterRequest(RunRequest):
    """A run with an option more."""

    megahertz: Annotated[int, typer.Option("--clock-mhz", min=1, metavar="N", help="Clock of the chip.")] = 400


def test_an_option_more_is_a_field_more() -> None:
    requests: list[LaterRequest] = []
    later = typer.Typer()
    later.command()(filled(LaterRequest)(requests.append))
    assert CliRunner().invoke(later, ["gemm:4x4x4", "--clock-mhz", "500", "--layers"]).exit_code == 0
    assert requests == [LaterRequest(workloads=["gemm:4x4x4"], megahertz=500, per_layer=True)]
    assert "--clock-mhz" in CliRunner().invoke(later, ["--help"]).output
    assert CliRunner().invoke(later, ["--clock-mhz", "0"]).exit_code == 2


def test_python_has_the_defaults_of_the_command_line() -> None:
    """But for what the command line decides itself: it takes a saved file's chip, may be given several schedulers, and
    keeps artefacts for good only if it is told so."""
    ours = {name: each.default for name, each in inspect.signature(meshloom.run).parameters.items()}
    names = {field.name for field in fields(RunRequest)} & ours.keys() - {
        "workloads",
        "chip",
        "scheduler",
        "artefacts",
        "jobs",
    }
    assert len(names) > 7
    assert {name: ours[name] for name in names} == {name: getattr(RunRequest, name) for name in names}


@pytest.mark.parametrize("command", [("report", "latest"), ("compare", "latest"), ("arena", "--predict")])
def test_a_page_is_not_called_a_pdf(command: tuple[str, ...], folder: Path) -> None:
    shown = invoke(*command, "--out", "page.pdf")
    assert shown.exit_code == 2
    assert "and a page is HTML; call it page.html" in " ".join(shown.output.replace("│", " ").split())


def test_a_table_is_not_called_a_spreadsheet(folder: Path) -> None:
    shown = invoke("run", "gemm:4x4x4", "--chip", "tiny", "--csv", "rows.xlsx")
    assert shown.exit_code == 2
    told = " ".join(shown.output.replace("│", " ").split())
    assert "rows.xlsx ends with .xlsx, and a table is CSV or Parquet; call it rows.csv, which" in told
    assert not (folder / "page.pdf").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("train", "digits"),
        ("export", "gemm:4x4x4", "--out", "gemm"),
        ("import", "zigzag", "gemm_complete.json"),
        ("export-chip", "tiny", "--as", "zigzag"),
        ("chips", "tiny"),
    ],
)
def test_a_field_of_the_chip_has_another_value(command: tuple[str, ...], folder: Path) -> None:
    shown = invoke(*command, "--set", "core.a_word=8")
    assert shown.exit_code == 2
    assert "core.a_word: there is no such field" in shown.output
    assert not list(folder.iterdir())


def test_fields_are_of_chips_that_are_named() -> None:
    assert "16 KiB" in invoke("chips", "tiny", "--set", "core.a_words=8").output
    shown = invoke("chips", "--set", "core.a_words=8")
    assert shown.exit_code == 2
    assert "changes the chips that are named" in " ".join(shown.output.replace("│", " ").split())
