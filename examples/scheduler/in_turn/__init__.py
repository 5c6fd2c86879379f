"""A scheduler: output tiles go to the cores in turn, and every core has two of everything, so that it can load one tile
while it computes another."""

from __future__ import annotations

from pydantic import Field

from meshloom.sched.mapping.emit.task import LayerTask, ranges
from meshloom.sched.schedulers.interface import Options


class TurnOptions(Options):
    """What can be said behind the scheduler's name: `in_turn:rows=4`."""

    rows: int = Field(default=0, ge=0, description="output rows of a tile at most; 0: as many as fit")


def schedule(task: LayerTask, options: TurnOptions) -> None:
    """Output tiles in turn over the cores, weights block by block."""
    rows, columns, blocks, depth = sizes(task, options.rows or task.rows)
    tiles, n_ranges, k_ranges = task.tiles(rows, columns), ranges(task.n_blocks, blocks), ranges(task.k_blocks, depth)
    size = task.chip.core
    stores = {core: [] for core in task.cores}  # what has been computed and not been stored yet
    steps = dict.fromkeys(task.cores, 0)
    visits = [(tile, n) for tile in tiles for n in n_ranges]
    for number, (tile, n) in enumerate(visits):
        core = task.cores[number % len(task.cores)]
        half = number // len(task.cores) % 2  # which half of OUT and of the biases
        bias = half * blocks
        out, sums = half * (size.out_words // 2), 2 * blocks
        task.load_bias(core, n, bias)
        for k in k_ranges:
            turn = steps[core] % 2  # which half of A and B
            steps[core] += 1
            a, b = turn * (size.a_words // 2), turn * (size.b_words // 2)
            task.load_weights(core, n, k, b)
            task.load_input(core, tile, k, a)
            task.gemm(core, tile, n, k, a=a, b=b, bias=bias, sums=sums, out=out)
        # A core's moves go in order: stored now, this tile would keep the next one's loads waiting for its GEMMs.
        for done in stores[core]:
            task.store(core, *done)
        stores[core] = [(tile, n, out)]
    for core, left in stores.items():
        for done in left:
            task.store(core, *done)


def sizes(task: LayerTask, rows: int) -> tuple[int, int, int, int]:
    """Rows, columns, output blocks and input blocks of the largest tiles of which two fit a core."""
    size, rows = task.chip.core, min(rows, task.rows)
    columns, blocks, depth = task.columns, 1, task.k_blocks
    while True:
        n, k = (0, blocks), (0, depth)
        tiles = task.tiles(rows, columns)
        results = max(task.result_words(tile, n) for tile in tiles)
        if 2 * task.weight_words(n, k) > size.b_words and depth > 1:
            depth = -(-depth // 2)
        elif (
            2 * results > size.out_words
            or 2 * blocks + results > size.acc_words
            or 2 * max(task.input_words(tile, k) for tile in tiles) > size.a_words
            or not all(task.fits_gemm(tile, n, k) for tile in tiles)
        ) and rows * columns > 1:
            rows, columns = (-(-rows // 2), columns) if rows > 1 else (rows, -(-columns // 2))
        else:
            return rows, columns, blocks, depth
