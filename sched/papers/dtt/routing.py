"""The routing step (Algorithm 2): Dijkstra's algorithm on the scheduling graph, backwards from where data are needed.

The graph has a vertex for each node and cycle. Its edges are the wires, from (source, c) to (destination, c + delay),
and the waiting wires, from (node, c) to (node, c + 1). It is never built: the search walks it backwards from (node,
cycle) of the need. Sources are all (node, cycle) at which the datum has been so far, so a datum that is on its way
to somebody else is taken from the nearest place on that way: multicast without a rule for it.

Reservations: a wire takes as many data per cycle as it has bandwidth, counted at the start, and has at most `size`
under way. A node holds at most `size` different data in a cycle; data on a wire are in no node. A datum that is in a
node already takes no more room there.

Tie rule: among paths of equal cost the one from the source that holds the datum latest; among sources of the same cycle
that of the node described first; from there on waiting before moving, and the wire described first. Costs are exact
integers, so the path follows from the reservations alone, whatever order a heap yields equal entries in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush

from ...routing.hardware import Datum, DttError, Hardware, TimingFault, Wire, integer_costs

#: A vertex of the scheduling graph: number of the node, cycle.
_State = tuple[int, int]
_WAIT = -1


@dataclass(frozen=True)
class Movement:
    """One datum over one wire: it leaves `source` in cycle `start` and is in `destination` in cycle `end`."""

    datum: Datum
    source: str
    start: int
    destination: str
    end: int


@dataclass(frozen=True)
class Path:
    """A datum's way to where it was needed, without the waits: empty if it was there. `waits`: cycles waited."""

    movements: tuple[Movement, ...]
    waits: int


@dataclass
class _Undo:
    """What one routing has reserved."""

    starts: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    held: list[tuple[int, int, Datum]] = field(default_factory=list[tuple[int, int, Datum]])
    stored: list[tuple[int, Datum, int | None]] = field(default_factory=list[tuple[int, Datum, int | None]])
    movements: int = 0


class FreeRouteSearch:
    """Routes data through `hardware`, one after the other; every route reserves what it uses.

    `load` says where data are without having been routed. Raises DttError on impossible hardware.
    """

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.movements: list[Movement] = []
        self.waits = 0
        self._names = list(hardware.nodes)
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._nodes = list(hardware.nodes.values())
        self._unit, self._costs, self._wait = integer_costs(hardware)
        self._ends = [(self._numbers[wire.source], self._numbers[wire.destination]) for wire in hardware.wires]
        self._delays = [wire.delay + hardware.nodes[wire.destination].delay for wire in hardware.wires]
        self._into: list[list[int]] = [[] for _ in self._names]
        self._out: list[list[int]] = [[] for _ in self._names]
        for number, (source, destination) in enumerate(self._ends):
            self._into[destination].append(number)
            self._out[source].append(number)
        #: Data that start on a wire in a cycle.
        self._starts: defaultdict[tuple[int, int], int] = defaultdict(int)
        #: The histories: data of a node in a cycle, and data that stay in a node from a cycle on.
        self._held: defaultdict[_State, set[Datum]] = defaultdict(set)
        self._stored: list[dict[Datum, int]] = [{} for _ in self._names]
        #: In how many states of `_held` a datum is, and the wire of each movement.
        self._copies: defaultdict[Datum, int] = defaultdict(int)
        self._over: list[int] = []
        self._undo: list[_Undo] = []

    # -- what is where --------------------------------------------------------------------------------------------

    def load(self, datum: Datum, node: str, since: int = 0) -> None:
        """Puts a datum into a node from cycle `since` on, for good. Raises DttError without such a node, or room."""
        number = self._number(node)
        size = self._nodes[number].size
        if size is not None and datum not in self._stored[number] and not self._room_from(number, datum, since):
            raise DttError(f"node {node} has no capacity for datum {datum} from cycle {since} on: it holds {size} data")
        self._stored[number][datum] = min(since, self._stored[number].get(datum, since))

    def has(self, datum: Datum, node: str, cycle: int) -> bool:
        """Whether a node holds a datum in a cycle."""
        return self._has(datum, (self._number(node), cycle))

    def held(self, node: str, cycle: int) -> frozenset[Datum]:
        """All data that a node holds in a cycle."""
        number = self._number(node)
        return frozenset(self._held.get((number, cycle), ())) | {
            datum for datum, since in self._stored[number].items() if since <= cycle
        }

    def used(self, wire: Wire) -> dict[int, int]:
        """Cycle to data that start on a wire in it. Raises ValueError if the hardware has no such wire."""
        number = self.hardware.wires.index(wire)
        return {cycle: count for (at, cycle), count in sorted(self._starts.items()) if at == number and count}

    @property
    def energy(self) -> Fraction:
        """Cost of all that has been routed, waits included."""
        return self.transport + Fraction(self._wait * self.waits, self._unit)

    @property
    def transport(self) -> Fraction:
        """Cost of all movements, without waits."""
        return Fraction(sum(self._costs[wire] for wire in self._over), self._unit)

    # -- routing --------------------------------------------------------------------------------------------------

    def route(self, datum: Datum, node: str, cycle: int, operation: str = "") -> Path:
        """The cheapest route that brings a datum into a node by a cycle, reserved. `operation`: who needs it.

        Raises TimingFault, with nothing reserved, if there is none; DttError if the datum is nowhere.
        """
        target = self._number(node), cycle
        if not self._sources(datum):
            raise DttError(f"operation {operation or '?'}: datum {datum} is nowhere; load it, or compute it first")
        states = self._search(datum, target, strict=True)
        if states is None:
            raise self._fault(datum, target, operation)
        return self._reserve(datum, states)

    def undo(self) -> None:
        """Takes the last route back that has not been taken back. Raises DttError if there is none."""
        if not self._undo:
            raise DttError("there is no routed datum to take back")
        record = self._undo.pop()
        for at in record.starts:
            self._starts[at] -= 1
        for number, cycle, datum in record.held:
            self._held[number, cycle].discard(datum)
            self._copies[datum] -= 1
        for number, datum, before in reversed(record.stored):
            if before is None:
                del self._stored[number][datum]
            else:
                self._stored[number][datum] = before
        self.waits -= len(record.held) + len(record.stored) - record.movements
        left = len(self.movements) - record.movements
        del self.movements[left:], self._over[left:]

    def _number(self, node: str) -> int:
        if node not in self._numbers:
            raise DttError(f"there is no node {node!r}; there are {', '.join(self._names)}")
        return self._numbers[node]

    def _has(self, datum: Datum, state: _State) -> bool:
        return datum in self._held.get(state, ()) or self._stored[state[0]].get(datum, state[1] + 1) <= state[1]

    def _sources(self, datum: Datum) -> bool:
        return self._copies.get(datum, 0) > 0 or any(datum in stored for stored in self._stored)

    def _count(self, number: int, cycle: int) -> int:
        held = self._held.get((number, cycle), set())
        return len(held | {datum for datum, since in self._stored[number].items() if since <= cycle})

    def _room_from(self, number: int, datum: Datum, cycle: int) -> bool:
        """Whether a datum could stay in a node from a cycle on."""
        size = self._nodes[number].size
        if size is None:
            return True
        later = [at for at, held in self._held.items() if at[0] == number and at[1] >= cycle and held]
        cycles = {cycle, *(at for _, at in later), *self._stored[number].values()}
        return all(
            self._count(number, at) + (not self._has(datum, (number, at))) <= size for at in cycles if at >= cycle
        )

    def _room(self, datum: Datum, state: _State) -> bool:
        """Whether a node has room for a datum in a cycle."""
        number, cycle = state
        node = self._nodes[number]
        if node.size is None or self._has(datum, state):
            return True
        return self._room_from(number, datum, cycle) if node.keeps else self._count(number, cycle) < node.size

    def _free(self, number: int, start: int) -> bool:
        """Whether one more datum may start on a wire in a cycle; on a waiting wire always."""
        if number == _WAIT:
            return True
        wire = self.hardware.wires[number]
        if self._starts.get((number, start), 0) >= wire.bandwidth:
            return False
        if wire.size is None:
            return True
        delay = self._delays[number]
        starts = [self._starts.get((number, at), 0) for at in range(start - delay + 1, start + delay)]
        # every cycle in which this one would be under way
        return all(sum(starts[first : first + delay]) < wire.size for first in range(delay))

    def _search(self, datum: Datum, target: _State, strict: bool) -> list[tuple[_State, int]] | None:
        """The path as (state, wire over which the next one is reached), the target last; None if there is none.

        `strict`: with reservations and sizes; otherwise as if the hardware were empty.
        """
        if strict and not self._room(datum, target):
            return None
        cost = {target: 0}
        done: set[_State] = set()
        heap = [(0, target[1], target[0])]
        best: int | None = None
        states: list[_State] = []
        while heap:
            total, cycle, number = heappop(heap)
            state = number, cycle
            if best is not None and total > best:
                break
            if state in done:
                continue
            done.add(state)
            if self._has(datum, state):  # whoever holds it is a source: nothing before it matters
                best = total
                states.append(state)
                continue
            for before, wire, more in self._before(state):
                if before[1] < 0 or before in done or total + more >= cost.get(before, total + more + 1):
                    continue
                if strict and not (self._free(wire, before[1]) and self._room(datum, before)):
                    continue
                cost[before] = total + more
                heappush(heap, (total + more, before[1], before[0]))
        if best is None:
            return None
        return self._walk(datum, max(states, key=lambda state: (state[1], -state[0])), target, cost, strict)

    def _before(self, state: _State) -> Iterator[tuple[_State, int, int]]:
        """What leads to a state: (state, wire, cost)."""
        number, cycle = state
        yield (number, cycle - 1), _WAIT, self._wait
        for wire in self._into[number]:
            yield (self._ends[wire][0], cycle - self._delays[wire]), wire, self._costs[wire]

    def _after(self, state: _State) -> Iterator[tuple[_State, int, int]]:
        """What a state leads to, in the order of the tie rule."""
        number, cycle = state
        yield (number, cycle + 1), _WAIT, self._wait
        for wire in self._out[number]:
            yield (self._ends[wire][1], cycle + self._delays[wire]), wire, self._costs[wire]

    def _walk(
        self, datum: Datum, source: _State, target: _State, cost: dict[_State, int], strict: bool
    ) -> list[tuple[_State, int]]:
        """Follows the least costs from a source to the target; costs decide, not who was found first."""
        path: list[tuple[_State, int]] = []
        state = source
        while state != target:
            for after, wire, more in self._after(state):
                if cost.get(after, -1) + more != cost[state] or after not in cost:
                    continue
                if not strict or self._free(wire, state[1]):
                    break
            else:
                raise AssertionError(f"datum {datum}: no edge accounts for the cost at {state}")
            path.append((state, wire))
            state = after
        return [*path, (target, _WAIT)]

    def _reserve(self, datum: Datum, states: list[tuple[_State, int]]) -> Path:
        record = _Undo()
        movements: list[Movement] = []
        waits = 0
        for index, ((number, cycle), wire) in enumerate(states):
            if index:  # the source holds it already
                self._hold(datum, number, cycle, record)
            if index + 1 == len(states):
                break
            if wire == _WAIT:
                waits += 1
                continue
            self._starts[wire, cycle] += 1
            record.starts.append((wire, cycle))
            after, then = states[index + 1][0]
            self._over.append(wire)
            movements.append(Movement(datum, self._names[number], cycle, self._names[after], then))
        record.movements = len(movements)
        self.movements += movements
        self.waits += waits
        self._undo.append(record)
        return Path(tuple(movements), waits)

    def _hold(self, datum: Datum, number: int, cycle: int, record: _Undo) -> None:
        if self._nodes[number].keeps:
            before = self._stored[number].get(datum)
            record.stored.append((number, datum, before))
            self._stored[number][datum] = cycle if before is None else min(before, cycle)
        else:
            self._held[number, cycle].add(datum)
            self._copies[datum] += 1
            record.held.append((number, cycle, datum))

    # -- why not --------------------------------------------------------------------------------------------------

    def _fault(self, datum: Datum, target: _State, operation: str) -> TimingFault:
        """The cause: walks the route that empty hardware would allow until something on it is full."""
        number, cycle = target
        who = f"operation {operation or '?'}: datum {datum} cannot be in {self._names[number]} in cycle {cycle}"
        free = self._search(datum, target, strict=False)
        if free is None:
            wire = min(self._into[number], key=lambda into: self._delays[into], default=None)
            name = self.hardware.wires[wire].name if wire is not None else f"{self._names[number]} -> itself"
            return TimingFault(
                f"{who}: no route is fast enough, even over free wires, the last of them {name}; need it later, or "
                "load the datum nearer",
                operation,
                cycle,
                name,
            )
        # from the target backwards, as the search goes
        for index in range(len(free) - 1, 0, -1):
            state, (before, wire) = free[index][0], free[index - 1]
            at, when = state
            if not self._room(datum, state):
                node = self._nodes[at]
                name = self.hardware.wires[wire].name if wire != _WAIT else f"{node.name} -> {node.name} (waiting)"
                return TimingFault(
                    f"{who}: {node.name} is full in cycle {when} ({node.size} data: "
                    f"{', '.join(map(str, sorted(self.held(node.name, when))))}), at the end of wire {name}; need it "
                    "in another cycle, or enlarge the node",
                    operation,
                    when,
                    name,
                )
            if not self._free(wire, before[1]):
                full = self.hardware.wires[wire]
                return TimingFault(
                    f"{who}: wire {full.name} has no bandwidth left in cycle {before[1]} (bandwidth {full.bandwidth}, "
                    f"delay {self._delays[wire]}), nor does any detour; need it later, or widen the wire",
                    operation,
                    before[1],
                    full.name,
                )
        raise AssertionError(f"{who}: nothing on the free route is full")
