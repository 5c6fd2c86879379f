"""Commands of the README, of the pages by task and of docs/claims.md: all are understood; those that a page begins with
run."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from meshloom.hw.spec.config import built_in_chips
from meshloom.tb.cli.main import app
from meshloom.tb.studies import registry as studies

from ..transcripts import files, shell

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Each claim of a paper with the command that shows what becomes of it.
CLAIMS = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
#: Pages by task, and whether all of their commands run or those of "In ten minutes": the others need a user's files, or
#: hours.
TASKS = {
    "run": False,
    "judge": False,
    "referee": True,
    "size": True,
    "verilog": True,
    "train": False,
    "serve": False,
    "sweeps": False,
    "python": False,
    "arena": False,
    "agents": True,
}
OTHERS = ("setup", "studies", "tutorial")
TEXTS = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in (*TASKS, *OTHERS)}
TEXT = README + "".join(TEXTS.values())
#: Programs that commands begin with.
_PROGRAMS = "meshloom|make|iverilog|jq|python|tail"


def commands(text: str) -> list[str]:
    """What follows four spaces and begins with a program's name, without comments."""
    lines = re.findall(rf"^    (?:\.venv/bin/)?((?:{_PROGRAMS}) .*)$", text, re.MULTILINE)
    return [re.split(r"\s+# ", line)[0].strip() for line in lines]


def questions(text: str) -> list[str]:
    """Commands in the table of questions."""
    return re.findall(r"^\| [^|]* \| `(meshloom [^`]*)` \|", text, re.MULTILINE)


def ten_minutes(name: str) -> list[str]:
    """The commands that a page by task begins with, or all of it."""
    if TASKS[name]:
        return commands(TEXTS[name])
    (text,) = re.findall(r"^## In ten minutes\n(.*?)(?=^## )", TEXTS[name], re.MULTILINE | re.DOTALL)
    return commands(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the examples, and the files that the pages by task show."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name in TASKS:
        for file, content in files(TEXTS[name]).items():
            (tmp_path / file).write_text(content, encoding="utf-8")
    return tmp_path


def test_the_readme_is_short_and_begins_with_what_it_is_for() -> None:
    assert len(README.splitlines()) <= 150
    for paper in ("Flexer", "Layer-Puzzle", "Klotski", "Dijkstra-Through-Time", "Interleaved Gradient Order"):
        assert README.index(paper) < README.index("## More")
    assert "![" in README.partition("\n## ")[0], "a picture before the first heading"
    assert (ROOT / "docs" / "page.png").stat().st_size < 200_000
    assert len(questions(README)) >= 9


def test_every_page_by_task_is_linked() -> None:
    for name in (*TASKS, *OTHERS, "claims"):
        assert f"(docs/{name}.md" in README, name


def test_the_files_are_found(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {
        "my_chip.toml",
        "tiny.ys",
        "first.py",
        "small.toml",
        "cycles.py",
        "ask.py",
        "examples",
    }


@pytest.mark.parametrize(
    "command",
    sorted({*(each for each in commands(TEXT + CLAIMS) if each.startswith("meshloom ")), *questions(README)}),
)
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
    assert set(named) <= set(studies.SHIPPED)


@pytest.mark.parametrize("command", sorted({each for each in commands(TEXT) if each.startswith("make ")}))
def test_make_knows_the_target(command: str) -> None:
    done = subprocess.run([*command.split(), "-n"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run(command: str, folder: Path) -> None:
    # the pages' lines are for a shell; they are ours, not a user's
    done = shell(command, folder)
    assert done.returncode == 0, f"{command}\n{done.stdout}"


def test_a_chip_of_ones_own_is_checked_and_predicted(folder: Path) -> None:
    first, second, *_ = ten_minutes("size")
    assert (first.split()[1], second.split()[1]) == ("chips", "schedule")
    run(first, folder)
    run(second, folder)


@pytest.mark.slow  # builds simulators, plans networks, synthesises a chip
@pytest.mark.parametrize("name", TASKS)
def test_a_page_by_task_runs(name: str, folder: Path) -> None:
    texts = ten_minutes(name)
    assert len(texts) >= 2
    for command in texts:
        run(command, folder)
    if name == "verilog":
        area = (folder / "area.txt").read_text(encoding="utf-8")
        page = (ROOT / "docs/verilog.md").read_text(encoding="utf-8")
        said = re.findall(r"(\d+) \w+ \((\S+)\)", next(line for line in page.splitlines() if "MULT18X18D" in line))
        assert [(cell, re.findall(rf"(\d+) +{re.escape(cell)}\n", area)[-1:]) for _, cell in said] == [
            (cell, [count]) for count, cell in said
        ]
        assert len(said) == 2
