"""The host's queues of programs that come and go: launches in their order and cycles, completions to the cycle."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from meshloom.hw.host_link.launches import Done, Launches
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import COMPLETIONS, LAUNCHES, SUCCESSORS
from meshloom.hw.spec.isa import POST, Cause
from meshloom.hw.spec.registers import COMPLETION

from .unit_bench import Mood, always, bits, fields, simulate, sometimes

CHIP = ChipConfig.model_validate(
    {
        "name": "t",
        "lanes": 4,
        "floorplan": ["dram core host"],
        "dram": {"bytes_per_cycle": 4},
        "programs": 4,
    }
)
#: What FAULT_WHO would hold in these tests.
WHO = 0x12345678


@dataclass(frozen=True)
class Entry:
    """A launch that is queued in cycle `queued`; its number names its boot stream."""

    queued: int
    number: int
    slot: int = 0
    streams: int = 1
    at: int = 0
    follows: bool = False


@dataclass
class Outcome:
    starts: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    taken: list[tuple[int, dict[str, int]]] = field(default_factory=list)  #: completions: cycle taken, what it was
    waiting: list[int] = field(default_factory=list)  #: of every cycle, like what follows
    full: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)


def run(
    entries: Sequence[Entry] = (),
    posts: dict[int, dict[str, int]] | None = None,
    *,
    cycles: int = 80,
    idle: Mood = always,
    busy: int = 0,
    enable: Mood = always,
    take: Mood = always,
) -> Outcome:
    """`posts`: what arrives at the host, by cycle; `busy`: cycles for which the front end is not idle after a start,
    from the next one on; `take`: when the host takes a completion."""
    unit = Launches(CHIP)
    out = Outcome()
    by_cycle = {entry.queued: entry for entry in entries}
    assert len(by_cycle) == len(entries)
    until = -1
    taking = False

    def before(cycle: int, context: Any) -> None:
        nonlocal taking
        entry = by_cycle.get(cycle)
        context.set(unit.launch.valid, entry is not None)
        if entry is not None:
            values = {"slot": entry.slot, "streams": entry.streams, "at": entry.at, "follows": int(entry.follows)}
            place = {"dram": 0x20 + entry.number, "addr": 1000 + entry.number, "count": 5 + entry.number}
            context.set(unit.launch.payload.as_value(), bits(unit.launch.payload.shape(), **values, **place))
        context.set(unit.enable, enable(cycle))
        context.set(unit.idle, idle(cycle) and cycle > until)
        post = (posts or {}).get(cycle)
        context.set(unit.post.valid, post is not None)
        if post is not None:
            context.set(unit.post.payload.as_value(), POST.pack(post))
        context.set(unit.who, WHO if post is not None else 0)
        taking = take(cycle)
        context.set(unit.next_one, taking)

    def after(cycle: int, context: Any) -> None:
        nonlocal until
        if context.get(unit.start.valid):
            fetch = unit.start.fetch
            out.starts.append((cycle, {name: context.get(fetch[name]) for name in ("dram", "addr", "count")}))
            until = cycle + busy
        out.waiting.append(context.get(unit.waiting))
        out.full.append(context.get(unit.full))
        out.lost.append(context.get(unit.lost))
        done = fields(Done, context.get(unit.done.as_value()))
        assert bool(done["what"]) == bool(out.waiting[-1]), "nothing is shown when there is nothing"
        if out.waiting[-1] and taking:
            message = COMPLETION.unpack(done["what"])
            out.taken.append((cycle, message | {name: done[name] for name in ("who", "value", "cycle")}))

    simulate(unit, cycles, before=before, after=after)
    return out


def place(number: int) -> dict[str, int]:
    return {"dram": 0x20 + number, "addr": 1000 + number, "count": 5 + number}


def ended(slot: int, cycle: int) -> dict[str, int]:
    return {"valid": 1, "fault": 0, "zero": 0, "slot": slot, "who": 0, "value": 0, "cycle": cycle}


def end(slot: int, n: int = 1) -> dict[str, int]:
    return {"sem": slot, "n": n}


def failed(value: int, cycle: int) -> dict[str, int]:
    return {"valid": 1, "fault": 1, "zero": 0, "slot": 0, "who": WHO, "value": value, "cycle": cycle}


def fault(value: int, **other: int) -> dict[str, int]:
    return {"fault": 1, "cause": int(Cause.SHAPE), "value": value, **other}


# -- launches ---------------------------------------------------------------------------------------------------------


def test_a_launch_starts_in_the_cycle_after_it_was_queued() -> None:
    assert run([Entry(10, 3)]).starts == [(11, place(3))]


@pytest.mark.parametrize("at", [9, 10, 11, 30])
def test_a_launch_waits_for_its_cycle(at: int) -> None:
    assert run([Entry(10, 3, at=at)]).starts == [(max(10, at) + 1, place(3))]


def test_launches_keep_their_order() -> None:
    """The first holds up the second, although that would be due."""
    out = run([Entry(10, 1, at=40), Entry(11, 2), Entry(12, 3, at=20)])
    assert out.starts == [(41, place(1)), (42, place(2)), (43, place(3))]


def test_a_launch_waits_until_the_front_end_is_idle() -> None:
    out = run([Entry(10, 1), Entry(11, 2)], idle=lambda cycle: cycle >= 25, busy=7)
    assert out.starts == [(25, place(1)), (33, place(2))]


def test_nothing_starts_outside_of_such_a_run() -> None:
    assert run([Entry(10, 1)], enable=lambda cycle: cycle >= 50).starts == [(50, place(1))]


def test_as_many_launches_wait_as_fit_and_further_ones_are_lost() -> None:
    entries = [Entry(1 + number, number, at=150) for number in range(LAUNCHES + 3)]
    out = run(entries, cycles=150 + LAUNCHES + 10)
    assert [fetch for _, fetch in out.starts] == [place(number) for number in range(LAUNCHES)]
    assert out.full == [int(1 + LAUNCHES <= cycle <= 151) for cycle in range(150 + LAUNCHES + 10)]


# -- successors -------------------------------------------------------------------------------------------------------


def test_a_successor_starts_in_the_cycle_after_the_last_post() -> None:
    out = run(
        [Entry(5, 1, 2, streams=2), Entry(10, 2, 2, streams=1, follows=True)], {20: end(2), 30: end(2), 40: end(2)}
    )
    assert out.starts == [(6, place(1)), (31, place(2))]
    assert [done for _, done in out.taken] == [ended(2, 30), ended(2, 40)]


@pytest.mark.parametrize(("queued", "at"), [(10, 33), (34, 0), (10, 60), (29, 29), (30, 0), (31, 30)])
def test_a_successor_waits_for_its_cycle_and_may_come_late(queued: int, at: int) -> None:
    out = run([Entry(5, 1, 2), Entry(queued, 2, 2, at=at, follows=True)], {30: end(2)})
    assert out.starts == [(6, place(1)), (max(30, queued, at) + 1, place(2))]


def test_a_successor_waits_for_a_program_that_is_still_queued() -> None:
    out = run([Entry(5, 1, 2, at=30), Entry(10, 2, 2, follows=True)], {20: end(2), 50: end(2)})
    assert out.starts == [(31, place(1)), (51, place(2))]


def test_successors_hold_up_nobody_and_go_first() -> None:
    """The lowest slot first, then the queue."""
    entries = [Entry(1 + slot, slot, slot) for slot in range(4)]
    entries += [Entry(10 + slot, 10 + slot, slot, follows=True) for slot in (3, 1, 2)]
    entries += [Entry(20, 20, 0, at=21), Entry(21, 21, 0)]
    posts = {15: end(0), 41: end(3), 42: end(2), 43: end(1)}
    out = run(entries, posts, idle=lambda cycle: cycle < 10 or cycle > 45)
    assert [fetch for _, fetch in out.starts[4:]] == [place(number) for number in (11, 12, 13, 20, 21)]
    freely = run(entries, posts)
    assert freely.starts[4:] == [
        (22, place(20)), (23, place(21)), (42, place(13)), (43, place(12)), (44, place(11))
    ]  # fmt: skip


def test_successors_of_a_slot_begin_one_after_the_other() -> None:
    """As many as fit; further ones are lost."""
    entries = [Entry(5, 1, 2), *(Entry(10 + number, 10 + number, 2, follows=True) for number in range(SUCCESSORS + 1))]
    out = run(entries, {30: end(2), 40: end(2), 50: end(2), 60: end(2)})
    assert out.starts[1:] == [(31 + 10 * number, place(10 + number)) for number in range(SUCCESSORS)]
    # the first one waits for its cycle, in a slot that is free
    out = run([Entry(5, 1, 2), Entry(10, 2, 2, at=45, follows=True), Entry(35, 3, 2, follows=True)],
              {30: end(2), 60: end(2)})  # fmt: skip
    assert out.starts[1:] == [(46, place(2)), (61, place(3))]


@pytest.mark.parametrize("cleared", [10, 29, 30, 31])
def test_a_launch_without_streams_leaves_its_slot_free(cleared: int) -> None:
    """A successor need not wait for its end, which never comes: neither one that waits nor a later one."""
    clears = Entry(cleared, 2, 2, streams=0)
    waits = run([Entry(5, 1, 2), Entry(6, 3, 2, follows=True), clears], {30: end(2), 60: end(2)})
    alone = run([clears, Entry(cleared + 5, 4, 2, follows=True)], {60: end(2)})
    assert alone.starts == [(cleared + 1, place(2)), (cleared + 6, place(4))]
    assert [fetch for _, fetch in waits.starts if fetch != place(2)] == [place(1), place(3)]
    assert alone.taken == [(62, ended(2, 60))]


def test_a_cleared_slot_is_free_for_its_successor() -> None:
    """The program in it is gone, whatever it still had to say."""
    out = run([Entry(5, 1, 2, streams=3), Entry(20, 2, 2, streams=0), Entry(25, 3, 2, follows=True)], {40: end(2)})
    assert out.starts == [(6, place(1)), (21, place(2)), (26, place(3))]
    assert out.taken == [(42, ended(2, 40))]


def test_successors_can_be_withdrawn() -> None:
    first, other = Entry(5, 1, 2), Entry(10, 2, 2, follows=True)
    both = [first, other, Entry(12, 3, 2, follows=True), Entry(20, 9, 2, streams=0, follows=True)]
    assert run(both, {30: end(2), 40: end(2)}).starts[1:] == []
    for late in range(12, 31):
        assert run([first, other, Entry(late, 9, 2, streams=0, follows=True)], {30: end(2)}).starts[1:] == []
    begun = run([first, other, Entry(31, 9, 2, streams=0, follows=True)], {30: end(2), 40: end(2)})
    assert begun.starts[1:] == [(31, place(2))]
    assert [done for _, done in begun.taken] == [ended(2, 30), ended(2, 40)]


@pytest.mark.parametrize("failing", range(20, 33))
def test_no_successor_starts_while_a_fault_waits(failing: int) -> None:
    """A fault that comes with the last post is too late, if the one of the next cycle is."""
    entries = [Entry(5, 1, 2), Entry(6, 2, 2, follows=True)]
    out = run(entries, {failing: fault(1), 30: end(2)} if failing != 30 else {30: fault(1), 31: end(2)},
              take=lambda cycle: cycle >= 50)  # fmt: skip
    (start, _) = out.starts[1]
    assert start == (51 if failing <= 30 else 31)


def test_what_clears_up_passes_what_is_to_start_later() -> None:
    last = CHIP.programs
    entries = [Entry(5, 1, 0, at=60), Entry(6, 2, 1, at=60), Entry(10, 3, 2, streams=0), Entry(11, 4, last, streams=2)]
    out = run(entries, {20: end(last), 25: end(last)}, cycles=90)
    assert out.starts == [(11, place(3)), (12, place(4)), (61, place(1)), (62, place(2))]
    assert [done for _, done in out.taken] == [ended(last, 25)]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_successors_against_the_contract(seed: int) -> None:
    """Every program of a slot starts once, after the one before has ended, and after its cycle."""
    rng = random.Random(seed)
    entries, posts, expected = list[Entry](), dict[int, dict[str, int]](), list[tuple[int, int]]()
    used: set[int] = set()

    def cycle_from(first: int, taken: set[int] | dict[int, dict[str, int]]) -> int:
        return next(cycle for cycle in range(first, 9999) if cycle not in taken)

    for slot in range(CHIP.programs):
        queued = cycle_from(rng.randrange(1, 20), used)
        used.add(queued)
        entries.append(Entry(queued, slot, slot))
        begun = queued + 1
        for number in range(slot + 4, slot + 24, 4):
            ends = cycle_from(begun + rng.randrange(12, 40), posts)
            posts[ends] = end(slot)
            queued = cycle_from(begun + rng.randrange(3, 60), used)
            used.add(queued)
            at = queued + rng.choice((0, 0, 7, 40))
            entries.append(Entry(queued, number, slot, at=at, follows=True))
            begun = max(ends, queued, at) + 1
            expected.append((begun, number))
            begun += 4  # others may go first
    out = run(entries, posts, cycles=max(posts) + 100)
    started = {fetch["dram"] - 0x20: start for start, fetch in out.starts}
    assert len(out.starts) == len(started) == len(entries)
    for due, number in expected:
        assert due <= started[number] <= due + 3


# -- completions ------------------------------------------------------------------------------------------------------


def test_a_program_ends_with_the_last_of_its_streams() -> None:
    """Its completion is there in the cycle after the next one and has the number of its post's cycle."""
    out = run([Entry(5, 1, slot=2, streams=3)], {20: end(2), 25: end(2), 31: end(2)})
    assert out.taken == [(33, ended(2, 31))]


@pytest.mark.parametrize(("amounts", "last"), [((3,), 20), ((15,), 20), ((1, 2), 25), ((2, 15), 25), ((0, 3), 25)])
def test_a_stream_may_post_for_others(amounts: tuple[int, ...], last: int) -> None:
    """More than is left ends the program, too; the next in its slot begins anew."""
    posts = {20 + 5 * number: end(1, n) for number, n in enumerate(amounts)} | {50: end(1), 55: end(1)}
    out = run([Entry(5, 1, 1, 3), Entry(40, 2, 1, 2)], posts)
    assert out.taken == [(last + 2, ended(1, last)), (57, ended(1, 55))]


def test_slots_count_by_themselves() -> None:
    entries = [Entry(5 + slot, slot, slot, 2) for slot in range(5)]
    order = [0, 1, 2, 3, 4, 3, 4, 1, 0, 2]  # the fifth slot is for whoever clears up
    out = run(entries, {20 + at: end(slot) for at, slot in enumerate(order)})
    assert [(done["slot"], done["cycle"]) for _, done in out.taken] == [
        (slot, 20 + 5 + at) for at, slot in enumerate(order[5:])
    ]


def test_posts_for_slots_in_which_nothing_runs_count_for_nothing() -> None:
    """Nor do those before the launch, or for semaphores that are no slots."""
    posts = {4: end(0), 20: end(1), 21: end(5), 22: end(63), 23: end(32), 24: end(0), 26: end(0)}
    out = run([Entry(10, 1, slot=0, streams=2)], posts)
    assert out.taken == [(28, ended(0, 26))]


def test_a_launch_without_streams_never_completes() -> None:
    out = run([Entry(10, 1, slot=1, streams=0)], {20: end(1)})
    assert (len(out.starts), out.taken) == (1, [])


def test_every_fault_is_a_completion() -> None:
    """A program that fails still ends, if its streams do; what tiles say about what they wait for is none."""
    state = fault(9, sem=1) | {"cause": 0}
    out = run([Entry(5, 1, slot=3)], {20: fault(7, sem=3, n=1), 21: fault(8, sem=3, n=1), 22: state, 30: end(3)})
    assert out.taken == [(22, failed(7, 20)), (23, failed(8, 21)), (32, ended(3, 30))]


def test_completions_wait_until_they_are_taken() -> None:
    posts = {20 + number: fault(number) for number in range(6)}
    out = run([], posts, take=lambda cycle: cycle in (25, 40, 41, 42, 60, 61, 62))
    assert [(cycle, done["value"]) for cycle, done in out.taken] == [
        (25, 0),
        (40, 1),
        (41, 2),
        (42, 3),
        (60, 4),
        (61, 5),
    ]
    assert (out.waiting[41], out.waiting[63]) == (4, 0)


def test_completions_that_do_not_fit_are_lost_and_that_is_said() -> None:
    """Those that came last; and the queue works as before once there is room."""
    more = 3
    posts = {10 + number: fault(number) for number in range(COMPLETIONS + more)} | {350: fault(777)}
    out = run([], posts, cycles=700, take=lambda cycle: cycle >= 300)
    assert [done["value"] for _, done in out.taken] == [*range(COMPLETIONS), 777]
    assert out.lost == [int(cycle >= 10 + COMPLETIONS + 2) for cycle in range(700)]
    fitting = run([], {cycle: post for cycle, post in posts.items() if cycle < 10 + COMPLETIONS}, cycles=700)
    assert not any(fitting.lost)


def test_nothing_is_counted_outside_of_such_a_run() -> None:
    out = run([Entry(10, 1)], {20: end(0), 21: fault(5), 30: end(0)}, enable=lambda cycle: cycle not in (20, 21))
    assert out.taken == [(32, ended(0, 30))]


@pytest.mark.parametrize("seed", [1, 2])
def test_random_programs_against_the_contract(seed: int) -> None:
    """Launches into free slots, streams that end in any order, faults between: counted beside it, post by post."""
    rng = random.Random(seed)
    entries: list[Entry] = []
    posts: dict[int, dict[str, int]] = {}
    free, cycle = dict.fromkeys(range(CHIP.programs + 1), 0), 1
    expected: list[tuple[int, dict[str, int]]] = []
    for number in range(30):
        cycle += rng.randrange(1, 12)
        slot = min(free, key=lambda one: (free[one], one))
        queued = max(cycle, free[slot] + 1)
        cycle = queued
        entries.append(Entry(queued, number, slot, rng.randrange(1, 9), queued + rng.choice((0, 0, 3))))
        at = queued + 40  # all earlier ones have started by then
        for left in range(entries[-1].streams, 0, -1):
            at = next(late for late in range(at + rng.randrange(1, 15), 9999) if late not in posts)
            posts[at] = end(slot)
            if left == 1:
                expected.append((at, ended(slot, at)))
        free[slot] = at + 1
    for _ in range(20):
        at = rng.randrange(1, 400)
        if at not in posts:
            posts[at] = fault(at)
            expected.append((at, failed(at, at)))
    out = run(entries, posts, cycles=max(posts) + 20, idle=sometimes(rng, 0.5), busy=2, take=sometimes(rng, 0.5))
    started = {fetch["dram"] - 0x20: start for start, fetch in out.starts}
    assert sorted(started) == list(range(30))
    usual = [entry.number for entry in entries if entry.slot < CHIP.programs]
    assert [number for number in started if number in usual] == usual
    for entry in entries:
        assert max(entry.queued, entry.at) < started[entry.number] < entry.queued + 40
    left = len(out.taken)
    assert [done for _, done in out.taken] == [done for _, done in sorted(expected, key=lambda one: one[0])][:left]
    assert left > len(expected) - 10
