"""The words that an instruction reads and writes, as intervals. Exact: words that are skipped do not count.

An instruction of 32 bytes can touch tens of thousands of intervals. So an access keeps how its words are walked, and
lists its intervals where they are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.contracts import stats_words
from meshloom.hw.spec.isa import SCALED_BIAS_WORDS, TABLE_BYTES, Addend, Region, VectorOp, YWalk, split_address

Ends = npt.NDArray[np.int64]


#: Intervals of accesses that are kept as lists (16 bytes each).
_CACHE_INTERVALS = 1 << 22


class Strided(NamedTuple):
    """Word i of `words` is `start + (i // run) * stride + i % run`. `run`, `words` >= 1."""

    start: int
    run: int
    stride: int
    words: int

    @property
    def intervals(self) -> int:
        """Intervals at most."""
        return 1 if self.stride <= self.run else -(-self.words // self.run)

    @property
    def end(self) -> int:
        """The word behind the last one."""
        whole, left = divmod(self.words - 1, self.run)
        last = whole * self.stride + left + 1
        return self.start + (max(last, (whole - 1) * self.stride + self.run) if whole else last)

    def listed(self) -> tuple[Ends, Ends]:
        """Where the intervals begin and end."""
        return runs(*self)


class Windowed(NamedTuple):
    """The words under some windows in each of `blocks`, which begin at `base` and are `plane` words apart; each is
    `scale` words of the region."""

    base: int
    blocks: int
    scale: int
    windows: _Windows

    @property
    def intervals(self) -> int:
        """Intervals at most."""
        return self.blocks * len(_plane_words(self.windows)[0])

    @property
    def end(self) -> int:
        """The word behind the last one."""
        last = self.base + self.windows.plane * (self.blocks - 1) + int(_plane_words(self.windows)[1][-1])
        return self.scale * last

    def listed(self) -> tuple[Ends, Ends]:
        """Where the intervals begin and end."""
        begins, ends = _plane_words(self.windows)
        firsts = self.base + self.windows.plane * np.arange(self.blocks, dtype=np.int64)[:, None]
        begins, ends = merge((firsts + begins).ravel(), (firsts + ends).ravel())
        return begins * self.scale, ends * self.scale


class _Lists:
    """Lists of intervals, as many as fit into `_CACHE_INTERVALS`."""

    def __init__(self) -> None:
        self._lists: dict[Hashable, tuple[Ends, Ends]] = {}
        self._count = 0

    def of(self, key: Hashable, make: Callable[[], tuple[Ends, Ends]]) -> tuple[Ends, Ends]:
        """Where the intervals of `key` begin and end; `make` lists them the first time."""
        if (lists := self._lists.get(key)) is None:
            lists = make()
            if self._count + len(lists[0]) > _CACHE_INTERVALS:
                self._lists.clear()
                self._count = 0
            self._lists[key] = lists
            self._count += len(lists[0]) + 1
        return lists


_lists = _Lists()


@dataclass(frozen=True)
class Access:
    """Words of one region of one tile: [begins[i], ends[i]) for each i; the intervals ascend and are disjoint."""

    tile: int
    region: int
    walk: Strided | Windowed
    write: bool

    @property
    def begins(self) -> Ends:
        """The first word of each interval."""
        return _lists.of(self.walk, self.walk.listed)[0]

    @property
    def ends(self) -> Ends:
        """The word behind each interval."""
        return _lists.of(self.walk, self.walk.listed)[1]


def region_words(chip: ChipConfig, tile: int, region: int, end: Literal["src", "dst"] | None) -> int:
    """Words of a region that a program may use; 0 = the tile has no such memory for that use.

    `end`: use as the source or destination of a MOVE (None: by a core's own units). Movers read the operand memories A
    and B of a core on chips with `core.operand_sources` only; the results of its vector unit, traces and counters can
    only be read, and those of a host that only boots (`ChipConfig.boot_host`) not even that.
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
            Region.VEC: core.vec_words,
        }
        operands = () if core.operand_sources else (Region.MAIN, Region.B)
        for barred in {"src": operands, "dst": (Region.VEC,), None: ()}[end]:
            del sizes[barred]
        if not core.has_vector:
            sizes.pop(Region.VEC, None)
    elif kind is TileKind.SPM:
        sizes = {Region.MAIN: chip.spm_words}
    elif kind is TileKind.DRAM:
        sizes = {Region.MAIN: chip.dram.words}
    if end == "src" and kind is not None and not (chip.boot_host and tile == chip.host):
        sizes |= {Region.TRACE: chip.trace_records * chip.trace_words, Region.STATS: stats_words(chip)}
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
    """Sorted, disjoint intervals that cover the same words; adjacent ones are merged."""
    if len(begins) < 2:
        return begins, ends
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    fresh = np.concatenate(([True], begins[1:] > ends[:-1]))
    return begins[fresh], np.concatenate((ends[:-1][fresh[1:]], ends[-1:]))


def words_of(begins: Ends, ends: Ends) -> Ends:
    """Every word of some intervals, one interval after the other."""
    sizes = ends - begins
    return np.repeat(ends - np.cumsum(sizes), sizes) + np.arange(int(sizes.sum()))


def move_accesses(fields: Mapping[str, int]) -> tuple[Access, Access]:
    """(source read, destination write) of a MOVE with counts and runs >= 1."""
    both: list[Access] = []
    for end, tile in (("src", fields["src_tile"]), ("dst", fields["dst_tile"])):
        region, offset = split_address(fields[end])
        walk = Strided(offset, fields[f"{end}_run"], fields[f"{end}_stride"], fields["words"])
        both.append(Access(tile, region, walk, end == "dst"))
    return both[0], both[1]


class _Windows(NamedTuple):
    """The windows of an instruction over one channel block, in words of its plane."""

    in_w: int
    plane: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: int
    pad: tuple[int, int]
    out_w: int
    pixels: int
    repeat: int  # outputs, in rows and in columns, that have the same window


def _windows(f: Mapping[str, int], plane: int) -> _Windows:
    kernel, stride = (f["kernel_h"], f["kernel_w"]), (f["stride_h"], f["stride_w"])
    pad, repeat = (f["pad_top"], f["pad_left"]), f.get("repeat", 0) + 1
    return _Windows(f["in_w"], plane, kernel, stride, f["dilation"], pad, f["out_w"], f["pixels"], repeat)


def _plane_words(windows: _Windows) -> tuple[Ends, Ends]:
    """Words of one channel block that the windows touch, relative to the block."""
    return _lists.of(windows, lambda: _touched(windows))


def _touched(windows: _Windows) -> tuple[Ends, Ends]:
    in_w, plane, kernel, stride, dilation, pad, out_w, pixels, repeat = windows
    mask = np.zeros(plane + in_w, bool)
    full, rest = divmod(pixels, out_w)

    def positions(first: int, count: int, taps: int, step: int, padding: int) -> Ends:
        outputs = np.arange(first, first + count, dtype=np.int64)
        words = outputs[:, None] // repeat * step + np.arange(taps, dtype=np.int64) * dilation - padding
        return np.unique(words[words >= 0])

    for first_row, rows, columns in ((0, full, out_w), (full, 1, rest)):
        if not rows or not columns:
            continue
        down = positions(first_row, rows, kernel[0], stride[0], pad[0])
        right = positions(0, columns, kernel[1], stride[1], pad[1])
        down, right = down[down * in_w < plane], right[right < in_w]
        mask[(down[:, None] * in_w + right).ravel()] = True
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return edges[0::2].astype(np.int64), edges[1::2].astype(np.int64)


def _tiles(core: int, region: Region, base: int, blocks: int, windows: _Windows) -> list[Access]:
    """Reads of the words under the windows of each block, blocks a plane apart (ACC: in words of P int32)."""
    if not len(_plane_words(windows)[0]):
        return []
    return [Access(core, region, Windowed(base, blocks, 4 if region is Region.ACC else 1, windows), False)]


def _block(core: int, region: Region, base: int, words: int, write: bool = False) -> Access:
    """Adjacent words (ACC: of P int32)."""
    scale = 4 if region is Region.ACC else 1
    return Access(core, region, Strided(base * scale, words * scale, 0, words * scale), write)


def _numbers(core: int, base: int, blocks: int, by_channel: int) -> Access:
    """Reads of a word of ACC, a number for each channel, for each block: every other word `by_channel`."""
    if not by_channel:
        return _block(core, Region.ACC, base, blocks)
    return Access(core, Region.ACC, Strided(4 * base, 4, 4 * SCALED_BIAS_WORDS, 4 * blocks), False)


def gemm_accesses(core: int, fields: Mapping[str, int], cols: int) -> list[Access]:
    """Everything that a GEMM with shapes >= 1 reads and writes on tile `core`; ACC counted in words of P bytes.

    A: exactly the words under some window (none where the window is in the padding); B: all of its blocks;
    the addend; multipliers `by_channel`; the result.
    """
    f = fields
    accesses = _tiles(core, Region.MAIN, f["a_base"], f["k_blocks"], _windows(f, f["a_plane"]))
    windows = f["k_blocks"] * f["kernel_h"] * f["kernel_w"]
    each = windows // 2 * (cols + 1) if f.get("int4") else windows * cols  # pairs, each behind a word of scales
    accesses.append(_block(core, Region.B, f["b_base"], f["n_blocks"] * each))
    results = f["n_blocks"] * f["pixels"]
    if f["addend"] == Addend.BIAS:
        accesses.append(_numbers(core, f["addend_base"], f["n_blocks"], f.get("by_channel", 0)))
    elif f["addend"] == Addend.PARTIAL:
        accesses.append(_block(core, Region.ACC, f["addend_base"], results))
    if f.get("by_channel") and not f["to_acc"]:
        accesses.append(_numbers(core, f["scale"], f["n_blocks"], f.get("by_channel", 0)))
    accesses.append(_block(core, Region.ACC if f["to_acc"] else Region.OUT, f["dest_base"], results, write=True))
    return accesses


def vec_accesses(core: int, fields: Mapping[str, int], lanes: int) -> list[Access]:
    """Everything that a VEC with shapes >= 1 reads and writes on tile `core`; ACC counted in words of P bytes.

    x: exactly the words under some window; y (filters, table or the second operand); bias and multipliers; the result.
    """
    f, op = fields, fields["op"]
    x = Region.ACC if op == VectorOp.REQUANT else Region.OUT if f["x_out"] else Region.MAIN
    accesses = _tiles(core, x, f["x_base"], f["blocks"], _windows(f, f["x_plane"]))
    results = f["blocks"] * f["pixels"]
    if op == VectorOp.MAC and f["y_walk"] != YWalk.WHOLE:
        accesses.append(_block(core, Region.B, f["y_base"], f["blocks"] * f["kernel_h"] * f["kernel_w"]))
    elif op in (VectorOp.ADD, VectorOp.PAIR):
        second = {int(YWalk.EACH): results, int(YWalk.BLOCK): f["blocks"]}.get(f["y_walk"], f["pixels"])
        accesses.append(_block(core, Region.OUT, f["y_base"], second))
    elif op == VectorOp.TABLE:
        accesses.append(_block(core, Region.B, f["y_base"], TABLE_BYTES // lanes))
    elif op == VectorOp.TRANSPOSE:
        results = f["blocks"] * -(-f["pixels"] // lanes) * lanes
    if f["addend"]:
        accesses.append(_numbers(core, f["addend_base"], f["blocks"], f.get("by_channel", 0)))
    if f.get("by_channel"):
        accesses.append(_numbers(core, f["scale"], f["blocks"], f.get("by_channel", 0)))
    accesses.append(_block(core, Region.VEC, f["dest_base"], results, write=True))
    return accesses
