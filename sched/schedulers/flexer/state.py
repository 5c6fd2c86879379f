"""The arrays that a schedule is made on: the tiled layer, the scratchpad, the ready queue, the clocks.

Data tiles are numbered: inputs `m * K + k`, then weights `n * K + k`, then outputs (partial sums) `m * N + n`. Plain
arrays in named tuples, because the compiled code of this package works on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.config import PACKET_WORDS, ChipConfig

from ...mapping.estimate import (
    END_CYCLES,
    FLIGHT_CYCLES,
    REQUEST_CYCLES,
    START_CYCLES,
    dram_word_cycles,
    pipeline_cycles,
)
from .tiles import Tiles

#: An array, or an element of one: compiled code tells them apart, type checkers of Python cannot.
Array: TypeAlias = Any
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Work(NamedTuple):
    """What does not change while a schedule is made.

    `dims`: see `M`. `cycles` [M * N, K]: of the array. `place` [3]: weight of m, n, k in an operation's place in the
    loop nest. `rates`: see `DRAM`.
    """

    dims: Array
    cycles: Array
    place: Array
    rates: Array


#: Entries of `Work.dims`: tiles of pixels, output and input blocks; cores; rows of the scratchpad; tiles that A, B and
#: ACC of a core hold; whether partial sums stay in the core that makes them; tiles that OUT holds.
M, N, K, CORES, ROWS, A_SLOTS, B_SLOTS, SUM_SLOTS, HOME, OUT_SLOTS = range(10)
#: Result tiles that OUT is divided into at most; more than a few only delay nothing.
MOST_RESULTS = 4
#: Entries of `Work.rates`: cycles of all DRAM channels, of the scratchpad's ports and of a link per word; cycles of the
#: way from DRAM, of the way from the scratchpad, of the drain path; words of code for a load, a store and an operation;
#: cycles of start and end of a run.
DRAM, PORT, LINK, FAR, NEAR, DRAIN, LOAD_CODE, STORE_CODE, RUN_CODE, START, END = range(11)


class State(NamedTuple):
    """What changes, in few arrays, because every call of a compiled function copies all of them.

    `tiles` [tile, column]: see `HEIGHT`. `pairs` [m * N + n, column]: see `OF_M`. `spm` [segment, 2]: the scratchpad
    from row 0 upwards, rows and tile (-1: free) of each segment; `segments` of them; `time` from which a segment's
    words may be overwritten; `trial`, `trial_time`: to try on. `there`: cycle from which a tile can be read. `queue`:
    ready pairs by their place in the loop nest. `clock`: DRAM, scratchpad ports, latest end, results on their way to
    DRAM. Per core: `free` (cycle of its array), `began` (its last operation), `slots` (tiles that lie in its A, B and
    ACC, the last used first), `open` (pairs begun there and not finished), `stored` (cycles from which its slots of
    OUT can be written, the earliest first). `log`: see `LOAD`. `totals`: see `MOVED`.
    """

    tiles: Array
    pairs: Array
    spm: Array
    trial: Array
    time: Array
    trial_time: Array
    there: Array
    queue: Array
    clock: Array
    free: Array
    began: Array
    slots: Array
    open: Array
    stored: Array
    log: Array
    totals: Array


#: Columns of `State.tiles`: rows in the scratchpad (0: it has no place there), words between it and DRAM, its row (-1:
#: not there), uses that are left, whether DRAM lacks it, stamp of the set that needed it last, number of the set that
#: needs it next (if that is known).
HEIGHT, WORDS, WHERE, USES, DIRTY, PIN, FOLLOWING = range(7)
#: Columns of `State.pairs`: its tile of pixels and of output blocks; next tile of input blocks; input and weight tile
#: of that; core that made the last partial sums (-1: none); words of the result.
OF_M, OF_N, DEEP, ONE, TWO, CORE, RESULT = range(7)
#: Entries of `State.totals`: words moved, words spilled, words that must still be moved at least, cycles of operations
#: still to do, ready pairs, segments, segments of the trial, events in the log, stamp of the last set; steps of work
#: that all this has taken: turns of the loops in which the time goes (see `budget`).
MOVED, SPILLED, LEAST, LEFT, READY, SEGMENTS, TRIED, LOGGED, STAMP, STEPS = range(10)
#: Kinds of events in a log: (kind, tile or operation, row or core, words). LOAD: into `row`; STORE: partial sums from
#: `row` to DRAM; GIVE: `row` is given to new partial sums; DROP: a tile whose words DRAM has too is given up; RUN: an
#: operation `(m * N + n) * K + k` on `core`; NEXT: a new set of as many operations begins.
LOAD, STORE, GIVE, DROP, RUN, NEXT = range(6)


@dataclass(frozen=True)
class Order:
    """A loop nest, outermost first: a permutation of "mnk". It decides between sets that are equally good."""

    loops: str

    def places(self, shape: tuple[int, int, int]) -> Ints:
        """Weights of m, n and k in an operation's place."""
        sizes = dict(zip("mnk", shape, strict=True))
        weight, found = 1, {}
        for loop in reversed(self.loops):
            found[loop] = weight
            weight *= sizes[loop]
        return np.array([found[loop] for loop in "mnk"], np.int64)


#: The data flows of Algorithm 1.
ORDERS = tuple(Order(loops) for loops in ("mnk", "nmk", "mkn", "nkm", "kmn", "knm"))


def rates(chip: ChipConfig) -> Floats:
    """`Work.rates` of a chip."""
    banks, channels = len(chip.spms), len(chip.drams)
    code, flits = float(chip.instruction_words), 1 + 1 / PACKET_WORDS
    found = np.zeros(11)
    found[DRAM] = dram_word_cycles(chip) / channels
    found[PORT], found[LINK] = flits / banks, flits
    found[FAR] = REQUEST_CYCLES + FLIGHT_CYCLES + chip.dram.latency
    found[NEAR] = REQUEST_CYCLES + FLIGHT_CYCLES
    found[DRAIN] = pipeline_cycles(chip)
    found[LOAD_CODE], found[STORE_CODE] = code * max(banks, channels), code * channels
    found[RUN_CODE] = code * (1 + 2 * banks)
    found[START], found[END] = START_CYCLES, END_CYCLES
    return found


def bias_rows(tiles: Tiles, chip: ChipConfig) -> int:
    """Rows of ACC for biases: one slot for each tile of output blocks if that leaves room for two tiles of sums, else
    two slots, else one."""
    tile = tiles.n_most
    sums = tiles.m_most * tile if len(tiles.k) > 1 else 0
    for slots in (len(tiles.n), 2):
        if slots * tile + 2 * sums <= chip.core.acc_words and slots <= len(tiles.n):
            return slots * tile
    return tile


@dataclass(frozen=True)
class Start:
    """A tiled layer on a chip, ready to be scheduled as often as one likes."""

    work: Work
    tiles: Ints
    pairs: Ints

    def fresh(self, steps: int = 0) -> State:
        """The state before the first set: an empty scratchpad, all first operations ready. `steps`: of work so far."""
        work, dims = self.work, self.work.dims
        m, n, k, cores, rows = (int(value) for value in dims[:5])
        room = 2 * min(len(self.tiles), rows) + 3
        spm = np.full((room, 2), -1, np.int64)
        spm[0, 0] = rows
        at = self.pairs[:, OF_M] * work.place[M] + self.pairs[:, OF_N] * work.place[N]
        totals = np.zeros(10, np.int64)
        totals[LEAST] = self.tiles[: (m + n) * k, WORDS].sum() + self.pairs[:, RESULT].sum()
        totals[LEFT], totals[READY], totals[SEGMENTS] = work.cycles.sum(), m * n, 1
        totals[STEPS] = steps
        return State(
            tiles=self.tiles.copy(),
            pairs=self.pairs.copy(),
            spm=spm,
            trial=spm.copy(),
            time=np.zeros(room),
            trial_time=np.zeros(room),
            there=np.zeros(len(self.tiles)),
            queue=np.argsort(at, kind="stable").astype(np.int64),
            clock=np.full(4, work.rates[START]),
            free=np.full(cores, work.rates[START]),
            began=np.full(cores, work.rates[START]),
            slots=np.full((cores, 3, 1 + int(dims[A_SLOTS : SUM_SLOTS + 1].max())), -1, np.int64),
            open=np.zeros(cores, np.int64),
            stored=np.zeros((cores, int(dims[OUT_SLOTS]))),
            log=np.zeros((64, 4), np.int64),
            totals=totals,
        )


def begin(tiles: Tiles, chip: ChipConfig, order: Order, home: bool = False) -> Start:
    """The arrays of a tiling on a chip. `home`: partial sums never leave the core that makes them."""
    core = chip.core
    m, n, k = tiles.shape
    sums = 1
    if k > 1:
        sums = (core.acc_words - bias_rows(tiles, chip)) // (tiles.m_most * tiles.n_most)
    slots = core.a_words // int(tiles.in_words.max()), core.b_words // int(tiles.wt_words.max()), max(1, sums)
    results = min(MOST_RESULTS, core.out_words // (tiles.m_most * tiles.n_most))
    inputs, weights, outputs = tiles.heights(len(chip.spms))
    outputs = np.zeros_like(outputs) if home else outputs
    table = np.zeros(((m + n) * k + m * n, 7), np.int64)
    table[:, HEIGHT] = np.concatenate([part.ravel() for part in (inputs, weights, outputs)])
    table[:, WORDS] = np.concatenate([part.ravel() for part in (tiles.in_words, tiles.wt_words, tiles.sum_words)])
    table[:, USES] = np.concatenate([np.full(m * k, n), np.full(n * k, m), np.full(m * n, k)])
    table[:, WHERE] = table[:, PIN] = -1
    pairs = np.zeros((m * n, 7), np.int64)
    pairs[:, OF_M], pairs[:, OF_N] = np.repeat(np.arange(m), n), np.tile(np.arange(n), m)
    pairs[:, ONE], pairs[:, TWO] = pairs[:, OF_M] * k, (m + pairs[:, OF_N]) * k
    pairs[:, CORE], pairs[:, RESULT] = -1, tiles.out_words.ravel()
    work = Work(
        dims=np.array([m, n, k, len(chip.cores), chip.spm_words, *slots, int(home), results], np.int64),
        cycles=tiles.cycles.reshape(-1, k),
        place=order.places(tiles.shape),
        rates=rates(chip),
    )
    return Start(work, table, pairs)
