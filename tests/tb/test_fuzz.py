"""Differential fuzz: chips that cross their options, samples that say the same everywhere, findings made small."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.config import load as load_chip
from meshloom.hw.spec.isa import Opcode
from meshloom.sched.model.timeline import Timeline, play
from meshloom.sched.program.program import Program
from meshloom.tb.devices.interface import Run
from meshloom.tb.verify.fuzz import __main__ as command
from meshloom.tb.verify.fuzz import campaign, samples
from meshloom.tb.verify.fuzz import chips as fuzz_chips
from meshloom.tb.verify.fuzz.campaign import FuzzFinding, SampleBatch, load, record_of, run_batch, save, smaller
from meshloom.tb.verify.fuzz.chips import EXCLUDED, choices, drafts, pairs_of, possible_pairs, random_chips, variants
from meshloom.tb.verify.fuzz.samples import FuzzSample, OmittedError, ProgramKind, SampleKey, draw

from ..tiers import slow_but

TINY = load_chip("tiny")
#: Two of which the damaged sample is not refused.
SEEDS = 12, 14
CORPUS = sorted((Path(__file__).parent / "fuzz_corpus").glob("*.json"))


@pytest.mark.parametrize("seed", slow_but(range(1, 11), 7))
def test_twenty_chips_cross_every_choice_and_almost_all_pairs_whatever_the_seed(seed: int) -> None:
    chips = random_chips(seed, 20)
    values: dict[str, set[str]] = defaultdict(set)
    for chip in chips:
        assert ChipConfig.model_validate(chip.model_dump(mode="json", exclude_none=True)) == chip
        for option, value in choices(chip).items():
            values[option].add(value)
    assert {option for option, some in values.items() if len(some) < 2} == set()
    assert len({pair for chip in chips for pair in pairs_of(chip)}) >= 0.98 * len(possible_pairs(chips))


def test_pairs_of_choices_that_are_excluded_are_those_that_no_legal_draft_has() -> None:
    some = list(drafts(1, 2_000))
    seen = {pair for chip in some for pair in pairs_of(chip)}
    assert possible_pairs(some) == seen
    assert sum(len(each.pairs) for each in EXCLUDED) == 10


def test_more_chips_are_the_same_and_others() -> None:
    assert random_chips(3, 12)[:9] == random_chips(3, 9)
    assert random_chips(3, 3) != random_chips(4, 3)


def test_options_of_other_drafts_are_mixed_only_where_drafts_cross_little_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = random_chips(1, 9)
    monkeypatch.setattr(fuzz_chips, "FEW_PAIRS", 0)
    drawn = random_chips(1, 9)
    assert [one == other for one, other in zip(mixed, drawn, strict=True)] == [True] * 6 + [False] * 3


@pytest.mark.parametrize("kind", ProgramKind)
def test_a_sample_is_decided_by_its_origin(kind: ProgramKind) -> None:
    origin = SampleKey(kind, SEEDS[0], 6)
    one, other = draw(origin, TINY), draw(origin, TINY)
    assert one.job.program == other.job.program
    assert one.timeline.cycles == other.timeline.cycles
    assert draw(replace(origin, seed=SEEDS[1]), TINY).job.program != one.job.program


def test_tables_of_random_operations_are_filled_on_narrow_chips() -> None:
    """A table takes more of B there than weights of two columns: what is drawn reads nothing that was not written."""
    values = TINY.model_dump(mode="json")
    core = values["core"] | {"vec_table": True}
    narrow = ChipConfig.model_validate(values | {"name": "narrow", "cols": 2, "core": core})
    samples = [draw(SampleKey(ProgramKind.SCHEDULE, seed, 16), narrow) for seed in range(20)]
    assert sum(len(sample.timeline.executed) for sample in samples) > 20 * 16


def test_a_batch_on_the_rtl_agrees() -> None:
    result = run_batch(SampleBatch(TINY, "verilator", 1, 0, 16))
    assert result.findings == ()
    assert sum(result.samples.values()) + sum(result.omitted.values()) == 16
    assert result.samples["schedule"] == 4
    assert result.bytes == 4 * 4000 * TINY.lanes * len(TINY.drams)
    assert result.cycles > 1000


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_findings_that_are_kept_agree(file: Path) -> None:
    assert command.again(file) == ""


def _a_cycle_late(program: Program, chip: ChipConfig) -> Timeline:
    """A model that is wrong by a cycle."""
    timeline = play(program, chip)
    return replace(timeline, cycles=timeline.cycles + 1)


def test_a_wrong_prediction_is_seen_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "play", _a_cycle_late)
    result = run_batch(SampleBatch(TINY, "verilator", 1, 0, 4))
    assert len(result.findings) == sum(result.samples.values())
    finding = next(finding for finding in result.findings if finding.origin.kind is ProgramKind.SCHEDULE)
    assert "cycles" in finding.words
    least = campaign.minimal(finding)
    assert least.origin.size == 0 < finding.origin.size


def test_what_does_not_matter_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chip that is wrong as soon as a program has three GEMMs: of many operations, three are left."""

    def difference(sample: FuzzSample, run: Run, chip: ChipConfig) -> str:
        return "wrong" if _gemms(sample) >= 3 else ""

    monkeypatch.setattr(campaign, "difference", difference)
    finding = FuzzFinding(TINY, "verilator", SampleKey(ProgramKind.SCHEDULE, 5, 24), "wrong")
    assert _gemms(draw(finding.origin, TINY)) > 3
    least = smaller(finding, lambda job: Run(0, None, [], [], {}, 0.0, "verilator"))
    assert _gemms(draw(least.origin, TINY)) == 3
    assert least.origin.size - len(least.origin.omitted) == 3


def _gemms(sample: FuzzSample) -> int:
    return sum(entry.opcode is Opcode.GEMM for entry in sample.timeline.executed)


@pytest.mark.slow
def test_a_campaign_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    batches = [SampleBatch(TINY, "verilator", 2, number, 4) for number in range(2)]
    lines: list[str] = []
    assert campaign.run(batches[:1], record_of(batches, tmp_path), 1, lines.append) == []
    record = record_of(batches, tmp_path)
    assert len(record.done) == 1
    assert campaign.run(batches, record, 1, lines.append) == []
    assert "continuing: 1 of 2 batches are done" in lines
    assert len(record.done) == 2
    total = sum(number for result in record.done.values() for number in result.samples.values())
    assert command.summary([*record.done.values()]).startswith(f"fuzz: {total} samples ran (")


def test_a_finding_is_a_file(tmp_path: Path) -> None:
    finding = FuzzFinding(TINY, "verilator", SampleKey(ProgramKind.SCHEDULE, 5, 6, (1, 3)), "off by one")
    assert load(save(finding, tmp_path)) == finding
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match=r"other\.json: no finding of a fuzz campaign"):
        load(tmp_path / "other.json")


def test_a_chip_without_room_for_programs_has_none() -> None:
    small = TINY.model_copy(update={"semaphores": 3})
    with pytest.raises(OmittedError, match="no room for a thread"):
        draw(SampleKey(ProgramKind.PROGRAM, 1, 3), small)


def test_variants_have_what_chips_are_not_drawn_with() -> None:
    """Controllers do not work with chips without traces, with banks and with copies; rights name no copies."""
    for chip in random_chips(1, 8):
        one, *others = variants(chip)
        assert one == chip
        options = [
            (other.ecc, not other.trace_records, other.dram.banks is not None, bool(other.noc.multicast))
            for other in others
        ]
        rest = [] if chip.dtt is not None else [(False, True, False, False), (False, False, True, False)]
        rest += (
            [] if chip.dtt is not None or chip.programs else [(False, False, False, True), (False, True, False, False)]
        )
        assert options == [(True, False, False, False), *rest]
        assert variants(chip) == [one, *others]
    names = {batch.chip.name for batch in command.batches_of(3, 30, 10, 1)}
    assert names == {other.name for chip in random_chips(1, 3) for other in variants(chip)}


@pytest.mark.slow
def test_of_a_chip_without_traces_cycles_and_bytes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    values = TINY.model_dump(mode="json") | {"name": "tiny_untraced", "trace_records": 0}
    chip = ChipConfig.model_validate(values)
    batch = SampleBatch(chip, "verilator", 1, 0, 8)
    assert run_batch(batch).findings == ()
    monkeypatch.setattr(samples, "play", _a_cycle_late)
    result = run_batch(batch)
    assert len(result.findings) == sum(result.samples.values())


@pytest.mark.slow
@pytest.mark.parametrize(("simulator", "count"), [("verilator", 50), ("icarus", 8)])
def test_chips_that_copy_packets_do_what_model_and_executor_say(simulator: str, count: int) -> None:
    """Copies that meet each other, full memories' ports and a shallow NoC: every record in its cycle, every byte."""
    values = TINY.model_dump(mode="json", exclude_none=True)
    noc = {"multicast": ["east", "south"], "data_depth": 2, "arrivals": True}
    floorplan = ["dram core core", "host core spm"]
    chip = ChipConfig.model_validate(
        values | {"name": "copying", "floorplan": floorplan, "noc": noc, "semaphores": 48, "spm_words": 512}
    )
    result = run_batch(SampleBatch(chip, simulator, 5, 0, count))
    assert result.findings == ()
    assert sum(result.samples.values()) > count / 2
    assert result.bytes > 0


def test_random_moves_never_wait_for_each_other_in_a_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither do those that name a virtual channel and go the usual way on it. The chip is a draft as it is."""
    monkeypatch.setattr(fuzz_chips, "FEW_PAIRS", 0)
    chip = random_chips(3001, 13)[12]
    assert (chip.noc.data_vcs, chip.noc.route_hops) == (2, 5)
    for seed in (769094734616, *range(8)):
        assert draw(SampleKey(ProgramKind.SCHEDULE, seed, 24), chip).timeline.cycles > 0
