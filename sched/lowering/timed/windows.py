"""The resources that an operation occupies, and when, if it fires in a given cycle and nothing stalls it.

All cycles follow from contracts of the gateware (`hw/spec/contracts.py`, `hw/spec/timing.py`). Let a MOVE of n flits
fire in cycle f and depart in cycle d, in which its first head is offered to the NoC. Then d = f + 4 from a local
memory, f + 4 + latency from DRAM, and over H hops, with i = 1 where flits wait in an ejection buffer (`noc.data_vcs` >
1) and i = 0 elsewhere,

    source is read          by cycle d + n - 1, a local memory from d - 2 on
    k-th link               cycles d + k .. d + k + n - 1
    words are written       cycles d + H + i + 2 .. d + H + i + n
    arrival                 d + H + i + n + 1, the cycle from which they can be read

as in `end` of its arrival record. A GEMM or VEC that fires in f starts in f + 1 + `GEMM_ISSUE_CYCLES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig, TileKind, tile_position
from meshloom.hw.spec.contracts import (
    GEMM_ISSUE_CYCLES,
    HEAD_CYCLES,
    ISSUE_CYCLES,
    OFFER_CYCLES,
    PORT_WORDS,
    REQUEST_CYCLES,
    REQUEST_INTERVAL,
    RING_CYCLES,
    TURN_CYCLES,
    VEC_ISSUE_CYCLES,
    WRITTEN_CYCLES,
)
from meshloom.hw.spec.isa import Addend, Region
from meshloom.hw.spec.timing import (
    GemmShape,
    VecShape,
    ejection_cycles,
    gemm_bubble,
    gemm_cycles,
    gemm_occupancy,
    noc_arrival,
    noc_landing,
    vec_cycles,
    vec_occupancy,
    vec_tail,
)

from ...ir.schedule import Gemm, Move, Vec
from ...model.drain import drained
from ...program.packets import packets

#: Spare cycles that a plan leaves where a contract holds for an idle channel or controller.
SPARE = 2
#: Cycles that a DRAM channel needs to write a packet after its last flit has been taken: its beats, its response.
_WRITE_BEATS, WRITE_DONE = PORT_WORDS + SPARE, WRITTEN_CYCLES + SPARE
#: Operand memories of a core, by region.
OPERANDS = (Region.MAIN, Region.B)
#: Least cycles from a train's departure to the write of its first word, which follows its head.
FIRST_WRITE = noc_arrival(0, 2)


def code_there(chip: ChipConfig, position: int) -> int:
    """Cycles from the arrival of the controller's first instruction to that of the one at `position` of its first ring:
    a word a cycle, a head before each packet, and a turn-around of the mover between the two halves."""
    words = position * chip.instruction_words
    return words + -(-words // chip.packet_words) + (TURN_CYCLES + SPARE) * (position > 0)


class FetchedCode:
    """When a controller with a code channel can send its instructions, at the latest, for want of their code: it
    requests half a ring when the half before the last has been taken (`control.frontend`).

    `begins`: the cycle from which it can send its first control packet.
    """

    def __init__(self, chip: ChipConfig, begins: int) -> None:
        assert chip.dtt is not None
        assert chip.code_channel is not None
        self._chip, self._half = chip, chip.ring(TileKind.DTT) // 2
        #: By half: the cycle for its first instruction. The first two halves are requested at the start.
        self._there = [begins, begins + code_there(chip, self._half)]
        way = hops(chip.dtt, chip.code_channel)
        request = REQUEST_INTERVAL + REQUEST_CYCLES + way  # the sender may just have taken a packet
        sent = launch(chip, chip.code_channel) + noc_landing(chip, way, 1 + chip.instruction_words)
        #: From an instruction taken to the control packet of the first one that is requested then, behind its ORDER.
        self._answer = request + sent + RING_CYCLES + 2 * ISSUE_CYCLES + SPARE

    def there(self, position: int) -> int:
        """The cycle from which the instruction at `position` can be sent; all before it have been taken."""
        half, at = divmod(position, self._half)
        return self._there[half] + code_there(self._chip, at)

    def take(self, positions: range, cycle: int) -> int:
        """Instructions have been taken by `cycle`. Returns the cycles for which a request for code can delay the next
        control packet."""
        wait = 0
        for position in positions:
            half, at = divmod(position + 1, self._half)
            if half and not at:
                before = self._there[half] + code_there(self._chip, self._half)
                self._there.append(max(cycle + self._answer, before))
                wait += REQUEST_INTERVAL
        return wait


def hops(source: int, target: int) -> int:
    """Hops of a shortest route between two tiles."""
    (x, y), (to_x, to_y) = tile_position(source), tile_position(target)
    return abs(x - to_x) + abs(y - to_y)


def launch(chip: ChipConfig, tile: int) -> int:
    """Cycles from a MOVE's fire time to its departure from the memory of `tile`."""
    return OFFER_CYCLES + HEAD_CYCLES + (chip.dram.latency if chip.tiles[tile] is TileKind.DRAM else 0)


def train(fields: Mapping[str, int], chip: ChipConfig) -> tuple[int, list[int]]:
    """Flits of a MOVE with these body fields, heads included, and the words of each of its packets."""
    words = [size for _, size in packets(fields, chip.packet_words)]
    return sum(words) + len(words), words


def bursts(fields: Mapping[str, int], chip: ChipConfig) -> list[int]:
    """Words of the bursts in which a MOVE's source is read from DRAM: cut like packets, at the source."""
    source = {"dst": fields["src"], "dst_run": fields["src_run"], "dst_stride": fields.get("src_stride", 0)}
    return [size for _, size in packets(source | {"words": fields["words"]}, chip.packet_words)]


def arrival(chip: ChipConfig, departure: int, path_hops: int, flits: int) -> int:
    """The cycle from which the words of a train of flits can be read."""
    return departure + noc_landing(chip, path_hops, flits)


def landing(chip: ChipConfig, departure: int, path_hops: int, flits: int) -> tuple[int, int]:
    """(first cycle, cycle after the last) in which the words of a train are written; its first flit is a head."""
    end = arrival(chip, departure, path_hops, flits)
    return end - flits + 1, end


def write_beats(chip: ChipConfig) -> int:
    """Cycles after the last flit of a packet has left the NoC until a DRAM channel has written the packet."""
    return ejection_cycles(chip) + _WRITE_BEATS


@dataclass(frozen=True)
class ComputeWindow:
    """A computation; all cycles count from its start (first operand address).

    `lead`: from its fire time to its start. `occupied`: until the unit's next one can start, when all operands have
    been read. `first_write`: at least until its first result is written. `cycles`: to its end. `writes`: (first, after
    last) cycles in which it occupies the write port of `region`. `addend`: it reads ACC throughout. `walks`: no mover
    reads A or B while it is occupied.
    """

    lead: int
    occupied: int
    cycles: int
    first_write: int
    region: Region
    writes: tuple[tuple[int, int], ...]
    addend: bool
    walks: bool = False


def work(op: Gemm | Vec, chip: ChipConfig) -> ComputeWindow:
    """The windows of a GEMM or VEC."""
    if isinstance(op, Vec):
        vec = VecShape.of(op.body)
        return ComputeWindow(
            OFFER_CYCLES + VEC_ISSUE_CYCLES,
            vec_occupancy(chip, vec),
            vec_cycles(chip, vec),
            vec_tail(),
            Region.VEC,
            (),
            bool(op["addend"]),
            walks=chip.core.operand_sources,
        )
    shape = GemmShape(op["pixels"], op["n_blocks"], op["k_blocks"], op["kernel_h"], op["kernel_w"])
    rows = drained(chip, op.fields, 0)
    return ComputeWindow(
        OFFER_CYCLES + GEMM_ISSUE_CYCLES,
        gemm_occupancy(chip, shape) + (chip.core.int4 and gemm_bubble(chip, int4=True, before=bool(op["int4"]))),
        gemm_cycles(chip, shape),
        rows[0][0],
        Region.ACC if op["to_acc"] else Region.OUT,
        tuple((first, first + count) for first, count in rows),
        op["addend"] != Addend.NONE,
    )


def is_dram(chip: ChipConfig, move: Move, end: str) -> bool:
    """Whether the `end` ("src" or "dst") of a MOVE is a DRAM channel."""
    return chip.tiles[getattr(move, end).tile] is TileKind.DRAM
