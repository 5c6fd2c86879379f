"""Chips with a code for words: a flipped bit is corrected and counted, two are a fault, and no cycle changes."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import pytest

from meshloom.hw.control.trace import Counter
from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Cause, Region, Unit, address
from meshloom.sched.program.program import Program, Stream
from meshloom.tb.build.upsets import Upset, build_with_upsets, places_of
from meshloom.tb.compare.explain import explain
from meshloom.tb.devices.interface import Fault, Run
from meshloom.tb.verify.upsets import Outcome, UpsetDevice, outcome, program

#: Memories so small that a program uses most of their words.
CHIP = ChipConfig.model_validate(
    load("tiny").model_dump(mode="json", exclude_none=True)
    | {
        "name": "coded",
        "ecc": True,
        "spm_words": 512,
        "trace_records": 1024,
        "ring_instructions": 4,
        "core": {"a_words": 192, "b_words": 512, "acc_words": 130, "out_words": 160, "vec_words": 192},
    }
)
#: Where words have a code: memories, rings, and the queues on the way between tiles.
CODED = re.compile(r"(_mem|ring_memory|bank\.words|vector\.memory|mover\.words|port\.(beats|words))$")
FLIPS = 24


def flips(two: bool) -> list[tuple[Outcome, Run]]:
    """Runs in which one bit flips, or two of a word, in coded memories, and what came of each."""
    build = build_with_upsets(CHIP)
    places, sample, random = places_of(build), program(CHIP, 1), Random(f"two {two}")
    coded = [number for number, place in enumerate(places) if place.words > 1 and CODED.search(place.instance)]
    assert len(coded) > 10
    upsets: list[Upset] = []
    for _ in range(FLIPS):
        number = random.choice(coded)
        place, width = places[number], 39  # of a word of 32 bits with its check bits: ACC has four in one, rings eight
        first = random.randrange(place.bits // width) * width
        one, other = (first + bit for bit in random.sample(range(width), 2))
        cycle = random.randrange(1, sample.timeline.cycles)
        upsets.append(Upset(number, random.randrange(place.words), one, cycle, other if two else None))
    device = UpsetDevice(build, upsets=upsets)
    runs = list(device.run([sample.job] * FLIPS, "upsets"))
    assert len(device.flipped) == FLIPS
    return [(outcome(sample, run, CHIP), run) for run in runs]


@pytest.mark.slow  # Icarus runs the chip forty times
def test_one_wrong_bit_of_a_coded_word_is_corrected_and_counted() -> None:
    some = flips(two=False)
    assert {what for what, _ in some} == {Outcome.HARMLESS, Outcome.CORRECTED}
    counted = [sum(counters[Counter.CORRECTED] for counters in run.counters.values()) for _, run in some]
    assert [number > 0 for number in counted] == [what is Outcome.CORRECTED for what, _ in some]
    assert sum(map(bool, counted)) >= 4


@pytest.mark.slow
def test_two_wrong_bits_of_a_coded_word_are_a_fault_if_it_is_read() -> None:
    some = flips(two=True)
    assert {what for what, _ in some} == {Outcome.HARMLESS, Outcome.NAMED}
    faults = [run.fault for _, run in some if run.fault is not None]
    assert {fault.cause for fault in faults} == {Cause.ECC}
    assert len(faults) >= 4
    assert all(CHIP.tiles[fault.tile] for fault in faults)


def test_a_lost_word_is_explained() -> None:
    run = Run(100, Fault(Cause.ECC, CHIP.cores[0], Unit.NONE, 0, address(Region.OUT, 0)), [], [], {}, 0.0, "icarus")
    program = Program(CHIP.digest, (), Stream(CHIP.host, Unit.MOVER, CHIP.drams[0], 0, ()), {})
    where = "two bits of a word were wrong, in memory OUT or in a packet to it"
    assert explain(run, program, None, CHIP).startswith(where)
    assert run.fault is not None
    run = replace(run, fault=replace(run.fault, value=address(Region.MAIN, 9)))
    assert "in memory MAIN or in a packet to word 9 of it" in explain(run, program, None, CHIP)
