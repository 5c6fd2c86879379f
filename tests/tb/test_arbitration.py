"""How tiles share DRAM, in whole chips: the timeline against the RTL, 0 cycles off, while all tiles pull at once; and a
tile that needs little beside one that floods the channel, which waits no longer than the contract says."""

from __future__ import annotations

from random import Random

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import REQUEST_CYCLES, most_credit, read_ahead, words_ahead
from meshloom.hw.spec.isa import Opcode, Region, Unit
from meshloom.sched.checker.check import check
from meshloom.sched.model.timeline import play
from meshloom.sched.program.program import Instruction, Program, place
from meshloom.tb.devices.interface import Job
from meshloom.tb.report.tables import chip_table

from ..tiers import slow_but
from .crossfire import finished
from .hand_made import CODE, move, notify, sync
from .test_crossfire import CHIPS, exact, runs


def flood(seed: int, chip: ChipConfig) -> Program:
    """All cores and scratchpads pull from all channels at once, some of them long MOVEs, and store now and then."""
    random, streams = Random(seed), dict[tuple[int, Unit], tuple[Instruction, ...]]()
    for tile in (*chip.cores, *chip.spms):
        lengths = random.choice(((1, 3, 8), (16, 64, 65), (100, 150, 200)))
        code, sent = list[Instruction](), 0
        for _ in range(random.randint(10, 40)):
            words, dram = random.choice(lengths), random.choice(chip.drams)
            run = random.randint(-(-words // 4), words)
            there, here = (dram, Region.MAIN, random.randrange(500)), (tile, Region.MAIN, random.randrange(50))
            if tile in chip.spms and random.random() < 0.2:
                there, here = here, there
            code.append(move(len(code) + 1, there, here, words, src_run=run, src_stride=run + 5, **notify(2, tile)))
            sent += 1
            if random.random() < 0.1:
                code.append(sync(len(code) + 1, wait_sem=2, wait_n=sent))
                sent = 0
        if sent:
            code.append(sync(len(code) + 1, wait_sem=2, wait_n=sent))
        streams[tile, Unit.MOVER] = (*code, finished(chip, len(code) + 1))
    placed, boot = place(streams, dict.fromkeys(chip.drams, CODE), chip)
    return Program(chip.digest, placed, boot, {})


@pytest.mark.parametrize("name", slow_but(("three", "whole")))
def test_floods_are_predicted_to_the_cycle(name: str) -> None:
    chip = CHIPS[name]
    assert chip.dram.arbitration != "fifo"
    alone = chip.model_copy(update={"dram": chip.dram.model_copy(update={"arbitration": "fifo", "weights": ()})})
    programs = [flood(seed, chip) for seed in range(12)]
    otherwise = 0
    for program, run in zip(programs, runs(chip, [Job(one, [], [], 100_000) for one in programs]), strict=True):
        timeline = play(program, chip)
        assert exact(run, timeline)
        otherwise += timeline.executed != play(program, alone).executed
    assert otherwise > 8, "programs that say nothing of how DRAM is shared"


# -- nobody starves -------------------------------------------------------------------------------------------------

LONG, SHORT = 200, 4


def quad(arbitration: str, weights: tuple[int, ...] = ()) -> ChipConfig:
    """Four cores and one channel."""
    dram = {"bytes_per_cycle": 4, "arbitration": arbitration, "weights": weights}
    values = {"name": "quad", "lanes": 4, "floorplan": ["dram core core", "host core core"], "dram": dram}
    return ChipConfig.model_validate(values)


def pulls(chip: ChipConfig, core: int, tags: range, words: int) -> tuple[Instruction, ...]:
    """A stream with as many pulls outstanding as its queue holds beside two for code: more would wait where they keep
    those of other tiles from their queues."""
    most = chip.mover_queue - 2
    ends = (chip.drams[0], Region.MAIN, 0), (core, Region.MAIN, 0)
    waits = [{"wait_sem": 2, "wait_n": int(at >= most)} for at in range(len(tags))]
    code = [move(tag, *ends, words, **notify(2, core), **wait) for tag, wait in zip(tags, waits, strict=True)]
    return (*code, sync(tags.stop, wait_sem=2, wait_n=most), finished(chip, tags.stop + 1))


def beside_a_flood(chip: ChipConfig) -> tuple[list[int], int]:
    """Cycles from each of the short MOVEs of the last core dispatched there to taken by its source generator, one at a
    time, while all other cores keep their queues full of long ones; and the cycles of the whole run."""
    (dram,), (*greedy, modest) = chip.drams, chip.cores
    streams: dict[tuple[int, Unit], tuple[Instruction, ...]] = {}
    for core in greedy:
        streams[core, Unit.MOVER] = pulls(chip, core, range(1, 31), LONG)
    code = []
    for tag in range(1000, 1020, 2):
        code.append(move(tag, (dram, Region.MAIN, 0), (modest, Region.MAIN, 0), SHORT, **notify(2, modest)))
        code.append(sync(tag + 1, wait_sem=2, wait_n=1))
    streams[modest, Unit.MOVER] = (*code, finished(chip, 1020))
    placed, boot = place(streams, {dram: CODE}, chip)
    program = Program(chip.digest, placed, boot, {})
    check(program, chip)
    timeline = play(program, chip)
    moves = [entry for entry in timeline.executed if entry.opcode is Opcode.MOVE and 1000 <= entry.tag < 1020]
    left = {entry.tag: entry.end for entry in moves if entry.tile == modest}
    taken = {entry.tag: entry.start for entry in moves if entry.tile == dram}
    return [taken[tag] - left[tag] for tag in left], timeline.cycles


def test_one_that_needs_little_is_not_kept_waiting_by_one_that_floods() -> None:
    waits = {}
    for chip in (quad("fifo"), quad("round_robin"), quad("weighted"), quad("weighted", (1, 1, 1, 8))):
        waits[chip.dram.arbitration, chip.dram.weights], cycles = beside_a_flood(chip)
        # the channel sends all the time, however it is shared: words, heads, a cycle for each MOVE, and the code
        assert cycles < 3 * 30 * (LONG + 4 + 1) + 3 * 33 * chip.instruction_words + 1000
        if chip.dram.arbitration == "fifo":
            continue
        modest = chip.cores[-1]
        # begun before: one that is being read, and what is in flight
        words = words_ahead(chip, modest, LONG) + LONG + read_ahead(chip)
        heads = 5 * -(-words // LONG)  # and a cycle for each MOVE
        bound = words + heads + chip.dram.latency + REQUEST_CYCLES + 20
        assert max(waits[chip.dram.arbitration, chip.dram.weights]) <= bound
    fifo, turns, *credit = (max(of) for of in waits.values())
    assert max(turns, *credit) < fifo / 2


def test_weights_divide_the_words_of_a_channel() -> None:
    weights, words, count = (4, 2, 1, 1), 50, 60
    chip = quad("weighted", weights)
    (dram,) = chip.drams
    streams = {}
    for number, core in enumerate(chip.cores):
        tags = range(100 * number + 1, 100 * number + 1 + count)
        streams[core, Unit.MOVER] = pulls(chip, core, tags, words)
    placed, boot = place(streams, {dram: CODE}, chip)
    executed = play(Program(chip.digest, placed, boot, {}), chip).executed
    ends = [[entry.end for entry in executed if entry.tile == dram and entry.tag // 100 == at] for at in range(4)]
    assert [len(of) for of in ends] == [count] * 4
    begun, first = ends[0][5], ends[0][-1]  # while all pull: until the heaviest has everything
    shares = [
        sum(begun < end <= first for end in of) * words / weight for of, weight in zip(ends, weights, strict=True)
    ]
    credit = min(most_credit(chip))
    assert max(shares) - min(shares) <= credit + words, shares


def test_the_table_of_chips_says_how_dram_is_shared() -> None:
    table = chip_table([quad("fifo"), quad("round_robin"), quad("weighted", (1, 2, 3, 4))])
    assert [*table.columns[-1].cells] == ["1 x 4 B/cycle", "1 x 4 B/cycle, round robin", "1 x 4 B/cycle, weighted"]
