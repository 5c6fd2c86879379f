"""A second opinion on the program checker: executes programs word by word in random timings, with no clocks at all.

What must hold: a program that the checker accepts leaves the same memory in every timing, and never hangs.
"""

from __future__ import annotations

from collections import deque
from random import Random

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import SEMAPHORE_MAX
from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode, split_address
from meshloom.sched.checker.accesses import gemm_accesses, vec_accesses
from meshloom.sched.program.program import Instruction, Program

Word = tuple[int, int, int]  # tile, region, offset


class Hang(Exception):
    """Nothing can move and END has not been executed."""


class Overflow(Exception):
    """A semaphore went past its largest value."""


def field(instruction: Instruction, name: str) -> int:
    return instruction.fields.get(name, 0)


class Interleaver:
    """One run. Every queue is a FIFO of things in flight; each step lets a random one move by one word."""

    def __init__(self, program: Program, chip: ChipConfig, random: Random) -> None:
        self.chip, self.random = chip, random
        self.streams = [program.boot, *program.streams]
        self.started, self.position = [0], [0] * len(self.streams)
        self.memory: dict[Word, int] = {}
        self.semaphores: dict[tuple[int, int], int] = {}
        # Own MOVEs, GEMMs and VECs per stream; forwarded MOVEs per stream and tile: [instruction, words done].
        self.units: dict[tuple[int, int], deque[list]] = {}
        # Words on their way per stream, executing and receiving tile: (place, value, notify or None).
        self.landings: dict[tuple[int, int, int], deque[tuple[Word, int, Instruction | None]]] = {}
        self.ended = False

    def run(self) -> dict[Word, int]:
        """The memory when END is executed."""
        # Speeds of the parts differ a lot from run to run, so that even long shots come up.
        weight: dict[object, float] = {}
        while not self.ended:
            moves: list[tuple[object, tuple]] = []
            for stream in self.started:
                if self.front(stream, False):
                    moves.append((("front", stream), (self.front, stream, True)))
            moves += [(("unit", key), (self.unit, key)) for key, queue in self.units.items() if queue]
            moves += [(("land", key), (self.land, key)) for key, queue in self.landings.items() if queue]
            if not moves:
                raise Hang
            weights = [weight.setdefault(name, 10 ** self.random.uniform(-3, 0)) for name, _ in moves]
            _, (action, *arguments) = self.random.choices(moves, weights)[0]
            action(*arguments)
        return self.memory

    def post(self, tile: int, semaphore: int, count: int) -> None:
        value = self.semaphores[tile, semaphore] = self.semaphores.get((tile, semaphore), 0) + count
        if value > SEMAPHORE_MAX:
            raise Overflow

    def header_post(self, instruction: Instruction, tile: int) -> None:
        if field(instruction, "post_n"):
            self.post(tile, field(instruction, "post_sem"), field(instruction, "post_n"))

    def front(self, number: int, go: bool) -> bool:
        """Issues the next instruction of a stream, if it can be; with go=False just says whether it can."""
        stream, position = self.streams[number], self.position[number]
        if position == len(stream.instructions):
            return False
        instruction = stream.instructions[position]
        key, need = (stream.tile, field(instruction, "wait_sem")), field(instruction, "wait_n")
        if need and self.semaphores.get(key, 0) < need:
            return False
        if not go:
            return True
        if need:
            self.semaphores[key] -= need
        self.position[number] += 1
        if instruction.opcode is Opcode.SYNC:
            self.header_post(instruction, stream.tile)
            if field(instruction, "n"):
                self.post(field(instruction, "tile"), field(instruction, "sem"), field(instruction, "n"))
        elif instruction.opcode is Opcode.FETCH:
            target = (field(instruction, "tile"), field(instruction, "unit"))
            self.started.append([(s.tile, int(s.unit)) for s in self.streams].index(target))
        elif instruction.opcode is Opcode.END:
            self.ended = True
        else:
            tile = field(instruction, "src_tile") if instruction.opcode is Opcode.MOVE else stream.tile
            self.units.setdefault((number, tile), deque()).append([instruction, 0])
        return True

    def unit(self, key: tuple[int, int]) -> None:
        """A unit reads one word of its oldest MOVE and sends it; or it executes its oldest GEMM or VEC."""
        stream, tile = key
        instruction, done = self.units[key][0]
        if instruction.opcode is not Opcode.MOVE:
            self.units[key].popleft()
            fields = dict.fromkeys(INSTRUCTIONS[instruction.opcode].offsets, 0) | instruction.fields
            if instruction.opcode is Opcode.GEMM:
                accesses = gemm_accesses(tile, fields, self.chip.cols)
            else:
                accesses = vec_accesses(tile, fields, self.chip.lanes)
            places = [
                (access.write, (tile, int(access.region), word))
                for access in accesses
                for begin, end in zip(access.begins.tolist(), access.ends.tolist(), strict=True)
                for word in range(begin, end)
            ]
            total = hash(tuple(self.memory.get(place, 0) for write, place in places if not write))
            for write, place in places:
                if write:
                    self.memory[place] = hash((total, place))
            self.header_post(instruction, tile)
            return
        words = field(instruction, "words")
        place = []
        for end in ("src", "dst"):
            region, offset = split_address(field(instruction, end))
            run, stride = field(instruction, f"{end}_run"), field(instruction, f"{end}_stride")
            place.append((field(instruction, f"{end}_tile"), region, offset + done // run * stride + done % run))
        value = self.memory.get(place[0], hash(place[0]))
        last = done + 1 == words
        way = self.landings.setdefault((stream, tile, place[1][0]), deque())
        way.append((place[1], value, instruction if last else None))
        self.units[key][0][1] += 1
        if last:
            self.units[key].popleft()
            self.header_post(instruction, tile)

    def land(self, key: tuple[int, int, int]) -> None:
        """One word arrives."""
        place, value, notify = self.landings[key].popleft()
        self.memory[place] = value
        if notify is not None and field(notify, "notify"):
            self.post(field(notify, "notify_tile"), field(notify, "notify_sem"), 1)
