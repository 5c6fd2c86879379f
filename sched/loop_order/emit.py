"""From a candidate to a Schedule: placement in DRAM, staging in SPM, prefetch order, addresses."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from meshloom.hw.config import ChipConfig
from meshloom.hw.isa import Region, address
from meshloom.sched.schedule import Gemm, Move, Schedule, Span, Tensor
from meshloom.sched.workload.layers import NO_CLAMP, ConvShape
from meshloom.sched.workload.layout import ActivationLayout, BiasLayout, PackedWindow, WeightLayout

from .placement import Dram, Run, Stored, Transfer
from .plan import Plan, Step, a_key, box, gemm_fields, plan, windows
from .problem import Problem, pose
from .slots import Stay
from .staging import Stage, Staging
from .tiling import Candidate, Part, Range, even, k_tiles, m_tiles, parts

NAME = "loop_order"
#: A tile is asked for at least this many cycles before its first use, if its slot is free by then, plus
AHEAD_CYCLES = 250
#: this many times its words.
AHEAD_PER_WORD = 4

#: Order in which the operands of one step are asked for.
RANK = {"bias": 0, "b": 1, "a": 2}

_NOWHERE = Run(0, 0, 1, 0)


@dataclass(eq=False, slots=True)
class Node:
    """An operation on its way into the list, and the nodes it waits for: a move, or (`fields`) a GEMM of `issuer`."""

    issuer: int
    after: list[Node]
    label: str
    source: Run = _NOWHERE
    target: Run = _NOWHERE
    words: int = 0
    fields: dict[str, int] | None = None
    cycles: int = 0

    def operation(self) -> Move | Gemm:
        """The operation of the schedule."""
        if self.fields is not None:
            return Gemm(core=self.issuer, fields=self.fields, label=self.label)
        return Move(
            issuer=self.issuer, src=_span(self.source), dst=_span(self.target), words=self.words, label=self.label
        )


@dataclass
class Emission:
    """A schedule without its prediction, and the operations with their dependences for the estimate."""

    problem: Problem
    candidate: Candidate
    nodes: list[Node]
    tensors: tuple[Tensor, ...]


@dataclass
class _Load:
    """One stay on its way in: its pieces (bounds that say which steps need them, and moves)."""

    stay: Stay
    pieces: list[tuple[tuple[Range, ...], list[Node]]] = field(default_factory=list)

    def needed(self, bounds: tuple[Range, ...]) -> Iterable[Node]:
        for have, nodes in self.pieces:
            if all(low < stop and start < high for (low, high), (start, stop) in zip(have, bounds, strict=True)):
                yield from nodes


@dataclass(frozen=True)
class _Chunk:
    """Part of a tile that arrives by itself: what it covers, and which step needs it, counted from the tile's first."""

    bounds: tuple[Range, ...]
    words: int
    late: int
    label: str
    transfers: tuple[Transfer, ...]


#: Before which step, in which order there, which move.
_Moves = list[tuple[int, float, Node]]


class _Tensors:
    """x, w, bias and y in the DRAM tiles, spread so that the parts load all channels alike."""

    def __init__(self, problem: Problem, chip: ChipConfig, candidate: Candidate, work: list[Part], ramp: list[int]):
        self.problem = problem
        dram, homes = Dram(chip), chip.drams
        count = len(homes)
        m_parts, n_parts = candidate.parts_m, candidate.parts_n
        # y: each part's share in the channel of its core.
        row_cuts = {row for part in work for _, r0, r1 in part.segments for row in (r0, r1)}
        owner_m = {
            (image, row): part.index // n_parts
            for part in work
            for image, r0, r1 in part.segments
            for row in range(r0, r1)
            if row in row_cuts
        }
        owner_n = {n: part.index % n_parts for part in work[:n_parts] for n in range(part.n0, part.n1)}
        y_cuts = sorted(row_cuts)

        def home_y(plane: int, segment: int) -> int:
            image, n = divmod(plane, problem.n_blocks)
            return homes[(owner_m[image, y_cuts[segment]] * n_parts + owner_n[n]) % count]

        self.y = Stored(dram, problem.images * problem.n_blocks, problem.out_rows, problem.out_w, y_cuts, home_y)
        # x: by the rows of the parts, or block by block, or (one block) each tile cut among the channels.
        step = problem.row_step
        planes = problem.images * problem.k_blocks
        if m_parts % count == 0:
            x_cuts = sorted({0, *(problem.input_rows(r, r + 1)[0] * step for r in y_cuts if r < problem.out_rows)})
            below = [max(r for r in y_cuts if problem.input_rows(r, r + 1)[0] * step <= cut and r < problem.out_rows)
                     for cut in x_cuts]  # fmt: skip

            def home_x(plane: int, segment: int) -> int:
                return homes[owner_m[plane // problem.k_blocks, below[segment]] % count]
        elif problem.k_blocks > 1 or count == 1:
            x_cuts = [0]

            def home_x(plane: int, segment: int) -> int:
                return homes[plane % count]
        else:
            rows = {box(problem, m)[0] for part in work for m in m_tiles(problem, part, candidate)}
            x_cuts = sorted({cut * step for i0, i1 in rows for cut, _ in _split(i0, i1, count)})

            def home_x(plane: int, segment: int) -> int:
                return homes[segment % count]

        self.x = Stored(dram, planes, problem.stored_rows, problem.in_w, x_cuts, home_x)
        # w: by the output blocks of the parts, or each tile cut among the channels.
        windows = problem.k_blocks * problem.taps
        if n_parts % count == 0:
            w_cuts: list[int] = [0]

            def home_w(plane: int, segment: int) -> int:
                return homes[owner_n[plane] % count]
        else:
            edges = sorted({0, windows, *ramp, *(k0 * problem.taps for k0, _ in k_tiles(problem, candidate))})
            w_cuts = [cut for low, high in zip(edges, edges[1:]) for cut, _ in _split(low, high, count)]

            def home_w(plane: int, segment: int) -> int:
                return homes[segment % count]

        self.w = Stored(dram, problem.n_blocks, windows, problem.cols, w_cuts, home_w)
        b_cuts = [part.n0 for part in work[:n_parts]]
        self.bias = Stored(dram, 1, problem.n_blocks, 4, b_cuts, lambda _, segment: homes[segment % count])

    def tensors(self, shape: ConvShape, chip: ChipConfig) -> tuple[Tensor, ...]:
        """The schedule's tensors."""
        packed = self.problem.packed
        window = PackedWindow(shape.kernel_w, shape.stride_w, shape.pad_left, shape.pad_right) if packed else None
        x = ActivationLayout(
            batch=shape.batch,
            channels=shape.in_channels,
            height=shape.in_h,
            width=shape.in_w,
            block=chip.lanes,
            packed_kw=window,
        )
        y = ActivationLayout(
            batch=shape.batch, channels=shape.out_channels, height=shape.out_h, width=shape.out_w, block=chip.cols
        )
        w = WeightLayout(
            out_channels=shape.out_channels,
            in_channels=shape.in_channels,
            kernel_h=shape.kernel_h,
            kernel_w=shape.kernel_w,
            cols=chip.cols,
            block=chip.lanes,
            packed_kw=packed,
        )
        bias = BiasLayout(out_channels=shape.out_channels, cols=chip.cols)
        return (
            Tensor(name="x", role="input", layout=x, pieces=self.x.pieces()),
            Tensor(name="w", role="constant", layout=w, pieces=self.w.pieces()),
            Tensor(name="bias", role="constant", layout=bias, pieces=self.bias.pieces()),
            Tensor(name="y", role="output", layout=y, pieces=self.y.pieces()),
        )

    def input_chunk(self, key: tuple, blocks: Range, some: Range, late: int, tile: int, at: int) -> _Chunk:
        """Channel blocks and rows (`some`) of an input tile, key = ((rows, columns), image, k range), whose slot is at `at`."""
        ((i0, i1), columns), image, k = key
        first, step = image * self.problem.k_blocks, self.problem.row_step
        wide = columns[1] - columns[0]
        plane = (i1 - i0) * wide
        to = at + (blocks[0] - k[0]) * plane + (some[0] - i0) * wide
        rows = (some[0] * step, (some[1] - 1) * step + 1, step)
        transfers = tuple(self.x.transfers((first + blocks[0], first + blocks[1]), rows, columns, tile, to, plane))
        words = (blocks[1] - blocks[0]) * (some[1] - some[0]) * wide
        return _Chunk((blocks, some), words, late, f"x i{image} y{some[0]} x{columns[0]} k{blocks[0]}", transfers)

    def weight_chunk(self, k: Range, n: Range, span: Range, tile_n: Range, late: int, tile: int, at: int) -> _Chunk:
        """Windows `span` of output blocks `n` of the weight tile (`tile_n`, `k`) whose slot is at `at`."""
        taps, cols = self.problem.taps, self.problem.cols
        plane = (k[1] - k[0]) * taps * cols
        to = at + (n[0] - tile_n[0]) * plane + (span[0] - k[0] * taps) * cols
        transfers = tuple(self.w.transfers(n, (*span, 1), (0, cols), tile, to, plane))
        words = (n[1] - n[0]) * (span[1] - span[0]) * cols
        return _Chunk((n, span), words, late, f"w n{n[0]} k{span[0] // taps}", transfers)

    def bias_chunk(self, n: Range, tile: int, at: int) -> _Chunk:
        """Bias words of output blocks `n`."""
        transfers = tuple(self.bias.transfers((0, 1), (*n, 1), (0, 4), tile, at))
        return _Chunk((), 4 * (n[1] - n[0]), 0, f"bias n{n[0]}", transfers)


def _split(low: int, high: int, count: int) -> list[Range]:
    size = high - low
    cuts = sorted({low + size * index // count for index in range(count + 1)})
    return list(zip(cuts, cuts[1:]))


def _span(run: Run) -> Span:
    return Span(tile=run.tile, address=run.address, run=run.run, stride=run.stride)


class _Core:
    """The operations of one core, sorted into positions: before which of its steps each is listed."""

    def __init__(self, tensors: _Tensors, staging: Staging, the_plan: Plan, strip: bool, fixed: dict[str, int]):
        self.t, self.staging, self.plan, self.strip, self.fixed = tensors, staging, the_plan, strip, fixed
        self.problem = tensors.problem
        self.core = the_plan.part.core
        steps = the_plan.steps
        self.before: list[list[Node]] = [[] for _ in range(len(steps) + 1)]
        self.fresh: list[list[tuple[float, int, Node]]] = [[] for _ in range(len(steps) + 1)]
        self.gemms: list[Node] = []
        self.starts = [0]
        for step in steps:
            self.starts.append(self.starts[-1] + step.cycles)

    def positions(self) -> list[tuple[int, int, int, str, Stay]]:
        """(position, first use, rank, operand, stay) of every load, in the order in which the core asks for them."""
        found = []
        loads = [("bias", s) for s in self.plan.bias] + [("b", s) for s in self.plan.b] + [("a", s) for s in self.plan.a]
        for operand, stay in sorted(loads, key=lambda load: (load[1].first, RANK[load[0]])):
            words = {"a": self.plan.a_slot, "b": self.plan.b_slot, "bias": 4}[operand]
            found.append((max(self.ahead(stay.first, words), stay.free_after + 1), stay.first, RANK[operand], operand, stay))
        latest = 0
        ordered = []
        for at, first, order, operand, stay in found:
            latest = max(latest, at)
            ordered.append((latest, first, order, operand, stay))
        return ordered

    def ahead(self, step: int, words: int) -> int:
        """Before which step to ask for `words` that `step` needs, so that they are there in time."""
        need = self.starts[step] - AHEAD_CYCLES - AHEAD_PER_WORD * words
        return max(0, min(bisect_right(self.starts, need) - 1, step - 1))

    def emit(self, ordered: list[tuple[int, int, int, str, Stay]]) -> None:
        """Fills `before` and `gemms`."""
        steps, plan_ = self.plan.steps, self.plan
        active: dict[str, list[_Load]] = {"a": [], "b": [], "bias": []}
        at_position: dict[int, list[tuple[str, Stay]]] = {}
        for at, _, _, operand, stay in ordered:
            at_position.setdefault(at, []).append((operand, stay))
        readers: dict[int, list[Node]] = {}  # id of a stay -> GEMMs that read it
        held: dict[tuple[str, int], Stay] = {}
        pushes: dict[int, list[Node]] = {}  # result slot -> pushes out of it
        pending: list[Node] = []
        for index, step in enumerate(steps):
            for operand, stay in at_position.get(index, ()):
                old = held.get((operand, stay.slot))
                load, moves = self._load(operand, stay, index, readers.get(id(old), []) if old else [])
                held[operand, stay.slot] = stay
                active[operand] = [l for l in active[operand] if l.stay.slot != stay.slot] + [load]
                for at, order, node in moves:
                    self.fresh[max(at, index)].append((order, RANK[operand], node))
            self.before[index] += [node for _, _, node in sorted(self.fresh[index], key=lambda entry: entry[:2])]
            self.before[index] += pending
            after: list[Node] = []
            a = _at(active["a"], index, a_key(self.problem, plan_.held, step))
            b = _at(active["b"], index, (step.item.n, step.item.k))
            after += a.needed((step.piece.k, box(self.problem, step.item.m)[0]))
            after += b.needed((step.piece.n, windows(self.problem, step.piece)))
            bias_at = 0
            if step.first:
                bias = next(l for l in active["bias"] if l.stay.key[0] <= step.piece.n[0] < l.stay.key[1])
                after += bias.needed(())
                bias_at = bias.stay.slot * self._bias_slot() + step.piece.n[0] - bias.stay.key[0]
                readers.setdefault(id(bias.stay), [])
            slot = step.result % plan_.out_slots
            if step.last and (index == 0 or steps[index - 1].result != step.result):
                after += pushes.pop(slot, [])
            fields = gemm_fields(
                self.problem, plan_, step, a.stay.slot * plan_.a_slot, b.stay.slot * plan_.b_slot, bias_at
            )
            node = Node(self.core, after, _label(step), fields=fields | self.fixed, cycles=step.cycles)
            self.gemms.append(node)
            for load in (a, b):
                readers.setdefault(id(load.stay), []).append(node)
            if step.first:
                readers[id(bias.stay)].append(node)  # type: ignore[possibly-unbound]
            pending = self._push(step, node) if step.last else []
            pushes.setdefault(slot, []).extend(pending)
        self.before[len(steps)] += pending

    def _bias_slot(self) -> int:
        return max(stay.key[1] - stay.key[0] for stay in self.plan.bias)

    def _load(self, operand: str, stay: Stay, at: int, readers: list[Node]) -> tuple[_Load, _Moves]:
        """A stay on its way in from step `at` on, and its moves."""
        load = _Load(stay)
        staged = {"a": self.staging.x, "b": self.staging.w, "bias": False}[operand]
        if staged:
            nodes = self._staged("x" if operand == "a" else "w", stay.key, self.address(operand, stay), readers)
            load.pieces.append((self.chunks(operand, stay)[0].bounds, nodes))
            return load, [(at, stay.first, node) for node in nodes]
        moves: _Moves = []
        for chunk in self.chunks(operand, stay):
            nodes = self._pull(chunk.transfers, readers, chunk.label)
            load.pieces.append((chunk.bounds, nodes))
            first = stay.first + chunk.late
            moves += [(self.ahead(first, chunk.words), first, node) for node in nodes]
        return load, moves

    def address(self, operand: str, stay: Stay) -> int:
        """Word address of a stay's slot."""
        if operand == "bias":
            return address(Region.ACC, 4 * stay.slot * self._bias_slot())
        if operand == "a":
            return address(Region.MAIN, stay.slot * self.plan.a_slot)
        return address(Region.B, stay.slot * self.plan.b_slot)

    def chunks(self, operand: str, stay: Stay) -> list[_Chunk]:
        """The pieces in which a tile arrives."""
        problem, core, at = self.problem, self.core, self.address(operand, stay)
        ramp = self.plan.pieces if stay.first == 0 and len(self.plan.pieces) > 1 else []
        if operand == "bias":
            return [self.t.bias_chunk(stay.key, core, at)]
        if operand == "a":
            k, whole = stay.key[2], stay.key[0][0]
            if self.staging.x:
                return [self.t.input_chunk(stay.key, k, whole, 0, core, at)]
            if self.strip:
                rows = self._strip_rows(stay)
                return [self.t.input_chunk(stay.key, k, some, late, core, at) for late, some in rows]
            blocks = dict.fromkeys(piece.k for piece in ramp if piece.n == ramp[0].n) or {k: None}
            late = {piece.k: index for index, piece in reversed(list(enumerate(ramp)))}
            return [self.t.input_chunk(stay.key, some, whole, late.get(some, 0), core, at) for some in blocks]
        n, k = stay.key
        if self.staging.w or not ramp:
            return [self.t.weight_chunk(k, n, (k[0] * problem.taps, k[1] * problem.taps), n, 0, core, at)]
        return [
            self.t.weight_chunk(k, p.n, windows(problem, p), n, late, core, at) for late, p in enumerate(ramp)
        ]

    def _strip_rows(self, stay: Stay) -> list[tuple[int, Range]]:
        """(step after the first that needs them, rows) of a strip, as far as the rows before do not hold them."""
        found: list[tuple[int, Range]] = []
        low = high = -1
        for index in range(stay.first, stay.last + 1):
            step = self.plan.steps[index]
            if a_key(self.problem, self.plan.held, step) != stay.key:
                continue
            i0, i1 = box(self.problem, step.item.m)[0]
            if low < 0:
                low = high = i0
            found += [(index - stay.first, rows) for rows in ((i0, low), (high, i1)) if rows[0] < rows[1]]
            low, high = min(low, i0), max(high, i1)
        return found

    def _pull(self, transfers: Iterable[Transfer], after: list[Node], label: str) -> list[Node]:
        found = [
            Node(self.core, list(after), label, t.dram, t.local, t.words)
            for t in transfers
        ]
        # Cores begin with different channels.
        turn = self.plan.part.index % max(len(found), 1)
        return found[turn:] + found[:turn]

    def _staged(self, operand: str, key: tuple, at: int, after: list[Node]) -> list[Node]:
        stage = self.staging.of(operand, key, self.core)
        label = f"{operand} from spm"
        words = stage.words
        src, dst = Run(stage.tile, stage.address, words, words), Run(self.core, at, words, words)
        node = Node(self.core, [*after, *stage.nodes], label, src, dst, words)
        stage.readers.append(node)
        return [node]

    def _push(self, step: Step, gemm: Node) -> list[Node]:
        m, n = step.item.m, step.piece.n
        pixels = m.pixels
        at = (step.result % self.plan.out_slots) * self.plan.out_slot + (n[0] - step.item.n[0]) * pixels
        first = m.image * self.problem.n_blocks
        moves = self.t.y.transfers(
            (first + n[0], first + n[1]), (m.r0, m.r1, 1), (m.c0, m.c1), self.core, address(Region.OUT, at)
        )
        label = f"y i{m.image} y{m.r0} x{m.c0} n{n[0]}"
        return [
            Node(self.core, [gemm], label, t.local, t.dram, t.words)
            for t in moves
        ]


def _at(loads: list[_Load], time: int, key: tuple) -> _Load:
    return next(load for load in loads if load.stay.key == key and load.stay.first <= time <= load.stay.last)


def _label(step: Step) -> str:
    m, piece = step.item.m, step.piece
    return f"i{m.image} y{m.r0} x{m.c0} n{piece.n[0]} k{piece.k[0]}.{piece.ky[0]}"


def emit(shape: ConvShape, chip: ChipConfig, candidate: Candidate, scale: int = 0) -> Emission:
    """All operations of a candidate. Raises DoesNotFit when some tile of it does not fit its memory."""
    problem = pose(shape, chip)
    work = parts(problem, chip, candidate)
    plans = [plan(problem, chip, candidate, part) for part in work]
    ramp = [edge for piece in plans[0].pieces if len(plans[0].pieces) > 1 for edge in windows(problem, piece)]
    tensors = _Tensors(problem, chip, candidate, work, ramp)
    staging = Staging(chip, candidate.x_spm, candidate.w_spm)
    fixed = {"scale": scale, "relu": int(shape.relu), "clamp": min(shape.clamp, NO_CLAMP)}
    cores = [_Core(tensors, staging, the_plan, candidate.strip, fixed) for the_plan in plans]
    ordered = [core.positions() for core in cores]
    pulls: list[tuple[int, int, str, tuple]] = []
    for core, loads in zip(cores, ordered, strict=True):
        for at, _, _, operand, stay in loads:
            if (operand == "a" and staging.x) or (operand == "b" and staging.w):
                pulls.append((at, core.core, {"a": "x", "b": "w"}[operand], stay.key))
    staging.place(pulls, lambda operand, key: _staged_words(problem, operand, key))
    length = max(len(core.plan.steps) for core in cores) + 1
    for stage in staging.stages:
        stage.fill(_stage_nodes(problem, tensors, stage))
    for core, loads in zip(cores, ordered, strict=True):
        core.emit(loads)
    nodes: list[Node] = []
    staged = staging.by_position()
    for position in range(length):
        for stage in staged.get(position, ()):
            for node in stage.nodes:
                node.after += stage.previous.readers if stage.previous else []
            nodes += stage.nodes
        for core in cores:
            if position < len(core.before):
                nodes += core.before[position]
        for core in cores:
            if position < len(core.gemms):
                nodes.append(core.gemms[position])
    return Emission(problem, candidate, nodes, tensors.tensors(shape, chip))


def _staged_words(problem: Problem, operand: str, key: tuple) -> int:
    if operand == "x":
        (rows, columns), _, k = key
        return (k[1] - k[0]) * (rows[1] - rows[0]) * (columns[1] - columns[0])
    n, k = key
    return (n[1] - n[0]) * (k[1] - k[0]) * problem.taps * problem.cols


def _stage_nodes(problem: Problem, tensors: _Tensors, stage: Stage) -> list[Node]:
    if stage.operand == "x":
        chunk = tensors.input_chunk(stage.key, stage.key[2], stage.key[0][0], 0, stage.tile, stage.address)
    else:
        n, k = stage.key
        whole = (k[0] * problem.taps, k[1] * problem.taps)
        chunk = tensors.weight_chunk(k, n, whole, n, 0, stage.tile, stage.address)
    moves = chunk.transfers
    label = f"stage {stage.operand}"
    return [
        Node(stage.tile, [], label, t.dram, t.local, t.words)
        for t in moves
    ]


def build(shape: ConvShape, chip: ChipConfig, candidate: Candidate, scale: int = 0) -> Schedule:
    """The schedule of one candidate, without a prediction. Raises DoesNotFit."""
    return to_schedule(emit(shape, chip, candidate, scale), shape, chip)


def to_schedule(emission: Emission, shape: ConvShape, chip: ChipConfig) -> Schedule:
    """The emission as the intermediate form that everything downstream takes."""
    return Schedule(
        chip=chip.name,
        chip_digest=chip.digest,
        workload=shape.name,
        scheduler=NAME,
        operations=tuple(node.operation() for node in emission.nodes),
        tensors=emission.tensors,
    )
