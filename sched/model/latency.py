"""The latency of a MOVE without contention, in closed form."""

from __future__ import annotations

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import DELIVERED_CYCLES, HEAD_CYCLES, WRITTEN_CYCLES
from meshloom.hw.spec.timing import noc_landing


class LatencyError(ValueError):
    """A MOVE without such a closed form; the message names the offending value."""


def landing(chip: ChipConfig, hops: int, words: int, packets: int | None = None, *, from_dram: bool = False) -> int:
    """Cycles from a MOVE taken by its source's mover to the cycle after its last word was taken at the destination.

    That is `end` of its last packet's arrival less `start` of its record (with `noc.arrivals`); a local memory has been
    written by then. `hops`: links between routers. `packets`: their number; None: its destination is one run
    that begins at a multiple of `ChipConfig.packet_words`.

        hops + words + packets + 4 cycles

    from a local memory, one more where flits wait in an ejection buffer (`noc.data_vcs` > 1), and `dram.latency` more
    if `from_dram`, from one run of a channel of one word a cycle. Mover, NoC and destination are idle: no other MOVE or
    packet, no drain path, no pending notify. Raises LatencyError for negative `hops`, fewer packets than one or more
    than words, and a slower channel."""
    count = -(-words // chip.packet_words) if packets is None else packets
    if hops < 0 or not 1 <= count <= words:
        raise LatencyError(
            f"{words} words in {count} packets over {hops} hops: give at least one packet, a word for each, and 0 hops "
            "or more"
        )
    if from_dram:
        _whole_rate(chip)
    return HEAD_CYCLES + noc_landing(chip, hops, words + count) + from_dram * chip.dram.latency


def notified(
    chip: ChipConfig,
    hops: int,
    words: int,
    packets: int | None = None,
    *,
    from_dram: bool = False,
    to_dram: bool = False,
) -> int:
    """Cycles from a MOVE taken by its source's mover until its notify is offered to semaphores or post plane: those of
    `landing`, and if `to_dram` those until the channel has responded. Raises LatencyError as `landing` does."""
    if to_dram:
        _whole_rate(chip)
    return landing(chip, hops, words, packets, from_dram=from_dram) + to_dram * (WRITTEN_CYCLES - DELIVERED_CYCLES)


def _whole_rate(chip: ChipConfig) -> None:
    if chip.dram.whole_packets:
        raise LatencyError(
            f"{chip.name}'s DRAM channels send what they have read whole (dram.whole_packets): there is no closed "
            "form for that; predict a program with `model.timeline.play`"
        )
    if chip.dram.banks is not None:
        raise LatencyError(
            f"{chip.name}'s DRAM has banks (dram.banks): what a read takes depends on which rows are open; predict a "
            "program with `model.timeline.play`"
        )
    if chip.dram.bytes_per_cycle < chip.lanes:
        raise LatencyError(
            f"{chip.name}'s DRAM moves {chip.dram.bytes_per_cycle} bytes a cycle and a word has {chip.lanes}: there "
            "is a closed form only for channels with a word a cycle; predict a program with `model.timeline.play`"
        )
