"""Whether packets of the data plane can deadlock: the channel dependency graph.

A packet holds the channels (link, virtual channel) that its flits occupy while its head waits for the next channel of
its route. If no chain of such dependences forms a cycle, some packet can always move, and so all arrive:
W. J. Dally, C. L. Seitz, "Deadlock-Free Message Routing in Multiprocessor Interconnection Networks", theorem 1. The
receiving side adds no dependence: once it has taken a head, that packet holds its whole route and is delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode

from ..program.names import Names
from ..program.routes import Route, default_route
from .problems import Problems
from .static import DecodedInstruction

#: Who sends packets: an instruction as (stream, position), or another source by name.
Maker = tuple[int, int] | str


class Channel(NamedTuple):
    """A virtual channel of the link from one tile to its neighbour."""

    before: int
    after: int
    number: int


def channels_of(route: Route) -> list[Channel]:
    """The channels of a route, in the order in which a packet takes them."""
    return [Channel(before, after, route.channel) for before, after in pairwise(route.tiles)]


class DependenceGraph:
    """The dependences of the routes added so far, and the senders that cause each."""

    def __init__(self) -> None:
        self.graph: dict[Channel, dict[Channel, list[Maker]]] = {}
        self._makers: dict[Route, list[list[Maker]]] = {}  # the lists of makers of a route's dependences

    @classmethod
    def of_chip(cls, chip: ChipConfig) -> DependenceGraph:
        """With the routes of packets without a ROUTE between all tiles of a chip."""
        dependences = cls()
        for source in chip.tiles:
            for target in chip.tiles:
                dependences.add(default_route(chip, source, target), "unrouted")
        return dependences

    def add(self, route: Route, maker: Maker) -> None:
        """Adds a route that packets of `maker` take."""
        if (lists := self._makers.get(route)) is None:
            lists = self._makers[route] = []
            for held, next_channel in pairwise(channels_of(route)):
                lists.append(self.graph.setdefault(held, {}).setdefault(next_channel, []))
        for makers in lists:
            makers.append(maker)

    def admits(self, route: Route) -> bool:
        """Whether the graph would still have no cycle with that route, given that it has none now."""
        if route in self._makers:
            return True
        # only the route's own dependences are new, so a new cycle contains some of them
        extra: dict[Channel, set[Channel]] = {}
        for held, next_channel in pairwise(channels_of(route)):
            extra.setdefault(held, set()).add(next_channel)
        return not any(
            _path(self.graph, extra, next_channel, held) for held, more in extra.items() for next_channel in more
        )

    def shortest_cycle(self) -> list[Channel]:
        """A shortest cycle, each channel depending on the next and the last on the first; empty if there is none."""
        best: list[Channel] = []
        for start in _maybe_cyclic(self.graph):
            for after in self.graph.get(start, ()):
                path = _path(self.graph, {}, after, start)
                if path and (not best or len(path) < len(best)):
                    best = path
        return best


def check_channel_cycles(steps: Sequence[Sequence[DecodedInstruction]], names: Names, problems: Problems) -> None:
    """Adds one problem if data packets of a program can deadlock: those of its MOVEs, whoever issues them, and those
    that bring its code. Names each link of a shortest cycle, and a sender whose packet holds that link while it waits
    for the next."""
    chip, dependences = names.chip, DependenceGraph()
    for number, stream in enumerate(names.streams):
        dependences.add(default_route(chip, stream.dram_tile, stream.tile), f"the code of the {names.stream(number)}")
        for position, step in enumerate(steps[number]):
            if step.opcode is Opcode.MOVE and step.route is not None and step.route.hops > 1:
                dependences.add(step.route, (number, position))
    cycle = dependences.shortest_cycle()
    if not cycle:
        return
    parts: list[str] = []
    for held, next_channel in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        makers = [
            names.instruction(*maker) if isinstance(maker, tuple) else maker
            for maker in dependences.graph[held][next_channel]
        ]
        more = f" and {len(makers) - 1} more" if len(makers) > 1 else ""
        link = f"{names.tile(held.before)} -> {names.tile(held.after)}"
        parts.append(f"the link {link} waits for the next one, held by {makers[0]}{more}")
    problems.add(
        "data plane",
        f"packets on virtual channel {cycle[0].number} can deadlock: {'; '.join(parts)}, closing the cycle",
        "send some of them on another virtual channel, or on a route with other turns (routes in dimension order alone "
        "never form a cycle)",
    )


def _after(
    graph: Mapping[Channel, Iterable[Channel]], extra: Mapping[Channel, Iterable[Channel]], at: Channel
) -> Iterator[Channel]:
    yield from graph.get(at, ())
    yield from extra.get(at, ())


def _path(
    graph: Mapping[Channel, Iterable[Channel]],
    extra: Mapping[Channel, Iterable[Channel]],
    start: Channel,
    goal: Channel,
) -> list[Channel]:
    """A shortest path from `start` to `goal`, both included; empty if there is none."""
    came: dict[Channel, Channel | None] = {start: None}
    todo = deque([start])
    while todo:
        at = todo.popleft()
        if at == goal:
            path: list[Channel] = []
            step: Channel | None = at
            while step is not None:
                path.append(step)
                step = came[step]
            return path[::-1]
        for after in _after(graph, extra, at):
            if after not in came:
                came[after] = at
                todo.append(after)
    return []


def _maybe_cyclic(graph: Mapping[Channel, Iterable[Channel]]) -> list[Channel]:
    """The channels that remain after repeatedly removing those on which no remaining channel depends: empty if and only
    if there is no cycle."""
    incoming: dict[Channel, int] = {}
    for successors in graph.values():
        for channel in successors:
            incoming[channel] = incoming.get(channel, 0) + 1
    free = [channel for channel in graph if channel not in incoming]
    left = {*graph, *incoming}
    while free:
        channel = free.pop()
        left.discard(channel)
        for after in graph.get(channel, ()):
            incoming[after] -= 1
            if not incoming[after]:
                free.append(after)
    return [channel for channel in graph if channel in left]
