"""Trace memory and counters: what is recorded, what is dropped, what a MOVE reads of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from meshloom.hw.control.trace import STROBED, TOTALS, Counter, Trace, counters_of
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import ECC_STATS_BYTES, STATS_BYTES, stats_words
from meshloom.hw.spec.isa import TRACE, Region

from .unit_bench import Source, back_to_back, simulate, sometimes

LANES = [4, 8, 16, 32, 64]


def chip(lanes: int, records: int = 16) -> ChipConfig:
    values = {"name": "t", "lanes": lanes, "floorplan": ["dram core host"], "trace_records": records}
    return ChipConfig.model_validate(values | {"dram": {"bytes_per_cycle": 4}})


def record(rng: random.Random, tag: int) -> int:
    return TRACE.pack({field.name: rng.randrange(1 << field.width) for field in TRACE.fields} | {"tag": tag})


#: The counters of a chip without `ecc`.
PLAIN = counters_of(chip(4))


class Reader:
    """Reads words through the port one a cycle, from cycle `start` on; `words` holds the answers."""

    def __init__(self, unit: Trace, reads: list[tuple[Region, int]], start: int) -> None:
        self.unit, self.reads, self.start = unit, reads, start
        self.words: list[int] = []

    @property
    def cycles(self) -> int:
        return self.start + len(self.reads) + 2

    def before(self, cycle: int, context: Any) -> None:
        at = cycle - self.start
        reading = 0 <= at < len(self.reads)
        context.set(self.unit.read.valid, reading)
        if reading:
            region, offset = self.reads[at]
            context.set(self.unit.read.region, int(region))
            context.set(self.unit.read.offset, offset)

    def after(self, cycle: int, context: Any) -> None:
        if 0 <= cycle - 1 - self.start < len(self.reads):  # a read in cycle t answers in t + 1
            self.words.append(context.get(self.unit.read_data))


def join(words: list[int], lanes: int) -> int:
    """Little-endian words as one number."""
    return sum(word << 8 * lanes * i for i, word in enumerate(words))


def read_back(
    unit: Trace,
    sources: list[Source],
    start: int,
    lanes: int,
    records: int,
    *,
    enable: bool = True,
    gated: bool = False,
    strobes: dict[Counter, set[int]] | None = None,
    totals: dict[Counter, int] | None = None,
) -> tuple[list[int], dict[Counter, int]]:
    """Records and counters, read from cycle `start` on. `strobes`: cycles in which a counter counts."""
    config = unit.config
    reads = [(Region.TRACE, i) for i in range(records * config.trace_words)]
    reads += [(Region.STATS, i) for i in range(stats_words(config))]
    reader = Reader(unit, reads, start)

    def before(cycle: int, context: Any) -> None:
        context.set(unit.enable, enable)
        expected = [cycle in (strobes or {}).get(counter, set()) for counter in STROBED]
        context.set(unit.count, sum(on << i for i, on in enumerate(expected)))
        if cycle == 0:
            for counter, value in (totals or {}).items():
                context.set(unit.total(counter), value)
        reader.before(cycle, context)

    simulate(unit, reader.cycles, sources, [], [], before, reader.after, gated=gated)
    per = config.trace_words
    mask = (1 << 128) - 1
    result = [join(reader.words[i * per : i * per + per], lanes) & mask for i in range(records)]
    stats = join(reader.words[records * per :], lanes)
    return result, {counter: stats >> 32 * counter & 0xFFFFFFFF for counter in counters_of(config)}


@pytest.mark.parametrize("lanes", LANES)
def test_records_are_read_oldest_first(lanes: int) -> None:
    """One record a cycle, lower ports first; with 8 and 32 lanes the registers stop when the block is not `active`."""
    rng = random.Random(lanes)
    unit = Trace(chip(lanes), 3)
    payloads = [[record(rng, 100 * port + i) for i in range(4)] for port in range(3)]
    sources = [back_to_back(unit.record(port), payloads[port]) for port in range(3)]
    result, counters = read_back(unit, sources, 20, lanes, 12, gated=lanes in (8, 32))
    assert [source.taken for source in sources] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert result == [*payloads[0], *payloads[1], *payloads[2]]
    assert counters == dict.fromkeys(PLAIN, 0) | {Counter.RECORDS: 12}


@pytest.mark.parametrize("lanes", [4, 64])
def test_records_that_come_in_at_random(lanes: int) -> None:
    rng = random.Random(lanes)
    unit = Trace(chip(lanes, 64), 4)
    payloads = [[record(rng, i) for i in range(10)] for _ in range(4)]
    sources = [back_to_back(unit.record(port), payloads[port], sometimes(rng, 0.3)) for port in range(4)]
    result, counters = read_back(unit, sources, 150, lanes, 40, gated=True)
    taken = sorted((cycle, payload) for source, own in zip(sources, payloads, strict=True)
                   for cycle, payload in zip(source.taken, own, strict=True))  # fmt: skip
    assert len({cycle for cycle, _ in taken}) == 40  # one a cycle
    assert result == [payload for _, payload in taken]
    assert counters[Counter.RECORDS] == 40


def test_what_comes_after_the_memory_is_full_is_counted_and_dropped() -> None:
    rng = random.Random(5)
    unit = Trace(chip(16), 1)
    payloads = [record(rng, i) for i in range(21)]
    source = back_to_back(unit.record(0), payloads)
    result, counters = read_back(unit, [source], 30, 16, 16)
    assert source.taken == list(range(21))  # nobody is held up by a full memory
    assert result == payloads[:16]
    assert counters[Counter.RECORDS] == 21


def test_nothing_is_recorded_unless_enabled() -> None:
    rng = random.Random(6)
    unit = Trace(chip(16), 1)
    source = back_to_back(unit.record(0), [record(rng, i) for i in range(3)])
    _, counters = read_back(unit, [source], 20, 16, 0, enable=False)
    assert source.taken == [0, 1, 2]  # and nobody is held up
    assert counters == dict.fromkeys(PLAIN, 0)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize(("gated", "ecc"), [(False, False), (True, False), (True, True)])
def test_counters_lie_one_behind_the_other(lanes: int, gated: bool, ecc: bool) -> None:
    rng = random.Random(lanes)
    config = chip(lanes).model_copy(update={"ecc": ecc})
    unit, some = Trace(config, 1), counters_of(config)
    strobes = {counter: {cycle for cycle in range(60) if rng.random() < 0.5} for counter in STROBED}
    totals = {counter: rng.randrange(1 << 32) for counter in TOTALS if counter in some}
    _, counters = read_back(unit, [], 70, lanes, 0, strobes=strobes, totals=totals, gated=gated)
    expected = {Counter.RECORDS: 0} | {counter: len(cycles) for counter, cycles in strobes.items()} | totals
    assert counters == {counter: expected[counter] for counter in some}


def test_every_counter_is_either_strobed_or_a_total() -> None:
    assert sorted([Counter.RECORDS, *STROBED, *TOTALS]) == list(Counter)
    assert 4 * len(PLAIN) == STATS_BYTES
    assert 4 * len(Counter) == STATS_BYTES + ECC_STATS_BYTES
    coded = [chip(lanes).model_copy(update={"ecc": True}) for lanes in LANES]
    assert [stats_words(each) for each in coded] == [23, 12, 6, 3, 2]
    assert [stats_words(chip(lanes)) for lanes in LANES] == [22, 11, 6, 3, 2]


def test_an_answer_stays_until_the_next_read() -> None:
    """The mover may take it later than in the next cycle only if nobody reads meanwhile."""
    unit = Trace(chip(4), 1)
    seen = []

    def before(cycle: int, context: Any) -> None:
        if cycle == 0:
            context.set(unit.total(Counter.MOVER_WAIT), 11)
            context.set(unit.total(Counter.MOVER_BLOCKED), 22)
        context.set(unit.read.valid, cycle in (3, 7))
        context.set(unit.read.region, int(Region.STATS))
        context.set(unit.read.offset, 1 if cycle < 7 else 2)

    simulate(unit, 12, before=before, after=lambda cycle, context: seen.append(context.get(unit.read_data)))
    assert seen[4:8] == [11] * 4
    assert seen[8:] == [22] * 4


@pytest.mark.parametrize("lanes", LANES)
def test_without_records_all_are_taken_and_statistics_are_zero(lanes: int) -> None:
    """Every port at once; what the mover does is still counted, for the host."""
    unit = Trace(chip(lanes, 0), 3)
    rng = random.Random(lanes)
    sources = [back_to_back(unit.record(i), [record(rng, tag) for tag in range(20)]) for i in range(3)]
    reads = [(Region.STATS, i) for i in range(stats_words(unit.config))]
    reader = Reader(unit, reads, 30)
    counts: list[int] = []

    def before(cycle: int, context: Any) -> None:
        context.set(unit.enable, 1)
        context.set(unit.count, 0b101 if cycle < 7 else 0)
        reader.before(cycle, context)

    def after(cycle: int, context: Any) -> None:
        counts[:] = [context.get(unit.counts[i]) for i in range(len(STROBED))]
        reader.after(cycle, context)

    simulate(unit, reader.cycles, sources, [], [], before, after, gated=True)
    assert all(source.taken == list(range(20)) for source in sources)
    assert (reader.words, counts) == ([0] * len(reads), [7, 0, 7])
