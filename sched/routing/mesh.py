"""The mesh as a planner of pages sees it: tiles, links and ports, and when a train of flits occupies them.

A page travels as one train of `flits` flits: head and payload of its packets, one behind the other. Nothing ever stops
it on its way (that is what reservations are for), so all follows from its departure d and its path over H hops:

    injection port of the source   cycles d .. d + flits - 1        (and `gap` cycles in which the mover turns round)
    k-th link of the path          cycles d + k .. d + k + flits - 1,   k = 1 .. H
    ejection port of the target    cycles d + H + 1 .. d + H + flits
    arrival                        d + H + flits, the cycle of its last flit

as `hw/spec/timing.py` has it (`noc_arrival`), with d the cycle in which the head is taken by the router of the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from meshloom.hw.spec.config import ChipConfig, TileKind, tile_address, tile_position
from meshloom.hw.spec.contracts import DELIVERED_CYCLES, HEAD_CYCLES, TURN_CYCLES
from meshloom.hw.spec.routes import DIRECTIONS, NEIGHBOURS, encode
from meshloom.hw.spec.timing import ejection_cycles, noc_arrival

from .hardware import DttError, Hardware

#: Memories of a core that pages live in, as regions of a mesh made from a chip.
OPERAND_A, OPERAND_B, RESULT = 0, 1, 2


@dataclass(frozen=True)
class Mesh:
    """A `width` x `height` mesh of tiles with addresses y * 16 + x.

    `capacity`: (tile, region) to words of pages that it holds; a region that is not listed has no limit. `regions`:
    memories of a tile. `half_duplex`: tiles that inject or eject, never both in a cycle (a DRAM channel reads or
    writes). `gap`: cycles between two trains of one injection port. `landing`: cycles from the arrival of a page
    until it can be used. `launch`: cycles from the fire time of a MOVE to its departure; it fires when the page is
    there, and not before cycle 1. Raises DttError on impossible numbers.
    """

    width: int
    height: int
    capacity: Mapping[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    regions: int = 1
    half_duplex: frozenset[int] = frozenset()
    gap: int = 0
    landing: int = 1
    launch: int = 0

    def __post_init__(self) -> None:
        if not (1 <= self.width <= 16 and 1 <= self.height <= 16):
            raise DttError(f"a mesh of {self.width}x{self.height} tiles: coordinates reach from 1x1 to 16x16")
        for name, least in (("gap", 0), ("landing", 0), ("launch", 0), ("regions", 1)):
            if getattr(self, name) < least:
                raise DttError(f"mesh: {name} = {getattr(self, name)} must be at least {least}")
        for tile in (*self.half_duplex, *(tile for tile, _ in self.capacity)):
            self.number(tile)
        for (tile, region), words in self.capacity.items():
            if not 0 <= region < self.regions or words < 1:
                raise DttError(
                    f"mesh: capacity of tile {tile:#04x}, region {region} is {words} words; there are {self.regions} "
                    "regions, each of at least 1 word"
                )

    @cached_property
    def tiles(self) -> tuple[int, ...]:
        """Tile addresses by number, row by row."""
        return tuple(tile_address(x, y) for y in range(self.height) for x in range(self.width))

    def number(self, tile: int) -> int:
        """Place of a tile in `tiles`. Raises DttError if it is outside."""
        x, y = tile_position(tile)
        if not (0 <= x < self.width and 0 <= y < self.height):
            raise DttError(f"tile {tile:#04x} is outside the {self.width}x{self.height} mesh; use y * 16 + x")
        return y * self.width + x

    def distance(self, source: int, target: int) -> int:
        """Hops between two tile addresses."""
        (x, y), (to_x, to_y) = tile_position(source), tile_position(target)
        return abs(x - to_x) + abs(y - to_y)

    # -- what is reserved -----------------------------------------------------------------------------------------

    @property
    def resources(self) -> int:
        """Links, injection ports and ejection ports: rows of a reservation table."""
        return 6 * len(self.tiles)

    @property
    def links(self) -> int:
        """Directed links between neighbours."""
        return 2 * (self.width * (self.height - 1) + self.height * (self.width - 1))

    def link(self, source: int, target: int) -> int:
        """Resource of the link between two neighbours. Raises DttError if they are none."""
        (x, y), (to_x, to_y) = tile_position(source), tile_position(target)
        for heading, name in enumerate(DIRECTIONS):
            if NEIGHBOURS[name] == (to_x - x, to_y - y):
                return 4 * self.number(source) + heading
        raise DttError(f"there is no wire {source:#04x} -> {target:#04x}: the tiles are not neighbours")

    def injection(self, tile: int) -> int:
        """Resource of a tile's way into the network."""
        return 4 * len(self.tiles) + self.number(tile)

    def ejection(self, tile: int) -> int:
        """Resource of a tile's way out of the network; that of its injection if it is half duplex."""
        if tile in self.half_duplex:
            return self.injection(tile)
        return 5 * len(self.tiles) + self.number(tile)

    def resource_name(self, resource: int) -> str:
        """A resource as messages name it."""
        count = len(self.tiles)
        if resource >= 4 * count:
            return f"{'injection' if resource < 5 * count else 'ejection'} port of {self.tiles[resource % count]:#04x}"
        x, y = tile_position(self.tiles[resource // 4])
        step_x, step_y = NEIGHBOURS[DIRECTIONS[resource % 4]]
        return f"{tile_address(x, y):#04x} -> {tile_address(x + step_x, y + step_y):#04x}"

    def occupied(self, path: Sequence[int], departure: int, flits: int) -> list[tuple[int, int, int]]:
        """(resource, first cycle, cycle after the last) of a train along tile addresses; see above.

        Raises DttError where two tiles of the path are no neighbours.
        """
        uses = [(self.injection(path[0]), departure, departure + flits + self.gap)]
        for hop, (before, after) in enumerate(pairwise(path), 1):
            uses.append((self.link(before, after), departure + hop, departure + hop + flits))
        last = departure + len(path)
        return [*uses, (self.ejection(path[-1]), last, last + flits)]

    def arrival(self, departure: int, hops: int, flits: int) -> int:
        """Cycle in which the last flit is ejected."""
        return departure + noc_arrival(hops, flits)

    def route(self, path: Sequence[int]) -> tuple[int, ...]:
        """The source route of a path over at least one hop, for a head flit (`hw.spec.routes.encode`)."""
        return encode(path, self.width, self.height)


def mesh_of(chip: ChipConfig) -> Mesh:
    """The mesh of a chip: cores with memories A, B and OUT (regions 0, 1, 2), DRAM channels that read or write.

    Scratchpads and DRAM have no limit here; `Program` checks what lies there for good. Raises DttError if a DRAM
    channel is slower than a link, since trains would then have gaps, or waits for whole packets.
    """
    if chip.dram.whole_packets:
        raise DttError(
            f"chip {chip.name}: dram.whole_packets is for channels slower than a link, which are not planned here: "
            "set it to false"
        )
    if chip.dram.bytes_per_cycle != chip.lanes:
        raise DttError(
            f"chip {chip.name}: dram.bytes_per_cycle = {chip.dram.bytes_per_cycle} is not a word of {chip.lanes} bytes "
            "a cycle; a train from DRAM would have gaps, which are not planned: make them equal"
        )
    core = chip.core
    words = {OPERAND_A: core.a_words, OPERAND_B: core.b_words, RESULT: core.out_words}
    return Mesh(
        chip.width,
        chip.height,
        {(tile, region): size for tile in chip.cores for region, size in words.items()},
        regions=len(words),
        half_duplex=frozenset(chip.channels),
        gap=TURN_CYCLES,
        landing=DELIVERED_CYCLES + ejection_cycles(chip),
        launch=HEAD_CYCLES,
    )


def hardware_of(chip: ChipConfig) -> Hardware:
    """A chip as the paper's objects: a tile is a node, a link a wire of one word and one cycle a hop. Sizes in words.

    Nodes are named "core 0x01" and so on, a router without a tile "router 0x13". DRAM and scratchpad keep what they
    get; a core holds as many words as its memories together.
    """
    hardware = Hardware()
    core = chip.core
    sizes = {
        TileKind.CORE: core.a_words + core.b_words + 4 * core.acc_words + core.out_words + core.vec_words,
        TileKind.SPM: chip.spm_words,
        TileKind.DRAM: chip.dram.words,
    }
    places = chip.tiles | dict.fromkeys(chip.gaps, TileKind.NONE)
    names = {tile: f"{'router' if kind is TileKind.NONE else kind} {tile:#04x}" for tile, kind in places.items()}
    for tile, kind in places.items():
        hardware.node(size=sizes.get(kind), name=names[tile], keeps=kind in (TileKind.DRAM, TileKind.SPM))
    for tile in places:
        x, y = tile_position(tile)
        for step_x, step_y in NEIGHBOURS.values():
            if 0 <= x + step_x < chip.width and 0 <= y + step_y < chip.height:
                other = tile_address(x + step_x, y + step_y)
                hardware.wire(source=names[tile], destination=names[other], bandwidth=1, cost=1, delay=1)
    return hardware
