"""The chip as one frozen, validated description; every property of a chip is written once.

A chip is a TOML file (see `hw/chips/`) with the floorplan drawn as text:

    name = "quad16"
    lanes = 16
    floorplan = ["dram core core",
                 "spm  core core",
                 "host spm  dram"]

Rows of the floorplan are mesh rows, y growing downwards; columns are x; `.` is a router without a tile. Everything that
the gateware, the schedulers and the model need to know about a chip is a field or a property of `ChipConfig`.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self, cast

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from .dram_banks import BankCycles, BanksConfig, bank_cycles
from .exact import Exact as Exact
from .mistakes import mistakes as mistakes
from .near import near as near  # of hw/, software imports this module and few others
from .near import near_or_all as near_or_all

CHIP_FOLDER = Path(__file__).parent.parent / "chips"

#: Bits of a word address inside one region of a tile (see `hw.spec.isa.Region`).
OFFSET_BITS = 24
#: Bytes of the address range that an AXI4 burst may not leave, and bytes of the widest AXI4 bus, which `lanes` is.
BURST_BYTES = 4096
MOST_LANES = 128
#: Payload words of the longest data packet of any chip (`ChipConfig.packet_words`: of one).
MOST_PACKET_WORDS = 64
#: Hops of the longest source route that an instruction can name.
MOST_HOPS = 23
#: Largest weight of a core's requests for DRAM (`DramConfig.weights`).
MOST_WEIGHT = 16
#: Way-points that an ORDER can name.
MOST_POINTS = 12
#: Bytes of one instruction.
INSTRUCTION_BYTES = 32
#: Bytes of one trace record, and the fewest that the trace memory of a tile holds, if it has one.
TRACE_BYTES = 16
LEAST_RECORDS = 16
#: Fields of a chip ("counters", "core.vec_table") that version 0.1 did not have. A digest leaves out those at their
#: defaults, so that schedules and programs of before are still for the same chip (docs/compatibility.md).
NEWER_FIELDS: tuple[str, ...] = (
    "dram.arbitration", "dram.weights", "core.int4", "dram.banks", "ecc", "noc.multicast", "core.vec_ops",
    "reports", "fire_times", "memory_streams", "boot_host",
)  # fmt: skip


class ConfigError(ValueError):
    """A chip that cannot be built; the message names the file, the field and the fix."""


class TileKind(StrEnum):
    """The kind of tile at a position of the floorplan."""

    CORE = "core"
    SPM = "spm"
    DRAM = "dram"
    HOST = "host"
    DTT = "dtt"  #: the controller of ahead-of-time programs
    NONE = "."  #: a router without a tile


class _Frozen(Exact):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


Words = Annotated[int, Field(ge=1, le=1 << 16)]


class VectorOperation(StrEnum):
    """An operation of the vector unit that a chip may leave out (`hw.spec.isa.VectorOp`; TABLE is `vec_table`)."""

    MAC = "mac"
    SUM = "sum"
    MAX = "max"
    ADD = "add"
    REQUANT = "requant"
    TRANSPOSE = "transpose"
    PAIR = "pair"


class CoreConfig(_Frozen):
    """Local memories of one core, in words of `lanes` bytes (ACC: words of `lanes` int32).

    `vec_ops`: operations of the vector unit besides the table. Without any, and without a table, a core has no vector
    unit, no stream for one and no memory VEC, and A, B, ACC and OUT have no second read port.
    `vec_windows`: overlapping windows of a row that the vector unit computes at the same time, each with a multiplier
    and an accumulator for each lane. 5 is enough for 5x5 windows, 1 reads every tap of every window by itself.
    `vec_table`: the vector unit has a table of 256 bytes for each lane (`VectorOp.TABLE`), for activation functions.
    `vec_whole`: the vector unit goes over whole blocks twice (`YWalk.WHOLE`), for softmax and normalisation: it has a
    serial divider with a root for each lane.
    `channel_scales`: drain path and vector unit can have a multiplier for each channel, read from ACC beside the bias
    (`hw.spec.isa.SCALED_BIAS_WORDS`), instead of one for all that an instruction computes.
    `operand_sources`: A and B can be sources of MOVEs, so that a core passes on what it was sent (`hw/core/matrix.py`).
    `int4`: the array can take weights of four bits with a scale for each group (`hw.spec.isa.INT4_SCALES`).
    """

    a_words: Words = 4096
    b_words: Words = 4096
    acc_words: Annotated[int, Field(ge=1, le=1 << 14)] = 1024
    out_words: Annotated[int, Field(ge=1, le=1 << 14)] = 2048
    vec_words: Annotated[int, Field(ge=1, le=1 << 14)] = 2048
    vec_ops: tuple[VectorOperation, ...] = tuple(VectorOperation)
    vec_windows: Annotated[int, Field(ge=1, le=8)] = 1
    vec_table: bool = False
    vec_whole: bool = False
    channel_scales: bool = False
    operand_sources: bool = False
    int4: bool = False

    @property
    def has_vector(self) -> bool:
        """Whether there is a vector unit."""
        return bool(self.vec_ops) or self.vec_table

    @field_validator("vec_ops")
    @classmethod
    def _in_order(cls, value: tuple[VectorOperation, ...]) -> tuple[VectorOperation, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"names an operation twice ({', '.join(value)}); name each once")
        return tuple(each for each in VectorOperation if each in value)  # the same chip, however they are listed

    @model_validator(mode="after")
    def _check(self) -> Self:
        lacking = [
            op for op in (VectorOperation.MAC, VectorOperation.SUM, VectorOperation.MAX) if op not in self.vec_ops
        ]
        if self.vec_whole and lacking:
            raise ValueError(
                f"vec_whole = true without {', '.join(lacking)} in vec_ops: blocks are summed up by mac, sum and max; "
                "add them, or leave vec_whole out"
            )
        if self.operand_sources and not self.has_vector:
            raise ValueError(
                "operand_sources = true without a vector unit, by whose ports A and B are read; name some vec_ops, or "
                "leave operand_sources out"
            )
        return self


class Arbitration(StrEnum):
    """Whose MOVE a DRAM tile reads next, of those that other tiles request of it."""

    FIFO = "fifo"
    ROUND_ROBIN = "round_robin"
    WEIGHTED = "weighted"


class Direction(StrEnum):
    """Where a packet goes."""

    NORTH = "north"
    EAST = "east"
    SOUTH = "south"
    WEST = "west"


class DramConfig(_Frozen):
    """The DRAM channel of each `dram` tile.

    `words`: capacity in words. `bytes_per_cycle`: bandwidth of reads and writes together, at most one word a cycle.
    `latency`: cycles from an accepted read address to its first beat.
    `whole_packets`: a packet leaves once all of its words have been read, so that a channel with less than a word a
    cycle holds no path open between them; each channel then has a buffer of a packet (`hw.spec.contracts.read_words`).
    `arbitration`: whose MOVE a channel reads next: "fifo", that which came first; "round_robin", one of each tile that
    requests some, in turn; "weighted", in turn too, but of the tiles that have credit left, which words use up
    (`hw.noc.arbitration`). `weights`: with "weighted", how much credit each core has, in floorplan order, where
    other tiles have 1; none = 1 for all.
    `banks`: rows that have to be opened and refreshed, by the timings of a part (`hw.spec.dram_banks`), added to
    `latency`, which is then that of the controller and the way to it; none = a memory that is always ready.
    """

    words: Annotated[int, Field(ge=1, le=1 << OFFSET_BITS)] = 1 << 20
    bytes_per_cycle: Annotated[int, Field(ge=1, le=MOST_LANES)] = 4
    latency: Annotated[int, Field(ge=1, le=1000)] = 40
    whole_packets: bool = False
    arbitration: Arbitration = Arbitration.FIFO
    weights: tuple[Annotated[int, Field(ge=1, le=MOST_WEIGHT)], ...] = ()
    banks: BanksConfig | None = None


class Routing(StrEnum):
    """Dimension order of data packets without a source route. Requests and posts are routed XY."""

    XY = "xy"
    YX = "yx"


class NocConfig(_Frozen):
    """The NoC.

    `<plane>_depth`: flits that each router input buffers, in the data plane for each virtual channel. `data_vcs`:
    virtual channels of the data plane. `data_routing`: its dimension order. `route_hops`: hops of the longest source
    route that a MOVE may take; 0 = no source routes. `arrivals`: heads carry tag and injection time, and every data
    packet leaves a trace record at its destination.
    `multicast`: directions in which packets go whose words the tiles that they pass can take, too, as many as the MOVE
    says (`copies`): one of east and west, one of north and south; none = each packet is for one tile.
    """

    data_depth: Annotated[int, Field(ge=2, le=64)] = 4
    request_depth: Annotated[int, Field(ge=2, le=64)] = 4
    post_depth: Annotated[int, Field(ge=2, le=64)] = 2
    data_vcs: Annotated[int, Field(ge=1, le=4)] = 1
    data_routing: Routing = Routing.XY
    route_hops: Annotated[int, Field(ge=0, le=MOST_HOPS)] = 0
    arrivals: bool = False
    multicast: tuple[Direction, ...] = ()

    @field_validator("multicast")
    @classmethod
    def _in_order(cls, value: tuple[Direction, ...]) -> tuple[Direction, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"names a direction twice ({', '.join(value)}); name each once")
        return tuple(way for way in Direction if way in value)  # the same chip, however they are listed

    @model_validator(mode="after")
    def _check(self) -> Self:
        ways = set(self.multicast)
        for pair in ({Direction.EAST, Direction.WEST}, {Direction.NORTH, Direction.SOUTH}):
            if pair <= ways:
                raise ValueError(
                    f"multicast both {' and '.join(sorted(pair))}: two packets that meet could wait for each other for "
                    "ever; leave one of them out"
                )
        if self.multicast and self.data_vcs > 1:
            raise ValueError(f"multicast with data_vcs = {self.data_vcs}: packets are copied on one channel; set 1")
        if self.multicast and self.route_hops:
            raise ValueError(
                f"multicast with route_hops = {self.route_hops}: only packets in dimension order are copied without "
                "danger of deadlock; set route_hops = 0, or leave multicast out"
            )
        return self


class ChipConfig(_Frozen):
    """A whole chip.

    `lanes` (P) sets every width: bytes of a memory word, payload bytes of a data flit, cycles of one array window, the
    upper bound of `rows` and `cols`. `controller_channel`: the DRAM tile beside the "dtt" tile (the first in floorplan
    order) holds code only, which the controller fetches like any other stream; otherwise MOVEs of its program bring all
    but the first ring, between those of data. `programs`: how many may run at the same time, each on cores of its own,
    launched and reported by the host's queues; 0 = one at a time, which has the whole chip. `counters`: the host's
    registers show busy cycles of cores, DRAM channels and links at any time. `clock_mhz`: at which it is to run, by
    which cycles are also told as time (none: they are not); it changes no gateware, and no cycle and no `digest`
    without `dram.banks`.
    `trace_records`: of each tile; 0 = none, and no counters of a run either (region STATS is zeros): smaller, as fast,
    and of a run its bytes and its cycles can be compared, but no instruction's.
    `product_register`: the array's products are made a cycle before they are added up, and held meanwhile: shorter
    paths for 16 flip-flops a PE. No cycle changes.
    `ecc`: words have a code (`hw.wiring.ecc`) in memories of cores and scratchpads, in rings, and on their way between
    tiles; one wrong bit of a word is corrected and counted, two are a fault. No cycle changes.
    `reports`: a tile says which fault it has raised, with the instruction and a value, and what its parts wait for when
    a watchdog asks; without them a fault is `Cause.UNREPORTED`, of a tile, and a watchdog's nothing but itself.
    `fire_times`: instructions may name the cycle in which they start. `memory_streams`: dram and spm tiles have streams
    of their own; without them they do what others ask of them. `boot_host`: the host tile boots and does nothing else:
    it sends no words, of which it has none without traces.
    Raises pydantic's ValidationError (wrapped into `ConfigError` by `load`).
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=40)]
    lanes: Annotated[int, Field(ge=4, le=MOST_LANES)]
    rows: Annotated[int, Field(ge=1, le=MOST_LANES)] = 0
    cols: Annotated[int, Field(ge=1, le=MOST_LANES)] = 0
    floorplan: tuple[tuple[TileKind, ...], ...]
    core: CoreConfig = CoreConfig()
    spm_words: Annotated[int, Field(ge=1, le=1 << 20)] = 16384
    dram: DramConfig = DramConfig()
    noc: NocConfig = NocConfig()
    semaphores: Annotated[int, Field(ge=8, le=64)] = 32
    ring_instructions: Annotated[int, Field(ge=4, le=256)] = 32
    controller_instructions: Annotated[int, Field(ge=4, le=1024)] = 256
    controller_channel: bool = False
    mover_queue: Annotated[int, Field(ge=1, le=64)] = 8
    trace_records: Annotated[int, Field(ge=0, le=1 << 20)] = 4096
    programs: Annotated[int, Field(ge=0, le=31)] = 0
    counters: bool = False
    product_register: bool = False
    ecc: bool = False
    reports: bool = True
    fire_times: bool = True
    memory_streams: bool = True
    boot_host: bool = False
    clock_mhz: Annotated[float, Field(gt=0, le=1e5, allow_inf_nan=False)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _default_array(cls, values: object) -> object:
        # By default the array has as many rows and columns as a word has bytes.
        if not isinstance(values, dict) or "lanes" not in values:
            return cast("object", values)
        table = cast("dict[str, object]", values)
        return {"rows": table["lanes"], "cols": table["lanes"]} | table

    @field_validator("floorplan", mode="before")
    @classmethod
    def _draw(cls, value: object) -> object:
        if not isinstance(value, list | tuple) or not value:
            raise ValueError('expected a list of text rows such as ["dram core", "host spm"]')
        rows = cast("Sequence[object]", value)
        return tuple(tuple(row.split()) if isinstance(row, str) else row for row in rows)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.lanes & (self.lanes - 1):
            raise ValueError(f"lanes = {self.lanes} must be a power of two (AXI4 data width); rows, cols need not be")
        for field in ("rows", "cols"):
            if getattr(self, field) > self.lanes:
                raise ValueError(f"{field} = {getattr(self, field)} exceeds lanes = {self.lanes}")
        widths = {len(row) for row in self.floorplan}
        if len(widths) != 1:
            raise ValueError(f"floorplan rows differ in length: {[len(row) for row in self.floorplan]}")
        if not 1 <= self.width <= 16 or not 1 <= self.height <= 16:
            raise ValueError(f"floorplan is {self.width}x{self.height}, tile coordinates reach 16x16")
        count = Counter(kind for row in self.floorplan for kind in row)
        for kind in (TileKind.DRAM, TileKind.CORE):
            if not count[kind]:
                raise ValueError(f'floorplan has no "{kind}" tile; every chip needs at least one')
        if count[TileKind.HOST] != 1:
            raise ValueError(f'floorplan has {count[TileKind.HOST]} "host" tiles; exactly one is needed')
        if count[TileKind.DTT] > 1:
            raise ValueError(f'floorplan has {count[TileKind.DTT]} "dtt" tiles; one controller orders everything')
        if count[TileKind.NONE] and self.noc.route_hops:
            raise ValueError(
                f'noc.route_hops = {self.noc.route_hops} on a floorplan with ".": no tile there could report a wrong '
                "source route; put a tile there or set route_hops = 0"
            )
        if self.programs and count[TileKind.CORE] > 32:
            raise ValueError(
                f"programs = {self.programs} on a floorplan with {count[TileKind.CORE]} cores: rights name at most 32; "
                "set programs = 0 or draw fewer cores"
            )
        if self.programs and count[TileKind.DTT]:
            raise ValueError(
                f'programs = {self.programs} on a floorplan with a "dtt" tile: a controller plans one program for the '
                "whole chip; set programs = 0 or leave the controller out"
            )
        if self.programs and self.noc.multicast:
            raise ValueError(
                f"programs = {self.programs} with noc.multicast: rights name the tiles that a program may write, and "
                "not those before them; set programs = 0, or leave multicast out"
            )
        if count[TileKind.DTT] and self.noc.multicast:
            raise ValueError(
                'noc.multicast on a floorplan with a "dtt" tile: its controller plans packets for one tile each; leave '
                "one of them out"
            )
        if self.programs and not self.reports:
            raise ValueError(
                f"programs = {self.programs} with reports = false: whose program has failed is known by reports; set "
                "programs = 0, or reports = true"
            )
        self._check_options(count)
        if self.controller_channel and not self._beside_controller():
            raise ValueError(
                'controller_channel = true needs a "dtt" tile with a "dram" tile beside it, above or below; draw one '
                "there"
            )
        if self.controller_channel and count[TileKind.DRAM] == 1:
            raise ValueError(
                'controller_channel = true leaves no "dram" tile for data; draw another, or set controller_channel = '
                "false"
            )
        for field in ("ring_instructions", "controller_instructions"):
            if (value := getattr(self, field)) & (value - 1):
                raise ValueError(f"{field} = {value} must be a power of two")
        self._check_trace(count)
        if self.dram.bytes_per_cycle > self.lanes:
            raise ValueError(
                f"dram.bytes_per_cycle = {self.dram.bytes_per_cycle} exceeds one word a cycle ({self.lanes} bytes); "
                'draw more "dram" tiles, each of which is a channel'
            )
        self._check_arbitration()
        self._check_banks()
        return self

    def _check_options(self, count: Counter[TileKind]) -> None:
        """What else may be left out, where nothing needs it."""
        if not self.fire_times and count[TileKind.DTT]:
            raise ValueError(
                'fire_times = false on a floorplan with a "dtt" tile, whose programs are nothing but times; set '
                "fire_times = true, or leave the controller out"
            )
        if self.boot_host and self.trace_records:
            raise ValueError(
                f"boot_host = true with trace_records = {self.trace_records}: nobody could read what the host's tile "
                "records; set trace_records = 0, or boot_host = false"
            )
        if self.boot_host and self.programs:
            raise ValueError(
                f"boot_host = true with programs = {self.programs}: a host that launches programs does more than boot; "
                "set programs = 0, or boot_host = false"
            )

    def _check_trace(self, count: Counter[TileKind]) -> None:
        records = self.trace_records
        if records & (records - 1):
            raise ValueError(f"trace_records = {records} must be a power of two")
        if 0 < records < LEAST_RECORDS:
            raise ValueError(
                f"trace_records = {records} are fewer than a run makes; set at least {LEAST_RECORDS}, or 0 for a chip "
                "without traces"
            )
        if not records and self.noc.arrivals:
            raise ValueError(
                "noc.arrivals = true leaves a trace record for each packet, and trace_records = 0 keeps none; set "
                "trace_records, or arrivals = false"
            )
        if not records and count[TileKind.DTT]:
            raise ValueError(
                'trace_records = 0 on a floorplan with a "dtt" tile: that its packets arrive when planned is known by '
                "trace records; set trace_records, or leave the controller out"
            )

    def _check_arbitration(self) -> None:
        dram = self.dram
        if dram.arbitration is not Arbitration.FIFO and self.dtt is not None:
            raise ValueError(
                f'dram.arbitration = "{dram.arbitration}" on a floorplan with a "dtt" tile: the controller orders the '
                'requests of the whole chip itself; set "fifo" or leave the controller out'
            )
        if dram.weights and dram.arbitration is not Arbitration.WEIGHTED:
            raise ValueError(
                f'dram.weights need dram.arbitration = "weighted", and it is "{dram.arbitration}"; set that or leave '
                "the weights out"
            )
        if dram.weights and len(dram.weights) != len(self.cores):
            raise ValueError(
                f"dram.weights has {len(dram.weights)} numbers for {len(self.cores)} cores; write one for each, in "
                "floorplan order"
            )

    def _check_banks(self) -> None:
        banks, dram = self.dram.banks, self.dram
        if banks is None:
            return
        if self.clock_mhz is None:
            raise ValueError(
                "dram.banks has times in nanoseconds, and a chip without clock_mhz has no cycles for them; set it"
            )
        if self.dtt is not None:
            raise ValueError(
                'dram.banks on a floorplan with a "dtt" tile: its controller plans reads that take the same time '
                "whenever they come; leave one of them out"
            )
        if dram.bytes_per_cycle * self.clock_mhz > 1000 * banks.bandwidth * (1 + 1e-9):
            raise ValueError(
                f"dram.bytes_per_cycle = {dram.bytes_per_cycle} at clock_mhz = {self.clock_mhz:g} is more than "
                f"dram.banks.bandwidth = {banks.bandwidth:g} (10^9 bytes a second); reduce one of them"
            )
        if banks.row_bytes < self.packet_words * self.lanes:
            raise ValueError(
                f"dram.banks.row_bytes = {banks.row_bytes} is less than a packet of {self.packet_words} words of "
                f"{self.lanes} bytes, which is one burst; set {self.packet_words * self.lanes} or more (parts in step)"
            )

    # -- geometry ---------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Mesh columns."""
        return len(self.floorplan[0])

    @property
    def height(self) -> int:
        """Mesh rows."""
        return len(self.floorplan)

    @cached_property
    def tiles(self) -> dict[int, TileKind]:
        """Tile address (y * 16 + x) to kind, in floorplan order; positions without a tile are left out."""
        return {
            tile_address(x, y): kind
            for y, row in enumerate(self.floorplan)
            for x, kind in enumerate(row)
            if kind is not TileKind.NONE
        }

    @property
    def gaps(self) -> tuple[int, ...]:
        """Addresses of the routers without a tile."""
        places = (tile_address(x, y) for y in range(self.height) for x in range(self.width))
        return tuple(tile for tile in places if tile not in self.tiles)

    def of_kind(self, kind: TileKind) -> tuple[int, ...]:
        """Tile addresses of one kind, in floorplan order."""
        return tuple(tile for tile, of in self.tiles.items() if of is kind)

    @property
    def cores(self) -> tuple[int, ...]:
        return self.of_kind(TileKind.CORE)

    @property
    def spms(self) -> tuple[int, ...]:
        return self.of_kind(TileKind.SPM)

    @property
    def channels(self) -> tuple[int, ...]:
        """All DRAM tiles, including one for the controller's code alone."""
        return self.of_kind(TileKind.DRAM)

    @property
    def drams(self) -> tuple[int, ...]:
        """The DRAM tiles that store data."""
        code = self.code_channel
        return tuple(tile for tile in self.channels if tile != code)

    def _beside_controller(self) -> tuple[int, ...]:
        """DRAM tiles that are neighbours of the controller."""
        if self.dtt is None:
            return ()
        x, y = tile_position(self.dtt)
        places = (tile_position(tile) for tile in self.channels)
        return tuple(tile_address(*place) for place in places if abs(place[0] - x) + abs(place[1] - y) == 1)

    @property
    def code_channel(self) -> int | None:
        """The DRAM tile for the controller's code alone (`controller_channel`), if there is one."""
        return self._beside_controller()[0] if self.controller_channel else None

    @property
    def dtt(self) -> int | None:
        """The tile of the ahead-of-time controller, if there is one."""
        return next(iter(self.of_kind(TileKind.DTT)), None)

    @property
    def host(self) -> int:
        return self.of_kind(TileKind.HOST)[0]

    @property
    def counter_chain(self) -> tuple[int, ...]:
        """Tiles in the order in which the host reads their counters: row by row from the one it is nearer to, up or
        down, every other row backwards, so that in a full floorplan each is a neighbour of the one before."""
        rows = range(self.height) if tile_position(self.host)[1] < self.height / 2 else range(self.height)[::-1]
        columns = range(self.width)
        places = (tile_address(x, y) for turn, y in enumerate(rows) for x in (columns[::-1] if turn % 2 else columns))
        return tuple(tile for tile in places if tile in self.tiles)

    @property
    def bank_cycles(self) -> BankCycles | None:
        """What the rows of DRAM take (`dram.banks`), in cycles; none if it has no banks."""
        banks = self.dram.banks
        if banks is None:
            return None
        assert self.clock_mhz is not None
        return bank_cycles(banks, self.lanes, self.dram.bytes_per_cycle, self.clock_mhz)

    # -- derived sizes ----------------------------------------------------------------------------------------

    @property
    def word_bits(self) -> int:
        return 8 * self.lanes

    @property
    def coded_bits(self) -> int:
        """Bits of a word on its way between tiles: its own and, with `ecc`, its check bits."""
        return self.word_bits + (check_bits(self.word_bits) if self.ecc else 0)

    @property
    def packet_words(self) -> int:
        """Payload words of the longest data packet, a power of two. Packets end at destination addresses that are
        multiples of it, bursts at those of their source, so that each is one AXI4 burst inside a 4 KiB page: 64 words,
        32 of 128 bytes."""
        return min(MOST_PACKET_WORDS, BURST_BYTES // self.lanes)

    def channel_of(self, tile: int) -> int:
        """Virtual channel of data packets to `tile` unless a ROUTE names another: round robin by floorplan position.

        It depends on nothing else, so packets between two tiles stay in order.
        """
        x, y = tile_position(tile)
        return (x + y * self.width) % self.noc.data_vcs

    @property
    def instruction_words(self) -> int:
        """Memory words of one instruction."""
        return max(1, INSTRUCTION_BYTES // self.lanes)

    @property
    def trace_words(self) -> int:
        """Memory words of one trace record."""
        return max(1, TRACE_BYTES // self.lanes)

    @property
    def fetch_chunk(self) -> int:
        """Instructions that a stream requests at once: half its ring."""
        return self.ring_instructions // 2

    def ring(self, kind: TileKind) -> int:
        """Instructions that a stream's ring holds in a tile of this kind. A stream requests half of them at once."""
        return self.controller_instructions if kind is TileKind.DTT else self.ring_instructions

    @property  # not cached: a modified copy of a chip is another chip
    def digest(self) -> str:
        """Content hash of what makes the chip, for caches and files. `NEWER_FIELDS` at their defaults do not count, nor
        does the clock, unless times of DRAM are told in it (`dram.banks`)."""
        idle: dict[str, bool | dict[str, bool]] = {"clock_mhz": True} if self.dram.banks is None else {}
        for part, _, name in (path.rpartition(".") for path in NEWER_FIELDS):
            fields: _Frozen = getattr(self, part) if part else self
            if getattr(fields, name) == type(fields).model_fields[name].default:
                nested = idle.setdefault(part, {}) if part else idle
                assert isinstance(nested, dict)
                nested[name] = True
        return hashlib.sha256(self.model_dump_json(exclude=idle).encode()).hexdigest()


def check_bits(bits: int) -> int:
    """Check bits of a word of so many bits that correct one wrong bit and detect two: the fewest of which enough sets
    of an odd number exist, one for each bit, those of one check bit left out (`hw.wiring.ecc`)."""
    checks = 4
    while 2 ** (checks - 1) - checks < bits:
        checks += 1
    return checks


def tile_address(x: int, y: int) -> int:
    """The 8-bit address of the tile in column x and row y."""
    return y * 16 + x


def tile_position(tile: int) -> tuple[int, int]:
    """(x, y) of a tile address."""
    return tile % 16, tile // 16


def built_in_chips() -> tuple[str, ...]:
    """Names of the chips that ship with Meshloom."""
    return tuple(sorted(path.stem for path in CHIP_FOLDER.glob("*.toml")))


def load(chip: str | Path) -> ChipConfig:
    """Reads a chip: a built-in name or the path of a TOML file, which may not call another chip by the name of a
    built-in one. Raises ConfigError with the location and the fix."""
    path = Path(chip)
    if path.suffix != ".toml":
        path = CHIP_FOLDER / f"{chip}.toml"
        if not path.is_file():
            known = built_in_chips()
            hint = near(str(chip), known)
            raise ConfigError(
                f"unknown chip {str(chip)!r}: built in are {', '.join(known)}; or give a .toml" + (hint and f"; {hint}")
            )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not UTF-8 text") from error
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{path}: malformed TOML: it is nested too deeply") from None
    except ValueError as error:  # numbers of thousands of digits, too
        raise ConfigError(f"{path}: malformed TOML: {error}") from error
    try:
        config = ChipConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{path}: {mistakes(error, values, ChipConfig)}") from error
    if path.parent != CHIP_FOLDER and config.name in built_in_chips() and config.digest != load(config.name).digest:
        raise ConfigError(
            f'{path}: name = "{config.name}" is the name of a built-in chip, a different one; take another'
        )
    return config
