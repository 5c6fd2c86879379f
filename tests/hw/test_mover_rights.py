"""The mover in chips on which several programs run: what a MOVE may reach; nothing else is touched or held up."""

from __future__ import annotations

import random
from typing import Any

import pytest

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.isa import INSTRUCTIONS, PAGE_WORDS, Cause, Opcode, Region, address
from meshloom.hw.wiring.rights import Pages, Rights

from .mover_bench import HERE, MOVE, Outcome, check_words, expected, move, random_move, run
from .unit_bench import bits, sometimes

CORE, DRAM = TileKind.CORE, TileKind.DRAM


def chip(lanes: int = 4, **noc: Any) -> ChipConfig:
    floorplan = ["dram core core", "host core dram"]
    values = {
        "name": "t",
        "lanes": lanes,
        "floorplan": floorplan,
        "dram": {"bytes_per_cycle": 4},
        "programs": 2,
        "noc": noc,
    }
    return ChipConfig.model_validate(values)


CHIP, WIDE = chip(), chip(128)
#: The other core of the program, one of another program, and tiles of everybody.
PEER, STRANGER, HOST, NEAR = 0x01, 0x02, 0x10, 0x12
assert CHIP.cores == (PEER, STRANGER, HERE)
#: Its pages of every dram tile.
FIRST, END = 2, 4
BEGIN, BEYOND = FIRST * PAGE_WORDS, END * PAGE_WORDS
PAGES = bits(Pages, first_page=FIRST, end_page=END)
RIGHTS = bits(Rights, cores=0b101, slot=1, pages=PAGES)
AFTER = move(tag=99, words=2, src=address(Region.OUT, 7), dst_tile=PEER)


def own(**values: int) -> int:
    return move(**({"src": address(Region.OUT, 5), "dst_tile": PEER, "tag": 7} | values))


def pull(**values: int) -> int:
    return move(**({"src_tile": NEAR, "src": BEGIN, "dst_tile": HERE, "tag": 7} | values))


def causes(out: Outcome) -> list[tuple[int, int, int]]:
    """Faults, those that are repeated while nothing goes on counted once."""
    result: list[tuple[int, int, int]] = []
    for _, fault in out.faults:
        if (one := (fault["cause"], fault["tag"], fault["value"])) not in result[-1:]:
            result.append(one)
    return result


# -- tiles ------------------------------------------------------------------------------------------------------------

FORBIDDEN = {
    "writes to another core": (own(dst_tile=STRANGER), STRANGER),
    "writes to the host": (own(dst_tile=HOST), HOST),
    "notifies another core": (own(notify=1, notify_tile=STRANGER), PEER),
    "notifies the host": (own(notify=1, notify_tile=HOST), PEER),
    "notifies a dram tile": (own(dst_tile=NEAR, dst=BEGIN, notify=1, notify_tile=NEAR), NEAR),
    "pulls from another core": (pull(src_tile=STRANGER, src=0), STRANGER),
    "pulls from the host": (pull(src_tile=HOST, src=0), HOST),
    "pulls for its other core": (pull(dst_tile=PEER), NEAR),
    "pulls for another core": (pull(dst_tile=STRANGER), NEAR),
    "pulls from one dram tile to another": (pull(dst_tile=0x00), NEAR),
    "pulls and notifies another core": (pull(notify=1, notify_tile=STRANGER), NEAR),
    "pulls and notifies the dram tile": (pull(notify=1, notify_tile=NEAR), NEAR),
    "posts to a dram tile": (pull(post_sem=3, post_n=1), NEAR),
}
ALLOWED = {
    "itself": own(dst_tile=HERE, notify=1, notify_tile=HERE),
    "its other core": own(notify=1, notify_tile=PEER, post_sem=3, post_n=2),
    "a tile that is not notified": own(notify_tile=STRANGER),
    "the first of its words of DRAM": own(dst_tile=NEAR, dst=BEGIN, notify=1, notify_tile=HERE),
    "the last of its words of DRAM": own(dst_tile=0x00, dst=BEYOND - 2, words=2, notify=1, notify_tile=PEER),
}
PULLED = {
    "from DRAM": pull(notify=1, notify_tile=PEER, words=9),
    "from its other core": pull(src_tile=PEER, src=3, post_sem=3, post_n=1, notify=1, notify_tile=HERE),
    "from DRAM outside of its pages": pull(src=0),  # the dram tile says so
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_move_to_other_tiles_is_dropped_and_the_next_goes_on(name: str) -> None:
    code, value = FORBIDDEN[name]
    out = run(CORE, [code, AFTER], config=CHIP, rights=RIGHTS, starts=[20, 21])
    assert (out.own[0], len(out.faults)) == (20, 1)
    assert (causes(out), out.offenders) == ([(Cause.RIGHTS, 7, value)], [None])
    assert (out.forward, out.post) == ([], [])
    check_words(out, [AFTER])
    assert [record["tag"] for _, record in out.record] == [99]


@pytest.mark.parametrize("name", FORBIDDEN)
def test_the_host_may_do_all_that(name: str) -> None:
    """Without limits, whatever pages are given, the MOVE is carried out, or asked for without limits."""
    code, _ = FORBIDDEN[name]
    for rights in (0, bits(Rights, cores=0, slot=1, pages=PAGES)):
        out = run(CORE, [code, AFTER], config=CHIP, rights=rights)
        assert out.faults == []
        if MOVE.unpack(code)["src_tile"] == HERE:
            check_words(out, [code, AFTER])
        else:
            assert [request["code"] for _, request in out.forward] == [code]


@pytest.mark.parametrize("name", ALLOWED)
def test_a_move_to_the_tiles_of_the_program(name: str) -> None:
    out = run(CORE, [ALLOWED[name], AFTER], config=CHIP, rights=RIGHTS)
    assert out.faults == []
    check_words(out, [ALLOWED[name], AFTER])


@pytest.mark.parametrize("name", PULLED)
def test_a_pull_says_which_pages_are_the_programs(name: str) -> None:
    out = run(CORE, [PULLED[name]], config=CHIP, rights=RIGHTS)
    assert out.faults == []
    assert [request["code"] for _, request in out.forward] == [PULLED[name] | MOVE.pack({"fire_at": PAGES})]


@pytest.mark.parametrize("field", ["words", "src_run", "dst_run"])
@pytest.mark.parametrize("rights", [RIGHTS, 0])
def test_a_pull_without_words_is_a_fault_where_it_is_issued(field: str, rights: int) -> None:
    """Another tile could not say whose it was."""
    code = pull(**({"words": 4, "src_run": 4, "dst_run": 4} | {field: 0}))
    out = run(CORE, [code, AFTER], config=CHIP, rights=rights)
    assert (causes(out), out.forward) == ([(Cause.SHAPE, 7, MOVE.unpack(code)["words"])], [])
    check_words(out, [AFTER])


def test_other_faults_hold_nothing_up_either() -> None:
    fetch = INSTRUCTIONS[Opcode.FETCH].pack({"opcode": Opcode.FETCH, "tag": 3, "tile": 0x33, "count": 1})
    codes = [own(dst_tile=0x33), pull(src_tile=0x34, tag=8), own(words=0, src_run=1, dst_run=1, tag=9), fetch, AFTER]
    out = run(CORE, codes, config=CHIP)
    target = [(Cause.DESTINATION, 7, 0x33), (Cause.DESTINATION, 8, 0x34), (Cause.SHAPE, 9, 0)]
    assert causes(out) == [*target, (Cause.DESTINATION, 3, 0x33)]
    check_words(out, [AFTER])


# -- packets to DRAM --------------------------------------------------------------------------------------------------


def landing(code: int, config: ChipConfig = CHIP) -> tuple[dict[tuple[int, int], int], set[int]]:
    """Where the words of a MOVE to DRAM end up, and the addresses of packets that were not allowed."""
    result: dict[tuple[int, int], int] = {}
    wrong: set[int] = set()
    packet, before = 0, -2
    for (tile, at), word in expected(code):
        if at != before + 1 or at % config.packet_words == 0:
            packet = at
        before = at
        inside = at >> 24 == Region.MAIN and BEGIN <= at < BEYOND
        if not inside:
            wrong.add(packet)
        result[tile, at if inside else BEGIN + at % config.packet_words] = word
    return result, wrong


PUSHES = {
    "the word before its first": {"dst": BEGIN - 1},
    "up to its first": {"dst": BEGIN - 1, "words": 2},
    "the word after its last": {"dst": BEYOND},
    "across its end": {"dst": BEYOND - 100, "words": 200},
    "a run across its end": {"dst": BEYOND - 10, "words": 40, "dst_run": 20, "dst_stride": 30},
    "runs of which the last two are outside": {"dst": BEGIN, "words": 12, "dst_run": 4, "dst_stride": (1 << 20) - 64},
    "runs whose next one would be outside": {"dst": BEYOND - 40, "words": 8, "dst_run": 4, "dst_stride": 30},
    "other memories": {"dst": address(Region.STATS, BEGIN), "words": 3},
    "the rings of the dram tile": {"dst": address(Region.RING_MOVER, BEGIN)},
    "the last words of all": {"dst": (1 << 24) - 3, "words": 3},
}


@pytest.mark.parametrize("name", PUSHES)
@pytest.mark.parametrize("slow", [False, True])
def test_what_is_written_outside_of_the_pages_lands_in_the_first(name: str, slow: bool) -> None:
    code = own(
        **({"dst_tile": NEAR, "src": 0 | address(Region.OUT, 0), "notify": 1, "notify_tile": HERE} | PUSHES[name])
    )
    out = run(
        CORE, [code, AFTER], config=CHIP, rights=RIGHTS, cycles=2000, until_records=2,
        data=sometimes(random.Random(3), 0.3) if slow else None,
    )  # fmt: skip
    target, wrong = landing(code)
    written = out.written()
    assert written.items() >= target.items()
    assert {at for tile, at in written if tile == NEAR} == {at for _, at in target}
    assert causes(out) == [(Cause.RIGHTS, 7, at) for at in sorted(wrong, key=[a for (_, a), _ in expected(code)].index)]
    assert sum(packet.head["notify"] for packet in out.packets) == 1, "it completes"
    assert len(out.record) == 2


@pytest.mark.parametrize(("config", "seed"), [(CHIP, 1), (CHIP, 2), (CHIP, 3), (WIDE, 4)])
def test_random_moves_of_a_program_stay_in_its_pages(config: ChipConfig, seed: int) -> None:
    rng = random.Random(seed)
    codes = []
    for tag in range(1, 15):
        code = MOVE.unpack(random_move(rng, CORE, tag))
        code |= {
            "dst_tile": rng.choice((0x00, NEAR, PEER)),
            "dst": rng.choice((BEGIN, BEYOND)) + rng.randrange(-150, 150),
        }
        code |= {"dst_stride": rng.randrange(300), "notify_tile": PEER}
        codes.append(MOVE.pack(code))
    moods: dict[str, Any] = {name: sometimes(rng, 0.7) for name in ("offer", "data", "post", "record", "read")}
    posts = sum(MOVE.unpack(code)["post_n"] > 0 for code in codes)
    out = run(
        CORE, codes, config=config, rights=RIGHTS, cycles=6000, until_records=len(codes), until_posts=posts,
        gated=seed == 2, **moods,
    )  # fmt: skip
    written = {at for tile, at in out.written() if tile != PEER}
    assert min(written) >= BEGIN
    assert max(written) < BEYOND
    message = {(fault["tag"], fault["value"]) for _, fault in out.faults}
    to_dram = [code for code in codes if MOVE.unpack(code)["dst_tile"] != PEER]
    assert message == {(MOVE.unpack(code)["tag"], at) for code in to_dram for at in landing(code, config)[1]}
    sent = [(packet.head["dst_tile"], word) for packet in out.packets for word in packet.words]
    assert sent == [(tile, word) for code in codes for (tile, _), word in expected(code)]


def test_without_limits_data_goes_where_it_is_sent() -> None:
    codes = [own(**({"dst_tile": NEAR} | values)) for values in PUSHES.values()]
    out = run(CORE, codes, config=CHIP, cycles=1500, until_records=len(codes))
    assert out.faults == []
    check_words(out, codes)


# -- the end of a stream ----------------------------------------------------------------------------------------------


def test_the_next_stream_does_not_inherit_a_route() -> None:
    chip_of_two = chip(data_vcs=2)
    route = INSTRUCTIONS[Opcode.ROUTE].pack({"opcode": Opcode.ROUTE, "tag": 3, "channel": 1})
    plain = chip_of_two.channel_of(PEER)
    for clears, target in (((), 0), ((40,), plain)):
        for gated in (False, True):
            out = run(CORE, [route, AFTER], config=chip_of_two, starts=[20, 50], clears=clears, gated=gated)
            assert [packet.vc for packet in out.packets] == [target]
    assert plain != 0


def test_the_next_streams_instruction_begins_when_it_comes() -> None:
    """One that waits for the network when its stream is ended leaves nothing behind in the record of the next."""
    out = run(CORE, [pull()], config=CHIP, starts=[20], clears=[30], forward=lambda cycle: cycle >= 40)
    assert [(record["start"], record["end"]) for _, record in out.record] == [(31, 41)]


def test_a_move_that_has_been_taken_is_carried_out_after_the_end_of_its_stream() -> None:
    """All of it, with the rights that it had; only its memories know when it is over (`serving.flush`)."""
    code = own(words=80, dst_tile=NEAR, dst=BEYOND - 40, notify=1, notify_tile=HERE)
    out = run(CORE, [code], config=CHIP, rights=RIGHTS, starts=[20], clears=[22, 50], cycles=200)
    assert out.written() == landing(code)[0]
