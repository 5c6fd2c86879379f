"""Commands of the README and of docs/claims.md: all are understood; of the README's, those of the sections for
architects and FPGA prototypers run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from meshloom.hw.spec.config import built_in_chips
from meshloom.tb.benchmarks.registry import SHIPPED
from meshloom.tb.cli.main import app
from meshloom.tb.studies import registry as studies

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
#: Each claim of a paper with the command that shows what becomes of it.
CLAIMS = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
#: An indented block that begins with its file's name as a comment.
FILES = re.findall(r"((?:^    # \w+\.(?:toml|ys)\n)(?:^(?:    .*)?\n)+)", TEXT, re.MULTILINE)
SECTIONS = ("For architects: size a chip", "For FPGA prototypers: from a chip to gates")


def commands(text: str) -> list[str]:
    """What follows four spaces and begins with a program's name, without comments."""
    lines = re.findall(r"^    ((?:meshloom|make|iverilog|jq|python|tail) .*)$", text, re.MULTILINE)
    return [re.split(r"\s+# ", line)[0].strip() for line in lines]


def section(title: str) -> str:
    (value,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL)
    return value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that README shows."""
    for block in FILES:
        lines = [line[4:] for line in block.rstrip("\n").splitlines()]
        (tmp_path / lines[0].removeprefix("# ")).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def test_the_files_are_found(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {"my_chip.toml", "tiny.ys"}


@pytest.mark.parametrize("command", [each for each in commands(TEXT + CLAIMS) if each.startswith("meshloom ")])
def test_meshloom_understands(command: str) -> None:
    _, name, *arguments = shlex.split(re.split(r" [|>] ", command)[0])
    group: Any = get_command(app)
    value = group.commands[name].make_context(name, arguments).params
    chip = value.get("chip")
    for each in [chip] if isinstance(chip, str) else chip or ():
        assert each in built_in_chips() or each == "my_chip.toml"


def test_benchmarks_that_show_a_claim_exist() -> None:
    named = [command.split()[2] for command in commands(CLAIMS) if command.startswith("meshloom bench ")]
    assert len(named) > 10
    assert set(named) <= {*SHIPPED, *studies.SHIPPED}


@pytest.mark.parametrize("command", [each for each in commands(TEXT) if each.startswith("make ")])
def test_make_knows_the_target(command: str) -> None:
    done = subprocess.run([*command.split(), "-n"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run(command: str, folder: Path) -> None:
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # README's lines are for a shell; they are ours, not a user's
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder, env=os.environ | {"PATH": places}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_a_chip_of_ones_own_is_checked_and_predicted(folder: Path) -> None:
    first, second, _ = commands(section(SECTIONS[0]))
    assert (first.split()[1], second.split()[1]) == ("chips", "schedule")
    run(first, folder)
    run(second, folder)


@pytest.mark.slow  # builds a simulator and synthesises a chip; the commands themselves are tested one by one elsewhere
@pytest.mark.parametrize("title", SECTIONS)
def test_all_commands_of_a_section_run(title: str, folder: Path) -> None:
    texts = commands(section(title))
    assert len(texts) >= 3
    for command in texts:
        run(command, folder)
    if title == SECTIONS[1]:
        area = (folder / "area.txt").read_text(encoding="utf-8")
        assert re.search(r"42 +MULT18X18D", area), "README says 42"
        assert re.search(r"82 +\$mem_v2", area), "README says 82"
