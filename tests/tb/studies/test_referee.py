"""The study of claims: what its page says of rows that are known."""

from __future__ import annotations

import json

import pytest

from meshloom.sched.ir.schedule import ToolClaim
from meshloom.sched.workload.catalog import find
from meshloom.tb.results.schema import Row
from meshloom.tb.studies.points.runs import RunPoint
from meshloom.tb.studies.tools import referee
from meshloom.tb.studies.tools.referee import CASES, STUDY, MappedPoint

from ..command_line import row
from .made_rows import rows_of

POINT = MappedPoint(*CASES[0])


def claimed(cycles: int, rtl: int, wrong: int = 0) -> Row:
    claim = ToolClaim(tool="zigzag-dse", cycles=cycles)
    return row(rtl_cycles=rtl, model_cycles=rtl, mismatches=wrong, claim=claim)


def test_every_file_is_of_its_layer() -> None:
    for case in CASES:
        point = MappedPoint(*case)
        names = json.loads(point.source.path.read_text(encoding="utf-8"))["inputs"]
        assert names["accelerator"]["name"] == point.chip
        workload, mapped = point.source.layer()
        assert (workload.name, mapped.shape) == (find(case[2])[0].name, workload.shape)
    assert len({MappedPoint(*case).key for case in CASES}) == len(CASES)
    files = {path.relative_to(referee.FOLDER) for path in referee.FOLDER.glob("*/*_complete.json")}
    assert files == {MappedPoint(*case).source.path.relative_to(referee.FOLDER) for case in CASES}


def test_what_is_shown() -> None:
    known = {
        POINT: claimed(1000, 1500),
        MappedPoint(*CASES[1]): claimed(1000, 900),
        RunPoint(POINT.chip, POINT.workload): row(rtl_cycles=1400),
    }
    rows = rows_of(known)
    texts = STUDY.texts(rows)
    assert [texts[name] for name in ("layers", "mean", "median", "worst", "less")] == [
        "2",
        "30.0 %",
        "30.0 %",
        "50.0 %",
        "1",
    ]
    (table,) = STUDY.shown(rows)
    assert table.rows[0] == ("gemm:32x32x32", "tiny", "1,000", "1,500", "+50.0 %", "50.0 %", "1,400")
    assert table.rows[1][-3:] == ("-10.0 %", "50.0 %", "-")
    assert STUDY.missed(rows) == []


def test_a_wrong_byte_is_no_claim() -> None:
    (first, second) = STUDY.missed(rows_of({POINT: claimed(1000, 1500, wrong=2)}))
    assert first == "gemm:32x32x32 on tiny by ZigZag: 2 of 64 bytes differ from the golden model"
    assert second == "bytes that differ: 2, not exactly 0"


def test_another_mapping_is_another_row(monkeypatch: pytest.MonkeyPatch) -> None:
    before = POINT.key
    monkeypatch.setattr(referee, "gateware", lambda: "other")
    assert POINT.key != before
    monkeypatch.undo()
    monkeypatch.setattr(referee, "FOLDER", referee.FOLDER / "none")
    assert POINT.key != before
