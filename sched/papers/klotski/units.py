"""The instructions of a micro-op, once its operands and its result have their places: GEMMs of the array, or VECs.

A micro-op is done in pieces of some planes of its result, so that results leave and weights come meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS, Addend, Opcode, VectorOp
from meshloom.hw.spec.timing import GemmShape, VecShape, gemm_occupancy, vec_occupancy

from ...ir import bodies
from ...ir.bodies import GemmWindow
from ...ir.schedule import Box
from ...mapping.emit.fields import vector_fields, vector_window
from ...mapping.nodes import Node
from ...mapping.tiling.problem import MAX_N_BLOCKS
from ...workload.layers import NO_CLAMP
from .homes import Homes
from .muops import MuGraph, MuOp, Region
from .views import View

#: Cycles of a piece at least.
PIECE_CYCLES = 600
_OFFSET = (1 << OFFSET_BITS) - 1
_MOST_VEC_BLOCKS = INSTRUCTIONS[Opcode.VEC].most("blocks")

#: First and end of the planes of a piece, counted from the first of its micro-op, and its operation.
Piece = tuple[int, int, Node]


class Units:
    """Makes instructions. Addresses of operands are those of `views`, `constants` first words of weights ("w") in B
    and of biases ("bias") in ACC."""

    def __init__(self, graph: MuGraph, homes: Homes, chip: ChipConfig) -> None:
        self.graph, self.homes, self.chip = graph, homes, chip
        self.works = homes.works

    def label(self, op: MuOp, what: str) -> str:
        """Of an operation that a micro-op needs."""
        return f"{self.works[op.stage].stage.layer.output}: {what}"

    def gemms(self, op: MuOp, x: View, before: View | None, constants: Mapping[str, int], view: View) -> list[Piece]:
        """Of a micro-op of the array. `before`: the sums that it goes on with; `view`: its result, or its sums."""
        work, chip = self.works[op.stage], self.chip
        problem, layer = work.problem, work.stage.layer
        base, result = view.address & _OFFSET, op.result
        top, left = problem.input_rows(*result.rows)[2], problem.input_columns(*result.columns)[2]
        pixels = (result.rows[1] - result.rows[0]) * (result.columns[1] - result.columns[0])
        deep = op.channels[1] - op.channels[0]
        taps = deep * problem.taps
        fields: GemmWindow = {
            "a_base": x.address & _OFFSET, "a_plane": x.plane, "in_w": x.row, "k_blocks": deep,
            "kernel_h": problem.kernel_h, "kernel_w": problem.kernel_w, "stride_h": problem.stride_h,
            "stride_w": problem.stride_w, "dilation": problem.dilation, "pad_top": top, "pad_left": left,
            "out_w": result.columns[1] - result.columns[0], "pixels": pixels,
        }  # fmt: skip
        pieces: list[Piece] = []
        for low, high in _cut(op, MAX_N_BLOCKS):
            addend = constants["bias"] + low if before is None else (before.address & _OFFSET) // 4 + low * pixels
            fields |= {"b_base": constants["w"] + low * taps * problem.cols, "n_blocks": high - low}
            body = bodies.gemm(
                **fields,
                addend=Addend.BIAS if before is None else Addend.PARTIAL,
                addend_base=addend,
                to_acc=int(not op.last),
                dest_base=(base if op.last else base // 4) + low * pixels,
                scale=layer.scale,
                relu=int(layer.relu),
                clamp=layer.clamp,
            )
            shape = GemmShape(pixels, high - low, deep, problem.kernel_h, problem.kernel_w)
            node = Node(
                view.tile, [], self.label(op, f"{named(result)} k{op.channels[0]} n{low}"), fields=body,
                cycles=gemm_occupancy(chip, shape), result=self._box(op, low, high) if op.last else None,
            )  # fmt: skip
            pieces.append((low, high, node))
        return pieces

    def vecs(self, op: MuOp, operands: Sequence[View], constants: Mapping[str, int], view: View) -> list[Piece]:
        """Of a micro-op of the vector unit."""
        work, chip = self.works[op.stage], self.chip
        layer, result = work.stage.layer, op.result
        kind, x = cast(VectorOp, work.op), operands[0]
        fields = bodies.vec(
            **vector_fields(vector_window(layer), extent(result), extent(x.part), 1),
            op=kind,
            relu=int(layer.relu),
            clamp=layer.clamp if layer.kind != "slice" else NO_CLAMP,
        )
        if kind in (VectorOp.MAC, VectorOp.SUM):
            fields["scale"] = layer.scale
        pixels, taps = fields["pixels"], work.problem.taps
        pieces: list[Piece] = []
        for low, high in _cut(op, _MOST_VEC_BLOCKS):
            mine = fields | {
                "blocks": high - low, "x_base": (x.address & _OFFSET) + low * x.plane,
                "dest_base": (view.address & _OFFSET) + low * pixels,
            }  # fmt: skip
            if kind is VectorOp.ADD:
                mine["y_base"] = (operands[1].address & _OFFSET) + low * pixels
            if kind is VectorOp.MAC:
                mine |= {
                    "y_base": constants["w"] + low * taps, "addend": 1, "addend_base": constants["bias"] + low,
                }  # fmt: skip
            node = Node(
                view.tile, [], self.label(op, f"{layer.kind} {named(result)} n{low}"), fields=mine,
                cycles=vec_occupancy(chip, VecShape.of(mine)), vec=True, result=self._box(op, low, high),
            )  # fmt: skip
            pieces.append((low, high, node))
        return pieces

    def _box(self, op: MuOp, low: int, high: int) -> Box | None:
        """What a piece makes, if the network has a name for it (copies are not compared)."""
        name, (rows, columns) = self.homes.result(op), extent(op.result)
        if name not in self.graph.stages.graph.values:
            return None
        return Box(
            tensor=name, plane=op.result.planes[0] + low, planes=high - low, row=rows[0], rows=rows[1] - rows[0],
            column=columns[0], columns=columns[1] - columns[0],
        )  # fmt: skip


def _cut(op: MuOp, most: int) -> Iterator[tuple[int, int]]:
    """First and end of the planes, from 0 on, of each piece of a micro-op; at most `most` of them."""
    planes = op.result.planes[1] - op.result.planes[0]
    deep = min(most, max(1, -(-PIECE_CYCLES * planes // max(1, op.cycles))))
    for low in range(0, planes, deep):
        yield low, min(planes, low + deep)


def extent(part: Region) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns of a region."""
    return part.rows, part.columns


def named(part: Region) -> str:
    """A region in labels, by its first plane, row and column."""
    return f"c{part.planes[0]} y{part.rows[0]} x{part.columns[0]}"
