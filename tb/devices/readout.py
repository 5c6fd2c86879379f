"""The program that brings traces and counters home: one MOVE per tile and region, into DRAM after everything else. A
chip without trace records has none to bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import TRACE_BYTES, ChipConfig
from meshloom.hw.spec.isa import TRACE, Opcode, Region, Unit, address
from meshloom.sched.program.names import tile_name
from meshloom.sched.program.packets import packets
from meshloom.sched.program.program import Instruction, Program, ProgramError, Stream
from meshloom.sched.program.routes import RouteError, receivers

#: Longest MOVE in words.
_LONGEST = 65535
#: Semaphore of the host tile that counts what has come home (0 counts the streams of the program itself).
_SEMAPHORE = 1


@dataclass(frozen=True)
class Record:
    """One executed instruction: cycles are counted from the start of the run; `end` is the cycle after its last.

    On chips with `noc.arrivals` also each data packet where it arrived (`arrival`): opcode and tag of its MOVE, `wait`
    its words, `start` the cycle from which its head was offered to the network, `end` the one after its tail was taken.
    """

    tile: int
    unit: Unit
    opcode: Opcode
    tag: int
    wait: int
    stall: int
    start: int
    end: int

    @property
    def arrival(self) -> bool:
        """Whether it is of a packet, not of an instruction."""
        return self.unit is Unit.NONE


@dataclass(frozen=True)
class Readout:
    """Where everything lands: (tile, region, first word in DRAM, words), and the stream that moves it, which has no
    instructions if there is nothing."""

    dram_tile: int
    first: int
    words: int
    parts: tuple[tuple[int, Region, int, int], ...]
    stream: Stream


def records_expected(program: Program, chip: ChipConfig) -> dict[int, int]:
    """Trace records that each tile will write: one per instruction of its streams (END has none), one per instruction
    that another tile has it execute, and in chips with `noc.arrivals` one per data packet that it receives."""
    count = dict.fromkeys(chip.tiles, 0)
    for stream in (*program.streams, program.boot):
        ordered = stream.tile
        for instruction in stream.instructions:
            opcode, fields = instruction.opcode, instruction.fields
            if opcode is Opcode.END:
                continue
            count[stream.tile] += 1
            if opcode is Opcode.ORDER:
                ordered = fields.get("tile", 0)
            elif opcode is Opcode.MOVE:
                executing = fields.get("src_tile", 0)
                # the chip itself reports a tile that is not there, and a MOVE without words
                if executing != stream.tile and executing in count:
                    count[executing] += 1
                if chip.noc.arrivals and fields.get("dst_run", 0):
                    for receiving in count.keys() & _receivers(chip, fields):
                        count[receiving] += len(packets(fields, chip.packet_words))
            elif stream.tile == chip.dtt and opcode in (Opcode.GEMM, Opcode.VEC) and ordered in count:
                count[ordered] += 1
    return count


def _receivers(chip: ChipConfig, fields: Mapping[str, int]) -> set[int]:
    """The tiles that take the words of a MOVE; of one that no checker would accept, its destination."""
    try:
        return set(receivers(chip, fields))
    except RouteError:
        return {fields.get("dst_tile", 0)}


def plan(program: Program, chip: ChipConfig, stats_words: int, free_from: int) -> Readout:
    """Plans the readout into the first DRAM tile from word `free_from` on. Raises ProgramError when it doesn't fit."""
    dram = chip.drams[0]
    if not chip.trace_records:
        return Readout(dram, free_from, 0, (), Stream(chip.host, Unit.MOVER, dram, free_from, ()))
    expected = records_expected(program, chip)
    sizes = [
        (tile, region, words)
        for tile in chip.tiles
        for region, words in (
            (Region.TRACE, min(expected[tile], chip.trace_records) * chip.trace_words),
            (Region.STATS, stats_words),
        )
        if words
    ]
    moves = sum(-(-words // _LONGEST) for _, _, words in sizes)
    code_words = (2 * moves + 1) * chip.instruction_words
    first = -(-(free_from + code_words) // 64) * 64
    total = sum(words for _, _, words in sizes)
    if first + total > chip.dram.words:
        lack = ProgramError(
            f"no space for {total} words of trace in DRAM after word {first} of {chip.dram.words}; raise dram.words to "
            f"{first + total} (--set dram.words={first + total}), or lower trace_records"
        )
        lack.need = first + total
        raise lack
    parts: list[tuple[int, Region, int, int]] = []
    code: list[Instruction] = []
    at = first
    for tile, region, words in sizes:
        parts.append((tile, region, at, words))
        for done in range(0, words, _LONGEST):
            size = min(_LONGEST, words - done)
            code.append(
                Instruction(
                    Opcode.MOVE,
                    {
                        "src_tile": tile,
                        "src": address(region, done),
                        "src_run": size,
                        "dst_tile": dram,
                        "dst": address(Region.MAIN, at + done),
                        "dst_run": size,
                        "words": size,
                        "notify_tile": chip.host,
                        "notify_sem": _SEMAPHORE,
                        "notify": 1,
                    },
                )
            )
            code.append(Instruction(Opcode.SYNC, {"wait_sem": _SEMAPHORE, "wait_n": 1}))
        at += words
    code.append(Instruction(Opcode.END))
    stream = Stream(chip.host, Unit.MOVER, dram, free_from, tuple(code))
    return Readout(dram, first, total, tuple(parts), stream)


def parse(
    readout: Readout, words: NDArray[np.uint8], chip: ChipConfig
) -> tuple[list[Record], dict[int, list[int]], str]:
    """Records (tile by tile, in the order they were written) and counters of every tile, from dumped `words` [n, P],
    and which record is none, if the chip wrote such a thing.

    A tile has as many records as it counts itself: what lies behind them in its trace memory is of an earlier run.
    """
    from meshloom.hw.control.trace import Counter

    counters: dict[int, list[int]] = {}
    traces: dict[int, NDArray[np.uint8]] = {}
    for tile, region, first, count in readout.parts:
        part = np.ascontiguousarray(words[first - readout.first : first - readout.first + count])
        if region is Region.STATS:
            counters[tile] = part.reshape(-1).view("<u4").tolist()
        else:
            traces[tile] = part.reshape(-1, chip.trace_words * chip.lanes)
    records: list[Record] = []
    damage = ""
    numbers = [int(opcode) for opcode in Opcode]
    for tile, slots in traces.items():
        array = slots[: counters[tile][Counter.RECORDS], :TRACE_BYTES]
        fields = _unpack(np.ascontiguousarray(array).view("<u8"))
        whole = np.isin(fields["opcode"], numbers)
        if not whole.all():
            number = int(whole.argmin())
            damage = damage or (
                f"trace record {number} of {tile_name(chip, tile)} has opcode {fields['opcode'][number]}, which no "
                "instruction has: the chip wrote an invalid record"
            )
        columns = {name: values[whole].tolist() for name, values in fields.items()}
        records += map(
            Record,
            repeat(tile),
            map(Unit, columns["unit"]),
            map(Opcode, columns["opcode"]),
            *(columns[name] for name in ("tag", "wait", "stall", "start", "end")),
        )
    return records, counters, damage


def _unpack(slots: NDArray[np.uint64]) -> dict[str, NDArray[np.uint64]]:
    """The fields of trace records, given as [n, 2] little-endian halves."""
    arrays: dict[str, NDArray[np.uint64]] = {}
    for name, (at, width) in TRACE.offsets.items():
        values = slots[:, at // 64] >> np.uint64(at % 64)
        if at % 64 + width > 64:
            values |= slots[:, 1] << np.uint64(64 - at % 64)
        arrays[name] = values & np.uint64((1 << width) - 1)
    return arrays


def shortage(counters: dict[int, list[int]], chip: ChipConfig) -> str:
    """Which tile's trace memory was too small in a run, and the mend; empty if none was. Of a chip without trace
    records: that it has none."""
    from meshloom.hw.control.trace import Counter

    if not chip.trace_records:
        return untraced(chip)
    tile = max(counters, key=lambda tile: counters[tile][Counter.RECORDS], default=chip.host)
    needed = counters[tile][Counter.RECORDS] if counters else 0
    if needed <= chip.trace_records:
        return ""
    return (
        f"{tile_name(chip, tile)} made {needed} trace records and keeps {chip.trace_records}, the others are lost; set "
        f"trace_records = {1 << (needed - 1).bit_length()} in chip {chip.name}"
    )


def untraced(chip: ChipConfig) -> str:
    """What cannot be said of a run on a chip without trace records; empty for other chips."""
    if chip.trace_records:
        return ""
    return (
        f"chip {chip.name} keeps no trace records: its bytes and its cycles in all were compared; which instruction "
        "takes longer than the model says, and how busy links are, nobody knows; set trace_records for that"
    )
