"""Lowered programs, executed in any order that the chip could choose, must end as the schedule does one by one."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from meshloom.hw.config import ChipConfig, CoreConfig, DramConfig
from meshloom.hw.isa import Opcode, Region, Unit, address
from meshloom.sched.functional import Memories, execute, execute_one
from meshloom.sched.program.lower import lower
from meshloom.sched.program.program import Instruction, Program, ProgramError, from_words
from meshloom.sched.schedule import Gemm, Move, Operation, Schedule, ScheduleError, Span, memory_words, validate

DATA_WORDS = 48  # of each DRAM tile that random operations use


def small_chip(**changes: object) -> ChipConfig:
    values: dict[str, object] = {
        "name": "small",
        "lanes": 4,
        "cols": 3,
        "floorplan": ["dram core spm", "host core dram"],
        "core": CoreConfig(a_words=24, b_words=40, acc_words=10, out_words=16),
        "spm_words": 40,
        "dram": DramConfig(words=65536, bytes_per_cycle=4),
        "semaphores": 64,
    }
    return ChipConfig.model_validate(values | changes)


def schedule_of(operations: list[Operation], chip: ChipConfig) -> Schedule:
    return Schedule(
        chip=chip.name, chip_digest=chip.digest, workload="random", scheduler="test", operations=tuple(operations)
    )


def random_operations(rng: random.Random, chip: ChipConfig, count: int) -> list[Operation]:
    """Valid operations between all memories; they overlap a lot."""
    places = [(t, r) for t in chip.tiles for r in (Region.MAIN, Region.B, Region.ACC, Region.OUT)]
    places = [place for place in places if memory_words(chip, *place)]
    issuers = [tile for tile in chip.tiles if tile != chip.host]
    found: list[Operation] = []

    def span(words: int) -> Span:
        tile, region = rng.choice(places)
        room = min(memory_words(chip, tile, region), DATA_WORDS)
        run = rng.choice((words, words, rng.randint(1, words)))
        return Span(tile=tile, address=address(region, rng.randrange(room)), run=run, stride=run + rng.randrange(3))

    while len(found) < count:
        if rng.random() < 0.7:
            words = rng.randint(1, 10)
            src, dst = span(words), span(words)
            issuer = rng.choice((src.tile, dst.tile, rng.choice(issuers)))
            op: Operation = Move(issuer=issuer, src=src, dst=dst, words=words, label=f"move {len(found)}")
        else:
            in_w, rows = rng.randint(1, 3), rng.randint(1, 3)
            base, addend = rng.randrange(8), rng.randrange(3)
            fields = {
                "a_base": rng.randrange(20), "a_plane": in_w * rows, "in_w": in_w, "k_blocks": rng.randint(1, 2),
                "kernel_h": rng.randint(1, 2), "kernel_w": rng.randint(1, 2), "stride_h": 1, "stride_w": 1, "dilation": 1,
                "pad_top": rng.randrange(2), "pad_left": rng.randrange(2), "out_w": rng.randint(1, 3),
                "pixels": rng.randint(1, 4), "b_base": rng.randrange(24), "n_blocks": rng.randint(1, 2),
                "addend": addend, "addend_base": base, "to_acc": rng.randrange(2),
                "dest_base": base if addend == 2 else rng.randrange(10), "scale": rng.randrange(1 << 16),
                "relu": rng.randrange(2), "clamp": rng.randrange(128),
            }  # fmt: skip
            op = Gemm(core=rng.choice(chip.cores), fields=fields, label=f"gemm {len(found)}")
        try:
            validate(schedule_of([op], chip), chip)
        except ScheduleError:
            continue
        spans = (op.src, op.dst) if isinstance(op, Move) else ()
        if all(s.tile not in chip.drams or (s.address + words * (s.stride + 1)) < 400 for s in spans):
            found.append(op)
    return found


def random_memories(seed: int, chip: ChipConfig) -> Memories:
    memories, rng = Memories(chip), np.random.default_rng(seed)
    for tile in chip.tiles:
        for region in (Region.MAIN, Region.B, Region.ACC, Region.OUT):
            if memory_words(chip, tile, region):
                held = memories.region(tile, region)[:512]
                held[:] = rng.integers(0, 256, held.shape, np.uint8)
    return memories


class Failure(AssertionError):
    """The program hangs, leaves semaphores, or ends too early."""


class _Transfer:
    """A MOVE that a mover executes word by word."""

    def __init__(self, fields: dict[str, int], own: _Front | None) -> None:
        self.fields, self.own, self.sent = fields, own, 0
        names = ("tile", "run", "stride")
        self.src, self.dst = (
            Span(address=fields[side], **{name: fields[f"{side}_{name}"] for name in names}) for side in ("src", "dst")
        )

    def word(self, i: int) -> Move:
        def at(span: Span) -> Span:
            place = span.address + i // span.run * span.stride + i % span.run
            return Span(tile=span.tile, address=place, run=1, stride=0)

        return Move(issuer=self.src.tile, src=at(self.src), dst=at(self.dst), words=1)


class _Front:
    """One stream: its code, its place, whether it is held up by a MOVE of its own."""

    def __init__(self, tile: int, unit: int, code: tuple[Instruction, ...]) -> None:
        self.tile, self.unit, self.code, self.at, self.busy = tile, unit, code, 0, False


class Interleaver:
    """Executes a program word by word in random order, bound only by what docs/architecture.md promises: streams in
    order, requests and posts in order between two tiles, data in order between two tiles, GEMMs of a core in order."""

    def __init__(self, program: Program, memories: Memories, seed: int) -> None:
        self.chip, self.memories, self.rng = memories.chip, memories, random.Random(seed)
        for dram, start, words in program.image(self.chip):
            memories.region(dram, Region.MAIN)[start : start + len(words)] = words
        self.semaphores = {tile: [0] * self.chip.semaphores for tile in self.chip.tiles}
        self.most = 0  # that any semaphore but the host's ever held
        self.fronts: dict[tuple[int, int], _Front] = {}
        self.transfers: dict[tuple[int, int], deque[_Transfer]] = {}  # (requester, executor); the requester 999 = own
        self.data: dict[tuple[int, int], deque[Callable[[], None]]] = {}
        self.posts: dict[tuple[int, int], deque[tuple[int, int]]] = {}
        self.gemms: dict[int, deque[tuple[dict[str, int], Gemm]]] = {}
        self.fetches: deque[dict[str, int]] = deque()
        self.ended = False
        self.speeds: dict[object, float] = {}
        boot = program.boot
        self._start(boot.tile, boot.unit, boot.dram_tile, boot.address, len(boot.instructions))

    def _start(self, tile: int, unit: int, dram: int, start: int, count: int) -> None:
        words = self.memories.region(dram, Region.MAIN)[start : start + count * self.chip.instruction_words]
        assert (tile, unit) not in self.fronts
        self.fronts[tile, unit] = _Front(tile, unit, from_words(words, self.chip))

    def run(self) -> None:
        while not self.ended:
            actions = self._actions()
            if not actions:
                stuck = [f"{f.tile:#x}.{f.unit}: {f.code[f.at]}" for f in self.fronts.values() if f.at < len(f.code)]
                raise Failure("deadlock: " + "; ".join(stuck))
            # Some actors are much faster than others, so that things really overtake each other.
            weights = [self.speeds.setdefault(name, 10 ** self.rng.uniform(-2, 1)) for name, _ in actions]
            self.rng.choices(actions, weights)[0][1]()
            if self.rng.random() < 0.01:
                self.speeds.clear()
        pending = [*self.transfers.values(), *self.data.values(), *self.posts.values(), *self.gemms.values()]
        if any(pending) or any(front.at < len(front.code) for front in self.fronts.values()):
            raise Failure("END while work is pending")
        if any(any(values) for values in self.semaphores.values()):
            raise Failure(f"semaphores left over: {self.semaphores}")

    def _actions(self) -> list[tuple[object, Callable[[], None]]]:
        found: list[tuple[object, Callable[[], None]]] = []
        for key, front in self.fronts.items():
            if front.at < len(front.code) and not front.busy and self._ready(front):
                found.append((("front", key), lambda front=front: self._issue(front)))
        for kind, queues, act in (
            ("read", self.transfers, self._read),
            ("land", self.data, self._land),
            ("post", self.posts, self._deliver),
            ("gemm", self.gemms, self._compute),
        ):
            found += [((kind, key), lambda key=key, act=act: act(key)) for key, queue in queues.items() if queue]
        if self.fetches:
            found.append(("fetch", self._fetch))
        return found

    def _ready(self, front: _Front) -> bool:
        fields = front.code[front.at].fields
        return self.semaphores[front.tile][fields["wait_sem"]] >= fields["wait_n"]

    def _add(self, tile: int, semaphore: int, n: int) -> None:
        self.semaphores[tile][semaphore] += n
        if tile != self.chip.host:
            self.most = max(self.most, self.semaphores[tile][semaphore])

    def _issue(self, front: _Front) -> None:
        opcode, fields = front.code[front.at].opcode, front.code[front.at].fields
        self.semaphores[front.tile][fields["wait_sem"]] -= fields["wait_n"]
        front.at += 1
        if opcode is Opcode.SYNC:
            if fields["n"]:
                self.posts.setdefault((front.tile, fields["tile"]), deque()).append((fields["sem"], fields["n"]))
        elif opcode is Opcode.MOVE:
            own = fields["src_tile"] == front.tile
            front.busy = own
            key = (999 if own else front.tile, fields["src_tile"])
            self.transfers.setdefault(key, deque()).append(_Transfer(fields, front if own else None))
        elif opcode is Opcode.GEMM:
            header = {"opcode", "tag", "wait_sem", "wait_n", "post_sem", "post_n", "fire_at"}
            body = {name: value for name, value in fields.items() if name not in header}
            self.gemms.setdefault(front.tile, deque()).append((fields, Gemm(core=front.tile, fields=body)))
        elif opcode is Opcode.FETCH:
            self.fetches.append(fields)
        else:
            self.ended = True
            return
        if opcode in (Opcode.SYNC, Opcode.FETCH) and fields["post_n"]:
            self._add(front.tile, fields["post_sem"], fields["post_n"])

    def _read(self, key: tuple[int, int]) -> None:
        transfer = self.transfers[key][0]
        fields, way = transfer.fields, (transfer.src.tile, transfer.dst.tile)
        word = transfer.word(transfer.sent)
        held = Memories.region(self.memories, word.src.tile, word.src.address >> 24)[word.src.address & 0xFFFFFF].copy()
        transfer.sent += 1
        last = transfer.sent == fields["words"]

        def land() -> None:
            target = self.memories.region(word.dst.tile, word.dst.address >> 24)
            target[word.dst.address & 0xFFFFFF] = held
            if last and fields["notify"]:
                link = (word.dst.tile, fields["notify_tile"])
                self.posts.setdefault(link, deque()).append((fields["notify_sem"], 1))

        self.data.setdefault(way, deque()).append(land)
        if last:
            self.transfers[key].popleft()
            self._add(transfer.src.tile, fields["post_sem"], fields["post_n"])
            if transfer.own:
                transfer.own.busy = False

    def _land(self, key: tuple[int, int]) -> None:
        self.data[key].popleft()()

    def _deliver(self, key: tuple[int, int]) -> None:
        self._add(key[1], *self.posts[key].popleft())

    def _compute(self, core: int) -> None:
        fields, op = self.gemms[core].popleft()
        execute_one(op, self.memories)
        self._add(core, fields["post_sem"], fields["post_n"])

    def _fetch(self) -> None:
        fields = self.fetches.popleft()
        self._start(fields["tile"], fields["unit"], fields["dram"], fields["addr"], fields["count"])


def same(wanted: Memories, found: Memories, program: Program) -> bool:
    """Equal in all words but those of the code."""
    code = min(stream.address for stream in (*program.streams, program.boot))
    stop = {tile: code for tile in wanted.chip.drams}
    return all(
        np.array_equal(held[: stop.get(tile)], found.region(tile, region)[: stop.get(tile)])
        for (tile, region), held in wanted.touched().items()
    )


def interleave(program: Program, chip: ChipConfig, data: int, seed: int) -> tuple[Memories, Interleaver]:
    memories = random_memories(data, chip)
    interleaver = Interleaver(program, memories, seed)
    interleaver.run()
    return memories, interleaver


def expected(schedule: Schedule, chip: ChipConfig, data: int) -> Memories:
    memories = random_memories(data, chip)
    execute(schedule.operations, memories)
    return memories
