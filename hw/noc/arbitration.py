"""Requests for DRAM by the tile that makes them: a queue for each, and whose MOVE is read next.

With `dram.arbitration` "fifo" a dram tile has one queue for all (`noc.interface.RequestTaker`), and none of what is
here: a tile with many requests, or long ones, keeps all others waiting. Otherwise:

    requests --> queue of each tile --+--> arbiter --> mover
                 (one memory)         +--> ...

What is read of one tile's requests is read in their order, as with one queue: programs, and the checker
(`sched/checker/order.py`), rely on nothing more.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..spec.config import Arbitration, ChipConfig
from ..spec.contracts import most_credit
from ..wiring.signatures import MOVE, MoveLayout, requested_move, requester
from .output_unit import round_robin_grant


class Arbiter(wiring.Component):
    """Chooses among `count` tiles those that are `asking`: one-hot `grant`, which `taken` confirms; 0 if there is none.

    Round robin: each grant goes to the next that asks, so one that asks waits for `count` - 1 MOVEs at most. With
    `credits` (words, for each tile) it goes to the next that asks and has any credit left, and `words`, those of its
    MOVE, are subtracted from that, so that a long MOVE leaves a debt. In a cycle in which none has credit that asks, a
    round ends: each gets its credit anew, less its debt. So of what tiles read that ask all the time, each has the
    share that its credit has of all credits; one that does not ask saves up nothing. `contracts.words_ahead` bounds
    what others read before one that asks.

    Latency: none, but a cycle for each round that begins. In cycles without `active` no register changes.
    """

    asking: Signal
    words: Signal
    taken: Signal
    grant: Signal
    active: Signal

    def __init__(self, count: int, credits: tuple[int, ...] = (), word_bits: int = MOVE.bits("words")) -> None:
        self.count, self.credits, self.word_bits = count, credits, word_bits
        super().__init__(
            {"asking": In(count), "words": In(word_bits), "taken": In(1), "grant": Out(count), "active": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        before = Signal(self.count)  # the latest that was granted
        solvent: Value = self.asking
        if self.credits:
            solvent = self._solvent(m)
        m.d.comb += self.grant.eq(round_robin_grant(m, "solvent", solvent, before))
        with m.If(self.taken):
            m.d.sync += before.eq(self.grant)
        return m

    def _solvent(self, m: Module) -> Value:
        """Those that ask and have credit."""
        solvent = Signal(self.count, name="asks_with_credit")
        owing = Signal(self.count)  # less than all of its credit is left
        bits = max(self.word_bits, max(self.credits).bit_length()) + 2
        credits = [Signal(range(-(1 << bits - 1), 1 << bits - 1), name=f"credit_{i}", init=most)
                   for i, most in enumerate(self.credits)]  # fmt: skip
        ends = Signal()  # the round does
        m.d.comb += [ends.eq(~solvent.any()), self.active.eq(owing.any())]
        for i, (credit, most) in enumerate(zip(credits, self.credits, strict=True)):
            positive = Signal(name=f"positive_{i}")
            m.d.comb += [
                positive.eq(credit > 0),
                solvent[i].eq(self.asking[i] & positive),
                owing[i].eq(credit != most),
            ]
            with m.If(ends):
                m.d.sync += credit.eq(Mux(positive, most, credit + most))
            with m.Elif(self.taken & self.grant[i]):
                m.d.sync += credit.eq(credit - self.words)
        return solvent


class RequestQueues(wiring.Component):
    """The queues of `mover_queue` requests of each tile, and the arbiter that the chip has, as one FIFO with the ports
    of `amaranth.lib.fifo.SyncFIFO`.

    A request written in cycle t can be read from t + 1 on. `w_rdy` follows `w_data`: the queue of the tile that
    requests has room. While the request that could be read waits, one that has its turn earlier can take its place.
    `r_level`: requests in its queue. In cycles without `active` no register changes.
    """

    w_data: Signal
    w_en: Signal
    w_rdy: Signal
    r_data: Signal
    r_en: Signal
    r_rdy: Signal
    r_level: Signal
    active: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.config, self.depth = config, config.mover_queue
        self.layout = requested_move(config)
        super().__init__(
            {
                "w_data": In(self.layout.size),
                "w_en": In(1),
                "w_rdy": Out(1),
                "r_data": Out(self.layout.size),
                "r_en": In(1),
                "r_rdy": Out(1),
                "r_level": Out(range(self.depth + 1)),
                "active": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tiles, depth = tuple(self.config.tiles), self.depth
        weighted = self.config.dram.arbitration is Arbitration.WEIGHTED
        m.submodules.arbiter = arbiter = Arbiter(len(tiles), most_credit(self.config) if weighted else ())
        rows = 1 << ceil_log2(depth)  # of each queue
        m.submodules.storage = storage = memory.Memory(shape=self.layout.size, depth=rows * len(tiles), init=[])
        write, read = storage.write_port(), storage.read_port(domain="comb")
        coming, offered = (data.View(self.layout, value) for value in (self.w_data, self.r_data))
        into, room, grant = Signal(len(tiles)), Signal(len(tiles)), arbiter.grant
        levels = [Signal(range(depth + 1), name=f"level_{i}") for i in range(len(tiles))]
        ends = [Signal(ceil_log2(depth), name=f"end_{i}") for i in range(len(tiles))]
        fronts = [Signal(ceil_log2(depth), name=f"front_{i}") for i in range(len(tiles))]
        m.d.comb += [
            into.eq(Cat(requester(coming.code) == tile for tile in tiles)),
            room.eq(Cat(level != depth for level in levels)),
            self.w_rdy.eq((into & room).any()),
            write.en.eq(self.w_en & self.w_rdy),
            write.addr.eq(_chosen(into, ends, rows)),
            write.data.eq(self.w_data),
            arbiter.asking.eq(Cat(level != 0 for level in levels)),
            read.addr.eq(_chosen(grant, fronts, rows)),
            self.r_data.eq(read.data),
            self.r_rdy.eq(grant.any()),
            arbiter.taken.eq(self.r_rdy & self.r_en),
            arbiter.words.eq(data.View(MoveLayout, offered.code).words),
            self.r_level.eq(reduce(or_, (Mux(grant[i], level, 0) for i, level in enumerate(levels)))),
            self.active.eq(self.w_en | arbiter.asking.any() | arbiter.active),
        ]
        for i, (level, end, front) in enumerate(zip(levels, ends, fronts, strict=True)):
            comes, goes = Signal(name=f"comes_{i}"), Signal(name=f"goes_{i}")
            m.d.comb += [comes.eq(write.en & into[i]), goes.eq(arbiter.taken & grant[i])]
            m.d.sync += level.eq(level + comes - goes)
            with m.If(comes):
                m.d.sync += end.eq(_after(end, depth))
            with m.If(goes):
                m.d.sync += front.eq(_after(front, depth))
        return m


def _chosen(one_hot: Value, places: list[Signal], rows: int) -> Value:
    """The row of the place in the chosen queue, each of which has so many."""
    return reduce(or_, (Mux(one_hot[i], place + i * rows, 0) for i, place in enumerate(places)))


def _after(place: Signal, depth: int) -> Value:
    """The next place in a queue."""
    return Mux(place == depth - 1, 0, place + 1)
