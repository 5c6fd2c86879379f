"""Counters that the host reads while programs run: what the timeline model says of the same cycle, tile by tile."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from random import Random

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.registers import Counted
from meshloom.sched.lowering.templates.compiling import compile_stage
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.templates.relocate import place_program
from meshloom.sched.lowering.templates.schemes import schemes
from meshloom.sched.lowering.templates.template import ProgramPlace
from meshloom.sched.model.busy import Snapshot
from meshloom.sched.model.modelled import ModelSession
from meshloom.sched.model.session import Completion, Launch
from meshloom.tb.build.builder import Build, build
from meshloom.tb.devices.interface import NoDeviceError
from meshloom.tb.devices.serving import ServedChip
from meshloom.tb.runs.online.rtl_session import RtlSession

from ..sched.network_graphs import every_kind
from ..sched.served import FOUR
from ..tiers import slow_but
from .served_chip import CHIP, chip_with

#: A cycle by which all launches have been written: one for each slot.
FIRST = 3_000
#: Cycles after the last program in which nothing may count any more.
AFTER = 300


#: Four virtual channels and memory of less than a word a cycle; one channel, and a word a cycle.
CHIPS = {CHIP.name: CHIP, "four": FOUR}


def script(chip: ChipConfig, seed: int) -> dict[int, Launch]:
    """Stages of a network on one to three cores each, of every kind, launched as soon as cores are free: by cycle of
    the launch."""
    random, session = Random(seed), ModelSession(chip)
    net = ServedNetwork(every_kind(size=10), chip, 8)
    stages = random.sample(range(len(net.shapes)), chip.programs)
    pages = net.code_page + 2
    launches: dict[int, Launch] = {}
    running: dict[int, tuple[int, ...]] = {}
    at = FIRST
    while len(launches) < chip.programs or running:
        busy = {core for cores in running.values() for core in cores}
        free = [core for core in chip.cores if core not in busy]
        while free and len(launches) < chip.programs:
            slot = len(launches)
            shape = net.shapes[stages[slot]]
            scheme = random.choice([one for n in range(1, min(3, len(free)) + 1) for one in schemes(shape, n)])
            cores = tuple(random.sample(free, scheme.cores))
            free = [core for core in free if core not in cores]
            place = ProgramPlace(cores, pages * slot, pages * slot + net.code_page, pages * (slot + 1), slot)
            at = max(at, session.now) + random.randint(1, 200)
            launches[at] = Launch(slot, place_program(compile_stage(net, stages[slot], scheme), chip, place))
            running[slot] = cores
            session.launch(launches[at], at)
        for done in session.advance(None):
            del running[done.slot]
    return launches


def modelled(
    chip: ChipConfig, launches: Mapping[int, Launch], moments: Mapping[int, Counted]
) -> tuple[dict[int, Snapshot], dict[int, int]]:
    """Snapshots of these counters in these cycles, by cycle, and in which each slot's program ends."""
    session = ModelSession(chip)
    snapshots: dict[int, Snapshot] = {}
    ends: dict[int, int] = {}
    for at in sorted({*launches, *moments}):
        while session.now < at - 1:
            ends |= {done.slot: done.cycle for done in session.advance(at - 1)}
        if at in moments:
            snapshots[at] = session.busy(moments[at])
        if at in launches:
            session.launch(launches[at], at)
    return snapshots, ends


@pytest.mark.parametrize("name", slow_but(CHIPS, CHIP.name))
def test_rtl_and_model_count_alike_at_any_moment(name: str) -> None:
    """A counter of each tile in hundreds of cycles before, while and after programs run beside each other.
    They end when the model says, though it knows nothing of who reads."""
    chip = CHIPS[name]
    launches = script(chip, seed=3)
    pairs: dict[int, tuple[Counted, Snapshot]] = {}
    done: dict[int, Completion] = {}
    with ServedChip(build(chip, "verilator")) as served:
        session = RtlSession(served)
        for at, launch in launches.items():
            session.launch(launch, at)
        for counted in cycle(Counted):
            snapshot = served.count(counted)
            pairs[snapshot.cycle] = counted, snapshot
            if len(done) < chip.programs:
                done |= {one.slot: one for one in session.advance(snapshot.cycle)}
            elif snapshot.cycle > max(one.cycle for one in done.values()) + AFTER and counted is Counted.LOCAL:
                break
    right, ends = modelled(chip, launches, {at: counted for at, (counted, _) in pairs.items()})
    assert {slot: one.cycle for slot, one in done.items()} == ends
    wrong = {
        (at, counted.name, tile): (count, right[at].counts[tile])
        for at, (counted, snapshot) in pairs.items()
        for tile, count in snapshot.counts.items()
        if count != right[at].counts[tile]
    }
    assert not wrong
    # every part was caught at work: counts of a tile rose while programs ran
    for counted in Counted:
        seen = [snapshot.counts for one, snapshot in pairs.values() if one is counted]
        assert any(len({counts[tile] for counts in seen}) > 4 for tile in chip.tiles), (counted.name, len(seen))


def test_a_chip_without_counters_says_so(tmp_path: Path) -> None:
    never_started = Build(chip_with("lp4bare", counters=False), "verilator", False, tmp_path, False)
    with pytest.raises(NoDeviceError, match=r"lp4bare has no counters to read: set counters = true"):
        ServedChip(never_started).count(Counted.MOVER)
