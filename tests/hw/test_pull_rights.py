"""What pulls may read in chips on which several programs run, and what they read instead; see `test_mover_rights`."""

from __future__ import annotations

import random
from typing import Any

import pytest

from meshloom.hw.spec.config import TileKind
from meshloom.hw.spec.isa import PAGE_WORDS, Cause, Region, address
from meshloom.hw.wiring.rights import Pages

from .mover_bench import HERE, MOVE, REGIONS, check_words, move, run, word_of
from .test_mover_rights import AFTER, BEGIN, BEYOND, CHIP, NEAR, PAGES, PEER, RIGHTS, STRANGER, causes, pull
from .unit_bench import bits, sometimes

CORE, DRAM = TileKind.CORE, TileKind.DRAM
#: Words of a dram tile whose last page is not whole, as no memory need be.
DEPTHS = {Region.MAIN: 5 * PAGE_WORDS + 100, Region.TRACE: 64, Region.STATS: 3}


def requested(code: int, pages: int = PAGES) -> int:
    """As a dram tile receives a pull."""
    return code | MOVE.pack({"fire_at": pages})


# -- reads of DRAM ----------------------------------------------------------------------------------------------------


def source(code: int) -> tuple[list[int], int | None]:
    """Addresses that a pull reads in a dram tile, and where it first was not allowed to (None: nowhere)."""
    f = MOVE.unpack(code)
    result: list[int] = []
    for i in range(f["words"]):
        at = f["src"] + i // f["src_run"] * f["src_stride"] + i % f["src_run"]
        if not (BEGIN <= at < BEYOND):
            return [*result, *(BEGIN + j % (BEYOND - BEGIN) for j in range(f["words"] - i))], at
        result.append(at)
    return result, None


PULLS = {
    "its first and last words": {"src": BEGIN, "words": 4, "src_run": 2, "src_stride": BEYOND - BEGIN - 2},
    "the word before its first": {"src": BEGIN - 1},
    "up to its first": {"src": BEGIN - 1, "words": 70},
    "the word after its last": {"src": BEYOND},
    "a run across its end": {"src": BEYOND - 100, "words": 200},
    "strided runs across its end": {"src": BEYOND - 10, "words": 40, "src_run": 4, "src_stride": 7},
    "runs that leave": {"src": BEGIN + 5, "words": 12, "src_run": 4, "src_stride": 2 * PAGE_WORDS},
    "past the memory": {"src": 5 * PAGE_WORDS + 90, "words": 20},
    "the last words of all": {"src": (1 << 24) - 3, "words": 3},
}


@pytest.mark.parametrize("name", PULLS)
def test_what_is_read_outside_of_the_pages_is_read_in_the_first(name: str) -> None:
    """The pull completes, so that nobody waits for it; its core is named; the next pull is another's."""
    code = pull(notify=1, notify_tile=HERE, **PULLS[name])
    other = pull(tag=9, src=7, words=3, dst_tile=STRANGER)
    out = run(
        DRAM, [], [requested(code), requested(other, bits(Pages, first_page=0, end_page=1))], config=CHIP,
        regions=DEPTHS, cycles=600, until_records=2,
    )  # fmt: skip
    addresses, wrong = source(code)
    words = [word for packet in out.packets for word in packet.words]
    assert words == [word_of(at) for at in (*addresses, 7, 8, 9)]
    assert causes(out) == ([] if wrong is None else [(Cause.RIGHTS, 7, wrong)])
    assert set(out.offenders) <= {HERE}
    assert len(out.faults) <= 1
    assert [packet.head["notify"] for packet in out.packets][-2:] == [1, 0]


def test_a_pull_that_always_leaves_its_page_wraps_round() -> None:
    pages = bits(Pages, first_page=3, end_page=4)
    words = 3 * PAGE_WORDS
    out = run(
        DRAM,
        [],
        [requested(pull(words=words, src=9), pages)],
        config=CHIP,
        regions=DEPTHS,
        cycles=4000,
        until_records=1,
    )
    result = [word for packet in out.packets for word in packet.words]
    assert result == [word_of(3 * PAGE_WORDS + i % PAGE_WORDS) for i in range(words)]
    assert causes(out) == [(Cause.RIGHTS, 7, 9)]


@pytest.mark.parametrize("region", [Region.STATS, Region.TRACE, Region.ACC, Region.RING_MOVER])
def test_other_memories_of_a_dram_tile_are_nobodys(region: Region) -> None:
    """What is read instead are its counters, from the first on; the pull completes."""
    code = pull(src=address(region, 1), words=7)
    out = run(DRAM, [], [requested(code)], config=CHIP, regions=DEPTHS, until_records=1)
    assert causes(out) == [(Cause.RIGHTS, 7, address(region, 1))]
    assert out.offenders == [HERE]
    stats = address(Region.STATS, 0)
    assert [word for packet in out.packets for word in packet.words] == [word_of(stats + i % 3) for i in range(7)]


@pytest.mark.parametrize("src", [0, 9 * PAGE_WORDS // 2, address(Region.STATS, 0), address(Region.TRACE, 3)])
def test_requests_without_limits_read_everything(src: int) -> None:
    code = pull(src=src, words=3)
    out = run(DRAM, [], [requested(code, 0)], config=CHIP, regions=DEPTHS)
    assert out.faults == []
    check_words(out, [code])


def test_requests_without_limits_past_the_memory_begin_again_too() -> None:
    """They name no tile; this is the host's fault."""
    code = pull(src=5 * PAGE_WORDS + 90, words=20, src_run=10, src_stride=5)
    out = run(DRAM, [], [requested(code, 0), requested(pull(tag=8), 0)], config=CHIP, regions=DEPTHS, cycles=200)
    assert causes(out) == [(Cause.ADDRESS, 7, 5 * PAGE_WORDS + 95)]
    assert set(out.offenders) == {None}
    assert [record["tag"] for _, record in out.record] == [7, 8]


def test_a_fault_is_raised_until_it_is_heard() -> None:
    """Meanwhile nothing is read, so the fault of one request never hides that of another."""
    codes = [requested(pull(src=0, tag=tag, words=2, dst_tile=tile)) for tag, tile in ((7, HERE), (8, PEER))]
    out = run(DRAM, [], codes, config=CHIP, regions=DEPTHS, heard=lambda cycle: cycle in (30, 60), cycles=120)
    assert [(cycle, name) for (cycle, _), name in zip(out.faults, out.offenders, strict=True) if cycle in (30, 60)] == [
        (30, HERE), (60, PEER)
    ]  # fmt: skip
    assert causes(out) == [(Cause.RIGHTS, 7, 0), (Cause.RIGHTS, 8, 0)]
    assert max(cycle for cycle, _ in out.faults) == 60
    assert out.packets[0].first > 30
    assert out.packets[1].first > 60


@pytest.mark.parametrize("seed", [1, 2])
def test_random_pulls_stay_in_the_pages_of_their_programs(seed: int) -> None:
    rng = random.Random(seed)
    codes = []
    for tag in range(1, 16):
        words = rng.choice((1, 5, 64, 130))
        run_length = rng.choice((3, 20, words))
        start = rng.choice((BEGIN, BEYOND)) + rng.randrange(-200, 200)
        codes.append(
            pull(
                tag=tag,
                src=start,
                words=words,
                src_run=run_length,
                src_stride=rng.randrange(90),
                dst_tile=rng.choice((HERE, PEER)),
            )
        )
    moods: dict[str, Any] = {name: sometimes(rng, 0.6) for name in ("offer", "data", "record", "burst", "heard")}
    out = run(
        DRAM, [], [requested(code) for code in codes], config=CHIP, regions=DEPTHS, cycles=8000,
        until_records=len(codes), gated=seed == 2, latency=lambda: rng.randint(1, 20), **moods,
    )  # fmt: skip
    expected = [source(code) for code in codes]
    words = [word for packet in out.packets for word in packet.words]
    assert words == [word_of(at) for addresses, _ in expected for at in addresses]
    message = [(fault["tag"], fault["value"], name) for (_, fault), name in zip(out.faults, out.offenders, strict=True)]
    fields = [MOVE.unpack(code) for code in codes]
    wrong = [(f["tag"], at, f["dst_tile"]) for f, (_, at) in zip(fields, expected, strict=True) if at is not None]
    assert list(dict.fromkeys(message)) == wrong


# -- reads of a core --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mine", [True, False])
@pytest.mark.parametrize("rights", [RIGHTS, 0])
def test_a_core_that_reads_past_its_memory_goes_on(mine: bool, rights: int) -> None:
    """It names itself, or the core whose pull it was; counters are read instead."""
    depth = REGIONS[CORE][Region.OUT]
    code = move(
        src=address(Region.OUT, depth - 2), words=9, tag=7, dst_tile=NEAR if mine else PEER, dst=BEGIN, src_tile=HERE
    )
    request = requested(code, PAGES if rights else 0)
    out = run(CORE, [code, AFTER] if mine else [AFTER], [] if mine else [request], config=CHIP, rights=rights)
    assert causes(out) == [(Cause.ADDRESS, 7, address(Region.OUT, depth))]
    named = [name if name is not None else HERE for name in out.offenders]
    assert named == [HERE if mine or not rights else PEER]
    words = [word_of(address(Region.OUT, depth - 2 + i)) for i in range(2)]
    words += [word_of(address(Region.STATS, i % 3)) for i in range(7)]
    assert [packet.words for packet in out.packets if len(packet.words) == 9] == [words]
    assert {record["tag"] for _, record in out.record} == {7, 99}
