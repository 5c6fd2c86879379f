"""Schedule -> Program: dependences between streams become as few semaphore waits as knowledge allows.

Every operation is one instruction of one stream: a MOVE of its issuer's mover, a GEMM of its core's matrix unit. An
event (`hazards.Event`) that another stream must wait for is posted to a semaphore in that stream's tile. There is one
semaphore for each *channel*: one class of events, which happen in list order, to one waiting stream; each post in it is
consumed by exactly one wait, so every wait is for 1 and a run leaves all semaphores at zero. When a tile runs out of
semaphores, a channel that is known to be empty gives its own away.

- **Knowledge.** Each stream has a vector clock: the latest event of each class it knows to have happened. An event
  brings what its issuer knew when it issued the operation. A wait for something known is left out, and of several waits
  only those remain that no other brings.
- **For free** come: GEMMs of one core among themselves; MOVEs of one issuer in one executing mover (first in, first
  out), and their data in one target tile. A mover's front end does not hold its stream until an own MOVE has been read.
- **Relays.** An operation can post each event once, and COMPLETE and READ only on the executing tile. Further waiting
  streams are told by a *home* stream, which waits itself and passes the news on with a SYNC. The SYNC stands where the
  first operation needs it, so that the home is not held up earlier than necessary.
- **No deadlock.** Every wait, relays included, is for something that stands earlier in the list's total order, and
  requests that travel carry no wait. The earliest unfinished instruction can always go on.
- **No overflow.** A channel never holds more than `limit` posts: before an operation makes a post that might be one too
  many, its issuer learns that the consumer has taken an earlier one (a credit, itself a SYNC).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.config import OFFSET_BITS, ChipConfig
from meshloom.hw.isa import Opcode, Unit

from ..schedule import Gemm, Move, Operation, Schedule, intervals
from ..validation import validate
from .hazards import Dependence, Event, EventClass, dependences, event_class
from .program import Instruction, Program, ProgramError, next_tag, place

#: Posts that a channel may hold before its consumer must have taken one; a semaphore has 8 bits.
POST_LIMIT = 192

_OFFSET = (1 << OFFSET_BITS) - 1

_Clock = NDArray[np.int32]
_Post = tuple[int, Event]  # operation, event
_Key = tuple[int, int]  # class number (relays: -1 - home stream), consuming stream


class _Channel:
    """A semaphore in the tile of the stream `consumer`."""

    __slots__ = ("consumer", "posts", "semaphore", "taken", "tile")

    def __init__(self, tile: int, consumer: int, semaphore: int) -> None:
        self.tile = tile
        self.consumer = consumer
        self.semaphore = semaphore
        self.posts: list[int] = []  # operations (relays: running numbers) whose posts are waited for, in order
        self.taken: list[int] = []  # progress of the consumer when it had taken each


class _Item(NamedTuple):
    """One instruction to be: an operation, or -1 for a SYNC; what it waits for; what a SYNC posts to."""

    op: int
    waits: list[_Channel]
    post: _Channel | None


class _Need(NamedTuple):
    op: int
    event: Event
    number: int  # of the event's class


class _Numbers:
    """Streams and event classes by number, and the classes of each operation's events."""

    def __init__(self, operations: Sequence[Operation], chip: ChipConfig) -> None:
        self.streams = [(tile, Unit.MOVER) for tile in chip.tiles] + [(tile, Unit.MATRIX) for tile in chip.cores]
        self.stream_of = {stream: number for number, stream in enumerate(self.streams)}
        numbers: dict[EventClass, int] = {}
        self.early: list[int] = []  # class of READ or COMPLETE of each operation
        self.late: list[int] = []  # class of LANDED or COMPLETE
        self.issuer: list[int] = []  # stream of each operation
        for op in operations:
            if isinstance(op, Gemm):
                early = late = numbers.setdefault(event_class(op, Event.COMPLETE), len(numbers))
                self.issuer.append(self.stream_of[op.core, Unit.MATRIX])
            else:
                early = numbers.setdefault(event_class(op, Event.READ), len(numbers))
                late = numbers.setdefault(event_class(op, Event.LANDED), len(numbers))
                self.issuer.append(self.stream_of[op.issuer, Unit.MOVER])
            self.early.append(early)
            self.late.append(late)
        self.events = [known.event for known in numbers]  # of each class
        self.progress = len(numbers)  # clock entry of stream 0's progress; the other streams' follow
        self.size = self.progress + len(self.streams)


class _Pass:
    """One walk over the operations in list order.

    `routes` (consumers of an earlier pass): for each post the streams that need it, in order of need. Without it, the
    pass only finds this out, as if every post could reach everybody. `before` (posts of an earlier pass): for each
    channel the operations that post; with it, credits are inserted.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        needs: Sequence[tuple[Dependence, ...]],
        chip: ChipConfig,
        numbers: _Numbers,
        limit: int,
        routes: dict[_Post, list[int]] | None = None,
        before: dict[_Key, list[int]] | None = None,
    ) -> None:
        self.operations, self.needs, self.numbers, self.limit, self.routes = operations, needs, numbers, limit, routes
        self.before = before or {}
        self.consumers: dict[_Post, list[int]] = {}
        self.channels: dict[_Key, _Channel] = {}
        self.slots: dict[_Post, _Channel] = {}  # the semaphore that a post goes to
        self.items: list[list[_Item]] = [[] for _ in numbers.streams]
        self.ends: dict[int, list[_Channel]] = {}  # what streams wait for at last
        self.retired: list[tuple[_Key, _Channel]] = []  # those whose semaphore has gone to another
        self.semaphores = chip.semaphores
        self.wanted = dict.fromkeys(chip.tiles, 0)  # semaphores, for each tile
        self._known: list[_Clock] = [np.full(numbers.size, -1, np.int32) for _ in numbers.streams]
        self._issued: list[_Clock] = []  # what the issuer knew, for each operation
        self._now = 0
        self._ranks: dict[int, list[tuple[_Key, int]]] = {}
        for key, ops in self.before.items():
            for rank in range(limit, len(ops)):
                self._ranks.setdefault(ops[rank], []).append((key, rank))
        for index in range(len(operations)):
            self._now = index
            self._operation(index)
        self._now = len(operations)
        self._finish()

    def _operation(self, index: int) -> None:
        numbers = self.numbers
        stream = numbers.issuer[index]
        self._credits(index, stream)
        wanted: list[_Need] = []
        for on, event, overwrite in self.needs[index]:
            # First in, first out: the executing mover has sent what this issuer asked of it before, and data that goes
            # the same way arrives in order.
            if event is Event.READ and numbers.early[index] == numbers.early[on]:
                continue
            if overwrite and numbers.late[index] == numbers.late[on]:
                continue
            wanted.append(self._need(on, event, stream))
        waits = self._satisfy(stream, wanted)
        self._issued.append(self._known[stream])
        self.items[stream].append(_Item(index, waits, None))

    def _finish(self) -> None:
        """Lets each stream wait at its end for its last events that no stream knows of."""
        everybody = np.maximum.reduce(self._known)
        ends: dict[int, list[_Need]] = {}
        for number, index in {number: index for index, number in enumerate(self.numbers.late)}.items():
            if everybody[number] < index:
                ends.setdefault(self.numbers.issuer[index], []).append(
                    _Need(index, self.numbers.events[number], number)
                )
        for stream, wanted in ends.items():
            self.ends[stream] = self._satisfy(stream, sorted(wanted, reverse=True))

    # -- knowledge --------------------------------------------------------------------------------------------

    def _need(self, on: int, event: Event, stream: int) -> _Need:
        numbers, op = self.numbers, self.operations[on]
        away = isinstance(op, Move) and op.src.tile != numbers.streams[stream][0]
        if event is Event.READ and away and self._known[stream][numbers.early[on]] < on:
            event = Event.LANDED  # can be posted anywhere; the end of reading only where it happens
        return _Need(on, event, numbers.late[on] if event is Event.LANDED else numbers.early[on])

    def _after(self, clock: _Clock, op: int, event: Event) -> _Clock:
        """What is known once an event is: all that its issuer knew, and a MOVE that has landed has been read."""
        numbers = self.numbers
        clock = np.maximum(clock, self._issued[op])
        clock[numbers.early[op]] = max(clock[numbers.early[op]], op)
        if event is Event.LANDED:
            clock[numbers.late[op]] = max(clock[numbers.late[op]], op)
        return clock

    def _satisfy(self, stream: int, wanted: Iterable[_Need]) -> list[_Channel]:
        """Makes a stream know events (given latest first). Returns the channels it must wait for, earliest first."""
        clock = self._known[stream]
        kept: list[_Need] = []
        for need in wanted:
            if clock[need.number] < need.op:
                kept.append(need)
                clock = self._after(clock, need.op, need.event)
        if not kept:
            return []
        if self.routes is None:
            for need in kept:
                self.consumers.setdefault((need.op, need.event), []).append(stream)
            self._known[stream] = clock
            return []
        waits: list[tuple[int, _Channel]] = []
        relayed: dict[int, list[_Need]] = {}
        for need in kept:
            if (home := self._home(need, stream)) == stream:
                waits.append((need.op, self._post(need, stream)))
            else:
                relayed.setdefault(home, []).append(need)
        for home, group in relayed.items():
            channel, told = self._forward(home, stream, group)
            waits.append((group[0].op, channel))
            clock = np.maximum(clock, told)
        self._known[stream] = np.maximum(clock, self._known[stream])
        waits.sort(key=lambda wait: wait[0])
        return self._taken(stream, [channel for _, channel in waits])

    def _taken(self, stream: int, waits: list[_Channel]) -> list[_Channel]:
        """Enters that a stream waits for these channels next."""
        if waits:
            clock = self._known[stream] = self._known[stream].copy()
            clock[self.numbers.progress + stream] += 1
            for channel in waits:
                channel.taken.append(int(clock[self.numbers.progress + stream]))
        return waits

    # -- posts ------------------------------------------------------------------------------------------------

    def _channel(self, key: _Key, poster: _Clock) -> _Channel:
        """The channel of a key, for a post by a stream that knows `poster` when it posts."""
        channel = self.channels.get(key)
        if channel is None:
            tile = self.numbers.streams[key[1]][0]
            semaphore = self.wanted[tile]
            if semaphore >= self.semaphores:
                semaphore = self._reuse(tile, np.minimum(poster, self._known[key[1]]))
            channel = self.channels[key] = _Channel(tile, key[1], semaphore)
            self.wanted[tile] += semaphore == self.wanted[tile]
        return channel

    def _reuse(self, tile: int, known: _Clock) -> int:
        """A semaphore of a channel whose posts are all taken, as both poster and new consumer know (or else one could
        post, the other wait too early); a new number if there is none."""
        for key, channel in self.channels.items():
            empty = len(channel.posts) == len(channel.taken) and channel.semaphore < self.semaphores
            if channel.tile == tile and empty and known[self.numbers.progress + key[1]] >= channel.taken[-1]:
                self.retired.append((key, self.channels.pop(key)))
                return channel.semaphore
        return self.wanted[tile]

    def _post(self, need: _Need, stream: int) -> _Channel:
        """Lets an operation post an event to a stream."""
        channel = self.slots[need.op, need.event] = self._channel((need.number, stream), self._issued[need.op])
        channel.posts.append(need.op)
        return channel

    def _home(self, need: _Need, stream: int) -> int:
        """The stream that the operation posts this event to; it tells the others."""
        if (slot := self.slots.get((need.op, need.event))) is not None:
            return slot.consumer
        op, numbers = self.operations[need.op], self.numbers
        wanting = (self.routes or {}).get((need.op, need.event)) or [stream]
        if isinstance(op, Gemm):
            here = [number for number in wanting if numbers.streams[number][0] == op.core]
            return here[0] if here else numbers.stream_of[op.core, Unit.MOVER]
        if need.event is Event.READ or all(numbers.streams[number][0] == op.dst.tile for number in wanting):
            return wanting[0]
        return wanting[0] if len(wanting) == 1 else numbers.stream_of[op.dst.tile, Unit.MOVER]

    def _forward(self, home: int, stream: int, group: list[_Need]) -> tuple[_Channel, _Clock]:
        """A SYNC in `home` that waits for these events (as far as they are news there) and posts to `stream`; what
        `stream` knows once it has taken the post."""
        key = (-1 - home, stream)
        full = self.channels.get(key)
        if full is not None and (held := len(full.posts) - self.limit) >= 0:
            self._hear(home, stream, full.taken[held])
        waits = self._satisfy(home, group)
        channel = self._channel(key, self._known[home])
        channel.posts.append(self._now)
        self.items[home].append(_Item(-1, waits, channel))
        return channel, self._known[home]

    def _hear(self, stream: int, consumer: int, progress: int) -> None:
        """Lets a stream wait until it knows how far a consumer has come: a credit."""
        if consumer != stream and self._known[stream][self.numbers.progress + consumer] < progress:
            channel, clock = self._forward(consumer, stream, [])
            self._known[stream] = np.maximum(self._known[stream], clock)
            self.items[stream].append(_Item(-1, self._taken(stream, [channel]), None))

    def _credits(self, index: int, stream: int) -> None:
        """Before an operation posts once more to a channel that might be full, its issuer hears from the consumer."""
        for key, rank in self._ranks.get(index, ()):
            number, consumer = key
            target = self.before[key][rank - self.limit]
            forced = self._satisfy(consumer, [_Need(target, self.numbers.events[number], number)])
            if forced:
                self.items[consumer].append(_Item(-1, forced, None))
            channel = self.channels.get(key)
            if channel and (count := bisect_right(channel.posts, target)):
                self._hear(stream, consumer, channel.taken[count - 1])


def lower(schedule: Schedule, chip: ChipConfig, limit: int = POST_LIMIT) -> Program:
    """The program of a schedule. `limit`: most posts that a semaphore may hold, 2..255.

    Raises ScheduleError when the schedule does not fit the chip, ProgramError when its code does not fit behind the
    tensors or a tile needs more semaphores than the chip has.
    """
    validate(schedule, chip)
    if not 2 <= limit <= 255:
        raise ProgramError(f"limit = {limit} posts for a semaphore of 8 bits; give 2..255")
    operations = schedule.operations
    numbers = _Numbers(operations, chip)
    needs = dependences(operations, chip)
    routes = _Pass(operations, needs, chip, numbers, limit).consumers
    done = _Pass(operations, needs, chip, numbers, limit, routes)
    before: dict[_Key, list[int]] = {}
    while True:  # the second time round there is nothing new: credits only add knowledge, so no post is added
        crowded: dict[_Key, set[int]] = {}
        for key, channel in (*done.retired, *done.channels.items()):
            if key[0] >= 0:
                crowded.setdefault(key, {*before.get(key, ())}).update(channel.posts)
        crowded = {key: ops for key, ops in crowded.items() if len(ops) > max(limit, len(before.get(key, ())))}
        if not crowded:
            break
        before |= {key: sorted(ops) for key, ops in crowded.items()}
        done = _Pass(operations, needs, chip, numbers, limit, routes, before)
    for tile, count in done.wanted.items():
        if count > chip.semaphores:
            raise ProgramError(
                f"tile {tile:#04x} needs {count} semaphores, chip {chip.name} has {chip.semaphores}; raise semaphores "
                "(up to 64) or let fewer tiles exchange data with it"
            )
    return _assemble(schedule, chip, numbers, done)


def _assemble(schedule: Schedule, chip: ChipConfig, numbers: _Numbers, done: _Pass) -> Program:
    operations = schedule.operations
    syncs = len(operations)
    codes: dict[tuple[int, Unit], tuple[Instruction, ...]] = {}
    for number, items in enumerate(done.items):
        if not items:
            continue
        code: list[Instruction] = []
        end = {"tile": chip.host, "sem": 0, "n": 1}
        for item in (*items, _Item(-1, done.ends.get(number, []), None)):
            for channel in item.waits[:-1]:
                code.append(Instruction(Opcode.SYNC, {"tag": next_tag(syncs)} | _wait(channel)))
                syncs += 1
            header = _wait(item.waits[-1]) if item.waits else {}
            if item.op >= 0:
                header["tag"] = next_tag(item.op)
                code.append(_operation(item.op, operations[item.op], header, done.slots))
                continue
            header["tag"] = next_tag(syncs)
            syncs += 1
            if item.post is not None:
                header |= {"tile": item.post.tile, "sem": item.post.semaphore, "n": 1}
            code.append(Instruction(Opcode.SYNC, header))
        last = code.pop()
        code.append(Instruction(Opcode.SYNC, last.fields | end))
        codes[numbers.streams[number]] = tuple(code)
    streams, boot = place(codes, _used(schedule, chip), chip)
    tags = {next_tag(index): index for index in range(len(operations))}
    return Program(chip.digest, streams, boot, tags)


def _wait(channel: _Channel) -> dict[str, int]:
    return {"wait_sem": channel.semaphore, "wait_n": 1}


def _operation(index: int, op: Operation, header: dict[str, int], slots: dict[_Post, _Channel]) -> Instruction:
    early = slots.get((index, Event.COMPLETE if isinstance(op, Gemm) else Event.READ))
    if early is not None:
        header |= {"post_sem": early.semaphore, "post_n": 1}
    if isinstance(op, Gemm):
        return Instruction(Opcode.GEMM, header | op.body)
    if (landed := slots.get((index, Event.LANDED))) is not None:
        header |= {"notify_tile": landed.tile, "notify_sem": landed.semaphore, "notify": 1}
    return Instruction(Opcode.MOVE, header | op.body)


def _used(schedule: Schedule, chip: ChipConfig) -> dict[int, int]:
    """First word of each DRAM tile behind everything that tensors and operations touch."""
    used = dict.fromkeys(chip.drams, 0)
    for tensor in schedule.tensors:
        for piece in tensor.pieces:
            used[piece.tile] = max(used[piece.tile], (piece.address & _OFFSET) + piece.words)
    for op in schedule.operations:
        if isinstance(op, Gemm):
            continue
        for span in (op.src, op.dst):
            if span.tile in used:
                used[span.tile] = max(used[span.tile], intervals(span, op.words)[-1][1])
    return used
