"""Functional coverage: bins are what can happen on a chip, and what programs do falls into them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Cause, Unit
from meshloom.sched.checker.check import CheckError, check
from meshloom.tb.devices.interface import Fault
from meshloom.tb.verify.functional import (
    GROUPS,
    WAIVED,
    FunctionalCoverage,
    bins,
    raised,
    reached,
    together,
    waiver,
    wrong_programs,
)
from meshloom.tb.verify.fuzz.campaign import SampleBatch
from meshloom.tb.verify.fuzz.chips import drafts, pairs_of, random_chips
from meshloom.tb.verify.fuzz.samples import OmittedError, ProgramKind, draw

ROOT = Path(__file__).parents[2]
CHIPS = random_chips(1, 5)


@pytest.mark.parametrize("chip", [CHIPS[1], CHIPS[4]], ids=lambda chip: chip.name)
def test_what_programs_do_falls_into_bins(chip: ChipConfig) -> None:
    universe = bins(chip)
    assert universe.keys() == GROUPS.keys()
    assert all(len(set(names)) == len(names) for names in universe.values())
    programs = set[tuple[str, str]]()
    for origin in SampleBatch(chip, "verilator", 7, 0, 12).origins:
        if origin.kind is ProgramKind.DAMAGED:
            continue
        try:
            sample = draw(origin, chip)
        except OmittedError:
            continue
        programs |= set(reached(sample.job.program, sample.timeline.executed, chip))
    assert {(group, name) for group, name in programs if name not in universe[group]} == set()
    for group in ("GEMM", "units"):
        assert sum(one == group for one, _ in programs) > 0.5 * len(universe[group]), group


def test_options_that_a_chip_has_not_are_no_bins() -> None:
    plain = next(chip for chip in CHIPS if not chip.core.channel_scales)
    scaled = next(chip for chip in CHIPS if chip.core.channel_scales)
    assert not any("scales of channels" in name for name in bins(plain)["GEMM"])
    names = bins(scaled)["GEMM"]
    assert "adds BIAS, scales of channels" in names
    assert "adds NONE, scales of channels" not in names, "there is no word for the multipliers' bias"


def test_wrong_programs_are_refused() -> None:
    programs = list(wrong_programs("any", CHIPS[0], 5))
    assert len(programs) == 5
    for program in programs:
        with pytest.raises(CheckError):
            check(program, CHIPS[0])


def test_faults_have_bins_and_reasons_name_tests_that_there_are() -> None:
    chip = CHIPS[1]
    assert raised(Fault(Cause.SHAPE, chip.cores[0], Unit.MATRIX, 1, 0), chip) == ("faults", "SHAPE in core")
    assert "SHAPE in core" in bins(chip)["faults"]
    assert waiver("faults", "PARITY in core") != ""
    assert waiver("faults", "SHAPE in core") == ""
    for reasons in WAIVED.values():
        for reason in reasons.values():
            (path,) = re.findall(r"tests/\S+\.py", reason)
            assert (ROOT / path).is_file(), path


def test_chips_add_up() -> None:
    some = [
        FunctionalCoverage(1, 1, 0, {"units": {"a for b": 2}}),
        FunctionalCoverage(1, 1, 0, {"units": {"b for b": 0}}),
    ]
    assert together(some)["units"] == {"a for b": 2, "b for b": 0}


def test_drafts_are_legal_and_each_seed_has_its_own() -> None:
    one, other = (next(drafts(seed, 1)) for seed in (1, 2))
    assert pairs_of(one) != pairs_of(other)
    assert len(list(drafts(1, 3))) == 3
