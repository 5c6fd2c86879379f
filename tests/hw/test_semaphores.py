"""Semaphores against a model that is written down from their contract: every grant, fault and value, every cycle."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from amaranth.hdl import ResetInserter, Signal

from meshloom.hw.control.semaphores import Semaphores
from meshloom.hw.spec.config import load
from meshloom.hw.spec.contracts import CLEAR_CYCLES, POST_CYCLES, SEMAPHORE_MAX, clear_cycles
from meshloom.hw.spec.isa import Cause
from meshloom.hw.wiring.signatures import SemPost

from .unit_bench import Mood, Source, Strobe, always, back_to_back, bits, faults_of, never, simulate, sometimes


@dataclass
class Taker:
    """A wait port: the waits (semaphore, n) one after another, and the cycles in which they were granted."""

    waits: list[tuple[int, int]]
    begin: Mood = always
    start: int = 0
    granted: list[int] = field(default_factory=list)
    asking: bool = False
    told: list[int] = field(default_factory=list)  #: value of its semaphore in each cycle in which it asked


def run(unit: Semaphores, cycles: int, posts: dict[int, Source], takers: dict[int, Taker]) -> Strobe:
    """Drives post and wait ports; returns the faults."""
    faults = faults_of(unit.fault)

    def ask(cycle: int, context: Any) -> None:
        for port, taker in takers.items():
            if not taker.asking and len(taker.granted) < len(taker.waits) and cycle >= taker.start:
                taker.asking = taker.begin(cycle)
            take = getattr(unit, f"take_{port}")
            if taker.asking:
                semaphore, n = taker.waits[len(taker.granted)]
                context.set(take.sem, semaphore)
                context.set(take.n, n)
            context.set(take.valid, taker.asking)

    def note(cycle: int, context: Any) -> None:
        for port, taker in takers.items():
            take = getattr(unit, f"take_{port}")
            if taker.asking:
                message = context.get(take.value)
                assert bool(context.get(take.grant)) <= (message >= context.get(take.n)), "granted more than there was"
                taker.told.append(message)
            if context.get(take.grant):
                assert taker.asking, "a grant that nobody asked for"
                taker.granted.append(cycle)
                taker.asking = False

    simulate(unit, cycles, list(posts.values()), [], [faults], ask, note)
    return faults


def post(semaphore: int, n: int) -> int:
    return bits(SemPost, sem=semaphore, n=n)


@pytest.mark.parametrize(("count", "clearing"), [(8, 8), (10, 16), (32, 32), (33, 64), (64, 64)])
def test_nothing_is_taken_until_the_counters_are_clear(count: int, clearing: int) -> None:
    """`ready` rises after as many cycles as the memory has rows: `count` rounded up to a power of two."""
    unit = Semaphores(count, posts=2, takers=1)
    source = back_to_back(unit.post(1), [post(count - 1, 3)])
    taker = Taker([(0, 0), (count - 1, 3)])
    rises: list[int] = []

    def watch(cycle: int, context: Any) -> None:
        if context.get(unit.ready):
            rises.append(cycle)

    take = unit.take(0)
    granted = []

    def ask(cycle: int, context: Any) -> None:
        context.set(take.valid, len(granted) < 2)
        context.set(take.sem, taker.waits[min(1, len(granted))][0])
        context.set(take.n, taker.waits[min(1, len(granted))][1])

    def note(cycle: int, context: Any) -> None:
        watch(cycle, context)
        if context.get(take.grant):
            granted.append(cycle)

    simulate(unit, clearing + 6, [source], [], [], ask, note)
    assert rises[0] == clearing == clear_cycles(load("tiny").model_copy(update={"semaphores": count}))
    assert source.taken == [clearing]  # the first cycle that takes anything takes the post ...
    assert granted == [clearing + 1, clearing + 2]  # ... and the waits come after it


def test_a_void_post_takes_its_turn_and_counts_for_nothing() -> None:
    """Neither does it count, nor is it a fault, whatever it says; another port's post waits for it all the same."""
    unit = Semaphores(8, posts=3, takers=1, checked=1)
    first = back_to_back(unit.post(1), [post(2, 1), post(2, 15), post(2, 15), post(9, 1)], start=20)
    second = back_to_back(unit.post(2), [post(2, 5)], start=20)
    taker = Taker([(2, 6)], start=20)
    take = unit.take(0)
    accepted: list[tuple[int, int]] = []

    def drive(cycle: int, context: Any) -> None:
        context.set(unit.void, cycle >= 21)
        context.set(take.sem, 2)
        context.set(take.n, 6)
        context.set(take.valid, cycle >= 20 and not taker.granted)

    def note(cycle: int, context: Any) -> None:
        for port in (1, 2):
            if context.get(unit.post(port).valid) and context.get(unit.post(port).ready):
                accepted.append((cycle, port))
        if context.get(take.grant):
            taker.granted.append(cycle)

    faults = faults_of(unit.fault)
    simulate(unit, 40, [first, second], [], [faults], drive, note)
    assert accepted == [(20, 1), (21, 1), (22, 1), (23, 1), (24, 2)]
    assert (taker.granted, faults.seen) == ([25], [])


def test_reset_clears_what_was_there() -> None:
    inner = Semaphores(8, posts=1, takers=1)
    reset = Signal()
    unit = ResetInserter(reset)(inner)
    seen: list[tuple[int, int]] = []

    def before(cycle: int, context: Any) -> None:
        context.set(reset, cycle == 20)
        context.set(inner.post(0).valid, cycle == 10)
        context.set(inner.post(0).payload, {"sem": 5, "n": 9})
        context.set(inner.take(0).valid, cycle in (15, 40))
        context.set(inner.take(0).sem, 5)
        context.set(inner.take(0).n, 1)

    def after(cycle: int, context: Any) -> None:
        if cycle in (15, 20, 21, 28, 29, 40):
            seen.append((cycle, context.get(inner.take(0).grant) + 2 * context.get(inner.ready)))

    simulate(unit, 45, before=before, after=after)
    # not ready for 8 cycles after the reset, and then the wait of cycle 40 finds nothing
    assert seen == [(15, 3), (20, 2), (21, 0), (28, 0), (29, 2), (40, 2)]


def test_a_post_can_be_taken_from_the_next_cycle_on() -> None:
    unit = Semaphores(8, posts=1, takers=1)
    source = Source(unit.post(0), [(20, post(3, 5)), (24, post(3, 1))])
    taker = Taker([(3, 5), (3, 1)], start=10)
    run(unit, 40, {0: source}, {0: taker})
    assert source.taken == [20, 24]
    assert taker.granted == [20 + POST_CYCLES, 24 + POST_CYCLES]


def test_posts_before_takes_and_lower_ports_first() -> None:
    unit = Semaphores(8, posts=3, takers=2)
    sources = {port: Source(getattr(unit, f"post_{port}"), [(20, post(port, 2))]) for port in (0, 1, 2)}
    sources[0].add(21, post(0, 1))
    takers = {0: Taker([(0, 1)], start=20), 1: Taker([(0, 1)], start=20)}
    run(unit, 40, sources, takers)
    # 20: post 0 and then 0 again, then ports 1 and 2 in turn; only then a wait, one a cycle, the lower first
    assert [sources[port].taken for port in (0, 1, 2)] == [[20, 21], [22], [23]]
    assert (takers[0].granted, takers[1].granted) == ([24], [25])


def test_a_wait_that_cannot_be_granted_holds_up_nobody() -> None:
    unit = Semaphores(8, posts=1, takers=2)
    source = Source(unit.post(0), [(10, post(1, 2))])
    takers = {0: Taker([(7, 1)], start=10), 1: Taker([(1, 1), (1, 1)], start=10)}
    run(unit, 40, {0: source}, takers)
    assert takers[0].granted == []
    assert takers[1].granted == [11, 12]


def test_one_update_a_cycle() -> None:
    unit = Semaphores(16, posts=1, takers=1)
    source = back_to_back(unit.post(0), [post(number % 16, 1) for number in range(64)])
    taker = Taker([(number % 16, 1) for number in range(64)])
    run(unit, 160, {0: source}, {0: taker})
    assert source.taken == list(range(16, 80))
    assert taker.granted == list(range(80, 144))


@pytest.mark.parametrize(
    ("count", "posts", "takers", "seed"), [(8, 2, 1, 1), (12, 4, 2, 2), (33, 6, 2, 3), (64, 3, 1, 4), (32, 8, 3, 6)]
)
def test_random_traffic_against_the_contract(count: int, posts: int, takers: int, seed: int) -> None:
    """Every cycle the model says which port is served; ready and grant must agree, and so must values and faults.
    With even seeds the registers stop while the block is not `active`."""
    rng = random.Random(seed)
    unit = Semaphores(count, posts, takers)
    few = [rng.randrange(count) for _ in range(3)]

    def semaphore() -> int:
        return rng.choice(few) if rng.random() < 0.8 else rng.randrange(64)

    sources = [
        Source(
            getattr(unit, f"post_{port}"),
            [(0, post(semaphore(), rng.randrange(16))) for _ in range(300)],
            sometimes(rng, 0.9 / posts),
        )
        for port in range(posts)
    ]
    waits: dict[int, tuple[int, int]] = {}
    values = [0] * count
    message: list[tuple[int, dict[str, int]]] = []
    faults = faults_of(unit.fault)
    grants = 0

    def ask(cycle: int, context: Any) -> None:
        for port in range(takers):
            if port not in waits and rng.random() < 0.5:
                waits[port] = rng.choice(few), rng.choice((0, 1, 4, 30, 63))
            take = getattr(unit, f"take_{port}")
            context.set(take.valid, port in waits)
            if port in waits:
                context.set(take.sem, waits[port][0])
                context.set(take.n, waits[port][1])

    def judge(cycle: int, context: Any) -> None:
        nonlocal grants
        ready = context.get(unit.ready)
        served = not ready
        for port, source in enumerate(sources):
            taken = bool(source.taken) and source.taken[-1] == cycle
            offered = source.offering or taken
            assert taken == (offered and not served), f"cycle {cycle}: post port {port}"
            if taken:
                number, n = fields_of(source.items[len(source.taken) - 1][1])
                if number >= count:
                    message.append((cycle, {"cause": Cause.SEMAPHORE_RANGE, "tag": 0, "value": number}))
                elif values[number] + n > SEMAPHORE_MAX:
                    message.append((cycle, {"cause": Cause.SEMAPHORE_OVERFLOW, "tag": 0, "value": number}))
                else:
                    values[number] += n
            served = served or offered
        for port in range(takers):
            may = port in waits and not served and values[waits[port][0]] >= waits[port][1]
            assert context.get(getattr(unit, f"take_{port}").grant) == may, f"cycle {cycle}: wait port {port}"
            if may:
                number, n = waits.pop(port)
                values[number] -= n
                grants += 1
                served = True

    simulate(unit, 700, sources, [], [faults], ask, judge, gated=seed % 2 == 0)
    assert faults.seen == message
    assert grants > 50
    if count < 64:
        assert {values["cause"] for values in faults.values} >= {Cause.SEMAPHORE_RANGE}


def fields_of(payload: int) -> tuple[int, int]:
    return payload & 0x3F, payload >> 6


def test_a_post_past_the_limit_is_dropped_and_reported() -> None:
    unit = Semaphores(8, posts=1, takers=1)
    amounts = [15] * 17 + [1, 0, 15]  # 255 is the most that fits; adding nothing to it is fine
    source = back_to_back(unit.post(0), [post(6, n) for n in amounts])
    taker = Taker([(6, 63)] * 4 + [(6, 3), (6, 1)], start=40)
    faults = run(unit, 60, {0: source}, {0: taker})
    assert faults.seen == [
        (8 + 17, {"cause": Cause.SEMAPHORE_OVERFLOW, "tag": 0, "value": 6}),
        (8 + 19, {"cause": Cause.SEMAPHORE_OVERFLOW, "tag": 0, "value": 6}),
    ]
    assert taker.granted == [40, 41, 42, 43, 44]  # 4 * 63 + 3 = 255, and nothing is left


@pytest.mark.parametrize("number", [10, 15, 16, 63])
def test_a_post_to_a_semaphore_that_is_not_there_is_reported(number: int) -> None:
    unit = Semaphores(10, posts=1, takers=1)
    source = Source(unit.post(0), [(20, post(number, 1))])
    takers = Taker([(number % 10, 1)], start=20)
    faults = run(unit, 30, {0: source}, {0: takers})
    assert faults.seen == [(20, {"cause": Cause.SEMAPHORE_RANGE, "tag": 0, "value": number})]
    assert takers.granted == []  # and it has been added to none


def test_nothing_happens_by_itself() -> None:
    unit = Semaphores(8, posts=1, takers=1)
    taker = Taker([(0, 1)], begin=never)
    assert run(unit, 20, {}, {0: taker}).seen == []
    assert taker.granted == []


def test_a_taker_is_told_the_value_before_its_wait() -> None:
    """Three posts of 2 one after another, and a wait for 5, then one for 1."""
    unit = Semaphores(8, 1, 1)
    posts = Source(unit.post(0), [(at, post(3, 2)) for at in (20, 24, 28)])
    taker = Taker([(3, 5), (3, 1)], start=18)
    run(unit, 40, {0: posts}, {0: taker})
    assert taker.told == [0] * 3 + [2] * 4 + [4] * 4 + [6, 1]


@pytest.mark.parametrize("count", [8, 33])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("again", [None, 1, 5])
def test_clear_clears_all_and_takes_as_long_as_reset(count: int, gated: bool, again: int | None) -> None:
    """What is offered with it is accepted and forgotten; then nothing is until all are clear, from the beginning if it
    is said once more (`again` cycles later)."""
    unit = Semaphores(count, posts=1, takers=1)
    begin, takes = 90, clear_cycles(load("tiny").model_copy(update={"semaphores": count}))
    clears = {begin} | ({begin + again} if again is not None else set())
    with_it = [(begin, post(1, 9))] if again is None else []
    filled = [(70, post(0, 9)), (70, post(count - 1, 9)), *with_it, (begin + 1, post(2, 3))]
    source = Source(unit.post(0), filled)
    granted: list[tuple[int, int]] = []

    def before(cycle: int, context: Any) -> None:
        context.set(unit.clear, cycle in clears)
        context.set(unit.take(0).valid, cycle > begin)
        context.set(unit.take(0).sem, (0, 1, count - 1, 2)[cycle % 4])
        context.set(unit.take(0).n, 1)

    def after(cycle: int, context: Any) -> None:
        if context.get(unit.take(0).grant):
            granted.append((cycle, cycle % 4))

    simulate(unit, 200, [source], [], [], before, after, gated=gated)
    accepts = max(clears) + CLEAR_CYCLES + takes
    assert source.taken == [70, 71, *([begin] if with_it else []), accepts]
    assert [number for cycle, number in granted if cycle > begin] == [3, 3, 3]
    assert all(cycle > accepts for cycle, _ in granted if cycle > begin)
