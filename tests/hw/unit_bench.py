"""Drives one gateware unit in Amaranth's simulator, cycle by cycle: streams in, streams out, strobes, free inputs.

Cycle 0 is the first one after reset. What happens "in cycle t" is what stands on the signals at the clock edge that
ends cycle t, as in the docstrings of the gateware.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import EnableInserter, Shape
from amaranth.lib import data
from amaranth.lib.wiring import In
from amaranth.sim import Simulator

from meshloom.hw.spec.isa import Format

#: Says whether something happens in a cycle.
Mood = Callable[[int], bool]


def always(cycle: int) -> bool:
    """No gap and no stall ever."""
    return True


def never(cycle: int) -> bool:
    return False


def sometimes(rng: random.Random, chance: float) -> Mood:
    """Happens in a random `chance` of the cycles."""
    return lambda cycle: rng.random() < chance


def only_in(cycles: Iterable[int]) -> Mood:
    expected = frozenset(cycles)
    return lambda cycle: cycle in expected


def bits(layout: data.StructLayout | Format, **values: int) -> int:
    """A record as an integer; names that are missing are 0. Refuses what does not fit."""
    if isinstance(layout, Format):
        return layout.pack(values)
    word = 0
    for name, value in values.items():
        place = layout[name]
        width = Shape.cast(place.shape).width
        assert 0 <= value < 1 << width, f"{name} = {value} does not fit {width} bits"
        word |= value << place.offset
    return word


def fields(layout: data.StructLayout | Format, word: int) -> dict[str, int]:
    """The members of a record."""
    if isinstance(layout, Format):
        return layout.unpack(word)
    members = {name: (place.offset, Shape.cast(place.shape).width) for name, place in layout}
    return {str(name): (word >> at) & ((1 << width) - 1) for name, (at, width) in members.items()}


@dataclass
class Source:
    """Feeds a stream. An item goes out at the earliest in its cycle, and in one in which `offer` agrees; it then stays.

    `taken`: the cycles in which items were taken. More items may be appended while the simulation runs.
    """

    port: Any
    items: list[tuple[int, int]]
    offer: Mood = always
    taken: list[int] = field(default_factory=list)
    offering: bool = False

    def add(self, cycle: int, payload: int) -> None:
        self.items.append((cycle, payload))


def back_to_back(port: Any, payloads: Iterable[int], offer: Mood = always, start: int = 0) -> Source:
    """A source of items that go out as soon as they can from cycle `start` on."""
    return Source(port, [(start, payload) for payload in payloads], offer)


@dataclass
class Sink:
    """Takes what a stream offers when `ready` agrees. `got`: (cycle, payload); `shown`: cycle of first offer of each.

    Unless `fickle`, an offer that changes or goes away before it is taken fails at once.
    """

    port: Any
    ready: Callable[[int], int] = always
    fickle: bool = False
    got: list[tuple[int, int]] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)
    kept: int | None = None

    @property
    def cycles(self) -> list[int]:
        return [cycle for cycle, _ in self.got]

    @property
    def payloads(self) -> list[int]:
        return [payload for _, payload in self.got]

    def look(self, payload: int | None, ready: int, cycle: int) -> None:
        """What stands at the port in a cycle (None: nothing is offered)."""
        if self.kept is not None and not self.fickle:
            assert payload == self.kept, f"an offer changed or was withdrawn in cycle {cycle}"
        if payload is not None and self.kept is None:
            self.shown.append(cycle)
        self.kept = payload
        if payload is not None and ready:
            self.got.append((cycle, payload))
            self.kept = None


@dataclass
class Strobe:
    """Notes the cycles in which `valid` is set, with the values of `what`."""

    valid: Any
    what: Mapping[str, Any]
    seen: list[tuple[int, dict[str, int]]] = field(default_factory=list)

    @property
    def values(self) -> list[dict[str, int]]:
        return [values for _, values in self.seen]


def faults_of(port: Any) -> Strobe:
    """Faults of a unit (`FaultSignature`)."""
    return Strobe(port.valid, {"cause": port.cause, "tag": port.tag, "value": port.value})


def simulate(
    unit: Any,
    cycles: int,
    sources: Sequence[Source] = (),
    sinks: Sequence[Sink] = (),
    strobes: Sequence[Strobe] = (),
    before: Callable[[int, Any], None] | None = None,
    after: Callable[[int, Any], None] | None = None,
    constant: Mapping[str, int] | None = None,
    until: Callable[[], bool] | None = None,
    gated: bool = False,
) -> int:
    """Runs `cycles` cycles, or until `until` holds; returns how many it ran.

    `before(cycle, context)` sets further inputs in each cycle, when streams are set and before anything is looked at;
    `after` looks when all has settled, and may still set inputs that only registers depend on. `constant`: inputs by
    name. `gated`: the unit's registers stand still in cycles in which it is not `active`, as they may.
    """
    ran = 0
    members = unit.signature.members if hasattr(unit, "signature") else {}
    clocked = "now" in members and members["now"].flow is In

    async def bench(context: Any) -> None:
        nonlocal ran
        message: dict[int, int] = {}

        def on_progress(signal: Any, value: int) -> None:
            """Sets a signal, unless it is so already: that is most of the time of a simulation."""
            if message.get(id(signal)) != value:
                message[id(signal)] = value
                context.set(signal, value)

        into = [(source, source.port.valid, source.port.ready, _value(source.port.payload)) for source in sources]
        out = [(sink, sink.port.valid, sink.port.ready, _value(sink.port.payload)) for sink in sinks]
        for name, value in (constant or {}).items():
            context.set(getattr(unit, name), value)
        for cycle in range(cycles):
            ran = cycle
            if until is not None and until():
                return
            if clocked:
                context.set(unit.now, cycle)
            for source, valid, _, payload in into:
                if not source.offering and len(source.taken) < len(source.items):
                    earliest, item = source.items[len(source.taken)]
                    if cycle >= earliest and source.offer(cycle):
                        source.offering = True
                        context.set(payload, item)
                on_progress(valid, source.offering)
            willing = [sink.ready(cycle) for sink in sinks]
            for (_, _, ready, _), value in zip(out, willing, strict=True):
                on_progress(ready, value)
            if before is not None:
                before(cycle, context)
            for source, _, ready, _ in into:
                if source.offering and context.get(ready):
                    source.taken.append(cycle)
                    source.offering = False
            for (sink, valid, _, payload), value in zip(out, willing, strict=True):
                sink.look(int(context.get(payload)) if context.get(valid) else None, value, cycle)
            for strobe in strobes:
                if context.get(strobe.valid):
                    strobe.seen.append((cycle, {name: context.get(signal) for name, signal in strobe.what.items()}))
            if after is not None:
                after(cycle, context)
            await context.tick()
        ran = cycles

    simulator = Simulator(EnableInserter(unit.active)(unit) if gated else unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return ran


def _value(signal: Any) -> Any:
    return signal.as_value() if hasattr(signal, "as_value") else signal
