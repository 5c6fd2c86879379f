"""The model's request senders: requests of a tile to others.

Mirrors the request half of `hw/noc/interface.py`, whose docstring gives the cycle counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from meshloom.hw.spec.contracts import SENDER_CYCLES
from meshloom.hw.spec.isa import REQUEST_FLITS

from .clock import Clock
from .flow import OPEN
from .noc_flow import Gate, Packet, Plane


class _Offer(NamedTuple):
    """A request that is offered from `cycle` on; see `Sender.offer`."""

    cycle: int
    target: int
    accept: Callable[[int], None]
    arrived: Callable[[int], None]
    gate: Gate | None


class Sender:
    """Injects the requests of a tile into the request plane: one at a time, lower-numbered ports first."""

    def __init__(self, clock: Clock, plane: Plane, tile: int) -> None:
        self.clock, self.plane, self.tile = clock, plane, tile
        self.free = 0  # first cycle in which it can take a request; -1 while it sends one
        self.offers: dict[int, _Offer] = {}

    def offer(
        self,
        port: int,
        cycle: int,
        target: int,
        accept: Callable[[int], None],
        arrived: Callable[[int], None],
        gate: Gate | None,
    ) -> None:
        """A request offered at `port` from `cycle` on. `accept` is called when the sender takes it, `arrived` in the
        cycle in which the receiver holds all of it; the receiver's `gate` admits the next one."""
        self.offers[port] = _Offer(cycle, target, accept, arrived, gate)
        if self.free >= 0:
            self.clock.at(max(cycle, self.free), self.choose, 1)

    def choose(self, cycle: int) -> None:
        if self.free < 0 or cycle < self.free or not self.offers:
            return
        there = [port for port, offer in self.offers.items() if offer.cycle <= cycle]
        if not there:
            self.clock.at(min(offer.cycle for offer in self.offers.values()), self.choose, 1)
            return
        chosen = self.offers.pop(min(there))
        self.free = -1

        def injected(now: int) -> None:
            self.free = now
            if self.offers:
                self.clock.at(now, self.choose, 1)

        packet = Packet([(REQUEST_FLITS, OPEN, chosen.arrived)], chosen.gate)
        self.clock.at(
            cycle + SENDER_CYCLES,
            lambda now: self.plane.send(now, self.tile, chosen.target, packet, injected),
        )
        chosen.accept(cycle)
