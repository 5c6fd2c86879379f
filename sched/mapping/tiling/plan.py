"""What one core does, step by step: its GEMMs, and the stays of tiles in A, B and ACC that feed them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from meshloom.hw.spec.config import ChipConfig

from .arena import TileResidency, assign, fewest
from .problem import DoesNotFit, Problem
from .tiles import Candidate, Item, MTile, Part, Pooling, Range, k_tiles, m_tiles, n_tiles, pooled_tiles, visits

#: Result tiles that OUT is divided into at most; more than a few only delay nothing.
OUT_SLOTS = 4
#: Input tiles that a `tight` candidate keeps.
TIGHT_SLOTS = 2
#: Tiles of the other operand of an addition that A has room for.
RESIDUAL_SLOTS = 2
#: The first pieces of a ramp take at least this many cycles each.
PIECE_CYCLES = 64


#: How stays are found for (time, key) in order of time, with so many slots.
_Place = Callable[[Sequence[tuple[int, Hashable]], int], list[TileResidency]]
#: What identifies the contents of A that a step reads: ((rows, columns), image, input blocks).
AKey = tuple[tuple[Range, Range], int, Range]


class KernelPiece(NamedTuple):
    """Windows of a weight tile: output blocks x input blocks x kernel rows."""

    n: Range
    k: Range
    ky: Range


class GemmStep(NamedTuple):
    """One GEMM: a visit, or a piece of it. `sums`: ACC slot of its partial sums (-1: none)."""

    item: Item
    piece: KernelPiece
    first: bool
    last: bool
    sums: int
    result: int
    cycles: int


@dataclass
class CorePlan:
    """One core's steps, the stays of its operands (times are step indices) and the layout of its memories (words)."""

    part: Part
    steps: list[GemmStep]
    a: list[TileResidency]
    b: list[TileResidency]
    bias: list[TileResidency]
    a_slot: int
    b_slot: int
    out_slot: int
    out_slots: int
    #: ACC words: bias blocks first, then partial sums.
    sums_base: int
    sums_slot: int
    #: Input rows that lie in A for each output tile: its own, or those of the strip that it belongs to.
    held: dict[MTile, Range]
    #: Pieces in which the first weight tile arrives (one if it comes whole).
    pieces: list[KernelPiece]
    #: The other operand of a residual addition: its stays, and the word of A where its slots (of `out_slot`) begin.
    r: list[TileResidency]
    r_base: int
    #: Result tiles that VEC is divided into, and their words.
    vec_slots: int
    vec_slot: int
    #: Rows of a pool behind the layer that each output tile makes.
    pooled: dict[MTile, Range]


def box(problem: Problem, m: MTile) -> tuple[Range, Range, int, int]:
    """Input rows, input columns, zero rows above and zero columns left of an output tile."""
    i0, i1, top = problem.input_rows(m.r0, m.r1)
    j0, j1, left = problem.input_columns(m.c0, m.c1)
    return (i0, i1), (j0, j1), top, left


def windows(problem: Problem, piece: KernelPiece) -> Range:
    """The windows along K that a piece covers, counted in one output block."""
    taps, wide = problem.taps, problem.kernel_w
    return piece.k[0] * taps + piece.ky[0] * wide, (piece.k[1] - 1) * taps + piece.ky[1] * wide


def _width(problem: Problem, m: MTile) -> int:
    j0, j1 = box(problem, m)[1]
    return j1 - j0


def a_key(problem: Problem, held: dict[MTile, Range], step: GemmStep) -> AKey:
    """The contents of A that a step reads."""
    m = step.item.m
    return (held[m], box(problem, m)[1]), m.image, step.item.k


def _strips(
    problem: Problem, chip: ChipConfig, candidate: Candidate, part: Part, ms: list[MTile]
) -> dict[MTile, Range]:
    """Input rows of the whole row segment that each tile belongs to.

    A GEMM can read part of a strip only if it reads one channel block (the next one follows the whole strip).
    """
    if min(candidate.tile_k, problem.k_blocks) * problem.depth > 1 or any(m.c1 - m.c0 < problem.out_w for m in ms):
        raise DoesNotFit("strips need tiles of one input block and whole rows")
    strips = {
        (image, row): (problem.input_rows(r0, r0 + 1)[0], problem.input_rows(r1 - 1, r1)[1])
        for image, r0, r1 in part.segments
        for row in range(r0, r1)
    }
    held = {m: strips[m.image, m.r0] for m in ms}
    words = max((i1 - i0) * problem.in_w for i0, i1 in held.values())
    if words > chip.core.a_words:
        raise _short(chip, "A", words, chip.core.a_words, "one strip")
    return held


def gemm_cycles(problem: Problem, n: int, pixels: int, windows: int) -> int:
    """Cycles that the array is busy with a GEMM of `windows` taps of input blocks."""
    return n * ceil(pixels / problem.rows) * windows * problem.depth * problem.lanes


def _short(chip: ChipConfig, memory: str, need: int, have: int, what: str) -> DoesNotFit:
    return DoesNotFit(f"{memory} of a {chip.name} core is too small: {what} needs {need} words, it has {have}")


def plan(
    problem: Problem,
    chip: ChipConfig,
    candidate: Candidate,
    part: Part,
    frugal: bool = False,
    residual: bool = False,
    pooling: Pooling | None = None,
    bias_rows: int = 1,
    deep: bool = False,
) -> CorePlan:
    """The plan of one part. Raises DoesNotFit when a tile is too large for its memory.

    `frugal`: keeps no tile that is not used again, so that what follows finds room. `residual`: results are added to
    another tensor, whose tiles lie in A behind those of the input. `pooling`: results go through a max pool.
    `deep`: weights have all of B, so that as many as it holds can be there before the layer begins.
    `bias_rows`: words of ACC for each output block; more than 1 with multipliers, which the last part of a sum needs.
    """
    pooled = pooled_tiles(problem, part, candidate, pooling) if pooling else {}
    ms = list(pooled) or m_tiles(problem, part, candidate)
    if candidate.edges:
        ms = [*ms[:1], *ms[1:][-1:], *ms[1:-1]]
    ns, ks = n_tiles(part, candidate), k_tiles(problem, candidate)
    core, taps = chip.core, problem.taps
    widest_n, widest_k = max(n1 - n0 for n0, n1 in ns), max(k1 - k0 for k0, k1 in ks)
    pixels = max(m.pixels for m in ms)
    held = {m: box(problem, m)[0] for m in ms}
    if candidate.strip:
        held = _strips(problem, chip, candidate, part, ms)
    a_slot = widest_k * problem.depth * max((i1 - i0) * _width(problem, m) for m, (i0, i1) in held.items())
    b_slot = widest_n * widest_k * taps * problem.tap_words
    out_slot = widest_n * pixels
    vec_slot = out_slot
    if pooling:
        vec_slot = widest_n * pooling.width * max(high - low for low, high in pooled.values())
    r_slots = min(RESIDUAL_SLOTS, len(ms) * len(ns)) if residual else 0
    a_words = core.a_words - r_slots * out_slot
    for name, need, have in (
        ("A", a_slot, a_words),
        ("B", b_slot, core.b_words),
        ("OUT", out_slot, core.out_words),
        ("VEC", vec_slot if residual or pooling else 0, core.vec_words),
    ):
        if need > have:
            raise _short(chip, name, need, have, "one tile")
    # ACC: bias blocks (all of the part's if they fit beside the sums, otherwise two tiles of them), then sums.
    blocks, bias_slots, sums_slot = part.n1 - part.n0, 0, 0
    scaled = bias_rows > 1
    ramp = _ramp(problem, ms[0], ns[0], ks[0]) if candidate.ramp_k else []
    if scaled and ramp and _single(problem, [piece for piece in ramp if piece.n == ramp[0].n][-1]):
        ramp = []
    if scaled and may_end_with_one_window(problem, candidate):
        raise DoesNotFit("a last part of one window leaves no cycle to read multipliers in")
    for pieces in (ramp, []):
        sums_slot = widest_n * pixels if len(ks) > 1 else ms[0].pixels if len(pieces) > 1 else 0
        fitting = [
            s for s in (blocks, 2 * widest_n, widest_n) if s <= blocks and s * bias_rows + sums_slot <= core.acc_words
        ]
        if fitting:
            bias_slots = fitting[0]
            break
    if not bias_slots:
        need = widest_n * bias_rows + sums_slot
        raise _short(chip, "ACC", need, core.acc_words, "one bias tile with its partial sums")
    sums = max(1, (core.acc_words - bias_slots * bias_rows) // sums_slot) if sums_slot else 1
    items = list(visits(ms, ns, ks, candidate.order, sums))
    steps = _steps(problem, items, pieces, sums if len(ks) > 1 else 1)
    whole = bias_slots == blocks
    place = fewest if frugal else assign
    uses_r = [(t, (s.item.m, s.item.n)) for t, s in enumerate(steps) if s.last] if residual else []
    uses_bias = [
        (t, (part.n0, part.n1) if whole else s.item.n) for t, s in enumerate(steps) if s.first or (scaled and s.last)
    ]
    try:
        return CorePlan(
            part=part,
            steps=steps,
            a=_stays(place, [(t, a_key(problem, held, s)) for t, s in enumerate(steps)],
                     min(a_words // a_slot, TIGHT_SLOTS if candidate.tight else 1 << 16)),
            b=_stays(assign if deep else place, [(t, (s.item.n, s.item.k)) for t, s in enumerate(steps)],
                     core.b_words // b_slot),
            bias=_stays(assign, uses_bias, 1 if whole else bias_slots // widest_n),
            a_slot=a_slot,
            b_slot=b_slot,
            out_slot=out_slot,
            out_slots=min(OUT_SLOTS, core.out_words // out_slot),
            sums_base=bias_slots * bias_rows,
            sums_slot=sums_slot,
            held=held,
            pieces=pieces,
            r=_stays(assign, uses_r, r_slots),
            r_base=a_words,
            vec_slots=max(1, min(OUT_SLOTS, core.vec_words // vec_slot)),  # without VECs any number does
            vec_slot=vec_slot,
            pooled=pooled,
        )  # fmt: skip
    except ValueError as error:
        raise DoesNotFit(str(error)) from error


def _stays(place: _Place, uses: Sequence[tuple[int, Hashable]], slots: int) -> list[TileResidency]:
    """What `place` makes of uses. Cores with equal shares use other tiles in the same pattern, which is placed once."""
    numbers: dict[Hashable, int] = {}
    pattern = tuple([(time, numbers.setdefault(key, len(numbers))) for time, key in uses])
    keys = list(numbers)
    return [
        TileResidency(keys[stay.key], stay.slot, stay.first, stay.last, stay.free_after)
        for stay in _pattern(place, pattern, slots)
    ]


@lru_cache(maxsize=128)
def _pattern(place: _Place, uses: tuple[tuple[int, int], ...], slots: int) -> list[TileResidency]:
    return place(uses, slots)


def may_end_with_one_window(problem: Problem, candidate: Candidate) -> bool:
    """Whether sums are made in parts, in either order, of which some is a single window along K."""
    ks = k_tiles(problem, candidate)
    return len(ks) > 1 and any((high - low) * problem.depth * problem.taps == 1 for low, high in ks)


def _single(problem: Problem, piece: KernelPiece) -> bool:
    """Whether a piece is a single window along K."""
    windows = (piece.k[1] - piece.k[0]) * (piece.ky[1] - piece.ky[0]) * problem.kernel_w
    return windows * problem.depth == 1


def _ramp(problem: Problem, m: MTile, n: Range, k: Range) -> list[KernelPiece]:
    """The first weight tile in pieces that grow: kernel rows, then channel blocks, then output blocks."""
    kernel = problem.kernel_h
    first, windows = (n[0], n[0] + 1), problem.kernel_w
    pieces: list[KernelPiece] = []
    rows = box(problem, m)[0]
    reach = (kernel - 1) * problem.dilation - box(problem, m)[2]  # input row where the last kernel row begins
    k0 = k[0]
    if kernel > 1 and reach < rows[1] - rows[0]:
        step = max(1, ceil(PIECE_CYCLES / gemm_cycles(problem, 1, m.pixels, windows)))
        pieces = [KernelPiece(first, (k0, k0 + 1), (y, min(y + step, kernel))) for y in range(0, kernel, step)]
        k0 += 1
    size = max(1, ceil(PIECE_CYCLES / gemm_cycles(problem, 1, m.pixels, problem.taps)))
    while k0 < k[1]:
        stop = min(k0 + size, k[1])
        if k[1] - stop < size:
            stop = k[1]
        pieces.append(KernelPiece(first, (k0, stop), (0, kernel)))
        k0, size = stop, size * 2
    if n[1] - n[0] > 1:
        pieces.append(KernelPiece((n[0] + 1, n[1]), k, (0, kernel)))
    return pieces


def _steps(problem: Problem, items: list[Item], pieces: list[KernelPiece], sums: int) -> list[GemmStep]:
    """Visits as GEMMs: the first in pieces, the last one output block at a time (its stores start earlier)."""
    steps: list[GemmStep] = []
    place: dict[tuple[MTile, Range], int] = {}  # partial sums by output tile; freed when complete
    free = list(range(sums))
    result = 0
    for index, item in enumerate(items):
        whole = KernelPiece(item.n, item.k, (0, problem.kernel_h))
        parts = [whole]
        if not index and len(pieces) > 1:
            parts = pieces
        elif index == len(items) - 1 and item.n[1] - item.n[0] > 1 and item.last:
            parts = [KernelPiece((n, n + 1), item.k, whole.ky) for n in range(*item.n)]
        slot = -1
        if not (item.first and item.last):
            slot = place[item.m, item.n] if not item.first else free.pop(0)
            place[item.m, item.n] = slot
            if item.last:
                free.append(slot)
        at_k = {piece.n: [p for p in parts if p.n == piece.n] for piece in parts}
        for piece in parts:
            same = at_k[piece.n]
            windows = (piece.k[1] - piece.k[0]) * (piece.ky[1] - piece.ky[0]) * problem.kernel_w
            steps.append(
                GemmStep(
                    item=item,
                    piece=piece,
                    first=item.first and piece == same[0],
                    last=item.last and piece == same[-1],
                    sums=max(slot, 0),
                    result=result,
                    cycles=gemm_cycles(problem, piece.n[1] - piece.n[0], item.m.pixels, windows),
                )
            )
        result += item.last
    return steps
