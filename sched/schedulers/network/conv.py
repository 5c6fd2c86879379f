"""A convolution of a network: the loop nests of `loop_order`, on tensors that have their place already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Protocol

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Piece
from ...mapping.emit.core import Core, Epilogue
from ...mapping.emit.emission import merge
from ...mapping.emit.expansion import Expansion
from ...mapping.emit.fields import bias_rows
from ...mapping.emit.prologue import Feeder, Layout, Prologue, after, lay_out, remaining, tallest
from ...mapping.memory.placement import Allocator, Anywhere, Dram, Stored
from ...mapping.memory.staging import Staging
from ...mapping.memory.tensors import Tensors, ramp_edges
from ...mapping.nodes import Node
from ...mapping.play.replay import replay
from ...mapping.tiling.plan import CorePlan, may_end_with_one_window, plan
from ...mapping.tiling.problem import DoesNotFit, Problem, pose
from ...mapping.tiling.space import best
from ...mapping.tiling.tiles import Candidate, Part, Range, m_tiles, parts, pooled_tiles
from ...workload.layers import ConvShape
from ...workload.regions import ConstantPlace
from .storage import STAGING_SHARE, kind_of, staging_words

#: Candidates of the closed form, and how many of them are replayed.
POOL, REPLAYS = 400, 10
#: Candidates that a search remembers, for those who can tell better which one suits the layers around.
LEADERS = 3
#: Operations that the replays of one layer may have in all.
REPLAYED = 12000


@dataclass(frozen=True)
class ConvTask:
    """A convolution with the places of what it reads and writes. `r`: the other operand of an addition behind it.

    `shape` has the channels that lie in words (lanes without a channel count). `packed`: the host has packed `x`, with
    `whole` windows or only kernel columns.
    `before`: the depthwise convolution that makes its input; `x` is what that one reads.
    `int4`: its weights have four bits; `deep`: they have all of B.
    `staging`: which part of each bank is left to weights. `fixed`: how results become bytes (`Layer.fixed`).
    `there`: where weights ("w") and biases ("bias") lie that another network has, too.
    """

    shape: ConvShape
    x: Stored
    y: Stored
    r: Stored | None
    packed: bool
    result: str
    epilogue: Epilogue | None
    fixed: dict[str, int]
    before: Prologue | None = None
    whole: bool = False
    int4: bool = False
    deep: bool = False
    staging: int = STAGING_SHARE
    there: Mapping[str, Sequence[ConstantPlace]] = field(default_factory=dict[str, Sequence[ConstantPlace]])


class _NetworkTensors(Tensors):
    """Tensors of which only weights and biases have to be placed."""

    def __init__(
        self, task: ConvTask, problem: Problem, chip: ChipConfig, candidate: Candidate, work: list[Part],
        ramp: list[int], dram: Allocator,
    ) -> None:  # fmt: skip
        self._share(problem, chip, candidate, work)
        self.result, self.bias_rows = task.result, bias_rows(task.fixed)
        flat = problem.flat
        self._before = task.before.place(dram, chip) if task.before else {}
        self.y = task.y.flattened() if flat else task.y
        self._stored = {"x": task.x.flattened() if flat else task.x}
        if task.r is not None:
            self._stored["r"] = task.r.flattened() if flat else task.r
        self._place_constants(Anywhere() if task.there else dram, candidate, work, ramp)
        self._stored |= {name: self._stored[name].lying(places) for name, places in task.there.items()}

    def constants(self) -> dict[str, tuple[Piece, ...]]:
        """Where weights ("w") and biases ("bias") lie, and those of the layer before ("before w", ...)."""
        before = {f"before {name}": stored.pieces() for name, stored in self._before.items()}
        return before | {name: self._stored[name].pieces() for name in ("w", "bias")}

    def feeder(self, prologue: Prologue, chip: ChipConfig, core: int, layout: Layout) -> Feeder:
        """What makes the input tiles of a core."""
        return Feeder(prologue, chip, core, layout, self._before)


@dataclass
class ConvNodes:
    """The operations of a convolution, in order, where its constants lie, and whether its weights have four bits."""

    nodes: list[Node]
    constants: dict[str, tuple[Piece, ...]]
    int4: bool = False


class Planner(Protocol):
    """Another source of a network's convolutions: without anything behind them, and with input and result in DRAM.
    `key`: what decides what it makes, besides the chip."""

    @property
    def key(self) -> object: ...

    def emit(self, task: ConvTask, dram: Allocator, room: Range | None = None) -> ConvNodes:
        """All operations of a convolution, in order. `room`: the words of each bank, from and to, that are free (None:
        all). Raises DoesNotFit."""
        ...


def problem_of(task: ConvTask, chip: ChipConfig) -> Problem:
    """The layer as the array sees it."""
    pooling = task.epilogue and task.epilogue.pooling
    flatten = not pooling and not task.before
    return pose(task.shape, chip, packed=task.packed, flatten=flatten, whole=task.whole, int4=task.int4)


@dataclass
class _Planned:
    """A candidate with the plans of its cores; of what goes with the depthwise convolution before, the `layout`."""

    candidate: Candidate
    problem: Problem
    plans: list[CorePlan]
    layout: Layout | None


def emit(task: ConvTask, chip: ChipConfig, candidate: Candidate, dram: Allocator, parity: int = 0) -> ConvNodes:
    """All operations of a candidate. `parity`: which half of the staging area it uses. Raises DoesNotFit."""
    return _emit(task, chip, _plan(task, chip, candidate), dram, parity)


def _plan(task: ConvTask, chip: ChipConfig, candidate: Candidate) -> _Planned:
    """Raises DoesNotFit."""
    problem = problem_of(task, chip)
    pooling = task.epilogue.pooling if task.epilogue else None
    work = parts(problem, chip, candidate, pooling)
    residual = task.r is not None
    layout, left = None, chip
    if task.before:
        ms = [
            m
            for part in work
            for m in (pooled_tiles(problem, part, candidate, pooling) if pooling else m_tiles(problem, part, candidate))
        ]
        blocks = min(candidate.tile_k, problem.k_blocks)
        results = min(candidate.tile_n, work[0].n1 - work[0].n0)
        layout = lay_out(task.before, chip, ms, blocks, task.epilogue is not None, results)
        left = remaining(task.before, chip, layout)
    rows = bias_rows(task.fixed)
    plans = [
        plan(
            problem, left, candidate, p, frugal=True, residual=residual, pooling=pooling, bias_rows=rows, deep=task.deep
        )
        for p in work
    ]
    return _Planned(candidate, problem, plans, layout)


def _emit(task: ConvTask, chip: ChipConfig, planned: _Planned, dram: Allocator, parity: int) -> ConvNodes:
    """Raises DoesNotFit."""
    candidate, problem, plans, layout = planned.candidate, planned.problem, planned.plans, planned.layout
    work = [one.part for one in plans]
    pieces = plans[0].pieces if len(plans[0].pieces) > 1 else []
    tensors = _NetworkTensors(task, problem, chip, candidate, work, ramp_edges(problem, pieces), dram)
    feeders: list[Feeder | None] = [None] * len(plans)
    if task.before and layout:
        feeders = [tensors.feeder(task.before, chip, one.part.core, after(layout, one, task.before)) for one in plans]
    cores = [
        Core(chip, tensors, one, candidate, task.fixed, task.epilogue, feeder)
        for one, feeder in zip(plans, feeders, strict=True)
    ]
    half = staging_words(chip, task.staging) // 2
    staging = Staging(_staging_chip(chip, task.staging), tensors, [p for c in cores for p in c.pulls()], parity * half)
    for core in cores:
        core.emit(staging)
    return ConvNodes(merge(cores, staging), tensors.constants(), task.int4)


class Replays:
    """Replays of one convolution's candidates. Those that differ only in an order that its loops do not have make the
    same operations; these are emitted and replayed once. `emitted`: how many have been."""

    def __init__(self, task: ConvTask, chip: ChipConfig) -> None:
        self.task, self.chip = task, chip
        self.emitted = 0
        self._known: dict[Candidate, list[tuple[list[CorePlan], tuple[int, int]]]] = {}

    def of(self, candidate: Candidate) -> tuple[int, int]:
        """Cycles and operations of a candidate. Raises DoesNotFit."""
        planned = _plan(self.task, self.chip, candidate)
        # the rest of what decides it is in the plans
        known = self._known.setdefault(replace(candidate, order="output", snap=False, ramp_k=False), [])
        for plans, result in known:
            if plans == planned.plans:
                return result
        nodes = _emit(self.task, self.chip, planned, Dram(self.chip), 0).nodes
        self.emitted += 1
        result = replay(nodes, self.chip), len(nodes)
        known.append((planned.plans, result))
        return result


def _staging_chip(chip: ChipConfig, share: int) -> ChipConfig:
    """The chip with the scratchpad that a layer may stage weights in."""
    return chip.model_copy(update={"spm_words": staging_words(chip, share) // 2})


def decisive(task: ConvTask) -> tuple[object, ...]:
    """What decides the candidates of a convolution, besides the chip."""
    before = task.before
    expansion = before.x if before and isinstance(before.x, Expansion) else None
    fixed = [task.fixed, *([before.fixed] if before else []), *([expansion.fixed] if expansion else [])]
    return (
        replace(task.shape, name=""),
        (task.packed, task.whole, task.int4, task.deep, task.staging),
        task.epilogue is not None,
        task.epilogue and task.epilogue.pooling,
        before and (before.window, before.x.rows, before.x.width),
        expansion and expansion.problem,
        tuple(map(bias_rows, fixed)),
        *(tuple(sorted(stored.homes)) if stored else () for stored in (task.x, task.y, task.r)),
        *(tuple((place.tile, place.first, place.words) for place in places) for places in task.there.values()),
    )


def choose(task: ConvTask, chip: ChipConfig) -> list[Candidate]:
    """The candidates with the shortest replays, `LEADERS` at most, the best first. Raises DoesNotFit when nothing fits
    the chip."""
    problem = problem_of(task, chip)
    if task.before and isinstance(task.before.x, Expansion):
        return _choose_expanding(task, problem, task.before, task.before.x, chip)
    pooling = task.epilogue.pooling if task.epilogue else None
    lie = kind_of(task.x, chip), kind_of(task.y, chip)
    pool, space = best(problem, _staging_chip(chip, task.staging), POOL, task.shape.name, lie)
    played: list[tuple[int, Candidate]] = []
    why = ""  # not the error itself, which would keep all that was made until the next search for cycles
    kinds: dict[tuple[object, ...], int] = {}
    seen: set[Candidate] = set()
    tried = operations = 0
    replays = Replays(task, chip)
    # Staging inputs helps a layer by itself, but in a network the scratchpad's movers have enough to do.
    ordered = sorted(pool, key=lambda entry: entry.grid.x_spm)
    # If nothing staged fits what a network leaves of the scratchpad, nothing is staged.
    for entry, staged in [*((entry, True) for entry in ordered), *((entry, False) for entry in ordered)]:
        grid = entry.grid
        if tried >= REPLAYS or operations > REPLAYED or (played and (not staged or grid.x_spm)):
            break
        if (pooling and grid.columns < problem.out_w) or (task.before and staged and grid.x_spm):
            continue
        spms = (grid.x_spm, grid.w_spm) if staged else (False, False)
        kind = grid.parts_m, grid.parts_n, *spms, "input" if pooling else grid.order
        if kinds.get(kind, 0) >= 2:
            continue
        candidate = replace(entry.candidate, x_spm=spms[0], w_spm=spms[1])
        if bias_rows(task.fixed) > 1 and may_end_with_one_window(problem, candidate):
            continue
        if pooling:
            candidate = _tall(replace(candidate, tile_n=1, order="input"), problem, chip)
        kinds[kind] = kinds.get(kind, 0) + 1
        variants = (candidate, replace(candidate, ramp_k=True)) if tried < 2 else (candidate,)
        if task.before:
            variants += _tall_before(candidate, problem, task.before, chip)
        for variant in variants:
            if variant in seen:
                continue
            seen.add(variant)
            try:
                cycles, made = replays.of(variant)
            except DoesNotFit as short:
                why = str(short)
                continue
            tried += 1
            operations += made
            played.append((cycles, variant))
    if not played:
        raise DoesNotFit(f"layer {task.shape.name}: {why or f'none of {space} candidates could be emitted'}")
    played.sort(key=lambda entry: entry[0])
    return [candidate for _, candidate in played[:LEADERS]]


def _choose_expanding(
    task: ConvTask, problem: Problem, prologue: Prologue, expansion: Expansion, chip: ChipConfig
) -> list[Candidate]:
    """`choose`, where windows of the depthwise layer are computed, too. What counts is how often, and what fits."""
    played: list[tuple[int, Candidate]] = []
    why = ""

    def cost(candidate: Candidate) -> tuple[int, int]:
        """Cycles of the busiest core's array for the windows, and input tiles in which they are made."""
        cycles = 0
        for part in parts(problem, chip, candidate):
            windows = [prologue.reach((m.r0, m.r1), (m.c0, m.c1)) for m in m_tiles(problem, part, candidate)]
            pixels = [(i1 - i0) * (j1 - j0) for (i0, i1), (j0, j1) in windows]
            cycles = max(cycles, sum(expansion.cycles(some, expansion.planes) for some in pixels))
        return cycles, -candidate.tile_k

    for candidate in sorted(_expanding(problem, chip), key=cost):
        if len(played) >= REPLAYS:
            break
        try:
            nodes = emit(task, chip, candidate, Dram(chip)).nodes
        except DoesNotFit as short:
            why = str(short)
            continue
        played.append((replay(nodes, chip), candidate))
    if not played:
        raise DoesNotFit(f"layer {task.shape.name}: {why}")
    played.sort(key=lambda entry: entry[0])
    return [candidate for _, candidate in played[:LEADERS]]


def _expanding(problem: Problem, chip: ChipConfig) -> Iterator[Candidate]:
    """Candidates in which cores share out rows alone: with shares of the output channels, too, each of them would make
    the same windows."""
    shares = min(len(chip.cores), problem.out_rows)
    most = ceil(problem.out_rows / shares)
    for rows in sorted({ceil(most / count) for count in range(1, most + 1)}):
        for deep in sorted({ceil(problem.k_blocks / count) for count in range(1, problem.k_blocks + 1)}):
            yield Candidate(shares, 1, False, rows, problem.out_w, problem.n_blocks, deep, "output")


def _tall_before(candidate: Candidate, problem: Problem, prologue: Prologue, chip: ChipConfig) -> tuple[Candidate, ...]:
    """The candidate with tiles as tall as fit beside the rows that a depthwise convolution makes them of."""
    rows = tallest(prologue, chip, min(candidate.tile_columns, problem.out_w), min(candidate.tile_k, problem.k_blocks))
    if rows <= candidate.tile_rows:
        return ()
    pixels = rows * min(candidate.tile_columns, problem.out_w)
    deep = chip.core.out_words // (2 * pixels)
    return (replace(candidate, tile_rows=rows, tile_n=min(candidate.tile_n, deep)),) if deep else ()


def _tall(candidate: Candidate, problem: Problem, chip: ChipConfig) -> Candidate:
    """The candidate with tiles as tall as two of them fit: what tiles before a pool share, both compute."""
    core, wide = chip.core, min(candidate.tile_k, problem.k_blocks) * problem.in_w
    rows = core.out_words // (2 * problem.out_w * min(candidate.tile_n, problem.n_blocks))
    reach = (problem.kernel_h - 1) * problem.dilation + 1
    return replace(candidate, tile_rows=max(1, min(rows, (core.a_words // (2 * wide) - reach) // problem.stride_h + 1)))
