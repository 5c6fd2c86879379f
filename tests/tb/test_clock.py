"""A chip's clock: cycles as time everywhere, and nothing else changes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from meshloom.hw.assembly.verilog import manifest
from meshloom.hw.spec.config import CHIP_FOLDER, ChipConfig, ConfigError, load
from meshloom.tb.compare.compared import compare
from meshloom.tb.compare.ranked import ranked
from meshloom.tb.inputs.chips import at_clock
from meshloom.tb.report.console import console
from meshloom.tb.report.scenario import print_scenario
from meshloom.tb.results.clock import clock_figures
from meshloom.tb.results.energy import EnergyFigures, EnergyPart
from meshloom.tb.results.named import NamedRun, find
from meshloom.tb.results.scenario import ScenarioResults
from meshloom.tb.results.schema import Row

from .command_line import invoke, row
from .kept_runs import keep, results_file

TINY = load("tiny")
SHAPE = "gemm:17x33x9"
ENERGY = EnergyFigures(
    table="t", parts={"DRAM": EnergyPart(count=1_000_000, picojoules=2e6), "links": EnergyPart(count=1, picojoules=0)}
)


def test_a_clock_makes_no_other_chip(tmp_path: Path) -> None:
    """Not its digest, its RTL, nor its name: the file of a built-in chip with a clock is that chip."""
    text = (CHIP_FOLDER / "tiny.toml").read_text()
    (tmp_path / "mine.toml").write_text("clock_mhz = 400\n" + text)
    chip = load(tmp_path / "mine.toml")
    assert chip.clock_mhz == 400
    assert TINY.clock_mhz is None
    assert chip.digest == TINY.digest
    assert manifest(chip) == manifest(TINY)
    assert at_clock(chip, 800).clock_mhz == 800
    assert at_clock(chip, None) is chip


@pytest.mark.parametrize("value", ["0", "-1", '"400"', "true", "inf", "1e9"])
def test_what_is_no_clock_is_refused(value: str, tmp_path: Path) -> None:
    text = (CHIP_FOLDER / "tiny.toml").read_text()
    (tmp_path / "mine.toml").write_text(f"clock_mhz = {value}\n" + text)
    with pytest.raises(ConfigError, match="clock_mhz"):
        load(tmp_path / "mine.toml")


def test_figures_in_the_units_that_people_use() -> None:
    """100,000 cycles at 400 MHz are 0.25 ms."""
    figures = clock_figures(400, 100_000, macs=25_000_000, network=True, energy=ENERGY)
    assert figures is not None
    assert figures.milliseconds == pytest.approx(0.25)
    assert figures.frames_per_second == pytest.approx(4000)
    assert figures.tops == pytest.approx(0.2)  # 5e7 operations in 0.25 ms
    assert figures.dram_gigabytes_per_second == pytest.approx(4.0)
    assert figures.watts == pytest.approx(2e-6 / 0.25e-3)
    assert figures.words == (
        "0.25 ms at 400 MHz, 4,000 frames/s, 0.2 TOPS, 4 GB/s of DRAM, 0.008 W (estimated energy over time)"
    )
    assert clock_figures(None, 100_000) is None
    assert clock_figures(400, 0) is None


def test_rows_are_told_as_time(folder: Path, engine: Any) -> None:
    figures = clock_figures(400, 1000, macs=16_000, network=False, energy=ENERGY)
    engine(row(time=figures))
    output = invoke("run", "gemm:8x8x8", "--chip", "tiny").output
    assert "frames/s" in output
    assert re.search(r"tiny +│ loop_order │ +400 │ 0\.0025 │ +- │ +0\.0128 │ +400 │ +0\.8", output)
    engine(row())
    assert "frames/s" not in invoke("run", "gemm:8x8x8", "--chip", "tiny").output


def test_an_option_sets_the_clock_of_a_run(folder: Path, engine: Any) -> None:
    calls = engine(row())
    assert invoke("run", "gemm:8x8x8", "--chip", "tiny", "--clock", "250").exit_code == 0
    chip = calls[0][1]
    assert isinstance(chip, ChipConfig)
    assert (chip.name, chip.clock_mhz, chip.digest) == ("tiny", 250, TINY.digest)
    assert invoke("run", "gemm:8x8x8", "--chip", "tiny", "--clock", "0").exit_code == 2


def test_a_prediction_and_an_explanation_as_time(tmp_path: Path) -> None:
    shown = invoke("schedule", "gemm:16x32x16", "--chip", "tiny", "--clock", "100").output
    cycles = int(re.findall(r"│ +([\d,]+) │ +[\d.]+ │ +[\d.]+ │ +[\d.]+ %", shown)[0].replace(",", ""))
    assert f"{cycles / 1e5:,.4g}" in shown
    run = keep(tmp_path, SHAPE, at_clock(TINY, 200))
    shown = invoke("explain", run)
    assert shown.exit_code == 0, shown.output
    (line,) = [line for line in shown.output.splitlines() if line.startswith("time: ")]
    assert "at 200 MHz" in line
    assert "frames/s" not in line
    assert " W (estimated" in line
    values = json.loads(invoke("explain", run, "--clock", "400", "--json", "-").stdout)["workloads"][0]
    assert values["time"]["clock_mhz"] == 400
    assert values["time"]["milliseconds"] == pytest.approx(values["waterfall"]["cycles"] / 4e5)
    plain = keep(tmp_path / "plain", SHAPE, TINY)
    assert "time: " not in invoke("explain", plain).output


def test_a_page_says_the_time_of_its_run(tmp_path: Path) -> None:
    run, page = keep(tmp_path, SHAPE, at_clock(TINY, 200)), tmp_path / "page.html"
    for options, clock in (((), 200), (("--clock", "400"), 400)):
        assert invoke("report", run, "--out", page, *options).exit_code == 0
        text = page.read_text()
        assert f" ms at {clock} MHz, " in text
        assert " TOPS, " in text
        assert " GB/s of DRAM, " in text
    plain = keep(tmp_path / "plain", SHAPE, TINY)
    assert invoke("report", plain, "--out", page).exit_code == 0
    assert " MHz" not in page.read_text()


def test_the_fastest_is_by_the_clock(tmp_path: Path) -> None:
    """More cycles at twice the clock are less time."""

    def named(cycles: int, megahertz: float) -> list[NamedRun]:
        one: Row = row("x", rtl_cycles=cycles, time=clock_figures(megahertz, cycles))
        return [NamedRun(one, None)]

    rankings = ranked({"slow": named(1000, 100), "fast": named(1500, 200), "third": named(3000, 200)})
    assert rankings.workloads[0].fastest == "fast"
    (pair,) = compare(named(1000, 100), named(1500, 200)).workloads
    assert (pair.a.milliseconds, pair.b.milliseconds) == (0.01, 0.0075)


def test_a_results_file_keeps_the_time(tmp_path: Path) -> None:
    file = results_file(tmp_path / "a.json", keep(tmp_path, SHAPE, TINY), time=clock_figures(100, 5000))
    (run,) = find(str(file))
    assert run.row.time is not None
    assert run.row.time.milliseconds == 0.05


def test_a_scenario_as_time(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(__file__).parents[1] / "data" / "v0.1" / "serve.json"
    results = ScenarioResults.model_validate_json(file.read_text())
    print_scenario(results, console())
    assert "time: " not in capsys.readouterr().out
    timed = results.model_copy(update={"scenario": results.scenario.model_copy(update={"clock_mhz": 100.0})})
    print_scenario(timed, console())
    words = "time: 5 ms at 100 MHz, 400 frames/s, turnaround 3.73 ms in the mean, 4.96 ms at worst"
    assert words in capsys.readouterr().out
