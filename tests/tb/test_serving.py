"""Programs that come and go, on the RTL: launched, ended, stopped after a fault, kept apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from meshloom.hw.spec.isa import PAGE_WORDS, Cause, Opcode, Region, Unit
from meshloom.hw.spec.registers import COMPLETION, FAULT_WHO, LAUNCH, Register
from meshloom.sched.lowering.templates.flush import flush
from meshloom.sched.program.program import Instruction, Stream
from meshloom.tb.devices.serving import ServedChip

from .hand_made import Words, move, notify, sync
from .served_chip import CHIP

#: Where a boot stream lies, behind all pages of programs.
BOOT = 15 * PAGE_WORDS
#: Words that a program copies, from the first word of its first page to word 256.
COPIED = 200


class Bench:
    """Launches programs on an open chip and waits for what they come to."""

    def __init__(self, chip: ServedChip) -> None:
        self.chip = chip
        self.boots = 0

    def fetch(self, stream: Stream, slot: int, cores: Sequence[int], first: int, end: int, clear: int) -> Instruction:
        return Instruction(
            Opcode.FETCH,
            {
                "tile": stream.tile, "unit": int(stream.unit), "dram": stream.dram_tile, "addr": stream.address,
                "count": len(stream.instructions), "clear": clear, "slot": slot,
                "cores": sum(1 << CHIP.cores.index(core) for core in set(cores)), "first_page": first, "end_page": end,
            },
        )  # fmt: skip

    def start(self, boot: Sequence[Instruction], slot: int, streams: int, at: int = 0) -> None:
        """Queues a launch."""
        host = Stream(CHIP.host, Unit.MOVER, CHIP.drams[0], BOOT + 64 * (self.boots % 16), tuple(boot))
        self.boots += 1
        self.chip.load([(host.dram_tile, host.address, host.code(CHIP))])
        self.chip.write_all(
            [
                (Register.PROGRAM_TILE, host.dram_tile),
                (Register.PROGRAM_ADDR, host.address),
                (Register.PROGRAM_COUNT, len(boot)),
                (Register.LAUNCH_AT, at),
                (Register.LAUNCH, LAUNCH.pack({"streams": streams, "slot": slot})),
            ]
        )

    def launch(self, streams: Sequence[Stream], slot: int, pages: tuple[int, int], at: int = 0) -> None:
        """A program with `pages` on the cores of its streams."""
        cores = [stream.tile for stream in streams]
        self.chip.load([(one.dram_tile, one.address, one.code(CHIP)) for one in streams])
        boot = [
            self.fetch(one, slot, cores, *pages, clear=int(cores.index(one.tile) == index))
            for index, one in enumerate(streams)
        ]
        self.start(boot, slot, len(streams), at)

    def completion(self, cycles: int = 20_000) -> tuple[dict[str, int], int, int, int]:
        """The next completion: DONE, DONE_WHO, DONE_VALUE, DONE_CYCLE."""
        if not self.chip.run(cycles):
            raise TimeoutError(f"nothing has ended in {cycles} cycles")
        done, who, value, cycle = self.chip.read(
            Register.DONE, Register.DONE_WHO, Register.DONE_VALUE, Register.DONE_CYCLE
        )
        self.chip.write(Register.DONE, 1)
        return COMPLETION.unpack(done), who, value, cycle


@pytest.fixture
def bench(fresh: ServedChip) -> Bench:
    return Bench(fresh)


def copier(core: int, page: int, slot: int, dram: int = CHIP.drams[0], **changed: int) -> Stream:
    """DRAM -> the core's results -> DRAM, 256 words further on; `changed`: fields of the first MOVE."""
    base = page * PAGE_WORDS
    first = move(1, (dram, Region.MAIN, base), (core, Region.OUT, 0), COPIED, **notify(1, core))
    code = (
        Instruction(Opcode.MOVE, first.fields | changed),
        sync(2, wait_sem=1, wait_n=1),
        move(3, (core, Region.OUT, 0), (dram, Region.MAIN, base + 256), COPIED, **notify(2, core)),
        sync(4, wait_sem=2, wait_n=1, tile=CHIP.host, sem=slot, n=1),
    )
    return Stream(core, Unit.MOVER, dram, base + 512, code)


def data(seed: int) -> Words:
    return np.random.default_rng(seed).integers(0, 256, (COPIED, CHIP.lanes), dtype=np.uint8)


def give(bench: Bench, page: int, seed: int, dram: int = CHIP.drams[0]) -> Words:
    words = data(seed)
    bench.chip.load([(dram, page * PAGE_WORDS, words)])
    return words


def copied(bench: Bench, page: int, dram: int = CHIP.drams[0]) -> Words:
    (words,) = bench.chip.dump([(dram, page * PAGE_WORDS + 256, COPIED)])
    return words


def test_programs_come_and_go(bench: Bench) -> None:
    """Two at the same time, a third while they run, then the first again, with other data, in another slot."""
    one, two, three = CHIP.cores[:3]
    arrays = {page: give(bench, page, page) for page in (1, 3, 5)}
    bench.launch([copier(one, 1, 0)], 0, (1, 2))
    bench.launch([copier(two, 3, 1, CHIP.drams[0])], 1, (3, 4))
    bench.chip.run(30)
    bench.launch([copier(three, 5, 2)], 2, (5, 6))
    ended = [bench.completion()[0] for _ in range(3)]
    assert sorted(done["slot"] for done in ended) == [0, 1, 2]
    assert all(done["valid"] and not done["fault"] for done in ended)
    for page, words in arrays.items():
        np.testing.assert_array_equal(copied(bench, page), words)
    again = give(bench, 7, 7)
    bench.launch([copier(one, 7, 3)], 3, (7, 8))
    assert bench.completion()[0]["slot"] == 3
    np.testing.assert_array_equal(copied(bench, 7), again)
    assert bench.chip.read(Register.DONE, Register.DONE_COUNT) == [0, 0]


def test_a_launch_waits_for_its_cycle(bench: Bench) -> None:
    ends: list[int] = []
    for at in (3000, 6007):
        give(bench, 1, at)
        bench.launch([copier(CHIP.cores[0], 1, 0)], 0, (1, 2), at=at)
        ends.append(bench.completion()[3] - at)
    assert ends[0] == ends[1], "what happens after a launch does not depend on when its registers were written"
    assert 200 < ends[0] < 2000


def test_more_launches_than_fit_at_once_wait_in_the_queue(bench: Bench) -> None:
    words = {page: give(bench, page, page) for page in range(1, 9)}
    for number, page in enumerate(words):
        bench.launch([copier(CHIP.cores[number % len(CHIP.cores)], page, number % 4)], number % 4, (page, page + 1))
        if number >= 3:
            bench.completion()
    for _ in range(3):
        bench.completion()
    for page, array in words.items():
        np.testing.assert_array_equal(copied(bench, page), array)


FORBIDDEN = {
    "reads outside": ({"src": 9 * PAGE_WORDS}, 9 * PAGE_WORDS),
    "reads across the end": ({"src": 2 * PAGE_WORDS - 10}, 2 * PAGE_WORDS),
    "pulls for another core": ({"dst_tile": CHIP.cores[3]}, CHIP.drams[0]),
    "pulls from another core": ({"src_tile": CHIP.cores[3], "src": int(Region.OUT) << 24}, CHIP.cores[3]),
    "notifies another core": ({"notify_tile": CHIP.cores[3]}, CHIP.drams[0]),
    "reads a dram tile's counters": ({"src": int(Region.STATS) << 24}, int(Region.STATS) << 24),
}


@pytest.mark.parametrize("name", list(FORBIDDEN))
def test_what_a_program_may_not_do_is_its_own_fault(bench: Bench, name: str) -> None:
    """The offender is named, the other program ends right, and no memory but its own has changed."""
    changed, value = FORBIDDEN[name]
    offender, other = CHIP.cores[0], CHIP.cores[1]
    array, untouched = give(bench, 3, 3), give(bench, 9, 9)
    give(bench, 1, 1)
    bench.launch([copier(offender, 1, 0, **changed)], 0, (1, 2))
    bench.launch([copier(other, 3, 1)], 1, (3, 4))
    ended = [bench.completion()]
    while not (any(one[0]["fault"] for one in ended) and any(one[0]["slot"] == 1 for one in ended)):
        ended.append(bench.completion())
    ((who, number),) = [(who, message) for done, who, message, _ in ended if done["fault"]]
    fault = FAULT_WHO.unpack(who)
    assert (Cause(fault["cause"]), fault["tile"], fault["tag"], number) == (Cause.RIGHTS, offender, 1, value)
    np.testing.assert_array_equal(copied(bench, 3), array)
    (still,) = bench.chip.dump([(CHIP.drams[0], 9 * PAGE_WORDS, COPIED)])
    np.testing.assert_array_equal(still, untouched)


def give_up(bench: Bench, cores: Sequence[int], slot: int, page: int) -> None:
    """Ends the streams of a program and waits until nothing of it is left."""
    ended = [Instruction(Opcode.FETCH, {"tile": core, "unit": int(Unit.NONE), "clear": 1}) for core in cores]
    bench.start(ended, slot, 0)
    bench.launch(flush(CHIP, cores, slot, page), slot, (page, page + 1))
    while True:
        done = bench.completion()[0]
        if not done["fault"] and done["slot"] == slot:
            return


def test_cores_of_a_program_that_hangs_are_used_again(bench: Bench) -> None:
    """It waits for a post that nobody makes, in two cores, while a third program runs; then another takes its place."""
    one, two, other = CHIP.cores[:3]
    hanging = [
        Stream(
            core, Unit.MOVER, CHIP.drams[0], PAGE_WORDS + 512 + 64 * number, (sync(1, wait_sem=3, wait_n=1), sync(2))
        )
        for number, core in enumerate((one, two))
    ]
    array = give(bench, 3, 3)
    bench.launch(hanging, 0, (1, 2))
    bench.launch([copier(other, 3, 1)], 1, (3, 4))
    assert bench.completion()[0]["slot"] == 1
    with pytest.raises(TimeoutError):
        bench.completion(5000)
    give_up(bench, (one, two), 0, 1)
    np.testing.assert_array_equal(copied(bench, 3), array)
    for number, core in enumerate((one, two)):
        words = give(bench, 5 + number, core)
        bench.launch([copier(core, 5 + number, 2)], 2, (5 + number, 6 + number))
        assert bench.completion()[0]["slot"] == 2
        np.testing.assert_array_equal(copied(bench, 5 + number), words)


@pytest.mark.parametrize("cycles", range(40, 700, 60))
def test_a_program_may_be_given_up_at_any_time(bench: Bench, cycles: int) -> None:
    """Whatever it does just then; the next program on its cores and the one beside it end right."""
    one, other = CHIP.cores[0], CHIP.cores[-1]
    give(bench, 1, 1)
    beside = give(bench, 3, 3, CHIP.drams[1])
    bench.launch([copier(one, 1, 0)], 0, (1, 2))
    bench.launch([copier(other, 3, 1, CHIP.drams[1])], 1, (3, 4))
    bench.chip.run(cycles)
    bench.chip.write(Register.DONE, 1)
    give_up(bench, (one,), 0, 1)
    words = give(bench, 5, cycles)
    bench.launch([copier(one, 5, 2)], 2, (5, 6))
    while bench.completion()[0]["slot"] != 2:
        pass
    np.testing.assert_array_equal(copied(bench, 5), words)
    np.testing.assert_array_equal(copied(bench, 3, CHIP.drams[1]), beside)
