"""The cycles of a MOVE on an otherwise idle chip: its lower bound, flit by flit.

The recurrences follow the docstrings of `hw/memory/mover.py` (when heads and words are offered), `hw/noc/mesh.py` (a
hop a cycle, and the number of flits that fit between two tiles), `hw/noc/data_receiver.py` (the ejection buffer),
`hw/memory/dram_port.py` and `tb/build/verilog/dram_model.v` (latency, bandwidth, buffers of DRAM at either end).
Nothing is fitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.contracts import (
    ADDRESS_CYCLES,
    BEAT_CYCLES,
    CREDIT_WORDS,
    DRAM_BURSTS,
    EJECTION_FLITS,
    HEAD_CYCLES,
    PORT_WORDS,
    SOURCE_CYCLES,
    TURN_CYCLES,
    read_words,
)
from meshloom.hw.spec.isa import Region, split_address
from meshloom.hw.spec.timing import ejection_cycles, noc_arrival
from meshloom.sched.program.packets import packets
from meshloom.sched.program.routes import Route, default_route

#: Cycles from a MOVE taken to the address of its first burst on the bus.
_TO_BUS = SOURCE_CYCLES + ADDRESS_CYCLES


@dataclass(frozen=True)
class IdlePacket:
    """A data packet of a MOVE. `injected_at`: cycle from which its head is offered to the NoC, counted from the cycle
    in which the MOVE is taken. `latency`: cycles from then to the one after its tail is taken at the destination."""

    words: int
    injected_at: int
    latency: int


@dataclass(frozen=True)
class IdleMove:
    """A MOVE. `cycles`: from the cycle in which its mover takes it to the one after its last word is handed over, as in
    its trace record (`end` - `start`)."""

    cycles: int
    packets: tuple[IdlePacket, ...]


def ideal_move_cycles(fields: Mapping[str, int], chip: ChipConfig, route: Route | None = None) -> int:
    """Cycles of a MOVE (its instruction's fields; missing strides are 0) on an idle chip, on `way` or on the chip's
    default: `IdleMove.cycles`."""
    return idle_move(fields, chip, route).cycles


def idle_move(fields: Mapping[str, int], chip: ChipConfig, route: Route | None = None) -> IdleMove:
    """A MOVE and its packets on an idle chip."""
    source, target = fields["src_tile"], fields["dst_tile"]
    route = route or default_route(chip, source, target)
    longest = chip.packet_words
    runs = tuple(
        # bursts and packets are cut at multiples of `longest`; addresses do not matter otherwise
        (fields[end] % longest, fields[f"{end}_run"], fields.get(f"{end}_stride", 0) % longest)
        for end in ("src", "dst")
    )
    of_dram = tuple(_is_dram(chip, fields[f"{end}_tile"], fields[end]) for end in ("src", "dst"))
    ejection = ejection_cycles(chip)
    copies, depth = fields.get("copies", 0), chip.noc.data_depth
    flight = noc_arrival(route.hops - copies, 1) + ejection
    holds = (route.hops - copies + 1) * depth + EJECTION_FLITS * bool(ejection)
    legs = ((flight, holds), *[(1, depth)] * copies)
    times = chip.bank_cycles
    latency = chip.dram.latency + (0 if times is None else times.cl)  # of a row that is open
    dram = (chip.lanes, chip.dram.bytes_per_cycle, latency, read_words(chip))
    return _move(fields["words"], *runs, of_dram, legs, dram, longest)


def steady_cycles(fields: Mapping[str, int], chip: ChipConfig) -> int:
    """Cycles of a MOVE immediately after another of its mover, with its words available: one for each flit and one to
    begin, or the time of the DRAM at either end for its words if that is longer."""
    words = fields["words"]
    flits = words + len(packets(fields, chip.packet_words)) + TURN_CYCLES
    if any(_is_dram(chip, fields[f"{end}_tile"], fields[end]) for end in ("src", "dst")):
        return max(flits, -(-words * chip.lanes // chip.dram.bytes_per_cycle))
    return flits


def _is_dram(chip: ChipConfig, tile: int, address: int) -> bool:
    return chip.tiles[tile] is TileKind.DRAM and split_address(address)[0] == Region.MAIN


class _Channel:
    """The bandwidth of a DRAM channel: a bucket of bytes, initially full (`dram_model.v`)."""

    def __init__(self, cost: int, gain: int) -> None:
        self.cost, self.gain = cost, gain
        self.at: int = 0
        self.bucket: int = CREDIT_WORDS * cost

    def pay(self, cycle: int) -> int:
        """The first cycle, `cycle` or later, with credit for a beat; spends it."""
        level = min(CREDIT_WORDS * self.cost, self.bucket + (cycle - self.at) * self.gain)
        if level < self.cost:
            cycle += -(-(self.cost - level) // self.gain)
            level = min(CREDIT_WORDS * self.cost, self.bucket + (cycle - self.at) * self.gain)
        self.at, self.bucket = cycle + 1, min(CREDIT_WORDS * self.cost, level - self.cost + self.gain)
        return cycle


class _Reads:
    """Words of a MOVE as a DRAM port delivers them."""

    def __init__(self, pieces: Iterator[int], dram: tuple[int, int, int, int]) -> None:
        cost, gain, self.latency, self.depth = dram
        self.channel = _Channel(cost, gain)
        self.bursts = pieces
        self.left = 0  # words of the current burst
        self.due = 0  # cycle from which its beats may move
        self.address_cycle, self.done = -1, [0] * DRAM_BURSTS  # cycle of its address; ends of earlier bursts
        self.beat = -1
        self.beats = 0
        self.taking: list[int] = []  # when the packetiser took each word

    def ready(self) -> int:
        """The cycle from which the next word is available to the packetiser."""
        if not self.left:
            self.left = next(self.bursts)
            self.address_cycle = max(self.address_cycle + 1, _TO_BUS, self.done[0] + _TO_BUS)
            self.due = self.address_cycle + self.latency
        paid = self.channel.pay(max(self.due, self.beat + 1))
        room = self.taking[self.beats - self.depth] + 1 if self.beats >= self.depth else 0
        self.beat = max(paid, room)
        self.beats += 1
        self.left -= 1
        if not self.left:
            self.done = [*self.done[1:], self.beat]
        return self.beat + BEAT_CYCLES

    def take(self, cycle: int) -> None:
        """Takes the word that was `ready`."""
        self.taking.append(cycle)


class _Copier:
    """The router of a tile that takes packets on their way: each head is a cycle late (`hw/noc/router.py`)."""

    def __init__(self) -> None:
        self.last = -1

    def take(self, offered: int, head: bool) -> int:
        """The cycle in which a flit leaves it."""
        self.last = max(offered, self.last + 1) + head
        return self.last


class _Sink:
    """The consumer of flits at the destination: a memory, or a DRAM port."""

    def __init__(self, dram: tuple[int, int, int, int] | None) -> None:
        self.channel = None if dram is None else _Channel(*dram[:2])
        self.beats: list[int] = []  # of the words in the port
        self.last = -1

    def take(self, offered: int, head: bool) -> int:
        """The cycle in which it takes a flit."""
        cycle = max(offered, self.last + 1)
        if self.channel is not None and not head:
            if len(self.beats) >= PORT_WORDS:
                cycle = max(cycle, self.beats[-PORT_WORDS] + 1)
            before = self.beats[-1] if self.beats else -1
            self.beats.append(self.channel.pay(max(cycle + BEAT_CYCLES, before + 1)))
        self.last = cycle
        return cycle


@lru_cache(maxsize=1 << 14)
def _move(
    words: int,
    src: tuple[int, int, int],
    dst: tuple[int, int, int],
    of_dram: tuple[bool, bool],
    legs: tuple[tuple[int, int], ...],
    dram: tuple[int, int, int, int],
    longest: int,
) -> IdleMove:  # plain values, by which results are cached
    """`longest`: words of the longest packet. `src`, `dst`: first address, run and stride modulo that; `of_dram`:
    whether each is in DRAM. `legs`: cycles from a flit's injection to its offer to the first that takes it, and flits
    that fit in between; then the same from each tile that takes it on its way to the next one."""
    reads, writes = of_dram
    source = _Reads(_cut(words, *src, longest), dram) if reads else None
    stops = [*(_Copier() for _ in legs[1:]), _Sink(dram if writes else None)]
    left: list[list[int]] = [[] for _ in stops]  # when each flit left each of them; the last takes it
    idle_packets: list[IdlePacket] = []

    def send(cycle: int, head: bool) -> int:
        injected = cycle = _when(cycle, 0)
        for number, (stop, (flight, _)) in enumerate(zip(stops, legs, strict=True)):
            cycle = stop.take(cycle + flight, head)
            if number + 1 < len(stops):
                cycle = stop.last = _when(cycle, number + 1)
            left[number].append(cycle)
        return injected

    def _when(cycle: int, leg: int) -> int:
        """The cycle in which a flit can be sent over a leg: freed space moves back one hop a cycle."""
        flight, holds = legs[leg]
        return max(cycle, left[leg][-holds] + flight) if len(left[leg]) >= holds else cycle

    free = HEAD_CYCLES if source is None else 0
    for size in _cut(words, *dst, longest):
        # with `dram.whole_packets` all words of a packet are read before its head leaves
        first = size if dram[3] > PORT_WORDS else 1
        there = free if source is None else max(source.ready() for _ in range(first))
        injected_at = max(free, there)
        free = send(injected_at, True) + 1
        for number in range(size):
            if number >= first and source is not None:
                there = source.ready()
            free = send(max(free, there), False) + 1
            if source is not None:
                source.take(free - 1)
        idle_packets.append(IdlePacket(size, injected_at, left[-1][-1] + 1 - injected_at))
    return IdleMove(free, tuple(idle_packets))


def _cut(words: int, at: int, run: int, stride: int, longest: int) -> Iterator[int]:
    """Words of each piece of a walk over runs, cut at multiples of `longest`."""
    base, inside = at, 0
    while words:
        size = min(run - inside, words, longest - at % longest)
        yield size
        words, inside, at = words - size, inside + size, at + size
        if inside == run:
            base += stride
            inside, at = 0, base
