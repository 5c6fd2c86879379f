"""The host's registers over AXI4-Lite: a run's start, end, faults and watchdog, to the cycle."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from meshloom.hw.host_link.host import HostPort
from meshloom.hw.host_link.reporter import most_reports
from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import INSTRUCTIONS, POST, STATE, BlockedOn, Cause, Opcode, Part, Unit
from meshloom.hw.spec.registers import CONTROL, FAULT_WHO, ID_VALUE, IRQ, MEANINGS, STATUS, Register
from meshloom.hw.wiring.axi import Response

from .unit_bench import Mood, always, never, simulate, sometimes

HERE = 0x31
RUNNING, DONE, FAULT, READY, REFUSED = (
    STATUS.pack({name: 1}) for name in ("running", "done", "fault", "ready", "refused")
)
FETCH = INSTRUCTIONS[Opcode.FETCH]
#: How wide the registers are that keep what is written.
WIDTHS = {
    Register.PROGRAM_TILE: FETCH.bits("dram"),
    Register.PROGRAM_ADDR: FETCH.bits("addr"),
    Register.PROGRAM_COUNT: FETCH.bits("count"),
    Register.WATCHDOG: 32,
    Register.STALL_LIMIT: 32,
    Register.IRQ_ENABLE: IRQ.used,
}


@dataclass(frozen=True)
class Access:
    """A register access at the earliest in cycle `at`; `data` None reads. `skew`: cycles by which the data of a write
    comes after its address; `strobes`: of its bytes."""

    at: int
    register: int
    data: int | None = None
    skew: int = 0
    strobes: int = 0xF


@dataclass
class Outcome:
    values: list[int] = field(default_factory=list)  #: of reads, in order
    accepted: list[int] = field(default_factory=list)  #: cycle in which each access was accepted
    answered: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)  #: numbers of accesses that were answered with SLVERR
    starts: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    now: list[int] = field(default_factory=list)  #: of every cycle, like what follows
    go: list[int] = field(default_factory=list)
    irq: list[int] = field(default_factory=list)
    trace: list[int] = field(default_factory=list)
    ask: list[int] = field(default_factory=list)
    counting: list[int] = field(default_factory=list)
    reset_wanted: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)


def run(
    accesses: Sequence[Access],
    *,
    cycles: int = 100,
    ended: Sequence[int] = (),
    faults: dict[int, dict[str, int]] | None = None,
    moved: Mood = always,
    ready_from: int = 0,
    willing: Mood = always,
    config: ChipConfig | None = None,
    idle: Mood = always,
    cleared: Mapping[int, int] | None = None,
    counts: Callable[[int, int, int], int] | None = None,
    early: bool = False,
    settled: Mood = never,
    served: bool = True,
) -> Outcome:
    """Performs accesses one after another. `early`: holds the address of the next one while the response to the one
    before still stands. `ended`: cycles in which END is executed; `faults`: posts that arrive;
    `moved`: when some tile shows progress; `idle`: when the host's stream is; `cleared`: cycles in which it sends a
    FETCH with `clear`, and to which tile. `counts(which, position, now)`: what the counters of the tiles show, by their
    position in the chain and the cycle of the run. `settled`: DRAM is at rest, after a reset was asked for. Without
    `served` accesses need not be answered."""
    unit = HostPort(config or load("tiny"))
    bus = unit.bus
    out = Outcome()
    asking: Access | None = None  # what is asked in this cycle
    chain = b""  # the bytes in the links of the tiles

    def before(cycle: int, context: Any) -> None:
        nonlocal asking, chain
        context.set(unit.tile, HERE)
        context.set(unit.ready, cycle >= ready_from)
        context.set(unit.ended, cycle in ended)
        context.set(unit.moved, moved(cycle))
        context.set(unit.settled, settled(cycle))
        report = (faults or {}).get(cycle)
        context.set(unit.fault.valid, report is not None)
        if report is not None:
            context.set(unit.fault.payload.as_value(), POST.pack(report))
        if unit.config.programs:  # sees the same
            context.set(unit.post.valid, report is not None)
            context.set(unit.post.payload.as_value(), POST.pack(report or {}))
            context.set(unit.idle, idle(cycle))
            context.set(unit.cleared.valid, cycle in (cleared or {}))
            context.set(unit.cleared.tile, (cleared or {}).get(cycle, 0))
        if unit.config.counters and counts is not None:
            ask = unit.counter_ask
            if context.get(ask.sample):
                which, now = context.get(ask.which), context.get(unit.now)
                sampled = (counts(which, position, now) for position in range(len(unit.config.tiles)))
                chain = b"\0" + b"".join(count.to_bytes(4, "little") for count in sampled)
            elif context.get(ask.shift):
                chain = chain[1:]
                context.set(unit.counter_data, chain[0])
        number, answered = len(out.accepted), len(out.answered)
        free = number < len(accesses) and (early or number == answered)
        asking = accesses[number] if free and cycle >= accesses[number].at else None
        writing = asking is not None and asking.data is not None
        context.set(bus.awvalid, writing)
        context.set(bus.wvalid, asking is not None and writing and cycle >= asking.at + asking.skew)
        context.set(bus.arvalid, asking is not None and not writing)
        if asking is not None:
            context.set(bus.awaddr, asking.register)
            context.set(bus.araddr, asking.register)
            context.set(bus.wdata, asking.data or 0)
            context.set(bus.wstrb, asking.strobes)
        patient = number > answered and willing(cycle)
        context.set(bus.bready, patient and accesses[answered].data is not None)
        context.set(bus.rready, patient and accesses[answered].data is None)

    def after(cycle: int, context: Any) -> None:
        for name in ("now", "go", "irq", "trace", "ask", "counting", "reset_wanted", "released"):
            getattr(out, name).append(context.get(getattr(unit, name)))
        if context.get(unit.start.valid):
            fetch = INSTRUCTIONS[Opcode.FETCH].unpack(context.get(unit.start.fetch.as_value()))
            out.starts.append((cycle, fetch))
        assert context.get(unit.fault.ready)
        if len(out.answered) < len(out.accepted):
            reading = accesses[len(out.answered)].data is None
            valid, ready = (bus.rvalid, bus.rready) if reading else (bus.bvalid, bus.bready)
            if context.get(valid) and context.get(ready):
                response = Response(context.get(bus.rresp if reading else bus.bresp))
                assert response in (Response.OKAY, Response.SLVERR)
                if response is Response.SLVERR:
                    out.refused.append(len(out.answered))
                if reading:
                    out.values.append(context.get(bus.rdata))
                out.answered.append(cycle)
        if asking is not None:
            taken = context.get(bus.awready), context.get(bus.wready), context.get(bus.arready)
            writing = context.get(bus.awvalid)
            if writing:
                assert taken[0] == taken[1], "address and data are taken together"
            if (writing and taken[0] and context.get(bus.wvalid)) or (context.get(bus.arvalid) and taken[2]):
                out.accepted.append(cycle)

    simulate(unit, cycles, before=before, after=after)
    assert len(out.answered) == len(accesses) or not served, "an access was never answered"
    return out


def program(at: int = 0, watchdog: int = 0, control: int = 3) -> list[Access]:
    values = {"PROGRAM_TILE": 0x12, "PROGRAM_ADDR": 3456, "PROGRAM_COUNT": 78, "WATCHDOG": watchdog, "CONTROL": control}
    return [Access(at, Register[name], value) for name, value in values.items()]


#: Cycle in which the start of `program()` is accepted: five writes of two cycles each.
START = 8


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_registers_keep_what_is_written(seed: int) -> None:
    """Bytes with a strobe alone, and only if the whole fits; all else is answered with SLVERR and changes nothing."""
    rng = random.Random(seed)
    config = load("quad8")
    known = dict.fromkeys(WIDTHS, 0) | {Register.ID: ID_VALUE, Register.CONFIG: int(config.digest[-8:], 16)}
    known |= {Register.CYCLES: 0, Register.FAULT_WHO: 0, Register.FAULT_VALUE: 0, Register.IRQ_STATUS: 0}
    known |= {Register.QUIET: 0, Register.REPORTS: 0, Register.REPORT_LOW: 0, Register.CONTROL: 0}
    known[Register.IRQ_ENABLE] = IRQ.pack(dict.fromkeys(IRQ.offsets, 1))
    missing = [0x40, 0xFC, Register.WATCHDOG + 1, Register.ID + 2, Register.COUNT]
    accesses, expected, refused = list[Access](), list[int](), list[int]()
    for number in range(80):
        if rng.random() < 0.5:
            register = rng.choice([*WIDTHS, *WIDTHS, Register.ID, Register.CYCLES, Register.FAULT_WHO, *missing])
            value, strobes = rng.getrandbits(rng.choice([2, 8, 24, 32])), rng.choice([0xF, rng.randrange(16)])
            merged = written(known.get(Register(register), 0), value, strobes) if register in WIDTHS else 0
            if register not in WIDTHS or merged >> WIDTHS[Register(register)]:
                refused.append(number)
            else:
                known[Register(register)] = merged
            accesses.append(Access(0, register, value, rng.randrange(3), strobes))
        else:
            register = rng.choice([*known, *missing])
            if register in missing:
                refused.append(number)
            expected.append(0 if register in missing else known[Register(register)])
            accesses.append(Access(0, register))
    out = run(accesses, cycles=800, willing=sometimes(rng, 0.6), config=config)
    assert out.values == expected
    assert out.refused == refused
    assert out.starts == []


def written(old: int, new: int, strobes: int) -> int:
    """A register after a write."""
    return sum((new if strobes >> byte & 1 else old) & 0xFF << 8 * byte for byte in range(4))


@pytest.mark.parametrize("register", list(Register))
def test_a_register_is_used_as_its_table_says(register: Register) -> None:
    """On a chip that has all of them: what is not written or not read says so."""
    use, _ = MEANINGS[register]
    chip = ChipConfig.model_validate(load("tiny").model_dump() | {"name": "t", "programs": 2, "counters": True})
    out = run([Access(0, register, 0), Access(0, register), Access(0, Register.STATUS)], config=chip)
    writable = "w" in use and register is not Register.LAUNCH  # which wants a run that serves
    assert out.refused == ([] if writable else [0])
    assert STATUS.unpack(out.values[-1])["refused"] == (not writable)


@pytest.mark.parametrize("strobes", [0b0000, 0b1110])
def test_a_start_without_its_byte_is_none(strobes: int) -> None:
    out = run([*program(control=0), Access(0, Register.CONTROL, 3, strobes=strobes)])
    assert (out.starts, out.refused, any(out.go)) == ([], [], False)


def test_a_byte_of_the_watchdog_leaves_the_others() -> None:
    accesses = [Access(0, Register.WATCHDOG, 0x11223344), Access(0, Register.WATCHDOG, 0xAABBCCDD, strobes=0b0100)]
    assert run([*accesses, Access(0, Register.WATCHDOG)]).values == [0x11BB3344]


def test_a_program_of_no_instructions_is_a_fault() -> None:
    accesses = [*program()[:2], Access(0, Register.CONTROL, 1)]
    out = run([*accesses, Access(20, Register.STATUS), Access(20, Register.FAULT_WHO)])
    assert out.values == [FAULT, _who(Cause.SHAPE)]
    assert (out.starts, any(out.go)) == ([], False)
    assert out.irq[-1]


@pytest.mark.parametrize("watchdog", [1, 20])
def test_a_watchdog_that_is_lowered_below_the_count_bites_at_once(watchdog: int) -> None:
    accesses = [*program(watchdog=90), Access(50, Register.WATCHDOG, watchdog), Access(60, Register.FAULT_WHO)]
    out = run(accesses)
    assert out.values == [_who(Cause.WATCHDOG)]
    assert out.go[50:53] == [1, 1, 0]


def test_an_end_is_acknowledged_and_the_next_run_ends_again() -> None:
    """The bit of another cause acknowledges nothing; neither does a start that cannot be."""
    done, fault = IRQ.pack({"done": 1}), IRQ.pack({"fault": 1})
    accesses = [*program(), Access(50, Register.IRQ_STATUS), Access(50, Register.IRQ_STATUS, fault)]
    accesses += [Access(50, Register.IRQ_STATUS), Access(60, Register.IRQ_STATUS, done)]
    accesses += [Access(60, Register.IRQ_STATUS), Access(60, Register.STATUS), Access(70, Register.CONTROL, 1)]
    out = run(accesses, ended=[40, 90])
    assert out.values == [done, done, 0, DONE | READY]
    assert out.irq == [0] * 41 + [1] * 20 + [0] * 30 + [1] * 9


@pytest.mark.parametrize(("enable", "seen"), [("done", [1, 0]), ("fault", [0, 1]), ("completion", [0, 0])])
def test_the_pin_shows_what_is_enabled(enable: str, seen: list[int]) -> None:
    only = Access(0, Register.IRQ_ENABLE, IRQ.pack({enable: 1}))
    accesses = [only, *program(), Access(60, Register.CONTROL, 1), Access(80, Register.IRQ_STATUS)]
    out = run(accesses, ended=[40], faults={70: REPORT})
    assert [out.irq[50], out.irq[75]] == seen
    assert out.values == [IRQ.pack({"fault": 1})]


@pytest.mark.parametrize("patience", [1.0, 0.3])
@pytest.mark.parametrize("reads", ["REPORT_LOW", "REPORT_HIGH", "REPORTS"])
def test_an_address_that_is_held_while_a_response_stands_counts_once(reads: str, patience: float) -> None:
    """AXI4-Lite lets a master do so. Reading REPORT_HIGH takes a report; nothing else may, and only once a read."""
    arriving = {40 + number: as_post(number) for number in range(4)}
    left = [Access(60, Register[reads]), Access(60, Register.REPORTS)] * 4
    willing = sometimes(random.Random(1), patience)
    out = run([*program(watchdog=20), *left], faults=arriving, cycles=300, willing=willing, early=True)
    assert out.values[1::2] == ([3, 2, 1, 0] if reads == "REPORT_HIGH" else [4] * 4)


@pytest.mark.parametrize("seed", [1, 2])
def test_writes_whose_addresses_are_held_early_are_done_once_and_in_order(seed: int) -> None:
    """While the response to a write stands, and while that to a read does."""
    rng = random.Random(seed)
    values = [rng.randrange(4, 1 << FETCH.bits("addr")) for _ in range(20)]
    accesses = [access for value in values for access in (
        *(Access(0, Register.PROGRAM_ADDR, value - n, rng.randrange(3)) for n in range(rng.randrange(1, 4), -1, -1)),
        *[Access(0, Register.PROGRAM_ADDR)] * rng.randrange(1, 3),
    )]  # fmt: skip
    out = run(accesses, cycles=900, willing=sometimes(rng, 0.4), early=True)
    held = 0
    expected = list[int]()
    for access in accesses:
        if access.data is None:
            expected.append(held)
        else:
            held = access.data
    assert out.values == expected


def test_a_start_whose_address_is_held_early_starts_once() -> None:
    out = run(program(), early=True, willing=lambda cycle: cycle % 5 == 0)
    assert len(out.starts) == 1


def test_an_access_is_answered_in_the_next_cycle() -> None:
    out = run([Access(5, Register.WATCHDOG, 9), Access(5, Register.WATCHDOG), Access(20, Register.ID)])
    assert (out.accepted, out.answered) == ([5, 7, 20], [6, 8, 21])
    assert out.values == [9, ID_VALUE]


def test_a_start_hands_the_boot_program_to_the_mover() -> None:
    out = run([*program(), Access(30, Register.STATUS), Access(30, Register.CYCLES)])
    ((cycle, fetch),) = out.starts
    assert (cycle, out.accepted[4]) == (START, START)
    assert (fetch["dram"], fetch["addr"], fetch["count"]) == (0x12, 3456, 78)
    # the clock of the run is 0 in its first cycle, and `go` holds from then on
    assert out.go == [0] * (START + 1) + [1] * (100 - START - 1)
    assert out.now[START + 1 : START + 4] == [0, 1, 2]
    assert out.trace[START + 1] == 1
    assert not any(out.irq)
    status, cycles = out.values
    assert status == RUNNING
    assert cycles == 32 - (START + 1)  # accepted in 32


@pytest.mark.parametrize("control", [1, 3])
def test_traces_are_optional(control: int) -> None:
    out = run(program(control=control))
    assert out.trace[-1] == control >> 1


def test_the_end_of_a_run() -> None:
    """END in cycle t: `cycles` counts that one too and then stays; a new run can be started."""
    end = 40
    again = Access(60, Register.CONTROL, 1)
    out = run(
        [*program(), Access(50, Register.STATUS), Access(52, Register.CYCLES), again, Access(70, Register.STATUS)],
        ended=[end],
    )
    assert out.irq[end : end + 2] == [0, 1]
    assert out.go[end : end + 2] == [1, 0]
    assert out.values == [DONE | READY, end - START, RUNNING]
    assert [cycle for cycle, _ in out.starts] == [START, 60]
    assert out.irq[60:62] == [1, 0]
    assert out.now[60:63] == [end - START, 0, 1]
    assert out.trace[60:62] == [1, 0]


@pytest.mark.parametrize("where", ["running", "not ready", "no start bit"])
def test_starts_that_are_ignored(where: str) -> None:
    if where == "running":
        out = run([*program(), Access(30, Register.CONTROL, 1)])
        assert [cycle for cycle, _ in out.starts] == [START]
        assert out.refused == [5]
        assert out.trace[-1] == 1  # the run keeps its trace
    elif where == "not ready":
        out = run([*program(), Access(30, Register.STATUS), Access(50, Register.CONTROL, 1)], ready_from=40)
        assert out.values == [REFUSED]
        assert [cycle for cycle, _ in out.starts] == [50]
    else:
        assert run(program(control=2)).starts == []


REPORT = {
    "dst_tile": HERE,
    "fault": 1,
    "cause": Cause.ADDRESS,
    "tile": 0x21,
    "unit": Unit.MATRIX,
    "tag": 0xBEEF,
    "value": 0x2ABCDEF,
}


def _who(cause: Cause) -> int:
    """FAULT_WHO after a watchdog of this host."""
    return FAULT_WHO.pack({"cause": cause, "unit": Unit.NONE, "tile": HERE})


def test_a_fault_ends_the_run_and_says_who() -> None:
    accesses = [
        Access(50, register)
        for register in (Register.STATUS, Register.FAULT_WHO, Register.FAULT_VALUE, Register.CYCLES)
    ]
    later = REPORT | {"tag": 1, "value": 2}
    out = run([*program(), *accesses], faults={40: REPORT, 45: later})
    assert out.go[40:42] == [1, 0]
    assert out.irq[40:42] == [0, 1]
    who = FAULT_WHO.pack({"cause": Cause.ADDRESS, "unit": Unit.MATRIX, "tile": 0x21, "tag": 0xBEEF})
    assert out.values == [FAULT, who, 0x2ABCDEF, 40 - START]  # the first one stays
    assert FAULT_WHO.unpack(who) == {name: REPORT.get(name, 0) for name in FAULT_WHO.offsets}
    assert not any(out.ask)


def test_after_a_fault_nothing_starts_until_reset() -> None:
    out = run([*program(), Access(50, Register.CONTROL, 1), Access(60, Register.STATUS)], faults={40: REPORT})
    assert len(out.starts) == 1
    assert out.values == [FAULT | REFUSED]


RESET = CONTROL.pack({"reset": 1, "start": 1})


def test_a_reset_is_asked_for_and_nothing_starts_any_more() -> None:
    """From any state; it goes before a start of the same write, and STATUS says so."""
    accesses = [Access(20, Register.CONTROL, RESET), Access(30, Register.CONTROL, 1), Access(40, Register.STATUS)]
    out = run([*program(control=0), *accesses])
    assert out.starts == []
    assert out.reset_wanted == [0] * 21 + [1] * 79
    assert out.refused == [6]
    assert out.values == [STATUS.pack({"resetting": 1, "refused": 1})]
    assert not any(out.released)
    after = run([*program(), Access(60, Register.CONTROL, RESET)], faults={40: REPORT})
    assert after.reset_wanted == [0] * 61 + [1] * 39


def test_a_reset_without_its_byte_is_none() -> None:
    out = run([Access(0, Register.CONTROL, RESET, strobes=0xE), Access(10, Register.STATUS)])
    assert (out.values, any(out.reset_wanted)) == ([READY], False)


@pytest.mark.parametrize("late", [50, 53, 60])
def test_the_bus_is_finished_and_takes_no_more_once_dram_is_at_rest(late: int) -> None:
    """The response that is open when DRAM comes to rest is there until it is taken; then the host is released."""
    accesses = [Access(20, Register.CONTROL, RESET), Access(48, Register.STATUS), Access(49, Register.STATUS)]
    out = run(accesses, settled=lambda cycle: cycle >= 49, willing=lambda cycle: cycle < 45 or cycle >= late,
              served=False)  # fmt: skip
    assert out.accepted == [20, 48]
    assert out.answered == [21, late]
    assert out.released == [0] * (late + 2) + [1] * (98 - late)


def test_without_anything_open_the_host_is_released_at_once() -> None:
    out = run([Access(20, Register.CONTROL, RESET)], settled=lambda cycle: cycle >= 24)
    assert out.released == [0] * 26 + [1] * 74


def test_posts_that_are_no_faults_and_faults_outside_a_run() -> None:
    out = run(
        [Access(5, Register.STATUS), *program(10), Access(60, Register.STATUS)],
        faults={2: REPORT, 40: REPORT | {"fault": 0}},
    )
    assert out.values == [READY, RUNNING]


@pytest.mark.parametrize("limit", [1, 5, 30])
def test_the_watchdog_bites_in_its_cycle(limit: int) -> None:
    accesses = [Access(60, register) for register in (Register.STATUS, Register.FAULT_WHO, Register.FAULT_VALUE)]
    out = run([*program(watchdog=limit), *accesses])
    bite = START + 1 + limit  # `now` equals the limit
    assert out.now[bite] == limit
    assert out.go[bite : bite + 2] == [1, 0]
    assert out.values == [FAULT, _who(Cause.WATCHDOG), limit]


def test_no_watchdog_and_an_end_in_time() -> None:
    assert run(program(), cycles=400).go[-1] == 1
    out = run([*program(watchdog=30), Access(60, Register.STATUS)], ended=[START + 1 + 30])
    assert out.values == [DONE | READY]  # in the very last cycle
    assert not any(out.ask)


def stall_limit(limit: int) -> Access:
    return Access(0, Register.STALL_LIMIT, limit)


#: Cycle in which a run with a STALL_LIMIT is started, and its first cycle.
LATER = START + 2


@pytest.mark.parametrize("limit", [1, 4, 20])
@pytest.mark.parametrize("last", [LATER + 1, 25])
def test_a_run_in_which_nothing_moves_any_more_is_stopped(limit: int, last: int) -> None:
    """Something goes on up to cycle `last`; the fault comes `limit` cycles later."""
    names = (Register.STATUS, Register.FAULT_WHO, Register.FAULT_VALUE, Register.QUIET, Register.CYCLES)
    accesses = [Access(60, register) for register in names]
    out = run([stall_limit(limit), *program(watchdog=90), *accesses], moved=lambda cycle: cycle <= last)
    bite = last + 1 + limit
    assert out.go[bite : bite + 2] == [1, 0]
    assert out.ask[bite : bite + 2] == [0, 1]
    assert out.ask[-1] == 1
    cause = _who(Cause.STALLED)
    assert out.values == [FAULT, cause, limit, limit, bite - LATER]


def test_what_moves_now_and_then_is_not_stopped() -> None:
    out = run([stall_limit(6), *program(), Access(80, Register.STATUS)], moved=lambda cycle: cycle % 6 == 0)
    assert out.values == [RUNNING]
    assert not any(out.ask)


def test_without_a_limit_nothing_need_move() -> None:
    out = run([*program(), Access(80, Register.STATUS), Access(80, Register.QUIET)], moved=never)
    assert out.values == [RUNNING, 82 - LATER + 1]


def state(number: int) -> dict[str, int]:
    """Some report: every field is different."""
    return {
        "dst_tile": HERE, "fault": 1, "part": number % len(Part), "waits": 1 + number % (len(BlockedOn) - 1),
        "tile": 0x20 + number, "unit": number % 4, "tag": 0xA000 + number, "sem": number % 64, "need": 63 - number % 64,
        "has": 200 - number, "peer": 100 + number,
    }  # fmt: skip


def as_post(number: int) -> dict[str, int]:
    """`state(number)` as a post has it."""
    return POST.unpack(STATE.pack(state(number)))


def test_states_are_kept_until_they_are_read() -> None:
    """In their order, also while others arrive; `most_reports` of them fit."""
    most = most_reports(load("tiny"))
    arriving = {40 + i + i // 5: as_post(i) for i in range(most)}
    reads = [Register.REPORT_LOW, Register.REPORT_HIGH, Register.REPORTS]
    accesses = [Access(60, register) for _ in range(most) for register in reads]
    out = run([*program(watchdog=20), Access(50, Register.REPORTS), *accesses], faults=arriving, cycles=400)
    assert 0 < out.values[0] < most
    for i in range(most):
        low, high, left = out.values[1 + 3 * i : 4 + 3 * i]
        assert left < most - i
        message = state(i)
        assert (
            low
            == message["sem"]
            | message["need"] << 6
            | message["has"] << 12
            | message["peer"] << 20
            | message["part"] << 28
        )
        assert high == message["waits"] | message["unit"] << 6 | message["tile"] << 8 | message["tag"] << 16
    assert out.values[-1] == 0


def test_only_states_are_kept_and_only_after_a_watchdog() -> None:
    posts = {20: as_post(1), 40: REPORT, 42: POST.unpack(0), 44: as_post(2)}
    out = run([*program(watchdog=20), Access(60, Register.REPORTS), Access(60, Register.REPORT_HIGH)], faults=posts)
    assert out.values[0] == 1
    assert out.values[1] >> 16 == 0xA002
