"""What runs reach of the chip's blocks: counts as Verilator writes them, and what the page makes of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshloom.hw.assembly.verilog import verilog
from meshloom.hw.spec.config import ChipConfig, load
from meshloom.tb.build.builder import BuildError
from meshloom.tb.studies.chip import coverage
from meshloom.tb.studies.chip.coverage import STAGES, STUDY, CoveragePoint, Covered, stage
from meshloom.tb.studies.chip.functional import Crossed, CrossedPoint, FunctionalPoint
from meshloom.tb.verify.coverage import BLOCKS, OTHER, Reach, block_of, reached, together
from meshloom.tb.verify.functional import FunctionalCoverage

from .made_rows import page_of

ROOT = Path(__file__).parents[3]


def count(kind: str, module: str, thing: str, times: int, line: int = 1) -> str:
    fields = {"f": "chip.v", "l": line, "n": 2, "t": kind, "page": f"v_{kind}/{module}", "o": thing, "h": "bench.chip"}
    return "C '" + "".join(f"\x01{key}\x02{value}" for key, value in fields.items()) + f"' {times}\n"


def test_counts_by_block(tmp_path: Path) -> None:
    file = tmp_path / "coverage.dat"
    file.write_text(
        "# SystemC::Coverage-3\n"
        + count("line", "chip__data_plane__router_0_0", "block", 3)
        + count("branch", "chip__data_plane__router_1_0__east_output", "if", 0, 7)
        + count("branch", "chip__data_plane__router_1_0__east_output", "if", 2, 7)  # in another instance
        + count("branch", "chip__data_plane__router_1_0__east_output", "else", 0, 7)
        + count("toggle", "tile_core__mover", "run_left[0]", 9)
        + count("toggle", "tile_core__mover", "run_left[1]", 0)
        + count("toggle", "tile_core__mover", "asked__02estride[3]:0->1", 0)
        + count("toggle", "somebody_elses", "a", 1)
    )
    assert reached(file) == {
        "mover": Reach(0, 0, 1, 3, ("tile_core__mover.asked.stride",)),
        OTHER: Reach(0, 0, 1, 1),
        "router": Reach(2, 3, 0, 0),
    }
    both = together([reached(file), {"router": Reach(1, 1)}])
    assert list(both) == ["router", "mover", OTHER]
    assert both["router"] == Reach(3, 4)


def test_each_block_is_written_somewhere() -> None:
    for _, place, _ in BLOCKS.values():
        assert (ROOT / "hw" / place).is_file()


@pytest.mark.slow
def test_every_module_of_a_chip_belongs_to_a_block() -> None:
    values = load("tiny").model_dump() | {"programs": 2, "counters": True}
    text = verilog(ChipConfig.model_validate(values), observed=True)
    modules = re.findall(r"^module (\w+)\(", text, re.MULTILINE)
    assert len(modules) > 50
    assert {name for name in modules if block_of(name) == OTHER} == set()


def test_stages_and_bars() -> None:
    good, fair, poor = Reach(99, 100, 95, 100), Reach(92, 100, 80, 100), Reach(10, 100, 5, 100)
    assert [stage(each) for each in (good, fair, poor, Reach(0, 0, 95, 100))] == ["V3", "V2", "V1", "V3"]
    assert [name for name, _, _ in STAGES] == ["V3", "V2", "V1"]
    blocks = {"router": good, "mover": fair, "launches": Reach(0, 50, 0, 10, ("tile_host__launches.queue",))}
    page = page_of(STUDY, {CoveragePoint(0, 40): Covered(30, 5000, blocks)})
    assert (page.texts["lines"], page.texts["bits"], page.texts["V3"], page.texts["V1"]) == (
        "76.4 %", "83.3 %", "1", "1",
    )  # fmt: skip
    assert page.missed == [
        "lines and branches that were reached: 76.4 %, not at least 98.0 %",
        "bits that rose and fell: 83.3 %, not at least 90.0 %",
    ]
    first, second = page.tables
    assert [row[0] for row in first.rows] == ["router", "mover", "launches"]
    assert first.rows[2][-1] == "`launches.queue`"
    assert second.rows[0][2:] == ("30", "5,000")


def test_what_runs_otherwise_than_predicted_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Device:
        def run(self, jobs: list[object], label: str) -> list[object]:
            return jobs

    monkeypatch.setattr(coverage, "build_with_coverage", lambda chip, report: None)
    monkeypatch.setattr(coverage, "SimulatedDevice", lambda build, keep, patience: Device())
    monkeypatch.setattr(coverage, "difference", lambda sample, run, chip: "12 cycles, 13 predicted")
    with pytest.raises(BuildError, match="a program did not run as predicted: 12 cycles, 13 predicted"):
        CoveragePoint(0, 4).measure(lambda what: None)


def test_bins_that_no_program_has_reached_are_named_and_waivers_have_reasons() -> None:
    bins = {"faults": {"SHAPE in core": 3, "LATE in core": 0, "PARITY in core": 0}, "units": {"a for b": 1}}
    point, crossed = FunctionalPoint(0, 300), CrossedPoint(20, 2_000)
    page = page_of(STUDY, {point: FunctionalCoverage(200, 300, 120, bins), crossed: Crossed(90, 100)})
    assert (page.texts["bins"], page.texts["crossed"]) == ("66.7 %", "90.0 %")
    assert page.missed == [
        "bins that programs reached: 66.7 %, not at least 98.0 %",
        "pairs of choices that 20 chips cross: 90.0 %, not at least 98.0 %",
    ]
    groups, waived, excluded = page.tables
    assert [(row[1:]) for row in groups.rows] == [("1", "100.0 %", "0", "-"), ("2", "50.0 %", "1", "LATE in core")]
    assert [row[0] for row in waived.rows] == ["PARITY in core"]
    assert "test_flips.py" in waived.rows[0][1]
    assert excluded.rows[1] == (
        "controller: True, channel", "programs: True", "2", "a controller plans one program for the whole chip",
    )  # fmt: skip


def test_pairs_of_choices_of_a_few_chips() -> None:
    row = CrossedPoint(2, 40).measure(lambda what: None)
    assert 600 < row.pairs < 702  # each has 351 of them
    assert row.possible == 2145
