"""What waited for what in a run: from any instruction back to the beginning of the run, step by step.

A step is the time of one instruction, or of a part of its way: its execution, its words' flight, its queue. Measured
and predicted records are treated alike. Times are cycles; a post's arrival is known only from the waiting part.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Generic, NamedTuple

from meshloom.hw.spec.config import ChipConfig, TileKind, tile_position
from meshloom.hw.spec.contracts import ISSUE_CYCLES, REQUEST_CYCLES
from meshloom.hw.spec.isa import FETCH_TAG, Opcode, Unit
from meshloom.hw.spec.timing import GemmShape, gemm_occupancy
from meshloom.sched.program.program import Instruction, Program

from .idle import ideal_move_cycles
from .links import routes_of
from .records import InstructionPlace, T


class AttributionError(ValueError):
    """Records that cannot explain a run; the message names what is missing and the fix."""


class Activity(StrEnum):
    """What a step of the walk back is."""

    COMPUTE = "compute"  #: the operand windows of a GEMM
    PIPELINE = "pipeline"  #: a GEMM after its last window, until its last row is written
    VECTOR = "vector"  #: a VEC
    TRANSFER = "transfer"  #: a MOVE, for as long as it takes on an idle chip
    HELD_UP = "held up"  #: a MOVE, beyond that
    FLIGHT = "flight"  #: from a MOVE's last word sent to its arrival
    QUEUE = "queue"  #: a MOVE waits for the mover that executes it
    REQUEST = "request"  #: a request is on its way
    HAND_OVER = "hand-over"  #: a request or post waits until the NoC takes it
    POST = "post"  #: a SYNC, and its post's way
    ISSUE = "issue"  #: a front end has not offered the next instruction
    START = "start"  #: a stream's first instruction has not been fetched
    END = "end"  #: from the last record to the end of the run


class Step(NamedTuple):
    """Back from the previous step's `since` (clipped to it) to this one's: what `place` was doing. For ISSUE it is the
    instruction before the one that was not offered yet."""

    since: int
    activity: Activity
    place: InstructionPlace


@dataclass(frozen=True)
class _Post:
    """A post to a semaphore, made by `place`; `delivered`: on delivery of its MOVE's last word, not when that was
    sent."""

    place: InstructionPlace
    delivered: bool = False


class Causes(Generic[T]):
    """The instructions of a program with their records, and who posted what each of them waited for.

    Raises AttributionError if records are missing.
    """

    def __init__(self, program: Program, records: Mapping[InstructionPlace, T], chip: ChipConfig) -> None:
        self.chip, self.records = chip, records
        self._routes = routes_of(program, chip)
        self.code: dict[tuple[int, Unit], tuple[Instruction, ...]] = {
            (stream.tile, stream.unit): stream.instructions for stream in (*program.streams, program.boot)
        }
        self._posts: dict[tuple[int, int], list[tuple[int, int, _Post]]] = defaultdict(list)
        self._waits: dict[tuple[int, int], list[tuple[int, InstructionPlace, int]]] = defaultdict(list)
        missing: Counter[int] = Counter()
        for (tile, unit), code in self.code.items():
            for index, instruction in enumerate(code):
                fields, place = instruction.fields, InstructionPlace(tile, unit, index)
                if instruction.opcode is Opcode.END or fields.get("tag", 0) == FETCH_TAG:
                    continue
                done = self.executing(place)
                for part in {place, done}:  # not a set difference, which would iterate over all records
                    if part not in records:
                        missing[fields["src_tile"] if part.remote else tile] += 1
                if not missing:
                    self._enter(place, done, instruction)
        if missing:
            tile, count = missing.most_common(1)[0]
            x, y = tile_position(tile)
            raise AttributionError(
                f"{missing.total()} trace records are missing, {count} of {chip.tiles[tile].value}@({x},{y}), which "
                f"keeps {chip.trace_records}; raise trace_records in chip {chip.name}"
            )

    def _enter(self, place: InstructionPlace, done: InstructionPlace, instruction: Instruction) -> None:
        """Stores what an instruction waits for and posts; `done`: the part that completes it."""
        fields, end = instruction.fields, self.records[done].end
        if count := fields.get("wait_n", 0):
            key = place.tile, fields["wait_sem"]
            self._waits[key].append((self.records[place].start, place, count))
        if count := fields.get("post_n", 0):
            tile = fields["src_tile"] if done.remote else place.tile
            self._posts[tile, fields["post_sem"]].append((end, count, _Post(done)))
        if instruction.opcode is Opcode.SYNC and (count := fields.get("n", 0)):
            target = fields["tile"]
            self._posts[target, fields["sem"]].append((end + self.hops(place.tile, target), count, _Post(done)))
        if instruction.opcode is Opcode.MOVE and fields.get("notify", 0):
            delivered, target = fields["dst_tile"], fields["notify_tile"]
            distance = self.hops(fields["src_tile"], delivered) + fields.get("copies", 0) + self.hops(delivered, target)
            self._posts[target, fields["notify_sem"]].append((end + distance, 1, _Post(done, delivered=True)))

    @cached_property
    def critical(self) -> dict[InstructionPlace, _Post]:
        """For each instruction that waits, the last post that it needed: posts are taken in order of arrival."""
        result: dict[InstructionPlace, _Post] = {}
        for key, waits in self._waits.items():
            posts = sorted(self._posts[key], key=lambda post: post[0])
            number = have = used = 0
            for _, place, count in sorted(waits, key=lambda wait: wait[:2]):
                number += count
                while have < number and used < len(posts):
                    have += posts[used][1]
                    used += 1
                if used:
                    result[place] = posts[used - 1][2]
        return result

    @cached_property
    def _previous(self) -> dict[InstructionPlace, InstructionPlace]:
        """For each GEMM the one before on its core."""
        return {after: before for core in self.chip.cores for before, after in pairwise(self.gemms(core))}

    @cached_property
    def _sent_before(self) -> dict[InstructionPlace, InstructionPlace]:
        """For each MOVE the one that its mover executed before."""
        by_mover: dict[int, list[tuple[int, InstructionPlace]]] = defaultdict(list)
        for place, record in self.records.items():
            if record.opcode is Opcode.MOVE and self.executing(place) == place:
                by_mover[record.tile].append((record.start, place))
        return {after: before for moves in by_mover.values() for (_, before), (_, after) in pairwise(sorted(moves))}

    def queued_behind(self, place: InstructionPlace) -> InstructionPlace | None:
        """The MOVE that the mover which executes `place` executed before it; None if it was its first."""
        return self._sent_before.get(self.executing(place))

    # -- properties of an instruction -----------------------------------------------------------------------------

    def instruction(self, place: InstructionPlace) -> Instruction:
        return self.code[place.tile, place.unit][place.index]

    def executing(self, place: InstructionPlace) -> InstructionPlace:
        """The part that executes an instruction: for a pull, the mover of another tile."""
        instruction = self.instruction(place)
        away = instruction.opcode is Opcode.MOVE and instruction.fields["src_tile"] != place.tile
        return place._replace(remote=away)

    def gemms(self, core: int) -> list[InstructionPlace]:
        """The GEMMs of a core, in order."""
        code = self.code.get((core, Unit.MATRIX), ())
        return [
            InstructionPlace(core, Unit.MATRIX, i)
            for i, instruction in enumerate(code)
            if instruction.opcode is Opcode.GEMM
        ]

    def occupancy(self, place: InstructionPlace) -> int:
        """Cycles of a GEMM's operand windows."""
        f = self.instruction(place).fields
        shape = GemmShape(f["pixels"], f["n_blocks"], f["k_blocks"], f["kernel_h"], f["kernel_w"])
        return gemm_occupancy(self.chip, shape)

    def windows_end(self, place: InstructionPlace) -> int:
        """The cycle after a GEMM's last window."""
        return self.records[place].start + self.occupancy(place)

    def idle_rows(self, place: InstructionPlace) -> int:
        """PE cycles of a GEMM in rows of the array without a pixel."""
        f = self.instruction(place).fields
        windows = f["n_blocks"] * f["k_blocks"] * f["kernel_h"] * f["kernel_w"] * self.chip.lanes
        return windows * (-f["pixels"] % self.chip.rows) * self.chip.cols

    def last(self, opcode: Opcode) -> int:
        """End of the last instruction of a kind; 0 if there are none."""
        return max((record.end for record in self.records.values() if record.opcode is opcode), default=0)

    def hops(self, source: int, target: int) -> int:
        (x, y), (u, v) = tile_position(source), tile_position(target)
        return abs(x - u) + abs(y - v)

    def is_dram(self, tile: int) -> bool:
        return self.chip.tiles[tile] is TileKind.DRAM

    # -- the walk back --------------------------------------------------------------------------------------------

    def walk(self, place: InstructionPlace) -> Iterator[Step]:
        """Steps back from the start of an instruction to cycle 0."""
        seen = set[InstructionPlace]()
        while place not in seen:
            seen.add(place)
            record, before = self.records[place], self.before(place)
            previous = self._previous.get(place)
            if previous is not None and self.windows_end(previous) >= record.start:
                yield Step(self.records[previous].start, Activity.COMPUTE, previous)
                place = previous
                continue
            if self.instruction(place).opcode is Opcode.VEC and before is not None and self._busy(before, record.start):
                yield Step(self.records[before].start, Activity.VECTOR, before)
                place = before
                continue
            post = self.critical.get(place) if record.wait else None
            if post is None:
                if before is None:
                    yield Step(0, Activity.START, place)
                    return
                yield from self._issued(before, record.start)
                place = before
                continue
            yield from self._done(post)
            place = post.place._replace(remote=False)
        yield Step(0, Activity.POST, place)  # posts that came at nearly the same time were taken in another order

    def trace(self, place: InstructionPlace) -> Iterator[Step]:
        """Steps back from the end of an instruction to cycle 0."""
        yield from self._done(_Post(self.executing(place)))
        yield from self.walk(place)

    def _done(self, post: _Post) -> Iterator[Step]:
        """Back from an instruction's post to the cycle in which its stream offered it."""
        done = self.records[post.place]
        match done.opcode:
            case Opcode.GEMM:
                yield Step(self.windows_end(post.place), Activity.PIPELINE, post.place)
                yield Step(done.start, Activity.COMPUTE, post.place)
            case Opcode.VEC:
                yield Step(done.start, Activity.VECTOR, post.place)
            case Opcode.MOVE:
                yield from self._move(post, done)
            case _:  # a SYNC, or a FETCH
                yield Step(done.start, Activity.POST, post.place)

    def _issued(self, before: InstructionPlace, start: int) -> Iterator[Step]:
        """Back from an instruction that waited for no post to the start of the previous one of its stream."""
        last = self.records[before]
        match self.instruction(before).opcode:
            case Opcode.GEMM:  # the front end goes on when the matrix unit has taken it
                yield Step(min(start, self.windows_end(before)), Activity.ISSUE, before)
                yield Step(last.start, Activity.COMPUTE, before)
            case Opcode.VEC:
                yield Step(last.end, Activity.ISSUE, before)
                yield Step(last.start, Activity.VECTOR, before)
            case Opcode.MOVE if self.executing(before) == before:
                yield Step(last.start, Activity.ISSUE, before)
                yield Step(self._offered(before), Activity.QUEUE, before)
            case _:
                yield Step(last.end - 1, Activity.ISSUE, before)
                yield Step(last.start, Activity.HAND_OVER, before)

    def _move(self, post: _Post, done: T) -> Iterator[Step]:
        """From a MOVE's post back to the cycle in which its stream offered it."""
        place, issued = post.place, post.place._replace(remote=False)
        if post.delivered:
            yield Step(done.end, Activity.FLIGHT, place)
        fields = self.instruction(place).fields
        alone = ideal_move_cycles(fields, self.chip, self._routes[place[:3]])
        yield Step(min(done.end, done.start + alone), Activity.HELD_UP, place)
        yield Step(done.start, Activity.TRANSFER, place)
        if place.remote:
            request, source = self.records[issued], fields["src_tile"]
            yield Step(request.end - 1 + self.hops(issued.tile, source) + REQUEST_CYCLES, Activity.QUEUE, place)
            yield Step(request.end - 1, Activity.REQUEST, issued)
            yield Step(request.start, Activity.HAND_OVER, issued)
        else:
            yield Step(self._offered(issued), Activity.QUEUE, issued)

    def behind_dram(self, place: InstructionPlace) -> bool:
        """Whether a request or post that waits to be sent does so behind a DRAM's full queue: its own, or that of the
        previous one of its stream."""
        for result in (place, self.before(place)):
            away = result is not None and self.executing(result).remote
            if result is not None and away and self.is_dram(self.instruction(result).fields["src_tile"]):
                return True
        return False

    def before(self, place: InstructionPlace) -> InstructionPlace | None:
        """The previous instruction of the stream that left a record."""
        for index in range(place.index - 1, -1, -1):
            if (result := place._replace(index=index)) in self.records:
                return result
        return None

    def _busy(self, before: InstructionPlace, cycle: int) -> bool:
        """Whether a VEC was still running in a cycle."""
        return self.instruction(before).opcode is Opcode.VEC and self.records[before].end > cycle

    def _offered(self, place: InstructionPlace) -> int:
        """When an own MOVE was offered to the mover, if its code had arrived."""
        record, before = self.records[place], self.before(place)
        if before is None:
            return record.start
        last = self.records[before]
        own = self.instruction(before).opcode is Opcode.MOVE and self.executing(before) == before
        return (last.start if own else last.end - 1) + ISSUE_CYCLES + record.wait
