"""Many instructions decoded at once, against one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from meshloom.hw.spec.isa import INSTRUCTION_BYTES, INSTRUCTIONS, IsaError, Opcode, decode, encode
from meshloom.sched.program.decoding import Words, decoded
from meshloom.sched.program.program import Instruction


def words_of(code: bytes) -> Words:
    return np.frombuffer(code, "<u8").reshape(-1, INSTRUCTION_BYTES // 8)


def test_decodes_what_is_encoded():
    random = Random(7)
    code = b""
    for _ in range(300):
        opcode = random.choice(list(INSTRUCTIONS))
        names = [name for name in INSTRUCTIONS[opcode].offsets if name != "opcode"]
        code += encode(opcode, **{name: random.randint(0, INSTRUCTIONS[opcode].most(name)) for name in names})
    expected = [Instruction(*decode(code[at : at + 32])) for at in range(0, len(code), 32)]
    result = decoded(words_of(code))
    assert result == expected
    assert [list(one.fields) for one in result] == [list(one.fields) for one in expected]
    assert all(type(value) is int for one in result for value in one.fields.values())


def test_no_code_is_no_instruction():
    assert decoded(words_of(b"")) == []


def test_rejects_what_is_no_code():
    good = encode(Opcode.SYNC, tag=1)
    with pytest.raises(IsaError, match="illegal opcode 0"):
        decoded(words_of(good + bytes(32)))
    wrong = good[:-1] + b"\x80"
    with pytest.raises(IsaError, match="reserved bits are set in 0x8"):
        decoded(words_of(good + wrong))
    with pytest.raises(IsaError, match="reserved bits are set in 0x8"):
        decode(wrong)
