"""A layer's latency from what the chip does, a few sums and maxima for each tile step of one core.

The core with the largest part is followed. Its tiles and their order are those of its program (`serving.plans`); its
mover asks for them in that order, and what it asks for arrives over its link, one word a cycle, with a head for each
packet. A step computes when its tiles are there and the step before is done; a result leaves when the array has
drained. A tile that is used once lies in one of three slots, so it is asked for when the step three before it has
ended, and the mover asks for nothing more while it waits for a result that it is to take away. The first tile is there
when all have come that are asked for at once: near channels run ahead with later tiles while far ones lag.

What other cores do is expressed by three rates for a tile of w words that lie in s of n channels:

    link        w and its heads, times 1 + (c - 1) / n         channels send first in, first out
    channels    w g / s / r                                    g of the cores want the same tile at once
    memory      w c / (n r)                                    all channels together, r words a cycle each

The first is the throughput of a closed network of c customers and n servers with random routes, n / (n + c - 1)
(J. Buzen, "Computational algorithms for closed queueing networks with exponential servers", CACM 1973): a core finds
another at its channel with a chance of (c - 1) / n. Nothing is fitted; all cycles come from `hw.spec.contracts`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import (
    ADDRESS_CYCLES,
    BEAT_CYCLES,
    GEMM_ISSUE_CYCLES,
    GEMM_PIPELINE,
    ISSUE_CYCLES,
    REQUEST_CYCLES,
    REQUEST_INTERVAL,
    SOURCE_CYCLES,
    START_CYCLES,
    VEC_ISSUE_CYCLES,
    VEC_PIPELINE,
    WRITTEN_CYCLES,
)

from ...lowering.templates import vector
from ...lowering.templates.matrix import visits_of
from ...lowering.templates.plans import best_plan, largest, row_tiles, rows_read, sizes_of
from ...lowering.templates.schemes import LayerShape, Scheme, split
from ...lowering.templates.steps import AHEAD, LEAD
from ...mapping.tiling.tiles import even
from ...schedulers.online.latency import Latency, utilisation


@dataclass(slots=True)
class _Step:
    """A GEMM or VEC. `load`: cycles until its tiles have come, of `words` words in `moves` moves; `once`: a tile of it
    is used by no other step; `store`: cycles until its result has left; `passed`: the same for partial sums, which step
    `after` of the neighbour sends (None: nobody); `tail`: from its last operand to its last result."""

    work: int
    load: float
    words: int
    moves: int
    once: bool
    tail: int
    store: float = 0.0
    passed: float = 0.0
    after: int | None = None


class _Rates:
    """How long tiles take (see above). `cores`: that work at the same time; `part`: of the rates that is left to
    them."""

    def __init__(self, chip: ChipConfig, cores: int, part: float) -> None:
        self.channels = len(chip.drams)
        self._slow = chip.lanes / chip.dram.bytes_per_cycle / part  # cycles a word of a channel
        self._crowd = (1 + (cores - 1) / self.channels) / part
        self._floor = cores * self._slow / self.channels
        self._longest = chip.packet_words

    def heads(self, words: int) -> int:
        """Packets of so many words that lie side by side."""
        return -(-words // self._longest)

    def take(self, words: int, packets: int, spread: int, together: int = 1) -> float:
        """Cycles of a tile that lies in `spread` channels and that `together` cores want at once."""
        return max((words + packets) * self._crowd, together * words * self._slow / spread, words * self._floor)


def _matrix_steps(shape: LayerShape, chip: ChipConfig, scheme: Scheme, rates: _Rates) -> Iterator[_Step]:
    problem, parts = shape.problem, split(shape, scheme)
    plan, part, links = best_plan(shape, chip, scheme), largest(shape, parts), scheme.input
    sizes = sizes_of(shape, chip, parts, plan, links)
    assert sizes is not None, "the best plan fits"
    tiles = row_tiles(shape, part, plan.rows)
    count = ceil((part.n[1] - part.n[0]) / plan.blocks)
    ns = even(*part.n, count)
    ks = [k1 - k0 for k0, k1 in even(*part.k, plan.pieces)]
    nest = [(m, n) for m in tiles for n in ns] if plan.rows_outer else [(m, n) for n in ns for m in tiles]
    x_stays = sizes.a_slots >= len(tiles) * len(ks) or (plan.rows_outer and links == 1)
    w_stays = sizes.b_slots >= count * len(ks) or (not plan.rows_outer and links == 1)
    x_once, w_once = count == 1 or not x_stays, len(tiles) == 1 or not w_stays
    same_x, same_w = ceil(scheme.output / len(ks)), ceil(scheme.batch * scheme.feature / len(ks))
    each = max(1, min(ceil(len(nest) / links), sizes.sum_slots - 2))
    places: dict[int, int] = {}  # of the last step of each visit
    seen: set[tuple[object, int]] = set()
    number = 0
    for visit in visits_of(nest, part.link, links, sizes.sum_slots):
        (read0, read1), _ = rows_read(shape, visit.tile)
        plane, blocks = (read1 - read0) * problem.in_w, visit.n[1] - visit.n[0]
        pixels = (visit.tile[2] - visit.tile[1]) * problem.out_w
        folds, out = blocks * ceil(pixels / problem.rows), blocks * pixels
        home = min(rates.channels, blocks)
        for piece, deep in enumerate(ks):
            load, words, moves, once = 0.0, 0, 0, False
            if not x_stays or (visit.tile, piece) not in seen:
                seen.add((visit.tile, piece))
                spread = min(rates.channels, deep)
                load += rates.take(plane * deep, deep * rates.heads(plane), spread, same_x)
                words, moves, once = words + plane * deep, moves + spread, x_once
            if not w_stays or (visit.n, piece) not in seen:
                seen.add((visit.n, piece))
                size = blocks * deep * problem.taps * problem.cols
                spread = max(1, min(rates.channels, round(rates.channels * deep / problem.k_blocks)))
                load += rates.take(size, rates.heads(size), spread, same_w)
                words, moves, once = words + size, moves + spread, once or w_once
            if not number:  # biases
                load, words, moves = load + 4 * sizes.bias, words + 4 * sizes.bias, moves + 1
            step = _Step(
                folds * deep * problem.taps * problem.lanes, load, words, moves, once,
                chip.cols + (pixels - 1) % chip.rows + 1 + GEMM_PIPELINE,
            )  # fmt: skip
            if not visit.first and not piece:
                step.after = places.get(visit.position - each)
                step.load += rates.take(4 * out, rates.heads(4 * out), rates.channels)
            if piece == len(ks) - 1:
                places[visit.position] = number
                if not visit.last:
                    step.passed = rates.take(4 * out, rates.heads(4 * out), rates.channels)
                else:
                    step.store = rates.take(out, rates.heads(out), home)
                    if shape.residual:
                        step.load, step.words = step.load + step.store, step.words + out
                        step.moves, step.tail = step.moves + home, step.tail + out + VEC_ISSUE_CYCLES + VEC_PIPELINE
            number += 1
            yield step


def _vector_steps(shape: LayerShape, chip: ChipConfig, scheme: Scheme, rates: _Rates) -> Iterator[_Step]:
    problem = shape.problem
    part = largest(shape, split(shape, scheme))
    tiling = vector.cut(shape, chip, part)
    groups = ceil((part.n[1] - part.n[0]) / tiling.planes)
    for n0, n1 in even(*part.n, groups):
        for tile in row_tiles(shape, part, tiling.rows):
            (read0, read1), _ = rows_read(shape, tile)
            plane, planes = (read1 - read0) * problem.in_w, n1 - n0
            out = planes * (tile[2] - tile[1]) * problem.out_w * shape.repeat**2
            spread = min(rates.channels, planes)
            yield _Step(
                vector.occupancy(shape, chip, tile, planes),
                rates.take(plane * planes, planes * rates.heads(plane), spread), plane * planes, spread, True,
                VEC_PIPELINE, rates.take(out, rates.heads(out), spread),
            )  # fmt: skip


def stepwise(shape: LayerShape, scheme: Scheme, chip: ChipConfig, mem_factor: float = 1.0) -> Latency:
    """See above. `mem_factor`: share of the bandwidth, of links and channels alike, that is left to the layer. Raises
    DoesNotFit when the shape has no parts for the scheme, or no tile of them fits a core."""
    rates = _Rates(chip, scheme.cores, mem_factor)
    walk = _matrix_steps(shape, chip, scheme, rates) if shape.matrix else _vector_steps(shape, chip, scheme, rates)
    steps = list(walk)
    cycles = _played(steps, chip, scheme.cores, shape.matrix)
    compute, load = sum(step.work for step in steps), sum(step.load for step in steps)
    store = sum(step.store + step.passed for step in steps)
    return Latency(cycles, compute, load, store, utilisation(shape, scheme, chip, cycles))


def _answer(chip: ChipConfig) -> int:
    """From a request issued to the first word at the core: across half of the mesh and back, and the DRAM's latency."""
    xs, ys = chip.width, chip.height
    hops = (xs + ys) // 2
    return REQUEST_CYCLES + SOURCE_CYCLES + ADDRESS_CYCLES + chip.dram.latency + BEAT_CYCLES + 2 * hops


def _requests(steps: list[_Step], stores: list[int], starts: list[int], slots: int) -> list[tuple[int, int]]:
    """Steps with tiles to ask for, in order, and the step whose end the mover waits for before that (-1: none)."""
    requests: list[tuple[int, int]] = []
    early = 0
    for number, step in enumerate(steps):
        if step.load:
            early = max(early, bisect_right(starts, starts[number] - LEAD[0] - LEAD[1] * step.words) - 1)
            if step.once:
                early = max(early, number - slots + 1)
            waits = stores[early - 1] if early else -1
            if step.once:
                waits = max(waits, number - slots)
            requests.append((number, waits))
    return requests


def _played(steps: list[_Step], chip: ChipConfig, cores: int, matrix: bool) -> float:
    """Cycles from the launch to the completion of a program whose largest part takes these steps."""
    answer, slots = _answer(chip), AHEAD if matrix else vector.SLOTS
    issue = GEMM_ISSUE_CYCLES if matrix else VEC_ISSUE_CYCLES
    starts, stores, last = [0], list[int](), -1
    for number, step in enumerate(steps):
        starts.append(starts[-1] + step.work)
        stores.append(last)  # the last step before this one with something to take away
        if step.store or step.passed:
            last = number
    # the host's front end gets its code, then each core's, one FETCH after another
    mover: float = 2 * (START_CYCLES + answer) + REQUEST_INTERVAL * (cores - 1)
    requests = _requests(steps, stores, starts, slots)
    link, out, busy = 0.0, 0.0, mover
    ends: list[float] = []
    sent: dict[int, float] = {}
    following = 0
    for number, step in enumerate(steps):
        if step.load:
            while following < len(requests):
                other, waits = requests[following]
                if waits >= number:
                    break
                at = mover
                if waits >= 0:
                    at = max(at, ends[waits] + steps[waits].tail + ISSUE_CYCLES)
                if other > number and (number or at + answer > link):
                    break
                mover = at + REQUEST_INTERVAL * steps[other].moves
                link = max(link, mover + answer) + steps[other].load
                following += 1
            busy = max(busy, link + ISSUE_CYCLES + issue)
        if step.after is not None:
            busy = max(busy, sent[step.after] + ISSUE_CYCLES + issue)
        busy += step.work
        ends.append(busy)
        if step.store or step.passed:
            out = max(out, busy + step.tail + ISSUE_CYCLES) + step.store + step.passed
            if step.passed:
                sent[number] = out
    return out + WRITTEN_CYCLES + REQUEST_CYCLES
