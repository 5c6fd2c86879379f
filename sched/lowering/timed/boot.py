"""The start of an ahead-of-time program: the host starts the controller, whose first ring of code arrives unplanned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.contracts import REQUEST_INTERVAL
from meshloom.hw.spec.isa import Opcode, Unit

from ...model.timeline import played
from ...program.program import Instruction, Program, Stream, next_tag
from . import dram_train


@dataclass(frozen=True)
class Boot:
    """`begins`: the cycle from which the controller can send control packets. `until`: its first ring has arrived.

    `sent`: the cycle in which the last word of that ring has left its DRAM tile. `fetched`: words of each FETCH.
    """

    begins: int
    until: int
    sent: int
    fetched: tuple[int, ...]

    def mover(self, chip: ChipConfig) -> dram_train.State:
        """The mover of the code's DRAM tile when it has sent the first ring (a state of `dram_train`): MOVEs that fire
        earlier wait behind the code and occupy the mover's queues."""
        state = dram_train.new_state()
        last = 0
        for number, words in enumerate(self.fetched):
            accepted = dram_train.earliest(state, number * REQUEST_INTERVAL)
            longest = chip.packet_words  # which its address is a multiple of
            pieces = np.full(-(-words // longest), longest)
            pieces[-1] = words - pieces[:-1].sum()
            _, last = dram_train.send(state, accepted, chip.dram.latency, pieces, pieces)
        dram_train.shift(state, self.sent - last)
        return state


def boot_of(chip: ChipConfig, code_tile: int, code_address: int, count: int) -> Boot:
    """The start of a program of `count` instructions at word `code_address` of `code_tile`: as the model plays a
    program of SYNCs only."""
    assert chip.dtt is not None
    ring = chip.ring(TileKind.DTT)
    count = min(count, ring)
    stream = [Instruction(Opcode.SYNC, {"tag": next_tag(index)}) for index in range(count - 1)]
    stream.append(Instruction(Opcode.SYNC, {"tag": next_tag(count), "tile": chip.host, "sem": 0, "n": 1}))
    fetch = {
        "tag": next_tag(0), "tile": chip.dtt, "unit": int(Unit.MOVER), "dram": code_tile,
        "addr": code_address, "count": count,
    }  # fmt: skip
    boot = (
        Instruction(Opcode.FETCH, fetch),
        Instruction(Opcode.SYNC, {"tag": next_tag(1), "wait_sem": 0, "wait_n": 1}),
        Instruction(Opcode.END),
    )
    beyond = code_address + count * chip.instruction_words
    streams = Stream(chip.dtt, Unit.MOVER, code_tile, code_address, tuple(stream))
    program = Program(chip.digest, (streams,), Stream(chip.host, Unit.MOVER, code_tile, beyond, boot), {})
    machine = played(program, chip)
    there = machine.streams[chip.dtt, Unit.MOVER].whole
    first = min(entry.start for entry in machine.executed if entry.tile == chip.dtt)
    halves = [min(ring // 2, count - at) * chip.instruction_words for at in range(0, count, ring // 2)]
    return Boot(first + 2, there + 4, machine.movers[code_tile].idle_from - 1, tuple(halves))
