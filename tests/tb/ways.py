"""Small chips with virtual channels, source routes and arrivals, and programs written by hand for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, Region, Unit
from meshloom.hw.spec.routes import DIRECTIONS, LOCAL, NEIGHBOURS
from meshloom.sched.program.packets import packets
from meshloom.sched.program.program import Instruction, Program, Stream
from meshloom.sched.program.routes import Route, route_fields, route_of
from meshloom.tb.devices.interface import FILL, Job

from .hand_made import CHIP, Case, move, notify, program, random_words, sync

MAIN = Region.MAIN


def _variant(name: str, floorplan: list[str], ring: int = 32, bytes_per_cycle: int = 4, **noc: object) -> ChipConfig:
    """`tiny` with another floorplan, network and DRAM."""
    values = CHIP.model_dump() | {"name": name, "floorplan": floorplan, "noc": noc, "ring_instructions": ring}
    return ChipConfig.model_validate(values | {"dram": {"bytes_per_cycle": bytes_per_cycle}})


#: Three channels, XY, routes of up to 6 hops; rings that hold a whole program, so that nothing is fetched later on; a
#: DRAM that is slower than the network.
WAYS = _variant(
    "ways", ["dram core spm", "host spm spm"], 256, 3, data_vcs=3, data_depth=4, route_hops=6, arrivals=True
)
#: Two channels of two flits, YX, routes of up to 4 hops, no arrivals.
WAYS_YX = _variant(
    "ways_yx", ["dram core", "spm spm", "host spm"], data_vcs=2, data_depth=2, data_routing="yx", route_hops=4
)

#: One channel, YX; all that crosses the chip goes by routers without a tile.
GAPS = _variant(
    "gaps",
    ["dram core .", "host spm  .", "dram .    spm"],
    data_depth=3,
    request_depth=2,
    data_routing="yx",
    arrivals=True,
)


def movers(chip: ChipConfig, streams: Mapping[int, Sequence[Instruction]]) -> Program:
    """Streams of the movers of tiles; each then tells the host that it is done."""
    ends = {tile: sync(len(code) + 1, tile=chip.host, sem=0, n=1) for tile, code in streams.items()}
    return program({(tile, Unit.MOVER): [*code, ends[tile]] for tile, code in streams.items()}, chip)


def route(
    chip: ChipConfig, tag: int, path: Sequence[int] | None = None, channel: int | None = None, **header: int
) -> Instruction:
    """A ROUTE over the tiles of `path` (None: in dimension order) on virtual channel `channel`, from 0 on (None: that
    of the destination)."""
    return Instruction(Opcode.ROUTE, {"tag": tag} | header | route_fields(chip, path, channel))


def ways(program: Program, chip: ChipConfig) -> Iterator[tuple[Stream, Mapping[str, int], Route]]:
    """All MOVEs of a program, the stream of each and the way of its data."""
    for stream in program.streams:
        named: Mapping[str, int] | None = None
        for instruction in stream.instructions:
            fields = instruction.fields
            if instruction.opcode is Opcode.ROUTE:
                named = fields
            if instruction.opcode is Opcode.MOVE:
                yield stream, fields, route_of(chip, fields["src_tile"], fields["dst_tile"], named)
                named = None


def flits_on_links(program: Program, chip: ChipConfig) -> dict[tuple[int, str], int]:
    """Flits that leave each router by each output in a whole run: data, and the code that is fetched."""
    counts = {(tile, port): 0 for tile in chip.tiles for port in (*DIRECTIONS, LOCAL)}
    moved = [(way.tiles, packets(fields, chip.packet_words)) for _, fields, way in ways(program, chip)]
    for stream in (*program.streams, program.boot):
        way = route_of(chip, stream.dram_tile, stream.tile).tiles
        left, slot, words = len(stream.instructions), 0, chip.instruction_words
        while left:
            chunk = min(left, chip.fetch_chunk)
            code = {"dst": slot * words, "dst_run": chunk * words, "words": chunk * words}
            moved.append((way, packets(code, chip.packet_words)))
            left, slot = left - chunk, (slot + chunk) % chip.ring_instructions
    for tiles, cut in moved:
        flits = sum(1 + words for _, words in cut)
        for here, there in pairwise(tiles):
            counts[here, direction(here, there)] += flits
        counts[tiles[-1], LOCAL] += flits
    return counts


def direction(here: int, there: int) -> str:
    """The port by which a tile's router reaches its neighbour."""
    return next(name for name, (dx, dy) in NEIGHBOURS.items() if there - here == 16 * dy + dx)


#: Of `tour`: scratchpad to the ways (virtual channel, tiles) of what it pulls from DRAM, sends to the next scratchpad,
#: and sends back to DRAM. None of them is the one that the chip would take, and no packets can wait in a circle.
Tour = Mapping[int, Sequence[tuple[int, Sequence[int]]]]
TOUR: Tour = {
    0x02: (
        (1, (0x00, 0x10, 0x11, 0x12, 0x02)),
        (2, (0x02, 0x01, 0x00, 0x10, 0x11)),
        (1, (0x02, 0x12, 0x11, 0x10, 0x00)),
    ),
    0x11: ((2, (0x00, 0x10, 0x11)), (1, (0x11, 0x01, 0x02, 0x12)), (2, (0x11, 0x10, 0x00))),
    0x12: (
        (2, (0x00, 0x10, 0x11, 0x01, 0x02, 0x12)),
        (0, (0x12, 0x11, 0x01, 0x02)),
        (0, (0x12, 0x02, 0x01, 0x11, 0x10, 0x00)),
    ),
}
TOUR_YX: Tour = {
    0x10: ((1, (0x00, 0x01, 0x11, 0x10)), (0, (0x10, 0x00, 0x01, 0x11)), (1, (0x10, 0x11, 0x01, 0x00))),
    0x11: ((0, (0x00, 0x01, 0x11)), (1, (0x11, 0x10, 0x20, 0x21)), (0, (0x11, 0x10, 0x00))),
    0x21: ((0, (0x00, 0x10, 0x20, 0x21)), (0, (0x21, 0x20, 0x10)), (1, (0x21, 0x11, 0x01, 0x00))),
}


def tour(chip: ChipConfig, ways: Tour, seed: int, words: int = 100) -> Case:
    """Every scratchpad at once pulls words from DRAM, sends them to the next one, and what it got from the one before
    back to DRAM: scattered on a way of its own, and then in one piece on that of the chip."""
    rng = np.random.default_rng(seed)
    dram, places = chip.drams[0], list(ways)
    sources = [random_words(rng, words) for _ in places]
    streams, expected = {}, []
    for number, (tile, (pull, push, back)) in enumerate(ways.items()):
        after = places[(number + 1) % len(places)]
        at, out = 200 * number, 1000 + 500 * number
        streams[tile] = [
            route(chip, 1, pull[1], pull[0]),
            move(2, (dram, MAIN, at), (tile, MAIN, 7), words, **notify(2, tile)),
            sync(3, wait_sem=2, wait_n=1),
            route(chip, 4, push[1], push[0]),
            move(5, (tile, MAIN, 7), (after, MAIN, 300), words, dst_run=40, dst_stride=50, **notify(3, after)),
            route(chip, 6, back[1], back[0], wait_sem=3, wait_n=1),
            move(7, (tile, MAIN, 300), (dram, MAIN, out), words, src_run=40, src_stride=50, dst_run=30, dst_stride=35,
                 **notify(4, tile)),
            move(8, (tile, MAIN, 300), (dram, MAIN, out + 300), words, src_run=40, src_stride=50, **notify(4, tile)),
            sync(9, wait_sem=4, wait_n=2),
        ]  # fmt: skip
        index, array = np.arange(words), sources[number - 1]
        result = np.full((500, chip.lanes), FILL, np.uint8)
        result[index // 30 * 35 + index % 30] = array
        result[300 : 300 + words] = array
        expected.append(result)
    memory = [(dram, 200 * number, source) for number, source in enumerate(sources)]
    outputs = [(dram, 1000 + 500 * number, 500) for number in range(len(places))]
    return Case(Job(movers(chip, streams), memory, outputs, 20_000), expected)
