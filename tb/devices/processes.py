"""The processes in which simulators run."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import time
from pathlib import Path
from typing import IO

from .interface import NoDeviceError

#: Seconds that a simulator may take to start.
_PATIENCE = 120


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
