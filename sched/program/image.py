"""The binary program image, which `meshloom` writes to disk and a board's host would read.

All numbers are little-endian.

    0   4  magic "MLPI"
    4   2  version (1; 2 with metadata)
    6   2  number of sections
    8   8  length of the whole file in bytes
    16 32  chip digest (SHA-256 of the chip's description)
    48     sections, one after the other
    end-4  CRC-32 (zlib) of everything before it

A section is a 4-byte name, its payload's length (8 bytes), and the payload:

    "BOOT"  the boot stream, once, first
    "STRM"  another stream, once for each
    "META"  UTF-8 JSON, an object: what the program computes on (`lowering.lifted.Metadata`); in version 2, once
    "TAGS"  UTF-8 JSON: {"operation_of_tag": [[tag, operation], ...]}, once, last; if there are any (see
            `program.Program`), also "skips": [[tile, unit, instruction, operation], ...]

A stream's payload: tile (1), unit (1), DRAM tile (1), zero (1), word address (4), number of instructions (4), then the
instructions, 32 bytes each.
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

from meshloom.hw.spec.config import INSTRUCTION_BYTES, ChipConfig
from meshloom.hw.spec.isa import IsaError, Unit, decode

from ..support.files import write_atomically
from .program import Instruction, Program, ProgramError, Stream

MAGIC = b"MLPI"
#: Versions of the format: without and with metadata.
VERSION, VERSION_WITH_METADATA = 1, 2
_HEAD = struct.Struct("<4sHHQ32s")
_SECTION = struct.Struct("<4sQ")
_STREAM = struct.Struct("<BBBBII")
_CRC = struct.Struct("<I")


class ImageError(ProgramError):
    """A file that is not a program image, or not one for this chip; the message names the file and the error."""


def to_bytes(program: Program, metadata: str = "") -> bytes:
    """The image of a program, with metadata (JSON) if there is any. Raises IsaError if an instruction cannot be
    encoded, ImageError on a bad digest."""
    try:
        digest = bytes.fromhex(program.chip_digest)
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise ImageError(f"chip digest {program.chip_digest!r} is not a SHA-256 in hexadecimal")
    sections = [(b"BOOT", _stream_bytes(program.boot))]
    sections += [(b"STRM", _stream_bytes(stream)) for stream in program.streams]
    if metadata:
        sections.append((b"META", metadata.encode()))
    tags: dict[str, object] = {"operation_of_tag": sorted(program.operation_of_tag.items())}
    if program.skips:
        tags["skips"] = [[*where, operation] for where, operation in sorted(program.skips.items())]
    sections.append((b"TAGS", json.dumps(tags, separators=(",", ":")).encode()))
    body = b"".join(_SECTION.pack(name, len(payload)) + payload for name, payload in sections)
    length = _HEAD.size + len(body) + _CRC.size
    version = VERSION_WITH_METADATA if metadata else VERSION
    image = _HEAD.pack(MAGIC, version, len(sections), length, digest) + body
    return image + _CRC.pack(zlib.crc32(image))


def _stream_bytes(stream: Stream) -> bytes:
    try:
        head = _STREAM.pack(
            stream.tile, int(stream.unit), stream.dram_tile, 0, stream.address, len(stream.instructions)
        )
    except struct.error as error:
        place = f"tile {stream.tile}, {stream.unit!r}, DRAM tile {stream.dram_tile}, address {stream.address}"
        raise ImageError(f"a stream's place does not fit the image ({place}): {error}") from error
    return head + b"".join(instruction.encode() for instruction in stream.instructions)


def from_bytes(image: bytes, chip: ChipConfig | None = None, name: str = "image") -> Program:
    """The program of an image. Its instructions have all their fields, zeros included.

    Raises ImageError, prefixed with `name`, on malformed content and (if `chip` is given) on an image for another chip.
    """
    return with_metadata(image, chip, name)[0]


def with_metadata(image: bytes, chip: ChipConfig | None = None, name: str = "image") -> tuple[Program, str]:
    """The program of an image and its metadata (JSON; empty if it has none). Raises as `from_bytes` does."""
    try:
        return _parse(image, chip)
    except _Malformed as error:
        raise ImageError(f"{name}: {error}") from error


class _Malformed(ValueError):
    """An error in an image."""


def _parse(image: bytes, chip: ChipConfig | None) -> tuple[Program, str]:
    if image[:4] != MAGIC[: len(image)] or not image:
        raise _Malformed("not a Meshloom program image; `meshloom schedule WORKLOAD --program FILE` writes one")
    if len(image) < _HEAD.size + _CRC.size:
        raise _Malformed(f"truncated: {len(image)} bytes are not even a head; write it again")
    _, version, count, length, digest = _HEAD.unpack_from(image)
    if version not in (VERSION, VERSION_WITH_METADATA):
        versions = f"{VERSION} and {VERSION_WITH_METADATA}"
        raise _Malformed(f"version {version}; this Meshloom reads versions {versions}; write it again")
    if length != len(image):
        cut = "truncated" if len(image) < length else "too long"
        raise _Malformed(f"{cut}: {len(image)} bytes, its head says {length}; write it again")
    (crc,) = _CRC.unpack_from(image, length - _CRC.size)
    if crc != zlib.crc32(image[: -_CRC.size]):
        raise _Malformed("corrupt: the CRC does not match; write it again")
    if chip is not None and digest.hex() != chip.digest:
        raise _Malformed(
            f"made for another chip ({digest.hex()[:12]}) than {chip.name} ({chip.digest[:12]}); lower it again"
        )
    at, tags, metadata = _HEAD.size, None, ""
    streams: list[Stream] = []
    described = count - 2 if version == VERSION_WITH_METADATA else -1
    for number in range(count):
        if at + _SECTION.size > length - _CRC.size:
            raise _Malformed(f"section {number} begins past the end")
        name, size = _SECTION.unpack_from(image, at)
        at += _SECTION.size
        if at + size > length - _CRC.size:
            raise _Malformed(f"section {number} ({name!r}) ends past the end")
        expected = {0: b"BOOT", count - 1: b"TAGS", described: b"META"}.get(number, b"STRM")
        if name != expected:
            raise _Malformed(f"section {number} is {name!r}, expected {expected!r}")
        payload = image[at : at + size]
        at += size
        if name == b"TAGS":
            tags = _tags(payload)
        elif name == b"META":
            metadata = _metadata(payload)
        else:
            streams.append(_stream(payload, number))
    if at != length - _CRC.size:
        raise _Malformed(f"{length - _CRC.size - at} bytes follow the last section")
    if not streams or tags is None:
        raise _Malformed("the boot stream or the tag map is missing")
    return Program(digest.hex(), tuple(streams[1:]), streams[0], *tags), metadata


def _stream(payload: bytes, number: int) -> Stream:
    if len(payload) < _STREAM.size:
        raise _Malformed(f"section {number}: {len(payload)} bytes are too few for a stream")
    tile, unit, dram, zero, address, count = _STREAM.unpack_from(payload)
    if zero or unit not in set(Unit) or len(payload) != _STREAM.size + count * INSTRUCTION_BYTES:
        raise _Malformed(f"section {number}: its stream header is invalid")
    instructions: list[Instruction] = []
    for position in range(count):
        begin = _STREAM.size + position * INSTRUCTION_BYTES
        try:
            instructions.append(Instruction(*decode(payload[begin : begin + INSTRUCTION_BYTES])))
        except IsaError as error:
            raise _Malformed(f"section {number}, instruction {position}: {error}") from error
    return Stream(tile, Unit(unit), dram, address, tuple(instructions))


def _tags(payload: bytes) -> tuple[dict[int, int], dict[tuple[int, int, int], int]]:
    """`operation_of_tag` and `skips` of a program."""
    try:
        metadata = json.loads(payload)
        pairs, skips = metadata["operation_of_tag"], metadata.get("skips", [])
        if all(type(number) is int and number >= 0 for row in (*pairs, *skips) for number in row):
            return dict(pairs), {(tile, unit, number): operation for tile, unit, number, operation in skips}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise _Malformed("the tag map is not a list of [tag, operation] pairs")


def _metadata(payload: bytes) -> str:
    try:
        if isinstance(json.loads(payload), dict):
            return payload.decode()
    except (ValueError, RecursionError):
        pass
    raise _Malformed("the metadata is not a JSON object")


def save(program: Program, path: str | Path, metadata: str = "") -> None:
    """Writes the image. Raises WriteError; an existing file is left then."""
    write_atomically(Path(path), to_bytes(program, metadata))


def load(path: str | Path, chip: ChipConfig | None = None) -> Program:
    """Reads an image; see `from_bytes`. Raises ImageError with the file's name."""
    return load_with_metadata(path, chip)[0]


def load_with_metadata(path: str | Path, chip: ChipConfig | None = None) -> tuple[Program, str]:
    """Reads an image; see `with_metadata`. Raises ImageError with the file's name."""
    try:
        image = Path(path).read_bytes()
    except OSError as error:
        raise ImageError(f"{path}: cannot be read: {error.strerror}") from error
    return with_metadata(image, chip, str(path))
