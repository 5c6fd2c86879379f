"""The operations of one core in order: what it asks for ahead of its GEMMs, the GEMMs, the stores behind them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, address
from meshloom.hw.spec.timing import VecShape, vec_occupancy

from ...ir.schedule import Box
from ..memory.staging import Pull, Staging
from ..memory.tensors import Chunk, Tensors
from ..nodes import Node
from ..tiling.arena import TileResidency
from ..tiling.plan import CorePlan, GemmStep, a_key, box, windows
from ..tiling.tiles import Candidate, Pooling, Range
from . import step_bodies
from .fields import bias_fields
from .prologue import Feeder

#: A chunk is asked for so many cycles before its first use, plus so many times its words, if its slot is free by then.
AHEAD = (250, 4)
#: `late` candidates: while all cores begin at once, what is asked for early delays what others need first.
AHEAD_LATE = (100, 2)
#: Order in which the operands of one step are asked for.
RANK = {"bias": 0, "b": 1, "a": 2, "r": 3}


@dataclass
class _Load:
    """A tile in its slot, or on its way there: the moves that bring each chunk, and the GEMMs that have read it."""

    residency: TileResidency
    pieces: list[tuple[tuple[Range, ...], list[Node]]] = field(
        default_factory=list[tuple[tuple[Range, ...], list[Node]]]
    )
    readers: list[Node] = field(default_factory=list[Node])

    def needed(self, bounds: tuple[Range, ...]) -> Iterable[Node]:
        """Moves of the chunks that overlap `bounds`."""
        for have, nodes in self.pieces:
            if all(low < stop and start < high for (low, high), (start, stop) in zip(have, bounds, strict=True)):
                yield from nodes


@dataclass(frozen=True)
class Epilogue:
    """What the vector unit does behind the layer: a residual addition or (`pooling`) a max pool.

    `name` of its result, and its `relu` and `clamp`.
    """

    name: str
    fixed: dict[str, int]
    pooling: Pooling | None = None


@dataclass(frozen=True)
class _Wish:
    """A stay of an operand, asked for from `position` on; its chunks and before which step to ask for each."""

    operand: str
    residency: TileResidency
    position: int
    chunks: list[tuple[int, Chunk]]


class Core:
    """Sorts the operations of one core into positions: before which of its steps each is listed.

    After `emit`, `before[i]` are the moves listed before step i (one more position for the last stores), each with the
    step that needs it, `gemms[i]` is the GEMM of step i and `vecs[i]` the addition behind it, if there is one.
    """

    def __init__(
        self,
        chip: ChipConfig,
        tensors: Tensors,
        plan: CorePlan,
        candidate: Candidate,
        fixed: dict[str, int],
        epilogue: Epilogue | None = None,
        feeder: Feeder | None = None,
    ) -> None:
        self._chip, self._feeder = chip, feeder
        self.tensors, self.plan, self.candidate, self.fixed, self.epilogue = tensors, plan, candidate, fixed, epilogue
        self.tile = plan.part.core
        self._problem = tensors.problem
        self._lead = AHEAD_LATE if candidate.late else AHEAD
        self._bias_slot = tensors.bias_rows * max(residency.key[1] - residency.key[0] for residency in plan.bias)
        self._starts = [0]
        for step in plan.steps:
            self._starts.append(self._starts[-1] + step.cycles)
        self.wishes = self._wishes()
        self.before: list[list[tuple[int, Node]]] = [[] for _ in range(len(plan.steps) + 1)]
        self.gemms: list[Node] = []
        self.vecs: dict[int, Node] = {}

    # -- what to ask for, and when ------------------------------------------------------------------------------

    def _ahead(self, step: int, words: int, cycles: int) -> int:
        """Before which step to ask for `words` that `step` needs, so that they are there in time. `cycles`: of the
        vector unit that makes them."""
        need = self._starts[step] - self._lead[0] - self._lead[1] * words - cycles
        return max(0, min(bisect_right(self._starts, need) - 1, step - 1))

    def _wishes(self) -> list[_Wish]:
        """All stays in the order of their first use; positions never go back."""
        plan = self.plan
        residencies = [("bias", s) for s in plan.bias] + [("b", s) for s in plan.b] + [("a", s) for s in plan.a]
        residencies += [("r", s) for s in plan.r]
        wishes: list[_Wish] = []
        latest = 0
        for operand, residency in sorted(residencies, key=lambda entry: (entry[1].first, RANK[entry[0]])):
            chunks = self._chunks(operand, residency)
            work = [self._feeder.cycles(c) if self._feeder and operand == "a" else 0 for c in chunks]
            words = sum(c.words for c in chunks)
            latest = max(latest, self._ahead(residency.first, words, sum(work)), residency.free_after + 1)
            timed = [
                (max(latest, self._ahead(residency.first + c.late, c.words, more)), c)
                for c, more in zip(chunks, work, strict=True)
            ]
            wishes.append(_Wish(operand, residency, latest, timed))
        return wishes

    def _staged(self, operand: str) -> bool:
        return {"a": self.candidate.x_spm, "b": self.candidate.w_spm, "bias": False, "r": False}[operand]

    def pulls(self) -> list[Pull]:
        """Everything that is pulled from SPM."""
        pulls = [
            Pull(position, self.tile, chunk)
            for wish in self.wishes
            if self._staged(wish.operand)
            for position, chunk in wish.chunks
        ]
        return sorted(pulls, key=lambda pull: pull.position)

    def _chunks(self, operand: str, residency: TileResidency) -> list[Chunk]:
        """The chunks in which a tile arrives."""
        tensors, pieces = self.tensors, self.plan.pieces
        ramp = pieces if residency.first == 0 and len(pieces) > 1 else []
        if operand == "bias":
            return [tensors.bias_chunk(residency.key)]
        if operand == "r":
            return [tensors.result_chunk(*residency.key)]
        if operand == "b":
            if not ramp:
                n, k = residency.key
                whole = (k[0] * self._problem.taps, k[1] * self._problem.taps)
                return [tensors.weight_chunk(residency.key, n, whole, 0)]
            return [tensors.weight_chunk(residency.key, p.n, windows(self._problem, p), i) for i, p in enumerate(ramp)]
        (rows, _), _, k = residency.key
        if self.candidate.strip:
            return [tensors.input_chunk(residency.key, k, some, late) for late, some in self._strip_rows(residency)]
        late = {p.k: index for index, p in reversed(list(enumerate(ramp))) if p.n == ramp[0].n}
        return [tensors.input_chunk(residency.key, some, rows, late[some]) for some in sorted(late)] or [
            tensors.input_chunk(residency.key, k, rows, 0)
        ]

    def _strip_rows(self, residency: TileResidency) -> list[tuple[int, Range]]:
        """(step after the first that needs them, rows) of a strip, as far as the rows before do not hold them."""
        strips: list[tuple[int, Range]] = []
        low = high = -1
        for index in range(residency.first, residency.last + 1):
            step = self.plan.steps[index]
            if a_key(self._problem, self.plan.held, step) != residency.key:
                continue
            i0, i1 = box(self._problem, step.item.m)[0]
            if low < 0:
                low = high = i0
            strips += [(index - residency.first, rows) for rows in ((i0, low), (high, i1)) if rows[0] < rows[1]]
            low, high = min(low, i0), max(high, i1)
        return strips

    # -- operations -----------------------------------------------------------------------------------------------

    def emit(self, staging: Staging) -> None:
        """Fills `before` and `gemms`."""
        steps, out_slots = self.plan.steps, self.plan.out_slots
        slots: dict[str, dict[int, _Load]] = {operand: {} for operand in RANK}  # what lies where, by operand
        wishes: dict[int, list[_Wish]] = {}
        for wish in self.wishes:
            wishes.setdefault(wish.position, []).append(wish)
        fresh: list[list[tuple[int, int, Node]]] = [[] for _ in self.before]
        stores: dict[int, list[Node]] = {}  # result slot -> the stores out of it
        pending: list[Node] = []
        for index, step in enumerate(steps):
            for wish in wishes.get(index, ()):
                own, slot = slots[wish.operand], wish.residency.slot
                old = own.get(slot)
                own[slot] = self._load(wish, old.readers if old else [], staging, fresh)
            # What waits for the same GEMM as the last stores goes first: it is short to ask for.
            self.before[index] += [(due, node) for due, _, node in sorted(fresh[index], key=lambda entry: entry[:2])]
            self.before[index] += [(len(steps), node) for node in pending]
            a = _holding(slots["a"], a_key(self._problem, self.plan.held, step))
            b = _holding(slots["b"], (step.item.n, step.item.k))
            after = [*a.needed((step.piece.k, box(self._problem, step.item.m)[0]))]
            after += b.needed((step.piece.n, windows(self._problem, step.piece)))
            readers, bias_at = [a.readers, b.readers], 0
            scaled = step.last and self.tensors.bias_rows > 1  # multipliers lie with the biases
            if step.first or scaled:
                channel, held = step.piece.n[0], slots["bias"]
                biases = (held[slot] for slot in sorted(held))
                bias = next(x for x in biases if x.residency.key[0] <= channel < x.residency.key[1])
                after += bias.needed(())
                bias_at = bias.residency.slot * self._bias_slot
                bias_at += self.tensors.bias_rows * (step.piece.n[0] - bias.residency.key[0])
                readers.append(bias.readers)
            slot = step.result % out_slots
            vec_slot = -1 - step.result % self.plan.vec_slots
            if step.last and (index == 0 or steps[index - 1].result != step.result or not steps[index - 1].last):
                after += stores.pop(slot, [])
            at = a.residency.slot * self.plan.a_slot, b.residency.slot * self.plan.b_slot
            fields = step_bodies.product(self._problem, self.plan, step, *at, bias_at) | self.fixed
            if scaled:
                fields["scale"] = bias_fields(self.fixed, bias_at)["scale"]
            gemm = Node(self.tile, after, _label(step), fields=fields, cycles=step.cycles)
            gemm.result = self._box(step, self.tensors.result) if step.last else None
            self.gemms.append(gemm)
            for read in readers:
                read.append(gemm)
            pending = []
            if step.last and self.epilogue:
                after = [gemm, *stores.pop(vec_slot, [])]
                r = None
                if not self.epilogue.pooling:
                    r = _holding(slots["r"], (step.item.m, step.item.n))
                    after += r.needed(())
                vec = self.vecs[index] = self._vec(step, r, after)
                if r:
                    r.readers.append(vec)
                stores.setdefault(slot, []).append(vec)
                pending = self._store(step, vec, Region.VEC)
                stores.setdefault(vec_slot, []).extend(pending)
            elif step.last:
                pending = self._store(step, gemm, Region.OUT)
                stores.setdefault(slot, []).extend(pending)
        self.before[len(steps)] += [(len(steps), node) for node in pending]

    def _load(
        self, wish: _Wish, after: list[Node], staging: Staging, fresh: list[list[tuple[int, int, Node]]]
    ) -> _Load:
        """Brings a tile into its slot once the GEMMs in `after` are done with it."""
        load = _Load(wish.residency)
        slot = self._address(wish.operand, wish.residency)
        for position, chunk in wish.chunks:
            if self._feeder and wish.operand == "a":
                nodes, landed = self._feeder.make(chunk, slot, after)
                load.pieces.append((chunk.bounds, landed))
                fresh[position] += [(wish.residency.first + chunk.late, RANK["a"], node) for node in nodes]
                continue
            if self._staged(wish.operand):
                nodes = staging.pull(self.tile, slot, chunk, after)
            else:
                nodes = [
                    t.load(self.tile, chunk.label, after)
                    for t in self.tensors.transfers(chunk, self.tile, slot + chunk.offset, chunk.plane)
                ]
            # Cores begin with different channels and banks.
            turn = self.plan.part.index % len(nodes)
            nodes = nodes[turn:] + nodes[:turn]
            load.pieces.append((chunk.bounds, nodes))
            fresh[position] += [(wish.residency.first + chunk.late, RANK[wish.operand], node) for node in nodes]
        return load

    def _address(self, operand: str, residency: TileResidency) -> int:
        if operand == "bias":
            return address(Region.ACC, 4 * residency.slot * self._bias_slot)
        if operand == "a":
            return address(Region.MAIN, residency.slot * self.plan.a_slot)
        if operand == "r":
            return address(Region.MAIN, self.plan.r_base + residency.slot * self.plan.out_slot)
        return address(Region.B, residency.slot * self.plan.b_slot)

    def _vec(self, step: GemmStep, r: _Load | None, after: list[Node]) -> Node:
        """The VEC behind a finished result; `r`: the other operand of an addition."""
        assert self.epilogue is not None
        if self.epilogue.pooling:
            fields = step_bodies.pool(self.plan, step, self.epilogue.pooling)
        else:
            assert r is not None
            fields = step_bodies.addition(
                self._problem, self.plan, step, self.plan.r_base + r.residency.slot * self.plan.out_slot
            )
        cycles = vec_occupancy(self._chip, VecShape.of(fields))
        label = f"{'pool' if self.epilogue.pooling else 'add'} {_label(step)}"
        box = self._box(step, self.epilogue.name, self.epilogue.pooling)
        return Node(self.tile, after, label, fields=fields | self.epilogue.fixed, cycles=cycles, vec=True, result=box)

    def _extent(self, step: GemmStep, pooling: Pooling | None) -> tuple[Range, Range]:
        """Rows and columns of what a step makes, before or behind a pool."""
        m = step.item.m
        return (self.plan.pooled[m], (0, pooling.width)) if pooling else ((m.r0, m.r1), (m.c0, m.c1))

    def _box(self, step: GemmStep, name: str, pooling: Pooling | None = None) -> Box | None:
        """What a step that completes its sums computes, if the tensor has a name."""
        m, n = step.item.m, step.piece.n
        if not name or m.image:
            return None
        (r0, r1), (c0, c1) = self._extent(step, pooling)
        return Box(
            tensor=name,
            plane=n[0],
            planes=n[1] - n[0],
            row=r0,
            rows=r1 - r0,
            column=c0,
            columns=c1 - c0,
        )

    def _store(self, step: GemmStep, done: Node, region: Region) -> list[Node]:
        """The moves of a finished result to where it is kept."""
        m, n = step.item.m, step.piece.n
        pooling = self.epilogue.pooling if self.epilogue else None
        rows, columns = self._extent(step, pooling)
        pixels = (rows[1] - rows[0]) * (columns[1] - columns[0])
        if region is Region.VEC:
            at = (step.result % self.plan.vec_slots) * self.plan.vec_slot
        else:
            at = (step.result % self.plan.out_slots) * self.plan.out_slot
        at += (n[0] - step.item.n[0]) * pixels
        first = m.image * self._problem.n_blocks
        label = f"y i{m.image} y{rows[0]} x{columns[0]} n{n[0]}"
        return [
            t.store(self.tile, label, [done])
            for t in self.tensors.y.transfers(
                (first + n[0], first + n[1]), (*rows, 1), columns, self.tile, address(region, at)
            )
        ]


def _holding(slots: Mapping[int, _Load], key: object) -> _Load:
    """The tile of this key in the first slot that has one."""
    return slots[min(slot for slot, load in slots.items() if load.residency.key == key)]


def _label(step: GemmStep) -> str:
    m, piece = step.item.m, step.piece
    return f"i{m.image} y{m.r0} x{m.c0} n{piece.n[0]} k{piece.k[0]}.{piece.ky[0]}"
