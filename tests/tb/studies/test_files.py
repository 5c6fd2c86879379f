"""The study of trained files: bars, and what its tables say. No simulator is built or run here."""

from __future__ import annotations

from dataclasses import replace

from meshloom.tb.studies.networks import files
from meshloom.tb.studies.networks.file_cases import FILES
from meshloom.tb.studies.networks.file_runs import FileRun
from meshloom.tb.studies.networks.files import FilePoint

from .made_rows import page_of

RUN = FileRun(
    90, (("conv", 7), ("add", 2)), 2_500_000, 10_000, 10_000, 0.5, 9, 4096, 0, 0.2, 31.25, "0.5, max", "as float"
)


def test_what_a_file_gave() -> None:
    page = page_of(files.STUDY, {FilePoint("alexa"): RUN})
    on_rtl, answers, sources = page.tables
    assert on_rtl.rows == [
        ("alexa", "90", "9", "2.5", "10,000", "+0.00 %", "50.0 %", "9", "4,096", "0", "0.2"),
    ]
    assert answers.rows == [("alexa", "31.2 dB", "0.5, max", "16", "as float")]
    assert sources.rows[0][2] == "7 conv, 2 add"
    assert page.missed == []


def test_bars() -> None:
    known = {FilePoint(file.name): RUN for file in FILES}
    known |= {
        FilePoint("alexa"): replace(RUN, wrong=3),
        FilePoint("timer"): replace(RUN, model_cycles=10_200),
        FilePoint("weather"): FileRun(refused="too large"),
    }
    assert page_of(files.STUDY, known).missed == [
        "weather: too large",
        "alexa: 3 bytes differ",
        "timer: model error 2.00 %, the bar is 1 %",
        "bytes that differ: 3, not exactly 0",
    ]
    known[FilePoint("mtcnn_pnet")] = FileRun(refused="too large, too")
    assert "files that did not: 2, not at most 1" in page_of(files.STUDY, known).missed


def test_quick_files_are_files() -> None:
    assert len(files.points(False)) == len(files.QUICK)
    assert set(files.points(False)) < set(files.points(True))
