"""The model of a channel with banks: against a plain reference, and against what follows from the times of the data
sheets in closed form: latencies of a read, bandwidth of a stream, of random rows, and where reads and writes take
turns."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.contracts import read_ahead, read_latency
from meshloom.hw.spec.dram_banks import BankCycles
from meshloom.sched.model.banks import Banks
from meshloom.sched.model.latency import LatencyError, landing

from ...dram_reference import Reference
from ...tiers import slow_but


def with_banks(part: str = "lpddr4_3200", clock: float = 800.0, **banks: object) -> ChipConfig:
    """quad16 with a DRAM that has banks: 12.8 GB/s a channel at 800 MHz."""
    values = load("quad16").model_dump() | {"name": "banked", "clock_mhz": clock}
    rate = 16 if part == "lpddr4_3200" else 4
    return ChipConfig.model_validate(
        values | {"dram": {"bytes_per_cycle": rate, "latency": 11, "banks": {"part": part} | banks}}
    )


LPDDR4, DDR3 = with_banks(), with_banks("ddr3_1600")
CHIPS = {"lpddr4": LPDDR4, "ddr3": DDR3}


def times_of(chip: ChipConfig) -> BankCycles:
    times = chip.bank_cycles
    assert times is not None
    return times


def ends(banks: Banks, bursts: Iterable[tuple[bool, int, int]]) -> list[int]:
    """When the data of bursts have been on the bus, each taken as soon as the controller takes it: whether it is a
    write, first word, words."""
    now, result = 0, list[int]()
    for write, word, words in bursts:
        while banks.refreshed(now) or banks.bus > now + banks.window:
            now += 1
        result.append(banks.take(word, words, write, now))
        now += 1
    return result


@pytest.mark.parametrize("seed", slow_but(range(6), 0))
def test_random_bursts_take_what_the_reference_says(seed: int) -> None:
    random = Random(seed)
    chip = with_banks(random.choice(("lpddr4_3200", "ddr3_1600")), turn_after=random.choice((1, 3, 8)), t_refi=1500.0)
    banks, reference = Banks(chip), Reference(chip)
    offered = list[list[tuple[int, int, int]]]()
    for _ in range(2):
        cycles = sorted(random.randrange(4000 if seed == 0 else 8000) for _ in range(70 if seed == 0 else 150))
        starts = [random.choice((0, 64, 4096, 32768)) + 64 * random.randrange(8) for _ in cycles]
        offered.append([(at, word, random.choice((1, 7, 64))) for at, word in zip(cycles, starts, strict=True)])
    for burst in reference.play(*offered):
        assert not banks.refreshed(burst.at)
        _, word, words = offered[burst.write][burst.number]
        assert banks.take(word, words, burst.write, burst.at) == burst.end
    assert (banks.hits, banks.misses, banks.conflicts) == tuple(reference.kinds.values())
    assert min(reference.kinds.values()) > 10
    assert banks.refreshes > 2


@pytest.mark.parametrize("name", CHIPS)
def test_a_read_alone_takes_what_its_row_takes(name: str) -> None:
    chip = CHIPS[name]
    banks, t = Banks(chip), times_of(chip)
    row = t.row_words * banks.count  # words from a row of a bank to the next
    first, words = chip.packet_words * chip.lanes // banks.rate, chip.packet_words
    latencies = list[int]()
    for now, word in ((0, 0), (500, words), (1000, row), (1500, row + words), (2000, t.row_words)):
        latencies.append(banks.take(word, words, False, now) - first - now)
    assert latencies == [t.rcd + t.cl, t.cl, t.rp + t.rcd + t.cl, t.cl, t.rcd + t.cl]
    assert (banks.hits, banks.misses, banks.conflicts) == (2, 2, 1)
    # in nanoseconds, to a cycle for each time: CL 17.5, RCD 18, RP 18 for LPDDR4; 13.75 each for DDR3
    assert chip.clock_mhz is not None
    sheet = {"lpddr4": 53.5, "ddr3": 41.25}[name]
    assert sheet <= latencies[2] * 1000 / chip.clock_mhz < sheet + 3 * 1000 / chip.clock_mhz


@pytest.mark.parametrize("name", CHIPS)
def test_a_stream_has_the_bandwidth_that_refreshes_leave(name: str) -> None:
    chip = CHIPS[name]
    banks, t = Banks(chip), times_of(chip)
    words = chip.packet_words
    cycles = words * chip.lanes // banks.rate
    count = 20 * t.refi // cycles
    end = ends(banks, ((False, words * at, words) for at in range(count)))[-1]
    # no row costs anything but the first one and those after a refresh
    lost = t.rtp - t.block + t.rp + t.rfc + t.rcd
    assert end == t.rcd + t.cl + count * cycles + banks.refreshes * lost
    assert banks.refreshes >= 20
    assert banks.conflicts * t.row_words < count * words
    # of the data sheets: RFC / REFI is what a refresh takes at least, 4.6 % and 3.3 %
    share = count * cycles / end
    assert 1 - 1.5 * t.rfc / t.refi < share < 1 - t.rfc / t.refi
    peak = banks.rate * (chip.clock_mhz or 0) / 1000
    assert peak == {"lpddr4": 12.8, "ddr3": 3.2}[name]


@pytest.mark.parametrize("name", CHIPS)
def test_rows_of_one_bank_follow_each_other_in_a_row_cycle(name: str) -> None:
    chip = CHIPS[name]
    banks, t = Banks(chip), times_of(chip)
    row = t.row_words * banks.count
    words = banks.access // chip.lanes
    some = ends(banks, ((False, row * (at % 2), words) for at in range(40)))
    assert banks.conflicts == 39
    steps = {after - before for before, after in zip(some, some[1:], strict=False)}
    # RAS + RP, or for a longer burst until its last column command, RTP and RP
    assert steps == {max(t.ras, t.rcd + t.rtp) + t.rp}
    long = ends(other := Banks(chip), ((False, row * (at % 2), chip.packet_words) for at in range(10)))
    cycles = other.length(0, chip.packet_words)
    assert long[-1] - long[0] == 9 * (max(t.ras, t.rcd + cycles - t.block + t.rtp) + t.rp)


@pytest.mark.parametrize("name", CHIPS)
def test_rows_of_all_banks_are_bound_by_activates(name: str) -> None:
    chip = CHIPS[name]
    banks, t = Banks(chip), times_of(chip)
    words = max(1, banks.access // chip.lanes)
    hop = t.row_words * (banks.count + 1)  # the next row of the next bank
    some = ends(banks, ((False, hop * at, words) for at in range(64)))
    assert banks.hits == 0
    # four activates in FAW, eight banks in a row cycle, and a burst of data each
    each = max(t.rrd, t.faw / 4, (t.ras + t.rp) / 8, banks.length(0, words))
    assert (some[-1] - some[31]) / 32 == pytest.approx(each, abs=0.5)
    assert (some[-1] - some[31]) / 32 >= t.faw / 4


@pytest.mark.parametrize("turn_after", [1, 4, 16])
def test_turns_cost_what_the_data_bus_needs(turn_after: int) -> None:
    chip = with_banks(turn_after=turn_after, t_refi=1e6)
    banks, t = Banks(chip), times_of(chip)
    words, order = chip.packet_words, list[tuple[bool, int, int]]()
    banks.take(0, words, False, 0)
    banks.run = turn_after
    # both kinds always wait
    for _ in range(4 * turn_after):
        write = banks.writes(True, True)
        order.append((write, 0, words))
        ends(banks, order[-1:])
    end = banks.bus
    rounds = 2
    each = 2 * turn_after * words + t.rtw + t.wtr + t.cl
    assert [write for write, _, _ in order] == ([True] * turn_after + [False] * turn_after) * rounds
    assert end == t.rcd + t.cl + words + rounds * each
    assert banks.turns == 2 * rounds


def test_banks_are_said_where_latencies_are() -> None:
    t = times_of(LPDDR4)
    assert read_latency(LPDDR4) == 11 + t.rp + t.rcd + t.cl
    assert read_ahead(LPDDR4) == 64 + 64
    with pytest.raises(LatencyError, match=r"DRAM has banks \(dram.banks\): what a read takes depends on which rows"):
        landing(LPDDR4, 1, 8, from_dram=True)
    with pytest.raises(ValueError, match="quad16's DRAM has no banks"):
        Banks(load("quad16"))
