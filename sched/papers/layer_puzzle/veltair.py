"""VELTAIR (Liu et al.: "VELTAIR: Towards High-Performance Multi-tenant Deep Learning Services via Adaptive Compilation
and Scheduling", ASPLOS 2022), its scheduler with Layer-Puzzle's versions and congestion estimator in place of its own
compiler and interference proxy (as in section IV-A of that paper).

Each layer needs the fewest cores on which it takes no more than its part of the time to the deadline. Layers that need
more than a threshold (the cores over the networks that are there, so it falls as more arrive) are pivots: a block runs
from the layer to launch to before the next pivot, and a pivot begins a block. A block has the fewest cores on which all
of it meets its part of the time, at least the threshold, and keeps them to its end. Blocks start in order of arrival,
those that arrived together in order of deadline; where too few cores are free a block starts with those, and takes the
others when they come free.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...schedulers.online.congestion import Congestion, fastest_beside
from ...schedulers.online.interface import Decision, Instance, Layer, View
from .launching import Launching


@dataclass(frozen=True)
class _Block:
    """Layers up to `end` (not included) on `cores` cores."""

    end: int
    cores: int


@dataclass
class Veltair:
    """The scheduler, for one run. `levels`: factors of congestion at which cores are planned."""

    congestion: Congestion
    name: str = "veltair"
    _blocks: dict[int, _Block] = field(default_factory=dict[int, _Block])

    def decide(self, view: View) -> list[Decision]:
        """The next layer of each waiting network: first those within a block, on their cores; then new blocks."""
        launching = Launching(view)
        threshold = max(1, len(view.platform.cores) // max(1, len(view.instances)))

        def order(instance: Instance) -> tuple[bool, int, float, int]:
            block = self._blocks.get(instance.number)
            fresh = block is None or instance.next >= block.end
            due = float("inf") if instance.deadline is None else float(instance.deadline)
            return fresh, instance.arrival, due, instance.number

        # cores that a running layer of a block does not use stay with the block
        reserved = sum(
            max(0, self._blocks[one.instance].cores - one.version.cores) if one.instance in self._blocks else 0
            for one in view.running
        )
        for instance in sorted(view.pending, key=order):
            room = launching.room - reserved
            if room < instance.layer.versions[0].cores:
                continue
            fresh = order(instance)[0]
            if fresh:
                self._blocks[instance.number] = block(instance, view, threshold)
            own = self._blocks[instance.number]
            most = min(own.cores, room)
            fitting = [version for version in instance.layer.versions if version.cores <= most]
            version = fastest_beside(self.congestion, view.platform, fitting, launching.running)
            if version is not None:
                word = "begins" if fresh else "continues"
                launching.launch(instance, version, f"{word} a block to layer {own.end} on {own.cores} cores")
                reserved += max(0, own.cores - version.cores)
        return launching.decisions


def block(instance: Instance, view: View, threshold: int) -> _Block:
    """The block that begins with the layer to launch."""
    network, cores = instance.network, len(view.platform.cores)
    least = network.least_cores()
    left = network.remaining(instance.next, least)
    time = left if instance.deadline is None else max(1, instance.deadline - view.now)
    end = instance.next + 1
    # a pivot needs more than the threshold: with so many cores it takes more than its part of the time
    while end < len(network.layers) and (
        threshold >= cores or _in_time(network.layers[end], time / max(1, left), threshold)
    ):
        end += 1
    part = time * (left - network.remaining(end, least)) / max(1, left)
    for count in range(least, cores + 1):
        if network.remaining(instance.next, count) - network.remaining(end, count) <= part:
            return _Block(end, max(count, threshold))
    return _Block(end, cores)


def _in_time(layer: Layer, part: float, cores: int) -> bool:
    """Whether a layer takes at most `part` of what its smallest version takes on so many cores."""
    version = layer.fastest(cores)
    return version is not None and version.cycles <= part * layer.versions[0].cycles
