"""Arrays that are striped over all DRAM channels: each word is moved to its place, by as few MOVEs as there can be."""

from __future__ import annotations

from itertools import product

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.lowering.templates.memory import Striped, Window
from meshloom.sched.mapping.memory.placement import Transfer

CHIP = load("server4")
CORE, LOCAL = CHIP.cores[0], 1000


def words(transfer: Transfer) -> dict[int, tuple[int, int]]:
    """The addresses that a transfer writes in a core, and the tile and address that each word comes from."""
    source, target, count = transfer
    ways = [[(at // run.run) * run.stride + at % run.run for at in range(count)] for run in (source, target)]
    assert target.tile == CORE
    return {target.address + b: (source.tile, source.address + a) for a, b in zip(*ways, strict=True)}


def placed(array: Striped) -> list[tuple[int, int]]:
    """Tile and address of each word, in the order of the array."""
    return [(piece.tile, piece.address + at) for piece in array.pieces() for at in range(piece.words)]


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("planes", [1, 2, 9])
@pytest.mark.parametrize("rows", [(0, 12, 1), (3, 11, 1), (1, 12, 2)])
def test_each_word_of_a_box_is_moved_to_its_place(planes: int, across: bool, rows: tuple[int, int, int]) -> None:
    height, width, apart = 12, 40, 1000
    array = Striped(Window(CHIP), planes, height, width, across=across)
    places = placed(array)
    assert len(set(places)) == len(places) == planes * height * width
    box = (planes // 3, planes)
    moved: dict[int, tuple[int, int]] = {}
    for transfer in array.transfers(box, rows, CORE, LOCAL, apart):
        assert not moved.keys() & words(transfer).keys()
        moved |= words(transfer)
    expected = {
        LOCAL + (plane - box[0]) * apart + index * width + column: places[(plane * height + row) * width + column]
        for plane, (index, row), column in product(range(*box), enumerate(range(*rows)), range(width))
    }
    assert moved == expected


def test_planes_that_lie_alike_share_a_move() -> None:
    """What a MOVE costs besides its words is paid once for each channel, not once for each plane."""
    channels = len(CHIP.drams)
    assert channels > 1
    cut = Striped(Window(CHIP), 9, 12, 40, across=True)
    assert len(list(cut.transfers((0, 9), (0, 12, 1), CORE, LOCAL))) == channels
    whole = Striped(Window(CHIP), 4 * channels, 3, 10)
    assert len(list(whole.transfers((0, 4 * channels), (0, 3, 1), CORE, LOCAL))) == channels
