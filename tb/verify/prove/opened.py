# amaranth: UnusedElaboratable=no
"""Routers opened up: their queues and channels, under the names that proofs use.

All that proofs know of the insides of `Router` stands here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from meshloom.hw.noc.link import Plane

from .engine import Shown
from .probe import Inside

Place = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Queue:
    """The buffer of one virtual channel of one input, and what becomes of the flit at its front.

    `count`: flits in it; `flits`: their bits (data, then last), from the front; only `count` of them are there.
    `inside`: the head of the packet at the front has left. `wants`: output port to "the front is a head that wants to
    leave there". `copied`: the tile here takes the packet at the front, too. `noted`: what the buffer has noted of its
    flits is right.
    """

    plane: Plane
    place: Place
    port: str
    vc: int
    count: Value
    flits: Sequence[Value]
    inside: Value
    dropping: Value
    pop: Value
    drop: Value
    wants: dict[str, Value]
    copied: Value
    noted: Value

    @property
    def title(self) -> str:
        """Its name in a trace."""
        return f"({self.place[0]},{self.place[1]}) {self.port}.{self.vc}"

    @property
    def directions(self) -> tuple[str, ...]:
        """Where a packet can go on from a tile that takes it."""
        return () if self.plane.copies is None else self.plane.copies.directions

    @property
    def valid(self) -> Value:
        """There is a flit."""
        return self.count != 0

    @property
    def last(self) -> Value:
        """The front is the last flit of its packet."""
        return self.flits[0][-1]

    def there(self, at: int) -> Value:
        """There is a flit `at` places behind the front."""
        return self.count > at

    def begins(self, at: int) -> Value:
        """If there is a flit at this place, it is a head."""
        return self.flits[at - 1][-1] if at else ~self.inside

    @property
    def ends_open(self) -> Value:
        """The next flit to come in belongs to the packet of the one before."""
        value = self.inside
        for at, flit in enumerate(self.flits):
            value = Mux(self.there(at), ~flit[-1], value)
        return value

    def shown(self) -> Shown:
        """For a trace, front first: `>xy` a head to (x, y), `=` in the middle, `<` the last, `>xy<` a whole packet."""
        pictures: list[Value] = []
        for at, flit in enumerate(self.flits):
            pictures += [self.there(at), self.begins(at), flit[-1], flit[:8]]
        return Shown(pictures, _flits)


def _flits(value: int) -> str:
    words: list[str] = []
    while value:
        there, begins, last, x, y = value & 1, value >> 1 & 1, value >> 2 & 1, value >> 3 & 15, value >> 7 & 15
        if there:
            words.append((f">{x:x}{y:x}" if begins else "") + ("<" if last else "" if begins else "="))
        value >>= 11
    return " ".join(words) or "-"


@dataclass(frozen=True, eq=False)
class Channel:
    """One virtual channel of one output.

    Vectors have a bit for each of `sources`, the queues that can have it. `owner`: of the packet under way if `held`,
    else of the one before. `chosen`: whose flit it offers now, if there is one. `offers`: it has a flit. `goes`: the
    flit moves.
    """

    place: Place
    port: str
    vc: int
    sources: Sequence[Queue]
    held: Signal
    owner: Signal
    chosen: Signal
    offers: Value
    goes: Value

    @property
    def title(self) -> str:
        """Its name in a trace."""
        return f"({self.place[0]},{self.place[1]}) to {self.port}.{self.vc}"

    def owned(self, queue: Queue) -> Value:
        """`queue` has it."""
        return self.held & self.owner[self.sources.index(queue)]


class OpenRouter:
    """The queues and channels of a router (a fresh one), by (port, virtual channel).

    Helping signals are driven in `module`. Raises ProveError when the router is not built as is thought here.
    """

    def __init__(self, module: Module, router: Any) -> None:
        self.module, self.router = module, router
        self.plane: Plane = router.plane
        self.place: Place = (router.x, router.y)
        keys = [(port, vc) for port in router.ports for vc in range(self.plane.vcs)]
        buffers = [f"{port}_{vc}_buffer" for port, vc in keys]
        self.inside = Inside(router, [*buffers, *(f"{buffer}.notes" for buffer in buffers)])
        self.queues = {key: self._queue(number, *key) for number, key in enumerate(keys)}
        self.channels = {key: self._channel(*key) for key in keys}

    def _queue(self, number: int, port: str, vc: int) -> Queue:
        inner, name = self.inside, f"{port}_{vc}"
        label = f"at_{self.place[0]}_{self.place[1]}_{name}"
        rows = inner.rows(f"{name}_buffer")
        popped, pushed = inner[f"{name}_buffer.popped"], inner[f"{name}_buffer.pushed"]
        if len(rows) != 1 << len(popped) - 1:
            raise ValueError(f"buffers of {len(rows)} flits: proofs of routers take powers of two")
        count = Signal(len(popped), name=f"{label}_count")
        self.module.d.comb += count.eq(pushed - popped)
        flits: list[Value] = []
        for at in range(len(rows)):
            flit = Signal(len(rows[0]), name=f"{label}_{at}")
            slot = (popped + at)[: len(popped) - 1]
            value = rows[0]
            for row in range(1, len(rows)):
                value = Mux(slot == row, rows[row], value)
            self.module.d.comb += flit.eq(value)
            flits.append(flit)
        targets, noted = self._notes(port, f"{name}_buffer", count, popped, flits)
        wants = {target: inner[f"{name}_wants"][at] for at, target in enumerate(targets)}
        copied = inner["copying"][number] if self.plane.copies is not None else Const(0, 1)
        of_all = {what: inner[f"control.{what}"][number] for what in ("inside", "dropping", "pop", "drop")}
        return Queue(self.plane, self.place, port, vc, count, flits, wants=wants, copied=copied, noted=noted, **of_all)

    def _notes(
        self, port: str, buffer: str, count: Signal, popped: Signal, flits: Sequence[Value]
    ) -> tuple[Sequence[str], Value]:
        """(the outputs that can be noted, what is noted of the flits that are there is right)."""
        from meshloom.hw.noc.input_unit import RouteSelect  # now: a mutant's, while there is one

        inner, rows = self.inside, self.inside.rows(f"{buffer}.notes")
        targets: Sequence[str] = ()
        right: list[Value] = [inner[f"{buffer}.valid"] == (count != 0)]
        for at, flit in enumerate(flits):
            route = RouteSelect(self.router.position, port)
            self.module.submodules += route
            self.module.d.comb += route.flit.eq(flit[:-1])
            targets = route.targets
            copied = [route.copied] if self.plane.copies is not None else []
            note = Cat(*(route.to(target) for target in targets), route.routed, flit[-1], *copied)
            slot = (popped + at)[: len(popped) - 1]
            there = [(slot == row) & (word == note) for row, word in enumerate(rows)]
            right.append(~(count > at) | (Cat(*there).any() if at else inner[f"{buffer}.noted"] == note))
        return targets, Cat(*right).all()

    def _channel(self, port: str, vc: int) -> Channel:
        inner, name = self.inside, f"{port}_output"
        shared = self.plane.allocate == "free"
        sources = [queue for queue in self.queues.values() if port in queue.wants and (shared or queue.vc == vc)]
        held, owner, chosen = (inner[f"{name}.{what}_{vc}"] for what in ("held", "owner", "chosen"))
        if len(owner) != len(sources):
            raise ValueError(f"{port}_{vc}: {len(owner)} sources, {len(sources)} expected")
        return Channel(
            self.place, port, vc, sources, held, owner, chosen, inner[f"{name}.offers"][vc], inner[f"{name}.go"][vc]
        )
