"""DRAM with banks in whole chips: the timeline against the RTL, 0 cycles off, while all tiles read and write at once;
random programs; matrix products and a network, whose bytes are right; the second simulator; what is shown of it. The
first tier has the channel alone (tests/hw/test_dram_banks.py: Verilog; tests/sched/model/test_banks.py: model)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest

from meshloom.hw.board.channel import check as check_board
from meshloom.hw.spec.config import ChipConfig, ConfigError, load
from meshloom.hw.spec.isa import Region, Unit
from meshloom.sched.model.banks import BankedDram, Banks
from meshloom.sched.model.timeline import play, played
from meshloom.sched.program.program import Instruction, Program, place
from meshloom.tb.build.builder import build
from meshloom.tb.devices.interface import Job
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.inputs.chips import at_clock, changed
from meshloom.tb.report.tables import chip_table
from meshloom.tb.runs import runner
from meshloom.tb.runs.export.export import files
from meshloom.tb.runs.kinds.interface import Listener
from meshloom.tb.runs.kinds.table import one
from meshloom.tb.runs.options import RunOptions
from meshloom.tb.verify.random_programs import random_program

from ..sched.sessions import serve
from .crossfire import crossfire, finished
from .hand_made import CODE, move, notify, sync
from .served_chip import chip_with
from .test_arbitration import flood
from .test_crossfire import exact
from .test_rtl_session import serve_on_rtl

_PLACES = {"lanes": 4, "clock_mhz": 800.0, "floorplan": ["dram core spm", "host core dram"], "mover_queue": 2}
#: Few short rows and many refreshes, so that all happens in a short program; slower than a word a cycle.
ROWS = ChipConfig.model_validate(
    {
        "name": "rows",
        "dram": {
            "bytes_per_cycle": 3,
            "latency": 5,
            "banks": {"part": "ddr3_1600", "count": 4, "row_bytes": 256, "t_refi": 900.0},
        },
        "noc": {"data_depth": 3, "request_depth": 2, "data_routing": "yx", "route_hops": 5, "arrivals": True},
    }
    | _PLACES
)
#: Three virtual channels, requests in turn, one bank, a turn of the bus with each burst.
BANK = ChipConfig.model_validate(
    {
        "name": "bank",
        "dram": {
            "bytes_per_cycle": 4,
            "latency": 1,
            "arbitration": "round_robin",
            "banks": {"part": "ddr3_1600", "count": 1, "row_bytes": 512, "t_refi": 2000.0, "turn_after": 1},
        },
        "noc": {
            "data_vcs": 3,
            "data_depth": 2,
            "request_depth": 2,
            "data_routing": "yx",
            "route_hops": 5,
            "arrivals": True,
        },
    }
    | _PLACES
)
#: Whole packets, and tiles that read by credit.
CREDIT = ChipConfig.model_validate(
    {
        "name": "credit",
        "dram": {
            "bytes_per_cycle": 2,
            "latency": 8,
            "whole_packets": True,
            "arbitration": "weighted",
            "weights": (3, 1),
            "banks": {"part": "lpddr4_3200", "row_bytes": 512, "t_refi": 1500.0},
        },
        "noc": {"data_depth": 3, "request_depth": 2, "arrivals": True},
    }
    | _PLACES
)
CHIPS = {"rows": ROWS, "bank": BANK, "credit": CREDIT}


def rows_of(program: Program, chip: ChipConfig) -> list[Banks]:
    """The banks of each channel after a program in the model."""
    return [dram.banks for dram in played(program, chip).drams.values() if isinstance(dram, BankedDram)]


def programs(chip: ChipConfig, count: int) -> list[Program]:
    """Crossfire, floods and random programs."""
    result = [crossfire(seed, chip, seed % 2 == 1).program for seed in range(count)]
    result += [flood(seed, chip) for seed in range(count)]
    return result + [random_program(random := Random(seed), chip, random.randint(5, 40)) for seed in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHIPS)
def test_all_tiles_at_once_are_predicted_to_the_cycle(name: str) -> None:
    chip = CHIPS[name]
    jobs = [Job(program, [], [], 200_000) for program in programs(chip, 16 if name == "rows" else 40)]
    counts = [0] * 5
    for job, run in zip(jobs, SimulatedDevice(build(chip, "verilator")).run(jobs), strict=True):
        assert exact(run, play(job.program, chip))
        for banks in rows_of(job.program, chip):
            each = banks.hits, banks.misses, banks.conflicts, banks.turns, banks.refreshes
            counts = [one + other for one, other in zip(counts, each, strict=True)]
    assert min(counts) > 100, counts


@pytest.mark.slow
def test_the_other_simulator_takes_as_long() -> None:
    jobs = [Job(program, [], [], 200_000) for program in programs(ROWS, 3)]
    for job, run in zip(jobs, SimulatedDevice(build(ROWS, "icarus")).run(jobs), strict=True):
        assert exact(run, play(job.program, ROWS))


@pytest.mark.slow
def test_a_seventeenth_write_waits_for_the_first() -> None:
    """Packets of one word each, faster than rows are closed and opened: the port has as many bursts in flight as it
    may."""
    (there, _), core = ROWS.drams, ROWS.cores[0]
    far = 4 * 64  # words to another row of the same bank
    code: list[Instruction] = []
    for tag in range(1, 5):
        ends = (core, Region.OUT, 0), (there, Region.MAIN, 0)
        code.append(move(tag, *ends, 12, dst_run=1, dst_stride=far, **notify(2, core)))
    code += [sync(5, wait_sem=2, wait_n=4), finished(ROWS, 6)]
    placed, boot = place({(core, Unit.MOVER): tuple(code)}, dict.fromkeys(ROWS.drams, CODE), ROWS)
    program = Program(ROWS.digest, placed, boot, {})
    (run,) = SimulatedDevice(build(ROWS, "verilator")).run([Job(program, [], [], 50_000)])
    timeline = play(program, ROWS)
    assert exact(run, timeline)
    assert sum(banks.conflicts for banks in rows_of(program, ROWS)) > 40
    # the packets leave at the pace of the rows, not of the mesh
    assert timeline.cycles > 30 * (28 + 11)


def banked(chip: str) -> ChipConfig:
    """A built-in chip with LPDDR4-3200 at 800 MHz."""
    config = load(chip)
    values = config.model_dump() | {"name": f"{chip}_lpddr4", "clock_mhz": 800.0}
    values["dram"] |= {"latency": 11, "banks": {"part": "lpddr4_3200"}}
    return ChipConfig.model_validate(values)


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["gemm:32x64x48", "resnet8"])
def test_workloads_are_right_and_predicted_to_the_cycle(workload: str) -> None:
    chip = banked("quad16" if workload == "resnet8" else "tiny")
    (row,) = runner.run([workload], chip, "loop_order", lambda event: None, RunOptions(here=True))
    assert row.error is None
    assert row.mismatches == 0
    assert row.rtl_cycles == row.model_cycles
    assert row.first_divergence is None


@pytest.mark.slow
def test_programs_that_come_and_go_are_predicted_to_the_cycle() -> None:
    """Refreshes go on while nothing runs, and rows stay open from one program to the next."""
    chip = chip_with(
        "lp4_banks",
        clock_mhz=800.0,
        dram={"words": 1 << 18, "bytes_per_cycle": 7, "latency": 20, "banks": {"part": "lpddr4_3200", "t_rfc": 280.0}},
    )
    script = serve(chip, 30, seed=11, lead=600)
    assert serve_on_rtl(chip, script) == [(one.number, one.end) for one in script]


@pytest.mark.slow
def test_an_exported_bench_has_the_banks(tmp_path: Path) -> None:
    chip = banked("tiny")
    (run,) = one("gemm:8x8x8", chip).prepare(chip, "loop_order", Listener())
    for name, content in files(run, chip).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert (tmp_path / "dram_banks.v").is_file()
    sources = [*map(str, tmp_path.glob("*.v")), str(tmp_path / "chip" / f"{chip.name}.v")]
    program = str(tmp_path / "bench")
    said = subprocess.run(
        ["iverilog", "-g2005", "-Wall", "-s", "bench", "-o", program, *sources],
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stderr == ""
    output = subprocess.run(["vvp", "-n", program], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    cycles = run.timeline.cycles
    assert output == f"PASS: 64 bytes, {cycles} cycles (predicted {cycles})\n"


def test_a_part_brings_its_own_values_to_a_chip_with_other_fields() -> None:
    plain = load("tiny")
    some = changed(plain, {"clock_mhz": 800, "dram.banks.part": "lpddr4_3200", "dram.banks.t_rfc": 280.0})
    assert some.dram.banks is not None
    assert (some.dram.banks.t_rfc, some.dram.banks.t_rcd, some.clock_mhz) == (280.0, 18.0, 800.0)
    other = changed(some, {"dram.banks.part": "ddr3_1600"})
    assert other.dram.banks == changed(plain, {"clock_mhz": 800, "dram.banks.part": "ddr3_1600"}).dram.banks
    # single values change alone, and a clock is one at which the part can be
    assert other.dram.banks is not None
    assert changed(other, {"dram.banks.count": 4}).dram.banks == other.dram.banks.model_copy(update={"count": 4})
    assert at_clock(other, 400.0).digest != other.digest
    with pytest.raises(ConfigError, match=r"at clock_mhz = 900 is more than dram.banks.bandwidth = 3.2"):
        at_clock(other, 900.0)
    with pytest.raises(ConfigError, match=r"\[dram.banks\]: count, .* t_rcd, .* are missing; there are no"):
        changed(plain, {"clock_mhz": 800, "dram.banks.t_cl": 10.0})


def test_what_a_chip_has_is_shown_and_a_board_without_rows_refuses_it() -> None:
    chip = banked("tiny")
    (column,) = (column for column in chip_table([chip]).columns if str(column.header) == "DRAM")
    assert list(column.cells) == ["1 x 4 B/cycle, 8 banks"]
    with pytest.raises(ValueError, match=r"dram.banks: a board's DRAM opens no rows in the chip's time; leave them"):
        check_board(chip)
