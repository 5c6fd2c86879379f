"""Random programs of a given size and load, the same for the same seed: for measuring speed, and for tests."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from meshloom.hw.spec.config import tile_address

from ...routing.mesh import Mesh
from ...routing.program import Page, Program, Task


def random_program(  # what is random about it has a name each
    side: int,
    moves: int,
    *,
    load: float = 0.6,
    flits: int = 17,
    inputs: int = 4,
    reuse: float = 0.3,
    room: int = 12,
    results: bool = True,
    seed: int = 0,
) -> Program:
    """About `moves` page moves on a `side` x `side` mesh: tiles of the first column hold pages, all others compute.

    Each task reads `inputs` pages, a share `reuse` of them such as other tasks read lately, and makes one that is
    delivered to memory; some tasks read what others have made. Without `results` there are none of these, pages are
    read once, and tiles have room for all: what `yardstick.compare` wants. Tasks are planned back to back and as long
    as makes the busiest ports carry a flit in a share `load` of all cycles. A tile has room for `room` pages.
    """
    random = Random(f"{side} {moves} {seed}")
    stores = tuple(tile_address(0, y) for y in range(side))
    cores = tuple(tile_address(x, y) for y in range(side) for x in range(1, side))
    mesh = Mesh(side, side, {(tile, 0): room for tile in cores} if results else {}, gap=1)
    reuse = reuse if results else 0
    count = max(1, round(moves / (inputs + results)))
    # A round of tasks injects inputs and ejects results at the stores; its tiles eject inputs and inject a result.
    at_stores = len(cores) * max(inputs * (1 - reuse / 2), 1) / len(stores)
    cycles = round(max(at_stores, inputs) * (flits + mesh.gap) / load)
    pages: list[Page] = []
    tasks: list[Task] = []
    lately: list[int] = []
    earlier: list[int] = []
    for number in range(count):
        turn, place = divmod(number, len(cores))
        start = 200 + turn * cycles + random.randrange(cycles // 4 + 1)
        reads: list[int] = []
        for _ in range(inputs):
            kind = random.random()
            if kind < reuse and lately:
                reads.append(random.choice(lately))
            elif kind < reuse + 0.1 and earlier:
                reads.append(random.choice(earlier))
            else:
                pages.append(Page(f"page {len(pages)}", flits, (random.choice(stores),)))
                reads.append(len(pages) - 1)
        lately = (lately + reads)[-2 * len(cores) :]
        work, data = cycles - cycles // 4, tuple(dict.fromkeys(reads))
        if not results:
            tasks.append(Task(f"task {number}", cores[place], work, data, start=start))
            continue
        pages.append(Page(f"result {number}", flits))
        result = len(pages) - 1
        tasks.append(Task(f"task {number}", cores[place], work, data, (result,), start))
        tasks.append(Task(f"store {number}", random.choice(stores), 0, (result,)))
        if place == 0:
            earlier = [page for task in tasks[-4 * len(cores) : -2 * len(cores)] for page in task.outputs]
    return Program(mesh, tuple(pages), tuple(tasks), f"random {side}x{side}")


def without_deadlines(program: Program) -> Program:
    """The same program with every task as soon as it can be."""
    tasks = tuple(replace(task, start=None) for task in program.tasks)
    return replace(program, tasks=tasks)
