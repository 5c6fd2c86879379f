"""Cases of `meshloom bench layer_puzzle`: what is spoilt, what is refused, what is shown. No simulator."""

from __future__ import annotations

from typing import cast

from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.sched.model.session import Launch
from meshloom.sched.program.program import Instruction, Program, Stream
from meshloom.tb.runs.online.rtl_session import RtlSession
from meshloom.tb.studies.layer_puzzle import cases
from meshloom.tb.studies.layer_puzzle.cases import SPOILT, Spoiling


class Heard:
    """A session that notes what it is given."""

    def __init__(self) -> None:
        self.launches: list[tuple[Launch, int]] = []

    def launch(self, launch: Launch, at: int) -> None:
        self.launches.append((launch, at))


def launch(*opcodes: Opcode) -> Launch:
    code = tuple(Instruction(opcode, {"pixels": 7} if opcode is Opcode.GEMM else {}) for opcode in opcodes)
    unit = Unit.MATRIX if Opcode.GEMM in opcodes else Unit.MOVER
    return Launch(0, Program("", (Stream(17, unit, 0, 0, code),), Stream(50, Unit.MOVER, 0, 0, ()), {}))


def test_one_program_is_spoilt_and_only_once():
    session = Heard()
    spoiling = Spoiling(cast("RtlSession", session))
    work, moves = launch(Opcode.SYNC, Opcode.GEMM, Opcode.GEMM), launch(Opcode.MOVE)
    pairs = [(work, SPOILT), (moves, SPOILT + 1), (work, SPOILT + 2), (work, SPOILT + 3)]
    for each, at in pairs:
        spoiling.launch(each, at)
    same = [heard == pair for heard, pair in zip(session.launches, pairs, strict=True)]
    assert same == [True, True, False, True]
    (stream,) = session.launches[2][0].program.streams
    assert [one.fields.get("pixels") for one in stream.instructions] == [None, 0, 7]
    assert work == launch(Opcode.SYNC, Opcode.GEMM, Opcode.GEMM)


def test_a_network_larger_than_memory_is_refused():
    case = cases.too_large(lambda what: None)
    assert case.ok
    assert "network resnet50, batch 4: each DRAM tile of poor is too small" in case.words


def test_one_core_has_the_cores_of_lp9():
    chip = cases.one_core()
    assert len(chip.cores) == 1
    assert chip.core == load("lp9").core
