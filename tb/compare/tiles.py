"""What the operations of a schedule compute tile by tile, and which words they move where how often.

Words are followed by value from DRAM through every MOVE, so all of this holds for any scheduler. Three numbers say
which tile a GEMM is of: its output pixels (p), its output channels (n) and its part of the sums (k).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.isa import Addend, Region
from meshloom.sched.ir.functional import offsets
from meshloom.sched.ir.schedule import Access, Gemm, Move, Operation, Schedule, memory_words, reads, span_access, writes
from meshloom.sched.schedulers.network.scheduler import layer_of
from meshloom.sched.workload.layout import WeightLayout

from ..results.nests import Flow, GemmTile, LayerTiles
from .nests import nest_of

_Words = NDArray[np.int64]
#: A memory: tile and region.
_Memory = tuple[int, Region]


@dataclass
class _Open:
    """A GEMM of which the tile is not numbered yet. `chain`: GEMMs of one chain add up to the same sums."""

    core: int
    chain: int
    inputs: tuple[object, ...]
    weights: tuple[object, ...]
    part: tuple[int, int] | None
    sizes: tuple[int, int, int]
    fresh: tuple[int, int]


def layers_of(schedule: Schedule, chip: ChipConfig) -> dict[str, LayerTiles]:
    """The layers of a schedule, in the order of their first operation: as its labels name them, otherwise all is one
    layer, called as the workload."""
    layers = _Follower(schedule, chip).result()
    if len(layers) == 1:
        (only,) = layers.values()
        return {schedule.workload: only}
    return layers


class _Follower:
    def __init__(self, schedule: Schedule, chip: ChipConfig) -> None:
        self.schedule, self.chip = schedule, chip
        self.values: dict[_Memory, _Words] = {}
        self.brought: dict[_Memory, _Words] = {}  # by which operation each word was written; -1: it was there
        self.unread: dict[_Memory, NDArray[np.bool_]] = {}
        self.sums: dict[int, _Words] = {}  # by core: the chain of each word of ACC
        self.next_value = self.next_chain = 0
        self.weights: list[tuple[int, int, WeightLayout]] = []  # first value, words, layout
        self.open: defaultdict[str, list[_Open]] = defaultdict(list)
        self.tiles: dict[str, LayerTiles] = {}
        self.arrivals: dict[int, tuple[Flow, int, int]] = {}  # by MOVE: its flow, words, and when it ended
        self.last_read: dict[int, int] = {}
        for tensor in schedule.tensors:
            numbers = self._new(tensor.words)
            for piece in tensor.pieces:
                part = numbers[piece.first : piece.first + piece.words]
                self._of(piece.tile, Region.MAIN)[piece.address : piece.address + piece.words] = part
            if isinstance(tensor.layout, WeightLayout):
                self.weights.append((int(numbers[0]), tensor.words, tensor.layout))

    def result(self) -> dict[str, LayerTiles]:
        for index, op in enumerate(self.schedule.operations):
            name = layer_of(op.label) or self.schedule.workload
            layer = self.tiles.setdefault(name, LayerTiles())
            self._time(layer, index)
            fresh = self._read(index, reads(op, self.chip))
            match op:
                case Move():
                    self._move(index, op, layer)
                case Gemm():
                    self.open[name].append(self._gemm(op, fresh))
                    self._write(index, op)
                case _:
                    layer.vectors += 1
                    self._write(index, op)
        for index, (flow, words, arrived) in self.arrivals.items():
            if (end := self.last_read.get(index)) is not None:
                flow.stays, flow.stayed = flow.stays + max(0, end - arrived) * words, flow.stayed + words
        for name, those in self.open.items():
            gemms = _numbered(those)
            self.tiles[name].gemms, self.tiles[name].nest = gemms, nest_of(gemms)
        return self.tiles

    # -- words ------------------------------------------------------------------------------------------------------

    def _new(self, count: int) -> _Words:
        self.next_value += count
        return np.arange(self.next_value - count, self.next_value)

    def _of(self, tile: int, region: Region) -> _Words:
        key = tile, region
        if key not in self.values:
            size = memory_words(self.chip, tile, region)
            self.values[key] = np.full(size, -1, np.int64)
            self.brought[key] = np.full(size, -1, np.int64)
            self.unread[key] = np.zeros(size, np.bool_)
        return self.values[key]

    def _read(self, index: int, accesses: list[Access]) -> dict[Region, int]:
        """Notes that an operation reads words; how many of each region nobody has read before."""
        fresh: dict[Region, int] = {}
        end = self._end(index)
        for tile, region, spans in accesses:
            self._of(tile, region)
            for start, stop in spans:
                unread = self.unread[tile, region][start:stop]
                fresh[region] = fresh.get(region, 0) + int(unread.sum())
                unread[:] = False
                for by in np.unique(self.brought[tile, region][start:stop]).tolist():
                    self.last_read[by] = max(self.last_read.get(by, 0), end)
        return fresh

    def _write(self, index: int, op: Operation) -> None:
        for tile, region, spans in writes(op, self.chip):
            memory = self._of(tile, region)
            for start, stop in spans:
                memory[start:stop] = self._new(stop - start)
                self.brought[tile, region][start:stop] = index
                self.unread[tile, region][start:stop] = True

    def _move(self, index: int, op: Move, layer: LayerTiles) -> None:
        source, target = span_access(op.src, op.words), span_access(op.dst, op.words)
        values, at = self._of(source.tile, source.region)[offsets(op.src, op.words)], offsets(op.dst, op.words)
        for tile in op.receivers(self.chip):
            self._of(tile, target.region)
            key = tile, target.region
            self.values[key][at], self.brought[key][at], self.unread[key][at] = values, index, True
        flow = layer.flows.setdefault((self._name(source), self._name(target)), Flow())
        flow.moved += op.words
        flow.values.update(values[values >= 0].tolist())
        if self._timed:
            self.arrivals[index] = flow, op.words, self._end(index)

    def _name(self, access: Access) -> str:
        kind = self.chip.tiles[access.tile]
        if kind is not TileKind.CORE:
            return kind.value.upper()
        return "A" if access.region is Region.MAIN else access.region.name

    # -- times ------------------------------------------------------------------------------------------------------

    @property
    def _timed(self) -> bool:
        predicted = self.schedule.predicted
        return predicted is not None and len(predicted.end) == len(self.schedule.operations)

    def _end(self, index: int) -> int:
        predicted = self.schedule.predicted
        return predicted.end[index] if predicted is not None and self._timed else 0

    def _time(self, layer: LayerTiles, index: int) -> None:
        predicted = self.schedule.predicted
        if predicted is not None and self._timed:
            start, end = layer.cycles or (predicted.start[index], 0)
            layer.cycles = min(start, predicted.start[index]), max(end, predicted.end[index])

    # -- tiles ------------------------------------------------------------------------------------------------------

    def _gemm(self, op: Gemm, fresh: Mapping[Region, int]) -> _Open:
        inputs, weights = (
            np.concatenate([self._of(tile, region)[start:stop] for start, stop in spans])
            for tile, region, spans in reads(op, self.chip)[:2]
        )
        rows = op["n_blocks"] * op["pixels"]
        sums = self.sums.setdefault(op.core, np.full(self.chip.core.acc_words, -1, np.int64))
        if op["addend"] == Addend.PARTIAL:
            chain = int(sums[op["addend_base"]])
        else:
            chain, self.next_chain = self.next_chain, self.next_chain + 1
        if op["to_acc"]:
            sums[op["dest_base"] : op["dest_base"] + rows] = chain
        window = tuple(op[name] for name in ("pixels", "out_w", "pad_top", "pad_left"))
        place = self._weights(int(weights[0]))
        return _Open(
            op.core,
            chain,
            (inputs.tobytes(), window),
            ("w", place[0]) if place else ("b", weights.tobytes()),
            place[1] if place else None,
            (op["pixels"], op["n_blocks"] * self.chip.cols, op.taps * self.chip.lanes),
            (fresh.get(Region.MAIN, 0), fresh.get(Region.B, 0)),
        )

    def _weights(self, value: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Of a word of weights its tensor and block of output channels, and its block and tap of the sums."""
        for first, words, layout in self.weights:
            if first <= value < first + words:
                block, rest = divmod(value - first, words // layout.n_blocks)
                return (first, block), divmod(rest, words // layout.n_blocks // layout.k_blocks)
        return None


def _numbered(gemms: list[_Open]) -> list[GemmTile]:
    """The GEMMs of a layer with their tiles numbered in the order in which they come first. The tile of a chain is
    that of its first part of the sums."""
    chains: defaultdict[int, list[_Open]] = defaultdict(list)
    for each in gemms:
        chains[each.chain].append(each)
    numbers: tuple[dict[object, int], ...] = ({}, {}, {})
    tiles: dict[int, GemmTile] = {}
    for each in gemms:
        chain = chains[each.chain]
        first = min(chain, key=lambda one: one.part or (0, 0))
        keys = (first.inputs, first.weights, each.part or chain.index(each))
        p, n, k = (known.setdefault(key, len(known)) for known, key in zip(numbers, keys, strict=True))
        tiles[id(each)] = GemmTile(each.core, p, n, k, *each.sizes, each.fresh)
    return [tiles[id(each)] for each in gemms]
