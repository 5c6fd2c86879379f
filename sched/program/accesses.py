"""Which words an instruction reads and writes, as intervals. Exact: a word that is only skipped over is not touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from meshloom.hw.config import ChipConfig, TileKind
from meshloom.hw.isa import Addend, Region, split_address

Ends = npt.NDArray[np.int64]

#: Bytes of region STATS that a program may read; the hardware knows its exact size.
STATS_BYTES = 64


@dataclass(frozen=True)
class Access:
    """Words [begins[i], ends[i]) of one region of one tile; the intervals ascend and are disjoint."""

    tile: int
    region: int
    begins: Ends
    ends: Ends
    write: bool


def region_words(chip: ChipConfig, tile: int, region: int, mover_reads: bool) -> int:
    """Words of a region that a program may use; 0 = the tile has no such memory for that.

    `mover_reads`: as the source of a MOVE. The operand memories A and B of a core have one read port, for its array;
    traces and counters can only be read.
    """
    kind = chip.tiles.get(tile)
    sizes: dict[int, int] = {}
    if kind is TileKind.CORE:
        core = chip.core
        sizes = {
            Region.MAIN: core.a_words,
            Region.B: core.b_words,
            Region.ACC: 4 * core.acc_words,
            Region.OUT: core.out_words,
        }
    elif kind is TileKind.SPM:
        sizes = {Region.MAIN: chip.spm_words}
    elif kind is TileKind.DRAM:
        sizes = {Region.MAIN: chip.dram.words}
    if mover_reads and kind is not None:
        if kind is TileKind.CORE:
            del sizes[Region.MAIN], sizes[Region.B]
        sizes |= {Region.TRACE: chip.trace_records * chip.trace_words, Region.STATS: -(-STATS_BYTES // chip.lanes)}
    return sizes.get(region, 0)


def runs(start: int, run: int, stride: int, words: int) -> tuple[Ends, Ends]:
    """Intervals of a strided walk: word i at `start + (i // run) * stride + i % run`. `run`, `words` >= 1."""
    count = -(-words // run)
    last = words - (count - 1) * run
    if stride <= run or count == 1:  # the runs touch or overlap: one interval
        end = start + (count - 1) * stride + last
        if count > 1:
            end = max(end, start + (count - 2) * stride + run)
        return np.array([start], np.int64), np.array([end], np.int64)
    begins = start + stride * np.arange(count, dtype=np.int64)
    ends = begins + run
    ends[-1] = begins[-1] + last
    return begins, ends


def merge(begins: Ends, ends: Ends) -> tuple[Ends, Ends]:
    """Sorted, disjoint intervals that cover the same words; neighbours that touch become one."""
    if len(begins) < 2:
        return begins, ends
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    fresh = np.concatenate(([True], begins[1:] > ends[:-1]))
    return begins[fresh], np.concatenate((ends[:-1][fresh[1:]], ends[-1:]))


def move_accesses(fields: Mapping[str, int]) -> tuple[Access, Access]:
    """(source read, destination write) of a MOVE with counts and runs >= 1."""
    both = []
    for end, tile in (("src", fields["src_tile"]), ("dst", fields["dst_tile"])):
        region, offset = split_address(fields[end])
        begins, ends = runs(offset, fields[f"{end}_run"], fields[f"{end}_stride"], fields["words"])
        both.append(Access(tile, region, begins, ends, end == "dst"))
    return both[0], both[1]


@lru_cache(maxsize=4096)
def _plane_words(
    in_w: int, a_plane: int, kernel: tuple[int, int], stride: tuple[int, int], dilation: int, pad: tuple[int, int],
    out_w: int, pixels: int,
) -> tuple[Ends, Ends]:  # fmt: skip
    """Words of one channel block that the windows touch, relative to the block."""
    mask = np.zeros(a_plane + in_w, bool)
    full, rest = divmod(pixels, out_w)

    def positions(first: int, count: int, taps: int, step: int, padding: int) -> Ends:
        outputs = np.arange(first, first + count, dtype=np.int64)
        found = outputs[:, None] * step + np.arange(taps, dtype=np.int64) * dilation - padding
        return np.unique(found[found >= 0])

    for first_row, rows, columns in ((0, full, out_w), (full, 1, rest)):
        if not rows or not columns:
            continue
        down = positions(first_row, rows, kernel[0], stride[0], pad[0])
        right = positions(0, columns, kernel[1], stride[1], pad[1])
        down, right = down[down * in_w < a_plane], right[right < in_w]
        mask[(down[:, None] * in_w + right).ravel()] = True
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return edges[0::2].astype(np.int64), edges[1::2].astype(np.int64)


def gemm_accesses(core: int, fields: Mapping[str, int], cols: int) -> list[Access]:
    """Everything that a GEMM with shapes >= 1 reads and writes on tile `core`; ACC counted in words of P bytes.

    A: exactly the words under some window (none where the window lies in the padding); B: all of its blocks;
    the addend; the result.
    """
    f = fields
    begins, ends = _plane_words(
        f["in_w"], f["a_plane"], (f["kernel_h"], f["kernel_w"]), (f["stride_h"], f["stride_w"]), f["dilation"],
        (f["pad_top"], f["pad_left"]), f["out_w"], f["pixels"],
    )  # fmt: skip
    found = []
    if len(begins):
        blocks = f["a_base"] + f["a_plane"] * np.arange(f["k_blocks"], dtype=np.int64)[:, None]
        begins, ends = merge((blocks + begins).ravel(), (blocks + ends).ravel())
        found.append(Access(core, Region.MAIN, begins, ends, False))
    windows = f["k_blocks"] * f["kernel_h"] * f["kernel_w"]

    def one(region: Region, base: int, words: int, write: bool) -> Access:
        scale = 4 if region is Region.ACC else 1
        return Access(
            core, region, np.array([base * scale], np.int64), np.array([(base + words) * scale], np.int64), write
        )

    found.append(one(Region.B, f["b_base"], f["n_blocks"] * windows * cols, False))
    results = f["n_blocks"] * f["pixels"]
    if f["addend"] == Addend.BIAS:
        found.append(one(Region.ACC, f["addend_base"], f["n_blocks"], False))
    elif f["addend"] == Addend.PARTIAL:
        found.append(one(Region.ACC, f["addend_base"], results, False))
    found.append(one(Region.ACC if f["to_acc"] else Region.OUT, f["dest_base"], results, True))
    return found
