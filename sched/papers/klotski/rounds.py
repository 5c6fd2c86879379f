"""Rounds with a barrier between them, as accelerators without dataflow run (Klotski, Figure 2, left side).

All units that work in a round tell one core, the *coordinator*, when they are done, and none begins with the next
round before that core has told it to. Chips have no instruction for that and need none: each core pushes a word of the
last result of its round into a cell of the coordinator, whose vector unit reads all cells and so makes the word that
opens the next round; each unit's first instruction there reads that word (a product or maximum that nobody uses), and
its others follow in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from meshloom.hw.spec.config import ChipConfig, tile_position
from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode, Unit, VectorOp, address
from meshloom.hw.spec.isa import Region as Place
from meshloom.hw.spec.timing import GemmShape, VecShape, gemm_occupancy, vec_occupancy

from ...ir import bodies
from ...mapping.memory.placement import Stored
from ...mapping.nodes import Node, Run
from .muops import MuGraph, MuOp, Orchestration

_WIDEST = INSTRUCTIONS[Opcode.VEC].most("kernel_w")
#: A unit of a core.
Worker = tuple[int, Unit]


def by_turns(graph: MuGraph, plan: Orchestration) -> list[int]:
    """The round of each micro-op, so that each core does one a round, in the order of starts, and all that one reads
    has been made in rounds before."""
    rounds = [0] * len(graph.ops)
    latest: dict[int, int] = {}
    for number in sorted(range(len(graph.ops)), key=lambda number: (plan.starts[number], number)):
        core = plan.cores[number]
        after = [latest.get(core, -1), *(rounds[edge.producer] for edge in graph.before[number])]
        rounds[number] = latest[core] = max(after) + 1
    return rounds


def by_stages(graph: MuGraph) -> list[int]:
    """The stage of each micro-op: one layer after the other."""
    return [op.stage for op in graph.ops]


class Barriers:
    """Makes the operations of barriers. `rounds`: of each micro-op; `order`: all of them, rounds rising; `core`: of
    each, its tile."""

    def __init__(self, ops: Sequence[MuOp], rounds: Sequence[int], order: Sequence[int], core: Sequence[int],
                 chip: ChipConfig) -> None:  # fmt: skip
        self.chip = chip
        self.first: dict[int, Worker] = {}  # micro-op with which a unit begins a round
        self.last: dict[int, Worker] = {}  # and with which it ends one
        self.ends: set[int] = set()  # positions of the last micro-op of each round but the last
        seen: set[tuple[int, Worker]] = set()
        for number in order:
            worker = core[number], ops[number].unit
            if (rounds[number], worker) not in seen:
                seen.add((rounds[number], worker))
                self.first[number] = worker
        seen.clear()
        for number in reversed(order):
            worker = core[number], ops[number].unit
            if (rounds[number], worker) not in seen:
                seen.add((rounds[number], worker))
                self.last[number] = worker
        for position, (number, following) in enumerate(zip(order, order[1:], strict=False)):
            if rounds[number] != rounds[following]:
                self.ends.add(position)
        self.begins = rounds[order[0]] if order else 0
        self.rounds, self.order = rounds, order
        self.coordinator = _middle(chip)
        self.workers = [(tile, unit) for tile in chip.cores for unit in (Unit.MATRIX, Unit.VECTOR)]
        self._arrived = 0
        self._word: Run | None = None
        self._weights: set[int] = set()  # cores that have some

    # -- words that a barrier keeps for itself, at the end of memories -------------------------------------------------

    @property
    def room(self) -> dict[Place, int]:
        """Words of each memory of every core."""
        return {
            Place.MAIN: 2 + 2 * len(self.workers), Place.B: self.chip.cols, Place.ACC: 0, Place.OUT: 1, Place.VEC: 2,
        }  # fmt: skip

    def _at(self, place: Place, index: int = 0) -> int:
        core = self.chip.core
        words = {Place.MAIN: core.a_words, Place.B: core.b_words, Place.OUT: core.out_words, Place.VEC: core.vec_words}
        return words[place] - self.room[place] + index

    # -- operations -------------------------------------------------------------------------------------------------

    def arrive(self, number: int, result: int, after: Node, label: str) -> list[Node]:
        """What a unit sends when it is done with its round: a word of its result, at that address."""
        if number not in self.last or self.rounds[number] == self.rounds[self.order[-1]]:
            return []
        worker = self.last[number]
        cell = address(Place.MAIN, self._at(Place.MAIN, 2 + self._arrived))
        self._arrived += 1
        self._word = Run(worker[0], result, 1, 1)
        return [_word(worker[0], self._word, Run(self.coordinator, cell, 1, 1), f"{label} done", after)]

    def open(self, position: int, label: str) -> list[Node]:
        """Behind the last micro-op of a round: the coordinator waits for all that have worked in it, and tells those
        that work in the next one."""
        if position not in self.ends:
            return []
        tall = ceil(self._arrived / _WIDEST)
        wide = ceil(self._arrived / tall)
        nodes: list[Node] = []
        assert self._word is not None
        for index in range(self._arrived, tall * wide):  # all cells of the window have to have something in them
            cell = address(Place.MAIN, self._at(Place.MAIN, 2 + index))
            nodes.append(_word(self._word.tile, self._word, Run(self.coordinator, cell, 1, 1), f"{label} done"))
        body = bodies.vec(
            op=VectorOp.MAX, x_base=self._at(Place.MAIN, 2), x_plane=tall * wide, in_w=wide, kernel_h=tall,
            kernel_w=wide, dest_base=self._at(Place.VEC),
        )  # fmt: skip
        nodes.append(self._vec(self.coordinator, body, f"{label} all done"))
        word = Run(self.coordinator, address(Place.VEC, self._at(Place.VEC)), 1, 1)
        following = self.rounds[self.order[position + 1]]
        for number, (tile, unit) in self.first.items():
            if self.rounds[number] == following:
                cell = address(Place.MAIN, self._at(Place.MAIN, int(unit is Unit.VECTOR)))
                nodes.append(_word(self.coordinator, word, Run(tile, cell, 1, 1), f"{label} go on", nodes[-1]))
        self._arrived = 0
        return nodes

    def gate(self, number: int, weights: Stored | None, label: str) -> list[Node]:
        """What a unit begins its round with: an operation that reads the word that opens it. `weights`: of any
        convolution, for those of the array."""
        if number not in self.first or self.rounds[number] == self.begins:
            return []
        tile, unit = self.first[number]
        if unit is Unit.VECTOR:
            body = bodies.vec(op=VectorOp.MAX, x_base=self._at(Place.MAIN, 1), dest_base=self._at(Place.VEC, 1))
            return [self._vec(tile, body, f"{label} begin")]
        nodes: list[Node] = []
        if tile not in self._weights:
            assert weights is not None
            self._weights.add(tile)
            at = address(Place.B, self._at(Place.B))
            for t in weights.transfers((0, 1), (0, 1, 1), (0, self.chip.cols), tile, at):
                nodes.append(t.load(tile, f"{label} begin"))
        body = bodies.gemm(
            a_base=self._at(Place.MAIN), b_base=self._at(Place.B), dest_base=self._at(Place.OUT), scale=1
        )
        cycles = gemm_occupancy(self.chip, GemmShape(1))
        return [*nodes, Node(tile, [], f"{label} begin", fields=body, cycles=cycles)]

    def _vec(self, tile: int, fields: dict[str, int], label: str) -> Node:
        return Node(tile, [], label, fields=fields, cycles=vec_occupancy(self.chip, VecShape.of(fields)), vec=True)


def _word(issuer: int, source: Run, target: Run, label: str, *after: Node) -> Node:
    return Node(issuer, list(after), label, source, target, 1)


def _middle(chip: ChipConfig) -> int:
    """The core nearest to all others."""

    def far(tile: int) -> int:
        x, y = tile_position(tile)
        return sum(abs(x - other_x) + abs(y - other_y) for other_x, other_y in map(tile_position, chip.cores))

    return min(chip.cores, key=far)
