"""The arrays that a schedule is made on: the tiled layer, the scratchpad, the ready queue, the clocks.

Data tiles are numbered: inputs `m * K + k`, then weights `n * K + k`, then outputs (partial sums) `m * N + n`. Plain
arrays in named tuples, because the compiled code of this package works on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from ...mapping.play.estimate import END_CYCLES, pipeline_cycles
from ...model.traffic import FLIGHT_CYCLES, REQUEST_CYCLES, START_CYCLES, dram_word_cycles
from ...support.records import Table, layout
from .tiles import Tiles

#: An array, or an element of one: compiled code tells them apart, type checkers of Python cannot.
Array: TypeAlias = Any
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Dims(NamedTuple):
    """Tiles of pixels, output and input blocks; cores; rows of the scratchpad; tiles that A, B and ACC of a core hold;
    whether partial sums stay in the core that makes them; tiles that OUT holds; whether tiles travel while cores
    compute, and whether cores keep tiles from one operation to the next (see `policy.Policy`)."""

    m: int
    n: int
    k: int
    cores: int
    rows: int
    a_slots: int
    b_slots: int
    sum_slots: int
    home: bool
    out_slots: int
    overlap: bool
    private: bool


#: Result tiles that OUT is divided into at most; more than a few only delay nothing.
MOST_RESULTS = 4


class Rates(NamedTuple):
    """Cycles of all DRAM channels, of the scratchpad's ports and of a link per word; cycles of the way from DRAM, of
    the way from the scratchpad, of the drain path; words of code for a load, a store and an operation; cycles of start
    and end of a run."""

    dram: float
    port: float
    link: float
    far: float
    near: float
    drain: float
    load_code: float
    store_code: float
    run_code: float
    start: float
    end: float


class LoopPlace(NamedTuple):
    """Weights of m, n and k in an operation's place in the loop nest."""

    m: int
    n: int
    k: int


class LayerConstants(NamedTuple):
    """What does not change while a schedule is made. `cycles` [M * N, K]: of the array."""

    dims: Dims
    cycles: Array
    place: LoopPlace
    rates: Rates


class BufferTile:
    """Rows in the scratchpad (0: it has no place there), words between it and DRAM, its row (-1: not there), uses that
    are left, whether DRAM lacks it, stamp of the set that needed it last, number of the set that needs it next (if
    that is known)."""

    height: int
    words: int
    where: int
    uses: int
    dirty: int
    pin: int
    following: int


class OutputPair:
    """A tile of pixels and one of output blocks; next tile of input blocks; input and weight tile of that; core that
    made the last partial sums (-1: none); words of the result."""

    m: int
    n: int
    depth: int
    input: int
    weight: int
    core: int
    result: int


class Segment:
    """Part of the scratchpad: its rows, and the tile that lies there (-1: it is free)."""

    rows: int
    tile: int


class Clock:
    """Cycles: of DRAM, of the scratchpad's ports, of the latest end, of results on their way to DRAM."""

    dram: float
    ports: float
    end: float
    results: float


class Totals:
    """Words moved, words spilled, words that must still be moved at least, cycles of operations still to do, ready
    pairs, segments, events in the log, stamp of the last set; steps of work that all this has taken: turns of the loops
    in which the time goes (see `budget`)."""

    moved: int
    spilled: int
    least: int
    left: int
    ready: int
    segments: int
    logged: int
    stamp: int
    steps: int


class LogEntry:
    """An entry of a log: one of the kinds below, tile or operation, row or core, words."""

    kind: int
    what: int
    where: int
    words: int


TILE, PAIR, SEGMENT, CLOCK, TOTALS, EVENT = (
    layout(kind) for kind in (BufferTile, OutputPair, Segment, Clock, Totals, LogEntry)
)


class CoreState(NamedTuple):
    """What changes, in few arrays, because every call of a compiled function copies all of them.

    `pairs` [m * N + n]. `spm`: the scratchpad from row 0 upwards, `totals.segments` of it; `time` from which a
    segment's words may be overwritten; `trial`, `trial_time`: to try on. `there`: cycle from which a tile can be read.
    `queue`: ready pairs by their place in the loop nest. Per core: `free` (cycle of its array), `began` (its last
    operation), `slots` (tiles that lie in its A, B and ACC, the last used first), `open` (pairs begun there and not
    finished), `stored` (cycles from which its slots of OUT can be written, the earliest first).
    """

    tiles: Table[BufferTile]
    pairs: Table[OutputPair]
    spm: Table[Segment]
    trial: Table[Segment]
    time: Array
    trial_time: Array
    there: Array
    queue: Array
    clock: Clock
    free: Array
    began: Array
    slots: Array
    open: Array
    stored: Array
    log: Table[LogEntry]
    totals: Totals


#: Kinds of events in a log. LOAD: into `row`; STORE: partial sums from
#: `row` to DRAM; GIVE: `row` is given to new partial sums; DROP: a tile whose words DRAM has too is given up; RUN: an
#: operation `(m * N + n) * K + k` on `core`; NEXT: a new set of as many operations begins.
LOAD, STORE, GIVE, DROP, RUN, NEXT = range(6)


@dataclass(frozen=True)
class Order:
    """A loop nest, outermost first: a permutation of "mnk". It decides between sets that are equally good."""

    loops: str

    def places(self, shape: tuple[int, int, int]) -> LoopPlace:
        """How the nest counts its operations."""
        sizes = dict(zip("mnk", shape, strict=True))
        weight, weights = 1, dict[str, int]()
        for loop in reversed(self.loops):
            weights[loop] = weight
            weight *= sizes[loop]
        return LoopPlace(**weights)


#: The data flows of Algorithm 1.
ORDERS = tuple(Order(loops) for loops in ("mnk", "nmk", "mkn", "nkm", "kmn", "knm"))


def rates(chip: ChipConfig) -> Rates:
    """`Work.rates` of a chip."""
    banks, channels = len(chip.spms), len(chip.drams)
    code, flits = float(chip.instruction_words), 1 + 1 / chip.packet_words
    return Rates(
        dram=float(dram_word_cycles(chip) / channels),
        port=flits / banks,
        link=flits,
        far=float(REQUEST_CYCLES + FLIGHT_CYCLES + chip.dram.latency),
        near=float(REQUEST_CYCLES + FLIGHT_CYCLES),
        drain=float(pipeline_cycles(chip)),
        load_code=code * max(banks, channels),
        store_code=code * channels,
        run_code=code * (1 + 2 * banks),
        start=float(START_CYCLES),
        end=float(END_CYCLES),
    )


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

    work: LayerConstants
    tiles: NDArray[Any]
    pairs: NDArray[Any]

    def fresh(self, steps: int = 0) -> CoreState:
        """The state before the first set: an empty scratchpad, all first operations ready. `steps`: of work so far."""
        work, dims = self.work, self.work.dims
        room = 2 * min(len(self.tiles), dims.rows) + 3
        spm = np.zeros(room, SEGMENT)
        spm["rows"] = spm["tile"] = -1
        spm["rows"][0] = dims.rows
        at = self.pairs["m"] * work.place.m + self.pairs["n"] * work.place.n
        totals, clock = np.zeros(1, TOTALS), np.full(1, work.rates.start, CLOCK)
        totals["least"] = self.tiles["words"][: (dims.m + dims.n) * dims.k].sum() + self.pairs["result"].sum()
        totals["left"], totals["ready"], totals["segments"] = work.cycles.sum(), dims.m * dims.n, 1
        totals["steps"] = steps
        return CoreState(
            tiles=cast(Any, self.tiles.copy()),
            pairs=cast(Any, self.pairs.copy()),
            spm=cast(Any, spm),
            trial=cast(Any, spm.copy()),
            time=np.zeros(room),
            trial_time=np.zeros(room),
            there=np.zeros(len(self.tiles)),
            queue=np.argsort(at, kind="stable").astype(np.int64),
            clock=clock[0],
            free=np.full(dims.cores, work.rates.start),
            began=np.full(dims.cores, work.rates.start),
            slots=np.full((dims.cores, 3, 1 + max(dims.a_slots, dims.b_slots, dims.sum_slots)), -1, np.int64),
            open=np.zeros(dims.cores, np.int64),
            stored=np.zeros((dims.cores, dims.out_slots)),
            log=cast(Any, np.zeros(64, EVENT)),
            totals=totals[0],
        )


def begin(
    tiles: Tiles, chip: ChipConfig, order: Order, home: bool = False, overlap: bool = True, private: bool = True
) -> Start:
    """The arrays of a tiling on a chip. `home`: partial sums never leave the core that makes them; `overlap`,
    `private`: see `policy.Policy`."""
    core = chip.core
    m, n, k = tiles.shape
    sums = 1
    if k > 1:
        sums = (core.acc_words - bias_rows(tiles, chip)) // (tiles.m_most * tiles.n_most)
    slots = core.a_words // int(tiles.in_words.max()), core.b_words // int(tiles.wt_words.max()), max(1, sums)
    results = min(MOST_RESULTS, core.out_words // (tiles.m_most * tiles.n_most))
    inputs, weights, outputs = tiles.heights(len(chip.spms))
    outputs = np.zeros_like(outputs) if home else outputs
    table = np.zeros((m + n) * k + m * n, TILE)
    table["height"] = np.concatenate([part.ravel() for part in (inputs, weights, outputs)])
    table["words"] = np.concatenate([part.ravel() for part in (tiles.in_words, tiles.wt_words, tiles.sum_words)])
    table["uses"] = np.concatenate([np.full(m * k, n), np.full(n * k, m), np.full(m * n, k)])
    table["where"] = table["pin"] = -1
    pairs = np.zeros(m * n, PAIR)
    pairs["m"], pairs["n"] = np.repeat(np.arange(m), n), np.tile(np.arange(n), m)
    pairs["input"], pairs["weight"] = pairs["m"] * k, (m + pairs["n"]) * k
    pairs["core"], pairs["result"] = -1, tiles.out_words.ravel()
    work = LayerConstants(
        dims=Dims(m, n, k, len(chip.cores), chip.spm_words, *slots, home, results, overlap, private),
        cycles=tiles.cycles.reshape(-1, k),
        place=order.places(tiles.shape),
        rates=rates(chip),
    )
    return Start(work, table, pairs)
