"""Drives links with virtual channels in Amaranth's simulator and records what went through, cycle by cycle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import Cat
from amaranth.sim import Simulator

from meshloom.hw.noc.mesh import VcMesh
from meshloom.hw.noc.router import Router

#: Packets (lists of flit data) that one sender has for each of its virtual channels.
Sends = Mapping[int, Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Passed:
    """One transfer: the cycle (counted from reset), the virtual channel, and the flit."""

    cycle: int
    vc: int
    data: int
    last: int


@dataclass
class Traffic:
    """What went through: transfers of each input and of each output by name, (cycle, name, value) of faults, and the
    cycles in which each strobe was set."""

    accepted: dict[Any, list[Passed]] = field(default_factory=lambda: defaultdict(list))
    ejected: dict[Any, list[Passed]] = field(default_factory=lambda: defaultdict(list))
    faults: list[tuple[int, Any, int]] = field(default_factory=list)
    strobes: dict[Any, list[int]] = field(default_factory=lambda: defaultdict(list))


def run_router(router: Router, sends: Mapping[str, Sends], cycles: int, **moods: Any) -> Traffic:
    """Sends packets into the ports; records are named like the ports."""
    return run(
        router,
        {port: router.input(port) for port in router.ports},
        {port: router.output(port) for port in router.ports},
        sends,
        cycles,
        faults={"fault": (router.fault, router.fault_tile)},
        strobes={(kind, port): router.counters(port)[kind == "blocked"] for port in router.ports for kind in KINDS},
        **moods,
    )


def run_mesh(mesh: VcMesh, sends: Mapping[int, Sends], cycles: int, **moods: Any) -> Traffic:
    """Sends packets from the tiles; records are named by tile address."""
    return run(
        mesh,
        {tile: mesh.inject(tile) for tile in mesh.tiles},
        {tile: mesh.eject(tile) for tile in mesh.tiles},
        sends,
        cycles,
        faults={tile: mesh.fault(tile) for tile in mesh.tiles},
        **moods,
    )


KINDS = ("busy", "blocked")


def run(
    design: Any,
    inputs: Mapping[Any, Any],
    outputs: Mapping[Any, Any],
    sends: Mapping[Any, Sends],
    cycles: int,
    *,
    offer: Callable[[Any, int], bool] = lambda name, cycle: True,
    accept: Callable[[Any, int, int], bool] = lambda name, vc, cycle: True,
    faults: Mapping[Any, tuple[Any, Any]] | None = None,
    strobes: Mapping[Any, Any] | None = None,
    also: Callable[[Any], Any] | None = None,
) -> Traffic:
    """Simulates `cycles` cycles; `also` is a testbench that runs beside.

    `offer(name, cycle)` and `accept(name, vc, cycle)` say whether an input offers a new flit, and an output has room
    for one of a virtual channel. Senders take their channels in turns, among those that have a flit and are ready;
    where none is, they offer on the next one that has a flit, which must not be taken. Fails at once when an output
    offers on a channel without room (with one channel: changes or withdraws an offer).
    """
    traffic, faults, strobes = Traffic(), faults or {}, strobes or {}
    several = len(next(iter(inputs.values())).ready) > 1
    # One wide value per cycle: reading each signal by itself would take most of the time.
    groups = [[port.ready for port in inputs.values()]]
    groups += [[port.valid, port.payload.as_value()] for port in outputs.values()]
    groups += [[*pair] for pair in faults.values()] + [[*strobes.values()]]
    watched = [signal for group in groups for signal in group]
    everything = Cat(*watched)

    async def testbench(ctx: Any) -> None:
        queues = {
            name: {vc: _flits(packets) for vc, packets in sends.get(name, {}).items() if packets} for name in inputs
        }
        turn = dict.fromkeys(inputs, 0)
        offered: dict[Any, tuple[int, int, int] | None] = dict.fromkeys(inputs)
        untaken: dict[Any, int | None] = dict.fromkeys(outputs)
        for cycle in range(cycles):
            for name, port in inputs.items():
                if not queues[name]:
                    continue
                if several or offered[name] is None:
                    offered[name] = None
                    if offer(name, cycle):
                        offered[name] = _choose(queues[name], turn[name], ctx.get(port.ready))
                if (flit := offered[name]) is not None:
                    vc, data, last = flit
                    ctx.set(port.payload, {"data": data, "last": last, "vc": vc} if several else _plain(data, last))
                ctx.set(port.valid, flit is not None)
            rooms = {}
            for name, port in outputs.items():
                rooms[name] = sum(accept(name, vc, cycle) << vc for vc in range(len(port.ready)))
                ctx.set(port.ready, rooms[name])
            _, _, sampled = await ctx.tick().sample(everything)
            values = _cut(int(sampled), watched)
            for name in inputs:
                ready, flit = next(values), offered[name]
                if flit is not None and ready >> flit[0] & 1:
                    vc, data, last = flit
                    traffic.accepted[name].append(Passed(cycle, *flit))
                    queues[name][vc].pop()
                    if not queues[name][vc]:
                        del queues[name][vc]
                    turn[name], offered[name] = vc + 1, None
                    if not queues[name]:
                        ctx.set(inputs[name].valid, 0)
            for name, port in outputs.items():
                valid, payload = next(values), next(values)
                bits = len(port.payload.data)
                flit = Passed(cycle, payload >> bits + 1, payload & (1 << bits) - 1, payload >> bits & 1)
                taken = valid and rooms[name] >> flit.vc & 1
                assert taken or not (valid and several), f"{name} offers on channel {flit.vc} without room in {cycle}"
                kept = untaken[name] in (None, payload if valid else -1)
                assert kept, f"{name} changed or withdrew its offer in cycle {cycle}"
                untaken[name] = payload if valid and not taken else None
                if taken:
                    traffic.ejected[name].append(flit)
            for name in faults:
                strobe, value = next(values), next(values)
                if strobe:
                    traffic.faults.append((cycle, name, value))
            for name in strobes:
                if next(values):
                    traffic.strobes[name].append(cycle)

    simulator = Simulator(design)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    if also is not None:
        simulator.add_testbench(also)
    simulator.run()
    return traffic


def _plain(data: int, last: int) -> dict[str, int]:
    return {"data": data, "last": last}


def _cut(value: int, signals: Iterable[Any]) -> Iterator[int]:
    """The values of the signals that were concatenated."""
    for signal in signals:
        width = len(signal)
        yield value & (1 << width) - 1
        value >>= width


def _flits(packets: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """(data, last) of all flits, the first at the end of the list."""
    return [(data, int(at == len(packet) - 1)) for packet in packets for at, data in enumerate(packet)][::-1]


def _choose(queues: Mapping[int, list[tuple[int, int]]], turn: int, ready: int) -> tuple[int, int, int]:
    """The flit to offer as (vc, data, last): the first channel from `turn` on that is ready, or else any."""
    order = sorted(queues, key=lambda vc: (not ready >> vc & 1, vc < turn, vc))
    return order[0], *queues[order[0]][-1]


def packets(passed: Iterable[Passed]) -> list[tuple[int, list[int]]]:
    """(vc, flit data) of the packets of one link, in the order of their last flits; all must be complete."""
    open_: dict[int, list[int]] = {}
    done: list[tuple[int, list[int]]] = []
    for flit in passed:
        open_.setdefault(flit.vc, []).append(flit.data)
        if flit.last:
            done.append((flit.vc, open_.pop(flit.vc)))
    assert not open_, f"packets without their last flit: {open_}"
    return done
