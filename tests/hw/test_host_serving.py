"""The host's registers in a run in which programs come and go: launches, completions, the interrupt, the end."""

from __future__ import annotations

import pytest

from meshloom.hw.host_link.reported import most_completions
from meshloom.hw.spec.config import ChipConfig, ConfigError, load
from meshloom.hw.spec.contracts import COMPLETIONS, LAUNCHES, SUCCESSORS
from meshloom.hw.spec.isa import Cause, Unit
from meshloom.hw.spec.registers import COMPLETION, CONTROL, FAULT_WHO, LAUNCH, STATUS, Register

from .test_host import Access, Outcome, run
from .unit_bench import never

CHIP = ChipConfig.model_validate(
    {"name": "t", "lanes": 4, "floorplan": ["dram core host"], "dram": {"bytes_per_cycle": 4}, "programs": 3}
)
SERVE, STOP = CONTROL.pack({"start": 1, "serve": 1}), CONTROL.pack({"stop": 1})
SHAPE = {"fault": 1, "cause": int(Cause.SHAPE), "unit": int(Unit.MATRIX), "tile": 0x01, "tag": 77, "value": 0x1234567}


def serve(at: int = 0, control: int = SERVE) -> list[Access]:
    return [Access(at, Register.CONTROL, control)]


def launch(number: int, slot: int = 0, streams: int = 1, at: int = 0) -> list[Access]:
    values = {"PROGRAM_TILE": 0, "PROGRAM_ADDR": 100 * number, "PROGRAM_COUNT": number, "LAUNCH_AT": at}
    entry = LAUNCH.pack({"streams": streams, "slot": slot})
    return [*(Access(0, Register[name], value) for name, value in values.items()), Access(0, Register.LAUNCH, entry)]


def status(value: int) -> set[str]:
    return {name for name, on in STATUS.unpack(value).items() if on}


def done_registers(at: int) -> list[Access]:
    names = ("DONE", "DONE_WHO", "DONE_VALUE", "DONE_CYCLE", "DONE_COUNT")
    return [Access(at, Register[name]) for name in names]


def in_run(out: Outcome, cycle: int) -> int:
    """The run's number of a cycle of the simulation."""
    return out.now[cycle]


def test_such_a_run_starts_nothing_until_it_is_told_to() -> None:
    out = run([*serve(), Access(20, Register.STATUS), *launch(3, streams=2)], config=CHIP)
    assert status(out.values[0]) == {"running"}
    ((cycle, fetch),) = out.starts
    assert cycle == out.accepted[-1] + 1
    assert {name: fetch[name] for name in ("dram", "addr", "count")} == {"dram": 0, "addr": 300, "count": 3}
    assert out.go[cycle]
    assert not any(out.irq)


def test_a_launch_starts_after_its_cycle_of_the_run() -> None:
    out = run([*serve(5), *launch(3, at=50)], config=CHIP)
    ((cycle, _),) = out.starts
    assert in_run(out, cycle) == 51


def test_each_launch_has_what_was_written_before_it() -> None:
    out = run([*serve(), *launch(1, at=70), *launch(2, at=70), *launch(3)], config=CHIP, cycles=120)
    assert [(in_run(out, cycle), fetch["addr"], fetch["count"]) for cycle, fetch in out.starts] == [
        (71, 100, 1), (72, 200, 2), (73, 300, 3)
    ]  # fmt: skip


@pytest.mark.parametrize("control", [CONTROL.pack({"start": 1}), 0])
def test_other_runs_have_no_launches(control: int) -> None:
    """Before a run, and in one with a program of its own, the register does nothing, also not later, and says so."""
    count = Access(0, Register.PROGRAM_COUNT, 1)
    out = run([count, *serve(0, control), *launch(3)], config=CHIP)
    assert len(out.starts) == bool(control)
    assert out.refused == [6]
    accesses = [count, *serve(0, control), *launch(3), *serve(40), Access(90, Register.STATUS)]
    later = run(accesses, config=CHIP, ended=[30], cycles=120)
    assert len(later.starts) == bool(control)
    assert status(later.values[0]) == {"running"}


def test_a_completion_is_shown_until_it_is_taken() -> None:
    accesses = [*serve(), *launch(3, slot=2, streams=2), *done_registers(50)]
    accesses += [Access(70, Register.DONE, 1), *done_registers(75)]
    out = run(accesses, faults={30: {"sem": 2, "n": 1}, 40: {"sem": 2, "n": 1}}, config=CHIP, cycles=120)
    shown = COMPLETION.pack({"valid": 1, "slot": 2})
    assert out.values == [shown, 0, 0, in_run(out, 40), 1, 0, 0, 0, 0, 0]
    taken = out.accepted[-6]
    assert [cycle for cycle, irq in enumerate(out.irq) if irq] == list(range(42, taken + 1))


def test_a_fault_is_a_completion_and_ends_nothing() -> None:
    """It leaves the registers of a run's fault alone."""
    accesses = [*serve(), *done_registers(50), Access(50, Register.STATUS), Access(50, Register.FAULT_WHO)]
    out = run(accesses, faults={40: SHAPE, 43: SHAPE | {"tile": 0x00}}, config=CHIP)
    who = FAULT_WHO.pack({name: SHAPE[name] for name in ("cause", "unit", "tile", "tag")})
    shown = COMPLETION.pack({"valid": 1, "fault": 1})
    assert out.values[:5] == [shown, who, SHAPE["value"], in_run(out, 40), 2]
    assert status(out.values[5]) == {"running"}
    assert out.values[6] == 0
    assert all(out.go[10:])


def test_a_flood_of_faults_leaves_one_completion_for_each_tile() -> None:
    """Two tiles of the floorplan and one that it does not have report more faults than the queue holds, in every cycle
    and before any is taken; programs end meanwhile, and nothing is lost."""
    tiles, flood = (0x00, 0x01, 0x77), range(40, 40 + 2 * COMPLETIONS)
    posts = {cycle: SHAPE | {"tile": tiles[cycle % 3], "value": cycle} for cycle in flood}
    posts |= {100: {"sem": 0, "n": 1}, 200: {"sem": 2, "n": 1}}
    last = flood[-1] + 20
    accesses = [*serve(), *launch(1, slot=0), *launch(2, slot=2), Access(last, Register.DONE_COUNT)]
    accesses += [Access(last, Register.STATUS)]
    for _ in range(5):
        accesses += [Access(0, Register[name]) for name in ("DONE", "DONE_WHO", "DONE_VALUE", "DONE_CYCLE")]
        accesses.append(Access(0, Register.DONE, 1))
    accesses.append(Access(0, Register.DONE))
    out = run(accesses, faults=posts, config=CHIP, cycles=last + 150)
    assert out.values[0] == 5
    assert status(out.values[1]) == {"running"}
    result = [out.values[at : at + 4] for at in range(2, 22, 4)]
    faults = [(FAULT_WHO.unpack(who)["tile"], value) for done, who, value, _ in result if done & 2]
    assert faults == [(tiles[cycle % 3], cycle) for cycle in (40, 41, 42)]
    ends = [(COMPLETION.unpack(done)["slot"], cycle) for done, _, _, cycle in result if not done & 2]
    assert ends == [(0, in_run(out, 100)), (2, in_run(out, 200))]
    assert out.values[22] == 0


@pytest.mark.parametrize(
    ("taken", "cleared", "again"), [(False, False, 0), (True, False, 0), (False, True, 0), (True, True, 1)]
)
def test_a_tile_is_reported_again_once_taken_and_cleared(taken: bool, cleared: bool, again: int) -> None:
    """Both, in either order; others are reported in between, and clearing another tile does nothing."""
    posts = {40: SHAPE, 90: SHAPE | {"tile": 0x00}, 100: SHAPE, 105: SHAPE}
    accesses = [*serve(), *([Access(50, Register.DONE, 1)] if taken else []), Access(120, Register.DONE_COUNT)]
    out = run(
        accesses, faults=posts, config=CHIP, cycles=140, cleared={30: 0x01, 70: 0x01 if cleared else 0x00, 75: 0x02}
    )
    assert out.values == [2 - taken + again]


def test_taking_the_end_of_a_program_is_not_taking_a_fault() -> None:
    """Whatever tile the registers would name: the fault of tile 0 is still queued, so there is no second one."""
    posts = {30: {"sem": 0, "n": 1}, 40: SHAPE | {"tile": 0x00}, 90: SHAPE | {"tile": 0x00}}
    accesses = [*serve(), *launch(1, slot=0), Access(60, Register.DONE, 1), Access(120, Register.DONE_COUNT)]
    out = run(accesses, faults=posts, config=CHIP, cycles=140, cleared={80: 0x00})
    assert out.values == [1]


def test_another_run_knows_of_no_faults_of_the_one_before() -> None:
    accesses = [*serve(), Access(60, Register.CONTROL, STOP), *serve(70), Access(120, Register.DONE_COUNT)]
    out = run(accesses, faults={40: SHAPE, 90: SHAPE}, config=CHIP, cycles=140)
    assert out.values == [1]


def test_stop_ends_the_run() -> None:
    accesses = [*serve(), Access(30, Register.CONTROL, STOP), Access(40, Register.STATUS), Access(60, Register.CYCLES)]
    out = run(accesses, config=CHIP)
    stopped = out.accepted[1]
    assert (out.go[stopped], out.go[stopped + 1]) == (1, 0)
    assert status(out.values[0]) == {"done", "ready"}
    assert out.values[1] == in_run(out, stopped) + 1
    assert out.irq[stopped + 1]


def test_stop_means_nothing_while_nothing_runs() -> None:
    out = run([*serve(0, STOP), Access(10, Register.STATUS), *serve(20), Access(30, Register.STATUS)], config=CHIP)
    assert [status(value) for value in out.values] == [{"ready"}, {"running"}]


@pytest.mark.parametrize("idle", [True, False])
def test_another_run_begins_with_empty_queues(idle: bool) -> None:
    """Neither a launch that has not started nor a completion that was not taken is left of the one before."""
    accesses = [*serve(), *launch(1, slot=1, streams=2), *launch(2, at=4000), Access(60, Register.CONTROL, STOP)]
    accesses += [*serve(70), *done_registers(80)]
    posts = {50: SHAPE, 75: {"sem": 1, "n": 2}}
    out = run(accesses, faults=posts, config=CHIP, cycles=140, idle=lambda cycle: idle or cycle >= 75)
    assert len(out.starts) == int(idle)
    assert out.values == [0] * 5
    assert not any(out.irq[out.accepted[-6] + 1 :])


def test_the_status_says_when_the_queue_is_full() -> None:
    entry = LAUNCH.pack({"streams": 1})
    accesses = [*serve(), Access(0, Register.PROGRAM_COUNT, 1)]
    for number in range(LAUNCHES):
        accesses += [Access(0, Register.LAUNCH, entry)]
        if number == LAUNCHES - 2:
            accesses += [Access(0, Register.STATUS)]
    accesses += [Access(0, Register.STATUS), Access(0, Register.LAUNCH, entry), Access(0, Register.STATUS)]
    out = run(accesses, config=CHIP, idle=never, cycles=2 * LAUNCHES + 30)
    full = {"running", "full"}
    assert [status(value) for value in out.values] == [{"running"}, full, full | {"refused"}]
    assert out.refused == [len(accesses) - 2]


@pytest.mark.parametrize(
    ("entry", "instructions", "strobes"),
    [
        (LAUNCH.pack({"streams": 1, "slot": CHIP.programs + 1}), 1, 0xF),  # one more than whoever clears up
        (LAUNCH.pack({"streams": 1, "slot": CHIP.programs, "follows": 1}), 1, 0xF),  # which has no successors
        (LAUNCH.pack({"streams": 1}), 0, 0xF),
        (LAUNCH.pack({"streams": 1}), 1, 0x3),
    ],
)
def test_launches_that_would_be_lost_are_refused(entry: int, instructions: int, strobes: int) -> None:
    accesses = [*serve(), Access(0, Register.PROGRAM_COUNT, instructions)]
    out = run([*accesses, Access(0, Register.LAUNCH, entry, strobes=strobes)], config=CHIP)
    assert (out.refused, out.starts) == ([2], [])


def test_successors_without_room_are_refused_until_they_are_withdrawn() -> None:
    after, none = (LAUNCH.pack({"streams": streams, "slot": 1, "follows": 1}) for streams in (1, 0))
    accesses = [*serve(), Access(0, Register.PROGRAM_COUNT, 1)]
    accesses += [Access(0, Register.LAUNCH, entry) for entry in [after] * (SUCCESSORS + 1) + [none, after]]
    assert run(accesses, config=CHIP, idle=never).refused == [2 + SUCCESSORS]


def test_the_watchdogs_still_end_the_run() -> None:
    accesses = [Access(0, Register.WATCHDOG, 40), *serve(), Access(80, Register.STATUS), Access(80, Register.FAULT_WHO)]
    out = run(accesses, config=CHIP)
    assert status(out.values[0]) == {"fault"}
    assert FAULT_WHO.unpack(out.values[1])["cause"] == Cause.WATCHDOG


def test_chips_of_one_program_have_none_of_these_registers() -> None:
    accesses = [Access(0, Register.PROGRAM_COUNT, 1), *serve(), *launch(3), *done_registers(40)]
    out = run([*accesses, Access(60, Register.LAUNCH_AT)], faults={30: {"sem": 0, "n": 1}})
    assert (len(out.starts), out.values) == (1, [0] * 6)
    assert out.refused == list(range(5, 13)), "LAUNCH_AT, LAUNCH, and all that is read"
    assert not any(out.irq)


def test_a_chip_whose_completions_might_not_fit_is_refused() -> None:
    rows = ["host" + 15 * " spm", *([16 * " spm"] * 14), "core dram" + 14 * " spm"]
    crowd = ChipConfig.model_validate(CHIP.model_dump() | {"name": "crowd", "floorplan": rows})
    with pytest.raises(ConfigError, match=r"crowd: 256 tiles and 3 programs can have 267 completions .* keeps 256"):
        most_completions(crowd)
    assert most_completions(CHIP) == 3 + 1 + 3 * (1 + SUCCESSORS) + 1
    assert most_completions(load("lp25")) < COMPLETIONS
