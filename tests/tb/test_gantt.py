"""The picture of a scenario: what it says of where it ran, of each core and of each instance."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshloom.tb.report.gantt import gantt
from meshloom.tb.results.scenario import InstanceRow, ProgramRow

from .test_outputs import SERVED

PLAIN = {"network": "n", "batch": 1, "arrival": 0, "isolated": 5}
INSTANCES = (
    InstanceRow.model_validate(PLAIN | {"number": 0}),
    InstanceRow.model_validate(PLAIN | {"number": 1, "batch": 4, "met": True}),
    InstanceRow.model_validate(PLAIN | {"number": 2, "met": False}),
    InstanceRow.model_validate(PLAIN | {"number": 3, "lost": "WATCHDOG", "met": False}),
)
STEP = {"network": "n", "layer": "l", "scheme": "single", "slot": 0, "instructions": 1, "code_bytes": 1}
#: On two cores for 40 cycles of the RTL and 80 of the model, and on one that did not end there.
PROGRAMS = (
    ProgramRow.model_validate(
        STEP | {"instance": 0, "cores": (0x11, 0x12), "launched": 20, "rtl_end": 60, "model_end": 100}
    ),
    ProgramRow.model_validate(STEP | {"instance": 1, "cores": (0x11,), "launched": 60, "model_end": 100}),
)


@pytest.mark.parametrize(
    ("cycles", "where", "bars"), [(60, "RTL", 2), pytest.param(None, "timeline model", 3, marks=pytest.mark.slow)]
)
def test_it_says_where_it_ran_and_who_was_in_time(cycles: int | None, where: str, bars: int, tmp_path: Path) -> None:
    figures = SERVED.scenario.model_copy(update={"rtl_cycles": cycles})
    served = SERVED.model_copy(update={"scenario": figures, "instances": INSTANCES, "programs": PROGRAMS})
    gantt(served, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    words = re.findall(r"<text[^>]*>([^<]*)</text>", text)
    assert f"one on lp9 by s ({where})" in words
    assert [word for word in words if word[0] == "("] == ["(1,1)", "(2,1)"]
    assert words[-4:] == ["0: n", "1: n x4, in time", "2: n, too late", "3: n, lost"]
    assert text.count("stroke: #ffffff") == bars, "each bar has a white edge"
    assert text.count("stroke-dasharray") == len(INSTANCES)


@pytest.mark.slow
def test_of_many_instances_some_are_named(tmp_path: Path) -> None:
    many = tuple(INSTANCES[0].model_copy(update={"number": number}) for number in range(42))
    gantt(SERVED.model_copy(update={"instances": many}), tmp_path / "a.svg")
    words = re.findall(r"<text[^>]*>([^<]*)</text>", (tmp_path / "a.svg").read_text())
    assert words[-2:] == ["39: n", "and 2 more, same colours"]
