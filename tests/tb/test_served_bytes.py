"""What of a served network's tensors is compared: all bytes but those without a channel that may be anything."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from meshloom.sched.ir import functional
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.templates.schemes import schemes
from meshloom.sched.workload.graph import Value
from meshloom.sched.workload.stages import unclean
from meshloom.tb.runs.online import executor

from ..sched.lowering.test_serving_templates import inputs_of
from ..sched.network_graphs import Grower
from .served_chip import CHIP


class _NumpyDram:
    """DRAM as a session reads it, in NumPy."""

    def __init__(self, memories: functional.Memories) -> None:
        self.chip, self.memories = CHIP, memories

    def dump(self, ranges: Sequence[tuple[int, int, int]]) -> list[NDArray[np.uint8]]:
        return [self.memories.region(tile, 0)[at : at + words].copy() for tile, at, words in ranges]


@pytest.mark.parametrize("batch", [1, 2])
def test_lanes_without_a_channel_count_where_they_must_be_zero(batch: int) -> None:
    """Three channels in words of more lanes: a table makes 64 of 0 everywhere, and a convolution zeros of that."""
    grower = Grower(5, Value("x", 3, 4, 4))
    grower.conv("plain", "x", 3)
    grower.table("shifted", "plain", (np.arange(-128, 128) // 2 + 64).astype(np.int8))
    grower.conv("last", "shifted", 5)
    graph = grower.graph("shifted", "last")
    assert unclean(graph) == {"shifted"}
    assert CHIP.lanes > 5
    net, memories, inputs = ServedNetwork(graph, CHIP, batch), functional.Memories(CHIP), inputs_of(graph, batch)
    for name, array in net.arrays(inputs).items():
        memories.write_tensor(net.tensors[name], array)
    for index, shape in enumerate(net.shapes):
        functional.execute(net.schedule(index, next(iter(schemes(shape, 1))), CHIP.cores[:1]).operations, memories)
    images = [{name: array[i : i + 1] for name, array in inputs.items()} for i in range(batch)]

    def outcome() -> executor.Outcome:
        compilation = cast("Any", SimpleNamespace(served=net))
        return executor._compare(compilation, images, 0, cast("Any", _NumpyDram(memories)))

    pixels, tensors = 16 * batch, {tensor.name: tensor for tensor in net.results()}
    right = outcome()
    assert (right.wrong, right.first) == (0, "")
    assert right.checked == pixels * (CHIP.lanes + 3 + CHIP.lanes), "three bytes of a word of `shifted`"
    for tensor, lane, wrong in (("plain", 3, 1), ("plain", 2, 1), ("shifted", 3, 0), ("shifted", 2, 1), ("last", 5, 1)):
        piece = tensors[tensor].pieces[0]
        words = memories.region(piece.tile, 0)
        words[piece.address & executor._OFFSET, lane] ^= 1
        result = outcome()
        words[piece.address & executor._OFFSET, lane] ^= 1
        assert result.wrong == wrong, (tensor, lane)
        assert not wrong or result.first.startswith(f"tensor {tensor}, word 0, lane {lane}: ")
