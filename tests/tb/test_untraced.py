"""A chip without trace records: bytes and cycles in all are compared, and the row says what is not."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import stats_words
from meshloom.hw.spec.isa import Region
from meshloom.sched.checker.accesses import region_words
from meshloom.sched.model.timeline import play
from meshloom.sched.program.program import ProgramError
from meshloom.sched.workload.catalog import find
from meshloom.tb.compare.links import LinksError, congestion
from meshloom.tb.devices import readout
from meshloom.tb.devices.interface import Run
from meshloom.tb.devices.registry import find as find_device
from meshloom.tb.report.row_tables import print_results
from meshloom.tb.results.schema import Results, Row, Status
from meshloom.tb.runs.kinds.layers import LayerRun
from meshloom.tb.runs.runner import prepare
from meshloom.tb.verify.fuzz.samples import FuzzSample, OmittedError, ProgramKind, SampleKey, draw

from .test_soft_reset import SMALL

#: The same chip, with what reads counters while it runs, as it is and without traces.
TRACED = SMALL.model_copy(update={"name": "traced", "counters": True, "trace_records": 256})
CHIP = ChipConfig.model_validate(TRACED.model_dump(mode="json") | {"name": "untraced", "trace_records": 0})
WORKLOAD = "gemm:12x9x7"
SAYS = "chip untraced keeps no trace records: its bytes and its cycles in all were compared"


def prepared(chip: ChipConfig) -> LayerRun:
    run = prepare(find(WORKLOAD)[0], chip, "loop_order:effort=0.01")
    assert isinstance(run, LayerRun)
    return run


def row_of(run: Run, item: LayerRun, chip: ChipConfig) -> Row:
    return item.row(run, chip)


def as_planned(item: LayerRun, chip: ChipConfig, **more: Any) -> Run:
    """What a device returns that writes what is right, in the cycles of the model."""
    job = item.job(chip)
    memory = [np.zeros((words, chip.lanes), np.uint8) for _, _, words in job.outputs]
    return replace(
        Run(item.timeline.cycles, None, memory, [], {}, 1.0, "somewhere", readout.untraced(chip)), **more
    )  # fmt: skip


def test_nothing_is_fetched_and_nobody_can_read_it() -> None:
    item = prepared(CHIP)
    plan = readout.plan(item.program, CHIP, stats_words(CHIP), 100)
    assert (plan.words, plan.parts, plan.stream.instructions) == (0, (), ())
    assert region_words(CHIP, CHIP.cores[0], Region.TRACE, "src") == 0
    assert region_words(CHIP, CHIP.cores[0], Region.STATS, "src") == stats_words(CHIP)


def test_records_that_have_no_room_say_how_much_dram_they_need() -> None:
    program, words = prepared(TRACED).program, stats_words(TRACED)
    with pytest.raises(
        ProgramError, match=r"no space for \d+ words of trace in DRAM .*; raise dram.words to \d+"
    ) as told:
        readout.plan(program, TRACED, words, TRACED.dram.words - 64)
    (need,) = re.findall(r"--set dram.words=(\d+)\), or lower trace_records", str(told.value))
    dram = TRACED.dram.model_copy(update={"words": int(need)})
    assert readout.plan(program, TRACED.model_copy(update={"dram": dram}), words, TRACED.dram.words - 64).words


def test_the_row_says_what_cannot_be_said() -> None:
    """Its cycles count as ever; without records there is no figure that needs them, and no congestion of links."""
    item = prepared(CHIP)
    row = row_of(as_planned(item, CHIP), item, CHIP)
    assert (row.records_expected, row.records_compared, row.record_problem, row.arrays) == (0, 0, "", None)
    assert row.untraced.startswith(SAYS)
    shown = StringIO()
    two = (row.model_copy(update={"mismatches": 0}),) * 2
    results = Results(run="two", started=datetime.now(UTC), wall_seconds=1, complete=True, environment={}, rows=two)
    print_results(results, Console(file=shown, width=400))
    assert shown.getvalue().count(SAYS) == 1, "once for a chip, not for each workload"
    right = row.model_copy(update={"mismatches": 0})
    assert right.status is Status.PASSED
    slow = right.model_copy(update={"rtl_cycles": 2 * right.rtl_cycles})
    assert slow.status is Status.MODEL
    assert slow.reason.endswith(row.untraced)
    with pytest.raises(LinksError, match="keeps no trace records"):
        congestion(as_planned(item, CHIP), item.program, CHIP)
    assert readout.untraced(TRACED) == ""


@pytest.mark.slow
@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_a_chip_without_traces_takes_the_same_cycles(simulator: str) -> None:
    """Gated in Verilator, not gated in Icarus; twice in a row."""
    item = prepared(CHIP)
    device = find_device(simulator).open(CHIP, False, print)
    rows = [row_of(run, item, CHIP) for run in device.run([item.job(CHIP), item.job(CHIP)])]
    for row in rows:
        assert (row.status, row.rtl_cycles, row.mismatches) == (Status.PASSED, item.timeline.cycles, 0), row.reason
        assert row.untraced.startswith(SAYS)
        assert row.rtl_cycles == prepared(TRACED).timeline.cycles


@pytest.mark.slow
def test_no_sync_waits_for_a_record_that_nothing_takes() -> None:
    """Random programs, to the cycle: with traces, SYNCs of one cycle would go one after the other."""
    samples: list[FuzzSample] = []
    for seed in range(200):
        with suppress(OmittedError):
            samples.append(draw(SampleKey(ProgramKind.PROGRAM, seed, 8 + seed % 16), CHIP))
    assert len(samples) > 100
    runs = list(find_device("verilator").open(CHIP, False, print).run([sample.job for sample in samples]))
    assert [run.cycles for run in runs] == [sample.timeline.cycles for sample in samples]
    traced = [play(sample.job.program, TRACED).cycles for sample in samples]
    assert traced != [run.cycles for run in runs], "some wait where records are taken"
