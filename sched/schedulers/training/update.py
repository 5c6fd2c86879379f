"""The update on the chip: sums of dW go from core to core, the last one makes W' of them.

W' = sat8(W - sat8(RNE(sums * m / 2^17))). Every core has products of its own images for all of dW. The array adds one
addend to a product, so sums are not added up but handed on: a piece of dW (some channels of X; of a fully connected
layer some blocks) starts in one core, each adds its products to what the one before has left, and the last has it
rounded on the way to OUT, from where W becomes less by it. Pieces start in different cores, so that all have work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshloom.hw.spec.isa import Addend, Pair

from ...ir.bodies import GemmFields
from ...mapping.tiling.problem import MAX_IN_WIDTH
from ...mapping.tiling.tiles import Range, even
from .backward import Backward, pair_of
from .core import Place, check
from .pair import cut

#: Pieces of a layer's dW for each core.
PIECES = 4


@dataclass(frozen=True)
class _Piece:
    """Rows of dW: some channels `k` of X, or blocks of a fully connected layer. `run`, `stride`, `first`: where they
    lie among the rows of the layer (`Geometry.sums`)."""

    k: Range
    rows: int
    run: int
    stride: int
    first: int


def _pieces(of: Backward, cores: int) -> Iterator[_Piece]:
    """A few for each core, if there are so many channels: who waits for small pieces waits for less."""
    layer = of.layer
    count = layer.kb if layer.flat else layer.layer.shape.in_channels
    for k in even(0, count, min(PIECES * cores, count)):
        some = k[1] - k[0]
        if layer.flat:
            run = some * layer.cols
            yield _Piece(k, layer.nb * run, run, layer.kb * layer.cols, k[0] * layer.cols)
        else:
            rows = layer.nb * layer.taps
            yield _Piece(k, some * rows, some * rows, some * rows, k[0] * rows)


def updates(gradients: Sequence[Sequence[Backward]], places: Mapping[str, Place]) -> None:
    """Emits all updates. `gradients`: the gradients of each core, layer by layer, whose dX are emitted; `places`: in
    DRAM, for each layer by name of W in the rows of dW, `v:`, and of W', `w':`. Raises DoesNotFit."""
    for of in zip(*gradients, strict=True):
        for number, piece in enumerate(_pieces(of[0], len(of))):
            begin = number % len(of)
            _update(piece, [*of[begin:], *of[:begin]], places)
        for one in of:
            one.let_go()


def _update(piece: _Piece, of: Sequence[Backward], places: Mapping[str, Place]) -> None:
    """A piece, through the cores in turn."""
    name = of[0].name
    label = f"{name} dw k{piece.k[0]}"
    check(label, "rows", piece.rows, "in_w", MAX_IN_WIDTH)
    before: tuple[Backward, int] | None = None
    out = 0
    for one in of:
        core = one.core
        sums = core.acc.take(piece.rows)
        if before is not None:
            other, there = before
            other.core.move(f"{label} on", other.core.in_acc(there), core.in_acc(sums), 4 * piece.rows)
            other.core.acc.free(there)
        ranges = cut(core.images, core.chip.lanes)
        for m in ranges:
            last = one is of[-1] and m is ranges[-1]
            fresh = before is None and m is ranges[0]
            if last:
                out = core.out.once(piece.rows)
            for fields, row in one.products(piece.k, m):
                own: GemmFields = {
                    "addend": Addend.NONE if fresh else Addend.PARTIAL, "addend_base": 0 if fresh else sums + row,
                    "dest_base": (out if last else sums) + row,
                }  # fmt: skip
                core.product(f"{label} m{m[0]}", fields | own, f"dw:{name}" if last else "")
        before = one, sums
    assert before is not None
    core, rows = before[0].core, piece.rows
    core.acc.free(before[1])
    held, vec = core.a.once(rows), core.vec.once(rows)
    runs = piece.run, piece.stride
    core.move(f"{label} w", _behind(places[f"v:{name}"], piece.first), core.in_a(held), rows, source_runs=runs)
    pair_of(core, f"{label} update", Pair.SUBTRACT, (held, out, vec), (rows, rows, 1))
    core.move(f"{label} w'", core.in_vec(vec), _behind(places[f"w':{name}"], piece.first), rows, target_runs=runs)


def _behind(place: Place, words: int) -> Place:
    return place[0], place[1] + words
