"""TEMPLATE: a scheduler of Meshloom. It runs as it stands:

    meshloom run gemm:64x64x64 resnet8/conv2_1_1 --chip quad8 --scheduler ./TEMPLATE.py:schedule
    meshloom run resnet8/conv2_1_1 --chip quad8 --scheduler ./TEMPLATE.py:schedule --scheduler loop_order
    meshloom schedule resnet8/conv2_1_1 --chip quad8 --scheduler ./TEMPLATE.py:schedule:rows=2 --loops
    meshloom explain latest

The order in which operations are added defines what they mean. On the chip, those that do not depend on each other run
at the same time; who waits for whom follows from the words that they read and write. docs/tutorial.md has all of it.
"""

from __future__ import annotations

from pydantic import Field

from meshloom import LayerTask
from meshloom.sched.mapping.emit.task import ranges
from meshloom.sched.schedulers.interface import Options


class SchedulerOptions(Options):
    """What may stand behind the name: `./TEMPLATE.py:schedule:rows=4`; `meshloom schedulers` lists it. Without options,
    leave out this class and the second parameter of `schedule`."""

    rows: int = Field(default=0, ge=0, description="output rows of a tile at most; 0: as many as fit")


def schedule(task: LayerTask, options: SchedulerOptions) -> None:
    """Output tiles in turn over the cores, one at a time in each."""
    rows, columns, blocks, depth = sizes(task, options.rows or task.rows)
    # Ranges are (first, end): n counts blocks of output channels, k blocks of input channels.
    n_ranges, k_ranges = ranges(task.n_blocks, blocks), ranges(task.k_blocks, depth)
    visits = [(tile, n) for tile in task.tiles(rows, columns) for n in n_ranges]
    for number, (tile, n) in enumerate(visits):
        core = task.cores[number % len(task.cores)]
        task.load_bias(core, n, at=0)
        for k in k_ranges:
            # Addresses are words of the core's memories: a in A (inputs), b in B (weights), bias and sums in ACC, out
            # in OUT. With two halves in turn, as examples/scheduler/in_turn has them, a core loads while it computes.
            task.load_weights(core, n, k, at=0)
            task.load_input(core, tile, k, at=0)
            task.gemm(core, tile, n, k, a=0, b=0, bias=0, sums=2 * blocks, out=0)
        task.store(core, tile, n, at=0)


def sizes(task: LayerTask, rows: int) -> tuple[int, int, int, int]:
    """Rows, columns, blocks of output channels and blocks of input channels of the largest tile that fits a core."""
    core, columns, blocks, depth = task.chip.core, task.columns, 1, task.k_blocks
    while True:
        n, k = (0, blocks), (0, depth)
        tiles = task.tiles(rows, columns)
        results = max(task.result_words(tile, n) for tile in tiles)
        too_large = (
            max(task.input_words(tile, k) for tile in tiles) > core.a_words
            or results > core.out_words
            or 2 * blocks + results > core.acc_words
            or not all(task.fits_gemm(tile, n, k) for tile in tiles)
        )
        if task.weight_words(n, k) > core.b_words and depth > 1:
            depth = -(-depth // 2)
        elif too_large and rows > 1:
            rows = -(-rows // 2)
        elif too_large and columns > 1:
            columns = -(-columns // 2)
        else:
            return rows, columns, blocks, depth
