"""Latency against offered load, as network simulators measure it: warm-up, sample, drain; zero load and saturation."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...devices.noc.build import Mesh
from ...devices.noc.traffic import Counters, load_point
from .noc_peers import Peer, pattern

#: Cycles before packets count, in which packets are created that do, and after which it is no use to wait for them.
WARMUP, SAMPLE, PATIENCE = 5_000, 20_000, 10_000
#: Offered load that stands for none: packets hardly ever meet.
IDLE = 5 / 512
#: Saturated: mean latency has reached that many times what it is without load.
FACTOR = 3
#: Loads are multiples of 1 / STEPS where saturation is looked for.
STEPS = 512
#: Points of a picture, as shares of the load at which the curve leaves it.
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.94, 0.97, 1.0)


@dataclass(frozen=True)
class LoadPoint:
    """Mean packet latency (cycles, infinite if not all packets of the sample arrived) at an offered load, and how much
    was accepted; both in flits per node and cycle."""

    offered: float
    accepted: float
    latency: float


@dataclass
class Curve:
    """Points of one pattern on one mesh, measured when they are asked for. Raises what `traffic.run` raises."""

    mesh: Mesh
    peer: Peer
    seed: int = 1
    counters: dict[float, Counters] = field(default_factory=dict[float, Counters])

    def at(self, load: float) -> LoadPoint:
        """The point at a load of 0..1 flits per node and cycle."""
        if load not in self.counters:
            self.counters[load] = load_point(
                self.mesh,
                pattern(self.peer),
                load,
                self.peer.length,
                seed=self.seed,
                warmup=WARMUP,
                sample=SAMPLE,
                limit=WARMUP + SAMPLE + PATIENCE,
            )
        counters = self.counters[load]
        whole = SAMPLE * self.mesh.width * self.mesh.height
        arrived = counters.done == counters.created and not counters.overflow
        return LoadPoint(
            counters.offered / whole,
            counters.accepted / whole,
            counters.latency / counters.done if arrived else float("inf"),
        )

    @property
    def cpu_seconds(self) -> float:
        """Of all runs so far."""
        return sum(counters.cpu_seconds for counters in self.counters.values())

    @property
    def zero_load(self) -> float:
        """Mean packet latency in cycles when packets hardly ever meet."""
        return self.at(IDLE).latency

    def load_at(self, latency: float) -> float:
        """An offered load at which the mean latency reaches `latency` cycles, 1 / STEPS above one at which it does not
        (or 1, if it never does); found by halving."""
        known = {round(load * STEPS): self.at(load).latency >= latency for load in [*self.counters]}
        high = min((step for step, reached in known.items() if reached), default=STEPS)
        low = max((step for step, reached in known.items() if not reached and step < high), default=0)
        while high - low > 1:
            middle = (low + high) // 2
            if self.at(middle / STEPS).latency >= latency:
                high = middle
            else:
                low = middle
        return high / STEPS

    @property
    def saturation(self) -> float:
        """The offered load at which the latency reaches `FACTOR` times that without load."""
        return self.load_at(FACTOR * self.zero_load)

    def shape(self) -> tuple[LoadPoint, ...]:
        """Points for a picture, up to the load at which the curve leaves it."""
        end = self.load_at(top(self.peer))
        return tuple(self.at(round(share * end * STEPS) / STEPS) for share in _SHARES)


def top(peer: Peer) -> float:
    """Where a picture of this pattern ends, in cycles."""
    return 1.15 * FACTOR * peer.four.zero_load
