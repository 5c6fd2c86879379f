"""Whose request for DRAM is read next, cycle by cycle, as the docstrings of `hw/noc/arbitration.py` say it."""

from __future__ import annotations

from collections import deque
from random import Random

from meshloom.hw.spec.config import ChipConfig


def chip(arbitration: str, queue: int = 2, weights: tuple[int, ...] = ()) -> ChipConfig:
    """Five tiles, of which three are cores."""
    dram = {"bytes_per_cycle": 4, "arbitration": arbitration, "weights": weights}
    values = {"name": "t", "lanes": 4, "floorplan": ["dram core core", "host core ."], "mover_queue": queue}
    return ChipConfig.model_validate(values | {"dram": dram})


#: Chips of all kinds; (queue of one request, of two, of no power of two) x (round robin, equal and unequal credits).
CHIPS = {
    "round_robin-1": chip("round_robin", 1),
    "round_robin-3": chip("round_robin", 3),
    "weighted-2": chip("weighted"),
    "weighted-3-of-cores": chip("weighted", 3, (3, 1, 2)),
    "weighted-1-of-cores": chip("weighted", 1, (1, 16, 1)),
}


class Reference:
    """Requests (`tag`, words) in a queue for each tile."""

    def __init__(self, chip: ChipConfig) -> None:
        self.tiles, self.depth = list(chip.tiles), chip.mover_queue
        self.queues: dict[int, deque[tuple[int, int]]] = {tile: deque() for tile in self.tiles}
        weights = dict(zip(chip.cores, chip.dram.weights, strict=False))
        self.weighted = chip.dram.arbitration == "weighted"
        self.full = {tile: weights.get(tile, 1) * chip.packet_words for tile in self.tiles}
        self.credit = dict(self.full)
        self.order = list(self.tiles)  # whose turn it is first

    def room(self, tile: int) -> bool:
        return len(self.queues[tile]) < self.depth

    def chosen(self) -> int | None:
        """The tile whose first request is offered in this cycle."""
        asking = [tile for tile in self.order if self.queues[tile] and (not self.weighted or self.credit[tile] > 0)]
        return asking[0] if asking else None

    def step(self, coming: tuple[int, int, int] | None, taken: bool) -> None:
        """The end of a cycle in which a request (tile, tag, words) came that had room, and the offered one was taken
        if there was one."""
        tile = self.chosen()
        if tile is None:
            self.credit = {of: min(left + self.full[of], self.full[of]) for of, left in self.credit.items()}
        elif taken:
            _, words = self.queues[tile].popleft()
            self.credit[tile] -= words
            at = self.order.index(tile) + 1
            self.order = self.order[at:] + self.order[:at]
        if coming is not None:
            self.queues[coming[0]].append(coming[1:])


def traffic(random: Random, chip: ChipConfig, count: int) -> list[tuple[int, int, int]]:
    """Requests (tile, tag, words): one tile makes most of them, and long ones."""
    greedy, tiles = random.choice(chip.cores), list(chip.tiles)
    requests = []
    for tag in range(count):
        tile = greedy if random.random() < 0.5 else random.choice(tiles)
        lengths = (1, 5, 64, 65, 200, 300) if tile == greedy else (1, 2, 17, 64, 90)
        requests.append((tile, tag, 0xFFFF if tag == count // 2 else random.choice(lengths)))
    return requests
