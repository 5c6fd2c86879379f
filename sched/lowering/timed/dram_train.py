"""Words out of DRAM, to the cycle: the cycles in which a MOVE's flits leave a DRAM tile if nothing stalls them.

A channel of one word a cycle, as in `hw/memory/mover.py`, `hw/memory/dram_port.py` and `tb/build/verilog/dram_model.v`:
bursts are requested one a cycle, with at most `DRAM_BURSTS` in flight; the first word of a burst arrives `latency`
cycles after its address; two words (`PORT_WORDS`) wait for the packetiser, which sends a head only once its first word
has arrived. Compiled, like the search.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshloom.hw.contracts import (
    ADDRESS_CYCLES,
    BEAT_CYCLES,
    DRAM_BURSTS,
    DRAM_DESCRIPTORS,
    PORT_WORDS,
    SOURCE_CYCLES,
)

from ...routing.compiled import jit

#: Layout of a state: first free cycle of the source generator and of the packetiser, the last beat, the last two words
#: sent, the number of bursts and MOVEs so far; then, as rings, when bursts ended and when the packetiser took MOVEs.
GENERATOR, PACKETISER, BEAT, SENT, SENT_BEFORE, BURSTS, MOVES, DONE = range(8)
TAKEN = DONE + DRAM_BURSTS
SIZE = TAKEN + DRAM_DESCRIPTORS

Array = Any

assert PORT_WORDS == 2, "a state remembers the last two words sent, for two wait in the port"


def new_state() -> Array:
    """The state of a mover that has done nothing: int64 [SIZE]."""
    state = np.full(SIZE, -1, np.int64)
    state[[GENERATOR, PACKETISER, BURSTS, MOVES]] = 0
    return state


def shift(state: Array, cycles: int) -> None:
    """Delays all times of a state by `cycles`."""
    times = np.ones(SIZE, bool)
    times[[BURSTS, MOVES]] = False
    state[times & (state >= 0)] += cycles


@jit
def earliest(state: Array, taken: int) -> int:
    """The first cycle, `taken` or later, in which the source generator can take a MOVE."""
    first = max(taken, state[GENERATOR])
    if state[MOVES] >= DRAM_DESCRIPTORS:
        # a descriptor's entry is free from the cycle after the packetiser took it
        first = max(first, state[TAKEN + state[MOVES] % DRAM_DESCRIPTORS] + 1)
    return first


@jit
def send(state: Array, taken: int, latency: int, bursts: Array, packets: Array) -> tuple[int, int]:
    """Sends a MOVE that the source generator takes in cycle `taken` (`earliest`): returns the cycles of its first head
    and last word.

    `bursts`, `packets` [n]: their words. Changes `state`.
    """
    asked = taken + SOURCE_CYCLES - 1  # bursts are offered from the next cycle on
    burst, burst_left, from_burst = 0, 0, 0
    packet_left, packet = 0, 0
    # the packetiser takes the descriptor when it is idle
    picked = max(taken + 1, state[PACKETISER])
    at = picked  # the last cycle in which it was busy
    departure = -1
    words = 0
    for one in bursts:
        words += one
    for _ in range(words):
        if burst_left == 0:
            earliest_ask = asked + 1
            if state[BURSTS] >= DRAM_BURSTS:
                earliest_ask = max(earliest_ask, state[DONE + state[BURSTS] % DRAM_BURSTS])
            asked = earliest_ask
            burst_left = bursts[burst]
            from_burst = asked + ADDRESS_CYCLES + latency
            burst += 1
        beat = max(from_burst, state[BEAT] + 1, state[SENT_BEFORE] + 1)
        if packet_left == 0:
            at = max(at + 1, beat + BEAT_CYCLES)  # the head
            if departure < 0:
                departure = at
            packet_left = packets[packet]
            packet += 1
        at = max(at + 1, beat + BEAT_CYCLES)
        packet_left -= 1
        burst_left -= 1
        state[BEAT] = beat
        state[SENT_BEFORE] = state[SENT]
        state[SENT] = at
        if burst_left == 0:
            state[DONE + state[BURSTS] % DRAM_BURSTS] = beat + 1
            state[BURSTS] += 1
    state[GENERATOR] = asked + 1
    state[PACKETISER] = at + 1
    state[TAKEN + state[MOVES] % DRAM_DESCRIPTORS] = picked
    state[MOVES] += 1
    return departure, at
