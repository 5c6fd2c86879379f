"""Room in a core's memories: what is needed is never lost, and what is given up is what is needed last."""

from __future__ import annotations

from random import Random

import pytest

from meshloom.sched.mapping.tiling.arena import NEVER
from meshloom.sched.papers.klotski.packing import pack
from meshloom.sched.papers.klotski.residency import HeldWords, Memory


def test_what_is_used_again_last_is_given_up() -> None:
    memory = Memory(100)
    kept = [taken(memory, 40, uses, 0)[0] for uses in ([0, 9], [0, 5])]
    residency, victims = taken(memory, 40, [1, 2], 1)
    assert victims == [kept[0]]
    assert kept[0].gone
    assert residency.at == kept[0].at
    assert memory.take(40, [2, 7], 2, least=7) is None  # what is there is used before that
    residency, victims = taken(memory, 40, [3], 3, least=3)  # the one at 1 and 2 is done
    assert victims == []


def test_what_is_used_now_stays() -> None:
    memory = Memory(10)
    taken(memory, 6, [4], 4)
    assert memory.take(6, [4], 4) is None
    assert memory.take(11, [5], 5) is None
    assert taken(memory, 6, [5], 5)[1] == []


def test_words_that_are_free_for_longest_are_taken_first() -> None:
    memory = Memory(30)
    first, second = taken(memory, 10, [0], 0)[0], taken(memory, 10, [1], 1)[0]
    assert taken(memory, 10, [2], 2)[0].at == 20
    assert taken(memory, 10, [3], 3)[0].at == first.at
    assert taken(memory, 10, [4], 4)[0].at == second.at


@pytest.mark.parametrize("seed", range(20))
def test_stays_never_share_words(seed: int) -> None:
    """Against a picture of the memory, word by word."""
    random = Random(seed)
    memory = Memory(64)
    picture: list[HeldWords | None] = [None] * 64
    given_up = 0
    for position in range(300):
        words = random.randint(1, 24)
        uses = sorted({position, *(position + random.randint(0, 12) for _ in range(random.randint(0, 3)))})
        least = random.choice([NEVER, uses[1]]) if len(uses) > 1 else NEVER
        now = [residency for residency in live(picture) if position in residency.uses]
        result = memory.take(words, uses, position, least)
        for place, residency in enumerate(picture):
            if residency is not None and residency.uses[-1] < position:
                picture[place] = None
        if result is None:
            continue
        residency, victims = result
        for victim in victims:
            assert victim not in now
            assert least == NEVER or victim.next_use(position) > least
            given_up += 1
        lost = {id(other) for other in picture[residency.at : residency.at + words] if other is not None}
        assert lost == {id(victim) for victim in victims}
        picture = [None if other is not None and id(other) in lost else other for other in picture]
        picture[residency.at : residency.at + words] = [residency] * words
        assert all(not other.gone for other in live(picture))
    assert given_up


def taken(
    memory: Memory, words: int, uses: list[int], position: int, least: int = NEVER
) -> tuple[HeldWords, list[HeldWords]]:
    result = memory.take(words, uses, position, least)
    assert result is not None
    return result


def live(picture: list[HeldWords | None]) -> list[HeldWords]:
    return list({id(residency): residency for residency in picture if residency is not None}.values())


@pytest.mark.parametrize("seed", range(30))
def test_shares_end_at_about_the_same_time(seed: int) -> None:
    """All pieces are shared out, no move or swap would help, and no end is further from the mean than a piece."""
    random = Random(seed)
    kinds = [random.randint(50, 400) for _ in range(random.randint(1, 4))]
    sizes = [random.choice(kinds) for _ in range(random.randint(1, 80))]
    begins = [random.randint(0, 300) for _ in range(random.randint(1, 12))]
    shares = pack(sizes, begins)
    ends = list(begins)
    for size, share in zip(sizes, shares, strict=True):
        ends[share] += size
    last = max(range(len(ends)), key=ends.__getitem__)
    for mine in {0, *(size for size, share in zip(sizes, shares, strict=True) if share == last)}:
        for other in range(len(ends)):
            for theirs in {0, *(size for size, share in zip(sizes, shares, strict=True) if share == other)}:
                change = mine - theirs
                assert other == last or max(ends[last] - change, ends[other] + change) >= ends[last]
    mean = (sum(sizes) + sum(begins)) / len(begins)
    assert max(ends) <= max(mean + max(sizes), max(begins))


def test_unequal_pieces_are_shared_out_to_the_last() -> None:
    """38 of 6 and 19 of 5 on nine cores, 323 in all: 36 at most, where the longest first ends at 39."""
    shares = pack([6] * 38 + [5] * 19, [0] * 9)
    ends = [0] * 9
    for piece, share in enumerate(shares):
        ends[share] += 6 if piece < 38 else 5
    assert max(ends) == 36


@pytest.mark.parametrize("seed", range(20))
def test_free_room_is_the_best_of_all_room(seed: int) -> None:
    """Looking at free words alone finds the place that looking at all words finds."""
    random = Random(seed)
    memory = Memory(80)
    result = 0
    for position in range(300):
        words = random.randint(1, 20)
        memory._release(position)
        free, any_room = memory._free(words), memory._occupied(words, position)
        if free >= 0:
            assert any_room == (NEVER, free)
            result += 1
        else:
            assert any_room is None or any_room[0] < NEVER
        memory.take(words, sorted({position, position + random.randint(0, 9)}), position)
    assert 20 < result < 300
