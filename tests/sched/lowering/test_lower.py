"""Lowered programs, executed in any order that the chip could choose, must end as the schedule does one by one."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pydantic import ValidationError

from meshloom.hw.spec.config import ChipConfig, DramConfig
from meshloom.hw.spec.isa import Opcode, Region, Unit, address
from meshloom.sched.checker.check import check
from meshloom.sched.ir.hazards import Dependence, Event, EventClass, dependences, event_class
from meshloom.sched.ir.schedule import (
    Access,
    Gemm,
    Move,
    Operation,
    Schedule,
    Span,
    Vec,
    memory_words,
    reads,
    writes,
)
from meshloom.sched.lowering.predict import predict
from meshloom.sched.lowering.semaphores import lower as lower_module
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.lowering.semaphores.waits import Learnt, Pass
from meshloom.sched.program import program as program_module
from meshloom.sched.program.disasm import listing
from meshloom.sched.program.image import from_bytes, to_bytes
from meshloom.sched.program.program import Program, ProgramError, from_words, next_tag
from meshloom.tb.verify.random_schedules import copy_of_a, random_operations, schedule_of

from ..any_order import Failure, Interleaver
from ..random_schedules import expected, interleave, random_memories, same, small_chip


@pytest.mark.parametrize("seed", range(60))
def test_every_interleaving_ends_as_the_schedule_does(seed: int) -> None:
    chip, rng = small_chip(), random.Random(seed)
    schedule = schedule_of(random_operations(rng, chip, rng.choice((5, 20, 60))), chip)
    limit = rng.choice((2, 3, 192))
    program = lower(schedule, chip, limit=limit)
    target = expected(schedule, chip, seed)
    for order in range(4):
        memories, interleaver = interleave(program, chip, seed, order)
        assert same(target, memories, program)
        assert interleaver.most <= limit


def without(program: Program, rng: random.Random, fields: tuple[str, ...]) -> Program:
    """The program with one wait or post deleted."""
    spots = [
        (i, j, name)
        for i, stream in enumerate(program.streams)
        for j, instruction in enumerate(stream.instructions)
        for name in fields
        if instruction.fields.get(name)
    ]
    i, j, name = rng.choice(spots)
    stream = program.streams[i]
    code = list(stream.instructions)
    code[j] = replace(code[j], fields=code[j].fields | {name: 0})
    return replace(
        program, streams=(*program.streams[:i], replace(stream, instructions=tuple(code)), *program.streams[i + 1 :])
    )


def test_the_interleaver_sees_a_missing_post() -> None:
    chip = small_chip()
    for seed in range(10):
        rng = random.Random(seed)
        schedule = schedule_of(random_operations(rng, chip, 30), chip)
        program = without(lower(schedule, chip), rng, ("post_n", "notify", "n"))
        with pytest.raises(Failure):
            interleave(program, chip, seed, seed)


def test_the_interleaver_sees_a_missing_wait() -> None:
    """Not only by the semaphore that is left over: often enough the bytes are wrong, as no wait is idle."""
    chip, wrong = small_chip(), 0
    for seed in range(12):
        rng = random.Random(seed)
        schedule = schedule_of(random_operations(rng, chip, 30), chip)
        program = without(lower(schedule, chip), rng, ("wait_n",))
        target = expected(schedule, chip, seed)
        bad = False
        for order in range(15):
            memories = random_memories(seed, chip)
            with pytest.raises(Failure):
                Interleaver(program, memories, order).run()
            bad |= not same(target, memories, program)
        wrong += bad
    assert wrong >= 3


def tiled_layer(chip: ChipConfig, tiles: int, staged: bool) -> list[Operation]:
    """A double-buffered layer: weights from one DRAM (or by way of the SPM, for all cores), inputs from the other."""
    operations: list[Operation] = []
    first, second = chip.drams

    def span(tile: int, region: Region, offset: int, words: int) -> Span:
        return Span(tile=tile, address=address(region, offset), run=words, stride=words)

    def load(i: int) -> None:
        half = i % 2
        weights = span(second, Region.MAIN, 12 * i, 12)
        if staged:
            spm = chip.spms[0]
            operations.append(Move(issuer=spm, src=weights, dst=span(spm, Region.MAIN, 12 * half, 12), words=12))
            weights = span(spm, Region.MAIN, 12 * half, 12)
        for core in chip.cores:
            operations.append(Move(issuer=core, src=weights, dst=span(core, Region.B, 12 * half, 12), words=12))
            picture = span(first, Region.MAIN, 9 * i, 9)
            operations.append(Move(issuer=core, src=picture, dst=span(core, Region.MAIN, 9 * half, 9), words=9))

    load(0)
    for i in range(tiles):
        half = i % 2
        if i + 1 < tiles:
            load(i + 1)
        for core in chip.cores:
            fields = {
                "a_base": 9 * half, "a_plane": 9, "in_w": 3, "k_blocks": 1, "kernel_h": 2, "kernel_w": 2, "stride_h": 1,
                "stride_w": 1, "dilation": 1, "out_w": 2, "pixels": 4, "b_base": 12 * half, "n_blocks": 1,
                "dest_base": 4 * half, "scale": 999, "clamp": 127,
            }  # fmt: skip
            operations.append(Gemm(core=core, fields=fields))
        for number, core in enumerate(chip.cores):
            out = span(first, Region.MAIN, 1000 + 4 * (2 * i + number), 4)
            operations.append(Move(issuer=core, src=span(core, Region.OUT, 4 * half, 4), dst=out, words=4))
    return operations


@pytest.mark.parametrize(("staged", "most"), [(False, 0.5), (True, 0.8)])
def test_a_double_buffered_layer_needs_few_syncs(staged: bool, most: float) -> None:
    chip = small_chip(semaphores=8)
    schedule = schedule_of(tiled_layer(chip, 20, staged), chip)
    program = lower(schedule, chip)
    count = len(schedule.operations)
    assert program.instructions - len(program.streams) - count <= most * count
    memories, _ = interleave(program, chip, 1, 1)
    assert same(expected(schedule, chip, 1), memories, program)
    # Each GEMM waits for two operands from two tiles, and until the result before last has been sent: two waits more
    # than it can carry. The movers' instructions wait for one thing each at most.
    matrix = next(stream for stream in program.streams if stream.unit is Unit.MATRIX)
    assert sum(instruction.opcode is Opcode.SYNC for instruction in matrix.instructions) <= 2 * 20 + 1
    mover = next(s for s in program.streams if s.unit is Unit.MOVER and s.tile in chip.cores)
    assert sum(instruction.opcode is Opcode.SYNC for instruction in mover.instructions) <= 4


def test_one_stream_needs_no_semaphore() -> None:
    """GEMMs in a row, pushes in a row, and moves the same way over the same words are in order anyway."""
    chip = small_chip()
    core, dram = chip.cores[0], chip.drams[0]
    push = Move(
        issuer=core,
        src=Span(tile=core, address=address(Region.OUT, 0), run=4),
        dst=Span(tile=dram, address=0, run=4),
        words=4,
    )
    program = lower(schedule_of([push] * 5, chip), chip)
    assert [i.opcode for i in program.streams[0].instructions] == [Opcode.MOVE] * 5 + [Opcode.SYNC]
    assert [i.fields.get("wait_n", 0) for i in program.streams[0].instructions] == [0] * 5 + [1]
    assert program.operation_of_tag == {tag: tag - 1 for tag in range(1, 6)}
    assert [i.opcode for i in program.boot.instructions] == [Opcode.FETCH, Opcode.SYNC, Opcode.END]


def test_semaphores_never_overflow() -> None:
    """Hundreds of results that nobody waits for until the end: credits keep each semaphore below its limit."""
    chip = small_chip(dram=DramConfig(words=65536, bytes_per_cycle=4), spm_words=1024)
    spm, dram = chip.spms[0], chip.drams[0]
    word = [Span(tile=spm, address=i, run=1) for i in range(600)]
    fill = [Move(issuer=dram, src=Span(tile=dram, address=i, run=1), dst=word[i], words=1) for i in range(600)]
    take = [Move(issuer=spm, src=word[i], dst=Span(tile=dram, address=600 + i, run=1), words=1) for i in range(600)]
    schedule = schedule_of([*fill, *take], chip)
    most = []
    for limit in (8, 64, 255):
        program = lower(schedule, chip, limit=limit)
        memories, interleaver = interleave(program, chip, 3, 3)
        assert same(expected(schedule, chip, 3), memories, program)
        assert interleaver.most <= limit
        most.append(interleaver.most)
    assert most[0] == 8, most  # so the limit did hold something back
    assert most[2] > 64, most


@pytest.mark.parametrize("seed", range(12))
def test_nothing_passes_a_fence(seed: int) -> None:
    """Every operation behind a fence begins when all before it have ended, and the program still ends in any order."""
    chip, rng = small_chip(), random.Random(seed)
    free = schedule_of(random_operations(rng, chip, 40), chip)
    fences = tuple(sorted(rng.sample(range(1, 40), rng.randint(1, 6))))
    schedule = free.model_copy(update={"fences": fences})
    times = predict(schedule, chip)
    for fence in fences:
        assert min(times.start[fence:]) > max(times.end[:fence])
    unfenced = predict(free, chip)
    assert any(min(unfenced.start[fence:]) < max(unfenced.end[:fence]) for fence in fences)
    program = lower(schedule, chip)
    memories, _ = interleave(program, chip, seed, 0)
    assert same(expected(schedule, chip, seed), memories, program)


@pytest.mark.parametrize(
    ("fences", "message"),
    [
        ((3, 3), "do not rise"),
        ((2, 1), "do not rise"),
        ((1, 9), "fence 9 has no operation behind it"),
        ((0,), "greater than or equal to 1"),
    ],
)
def test_fences_that_mean_nothing_are_refused(fences: tuple[int, ...], message: str) -> None:
    chip = small_chip()
    good = schedule_of(random_operations(random.Random(0), chip, 5), chip).model_dump()
    with pytest.raises(ValidationError, match=message):
        Schedule.model_validate(good | {"fences": fences})
    with pytest.raises(ValidationError, match="has no fences"):
        Schedule.model_validate(good | {"fences": (1,), "execution": "timed"})


@pytest.mark.parametrize("event", [Event.DELIVERED, Event.READ])
def test_a_channel_that_fits_its_semaphore_has_no_credits(event: Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many posts as the limit need none, one more needs some: the checker says how high the semaphore can get. Where
    none are needed, nothing is looked at again."""
    chip, passes = small_chip(), [0]
    spm, dram, core = chip.spms[0], chip.drams[0], chip.cores[0]

    class Counted(Pass):
        def __init__(self, *given: Any) -> None:
            passes[0] += 1
            super().__init__(*given)

    monkeypatch.setattr(lower_module, "Pass", Counted)

    def word(tile: int, at: int) -> Span:
        return Span(tile=tile, address=at, run=1)

    def copies(count: int) -> Schedule:
        """Words go back from where they have been delivered, or others come where they have been read."""
        if event is Event.DELIVERED:
            there = [Move(issuer=dram, src=word(dram, i), dst=word(spm, i), words=1) for i in range(count)]
            back = [Move(issuer=spm, src=word(spm, i), dst=word(dram, 100 + i), words=1) for i in range(count)]
        else:
            there = [Move(issuer=core, src=word(dram, i), dst=word(core, i), words=1) for i in range(count)]
            back = [Move(issuer=dram, src=word(dram, 100), dst=word(dram, i), words=1) for i in range(count)]
        return schedule_of([*there, *back], chip)

    for limit in (2, 9):
        passes[0] = 0
        exact = lower(copies(limit), chip, limit)
        assert passes == [2], "one finds who needs what, one makes the program"
        assert check(exact, chip).peak == limit
        assert exact.instructions == lower(copies(limit), chip).instructions
        assert check(lower(copies(limit + 1), chip), chip).peak == limit + 1
        more = lower(copies(limit + 1), chip, limit)
        assert check(more, chip).peak <= limit
        assert more.instructions > lower(copies(limit + 1), chip).instructions


def test_empty_channels_give_their_semaphores_away() -> None:
    chip = small_chip(semaphores=12)
    fewer = 0
    for seed in range(12):
        rng = random.Random(seed)
        schedule = schedule_of(random_operations(rng, chip, 60), chip)
        try:
            program = lower(schedule, chip, limit=rng.choice((2, 192)))
        except ProgramError as error:
            assert "raise semaphores" in str(error)  # noqa: PT017  (which schedules fit is not the point)
            continue
        fewer += 1
        for order in range(3):
            memories, _ = interleave(program, chip, seed, order)
            assert same(expected(schedule, chip, seed), memories, program)
    assert fewer >= 4


@pytest.mark.parametrize("seed", range(24))
def test_movers_alone_may_hear_of_other_tiles(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing changes but who tells whom; units hear of other tiles from their own mover, and movers from movers."""
    chip, rng = small_chip(semaphores=20 if seed % 2 else 64), random.Random(seed)
    schedule = schedule_of(random_operations(rng, chip, rng.choice((20, 60))), chip)
    made: list[Pass] = []

    class Heard(Pass):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(lower_module, "Learnt", partial(Learnt, hubs=set(chip.tiles)))
    monkeypatch.setattr(lower_module, "Pass", Heard)
    limit = rng.choice((2, 192))
    program = lower(schedule, chip, limit=limit)
    streams = made[-1].numbers.streams
    for number, consumer in (key for key in made[-1].channels if key[0] < 0):
        (here, teller), (tile, unit) = streams[-1 - number], streams[consumer]
        assert here == tile or teller is unit is Unit.MOVER
    for order in range(3):
        memories, interleaver = interleave(program, chip, seed, order)
        assert same(expected(schedule, chip, seed), memories, program)
        assert interleaver.most <= limit


def test_tiles_full_of_relays_hear_by_their_movers() -> None:
    """What would need a semaphore for each stream of each other tile fits, and ends as the schedule does."""
    chip = small_chip(semaphores=12)
    fits = 0
    for seed in range(20):
        schedule = schedule_of(random_operations(random.Random(seed), chip, 200), chip)
        try:
            program = lower(schedule, chip)
        except ProgramError:
            continue
        fits += 1
        memories, _ = interleave(program, chip, seed, 0)
        assert same(expected(schedule, chip, seed), memories, program)
    assert fits >= 8


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_shares_that_settle_late_settle(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that share fewer semaphores need more relays, which leave fewer, and so on: in the end it fits."""
    chip, passes = small_chip(semaphores=14), 0

    class Counted(Pass):
        def __init__(self, *args: Any) -> None:
            nonlocal passes
            super().__init__(*args)
            passes += 1

    monkeypatch.setattr(lower_module, "Pass", Counted)
    schedule = schedule_of(random_operations(random.Random(seed), chip, 400), chip)
    program = lower(schedule, chip)
    assert passes > 12, "these need more attempts than most"
    memories, _ = interleave(program, chip, seed, 0)
    assert same(expected(schedule, chip, seed), memories, program)


def test_too_few_semaphores_are_an_error_that_names_the_tile() -> None:
    chip = small_chip(semaphores=8)
    schedule = schedule_of(random_operations(random.Random(5), chip, 200), chip)
    with pytest.raises(ProgramError, match=r"tile 0x\d+ needs \d+ semaphores, chip small has 8; raise semaphores"):
        lower(schedule, chip)


def test_code_lies_behind_the_data_and_must_fit() -> None:
    chip = small_chip()
    schedule = schedule_of(tiled_layer(chip, 8, staged=False), chip)
    program = lower(schedule, chip)
    places: dict[int, list[tuple[int, int]]] = {}
    for tile, start, words in program.image(chip):
        assert words.shape[1] == chip.lanes
        places.setdefault(tile, []).append((start, start + len(words)))
    assert set(places) == set(chip.drams)  # spread
    assert min(places[chip.drams[0]])[0] >= 1000 + 4 * 16
    for held in places.values():
        held.sort()
        assert all(end <= start for (_, end), (start, _) in zip(held, held[1:], strict=False))
    small = small_chip(dram=DramConfig(words=1160, bytes_per_cycle=4))
    schedule = schedule_of(tiled_layer(small, 20, staged=False), small)
    with pytest.raises(
        ProgramError, match=r"do not fit after the tensors: .* raise dram\.words to \d+ \(--s"
    ) as caught:
        lower(schedule, small)
    (need,) = map(int, re.findall(r"--set dram\.words=(\d+)", str(caught.value)))
    larger = small_chip(dram=DramConfig(words=need, bytes_per_cycle=4))
    lower(schedule.model_copy(update={"chip_digest": larger.digest}), larger)


def test_code_lies_behind_data_in_the_channel_of_a_controller_too() -> None:
    form = {
        "lanes": 4,
        "rows": 4,
        "cols": 4,
        "floorplan": ["dram core dtt", "host core dram"],
        "controller_channel": True,
    }
    chip = ChipConfig.model_validate({"name": "channel", **form})
    (core, _), channel = chip.cores, chip.code_channel
    assert channel is not None
    there, here = (Span(tile=tile, address=at, run=30) for tile, at in ((channel, 70), (core, 0)))
    program = lower(schedule_of([Move(issuer=channel, src=there, dst=here, words=30)], chip), chip)
    check(program, chip)
    assert [stream.address for stream in (*program.streams, program.boot) if stream.dram_tile == channel] == [128]


@pytest.mark.parametrize("seed", range(20))
def test_the_program_checker_agrees(seed: int) -> None:
    """It derives the order of events from the program alone, and finds nothing unordered."""
    chip, rng = small_chip(), random.Random(seed)
    dram = chip.drams[0]
    fills: list[Operation] = []
    for tile in chip.tiles:
        for region in (Region.MAIN, Region.B, Region.ACC, Region.OUT):
            if tile not in chip.drams and (words := memory_words(chip, tile, region)):
                dst = Span(tile=tile, address=address(region, 0), run=words)
                fills.append(Move(issuer=tile, src=Span(tile=dram, address=0, run=words), dst=dst, words=words))
    fills += [Vec(core=core, fields=copy_of_a(chip.core.vec_words)) for core in chip.cores]
    schedule = schedule_of([*fills, *random_operations(rng, chip, 40)], chip)
    check(lower(schedule, chip, limit=rng.choice((3, 192))), chip)


@pytest.mark.parametrize("lanes", [4, 32, 64])
def test_code_words_round_trip(lanes: int) -> None:
    chip = ChipConfig.model_validate({"name": "c", "lanes": lanes, "floorplan": ["dram core", "host spm"],
                                      "dram": {"bytes_per_cycle": 4}})  # fmt: skip
    move = Move(issuer=1, src=Span(tile=0, address=5, run=3, stride=9), dst=Span(tile=1, address=7, run=9), words=9)
    schedule = schedule_of([move, move], chip)
    for stream in lower(schedule, chip).streams:
        words = stream.code(chip)
        assert words.shape == (len(stream.instructions) * max(1, 32 // lanes), lanes)
        for target, result in zip(stream.instructions, from_words(words, chip), strict=True):
            assert {k: v for k, v in result.fields.items() if v} == {k: v for k, v in target.fields.items() if v}


def test_tags_wrap_and_spare_that_of_fetches() -> None:
    assert [next_tag(n) for n in (0, 1, 65533, 65534)] == [1, 2, 65534, 1]


@pytest.mark.parametrize("seed", range(8))
def test_dependences_are_those_of_single_words(seed: int) -> None:
    """The interval maps find what a word-by-word record finds."""
    chip, rng = small_chip(), random.Random(seed)
    operations = random_operations(rng, chip, 80)
    result = dependences(operations, chip)

    def words(accesses: list[Access]) -> set[tuple[int, int, int]]:
        return {(a.tile, a.region, w) for a in accesses for start, stop in a.intervals for w in range(start, stop)}

    writer: dict[tuple[int, int, int], int] = {}
    readers: dict[tuple[int, int, int], list[int]] = {}
    for index, op in enumerate(operations):
        latest: dict[tuple[EventClass, bool], int] = {}

        def need(
            source: int,
            kind: Event,
            overwrite: bool,
            index: int = index,
            latest: dict[tuple[EventClass, bool], int] = latest,
        ) -> None:
            other, mine = operations[source], operations[index]
            if not isinstance(other, Move):
                if not isinstance(mine, Move) and type(mine) is type(other) and other.core == mine.core:
                    return
                kind = Event.COMPLETE
            key = event_class(other, kind), overwrite
            latest[key] = max(latest.get(key, -1), source)

        for word in words(reads(op, chip)):
            if word in writer:
                need(writer[word], Event.DELIVERED, False)
        for word in words(writes(op, chip)):
            if word in writer:
                need(writer[word], Event.DELIVERED, True)
            for reader in readers.get(word, ()):
                need(reader, Event.READ, False)
        for word in words(reads(op, chip)):
            readers.setdefault(word, []).append(index)
        for word in words(writes(op, chip)):
            writer[word], readers[word] = index, []
        assert set(result[index]) == {Dependence(on, key[0].event, key[1]) for key, on in latest.items()}
        assert list(result[index]) == sorted(result[index], key=lambda d: -d.on)


@pytest.mark.parametrize("tags", [150, 7])
def test_operations_are_told_apart_when_tags_come_again(tags: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few tags instead of 65534, also with fewer than there are operations between two of a stream: each
    instruction knows its operation, from an image, too."""
    chip, rng = small_chip(), random.Random(4)
    schedule = schedule_of(random_operations(rng, chip, 400), chip)
    target = predict(schedule, chip)
    monkeypatch.setattr(program_module, "TAGS", tags)
    outcome = lower(schedule, chip)
    assert bool(outcome.skips) == (tags == 7)
    outcome = from_bytes(to_bytes(outcome), chip)
    assert max(instruction.fields["tag"] for stream in outcome.streams for instruction in stream.instructions) == tags
    result = {
        index: instruction
        for stream in outcome.streams
        for index, instruction in zip(outcome.operations_of(stream), stream.instructions, strict=True)
        if index is not None
    }
    assert sorted(result) == list(range(400))
    for index, op in enumerate(schedule.operations):
        body = result[index].fields
        assert {name: body.get(name, 0) for name in op.body} == op.body
    again = predict(schedule, chip)
    # operations of one tag begin in their order, as long as they are far apart
    assert (again if tags == 150 else again.cycles) == (target if tags == 150 else target.cycles)
    listed = [line.split("; operation ")[1] for line in listing(outcome, chip) if "; operation " in line]
    assert sorted(int(line) for line in listed) == list(range(400))
