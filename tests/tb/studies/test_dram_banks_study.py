"""The study of DRAM with banks: its points, what bursts take without a chip, and what its page says of made-up rows. No
simulator is built or run here."""

from __future__ import annotations

from meshloom.hw.spec.config import load
from meshloom.tb.studies.chip import dram_banks
from meshloom.tb.studies.chip.dram_banks import BANKS, OPEN, TURNS, Opened, OpenedPoint, PatternPoint
from meshloom.tb.studies.chip.dram_traffic import CHANNELS, PATTERNS, Burst, Replay, replay
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.points.runs import RunPoint

from .made_rows import page_of
from .run_rows import row

STREAM = "a stream of reads"


def test_points_differ_in_their_chips() -> None:
    full, quick = dram_banks.points(True), dram_banks.points(False)
    assert set(quick) < set(full)
    assert len({point.key for point in full}) == len(full) == 6 * 2 * 3 + 2 * len(PATTERNS)
    chips = {point.config.digest for point in full if isinstance(point, RunPoint | OpenedPoint)}
    assert len(chips) == 4
    assert load("quad16").digest in chips
    rows = [dram_banks.chip_of("quad16", BANKS + OPEN).bank_cycles, dram_banks.chip_of("quad16", BANKS).bank_cycles]
    assert [times and times.rcd + times.rp + times.rfc for times in rows] == [3, 15 + 15 + 144]
    # what has been kept of the simulator has a line for each
    assert {(part, pattern, "FR-FCFS") for part in CHANNELS for pattern in PATTERNS} <= set(dram_banks.kept())


def test_bursts_come_as_fast_as_the_channel_takes_them() -> None:
    chip = CHANNELS["lpddr4_3200"]
    times = chip.bank_cycles
    assert times is not None
    bursts = [Burst(0, False, 64 * at, 64) for at in range(32)]
    assert replay(chip, bursts) == Replay(1 + times.rcd + times.cl + 32 * 64, 32 * 64, 24, 8, 0)
    # words that are written come one a cycle
    late = replay(chip, [Burst(100, True, 0, 64)])
    assert late == Replay(100 + 64 + times.rcd + times.cwl + 64, 64, 0, 1, 0)


def test_a_page_says_what_banks_cost() -> None:
    theirs = dram_banks.kept()["ddr3_1600", STREAM, "FR-FCFS"]["cycles"]
    rows: dict[Point, object] = {PatternPoint("ddr3_1600", STREAM): Replay(theirs * 102 // 100, 256_000, 1, 2, 3)}
    for turns, cycles, hits in (((), 1100, 60), (TURNS, 1200, 50)):
        rows[RunPoint("quad16", "resnet8", changes=turns)] = row(rtl_cycles=1050, model_cycles=1050)
        rows[RunPoint("quad16", "resnet8", changes=BANKS + turns)] = row(
            workload="resnet8", rtl_cycles=cycles, model_cycles=cycles + bool(turns)
        )
        rows[OpenedPoint("resnet8", BANKS + turns)] = Opened(cycles, 1000, hits, 30, 10, 7, 2)
    page = page_of(dram_banks.STUDY, rows)
    cycles_of, patterns, reordered = page.tables
    assert cycles_of.rows == [
        ("resnet8", "fifo", "1,050", "1,100", "1,000", "1.100", "100", "60.0 %", "10", "7", "0"),
        ("resnet8", "round robin", "1,050", "1,200", "1,000", "1.200", "90", "55.6 %", "10", "7", "0"),
    ]
    assert [each[:2] for each in patterns.rows] == [("ddr3_1600", STREAM)]
    assert [each[0] for each in reordered.rows] == ["resnet8"]
    assert page.answer == (
        "They take 1.100 times as many cycles as if rows were always open, and 1.200 times with requests in turn; "
        "60.0 % of bursts hit an open row, 55.6 % in turn."
    )
    wrong, *missed = page.missed
    assert wrong.endswith("dram.arbitration = round_robin by loop_order: 1,200 cycles, the model says 1,201")
    assert missed == [
        "cycles that the model is off, all runs: 1, not exactly 0",
        "off DRAMsim3, streams and rows of one bank, at most: 2.0 %, not at most 1.0 %",
    ]
