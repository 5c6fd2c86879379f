"""The program image: whole or rejected. Listings and reference tables."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.hw.spec import isa
from meshloom.hw.spec.config import load as load_chip
from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode, decode, encode
from meshloom.hw.spec.registers import COMPLETION, CONTROL, FAULT_WHO, LAUNCH, REPORT, STATUS, Register
from meshloom.sched.program import image
from meshloom.sched.program.disasm import format_tables, instruction_text, listing
from meshloom.sched.program.image import ImageError, from_bytes, load, save, to_bytes
from meshloom.sched.program.program import Instruction, Program, ProgramError
from meshloom.sched.support.files import WriteError
from meshloom.tb.verify.random_programs import random_instruction, random_program

CHIP = load_chip("quad8")
PROGRAM = replace(random_program(Random(3), CHIP, 2, threads=1), operation_of_tag={1: 0, 2: 1, 65534: 70000})
IMAGE = to_bytes(PROGRAM)


def sealed(body: bytes) -> bytes:
    """The image with a CRC that fits again, for what lies behind that check."""
    return body[:-4] + struct.pack("<I", zlib.crc32(body[:-4]))


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "program.bin"
    save(PROGRAM, path)
    result = load(path, CHIP)
    assert path.read_bytes() == IMAGE
    assert to_bytes(result) == IMAGE
    assert result.operation_of_tag == PROGRAM.operation_of_tag
    assert result.chip_digest == CHIP.digest
    for one, other in zip((PROGRAM.boot, *PROGRAM.streams), (result.boot, *result.streams), strict=True):
        assert (one.tile, one.unit, one.dram_tile, one.address) == (
            other.tile,
            other.unit,
            other.dram_tile,
            other.address,
        )
        assert [i.encode() for i in one.instructions] == [i.encode() for i in other.instructions]
    assert list(tmp_path.iterdir()) == [path]


def test_every_truncation_is_rejected() -> None:
    for length in range(len(IMAGE)):
        with pytest.raises(ImageError):
            from_bytes(IMAGE[:length])
    with pytest.raises(ImageError, match="too long"):
        from_bytes(IMAGE + b"\0")


@settings(deadline=None)
@given(st.sets(st.integers(0, 8 * len(IMAGE) - 1), min_size=1, max_size=6))
def test_bit_flips_are_rejected(bits: set[int]) -> None:
    flipped = bytearray(IMAGE)
    for bit in bits:
        flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ImageError):
        from_bytes(bytes(flipped))


def test_every_single_bit_of_the_head() -> None:
    for bit in range(8 * 64):
        flipped = bytearray(IMAGE)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ImageError):
            from_bytes(bytes(flipped))


@settings(deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_garbage_is_rejected(garbage: bytes, with_magic: bool) -> None:
    with pytest.raises(ImageError):
        from_bytes(image.MAGIC + garbage if with_magic else garbage)


def test_a_fitting_crc_does_not_let_nonsense_in() -> None:
    """Bytes changed and the CRC made to fit: either an error that says so, or a program that reads back the same. Both
    happen: places of streams and bodies of instructions may hold almost anything, heads may not."""
    random, read, refused = Random(17), 0, 0
    for _ in range(600):
        changed = bytearray(IMAGE)
        for _ in range(random.randint(1, 4)):
            changed[random.randrange(len(IMAGE) - 4)] = random.randrange(256)
        try:
            result = from_bytes(sealed(bytes(changed)))
        except ImageError:
            refused += 1
            continue
        read += 1
        # The tag map is text: white space and the order of pairs may differ.
        assert from_bytes(to_bytes(result)) == result
    assert (read > 100, refused > 100) == (True, True), (read, refused)


def test_messages(tmp_path: Path) -> None:
    def message(changed: bytes) -> str:
        with pytest.raises(ImageError) as error:
            from_bytes(changed, CHIP, "x.bin")
        assert isinstance(error.value, ProgramError)
        text = str(error.value)
        assert text.startswith("x.bin: ")
        assert "\n" not in text
        return text

    assert "not a Meshloom program image; `meshloom schedule WORKLOAD --program FILE` writes one" in message(b"")
    assert "not a Meshloom program image" in message(b"\x7fELF" + IMAGE[4:])
    assert "truncated" in message(IMAGE[:20])
    assert "truncated" in message(IMAGE[:-1])
    assert "version 3; this Meshloom reads versions 1 and 2" in message(IMAGE[:4] + b"\x03" + IMAGE[5:])
    assert "corrupt" in message(IMAGE[:200] + bytes([IMAGE[200] ^ 1]) + IMAGE[201:])
    assert "made for another chip" in message(to_bytes(replace(PROGRAM, chip_digest=load_chip("tiny").digest)))
    assert "section 0 is b'STRM'" in message(sealed(IMAGE[:48] + b"STRM" + IMAGE[52:]))
    assert "section 0 (b'BOOT') ends past the end" in message(sealed(IMAGE[:54] + b"\x01" + IMAGE[55:]))
    assert "its stream header is invalid" in message(sealed(IMAGE[:61] + b"\x09" + IMAGE[62:]))
    assert "section 0, instruction 0: illegal opcode 15" in message(sealed(IMAGE[:72] + b"\xff" + IMAGE[73:]))
    with pytest.raises(ImageError, match=r"missing\.bin: cannot be read: No such file"):
        load(tmp_path / "missing.bin")


def with_tags(text: str) -> bytes:
    """The image with another tag map, which is its last section."""
    start = IMAGE.index(b"TAGS")
    body = b"TAGS" + struct.pack("<Q", len(text)) + text.encode()
    head = IMAGE[:8] + struct.pack("<Q", start + len(body) + 4) + IMAGE[16:start]
    return sealed(head + body + bytes(4))


def test_sections_that_do_not_fill_the_image() -> None:
    """Bytes behind the last section, and a stream that is shorter than its head."""
    longer = bytearray(IMAGE[:-4] + bytes(7))
    longer[8:16] = struct.pack("<Q", len(longer))
    with pytest.raises(ImageError, match="3 bytes follow the last section"):
        from_bytes(sealed(bytes(longer)))
    for size in range(12):
        stream = b"BOOT" + struct.pack("<Q", size) + bytes(size)
        rest = IMAGE[IMAGE.index(b"STRM") :]
        head = IMAGE[:8] + struct.pack("<Q", 48 + len(stream) + len(rest)) + IMAGE[16:48]
        with pytest.raises(ImageError, match=f"section 0: {size} bytes are too few for a stream"):
            from_bytes(sealed(head + stream + rest))


@pytest.mark.parametrize("number", ["-1", "1.0", "true", '"1"', "null", "[1]", "1e3"])
def test_numbers_of_the_tag_map_are_whole_and_not_negative(number: str) -> None:
    """In every place of a pair and of a skip."""
    rows = [([f"[{number}, 0]", f"[1, {number}]"], '{{"operation_of_tag": [[2, 3], {}]}}')]
    skips = [", ".join(number if place == at else "7" for place in range(4)) for at in range(4)]
    rows.append(([f"[{row}]" for row in skips], '{{"operation_of_tag": [], "skips": [[1, 2, 3, 4], {}]}}'))
    for wrong, text in rows:
        for row in wrong:
            with pytest.raises(ImageError, match="the tag map is not a list"):
                from_bytes(with_tags(text.format(row)))


def test_the_least_numbers_of_a_tag_map() -> None:
    result = from_bytes(with_tags('{"operation_of_tag": [[0, 0], [1, 0]], "skips": [[0, 0, 0, 0]]}'))
    assert (result.operation_of_tag, result.skips) == ({0: 0, 1: 0}, {(0, 0, 0): 0})


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "7", "{}", '{"operation_of_tag": 7}', '{"operation_of_tag": [7]}', '{"operation_of_tag": [[1]]}',
        '{"operation_of_tag": [[1, 2, 3]]}', '{"operation_of_tag": [], "skips": [[1, 2, 3]]}',
        '{"operation_of_tag": [], "skips": [[1, 2, 3, 4, 5]]}', '{"operation_of_tag": [], "skips": 1}', "[" * 100_000,
    ],
)  # fmt: skip
def test_other_tag_maps_are_refused(text: str) -> None:
    with pytest.raises(ImageError, match="the tag map is not a list"):
        from_bytes(with_tags(text))


def test_nothing_half_written(tmp_path: Path) -> None:
    path = tmp_path / "program.bin"
    save(PROGRAM, path)
    boot = PROGRAM.boot
    bad = replace(PROGRAM, boot=replace(boot, instructions=(Instruction(Opcode.SYNC, {"n": 99}),)))
    with pytest.raises(isa.IsaError):
        save(bad, path)
    with pytest.raises(ImageError, match="does not fit the image"):
        save(replace(PROGRAM, boot=replace(boot, tile=256)), path)
    with pytest.raises(ImageError, match="is not a SHA-256"):
        save(replace(PROGRAM, chip_digest="quad8"), path)
    assert path.read_bytes() == IMAGE
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(WriteError, match="folder: cannot be written: Is a directory"):
        save(PROGRAM, target)
    with pytest.raises(WriteError, match=r"program\.bin: cannot be written: Not a directory"):
        save(PROGRAM, path / "program.bin")
    assert sorted(tmp_path.iterdir()) == [target, path]


# -- listings and tables --------------------------------------------------------------------------------------


def test_listing_names_everything() -> None:
    text = "\n".join(listing(PROGRAM, CHIP, ["first move", "second"]))
    instructions = len(PROGRAM.boot.instructions) + sum(len(s.instructions) for s in PROGRAM.streams)
    assert text.count("\n") == instructions + 2 * (1 + len(PROGRAM.streams))
    assert '; operation 0 "first move"' in text
    assert "boot stream: " in text
    assert "FETCH | start core@" in text
    assert "END" in text


def test_listing_of_one_move() -> None:
    fields = {"wait_sem": 3, "wait_n": 2, "src_tile": 0, "src": 0x100, "src_run": 64, "dst_tile": 1, "words": 64}
    fields |= {"dst": isa.address(isa.Region.B, 4), "dst_run": 8, "dst_stride": 16, "notify": 1, "notify_sem": 1}
    assert instruction_text(Instruction(Opcode.MOVE, fields), CHIP) == (
        "MOVE wait s3>=2 | 64 words dram@(0,0) MAIN+0x100 -> core@(1,0) B+0x4 run 8 stride 16 | notify s1 of dram@(0,0)"
    )


@pytest.mark.parametrize("opcode", list(Opcode))
def test_any_instruction_encodes_and_lists(opcode: Opcode) -> None:
    random = Random(int(opcode))
    for _ in range(200):
        instruction = random_instruction(random, opcode)
        code = encode(opcode, **instruction.fields)
        result, fields = decode(code)
        assert result is opcode
        assert fields == instruction.fields
        text = instruction_text(instruction, CHIP)
        assert text.startswith(opcode.name)
        assert "\n" not in text


def test_an_instruction_without_words_of_its_own_lists_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshloom.sched.program.disasm._BODIES", {})
    order = Instruction(Opcode.ORDER, {"tag": 7, "tile": 1, "count": 2, "post_sem": 3, "post_n": 1})
    assert instruction_text(order, CHIP) == "ORDER | tile 1 count 2 | post s3+1"
    assert instruction_text(Instruction(Opcode.END, {"tag": 7}), CHIP) == "END"


def test_tables_show_every_field_once() -> None:
    text = format_tables()
    sections = dict(part.split("\n", 1) for part in text.split("## ")[1:])
    for opcode, layout in INSTRUCTIONS.items():
        section = sections[f"{opcode.name} (opcode {int(opcode)})"]
        rows = [line for line in section.splitlines() if line.startswith("| ") and "`" in line]
        body = layout.fields[len(isa.HEADER) :]
        assert [row.split("`")[1] for row in rows] == [field.name for field in body]
        for field, row in zip(body, rows, strict=True):
            low, width = layout.offsets[field.name]
            assert row.split("|")[1].strip() == (f"{low + width - 1}:{low}" if width > 1 else f"{low}")
    for register in Register:
        (row,) = [
            line for line in sections["Registers of the host port"].splitlines() if f"| {register.name} |" in line
        ]
        assert row.startswith(f"| {int(register):#04x} |")
    for layout in (CONTROL, STATUS, FAULT_WHO, REPORT, LAUNCH, COMPLETION):
        rows = [line.split("`")[1] for line in sections[f"Register {layout.name}"].splitlines() if "`" in line]
        assert rows[: len(layout.fields)] == [field.name for field in layout.fields]
    assert "| 76:0 |" not in text
    assert isinstance(PROGRAM, Program)
