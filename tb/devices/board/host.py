"""The host's end of the link (`hw.board.frames`): requests that are repeated until they are answered."""

from __future__ import annotations

import secrets
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.board.frames import ANSWER, ARGUMENTS, GREETING, OFFSET_BITS, VERSION, Decoder, Frame, Kind, encode
from meshloom.hw.board.frames import Outcome as Answered

from ..interface import NoDeviceError
from .transport import LinkError, Transport

#: Seconds after which a request is repeated, and how often.
PATIENCE, ATTEMPTS = 3.0, 6
#: Why a board refuses a request.
_REFUSED = {
    Answered.SESSION: "another host has taken the board",
    Answered.KIND: "it does not know this request",
    Answered.LENGTH: "the request has a wrong length",
    Answered.RANGE: "there is no DRAM at that place",
    Answered.BUS: "the chip refuses the access to this register",
}


class Greeting(NamedTuple):
    """What a board says of itself: bytes that a frame carries, bytes of a word, DRAM channels, words of each."""

    data_bytes: int
    lanes: int
    channels: int
    words: int


class BoardLink:
    """A session with a board. Raises NoDeviceError if what is there is no board, or one of another version; LinkError
    if it does not answer."""

    def __init__(self, transport: Transport, patience: float = PATIENCE, attempts: int = ATTEMPTS) -> None:
        self._transport, self._patience, self._attempts = transport, patience, attempts
        self._session, self._number = secrets.randbits(16), 0
        self._decoder = Decoder()
        self.repeated = 0  #: requests that were sent once more
        self.greeting = Greeting(*GREETING.unpack(self._sized(Kind.HELLO, self.request(Kind.HELLO), GREETING.size)))
        if not 0 < self.greeting.lanes <= self.greeting.data_bytes:
            raise NoDeviceError(
                f"{self._transport.name}: the board says that a frame has {self.greeting.data_bytes} bytes and a word "
                f"{self.greeting.lanes}; a frame must hold a word"
            )

    def request(self, kind: Kind, place: int = 0, value: int = 0, data: bytes = b"") -> bytes:
        """Has a request carried out, once; returns the body of its answer. Raises as the class does."""
        self._number = (self._number + 1) % 256
        frame = Frame(kind, self._session, self._number, ARGUMENTS.pack(place, value) + data)
        content = encode(frame)
        for attempt in range(self._attempts):
            self.repeated += attempt > 0
            self._transport.send(content, self._patience)
            answer = self._answer(frame)
            if answer is not None:
                return self._judged(kind, answer)
        heard = self._decoder.dropped
        what = f"what comes from it ({heard} bytes) is no answer" if heard else "the board does not answer"
        error = NoDeviceError if kind is Kind.HELLO else LinkError
        raise error(f"{self._transport.name}: {what} to {kind.name} in {self._attempts} attempts")

    def _answer(self, asked: Frame) -> Frame | None:
        """The answer to a request; None if none comes in time. Others are of requests that were repeated."""
        end = time.monotonic() + self._patience
        while (left := end - time.monotonic()) > 0:
            for frame in self._decoder.feed(self._transport.receive(left)):
                ours = (frame.kind, frame.session, frame.number) == (asked.kind | ANSWER, asked.session, asked.number)
                if ours:
                    return frame
        return None

    def _judged(self, kind: Kind, answer: Frame) -> bytes:
        name = self._transport.name
        if answer.version != VERSION or answer.outcome == Answered.VERSION:
            raise NoDeviceError(f"{name}: the board speaks version {answer.version} of the link, this host {VERSION}")
        if answer.outcome != Answered.OK:
            why = _REFUSED.get(Answered(answer.outcome), "unknown") if answer.outcome in list(Answered) else "unknown"
            raise LinkError(f"{name}: {kind.name} was refused: {why}")
        return answer.body

    def _sized(self, kind: Kind, body: bytes, size: int) -> bytes:
        """The body of an answer, which must have so many bytes."""
        if len(body) != size:
            raise LinkError(f"{self._transport.name}: the answer to {kind.name} has {len(body)} bytes, not {size}")
        return body

    def read(self, register: int) -> int:
        """The value of a register."""
        return int.from_bytes(self._sized(Kind.READ, self.request(Kind.READ, register), 4), "little")

    def write(self, register: int, value: int) -> None:
        """Sets a register."""
        self.request(Kind.WRITE, register, value)

    def reset(self) -> None:
        """Resets the chip; DRAM stays."""
        self.request(Kind.RESET)

    @property
    def _most(self) -> int:
        """Words of a frame."""
        return self.greeting.data_bytes // self.greeting.lanes

    def load(self, channel: int, address: int, words: NDArray[np.uint8]) -> None:
        """Words uint8 [n, P] into DRAM."""
        for at in range(0, len(words), self._most):
            part = np.ascontiguousarray(words[at : at + self._most])
            self.request(Kind.POKE, channel << OFFSET_BITS | address + at, len(part), part.tobytes())

    def dump(self, channel: int, address: int, words: int) -> NDArray[np.uint8]:
        """Words of DRAM, uint8 [words, P]."""
        parts = [np.zeros((0, self.greeting.lanes), np.uint8)]
        for at in range(0, words, self._most):
            count = min(self._most, words - at)
            body = self.request(Kind.PEEK, channel << OFFSET_BITS | address + at, count)
            self._sized(Kind.PEEK, body, count * self.greeting.lanes)
            parts.append(np.frombuffer(body, np.uint8).reshape(count, -1))
        return np.concatenate(parts)
