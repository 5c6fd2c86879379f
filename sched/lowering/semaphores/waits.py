"""The waits and posts that implement the dependences of a schedule.

An event (`hazards.Event`) that another stream must wait for is posted to a semaphore in that stream's tile. There is
one semaphore for each *channel*: one class of events, which occur in list order, to one waiting stream. Exactly one
wait consumes each post of a channel, so every wait is for 1 and a run leaves all semaphores at zero.

- **Knowledge.** Each stream has a vector clock: the latest event of each class that it knows to have occurred. An event
  carries what its issuer knew when it issued the operation. A wait for a known event is left out, and of several waits
  only those remain that no other implies.
- **Free ordering.** Ordered without waits are: the GEMMs of one core, and likewise its VECs; MOVEs of one issuer in one
  executing mover (first in, first out), and their data in one target tile. A mover's front end does not hold its
  stream until an own MOVE has been read.
- **Relays.** An operation can post each event once, and COMPLETE and READ only on the executing tile. If more streams
  wait for an event, a *home* stream waits for it and forwards it to the others with a SYNC. The SYNC is placed where
  the first operation needs it, so that it stalls the home stream no earlier than necessary.
- **No deadlock.** Every wait, relays included, is for something earlier in the list's total order, and forwarded
  requests carry no wait. So the earliest unfinished instruction can always proceed.
- **No overflow.** A channel never holds more than `limit` posts: before an operation makes a post that might exceed it,
  its issuer learns that the consumer has taken an earlier one (a credit, also a SYNC).
- **Few semaphores.** If a tile has more channels than semaphores, each of its streams gets a share, and a channel that
  opens takes the semaphore of another channel to the same stream: of one that the poster knows to be empty, or else of
  the least recently used one, which the stream first empties and then reports to the poster (a handover, with SYNCs
  like a credit's). Relays keep theirs, so that events can always be forwarded; where they are most of what a tile has,
  only movers tell each other what happens in other tiles, and tell their own units.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Unit, units_of

from ...ir.hazards import ClassNumbers, Dependence, Event, unit_of
from ...ir.schedule import Move, Operation

_COMPLETE, _DELIVERED = Event.COMPLETE, Event.DELIVERED
Clock = NDArray[np.int32]
Post = tuple[int, Event]  # operation, event
Key = tuple[int, int]  # of a channel: class number (relays: -1 - home stream), consuming stream


class Channel:
    """A semaphore in the tile of the stream `consumer`."""

    __slots__ = ("consumer", "expected", "posts", "progress", "semaphore", "tile")

    def __init__(self, tile: int, consumer: int, semaphore: int) -> None:
        self.tile = tile
        self.expected = -1  # last operation issued so far that may post, whether or not a wait for it exists yet
        self.consumer = consumer
        self.semaphore = semaphore
        self.posts: list[int] = []  # operations (relays: serial numbers) whose posts are waited for, in order
        self.progress: list[int] = []  # progress of the consumer when it had taken each of them


class Item(NamedTuple):
    """A future instruction: an operation, or -1 for a SYNC; what it waits for; the channel to which a SYNC posts."""

    op: int
    waits: list[Channel]
    post: Channel | None


class Need(NamedTuple):
    op: int
    event: Event
    number: int  # of the event's class


#: What an operation must know, and the later event that it waits for in its place if it does not; None: that itself.
Wanted = tuple[Need, Need | None]


class Numbers:
    """Streams and event classes by number, and the classes of each operation's events."""

    def __init__(self, operations: Sequence[Operation], chip: ChipConfig) -> None:
        self.streams = [(tile, Unit.MOVER) for tile in chip.tiles]
        self.streams += [(tile, unit) for unit in (Unit.MATRIX, Unit.VECTOR) for tile in chip.cores]
        self.stream_of = {stream: number for number, stream in enumerate(self.streams)}
        classes = ClassNumbers()
        self.early: list[int] = []  # class of READ or COMPLETE of each operation
        self.late: list[int] = []  # class of DELIVERED or COMPLETE
        self.issuer: list[int] = []  # stream of each operation
        for op in operations:
            early, late = classes.of(op)
            self.early.append(early)
            self.late.append(late)
            stream = (op.issuer, Unit.MOVER) if isinstance(op, Move) else (op.core, unit_of(op))
            self.issuer.append(self.stream_of[stream])
        self.events = classes.events  # of each class
        self.progress = len(self.events)  # clock index of the progress of stream 0; the other streams follow
        self.size = self.progress + len(self.streams)


def wanted(
    operations: Sequence[Operation], needs: Sequence[Sequence[Dependence]], numbers: Numbers
) -> list[list[Wanted]]:
    """What each operation must know of those before it, given what it depends on.

    First in, first out: the executing mover has already sent what this issuer requested earlier, and data on the same
    route arrives in order. A MOVE's delivery can be posted anywhere; the end of its reading only on the executing tile.
    """
    early, late = numbers.early, numbers.late
    sources = [op.src.tile if isinstance(op, Move) else -1 for op in operations]
    here = [numbers.streams[stream][0] for stream in numbers.issuer]
    result: list[list[Wanted]] = []
    for index, dependences in enumerate(needs):
        some: list[Wanted] = []
        for on, event, overwrite in dependences:
            if event is _DELIVERED:
                if not overwrite or late[index] != late[on]:
                    some.append((Need(on, event, late[on]), None))
            elif event is _COMPLETE:
                if not overwrite or late[index] != late[on]:
                    some.append((Need(on, event, early[on]), None))
            elif early[index] != early[on] and not (overwrite and late[index] == late[on]):
                away = sources[on] != here[index]
                some.append((Need(on, event, early[on]), Need(on, _DELIVERED, late[on]) if away else None))
        result.append(some)
    return result


@dataclass
class Learnt:
    """The findings of earlier passes.

    `routes` (their consumers): for each post the streams that need it, in order of need; None before the first pass.
    `before`: for each channel the operations that post; if given, credits are inserted. `shares`: semaphores of each
    stream for channels other than relays; with `posting` (the channels to which each operation posts), handovers are
    inserted. `hubs`: tiles whose movers alone hear of other tiles, and only of their movers.
    """

    routes: dict[Post, list[int]] | None = None
    before: dict[Key, list[int]] = field(default_factory=dict[Key, list[int]])
    shares: dict[int, int] = field(default_factory=dict[int, int])
    posting: dict[int, set[Key]] = field(default_factory=dict[int, set[Key]])
    hubs: set[int] = field(default_factory=set[int])


class Pass:
    """One walk over the operations in list order. The first pass, without `routes`, only determines who needs what, as
    if every post could reach every stream."""

    def __init__(
        self,
        operations: Sequence[Operation],
        wanted: Sequence[Sequence[Wanted]],
        chip: ChipConfig,
        numbers: Numbers,
        limit: int,
        learnt: Learnt,
    ) -> None:
        self.operations, self.wanted, self.numbers, self.limit = operations, wanted, numbers, limit
        self._needs: list[Need] = []
        self.routes, self.before, self.shares, self.posting, self.hubs = (
            learnt.routes, learnt.before, learnt.shares, learnt.posting, learnt.hubs,
        )  # fmt: skip
        self.relays = [0] * len(numbers.streams)  # semaphores for relays to each stream
        self.direct = [0] * len(numbers.streams)  # and for operations' posts
        self._to: list[dict[Key, Channel]] = [{} for _ in numbers.streams]  # of these, the least recently used first
        self.consumers: dict[Post, list[int]] = {}
        self.channels: dict[Key, Channel] = {}
        self.slots: dict[Post, Channel] = {}  # the semaphore to which an event is posted
        self.items: list[list[Item]] = [[] for _ in numbers.streams]
        self.ends: dict[int, list[Channel]] = {}  # what streams wait for at their end
        self.retired: list[tuple[Key, Channel]] = []  # channels whose semaphore has been given to another
        self.semaphores = dict.fromkeys(chip.tiles, 0)  # semaphores, for each tile
        self._streamed = {tile for tile, kind in chip.tiles.items() if units_of(chip, kind)}
        self._clocks: list[Clock] = [np.full(numbers.size, -1, np.int32) for _ in numbers.streams]
        self._issued: list[Clock] = []  # what the issuer knew, for each operation
        self._now = 0
        self._ranks: dict[int, list[tuple[Key, int]]] = {}
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
        if self.posting:
            for key in sorted(self.posting.get(index, ())):
                self._reserve(key, index, stream)
        clock, needs = self._clocks[stream], self._needs
        needs.clear()
        for need, delivered in self.wanted[index]:
            if clock[need.number] < need.op:  # else it is known
                if delivered is None:
                    needs.append(need)
                elif clock[delivered.number] < need.op:
                    needs.append(delivered)
        waits = self._satisfy(stream, needs) if needs else []
        self._issued.append(self._clocks[stream])
        self.items[stream].append(Item(index, waits, None))

    def _finish(self) -> None:
        """Makes each stream wait at its end for its last events that no stream knows yet."""
        everybody = np.maximum.reduce(self._clocks)
        ends: dict[int, list[Need]] = {}
        for number, index in {number: index for index, number in enumerate(self.numbers.late)}.items():
            if everybody[number] < index:
                ends.setdefault(self.numbers.issuer[index], []).append(Need(index, self.numbers.events[number], number))
        for stream, needs in ends.items():
            self.ends[stream] = self._satisfy(stream, sorted(needs, reverse=True))

    # -- knowledge --------------------------------------------------------------------------------------------

    def _after(self, clock: Clock, op: int, event: Event) -> Clock:
        """The clock after an event: adds all that its issuer knew; a MOVE that has been delivered has been read."""
        numbers = self.numbers
        clock = np.maximum(clock, self._issued[op])
        if clock[early := numbers.early[op]] < op:
            clock[early] = op
        if event is Event.DELIVERED and clock[late := numbers.late[op]] < op:
            clock[late] = op
        return clock

    def _satisfy(self, stream: int, needs: Iterable[Need]) -> list[Channel]:
        """Makes a stream learn events (given latest first). Returns the channels it must wait for, earliest first."""
        clock = self._clocks[stream]
        open_needs: list[Need] = []
        for need in needs:
            if clock[need.number] < need.op:
                open_needs.append(need)
                clock = self._after(clock, need.op, need.event)
        if not open_needs:
            return []
        if self.routes is None:
            for need in open_needs:
                self.consumers.setdefault((need.op, need.event), []).append(stream)
            self._clocks[stream] = clock
            return []
        waits: list[tuple[int, Channel]] = []
        relayed: dict[int, list[Need]] = {}
        for need in open_needs:
            if (home := self._home(need, stream)) == stream:
                waits.append((need.op, self._post(need, stream)))
            else:
                relayed.setdefault(home, []).append(need)
        for home, group in relayed.items():
            channel, knowledge = self._forward(home, stream, group)
            waits.append((group[0].op, channel))
            clock = np.maximum(clock, knowledge)
        self._clocks[stream] = np.maximum(clock, self._clocks[stream])
        waits.sort(key=lambda wait: wait[0])
        return self._waits(stream, [channel for _, channel in waits])

    def _waits(self, stream: int, waits: list[Channel]) -> list[Channel]:
        """Records that a stream waits for these channels next."""
        if waits:
            clock = self._clocks[stream] = self._clocks[stream].copy()
            clock[self.numbers.progress + stream] += 1
            for channel in waits:
                channel.progress.append(int(clock[self.numbers.progress + stream]))
        return waits

    # -- posts ------------------------------------------------------------------------------------------------

    def _channel(self, key: Key) -> Channel:
        """The channel of a key; a new one gets a new semaphore."""
        channel = self.channels.get(key)
        if channel is None:
            tile = self.numbers.streams[key[1]][0]
            channel = self.channels[key] = Channel(tile, key[1], self.semaphores[tile])
            self.semaphores[tile] += 1
            if key[0] < 0:
                self.relays[key[1]] += 1
            else:
                self.direct[key[1]] += 1
                self._to[key[1]][key] = channel
        return channel

    def _reserve(self, key: Key, index: int, stream: int) -> None:
        """Ensures that an operation of `stream` has a channel for its post, within the consumer's share."""
        consumer = key[1]
        held = self._to[consumer]
        channel = held.pop(key, None)
        others = [(old, other) for old, other in held.items() if other.expected < index]
        if channel is None and others and self.direct[consumer] >= self.shares.get(consumer, 1 << 30):
            producer_clock, consumer_clock = self._clocks[stream], self._clocks[consumer]
            for old, rival in others:  # emptied, as both sides know?
                progress = rival.progress[-1] if rival.progress else 0
                if (
                    consumer_clock[old[0]] >= rival.expected
                    and producer_clock[self.numbers.progress + consumer] >= progress
                ):
                    break
            else:
                old, rival = others[0]
                self._empty(old, rival, stream)
            del held[old]
            self.retired.append((old, self.channels.pop(old)))
            channel = self.channels[key] = Channel(rival.tile, consumer, rival.semaphore)
        elif channel is None:
            channel = self._channel(key)
        channel.expected = index
        held[key] = channel  # most recently used

    def _empty(self, key: Key, channel: Channel, stream: int) -> None:
        """Makes the consumer of a channel take all its posts, and `stream` learn of it."""
        number, consumer = key
        forced = self._satisfy(consumer, [Need(channel.expected, self.numbers.events[number], number)])
        if forced:
            self.items[consumer].append(Item(-1, forced, None))
        if channel.progress:
            self._hear(stream, consumer, channel.progress[-1])

    def _post(self, need: Need, stream: int) -> Channel:
        """Makes an operation post an event to a stream."""
        channel = self.slots[need.op, need.event] = self._channel((need.number, stream))
        channel.posts.append(need.op)
        return channel

    def _home(self, need: Need, stream: int) -> int:
        """The stream to which the operation posts this event; it forwards the event to the others."""
        if (slot := self.slots.get((need.op, need.event))) is not None:
            return slot.consumer
        op, numbers = self.operations[need.op], self.numbers
        wanting = (self.routes or {}).get((need.op, need.event)) or [stream]
        if not isinstance(op, Move):
            here = [number for number in wanting if numbers.streams[number][0] == op.core]
            return here[0] if here else numbers.stream_of[op.core, Unit.MOVER]
        if need.event is Event.READ or all(numbers.streams[number][0] == op.dst.tile for number in wanting):
            return wanting[0]
        if len(wanting) == 1 or op.dst.tile not in self._streamed:
            return wanting[0]
        return numbers.stream_of[op.dst.tile, Unit.MOVER]

    def _forward(self, home: int, stream: int, group: list[Need]) -> tuple[Channel, Clock]:
        """A SYNC in `home`, or on the way from there (`_via`), that waits for these events (unless already known there)
        and posts to `stream`. Returns the channel, and the clock that `stream` learns by taking the post."""
        home = self._via(home, stream)
        key = (-1 - home, stream)
        full = self.channels.get(key)
        if full is not None and (held := len(full.posts) - self.limit) >= 0:
            self._hear(home, stream, full.progress[held])
        waits = self._satisfy(home, group)
        channel = self._channel(key)
        channel.posts.append(self._now)
        self.items[home].append(Item(-1, waits, channel))
        return channel, self._clocks[home]

    def _via(self, home: int, stream: int) -> int:
        """Who tells a stream what another one knows."""
        numbers = self.numbers
        here, (tile, unit) = numbers.streams[home][0], numbers.streams[stream]
        if here == tile or tile not in self.hubs:
            return home
        return numbers.stream_of[here if unit is Unit.MOVER else tile, Unit.MOVER]

    def _hear(self, stream: int, consumer: int, progress: int) -> None:
        """Makes a stream wait until it knows that a consumer has reached this progress: a credit."""
        if consumer != stream and self._clocks[stream][self.numbers.progress + consumer] < progress:
            via = self._via(consumer, stream)
            if via != consumer:
                self._hear(via, consumer, progress)
            channel, clock = self._forward(via, stream, [])
            self._clocks[stream] = np.maximum(self._clocks[stream], clock)
            self.items[stream].append(Item(-1, self._waits(stream, [channel]), None))

    def _credits(self, index: int, stream: int) -> None:
        """Before an operation posts to a channel that might be full, its issuer gets a credit from the consumer."""
        for key, rank in self._ranks.get(index, ()):
            number, consumer = key
            target = self.before[key][rank - self.limit]
            forced = self._satisfy(consumer, [Need(target, self.numbers.events[number], number)])
            if forced:
                self.items[consumer].append(Item(-1, forced, None))
            channel = self.channels.get(key)
            if channel and (count := bisect_right(channel.posts, target)):
                self._hear(stream, consumer, channel.progress[count - 1])
