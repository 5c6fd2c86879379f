"""Words out of DRAM, to the cycle: the cycles in which a MOVE's flits leave a DRAM tile if nothing stalls them.

A channel of one word a cycle, as in `hw/memory/mover.py`, `hw/memory/dram_port.py` and `tb/build/verilog/dram_model.v`:
bursts are requested one a cycle, with at most `DRAM_BURSTS` in flight; the first word of a burst arrives `latency`
cycles after its address; two words (`PORT_WORDS`) wait for the packetiser, which sends a head only once its first word
has arrived. Compiled, like the search.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meshloom.hw.spec.contracts import (
    ADDRESS_CYCLES,
    BEAT_CYCLES,
    DRAM_BURSTS,
    DRAM_DESCRIPTORS,
    PORT_WORDS,
    SOURCE_CYCLES,
)

from ...routing.compiled import jit
from ...support.records import layout

Array = Any


class Times:
    """Cycles: first free one of the source generator and of the packetiser; of the last beat, of the last word sent and
    of the one before it (-1: none yet)."""

    generator: int
    packetiser: int
    beat: int
    sent: int
    sent_before: int


class Counts:
    """Bursts and MOVEs so far."""

    bursts: int
    moves: int


TIMES, COUNTS = layout(Times), layout(Counts)

assert PORT_WORDS == 2, "a state remembers the last two words sent, for two wait in the port"


class State(NamedTuple):
    """A mover of a DRAM tile. Rings of cycles, -1 where nothing has been yet: `done` [DRAM_BURSTS], when bursts ended;
    `accepted` [DRAM_DESCRIPTORS], when the packetiser took MOVEs."""

    times: Times
    counts: Counts
    done: Array
    accepted: Array


def new_state() -> State:
    """The state of a mover that has done nothing."""
    times = np.full(1, -1, TIMES)[0]
    times.generator = times.packetiser = 0
    done, accepted = np.full(DRAM_BURSTS, -1, np.int64), np.full(DRAM_DESCRIPTORS, -1, np.int64)
    return State(times, np.zeros(1, COUNTS)[0], done, accepted)


def shift(state: State, cycles: int) -> None:
    """Delays all times of a state by `cycles`."""
    for name in Times.__annotations__:
        if (time := getattr(state.times, name)) >= 0:
            setattr(state.times, name, time + cycles)
    for ring in (state.done, state.accepted):
        ring[ring >= 0] += cycles


@jit
def earliest(state: State, accepted: int) -> int:
    """The first cycle, `accepted` or later, in which the source generator can take a MOVE."""
    first = max(accepted, state.times.generator)
    if state.counts.moves >= DRAM_DESCRIPTORS:
        # a descriptor's entry is free from the cycle after the packetiser took it
        first = max(first, state.accepted[state.counts.moves % DRAM_DESCRIPTORS] + 1)
    return first


@jit
def send(state: State, accepted: int, latency: int, bursts: Array, packets: Array) -> tuple[int, int]:
    """Sends a MOVE that the source generator takes in cycle `accepted` (`earliest`): returns the cycles of its first
    head and last word.

    `bursts`, `packets` [n]: their words. Changes `state`.
    """
    offered = accepted + SOURCE_CYCLES - 1  # bursts are offered from the next cycle on
    burst, burst_left, from_burst = 0, 0, 0
    packet_left, packet = 0, 0
    # the packetiser takes the descriptor when it is idle
    picked = max(accepted + 1, state.times.packetiser)
    at = picked  # the last cycle in which it was busy
    departure = -1
    words = 0
    for one in bursts:
        words += one
    for _ in range(words):
        if burst_left == 0:
            earliest_ask = offered + 1
            if state.counts.bursts >= DRAM_BURSTS:
                earliest_ask = max(earliest_ask, state.done[state.counts.bursts % DRAM_BURSTS])
            offered = earliest_ask
            burst_left = bursts[burst]
            from_burst = offered + ADDRESS_CYCLES + latency
            burst += 1
        beat = max(from_burst, state.times.beat + 1, state.times.sent_before + 1)
        if packet_left == 0:
            at = max(at + 1, beat + BEAT_CYCLES)  # the head
            if departure < 0:
                departure = at
            packet_left = packets[packet]
            packet += 1
        at = max(at + 1, beat + BEAT_CYCLES)
        packet_left -= 1
        burst_left -= 1
        state.times.beat = beat
        state.times.sent_before = state.times.sent
        state.times.sent = at
        if burst_left == 0:
            state.done[state.counts.bursts % DRAM_BURSTS] = beat + 1
            state.counts.bursts += 1
    state.times.generator = offered + 1
    state.times.packetiser = at + 1
    state.accepted[state.counts.moves % DRAM_DESCRIPTORS] = picked
    state.counts.moves += 1
    return departure, at
