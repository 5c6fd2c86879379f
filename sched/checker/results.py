"""Names of results in messages: what an author of a scheduler calls a word that the host will read."""

from __future__ import annotations

from meshloom.hw.spec.isa import Region

from ..program.names import Names
from ..support.text import one_line
from ..workload.layout import ActivationLayout


def result_name(names: Names, tile: int, word: int) -> str:
    """`output y, channels 0..3, row 4, column 0 (dram@(0,0) word 20)`, as far as the schedule tells."""
    place = names.words(tile, Region.MAIN, word, word + 1)
    for tensor in names.tensors:
        if tensor.role != "output" or not isinstance(tensor.layout, ActivationLayout):
            continue
        for piece in tensor.pieces:
            if piece.tile == tile and 0 <= word - piece.address < piece.words:
                image, channel, row, column = tensor.layout.coordinates(piece.first + word - piece.address, 0)
                first, end = channel or 0, min((channel or 0) + tensor.layout.block, tensor.layout.depth)
                channels = f"channel {first}" if end - first == 1 else f"channels {first}..{end - 1}"
                where = f"{f'image {image}, ' if image else ''}{channels}, row {row}, column {column}"
                return f"output {one_line(tensor.name)}, {where} ({place})"
    return f"output {place}"
