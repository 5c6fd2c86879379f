"""Lines to boards: a TCP connection, a serial port."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import termios
import time
from typing import Protocol

from ..interface import DeviceError, NoDeviceError

#: Bits a second of a serial port, if its name says none.
BAUD = 1_000_000
#: Seconds that a TCP connection may take.
_PATIENCE = 10


class LinkError(DeviceError):
    """The line to a board has failed, or what comes over it; the message names it."""


class Transport(Protocol):
    """Bytes to a board and from it."""

    @property
    def name(self) -> str:
        """As a device is named."""
        ...

    def send(self, data: bytes, seconds: float) -> None:
        """Sends all of it. Raises LinkError if the line is cut, or takes nothing for so long."""
        ...

    def receive(self, seconds: float) -> bytes:
        """What has come, at least one byte; empty if nothing comes for so long. Raises LinkError if the line is cut."""
        ...

    def close(self) -> None:
        """Gives the line back."""
        ...


class TcpTransport:
    """A board behind a TCP port. Raises NoDeviceError if there is none."""

    def __init__(self, host: str, port: int) -> None:
        self.name = f"tcp:{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout=_PATIENCE)
        except OSError as error:
            raise NoDeviceError(f"{self.name}: no board answers: {error.strerror or error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes, seconds: float) -> None:
        self._socket.settimeout(seconds)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise LinkError(f"{self.name}: takes no bytes for {seconds:g} seconds") from None
        except OSError as error:
            raise self._cut(error) from error

    def receive(self, seconds: float) -> bytes:
        self._socket.settimeout(max(seconds, 0.001))
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return b""
        except OSError as error:
            raise self._cut(error) from error
        if not data:
            raise self._cut(None)
        return data

    def _cut(self, error: OSError | None) -> LinkError:
        """That the line has failed: by an error, or its other end has closed it, which a host that has sent something
        meanwhile may learn as an error, too."""
        if error is None or isinstance(error, ConnectionResetError | BrokenPipeError):
            return LinkError(
                f"{self.name}: the connection was closed; another host may have the board, or it has ended"
            )
        return LinkError(f"{self.name}: the connection is cut: {error.strerror or error}")

    def close(self) -> None:
        self._socket.close()


class SerialTransport:
    """A board behind a serial port, which nobody else may open meanwhile. Raises NoDeviceError."""

    def __init__(self, path: str, baud: int) -> None:
        self.name = f"serial:{path}"
        speed = getattr(termios, f"B{baud}", None)
        if speed is None:
            raise NoDeviceError(f"{self.name}: serial ports do not go at {baud} bits a second")
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise NoDeviceError(f"{self.name}: cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.ioctl(self._handle, termios.TIOCEXCL)
            settings = termios.tcgetattr(self._handle)
            settings[:4] = [0, 0, termios.CS8 | termios.CREAD | termios.CLOCAL, 0]  # raw bytes, 8N1
            settings[4] = settings[5] = speed
            termios.tcsetattr(self._handle, termios.TCSANOW, settings)
            termios.tcflush(self._handle, termios.TCIOFLUSH)
        except BlockingIOError:
            os.close(self._handle)
            raise NoDeviceError(f"{self.name}: another host has it") from None
        except (OSError, termios.error) as error:
            os.close(self._handle)
            raise NoDeviceError(f"{self.name}: is no serial port: {error.args[-1]}") from error

    def send(self, data: bytes, seconds: float) -> None:
        end = time.monotonic() + seconds
        while data:
            if not select.select([], [self._handle], [], max(0, end - time.monotonic()))[1]:
                raise LinkError(f"{self.name}: takes no bytes for {seconds:g} seconds")
            try:
                data = data[os.write(self._handle, data) :]
            except OSError as error:
                raise LinkError(f"{self.name}: the line is cut: {error.strerror}") from error

    def receive(self, seconds: float) -> bytes:
        if not select.select([self._handle], [], [], max(0, seconds))[0]:
            return b""
        try:
            data = os.read(self._handle, 1 << 16)
        except OSError as error:
            raise LinkError(f"{self.name}: the line is cut: {error.strerror}") from error
        if not data:
            raise LinkError(f"{self.name}: the line is cut")
        return data

    def close(self) -> None:
        os.close(self._handle)
