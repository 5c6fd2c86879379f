"""The data plane with several virtual channels, flit by flit, to the cycle.

Mirrors `hw/noc/router.py`, in which a packet keeps its channel on its whole route, and the receiving side
(`hw/noc/data_receiver.py`): an ejection buffer for each channel, from which delivery takes one flit a cycle in round
robin. Several packets share a link flit by flit, so the flows of `flow.py` would begin and end all the time. Instead
every cycle with a flit in the NoC is played, and only those; injection, and the parts that take delivered words, are
flows as elsewhere.

The moves of flits are the last phase of a cycle (`clock.py`), because they depend on everything that happened in it
before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from meshloom.hw.spec.contracts import EJECTION_FLITS
from meshloom.hw.spec.routes import dimension_ordered

from .clock import Clock, Event
from .flow import FOREVER, OPEN, Buffer, Link, Place, nothing
from .noc_flow import BACK, STEP, TILE, Packet, following, legs_of

_FLITS: Final = 3
#: A packet in a buffer: its whole route, and the index of its next lane.
_Passing = tuple[Packet, "list[_Lane]", int]


class _Queue:
    """The buffer of a channel of an input. The packet at its front requests its lane once its head has arrived."""

    __slots__ = ("cap", "count", "fresh", "left", "number", "packets", "popped")

    def __init__(self, cap: int, number: int) -> None:
        self.cap, self.number = cap, number  # `number`: of the input
        self.popped = False  # a flit left in this cycle (reset by those who look)
        self.count = 0  # flits at the start of the cycle
        self.packets: deque[_Passing] = deque()  # those whose head has arrived
        self.left = 0  # flits of the first packet that have not left
        self.fresh = True  # its head has not left


class _Entry(_Queue):
    """The same for injection: filled by a flow, and packets are known before their heads arrive."""

    __slots__ = ("buffer", "plane", "sends", "waits")

    def __init__(self, clock: Clock, depth: int, plane: FlitPlane) -> None:
        super().__init__(depth, TILE)
        self.buffer = _EntryBuffer(clock, depth, self)
        self.plane = plane
        self.waits = True  # no packet has a head at the front
        self.sends = False  # it is one of those that the plane looks at


class _EntryBuffer(Buffer):
    """The flits of an entry as the flow sees them."""

    __slots__ = ("_entry",)

    def __init__(self, clock: Clock, depth: int, entry: _Entry) -> None:
        super().__init__(clock, depth)
        self._entry = entry

    def arrive(self, now: int) -> None:
        entry = self._entry
        if entry.waits and entry.packets and self.level(now):
            entry.plane.enters(entry, now)


class _Inbox(_Queue):
    """A channel of a tile's ejection buffer."""

    __slots__ = ("channel", "delivery", "leg", "place", "todo")

    def __init__(self, channel: int, delivery: _Delivery) -> None:
        super().__init__(EJECTION_FLITS, 0)
        self.channel, self.delivery = channel, delivery
        self.leg = self.todo = 0  # leg of the packet at the front, flits left in it
        self.place: Place = OPEN

    def front(self) -> None:
        """The head of a packet is at the front."""
        self.leg, self.fresh = 0, True
        self.todo, self.place, _ = self.packets[0][0].legs[0]


class _Lane:
    """A channel of a router's output, and its arbiter."""

    __slots__ = ("asking", "channel", "output", "owner", "sink", "source")

    def __init__(self, channel: int, output: _Output, sink: _Queue) -> None:
        self.channel, self.output, self.sink = channel, output, sink
        self.source: _Queue | None = None  # None: free
        self.asking: list[_Queue] = []
        self.owner = -1  # number of the input that owned it last

    def choose(self) -> _Queue:
        """Grants it to the next input that requests it, in round robin."""
        asking = self.asking
        winner = asking[0]
        if len(asking) > 1:
            number = following([queue.number for queue in asking], self.owner)
            winner = next(queue for queue in asking if queue.number == number)
        asking.remove(winner)
        self.owner, self.source = winner.number, winner
        return winner


class _Output:
    """A router's output: one flit a cycle, from its lanes in round robin."""

    __slots__ = ("flits", "lanes", "turn")

    def __init__(self) -> None:
        self.lanes: list[_Lane] = []  # those that are owned or requested
        self.flits = 0  # that have left
        self.turn = -1  # channel of the previous flit


class _Delivery:
    """The delivery of flits from a tile's ejection buffers."""

    __slots__ = ("filling", "held", "order", "takes", "turn")

    def __init__(self, channels: int) -> None:
        boxes = [_Inbox(channel, self) for channel in range(channels)]
        #: The ejection buffers, starting with the one after each channel; the last entry is the initial order.
        self.order = [boxes[at + 1 :] + boxes[: at + 1] for at in range(channels)]
        self.turn = channels - 1
        self.takes = False  # it is one of those that the plane looks at
        self.held = False  # an exclusive packet is being delivered
        self.filling: Buffer | None = None  # the buffer that took a word in the previous cycle


class FlitPlane:
    """One mesh with `channels` virtual channels, each with buffers of `depth` flits.

    `routing`: dimension order of packets without a source route. Used like `noc_flow.Plane`, but ignores the `gate`s of
    packets.
    """

    def __init__(self, clock: Clock, depth: int, channels: int, routing: str = "xy") -> None:
        self.clock, self.depth, self.channels, self.routing = clock, depth, channels, routing
        self._entries: dict[tuple[int, int], _Entry] = {}
        self._queues: dict[tuple[int, int, int], _Queue] = {}
        self._outputs: dict[tuple[int, int], _Output] = {}
        self._lanes: dict[tuple[int, int, int], _Lane] = {}
        self._deliveries: dict[int, _Delivery] = {}
        self._paths: dict[tuple[int, ...], list[_Lane]] = {}
        self._sources: dict[int, Link] = {}
        # the active parts, in the order in which they became so
        self._sending: list[_Entry] = []
        self._busy: list[_Output] = []
        self._taking: list[_Delivery] = []
        self._moving: list[_Lane] = []  # lanes whose flit moves, and ejection buffers whose flit is taken, in a cycle
        self._boxes: list[_Inbox] = []
        self._due = -1
        self._turn = _Step(self)
        self._still = 0  # cycles since a flit last moved

    def source(self, tile: int) -> Link:
        """The link from a tile to its router."""
        if tile not in self._sources:
            self._sources[tile] = Link(self.clock)
        return self._sources[tile]

    def room(self, tile: int, channel: int, now: int) -> bool:
        """Whether the router takes a flit of its tile on a channel in cycle `now`."""
        return self._entry(tile, channel).buffer.room(now)

    def enter(self, source: int, target: int, packet: Packet) -> Place:
        """`source` sends this packet next; returns the place to which its flits go, over `source()`."""
        lanes = self._path(packet.channel, packet.tiles or (source, target, -1))
        entry = self._entry(source, packet.channel)
        entry.packets.append((packet, lanes, 0))
        return entry.buffer

    def send(
        self, now: int, source: int, target: int, packet: Packet, injected: Callable[[int], None] | None = None
    ) -> None:
        """Sends a packet whose flits are available from cycle `now` on; `injected` is called after its last."""
        place = self.enter(source, target, packet)
        self.source(source).start(now, OPEN, place, packet.flits, injected or nothing)

    @property
    def hops(self) -> int:
        """Flits that have moved over a link or into an ejection buffer."""
        return sum(output.flits for output in self._outputs.values())

    def busy(self, cycle: int) -> dict[tuple[int, int], int]:
        """As `noc_flow.Plane.busy`; nothing after `cycle` - 1 may have happened."""
        return {key: output.flits for key, output in self._outputs.items()}

    # -- the mesh -----------------------------------------------------------------------------------------------------

    def _entry(self, tile: int, channel: int) -> _Entry:
        key = tile, channel
        if key not in self._entries:
            entry = self._entries[key] = _Entry(self.clock, self.depth, self)
            entry.buffer.feeder = self.source(tile)
        return self._entries[key]

    def _path(self, channel: int, tiles: tuple[int, ...]) -> list[_Lane]:
        """The lanes of a route; without a source route its key is (source, target, -1)."""
        key = channel, *tiles
        if key not in self._paths:
            if tiles[-1] < 0:
                tiles = dimension_ordered(tiles[0], tiles[1], self.routing)
            self._paths[key] = [self._lane(tile, port, channel) for tile, port in legs_of(tiles)]
        return self._paths[key]

    def _lane(self, tile: int, port: int, channel: int) -> _Lane:
        key = tile, port, channel
        if key not in self._lanes:
            output = self._outputs.setdefault((tile, port), _Output())
            if port == TILE:
                if tile not in self._deliveries:
                    self._deliveries[tile] = _Delivery(self.channels)
                sink: _Queue = self._deliveries[tile].order[-1][channel]
            else:
                there = tile + STEP[port], BACK[port], channel
                sink = self._queues.setdefault(there, _Queue(self.depth, BACK[port]))
            self._lanes[key] = _Lane(channel, output, sink)
        return self._lanes[key]

    # -- cycles -------------------------------------------------------------------------------------------------------

    def enters(self, entry: _Entry, now: int) -> None:
        """A head is at the front of an entry from cycle `now` on."""
        entry.waits = False
        entry.count = entry.buffer.level(now)
        if not entry.sends:
            entry.sends = True
            self._sending.append(entry)
        self._ask(entry)
        self._wake(now)

    def _wake(self, cycle: int) -> None:
        if self._due < cycle:
            self._due = cycle
            self.clock.put(cycle, self._turn, _FLITS)

    def _ask(self, queue: _Queue) -> None:
        """The packet whose head is at the front requests its lane from the next cycle on."""
        packet, lanes, hop = queue.packets[0]
        queue.left, queue.fresh = packet.flits, True
        lane = lanes[hop]
        if lane.source is None and not lane.asking:
            lane.output.lanes.append(lane)
            if len(lane.output.lanes) == 1:
                self._busy.append(lane.output)
        lane.asking.append(queue)

    def step(self, now: int) -> None:
        """All moves of flits in a cycle; they depend only on the state at its start."""
        moving, boxes = self._moving, self._boxes
        self._choose(moving)
        still = True
        if self._taking:
            empty = False
            for delivery in self._taking:
                if not _pick(delivery, now, boxes):
                    delivery.takes = False
                    empty = True
            if empty:
                self._taking = [delivery for delivery in self._taking if delivery.takes]
        if moving:
            still = False
            self._move(moving)
            moving.clear()
        if boxes:
            still = False
            for box in boxes:
                self._take(box, now)
            boxes.clear()
        if self._sending:
            self._flow(now)
        self._still = self._still + 1 if still else 0
        if (self._busy or self._taking or self._sending) and not (still and self._stuck(now)):
            self._wake(now + 1)

    def _stuck(self, now: int) -> bool:
        """Whether nothing will ever move again: every ejection buffer has had its turn, and no event is pending."""
        if self._still <= self.channels or not self.clock.idle:
            return False
        return all(box.place.opens(now) == FOREVER for delivery in self._taking for box in delivery.order[-1])

    def _choose(self, moving: list[_Lane]) -> None:
        """Adds the lanes whose flits move: of each output, in round robin, the next one that can after the previous."""
        channels = self.channels
        for output in self._busy:
            best: _Lane | None = None
            distance = channels
            turn = output.turn + 1
            for lane in output.lanes:
                source = lane.source
                if source is None:
                    source = lane.choose()
                if source.count and lane.sink.count < lane.sink.cap:
                    away = lane.channel - turn
                    if away < 0:
                        away += channels
                    if away < distance:
                        best, distance = lane, away
            if best is not None:
                output.turn = best.channel
                moving.append(best)

    def _move(self, moving: list[_Lane]) -> None:
        """A flit moves over each of these lanes."""
        for lane in moving:
            source, sink = lane.source, lane.sink
            assert source is not None
            lane.output.flits += 1
            source.count -= 1
            sink.count += 1
            source.popped = True
            if source.fresh:
                source.fresh = False
                packet, lanes, hop = source.packets[0]
                sink.packets.append((packet, lanes, hop + 1))
                if len(sink.packets) == 1:
                    self._arrived(sink)
            left = source.left - 1
            source.left = left
            if not left:
                self._free(lane, source)

    def _free(self, lane: _Lane, source: _Queue) -> None:
        """The last flit of a packet has moved over a lane."""
        source.packets.popleft()
        lane.source = None
        if not lane.asking:
            output = lane.output
            output.lanes.remove(lane)
            if not output.lanes:
                self._busy.remove(output)
        if isinstance(source, _Entry):
            source.waits = True
        elif source.packets:
            self._ask(source)

    def _arrived(self, queue: _Queue) -> None:
        """The head of the first packet has arrived in a queue."""
        if isinstance(queue, _Inbox):
            queue.front()
            if not queue.delivery.takes:
                queue.delivery.takes = True
                self._taking.append(queue.delivery)
        else:
            self._ask(queue)

    def _take(self, box: _Inbox, now: int) -> None:
        """Takes a flit out of an ejection buffer."""
        packet, delivery = box.packets[0][0], box.delivery
        box.count -= 1
        box.todo -= 1
        if box.fresh:
            box.fresh = False
            delivery.held |= packet.exclusive
        if box.todo:
            return
        done = packet.legs[box.leg][2]
        if done is not None:
            self.clock.at(now + 1, done)
        box.leg += 1
        if box.leg < len(packet.legs):
            box.todo, box.place, _ = packet.legs[box.leg]
            return
        if packet.exclusive:
            delivery.held = False
        box.packets.popleft()
        if box.packets:
            box.front()

    def _flow(self, now: int) -> None:
        """Updates the flows into the entries with the flits that have left."""
        empty = False
        for entry in self._sending:
            popped, entry.popped = entry.popped, False
            if popped != entry.buffer.out:
                entry.buffer.set_out(now, int(popped))
            if entry.packets:
                entry.count = entry.buffer.level(now + 1)
                if entry.waits and entry.count:
                    entry.waits = False
                    self._ask(entry)
            if entry.waits and not popped:
                entry.sends = False
                empty = True
        if empty:
            self._sending = [entry for entry in self._sending if entry.sends]


class _Step(Event):
    """The flits of a plane move."""

    __slots__ = ("_plane",)

    def __init__(self, plane: FlitPlane) -> None:
        self._plane = plane

    def happen(self, now: int) -> None:
        self._plane.step(now)


def _pick(delivery: _Delivery, now: int, boxes: list[_Inbox]) -> bool:
    """Adds the ejection buffer whose turn it is, if its flit can be taken. Returns whether there is, or was, anything
    to do."""
    filling, ready = None, False
    for box in delivery.order[delivery.turn]:
        if box.count and not (box.fresh and delivery.held and box.packets[0][0].exclusive):
            delivery.turn, ready = box.channel, True
            if box.place.room(now):
                boxes.append(box)
                filling = box.place if isinstance(box.place, Buffer) else None
            break
    if filling is not delivery.filling:
        if delivery.filling is not None:
            delivery.filling.set_in(now, 0)
        if filling is not None:
            filling.set_in(now, 1)
        delivery.filling = filling
        return True
    if not ready:
        for box in delivery.order[-1]:
            if box.packets:
                return True
    return ready
