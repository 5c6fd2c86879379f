"""Networks by `hybrid` are held to bars: in the mean ahead of refined loop nests, never behind, no byte wrong."""

from __future__ import annotations

from meshloom.tb.studies.flexer.flexer_networks import SCHEDULERS, STUDY
from meshloom.tb.studies.points.network_runs import NetworkCycles, NetworkRun

from .made_rows import page_of


def known(arch: str, *cycles: int, wrong: int = 0) -> dict[NetworkRun, NetworkCycles]:
    return {
        NetworkRun(arch, "squeezenet", name, True): NetworkCycles(each, 0, 1, None, 1.0, each, 64, wrong)
        for name, each in zip(SCHEDULERS, cycles, strict=False)
    }


def test_speed_ups_are_of_cycles_on_the_rtl() -> None:
    page = page_of(STUDY, known("arch1", 100, 121, 144))
    (cycles,) = page.tables
    assert cycles.rows[0][2:7] == ("100", "121", "144", "1.210", "1.440")
    assert page.texts["refined"] == "1.210"
    assert page.texts["plain"] == "1.440"
    assert page.missed == []
    assert page.answer == "`hybrid` is 1.210 times as fast as `loop_order` in the geometric mean."


def test_bars() -> None:
    page = page_of(STUDY, known("arch1", 100, 121, 144) | known("arch3", 100, 90, wrong=2))
    assert page.missed == [
        "squeezenet on arch3: loop_order is faster than the hybrid",
        "times as fast as loop_order: 1.044, not at least 1.050",
        "bytes that differ: 4, not exactly 0",
    ]


def test_rows_of_older_code_have_a_star() -> None:
    some = known("arch1", 100, 121, 144) | known("arch3", 100, 121, 144)
    page = page_of(STUDY, some, older=[NetworkRun("arch3", "squeezenet", "hybrid", True)])
    assert [row[:2] for row in page.tables[0].rows] == [("arch1", "squeezenet"), ("arch3", "squeezenet*")]
    assert "6 of 6 points are measured, 5 of them with the present code; 2026-01-31; by commit x." in page.markdown()
