"""Words of 128 bytes on a chip of small arrays, which simulates quickly: packets and bursts of 32 words, instructions
and trace records of a word each, tables of two words. Two virtual channels, routes, arrivals, slow DRAM."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, Unit
from meshloom.sched.checker.check import check
from meshloom.sched.model.timeline import play
from meshloom.tb.build.builder import build
from meshloom.tb.compare.idle import idle_move
from meshloom.tb.compare.records import pair
from meshloom.tb.devices.interface import Job, Run
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.results.schema import Status
from meshloom.tb.runs.runner import run
from meshloom.tb.verify.random_programs import random_program

from .crossfire import crossfire
from .hand_made import move, notify, sync
from .ways import movers

WIDE = ChipConfig.model_validate(
    {
        "name": "wide",
        "lanes": 128,
        "rows": 8,
        "cols": 16,
        "mover_queue": 3,
        "floorplan": ["dram core spm", "host core dram"],
        "spm_words": 4096,
        "dram": {"bytes_per_cycle": 99, "latency": 13, "words": 1 << 16},
        "core": {
            "a_words": 640,
            "b_words": 640,
            "acc_words": 256,
            "out_words": 512,
            "vec_words": 1024,
            "vec_windows": 2,
            "vec_table": True,
            "vec_whole": True,
        },
        "noc": {"data_vcs": 2, "data_depth": 3, "route_hops": 5, "arrivals": True},
    }
)


def random_words(seed: int, words: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (words, WIDE.lanes), np.uint8)


def filled(job: Job, seed: int) -> Job:
    """The job with random words below the code in both channels, all of which it is asked for afterwards."""
    words = min(stream.address for stream in (*job.program.streams, job.program.boot))
    data = [(dram, 0, random_words(2 * seed + number, words)) for number, dram in enumerate(WIDE.drams)]
    return replace(job, memory=data, outputs=[(dram, 0, words) for dram in WIDE.drams])


def random_job(seed: int) -> Job:
    """Units that wait for each other; every third program has four threads."""
    rng = Random(seed)
    return Job(random_program(rng, WIDE, rng.randint(5, 30), threads=1 + seed % 3), [], [], 200_000)


@cache
def jobs(simulator: str) -> list[Job]:
    """Two for the second simulator, which takes a minute for what the first does in a tenth of a second."""
    count = 8 if simulator == "verilator" else 1
    some = [*(crossfire(seed, WIDE, seed % 2 == 1) for seed in range(count)), *map(random_job, range(count))]
    return [filled(job, seed % count) for seed, job in enumerate(some)]


@cache
def runs(simulator: str) -> list[Run]:
    return list(SimulatedDevice(build(WIDE, simulator)).run(jobs(simulator)))


def test_random_programs_pass_the_checks_and_no_packet_has_more_than_32_words() -> None:
    longest = 0
    for seed in range(6):
        program = random_job(seed).program
        check(program, WIDE)
        arrivals = [entry for entry in play(program, WIDE).executed if entry.unit is Unit.NONE]
        longest = max(longest, *(entry.wait for entry in arrivals))
    assert longest == WIDE.packet_words == 32


def test_a_move_on_an_idle_chip_is_cut_at_pages_of_4_kib() -> None:
    """As the model says, packet by packet."""
    dram, spm = WIDE.drams[0], WIDE.spms[0]
    code = move(1, (dram, Region.MAIN, 30), (spm, Region.MAIN, 61), 100, **notify(2, spm))
    program = movers(WIDE, {spm: [code, sync(2, wait_sem=2, wait_n=1)]})
    arrivals = [entry for entry in play(program, WIDE).executed if entry.unit is Unit.NONE]
    packets = idle_move(code.fields, WIDE).packets
    assert [entry.wait for entry in arrivals] == [packet.words for packet in packets] == [3, 32, 32, 32, 1]
    assert [entry.end - entry.start for entry in arrivals] == [packet.latency for packet in packets]


@pytest.mark.slow
@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_programs_are_predicted_to_the_cycle(simulator: str) -> None:
    for number, (job, result) in enumerate(zip(jobs(simulator), runs(simulator), strict=True)):
        assert (number, result.fault) == (number, None)
        timeline = play(job.program, WIDE)
        pairs = pair(result.records, timeline.executed)
        assert [one for one in pairs if one.differs or one.measured.wait != one.predicted.wait] == []
        assert len(pairs) == len(result.records) == len(timeline.executed)
        assert result.cycles == timeline.cycles


@pytest.mark.slow
def test_both_simulators_leave_the_same_bytes() -> None:
    """Of programs that read nothing which has not been written; the others are crossfire."""
    device, first = SimulatedDevice(build(WIDE, "verilator")), len(jobs("icarus")) // 2
    result = device.run(jobs("icarus")[first:])
    for number, (one, other) in enumerate(zip(result, runs("icarus")[first:], strict=True)):
        for mine, theirs in zip(one.memory, other.memory, strict=True):
            np.testing.assert_array_equal(mine, theirs, err_msg=f"job {number}")


@pytest.mark.slow
def test_words_cross_pages_at_both_ends() -> None:
    """Out of DRAM into the scratchpad and back into the other channel: at every distance from a page's border."""
    (first, second), spm = WIDE.drams, WIDE.spms[0]
    values, result = [], []
    for at in range(0, 64, 3):
        there, back = (7 * at) % 64, (5 * at + 9) % 64
        code = [
            move(1, (first, Region.MAIN, at), (spm, Region.MAIN, there), 70, **notify(2, spm)),
            sync(2, wait_sem=2, wait_n=1),
            move(3, (spm, Region.MAIN, there), (second, Region.MAIN, back), 70, **notify(2, spm)),
            sync(4, wait_sem=2, wait_n=1),
        ]
        words = random_words(at, 200)
        values.append(Job(movers(WIDE, {spm: code}), [(first, 0, words)], [(second, back, 70)], 20_000))
        result.append(words[at : at + 70])
    for words, value in zip(result, SimulatedDevice(build(WIDE, "verilator")).run(values), strict=True):
        assert value.fault is None
        np.testing.assert_array_equal(value.memory[0], words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "names"),
    [
        ("loop_order", ["gemm:40x40x300", "conv:9x7x200-40,k3,p1,relu", "conv:6x6x130-150,s2", "ds_cnn"]),
        ("gradient:effort=0.02", ["gradient:gemm:40x150x260"]),
    ],
)
def test_layers_networks_and_gradients_are_right(scheduler: str, names: list[str]) -> None:
    for row in run(names, WIDE, scheduler, lambda event: None):
        assert row.status is Status.PASSED, row.reason
        assert row.model_cycles == row.rtl_cycles
        assert row.bytes_checked > 1000
        assert row.mismatches == 0
