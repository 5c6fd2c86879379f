"""YAML of others: tags are kinds of tables, and what no tool writes is one short line, soon."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from meshloom.tb.exchange import plain_yaml
from meshloom.tb.exchange.interface import ImportFileError
from meshloom.tb.exchange.plain_yaml import MOST_LEVELS, MOST_VALUES, read_yaml

#: Lists of nine lists each, eight levels of them.
NAMES_OF_NAMES = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in pairwise("abcdefgh")
)


def read(folder: Path, text: str) -> object:
    path = folder / "f.yaml"
    path.write_text(text, encoding="utf-8")
    return read_yaml(path, "a mapping")


def test_values_are_counted_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collections and what is in them, names each time."""
    monkeypatch.setattr(plain_yaml, "MOST_VALUES", 5)
    for fits, more in (
        ("[1, 2, 3, 4]", "[1, 2, 3, 4, 5]"),
        ("[[], [], [], []]", "[[], [], [], [], []]"),
        ("{a: 1, b: 2}", "{a: 1, b: [2]}"),
        ("[&x 1, *x, *x, *x]", "[&x 1, *x, *x, *x, *x]"),
        ("[&x [1], *x]", "[&x [1], *x, *x]"),
    ):
        read(tmp_path, fits)
        with pytest.raises(ImportFileError, match="it has more than 5 values, what it names again counted again"):
            read(tmp_path, more)


def test_tags_and_names_are_plain_values(tmp_path: Path) -> None:
    text = 'a: !Storage {size: 3, of: &w [W, I]}\nb: *w\nc: "3"\n'
    assert read(tmp_path, text) == {"a": {"kind": "Storage", "size": 3, "of": ["W", "I"]}, "b": ["W", "I"], "c": "3"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 100_000, f"it is nested too deeply, more than {MOST_LEVELS} levels"),
        ("- " * 3000 + "a", "it is nested too deeply"),
        (NAMES_OF_NAMES, f"it has more than {MOST_VALUES:,} values, what it names again counted again"),
        ("a: " + "9" * 5000, "Exceeds the limit"),
        ("a: !Storage 3", "!Storage has no fields"),
        ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("a: [1, 2", "expected ',' or ']'"),
    ],
    ids=lambda each: each[:12],
)  # fmt: skip
def test_what_no_tool_writes(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ImportFileError) as refusal:
        read(tmp_path, text)
    words = str(refusal.value)
    assert words.startswith(f"{tmp_path / 'f.yaml'}: is not YAML: ")
    assert says in words
    assert words.endswith("it must be a mapping: was it cut?")
    assert "\n" not in words
    assert len(words) < 500
