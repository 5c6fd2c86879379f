"""Races, one by one: which pairs of accesses nothing orders, which are ordered after all, and where words were never
written. Each is a program that runs, and is wrong in some timing only."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from meshloom.hw.spec.isa import Region, Unit
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.program.program import Instruction

from ..hand_made import CORE, DRAM, LOADED, MATRIX, MOVER, SPM, TINY, at, fed, gemm, move, problems, program, sync

Codes = dict[tuple[int, Unit], list[Instruction]]


def two_readers(awaited: tuple[int, ...]) -> Codes:
    """A scratchpad's words are read by its own mover (0) and by a pull of the core (1), in any order; then DRAM
    overwrites them, when the readers `awaited` say that they have them."""
    message = {"tile": DRAM, "sem": 4, "n": 1}
    first = move(SPM, 0, CORE, at(Region.MAIN), notify=1, notify_tile=SPM, notify_sem=2)
    second = move(SPM, 0, CORE, at(Region.B), wait_sem=1, wait_n=1, notify=1, notify_tile=CORE, notify_sem=2)
    ends = [sync(wait_sem=2, wait_n=1, **(message if reader in awaited else {})) for reader in (0, 1)]
    over = move(DRAM, 8, SPM, 0, wait_sem=4, wait_n=len(awaited), notify=1, notify_tile=DRAM, notify_sem=5)
    return {
        (DRAM, MOVER): [
            move(DRAM, 0, SPM, 0, notify=1, notify_tile=SPM, notify_sem=1), over, sync(wait_sem=5, wait_n=1),
        ],
        (SPM, MOVER): [sync(wait_sem=1, wait_n=1, tile=CORE, sem=1, n=1), first, ends[0]],
        (CORE, MOVER): [second, ends[1]],
    }  # fmt: skip


@pytest.mark.parametrize("awaited", [0, 1])
def test_a_writer_must_wait_for_every_reader_whichever_comes_last(awaited: int) -> None:
    """Readers that nothing orders are all remembered, whatever order they are looked at."""
    result = problems(program(two_readers((awaited,))), initial=[LOADED])
    other = ("core@(1,0) mover stream [0]", "spm@(1,1) mover stream [1]")[awaited]
    assert result.splitlines()[0].endswith("has 1 problem:")
    assert "spm@(1,1) words 0..7, which" in result
    assert other in result
    assert "no semaphore orders the two" in result


def test_a_writer_that_waits_for_all_readers_races_with_none() -> None:
    check(program(two_readers((0, 1))), TINY, initial=[LOADED])


def test_of_readers_in_order_the_last_stands_for_all() -> None:
    """Two GEMMs read the same words, one after the other: whoever is ordered behind the second is behind the first, so
    that a race with both is one problem. A SYNC behind them says only that they have been issued."""
    codes = fed()
    codes[CORE, MATRIX] = [
        gemm(wait_sem=1, wait_n=2, dest_base=4),
        gemm(post_sem=2, post_n=1),
        sync(tile=DRAM, sem=4, n=1),
    ]
    codes[DRAM, MOVER] += [
        move(DRAM, 16, CORE, at(Region.MAIN), wait_sem=4, wait_n=1, notify=1, notify_tile=DRAM, notify_sem=5),
        sync(wait_sem=5, wait_n=1),
    ]
    text = problems(program(codes), initial=[LOADED])
    assert text.splitlines()[0].endswith("has 1 problem:")
    assert "races: writes core@(1,0) A words 0..3, which core@(1,0) matrix stream [1] GEMM" in text


def test_each_pair_that_races_is_named_once() -> None:
    """Two pushes into words that two GEMMs of two cores' worth of operands share: four accesses, two pairs."""
    codes = fed()
    codes[DRAM, MOVER] += [
        move(DRAM, 16, CORE, at(Region.MAIN, 2), 2, notify=1, notify_tile=DRAM, notify_sem=5),
        move(DRAM, 18, CORE, at(Region.B, 1), 2, notify=1, notify_tile=DRAM, notify_sem=5),
        sync(wait_sem=5, wait_n=2),
    ]
    text = problems(program(codes), initial=[LOADED])
    assert text.splitlines()[0].endswith("has 2 problems:")
    assert "reads core@(1,0) A words 2..3, which dram@(0,0) mover stream [2]" in text
    assert "reads core@(1,0) B words 1..2, which dram@(0,0) mover stream [3]" in text


def test_two_writers_race_where_their_words_overlap() -> None:
    """The scratchpad and DRAM write to the core, each done before the run ends, neither behind the other."""
    delivered = {"notify": 1, "notify_sem": 3}
    codes = {
        (DRAM, MOVER): [
            move(DRAM, 0, SPM, 0, notify=1, notify_tile=SPM, notify_sem=1),
            move(DRAM, 8, CORE, at(Region.MAIN, 10), **delivered, notify_tile=DRAM),
            sync(wait_sem=3, wait_n=1),
        ],
        (SPM, MOVER): [
            move(SPM, 0, CORE, at(Region.MAIN, 16), wait_sem=1, wait_n=1, **delivered, notify_tile=SPM),
            sync(wait_sem=3, wait_n=1),
        ],
    }
    text = problems(program(codes), initial=[LOADED])
    assert text.splitlines()[0].endswith("has 1 problem:")
    assert "writes core@(1,0) A words 16..17, which" in text
    codes[SPM, MOVER][0].fields["dst"] = at(Region.MAIN, 18)  # right behind
    check(program(codes), TINY, initial=[LOADED])


def test_accesses_in_runs_meet_where_their_runs_do() -> None:
    """Pairs of words at 0, 4, 8 and 12 of the core come from DRAM; the scratchpad writes beside them, or into one."""
    delivered = {"notify": 1, "notify_sem": 3}
    codes = {
        (DRAM, MOVER): [
            move(DRAM, 0, SPM, 0, notify=1, notify_tile=SPM, notify_sem=1),
            move(DRAM, 8, CORE, at(Region.MAIN), **delivered, notify_tile=DRAM, dst_run=2, dst_stride=4),
            sync(wait_sem=3, wait_n=1),
        ],
        (SPM, MOVER): [
            move(SPM, 0, CORE, 0, 2, wait_sem=1, wait_n=1, **delivered, notify_tile=SPM), sync(wait_sem=3, wait_n=1),
        ],
    }  # fmt: skip
    met = []
    for word in range(16):
        codes[SPM, MOVER][0].fields["dst"] = at(Region.MAIN, word)
        try:
            check(program(codes), TINY, initial=[LOADED])
        except CheckError as error:
            (place,) = re.findall(r"writes core@\(1,0\) A (words? \S+), which", str(error))
            met.append((word, place))
    assert met == [
        (0, "words 0..1"), (1, "word 1"), (3, "word 4"), (4, "words 4..5"), (5, "word 5"), (7, "word 8"),
        (8, "words 8..9"), (9, "word 9"), (11, "word 12"), (12, "words 12..13"), (13, "word 13"),
    ]  # fmt: skip


def test_the_first_stretch_of_words_is_named_whole() -> None:
    """However finely other accesses cut it: of 16 words that a GEMM reads, 8, 9 and 11 have come; the one behind it
    reads the last five of those that have not."""
    codes = {
        (CORE, MOVER): [
            *(move(DRAM, i, CORE, at(Region.MAIN, i), 1, notify=1, notify_tile=CORE, notify_sem=1) for i in (8, 9, 11)),
            move(DRAM, 16, CORE, at(Region.B), 8, notify=1, notify_tile=CORE, notify_sem=1),
            sync(wait_sem=1, wait_n=4, tile=CORE, sem=3, n=1),
        ],
        (CORE, MATRIX): [
            gemm(wait_sem=3, wait_n=1, a_plane=16, in_w=16, out_w=16, pixels=16),
            gemm(a_base=3, a_plane=5, in_w=5, out_w=5, pixels=5, post_sem=2, post_n=1),
            sync(wait_sem=2, wait_n=1),
        ],
    }
    first, second = problems(program(codes), initial=[LOADED]).splitlines()[1:]
    assert "[0] GEMM" in first
    assert "reads core@(1,0) A words 0..7, which nothing has written" in first
    assert "[1] GEMM" in second
    assert "reads core@(1,0) A words 3..7, which nothing has written" in second


def test_a_gemm_may_write_where_it_has_read_and_a_move_may_not() -> None:
    """Sums accumulate in place. A MOVE within a memory goes on reading while its first words land."""
    codes = fed()
    codes[CORE, MATRIX] = [
        gemm(wait_sem=1, wait_n=2, to_acc=1),
        gemm(addend=2, to_acc=1),
        gemm(addend=2, post_sem=2, post_n=1),
    ]
    check(program(codes), TINY, initial=[LOADED])
    copy = {"notify": 1, "notify_tile": DRAM, "notify_sem": 1}
    for target in (7, 8):
        codes = {(DRAM, MOVER): [move(DRAM, 0, DRAM, target, **copy), sync(wait_sem=1, wait_n=1)]}
        if target == 8:
            check(program(codes), TINY, initial=[LOADED])
        else:
            assert "reads and overwrites dram@(0,0) word 7" in problems(program(codes), initial=[LOADED])


def test_what_the_host_loads_counts_as_written_and_nothing_else() -> None:
    """Code and trace memories are there; other words must be the host's or some instruction's."""
    for initial, missing in (
        ([LOADED], ""),
        ([(DRAM, 0, 15)], "word 15"),
        ([(DRAM, 1, 15)], "word 0"),
        ([], "words 0..7"),
    ):
        if not missing:
            check(program(fed()), TINY, initial=initial)
        else:
            assert f"reads dram@(0,0) {missing}, which nothing has written" in problems(program(fed()), initial=initial)
    trace = {(CORE, MOVER): [move(CORE, at(Region.TRACE), DRAM, 64, 1, notify=1, notify_tile=CORE, notify_sem=3),
                             sync(wait_sem=3, wait_n=1)]}  # fmt: skip
    check(program(trace), TINY, initial=[])


@dataclass(frozen=True)
class Tensor:
    """As much of a schedule's tensor as the checker looks at; also its one piece."""

    role: str
    address: int
    words: int
    tile: int = DRAM
    layout: None = None

    @property
    def pieces(self) -> tuple[Tensor, ...]:
        return (self,)


@dataclass(frozen=True)
class Tensors:
    """A schedule of them."""

    tensors: tuple[Tensor, ...]
    operations: tuple[()] = ()
    sites: None = None


def test_the_schedule_says_what_the_host_loads_and_what_must_be_written() -> None:
    """Inputs and constants are there, outputs are not; what is given besides counts too."""
    loaded = Tensor("input", 0, 8), Tensor("constant", 8, 8)
    check(program(fed()), TINY, Tensors((*loaded, Tensor("output", 32, 4))))
    check(program(fed()), TINY, Tensors((*loaded, Tensor("output", 34, 2))), outputs=[(DRAM, 32, 2)])
    check(program(fed()), TINY, Tensors(loaded[:1]), initial=[(DRAM, 8, 8)])
    for tensors, missing in (
        (loaded[1:], "reads dram@(0,0) words 0..7, which nothing has written"),
        ((*loaded, Tensor("output", 32, 5)), "output dram@(0,0) word 36 is never written"),
        ((Tensor("output", 0, 8), loaded[1]), "reads dram@(0,0) words 0..7, which nothing has written"),
    ):
        assert missing in problems(program(fed()), schedule=Tensors(tensors))


@pytest.mark.parametrize("output", [False, True])
def test_tensors_lie_in_dram_and_apart_from_code(output: bool) -> None:
    """Whole: from its first word to its last. Code lies from word 1024 on, one word behind a tensor is soon enough."""
    size = TINY.dram.words
    code = program(fed()).streams[0]
    assert (code.dram_tile, code.address) == (DRAM, 1024)

    def message(place: tuple[int, int, int]) -> str:
        given = [(DRAM, 32, 4), place]
        if output:
            return problems(program(fed()), initial=[LOADED], outputs=given)
        return problems(program(fed()), initial=[LOADED, place])

    for tile, begin, words in ((SPM, 0, 4), (0x99, 0, 4), (DRAM, -1, 4), (DRAM, 5, 0), (DRAM, size - 3, 4)):
        text = message((tile, begin, words))
        assert f"a tensor piece of {words} words from word {begin} of" in text
        assert f"does not lie in DRAM; channels have {size} words" in text
    for begin, words, place in ((1020, 5, "word 1024"), (1025, 2, "words 1025..1026"), (1000, 100, "words 1024..")):
        assert f"its code overlaps a tensor in dram@(0,0) {place}" in message((DRAM, begin, words))
    if not output:
        check(program(fed()), TINY, initial=[LOADED, (DRAM, 1020, 4), (DRAM, size - 4, 4)])


def test_an_instruction_that_reads_unwritten_words_twice_is_named_once() -> None:
    """Both operands of a GEMM that nobody has brought."""
    codes = {(CORE, MATRIX): [gemm(post_sem=2, post_n=1), sync(wait_sem=2, wait_n=1)]}
    text = problems(program(codes), initial=[])
    assert text.splitlines()[0].endswith("has 1 problem:")


def test_outputs_must_be_written_whole() -> None:
    """Words 32..35 are: one more on either side is a hole, which is named."""
    check(program(fed()), TINY, initial=[LOADED], outputs=[(DRAM, 32, 4), (DRAM, 34, 1)])
    for output, hole in (((DRAM, 31, 5), 31), ((DRAM, 32, 5), 36), ((DRAM, 30, 9), 30)):
        text = problems(program(fed()), initial=[LOADED], outputs=[output])
        assert f"output dram@(0,0) word {hole} is never written" in text
    loaded = problems(program(fed()), initial=[LOADED], outputs=[(DRAM, 0, 1)])
    assert "output dram@(0,0) word 0 is never written" in loaded, "what the host loads is no result"


def test_the_run_may_not_end_before_everything_is_over() -> None:
    """A GEMM that posts nothing; a MOVE that notifies nobody. The ends of their streams say nothing of them."""
    codes = fed()
    codes[CORE, MATRIX].append(gemm(dest_base=8))
    text = problems(program(codes), initial=[LOADED])
    assert text.splitlines()[0].endswith("has 1 problem:")
    assert "core@(1,0) matrix stream [1] GEMM tag 105: END does not wait until it is complete" in text
    codes = fed()
    codes[CORE, MOVER] = [codes[CORE, MOVER][0]]
    codes[CORE, MOVER][0].fields["notify"] = 0
    text = problems(program(codes), initial=[LOADED])
    assert text.splitlines()[0].endswith("has 2 problems:")
    for what in ("until it is complete", "until its words have been delivered"):
        assert f"core@(1,0) mover stream [0] MOVE tag 106: END does not wait {what}" in text


def test_the_end_waits_for_a_pull_where_it_is_executed() -> None:
    """A pull whose data nobody awaits: neither that it has been executed nor that it has been delivered is known."""
    pull = move(DRAM, 0, CORE, at(Region.MAIN))
    text = problems(program({(CORE, MOVER): [pull]}), initial=[LOADED])
    assert "END does not wait until it has been executed" in text
    assert "END does not wait until its words have been delivered" in text
    pull.fields.update(notify=1, notify_tile=CORE, notify_sem=1)
    check(program({(CORE, MOVER): [pull, sync(wait_sem=1, wait_n=1)]}), TINY, initial=[LOADED])


# -- waits for one of several posts ---------------------------------------------------------------------------------


def test_a_claim_that_rests_on_one_that_fell_falls_too() -> None:
    """The core's GEMM waits for one of two posts: DRAM's, when its operand has been delivered, or the scratchpad's (Q).
    In one run Q comes after the GEMM, because the scratchpad waits for one of two posts itself, and the core's own
    comes first. But it may be the other one, so Q may come first, and the GEMM read what has not been delivered.
    Meanwhile a wait for all posts of two streams, of which everything that is claimed holds, must not end the
    search."""
    post_q = sync(wait_sem=1, wait_n=1, tile=CORE, sem=1, n=1)
    wait_for_all = sync(wait_sem=3, wait_n=2)
    message = {"tile": DRAM, "sem": 3, "n": 1}
    codes = {
        (CORE, MOVER): [sync(tile=SPM, sem=1, n=1), sync(**message)],
        (SPM, MOVER): [post_q, sync(wait_sem=1, wait_n=1)],
        (CORE, MATRIX): [
            gemm(wait_sem=1, wait_n=1, b_base=4, post_sem=2, post_n=1), sync(tile=SPM, sem=1, n=1),
            sync(wait_sem=1, wait_n=1), sync(wait_sem=2, wait_n=1, **message),
        ],
        (DRAM, MOVER): [
            move(DRAM, 0, CORE, at(Region.MAIN)), move(DRAM, 8, CORE, at(Region.B), notify=1, notify_tile=CORE,
            notify_sem=1), wait_for_all,
        ],
    }  # fmt: skip
    text = problems(program(codes))
    assert "races: reads core@(1,0) B words 4..7, which dram@(0,0) mover stream [1] MOVE" in text
    post_q.fields["wait_n"] = 2  # when both have come, the GEMM has been issued
    del codes[SPM, MOVER][1]
    check(program(codes), TINY)


# -- how high a semaphore can get ----------------------------------------------------------------------------------


def posted(count: int, taken: bool) -> Codes:
    """`count` units for a semaphore of the core, and if `taken`, a stream that waits for all of them in the end."""
    posts = [sync(tile=CORE, sem=1, n=min(15, count - done)) for done in range(0, count, 15)]
    waits = [sync(wait_sem=1, wait_n=min(60, count - done)) for done in range(0, count, 60)]
    return {(DRAM, MOVER): posts, (CORE, MATRIX): waits if taken else [sync()]}


@pytest.mark.parametrize("taken", [False, True])
def test_a_semaphore_holds_255_and_no_more(taken: bool) -> None:
    """Whether somebody takes them in the end or not."""
    report = check(program(posted(255, taken)), TINY)
    assert (report.peak, len(report.warnings)) == (255, 0 if taken else 1)
    text = problems(program(posted(256, taken)))
    when = "before core@(1,0) matrix stream [0]" if taken else "at the end of the run"
    assert f"semaphore 1 of core@(1,0): can reach 256 {when}" in text
    assert "past 255" in text


def test_posts_behind_a_wait_do_not_count_before_it() -> None:
    """The poster goes on when the consumer has taken what there is: never more than a lot of 60 at once."""
    lot = [sync(tile=CORE, sem=1, n=15) for _ in range(4)]
    take = [sync(wait_sem=1, wait_n=60, tile=DRAM, sem=1, n=1) for _ in range(6)]
    codes = {
        (DRAM, MOVER): [one for _ in range(6) for one in (*lot, sync(wait_sem=1, wait_n=1))],
        (CORE, MATRIX): take,
    }
    assert check(program(codes), TINY).peak == 60
    del codes[DRAM, MOVER][4]  # the second lot may come before the first has been taken
    codes[DRAM, MOVER][-1].fields["wait_n"] = 2
    assert check(program(codes), TINY).peak == 120
