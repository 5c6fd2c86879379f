"""From a log of sets and memory operations to a Schedule: MOVEs and GEMMs with every address explicit.

The order of the list is first that of the log, in which nothing overlaps, and then that of list scheduling on the
chip's resources (`network.interleave`): an operation goes as early as its words, its predecessors' and its streams
allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Addend, Region, address

from ...ir import bodies
from ...ir.bodies import GemmWindow
from ...ir.schedule import Box, Tensor
from ...mapping.emit.fields import window_fields
from ...mapping.nodes import Node, Run, issuer_for
from ...workload.layers import ConvShape
from .policy import PAPER, Policy
from .residence import Operation, Residence, Slots, divide, link_sums, place_sums, reside
from .state import LOAD, NEXT, RUN, STORE
from .striping import Places

T = TypeVar("T")
#: Biases are asked for so many operations before they are used.
BIAS_AHEAD = 2


@dataclass
class Emitted:
    """Operations in the order of the log, the number of the set that each is for, and the tensors that they work on.

    `fences`: operations before which all earlier ones must have ended, if nothing is to overlap (see `policy.Policy`).
    """

    nodes: list[Node]
    steps: list[int]
    tensors: tuple[Tensor, ...]
    fences: tuple[int, ...] = ()


class _Emitter:
    def __init__(  # see `emit`
        self, shape: ConvShape, chip: ChipConfig, places: Places, log: NDArray[np.void], scale: int, result_name: str,
        policy: Policy,
    ) -> None:  # fmt: skip
        self.tiles, self.chip, self.log = places.tiles, chip, log
        self.places, self.result_name = places, result_name
        tiles = places.tiles
        self.slots: Slots = divide(tiles, chip)
        self.fixed = {"scale": scale, "relu": int(shape.relu), "clamp": shape.clamp}
        self.nodes: list[Node] = []
        self.steps: list[int] = []
        self.step = 0
        self.fences: list[int] = []
        self.private, self.overlap = policy.private, policy.overlap
        self.asked: set[int] = set()  # stays of biases that have been asked for
        self.rows: dict[int, int] = {}  # where each tile lies in the scratchpad now
        self.in_spm: set[int] = set()  # sums whose words are there (not still in a core)
        _, n, k = tiles.shape
        self.weights, self.sums = len(tiles.m) * k, (len(tiles.m) + n) * k
        self._plan()

    def _plan(self) -> None:
        """All operations with their cores, and what each core keeps."""
        _, n, k = self.tiles.shape
        self.operations: list[Operation] = []
        self.by_core: dict[int, list[Operation]] = {core: [] for core in range(len(self.chip.cores))}
        chains: dict[tuple[int, int], list[Operation]] = {}
        for kind, what, where, _ in self.log:
            if kind == RUN:
                pair, tile = divmod(int(what), k)
                chain = chains.setdefault(divmod(pair, n), [])
                op = Operation(*divmod(pair, n), tile, int(where), len(self.by_core[int(where)]), len(chain))
                self.operations.append(op)
                self.by_core[int(where)].append(op)
                chain.append(op)
            elif kind == STORE:
                chains[divmod(int(what) - self.sums, n)][-1].spilled = True
        link_sums(chains, self.private)
        for mine in self.by_core.values():
            place_sums(mine, chains, self.slots, k - 1)
        self.residences: dict[int, Residence] = {
            core: reside(mine, self.slots, self.private) for core, mine in self.by_core.items()
        }

    def run(self) -> list[Node]:
        at, before = 0, NEXT
        for kind, what, where, _ in self.log:
            tile = int(what)
            if kind == NEXT or (kind == RUN and before != RUN):
                self._fence()
            before = kind
            if kind == RUN:
                self._operation(self.operations[at])
                at += 1
            elif kind == NEXT:
                self.step += 1
            elif kind == STORE:
                self._spill(tile, int(where))
            else:  # given up, or about to be filled
                self.rows[tile] = int(where)
                if kind == LOAD:
                    self._load(tile, int(where))
        return self.nodes

    def _fence(self) -> None:
        """Without overlap, what follows begins when all that was made has ended."""
        if not self.overlap and len(self.nodes) > (self.fences[-1] if self.fences else 0):
            self.fences.append(len(self.nodes))

    def _move(self, issuer: int, label: str, source: Run, target: Run, words: int) -> None:
        self._add(Node(issuer_for(self.chip, issuer), [], label, source, target, words))

    def _add(self, node: Node) -> None:
        self.nodes.append(node)
        self.steps.append(self.step)

    def _load(self, tile: int, row: int) -> None:
        """DRAM to scratchpad; the bank asks."""
        k = len(self.tiles.k)
        if tile >= self.sums:
            m, n = divmod(tile - self.sums, len(self.tiles.n))
            for there, dram, words in self.places.spill_moves(m, n, row):
                self._move(there.tile, f"load p m{m} n{n}", dram, there, words)
            self.in_spm.add(tile)
            return
        if tile < self.weights:
            parts, label = self.places.input_parts(*divmod(tile, k)), "x m{} k{}".format(*divmod(tile, k))
        else:
            which = divmod(tile - self.weights, k)
            parts, label = self.places.weight_parts(*which), "w n{} k{}".format(*which)
        for part, transfers in parts:
            for t in transfers:
                local = type(t.local)(t.local.tile, t.local.address + row, t.local.run, t.local.stride)
                self._move(part.bank, f"load {label}", t.dram, local, t.words)

    def _spill(self, tile: int, row: int) -> None:
        """Sums in the scratchpad to DRAM; those still in their core go there from it (see `_hand_over`)."""
        if tile not in self.in_spm:
            return
        self.in_spm.discard(tile)
        m, n = divmod(tile - self.sums, len(self.tiles.n))
        for there, dram, words in self.places.spill_moves(m, n, row):
            self._move(there.tile, f"spill p m{m} n{n}", there, dram, words)

    def _operation(self, op: Operation) -> None:
        tiles, slots, places = self.tiles, self.slots, self.places
        core, mine, k = self.chip.cores[op.core], self.residences[op.core], len(self.tiles.k)
        name = f"m{op.m} n{op.n} k{op.k}"
        a, b, bias = mine.a_of[op.index], mine.b_of[op.index], mine.bias_of[op.index]
        self._biases(op, core, mine)
        if b.first == op.index:
            row = self.rows[self.weights + op.n * k + op.k]
            for part in self._turned([part for part, _ in places.weight_parts(op.n, op.k)], op):
                target = part.local(core, address(Region.B, b.slot * slots.b_size))
                self._move(core, f"pull w n{op.n} k{op.k}", part.there(row), target, part.words)
        if a.first == op.index:
            row = self.rows[op.m * k + op.k]
            for part in self._turned([part for part, _ in places.input_parts(op.m, op.k)], op):
                target = part.local(core, address(Region.MAIN, a.slot * slots.a_size))
                self._move(core, f"pull x m{op.m} k{op.k}", part.there(row), target, part.words)
        sums = self.sums + op.m * len(tiles.n) + op.n
        acc = slots.sums_base + op.slot * slots.sums_size
        if op.pull:
            for part in self._turned(places.sum_parts(op.m, op.n), op):
                target = part.local(core, address(Region.ACC, 4 * acc))
                self._move(core, f"pull p m{op.m} n{op.n}", part.there(self.rows[sums]), target, part.words)
            self.in_spm.discard(sums)
        first, last = op.depth == 0, op.depth == k - 1
        body = bodies.gemm(
            **self._window(op, a.slot * slots.a_size, b.slot * slots.b_size),
            addend=Addend.BIAS if first else Addend.PARTIAL,
            addend_base=bias.slot * slots.bias_size if first else acc,
            to_acc=int(not last),
            dest_base=op.result * slots.out_size if last else acc,
        )
        cycles = int(tiles.cycles[op.m, op.n, op.k])
        result = self._box(op) if last and self.result_name else None
        self._add(Node(core, [], name, fields=body | self.fixed, cycles=cycles, result=result))
        if last:
            for t in self._turned(places.result(op.m, op.n, core, op.result * slots.out_size), op):
                self._move(core, f"store y m{op.m} n{op.n}", t.local, t.dram, t.words)
        elif not op.keep:
            self._hand_over(op, core, acc, sums)

    @staticmethod
    def _turned(parts: list[T], op: Operation) -> list[T]:
        """Parts in the order in which a core asks for them: cores begin with different banks and channels, so that no
        two banks serve the same core, and not all cores write to the same channel, while others wait."""
        turn = op.core % len(parts)
        return parts[turn:] + parts[:turn]

    def _biases(self, op: Operation, core: int, mine: Residence) -> None:
        """The biases of this operation and the next few, as far as there is room: a short read that waits in DRAM's
        queue for as long as any other."""
        ops = self.by_core[op.core]
        for index in range(op.index, min(op.index + BIAS_AHEAD + 1, len(ops))):
            residency = mine.bias.get(index)
            if (
                residency is None
                or id(residency) in self.asked
                or (index > op.index and residency.free_after >= op.index)
            ):
                continue
            self.asked.add(id(residency))
            for t in self.places.biases(self.tiles.n[ops[index].n], core, residency.slot * self.slots.bias_size):
                self._move(core, f"bias n{ops[index].n}", t.dram, t.local, t.words)

    def _hand_over(self, op: Operation, core: int, acc: int, sums: int) -> None:
        """Sums of an operation leave its core: for the scratchpad, or for DRAM if they are spilled next."""
        label = f"m{op.m} n{op.n}"
        if op.spilled:
            for dram, first, words in self.places.spilled(op.m, op.n):
                source = type(dram)(core, address(Region.ACC, 4 * acc + first), words, words)
                self._move(core, f"spill p {label}", source, dram, words)
            return
        for part in self._turned(self.places.sum_parts(op.m, op.n), op):
            source = part.local(core, address(Region.ACC, 4 * acc))
            self._move(core, f"push p {label}", source, part.there(self.rows[sums]), part.words)
        self.in_spm.add(sums)

    def _box(self, op: Operation) -> Box:
        """What an operation that completes its sums computes."""
        tile, (n0, n1) = self.tiles.m[op.m], self.tiles.n[op.n]
        return Box(
            tensor=self.result_name, plane=n0, planes=n1 - n0, row=tile.r0, rows=tile.r1 - tile.r0, column=tile.c0,
            columns=tile.c1 - tile.c0,
        )  # fmt: skip

    def _window(self, op: Operation, a_at: int, b_at: int) -> GemmWindow:
        """What a GEMM reads."""
        tiles = self.tiles
        sizes = int(tiles.n_size[op.n]), int(tiles.k_size[op.k])
        return window_fields(tiles.problem, tiles.m[op.m], a_at, b_at, *sizes)


def emit(
    shape: ConvShape, chip: ChipConfig, places: Places, log: NDArray[np.void], scale: int = 0, result_name: str = "",
    policy: Policy = PAPER,
) -> Emitted:  # fmt: skip
    """All operations of a log (`state.State.log`), in its order, as a policy assumes of the machine. `result_name`: the
    result's name in a network, for boxes.

    Raises DoesNotFit when DRAM is too small.
    """
    emitter = _Emitter(shape, chip, places, log, scale, result_name, policy)
    nodes = emitter.run()
    fences = tuple(at for at in emitter.fences if at < len(nodes))
    return Emitted(nodes, emitter.steps, emitter.places.tensors(shape), fences)
