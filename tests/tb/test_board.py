"""Boards as devices: the host's end of the link against a played board."""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
import threading
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from meshloom.hw.board.frames import ANSWER, ARGUMENTS, GREETING, Decoder, Frame, Kind, Outcome, encode
from meshloom.hw.spec.config import ChipConfig, DramConfig
from meshloom.hw.spec.isa import Cause
from meshloom.hw.spec.registers import ID_VALUE, STATUS, Register
from meshloom.tb.devices.board import device as board_device
from meshloom.tb.devices.board.device import BoardDevice
from meshloom.tb.devices.board.host import BoardLink
from meshloom.tb.devices.board.transport import LinkError, SerialTransport, TcpTransport
from meshloom.tb.devices.interface import NoDeviceError, Run, UnknownDeviceError
from meshloom.tb.devices.registry import find
from meshloom.tb.results.exits import Exit, expected

from .hand_made import CHIP, nothing_to_do, there_and_back

GREETS = GREETING.pack(64, CHIP.lanes, 1, CHIP.dram.words)
Line = Callable[[bytes], bytes]


@dataclass
class PlayedBoard:
    """A board that answers over TCP: registers are fixed, DRAM is what was put there. `to_host`, `to_board`: what the
    line makes of bytes; `answers`: what is said instead."""

    registers: Mapping[int, int] = field(default_factory=dict[int, int])
    to_host: Line = bytes
    to_board: Line = bytes
    answers: Callable[[Frame], Frame | None] | None = None
    most: int | None = None  #: requests, after which the connection is cut
    memory: dict[int, bytes] = field(default_factory=dict[int, bytes])
    done: list[Frame] = field(default_factory=list[Frame])

    def answer(self, asked: Frame) -> Frame:
        place, value = ARGUMENTS.unpack_from(asked.body)
        if not (self.done and self.done[-1] == asked):
            self.done.append(asked)
        body = b""
        if asked.kind == Kind.HELLO:
            body = GREETS
        elif asked.kind == Kind.READ:
            body = self.registers.get(place, 0).to_bytes(4, "little")
        elif asked.kind == Kind.POKE:
            for i in range(value):
                at = ARGUMENTS.size + i * CHIP.lanes
                self.memory[place + i] = asked.body[at : at + CHIP.lanes]
        elif asked.kind == Kind.PEEK:
            body = b"".join(self.memory.get(place + i, bytes(CHIP.lanes)) for i in range(value))
        return Frame(asked.kind | ANSWER, asked.session, asked.number, body)

    def serve(self, connection: socket.socket) -> None:
        decoder = Decoder()
        with connection:
            while data := connection.recv(4096):
                for frame in decoder.feed(self.to_board(data)):
                    if self.most is not None and len(self.done) >= self.most:
                        return
                    said = self.answers(frame) if self.answers is not None else None
                    connection.sendall(self.to_host(encode(said or self.answer(frame))))


@contextmanager
def listening(board: PlayedBoard) -> Iterator[int]:
    """The port of a played board."""
    with socket.create_server(("localhost", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                    board.serve(connection)
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@contextmanager
def linked(board: PlayedBoard, patience: float = 0.05, attempts: int = 20) -> Iterator[BoardLink]:
    with listening(board) as port:
        transport = TcpTransport("localhost", port)
        try:
            yield BoardLink(transport, patience, attempts)
        finally:
            transport.close()


def test_words_go_there_and_back() -> None:
    words = np.random.default_rng(0).integers(0, 256, (50, CHIP.lanes)).astype(np.uint8)
    with linked(PlayedBoard()) as link:
        link.load(0, 100, words)
        assert (link.dump(0, 100, 50) == words).all()
        assert link.dump(0, 0, 0).shape == (0, CHIP.lanes)
        assert link.repeated == 0


def test_what_the_line_loses_is_asked_again_and_done_once() -> None:
    rng = np.random.default_rng(1)

    def bad(data: bytes) -> bytes:
        what = rng.random()
        if what < 0.2:
            return b""
        return data[:5] + bytes([data[5] ^ 1]) + data[6:] if what < 0.4 else b"\x7e\x00\xff" * (what > 0.8) + data

    board = PlayedBoard(to_host=bad, to_board=bad)
    words = np.arange(200, dtype=np.uint8).reshape(-1, CHIP.lanes)
    with linked(board) as link:
        link.load(0, 0, words)
        link.write(8, 1)
        assert (link.dump(0, 0, 50) == words).all()
        assert link.repeated > 0
    numbers = [frame.number for frame in board.done]
    assert numbers == sorted(set(numbers)), "each once, in their order"


def test_an_answer_to_a_request_before_is_not_taken() -> None:
    board = PlayedBoard({4: 7, 8: 9})

    def late(data: bytes) -> bytes:
        *_, last = board.done
        return encode(Frame(Kind.READ | ANSWER, last.session, (last.number - 1) % 256, b"\xff" * 4)) + data

    board.to_host = late
    with linked(board) as link:
        assert (link.read(4), link.read(8)) == (7, 9)


def refused(board: PlayedBoard, kind: type[Exception], why: str) -> None:
    def converse() -> None:
        with linked(board, attempts=2) as link:
            for _ in range(9):
                link.read(0)

    with pytest.raises(kind, match=why):
        converse()


def test_each_failure_of_a_line_is_one_error() -> None:
    def saying(outcome: int, version: int = 1) -> Callable[[Frame], Frame | None]:
        return lambda frame: (
            None
            if frame.kind == Kind.HELLO and version == 1
            else Frame(frame.kind | ANSWER, frame.session, frame.number, b"", outcome, version)
        )

    silent = PlayedBoard(to_host=lambda data: b"")
    refused(silent, NoDeviceError, "tcp:localhost:.*: the board does not answer to HELLO in 2 attempts")
    garbage = PlayedBoard(to_host=lambda data: b"Linux login: \x7e")
    refused(garbage, NoDeviceError, r"what comes from it \(\d+ bytes\) is no answer to HELLO in 2 attempts")
    refused(PlayedBoard(most=3), LinkError, "the connection was closed; another host may have the board")
    refused(
        PlayedBoard(answers=saying(Outcome.SESSION)), LinkError, "READ was refused: another host has taken the board"
    )
    refused(PlayedBoard(answers=saying(Outcome.BUS)), LinkError, "the chip refuses the access to this register")
    refused(PlayedBoard(answers=saying(99)), LinkError, "READ was refused: unknown")
    other = PlayedBoard(answers=saying(Outcome.VERSION, 7))
    refused(other, NoDeviceError, "the board speaks version 7 of the link, this host 1")


def test_an_answer_of_another_size_is_one_error() -> None:
    def saying(kind: Kind, body: bytes) -> PlayedBoard:
        return PlayedBoard(
            answers=lambda frame: (
                Frame(kind | ANSWER, frame.session, frame.number, body) if frame.kind == kind else None
            )
        )

    refused(saying(Kind.HELLO, b"123"), LinkError, "the answer to HELLO has 3 bytes, not 8")
    for data, lanes in ((64, 0), (0, 4), (3, 4)):
        board = saying(Kind.HELLO, GREETING.pack(data, lanes, 1, 9))
        refused(board, NoDeviceError, f"has {data} bytes and a word {lanes}; a frame must hold a word")
    refused(saying(Kind.READ, b""), LinkError, "the answer to READ has 0 bytes, not 4")
    with linked(saying(Kind.PEEK, bytes(5))) as link, pytest.raises(LinkError, match="to PEEK has 5 bytes, not 8"):
        link.dump(0, 0, 2)


def ran(board: PlayedBoard, chip: ChipConfig = CHIP) -> list[Run]:
    with listening(board) as port:
        device = BoardDevice(chip, f"tcp:localhost:{port}", lambda: TcpTransport("localhost", port))
        return [*device.run([there_and_back(1).job])]


def test_another_chip_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own: dict[int, int] = {Register.ID: ID_VALUE, Register.CONFIG: int(CHIP.digest[-8:], 16)}
    with pytest.raises(NoDeviceError, match="register ID is 0x0: behind the link is no chip of Meshloom"):
        ran(PlayedBoard())
    with pytest.raises(NoDeviceError, match="the chip there is another one than tiny: its digest ends with 00000001"):
        ran(PlayedBoard(own | {Register.CONFIG: 1}))
    monkeypatch.setattr(board_device, "_READY_POLLS", 3)
    with pytest.raises(LinkError, match="the chip does not become ready after its reset"):
        ran(PlayedBoard(own))
    # a chip with more memory, whose digest is said to be that of this board
    large = CHIP.model_copy(update={"dram": DramConfig(words=1 << 21)})
    own[Register.CONFIG] = int(large.digest[-8:], 16)
    with pytest.raises(NoDeviceError, match="has 1 DRAM channels of 1048576 words; chip tiny needs 1 of 2097152"):
        ran(PlayedBoard(own), large)


def test_a_fault_is_told_with_what_each_part_waits_for() -> None:
    states = {Register.ID: ID_VALUE, Register.CONFIG: int(CHIP.digest[-8:], 16), Register.CYCLES: 77}
    both = STATUS.pack({"fault": 1, "ready": 1})
    states |= {Register.STATUS: both, Register.FAULT_WHO: int(Cause.WATCHDOG), Register.REPORTS: 2}
    (run,) = ran(PlayedBoard({int(name): value for name, value in states.items()}))
    assert run.fault is not None
    assert (run.fault.cause, run.cycles, len(run.blocked_status), run.memory) == (Cause.WATCHDOG, 77, 2, [])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tcp:5000", "device tcp:5000: must be tcp:HOST:PORT"),
        ("tcp:here:70000", "must be tcp:HOST:PORT, such as tcp:localhost:5000"),
        (f"tcp:here:{'1' * 5000}", "must be tcp:HOST:PORT, such as tcp:localhost:5000"),
        ("tcp:here:0", "must be tcp:HOST:PORT, such as tcp:localhost:5000"),
        (f"serial:/dev/null@{'1' * 5000}", "must be serial:PATH or serial:PATH@BAUD"),
        ("serial:/dev/null@0", "must be serial:PATH or serial:PATH@BAUD"),
        ("serial:", "must be serial:PATH or serial:PATH@BAUD"),
        ("udp:here:5000", "unknown device 'udp:here:5000'; known are "),
        ("udp:here:5000", "FILE.py:NAME; boards are tcp:HOST:PORT and serial:PATH"),
    ],
)
def test_a_name_that_is_no_place_is_wrong_input(name: str, why: str) -> None:
    with pytest.raises(UnknownDeviceError, match=re.escape(why)) as error:
        find(name)
    pair = expected(error.value)
    assert pair is not None
    assert pair[1] == Exit.BAD_INPUT


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("serial:/dev/null@12", "serial ports do not go at 12 bits a second"),
        ("serial:/nowhere", "serial:/nowhere: cannot be opened: No such file or directory"),
        ("serial:/dev/null", "serial:/dev/null: is no serial port"),
        ("tcp:localhost:1", "tcp:localhost:1: no board answers: "),
    ],
)
def test_a_place_without_a_board_is_named(name: str, why: str) -> None:
    with pytest.raises(NoDeviceError, match=re.escape(why)):
        list(find(name).open(CHIP, False, lambda what: None).run([nothing_to_do().job]))


def test_a_slow_peer_is_given_up() -> None:
    with socket.create_server(("localhost", 0)) as server:
        transport = TcpTransport("localhost", server.getsockname()[1])
        with pytest.raises(LinkError, match=r"takes no bytes for 0\.1 seconds"):
            transport.send(bytes(1 << 26), 0.1)
        transport.close()


def test_a_board_that_another_host_has_is_told_however_the_line_ends() -> None:
    """One that closes a connection on which something has come that it does not read resets it."""
    with socket.create_server(("localhost", 0)) as server:
        transport = TcpTransport("localhost", server.getsockname()[1])
        peer, _ = server.accept()
        transport.send(b"hello", 1)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        with pytest.raises(LinkError, match="the connection was closed; another host may have the board"):
            transport.receive(5)
        transport.close()


def test_a_connection_that_the_network_cuts_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> bytes:
        raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))

    with socket.create_server(("localhost", 0)) as server:
        transport = TcpTransport("localhost", server.getsockname()[1])
        with monkeypatch.context() as patch, closing(transport):
            patch.setattr(
                transport, "_socket", SimpleNamespace(settimeout=print, recv=unreachable, sendall=unreachable)
            )
            for call in (lambda: transport.receive(1), lambda: transport.send(b"more", 1)):
                with pytest.raises(LinkError, match="the connection is cut: No route to host"):
                    call()
            patch.undo()


@contextmanager
def pseudo_terminal(port: int) -> Iterator[str]:
    """A serial port at whose other end a TCP port is."""
    master, slave = os.openpty()
    tty.setraw(slave)
    peer = socket.create_connection(("localhost", port))

    def pump(read: Callable[[], bytes], write: Callable[[bytes], Any]) -> None:
        try:
            while data := read():
                write(data)
        except OSError:
            return

    for read, write in (
        (lambda: os.read(master, 4096), peer.sendall),
        (lambda: peer.recv(4096), lambda data: os.write(master, data)),
    ):
        threading.Thread(target=pump, args=(read, write), daemon=True).start()
    try:
        yield os.ttyname(slave)
    finally:
        peer.shutdown(socket.SHUT_RDWR)
        peer.close()
        os.close(slave)


def test_a_serial_port_carries_every_byte_and_has_one_host() -> None:
    words = np.arange(256, dtype=np.uint8).reshape(-1, CHIP.lanes)  # control characters, too
    with listening(PlayedBoard()) as port, pseudo_terminal(port) as path:
        transport = SerialTransport(path, 115200)
        with pytest.raises(NoDeviceError, match=r"another host has it|cannot be opened: Device or resource busy"):
            SerialTransport(path, 115200)
        link = BoardLink(transport, 1)
        link.load(0, 0, words)
        assert (link.dump(0, 0, len(words)) == words).all()
        transport.close()


def test_a_serial_port_that_is_pulled_out_is_one_error() -> None:
    master, slave = os.openpty()
    transport = SerialTransport(os.ttyname(slave), 115200)
    os.close(slave)
    os.close(master)
    for use in (lambda: transport.send(b"a", 1), lambda: transport.receive(1)):
        with pytest.raises(LinkError, match="the line is cut"):
            use()
    transport.close()


def test_a_serial_port_that_takes_no_bytes_is_one_error() -> None:
    master, slave = os.openpty()
    transport = SerialTransport(os.ttyname(slave), 115200)
    with pytest.raises(LinkError, match=r"takes no bytes for 0\.1 seconds"):
        transport.send(bytes(1 << 20), 0.1)
    transport.close()
    os.close(slave)
    os.close(master)
