"""Weights and biases of a layer that goes with another one: where they lie, and how a core gets those of a block of
channels when it first needs them."""

from __future__ import annotations

from collections.abc import Mapping

from meshloom.hw.spec.isa import Region, address

from ..nodes import Node
from ..tiling.tiles import Range
from .placement import Allocator, Stored


def place(
    dram: Allocator, homes: tuple[int, ...], size: tuple[int, int, int], bias_home: int, rows_of_bias: int
) -> dict[str, Stored]:
    """Weights ("w") of `size` (channel blocks, rows, words of a row), in runs of blocks over the tiles `homes`, and
    biases ("bias"), all of them in `bias_home`, `rows_of_bias` words of ACC for each block (`fields.bias_rows`)."""
    planes, rows, width = size
    return {
        "w": Stored(dram, planes, rows, width, [], lambda plane, _: homes[plane * len(homes) // planes]),
        "bias": Stored(dram, 1, planes, 4 * rows_of_bias, [], lambda _plane, _at: bias_home),
    }


class BlockConstants:
    """Makes the MOVEs that bring a core the constants of channel blocks, once each: weights to word `b_base` of B and
    the following, biases to row `bias_base` of ACC and the following."""

    def __init__(self, stored: Mapping[str, Stored], core: int, b_base: int, bias_base: int, label: str) -> None:
        self._stored, self._core, self._b_base, self._bias_base = stored, core, b_base, bias_base
        self._label = label
        self._brought: dict[int, list[Node]] = {}  # by channel block

    def bring(self, planes: Range) -> tuple[list[Node], list[Node]]:
        """The MOVEs for the blocks `planes` that are new, and all that who reads their constants waits for."""
        new: list[Node] = []
        missing = [plane for plane in range(*planes) if plane not in self._brought]
        if missing:
            low, high = missing[0], missing[-1] + 1
            w, bias = self._stored["w"], self._stored["bias"]
            w_at = address(Region.B, self._b_base + low * w.rows * w.width)
            bias_at = address(Region.ACC, 4 * self._bias_base + low * bias.width)
            transfers = [
                *w.transfers((low, high), (0, w.rows, 1), (0, w.width), self._core, w_at),
                *bias.transfers((0, 1), (low, high, 1), (0, bias.width), self._core, bias_at),
            ]
            new = [t.load(self._core, f"{self._label} w b{low}") for t in transfers]
            self._brought |= dict.fromkeys(range(low, high), new)
        return list(new), [node for plane in range(*planes) for node in self._brought[plane]]
