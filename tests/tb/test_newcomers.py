"""The transcripts of docs/newcomers: their commands run, and print what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..transcripts import files, missing, shell, transcript

PAGES = Path(__file__).parents[2] / "docs" / "newcomers"


@pytest.mark.slow  # they take minutes: a simulator, a sweep's workers, a synthesis
@pytest.mark.parametrize("name", sorted(path.stem for path in PAGES.glob("*.md")))
def test_a_newcomer_sees_what_the_page_shows(name: str, tmp_path: Path) -> None:
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    for file, content in files(text).items():
        (tmp_path / file).write_text(content, encoding="utf-8")
    for command in transcript(text):
        done = shell(command.line, tmp_path)
        assert done.returncode == 0, f"{command.line}\n{done.stdout}"
        gone = missing(command.lines, done.stdout)
        assert gone is None, f"{command.line}\ndoes not print\n{gone}\nbut\n{done.stdout}"


def test_there_is_one_for_each_kind_of_newcomer() -> None:
    counts = {path.stem: len(transcript(path.read_text(encoding="utf-8"))) for path in PAGES.glob("*.md")}
    assert counts.keys() == {"scheduler_author", "architect", "fpga_prototyper"}
    assert all(count >= 6 for count in counts.values())
    for path in PAGES.glob("*.md"):
        assert sum(map(bool, (command.lines for command in transcript(path.read_text(encoding="utf-8"))))) >= 6, path


def test_lines_must_come_in_their_order() -> None:
    output = "┃ chip ┃ cycles┃\n│tiny  │    330│\n1 of 1 passed, 0.3 s\n"
    assert missing(["chip cycles", "tiny   330", "1 of 1 passed, ..."], output) is None
    assert missing(["1 of 1 passed, …", "tiny 330"], output) == "tiny 330"
    assert missing(["tiny 331"], output) == "tiny 331"
    assert missing(["... passed, 0.3 m"], output) == "... passed, 0.3 m"


def test_a_page_is_read_as_files_and_commands() -> None:
    text = (
        "Words\n\n    # a.toml\n    x = 1\n\n    [y]\n\n    $ one | two\n    out 1\n\n    $ three\n\nMore\n\n    code\n"
    )
    assert files(text) == {"a.toml": "# a.toml\nx = 1\n\n[y]\n"}
    assert [tuple(command) for command in transcript(text)] == [("one | two", ["out 1"]), ("three", [])]
