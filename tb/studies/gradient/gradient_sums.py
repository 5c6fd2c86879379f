"""What layers and networks take by how their orders are chosen: sums of rows, of both gradients and of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from meshloom.sched.schedulers.training.orders import Order, selected
from meshloom.sched.schedulers.training.pair import Split
from meshloom.sched.workload.training import TrainingLayer

from ..engine.rows import Rows
from .gradient_cases import NETWORKS, Case
from .gradient_forward import forward_cycles
from .gradient_points import OrderCycles, PairCycles, modelled

#: Ways to choose an order and a split. On one core the last of the paper's techniques is to compute parts of a layer
#: one after the other, which tiles do already.
WAYS = ("plain", "interleaved", "algorithm 1", "and the split", "sequential", "best")
#: Orders of the strong baseline: one product after the other, with tiles of its own or the same ones.
STRONG = (Order.SEQUENTIAL, Order.PLAIN)


@dataclass(frozen=True)
class Sum:
    """What layers take: cycles, bytes to and from DRAM, and those of spilled sums among them."""

    cycles: int = 0
    dram: int = 0
    spilled: int = 0

    def plus(self, entry: OrderCycles, times: int, lanes: int) -> Sum:
        """With `times` layers more."""
        return Sum(
            self.cycles + times * entry.cycles,
            self.dram + times * entry.words * lanes,
            self.spilled + times * entry.spilled * lanes,
        )


def pair_of(rows: Rows, case: Case, layer: TrainingLayer) -> PairCycles | None:
    """What a layer takes; None if it is not measured, or has no schedule at all."""
    point = modelled(case, layer)
    if point not in rows:
        return None
    pair: PairCycles = rows[point]
    return pair if any(entry.played for entry in pair.orders) else None


def chosen(layer: TrainingLayer, orders: Sequence[OrderCycles], way: str) -> OrderCycles:
    """What a layer takes if its order and split are chosen in some way; where that cannot be done, what `sequential`
    takes by the same split. `plain`, `interleaved` and `algorithm 1` share by rows of the batch, as is usual; a layer
    with too few of them stays on one core."""
    there = [entry for entry in orders if entry.played]
    usual = next((entry.way for entry in orders if entry.split is Split.M), None) or min(entry.way for entry in orders)

    def fastest(some: Sequence[Order], only: tuple[int, Split] | None = None) -> OrderCycles | None:
        able = [entry for entry in there if entry.order in some and only in (None, entry.way)]
        return min(able, key=lambda entry: entry.cycles, default=None)

    if way == "best":
        return min(there, key=lambda entry: entry.cycles)
    if way == "sequential" or layer.first:
        entry = fastest(STRONG, None if way in ("sequential", "and the split") else usual)
    elif way == "and the split":
        entry = fastest([selected(layer.m, layer.k, layer.n)])
    else:
        order = selected(layer.m, layer.k, layer.n) if way == "algorithm 1" else Order(way)
        entry = fastest([order], usual) or fastest(STRONG, usual)
    return entry or fastest(STRONG) or min(there, key=lambda each: each.cycles)


@dataclass(frozen=True)
class NetworkSums:
    """What the layers of a network take, each as often as it has them.

    `ways`: by how orders are chosen; `layers`: how many there are, `searched`: of which every order is searched,
    `enlarged`: which are planned with more DRAM than their chip has, of `words` words a channel (0: none are).
    `forward`: cycles of all forward passes, None while one is not measured.
    """

    network: str
    ways: Mapping[str, Sum]
    layers: int
    searched: int
    enlarged: int
    words: int
    forward: int | None

    def least(self, way: str) -> bool:
        """Whether a way would be faster, or as fast, if every order were searched of all layers."""
        return way == "best" and self.searched < self.layers

    def less(self, way: str, base: str = "plain", step: bool = False) -> float | None:
        """Percent that a way takes less than a base, of the gradients or of a whole `step`. None where that is not
        known: of a step without its forward pass, of `interleaved` where it is not searched of all layers."""
        if (step and self.forward is None) or (way == "interleaved" and self.searched < self.layers):
            return None
        more = self.forward or 0 if step else 0
        return percent_less(self.ways[way].cycles + more, self.ways[base].cycles + more)

    def less_dram(self, way: str) -> float | None:
        """Percent that the gradients move less to and from DRAM than `plain`."""
        return percent_less(self.ways[way].dram, self.ways["plain"].dram)


def percent_less(value: float, base: float) -> float | None:
    """Percent that `value` is less than `base`."""
    return 100 * (1 - value / base) if base else None


def network_sums(rows: Rows, case: Case, network: str) -> NetworkSums | None:
    """The sums of a network; None while one of its layers is not measured."""
    ways: dict[str, Sum] = {way: Sum() for way in WAYS}
    layers = searched = enlarged = words = 0
    forward: int | None = 0
    for layer in case.layers(network):
        pair = pair_of(rows, case, layer)
        if pair is None:
            return None
        for way in WAYS:
            ways[way] = ways[way].plus(chosen(layer, pair.orders, way), layer.count, case.config.lanes)
        layers += layer.count
        searched += layer.count * (layer.first or modelled(case, layer).every_order)
        enlarged += layer.count * (pair.enlarged > 0)
        words = max(words, pair.enlarged)
        entry = forward_cycles(rows, case, layer)
        forward = None if forward is None or entry is None else forward + layer.count * entry
    return NetworkSums(network, ways, layers, searched, enlarged, words, forward)


class MeasuredLayer(NamedTuple):
    """A layer, and what it takes."""

    layer: TrainingLayer
    pair: PairCycles

    def by(self, way: str) -> OrderCycles:
        """What it takes if its order and split are chosen in some way."""
        return chosen(self.layer, self.pair.orders, way)


def measured(rows: Rows, chip: str) -> list[MeasuredLayer]:
    """The different layers that are measured, the longest first, first layers left out."""
    case = Case(chip)
    by_size: dict[tuple[int, int, int], MeasuredLayer] = {}
    for layer in (layer for name in NETWORKS for layer in case.layers(name) if not layer.first):
        pair = pair_of(rows, case, layer)
        if pair is not None:
            by_size.setdefault((layer.m, layer.k, layer.n), MeasuredLayer(layer, pair))
    return sorted(by_size.values(), key=lambda entry: -entry.by("plain").cycles)
