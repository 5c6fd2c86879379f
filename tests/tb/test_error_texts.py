"""How many texts of errors no test mentions: whoever adds one provokes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .. import error_texts
from ..error_texts import untested

#: Fewer is better. Those that are left say what only a broken tool or library would bring about, or what the layers
#: before them refuse already.
MOST = 21


def test_texts_are_found_by_three_words_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "hw").mkdir()
    (tmp_path / "hw" / "unit.py").write_text(
        'raise ValueError(f"{name}: is not a good number; take another")\n'
        'raise WorkloadError("nobody has ever seen this one")\n'
        'raise self.refused("short text")\n'
        "raise KeyError(name)\n"
    )
    (tmp_path / "tests" / "test_unit.py").write_text(
        'match = r"a good number; take\\.*"\nother = "has ever seen, this"\n'
    )
    monkeypatch.setattr(error_texts, "ROOT", tmp_path)
    assert untested(("hw",)) == ["hw/unit.py:3: short text"]
    (tmp_path / "tests" / "test_unit.py").write_text('match = "good number, another"\nother = "short text"\n')
    assert untested(("hw",)) == [
        "hw/unit.py:1: is not a good number take another",
        "hw/unit.py:2: nobody has ever seen this one",
    ]


def test_the_table_has_the_input_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body of `raises`, the rest of a case, the other arguments of a call, or what stands before an assertion."""
    for folder in ("tests", "hw", "sched", "tb"):
        (tmp_path / folder).mkdir()
    (tmp_path / "hw" / "unit.py").write_text(
        'raise ValueError(f"{name}: is not a good number; take another")\n'
        'raise ValueError("is too large to" + " be built")\n'
        'raise ValueError(f"{a} | {b} must never be equal here")\n'
        'raise ValueError("this one stands in an assertion")\n'
        'raise ValueError("what nobody provokes at all")\n'
    )
    (tmp_path / "tests" / "test_unit.py").write_text(
        "def test_a():\n    with pytest.raises(ValueError, match='is not a good number'):\n        number(3)\n"
        "@pytest.mark.parametrize('case', [(1 << 40, 'too large to be built')])\n"
        "def test_b(case):\n    refuse('`x`', 'must never be equal here')\n"
        "def test_c():\n    text = said(0)\n    assert 'this one stands in' in text\n"
    )
    monkeypatch.setattr(error_texts, "ROOT", tmp_path)
    rows = [line for line in error_texts.table().splitlines() if line.startswith("| `")]
    assert rows == [
        "| `…: is not a good number; take another` | `number(3)` | `tests/test_unit.py::test_a` |",
        "| `is too large to be built` | `1 << 40` | `tests/test_unit.py::test_b` |",
        "| `… | … must never be equal here` | `refuse(''x'')` | `tests/test_unit.py::test_b` |",
        "| `this one stands in an assertion` | `text = said(0)` | `tests/test_unit.py::test_c` |",
        "| `what nobody provokes at all` |  | none |",
    ]


@pytest.mark.slow
def test_new_texts_are_provoked() -> None:
    rows = untested()
    assert len(rows) <= MOST, "\n".join(["no test provokes", *rows])
