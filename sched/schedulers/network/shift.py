"""Where in the memories of the cores each layer works.

Every layer is planned as if the memories were its own, from word 0 up. Layers that follow each other use opposite ends,
so that tiles of the next one can be fetched while the last tiles of this one are in use.
"""

from __future__ import annotations

from collections.abc import Iterable

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig, TileKind
from meshloom.hw.spec.isa import TWO_OPERANDS, Region, VectorOp, YWalk

from ...ir.schedule import memory_words
from ...mapping.nodes import Node, Run

_OFFSET = (1 << OFFSET_BITS) - 1
_LOCAL = (Region.MAIN, Region.B, Region.ACC, Region.OUT, Region.VEC)


class Shifter:
    """Moves layers to free ends, one after the other."""

    def __init__(self, chip: ChipConfig) -> None:
        self.chip = chip
        core = chip.cores[0]
        self.size: dict[Region, int] = {region: memory_words(chip, core, region) for region in _LOCAL}
        self.last: dict[Region, tuple[int, int]] = dict.fromkeys(_LOCAL, (0, 0))  # words that the layer before used

    def ends(self, nodes: Iterable[Node]) -> dict[Region, int]:
        """By memory, the words that the operations of the next layer move up by."""
        by: dict[Region, int] = {}
        for region, words in self._used(nodes).items():
            room = self.size[region] - words
            ends = [(0, words), (room, room + words)]
            if region is Region.ACC:  # operations count words of four
                ends[1] = (room // 4 * 4, room // 4 * 4 + words)
            ends.sort(key=lambda end: max(0, min(end[1], self.last[region][1]) - max(end[0], self.last[region][0])))
            self.last[region] = ends[0]
            by[region] = ends[0][0]
        return by

    def moved(self, node: Node, by: dict[Region, int], label: str) -> Node:
        """An operation of that layer in its place, under this label; it waits for nothing."""
        fields, source, target = node.fields, node.source, node.target
        if fields is None:
            source, target = self._run(source, by), self._run(target, by)
        else:
            fields = _fields(fields, node.vec, by)
        return Node(
            node.issuer, [], label, source, target, node.words, fields, node.cycles, node.vec, node.result, node.site
        )

    def _run(self, run: Run, by: dict[Region, int]) -> Run:
        if self.chip.tiles[run.tile] is not TileKind.CORE:
            return run
        return run.moved(by.get(Region(run.address >> OFFSET_BITS), 0))

    def _used(self, nodes: Iterable[Node]) -> dict[Region, int]:
        """Words of each memory, counted from 0, that a layer uses in some core."""
        used: dict[Region, int] = {}

        def use(region: Region, end: int) -> None:
            used[region] = max(used.get(region, 0), end)

        for node in nodes:
            if node.fields is None:
                for run in (node.source, node.target):
                    if self.chip.tiles[run.tile] is TileKind.CORE:
                        runs = -(-node.words // run.run)
                        end = (runs - 1) * run.stride + min(run.run, node.words) + (run.address & _OFFSET)
                        use(Region(run.address >> OFFSET_BITS), end)
            elif not node.vec:
                rows = node.fields["n_blocks"] * node.fields["pixels"]
                end = node.fields["dest_base"] + rows
                use(*((Region.ACC, 4 * end) if node.fields["to_acc"] else (Region.OUT, end)))
            else:
                pixels = node.fields["pixels"]
                if node.fields["op"] == VectorOp.TRANSPOSE:
                    pixels = -(-pixels // self.chip.lanes) * self.chip.lanes
                use(Region.VEC, node.fields["dest_base"] + node.fields["blocks"] * pixels)
        return used


def _fields(fields: dict[str, int], vec: bool, by: dict[Region, int]) -> dict[str, int]:
    acc = by.get(Region.ACC, 0) // 4
    moved = dict(fields)
    if fields.get("by_channel") and "scale" in fields:
        moved["scale"] += acc  # where multipliers lie
    if not vec:
        moved["a_base"] += by.get(Region.MAIN, 0)
        moved["b_base"] += by.get(Region.B, 0)
        moved["addend_base"] = moved.get("addend_base", 0) + acc
        moved["dest_base"] += acc if fields["to_acc"] else by.get(Region.OUT, 0)
        return moved
    moved["x_base"] += by.get(Region.OUT if fields.get("x_out") else Region.MAIN, 0)
    moved["dest_base"] += by.get(Region.VEC, 0)
    if fields.get("y_walk") == YWalk.WHOLE:
        return moved
    if fields["op"] == VectorOp.MAC:
        moved["y_base"] += by.get(Region.B, 0)
        moved["addend_base"] += acc
    elif fields["op"] == VectorOp.TABLE:
        moved["y_base"] += by.get(Region.B, 0)
    elif fields["op"] in TWO_OPERANDS:
        moved["y_base"] += by.get(Region.OUT, 0)
    return moved
