"""Counters that the host reads: links of tiles, their reader, and its registers."""

from __future__ import annotations

import random
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from meshloom.hw.host_link.counters import CounterLink, CounterReader
from meshloom.hw.spec.config import ChipConfig, load, tile_position
from meshloom.hw.spec.contracts import COUNT_BITS, COUNT_WIRES, count_cycles
from meshloom.hw.spec.registers import CONTROL, COUNT, Counted, Register

from .test_host import START, Access, program, run
from .unit_bench import always, simulate, sometimes

CHIP = ChipConfig.model_validate(
    {"name": "t", "lanes": 4, "floorplan": ["dram core", "host spm"], "dram": {"bytes_per_cycle": 4}, "counters": True}
)
#: What each tile of the chain has.
HAS = (
    tuple(Counted),
    (Counted.MOVER, Counted.LOCAL),
    (Counted.DRAM_READ, Counted.DRAM_WRITE, Counted.EAST),
    (Counted.VECTOR,),
)


class Chain(wiring.Component):
    """A reader and the links of four tiles: after the last one the memory would begin again."""

    def __init__(self) -> None:
        self.reader = CounterReader(CHIP)
        self.links = [CounterLink(has) for has in HAS]
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.reader = self.reader
        m.submodules += self.links
        for link, following in zip(self.links, (*self.links[1:], None), strict=True):
            m.d.comb += link.ask.eq(self.reader.ask)
            if following is not None:
                m.d.comb += link.into.eq(following.out)
        m.d.comb += self.reader.arriving.eq(self.links[0].out)
        return m


@pytest.mark.parametrize("seed", range(3))
def test_a_snapshot_is_of_one_cycle(seed: int) -> None:
    """Counters change in every cycle; values, cycle and readiness are what the contract says, and asking again before
    it is ready does nothing."""
    rng = random.Random(seed)
    unit = Chain()
    reader = unit.reader
    at = taken = -1000
    which = 0
    shown: list[int] = []
    expected: list[int] = []
    snapshots = 0
    reads: list[int] = []
    due = -1

    def before(cycle: int, context: Any) -> None:
        nonlocal at, taken, which, shown, snapshots, due
        shown = [rng.randrange(1 << COUNT_BITS) for _ in range(sum(map(len, HAS)))]
        values = iter(shown)
        by_tile = [{one: next(values) for one in link.counted} for link in unit.links]
        for link, counts in zip(unit.links, by_tile, strict=True):
            for one, count in counts.items():
                context.set(link.count(one), count)
        context.set(reader.now, 7 * cycle)
        ready = cycle >= taken + count_cycles(CHIP)
        assert context.get(reader.ready) == ready
        if cycle == taken + 1:
            at = 7 * cycle
            expected[:] = [counts.get(Counted(which), 0) if which < len(Counted) else 0 for counts in by_tile]
        step = False
        if ready and taken >= 0:
            assert context.get(reader.cycle) == at
            left = context.get(reader.left)
            assert left == len(HAS) - len(reads)
            if cycle >= due:
                value = context.get(reader.value)
                assert value == (expected[len(reads)] if left else 0)
                step = rng.random() < 0.7
                if step:
                    due = cycle + 2
                    if left:
                        reads.append(value)
        context.set(reader.next_one, step)
        take = rng.random() < (0.05 if ready else 0.5)
        chosen = rng.randrange(16)
        context.set(reader.take, take)
        context.set(reader.which, chosen)
        if take and ready:
            taken, which, snapshots, due = cycle, chosen, snapshots + 1, cycle + count_cycles(CHIP) + 1
            reads.clear()

    simulate(unit, 2500, before=before)
    assert snapshots > 40


@pytest.mark.parametrize("gated", [False, True])
def test_a_link_that_is_not_active_stands_still(gated: bool) -> None:
    """Its clock may stop then."""
    rng = random.Random(gated)
    unit = CounterLink((Counted.MOVER,))
    held = 0

    def before(cycle: int, context: Any) -> None:
        nonlocal held
        assert context.get(unit.out) == held & 0xFF
        ask = rng.choice(("sample", "shift", "shift", "", ""))
        count, into = rng.randrange(1 << COUNT_BITS), rng.randrange(1 << COUNT_WIRES)
        which = rng.choice((Counted.MOVER, Counted.MATRIX))
        context.set(unit.count(Counted.MOVER), count)
        context.set(unit.ask.which, which)
        context.set(unit.into, into)
        context.set(unit.ask.sample, ask == "sample")
        context.set(unit.ask.shift, ask == "shift")
        if ask == "sample":
            held = count if which is Counted.MOVER else 0
        elif ask:
            held = held >> COUNT_WIRES | into << COUNT_BITS - COUNT_WIRES

    simulate(unit, 400, before=before, gated=gated)


def snapshot(which: Counted, at: int) -> list[Access]:
    """Takes a snapshot, waits, and reads all of it and one more."""
    values = [Access(0, Register.COUNT_VALUE) for _ in range(5)]
    later = Access(at + 6 + count_cycles(CHIP), Register.COUNT)
    return [Access(at, Register.COUNT, COUNT.pack({"which": which})), later, Access(0, Register.COUNT_CYCLE), *values]


def test_registers_show_a_snapshot_in_a_run_and_after_it() -> None:
    def counts(which: int, position: int, now: int) -> int:
        return 1_000_000 * which + 1000 * position + now

    start = CONTROL.pack({"start": 1, "count": 1})
    accesses = [*program(control=start), *snapshot(Counted.WEST, 20), *snapshot(Counted.MATRIX, 100)]
    out = run(accesses, config=CHIP, counts=counts, ended=[80], cycles=200)
    for which, shown in ((Counted.WEST, out.values[:7]), (Counted.MATRIX, out.values[7:])):
        assert COUNT.unpack(shown[0]) == {"which": which, "ready": 1, "zero": 0, "left": 4}
        at = shown[1]
        assert shown[2:] == [counts(which, position, at) for position in range(4)] + [0]
    write = out.accepted[5]
    assert out.values[1] == out.now[write + 1] > 0
    assert out.values[8] == out.now[80] + 1  # the run's length


@pytest.mark.parametrize("patience", [1.0, 0.3])
def test_a_snapshot_whose_addresses_are_held_early_is_the_same(patience: float) -> None:
    """Each value is read once, and no snapshot is taken of an address that is not accepted yet."""

    def counts(which: int, position: int, now: int) -> int:
        return 1_000_000 * which + 1000 * position + now

    start = CONTROL.pack({"start": 1, "count": 1})
    accesses = [*program(control=start), *snapshot(Counted.WEST, 30), *snapshot(Counted.MATRIX, 180)]
    willing = sometimes(random.Random(2), patience)
    out = run(accesses, config=CHIP, counts=counts, cycles=400, willing=willing, early=True)
    number = len(program())
    for which, shown, write in (
        (Counted.WEST, out.values[:7], number),
        (Counted.MATRIX, out.values[7:], number + 8),
    ):
        at = out.now[out.accepted[write] + 1]
        assert COUNT.unpack(shown[0]) == {"which": which, "ready": 1, "zero": 0, "left": 4}
        assert shown[1:] == [at, *(counts(which, position, at) for position in range(4)), 0]


def test_a_snapshot_is_taken_when_its_write_is_accepted() -> None:
    """Not when its address is there: its data come later, or a response stands before it."""

    def counts(which: int, position: int, now: int) -> int:
        return now

    start = CONTROL.pack({"start": 1, "count": 1})
    west = COUNT.pack({"which": Counted.WEST})
    accesses = [*program(control=start), Access(20, Register.WATCHDOG, 0), Access(20, Register.COUNT, west, skew=9)]
    accesses += [Access(80, Register.COUNT_CYCLE), *[Access(80, Register.COUNT_VALUE)] * 4]
    for willing in (always, lambda cycle: not 21 <= cycle < 40):
        out = run(accesses, config=CHIP, counts=counts, cycles=200, willing=willing, early=True)
        assert out.values == [out.now[out.accepted[6] + 1]] * 5


@pytest.mark.parametrize(
    ("said", "counts"), [({}, 0), ({"trace": 1}, 1), ({"count": 1}, 1), ({"trace": 1, "count": 1}, 1)]
)
def test_cycles_are_counted_in_runs_that_say_so(said: dict[str, int], counts: int) -> None:
    out = run(program(control=CONTROL.pack({"start": 1, **said})), config=CHIP, ended=[40])
    assert out.counting == [counts * go for go in out.go]
    assert out.go[START + 1]


def test_without_counters_the_registers_read_nothing() -> None:
    config = ChipConfig.model_validate(CHIP.model_dump() | {"counters": False})
    start = CONTROL.pack({"start": 1, "count": 1})
    out = run([*program(control=start), *snapshot(Counted.WEST, 20)], config=config)
    assert out.values == [0] * 7
    assert len(out.refused) == 8
    assert not any(out.counting)


@pytest.mark.parametrize("name", ["tiny", "lp9", "lp25", "quad16"])
def test_the_chain_has_every_tile_once_next_to_the_one_before(name: str) -> None:
    chip = load(name)
    chain = chip.counter_chain
    assert sorted(chain) == sorted(chip.tiles)
    rows = [tile_position(tile)[1] for tile in chain]
    assert rows in (sorted(rows), sorted(rows, reverse=True))
    assert abs(rows[0] - tile_position(chip.host)[1]) <= abs(rows[-1] - tile_position(chip.host)[1])
    for one, after in zip(chain, chain[1:], strict=False):
        (x, y), (next_x, next_y) = tile_position(one), tile_position(after)
        between = [place for place in range(min(x, next_x) + 1, max(x, next_x)) if 16 * y + place in chip.tiles]
        assert abs(next_y - y) <= 1
        assert y != next_y or not between
