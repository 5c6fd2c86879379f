"""Executes a Program in any order of single words that the chip could choose: no cycles, but what may overtake what."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from meshloom.hw.spec.isa import Opcode, Region
from meshloom.sched.ir.functional import Memories, execute_one
from meshloom.sched.ir.schedule import GEMM_FIELDS, VEC_FIELDS, Gemm, Move, Span, Vec
from meshloom.sched.program.program import Instruction, Program, from_words
from meshloom.sched.program.routes import Route, route_of


class Failure(AssertionError):
    """The program hangs, leaves semaphores, or ends too early."""


class _Transfer:
    """A MOVE that a mover executes word by word."""

    def __init__(self, fields: dict[str, int], way: Route) -> None:
        self.fields, self.way, self.sent = fields, way, 0
        self.src, self.dst = (
            Span(
                tile=fields[f"{side}_tile"],
                address=fields[side],
                run=fields[f"{side}_run"],
                stride=fields[f"{side}_stride"],
            )
            for side in ("src", "dst")
        )

    def word(self, i: int) -> Move:
        def at(span: Span) -> Span:
            place = span.address + i // span.run * span.stride + i % span.run
            return Span(tile=span.tile, address=place, run=1, stride=0)

        return Move(issuer=self.src.tile, src=at(self.src), dst=at(self.dst), words=1)


class _Front:
    """One stream: its code and its place in it."""

    def __init__(self, tile: int, unit: int, code: tuple[Instruction, ...]) -> None:
        self.tile, self.unit, self.code, self.at = tile, unit, code, 0
        self.route: dict[str, int] | None = None  # of the next MOVE


class Interleaver:
    """Executes a program word by word in random order, bound only by what docs/architecture/instructions.md promises:
    streams in order, requests and posts in order between two tiles, data in order between two tiles that goes the same
    way, GEMMs of a core in order, and VECs of a core in order."""

    def __init__(self, program: Program, memories: Memories, seed: int) -> None:
        self.chip, self.memories, self.rng = memories.chip, memories, random.Random(seed)
        for dram, start, words in program.image(self.chip):
            memories.region(dram, Region.MAIN)[start : start + len(words)] = words
        self.semaphores = {tile: [0] * self.chip.semaphores for tile in self.chip.tiles}
        self.most = 0  # that any semaphore but the host's ever held
        self.fronts: dict[tuple[int, int], _Front] = {}
        self.transfers: dict[tuple[int, int], deque[_Transfer]] = {}  # (requester, executor)
        self.data: dict[Route, deque[Callable[[], None]]] = {}
        self.posts: dict[tuple[int, int], deque[tuple[int, int]]] = {}
        self.units: dict[tuple[int, Opcode], deque[tuple[dict[str, int], Gemm | Vec]]] = {}
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
        pending = [*self.transfers.values(), *self.data.values(), *self.posts.values(), *self.units.values()]
        if any(pending) or any(front.at < len(front.code) for front in self.fronts.values()):
            raise Failure("END while work is pending")
        if any(any(values) for values in self.semaphores.values()):
            raise Failure(f"semaphores left over: {self.semaphores}")

    def _actions(self) -> list[tuple[object, Callable[[], None]]]:
        result: list[tuple[object, Callable[[], None]]] = []
        for key, front in self.fronts.items():
            if front.at < len(front.code) and self._ready(front):
                result.append((("front", key), lambda front=front: self._issue(front)))
        result += [(("compute", key), lambda key=key: self._compute(key)) for key, queue in self.units.items() if queue]
        queues: Any = (  # of different keys
            ("read", self.transfers, self._read),
            ("land", self.data, self._land),
            ("post", self.posts, self._deliver),
        )
        for kind, held, act in queues:
            result += [((kind, key), lambda key=key, act=act: act(key)) for key, queue in held.items() if queue]
        if self.fetches:
            result.append(("fetch", self._fetch))
        return result

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
            key = (front.tile, fields["src_tile"])
            way = route_of(self.chip, fields["src_tile"], fields["dst_tile"], front.route)
            self.transfers.setdefault(key, deque()).append(_Transfer(fields, way))
            front.route = None
        elif opcode is Opcode.ROUTE:
            front.route = fields
        elif opcode in (Opcode.GEMM, Opcode.VEC):
            kind, names = (Gemm, GEMM_FIELDS) if opcode is Opcode.GEMM else (Vec, VEC_FIELDS)
            body = {name: value for name, value in fields.items() if name in names}
            self.units.setdefault((front.tile, opcode), deque()).append((fields, kind(core=front.tile, fields=body)))
        elif opcode is Opcode.FETCH:
            self.fetches.append(fields)
        else:
            self.ended = True
            return
        if opcode in (Opcode.SYNC, Opcode.FETCH) and fields["post_n"]:
            self._add(front.tile, fields["post_sem"], fields["post_n"])

    def _read(self, key: tuple[int, int]) -> None:
        transfer = self.transfers[key][0]
        fields = transfer.fields
        word = transfer.word(transfer.sent)
        held = self.memories.region(word.src.tile, word.src.address >> 24)[word.src.address & 0xFFFFFF].copy()
        transfer.sent += 1
        last = transfer.sent == fields["words"]

        def land() -> None:
            target = self.memories.region(word.dst.tile, word.dst.address >> 24)
            target[word.dst.address & 0xFFFFFF] = held
            if last and fields["notify"]:
                link = (word.dst.tile, fields["notify_tile"])
                self.posts.setdefault(link, deque()).append((fields["notify_sem"], 1))

        self.data.setdefault(transfer.way, deque()).append(land)
        if last:
            self.transfers[key].popleft()
            self._add(transfer.src.tile, fields["post_sem"], fields["post_n"])

    def _land(self, key: Route) -> None:
        self.data[key].popleft()()

    def _deliver(self, key: tuple[int, int]) -> None:
        self._add(key[1], *self.posts[key].popleft())

    def _compute(self, key: tuple[int, Opcode]) -> None:
        fields, op = self.units[key].popleft()
        execute_one(op, self.memories)
        self._add(op.core, fields["post_sem"], fields["post_n"])

    def _fetch(self) -> None:
        fields = self.fetches.popleft()
        self._start(fields["tile"], fields["unit"], fields["dram"], fields["addr"], fields["count"])
