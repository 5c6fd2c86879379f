"""The study of random GEMMs: its programs, the formula beside the records, its bars. Nothing is built or run."""

from __future__ import annotations

import pytest

from meshloom.hw.spec.config import built_in_chips, load
from meshloom.hw.spec.isa import Addend, Opcode, Unit
from meshloom.hw.spec.timing import GemmShape, gemm_cycles, gemm_occupancy
from meshloom.sched.checker.check import check
from meshloom.sched.program.program import ProgramError
from meshloom.tb.studies.chip import gemm, random_gemms

from .made_rows import page_of


@pytest.mark.parametrize("name", built_in_chips())
def test_random_gemms_fit_and_differ(name: str) -> None:
    chip = load(name)
    bodies = random_gemms.random_gemms(chip)
    assert len(bodies) == random_gemms.COUNT
    assert bodies == random_gemms.random_gemms(chip)
    assert bodies != random_gemms.random_gemms(chip, seed=1)
    for key in ("to_acc", "addend", "kernel_h", "stride_w", "dilation", "n_blocks", "k_blocks"):
        assert len({body[key] for body in bodies}) > 1
    assert {body["addend"] for body in bodies} == set(Addend)
    assert any(gemm_occupancy(chip, random_gemms.shape_of(body)) < 5 * chip.lanes for body in bodies)
    # code comes in time: no half ring runs out before the next has been fetched
    for first in range(0, random_gemms.COUNT - chip.fetch_chunk, chip.fetch_chunk):
        lasts = sum(gemm_occupancy(chip, random_gemms.shape_of(b)) for b in bodies[first : first + chip.fetch_chunk])
        assert lasts > 2 * chip.fetch_chunk * chip.instruction_words + 2 * chip.dram.latency


@pytest.mark.parametrize("name", ["tiny", "pe12x14", "mono32"])
def test_the_random_program_is_sound_but_for_its_undefined_operands(name: str) -> None:
    chip = load(name)
    bodies = random_gemms.random_gemms(chip, 60)
    program = random_gemms.program(bodies, chip)
    (stream,) = program.streams
    assert (stream.tile, stream.unit) == (chip.cores[0], Unit.MATRIX)
    assert [one.opcode for one in stream.instructions] == [Opcode.GEMM] * 60 + [Opcode.SYNC]
    with pytest.raises(ProgramError) as info:
        check(program, chip)
    problems = [line for line in str(info.value).splitlines() if "core@" in line]
    assert problems
    assert [line for line in problems if "which nothing has written" not in line] == []


def by_formula(bodies: list[dict[str, int]], name: str) -> list[tuple[int, int]]:
    """(start, end) as `hw/spec/timing.py` has it in words: without a bubble, or four cycles after an end it waits
    for."""
    chip, measured = load(name), []
    start = 100
    for number, body in enumerate(bodies):
        shape = random_gemms.shape_of(body)
        if measured:
            start = measured[-1][1] + 4 if random_gemms.waits(number) else start
        measured.append((start, start + gemm_cycles(chip, shape)))
        start += gemm_occupancy(chip, shape)
    return measured


@pytest.mark.parametrize("name", ["tiny", "quad8", "mono16"])
def test_deviation_is_zero_by_formula_and_sees_a_cycle(name: str) -> None:
    chip = load(name)
    bodies = random_gemms.random_gemms(chip, 40)
    measured = by_formula(bodies, name)
    assert random_gemms.deviation(measured, bodies, chip) == random_gemms.Deviation(40, 0, 0)
    for number in (17, 21):  # one that follows, one that waits
        start, end = measured[number]
        late = [*measured[:number], (start + 1, end + 1), *measured[number + 1 :]]
        assert random_gemms.deviation(late, bodies, chip) == random_gemms.Deviation(40, 1, 0)
        longer = [*measured[:number], (start, end + 2), *measured[number + 1 :]]
        assert random_gemms.deviation(longer, bodies, chip).end == 2


def test_a_missing_record_is_an_error() -> None:
    bodies = random_gemms.random_gemms(load("tiny"), 5)
    with pytest.raises(ProgramError, match="tiny: 5 GEMMs left 4 trace records"):
        random_gemms.deviation(by_formula(bodies, "tiny")[:4], bodies, load("tiny"))


@pytest.mark.parametrize("name", built_in_chips())
def test_fold_rich_can_reach_the_bar(name: str) -> None:
    chip = load(name)
    body = random_gemms.fold_rich(chip)
    shape = random_gemms.shape_of(body)
    assert body["pixels"] % chip.rows == 0
    assert body["k_blocks"] * body["a_plane"] <= chip.core.a_words
    assert body["n_blocks"] * body["pixels"] <= chip.core.out_words
    lasts = gemm_cycles(chip, shape)
    assert random_gemms.utilisation([(5, 5 + lasts)], [body], chip) >= gemm.BAR
    assert random_gemms.utilisation([(5, 5 + 2 * lasts)], [body], chip) < 0.51


def test_utilisation_of_a_gemm_counts_multiply_accumulates() -> None:
    chip = load("tiny")  # 4x4 PEs, 4 lanes: 8 pixels x 4 columns x 3 words x 4 lanes = 384 products
    body = random_gemms.fold_rich(chip) | {"pixels": 8, "k_blocks": 3, "n_blocks": 1}
    assert random_gemms.shape_of(body) == GemmShape(8, 1, 3)
    assert random_gemms.utilisation([(0, 48)], [body], chip) == pytest.approx(384 / (16 * 48))


def test_bars_are_of_every_chip() -> None:
    def timing(start: int, utilisation: float) -> gemm.GemmTiming:
        return gemm.GemmTiming(300, 200, 150, 42, 9_000, start, 0, utilisation)

    page = page_of(gemm.STUDY, {gemm.GemmPoint("tiny"): timing(0, 0.999)})
    assert page.missed == []
    assert page.tables[0].rows == [("tiny", "4x4", "300", "200", "150", "42", "9,000", "0", "0", "99.90 %")]
    bad = page_of(gemm.STUDY, {gemm.GemmPoint("tiny"): timing(0, 0.999), gemm.GemmPoint("quad8"): timing(3, 0.98)})
    assert bad.missed == [
        "quad8: starts are up to 3 cycles off their formula, ends up to 0",
        "quad8: utilisation 98.00 % is below 99 %",
        "largest deviation from the formulas, cycles: 3, not exactly 0",
        "least utilisation of the fold-rich GEMM: 98.00 %, not at least 99.00 %",
    ]
    assert bad.tables[0].bad == {1}
