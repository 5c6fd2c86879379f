"""Busy cycles, as the counters of a chip's tiles show them to the host (`hw.spec.registers.Counted`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from meshloom.hw.spec.isa import Unit
from meshloom.hw.spec.registers import Counted

from .machine import Machine
from .noc_flow import PORTS


class Snapshot(NamedTuple):
    """`counts` by tile: cycles before `cycle` in which a part was busy."""

    cycle: int
    counts: Mapping[int, int]


#: Counters of units, of links (by number of the port), and of DRAM channels.
_UNITS = {Counted.MATRIX: Unit.MATRIX, Counted.VECTOR: Unit.VECTOR}
_PORTS = {Counted[name.upper()]: number for number, name in enumerate(PORTS)}
_CHANNELS = {Counted.DRAM_READ: 0, Counted.DRAM_WRITE: 1}


def busy(machine: Machine, counted: Counted, cycle: int) -> dict[int, int]:
    """What a snapshot of a counter in `cycle` shows, by tile: the cycles before `cycle` in which that part was busy.

    Everything before `cycle` must have happened, and nothing from `cycle` on: the machine has run to the end of
    `cycle` - 1.
    """
    chip = machine.chip
    cycles = dict.fromkeys(chip.tiles, 0)
    if counted is Counted.MOVER:
        cycles |= {tile: mover.busy(cycle) for tile, mover in machine.movers.items()}
    elif counted in _UNITS:
        cycles |= {tile: machine.arrays[tile, _UNITS[counted]].busy(cycle) for tile in chip.cores}
    elif counted in _CHANNELS:
        cycles |= {tile: dram.busy(cycle)[_CHANNELS[counted]] for tile, dram in machine.drams.items()}
    else:
        flits = machine.data.busy(cycle)
        cycles |= {tile: flits.get((tile, _PORTS[counted]), 0) for tile in chip.tiles}
    return cycles
