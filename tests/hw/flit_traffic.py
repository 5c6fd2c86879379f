"""Drives flit streams in Amaranth's simulator and records what went through, cycle by cycle."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: (data, last) of one flit.
Flit = tuple[int, int]


@dataclass(frozen=True)
class Passed:
    """One transfer: the cycle (counted from reset) and the flit."""

    cycle: int
    data: int
    last: int


@dataclass(frozen=True)
class Traffic:
    """What went through: transfers of each input and of each output, and (cycle, number, value) of faults."""

    accepted: list[list[Passed]]
    ejected: list[list[Passed]]
    faults: list[tuple[int, int, int]]


def drive(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    sends: Sequence[Iterable[Flit]],
    *,
    cycles: int,
    offer: Callable[[int, int], bool] = lambda port, cycle: True,
    accept: Callable[[int, int], bool] = lambda port, cycle: True,
    faults: Sequence[tuple[Any, Any]] = (),
) -> tuple[Callable[[Any], Any], Traffic]:
    """A testbench for `cycles` cycles and the record it fills.

    `offer(port, cycle)` and `accept(port, cycle)` say whether an input offers a new flit, and an output is ready.
    An offered flit stays until taken. Fails at once when an output changes or withdraws an offer.
    """
    traffic = Traffic([[] for _ in inputs], [[] for _ in outputs], [])

    async def testbench(ctx: Any) -> None:
        queues = [iter(flits) for flits in sends]
        offered: list[Flit | None] = [None] * len(inputs)
        watched = [port.ready for port in inputs]
        for port in outputs:
            watched += [port.valid, port.payload.as_value()]
        for pair in faults:
            watched += pair
        untaken: list[int | None] = [None] * len(outputs)
        for cycle in range(cycles):
            for number, port in enumerate(inputs):
                if offered[number] is None and offer(number, cycle):
                    offered[number] = next(queues[number], None)
                    if (flit := offered[number]) is not None:
                        ctx.set(port.payload, {"data": flit[0], "last": flit[1]})
                ctx.set(port.valid, offered[number] is not None)
            ready = [accept(number, cycle) for number in range(len(outputs))]
            for port, value in zip(outputs, ready, strict=True):
                ctx.set(port.ready, value)
            _, _, *seen = await ctx.tick().sample(*watched)
            values = [int(value) for value in seen]
            for number in range(len(inputs)):
                if values[number] and (flit := offered[number]) is not None:
                    traffic.accepted[number].append(Passed(cycle, *flit))
                    offered[number] = None
            at = len(inputs)
            for number, port in enumerate(outputs):
                valid, payload = values[at + 2 * number : at + 2 * number + 2]
                kept = untaken[number] in (None, payload if valid else -1)
                assert kept, f"output {number} changed or withdrew its offer in cycle {cycle}"
                untaken[number] = payload if valid and not ready[number] else None
                if valid and ready[number]:
                    bits = len(port.payload.data)
                    traffic.ejected[number].append(Passed(cycle, payload & ((1 << bits) - 1), payload >> bits))
            at += 2 * len(outputs)
            for number in range(len(faults)):
                strobe, value = values[at + 2 * number : at + 2 * number + 2]
                if strobe:
                    traffic.faults.append((cycle, number, value))

    return testbench, traffic


def packets(passed: Iterable[Passed]) -> list[list[int]]:
    """The packets (lists of flit data) of one stream; the last must be complete."""
    result: list[list[int]] = [[]]
    for flit in passed:
        result[-1].append(flit.data)
        if flit.last:
            result.append([])
    assert not result[-1], f"a packet without its last flit: {result[-1]}"
    return result[:-1]


def as_flits(packet: Sequence[int]) -> list[Flit]:
    """The flits of one packet."""
    return [(value, int(number == len(packet) - 1)) for number, value in enumerate(packet)]


def moody(seed: int, keenness: float) -> Callable[[int, int], bool]:
    """A random yes or no for each port and cycle, yes with probability `keenness`; some ports have long pauses."""
    rng = random.Random(seed)
    paused: dict[int, int] = {}

    def decide(port: int, cycle: int) -> bool:
        if cycle < paused.get(port, 0):
            return False
        if rng.random() < 0.02:
            paused[port] = cycle + rng.randrange(20)
        return rng.random() < keenness

    return decide
