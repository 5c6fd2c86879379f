"""The study of builds: larger chips, errors, bars. No simulator is built here."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.tb.studies.engine.rows import StudyError
from meshloom.tb.studies.tools import builds

from .made_rows import page_of


@pytest.mark.parametrize(("columns", "rows"), [(3, 3), (5, 5)])
def test_chips_of_many_equal_cores(columns: int, rows: int) -> None:
    chip = builds.grid("many", columns, rows)
    assert len(chip.cores) == columns * rows
    assert (chip.rows, chip.cols, chip.noc.data_vcs) == (32, 32, 4)
    assert (chip.width, chip.height) == (columns + 2, rows)
    assert chip.core == load("quad32").core


def test_a_build_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHLOOM_MARCH", "no processor")
    with pytest.raises(StudyError, match=r"tiny was not built: .*MESHLOOM_MARCH"):
        builds.build(load("tiny"), tmp_path)


def test_bars_are_of_seconds() -> None:
    row = (
        builds.Build("quad16", 4, "16x16", 1, builds.NOTHING, 7, 31.0, 50.0),
        builds.Build("quad16s", 4, "16x16", 1, builds.SCRATCHPAD, 2, 9.0, 13.0),
    )
    page = page_of(builds.STUDY, {builds.BuildPoint("quad16"): row})
    assert page.missed == ["quad16: 31 s, the bar is 30"]
    assert page.tables[0].bad == {0}
    assert page.answer.endswith("takes 31 seconds from nothing, and 9 where only its scratchpad differs.")
