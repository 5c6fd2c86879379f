"""What a candidate costs: a closed form over whole grids of tilings.

It bounds a schedule by its busiest resource (arrays, links into cores, movers, DRAM channels, SPM banks) and adds what
cannot overlap: the first tiles and the last store. It ranks; the replay of the best few (`replay.py`) decides. Both
stay below what the RTL takes by the same few cycles for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.isa import REQUEST_FLITS

from ...model.traffic import FLIGHT_CYCLES, REQUEST_CYCLES, START_CYCLES, dram_word_cycles

Grid = NDArray[np.float64]

#: Cycles from the last word that the vector unit reads to its last written result.
VECTOR_CYCLES = 12
#: Cycles from the last delivered word to the end of the run.
END_CYCLES = 20


def pipeline_cycles(chip: ChipConfig) -> int:
    """Cycles from the end of a GEMM's last window to its last written result."""
    return chip.lanes + chip.rows + 10


@dataclass(frozen=True)
class Loads:
    """What the busiest core does in a grid of candidates: cycles, tiles and words, and who shares them. All arrays of
    one length, but for the staging: `x_spm` and `w_spm` are columns, a row of cycles for each of their entries.

    `parts_m`, `parts_n`: cores that share the rows and the output blocks. `*_tile`: words of a tile; `*_fetch`: tiles
    that a core fetches; `*_slots`: tiles that its memory holds;
    `x_home`, `y_home`: where input and result lie;
    `out_words`: words that it stores; `x_words`, `w_words`: words of its inputs and weights, each counted once.
    """

    parts_m: Grid
    parts_n: Grid
    compute: Grid
    gemms: Grid
    gemm_cycles: Grid
    a_tile: Grid
    b_tile: Grid
    out_tile: Grid
    a_fetch: Grid
    b_fetch: Grid
    a_slots: Grid
    b_slots: Grid
    out_slots: Grid
    out_words: Grid
    x_words: Grid
    w_words: Grid
    x_spm: NDArray[np.bool_]
    w_spm: NDArray[np.bool_]
    x_home: TileKind = TileKind.DRAM
    y_home: TileKind = TileKind.DRAM


def closed_form(loads: Loads, chip: ChipConfig) -> Grid:
    """Cycles of each candidate of a grid, float64 [ways of staging, candidates]."""
    cores = loads.parts_m * loads.parts_n
    a_words, b_words = loads.a_fetch * loads.a_tile, loads.b_fetch * loads.b_tile
    flits = 1 + 1 / chip.packet_words
    link = (a_words + b_words) * flits
    requests = (REQUEST_FLITS + 1) * (loads.a_fetch + loads.b_fetch + loads.gemms)
    push = loads.out_words * flits + requests
    dram = cores * loads.out_words if loads.y_home is TileKind.DRAM else np.zeros_like(link)
    spm = np.zeros_like(link)
    room = chip.spm_words * len(chip.spms)
    for staged, words, own, sharers, home in (
        (loads.x_spm, a_words, loads.x_words, loads.parts_n, loads.x_home),
        (loads.w_spm, b_words, loads.w_words, loads.parts_m, TileKind.DRAM),
    ):
        direct = cores * words
        # Everything once if it fits; otherwise once for each time that the sharers, side by side, ask for it.
        whole = own * (cores / sharers)
        once = np.where(whole <= room, whole, words * (cores / sharers))
        dram = dram + np.where(staged, once, direct if home is TileKind.DRAM else 0)
        if chip.spms:
            spm = spm + np.where(staged | (home is TileKind.SPM), direct * flits / len(chip.spms), 0)
    # The program comes out of the same channels: moves in, moves out, GEMMs.
    spread = len(chip.drams)
    moves = spread * (loads.a_fetch + loads.b_fetch) + loads.out_words / loads.out_tile
    dram = dram + cores * chip.instruction_words * (moves + loads.gemms)
    rate = dram_word_cycles(chip) / spread
    bound = np.maximum(np.maximum.reduce([loads.compute, link, push]), np.maximum(dram * rate, spm))
    # A slot is in use or on its way: `slots - 1` fetches at most overlap; likewise results on their way out.
    hop = FLIGHT_CYCLES + REQUEST_CYCLES + chip.dram.latency
    for fetched, tile, slots in (
        (loads.a_fetch, loads.a_tile, loads.a_slots),
        (loads.b_fetch, loads.b_tile, loads.b_slots),
    ):
        late = fetched * (hop + tile * flits) / np.maximum(slots - 1, 1)
        bound = np.maximum(bound, np.where(fetched > slots, late, 0))
    results = loads.out_words / loads.out_tile
    bound = np.maximum(
        bound, results * (hop + pipeline_cycles(chip) + loads.out_tile) / np.maximum(loads.out_slots - 1, 1)
    )
    # With one slot, a fetch waits for the GEMM and the GEMM for the fetch.
    bound = bound + np.where((loads.a_slots < 2) & (loads.a_fetch > 1), loads.a_fetch * (loads.a_tile + 80), 0)
    bound = bound + np.where((loads.b_slots < 2) & (loads.b_fetch > 1), loads.b_fetch * (loads.b_tile + 80), 0)
    bound = bound + np.where((loads.out_slots < 2) & (loads.gemms > 1), loads.out_words, 0)
    # The first tiles come in pieces (see ramps): the array starts on an eighth, then waits if it is faster than they.
    first = np.maximum(loads.a_tile + loads.b_tile, cores * (loads.a_tile + loads.b_tile) * rate)
    first = first / 8 + np.maximum(0.875 * first - loads.gemm_cycles, 0)
    start = START_CYCLES + hop * (1 + 0.5 * (loads.x_spm.astype(int) + loads.w_spm)) + first
    last = np.maximum(loads.out_tile, cores * loads.out_tile * rate) / 2
    # Fewer, larger GEMMs if nothing else decides.
    small = 3 * loads.gemms + loads.a_fetch + loads.b_fetch
    return bound + small + start + last + pipeline_cycles(chip) + END_CYCLES
