"""The processes in which simulators run."""

from __future__ import annotations

import contextlib
import subprocess


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
