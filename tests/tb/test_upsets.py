"""Bits that flip in registers and memories: where they can, what comes of it, a simulator that ends with one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from meshloom.hw.control.trace import Counter as Counters
from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import Cause, Unit
from meshloom.tb.build.builder import Build
from meshloom.tb.build.upsets import StatePlace, Upset, build_with_upsets, places, places_of
from meshloom.tb.devices.interface import DeviceError, Fault, Job, Run
from meshloom.tb.verify import upsets
from meshloom.tb.verify.fuzz.samples import FuzzSample, OmittedError
from meshloom.tb.verify.upsets import (
    LONGEST,
    FlipPlace,
    Outcome,
    UpsetDevice,
    bits_of,
    drawn,
    outcome,
    outcomes,
    program,
)

CHIP = load("tiny")
_VERILOG = r"""
module chip(clk);
  wire [3:0] net;
  reg [7:0] count = 8'h00;
  reg [31:0] _1_;
  reg [15:0] store [3:0];
  \unit$1  one (
    .clk(clk)
  );
  \unit$1  \two$2  (
    .clk(clk)
  );
endmodule

module \unit$1 (clk);
  reg \flag$3  = 1'h0;
endmodule
"""


@cache
def sample() -> FuzzSample:
    return program(CHIP, 1)


def test_registers_and_memories_of_all_instances_are_found() -> None:
    assert places(_VERILOG) == [
        StatePlace("", "count", "chip", 8, 1),
        StatePlace("", "store", "chip", 16, 4),
        StatePlace("one", r"\flag$3 ", r"\unit$1", 1, 1),
        StatePlace(r"\two$2 ", r"\flag$3 ", r"\unit$1", 1, 1),
    ]
    assert places(_VERILOG)[3].path == r"bench.dut.\two$2 .\flag$3 "


def test_each_bit_is_as_likely_as_another() -> None:
    some = [StatePlace("", "a", "m", 30, 1), StatePlace("", "b", "m", 10, 1), StatePlace("", "c", "m", 8, 100)]
    registers = drawn(some, FlipPlace.REGISTERS, 500, 4_000, "any")
    counts = Counter(upset.place for upset in registers)
    assert counts.keys() == {0, 1}
    assert 2.6 < counts[0] / counts[1] < 3.4
    assert {upset.bit for upset in registers if upset.place == 1} == set(range(10))
    assert all(1 <= upset.cycle < 500 for upset in registers)
    assert {upset.place for upset in drawn(some, FlipPlace.MEMORIES, 500, 20, "any")} == {2}


def test_a_line_of_the_simulator_has_a_place_for_each_number() -> None:
    """As the module beside the bench takes it apart."""
    for flip in (Upset(1, 2, 3, 4, 5), Upset(1 << 31, 1 << 30, 1 << 15, 1 << 29)):
        line = flip.line()
        number = int(line, 16)
        parts = [number >> low & (1 << bits) - 1 for low, bits in ((80, 32), (48, 32), (32, 16), (0, 32), (112, 16))]
        second = 0xFFFF if flip.second is None else flip.second
        assert (parts, len(line)) == ([flip.place, flip.word, flip.bit, flip.cycle, second], 32)


def test_words_in_use_are_the_first_of_all_memories_but_trace() -> None:
    some = [
        StatePlace("", "a", "m", 30, 1),
        StatePlace("", "b", "tile_spm__bank", 8, 1_000),
        StatePlace("", "c", "tile_spm__tracer", 8, 1_000),
        StatePlace("", "d", "m", 8, 10),
    ]
    used = drawn(some, FlipPlace.USED, 500, 500, "any")
    assert {upset.place for upset in used} == {1, 3}
    assert {upset.word for upset in used if upset.place == 1} == set(range(64))
    assert {where: bits_of(some, where) for where in FlipPlace} == {
        FlipPlace.REGISTERS: 30, FlipPlace.MEMORIES: 16_080, FlipPlace.USED: 592,
    }  # fmt: skip


def test_outcomes() -> None:
    timeline = sample().timeline
    words = [array.copy() for array in sample().words]
    good = Run(timeline.cycles, None, words, [], {}, 0.0, "icarus")
    assert outcome(sample(), good, CHIP) is Outcome.LATE, "its records are missing"
    assert outcome(sample(), good, CHIP.model_copy(update={"ecc": True})) is Outcome.LATE
    wrong = replace(good, memory=[words[0] ^ np.uint8(1), *words[1:]])
    assert outcome(sample(), wrong, CHIP) is Outcome.SILENT
    for cause, what in ((Cause.STALLED, Outcome.STOPPED), (Cause.PARITY, Outcome.NAMED)):
        fault = Fault(cause, CHIP.host, Unit.NONE, 0, 0)
        assert outcome(sample(), replace(good, fault=fault, memory=[]), CHIP) is what


def test_what_a_run_says_besides_bytes_and_records_decides_what_came_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    words, timeline = list(sample().words), sample().timeline
    monkeypatch.setattr(upsets, "difference", lambda sample, run, chip: "")
    coded = CHIP.model_copy(update={"ecc": True})
    for corrected, chip, what in (
        (0, coded, Outcome.HARMLESS),
        (2, coded, Outcome.CORRECTED),
        (2, CHIP, Outcome.HARMLESS),  # without a code the counter is none
    ):
        counters = {1: [1] * len(Counters), 2: [1] * len(Counters)}
        counters[1][Counters.CORRECTED], counters[2][Counters.CORRECTED] = 0, corrected
        run = Run(timeline.cycles, None, words, [], counters, 0.0, "icarus")
        assert outcome(sample(), run, chip) is what


def test_after_a_flip_that_ends_the_simulator_each_of_the_others_has_its_run(tmp_path: Path) -> None:
    class Ending(UpsetDevice):
        """Ends with a flip of bit 1; with one of bit 2 the cycle never comes."""

        def run(self, jobs: Sequence[Job], label: str = "run") -> Generator[Run]:
            for number, flip in enumerate(self.upsets):
                self.flipped |= set[int]() if flip.bit == 2 else {number}
                if flip.bit == 1:
                    raise DeviceError("the simulator ended")
                yield Run(0, Fault(Cause.PARITY, CHIP.host, Unit.NONE, 0, 0), [], [], {}, 0.0, "icarus")

    flips = [Upset(0, number, bit, 1) for number, bit in enumerate((0, 1, 1, 0, 2, 0, 1, 0))]
    results = list(outcomes(Ending(Build(CHIP, "icarus", False, tmp_path, False)), sample(), flips))
    assert [flip for flip, _ in results] == [flip for flip in flips if flip.bit != 2]
    assert all(what is (Outcome.BROKEN if flip.bit else Outcome.NAMED) for flip, what in results)


def test_programs_are_short_and_compared() -> None:
    assert sample().timeline.cycles <= LONGEST
    assert sum(array.size for array in sample().words) > 1_000
    assert (sample().job.watchdog, sample().job.stall_limit) == (4 * LONGEST, upsets.STALL)


def test_a_program_may_take_all_cycles_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsets, "LONGEST", sample().timeline.cycles)
    assert program(CHIP, 1).job.program == sample().job.program


def test_a_chip_whose_programs_are_all_long_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsets, "LONGEST", 10)
    monkeypatch.setattr(upsets, "TRIES", 2)
    with pytest.raises(OmittedError, match="no program of 8 operations takes at most 10 cycles on tiny"):
        program(CHIP, 1)


@pytest.mark.slow  # Icarus runs the chip for some thousand cycles, eight times
def test_flips_happen_and_a_simulator_that_ends_goes_on_with_the_others() -> None:
    build = build_with_upsets(CHIP)
    some = places_of(build)

    def at(path: str, bit: int, cycle: int) -> Upset:
        (number,) = (number for number, place in enumerate(some) if place.path.strip() == f"bench.dut.{path}")
        return Upset(number, 0, bit, cycle)

    cycles = sample().timeline.cycles
    flips = [
        at("tile_1.front_mover.address", 20, 300),
        at("tile_16.host_port.go", 0, 200),
        at("tile_1.front_matrix.since", 3, cycles + 50_000),  # never
        at("tile_1.front_vector.waited", 2, 40),
    ]
    results = dict(outcomes(UpsetDevice(build), sample(), flips))
    assert flips[2] not in results
    assert results.keys() == {flips[0], flips[1], flips[3]}
