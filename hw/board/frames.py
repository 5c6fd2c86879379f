"""Frames of the host link: the format, once for gateware and hosts. Needs nothing of the gateware library.

On the line a frame stands between two `FLAG`s (one may end a frame and begin the next); inside, a `FLAG` or an `ESCAPE`
is sent as `ESCAPE` and the byte XOR `FLIP`. So whatever was lost or added, the next `FLAG` begins a frame. A frame is a
header (`HEADER`, little-endian), `length` bytes of body, and the CRC-32 (IEEE 802.3) of both, lowest byte first. Bytes
between flags that are no frame (`HEADER` and CRC do not fit, or CRC or length are wrong) are dropped.

The host asks, the board answers; every request has the `ARGUMENTS` as its body, POKE then the words. An answer repeats
version, session and number of its request, and its type with `ANSWER` set; its body is that of `Kind`. The host has one
request on the way: it sends the next when the one before is answered, and the same again when no answer comes. A
request whose number is that of the last one in its session is not carried out again: its answer is sent once more. So
no answer can be taken for another's, and nothing is done twice, be it to start a run or to read a register that moves
on. HELLO begins a session (its number is in the header); requests of another session are refused: two hosts that share
a line hear of each other.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import NamedTuple

FLAG, ESCAPE, FLIP = 0x7E, 0x7D, 0x20
VERSION = 1
#: version, type, session, number, status (0 in requests), length of the body.
HEADER = struct.Struct("<BBHBBH")
#: `place`, `value`.
ARGUMENTS = struct.Struct("<II")
#: What an answer to HELLO has: bytes of data that a frame may carry, bytes of a memory word, channels, words of each.
GREETING = struct.Struct("<HBBI")
ANSWER = 0x80
CRC_BYTES = 4
#: Bytes before the data of a request.
HEAD_BYTES = HEADER.size + ARGUMENTS.size
#: Bits of a word address in `place`; the number of the DRAM channel stands above.
OFFSET_BITS = 24


class Kind(IntEnum):
    """What a request asks."""

    HELLO = 0  #: begins a session; answer: `GREETING`
    READ = 1  #: the register with byte address `place`; answer: its value, 4 bytes
    WRITE = 2  #: `value` into it
    PEEK = 3  #: `value` words of DRAM from `place` on; answer: the words
    POKE = 4  #: the words behind the arguments, `value` of them, into DRAM from `place` on
    RESET = 5  #: resets chip and DRAM port; what is in DRAM stays


class Outcome(IntEnum):
    """How a request went. Others than OK have no body."""

    OK = 0
    SESSION = 1  #: another host has begun a session since, or none has
    VERSION = 2  #: the board speaks another version, which its answer has
    KIND = 3  #: no such type
    LENGTH = 4  #: the body is not as long as its type and `value` say, or longer than a frame may be
    RANGE = 5  #: outside of DRAM
    BUS = 6  #: the chip refused the access to the register


class Frame(NamedTuple):
    """A frame; `kind` with `ANSWER` for answers."""

    kind: int
    session: int
    number: int
    body: bytes = b""
    outcome: int = Outcome.OK
    version: int = VERSION


def encode(frame: Frame) -> bytes:
    """A frame as it goes over the line, with both flags."""
    head = HEADER.pack(frame.version, frame.kind, frame.session, frame.number, frame.outcome, len(frame.body))
    content = head + frame.body
    content += zlib.crc32(content).to_bytes(CRC_BYTES, "little")
    flag = bytes([FLAG])
    for byte in (ESCAPE, FLAG):
        content = content.replace(bytes([byte]), bytes([ESCAPE, byte ^ FLIP]))
    return flag + content + flag


class Decoder:
    """Takes bytes from a line as they come; returns the frames among them."""

    def __init__(self, most: int = 1 << 16) -> None:
        self._most = most
        self._content = bytearray()
        self._escaped = False
        self.dropped = 0  #: bytes that belong to no frame

    def feed(self, data: bytes | bytearray) -> list[Frame]:
        frames: list[Frame] = []
        for byte in data:
            if byte == FLAG:
                if (frame := self._whole()) is not None:
                    frames.append(frame)
                else:
                    self.dropped += len(self._content)
                self._content.clear()
                self._escaped = False
            elif byte == ESCAPE:
                self._escaped = True
            elif len(self._content) <= self._most:
                self._content.append(byte ^ FLIP if self._escaped else byte)
                self._escaped = False
        return frames

    def _whole(self) -> Frame | None:
        content = bytes(self._content)
        if self._escaped or len(content) < HEADER.size + CRC_BYTES:
            return None
        if zlib.crc32(content[:-CRC_BYTES]) != int.from_bytes(content[-CRC_BYTES:], "little"):
            return None
        version, kind, session, number, outcome, length = HEADER.unpack_from(content)
        body = content[HEADER.size : -CRC_BYTES]
        return Frame(kind, session, number, body, outcome, version) if length == len(body) else None
