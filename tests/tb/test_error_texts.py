"""How many texts of errors no test mentions: whoever adds one provokes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .. import error_texts
from ..error_texts import untested

#: Fewer is better. Those that are left say what only a broken tool or library would bring about, or what the layers
#: before them refuse already.
MOST = 22


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


@pytest.mark.slow
def test_new_texts_are_provoked() -> None:
    rows = untested()
    assert len(rows) <= MOST, "\n".join(["no test provokes", *rows])
