"""Contracts that no single block has: request sender, taker, front end and controller together, to the cycle.

What one block has by itself is measured in the tests of that block, and of the DRAM model's parameters in
`test_dram_port`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from meshloom.hw.control.frontend import FrontEnd
from meshloom.hw.dtt.controller import Controller
from meshloom.hw.host_link.launches import Launches
from meshloom.hw.noc.interface import RequestSender, RequestTaker
from meshloom.hw.spec import contracts
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import (
    CONTROLLER_CYCLES,
    DECODE_CYCLES,
    ISSUE_CYCLES,
    LAUNCH_CYCLES,
    LAUNCH_INTERVAL,
    OFFER_CYCLES,
    ORDER_CYCLES,
    PUSH_CYCLES,
    REQUEST_CYCLES,
    REQUEST_INTERVAL,
    RING_CYCLES,
    ROUTE_BUILD_CYCLES,
)
from meshloom.hw.spec.isa import INSTRUCTION_BITS, INSTRUCTIONS, Cause, Opcode, Unit
from meshloom.hw.spec.timing import noc_arrival
from meshloom.hw.wiring.signatures import Issue, Request, requested_move

from .unit_bench import Sink, Source, bits, simulate

CHIP = ChipConfig.model_validate(
    {
        "name": "t",
        "lanes": 8,
        "floorplan": ["dram core dtt", "spm host spm"],
        "dram": {"bytes_per_cycle": 8},
        "noc": {"route_hops": 4},
    }
)
SEVERAL = ChipConfig.model_validate(
    {"name": "s", "lanes": 8, "floorplan": ["dram core host"], "dram": {"bytes_per_cycle": 8}, "programs": 2}
)
CORE, DTT, SPM = 0x01, 0x02, 0x10
#: From a flit offered to the network to its offer to its own tile; the blocks below stand side by side without it.
NETWORK = noc_arrival(0, 1)
#: Cycle in which things begin.
BEGIN = 10


def code(opcode: Opcode, **values: int) -> int:
    return INSTRUCTIONS[opcode].pack({"opcode": opcode, **values})


class Receiver(wiring.Component):
    """A sender whose packets go to a taker at once, and the front end of a matrix unit behind it."""

    now: Signal
    request: stream.Interface
    move: stream.Interface
    issue: stream.Interface
    late: Signal

    def __init__(self) -> None:
        super().__init__(
            {
                "now": In(32),
                "request": In(stream.Signature(Request)),
                "move": Out(stream.Signature(requested_move(CHIP))),
                "issue": Out(stream.Signature(Issue)),
                "late": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sender = sender = RequestSender(1)
        m.submodules.taker = taker = RequestTaker(CHIP, 3)
        m.submodules.front = front = FrontEnd(CHIP, Unit.MATRIX)
        connect(m, flipped(self.request), sender.request(0))
        connect(m, sender.flit, taker.flit)
        connect(m, taker.move, flipped(self.move))
        connect(m, taker.push(Unit.MATRIX), front.push)
        connect(m, front.issue, flipped(self.issue))
        m.d.comb += [taker.now.eq(self.now), front.now.eq(self.now), front.go.eq(1), front.tile.eq(CORE)]
        late = [fault.valid & (fault.cause == Cause.LATE) for fault in (taker.fault, front.fault)]
        m.d.comb += self.late.eq(Cat(late).any())
        return m


def received(unit: Unit, fire_at: int) -> tuple[list[int], bool]:
    """Cycles in which an instruction that is sent in cycle BEGIN is offered to its unit, and whether it was late."""
    opcode = Opcode.MOVE if unit is Unit.MOVER else Opcode.GEMM
    request = bits(Request, dst_tile=CORE, unit=unit, code=code(opcode, tag=5, fire_at=fire_at))
    receiver = Receiver()
    source = Source(receiver.request, [(BEGIN, request)])
    sinks = {Unit.MOVER: Sink(receiver.move), Unit.MATRIX: Sink(receiver.issue)}
    late: list[int] = []

    def after(cycle: int, context: Any) -> None:
        if context.get(receiver.late):
            late.append(cycle)

    simulate(receiver, 60, [source], list(sinks.values()), after=after)
    assert source.taken == [BEGIN]
    return sinks[unit].cycles, bool(late)


@pytest.mark.parametrize(("unit", "lead"), [(Unit.MOVER, REQUEST_CYCLES), (Unit.MATRIX, PUSH_CYCLES)])
def test_what_is_sent_can_fire_after_its_lead_and_no_sooner(unit: Unit, lead: int) -> None:
    first = BEGIN + lead - NETWORK
    assert received(unit, 0) == ([first + (OFFER_CYCLES if unit is Unit.MATRIX else 0)], False)
    assert received(unit, first) == ([first + OFFER_CYCLES], False)
    assert received(unit, first - 1) == ([], True)


class Ordering(wiring.Component):
    """The stream of an ahead-of-time controller, the controller, and the request plane's sender."""

    now: Signal
    push: stream.Interface
    forward: stream.Interface

    def __init__(self) -> None:
        super().__init__(
            {"now": In(32), "push": In(stream.Signature(INSTRUCTION_BITS)), "forward": Out(stream.Signature(Request))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.front = front = FrontEnd(CHIP, Unit.MOVER, ahead=True)
        m.submodules.controller = controller = Controller(CHIP)
        m.submodules.sender = sender = RequestSender(1)
        connect(m, flipped(self.push), front.push)
        connect(m, front.issue, controller.own)
        # the sender sees what is taken outside, in the same cycle
        busy, request = sender.request(0), self.forward
        m.d.comb += [
            busy.valid.eq(controller.forward.valid & request.ready),
            busy.payload.eq(controller.forward.payload),
            request.valid.eq(controller.forward.valid & busy.ready),
            request.payload.eq(controller.forward.payload),
            controller.forward.ready.eq(busy.ready & request.ready),
            sender.flit.ready.eq(1),
            controller.record.ready.eq(1),
            front.record.ready.eq(1),
            front.go.eq(1),
            front.tile.eq(DTT),
            front.now.eq(self.now),
            controller.now.eq(self.now),
        ]
        return m


def packets(own: Sequence[int]) -> list[int]:
    """Cycles in which the control packets of a program go that is in the ring from BEGIN on."""
    unit = Ordering()
    sink = Sink(unit.forward, lambda cycle: True, fickle=True)
    source = Source(unit.push, [(BEGIN + at, one) for at, one in enumerate(own)])
    simulate(unit, 120, [source], [sink])
    return sink.cycles


def move(tag: int, **values: int) -> int:
    return code(Opcode.MOVE, tag=tag, src_tile=SPM, dst_tile=CORE, words=1, **values)


def test_control_packets_go_as_often_as_the_request_plane_takes_them() -> None:
    sent = packets([move(tag) for tag in range(5)])
    assert sent[0] == BEGIN + RING_CYCLES + DECODE_CYCLES + OFFER_CYCLES + CONTROLLER_CYCLES
    assert {late - early for early, late in zip(sent, sent[1:], strict=False)} == {REQUEST_INTERVAL}


def test_an_order_before_each_control_packet_costs_so_much_more() -> None:
    order = code(Opcode.ORDER, tag=9, channel=1)
    sent = packets([one for tag in range(5) for one in (order, move(tag))])
    assert len(sent) == 5
    assert {late - early for early, late in zip(sent, sent[1:], strict=False)} == {REQUEST_INTERVAL + ORDER_CYCLES}


def test_way_points_cost_their_route() -> None:
    """Two hops and one way-point: from the offer of the MOVE to the controller, behind its ORDER."""
    path = (SPM, 0x11, CORE)
    order = code(Opcode.ORDER, tag=9, count=1, points=0x11)
    sent = packets([one for tag in range(3) for one in (order, move(tag))])
    built = len(path) - 1 + 1 + ROUTE_BUILD_CYCLES
    assert {late - early for early, late in zip(sent, sent[1:], strict=False)} == {2 * ISSUE_CYCLES + built}


class Launching(wiring.Component):
    """The host's launch queue and the front end that executes its boot streams."""

    now: Signal
    ring: Any
    fetch: stream.Interface
    issue: stream.Interface

    def __init__(self) -> None:
        self.launches, self.front = Launches(SEVERAL), FrontEnd(SEVERAL, Unit.MOVER)
        super().__init__(
            {"now": In(32)} | {name: self.front.signature.members[name] for name in ("ring", "fetch", "issue")}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.launches, m.submodules.front = launches, front = self.launches, self.front
        connect(m, front.fetch, flipped(self.fetch))
        connect(m, front.issue, flipped(self.issue))
        m.d.comb += [
            launches.now.eq(self.now),
            launches.enable.eq(1),
            launches.idle.eq(front.idle),
            front.start.eq(launches.start),
            front.ring.eq(self.ring),
            front.now.eq(self.now),
            front.go.eq(1),
        ]
        return m


def launched(at: Sequence[int], mover: Sequence[int] = ()) -> tuple[list[int], list[int]]:
    """Boot streams of two instructions are queued from BEGIN on, one a cycle, each not to start before the end of cycle
    `at`. Cycles in which their code is requested, and instructions taken; a cycle for each of those is in `mover`, or
    they are taken at once."""
    unit = Launching()
    requests = Sink(unit.fetch)
    taken = Sink(unit.issue, (lambda cycle: cycle in mover) if mover else (lambda cycle: True))
    words = SEVERAL.instruction_words
    move = INSTRUCTIONS[Opcode.MOVE].pack({"opcode": Opcode.MOVE})
    coming: list[int] = []
    told = 0

    def before(cycle: int, context: Any) -> None:
        nonlocal told
        index = cycle - BEGIN
        context.set(unit.launches.launch.valid, 0 <= index < len(at))
        if 0 <= index < len(at):
            entry = bits(unit.launches.launch.payload.shape(), count=2, at=at[index])
            context.set(unit.launches.launch.payload.as_value(), entry)
        while told < len(requests.got):
            coming.extend(range(2 * words))
            told += 1
        context.set(unit.ring.valid, bool(coming))
        if coming:
            offset = coming.pop(0)
            context.set(unit.ring.offset, offset)
            context.set(unit.ring.data, move >> (8 * SEVERAL.lanes * (offset % words)) & (1 << 8 * SEVERAL.lanes) - 1)

    simulate(unit, 200, [], [requests, taken], before=before)
    return requests.cycles, taken.cycles


def test_a_launch_asks_for_its_code_so_soon() -> None:
    """After the cycle in which it was queued, or after which it may start."""
    assert launched([0])[0] == [BEGIN + LAUNCH_CYCLES]
    assert launched([BEGIN - 1])[0] == [BEGIN + LAUNCH_CYCLES]
    assert launched([BEGIN + 30])[0] == [BEGIN + 30 + LAUNCH_CYCLES]


@pytest.mark.parametrize("mover", [(), (60, 90, 120, 150)])
def test_the_next_launch_asks_for_its_code_so_soon(mover: Sequence[int]) -> None:
    """After the last instruction of the one before was taken."""
    requests, taken = launched([0, 0], mover)
    assert len(taken) == 4
    assert requests == [BEGIN + LAUNCH_CYCLES, taken[1] + LAUNCH_INTERVAL]


def test_the_simulated_channel_keeps_its_contract() -> None:
    """Its parameters and its queues, as `dram_model.v` has them by itself; `test_dram_port` measures what they mean."""
    text = (Path(__file__).parents[2] / "tb" / "build" / "verilog" / "dram_model.v").read_text()
    assert re.findall(r"parameter WRITE_LATENCY = (\d+)", text) == [str(contracts.RESPONSE_CYCLES)]
    assert re.findall(r"FULL = (\d+) \* LANES", text) == [str(contracts.CREDIT_WORDS)]
    assert set(re.findall(r"\[0:(\d+)\];", text)) == {str(contracts.DRAM_BURSTS - 1)}
    assert set(re.findall(r"ready = \w+_count != (\d+);", text)) == {str(contracts.DRAM_BURSTS)}


def test_software_can_name_them_without_the_gateware_library() -> None:
    import subprocess
    import sys

    command = "import sys, meshloom.hw.spec.contracts, meshloom.hw.spec.registers; sys.exit('amaranth' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0


def test_every_contract_is_a_whole_number_of_at_least_one() -> None:
    numbers = {name: value for name, value in vars(contracts).items() if name.isupper() and name != "TYPE_CHECKING"}
    assert len(numbers) > 40
    assert {name: value for name, value in numbers.items() if not isinstance(value, int) or value < 1} == {}
