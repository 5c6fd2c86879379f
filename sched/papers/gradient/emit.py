"""From steps to operations of one core: loads, transpositions, products, spilled sums, stores.

    DRAM --> A: X, W, dY as they lie --> vector unit, TRANSPOSE --> VEC --> MOVE within the core --> B: Xᵀ, Wᵀ
                                                                                                     A: dYᵀ
    dX: rows of dY from A, columns of Wᵀ from B       dW: rows of dYᵀ from A, columns of Xᵀ from B
    sums in ACC, spilled to DRAM when there is no room; results over OUT to DRAM

The array sums along the lanes of a word. dX sums over n, the lanes of dY; dW sums over m, so that X and dY must have
pixels as lanes. Transposing is the vector unit's (docs/architecture.md, *Gradients*).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf

from meshloom.hw.spec.isa import Addend, Region, VectorOp, address

from ...ir import bodies
from ...mapping.memory.placement import Stored, Transfer
from ...mapping.nodes import Node, Run
from ...mapping.tiling.arena import NEVER, Arena
from ...mapping.tiling.tiles import Range
from ...schedulers.training.orders import Key, TileProduct
from ...schedulers.training.pair import GradientPair, Part
from ...workload.training_data import Scales
from .sharing import Passed, links


@dataclass
class StepCosts:
    """What a sequence of steps takes. Words: loaded from and stored to DRAM (`spilled`: those of partial sums among
    them, both ways), moved within the core. Cycles: of the array, of the vector unit, and `pipelined`, of all of it, if
    the words of a step may come during the step before and leave during the next."""

    loaded: int = 0
    stored: int = 0
    spilled: int = 0
    moved: int = 0
    array: int = 0
    vector: int = 0
    pipelined: int = 0

    @property
    def dram(self) -> int:
        """Words to and from DRAM."""
        return self.loaded + self.stored


@dataclass(frozen=True)
class Least:
    """What steps take at least: cycles of the array; words that they load if nothing is loaded twice, and store if no
    sums are spilled."""

    array: int
    loaded: int
    stored: int


class _Pipeline:
    """When steps end if DRAM, vector unit and array each take one after the other, with room for two steps. The cores
    of a pair share the channels evenly."""

    def __init__(self, pair: GradientPair) -> None:
        chip = pair.chip
        self._word = len(pair.parts) * chip.lanes / chip.dram.bytes_per_cycle / len(chip.drams)  # cycles
        self._dram = self._vector = self._owed = 0.0
        self._ends = (0.0, 0.0)  # of the step before last, and of the last one

    def step(self, loaded: int, stored: int, vector: int, array: int) -> int:
        """The cycle in which the next step's results are stored; what it takes."""
        self._dram += self._owed  # results of the step before
        self._dram = max(self._dram, self._ends[0]) + loaded * self._word
        if vector:
            self._vector = max(self._vector, self._dram) + vector
        begin = max(self._ends[1], self._dram, self._vector)
        self._ends = self._ends[1], begin + array
        self._owed = stored * self._word
        return ceil(max(self._ends[1], self._dram) + self._owed)

    def least(self, array: int, words: int) -> float:
        """The cycle in which all ends at the earliest, if so many cycles of the array and words are left."""
        return max(self._ends[1] + array, self._dram + self._owed + words * self._word)


class Emitter:
    """Plays steps on the memories of a core, the first part's unless `part` is another. `nodes`: its operations in
    order, if `record`, `gives` and `takes` what they pass on to other parts and take over (see `sharing.together`);
    `work`: what it takes.

    With `least`, of these steps, and `most`, it gives up (`late`) as soon as `work.pipelined` is certain to be more.

    Raises DoesNotFit when a step's tiles do not fit in its memories side by side.
    """

    def __init__(
        self,
        pair: GradientPair,
        steps: Sequence[TileProduct],
        scales: Scales,
        record: bool = True,
        part: Part | None = None,
        least: Least | None = None,
        most: float = inf,
    ) -> None:
        self.pair, self.scales, self.record = pair, scales, record
        self.part = pair.parts[0] if part is None else part
        self.core = self.part.core
        self.nodes, self.work = list[Node](), StepCosts()
        self.gives, self.takes = dict[int, Passed](), dict[int, Passed]()
        chip = pair.chip
        core, limit = chip.core, f"of a {chip.name} core"
        self.now = 0
        self._uses: dict[Key, deque[int]] = {}
        self._left: dict[Key, int] = {}  # steps that a result still needs
        self._begun: set[Key] = set()
        self._links = links(steps, self.part)
        operands = [_operands(step) for step in steps]
        for index, step in enumerate(steps):
            result = step.result
            for key in (*operands[index], result):
                self._uses.setdefault(key, deque()).append(index)
            self._left[result] = self._left.get(result, 0) + 1
        self._zeros: int | None = None
        self.a = Arena(f"A {limit}", core.a_words, self._following)
        self.b = Arena(f"B {limit}", core.b_words, self._following)
        self.acc = Arena(f"ACC {limit}", core.acc_words, self._following, self._spill)
        # the words of a transposition, and of a part of a result, are on their way as soon as they are made
        self.out = Arena(f"OUT {limit}", core.out_words, self._following)
        self.vec = Arena(f"VEC {limit}", core.vec_words - chip.lanes, self._following, base=chip.lanes)
        self._seen: set[Key] = set()  # operands that have been loaded
        self._needed = 0  # words that had to be loaded or stored, whatever the order
        self.late = False
        pipeline, work = _Pipeline(pair), self.work
        for self.now, step in enumerate(steps):
            rows, columns = operands[self.now]
            for key in (rows, columns, step.result):
                self._uses[key].popleft()
            loaded, stored, vector, array = work.loaded, work.stored, work.vector, work.array
            self._step(step)
            work.pipelined = pipeline.step(
                work.loaded - loaded, work.stored - stored, work.vector - vector, work.array - array
            )
            for arena, key in ((self.a, rows), (self.b, columns)):
                if self._following(key) == NEVER and key in arena:
                    arena.free(key)
            # a cycle of margin for sums of fractions in another order
            if (
                least
                and pipeline.least(least.array - work.array, least.loaded + least.stored - self._needed) > most + 1
            ):
                self.late = True
                return

    # -- a step -------------------------------------------------------------------------------------------------------

    def _step(self, step: TileProduct) -> None:
        pair, key = self.pair, step.result
        if step.of == "dx":
            pixels, rows = step.m, self._plain("dy", step.n, step.m)
            depth, plane = pair.blocks(step.n)[1] - pair.blocks(step.n)[0], step.m[1] - step.m[0]
            columns, scale = self._column("w", step.k, step.n), self.scales.dx
        else:
            pixels, rows = step.n, self._turned(step.n, step.m)
            depth = pair.groups(step.m)
            plane = pair.turned_words(step.n, step.m) // depth
            columns, scale = self._column("x", step.k, step.m), self.scales.dw
        count = pixels[1] - pixels[0]
        before, after = self._links.get(key, (None, None))
        first, self._left[key] = key not in self._begun and before is None, self._left[key] - 1
        mine = not self._left[key]  # the last product of this part
        last = mine and after is None
        sums = 0 if first and last else self._sums(key, first, before)
        self._begun.add(key)
        fields: dict[str, int] = {}
        if self.record:
            fields = bodies.gemm(
                a_base=rows, a_plane=plane, in_w=plane, out_w=plane, k_blocks=depth, pixels=count,
                addend=Addend.NONE if first else Addend.PARTIAL, addend_base=0 if first else sums,
            )  # fmt: skip
        if last:
            self._finish(step, fields, count, depth, columns, scale)
        else:
            blocks = pair.columns(step.k)
            self._gemm(step, fields, {"b_base": columns, "n_blocks": blocks, "to_acc": 1, "dest_base": sums}, depth, 0)
            if mine:
                self._spill(key, sums)
                if self.record:
                    self.gives[len(self.nodes) - 1] = key, self.part.number
        if mine and not (first and last):
            self.acc.free(key)

    def _finish(
        self, step: TileProduct, fields: dict[str, int], count: int, depth: int, columns: int, scale: int
    ) -> None:
        """The last product of a tile of a result, in parts of as many blocks of columns as half of OUT holds."""
        pair = self.pair
        at_once = max(1, pair.chip.core.out_words // 2 // count)
        first_column = step.k[0] // pair.cols
        stored, pixels = (pair.dx, step.m) if step.of == "dx" else (pair.dw, step.n)
        for part in range(0, pair.columns(step.k), at_once):
            blocks = min(at_once, pair.columns(step.k) - part)
            out = self._transient(self.out, blocks * count)
            own = {"b_base": columns + part * depth * pair.cols, "n_blocks": blocks, "dest_base": out, "scale": scale}
            if fields and fields["addend"]:
                own["addend_base"] = fields["addend_base"] + part * count
            self._gemm(step, fields, own, depth, part)
            planes = first_column + part, first_column + part + blocks
            place = address(Region.OUT, out)
            self._needed += blocks * count
            self._store(f"{step.of} k{planes[0]} p{pixels[0]}", stored, planes, pixels, place, blocks * count)

    def _gemm(self, step: TileProduct, fields: dict[str, int], own: dict[str, int], depth: int, part: int) -> None:
        """A product; `own`: fields besides those of its step (`fields`, none unless operations are recorded)."""
        rows = step.m if step.of == "dx" else step.n
        cycles = self.pair.gemm_cycles(rows[1] - rows[0], own["n_blocks"], depth)
        self.work.array += cycles
        if self.record:
            label = f"{step.of} m{step.m[0]} k{step.k[0]}.{part} n{step.n[0]}"
            self.nodes.append(Node(self.core, [], label, fields=fields | own, cycles=cycles))

    # -- operands -----------------------------------------------------------------------------------------------------

    def _plain(self, name: str, channels: Range, pixels: Range) -> int:
        """A tile in A as it lies in DRAM, loaded unless it is there."""
        key = name, channels, pixels
        here = self.a.at(key, self.now)
        if here is not None:
            return here
        words = self.pair.plain_words(channels, pixels)
        at = self.a.take(key, words, self.now)
        if key not in self._seen:
            self._seen.add(key)
            self._needed += words
        stored: Stored = getattr(self.pair, name)
        self._load(
            f"{name} c{channels[0]} p{pixels[0]}", stored, self.pair.blocks(channels), (*pixels, 1), (0, 1),
            address(Region.MAIN, at), words,
        )  # fmt: skip
        return at

    def _turned(self, channels: Range, pixels: Range) -> int:
        """dYᵀ of a tile of dY in A: [group of pixels][channel]."""
        key = "dyt", channels, pixels
        here = self.a.at(key, self.now)
        if here is not None:
            return here
        plain = self._plain("dy", channels, pixels)
        at = self.a.take(key, self.pair.turned_words(channels, pixels), self.now)
        first, end = self.pair.blocks(channels)
        wide = (end - first) * self.pair.lanes
        for group, groups, vec in self._transposed("dy", plain, channels, pixels):
            self._within(f"dyt c{channels[0]} p{pixels[0]}.{group}", vec, Region.MAIN, at + group * wide, groups * wide)
        if self._after("dy", channels, pixels) == NEVER:
            self.a.free(("dy", channels, pixels))
        return at

    def _column(self, name: str, k: Range, pixels: Range) -> int:
        """Xᵀ or Wᵀ of a tile in B: [block of columns][group of pixels][column], columns past the last one zero."""
        pair, key = self.pair, (name, k, pixels)
        here = self.b.at(key, self.now)
        if here is not None:
            return here
        at = self.b.take(key, pair.column_words(k, pixels), self.now)
        plain = self._plain(name, k, pixels)
        first, end = pair.blocks(k)
        wide, skip, groups, cols = (end - first) * pair.lanes, k[0] - first * pair.lanes, pair.groups(pixels), pair.cols
        needed = pair.columns(k) * cols
        words = min(needed, wide - skip)
        label = f"{name}t c{k[0]} p{pixels[0]}"
        for group, count, vec in self._transposed(name, plain, k, pixels):
            for index in range(count):
                source = vec + index * wide + skip
                target = address(Region.B, at + (group + index) * cols)
                self._inside(f"{label}.{group + index}", (source, words, words), (target, cols, groups * cols), words)
        if short := needed - words:
            target = address(Region.B, at + (pair.columns(k) - 1) * groups * cols + cols - short)
            self._inside(f"{label} zeros", (self._zero_words(), short, 0), (target, short, cols), short * groups)
        self.a.free(key)
        return at

    def _transposed(self, name: str, plain: int, channels: Range, pixels: Range) -> Iterator[tuple[int, int, int]]:
        """Transposes a tile of A, as many groups of pixels at a time as half of VEC holds: first group, groups, and the
        word of VEC at which [group][channel] begins."""
        pair = self.pair
        first, end = pair.blocks(channels)
        plane, wide = pixels[1] - pixels[0], (end - first) * pair.lanes
        groups = pair.groups(pixels)
        at_once = max(1, (pair.chip.core.vec_words - pair.lanes) // 2 // wide)
        for group in range(0, groups, at_once):
            count = min(at_once, groups - group)
            begin = group * pair.lanes
            vec = self._transient(self.vec, count * wide)
            inside = min(count * pair.lanes, plane - begin)
            self._vector(f"{name}t c{channels[0]} p{pixels[0] + begin}", plain + begin, plane, end - first, inside, vec)
            yield group, count, vec

    def _vector(self, label: str, x: int, plane: int, blocks: int, pixels: int, dest: int, left: int = 0) -> None:
        """TRANSPOSE of pixels of blocks in A, `plane` words apart."""
        cycles = self.pair.turn_cycles(blocks, pixels)
        self.work.vector += cycles
        if self.record:
            body = bodies.vec(
                op=VectorOp.TRANSPOSE, x_base=x, x_plane=plane, in_w=plane, blocks=blocks, pad_left=left, out_w=plane,
                pixels=pixels, dest_base=dest,
            )  # fmt: skip
            self.nodes.append(Node(self.core, [], label, fields=body, cycles=cycles, vec=True))

    def _zero_words(self) -> int:
        """Words of zeros in VEC, made once: a TRANSPOSE whose only pixel lies in the padding."""
        if self._zeros is None:
            self._zeros = 0
            self._vector("zeros", 0, 1, 1, 1, 0, left=1)
        return self._zeros

    # -- partial sums -------------------------------------------------------------------------------------------------

    def _sums(self, key: Key, first: bool, before: int | None) -> int:
        """Rows of ACC for the sums of a tile of a result; those that were spilled come back, those of the part `before`
        are taken over."""
        here = self.acc.at(key, self.now)
        if here is not None:
            return here
        _, k, pixels = key
        rows = self.pair.sums(k, pixels)
        at = self.acc.take(key, rows, self.now)
        if not first:
            if self.record and before is not None and key not in self._begun:
                self.takes[len(self.nodes)] = key, before
            stored, planes = self._place_of_sums(key)
            self.work.spilled += 4 * rows
            place = address(Region.ACC, 4 * at)
            self._load(f"{key[0]} sums k{k[0]} p{pixels[0]}", stored, planes, (*pixels, 1), (0, 4), place, 4 * rows)
        return at

    def _spill(self, key: Key, at: int) -> None:
        """Sums leave ACC for DRAM, all 32 bits of them."""
        name, k, pixels = key
        stored, planes = self._place_of_sums(key)
        words = 4 * self.pair.sums(k, pixels)
        self.work.spilled += words
        place = address(Region.ACC, 4 * at)
        self._store(f"{name} sums k{k[0]} p{pixels[0]}", stored, planes, pixels, place, words, width=4)

    def _place_of_sums(self, key: Key) -> tuple[Stored, Range]:
        name, k, _ = key
        first = k[0] // self.pair.cols
        return (self.pair.dx_sums if name == "dx" else self.pair.dw_sums), (first, first + self.pair.columns(k))

    # -- moves --------------------------------------------------------------------------------------------------------

    def _load(  # what, from where, to where
        self,
        label: str,
        stored: Stored,
        planes: Range,
        rows: tuple[int, int, int],
        width: Range,
        place: int,
        words: int,
    ) -> None:
        self.work.loaded += words
        if self.record:
            there = stored.transfers(planes, rows, width, self.core, place)
            # issued by the DRAM tile, whose stream waits for nothing but room
            self.nodes += [t.load(t.dram.tile, label) for t in there]

    def _store(
        self, label: str, stored: Stored, planes: Range, pixels: Range, place: int, words: int, width: int = 1
    ) -> None:
        self.work.stored += words
        if self.record:
            there: Iterable[Transfer] = stored.transfers(planes, (*pixels, 1), (0, width), self.core, place)
            self.nodes += [t.store(self.core, label) for t in there]

    def _within(self, label: str, vec: int, region: Region, at: int, words: int) -> None:
        self._inside(label, (vec, words, words), (address(region, at), words, words), words)

    def _inside(self, label: str, source: tuple[int, int, int], target: tuple[int, int, int], words: int) -> None:
        """A MOVE from VEC to an operand memory of the same core. Places: address, run, stride."""
        self.work.moved += words
        if self.record:
            at, run, stride = source
            start = Run(self.core, address(Region.VEC, at), min(run, words), stride)
            self.nodes.append(Node(self.core, [], label, start, Run(self.core, *target), words))

    # -- who lies where -----------------------------------------------------------------------------------------------

    def _transient(self, arena: Arena[Key], words: int) -> int:
        """Words that are read by the next operation in the list, and then free again."""
        key = "transient", (0, 0), (0, 0)
        at = arena.take(key, words, self.now)
        arena.free(key)
        return at

    def _after(self, name: str, channels: Range, pixels: Range) -> int:
        """The next step that reads a tile of dY as it lies: a product of dX, or of dW while dYᵀ is not there."""
        uses = [self._uses.get((name, channels, pixels))]
        if ("dyt", channels, pixels) not in self.a:
            uses.append(self._uses.get(("dyt", channels, pixels)))
        return min((queue[0] for queue in uses if queue), default=NEVER)

    def _following(self, key: Key) -> int:
        if key[0] == "dy":
            return self._after(*key)
        queue = self._uses.get(key)
        return queue[0] if queue else NEVER


def _operands(step: TileProduct) -> tuple[Key, Key]:
    """Keys of what a step reads: of A, of B."""
    if step.of == "dx":
        return ("dy", step.n, step.m), ("w", step.k, step.n)
    return ("dyt", step.n, step.m), ("x", step.k, step.m)
