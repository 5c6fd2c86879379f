"""Every instruction and packet goes through its format and back; nothing is ever truncated."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from amaranth.hdl import Const
from amaranth.lib import data
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.hw.spec import isa
from meshloom.hw.spec.config import INSTRUCTION_BYTES, OFFSET_BITS
from meshloom.hw.spec.isa import (
    DATA_HEAD,
    HEADER_FORMAT,
    INSTRUCTIONS,
    POST,
    REQUEST_HEAD,
    STATE,
    TRACE,
    Field,
    Format,
    IsaError,
    Opcode,
    Region,
    decode,
    encode,
)

FORMATS = [*INSTRUCTIONS.values(), HEADER_FORMAT, DATA_HEAD, REQUEST_HEAD, POST, STATE, TRACE]
by_format = pytest.mark.parametrize("layout", FORMATS, ids=lambda layout: layout.name)
by_opcode = pytest.mark.parametrize("opcode", list(Opcode))


def values_of(layout: Format, skip: str = "") -> st.SearchStrategy[dict[str, int]]:
    """All fields of a format, extremes included."""
    return st.fixed_dictionaries(
        {f.name: st.integers(0, (1 << f.width) - 1) for f in layout.fields if f.name != skip}
    )  # fmt: skip


@by_format
@settings(deadline=None)
@given(st.data())
def test_records_round_trip(layout: Format, data: st.DataObject) -> None:
    values = data.draw(values_of(layout))
    word = layout.pack(values)
    assert 0 <= word < 1 << layout.used
    assert layout.unpack(word) == values


@by_format
@settings(deadline=None)
@given(st.data())
def test_words_round_trip(layout: Format, data: st.DataObject) -> None:
    word = data.draw(st.integers(0, (1 << layout.used) - 1))
    assert layout.pack(layout.unpack(word)) == word


@by_opcode
@settings(deadline=None)
@given(st.data())
def test_instructions_round_trip(opcode: Opcode, data: st.DataObject) -> None:
    fields = data.draw(values_of(INSTRUCTIONS[opcode], skip="opcode"))
    code = encode(opcode, **fields)
    assert len(code) == INSTRUCTION_BYTES
    assert decode(code) == (opcode, fields)


@by_format
def test_values_that_do_not_fit_are_errors(layout: Format) -> None:
    for field in layout.fields:
        top = (1 << field.width) - 1
        assert layout.unpack(layout.pack({field.name: top}))[field.name] == top
        for value in (top + 1, -1, 1 << 300):
            with pytest.raises(
                IsaError, match=rf"{layout.name}\.{field.name} = {value} does not fit {field.width} bits"
            ):
                layout.pack({field.name: value})


@by_opcode
def test_the_assembler_refuses_misfits(opcode: Opcode) -> None:
    for field in INSTRUCTIONS[opcode].fields:
        if field.name != "opcode":
            with pytest.raises(IsaError, match=field.name):
                encode(opcode, **{field.name: 1 << field.width})
    with pytest.raises(IsaError, match=f"{opcode.name} has no field 'colour'; it has opcode, tag, "):
        encode(opcode, colour=1)


@by_format
def test_reserved_bits_are_refused(layout: Format) -> None:
    for bit in range(layout.used, layout.width):
        with pytest.raises(IsaError, match=f"{layout.name}: reserved bits are set"):
            layout.unpack(1 << bit)
    with pytest.raises(IsaError, match="reserved bits"):
        layout.unpack(1 << layout.width)
    with pytest.raises(IsaError, match="reserved bits"):
        layout.unpack(-1)


@by_opcode
def test_the_disassembler_refuses_reserved_bits(opcode: Opcode) -> None:
    for bit in range(INSTRUCTIONS[opcode].used, isa.INSTRUCTION_BITS):
        word = int(opcode) | 1 << bit
        with pytest.raises(IsaError, match="reserved"):
            decode(word.to_bytes(INSTRUCTION_BYTES, "little"))


def test_illegal_opcodes() -> None:
    for number in set(range(16)) - set(Opcode):
        with pytest.raises(IsaError, match=f"illegal opcode {number}"):
            decode(bytes([number]) + bytes(INSTRUCTION_BYTES - 1))
    assert 0 not in set(Opcode)


@pytest.mark.parametrize("length", [0, 1, 31, 33, 64])
def test_an_instruction_has_32_bytes(length: int) -> None:
    with pytest.raises(IsaError, match=f"32 bytes, not {length}"):
        decode(bytes([1] * length))


@by_format
def test_layout_agrees_with_amaranth(layout: Format) -> None:
    """Bit positions and widths of the gateware's layout are those that the assembler uses."""
    result = layout.layout()
    assert result.size == layout.width
    for field in layout.fields:
        member = result[field.name]
        assert (member.offset, member.width) == layout.offsets[field.name]
    names = [name for name, _ in result]
    reserved = [] if layout.used == layout.width else ["reserved"]
    assert names == [field.name for field in layout.fields] + reserved


@by_format
@settings(deadline=None)
@given(st.data())
def test_amaranth_reads_what_the_assembler_packs(layout: Format, data: st.DataObject) -> None:
    values = data.draw(values_of(layout))
    view = layout_const(layout, layout.pack(values))
    assert {name: view[name] for name in values} == values


def layout_const(layout: Format, word: int) -> data.Const:
    """A constant of the gateware's layout."""
    return layout.layout().from_bits(Const(word, layout.width).value)


def test_the_header_is_the_same_everywhere() -> None:
    for layout in INSTRUCTIONS.values():
        assert layout.fields[: len(isa.HEADER)] == isa.HEADER
        assert layout.width == isa.INSTRUCTION_BITS == 8 * INSTRUCTION_BYTES


def test_flits_hold_their_heads() -> None:
    assert DATA_HEAD.width == REQUEST_HEAD.width == isa.REQUEST_FLIT_BITS == 64
    assert isa.REQUEST_FLITS == 5
    assert POST.used == POST.width == STATE.width == 79
    assert TRACE.used == TRACE.width == 128


def test_a_state_is_a_fault_report_without_a_cause() -> None:
    """What tells who it is from lies where a post has it."""
    for name in ("dst_tile", "fault", "cause", "tile", "unit", "tag", "parity"):
        assert STATE.offsets[name] == POST.offsets[name]
    for layout, name, enum in (
        (POST, "cause", isa.Cause), (STATE, "waits", isa.Cause), (STATE, "waits", isa.BlockedOn),
        (STATE, "part", isa.Part),
    ):  # fmt: skip
        assert max(enum) < 1 << layout.offsets[name][1]


@pytest.mark.parametrize("layout", [DATA_HEAD, REQUEST_HEAD, POST, STATE], ids=lambda layout: layout.name)
def test_parity_makes_the_ones_even(layout: Format) -> None:
    rng = random.Random(1)
    for _ in range(50):
        values = {name: rng.getrandbits(width) for name, (_, width) in layout.offsets.items() if name != "parity"}
        word = isa.with_parity(layout, layout.pack(values))
        assert word.bit_count() % 2 == 0
        assert {name: value for name, value in layout.unpack(word).items() if name != "parity"} == values


def test_a_format_too_small_for_its_fields() -> None:
    with pytest.raises(IsaError, match="SMALL: fields take 9 bits, the format has 8"):
        Format("SMALL", (Field("a", 4, ""), Field("b", 5, "")), 8)


@settings(deadline=None)
@given(st.sampled_from(list(Region)), st.integers(0, (1 << OFFSET_BITS) - 1))
def test_addresses_round_trip(region: Region, offset: int) -> None:
    assert isa.split_address(isa.address(region, offset)) == (region, offset)
    assert isa.address(region, offset) < 1 << 28


@pytest.mark.parametrize("offset", [-1, 1 << OFFSET_BITS])
def test_offsets_that_do_not_fit(offset: int) -> None:
    with pytest.raises(IsaError, match=f"offset {offset} does not fit"):
        isa.address(Region.MAIN, offset)


def test_the_reference_tables_are_those_of_the_definition() -> None:
    from meshloom.sched.program.disasm import format_tables

    page = (Path(__file__).parents[2] / "docs" / "isa.md").read_text()
    assert page.endswith(format_tables().strip() + "\n"), "docs/isa.md: write it again from format_tables()"
