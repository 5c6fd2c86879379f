"""Every latency, depth and limit of the gateware that software relies on, each named once.

The gateware takes its depths and limits from here. Its latencies follow from its registers; the tests in `tests/hw`
measure them and compare them with these. The timeline model, closed forms, lowering, checker and comparison import
them, so a change of the hardware is a change here, which software either follows or is found to contradict.

A latency is the number of cycles from one event to another without stalls: after an event in cycle t the other occurs
in cycle t + latency. `Final` lets mypyc compile them into the timeline model. Formats, their widths and constants
derived from them are in `hw.spec.isa`; counts that depend on the shape of an instruction or a packet are in
`hw.spec.timing`. Nothing here needs the gateware library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .isa import DIVIDEND_SHIFT, REQUEST_FLITS, ROOT_SHIFT

if TYPE_CHECKING:
    from .config import ChipConfig

# -- front end (`control.frontend`) -----------------------------------------------------------------------------------

#: From an instruction in the ring (delivered or pushed) to the first cycle that can load it.
RING_CYCLES: Final = 1
#: From an instruction taken by its unit, or a completed SYNC, to the load of the next.
LOAD_CYCLES: Final = 1
#: From the load to the first cycle in which the wait can be granted or the fire time reached.
DECODE_CYCLES: Final = 1
#: From the grant, or the fire time, to the offer to the unit. Also for MOVEs requested by other tiles
#: (`noc.interface`): with a `fire_at` of f they are offered to their mover in f + 1.
OFFER_CYCLES: Final = 1
#: From an instruction taken by its unit to the offer of the next; least distance of two fire times in a stream.
ISSUE_CYCLES: Final = LOAD_CYCLES + DECODE_CYCLES + OFFER_CYCLES
#: From a FETCH handed to a front end to its first request for code.
START_CYCLES: Final = 1

# -- mover (`memory.mover`) -------------------------------------------------------------------------------------------

#: Words of a local memory that have been read but not sent, including those being read.
LOCAL_FIFO: Final = 4
#: MOVEs between source generator and packetiser: two hide the turn-around of a local memory, eight the latency of DRAM.
LOCAL_DESCRIPTORS: Final = 2
DRAM_DESCRIPTORS: Final = 8
#: From a MOVE taken to the request for its first word, or DRAM burst.
SOURCE_CYCLES: Final = 1
#: From the request for a word of a local memory to the first cycle in which it can be sent.
WORD_CYCLES: Final = 2
#: From a MOVE taken by an idle mover to the offer of its first head, from a local memory.
HEAD_CYCLES: Final = SOURCE_CYCLES + WORD_CYCLES
#: Cycles that the packetiser needs between the last word of a MOVE and the first head of the next.
TURN_CYCLES: Final = 1

# -- request plane (`noc.interface`) ----------------------------------------------------------------------------------

#: From a request taken by the sender to its head flit offered to the NoC.
SENDER_CYCLES: Final = 1
#: From the last flit of a request ejected to the complete request in the taker, which hands over a FETCH, or an
#: instruction for another unit's stream, in that cycle.
TAKER_CYCLES: Final = 1
#: From a MOVE complete in the taker to its entry in the mover's queue (`ChipConfig.mover_queue`), where it is offered.
QUEUE_CYCLES: Final = 1
#: Between two requests of a tile.
REQUEST_INTERVAL: Final = SENDER_CYCLES + REQUEST_FLITS
#: From a requested MOVE taken by the sender to its offer to the remote mover, without the hops (these add
#: `timing.noc_arrival` of `REQUEST_FLITS` flits). For a MOVE with a fire time: to the earliest it can have.
REQUEST_CYCLES: Final = REQUEST_INTERVAL + TAKER_CYCLES + QUEUE_CYCLES
#: From an instruction for a stream of another unit taken by the sender to the earliest fire time that it can have,
#: without the hops.
PUSH_CYCLES: Final = REQUEST_INTERVAL + TAKER_CYCLES + RING_CYCLES + DECODE_CYCLES

# -- data packets at the receiver (`noc.data_receiver`) ---------------------------------------------------------------

#: Depth of the ejection buffer of each virtual channel, if there are several, and the least cycles a flit spends in it.
EJECTION_FLITS: Final = 2
EJECTION_CYCLES: Final = 1
#: From the last word of a packet taken to the notify offered to the semaphores or the post plane; from then on the
#: packet's words can be read, too.
DELIVERED_CYCLES: Final = 1
#: Arrival records that wait for the trace memory, so that it stalls no packet.
ARRIVAL_RECORDS: Final = 8

# -- semaphores (`control.semaphores`) --------------------------------------------------------------------------------

#: Bits of a semaphore, and its largest value; a post past it is a fault.
SEMAPHORE_BITS: Final = 8
SEMAPHORE_MAX: Final = (1 << SEMAPHORE_BITS) - 1
#: From a post accepted to the first take that it can satisfy, and between two operations on a tile's semaphores.
POST_CYCLES: Final = 1


def clear_cycles(config: ChipConfig) -> int:
    """Cycles after reset until the semaphores of a tile are clear: one for each, their number rounded up to a power of
    two. No run can start earlier."""
    return 1 << (config.semaphores - 1).bit_length()


#: From a FETCH with `clear` handed to its front end to the first cycle in which the semaphores of that tile accept
#: nothing; they accept again `clear_cycles` later.
CLEAR_CYCLES: Final = 1

# -- requests for DRAM, by tile (`noc.arbitration`) ----------------------------------------------------------------


def most_credit(config: ChipConfig) -> tuple[int, ...]:
    """Words of credit of each tile, in floorplan order, with `dram.arbitration` "weighted": as many as a round brings
    in, and the most that it has."""
    weights = dict(zip(config.cores, config.dram.weights, strict=False))
    return tuple(config.packet_words * weights.get(tile, 1) for tile in config.tiles)


def words_ahead(config: ChipConfig, tile: int, longest: int) -> int:
    """The most words of MOVEs of other tiles that a DRAM channel begins to read while the first MOVE of `tile` in its
    queue waits, if no MOVE has more than `longest` words. There is no such number with "fifo" but that of the requests
    that came before; raises ValueError for it.

    With "round_robin", one MOVE of each. With "weighted", in each round every other tile reads its credit and the rest
    of the MOVE in which it ends; in the last round, one MOVE of each; and it takes as many rounds to pay for the MOVE
    that `tile` read before."""
    arbitration = str(config.dram.arbitration)
    if arbitration == "fifo":
        raise ValueError('dram.arbitration = "fifo" bounds no words; set "round_robin" or "weighted"')
    credits = dict(zip(config.tiles, most_credit(config), strict=True))
    mine = credits.pop(tile)
    last = longest * len(credits)
    if arbitration == "round_robin":
        return last
    return last + rounds_ahead(mine, longest) * sum(credit + longest - 1 for credit in credits.values())


def rounds_ahead(credit: int, longest: int) -> int:
    """The most rounds that end before a tile with so much credit in each has some, after a MOVE of at most `longest`
    words."""
    return -(-longest // credit)


# -- DRAM port (`memory.dram_port`) -----------------------------------------------------------------------------------

#: Bursts of each direction that may be in flight at once.
DRAM_BURSTS: Final = 16
#: Words that the port buffers in each direction.
PORT_WORDS: Final = 2


def read_words(config: ChipConfig) -> int:
    """Words that the port buffers of what it reads: with `dram.whole_packets` a packet more."""
    return PORT_WORDS + config.packet_words * config.dram.whole_packets


def read_ahead(config: ChipConfig) -> int:
    """With another `dram.arbitration` than "fifo": the mover takes a MOVE only while the bursts that have been
    requested and have not arrived whole have no more words than this. They are enough to keep the channel busy for its
    latency; more would only wait where nobody can overtake them."""
    words = -(-read_latency(config) * config.dram.bytes_per_cycle // config.lanes)
    return config.packet_words + max(config.packet_words, words)


def read_latency(config: ChipConfig) -> int:
    """Cycles from a read address on the bus of an idle channel to the first beat, of a burst that does not wait for the
    bandwidth: `dram.latency`; with `dram.banks`, of a row that another one has to be closed for."""
    times = config.bank_cycles
    return config.dram.latency + (0 if times is None else times.rp + times.rcd + times.cl)


#: From a run, or the head of a packet, accepted to its address on the bus.
ADDRESS_CYCLES: Final = 1
#: From a beat accepted from the bus to the word offered to the packetiser, and from a word accepted to its beat.
BEAT_CYCLES: Final = 1
#: From the response to a burst to the notice that it has been written, and between two notices.
NOTICE_CYCLES: Final = 1
NOTICE_INTERVAL: Final = 2

# -- DRAM channel, as simulated (`tb/build/verilog/dram_model.v`) -----------------------------------------------------

#: From the last beat of a write burst to its response. (`DramConfig.latency`: from an address to a beat.)
RESPONSE_CYCLES: Final = 4
#: Words of bandwidth credit that an idle channel accumulates.
CREDIT_WORDS: Final = 2
#: From the last word of a packet taken by the port to the notice that it has been written.
WRITTEN_CYCLES: Final = BEAT_CYCLES + RESPONSE_CYCLES + NOTICE_CYCLES

# -- matrix and vector unit (`core`) ----------------------------------------------------------------------------------

#: From a GEMM accepted by an idle matrix unit to its first operand address.
GEMM_ISSUE_CYCLES: Final = 2
#: From a VEC accepted by an idle vector unit to its first operand address.
VEC_ISSUE_CYCLES: Final = 2
#: An instruction leaves the stage in which the next can be accepted this many cycles before its first operand address.
STAGE_CYCLES: Final = 1
#: Pipeline between the last operand address of a GEMM and its end: memory read, word register, operand register, store
#: of the sum, addend, scale, write = 7 cycles; less 2 because `timing.gemm_tail` counts rows and columns from one.
GEMM_PIPELINE: Final = 5
#: Steps of the vector unit's divider, a bit each: of the root of a sum of squares (31 bits and those by which it is
#: scaled, two at a time), and of a quotient (a scale of 16 bits and those by which it is).
ROOT_STEPS: Final = (31 + ROOT_SHIFT + 1) // 2
QUOTIENT_STEPS: Final = 16 + DIVIDEND_SHIFT
#: From the last operand address of a VEC to its end: memory read, operand register, product, accumulation, scale, and
#: then the write.
VEC_PIPELINE: Final = 5
#: `YWalk.WHOLE`: cycles without an address between the two walks over a block, in which the maximum or mean is rounded,
#: the sum divides, or the root is drawn and divides.
WHOLE_SUBTRACT_CYCLES: Final = 2
WHOLE_DIVIDE_CYCLES: Final = QUOTIENT_STEPS
WHOLE_ROOT_CYCLES: Final = ROOT_STEPS + QUOTIENT_STEPS
#: Taps of the largest window with weights that slides: half of the vector unit's tap memory.
WINDOW_TAPS: Final = 32
#: From the read of a row's addend to the row's write to ACC; the write to OUT is `ACC_TO_OUT` later.
ADDEND_TO_ACC: Final = 1
ACC_TO_OUT: Final = 2
#: From the write of a GEMM's last row to OUT to the GEMM's end.
OUT_TO_END: Final = 1

# -- ahead-of-time controller (`dtt`) ---------------------------------------------------------------------------------

#: From an instruction offered to the controller to its control packet offered to the request plane.
CONTROLLER_CYCLES: Final = 1
#: The same for a MOVE with waypoints, plus a cycle for each hop and each waypoint (`dtt.route_builder`).
ROUTE_BUILD_CYCLES: Final = 2
#: From the fire time for which a control packet has waited to its offer.
PACE_CYCLES: Final = 1
#: Cycles that an ORDER adds to the interval between control packets: it is issued like every instruction, and a packet
#: is offered only once the previous one has left.
ORDER_CYCLES: Final = 2 * ISSUE_CYCLES + CONTROLLER_CYCLES - REQUEST_INTERVAL

# -- programs that come and go (`host_link.launches`) ------------------------------------------------------------------

#: From the cycle after which a launch may start, or that in which it is queued, or, if it is a successor, that in which
#: the host took the last end-SYNC of its slot's program, whichever is latest, to the first in which the idle front end
#: of the host's mover requests the code of its boot stream.
LAUNCH_CYCLES: Final = 2
#: From the last instruction of a boot stream taken by the mover to the first request for code of the next.
LAUNCH_INTERVAL: Final = 2
#: Launches that wait in the host's queue: two for each slot.
LAUNCHES: Final = 64
#: Successors of a slot's program that wait: the one that begins next may still be waiting for the host's front end, or
#: for its cycle, when the host knows that the program has ended and launches another.
SUCCESSORS: Final = 2
#: Completions that wait to be read: enough for the ends of each slot's program and its successors, and for one fault of
#: each tile (`host_link.reported`).
COMPLETIONS: Final = 256

# -- counters that the host reads (`host_link.counters`) --------------------------------------------------------------

#: Bits of a count, and of the wires that carry counts from tile to tile towards the host.
COUNT_BITS: Final = 32
COUNT_WIRES: Final = 8


def count_cycles(config: ChipConfig) -> int:
    """Cycles from the write that takes a snapshot until all of its counts are there: the write, the snapshot, and then
    each tile's count in turn."""
    return 2 + COUNT_BITS // COUNT_WIRES * len(config.tiles)


# -- trace (`control.trace`) ------------------------------------------------------------------------------------------

#: Bytes of region STATS: 32 bits for each `control.trace.Counter`.
STATS_BYTES: Final = 88
#: ... and for the words that have been corrected, in chips with `ecc`.
ECC_STATS_BYTES: Final = 4


def stats_words(config: ChipConfig) -> int:
    """Words of region STATS."""
    return -(-(STATS_BYTES + ECC_STATS_BYTES * config.ecc) // config.lanes)
