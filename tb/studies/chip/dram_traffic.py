"""Bursts for a DRAM channel with banks by pattern, and what they take there, without a chip around it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import DRAM_BURSTS
from meshloom.hw.spec.isa import Unit
from meshloom.sched.model.banks import BankedDram, Banks
from meshloom.sched.model.timeline import assemble
from meshloom.sched.program.program import Program


class Burst(NamedTuple):
    """A read, or a write, of `words` words from `word` on, that comes in cycle `at` at the earliest."""

    at: int
    write: bool
    word: int
    words: int


class Replay(NamedTuple):
    """`cycles` until the last data were on the bus, in which there were so many `words` and rows open, closed, and
    others."""

    cycles: int
    words: int
    hits: int
    misses: int
    conflicts: int


def channel(part: str, lanes: int, rate: int, clock: float) -> ChipConfig:
    """The smallest chip that has a channel with this part."""
    values = {"name": "channel", "lanes": lanes, "clock_mhz": clock, "floorplan": ["dram core host"]}
    dram = {"words": 1 << 20, "bytes_per_cycle": rate, "banks": {"part": part}}
    return ChipConfig.model_validate(values | {"dram": dram})


#: The channels that are compared with a simulator: all of a part's bandwidth.
CHANNELS: dict[str, ChipConfig] = {
    "ddr3_1600": channel("ddr3_1600", 4, 4, 800.0),
    "lpddr4_3200": channel("lpddr4_3200", 16, 16, 800.0),
}


def replay(chip: ChipConfig, bursts: Sequence[Burst]) -> Replay:
    """Bursts in their order, each as soon as the channel takes its address: up to 16 reads and 16 writes at once, a
    word of data a cycle."""
    banks = Banks(chip)
    reads, writes = deque[tuple[int, Burst]](), deque[tuple[int, Burst]]()  # first cycle in which they can be taken
    flying: tuple[deque[int], deque[int]] = deque(), deque()  # when those that have been taken are over
    waiting, now, given, end = deque(bursts), 0, 0, 0
    while waiting or reads or writes:
        for kind in flying:
            while kind and kind[0] <= now:
                kind.popleft()
        if waiting and waiting[0].at <= now:
            burst = waiting[0]
            queue = writes if burst.write else reads
            if len(queue) + len(flying[burst.write]) < DRAM_BURSTS:
                waiting.popleft()
                if burst.write:
                    given = max(given, now) + burst.words
                queue.append((given if burst.write else now + 1, burst))
        there = [bool(queue) and queue[0][0] <= now for queue in (reads, writes)]
        if not banks.refreshed(now) and any(there) and banks.bus <= now + banks.window:
            write = banks.writes(*there)
            _, burst = (writes if write else reads).popleft()
            end = banks.take(burst.word, burst.words, write, now)
            flying[write].append(end)
        now += 1
    return Replay(end, sum(burst.words for burst in bursts), banks.hits, banks.misses, banks.conflicts)


def played(program: Program, chip: ChipConfig) -> tuple[int, list[BankedDram]]:
    """The cycles of a program in the model, and its channels afterwards, with all bursts that were `offered`."""
    machine = assemble(program, chip)
    channels = [dram for dram in machine.drams.values() if isinstance(dram, BankedDram)]
    for dram in channels:
        dram.offered = []
    machine.streams[program.boot.tile, Unit.MOVER].start(0)
    machine.run()
    assert machine.cycles is not None
    return machine.cycles, channels


def busiest(channels: Sequence[BankedDram]) -> list[Burst]:
    """The bursts of the channel that was offered most words, in their order, without the time between them."""
    every = ([Burst(0, write, word, words) for _, write, word, words in each.offered or []] for each in channels)
    return max(every, key=lambda bursts: sum(burst.words for burst in bursts))


def _stream(chip: ChipConfig, count: int, write: bool) -> Iterator[Burst]:
    words = chip.packet_words
    return (Burst(0, write, at * words % chip.dram.words, words) for at in range(count))


def _anywhere(chip: ChipConfig, count: int, words: int, writes: float) -> Iterator[Burst]:
    random = Random(1)
    for _ in range(count):
        write = random.random() < writes
        yield Burst(0, write, random.randrange(chip.dram.words // words) * words, words)


def _copy(chip: ChipConfig, count: int) -> Iterator[Burst]:
    words, half = chip.packet_words, chip.dram.words // 2
    for at in range(count // 2):
        yield Burst(0, False, at * words % half, words)
        yield Burst(0, True, half + at * words % half, words)


def _one_bank(chip: ChipConfig, count: int) -> Iterator[Burst]:
    banks = chip.dram.banks
    assert banks is not None
    words = max(1, banks.access_bytes // chip.lanes)
    row = banks.row_bytes * banks.count // chip.lanes
    return (Burst(0, False, at * row % chip.dram.words, words) for at in range(count))


def _least(chip: ChipConfig) -> int:
    banks = chip.dram.banks
    assert banks is not None
    return max(1, banks.access_bytes // chip.lanes)


#: By name, the bursts of a pattern, as fast as the channel takes them, and so many.
PATTERNS: dict[str, Callable[[ChipConfig, int], Iterator[Burst]]] = {
    "a stream of reads": lambda chip, count: _stream(chip, count, False),
    "a stream of writes": lambda chip, count: _stream(chip, count, True),
    "rows of one bank, an access each": _one_bank,
    "anywhere, an access each": lambda chip, count: _anywhere(chip, count, _least(chip), 0),
    "anywhere, 64 words each": lambda chip, count: _anywhere(chip, count, chip.packet_words, 0),
    "anywhere, 64 words, a third written": lambda chip, count: _anywhere(chip, count, chip.packet_words, 1 / 3),
    "a copy, 64 words at a time": _copy,
}
#: Bursts of each pattern.
COUNT = 4000
