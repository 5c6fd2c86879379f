"""Bodies of instructions: every field of the format has its keyword, and what is left out is valid."""

from __future__ import annotations

import pytest

from meshloom.hw.spec.isa import INSTRUCTIONS, Addend, Opcode, Pair, VectorOp
from meshloom.sched.ir.bodies import GemmFields, VecFields, gemm, vec
from meshloom.sched.ir.schedule import GEMM_FIELDS, VEC_FIELDS


@pytest.mark.parametrize(("fields", "names"), [(GemmFields, GEMM_FIELDS), (VecFields, VEC_FIELDS)])
def test_keywords_are_the_fields_of_the_format(fields: type, names: frozenset[str]) -> None:
    assert fields.__optional_keys__ == set(names)


def test_what_is_left_out_is_one_pixel_by_one_tap_without_a_clamp() -> None:
    body = gemm(a_base=3, addend=Addend.PARTIAL)
    assert (body["k_blocks"], body["kernel_h"], body["pixels"], body["clamp"]) == (1, 1, 1, 127)
    assert type(body["addend"]) is int
    assert INSTRUCTIONS[Opcode.GEMM].unpack(INSTRUCTIONS[Opcode.GEMM].pack(body))["a_base"] == 3
    body = vec(op=VectorOp.PAIR, pair=Pair.MASK, clamp=5)
    assert (body["op"], body["pair"], body["blocks"], body["clamp"]) == (VectorOp.PAIR, Pair.MASK, 1, 5)
    assert {type(value) for value in body.values()} == {int}


def test_every_body_has_its_addresses() -> None:
    assert {"a_base", "b_base", "addend", "addend_base", "to_acc", "dest_base"} <= gemm().keys()
    assert {"op", "x_base", "y_base", "addend_base", "dest_base"} <= vec().keys()
