"""The processes in which simulators run."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import subprocess
import time
from pathlib import Path
from typing import IO

from .interface import NoDeviceError

#: Seconds that a simulator may take to start, and to end once it has closed its pipe.
_PATIENCE, _END = 120, 10
#: Milliseconds between two looks whether a process still runs that has not opened its pipe.
_LOOK = 100


def open_pipe(path: Path, process: subprocess.Popen[bytes], log: Path) -> IO[str]:
    """Opens a pipe for writing as soon as a simulator process has opened its other end. Raises NoDeviceError, which
    names the `log`, when it ends before, or takes too long."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            number = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        else:
            os.set_blocking(number, True)
            return os.fdopen(number, "w")
        if process.poll() is not None or time.monotonic() > end:
            raise NoDeviceError(f"the simulator does not start; see {log}")
        time.sleep(0.01)


class Answers:
    """The lines that a simulator process writes to a pipe, which is made here, before the process starts."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._rest = bytearray()

    def line(self, process: subprocess.Popen[bytes]) -> str | None:
        """The next one, as soon as it is there; None if the process ends before."""
        poll = select.poll()
        poll.register(self._number, select.POLLIN)
        while (end := self._rest.find(b"\n")) < 0:
            over = process.poll() is not None  # looked at first: what it has written before that is in the pipe
            if not poll.poll(0 if over else _LOOK):
                if over:
                    return None
            elif data := os.read(self._number, 1 << 16):
                self._rest += data
            elif over:
                return None
            else:  # the simulator has closed it, and the process ends that has started it
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_END)
                    continue
                return None
        text = self._rest[:end].decode()
        del self._rest[: end + 1]
        return text

    def close(self) -> None:
        """Reads no more."""
        os.close(self._number)


def stop(process: subprocess.Popen[bytes], patience: float) -> None:
    """Waits for a simulator process that should be ending by itself; then ends it and all that it has started."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=patience)
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
